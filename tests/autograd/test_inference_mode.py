"""Inference mode: what is allocated there is marked for good, and refused where autograd would have to know of it.

Every case of the table is run here, and by PyTorch where that is installed: the table says what both must answer.
"""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as fl

CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {}


def case(expected: Any) -> Callable[[Callable], Callable]:
    """Enter a function of the library into the table with its answer, or the type of the error that it raises."""

    def add(fn: Callable) -> Callable:
        CASES[fn.__name__.strip("_")] = fn, expected
        return fn

    return add


def made_in_inference_mode(t: Any) -> Any:
    with t.inference_mode():
        return t.ones(3)


def leaf(t: Any) -> Any:
    return t.ones(3, requires_grad=True)


def marks(*tensors: Any) -> list[bool]:
    return [x.is_inference() for x in tensors]


# -- what is marked -----------------------------------------------------------------------------------------------------------
@case([True, True, False])
def stays_marked(t):
    x = made_in_inference_mode(t)
    return [x.is_inference(), t.is_inference(x), x.requires_grad]


@case([False] * 12)
def normal_tensors_and_their_views_are_normal(t):
    x = t.ones(1, 3)
    with t.inference_mode():
        return marks(x, x.view(3), x[0], x.detach(), x.data, x.contiguous(), x.expand(2, 3), x.as_strided((2,), (1,)),
                     x.chunk(3, 1)[0], x.reshape(3, 1), x.float(), x.T)


@case([True] * 5)
def copies_are_marked(t):
    x = t.ones(3)
    with t.inference_mode():
        return marks(x + 1, x.clone(), x.to(t.float64), copy.deepcopy(x), t.from_numpy(np.ones(3)))


@case([True] * 8)
def views_of_inference_tensors_are_marked(t):
    x = made_in_inference_mode(t)
    return marks(x.view(3, 1), x[0], x.detach(), x.data, x.contiguous(), x.to(t.float32), *x.split(2))


@case([False] * 6)
def what_is_made_of_them_outside_is_normal(t):
    x = made_in_inference_mode(t)
    return marks(x.clone(), x + 1, x.to(t.float64), t.cat([x, x]), copy.deepcopy(x), pickle.loads(pickle.dumps(x)))


@case([True] * 16)
def every_way_of_making(t):
    with t.inference_mode():
        x = t.ones(4, 4)
        return marks(t.max(x, 1).values, t.sort(x).indices, t.linalg.qr(x)[0], t.rand(3), t.arange(3), t.tensor([1.0]), t.empty(0),
                     t.nn.functional.softmax(x, 0), t.nn.functional.layer_norm(x, (4,)), x @ x, x.T, x.sum(), t.zeros_like(x),
                     x.new_ones(2), t.ones(300, 300).T + 1, t.empty(2, device="meta"))


@case([True, True])
def parameters(t):
    with t.inference_mode():
        p = t.nn.Parameter(t.ones(3))
    return [p.is_inference(), p.requires_grad]


@case([True, True])
def a_converted_module(t):
    m = t.nn.Linear(2, 2)
    with t.inference_mode():
        m.double()
    return [m.weight.is_inference(), m.weight.requires_grad]


@case([True, True])
def data_given(t):
    x = leaf(t)
    x.data = made_in_inference_mode(t)
    return [x.is_inference(), x.requires_grad]


# -- writing in place -----------------------------------------------------------------------------------------------------------
WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda t, x: x.add_(1),
    "add_ of a view": lambda t, x: x.view(3).add_(1),
    "iadd": lambda t, x: x.__iadd__(1),
    "setitem": lambda t, x: x.__setitem__(0, 1),
    "setitem of a mask": lambda t, x: x.__setitem__(x > 0, 1),
    "zero_": lambda t, x: x.zero_(),
    "copy_": lambda t, x: x.copy_(t.zeros(3)),
    "out=": lambda t, x: t.add(t.ones(3), 1, out=x),
    "normal_": lambda t, x: x.normal_(),
    "resize_": lambda t, x: x.resize_(2),
    "unsqueeze_": lambda t, x: x.unsqueeze_(0),
    "t_": lambda t, x: x.t_(),
    "masked_fill_": lambda t, x: x.masked_fill_(x > 0, 2.0),
    "index_put_": lambda t, x: x.index_put_((t.tensor([0]),), t.tensor(1.0)),
    "foreach": lambda t, x: t._foreach_add_([x], 1.0),
    "relu": lambda t, x: t.nn.functional.relu(x, inplace=True),
    "init": lambda t, x: t.nn.init.uniform_(x),
}


