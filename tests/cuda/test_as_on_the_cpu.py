"""Small programs whose meaning hung on the device: dtypes, shapes, views and refusals are the CPU's."""

from __future__ import annotations

import pytest

import flambeau as fl

F = fl.nn.functional
NAN, INF = float("nan"), float("inf")


def _put(x, index, value):
    x[index] = value
    return x


PROGRAMS = {
    "a value is converted where a number selects": lambda d: _put(fl.tensor([[3], [4]], device=d), fl.tensor(-1, device=d),
                                                                  fl.tensor([2.7], device=d)),
    "truth values too": lambda d: _put(fl.tensor([[[3]]], device=d), fl.tensor(-1, device=d), fl.tensor([[True]], device=d)),
    "among slices": lambda d: _put(fl.zeros(2, 3, 4, device=d, dtype=fl.int64), (slice(None), fl.tensor(1, device=d), slice(1, 3)), 2.5),
    "what it selects is a view": lambda d: (x := fl.zeros(3, device=d), x[fl.tensor(1, device=d)].add_(1))[0],
    "parts of numbers": lambda d: fl.tensor(1 + 2j, device=d).imag + fl.tensor(1 + 2j, device=d).real,
    "isnan of a number": lambda d: fl.isnan(fl.tensor([complex(NAN, 1)], device=d)[0]),
    "nan_to_num_ of a number": lambda d: fl.tensor(complex(NAN, 1), device=d).nan_to_num_(),
    "rows of argwhere": lambda d: fl.tensor([[1.0, 0.0, 2.0]], device=d).argwhere(),
    "a pool of nothing": lambda d: F.adaptive_max_pool2d(fl.zeros(0, 1, 4, 4, device=d), 3),
    "a pool of nothing to one": lambda d: F.adaptive_max_pool2d(fl.zeros(0, 1, 4, 4, device=d), 1),
    "nothing taken out of a pool": lambda d: F.max_unpool2d(fl.zeros(0, 1, 2, 2, device=d), fl.zeros(0, 1, 2, 2, device=d).long(), 2),
    "the last NaN of a pool": lambda d: F.adaptive_max_pool1d(fl.tensor([[1, NAN, 0, NAN, 2]], device=d), 1, return_indices=True)[1],
    "of a part": lambda d: F.adaptive_max_pool1d(fl.tensor([[1, NAN, 0, NAN, 2]], device=d), 2, return_indices=True)[1],
    "many taps to one": lambda d: F.adaptive_max_pool3d(fl.arange(288.0, device=d).sin().reshape(1, 2, 4, 6, 6), 1, return_indices=True)[1],
    "many taps": lambda d: F.max_pool2d(fl.arange(800.0, device=d).sin().reshape(1, 2, 20, 20), 10, return_indices=True)[1],
    "a singular triangle": lambda d: fl.linalg.solve_triangular(fl.zeros(1, 1, 1, device=d), fl.ones(1, 1, 1, device=d), upper=True),
    "scaled Bessel functions far out": lambda d: (1e4 * fl.stack([f(fl.tensor([-104.0, 1e30, -1e30, 0, NAN, INF], device=d))
                                                                 for f in (fl.special.i0e, fl.special.i1e)])).round(),
    "shifts of what does not lie in rows": lambda d: (
        fl.arange(8, device=d).reshape(1, 2, 2, 2).to(memory_format=fl.channels_last) >> 1).contiguous(),
    "to the left": lambda d: (fl.arange(8, device=d).reshape(2, 4).mT << 70).contiguous(),
    "an empty out= grows": lambda d: fl.add(fl.ones(3, device=d), 1, out=fl.empty(0, device=d)),
    "what grows keeps its elements": lambda d: fl.arange(3, device=d).resize_(2, 2).view(4)[:3],
    "subnormal complex numbers": lambda d: fl.logical_not(fl.tensor([1e-40, 1e-40j, 0j], device=d)),
    "where subnormal numbers are": lambda d: fl.tensor([1e-40, 0.0, -1e-40], device=d).argwhere(),
    "the sign of zero turns": lambda d: 1 / -fl.tensor([0.0, -0.0], device=d),
    "deviations of large numbers": lambda d: fl.tensor([1e30, -1e30, 2e30], device=d).std(),
    "a constant does not vary": lambda d: fl.full((7,), -1.0859, device=d).std(),
    "far scores": lambda d: F.scaled_dot_product_attention(fl.tensor([[1e5, 1.1e5]], device=d), fl.tensor([[1.0, 0.3]] * 2, device=d),
                                                           fl.ones(2, 1, device=d)),
    "a bias that is scaled": lambda d: fl.baddbmm(fl.tensor([[[0.5]]], device=d).half(), fl.tensor([[[60000.0, 1]]], device=d).half(),
                                                  fl.tensor([[[-2.0], [1]]], device=d).half(), beta=1e12),
    "digamma at its poles": lambda d: fl.digamma(fl.tensor([0.0, -0.0, INF, -INF, -1.0], device=d)),
    "Bessel functions at infinity": lambda d: fl.stack([f(fl.tensor([INF, -INF, -0.0], device=d)) for f in (
        fl.special.i0, fl.special.i1, fl.special.bessel_j0, fl.special.bessel_j1, fl.special.bessel_y0, fl.special.bessel_y1)]).round().abs(),
    "incomplete gamma functions of NaN": lambda d: fl.special.gammainc(fl.tensor([NAN, 1.0, NAN], device=d),
                                                                         fl.tensor([0.0, NAN, INF], device=d)),
    "signs of constants": lambda d: fl.compile(lambda x: x // -0.0)(fl.tensor([3, -3], device=d)),
    "scaled Bessel functions of the second kind far out": lambda d: (1e4 * fl.stack([
        f(fl.tensor([50.0, 104.0, 499.0, 501.0, 65504.0, 1e30, INF, NAN, -1.0], device=d))
        for f in (fl.special.scaled_modified_bessel_k0, fl.special.scaled_modified_bessel_k1)])).round(),
    "a mean of negative zeros": lambda d: fl.signbit(F.avg_pool1d(fl.full((1, 1, 4), -0.0, device=d), 1)),
}


def _facts(out):
    steps = [s for s, n in zip(out.stride(), out.shape) if n > 1]
    return out.dtype, out.shape, steps, out.cpu().tolist()


@pytest.mark.parametrize("name", PROGRAMS)
def test_small_programs(name):
    got, want = (_facts(PROGRAMS[name](d)) for d in ("cuda", "cpu"))
    assert got[:3] == want[:3] and repr(got[3]) == repr(want[3])


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangles_in_batches(upper, unit):
    a, b = fl.randn(3, 5, 5) + 3 * fl.eye(5), fl.randn(3, 5, 2)
    want = fl.linalg.solve_triangular(a, b, upper=upper, unitriangular=unit)
    got = fl.linalg.solve_triangular(a.cuda(), b.cuda(), upper=upper, unitriangular=unit)
    fl.testing.assert_close(got.cpu(), want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("source", [fl.float16, fl.bfloat16, fl.float32, fl.float64], ids=str)
def test_every_float_becomes_the_same_integer(source):
    """Small and large, generated and by CuPy, compiled."""
    floats = [0.0, -0.5, 1.9, -1.9, 255.5, 300, -300, 2.0**31, -2.0**31, 3e9, 2.0**62, 2.0**63, -2.0**63, 1.5e19, 1e30, -1e30]
    for kind in (fl.uint8, fl.int8, fl.int16, fl.int32, fl.int64):
        fl._dynamo.reset()      # one lambda, of which there are more versions than a function may have
        for n in (1, 40):
            x = fl.tensor([*floats, NAN, INF, -INF] * n, dtype=source)
            want = x.to(kind)
            assert fl.equal(x.cuda().to(kind).cpu(), want), (kind, n)
            assert fl.equal(fl.compile(lambda x, kind=kind: x.to(kind))(x.cuda()).cpu(), want), (kind, n)


def test_an_index_that_is_written_later():
    """A number in a tensor selects when it is read: what it is afterwards is nothing to the gradient."""
    x, i = fl.ones(3, device="cuda", requires_grad=True), fl.tensor(1, device="cuda")
    out = x[i] * 2
    i.add_(1)
    out.backward()
    assert x.grad.tolist() == [0, 2, 0]


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "uint8"])
def test_shifts_by_any_distance(kind, how):
    """Beyond the width of a number nothing is left of it, or its sign."""
    dtype = getattr(fl, kind)
    x = fl.tensor([1, 4, 100, 0, 7], dtype=dtype) if kind == "uint8" else fl.tensor([1, -4, 100, 0, -7], dtype=dtype)
    distances = [0, 1, 7, 8, 31, 32, 63, 64, 100] + ([] if kind == "uint8" else [-1, -64])

    def shifted(x, n):
        return x << n, x >> n

    run = fl.compile(shifted) if how == "compiled" else shifted
    for n in distances:
        by = fl.full((5,), n, dtype=dtype)
        for got, want in zip(run(x.cuda(), by.cuda()), shifted(x, by)):
            assert fl.equal(got.cpu(), want), n


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_logic_of_complex_numbers(name):
    x, y = fl.tensor([0, 1j, 1, 0]), fl.tensor([0, 0, 2j, 3])
    assert fl.equal(getattr(fl, name)(x.cuda(), y.cuda()).cpu(), getattr(fl, name)(x, y))


