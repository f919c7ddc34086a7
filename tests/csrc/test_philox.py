"""Philox4x32-10 against a NumPy reading of the documented mapping."""

import os

import numpy as np
import pytest

from flambeau import _C

M = 0xFFFFFFFF
SEEDS = [(0, 0), (1234, 5), (2**64 - 1, 2**32 - 3), (0x0123456789ABCDEF, 2**64 - 7)]
SIZES = [0, 1, 2, 3, 4, 5, 63, 64, 65, 1000, 70001]


def reference_words(n, seed, offset):
    """The first n 32-bit words of a draw."""
    block = np.arange((n + 3) // 4, dtype=np.uint64) + np.uint64(offset)
    low, high = np.uint64(M), np.uint64(32)
    c = [block & low, block >> high, np.zeros_like(block), np.zeros_like(block)]
    k = [seed & M, seed >> 32]
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> high) ^ c[1] ^ np.uint64(k[0]), p1 & low, (p0 >> high) ^ c[3] ^ np.uint64(k[1]), p0 & low]
        k = [(k[0] + 0x9E3779B9) & M, (k[1] + 0xBB67AE85) & M]
    return np.stack(c, -1).reshape(-1)[:n]


def reference_pairs(n, seed, offset):
    """The first n 64-bit words of a draw: pairs of 32-bit ones, low half first."""
    words = reference_words(2 * n, seed, offset).reshape(-1, 2)
    return words[:, 0] | words[:, 1] << np.uint64(32)


def box_muller(u, v):
    r, t = np.sqrt(-2 * np.log(u)), 2 * np.pi * v
    return np.stack([r * np.cos(t), r * np.sin(t)], -1).reshape(-1)


@pytest.mark.parametrize(("seed", "offset"), SEEDS)
@pytest.mark.parametrize("n", SIZES)
def test_bits_and_uniforms_follow_the_mapping(n, seed, offset):
    with np.errstate(over="ignore"):
        words, pairs = reference_words(n, seed, offset), reference_pairs(n, seed, offset)
    for dtype in (np.uint32, np.int32):
        np.testing.assert_array_equal(_C.philox_draw("bits", np.empty(n, dtype), seed, offset), words.astype(dtype))
    for dtype in (np.uint64, np.int64):
        np.testing.assert_array_equal(_C.philox_draw("bits", np.empty(n, dtype), seed, offset), pairs.astype(dtype))
    f32 = _C.philox_draw("uniform", np.empty(n, np.float32), seed, offset)
    np.testing.assert_array_equal(f32, (words >> np.uint64(8)).astype(np.float32) * np.float32(2**-24))
    f64 = _C.philox_draw("uniform", np.empty(n, np.float64), seed, offset)
    np.testing.assert_array_equal(f64, (pairs >> np.uint64(11)).astype(np.float64) * 2.0**-53)


