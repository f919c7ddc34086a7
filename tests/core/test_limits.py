"""`finfo`, `iinfo` and `Size`, beside torch's."""

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e8m0fnu")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
SIZES = [[1.5], "ab", [2, "a"], [2, None], 5, [2, True], [np.int64(3), 2], [], (1, 2), range(3)]


@pytest.mark.parametrize("name", FLOATS)
def test_limits_of_floats_read_as_torch_says(name):
    ours, theirs = fl.finfo(getattr(fl, name)), torch.finfo(getattr(torch, name))
    assert repr(ours) == repr(theirs)
    assert all(getattr(ours, k) == getattr(theirs, k) for k in ("bits", "eps", "max", "min", "resolution", "smallest_normal", "tiny"))


def test_limits_of_pairs_and_of_truths():
    assert repr(fl.finfo(fl.complex32)) == repr(torch.finfo(torch.complex32))
    for t in (torch, fl):
        with pytest.raises(TypeError, match=r"torch\.bool is not supported by torch\.iinfo"):
            t.iinfo(t.bool)


@pytest.mark.parametrize("kind, names", [("finfo", FLOATS), ("iinfo", INTEGERS)])
def test_limits_of_one_dtype_are_equal(kind, names):
    made = [[getattr(fl, kind)(getattr(fl, name)) for name in names] for _ in range(2)]
    assert made[0] == made[1]
    assert all(a != b for i, a in enumerate(made[0]) for b in made[1][:i])
    with pytest.raises(TypeError, match="unhashable"):
        hash(made[0][0])


@pytest.mark.parametrize("name", INTEGERS)
def test_limits_of_integers_read_as_torch_says(name):
    assert repr(fl.iinfo(getattr(fl, name))) == repr(torch.iinfo(getattr(torch, name)))


@pytest.mark.parametrize("args", [("cuda:0", 1), ("cuda", True), ("cpu", "a"), ("cuda", -1), ("cuda:01",), ("",), (None,), (1.5,), ("cuda", 1)],
                         ids=str)
def test_devices_that_are_none_are_refused_as_in_torch(args):
    def made(library):
        try:
            return repr(library.device(*args))
        except (TypeError, RuntimeError) as error:
            return type(error)

    assert made(fl) == made(torch)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes_are_whole_numbers(sizes):
    def made(library):
        try:
            return repr(library.Size(sizes))
        except TypeError:
            return TypeError

    assert made(fl) == made(torch)


def test_sizes_of_tensors_and_sums():
    assert list(map(type, fl.Size([fl.tensor(2), 3]))) == [int, int]
    assert type((1,) + fl.Size([2])) is fl.Size
    assert (1,) + fl.Size([2]) == (1, 2)
