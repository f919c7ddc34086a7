"""The PEP 523 frame hook: which frames are offered, in which order, and what becomes of results and errors."""

import copy
import functools
import gc
import inspect
import pickle
import signal
import sys
import threading
import traceback
import types
import weakref

import pytest

from flambeau import _C
from tests.threads import in_threads


@pytest.fixture(autouse=True)
def callback_off_afterwards():
    yield
    assert _C.get_frame_callback() is None
    _C.set_frame_callback(None)


class Recorder:
    """A callback that writes down what it is offered and answers from a table keyed by function name."""

    def __init__(self, **answers):
        self.offers = []
        self.answers = answers

    def __call__(self, function, code, values):
        self.offers.append((function.__name__, values))
        assert function.__code__ is code
        return self.answers.get(function.__name__)

    @property
    def names(self):
        return [name for name, _ in self.offers]


def always(function, *values):
    return True


def replacement_of(result):
    """A (guard, replacement) pair whose replacement returns `result(*values)`."""

    def replacement(function, *values):
        return result(*values)

    _C.skip_code(replacement.__code__)
    _C.skip_code(result.__code__)
    return always, replacement


def test_a_hit_needs_no_callback_and_a_miss_asks_it():
    def f(x):
        return x + 1

    recorder = Recorder(f=replacement_of(lambda x: x * 10))
    run = _C.watched(f, recorder)
    assert [run(3), run(4), f(3)] == [30, 40, 4]
    assert recorder.offers == [("f", (3,))]


def test_none_runs_the_frame_as_it_is_and_asks_again():
    def f(x):
        return x + 1

    recorder = Recorder()
    run = _C.watched(f, recorder)
    assert [run(1), run(2)] == [2, 3]
    assert recorder.offers == [("f", (1,)), ("f", (2,))]


def test_nested_calls_are_offered_one_by_one():
    def inner(x):
        return x + 1

    def outer(x):
        return inner(x) * 2

    recorder = Recorder(inner=replacement_of(lambda x: 100))
    assert _C.watched(outer, recorder)(1) == 200
    assert recorder.names == ["outer", "inner"]


def test_calls_made_by_a_replacement_are_offered():
    def inner(x):
        return x + 1

    def outer(x):
        return inner(x) * 2

    def replacement(function, x):
        return inner(x) * 3

    _C.skip_code(replacement.__code__)
    recorder = Recorder(outer=(always, replacement), inner=replacement_of(lambda x: 7))
    run = _C.watched(outer, recorder)
    assert run(0) == 21
    assert run(0) == 21
    assert recorder.names == ["outer", "inner"]


def test_guards_are_asked_in_order_of_the_most_recent_hit():
    asked = []

    def f(x):
        return "plain"

    def entry(value):
        def guard(function, x):
            asked.append(value)
            return x == value

        def replacement(function, x):
            return value

        _C.skip_code(replacement.__code__)
        return guard, replacement

    entries = {value: entry(value) for value in "abc"}
    for value in "abc":
        _C.add_cache_entry(f.__code__, *entries[value])
    assert _C.cache_entries(f.__code__) == [entries["c"], entries["b"], entries["a"]]

    run = _C.watched(f, Recorder())
    for value, order in [("a", "cba"), ("a", "a"), ("b", "acb"), ("c", "bac"), ("z", "cba")]:
        asked.clear()
        assert run(value) == (value if value in "abc" else "plain")
        assert asked == list(order)
    assert _C.cache_entries(f.__code__) == [entries["c"], entries["b"], entries["a"]]