def test_remainders_of_infinite_numbers():
    x, y = fl.tensor([1.16, -1.0, 1.0, fl.inf, 5.5]), fl.tensor([-fl.inf, fl.inf, fl.inf, 2.0, -2.0])
    assert fl.remainder(x.cuda(), y.cuda()).cpu().tolist()[:3] == fl.remainder(x, y).tolist()[:3]
    assert fl.cholesky_solve(fl.zeros(1, 0, device="cuda")[:0], fl.zeros(0, 0, device="cuda")).shape == (0, 0)


VIEWS = {
    "expanded": lambda x: x[:1].expand(3, 4, 2), "a part": lambda x: x[:, 1:3], "every other": lambda x: x[::2], "turned": lambda x: x.mT,
    "of one byte further": lambda x: x.reshape(-1)[1:13].reshape(3, 4),
}
BY_LIBRARIES = {
    "copied parts": fl.view_as_real_copy, "compared": lambda x: x.real.to(fl.uint16) != x.imag.to(fl.uint16), "turned": lambda x: x.mT * 1j,
    "written": lambda x: x.mul_(2j), "a diagonal": lambda x: x.diagonal(0, 0, 1) + 1, "rolled": lambda x: fl.roll(x, 1, 0),
}


@pytest.mark.parametrize("work", BY_LIBRARIES)
@pytest.mark.parametrize("view", VIEWS)
def test_compiled_views_that_no_kernel_reads(view, work):
    """Complex numbers go through primitives one by one, of inputs with gaps, that overlap, or that begin at odd addresses."""
    if (view, work) == ("expanded", "written"):
        pytest.skip("elements that lie on one another are not written")
    x = fl.arange(24).to(fl.complex64).reshape(3, 4, 2) * (1 + 0.5j)
    there = x.cuda()
    want = BY_LIBRARIES[work](VIEWS[view](x))
    got = fl.compile(BY_LIBRARIES[work])(VIEWS[view](there))
    assert fl.equal(got.cpu(), want) and fl.equal(there.cpu(), x)