@pytest.mark.parametrize("library", ["flambeau", "torch"])
@pytest.mark.parametrize("name", WRITES)
def test_writes_are_refused_outside_alone(name: str, library: str) -> None:
    t = pytest.importorskip(library)
    x = made_in_inference_mode(t)
    with pytest.raises(RuntimeError, match="inference"):
        WRITES[name](t, x)
    with t.no_grad(), pytest.raises(RuntimeError, match="inference"):
        WRITES[name](t, made_in_inference_mode(t))
    if library == "flambeau":  # PyTorch writes first and raises then
        assert x.tolist() == [1, 1, 1]
    with t.inference_mode():
        WRITES[name](t, x)


@case([10, 4, 4])
def writes_inside(t):
    with t.inference_mode():
        x = t.ones(3)
        x.add_(1)
        x[0] = 5
        x.view(3, 1).mul_(2)
        return x.tolist()


@case([2, False, [3, 2, 2]])
def writes_to_a_normal_tensor_count(t):
    x = t.ones(3)
    before = x._version
    with t.inference_mode():
        x.add_(1)
        x[0] = 3
    return [x._version - before, x.is_inference(), x.tolist()]


@case([1, True, True])
def writes_to_a_leaf(t):
    x = leaf(t)
    with t.inference_mode():
        x.add_(1)
    return [x._version, x.requires_grad, x.is_leaf]


@case(RuntimeError)
def a_write_inside_to_what_backward_needs(t):
    w, x = leaf(t), t.ones(3)
    y = (w * x).sum()
    with t.inference_mode():
        x.add_(1)
    y.backward()


@case([[2, 2, 2], False, 1, True])
def a_view_of_a_normal_tensor_is_written_to_outside(t):
    x = t.ones(3)
    with t.inference_mode():
        v = x.view(3, 1)
    v.add_(1)
    return [x.tolist(), v.is_inference(), v._version, v._base is x]


@case(RuntimeError)
def a_view_of_a_leaf_is_written_to_outside(t):
    x = leaf(t)
    with t.inference_mode():
        v = x.view(3, 1)
    v.add_(1)


@case([False, [2, 2, 2]])
def an_inference_tensor_is_added_to_a_normal_one(t):
    x = t.ones(3)
    x.add_(made_in_inference_mode(t))
    return [x.is_inference(), x.tolist()]


@case(RuntimeError)
def statistics_of_a_module_made_inside(t):
    with t.inference_mode():
        m = t.nn.BatchNorm1d(3)
    m(t.ones(2, 3))


@case([2, False])
def an_optimizer_steps_inside(t):
    m = t.nn.Linear(3, 2)
    optimizer = t.optim.SGD(m.parameters(), lr=0.1)
    m(t.ones(3)).sum().backward()
    before = m.weight._version
    with t.inference_mode():
        optimizer.step()
        optimizer.step()
    return [m.weight._version - before, m.weight.is_inference()]


@case(RuntimeError)
def an_optimizer_whose_state_was_made_inside(t):
    m = t.nn.Linear(3, 2)
    optimizer = t.optim.AdamW(m.parameters())
    m(t.ones(3)).sum().backward()
    with t.inference_mode():
        optimizer.step()
    optimizer.step()


@case(RuntimeError)
def a_gradient_given_is_added_to(t):
    x = leaf(t)
    x.grad = made_in_inference_mode(t)
    (x * 2).sum().backward()


# -- autograd -----------------------------------------------------------------------------------------------------------------
@case(RuntimeError)
def saved(t):
    return leaf(t) * made_in_inference_mode(t)


@case(RuntimeError)
def a_view_is_saved(t):
    return leaf(t) * made_in_inference_mode(t).view(3)


@case(RuntimeError)
def saved_by_a_matrix_product(t):
    return t.ones(3, 3, requires_grad=True) @ made_in_inference_mode(t)


@case(RuntimeError)
def saved_by_a_module(t):
    return t.nn.Linear(3, 2)(made_in_inference_mode(t))


@case(RuntimeError)
def saved_by_a_write(t):
    return (leaf(t) * 1).mul_(made_in_inference_mode(t))


@case(RuntimeError)
def saved_through_hooks(t):
    with t.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        return leaf(t) * made_in_inference_mode(t)


@case(RuntimeError)
def saved_by_a_function(t):
    class Times(t.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(b)
            return a * b

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0], None

    return Times.apply(leaf(t), made_in_inference_mode(t))


@case([[1, 1, 1], False, False])
def used_without_being_saved(t):
    w, x = leaf(t), made_in_inference_mode(t)
    y = w + x
    y.sum().backward()
    with t.no_grad():
        z = t.nn.Linear(3, 2)(x)
    return [w.grad.tolist(), y.is_inference(), z.requires_grad]