def test_the_entry_that_fitted_the_same_first_argument_is_asked_first():
    asked = []

    class Layer:
        def __init__(self, number):
            self.number = number

        def forward(self, x):
            return "plain"

    def entry(number):
        def guard(function, self, x):
            asked.append(number)
            return self.number == number

        def replacement(function, self, x):
            return number

        _C.skip_code(replacement.__code__)
        return guard, replacement

    layers = [Layer(number) for number in range(5)]
    for number in range(5):
        _C.add_cache_entry(Layer.forward.__code__, *entry(number))
    run = _C.watched(lambda: [layer.forward(0) for layer in layers], Recorder())
    for _ in range(3):
        assert run() == [0, 1, 2, 3, 4]
    asked.clear()
    assert run() == [0, 1, 2, 3, 4] and asked == [0, 1, 2, 3, 4]
    layers[1].number, layers[2].number = 2, 1  # only a hint: the guards decide
    assert run() == [0, 2, 1, 3, 4] == run()
    _C.clear_cache(Layer.forward.__code__)
    _C.add_cache_entry(Layer.forward.__code__, *entry(3))
    _C.add_cache_entry(Layer.forward.__code__, *entry(4))
    assert run() == ["plain", "plain", "plain", 3, 4]


def test_a_guard_sees_the_function_and_its_values():
    seen = []

    def f(x, y):
        return x

    def guard(*arguments):
        seen.append(arguments)
        return []  # any false value is a miss

    _C.add_cache_entry(f.__code__, guard, lambda *_: None)
    assert _C.watched(f, Recorder())(1, 2) == 1
    assert seen == [(f, 1, 2)]


def test_the_callback_is_off_in_guards_and_in_the_callback():
    states = []

    def helper():
        states.append(_C.get_frame_callback())

    def f():
        return "plain"

    def guard(function):
        helper()
        return False

    def callback(function, code, values):
        helper()
        return guard, replacement

    def replacement(function):
        states.append(_C.get_frame_callback())

    _C.skip_code(replacement.__code__)
    run = _C.watched(f, callback)
    run()
    run()
    assert states == [None, callback, None, None, callback]


def test_a_callback_set_inside_the_callback_ends_with_it():
    def f():
        return 1

    def callback(function, code, values):
        assert _C.set_frame_callback(Recorder()) is None

    run = _C.watched(f, callback)
    assert run() == 1
    assert _C.get_frame_callback() is None


# ------------------------------------------------------------ arguments
def packed(function, *args, **kwargs):
    """What the callback is offered when `function(*args, **kwargs)` is called."""
    recorder = Recorder()
    _C.watched(function, recorder)(*args, **kwargs)
    return recorder.offers[0][1]


def test_values_come_in_the_order_of_varnames():
    def everything(a, b=2, /, c=3, *rest, d, e=5, **others):
        local = a
        return local

    assert packed(everything, 1, d=4) == (1, 2, 3, 4, 5, (), {})
    assert packed(everything, 1, 20, 30, 31, 32, d=40, z=9) == (1, 20, 30, 40, 5, (31, 32), {"z": 9})
    names = everything.__code__.co_varnames
    assert names[:7] == ("a", "b", "c", "d", "e", "rest", "others")


def test_no_arguments_and_many_arguments():
    namespace = {}
    names = ", ".join(f"a{i}" for i in range(60))
    exec(f"def many({names}): return a0", namespace)
    assert packed(lambda: None) == ()
    assert packed(namespace["many"], *range(60)) == tuple(range(60))


def test_a_replacement_gets_many_arguments():
    namespace = {}
    exec(f"def many({', '.join(f'a{i}' for i in range(60))}): return a0", namespace)
    many = namespace["many"]
    _C.add_cache_entry(many.__code__, *replacement_of(lambda *values: sum(values)))
    assert _C.watched(many, Recorder())(*range(60)) == sum(range(60))


def test_arguments_that_a_closure_captures_are_plain_values():
    def f(x, *args):
        return lambda: (x, args)

    assert packed(f, 1, 2) == (1, (2,))
    _C.add_cache_entry(f.__code__, *replacement_of(lambda x, args: (args, x)))
    assert _C.watched(f, Recorder())(1, 2) == ((2,), 1)


