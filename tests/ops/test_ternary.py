"""Operators of three tensors, and of a number that scales one, with all mixes of dtypes: result dtype, value and refusal are torch's."""

import itertools

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

KINDS = ("bool", "int64", "bfloat16", "float32", "float64", "complex64")
NUMBERS = (2, 1.5, 1 + 1j, 0)
SCALED = {
    "addcmul": lambda m, a, b, c, s: m.addcmul(a, b, c, value=s),
    "addcdiv": lambda m, a, b, c, s: m.addcdiv(a, b, c, value=s),
    "addcmul_": lambda m, a, b, c, s: a.clone().addcmul_(b, c, value=s),
    "addcdiv_": lambda m, a, b, c, s: a.clone().addcdiv_(b, c, value=s),
    "addmm": lambda m, a, b, c, s: m.addmm(a, b, c, alpha=s, beta=s),
    "addmv": lambda m, a, b, c, s: m.addmv(a[0], b, c[0], alpha=s),
    "addr": lambda m, a, b, c, s: m.addr(a, b[0], c[0], alpha=s, beta=s),
    "baddbmm": lambda m, a, b, c, s: m.baddbmm(a[None], b[None], c[None], beta=s),
    "addbmm": lambda m, a, b, c, s: m.addbmm(a, b[None], c[None], alpha=s),
}
PLAIN = {
    "lerp": lambda m, a, b, c: m.lerp(a, b, c), "lerp_": lambda m, a, b, c: a.clone().lerp_(b, c),
    "lerp of a number": lambda m, a, b, c: m.lerp(a, b, c.flatten()[0]),
    "where": lambda m, a, b, c: m.where(a > 1, b, c), "clamp": lambda m, a, b, c: m.clamp(a, b, c),
}
PAIRS = {
    "add": lambda m, a, b, s: m.add(a, b, alpha=s), "sub": lambda m, a, b, s: m.sub(a, b, alpha=s),
    "rsub": lambda m, a, b, s: m.rsub(a, b, alpha=s), "add_": lambda m, a, b, s: a.clone().add_(b, alpha=s),
    "lerp": lambda m, a, b, s: m.lerp(a, b, s), "add of a number": lambda m, a, b, s: m.add(a, 2, alpha=s),
}


def made(m, kind, seed):
    return m.tensor(np.random.default_rng(seed).integers(1, 4, (3, 3)).tolist()).to(getattr(m, kind))


def outcome(call):
    try:
        out = call()
    except RuntimeError as error:      # NotImplementedError is one
        return type(error).__name__, None
    kind = str(out.dtype).split(".")[-1]
    wide = out.to((torch if isinstance(out, torch.Tensor) else fl).complex128).numpy()
    return kind, wide


def check(call, case) -> None:
    want, got = outcome(lambda: call(torch)), outcome(lambda: call(fl))
    if want[0] == "NotImplementedError":  # of products of bools, for which torch has no kernel
        return
    if want[1] is None or got[1] is None:
        assert want[1] is got[1], (case, want, got)
        return
    assert want[0] == got[0], (case, want[0], got[0])
    tolerance = 2e-2 if "16" in want[0] else 1e-6 if want[0] in ("float32", "complex64") else 1e-12
    np.testing.assert_allclose(got[1], want[1], tolerance, tolerance, err_msg=str(case))


@pytest.mark.parametrize("name", SCALED)
def test_three_tensors_and_a_number(name) -> None:
    for kinds in itertools.product(KINDS, repeat=3):
        for s in NUMBERS if len(set(kinds)) == 1 else NUMBERS[sum(map(KINDS.index, kinds)) % 4:][:1]:
            check(lambda m, s=s, kinds=kinds: SCALED[name](m, *[made(m, k, i) for i, k in enumerate(kinds)], s), (name, kinds, s))


@pytest.mark.parametrize("name", PLAIN)
def test_three_tensors(name) -> None:
    for kinds in itertools.product(KINDS, repeat=3):
        if name == "where" and kinds[0] == "complex64":
            continue
        check(lambda m, kinds=kinds: PLAIN[name](m, *[made(m, k, i) for i, k in enumerate(kinds)]), (name, kinds))


@pytest.mark.parametrize("name", PAIRS)
def test_two_tensors_and_a_number(name) -> None:
    for kinds in itertools.product(KINDS, repeat=2):
        for s in (*NUMBERS, True, False):
            check(lambda m, s=s, kinds=kinds: PAIRS[name](m, *[made(m, k, i) for i, k in enumerate(kinds)], s), (name, kinds, s))


def test_mixed_precisions_are_computed_in_the_wider_one() -> None:
    a, b = fl.tensor([1.0], dtype=fl.float64), fl.tensor([1 / 3], dtype=fl.float32)
    exact = b.double()
    assert fl.addcmul(a, b, b).item() == (1 + exact * exact).item()
    assert fl.addcdiv(a, b, a + 2).item() == (1 + exact / 3).item()
    assert fl.addcdiv(a, b, b + 1).item() == (1 + exact / (b + 1).double()).item()
    assert fl.lerp(a, a + 1, b[0]).item() == (1 + exact).item()


@pytest.mark.parametrize("name", ["mm", "matmul", "mv", "inner", "dot", "bmm", "linear"])
def test_products_of_bools_tell_whether_some_pair_is_true(name):
    rng = np.random.default_rng(0)
    a, b = (fl.tensor(rng.integers(0, 2, (4, 5)).astype(bool)) for _ in range(2))
    one = {"mm": lambda x, y: fl.mm(x, y.t()), "matmul": lambda x, y: x[None] @ y.t(), "mv": lambda x, y: fl.mv(x, y[0]),
           "inner": fl.inner, "dot": lambda x, y: fl.dot(x[0], y[1]), "bmm": lambda x, y: fl.bmm(x[None], y.t()[None]),
           "linear": fl.nn.functional.linear}[name]
    got = one(a, b)
    assert got.dtype is fl.bool and fl.equal(got, one(a.long(), b.long()) > 0)
    assert fl.equal(fl.compile(one)(a, b), got)