def test_what_lies_between_is_seen():
    """An input whose address is odd is copied, with what lies between its elements."""
    x = fl.arange(9.0)
    for part in (slice(2, None, 3), slice(1, 8, 2)):
        want = fl.as_strided_copy(x[part], (3,), (1,))
        assert fl.equal(fl.compile(lambda x: fl.as_strided_copy(x, (3,), (1,)))(x.cuda()[part]).cpu(), want)


def test_writes_to_odd_addresses():
    x, to = fl.arange(8, dtype=fl.uint8), fl.tensor([1])
    there = x.cuda()
    f = fl.compile(lambda x, at: x.scatter_(0, at, 9))
    f(there[1:5], to.cuda())
    assert there.tolist() == x[1:5].scatter_(0, to, 9).new_tensor([0, 1, 9, 3, 4, 5, 6, 7]).tolist()


def test_gradients_that_were_saved():
    """The backward graph gives back what the forward graph saved, and computes nothing."""
    def loss(x, w):
        return F.multilabel_soft_margin_loss(x, w, weight=0)
    there = [fl.tensor([[0.5]], device="cuda", requires_grad=True), fl.tensor([[0.9]], device="cuda", requires_grad=True)]
    fl.compile(loss)(*there).backward()
    assert there[0].grad.item() == 0


@pytest.mark.parametrize("way", ["from_dlpack", "as_tensor", "asarray"])
def test_memory_that_others_made_is_shared_with_its_gaps(way):
    cupy = pytest.importorskip("cupy")
    array = cupy.arange(12.0).reshape(3, 4)[:, ::2]
    x = getattr(fl, way)(array)
    assert x.device.type == "cuda" and x.stride() == (4, 2)
    x.mul_(2)
    assert array.tolist() == [[0, 4], [8, 12], [16, 20]] and fl.tensor(array).data_ptr() != x.data_ptr()
    assert cupy.from_dlpack(x[1:]).tolist() == [[8, 12], [16, 20]]


def test_a_real_part_is_a_copy():
    z = fl.tensor([1j], device="cuda")
    with pytest.warns(UserWarning, match="imaginary"):
        real = z.to(fl.float32)
    z.fill_(3)
    assert real.item() == 0


@pytest.mark.parametrize("kind", ["int8", "int64", "uint8"])
def test_whole_powers(kind):
    dtype = getattr(fl, kind)
    base, power = fl.tensor([2, 1, 3, 0, 7, 5, 10], dtype=dtype), fl.tensor([3, 0, 4, 2, 63, 1, 0], dtype=dtype)
    pairs = [(base, power)] if kind == "uint8" else [(base, power), (-base, power), (base, -power.clamp(max=5)), (-base, -power)]
    for a, b in pairs:
        keep = (a != 0) | (b >= 0)
        a, b = a[keep], b[keep]
        assert fl.equal(fl.compile(fl.pow)(a.cuda(), b.cuda()).cpu(), a ** b) and fl.equal((a.cuda() ** b.cuda()).cpu(), a ** b)
    assert fl.equal(fl.compile(fl.signbit)((-base if kind != "uint8" else base).cuda()).cpu(), (-base if kind != "uint8" else base).signbit())