def test_a_closure_is_reached_through_the_function():
    def make(n):
        def f(x):
            return x + n

        return f

    def replacement(function, x):
        return x * function.__closure__[0].cell_contents

    _C.skip_code(replacement.__code__)
    first, second = make(2), make(3)
    assert first.__code__ is second.__code__
    _C.add_cache_entry(first.__code__, always, replacement)
    recorder = Recorder()
    assert _C.watched(first, recorder)(10) == 20
    assert _C.watched(second, recorder)(10) == 30
    assert recorder.offers == []


def test_methods_and_defaults_and_static_and_class_methods():
    class Thing:
        def method(self, x=5):
            return x

        @classmethod
        def make(cls):
            return cls

        @staticmethod
        def plain(x):
            return x

        def __call__(self, x):
            return x

    thing = Thing()
    assert packed(thing.method) == (thing, 5)
    assert packed(Thing.make) == (Thing,)
    assert packed(Thing.plain, 1) == (1,)
    assert packed(thing, 3) == (thing, 3)


def test_init_is_offered_and_may_be_replaced():
    class Thing:
        def __init__(self, x):
            self.x = x

    def replacement(function, self, x):
        self.x = -x

    _C.skip_code(replacement.__code__)
    _C.add_cache_entry(Thing.__init__.__code__, always, replacement)
    assert _C.watched(lambda: Thing(3), Recorder())().x == -3  # a hot call site of 3.13 runs __init__ without asking


# ------------------------------------------------------------ frames that are left alone
def test_generators_and_coroutines_are_left_alone():
    def generator(n):
        yield from range(n)

    async def coroutine():
        return 5

    async def async_generator():
        yield 1

    def drive():
        awaitable = coroutine()
        with pytest.raises(StopIteration) as stop:
            awaitable.send(None)
        stream = async_generator()
        return list(generator(3)), stop.value.value, stream

    recorder = Recorder()
    numbers, value, stream = _C.watched(drive, recorder)()
    assert (numbers, value) == ([0, 1, 2], 5)
    assert not {"generator", "coroutine", "async_generator"} & set(recorder.names)
    with pytest.raises(StopIteration):
        stream.aclose().send(None)


def test_class_and_module_bodies_are_left_alone():
    def f():
        class Body:
            value = 3

        namespace = {}
        exec("value = 4", namespace)
        return Body.value + namespace["value"] + eval("1 + 1")

    recorder = Recorder()
    assert _C.watched(f, recorder)() == 9
    assert recorder.names == ["f"]


def test_skipped_code_is_never_offered_until_its_cache_is_cleared():
    def f():
        return 1

    recorder = Recorder()
    run = _C.watched(f, recorder)
    _C.skip_code(f.__code__)
    run()
    assert recorder.names == []
    _C.clear_cache(f.__code__)
    run()
    assert recorder.names == ["f"]


def test_clear_cache_forgets_entries():
    def f():
        return 1

    _C.add_cache_entry(f.__code__, *replacement_of(lambda: 2))
    run = _C.watched(f, Recorder())
    assert run() == 2
    _C.clear_cache(f.__code__)
    assert _C.cache_entries(f.__code__) == []
    assert run() == 1


# ------------------------------------------------------------ errors
def test_errors_of_callback_guard_and_replacement_propagate():
    def boom(*_):
        raise ZeroDivisionError("from here")

    def f(x):
        return x

    def g(x):
        return x

    def h(x):
        return x

    _C.add_cache_entry(g.__code__, boom, always)
    _C.add_cache_entry(h.__code__, always, boom)
    for run in (_C.watched(f, boom), _C.watched(g, Recorder()), _C.watched(h, Recorder())):
        with pytest.raises(ZeroDivisionError, match="from here"):
            run(1)
        assert _C.get_frame_callback() is None
    assert (f(1), g(1), h(1)) == (1, 1, 1)


