"""Index expressions simplify correctly, and sizes record the guards a branch needs."""

from __future__ import annotations

import copy
import math
import pickle
import random

import pytest

from flambeau.core.symbolic import (
    ShapeEnv,
    SymFloat,
    SymInt,
    bounds,
    coefficient,
    evaluate,
    maximum,
    minimum,
    substitute,
    sym_float,
    sym_int,
    sym_ite,
    sym_max,
    sym_min,
    sym_not,
    sym_sqrt,
    sym_sum,
    to_cpp,
    to_python,
    var,
)


def test_constants_are_ints_and_equal_expressions_are_identical() -> None:
    i, j = var("i", size=6), var("j", size=8)
    assert i - i == 0 and (i * 8 + j) - 8 * i is j
    assert (i + j) * (i - j) is i * i - j * j


def test_division_uses_ranges() -> None:
    i, j = var("i", size=6), var("j", size=8)
    flat = i * 8 + j
    assert flat // 8 is i and flat % 8 is j
    assert (flat // 4) * 4 + flat % 4 is flat
    assert (flat // 4) // 2 is i and (flat % 16) % 8 is j
    assert (6 * i) % 4 is 2 * ((3 * i) % 2)


def test_division_drops_what_is_too_small_to_matter() -> None:
    i, j = var("i", size=2048), var("j", size=1536)
    flat = 1536 * i + j
    assert flat // (256 * 1536) is i // 256
    assert (flat // (256 * 1536)) * (256 * 1536) + (flat // 1536 % 256) * 1536 + flat % 1536 is flat


def test_division_by_symbols() -> None:
    s = var("s0", lo=2)
    i, k = var("i", size=6), var("k", size=s)
    flat = i * s + k
    assert flat // s is i and flat % s is k
    a = var("a", size=s * 4)
    assert (a // s) * s + a % s is a


@pytest.mark.parametrize("sizes", [("s+1", "s+2"), ("6//s+1", "8//s+1"), ("7-(s+1)//2", "13-2*s"), ("s*s+1", "s+t", "t+1")], ids=str)
def test_division_by_products_of_sums(sizes) -> None:
    """A flat index over dimensions of such sizes comes apart: a loop variable's size is positive where its loop runs."""
    free = {"s": var("s", lo=2), "t": var("t", lo=2)}
    dims = [eval(size, dict(free)) for size in sizes]
    loops = [var("i", size=5), *(var(f"j{k}", size=n) for k, n in enumerate(dims))]
    flat, inner = loops[0], 1
    for i, n in zip(loops[1:], dims, strict=True):
        flat, inner = flat * n + i, inner * n
    assert flat // inner is loops[0]
    for i, n in zip(reversed(loops[1:]), reversed(dims), strict=True):
        assert flat % n is i
        flat = flat // n
    assert flat is loops[0]


def test_division_by_sums_keeps_its_value() -> None:
    s, t = var("s", lo=2), var("t", lo=2)
    for x in (s * t, s * t - 1, 3 * s * s + t, s - t, (s + 1) * (t - 3) + 2, -s * t + 5):
        for b in (s + 1, s * t + s, 2 * s + 3, s + t - 1, t * t - s + 40):
            for values in ({"s": 2, "t": 5}, {"s": 7, "t": 3}, {"s": 4, "t": 4}):
                divisor = evaluate(b, values)
                assert evaluate(x // b, values) == evaluate(x, values) // divisor
                assert evaluate(x % b, values) == evaluate(x, values) % divisor


def test_extremes_fold_by_bounds() -> None:
    s = var("s0", lo=2)
    assert maximum(s, 1) is s and minimum(s, 3, s) is minimum(s, 3) and maximum(2, 5) == 5
    n = var("n", lo=-math.inf)
    assert bounds(maximum(n, -n))[0] == 0 and bounds(minimum(1 - n, n - 1))[1] == 0


@pytest.mark.parametrize("seed", range(40))
def test_random_expressions_keep_their_value(seed: int) -> None:
    rng = random.Random(seed)
    names = {"i": 5, "j": 7, "s": 9}
    variables = [var("i", size=5), var("j", size=7), var("s", lo=2)]
    ops = ["+", "-", "*", "//", "%", "max", "min"]

    def build(depth: int) -> tuple:
        if depth == 0:
            x = rng.choice([*variables, rng.randint(-4, 9)])
            return x, (lambda v, x=x: v[to_python(x)] if not isinstance(x, int) else x)
        op = rng.choice(ops)
        (a, fa), (b, fb) = build(depth - 1), build(depth - 1)
        if op in ("//", "%"):
            b = fb = rng.choice([2, 3, 4, 6])
            value = fb
            fb = lambda v, value=value: value
        made = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b, "%": lambda: a % b,
                "max": lambda: maximum(a, b), "min": lambda: minimum(a, b)}[op]()
        plain = {"+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y, "//": lambda x, y: x // y,
                 "%": lambda x, y: x % y, "max": max, "min": min}[op]
        return made, lambda v: plain(fa(v), fb(v))

    made, plain = build(4)
    for _ in range(20):
        values = {"i": rng.randrange(5), "j": rng.randrange(7), "s": rng.randint(2, names["s"])}
        want = plain(values)
        assert evaluate(made, values) == want
        assert eval(to_python(made), {}, values) == want
        lo, hi = bounds(made)
        assert lo <= want <= hi
        assert substitute(made, values) == want


def test_coefficient_and_printing() -> None:
    i, s = var("i", size=6), var("s0", lo=2)
    assert coefficient(3 * s * i + 4, "i") is 3 * s
    assert coefficient((i + 1) // 2, "i") is None
    assert to_cpp(s // 2 - 3 * i) == "(s0 / 2) - 3*i"
    assert "fl::floordiv<int64_t>" in to_cpp((i - s) // 2)


def test_expressions_pickle_and_copy() -> None:
    e = (var("i", size=6) * 3 + var("s0", lo=2)) // 5
    assert pickle.loads(pickle.dumps(e)) is e and copy.deepcopy(e) is e


def test_branching_records_a_guard_once() -> None:
    env = ShapeEnv()
    n = env.create_symint(8, "x.size(0)")
    assert isinstance(n, SymInt) and n.hint == 8
    assert n > 3 and n > 3 and n != 5
    assert n >= 2  # known: sizes 0 and 1 are specialised
    assert env.guard_expressions() == ["2 <= x.size(0)", "x.size(0) > 3", "x.size(0) != 5"]


def test_ranges_are_learned() -> None:
    env = ShapeEnv()
    n = env.create_symint(8, "n")
    assert n > 5 and n > 4 and n * 2 > 6
    assert len(env.guards) == 1


def test_zero_and_one_specialise_and_equal_hints_share() -> None:
    env = ShapeEnv()
    assert env.create_symint(1, "a") == 1 and env.create_symint(0, "b") == 0
    n, m = env.create_symint(8, "x.size(0)"), env.create_symint(8, "y.size(1)")
    assert n.expr is m.expr and n == m
    assert env.guard_expressions() == ["y.size(1) == x.size(0)", "2 <= x.size(0)"]


def test_equality_becomes_a_replacement() -> None:
    env = ShapeEnv(duck_shape=False)
    n, m = env.create_symint(8, "n"), env.create_symint(8, "m")
    assert n == m
    assert env.simplify(n.expr - m.expr) == 0
    assert n == 8 and env.simplify(m.expr) == 8
    assert env.guard_expressions() == ["2 <= n", "2 <= m", "n == m", "n == 8"]


def test_using_a_size_as_an_int_specialises() -> None:
    env = ShapeEnv()
    n = env.create_symint(4, "n")
    assert list(range(n)) == [0, 1, 2, 3]
    assert env.guard_expressions()[-1] == "n == 4" and n * 2 == 8


def test_arithmetic_with_floats() -> None:
    env = ShapeEnv()
    n = env.create_symint(4, "n")
    scale = n**-0.5
    assert isinstance(scale, SymFloat) and scale.hint == 0.5 and scale.value({"s0": 16}) == 0.25
    assert (1 / n).to_cpp() == "(double(1) / double(s0))"
    assert not env.guards
    assert float(1.0 / n) == 0.25 and env.guards


def test_sym_max_does_not_guard() -> None:
    env = ShapeEnv()
    n = env.create_symint(4, "n")
    assert to_python(sym_max(n, 9).expr) == "max(s0, 9)" and not env.guards
    assert sym_max(1, 2) == 2


def test_frozen_environment_refuses_new_guards() -> None:
    env = ShapeEnv()
    n = env.create_symint(4, "n")
    env.frozen = True
    with pytest.raises(RuntimeError, match="after the guards"):
        bool(n > 3)


def test_data_dependent_size_cannot_branch() -> None:
    env = ShapeEnv()
    u = env.create_unbacked("nonzero")
    assert u >= 0 and not env.guards
    with pytest.raises(RuntimeError, match="depends on data"):
        bool(u > 3)


def test_symint_is_unhashable() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(ShapeEnv().create_symint(4, "n"))


def test_functions_of_numbers_that_may_be_symbolic() -> None:
    assert [sym_int(3.7), sym_int(-3.7), sym_sum([1, 2, 3]), sym_ite(True, 1, 2), sym_not(True)] == [3, -3, 6, 1, False]
    for value, expected in ((sym_float(3), 3.0), (sym_max(3, 2.0), 3.0), (sym_min(2, 3.0), 2.0), (sym_sqrt(4), 2.0)):
        assert type(value) is float and value == expected
    n = ShapeEnv().create_symint(5, "x.shape[0]")
    assert sym_int(n) is n and isinstance(sym_sum([n, n, 1]), SymInt) and sym_sum([n, n, 1]) == 11
    for wrong in ((1, 2, 3), (True, 2, 3.0)):
        with pytest.raises(AssertionError, match="sym_ite"):
            sym_ite(*wrong)
