"""A seed gives torch's numbers on the CPU, to the last bit: every draw, dtype, size and layout, and the state afterwards."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="the numbers are compared with torch's")

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
SIZES = (0, 1, 7, 15, 16, 17, 31, 32, 33, 100, 1023, 1024, 1025, 1039, 5003)
FILLS = {
    "uniform_": ((), (-0.3, 0.7), (1.0, 1.0000003)), "normal_": ((), (0.3, 0.7)), "exponential_": ((), (0.7,)), "cauchy_": ((), (0.3, 0.7)),
    "log_normal_": ((), (0.3, 0.7)), "bernoulli_": ((), (0.3,), (0.0,), (1.0,)), "geometric_": ((0.3,),),
    "random_": ((), (77,), (3, 78)),
}
LAYOUTS = {
    "contiguous": lambda t, n, kind: t.zeros(n, dtype=kind),
    "every other": lambda t, n, kind: t.zeros(2 * n, dtype=kind)[::2],
    "transposed": lambda t, n, kind: t.zeros(3, n, dtype=kind).t(),
    "column": lambda t, n, kind: t.zeros(n, 3, dtype=kind)[:, 1],
    "channels last": lambda t, n, kind: t.zeros(2, 3, n, 2, dtype=kind).to(memory_format=t.channels_last),
    "matrix": lambda t, n, kind: t.zeros(n, 3, dtype=kind),
    "three transposed": lambda t, n, kind: t.zeros(2, n, 3, dtype=kind).permute(2, 0, 1),
}


def bits(x):
    """A tensor's elements as NumPy integers, whichever library it is of."""
    if x.is_complex():
        x = (torch if isinstance(x, torch.Tensor) else fl).view_as_real(x)
    x = x.detach()
    return (x.double() if x.is_floating_point() else x).numpy()


def same(draw, *, seed=5):
    """Both libraries draw the same, from a seed, and stand at the same place afterwards."""
    made = []
    for library in (fl, torch):
        library.manual_seed(seed)
        drawn = draw(library)
        after = library.empty(1, dtype=library.float64).normal_()   # what was kept of a pair counts too
        made.append((drawn, after, library.get_rng_state()))
    (mine, my_after, my_state), (theirs, their_after, their_state) = made
    assert str(mine.dtype) == str(theirs.dtype).replace("torch.", str(mine.dtype).split(".")[0] + ".")
    np.testing.assert_array_equal(bits(mine), bits(theirs))
    np.testing.assert_array_equal(bits(my_after), bits(their_after))
    np.testing.assert_array_equal(my_state.numpy(), their_state.numpy())


def spread(t, low, high, n, dtype="float32"):
    """Numbers that are the same in both libraries."""
    return t.from_numpy(np.linspace(low, high, n).astype(dtype))


def dtypes_of(name):
    return {"bernoulli_": (*FLOATS, *INTEGERS, "bool"), "random_": (*FLOATS, *INTEGERS, "bool"), "geometric_": (*FLOATS, *INTEGERS),
            "uniform_": FLOATS, "normal_": (*FLOATS, "complex64", "complex128")}.get(name, FLOATS)


@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS, "bool", "complex64", "complex128"))
@pytest.mark.parametrize("name", FILLS)
def test_fills(name, dtype):
    if dtype not in dtypes_of(name):
        pytest.skip("torch has no such draw")
    for args in FILLS[name]:
        if dtype == "bool" and args and name == "random_":
            continue
        for n in SIZES:
            same(lambda t: getattr(t.zeros(n, dtype=getattr(t, dtype)), name)(*args))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FILLS)
def test_fills_of_any_layout(name, layout):
    for dtype in dtypes_of(name):
        if dtype == "bool" and name == "random_":
            continue
        for n in (1, 7, 16, 33):
            same(lambda t: getattr(LAYOUTS[layout](t, n, getattr(t, dtype)), name)(*FILLS[name][-1]))