def test_an_error_in_a_replacement_can_be_handled_by_the_caller_s_frame():
    def inner(x):
        return x

    def outer(x):
        try:
            return inner(x)
        except ValueError as error:
            return [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        finally:
            inner.seen = True

    def replacement(function, x):
        raise ValueError

    _C.skip_code(replacement.__code__)
    _C.add_cache_entry(inner.__code__, always, replacement)
    assert _C.watched(outer, Recorder())(1) == ["outer", "replacement"]
    assert inner.seen


def test_a_function_that_begins_with_try_is_replaced_cleanly():
    def f(x):
        try:
            return x
        except BaseException:
            return "handler ran"
        finally:
            f.finished = True

    _C.add_cache_entry(f.__code__, *replacement_of(lambda x: -x))
    assert _C.watched(f, Recorder())(1) == -1
    assert not hasattr(f, "finished")


@pytest.mark.parametrize("answer", [1, (always,), (always, 3), [always, always], (always, always, always)])
def test_a_wrong_answer_is_a_type_error(answer):
    def f():
        return 1

    with pytest.raises(TypeError, match=r"returns \(guard, replacement\) or None"):
        _C.watched(f, lambda *_: answer)()


@pytest.mark.parametrize(
    "call",
    [
        lambda: _C.set_frame_callback(3),
        lambda: _C.skip_code(len),
        lambda: _C.cache_entries(None),
        lambda: _C.clear_cache("f"),
        lambda: _C.add_cache_entry(always.__code__, 1, always),
        lambda: _C.add_cache_entry(always, always, always),
        lambda: _C.undisturbed(3),
        lambda: _C.watched(always, None),
        lambda: type(_C.undisturbed(always))(),
    ],
)
def test_wrong_arguments_are_type_errors(call):
    with pytest.raises(TypeError):
        call()


# ------------------------------------------------------------ recursion and threads
def test_recursion_offers_every_level():
    def factorial(n):
        return 1 if n == 0 else n * factorial(n - 1)

    recorder = Recorder()
    assert _C.watched(factorial, recorder)(5) == 120
    assert recorder.offers == [("factorial", (n,)) for n in (5, 4, 3, 2, 1, 0)]


def test_recursion_through_replacements():
    def factorial(n):
        return 1 if n == 0 else n * factorial(n - 1)

    def replacement(function, n):
        return 1 if n == 0 else n * function(n - 1)

    _C.skip_code(replacement.__code__)
    _C.add_cache_entry(factorial.__code__, always, replacement)
    recorder = Recorder()
    assert _C.watched(factorial, recorder)(20) == factorial(20)
    assert recorder.offers == []


def test_endless_recursion_is_a_recursion_error():
    def f(n):
        return f(n + 1)

    def g(n):
        return g(n + 1)

    def replacement(function, n):
        return function(n + 1)

    _C.skip_code(replacement.__code__)
    _C.add_cache_entry(g.__code__, always, replacement)
    _C.skip_code(f.__code__)
    for function in (f, g):
        with pytest.raises(RecursionError):
            _C.watched(function, Recorder())(0)


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_raised_recursion_limit_does_not_overrun_the_c_stack(in_thread):
    def f(n):
        return 0 if n == 0 else 1 + f(n - 1)

    caught = []

    def run():
        try:
            caught.append(_C.watched(f, Recorder())(10**6))
        except RecursionError as error:
            caught.append(error)

    _C.skip_code(f.__code__)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10**7)
    try:
        if in_thread:
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        else:
            run()
    finally:
        sys.setrecursionlimit(limit)
    assert isinstance(caught[0], RecursionError)
    assert f(10) == 10


def test_the_callback_is_thread_local():
    def f(x):
        return x

    here, there = Recorder(), Recorder()

    def other_thread():
        assert _C.get_frame_callback() is None
        f("there, off")
        _C.set_frame_callback(there)
        f("there, on")
        # left set: the thread's end releases it

    thread = threading.Thread(target=other_thread)
    before = sys.getrefcount(there)
    previous = _C.set_frame_callback(here)
    try:
        assert previous is None
        f("here")
    finally:
        assert _C.set_frame_callback(None) is here
    thread.start()
    thread.join()
    assert ("f", ("here",)) in here.offers and len(here.offers) == 1
    assert there.offers[0] == ("f", ("there, on",))
    assert sys.getrefcount(there) == before