@case([2, 2, 2])
def a_clone_is_saved(t):
    w = leaf(t)
    (w * (made_in_inference_mode(t) * 2).clone()).sum().backward()
    return w.grad.tolist()


@case(RuntimeError)
def requires_grad_(t):
    made_in_inference_mode(t).requires_grad_()


@case(RuntimeError)
def requires_grad_attribute(t):
    made_in_inference_mode(t).requires_grad = True


@case(RuntimeError)
def a_parameter(t):
    t.nn.Parameter(made_in_inference_mode(t))


@case([False, True])
def no_gradient_required(t):
    x = made_in_inference_mode(t)
    return [x.requires_grad_(False).requires_grad, t.nn.Parameter(x, requires_grad=False).is_inference()]


@case([True, True, False, [2, 2, 2]])
def requires_grad_inside(t):
    with t.inference_mode():
        x = t.ones(3).requires_grad_()
        y = x * 2
    (x * 2).sum().backward()
    return [x.requires_grad, x.is_inference(), y.requires_grad, x.grad.tolist()]


@case(RuntimeError)
def version(t):
    return made_in_inference_mode(t)._version


@case(RuntimeError)
def version_of_a_view(t):
    return made_in_inference_mode(t).view(3, 1)._version


@case([[2, 2, 2], True])
def backward_inside(t):
    x = leaf(t)
    y = (x * 2).sum()
    with t.inference_mode():
        y.backward()
    return [x.grad.tolist(), x.grad.is_inference()]


@case([2, 2, 2])
def func_grad_inside(t):
    with t.inference_mode():
        return t.func.grad(lambda x: (x**2).sum())(t.ones(3)).tolist()


# -- the mode ---------------------------------------------------------------------------------------------------------------
def modes(t: Any) -> list[bool]:
    return [t.is_inference_mode_enabled(), t.is_grad_enabled()]


@case([[True, False], [True, False], [False, True]])
def nested(t):
    with t.inference_mode():
        with t.inference_mode():
            inner = modes(t)
        outer = modes(t)
    return [inner, outer, modes(t)]


@case([False, True])
def after_an_exception(t):
    with pytest.raises(KeyError), t.inference_mode():
        raise KeyError
    return modes(t)


@case([[False, True], False, True, True])
def off_inside(t):
    x = leaf(t)
    with t.inference_mode(), t.inference_mode(False):
        y = x * 2
        return [modes(t), y.is_inference(), y.requires_grad, (t.ones(3).add_(1) == 2).all().item()]


@case([[False, True], [False, False]])
def off_inside_no_grad(t):
    with t.no_grad():
        with t.inference_mode(mode=False):
            inner = modes(t)
        return [inner, modes(t)]


@case(RuntimeError)
def writes_where_it_is_off_inside(t):
    with t.inference_mode():
        x = t.ones(3)
        with t.inference_mode(False):
            x.add_(1)


@case([[True, True], False, True, True])
def enable_grad_inside_records_nothing(t):
    x = leaf(t)
    with t.inference_mode(), t.enable_grad():
        y = x * 2
        x.add_(1)
        return [modes(t), y.requires_grad, y.is_inference(), x.is_leaf]


@case([[True, True], False, [False, True]])
def set_grad_enabled_inside(t):
    with t.inference_mode():
        t.set_grad_enabled(True)
        found = [modes(t), (leaf(t) * 2).requires_grad]
    return [*found, modes(t)]


@case([True, True, False])
def no_grad_inside(t):
    with t.inference_mode(), t.no_grad():
        return [t.ones(1).is_inference(), *modes(t)]


@case([True, True, False, True])
def decorators(t):
    on, bare, off = t.inference_mode()(lambda x: x + 1), t.inference_mode(lambda x: x + 1), t.inference_mode(mode=False)(lambda x: x + 1)
    return [*marks(on(t.ones(1)), bare(t.ones(1)), off(t.ones(1))), off(leaf(t)).requires_grad]


@case([True, False, True, False])
def a_generator(t):
    @t.inference_mode()
    def numbers():
        for _ in range(2):
            yield t.ones(1).is_inference()

    return [fact for mark in numbers() for fact in (mark, t.is_inference_mode_enabled())]


@case([False, True])
def another_thread(t):
    seen = []
    with t.inference_mode():
        thread = threading.Thread(target=lambda: seen.extend([t.ones(1).is_inference(), t.is_grad_enabled()]))
        thread.start()
        thread.join()
    return seen


