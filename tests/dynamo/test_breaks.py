"""Graph breaks: where they happen, that the program goes on as written, and what explain says."""

from __future__ import annotations

import array
import contextlib
import contextvars
import decimal
import io
import logging
import os
import re
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import pytest
from dynamo_harness import Counter, check, run, same

import flambeau as torch
from flambeau import dynamo
from flambeau.dynamo.api import Explanation
from flambeau.dynamo.compiler import observing

LOG: list = []


def note(*args):
    LOG.append(args)


note = dynamo.disable(note)


def bump(x):
    note(1)
    return x + 1


def x3():
    return torch.arange(3) * 1.0 + 1


def test_print_breaks_and_resumes(capsys) -> None:
    def f(x):
        y = x + 1
        print("in the middle")
        return y * 2

    check(f, x3(), graphs=2, breaks=1)
    assert capsys.readouterr().out == "in the middle\n" * 2


def test_break_keeps_stack_below_the_call() -> None:
    def f(x):
        return [x + 1, (x * 2, note(2)), x * 3][1][0] + x

    check(f, x3(), graphs=2, breaks=1)


def test_two_breaks_in_a_row() -> None:
    def f(x):
        x = x + 1
        note(1)
        note(2)
        x = x * 2
        note(3)
        return x - 1

    check(f, x3(), graphs=3, breaks=3)


def test_data_dependent_branch() -> None:
    def f(x):
        y = x * 2
        if y.sum() > 3:
            y = y + 1
        else:
            y = y - 1
        return y * 3

    check(f, x3(), graphs=2, breaks=1)
    dynamo.reset()
    counter = Counter()
    compiled = dynamo.compile(f, backend=counter)
    assert same(compiled(x3()), f(x3()))
    assert same(compiled(-x3()), f(-x3()))
    assert len(counter.graphs) == 3


def test_data_dependent_and_or() -> None:
    def f(x):
        a = (x.sum() > 0) and (x + 1)
        b = (x.sum() > 0) or (x + 2)
        return a * 2, b

    check(f, x3(), graphs=None, breaks=2)
    check(f, -x3(), graphs=None, breaks=None)


def test_item() -> None:
    def f(x):
        n = (x + 1).sum().item()
        return x * n if n > 2 else x

    check(f, x3(), graphs=2, breaks=1)


def test_explicit_graph_break() -> None:
    def f(x):
        x = x + 1
        dynamo.graph_break()
        return x * 2

    seen = check(f, x3(), graphs=2, breaks=1)
    assert seen.breaks[0].kind == "explicit graph break"


def test_break_in_inlined_function_captures_the_callee_by_itself() -> None:
    def f(x):
        x = x * 2
        x = bump(x)
        return x * 3

    check(f, x3(), graphs=3, breaks=2)


def test_break_two_calls_deep() -> None:
    def middle(x):
        return bump(x * 5) * 7

    def f(x):
        return middle(x + 1) + 2

    check(f, x3(), graphs=5, breaks=3)


def test_break_before_and_after_a_loop() -> None:
    def f(x):
        note(1)
        for i in range(3):
            x = x + i
        note(2)
        return x * 2

    check(f, x3(), graphs=2, breaks=2)


def test_closure_survives_a_break() -> None:
    def f(x):
        k = 1

        def inner(y):
            return y * k

        note(1)
        k = 5
        a = inner(x)
        note(2)
        return inner(a) + k

    check(f, x3(), graphs=2, breaks=2)


def test_freevar_of_the_root_survives_a_break() -> None:
    k = 4

    def f(x):
        y = x * k
        note(1)
        return y + k

    check(f, x3(), graphs=2, breaks=1)


def test_many_locals_across_a_break() -> None:
    def f(x):
        a, b, c, d = x + 1, [x], {"k": x}, (x, 2)
        note(1)
        b.append(c["k"])
        return a + d[0], b, c

    check(f, x3(), graphs=2, breaks=1)


def test_aliases_survive_a_break() -> None:
    def f(x):
        a = [x]
        b = {"a": a}
        note(1)
        a.append(x + 1)
        return b["a"][1], b["a"] is a

    check(f, x3(), graphs=None, breaks=1)


def test_break_in_try_goes_to_the_handler() -> None:
    @dynamo.disable
    def fail():
        raise ValueError("no")

    def f(x):
        x = x + 1
        try:
            fail()
            x = x * 100
        except ValueError as e:
            x = x + len(str(e))
        return x * 2

    check(f, x3(), graphs=None, breaks=None)


