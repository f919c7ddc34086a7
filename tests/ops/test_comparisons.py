"""Comparisons with Python numbers: beside a narrow float a number is what its dtype holds of it, however it is compared."""

import math

import pytest

import flambeau
from flambeau.func import vmap

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
NARROW = ("float16", "bfloat16")
NUMBERS = (0.1, 0.3, 1 / 3, 1.001, 70000.0, 1e30, -1e30, 1e300, 1e-9, 2**40, math.inf, math.nan, 0.5, 3)


def among(number, kind, size):
    """Elements around a number, infinities and NaN; and the number as an element."""
    wide = flambeau.tensor([float(number), 0.1, 0.25, 1.0, -1.0, 65504.0, math.inf, -math.inf, math.nan])
    x = wide.to(kind).repeat(size)
    return x, x[0].clone()


@pytest.mark.parametrize("kind", NARROW)
@pytest.mark.parametrize("name", COMPARISONS)
def test_a_number_is_compared_as_an_element(kind, name):
    kind = getattr(flambeau, kind)
    for number in NUMBERS:
        for size in (1, 30):
            x, element = among(number, kind, size)
            compare = getattr(flambeau, name)
            right = compare(x, element.reshape(1)).tolist()
            assert compare(x, number).tolist() == right, number
            assert getattr(x, f"__{name}__")(number).tolist() == right
            assert getattr(x[::2], name)(number).tolist() == right[::2]
            assert getattr(x.clone(), name + "_")(number).tolist() == [float(r) for r in right]
            assert compare(x.clone().requires_grad_(), number).tolist() == right
    x, element = among(0.3, kind, 1)
    assert vmap(lambda row: getattr(row, name)(0.3))(x).tolist() == getattr(x, name)(element).tolist()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", NARROW)
def test_compiled(kind, dynamic):
    kind = getattr(flambeau, kind)

    def all_of(x, number):
        return [getattr(x, name)(number) for name in COMPARISONS]

    call = flambeau.compile(all_of, dynamic=dynamic)
    for number in (0.1, 0.3, 1e30):
        x, element = among(number, kind, 2)
        assert [c.tolist() for c in call(x, number)] == [c.tolist() for c in all_of(x, element)]


@pytest.mark.parametrize("kind", NARROW)
def test_what_compares_inside(kind):
    x = flambeau.tensor([0.1, 0.3, -0.3, 1.0]).to(getattr(flambeau, kind))
    assert flambeau.isin(x, 0.3).tolist() == [False, True, False, False]
    assert (flambeau.nn.functional.hardshrink(x, 0.3) != 0).tolist() == [False, False, False, True]


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int64", "bool"])
def test_as_torch(kind):
    torch = pytest.importorskip("torch", reason="the oracle is not installed")
    for number in NUMBERS:
        floats = "float" in kind
        values = [float(min(number, 1e38)), 0.1, math.inf, math.nan] if floats else [0.1, 0.3, 1.0, 0.0, 100.0]
        mine, other = (lib.tensor(values).to(getattr(lib, kind)) for lib in (flambeau, torch))
        for name in COMPARISONS:
            try:
                expected = getattr(other, name)(number)
            except (RuntimeError, OverflowError):
                continue
            assert getattr(mine, name)(number).tolist() == expected.tolist(), (name, number)
