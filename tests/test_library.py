"""Custom operators: eager, autograd, fake tensors, in place, schemas, and errors."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import _torch_c, library
from flambeau.core import dispatch
from flambeau.ops import absent

_names = (f"test{i}::op" for i in itertools.count())


def sine(name: str) -> Any:
    @library.custom_op(name, mutates_args=())
    def op(x: fl.Tensor, k: float = 2.0) -> fl.Tensor:
        return fl.from_numpy(np.sin(k * x.numpy()))

    return op


def test_call_and_namespace() -> None:
    op = sine("trig::sine")
    x = fl.tensor([1.0, 2.0])
    expected = np.sin(3 * x.numpy())
    np.testing.assert_allclose(op(x, k=3.0).numpy(), expected)
    np.testing.assert_allclose(fl.ops.trig.sine(x, 3.0).numpy(), expected)
    np.testing.assert_allclose(fl.ops.trig.sine.default(x, 3.0).numpy(), expected)
    assert not hasattr(fl.ops.trig, "cosine")
    assert not hasattr(fl.ops.no_such_namespace, "cosine")     # a namespace may be named before its operators are defined, as in torch


def test_gradient() -> None:
    op = sine(next(_names))

    def setup(ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]

    op.register_autograd(lambda ctx, g: (g * (ctx.saved_tensors[0] * ctx.k).cos() * ctx.k, None), setup_context=setup)
    x = fl.tensor([1.0, 2.0], requires_grad=True)
    op(x, k=3.0).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 3 * np.cos(3 * x.detach().numpy()), rtol=1e-6)


def test_without_gradient_the_result_needs_none() -> None:
    op = sine(next(_names))
    assert not op(fl.tensor([1.0], requires_grad=True).detach()).requires_grad


def test_several_outputs() -> None:
    @library.custom_op(next(_names), mutates_args=())
    def both(x: fl.Tensor) -> tuple[fl.Tensor, fl.Tensor]:
        return x * 2, x * 3

    both.register_autograd(lambda ctx, g, h: 2 * g + 3 * h)
    x = fl.tensor([1.0], requires_grad=True)
    a, b = both(x)
    (a + b).sum().backward()
    assert x.grad.tolist() == [5.0]
    x.grad = None
    both(x)[1].sum().backward()
    assert x.grad.tolist() == [3.0]


def test_fake_tensors() -> None:
    op = sine(next(_names))
    with dispatch.fake_mode(), pytest.raises(NotImplementedError, match="register_fake"):
        op(fl.zeros(3))
    op.register_fake(lambda x, k=2.0: x.new_empty((x.shape[0], 7)))
    with dispatch.fake_mode():
        out = op(fl.zeros(3))
    assert out.is_fake and tuple(out.shape) == (3, 7)


def test_in_place() -> None:
    @library.custom_op(next(_names), mutates_args=("x",))
    def fill(x: fl.Tensor, value: float) -> None:
        x.numpy()[...] = value

    x = fl.zeros(2)
    before = x._version
    assert fill(x, 5.0) is None
    assert x.tolist() == [5.0, 5.0]
    assert x._version > before
    with pytest.raises(NotImplementedError, match="requires grad"):
        fill(fl.zeros(2, requires_grad=True), 1.0)


def test_registration_may_come_first() -> None:
    name = next(_names)
    library.register_fake(name, lambda x: x.new_empty((2,)))
    library.custom_op(name, lambda x: x, mutates_args=(), schema="(Tensor x) -> Tensor")
    with dispatch.fake_mode():
        namespace, _, short = name.partition("::")
        assert tuple(getattr(getattr(fl.ops, namespace), short)(fl.zeros(5)).shape) == (2,)


def test_libraries_with_schemas() -> None:
    mine = library.Library("schemas", "DEF")
    assert mine.define("scale(Tensor x, float factor=2.0, *, int[] dims=[1, 2], str? mode=None) -> Tensor") == "scale"
    mine.impl("scale", lambda x, factor, *, dims, mode: x * factor + sum(dims), "CPU")
    assert fl.ops.schemas.scale(fl.tensor([1.0])).tolist() == [5.0]
    assert fl.ops.schemas.scale(fl.tensor([1.0]), 3.0, dims=[1]).tolist() == [4.0]
    name = mine.define("schemas::write(Tensor(a!) x, Tensor[] ys, SymInt n=-1) -> Tensor(a!)")
    assert name == "write" and fl.ops.schemas.write.mutates == ("x",)
    signature = fl.ops.schemas.write.signature
    assert list(signature.parameters) == ["x", "ys", "n"]
    assert signature.parameters["n"].default == -1


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: library.custom_op("plain", lambda x: x, mutates_args=()), ValueError, "namespace::name"),
    (lambda: library.custom_op("a::b", lambda x: x, mutates_args=("y",)), ValueError, "mutates_args"),
    (lambda: library.custom_op("a::c", lambda *x: x, mutates_args=()), ValueError, "varargs"),
    (lambda: library.Library("x", "NO"), ValueError, "Unsupported kind"),
    (lambda: library.Library("x", "FRAGMENT").define("f(Tensor x"), RuntimeError, "not an operator schema"),
    (lambda: library.Library("x", "IMPL").impl("f", len, "Python"), NotImplementedError, "dispatch key"),
    (lambda: fl.ops.load_library("x.so"), OSError, "custom_op"),
])
def test_bad_use(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_one_node_of_a_compiled_graph(backend: str) -> None:
    op = sine(next(_names))
    op.register_fake(lambda x, k=2.0: fl.empty_like(x))
    op.register_autograd(lambda ctx, g: (g * (ctx.x * ctx.k).cos() * ctx.k, None),
                         setup_context=lambda ctx, inputs, output: ctx.__dict__.update(x=inputs[0], k=inputs[1]))  # fmt: skip
    compiled = fl.compile(lambda x: op(x, k=3.0) + 1, backend=backend, fullgraph=True)
    x = fl.tensor([1.0, 2.0], requires_grad=True)
    out = compiled(x)
    np.testing.assert_allclose(out.detach().numpy(), np.sin(3 * x.detach().numpy()) + 1, rtol=1e-6)
    out.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 3 * np.cos(3 * x.detach().numpy()), rtol=1e-5)


def test_only_what_the_context_keeps_must_stay_as_it_is() -> None:
    @library.custom_op(next(_names), mutates_args=())
    def scaled(x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        return x * y

    scaled.register_autograd(
        lambda ctx, g: (g * ctx.saved_tensors[0], None), setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[1])
    )
    x, y = fl.ones(3, requires_grad=True), fl.full((3,), 2.0)
    inner = x * 1
    out = scaled(inner, y)
    out.add_(1)  # neither the result nor the first argument is kept
    inner.mul_(7)
    out.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    out = scaled(x, y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_result_that_the_context_keeps() -> None:
    @library.custom_op(next(_names), mutates_args=())
    def grow(x: fl.Tensor) -> fl.Tensor:
        return x.exp()

    grow.register_autograd(
        lambda ctx, g: g * ctx.saved_tensors[0], setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output)
    )
    x = fl.tensor([0.0, 1.0], requires_grad=True)
    (g,) = fl.autograd.grad(grow(x).sum(), x, create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), np.exp([0.0, 1.0]), rtol=1e-6)
    g.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp([0.0, 1.0]), rtol=1e-6)


# -- vmap, autocast, schemas -----------------------------------------------------------------------------------
def test_batching_rules_of_ones_own() -> None:
    calls: list = []

    @library.custom_op("names_test::product", mutates_args=())
    def product(x: fl.Tensor, y: fl.Tensor, *, power: int = 1) -> fl.Tensor:
        calls.append(tuple(x.shape))
        return fl.from_numpy((x.numpy() * y.numpy()) ** power)

    @product.register_vmap
    def rule(info: object, in_dims: tuple, x: fl.Tensor, y: fl.Tensor, *, power: int) -> tuple:
        calls.append((info.batch_size, info.randomness, in_dims))  # type: ignore[attr-defined]
        x = x.movedim(in_dims[0], -1) if in_dims[0] is not None else x.unsqueeze(-1)
        y = y.movedim(in_dims[1], -1) if in_dims[1] is not None else y.unsqueeze(-1)
        return product(x.expand(*x.shape[:-1], info.batch_size), y, power=power), x.ndim - 1  # type: ignore[attr-defined]

    a, b = fl.randn(5, 3), fl.randn(3)
    out = fl.vmap(lambda x, y: product(x, y, power=2), in_dims=(0, None))(a, b)
    np.testing.assert_allclose(out.numpy(), ((a * b) ** 2).numpy(), rtol=1e-6)
    assert calls == [(5, "error", (0, None)), (3, 5)]
    both = fl.vmap(fl.vmap(product, in_dims=(0, None)), in_dims=(0, None))(fl.ones(2, 5, 3), b)
    np.testing.assert_allclose(both.numpy(), np.broadcast_to(b.numpy(), (2, 5, 3)))


def test_batching_rule_of_a_function() -> None:
    class Cube(fl.autograd.Function):
        @staticmethod
        def forward(x: fl.Tensor) -> tuple:
            array = x.numpy()  # which an example doesn't have
            return fl.from_numpy(array**3), fl.from_numpy(3 * array**2)

        @staticmethod
        def setup_context(ctx: object, inputs: tuple, output: tuple) -> None:
            ctx.save_for_backward(output[1])  # type: ignore[attr-defined]
            ctx.mark_non_differentiable(output[1])  # type: ignore[attr-defined]

        @staticmethod
        def backward(ctx: object, g: fl.Tensor, _: object) -> fl.Tensor:
            return g * ctx.saved_tensors[0]  # type: ignore[attr-defined]

        @staticmethod
        def vmap(info: object, in_dims: tuple, x: fl.Tensor) -> tuple:
            return Cube.apply(x.movedim(in_dims[0], 1)), (1, 1)

    x = fl.randn(4, 3, requires_grad=True)
    cubes, slopes = fl.vmap(Cube.apply)(x)
    np.testing.assert_allclose(cubes.detach().numpy(), x.detach().numpy() ** 3, rtol=1e-6)
    cubes.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), slopes.detach().numpy())


def test_autocast_of_ones_own() -> None:
    seen: list = []

    @library.custom_op("names_test::seen", mutates_args=())
    def look(x: fl.Tensor, n: fl.Tensor) -> fl.Tensor:
        seen.append((x.dtype, n.dtype, fl.mm(fl.ones(2, 2), fl.ones(2, 2)).dtype))
        return x.clone()

    library.register_autocast(look, "cpu", fl.bfloat16)
    x, n = fl.ones(2), fl.arange(2)
    assert look(x, n).dtype is fl.float32
    with fl.autocast("cpu"):
        assert look(x, n).dtype is fl.bfloat16
        assert fl.mm(fl.ones(2, 2), fl.ones(2, 2)).dtype is fl.bfloat16
    assert seen == [(fl.float32, fl.int64, fl.float32), (fl.bfloat16, fl.int64, fl.float32)]
    with pytest.raises(ValueError, match="Unknown device type"):
        library.register_autocast(look, "nowhere", fl.bfloat16)


def _prototypes(t: Any) -> list[tuple[Callable, Any]]:
    def one(x: t.Tensor, n: int = 1, *, eps: float = 0.1, s: str = "abc", b: bool = True, o: t.Tensor | None = None) -> t.Tensor: ...
    def two(xs: list[t.Tensor], sizes: Sequence[int], d: t.dtype | None = None, w: t.device = None) -> tuple[t.Tensor, int]: ...
    def three(x: t.Tensor, y: int | float | bool, z: list[int] | None = None) -> None: ...
    def four(x): ...
    def five(x: t.Tensor, *a: int) -> t.Tensor: ...
    def six(x: dict) -> t.Tensor: ...
    def seven(x: t.Tensor): ...
    def eight(x: t.Tensor) -> dict: ...
    def nine(x: t.Tensor, n: int = [1]) -> t.Tensor: ...

    for fn in (one, two, three, five, six, seven, eight, nine):
        fn.__annotations__ = {name: eval(text, {"t": t, "Sequence": Sequence}) for name, text in fn.__annotations__.items()}
    return [(one, ()), (two, ()), (three, ()), (one, {"x"}), (two, {"xs"}), (three, "unknown"), (one, {"n"}), (one, {"q"}), (one, "x"),
            (four, ()), (five, ()), (six, ()), (seven, ()), (eight, ()), (nine, ())]  # fmt: skip


def test_schemas_of_functions() -> None:
    torch = pytest.importorskip("torch")
    answers = []
    for t in (fl, torch):
        answers.append([])
        for fn, mutates in _prototypes(t):
            try:
                answers[-1].append(t.library.infer_schema(fn, mutates_args=mutates, op_name="op"))
            except ValueError as error:
                answers[-1].append(str(error)[:60])
    assert answers[0] == answers[1]


def test_a_composite_implicit_function_has_the_gradient_of_what_it_calls():
    lib = fl.library.Library("composite_tests", "DEF")
    lib.define("twice_sin(Tensor x) -> Tensor")
    lib.impl("twice_sin", lambda x: x.sin() * 2, "CompositeImplicitAutograd")
    x = fl.ones(2, requires_grad=True)
    fl.ops.composite_tests.twice_sin(x).sum().backward()
    assert fl.allclose(x.grad, 2 * x.detach().cos())


def test_operators_of_triton_kernels() -> None:
    class Kernel:
        """Stands for a kernel: launched with a grid, writes to its last argument."""

        launched = 0

        def __getitem__(self, grid: Any) -> Any:
            def launch(x: Any, out: Any) -> None:
                self.launched += 1
                out.copy_(x * 2)
            return launch

    kernel = Kernel()

    @library.triton_op("flambeau_test::doubled", mutates_args=())
    def doubled(x: fl.Tensor) -> fl.Tensor:
        out = fl.empty_like(x)
        library.wrap_triton(kernel)[(1,)](x, out)
        return out

    assert doubled(fl.ones(3)).tolist() == [2, 2, 2] and kernel.launched == 1
    assert doubled(fl.ones(3, device="meta")).shape == (3,) and kernel.launched == 1
    assert fl.compile(lambda x: doubled(x) + 1, fullgraph=True)(fl.ones(4)).tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize("key", ["Autograd", "AutogradCPU"])
def test_functions_above_an_operator(key: str) -> None:
    """A function for autograd's key stands in the operator's place and calls what lies below it, as in torch."""
    torch = pytest.importorskip("torch")

    def run(t: Any, space: str) -> list:
        lib = t.library.Library(space, "DEF")
        lib.define("scaled(Tensor x, float by) -> Tensor")
        lib.impl("scaled", lambda x, by: x.detach() * by, "CPU")
        op = getattr(t.ops, space).scaled

        class Scaled(t.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, by: float) -> Any:
                ctx.by = by
                with getattr(t._C, "_AutoDispatchBelowAutograd", contextlib.nullcontext)():
                    return op(x, by)

            @staticmethod
            def backward(ctx: Any, g: Any) -> tuple:
                return g * ctx.by * 10, None  # so that it can be told apart

        lib.impl("scaled", lambda x, by: Scaled.apply(x, by), key)
        x = t.ones(3, requires_grad=True)
        out = op(x, 2.0)
        out.sum().backward()
        return [out.tolist(), x.grad.tolist()]

    assert run(fl, f"flambeau_above_{key.lower()}") == run(torch, f"flambeau_above_{key.lower()}") == [[2.0] * 3, [20.0] * 3]


def test_a_function_for_autocast_stands_in_the_operators_place() -> None:
    name = next(_names)
    seen = []

    @library.custom_op(name, mutates_args=())
    def op(x: fl.Tensor, k: float) -> fl.Tensor:
        seen.append((x.dtype, fl.is_autocast_enabled("cpu")))
        return x * k

    keys = _torch_c.DispatchKeySet(_torch_c.DispatchKey.AutocastCPU)

    def wide(x: fl.Tensor, k: float) -> fl.Tensor:
        with _torch_c._ExcludeDispatchKeyGuard(keys):
            return op(x.float(), k).to(x.dtype)

    fl.library.Library(name.partition("::")[0], "IMPL").impl("op", wide, "AutocastCPU")
    fl.library.Library(name.partition("::")[0], "IMPL").impl("op", wide, "AutocastXPU")
    x = fl.ones(2, dtype=fl.bfloat16)
    op(x, 2.0)
    with fl.autocast("cpu", dtype=fl.bfloat16):
        assert op(x, k=2.0).dtype is fl.bfloat16
        with fl.autocast("cpu", enabled=False):
            op(x, 2.0)
    assert seen == [(fl.bfloat16, False), (fl.float32, False), (fl.bfloat16, False)]


def test_only_the_keys_of_autocast_can_be_left_out() -> None:
    with fl.autocast("cpu"), _torch_c._ExcludeDispatchKeyGuard(_torch_c.DispatchKeySet(_torch_c.DispatchKey.AutocastCPU)):
        assert fl.mm(fl.ones(2, 2), fl.ones(2, 2)).dtype is fl.float32
    with pytest.raises(NotImplementedError, match="CPU"):
        _torch_c._ExcludeDispatchKeyGuard(_torch_c.DispatchKeySet(_torch_c.DispatchKey.CPU))


def test_operators_that_have_a_name_only() -> None:
    for namespace, (instead, names) in absent.NAMES.items():
        home = getattr(fl.ops, namespace)
        for name in names.split():
            op = getattr(home, name)
            if not isinstance(op, absent.AbsentOperator):   # torch.distributed has been imported, which defines it
                continue
            assert op.default is getattr(home, name).default and {op.default: 1}[op.default] == 1
            with pytest.raises(NotImplementedError, match=instead[:20]):
                op.default(1)
        assert not hasattr(home, "no_such_operator")


SHARING = {
    "the argument": lambda x: x, "a view of it": lambda x: x.view(-1), "none of its elements": lambda x: x[:0],
    "without its gradient": lambda x: x.detach(), "what it wrote to": lambda x: x.add_(1),
    "a part of what it wrote to": lambda x: x.add_(1)[0],
    "an element of a list": lambda xs: xs[0], "one of several": lambda x: (x + 1, x[0]), "one twice": lambda x: (x + 1,) * 2,
    "a view of another result": lambda x: (lambda y: (y, y[0]))(x + 1),
}


@pytest.mark.parametrize("backend", [None, "aot_eager", "inductor"])
@pytest.mark.parametrize("name", SHARING)
def test_results_have_memory_of_their_own(name: str, backend: str | None) -> None:
    fl._dynamo.reset()
    fn, many = SHARING[name], "list" in name
    several = isinstance(fn([fl.ones(2, 2)] if many else fl.ones(2, 2)), tuple)
    takes, gives = "Tensor[]" if many else "Tensor(a0!)" if "wrote" in name else "Tensor", "(Tensor, Tensor)" if several else "Tensor"
    op = library.custom_op(next(_names), lambda x: fn(x), schema=f"({takes} x) -> {gives}", mutates_args=("x",) if "wrote" in name else ())
    op.register_fake(lambda x: (fl.empty(2, 2),) * 2 if several else fl.empty(2, 2))
    call = (lambda x: op(x)) if backend is None else fl.compile(lambda x: op(x), backend=backend)
    with pytest.raises(RuntimeError, match="must not also be an input"):
        call([fl.ones(2, 2)] if many else fl.ones(2, 2))


def test_results_may_share_memory_with_what_is_no_argument() -> None:
    kept = fl.ones(3)
    op = library.custom_op("sharing::kept", lambda x: kept[1:], schema="(Tensor x) -> Tensor", mutates_args=())
    assert op(fl.ones(2)).tolist() == op(fl.ones(2)).tolist() == [1, 1]