def test_break_in_try_without_exception() -> None:
    def f(x):
        try:
            x = x + 1
            note(1)
            x = x * 2
        except ValueError:
            x = x * 100
        finally:
            x = x - 1
        return x

    check(f, x3(), graphs=2, breaks=1)


def test_break_inside_with_of_user_class() -> None:
    class Scope:
        def __init__(self):
            self.log = []

        def __enter__(self):
            self.log.append("in")
            return self

        def __exit__(self, *exc):
            self.log.append("out")
            return True

    @dynamo.disable
    def fail():
        raise RuntimeError

    def f(x, broken):
        s = Scope()
        with s:
            x = x + 1
            note(1)
            if broken:
                fail()
            x = x * 2
        return x, s.log

    check(f, x3(), False, graphs=2, breaks=None)
    check(f, x3(), True, graphs=None, breaks=None)


def test_break_inside_no_grad() -> None:
    def f(x):
        with torch.no_grad():
            y = x * 2
            note(torch.is_grad_enabled())
            z = y * x
        return y, z, x * 3

    x = x3()
    x.requires_grad = True
    LOG.clear()
    result, _, counter = run(f, x)
    assert LOG == [(False,)]
    assert [t.requires_grad for t in result] == [False, False, True]
    assert len(counter.graphs) == 2
    assert torch.is_grad_enabled()


def test_exception_leaves_with_the_users_traceback() -> None:
    def deep(x):
        raise KeyError("missing")

    def f(x):
        y = x + 1
        deep(y)
        return y

    with pytest.raises(KeyError) as caught:
        run(f, x3())
    text = "".join(traceback.format_exception(caught.value))
    assert "deep(y)" in text and 'raise KeyError("missing")' in text


def test_exception_from_an_operator() -> None:
    def f(x):
        y = x + 1
        return y + torch.ones(7)

    with pytest.raises(RuntimeError, match="must match"):
        run(f, x3())


def test_exception_in_the_breaking_call_shows_the_users_line() -> None:
    @dynamo.disable
    def fail():
        raise OSError("disk")

    def f(x):
        y = x + 1
        fail()  # the line
        return y

    with pytest.raises(OSError) as caught:
        run(f, x3())
    assert "fail()  # the line" in "".join(traceback.format_exception(caught.value))


def test_fullgraph_raises() -> None:
    def f(x):
        print(x)
        return x + 1

    with pytest.raises(dynamo.Unsupported, match="print") as caught:
        dynamo.compile(f, backend="eager", fullgraph=True)(x3())
    assert "test_breaks.py" in str(caught.value) and "way out" in str(caught.value)


def test_unknown_c_function() -> None:
    import unicodedata

    def f(x):
        x = x + 1
        n = unicodedata.decimal("3")
        return x * n

    seen = check(f, x3(), graphs=2, breaks=1)
    assert "decimal" in seen.breaks[0].context


def test_random_is_a_break() -> None:
    import random

    def f(x):
        random.seed(3)
        return x + random.random()

    check(f, x3(), graphs=None, breaks=None)


def test_a_generator_leaves_the_function() -> None:
    def f(x):
        y = x * 2
        return (y + i for i in range(3))

    result, seen, _ = run(f, x3())
    assert same(list(result), [x3() * 2 + i for i in range(3)])
    assert not seen.breaks


def test_a_started_generator_does_not_leave() -> None:
    def f(x):
        made = (x + i for i in range(3))
        return next(made), made

    (first, rest), seen, _ = run(f, x3())
    assert same([first, *rest], [x3() + i for i in range(3)])
    assert "iterator escapes" in [info.kind for info in seen.breaks]


def test_global_store_across_a_break() -> None:
    global counted
    counted = 0

    def f(x):
        global counted
        counted = counted + 1
        note(counted)
        counted = counted + 10
        return x + counted

    LOG.clear()
    result, _, _ = run(f, x3())
    assert counted == 11 and LOG == [(1,)] and same(result, x3() + 11)


def test_attribute_written_before_the_break_is_visible() -> None:
    class Box:
        pass

    box = Box()
    seen_values = []

    @dynamo.disable
    def look():
        seen_values.append((box.value, box.tensor))

    def f(x):
        box.value = 3
        box.tensor = x + 1
        look()
        box.value = 4
        return x + box.value

    result, _, _ = run(f, x3())
    assert seen_values[0][0] == 3 and same(seen_values[0][1], x3() + 1)
    assert box.value == 4 and same(result, x3() + 4)