@pytest.mark.parametrize("name", [*FILLS, "rand", "randn", "randint", "randperm", "dropout"])
def test_large_draws(name):
    draws = {"rand": lambda t: t.rand(300, 1001), "randn": lambda t: t.randn(300, 1001), "randperm": lambda t: t.randperm(100_003),
             "randint": lambda t: t.randint(-7, 1000, (300, 1001)), "dropout": lambda t: t.nn.functional.dropout(t.ones(300, 1001), 0.3)}
    same(draws.get(name, lambda t: getattr(t.zeros(300, 1001), name)(*FILLS[name][-1])))


@pytest.mark.parametrize("dtype", (*FLOATS, "complex64", "complex128"))
@pytest.mark.parametrize("n", SIZES)
def test_factories(n, dtype):
    same(lambda t: t.rand(n, dtype=getattr(t, dtype)))
    same(lambda t: t.randn(n, dtype=getattr(t, dtype)))
    if dtype in FLOATS:
        same(lambda t: t.rand(2, n, dtype=getattr(t, dtype), generator=t.Generator().manual_seed(8)))
        same(lambda t: t.normal(0.3, 0.7, (n,), dtype=getattr(t, dtype)))


def test_factories_of_no_dimension():
    for draw in ("rand", "randn"):
        same(lambda t: getattr(t, draw)(()))
    same(lambda t: t.randint(0, 10, ()))


BOUNDS = [(0, 2), (0, 100), (-5, 100), (0, 2**28 - 1), (0, 2**28), (0, 2**31), (-(2**31), 2**31 - 1), (0, 2**32), (-(2**40), 2**41),
          (-(2**63), 2**63 - 1), (0, 2**63 - 1), (3, 4)]


@pytest.mark.parametrize("bounds", BOUNDS)
def test_integers(bounds):
    low, high = bounds
    for n in (1, 33, 1500):
        same(lambda t: t.randint(low, high, (n,)))
        same(lambda t: t.zeros(n, dtype=t.int64).random_(low, high))
    for dtype in INTEGERS:
        limits = torch.iinfo(getattr(torch, dtype))
        if limits.min <= low and high - 1 <= limits.max:
            same(lambda t: t.randint(low, high, (33,), dtype=getattr(t, dtype)))


@pytest.mark.filterwarnings("ignore:to - 1 is out of bounds", "ignore:from is out of bounds")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bounds", [(0, 10), (-300, 300), (0, 1000), (-5000, 5001), (0, 2**14), (-(2**20) - 3, 2**20 + 5), (0, 2**26 + 1),
                                    (0, 2**30), (-(2**30) - 7, 2**31)])
def test_integers_that_a_float_may_not_hold(bounds, dtype):
    if dtype == "float16" and max(map(abs, bounds)) > 60000:
        pytest.skip("beyond float16's range")
    same(lambda t: t.zeros(40, dtype=getattr(t, dtype)).random_(*bounds))


def test_all_integers():
    same(lambda t: t.zeros(40, dtype=t.int64).random_(-(2**63), None))
    same(lambda t: t.zeros(40, dtype=t.int32).random_(-(2**31), None))
    same(lambda t: t.zeros(40, dtype=t.int32).random_(5, None))
    same(lambda t: t.zeros(40, dtype=t.uint8).random_(5, None))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 623, 624, 625, 3000])
def test_permutations(n):
    same(lambda t: t.randperm(n))
    same(lambda t: t.randperm(n, dtype=t.int32))
    same(lambda t: t.randperm(n, generator=t.Generator().manual_seed(8)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(7,), (4, 5), (33,)])
def test_like(shape, dtype):
    for make in (lambda t: t.zeros(shape, dtype=getattr(t, dtype)), lambda t: t.zeros(*shape, 2, dtype=getattr(t, dtype)).transpose(0, -1)):
        same(lambda t: t.rand_like(make(t)))
        same(lambda t: t.randn_like(make(t)))
        same(lambda t: t.randint_like(make(t), 3, 70))
        same(lambda t: t.rand_like(make(t), dtype=t.float64))
        same(lambda t: make(t).new_empty(shape).normal_())