def test_entries_may_change_under_a_running_guard():
    def f(x):
        return "plain"

    def guard_that_clears(function, x):
        _C.clear_cache(function.__code__)
        gc.collect()
        return x

    _C.add_cache_entry(f.__code__, *replacement_of(lambda x: "second"))
    _C.add_cache_entry(f.__code__, guard_that_clears, replacement_of(lambda x: "first")[1])
    run = _C.watched(f, Recorder())
    assert run(False) == "second"
    assert _C.cache_entries(f.__code__) == []
    assert run(False) == "plain"


def test_many_threads_share_a_cache(quick_switches):
    def f(x):
        return x

    def entry(value):
        def guard(function, x):
            return x == value

        def replacement(function, x):
            return -value

        _C.skip_code(replacement.__code__)
        return guard, replacement

    wrong = []

    def work(seed):
        run = _C.watched(f, Recorder())
        for i in range(2000):
            x = (i * 7 + seed) % 10
            if i % 100 == 0:
                _C.add_cache_entry(f.__code__, *entry(x))
            if i % 331 == 0:
                _C.clear_cache(f.__code__)
            if run(x) not in (x, -x):
                wrong.append(x)

    in_threads(*[functools.partial(work, seed) for seed in range(4)])
    assert not wrong


# ------------------------------------------------------------ references
def test_references_are_given_back():
    def f(x, y):
        return x

    def g(x, y):
        return x

    token, other = object(), object()
    _C.add_cache_entry(f.__code__, *replacement_of(lambda x, y: y))
    objects = (token, other, f, f.__code__, always, g.__code__)
    run_f, run_g = _C.watched(f, Recorder()), _C.watched(g, lambda *_: None)
    run_f(token, other), run_g(token, other)
    before = [sys.getrefcount(x) for x in objects]
    for _ in range(1000):
        run_f(token, other)
        run_g(token, other)
    assert [sys.getrefcount(x) for x in objects] == before


def test_errors_leak_nothing():
    def f(x):
        return x

    def boom(function, x):
        raise KeyError

    _C.skip_code(boom.__code__)
    token = object()
    _C.add_cache_entry(f.__code__, always, boom)
    run = _C.watched(f, Recorder())
    before = [sys.getrefcount(x) for x in (token, f, boom)]
    for _ in range(100):
        with pytest.raises(KeyError):
            run(token)
    gc.collect()  # an ExceptionInfo and its traceback's frames refer to each other
    assert [sys.getrefcount(x) for x in (token, f, boom)] == before


def test_entries_die_with_their_code():
    class Token:
        pass

    token = Token()
    alive = weakref.ref(token)
    namespace = {}
    exec("def f(): return 1", namespace)
    _C.add_cache_entry(namespace["f"].__code__, always, functools.partial(always, token))
    del token
    gc.collect()
    assert alive() is not None
    namespace.clear()
    gc.collect()
    assert alive() is None


def test_locals_of_a_replaced_frame_are_released():
    class Token:
        pass

    def f(x):
        return x

    _C.add_cache_entry(f.__code__, *replacement_of(lambda x: None))
    token = Token()
    alive = weakref.ref(token)
    _C.watched(f, Recorder())(token)
    del token
    assert alive() is None


# ------------------------------------------------------------ tracing and wrapper objects
def test_profiling_sees_balanced_events():
    def inner(x):
        return x

    def outer(x):
        return inner(x) + inner(x)

    events = []

    def profile(frame, event, argument):
        if event in ("call", "return") and frame.f_code.co_name in ("inner", "outer", "replacement"):
            events.append((event, frame.f_code.co_name))

    def replacement(function, x):
        return 10

    _C.skip_code(replacement.__code__)
    _C.add_cache_entry(inner.__code__, always, replacement)
    run = _C.watched(outer, Recorder())
    sys.setprofile(profile)
    try:
        assert run(1) == 20
    finally:
        sys.setprofile(None)
    once = [("call", "replacement"), ("return", "replacement")]
    assert events == [("call", "outer"), *once, *once, ("return", "outer")]