def test_explain() -> None:
    def f(x):
        y = x + 1
        print("hello")
        return y * 2

    text = dynamo.explain(f)(x3())
    assert text.graph_count == 2 and text.graph_break_count == 1
    shown = str(text)
    assert "print or logging" in shown and "way out" in shown and 'print("hello")' in shown and "2 graph(s)" in shown


def test_log_of_graph_breaks(caplog) -> None:
    def f(x):
        print("hello")
        return x + 1

    logger = logging.getLogger("flambeau.graph_breaks")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(caplog.handler)
    try:
        run(f, x3())
    finally:
        logger.removeHandler(caplog.handler)
        logger.setLevel(logging.NOTSET)
    assert 'print("hello")' in caplog.text


def test_method_call_break() -> None:
    class Model:
        def __init__(self):
            self.scale = 2

        def inner(self, x):
            note(self.scale)
            return x * self.scale

        def run(self, x):
            return self.inner(x + 1) + 1

    check(Model().run, x3(), graphs=None, breaks=None)


def test_super_after_a_break() -> None:
    class Base:
        def go(self, x):
            return x + 1

    class Child(Base):
        def go(self, x):
            x = x * 2
            note(1)
            return super().go(x)

    check(Child().go, x3(), graphs=2, breaks=1)


def test_contextmanager_function_runs() -> None:
    events = []

    @contextlib.contextmanager
    def scope():
        events.append("in")
        yield 5
        events.append("out")

    def f(x):
        with scope() as n:
            x = x + n
        return x

    result, _, _ = run(f, x3())
    assert same(result, x3() + 5) and events == ["in", "out"]


def test_disabled_function_is_not_captured() -> None:
    @dynamo.disable
    def g(x):
        return x * 2

    def f(x):
        return g(x + 1) + 1

    check(f, x3(), graphs=2, breaks=1)


def test_locals_runs_eagerly() -> None:
    def f(x):
        y = 3
        return x + locals()["y"] + y

    check(f, x3(), graphs=0, breaks=1)


def test_kwargs_at_the_break() -> None:
    @dynamo.disable
    def g(a, *rest, b=1, **more):
        return a * b + sum(rest) + more["c"]

    def f(x):
        more = {"c": 3}
        return g(x, 1, 2, b=5, **more) + g(*[x], b=2, c=1)

    check(f, x3(), graphs=None, breaks=2)


@contextlib.contextmanager
def scope(n):
    LOG.append(("in", n))
    try:
        yield n * 2
    except ValueError as error:
        LOG.append(("caught", str(error)))
    finally:
        LOG.append(("out", n))


def in_a_generator_scope(x):
    x = x + 1
    with scope(3) as k:
        x = x * k
        note("inside")
        x = x + 2
    return x * 2


def scopes_and_an_exception(x):
    with scope(1) as a, scope(2) as b:
        x = x + a * b
        note("inside")
        x = x * 2
        raise ValueError("caught by the inner one")
    return x


def scopes_in_a_loop(x):
    for i in range(3):
        with scope(i) as k:
            if i == 1:
                continue
            x = x + k
            note(i)
            if i == 2:
                break
        x = x * 2
    return x


def return_from_a_scope(x):
    with torch.no_grad(), scope(5):
        note(torch.is_grad_enabled())
        return x * 2


@pytest.mark.parametrize("f", [in_a_generator_scope, scopes_and_an_exception, scopes_in_a_loop, return_from_a_scope])
def test_break_inside_a_generator_scope(f) -> None:
    LOG.clear()
    expected = f(x3())
    log = list(LOG)
    counter = Counter()
    compiled = dynamo.compile(f, backend=counter)
    for _ in range(2):
        LOG.clear()
        assert same(compiled(x3()), expected) and log == LOG
    assert counter.graphs
    LOG.clear()
    kinds = [info.kind for info in dynamo.explain(f)(x3()).breaks]
    assert "context manager with a graph break" in kinds and "iterator escapes" not in kinds