def answer(fn: Callable[[Any], Any], t: Any) -> Any:
    try:
        return fn(t)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("name", CASES)
def test_as_the_table_says(name: str) -> None:
    fn, expected = CASES[name]
    assert answer(fn, fl) == expected


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_as_torch_does(name: str) -> None:
    fn, expected = CASES[name]
    assert answer(fn, pytest.importorskip("torch")) == expected


@pytest.mark.parametrize("call, words", [
    (lambda x: x.add_(1), ["[3]", "Inplace update", "clone()"]),
    (lambda x: leaf(fl) * x, ["[3]", "saved for backward", "clone()"]),
    (lambda x: x.requires_grad_(), ["requires_grad=True", "clone()"]),
    (lambda x: x._version, ["version counter", "clone()"]),
])  # fmt: skip
def test_errors_say_what_would_work(call: Callable, words: list[str]) -> None:
    with pytest.raises(RuntimeError) as error:
        call(made_in_inference_mode(fl))
    assert all(word in str(error.value) for word in words)


def test_is_inference_is_of_tensors() -> None:
    with pytest.raises(TypeError, match="must be Tensor, not float"):
        fl.is_inference(1.0)


# -- compiled -----------------------------------------------------------------------------------------------------------------
def compiled(fn: Callable) -> Callable:
    fl._dynamo.reset()
    return fl.compile(fn, fullgraph=True)


def test_a_graph_is_of_one_mode() -> None:
    f, x = compiled(lambda x: (x + 1, x.view(3, 1), x)), leaf(fl)
    for _ in range(2):
        assert [(y.is_inference(), y.requires_grad) for y in f(x)] == [(False, True)] * 3
        with fl.inference_mode():
            assert marks(*f(x)) == [True, False, False]


def test_a_scope_in_a_graph() -> None:
    def f(x):
        with fl.inference_mode():
            y = x * 2
            facts = y.is_inference(), fl.is_inference(y), *modes(fl)
            with fl.inference_mode(False):
                z = x * 3
        return y, y.view(3, 1), z, x * 4, facts

    y, view, z, w, facts = compiled(f)(leaf(fl))
    assert marks(y, view, z, w) == [True, True, False, False] and facts == (True, True, True, False)
    assert [t.requires_grad for t in (y, view, z, w)] == [False, False, True, True] and modes(fl) == [False, True]
    assert marks(*compiled(f)(fl.ones(3))[:4]) == [True, True, False, False]
    with fl.inference_mode():
        assert marks(*compiled(f)(leaf(fl))[:4]) == [True, True, False, True]


def test_the_mark_of_an_input_is_guarded() -> None:
    f = compiled(lambda x: x + 1 if x.is_inference() else x - 1)
    for x, expected in ((fl.ones(3), 0), (made_in_inference_mode(fl), 2), (fl.ones(3), 0)):
        assert f(x).tolist() == [expected] * 3


def test_a_compiled_graph_saves_no_inference_tensor() -> None:
    f = compiled(lambda w, x: w * x)
    assert f(leaf(fl), fl.ones(3)).requires_grad
    with pytest.raises(RuntimeError, match="cannot be saved for backward"):
        f(leaf(fl), made_in_inference_mode(fl))
    w = leaf(fl)
    compiled(lambda w, x: (w + x).exp())(w, made_in_inference_mode(fl)).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), np.exp([2.0] * 3), rtol=1e-6)


def test_a_compiled_graph_writes_to_no_inference_tensor() -> None:
    f = compiled(lambda x: x.add_(1))
    assert f(fl.ones(3)).tolist() == [2, 2, 2]
    x = made_in_inference_mode(fl)
    with pytest.raises(RuntimeError, match="clone"):
        f(x)
    assert x.tolist() == [1, 1, 1]
    with fl.inference_mode():
        assert f(x).tolist() == [2, 2, 2]


@pytest.mark.parametrize("scope", [fl.no_grad, fl.inference_mode])
def test_gradients_after_a_break_within_the_scope(scope: Callable) -> None:
    def f(x):
        with scope():
            y = x * 2
            fl._dynamo.graph_break()
            z = y + 1
        return y, z, x * 3, x.view(3, 1)

    fl._dynamo.reset()
    run, x = fl.compile(f), leaf(fl)
    for _ in range(2):
        y, z, w, view = run(x)
        assert [t.requires_grad for t in (y, z, w, view)] == [False, False, True, True] and modes(fl) == [False, True]
        assert marks(y, z, w, view) == [scope is fl.inference_mode] * 2 + [False] * 2
        x.grad = None
        (w.sum() + view.sum()).backward()
        assert x.grad.tolist() == [4, 4, 4]