@pytest.mark.parametrize("kind", ["out", "strided out"])
def test_given_results(kind):
    def out(t, *shape, **options):
        return t.empty(*shape, **options) if kind == "out" else t.empty(*shape[::-1], **options).t()

    same(lambda t: t.rand(5, 7, out=out(t, 5, 7)))
    same(lambda t: t.randn(5, 7, out=out(t, 5, 7)))
    same(lambda t: t.randint(3, 90, (5, 7), out=out(t, 5, 7, dtype=t.int64)))
    same(lambda t: t.normal(0.2, 3.0, (5, 7), out=out(t, 5, 7)))
    same(lambda t: t.randperm(9, out=t.empty(9, dtype=t.int64)))


def chances(t, dtype, *shape):
    return spread(t, 0.05, 0.95, math.prod(shape), "float64").reshape(shape).to(getattr(t, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_draws_by_a_tensor_of_chances(dtype):
    for shape in ((1,), (7, 3), (40, 5)):
        same(lambda t: t.bernoulli(chances(t, dtype, *shape)))
        same(lambda t: t.bernoulli(chances(t, dtype, *shape).t() if len(shape) == 2 else chances(t, dtype, *shape)))
        same(lambda t: t.bernoulli(t.zeros(shape, dtype=getattr(t, dtype)), 0.3))
        for made in ("float32", "float64", "bool", "int64"):
            same(lambda t: t.zeros(shape, dtype=getattr(t, made)).bernoulli_(chances(t, dtype, *shape)))
    same(lambda t: t.zeros(3, 7).t().bernoulli_(chances(t, dtype, 7, 3)))
    same(lambda t: t.zeros(7, 3).bernoulli_(chances(t, dtype, 3)))


def test_normals_by_tensors():
    mean, std = (lambda t, n: spread(t, -1, 1, n)), (lambda t, n: spread(t, 0.1, 3, n))
    for n in (5, 20, 100):
        same(lambda t: t.normal(mean(t, n), std(t, n)))
        same(lambda t: t.normal(mean(t, n), 0.7))
        same(lambda t: t.normal(0.3, std(t, n)))
        same(lambda t: t.normal(mean(t, n).reshape(-1, 1), std(t, n)))


def test_tensors_without_dimensions_are_numbers_where_a_size_is_given():
    for mean, std in ((0.5, 2.0), (2, 1)):
        same(lambda t: t.normal(t.tensor(mean), t.tensor(std), (3, 7)))
        same(lambda t: t.normal(mean, t.tensor(float(std)), size=(20,), dtype=t.float64, device="cpu"))
        same(lambda t: t.normal(t.tensor(mean), std, (5,), requires_grad=True).detach())
        same(lambda t: t.empty(20).normal_(t.tensor(mean), t.tensor(std)))
    same(lambda t: t.randint(t.tensor(9), (4,)))
    same(lambda t: t.randint(t.tensor(1), t.tensor(9), (4, 3)))
    for t in (torch, fl):
        for mean in (t.ones(2), t.tensor([2.0]), t.tensor(1.0, requires_grad=True)):
            with pytest.raises(TypeError):
                t.normal(mean, 1.0, (2, 2))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("categories", [2, 7, 1000])
def test_multinomial(categories, dtype):
    def weights(t, *rows):
        w = chances(t, dtype, *rows, categories).clone()
        w[..., 1] = 0
        return w

    for n in (1, 2):
        for replacement in (False, True):
            same(lambda t: t.multinomial(weights(t), min(n, categories - 1), replacement))
            same(lambda t: t.multinomial(weights(t, 4), min(n, categories - 1), replacement))
    same(lambda t: t.multinomial(weights(t), 3000, True))
    same(lambda t: t.multinomial(weights(t, 3), 300, True))
    same(lambda t: t.multinomial(weights(t), 30, True, generator=t.Generator().manual_seed(1)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_counts_and_gamma(dtype):
    for scale in (0.1, 3, 40, 3000):
        p = lambda t: chances(t, dtype, 50, 4)
        same(lambda t: t.poisson(p(t) * scale))
        same(lambda t: t.poisson((p(t) * scale).t()))
        same(lambda t: t._standard_gamma(p(t) * scale))
        same(lambda t: t.binomial((p(t) * scale).ceil(), p(t)))


@pytest.mark.parametrize("p", [0.1, 0.5, 1 / 3])
def test_dropout(p):
    F = ("dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d")
    for name in F:
        shape = (4, 5) + (6,) * (int(name[7]) if name[-1] == "d" else 1)
        same(lambda t: getattr(t.nn.functional, name)(spread(t, -1, 1, math.prod(shape)).reshape(shape), p, training=True))
    same(lambda t: t.nn.functional.dropout(t.ones(6, 50).t(), p))
    same(lambda t: t.nn.functional.dropout(t.ones(600)[::2], p))
    same(lambda t: t.nn.Dropout(p)(t.ones(7, 9, dtype=t.float64)))
    same(lambda t: t.nn.functional.dropout(t.ones(600, dtype=t.bfloat16), p))


def test_random_activations():
    same(lambda t: t.nn.functional.rrelu(spread(t, -1, 1, 99), 0.1, 0.3, True))
    same(lambda t: t.nn.functional.rrelu(spread(t, -1, 1, 100, "float64").reshape(10, 10).t(), 0.1, 0.3, True))
    same(lambda t: t.nn.functional.gumbel_softmax(spread(t, -1, 1, 100).reshape(10, 10), hard=True))


INITS = {
    "uniform_": (), "normal_": (1.0, 2.0), "trunc_normal_": (), "xavier_uniform_": (), "xavier_normal_": (2.0,),
    "kaiming_uniform_": (5**0.5,), "kaiming_normal_": (), "sparse_": (0.3,),
}


@pytest.mark.parametrize("name", INITS)
def test_inits(name):
    same(lambda t: getattr(t.nn.init, name)(t.empty(20, 30), *INITS[name]))
    same(lambda t: getattr(t.nn.init, name)(t.empty(3, 4), *INITS[name]))


@pytest.mark.filterwarnings("ignore:mean is more than 2 std")
@pytest.mark.parametrize("bounds", [(0.0, 1.0, -2.0, 2.0), (0.0, 0.02, -2.0, 2.0), (0.3, 2.0, -1.0, 1.0), (0.0, 1.0, -0.3, 0.3),
                                    (0.0, 1.0, 3.0, 4.0), (0.3, 2.0, -3.0, -2.0)])
def test_truncated_normals(bounds):
    for n in (5, 500):
        for dtype in ("float32", "float64"):
            same(lambda t: t.nn.init.trunc_normal_(t.empty(n, dtype=getattr(t, dtype)), *bounds))


def test_orthogonal_weights_are_close():
    """Their QR is the library's own."""
    for shape in ((5, 5), (3, 8), (8, 3)):
        made = []
        for t in (fl, torch):
            t.manual_seed(1)
            made.append(t.nn.init.orthogonal_(t.empty(shape)).numpy())
        np.testing.assert_allclose(*made, atol=1e-5)


MODULES = {
    "Linear": lambda nn: nn.Linear(7, 9), "Conv2d": lambda nn: nn.Conv2d(3, 5, 3),
    "ConvTranspose1d": lambda nn: nn.ConvTranspose1d(3, 5, 3),
    "Embedding": lambda nn: nn.Embedding(11, 6, padding_idx=2), "LSTM": lambda nn: nn.LSTM(5, 6, 2), "GRU": lambda nn: nn.GRU(5, 6),
    "RNN": lambda nn: nn.RNN(5, 6), "Bilinear": lambda nn: nn.Bilinear(3, 4, 5), "EmbeddingBag": lambda nn: nn.EmbeddingBag(11, 6),
    "MultiheadAttention": lambda nn: nn.MultiheadAttention(8, 2), "GRUCell": lambda nn: nn.GRUCell(3, 4),
    "TransformerEncoderLayer": lambda nn: nn.TransformerEncoderLayer(8, 2, 16), "Transformer": lambda nn: nn.Transformer(8, 2, 1, 1, 16),
}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("name", MODULES)
def test_weights_of_modules(name):
    same(lambda t: t.nn.utils.parameters_to_vector(MODULES[name](t.nn).parameters()))


# -- generators -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", [0, 1, -1, 2**32 - 1, 2**40 + 7, 2**63, 2**64 - 1])
def test_seeds(seed):
    same(lambda t: t.rand(5), seed=seed)
    same(lambda t: t.Generator().manual_seed(seed).get_state())
    assert fl.initial_seed() == torch.initial_seed()


def test_a_new_generator_begins_where_torchs_does():
    same(lambda t: t.rand(5, generator=t.Generator()))
    assert fl.Generator().initial_seed() == torch.Generator().initial_seed()


@pytest.mark.parametrize("before", [lambda t: None, lambda t: t.randn(1), lambda t: t.rand(624), lambda t: t.rand(700),
                                    lambda t: t.randn(3)])
def test_states_go_both_ways(before):
    fl.manual_seed(3)
    torch.manual_seed(4)
    before(fl)
    torch.set_rng_state(torch.from_numpy(fl.get_rng_state().numpy()))
    assert fl.randn(5).tolist() == torch.randn(5).tolist()
    torch.manual_seed(9)
    before(torch)
    fl.set_rng_state(fl.from_numpy(torch.get_rng_state().numpy()))
    assert fl.randn(5).tolist() == torch.randn(5).tolist()
    generator = pickle.loads(pickle.dumps(fl.default_generator))
    assert fl.randn(5, generator=generator).tolist() == torch.randn(5).tolist()


def test_bad_states_are_refused():
    for t in (fl, torch):
        with pytest.raises(RuntimeError):
            t.set_rng_state(t.zeros(100, dtype=t.uint8))
        with pytest.raises(TypeError):
            t.set_rng_state(t.zeros(5056))
        state = t.get_rng_state().clone()
        state[8:12] = 200
        with pytest.raises(RuntimeError):
            t.set_rng_state(state)


def test_states_of_earlier_versions_can_be_set():
    old = fl.tensor([1, 2, 3, 4, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0], dtype=fl.uint8)
    fl.set_rng_state(old)
    first = fl.rand(3)
    fl.set_rng_state(old)
    assert first.tolist() == fl.rand(3).tolist()


# -- data ------------------------------------------------------------------------------------------------------------------
def test_orders_of_data():
    def data(t):
        return t.utils.data

    def each(t, sampler):
        return t.tensor(list(sampler))

    same(lambda t: each(t, data(t).RandomSampler(range(50))))
    same(lambda t: each(t, data(t).RandomSampler(range(50), num_samples=70)))
    same(lambda t: each(t, data(t).RandomSampler(range(50), True, 70)))
    same(lambda t: each(t, data(t).RandomSampler(range(50), generator=t.Generator().manual_seed(2))))
    same(lambda t: each(t, data(t).SubsetRandomSampler(list(range(0, 90, 3)))))
    same(lambda t: each(t, data(t).WeightedRandomSampler([0.1, 2.0, 0.4, 1.0], 60)))
    same(lambda t: each(t, data(t).WeightedRandomSampler([0.1, 2.0, 0.4, 1.0], 3, False)))
    same(lambda t: t.tensor([i for part in data(t).random_split(range(50), [20, 30]) for i in part.indices]))
    same(lambda t: t.cat(list(data(t).DataLoader(t.arange(50), 8, shuffle=True)) + list(data(t).DataLoader(t.arange(50), 8, shuffle=True))))


def draw_everything(t, i):
    import random
    return t.tensor([t.initial_seed() % 2**31, t.utils.data.get_worker_info().seed % 2**31, int(np.random.randint(2**31)),   # noqa: NPY002
                     random.getrandbits(31), int(t.randint(0, 2**31, ()))])


class Drawing:
    def __init__(self, t):
        self.t = t.__name__

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return draw_everything(fl if self.t == "flambeau" else torch, i)


def test_workers_draw_what_torchs_draw():
    same(lambda t: t.cat(list(t.utils.data.DataLoader(Drawing(t), 2, num_workers=2))))