def test_generated_code_beneath_an_eager_call_is_not_captured() -> None:
    """In a function that runs eagerly the frames below are captured, but not the wrappers that the compiler wrote."""
    def f(x):
        assert "x" in locals()
        return torch.nn.functional.layer_norm(x, (250,)).softmax(-1)

    with observing(types.SimpleNamespace(captured=[], breaks=[], recompiles=[])) as seen:
        torch.compile(f)(torch.randn(300, 250))
    # others' frames may be: a garbage collector's callback of the test runner, for one
    own = os.path.dirname(torch.__file__) + os.sep
    assert not [captured.where for captured in seen.captured if "wrapper" in captured.where or captured.where.startswith(own)]


@pytest.mark.parametrize("name", ["code.model", "profile", "time", "random.layers", "site"])
def test_a_program_may_call_its_modules_as_the_standard_library_does(name, tmp_path) -> None:
    """What is left alone is decided by where a file lies, not by what somebody called it."""
    path = tmp_path / "model.py"
    path.write_text("def double(x):\n    return x * 2\n\n\ndef f(x):\n    return double(x) + 1\n")
    module = {"__name__": name}
    exec(compile(path.read_text(), str(path), "exec"), module)
    counter = Counter()
    assert dynamo.compile(module["f"], backend=counter)(torch.ones(2)).tolist() == [3, 3]
    assert len(counter.graphs) == 1


def test_except_blocks_are_captured_in_pieces() -> None:
    """The statement that raises runs as it is; before it, in the handler up to the break, and after it there are graphs."""
    def f(x):
        y = x * 2
        try:
            raise ValueError("a")
        except ValueError as error:
            y = y + 1
            note(error.args)
            y = y * 3
        return y - 1

    check(f, x3(), graphs=3, breaks=None)


def test_the_exception_is_handled_in_the_resume_function() -> None:
    def f(x):
        try:
            try:
                raise KeyError("first")
            except KeyError as first:
                note(sys.exc_info()[1] is first)
                x = x * 2
                raise ValueError("second") from None
        except ValueError as second:
            note((type(second.__context__), second.__suppress_context__, sys.exc_info()[1] is second))
            x = x + 1
        note(sys.exc_info())
        return x

    LOG.clear()
    check(f, x3(), graphs=None, breaks=None)
    assert [entry for (entry,) in LOG] == 2 * [True, (KeyError, True, True), (None, None, None)]


def test_exceptions_in_a_handler_keep_their_context_and_lines() -> None:
    def fail():
        raise RuntimeError("second")

    def f(x):
        try:
            raise KeyError("first")
        except KeyError:
            note("handling")
            fail()  # the line
        return x

    with pytest.raises(RuntimeError, match="second") as caught:
        dynamo.compile(f, backend="eager")(x3())
    assert isinstance(caught.value.__context__, KeyError)
    text = "".join(traceback.format_exception(caught.value))
    assert "fail()  # the line" in text and 'raise KeyError("first")' in text


def test_errors_of_operators_come_after_the_effects() -> None:
    """What is wrong with the contents of a tensor shows when the graph runs: then the function runs as it is written."""
    def f(x, index, log):
        log.append("before")
        try:
            x = x[index]
        except IndexError:
            log.append("caught")
        return x * 2

    compiled = dynamo.compile(f, backend="inductor")
    for index, log in ((1, ["before"]), (9, ["before", "caught"]), (2, ["before"])):
        seen: list[str] = []
        want = f(x3(), torch.tensor([index]), [])
        assert same(compiled(x3(), torch.tensor([index]), seen), want) and seen == log


def test_a_class_statement_breaks_the_graph_in_two() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + 1

        class Twice:
            def of(self, z: torch.Tensor) -> torch.Tensor:
                return z * 2 + y

        return Twice().of(x).sin()

    x = torch.ones(3)
    found = dynamo.explain(f)(x)
    assert (found.graph_count, found.op_count) == (2, 4)
    assert "the class statement Twice" in str(found)
    assert torch.equal(torch.compile(f, backend="eager")(x), f(x))


