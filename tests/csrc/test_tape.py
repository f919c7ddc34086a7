"""The tape of native code: nodes run natively give the gradients that Python's way gives, to the bit; what Python keeps and traces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau.autograd.graph import AccumulateGrad, Saved
from flambeau.ops.primitives import PRIMITIVES

DIFFERENTIABLE = [p for p in PRIMITIVES.values()
                  if p.derivative is not None and p.kind not in ("inplace", "factory") and "samples" not in p.why_absent]


def samples(prim: Any) -> list[tuple]:
    """The sample inputs of a primitive; an elementwise one without any has some of its own."""
    rng = np.random.default_rng(0)
    if prim.samples is not None:
        return list(prim.samples(rng))
    return [tuple(rng.uniform(0.2, 0.8, (2, 3)) for _ in range(prim.tensors))]


def leaf(value: Any, needed: bool = True) -> Any:
    """An array as a leaf, also in lists."""
    if isinstance(value, (list, tuple)) and any(isinstance(v, np.ndarray) for v in value):
        return [leaf(v, needed) for v in value]
    if not isinstance(value, np.ndarray):
        return value
    made = fl.tensor(value)
    return made.requires_grad_() if needed and made.dtype.category >= 2 else made


def tensors(values: Any) -> Iterator[fl.Tensor]:
    for value in values:
        if isinstance(value, fl.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)


def shown(value: Any) -> Any:
    """A saved value as something to compare."""
    if isinstance(value, Saved):
        return shown(value.tensor), value.version, value.output
    if isinstance(value, fl.Tensor):
        return value.dtype, tuple(value.shape), value.detach().resolve_conj().resolve_neg().numpy().tobytes()
    if isinstance(value, (list, tuple)):
        return tuple(map(shown, value))
    return value if isinstance(value, (int, float, complex, str, bool, type(None))) else type(value)


def graph(node: Any) -> Any:
    """A node with what it keeps and all that is below it."""
    if node is None or isinstance(node, AccumulateGrad):
        return None if node is None else shown(node.variable)
    kept = {name: shown(value) for name, value in getattr(node, "saved", {}).items()}
    return type(node), node.output_specs, getattr(node, "needs", None), kept, [(graph(below), nr) for below, nr in node.next_functions]


def recorded(prim: Any, sample: tuple, needed: tuple[bool, ...], by_python: bool) -> Any:
    """(the graphs of the results, the leaves' gradients). In anomaly mode nodes are run by Python."""
    args = tuple(leaf(a, n) for a, n in zip(sample, needed, strict=True))
    with fl.autograd.set_detect_anomaly(True, check_nan=False) if by_python else contextlib.nullcontext():
        out = prim(*args)
        found = [o for o in tensors((out,)) if o.requires_grad]
        graphs = [graph(o.grad_fn) for o in found]
        leaves = [a for a in tensors(args) if a.requires_grad]
        if not found or not leaves:
            return graphs, None
        try:
            grads = fl.autograd.grad(found, leaves, [fl.full_like(o, 0.5) for o in found], allow_unused=True)
        except (NotImplementedError, RuntimeError) as error:
            return graphs, type(error)
    return graphs, shown(list(grads))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("prim", DIFFERENTIABLE, ids=lambda prim: prim.name)
def test_run_natively_and_by_python(prim: Any) -> None:
    for sample in samples(prim):
        tensors_at = [k for k, a in enumerate(sample) if isinstance(a, (np.ndarray, list, tuple))]
        for alone in (None, *tensors_at):   # all need a gradient, or one does
            needed = tuple(alone is None or k == alone for k in range(len(sample)))
            assert recorded(prim, sample, needed, False) == recorded(prim, sample, needed, True), (prim.name, alone)


def test_python_records_where_it_has_to() -> None:
    x = fl.tensor([1.0, 2.0], requires_grad=True)
    with fl.autograd.set_detect_anomaly(True, check_nan=False):
        assert "test_tape" in "".join((x * x).grad_fn.metadata["traceback_"])
    assert (x * x).grad_fn.metadata == {}
    packed = []
    with fl.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = x * x
    assert len(packed) == 2 and fl.equal(fl.autograd.grad(y.sum(), x)[0], 2 * x)
    with fl.inference_mode():
        z = fl.ones(2)
    with pytest.raises(RuntimeError, match=r"(?i)inference tensor"):
        x * z


def test_a_view_of_what_was_written_catches_up() -> None:
    for _ in range(2):  # layouts are remembered from the first time on
        x = fl.arange(4.0, requires_grad=True)
        base = x * 1
        part = base[1:3]
        base.mul_(3)
        assert fl.autograd.grad((part * part).sum(), x)[0].tolist() == [0, 18, 36, 0]


def test_first_gradients_are_the_leafs_own() -> None:
    a, b = fl.ones(3, requires_grad=True), fl.ones(3, requires_grad=True)
    (a + b).sum().backward()    # one gradient for both
    a.grad.add_(1)
    assert b.grad.tolist() == [1, 1, 1]
    a.grad = b.grad = None
    seen = fl.full((3,), 2.0)
    a.backward(seen)
    a.grad.add_(1)
    assert seen.tolist() == [2, 2, 2]


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64])
@pytest.mark.parametrize(("n", "k", "m"), [(2, 8, 4), (1, 8, 4), (8, 1, 3), (3, 5, 1), (1, 1, 1), (39, 41, 40), (0, 3, 2), (2, 0, 3)])
def test_small_products_in_every_layout(dtype: Any, n: int, k: int, m: int) -> None:
    fl.manual_seed(0)
    make = lambda *shape: fl.randn(*shape, dtype=dtype)
    lefts = [make(n, k), make(k, n).t(), make(2 * n, 2 * k)[::2, ::2], make(1, k).expand(n, k)]
    rights = [make(k, m), make(m, k).t(), make(2 * k, 2 * m)[::2, ::2], make(k, 1).expand(k, m)]
    close = {"rtol": 1e-4, "atol": 1e-5} if dtype is fl.float32 else {"rtol": 1e-12, "atol": 1e-12}
    for a in lefts:
        for b in rights:
            want, bias = a.numpy() @ b.numpy(), make(2 * m)[::2]
            np.testing.assert_allclose((a @ b).numpy(), want, **close)
            np.testing.assert_allclose(fl.nn.functional.linear(a, b.t(), bias).numpy(), want + bias.numpy(), **close)
            batch = fl.stack([a, a * 2]), fl.stack([b, b])
            np.testing.assert_allclose((batch[0] @ batch[1]).numpy(), batch[0].numpy() @ batch[1].numpy(), **close)
            np.testing.assert_allclose(fl.nn.functional.linear(batch[0], b.t()).numpy(), batch[0].numpy() @ b.numpy(), **close)
            assert (a @ b).is_contiguous()


def test_small_products_warn_of_nothing() -> None:
    assert (fl.tensor([[float("inf")]]) @ fl.tensor([[0.0]])).isnan().all()
