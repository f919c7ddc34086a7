"""Creation operators against torch: values, dtypes, strides and refusals; exchange with NumPy and DLPack."""

from __future__ import annotations

from collections import UserList, deque

import numpy as np
import pytest

import flambeau as fl

CASES = {
    "tensor of floats": lambda t: t.tensor([1, 2.0]),
    "tensor of bools and ints": lambda t: t.tensor([True, 2]),
    "tensor nested": lambda t: t.tensor([[1, 2], [3, 4]], dtype=t.float16),
    "tensor complex": lambda t: t.tensor(1j),
    "tensor of numpy numbers": lambda t: t.tensor([np.float64(1), np.float64(2)]),
    "tensor of a numpy number": lambda t: t.tensor(np.int32(3)),
    "tensor of arrays": lambda t: t.tensor(np.array([np.arange(3), np.arange(3)])),
    "tensor of tensors": lambda t: t.tensor([t.tensor(1.5), 2]),
    "tensor empty": lambda t: t.tensor([[], []]),
    "tensor range": lambda t: t.tensor(range(4)),
    "tensor of a deque": lambda t: t.tensor(deque([1, 2])),
    "tensor of a deque of ranges": lambda t: t.tensor(deque([range(2), range(2)])),
    "tensor of a sequence of the user's": lambda t: t.tensor(UserList([1, 2.5])),
    "LongTensor of a range": lambda t: t.LongTensor(range(3)),
    "FloatTensor of a deque": lambda t: t.FloatTensor(deque([1, 2])),
    "Tensor of a range": lambda t: t.Tensor(range(3)),
    "new of a range": lambda t: t.zeros(2).new(range(3)),
    "tensor truncates": lambda t: t.tensor([1.5, -1.5], dtype=t.int64),
    "tensor as bool": lambda t: t.tensor([0, 2], dtype=t.bool),
    "tensor requires grad": lambda t: t.tensor(3.5, requires_grad=True) * 2,
    "zeros": lambda t: t.zeros(2, 3),
    "zeros of a tuple": lambda t: t.zeros((2, 3), dtype=t.bool),
    "ones keyword": lambda t: t.ones(size=(2,)),
    "full bool": lambda t: t.full((2,), True),
    "full int": lambda t: t.full((2,), 3),
    "full complex": lambda t: t.full((2,), 1j),
    "full cast": lambda t: t.full((2,), 1.5, dtype=t.int64),
    "arange": lambda t: t.arange(5),
    "arange float": lambda t: t.arange(0, 1, 0.1),
    "arange down": lambda t: t.arange(10, 0, -3),
    "arange half": lambda t: t.arange(2, 5, dtype=t.float16),
    "linspace": lambda t: t.linspace(-1, 3, 7),
    "linspace one": lambda t: t.linspace(2, 3, 1),
    "linspace integers": lambda t: t.linspace(0, 10, 4, dtype=t.int64),
    "logspace": lambda t: t.logspace(0, 3, 4, base=2),
    **{f"the power {start} in {kind}": lambda t, start=start, kind=kind: t.logspace(start, 2.0, 1, dtype=getattr(t, kind))
       for start in (-1.5, 1, -3.0) for kind in ("uint8", "int64", "float32", "bool")},
    "eye": lambda t: t.eye(2, 3, dtype=t.int32),
    "zeros_like transposed": lambda t: t.zeros_like(t.ones(2, 3).t()),
    "ones_like": lambda t: t.ones_like(t.ones(2, 3), dtype=t.float64),
    "full_like": lambda t: t.full_like(t.ones(2, 3), 2),
    "full_like channels last": lambda t: t.full_like(t.ones(2, 3, 4, 5).to(memory_format=t.channels_last), 1),
    "new_zeros": lambda t: t.ones(2, dtype=t.int16).new_zeros(3, 1),
    "new_full": lambda t: t.ones(2).new_full((2, 2), 3),
    "new_tensor": lambda t: t.ones(2).new_tensor([1, 2]),
    "new_ones": lambda t: t.ones(2).new_ones((1, 2), dtype=t.int8),
    "tril": lambda t: t.arange(12.0).reshape(3, 4).tril(),
    "triu": lambda t: t.arange(24).reshape(2, 3, 4).triu(1),
    "tril of bools": lambda t: t.ones(3, 3, dtype=t.bool).tril(-1),
    "tril_indices": lambda t: t.tril_indices(3, 4, 1),
    "triu_indices": lambda t: t.triu_indices(3, 4, -1),
    "diag": lambda t: t.diag(t.arange(3.0), -1),
    "diag of a matrix": lambda t: t.arange(12.0).reshape(3, 4).diag(1),
    "diag_embed": lambda t: t.diag_embed(t.arange(6.0).reshape(2, 3), 1),
    "diagflat": lambda t: t.diagflat(t.arange(4.0).reshape(2, 2)),
    "meshgrid": lambda t: t.meshgrid(t.arange(3), t.arange(2), indexing="ij"),
    "meshgrid xy": lambda t: t.meshgrid(t.arange(3), t.arange(2), indexing="xy"),
    "block_diag": lambda t: t.block_diag(t.ones(2, 2), t.ones(1, 3)),
    "polar": lambda t: t.polar(t.tensor([1.0, 2]), t.tensor([0.0, 3.0])),
    "scalar_tensor": lambda t: t.scalar_tensor(3),
    "Tensor of a list": lambda t: t.Tensor([[1, 2], [3, 4]]),
    "LongTensor": lambda t: t.LongTensor([1, 2]),
    "as_tensor": lambda t: t.as_tensor([1.0, 2]),
    "asarray": lambda t: t.asarray(np.arange(3.0)),
    "frombuffer": lambda t: t.frombuffer(bytearray(b"abcdefgh"), dtype=t.int16, offset=2, count=2),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(agrees, name):
    agrees(CASES[name])


@pytest.mark.parametrize("name", ["zeros_like transposed", "full_like channels last"])
def test_strides_are_kept(name):
    torch = pytest.importorskip("torch")
    assert CASES[name](fl).stride() == CASES[name](torch).stride()


@pytest.mark.parametrize("fn", [lambda t, x: x.tril(1), lambda t, x: x.triu(), lambda t, x: x.diag(), lambda t, x: x.diag_embed(1),
                                lambda t, x: t.block_diag(x, x * 2), lambda t, x: t.diag_embed(x, 0, 0, 2)])
def test_gradients(agrees, fn):
    agrees(fn, np.arange(12.0).reshape(3, 4))


REFUSED = {
    "ragged": lambda t: t.tensor([[1, 2], [3]]),
    "ragged with a number": lambda t: t.tensor([[1, 2], 3]),
    "text": lambda t: t.tensor("a"),
    "text inside": lambda t: t.tensor([1, "a"]),
    "None": lambda t: t.tensor(None),
    "too large": lambda t: t.tensor([2**63]),
    "does not fit": lambda t: t.tensor([300], dtype=t.uint8),
    "complex as real": lambda t: t.tensor([1j], dtype=t.float32),
    "vectors among numbers": lambda t: t.tensor([t.ones(2), t.ones(2)]),
    "negative size": lambda t: t.zeros(-1),
    "size of a float": lambda t: t.zeros(2.5),
    "size of a text": lambda t: t.zeros("a"),
    "integers that require grad": lambda t: t.zeros(2, requires_grad=True, dtype=t.int64),
    "full overflow": lambda t: t.full((2,), 300, dtype=t.uint8),
    "arange without step": lambda t: t.arange(0, 10, 0),
    "arange backwards": lambda t: t.arange(5, 1),
    "arange of bools": lambda t: t.arange(1, 3, dtype=t.bool),
    "eye": lambda t: t.eye(-1),
    "from_numpy of a list": lambda t: t.from_numpy([1]),
    "from_numpy of text": lambda t: t.from_numpy(np.array(["a"])),
    "from_numpy reversed": lambda t: t.from_numpy(np.zeros(3)[::-1]),
    "from_numpy big endian": lambda t: t.from_numpy(np.zeros(3, ">f4")),
    "frombuffer empty": lambda t: t.frombuffer(b"", dtype=t.float32),
    "dlpack of a leaf with grad": lambda t: t.ones(3, requires_grad=True).__dlpack__(),
    "numpy of a leaf with grad": lambda t: t.ones(3, requires_grad=True).numpy(),
    "Tensor of a float": lambda t: t.Tensor(2.5),
    "tril of a vector": lambda t: t.ones(3).tril(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_torch_refuses(both_refuse, name):
    both_refuse(REFUSED[name])


def test_from_numpy_shares_memory():
    array = np.zeros((3, 4), np.float32)
    x = fl.from_numpy(array[:, ::2])
    x[1] = 5
    assert array[1].tolist() == [5, 0, 5, 0]
    array[0, 0] = 7
    assert x[0, 0].item() == 7
    assert x.numpy().base is not None
    x.numpy()[2, 1] = 3
    assert array[2, 2] == 3


def test_as_tensor_shares_and_tensor_copies():
    array = np.zeros(3)
    shared, copied = fl.as_tensor(array), fl.tensor(array)
    array[0] = 1
    assert shared[0] == 1
    assert copied[0] == 0


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_read_only_memory_is_not_written():
    array = np.zeros(3)
    array.flags.writeable = False
    x = fl.from_numpy(array)
    with pytest.raises(RuntimeError, match="read-only"):
        x.add_(1)


def test_dlpack_round_trip_without_copy():
    array = np.arange(4.0)
    x = fl.from_dlpack(array)
    x[0] = 9
    assert array[0] == 9
    assert np.shares_memory(np.from_dlpack(x), array)
    assert x.__dlpack_device__() == (1, 0)


def test_dlpack_with_torch():
    torch = pytest.importorskip("torch")

    class Overriding(fl.Tensor):  # operators now look for classes that override; torch's own tensors look like such
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise AssertionError("no argument is of this class")

    theirs = torch.arange(6).reshape(2, 3).t()
    mine = fl.from_dlpack(theirs)
    mine[0, 0] = 50
    assert theirs[0, 0] == 50
    assert mine.stride() == theirs.stride()
    back = torch.from_dlpack(mine)
    back[1, 1] = 60
    assert mine[1, 1].item() == 60


def test_numpy_functions_take_tensors():
    x = fl.tensor([0.0, 1.0])
    assert isinstance(np.exp(x), fl.Tensor)
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert np.array(x, copy=True).tolist() == [0.0, 1.0]


def test_default_dtype():
    try:
        fl.set_default_dtype(fl.float64)
        assert fl.tensor([1.0]).dtype is fl.float64
        assert fl.zeros(1).dtype is fl.float64
        assert fl.arange(0, 1, 0.5).dtype is fl.float64
        assert fl.Tensor([1]).dtype is fl.float64
    finally:
        fl.set_default_dtype(fl.float32)
    with pytest.raises(TypeError, match="floating-point"):
        fl.set_default_dtype(fl.int64)


def test_copying_a_tensor_warns():
    with pytest.warns(UserWarning, match="clone"):
        fl.tensor(fl.ones(2))


def test_factories_under_fake_mode():
    from flambeau.core import dispatch  # the mode is internal: nothing public makes fakes alone
    with dispatch.fake_mode():
        x = fl.zeros(2, 3)
        assert x.is_fake
        assert fl.arange(4).shape == (4,)
    assert x.new_ones(5).is_fake
    assert fl.zeros_like(x).is_fake


def test_meta_tensors():
    x = fl.empty(2, 3, device="meta", dtype=fl.float64)
    assert x.is_meta
    assert (x @ x.t()).shape == (2, 2)
    assert fl.zeros_like(x).device.type == "meta"


def test_typed_constructors_and_isinstance():
    assert isinstance(fl.ones(2), fl.FloatTensor)
    assert not isinstance(fl.ones(2), fl.LongTensor)
    assert fl.FloatTensor(2, 3).shape == (2, 3)
    assert fl.Tensor(2, 3).shape == (2, 3)
    assert fl.Tensor().shape == (0,)


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_range(agrees, both_refuse):
    for args in ((1, 4), (1, 4, 0.5), (3, 1, -1), (1, 4.2)):
        agrees(lambda t, args=args: t.range(*args))
    agrees(lambda t: t.range(0, 3, dtype=t.int64))
    both_refuse(lambda t: t.range(3))
    both_refuse(lambda t: t.range(3, 1))
    both_refuse(lambda t: t.range(1, 4, 0))
    with pytest.warns(UserWarning, match="use torch.arange"):
        fl.range(0, 1)


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_default_tensor_type():
    try:
        fl.set_default_tensor_type("torch.DoubleTensor")
        assert fl.zeros(1).dtype is fl.float64
    finally:
        fl.set_default_tensor_type(fl.FloatTensor)
    assert fl.zeros(1).dtype is fl.float32
    for wrong in (fl.IntTensor, fl.float64, "torch.IntTensor", "a.b"):
        with pytest.raises(TypeError, match="only floating-point types"):
            fl.set_default_tensor_type(wrong)


def test_denormals_stay():
    assert fl.set_flush_denormal(True) is False
    assert fl.tensor(1e-320, dtype=fl.float64).item() != 0


@pytest.mark.parametrize("offset", [0, 2, -3])
def test_large_diagonals_and_their_gradients(agrees, offset):
    x = np.random.default_rng(0).standard_normal((3, 200))
    x[0, :2] = np.inf, -np.inf
    agrees(lambda t, x: (t.diag_embed(x, offset), t.diag_embed(x, offset, 0, 2), t.diag_embed(x, offset, 2, 0), t.diag(x[0], offset)), x)
    agrees(lambda t, x: t.diagonal(x.mT @ x, offset) ** 2, np.random.default_rng(0).standard_normal((5, 200)), tolerance=1e-10)


def test_large_one_hot(agrees):
    agrees(lambda t, i: t.nn.functional.one_hot(i, 40), np.random.default_rng(0).integers(0, 40, (30, 50)), grad=False)


@pytest.mark.parametrize("kind", [fl.float32, fl.float64, fl.float16, fl.bfloat16])
def test_negative_zeros_keep_their_sign(kind):
    assert fl.full((2, 3), -0.0, dtype=kind).signbit().all() and not fl.full((2, 3), 0.0, dtype=kind).signbit().any()
    for zero in (complex(0.0, -0.0), complex(-0.0, 0.0), complex(-0.0, -0.0)):
        made = fl.full((2,), zero)
        assert made.real.signbit().all() == (str(zero.real)[0] == "-") and made.imag.signbit().all() == (str(zero.imag)[0] == "-")
    for f in (lambda: -fl.zeros(2, dtype=kind), lambda: (fl.zeros(2, dtype=kind), fl.zeros(2, dtype=kind) * -1.0)[1]):
        assert fl.compile(f, backend="aot_eager")().signbit().all()


@pytest.mark.parametrize("write", [lambda x: x.add_(1), lambda x: x.copy_(x), lambda x: x.mul_(x), lambda x: x.fill_(2),
                                   lambda x: x.__setitem__(..., 1)])
@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (0, 0)])
def test_an_expanded_tensor_without_elements_can_be_written(write, shape):
    x = fl.ones(1, 1).expand(shape) if 0 in shape[:1] else fl.ones(1, 0).expand(shape)
    write(x)
    assert x.shape == shape


@pytest.mark.parametrize("given", ["ab", b"ab", {1: 2}, {1, 2}, None, 1.5, map(int, "12"), {1: 2}.values()],
                         ids=lambda given: type(given).__name__)
@pytest.mark.parametrize("make", [lambda t, data: t.LongTensor(data), lambda t, data: t.Tensor(data), lambda t, data: t.zeros(2).new(data)])
def test_constructors_of_old_refuse_what_is_neither_sizes_nor_a_sequence(make, given):
    oracle = pytest.importorskip("torch", reason="the exceptions are compared with torch's")
    with pytest.raises(TypeError) as theirs:
        make(oracle, given)
    with pytest.raises(TypeError) as mine:
        make(fl, given)
    assert str(mine.value) == str(theirs.value)


LARGE = [[2**64 - 1], [2**64 - 1, 1], [2**63, 1], [2**63, 1.5], [2**63, True], [2**63, -1], [-2**63, 2**63], [2**53 + 1, 0.5],
         [2**53 + 1, 1], [2**64, 1], [2**64, 1.5], [10**30, 1.5], [-2**63 - 1], [[2**63], [1]], [2**63 - 1, -2**63], [True, 2**63],
         [-1, 1], [1j, 2**53 + 1]]


@pytest.mark.parametrize("kind", [None, "int64", "uint64", "uint8", "float64", "float32", "bool", "complex128"])
@pytest.mark.parametrize("values", LARGE, ids=str)
def test_no_integer_loses_digits_on_its_way(values, kind):
    """Whatever stands beside it: NumPy makes floats of integers that no one dtype holds. torch takes no float for a uint64."""
    torch, found = pytest.importorskip("torch"), []
    for lib in (fl, torch):
        try:
            made = lib.tensor(values, dtype=kind and getattr(lib, kind))
            found.append((made.tolist(), str(made.dtype).rpartition(".")[2]))
        except (ValueError, OverflowError, RuntimeError, TypeError) as error:
            found.append(type(error))
    beyond_both = kind == "uint8" and values == [-2**63, 2**63]
    floats = kind == "uint64" and any(isinstance(v, float) for v in values)
    assert found[0] == found[1] or (beyond_both and found[0] is ValueError) or (floats and found[0][0] == [int(v) for v in values])


@pytest.mark.parametrize("values, kind", [
    ([300, -1], "uint8"), ([-1], "uint64"), ([1.5, -2.5], "int32"), ([True], "float16"), (300, "int8")])
def test_an_array_is_converted_as_a_tensor_is(values, kind):
    torch, array = pytest.importorskip("torch"), np.array(values)
    mine, theirs = (lib.tensor(array, dtype=getattr(lib, kind)) for lib in (fl, torch))
    assert mine.tolist() == theirs.tolist() == fl.tensor(array).to(getattr(fl, kind)).tolist()


def test_a_tensor_is_no_dtype():
    with pytest.raises(TypeError, match="type_as"):
        fl.ones(2).type(fl.ones(3, dtype=fl.int64))