def test_explain_names_what_the_program_wrote_and_each_break_once() -> None:
    held = types.SimpleNamespace(thing=object())

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.k = torch.nn.Linear(3, 3)
            self.k.marks = {"a": object()}

        def forward(self, x):
            for _ in range(3):
                x = x + 1
                print(end="")
            hash(self.k.marks["a"])
            self.k.weight.data_ptr()
            hash(held.thing)
            return chosen(x)

    def chosen(x):
        if x.sum() > 0:
            return x
        return x * 2

    text = str(dynamo.explain(Model())(torch.ones(2, 3)))
    assert "5 graph break(s)" in text
    assert text.count("\nbreak ") == 5
    for words in ("self.k.marks['a']", "tensor self.k.weight.data_ptr()", "held.thing", "(met 2 times): print or logging", "in chosen"):
        assert words in text, words
    assert not any(plumbing in text.split("\nframe 1")[0] for plumbing in ("_modules", "__dict__", "__closure__", "cell_contents"))


OPAQUE: dict[str, tuple[Callable[[], Any], str, tuple]] = {
    "a file": (lambda: io.StringIO("ab"), "read", ()), "bytes": (lambda: io.BytesIO(), "write", (b"ab",)),
    "an array": (lambda: array.array("i", [1, 2]), "tolist", ()), "a number": (lambda: decimal.Decimal(2), "is_finite", ()),
    "a variable of a context": (lambda: contextvars.ContextVar("v", default=3), "get", ()),
    "a match": (lambda: re.match("a", "ab"), "span", ()),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_a_method_of_what_is_not_understood_breaks_once(name: str) -> None:
    make, method, args = OPAQUE[name]

    def f(x, it):
        y = x + 1
        told = getattr(it, method)(*args)
        return y * 2, told, hasattr(it, method), getattr(it, method) == getattr(it, method)

    with observing(Explanation()) as seen:
        value, *told = dynamo.compile(f, backend="eager")(torch.ones(2), make())
    expected, *other = f(torch.ones(2), make())
    assert value.tolist() == expected.tolist() and told == other
    assert [b.kind for b in seen.breaks] == ["call of C function"] and f"it.{method}()" in str(seen.breaks[0])


def test_a_method_that_is_kept_over_a_break() -> None:
    def f(x, file):
        write = file.write
        write("a")
        write("b")
        return x + 1, file.getvalue(), write == file.write

    value, *told = dynamo.compile(f, backend="eager")(torch.ones(2), io.StringIO())
    assert value.tolist() == [2.0, 2.0] and told == ["ab", True]


class Twice(list):
    def append(self, value):
        plainly = super().append
        torch._dynamo.graph_break()
        plainly(value)
        plainly(value)


class Coded(Exception):
    def __init__(self, code):
        told = super().__init__
        torch._dynamo.graph_break()
        told(f"code {code}")
        self.code = code


def test_a_method_that_super_gave_stays_it_over_a_break() -> None:
    def f(x, items):
        items.append(1)
        made = Twice()
        made.append(x)
        try:
            raise Coded(3)
        except Coded as error:
            told = str(error), error.code
        plainly = items.pop
        torch._dynamo.graph_break()
        return x + len(made), items, plainly(), plainly == items.pop, told

    value, *told = dynamo.compile(f, backend="eager")(torch.ones(2), Twice())
    assert value.tolist() == [3.0, 3.0] and told == [[1], 1, True, ("code 3", 3)]


def _stacked(x, model):
    with torch.autograd.graph.save_on_cpu():
        y = x.sin() * x
    for p in model.parameters():
        p.data_ptr()
    for a, b in zip([x, y], "ab", strict=True):
        a.data_ptr()
        print(b)
    return y + (x + 1).data_ptr() * 0


def test_breaks_say_what_the_program_wrote(capsys) -> None:
    breaks = dynamo.explain(_stacked)(torch.ones(3), torch.nn.Linear(2, 2)).breaks
    told = [info.innermost.context for info in breaks]
    assert not [text for text in told if "__stack" in text or "_modules" in text]
    scope = "save_on_cpu object torch.autograd.graph.save_on_cpu()"
    for wanted in (scope, f"{scope}.__exit__()", "tensor p.data_ptr()", "tensor (a, b)[0].data_ptr()"):
        assert any(wanted in text for text in told), (wanted, told)


def test_reasons_and_the_users_frames_under_pytorchs_names() -> None:
    def f(x):
        print(x.shape)
        return x + 1

    (info,) = torch._dynamo.explain(f)(torch.ones(2)).break_reasons
    assert "print" in info.reason and "way out" in info.reason and str(info).startswith(info.reason)
    last = info.user_stack[-1]
    assert (last.filename, last.name, last.line) == (__file__, "f", "print(x.shape)") and last.lineno == f.__code__.co_firstlineno + 1