@pytest.mark.parametrize(("seed", "offset"), SEEDS)
@pytest.mark.parametrize("n", SIZES)
def test_normals_follow_the_mapping(n, seed, offset):
    even = n + n % 2
    with np.errstate(over="ignore"):
        words = reference_words(even, seed, offset).astype(np.float64)
        pairs = reference_pairs(even, seed, offset) >> np.uint64(11)
    u = ((words[::2] + 0.5) * 2.0**-32).astype(np.float32).astype(np.float64)
    expected = box_muller(u, np.floor(words[1::2] / 256) * 2.0**-24)[:n]
    f32 = _C.philox_draw("normal", np.empty(n, np.float32), seed, offset)
    np.testing.assert_allclose(f32, expected, rtol=1e-6, atol=1e-6)
    expected = box_muller((pairs[::2].astype(np.float64) + 0.5) * 2.0**-53, pairs[1::2].astype(np.float64) * 2.0**-53)
    f64 = _C.philox_draw("normal", np.empty(n, np.float64), seed, offset)
    np.testing.assert_allclose(f64, expected[:n], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("draw", ["uniform", "normal"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_element_depends_on_seed_offset_and_index_alone(draw, dtype):
    per_block = 16 // np.dtype(dtype).itemsize
    whole = _C.philox_draw(draw, np.empty(200_000, dtype), 7, 11)
    np.testing.assert_array_equal(_C.philox_draw(draw, np.empty(1001, dtype), 7, 11), whole[:1001])
    np.testing.assert_array_equal(_C.philox_draw(draw, np.empty(500, dtype), 7, 11 + 100), whole[100 * per_block :][:500])


def test_the_number_of_threads_does_not_matter():
    before = _C.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            _C.set_num_threads(threads)
            results.append(_C.philox_draw("normal", np.empty(300_001, np.float32), 3, 4))
    finally:
        _C.set_num_threads(before)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_moments():
    n = 1_000_000
    for dtype in (np.float32, np.float64):
        u = _C.philox_draw("uniform", np.empty(n, dtype), 1, 0).astype(np.float64)
        assert abs(u.mean() - 0.5) < 2e-3 and abs(u.var() - 1 / 12) < 1e-3 and u.min() >= 0 and u.max() < 1
        z = _C.philox_draw("normal", np.empty(n, dtype), 1, 0).astype(np.float64)
        assert abs(z.mean()) < 5e-3 and abs(z.std() - 1) < 5e-3
        assert abs((z**3).mean()) < 2e-2 and abs((z**4).mean() - 3) < 5e-2
        assert abs(np.corrcoef(z[::2], z[1::2])[0, 1]) < 5e-3
        assert np.isfinite(z).all() and 4 < np.abs(z).max() < 7


def test_the_shape_is_kept_and_the_array_returned():
    out = np.empty((3, 5, 7), np.float32)
    assert _C.philox_draw("uniform", out, 1, 2) is out
    np.testing.assert_array_equal(out.reshape(-1), _C.philox_draw("uniform", np.empty(105, np.float32), 1, 2))
    assert 0 <= float(_C.philox_draw("uniform", np.empty((), np.float64), 1, 2)) < 1


def test_negative_seeds_wrap():
    a = _C.philox_draw("bits", np.empty(8, np.int64), -1, 0)
    np.testing.assert_array_equal(a, _C.philox_draw("bits", np.empty(8, np.int64), 2**64 - 1, 0))


@pytest.mark.parametrize(
    ("draw", "out"),
    [
        ("uniform", np.empty(3, np.float16)),
        ("normal", np.empty(3, np.int32)),
        ("bits", np.empty(3, np.int16)),
        ("bits", np.empty(3, np.float32)),
        ("uniform", np.empty((4, 4), np.float32)[:, ::2]),
        ("uniform", [1.0, 2.0]),
        ("uniform", np.empty(3, ">f4")),
    ],
)
def test_wrong_arrays_are_type_errors(draw, out):
    with pytest.raises(TypeError):
        _C.philox_draw(draw, out, 1, 2)


def test_read_only_arrays_are_refused():
    out = np.zeros(3, np.float32)
    out.flags.writeable = False
    with pytest.raises(TypeError):
        _C.philox_draw("uniform", out, 1, 2)


def test_a_forked_child_can_draw():
    expected = _C.philox_draw("uniform", np.empty(300_000, np.float32), 1, 2)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        drawn = _C.philox_draw("uniform", np.empty(300_000, np.float32), 1, 2)
        os.write(writer, b"%d %d" % (np.array_equal(drawn, expected), _C.get_num_threads()))
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 100) == b"1 1"
    os.close(reader)
    assert os.waitpid(child, 0) == (child, 0)


@pytest.mark.parametrize("number", [0, -1, 10**6])
def test_thread_counts_are_checked(number):
    with pytest.raises(RuntimeError, match="positive"):
        _C.set_num_threads(number)
