"""What is remembered of a call comes to what the body comes to: to the bit, in memory, on the tape, in what it refuses."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import _C
from flambeau.core.settings import Numerics
from flambeau.nn import functional
from flambeau.ops.registry import OPERATORS
from flambeau.ops.traced import OWN_WAYS

from .calls import CALLS, arrays, evaluate

LAYOUTS = {
    "rows": lambda a: a,
    "columns": lambda a: np.ascontiguousarray(a.T).T,
    "gaps": lambda a: np.repeat(a, 2, -1)[..., ::2] if a.ndim else a,
}


@pytest.fixture
def at_once() -> Iterator[None]:
    _C.trace_at_once(True)
    yield
    _C.trace_at_once(False)


def _tensors(layout: str, grad: bool, kind: Any = None, device: str = "cpu") -> dict[str, Any]:
    made = {}
    for name, array in arrays().items():
        tensor = torch.from_numpy(LAYOUTS[layout](array)).to(device)
        if kind is not None and tensor.is_floating_point():
            tensor = tensor.to(kind)
        made[name] = tensor.requires_grad_(grad and tensor.is_floating_point())
    return made


def _facts(value: Any) -> Any:
    """What can be told of a result."""
    if isinstance(value, torch.Tensor):
        node = type(value.grad_fn).__name__ if value.requires_grad else None
        bits = value.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8).tolist() if value.numel() else []
        return str(value.dtype), tuple(value.shape), value.stride(), value._base is None, node, bits
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [_facts(item) for item in value]
    return repr(value)


def _gradients(value: Any, tensors: dict[str, Any]) -> Any:
    roots = [v for v in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(v, torch.Tensor) and v.requires_grad]
    leaves = [t for t in tensors.values() if t.requires_grad]
    if not roots:
        return None
    found = torch.autograd.grad(roots, leaves, [torch.ones_like(r) for r in roots], allow_unused=True)
    return [g if g is None else _facts(g) for g in found]


def _outcome(call: str, tensors: dict[str, Any]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = evaluate(torch, call, tensors)
            return _facts(value), _gradients(value, tensors)
    except Exception as error:
        return type(error), str(error)


def _different(make: Callable[[], dict[str, Any]]) -> tuple[list[str], float]:
    """The calls that answer otherwise later, and which share gives a result. The first call runs bodies, the second writes steps down and
    runs them, as does the third."""
    different, good = [], 0
    for call in CALLS:
        tensors = make()
        outcomes = []
        for at_once in (False, True, True):
            torch.manual_seed(0)
            _C.trace_at_once(at_once)
            outcomes.append(_outcome(call, tensors))
        _C.trace_at_once(False)
        if not outcomes[0] == outcomes[1] == outcomes[2]:
            different.append(call)
        good += not isinstance(outcomes[0][0], type)
    return different, good / len(CALLS)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("grad", [False, True])
def test_every_operator(layout: str, grad: bool) -> None:
    different, good = _different(lambda: _tensors(layout, grad))
    assert different == [] and good > 0.9


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64", "complex64", "int32", "bool"])
def test_every_dtype(kind: str) -> None:
    different, good = _different(lambda: _tensors("rows", False, getattr(torch, kind)))
    assert different == [] and good > 0.3


def test_most_operators_are_traced() -> None:
    traced = [op._body for op in OPERATORS.values() if type(getattr(op, "_body", None)) is _C.Traced]
    assert len(traced) > 300
    for _ in range(4):
        torch.cumsum(torch.ones(3), 0)
    assert any(type(steps) is _C.Steps for steps in OPERATORS["cumsum"]._body.programs.values())
    assert not any(type(op._body) is _C.Traced for op in OPERATORS.values() if not OWN_WAYS.isdisjoint(op._operator.tags))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16"])
def test_running_statistics_move(grad: bool, kind: str, at_once: None) -> None:
    """Writes in the midst of a body, while nothing is recorded."""
    def train(traces: bool) -> Any:
        _C.trace_at_once(traces)
        torch.manual_seed(0)
        layer = torch.nn.BatchNorm2d(3, dtype=getattr(torch, kind))
        found = []
        for size in (4, 4, 5, 4):
            x = torch.arange(size * 12.0).sin().reshape(size, 3, 2, 2).to(layer.weight.dtype).requires_grad_(grad)
            out = layer(x)
            out.square().sum().backward()
            found.append([_facts(t) for t in (out, layer.running_mean, layer.running_var, layer.weight.grad)])
            found.append([layer.running_mean._version, layer.running_mean.requires_grad])
        return found
    assert train(False) == train(True)


def test_a_failure_behind_a_write_is_told_at_once(at_once: None) -> None:
    def body(x: Any, index: Any) -> Any:
        x.add_(1)
        return torch.index_select(x, 0, index)

    traced = _C.Traced(body)
    for index in (0, 1, 0):
        assert traced(torch.zeros(2), torch.tensor([index])).tolist() == [1]
    assert {type(steps) for steps in traced.programs.values()} == {_C.Steps}
    x = torch.zeros(2)
    with pytest.raises(IndexError):
        traced(x, torch.tensor([7]))
    assert x.tolist() == [1, 1] and x._version == 1


def test_what_an_earlier_call_has_done_wrong_is_not_lost(at_once: None) -> None:
    """A GPU tells late of an index out of range; whoever is told then would not be told a second time."""
    pending: list[Exception] = []

    def kernel(x: Any) -> Any:
        if pending:
            raise pending.pop()
        return x.clone()

    def body(x: Any) -> Any:
        return torch.neg(kernel(x))

    traced = _C.Traced(body)
    key, = [traced(torch.ones(2)), *traced.programs][1:]
    traced.programs[key] = _C.Steps(1, ((None, kernel, ((1, 0),), -1, False, False, ()),), (1, 1))
    pending.append(IndexError("early"))
    assert traced(torch.ones(2)).tolist() == [-1, -1]       # the call's own: the body is asked, which has nothing to say
    pending.append(error := IndexError("late"))
    error.told_late = True      # type: ignore[attr-defined]
    with pytest.raises(IndexError, match="late"):
        traced(torch.ones(2))


def test_only_the_memory_that_is_written_is_copied_to_try_it(at_once: None) -> None:
    def body(x: Any, total: Any) -> Any:
        return total.add_(x.sum())

    traced, x = _C.Traced(body), torch.ones(256, 256)
    held = [traced(x, total := torch.zeros(()))._storage is total._storage for _ in range(3)]
    assert all(held) and total.item() == 1 << 16 and {type(s) for s in traced.programs.values()} == {_C.Steps}


def test_the_default_device_is_asked_anew(at_once: None) -> None:
    x = torch.tensor([-1.0, 2.0])

    def devices() -> list[str]:
        return [torch.nn.functional.pad(x, (1, 1)).device.type, torch.where(x > 0, 1.0, 0.0).device.type, torch.arange(2).device.type]
    plain = [devices(), devices()]
    with torch.device("meta"):
        inside = [devices(), devices()]
    assert plain == [["cpu"] * 3] * 2 and inside == [["cpu", "cpu", "meta"]] * 2 and devices() == plain[0]


def test_random_numbers_are_drawn_anew(at_once: None) -> None:
    x = torch.ones(100)
    for draw in (lambda: functional.dropout(x), lambda: torch.rand_like(x), lambda: functional.gumbel_softmax(x),
                 lambda: functional.rrelu(-x, training=True),
                 lambda: torch.bernoulli(x / 2), lambda: functional.feature_alpha_dropout(x[None], training=True)):
        assert not all(torch.equal(draw(), draw()) for _ in range(4))


def test_settings_are_followed(at_once: None) -> None:
    x = torch.ones(3, dtype=torch.int64)
    for kind in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(kind)
        try:
            assert torch.sqrt(x).dtype is torch.mean(x.float()).dtype.__class__ or torch.sqrt(x).dtype is kind
            assert torch.full((2,), 1.0).dtype is kind and torch.div(x, 2).dtype is kind
        finally:
            torch.set_default_dtype(torch.float32)
    Numerics.deterministic = 2
    try:
        with pytest.raises(RuntimeError, match="deterministic"):
            x.float().put_(torch.tensor([0]), torch.tensor([1.0]))
    finally:
        Numerics.deterministic = 0


def test_values_are_looked_at_anew(at_once: None) -> None:
    logits, classes = torch.zeros(2, 3), torch.tensor([0, 2])
    for _ in range(3):
        functional.cross_entropy(logits, classes)
    with pytest.raises(IndexError, match="Target 3 is out of bounds"):
        functional.cross_entropy(logits, torch.tensor([0, 3]))
    table = torch.zeros(4, 2)
    for _ in range(3):
        functional.embedding(classes, table), table[classes], torch.index_select(table, 0, classes)
    for read in (lambda i: functional.embedding(i, table), lambda i: table[i], lambda i: torch.index_select(table, 0, i)):
        with pytest.raises(IndexError):
            read(torch.tensor([0, 4]))
    assert [torch.allclose(torch.zeros(2), torch.full((2,), v)) for v in (0.0, 1.0, 0.0)] == [True, False, True]
    assert [tuple(torch.nonzero(torch.tensor([a, 1])).shape) for a in (0, 1, 0)] == [(1, 1), (2, 1), (1, 1)]


def test_numbers_are_told_apart(at_once: None) -> None:
    x = torch.ones(2)
    found = [torch.mul(x, n) for n in (1, True, 1.0, 0.0, -0.0, 2**40)]
    assert [str(f.dtype) for f in found] == ["torch.float32"] * 6
    assert [f[0].item().hex() for f in found[3:5]] == [0.0.hex(), (-0.0).hex()]
    assert [torch.full((1,), n).dtype for n in (1, True, 1.0)] == [torch.int64, torch.bool, torch.float32]
    assert [torch.sum(x, dim) .shape for dim in (0, (0,), [0], None)] == [torch.Size([])] * 4


def test_the_same_tensor_twice(at_once: None) -> None:
    x, y = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)
    for a, b in ((x, y), (x, x), (y, x), (x, x)):
        got = torch.autograd.grad(torch.dot(a, b), [a], retain_graph=False)[0]
        assert got.tolist() == (b * 2 if a is b else b).tolist()


def test_an_empty_trace_leaves_nothing_behind(at_once: None) -> None:
    """A body that hands its stand-ins on would be found: results are tensors."""
    kept = [evaluate(torch, call, _tensors("rows", False)) for call in ("t.cumsum(x, 0)", "t.topk(x, 2)", "t.var_mean(x)", "F.softmax(x, 1)")]
    for value in kept:
        for item in value if isinstance(value, tuple) else [value]:
            assert type(item) is torch.Tensor and item.tolist() is not None


def test_warnings_are_given_each_time(at_once: None) -> None:
    for _ in range(3):
        with pytest.warns(UserWarning, match="target size"):
            functional.mse_loss(torch.zeros(2, 1), torch.zeros(2))


WRITES = {
    "zero_": lambda x, v, m, i: x.zero_(), "fill_": lambda x, v, m, i: x.fill_(2), "copy_": lambda x, v, m, i: x.copy_(v[0]),
    "clamp_": lambda x, v, m, i: x.clamp_(-0.5, 0.5), "masked_fill_": lambda x, v, m, i: x.masked_fill_(m, 3.0),
    "set row": lambda x, v, m, i: x.__setitem__(1, 7.0), "set part": lambda x, v, m, i: x.__setitem__((slice(None), slice(1, 3)), v[:, 1:3]),
    "set index": lambda x, v, m, i: x.__setitem__(i, 1.5), "set mask": lambda x, v, m, i: x.__setitem__(m, 4.0),
    "index_add_": lambda x, v, m, i: x.index_add_(0, i, v), "index_fill_": lambda x, v, m, i: x.index_fill_(0, i, 9.0),
    "scatter_": lambda x, v, m, i: x.scatter_(0, i[:, None].expand(3, 4), v), "addmm_": lambda x, v, m, i: x.addmm_(v[:, :3], v),
    "add_ itself": lambda x, v, m, i: x.add_(x.T[:3] if x.shape[0] == 4 else x, alpha=2), "tril_": lambda x, v, m, i: x.tril_(),
    "addcmul_": lambda x, v, m, i: x.addcmul_(v, v, value=0.5), "lerp_": lambda x, v, m, i: x.lerp_(v, 0.25),
    "swap": lambda x, v, m, i: x.copy_(x.flip(0)), "div_": lambda x, v, m, i: x.div_(v, rounding_mode="floor"),
}


@pytest.mark.parametrize("kind", ["float32", "int64", "bfloat16", "bool"])
@pytest.mark.parametrize("layout", ["rows", "columns", "part", "expanded", "windows"])
def test_writes(layout: str, kind: str) -> None:
    """Each time once, whatever lies beside it, with one version more; refused where it was refused before."""
    rng = np.random.default_rng(0)
    base = torch.from_numpy(rng.standard_normal((8, 8)) * 3).to(getattr(torch, kind))
    value = torch.from_numpy(rng.standard_normal((3, 4)) * 3).to(getattr(torch, kind))
    mask, index = torch.from_numpy(rng.random((3, 4)) > 0.5), torch.tensor([2, 0, 2])
    views = {"rows": lambda b: b.view(-1)[:12].clone().view(3, 4), "columns": lambda b: b.view(-1)[:12].clone().view(4, 3).T,
             "part": lambda b: b[1:4, 2:6], "expanded": lambda b: b[0, :4].expand(3, 4),
             "windows": lambda b: b.view(-1).as_strided((3, 4), (2, 1))}

    def outcome(write: Any) -> Any:
        whole = base.clone()
        x = views[layout](whole)
        before = x._version
        try:
            with torch.no_grad():
                write(x, value, mask, index)
        except Exception as error:
            return type(error), str(error), whole.double().tolist()
        return x.double().tolist(), whole.double().tolist(), x._version - before

    for name, write in WRITES.items():
        outcomes = [outcome(write)]
        _C.trace_at_once(True)
        outcomes += [outcome(write) for _ in range(3)]
        _C.trace_at_once(False)
        assert all(o == outcomes[0] for o in outcomes), name


def test_writes_that_autograd_follows(at_once: None) -> None:
    for write in WRITES.values():
        found = []
        for _ in range(3):
            x = torch.arange(12.0).view(3, 4).requires_grad_()
            y = x * 2
            try:
                write(y, torch.ones(3, 4), torch.ones(3, 4) > 0, torch.tensor([2, 0, 2]))
                found.append((type(y.grad_fn).__name__, torch.autograd.grad(y.sum(), x)[0].tolist()))
            except RuntimeError as error:
                found.append(str(error))
        assert found[0] == found[1] == found[2]


def test_numbers_too_large_warn_of_nothing(at_once: None) -> None:
    """Nor at the first call: pytest takes warnings for errors."""
    for n in (1e300, -1e300):
        for x in (torch.ones(5), torch.ones(5, dtype=torch.bfloat16)):
            assert (torch.ones(5) * n).isinf().all() and not (torch.ones(5) == n).any() and x.shape == (5,)


def test_long_lists_are_run_as_they_are(at_once: None) -> None:
    parts = [torch.full((1,), float(n)) for n in range(200)]
    for _ in range(3):
        assert torch.cat(parts).tolist() == list(range(200)) and len(torch.arange(200).unbind()) == 200
    assert not any(type(steps) is _C.Steps and len(key) > 4000 for key, steps in OPERATORS["cat"]._body.programs.items())
