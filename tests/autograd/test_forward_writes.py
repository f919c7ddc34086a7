"""Forward mode through writes in place: of functions that write to what they are given, and of tensors laid out anew; beside torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

WRITES: dict[str, Callable] = {
    "add_": lambda lib, x: x.add_(2),
    "sin_": lambda lib, x: x.sin_(),
    "zero_": lambda lib, x: x.zero_(),
    "copy_": lambda lib, x: x.copy_(lib.ones(4, 3)),
    "an item": lambda lib, x: x.__setitem__(0, 5.0) or x,
    "an item of itself": lambda lib, x: x.__setitem__(0, x[1]) or x,
    "a view": lambda lib, x: x[1].mul_(3) is None or x,
    "its transpose": lambda lib, x: x.t().mul_(2) is None or x,
    "relu_": lambda lib, x: lib.nn.functional.relu_(x),
    "clamp_": lambda lib, x: x.clamp_(max=4),
    "masked_fill_": lambda lib, x: x.masked_fill_(x > 3, 0.0),
    "scatter_": lambda lib, x: x.scatter_(0, lib.tensor([[0, 1, 2]]), lib.ones(1, 3)),
    "index_add_": lambda lib, x: x.index_add_(0, lib.tensor([1]), lib.ones(1, 3)),
    "index_put_": lambda lib, x: x.index_put_((lib.tensor([1]),), lib.ones(3)),
    "cumsum_": lambda lib, x: x.cumsum_(0),
    "addmm_": lambda lib, x: x.addmm_(lib.ones(4, 2), lib.ones(2, 3)),
    "pow_": lambda lib, x: x.pow_(2),
    "triu_": lambda lib, x: x.triu_(),
    "t_": lambda lib, x: x.t_(),
    "unsqueeze_": lambda lib, x: x.unsqueeze_(0),
    "unsqueeze_ and on": lambda lib, x: x.unsqueeze_(0).sin_(),
    "transpose_ and a product": lambda lib, x: x.transpose_(0, 1) @ lib.ones(4, 2),
    "as_strided_": lambda lib, x: x.as_strided_((2, 2), (1, 2)),
    "foreach": lambda lib, x: [lib._foreach_mul_([x], 2.0), x][1],
    "embedding": lambda lib, x: lib.nn.functional.embedding(lib.tensor([1, 2]), x, max_norm=1.0),
}
RESULTS: dict[str, Callable] = {
    "times one": lambda lib, x: (x * 1).sin_(), "plus": lambda lib, x: (x + 1).mul_(2), "a clone": lambda lib, x: x.clone().neg_(),
    "cat": lambda lib, x: lib.cat([x]).mul_(2), "clamp": lambda lib, x: x.clamp(min=-9).mul_(3), "abs": lambda lib, x: x.abs().mul_(2),
    "where": lambda lib, x: lib.where(x > 0, x, x).mul_(2), "power": lambda lib, x: x.pow(1).mul_(2),
    "stack": lambda lib, x: lib.stack([x])[0].mul_(2),
    "a dtype": lambda lib, x: x.double().float().mul_(2), "detach": lambda lib, x: x.detach().mul_(2), "data": lambda lib, x: x.data.mul_(2),
}


def _point(lib: Any) -> tuple[Any, Any]:
    x = lib.arange(12.0).reshape(4, 3) + 1
    return x, x.sin()


def _jvp(call: Callable) -> Callable:
    def program(lib: Any) -> list:
        x, t = _point(lib)
        out, pushed = lib.func.jvp(lambda x: call(lib, x), (x,), (t,))
        return [out, pushed, *([x] if out.shape != (1, 4, 3) and out.ndim == 2 else [])]
    return program


def _jacobian(call: Callable) -> Callable:
    return lambda lib: [lib.func.jacfwd(lambda x: call(lib, x).sum(0))(_point(lib)[0])]


def _dual(call: Callable) -> Callable:
    def program(lib: Any) -> list:
        ad = lib.autograd.forward_ad
        with ad.dual_level():
            x = ad.make_dual(*_point(lib))
            out = call(lib, x)
            return [v.clone() for t in (out, x) for v in ad.unpack_dual(t) if v is not None]
    return program


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:There is a performance drop:UserWarning")     # torch's own
@pytest.mark.parametrize("way", [_jvp, _jacobian, _dual])
@pytest.mark.parametrize("row", [*WRITES, *RESULTS])
def test_writes(row: str, way: Callable) -> None:
    if row == "as_strided_" and way is _jacobian:
        pytest.skip("torch has no batching rule for it")
    program = way((WRITES | RESULTS)[row])
    expected, found = program(torch), program(flambeau)
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(torch.tensor(b.tolist()), torch.tensor(a.tolist()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("row", ["add_", "an item", "a view", "index_put_", "pow_"])
def test_compiled(row: str) -> None:
    def f(x: Any, t: Any) -> Any:
        return flambeau.func.jvp(lambda x: WRITES[row](flambeau, x), (x * 1,), (t,))

    for a, b in zip(f(*_point(flambeau)), flambeau.compile(f, backend="aot_eager")(*_point(flambeau))):
        assert flambeau.allclose(a, b)


def test_a_tensor_with_a_tangent_keeps_its_size() -> None:
    ad = flambeau.autograd.forward_ad
    for change in (lambda x: x.resize_(3, 4), lambda x: x.set_(flambeau.ones(2))):
        with ad.dual_level(), pytest.raises(RuntimeError, match="has a tangent was resized"):
            x = ad.make_dual(*_point(flambeau))
            change(x)
            ad.unpack_dual(x)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("of", ["lib.arange(40.0).reshape(4, 10)", "lib.arange(2.0).requires_grad_() * 1", "lib.tensor(2.0).double()"])
def test_tangents_are_printed(of: str) -> None:
    def program(lib: Any) -> str:
        with lib.autograd.forward_ad.dual_level():
            x = eval(of, {"lib": lib})
            return repr(lib.autograd.forward_ad.make_dual(x, lib.ones_like(x)))

    assert program(flambeau) == program(torch)