def test_the_trace_function_s_own_frames_are_not_offered():
    def f(x):
        return x

    def tracer(frame, event, argument):
        return None

    recorder = Recorder()
    run = _C.watched(f, recorder)
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        run(1)
    finally:
        sys.settrace(before)
    assert recorder.names == ["f"]


def test_undisturbed_turns_the_callback_off_and_back_on():
    states = []

    @_C.undisturbed
    def quiet(*args, **kwargs):
        states.append(_C.get_frame_callback())
        return args, kwargs

    @_C.undisturbed
    def failing():
        raise ValueError

    def f():
        result = quiet(1, x=2)
        with pytest.raises(ValueError):
            failing()
        states.append(_C.get_frame_callback())
        return result

    recorder = Recorder()
    assert _C.watched(f, recorder)() == ((1,), {"x": 2})
    assert states == [None, recorder]
    assert "quiet" not in recorder.names and "failing" not in recorder.names


def test_a_wrapper_looks_like_what_it_wraps():
    def f(x: int, y: int = 2) -> int:
        """What f does."""
        return x + y

    run = _C.undisturbed(f)
    assert run.__wrapped__ is f
    assert (run.__name__, run.__doc__, run.__module__) == ("f", "What f does.", __name__)
    assert inspect.signature(run) == inspect.signature(f)
    run.mark = 3
    assert run.mark == 3 and not hasattr(f, "mark")
    assert weakref.ref(run)() is run
    with pytest.raises(AttributeError):
        _ = run.missing


def test_a_wrapper_binds_as_a_method():
    class Thing:
        @_C.undisturbed
        def method(self, x):
            return self, x

    thing = Thing()
    assert thing.method(3) == (thing, 3)
    assert Thing.method(thing, 4) == (thing, 4)


@_C.undisturbed
def decorated(x):
    return x + 1


def plain(x):
    return x + 2


class Holder:
    def __init__(self, value):
        self.value = value
        self.run = _C.watched(self.method, plain)

    def method(self):
        return self.value


def test_wrappers_pickle_and_copy_as_what_they_wrap(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or types.SimpleNamespace(**globals()))
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert copy.deepcopy(decorated) is decorated
    other = pickle.loads(pickle.dumps(_C.undisturbed(plain)))
    assert other.__wrapped__ is plain and other(1) == 3
    assert copy.copy(_C.watched(plain, plain)).callback is plain
    holder = Holder(3)
    copied = copy.deepcopy(holder)
    copied.value = 4
    _C.skip_code(Holder.method.__code__)
    assert (holder.run(), copied.run()) == (3, 4)


def test_a_wrapper_in_a_cycle_is_collected():
    class Token:
        pass

    def make():
        token = Token()

        def f():
            return run, token

        run = _C.watched(f, f)
        return weakref.ref(token)

    alive = make()
    gc.collect()
    assert alive() is None


def test_what_runs_behind_the_program_is_not_offered():
    """Callbacks of the collector, finalizers and handlers of signals, with all that they call."""
    ran = []

    def helper(what):
        ran.append(what)

    class Finalized:
        def __del__(self):
            helper("finalizer")

    def watch_collector(phase, info):
        helper(phase)

    def on_signal(number, frame):
        helper("signal")

    def program():
        cycle = Finalized()
        cycle.itself = cycle
        Finalized()
        del cycle
        gc.collect()
        signal.raise_signal(signal.SIGUSR1)
        after()

    def after():
        ran.append("after")

    recorder = Recorder()
    handler = signal.signal(signal.SIGUSR1, on_signal)
    gc.callbacks.append(watch_collector)
    try:
        _C.watched(program, recorder)()
    finally:
        gc.callbacks.remove(watch_collector)
        signal.signal(signal.SIGUSR1, handler)
    assert [what for what in ran if what not in ("start", "stop")] == ["finalizer", "finalizer", "signal", "after"]
    assert {"start", "stop"} <= set(ran)
    assert [name for name in recorder.names if name != "raise_signal"] == ["program", "after"]
