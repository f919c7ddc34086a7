"""Forward mode: tangents of every primitive, of operators, through views and writes, and through the user's Functions."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import flambeau as fl
import flambeau.autograd.forward_ad as fwd
from flambeau.core.tensor import Tensor
from flambeau.ops.registry import PRIMITIVES, Pointwise

try:
    import torch
except ImportError:  # pragma: no cover
    torch = None

FREE_PHASES = {"eig", "svd", "eigh", "qr", "lu_factor"}     # see tests/ops/test_registry.py, test_linalg.py


def _numbers(t):
    return t.resolve_conj().resolve_neg().numpy()


def _cases():
    rng = np.random.default_rng(7)
    for name, prim in PRIMITIVES.items():
        if prim.derivative is None or "samples" in prim.why_absent:
            continue
        made = prim.samples(np.random.default_rng(7)) if prim.samples is not None else [
            tuple(rng.uniform(0.2, 0.8, (2, 3)) for _ in prim.params)]
        for i, args in enumerate(made):
            yield pytest.param(prim, args, id=f"{name}-{i}")


def _tensors(value, found):
    """The sample with tensors for arrays; those that may have a tangent are added to `found`."""
    if isinstance(value, np.ndarray):
        value = fl.tensor(value)
        if value.dtype.category >= 2:
            found.append(value)
    elif isinstance(value, list):
        value = [_tensors(v, found) for v in value]
    return value


def _with(args, change):
    return [[change.get(id(v), v) for v in a] if isinstance(a, list) else change.get(id(a), a) for a in args]


def _outs(out):
    return [o for o in (out if isinstance(out, tuple) else (out,)) if o.dtype.category >= 2]


@pytest.mark.parametrize(("prim", "sample"), list(_cases()))
def test_every_primitive_beside_differences_and_the_backward_pass(prim, sample):
    found: list[Tensor] = []
    args = [_tensors(a, found) for a in sample]
    found = [x for x in found if _is_wanted(prim, args, x)]
    if not found:
        pytest.skip("no argument that it can be differentiated by")
    rng = np.random.default_rng(0)
    tangents = [fl.tensor(rng.standard_normal(x.shape) + (1j * rng.standard_normal(x.shape) if x.dtype.is_complex else 0)).to(x.dtype)
                for x in found]
    with fwd.dual_level():
        duals = [fwd.make_dual(x, t) for x, t in zip(found, tangents)]
        got = [fwd.unpack_dual(o) for o in _outs(prim(*_with(args, {id(x): d for x, d in zip(found, duals)})))]
        known = {id(fwd.unpack_dual(d).tangent._storage) for d in duals}
        if "view" not in prim.tags:     # a write to a result is none to what it was made of
            assert known.isdisjoint(id(u.tangent._storage) for u in got if u.tangent is not None)

    def call(*xs):
        return tuple(_outs(prim(*_with(args, {id(x): v for x, v in zip(found, xs)}))))

    if not got:
        pytest.skip("no result that has a tangent")
    _, back = fl.func.jvp(call, tuple(found), tuple(tangents))
    for g, b in zip(got, back, strict=True):
        forwards = np.zeros_like(_numbers(b)) if g.tangent is None else _numbers(g.tangent)
        np.testing.assert_allclose(forwards, _numbers(b), rtol=1e-8, atol=1e-10)
    if prim.name in {*FREE_PHASES, "cholesky"} or any(x.dtype.itemsize < 8 for x in found) or "random" in prim.tags:
        return
    eps = 1e-6
    ahead, behind = (_outs(prim(*_with(args, {id(x): x + s * eps * t for x, t in zip(found, tangents)}))) for s in (1, -1))
    for g, a, b in zip(got, ahead, behind, strict=True):
        if a.dtype.itemsize < 8:
            continue
        want = (_numbers(a) - _numbers(b)) / (2 * eps)
        have = np.zeros_like(want) if g.tangent is None else _numbers(g.tangent)
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


def _is_wanted(prim, args, x):
    rules = prim.derivative.rules
    if any(a is x and getattr(rules.get(name), "refuses", False) for name, a in zip(prim.params, args)):
        return False
    if "vjp" in rules:
        return True
    return any(name in rules for name, a in zip(prim.params, args) if a is x or (isinstance(a, list) and any(v is x for v in a)))


def _inplace_views(m, d):
    y = d.clone()
    y[1].mul_(d[0])
    y[0] = 2
    return y * y


def _base_without_tangent(m, d):
    y = m.zeros(3, 4, dtype=m.float64)
    part = y[1:]
    part.copy_(d[1:].exp())
    y.t().mul_(3)
    return y.view(-1)


PROGRAMS = {
    "mul": lambda m, d: d * 2, "composed": lambda m, d: d.exp().sin(), "matmul": lambda m, d: d @ d.t(),
    "softmax": lambda m, d: (d.abs() + 1).log().softmax(-1), "layer_norm": lambda m, d: m.nn.functional.layer_norm(d, (4,)),
    "svdvals": lambda m, d: m.linalg.svdvals(d), "inv": lambda m, d: m.linalg.inv(d[:, :3] @ d[:, :3].t()),
    "cat": lambda m, d: m.cat([d, m.ones(1, 4, dtype=m.float64)]), "sort": lambda m, d: d.sort().values,
    "cumprod": lambda m, d: d.sum(0).cumprod(0), "writes into views": _inplace_views, "writes": _base_without_tangent,
    "to float32": lambda m, d: d.to(m.float32), "complex": lambda m, d: m.complex(d, d * 2).abs(),
    "gelu": lambda m, d: m.nn.functional.gelu(d), "as_strided": lambda m, d: d.as_strided((2, 2), (1, 4), 1),
    "prod of expanded": lambda m, d: d.expand(2, 3, 4).prod(0), "atan2": lambda m, d: m.atan2(d, d + 1), "mask": lambda m, d: d[d > 0],
    "attention": lambda m, d: m.nn.functional.scaled_dot_product_attention(d[None], d[None], d[None]),
    "no gradients": lambda m, d: m.no_grad()(lambda: d * d)(), "detach": lambda m, d: d.detach() * 2,
    "conv": lambda m, d: m.nn.functional.conv1d(d[None], d[None, :, :2]), "batch_norm": lambda m, d: m.nn.functional.batch_norm(
        d, None, None, training=True), "logsumexp": lambda m, d: d.logsumexp(1), "var": lambda m, d: d.var(0),
    "cross_entropy": lambda m, d: m.nn.functional.cross_entropy(d, m.tensor([0, 1, 2])), "where": lambda m, d: m.where(d > 0, d, d * d),
    "index_put": lambda m, d: m.zeros(3, 4, dtype=m.float64).index_put((m.tensor([0, 0]),), d[:2], accumulate=True),
    "fft": lambda m, d: m.view_as_real(m.fft.rfft(d)), "norm": lambda m, d: d.norm(), "amax": lambda m, d: d.amax(1),
    "lstm cell": lambda m, d: d[:1].sigmoid() * d[1:2].tanh() + d[2:].tanh(), "eigvalsh": lambda m, d: m.linalg.eigvalsh(d @ d.t()),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:DeprecationWarning")     # torch's own, when it loads forward mode
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_beside_torch(name):
    if torch is None:
        pytest.skip("no torch to compare with")
    rng = np.random.default_rng(3)
    x, t = rng.standard_normal((2, 3, 4))
    found = []
    for m in (fl, torch):
        f = m.autograd.forward_ad
        with f.dual_level():
            found.append(f.unpack_dual(PROGRAMS[name](m, f.make_dual(m.tensor(x), m.tensor(t)))))
    mine, theirs = found
    np.testing.assert_allclose(mine.primal.numpy(), theirs.primal.numpy(), rtol=1e-6, atol=1e-12)
    assert (mine.tangent is None) == (theirs.tangent is None)
    if mine.tangent is not None:
        assert str(mine.tangent.dtype) == str(theirs.tangent.dtype)
        np.testing.assert_allclose(mine.tangent.numpy(), theirs.tangent.numpy(), rtol=1e-6, atol=1e-10)


def test_reverse_over_forward_and_forward_over_reverse():
    x = fl.tensor([0.3, -1.2], dtype=fl.float64, requires_grad=True)
    t = fl.tensor([2.0, 0.5], dtype=fl.float64)
    second = (x.exp() * (2 + x)).detach() * t
    with fwd.dual_level():
        dual = fwd.make_dual(x, t)
        assert dual.requires_grad
        tangent = fwd.unpack_dual((dual.exp() * dual).sum()).tangent
        assert fl.allclose(fl.autograd.grad(tangent, x)[0], second)
        found, = fl.autograd.grad((dual.exp() * dual).sum(), dual)
        assert fl.allclose(fwd.unpack_dual(found).tangent, second)


def test_levels_and_the_switch():
    x = fl.ones(3)
    with pytest.raises(RuntimeError, match="no level exists"):
        fwd.make_dual(x, x)
    with pytest.raises(RuntimeError, match="must be a positive number"):
        fwd.exit_dual_level()
    assert fwd.enter_dual_level() == 0
    dual = fwd.make_dual(x, x)
    assert fwd.unpack_dual(dual, level=-1).tangent is None
    with pytest.raises(RuntimeError, match="not the last one"):
        fwd.exit_dual_level(level=3)
    with pytest.raises(RuntimeError, match="Nested forward mode"):
        fwd.enter_dual_level()
    with fwd._set_fwd_grad_enabled(False):
        off = dual * 2
        assert fwd.unpack_dual(dual).tangent is None
    assert fwd.unpack_dual(off).tangent is None
    others: list = []
    worker = threading.Thread(target=lambda: others.append(fwd.unpack_dual(dual).tangent))
    worker.start()
    worker.join()
    assert others == [None]
    fwd.exit_dual_level()
    assert fwd.unpack_dual(dual).tangent is None
    assert fwd.unpack_dual(x) == (x, None)


def test_what_make_dual_refuses():
    x = fl.ones(3)
    with fwd.dual_level():
        with pytest.raises(ValueError, match=r"Expected primal to be floating point or complex, but got: torch\.int32"):
            fwd.make_dual(x.int(), x)
        with pytest.raises(ValueError, match="Expected tangent to be floating point or complex"):
            fwd.make_dual(x, x.int())
        with pytest.raises(RuntimeError, match=r"size \[3\] while the given forward gradient is of size \[2\]"):
            fwd.make_dual(x, x[:2])
        with pytest.raises(RuntimeError, match="already has a forward gradient"):
            fwd.make_dual(fwd.make_dual(x, x), x)
        with pytest.raises(TypeError, match="primal must be a Tensor"):
            fwd.make_dual(1.0, x)
        with pytest.raises(TypeError, match="must be Tensor"):
            fwd.unpack_dual(3)


class Triple(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_forward(x)
        ctx.save_for_backward(x + 1)
        ctx.factor = factor
        return x * x * factor, x

    @staticmethod
    def backward(ctx, g, h):
        return 2 * (ctx.saved_tensors[0] - 1) * g * ctx.factor + h, None

    @staticmethod
    def jvp(ctx, t, none):
        assert none is None
        return 2 * ctx.saved_tensors[0] * t * ctx.factor, t


def test_functions():
    x = fl.tensor([1.0, 2.0], dtype=fl.float64, requires_grad=True)
    assert fl.autograd.gradcheck(lambda x: Triple.apply(x, 3.0), x, check_forward_ad=True)

    class Without(fl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    class Wrong(Without):
        answer: object = None

        @staticmethod
        def jvp(ctx, t):
            return Wrong.answer

    with fwd.dual_level():
        dual = fwd.make_dual(x, x.detach())
        with pytest.raises(NotImplementedError, match="implement the jvp function"):
            Without.apply(dual)
        assert fwd.unpack_dual(Wrong.apply(dual)).tangent is None
        for answer, message in (((x, x), "2 tangents for 1 outputs"), (3, "Tensors or None, got int"), (x[:1], "tangent of shape")):
            Wrong.answer = answer
            with pytest.raises(RuntimeError, match=message):
                Wrong.apply(dual)


def test_vmap_within_and_around():
    x, t = fl.randn(3, 4, dtype=fl.float64), fl.randn(3, 4, dtype=fl.float64)

    def f(row):
        return (row.sin() * row).cumsum(0)

    def push(row, along):
        with fwd.dual_level():
            return fwd.unpack_dual(f(fwd.make_dual(row, along))).tangent

    want = fl.stack([push(a, b) for a, b in zip(x, t)])
    assert fl.allclose(fl.vmap(push)(x, t), want)
    with fwd.dual_level():
        assert fl.allclose(fwd.unpack_dual(fl.vmap(f)(fwd.make_dual(x, t))).tangent, want)


def test_transforms_of_functions_within():
    x, t = fl.tensor([0.3, -1.2], dtype=fl.float64), fl.tensor([2.0, 0.5], dtype=fl.float64)
    with fwd.dual_level():
        found = fl.func.grad(lambda x: (x.exp() * x).sum())(fwd.make_dual(x, t))
        assert fl.allclose(fwd.unpack_dual(found).tangent, x.exp() * (2 + x) * t)


def test_pointwise_rules_are_used_as_they_are():
    """Real elementwise primitives don't go through a backward pass."""
    x = fl.ones(2, dtype=fl.float64)
    assert isinstance(PRIMITIVES["sin"].derivative, Pointwise)
    with fwd.dual_level(), fl.inference_mode():
        assert fwd.unpack_dual(fwd.make_dual(x, x).sin()).tangent.tolist() == pytest.approx([np.cos(1)] * 2)


@pytest.mark.parametrize("ord", [0.5, 1, 1.5, 2, 3, float("inf"), -float("inf")])
def test_norms_have_a_tangent_at_zero(ord):
    """As they have a gradient there: none of either."""
    with fwd.dual_level():
        x = fwd.make_dual(fl.zeros(3), fl.ones(3))
        tangent = fwd.unpack_dual(fl.linalg.vector_norm(x, ord)).tangent
    assert tangent.item() == 0.0
