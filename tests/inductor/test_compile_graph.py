"""Compiled graphs give what their primitives give one by one; so does the loop IR's NumPy reading."""

from __future__ import annotations

import operator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import flambeau as fl
from flambeau import inductor
from flambeau.aot.trace import make_fx
from flambeau.backends.cpu import onednn
from flambeau.core.dispatch import fake_mode
from flambeau.core.dtypes import float32, float64, int64
from flambeau.core.tensor import from_array
from flambeau.fx import Node
from flambeau.inductor.graph import _interpreted
from flambeau.inductor.loop.ir import Compute, Extern
from flambeau.inductor.loop.scheduler import Kernel, reduction_style
from flambeau.inductor.targets import lower
from flambeau.ops.registry import PRIMITIVES
from tests.inductor.graphs import Builder, eager

rng = np.random.default_rng(0)
DEPTHWISE = ((1, 1), (1, 1), (1, 1), 8)


def check(b: Builder, *outputs: Node, tol: float = 1e-5) -> inductor.CompiledGraph:
    """Compile, and compare eager, native and interpreted results."""
    gm = b.finish(*outputs)
    graph = inductor.compile_graph(gm)
    want = eager(gm, b.inputs)
    for got in (graph(list(b.inputs)), _interpreted(graph.program)(list(b.inputs))):
        for w, g in zip(want, got, strict=True):
            assert tuple(w.shape) == tuple(g.shape) and w.dtype == g._data.dtype
            np.testing.assert_allclose(g._data.astype(np.float64), w.astype(np.float64), rtol=tol, atol=tol)
    return graph


def array(*shape: int, kind: Any = np.float32) -> np.ndarray:
    return rng.normal(size=shape).astype(kind)


def rows(b: Builder, x: Node, like: Node) -> Node:
    """Per-row values repeated along the last dimension."""
    shape = tuple(like.meta["val"].shape)
    return b.expand(b.unsqueeze(x, len(shape) - 1), shape)


def softmax(b: Builder, x: Node) -> Node:
    last = (len(x.meta["val"].shape) - 1,)
    e = b.exp(b.sub(x, rows(b, b.amax(x, last), x)))
    return b.truediv(e, rows(b, b.sum(e, last), e))


def layer_norm(b: Builder, x: Node, w: Node, bias: Node) -> tuple[Node, Node, Node]:
    shape = tuple(x.meta["val"].shape)
    last = (len(shape) - 1,)
    mean = b.mul(b.sum(x, last), 1 / shape[-1])
    centred = b.sub(x, rows(b, mean, x))
    rstd = b.rsqrt(b.add(b.mul(b.sum(b.mul(centred, centred), last), 1 / shape[-1]), 1e-5))
    return b.add(b.mul(b.mul(centred, rows(b, rstd, x)), b.expand(w, shape)), b.expand(bias, shape)), mean, rstd


def test_pointwise_with_broadcast() -> None:
    b = Builder()
    x, y = b.input(array(64, 100)), b.input(array(100))
    graph = check(b, b.tanh(b.add(x, b.expand(y, (64, 100)))))
    assert len(graph.nodes) == 1


def test_softmax_is_one_kernel() -> None:
    b = Builder()
    assert len(check(b, softmax(b, b.input(array(8, 12, 256)))).nodes) == 1


def test_layer_norm_is_one_kernel() -> None:
    b = Builder()
    x, w, bias = b.input(array(8, 64, 96)), b.input(array(96)), b.input(array(96))
    assert len(check(b, *layer_norm(b, x, w, bias)).nodes) == 1


def test_row_longer_than_scratch() -> None:
    b = Builder()
    check(b, softmax(b, b.input(array(32, 20000))))


def test_column_reductions_share_a_kernel() -> None:
    b = Builder()
    x, y = b.input(array(256, 384)), b.input(array(256, 384))
    graph = check(b, b.sum(b.mul(x, y), (0,)), b.sum(x, (0,)), tol=1e-4)
    assert len(graph.nodes) == 1


@pytest.mark.parametrize("shape", [(2048, 384), (100003,), (7, 60000)])
def test_large_reductions_are_split(shape: tuple) -> None:
    b = Builder()
    x = b.input(array(*shape))
    every = tuple(range(len(shape)))
    graph = check(b, b.sum(b.mul(x, x), every), b.amax(x, every), tol=1e-4)
    assert any("_pieces" in name for name in graph.program.buffers)


def test_pieces_of_a_fold_are_pieces_of_memory() -> None:
    b = Builder()
    graph = check(b, b.sum(b.relu(b.input(array(512, 1000))), (0, 1)), tol=1e-4)
    assert graph.unit is not None and " < 16000;" in graph.unit.source  # 32 times 16 rows


def test_folds_follow_what_moves_most_memory() -> None:
    """Two vectors along the folded loop do not outweigh two matrices along the kept one."""
    with fake_mode():
        x, column = fl.empty(4096, 512), fl.empty(4096, 1)
    gm = make_fx(lambda g, x, mean, rstd: (g * ((x - mean) * rstd)).sum(0))(x, x, column, column)
    program, _ = lower(gm)
    (fold,) = [step for step in program.steps if isinstance(step, Compute)]
    assert reduction_style(fold, program) == "columns"


@pytest.mark.parametrize("over", [0, 1])
def test_folds_go_along_what_is_contiguous_everywhere(over: int) -> None:
    """One large operand is contiguous along another loop, but the two small ones would be read element by element there."""
    b = Builder()
    x, y, g = b.input(array(48, 40)), b.input(array(44, 40)), b.input(array(48, 44))
    wide = (48, 44, 40)
    gap = b.sub(b.expand(b.unsqueeze(x, 1), wide), b.expand(b.unsqueeze(y, 0), wide))
    graph = check(b, b.sum(b.mul(b.sign(gap), b.expand(b.unsqueeze(g, 2), wide)), (over,)), tol=1e-4)
    kernel, = graph.nodes
    assert isinstance(kernel, Kernel) and kernel.style == "columns"
    assert graph.unit is not None and "j < 40" in graph.unit.source


def test_short_runs_of_memory_are_folded_last() -> None:
    """Groups of channels of channels-last images: sums by channel side by side, then by group."""
    b = Builder()
    x = b.input(array(3, 20, 24).transpose(0, 2, 1))
    groups = b.view_(x, (3, 4, 6, 20))
    graph = check(b, b.sum(b.mul(groups, groups), (2, 3)), tol=1e-4)
    assert [n.style for n in graph.nodes if isinstance(n, Kernel)] == ["columns", "rows"]


def test_values_of_inner_loops_are_kept_over_outer_ones() -> None:
    b = Builder()
    x, mean, scale = b.input(array(2, 50, 24)), b.input(array(2, 4)), b.input(np.abs(array(2, 4)))
    wide = [b.view_(b.abs(b.expand(b.unsqueeze(b.unsqueeze(v, 2), 1), (2, 50, 4, 6))), (2, 50, 24)) for v in (mean, scale)]
    graph = check(b, b.mul(b.sub(x, wide[0]), b.rsqrt(wide[1])), tol=1e-4)
    assert graph.unit is not None and "kept1[x" in graph.unit.source


def test_folds_of_reshaped_planes_go_by_their_own_dimensions() -> None:
    with fake_mode():
        x = fl.empty(4, 21, 8, 8)
    graph = inductor.compile_graph(make_fx(lambda x: x.movedim(1, -1).reshape(-1, 21).amax(1))(x))
    image = from_array(array(4, 21, 8, 8))
    np.testing.assert_array_equal(graph([image])[0].numpy(), image.amax(1).reshape(-1).numpy())
    kernel, = graph.nodes
    assert isinstance(kernel, Kernel) and kernel.style == "columns"
    assert graph.unit is not None and "x0 /" not in graph.unit.source


def test_sums_of_looked_up_rows_go_along_the_rows() -> None:
    b = Builder()
    table, index = b.input(array(100, 64)), b.input(rng.integers(0, 100, (32, 20)))
    graph = check(b, b.sum(b.index_select(table, 0, index), (1,)), tol=1e-4)
    kernel, = graph.nodes
    assert isinstance(kernel, Kernel) and kernel.style == "columns"


def test_truth_values_in_memory_are_bytes() -> None:
    """GCC 12 does not vectorise loops that load bool."""
    b = Builder()
    x, mask = b.input(array(64, 300)), b.input(array(64, 300) > 0)
    graph = check(b, b.where(mask, x, 0.0), b.any(b.logical_not(mask), (1,)), b.gt(x, 0.5))
    assert graph.unit is not None and "bool* " not in graph.unit.source


def test_nan_wins_in_extrema() -> None:
    x = array(40, 50)
    x[3, 4] = np.nan
    b = Builder()
    node = b.input(x)
    check(b, b.amax(node, (1,)), b.argmax(node, 1))


def test_arg_reductions_take_the_first() -> None:
    b = Builder()
    x = b.input(rng.integers(0, 5, (30, 20)).astype(np.float32))
    check(b, b.argmax(x, 1), b.argmin(x, 0))


def test_views_and_permutations() -> None:
    b = Builder()
    x = b.input(array(4, 6, 32, 16))
    p = b.permute(b.relu(x), (0, 2, 1, 3))
    check(b, p, b.amin(b.permute(x, (3, 2, 1, 0)), (0, 2)), b.relu(b.slice_(x, 2, 3, 30, 2)), b.neg(b.flip(x, (1,))))


def test_reshapes_fuse_across_groupings() -> None:
    b = Builder()
    x, y = b.input(array(48, 32)), b.input(array(6, 8, 32))
    z = b.exp(b.view_(x, (6, 8, 32)))
    graph = check(b, b.add(z, y), b.sum(b.view_(z, (48, 32)), (1,)))
    assert len(graph.nodes) == 1


def test_transposed_reads() -> None:
    b = Builder()
    x, y = b.input(array(70, 50)), b.input(array(50, 70))
    check(b, b.add(b.permute(x, (1, 0)), y))


def test_embedding_and_its_gradient() -> None:
    b = Builder()
    w, i, g, zero = b.input(array(65, 96)), b.input(rng.integers(0, 65, (8, 64))), b.input(array(512, 96)), \
        b.input(np.zeros((65, 96), np.float32))
    check(b, b.relu(b.index_select(w, 0, i)), b.index_add(zero, 0, b.view_(i, (512,)), g), tol=1e-4)


def test_gather_scatter_and_index_put() -> None:
    b = Builder()
    x, i, v = b.input(array(32, 20)), b.input(rng.integers(0, 20, (32, 1))), b.input(array(32, 1))
    check(b, b.gather(x, 1, i), b.scatter(x, 1, i, v, "add"), b.scatter(x, 1, i, v, "set"),
          b.index(x, [b.view_(i, (32,)), None]), b.index_put(x, [None, b.view_(i, (32,))], b.expand(v, (32, 32)), True),
          tol=1e-4)


def test_concatenation() -> None:
    b = Builder()
    x, y, z = b.input(array(5, 7)), b.input(array(5, 1)), b.input(array(5, 10))
    check(b, b.exp(b.cat([x, y, z], 1)), b.cat([x, x], 0))


def test_factories_and_comparisons() -> None:
    b = Builder()
    x = b.input(array(16, 16))
    where = x.meta["val"].device
    i = b.expand(b.unsqueeze(b.iota(16, 0, 1, int64, where), 1), (16, 16))
    j = b.expand(b.iota(16, 0, 1, int64, where), (16, 16))
    check(b, b.where(b.ge(i, j), x, b.full((16, 16), -np.inf, float32, where)))


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float64, np.int32, np.int64, np.uint8])
def test_dtypes(kind: Any) -> None:
    x, y = (array(33, 17) * 4).astype(kind), (np.abs(array(33, 17)) * 4 + 1).astype(kind)
    b = Builder()
    u, v = b.input(x), b.input(y)
    check(b, b.add(b.mul(u, v), u), b.lt(u, v), b.maximum(u, v), b.convert(u, float32), b.sum(v, (1,)), tol=2e-2)


def test_integer_division_and_bits() -> None:
    b = Builder()
    u, v = b.input(rng.integers(-50, 50, (64,))), b.input(rng.integers(1, 9, (64,)))
    check(b, b.floordiv(u, v), b.truncdiv(u, v), b.remainder(u, v), b.fmod(u, v), b.bitwise_and(u, v), b.shl(u, v))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("finish", ["none", "relu", "residual", "gelu"])
def test_matmul_epilogues(bias: bool, finish: str) -> None:
    b = Builder()
    x, w, c, r = b.input(array(64, 48)), b.input(array(32, 48)), b.input(array(32)), b.input(array(4, 16, 32))
    y = b.view_(b.mm(x, b.permute(w, (1, 0))), (4, 16, 32))
    if bias:
        y = b.add(y, b.expand(c, (4, 16, 32)))
    if finish == "relu":
        y = b.relu(y)
    elif finish == "residual":
        y = b.add(r, y)
    elif finish == "gelu":
        y = b.mul(b.mul(y, 0.5), b.add(b.erf(b.mul(y, 0.7071067811865476)), 1.0))
    graph = check(b, y, tol=1e-4)
    if onednn.available():      # whose ReLU and GELU are not those of every number
        assert len(graph.nodes) == (2 if finish in ("relu", "gelu") else 1)


def test_matmul_result_that_others_read_keeps_its_step() -> None:
    b = Builder()
    x, w = b.input(array(32, 48)), b.input(array(48, 32))
    y = b.mm(x, w)
    check(b, b.relu(y), y, tol=1e-4)


def test_batched_matmul_of_strided_views() -> None:
    b = Builder()
    q, k = b.input(array(16, 6, 8)), b.input(array(16, 6, 8))
    a = b.bmm(b.permute(b.relu(q), (1, 0, 2)), b.permute(k, (1, 2, 0)))
    check(b, softmax(b, b.mul(a, 0.35)), tol=1e-4)


def test_primitive_without_a_loop_runs_eagerly() -> None:
    b = Builder()
    x = b.input(array(8, 9))
    y = b.mul(b.logcumsumexp(b.relu(x), 1, False), 2.0)
    graph = check(b, y)
    assert graph.fallbacks == ["logcumsumexp"] and not graph.unit.native


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize(("shape", "dim"), [((7,), 0), ((3, 200), 1), ((200, 3), 0), ((2, 300, 130), 1), ((0, 4), 1)])
def test_running_sums_and_products_are_the_eager_ones(kind: type, shape: tuple[int, ...], dim: int) -> None:
    b = Builder()
    x = b.input((array(*shape) * 3).astype(kind))
    graph = check(b, b.cumsum(x, dim, False), b.cumsum(b.neg(x), dim, True), b.cumprod(x, dim), tol=0)
    assert not graph.fallbacks and graph.unit.native


def test_results_of_eager_primitives_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, made = PRIMITIVES["logcumsumexp"].kernels["cpu"], []

    def noting(*args: Any) -> np.ndarray:
        made.append(kernel(*args))
        return made[-1]
    b = Builder()
    graph = check(b, b.logcumsumexp(b.input(array(8, 9)), 1, False))
    monkeypatch.setitem(PRIMITIVES["logcumsumexp"].kernels, "cpu", noting)
    result, = graph(list(b.inputs))
    assert np.shares_memory(result._data, made[-1])


def test_several_results_of_an_eager_primitive() -> None:
    b = Builder()
    x = b.input(array(8, 9))
    pair = b.cummax(x, 1)
    first = b.graph.call_function(operator.getitem, (pair, 0))
    second = b.graph.call_function(operator.getitem, (pair, 1))
    first.meta["val"], second.meta["val"] = pair.meta["val"]
    check(b, b.mul(first, 2.0), second)


def test_random_numbers_are_the_eager_ones() -> None:
    b = Builder()
    state = b.input(np.array([42, 7]))
    check(b, b.philox_uniform(state, 3, (33, 5), float32), b.philox_normal(state, 50, (9,), float32),
          b.philox_integers(state, 80, (10,), 0, 65), tol=1e-4)


@pytest.mark.parametrize("kind", [float32, float64])
def test_many_random_numbers_are_drawn_natively(kind: Any) -> None:
    b = Builder()
    state = b.input(np.array([42, 7]))
    draws = b.philox_uniform(state, 3, (65, 101), kind), b.philox_normal(state, 4000, (5003,), kind)
    graph = check(b, draws[0], b.mul(draws[1], 2.0), tol=0)
    assert graph.unit is not None and graph.unit.native and graph.unit.source.count("fl::draw(") == 2


def test_outputs_that_are_inputs_or_views() -> None:
    b = Builder()
    x = b.input(array(6, 8))
    y = b.relu(x)
    graph = check(b, x, b.permute(x, (1, 0)), y, b.select(y, 0, 2))
    out = graph(list(b.inputs))
    assert np.shares_memory(out[1]._data, b.inputs[0]._data)


def test_empty_and_scalar_tensors() -> None:
    b = Builder()
    x, s = b.input(array(0, 4)), b.input(np.asarray(3, np.float32))
    check(b, b.exp(x), b.sum(x, (0,)), b.mul(s, 2.0), b.expand(s, (3, 2)))


def test_symbolic_sizes_serve_all_sizes() -> None:
    b = Builder()
    x, w, bias = b.input(array(12, 40), dynamic=(0,)), b.input(array(40)), b.input(array(40))
    out, _, _ = layer_norm(b, x, w, bias)
    total = b.sum(b.mul(x, x), (0, 1))
    columns = b.sum(x, (0,))
    gm = b.finish(out, total, columns)
    graph = inductor.compile_graph(gm)
    for n in (12, 3, 777):
        inputs = [from_array(array(n, 40)), *b.inputs[1:]]
        want = eager(gm, inputs)
        for got in (graph(list(inputs)), _interpreted(graph.program)(list(inputs))):
            for w_, g in zip(want, got, strict=True):
                np.testing.assert_allclose(g._data, w_, rtol=1e-4, atol=1e-3)


def test_input_of_other_strides_is_copied() -> None:
    b = Builder()
    x = b.input(array(6, 8))
    gm = b.finish(b.relu(x))
    other = from_array(array(8, 6).T)
    np.testing.assert_array_equal(inductor.compile_graph(gm)([other])[0]._data, np.maximum(other._data, 0))


def test_without_native_code_the_ir_runs() -> None:
    b = Builder()
    x = b.input(array(6, 8))
    gm = b.finish(softmax(b, x))
    inductor.config.native = False
    try:
        graph = inductor.compile_graph(gm)
        assert graph.unit is None
        np.testing.assert_allclose(graph(list(b.inputs))[0]._data, eager(gm, b.inputs)[0], rtol=1e-5)
    finally:
        inductor.config.native = True


def test_equal_layers_share_their_kernels() -> None:
    b = Builder()
    x = b.input(array(64, 32))
    for _ in range(4):
        w = b.input(array(32, 32))
        x = softmax(b, b.mm(x, w))
    graph = check(b, x, tol=1e-4)
    assert len({k.name for k in graph.unit.kernels}) == 1 and len(graph.unit.kernels) == 4



@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_and_its_gradients(groups: int, stride: int) -> None:
    b = Builder()
    x, w = b.input(array(2, 8, 13, 13)), b.input(array(12, 8 // groups, 3, 3))
    attrs = ((stride, stride), (1, 1), (1, 1), groups)
    y = b.convolution(x, w, *attrs)
    g = b.input(array(*y.meta["val"].shape))
    check(b, b.relu(y), b.convolution_input_grad(g, w, (2, 8, 13, 13), *attrs),
          b.convolution_weight_grad(g, x, (12, 8 // groups, 3, 3), *attrs), tol=1e-4)


@pytest.mark.skipif(not onednn.available(), reason="oneDNN's layouts")
@pytest.mark.parametrize("window", [1, 3])
def test_a_convolution_that_is_a_result_is_made_as_it_is_wanted(window: int) -> None:
    b = Builder()
    x, w, bias = b.input(array(2, 8, 13, 13)), b.input(array(12, 8, window, window)), b.input(array(12))
    y = b.convolution(x, w, (1, 1), (0, 0), (1, 1), 1)
    spread = b.expand(b.unsqueeze(b.unsqueeze(bias, 1), 2), tuple(y.meta["val"].shape))
    graph = check(b, b.add(y, spread), tol=1e-4)
    assert not any(isinstance(s, Compute) and s.buffer == graph.program.outputs[0].buffer for s in graph.program.steps)


@pytest.mark.skipif(not onednn.available(), reason="oneDNN's layouts")
def test_images_of_depthwise_convolutions_are_reordered_both_or_neither() -> None:
    b = Builder()
    x, w = b.input(array(2, 8, 13, 13)), b.input(array(8, 1, 3, 3))
    graph = check(b, b.relu(b.mul(b.convolution(b.relu(b.convolution(x, w, *DEPTHWISE)), w, *DEPTHWISE), 2.0)), tol=1e-4)
    assert {s.layouts for s in graph.program.steps if isinstance(s, Extern)} == {("given", "free", "given")}


def test_selected_loads_that_lie_apart_are_no_branches() -> None:
    b = Builder()
    x, y = b.input(array(64, 70)), b.input(array(70, 64))
    graph = check(b, b.where(b.gt(x, 0.1), b.permute(y, (1, 0)), 0.0), b.where(b.gt(x, 0.1), x, 1.0))
    assert graph.unit is not None and graph.unit.source.count("fl::select(") == 1


def test_convolution_with_batch_norm_and_residual_is_one_call() -> None:
    b = Builder()
    x, w, r = b.input(array(2, 16, 8, 8)), b.input(array(16, 16, 3, 3)), b.input(array(2, 16, 8, 8))
    mean, var, gain, bias = (b.input(np.abs(array(16))) for _ in range(4))

    def spread(v: Node) -> Node:
        return b.expand(b.unsqueeze(b.unsqueeze(v, 1), 2), (2, 16, 8, 8))
    y = b.convolution(x, w, (1, 1), (1, 1), (1, 1), 1)
    y = b.mul(b.sub(y, spread(mean)), spread(b.rsqrt(b.add(var, 1e-5))))
    y = b.add(b.mul(y, spread(gain)), spread(bias))
    check(b, b.relu(b.add(y, r)), b.relu(y), tol=1e-4)


@pytest.mark.parametrize("native", [True, False])
def test_index_out_of_bounds_is_an_index_error(native: bool) -> None:
    b = Builder()
    w, i = b.input(array(10, 4)), b.input(np.array([1, -10, 9]))
    gm = b.finish(b.index(w, [i, None]))
    inductor.config.native = native
    try:
        graph = inductor.compile_graph(gm)
    finally:
        inductor.config.native = True
    np.testing.assert_array_equal(graph(list(b.inputs))[0]._data, eager(gm, b.inputs)[0])
    for bad in (10, -11):
        with pytest.raises(IndexError, match=rf"index {bad} is out of bounds for dimension with size 10"):
            graph([b.inputs[0], from_array(np.array([1, bad, 3]))])
    graph(list(b.inputs))


def test_rows_are_not_selected_from_the_end() -> None:
    b = Builder()
    w, i = b.input(array(10, 4)), b.input(np.array([1, -1, 9]))
    with pytest.raises(IndexError, match=r"index -1 is out of bounds"):
        inductor.compile_graph(b.finish(b.index_select(w, 0, i)))(list(b.inputs))


def test_complex_numbers_go_through_eager_kernels() -> None:
    b = Builder()
    x = b.input((array(6, 4) + 1j * array(6, 4)).astype(np.complex64))
    y = b.mul(x, x)
    gm = b.finish(b.real(y), y)
    graph = inductor.compile_graph(gm)
    for got, want in zip(graph(list(b.inputs)), eager(gm, b.inputs), strict=True):
        np.testing.assert_allclose(got._data, want, rtol=1e-5)
    assert set(graph.fallbacks) == {"mul", "real"}


def test_views_that_only_memory_explains() -> None:
    b = Builder()
    x = b.input(array(6, 8))
    y = b.relu(x)
    graph = check(b, b.neg(b.as_strided(y, (3, 5), (8, 2), 1)), b.mul(y, 2.0))
    assert not graph.fallbacks


@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x.T, lambda x: fl.cat([x, x])[3:9]], ids=["plain", "transposed", "part"])
def test_windows_of_memory(layout: Any) -> None:
    x = layout(from_array(array(6, 8)))

    def windows(x: Any) -> Any:
        return x.unfold(1, 4, 2).sin(), x[1:, 1:].as_strided((2, 3), (8, 1)) + 1
    for got, want in zip(fl.compile(windows, dynamic=False)(x), windows(x), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)


def test_memory_around_an_operand() -> None:
    """as_strided sees what lies before and behind its operand, and may write there: such graphs run as they were captured."""
    def before(x: Any) -> Any:
        return x[4:].as_strided((2,), (1,), 3) + 1

    def behind(x: Any) -> Any:
        return x[2].as_strided((2,), (1,)) + 1

    def written(x: Any) -> Any:
        x.as_strided((1, 1), (0, 1)).exp_()
        return x + 1

    for f in (before, behind, written):
        for layout in (lambda x: x, lambda x: x.T, lambda x: x[:, None, :, None].contiguous(memory_format=fl.channels_last)):
            values = array(8, 8)
            x, y = layout(from_array(values.copy())), layout(from_array(values.copy()))
            np.testing.assert_array_equal(fl.compile(f)(x).numpy(), f(y).numpy())
            np.testing.assert_array_equal(x.numpy(), y.numpy())


def test_equal_reductions_are_computed_once() -> None:
    b = Builder()
    x = b.input(array(20, 30))
    graph = check(b, b.exp(b.sum(x, (1,))), b.neg(b.sum(x, (1,))))
    assert sum(step.kind == "sum" for step in graph.program.steps) == 1


def test_long_chains_are_cut() -> None:
    b = Builder()
    x = b.input(array(16, 64))
    y = x
    for _ in range(150):
        y = b.sin(b.add(y, 0.1))
    graph = check(b, y, tol=1e-4)
    assert len(graph.program.steps) > 1


def test_times_of_kernels() -> None:
    b = Builder()
    x = b.input(array(64, 64))
    gm = b.finish(softmax(b, x), b.sum(x, (0,)))
    graph = inductor.compile_graph(gm)
    times = graph.times(b.inputs, calls=3)
    assert len(times) == len(graph.nodes) and all(seconds > 0 for seconds, _ in times)


@pytest.mark.parametrize("program", [
    lambda x: fl.cat([x, fl.tensor([1.0, 2.0])])[:3] + 1,
    lambda x: fl.where(fl.ones(3, dtype=fl.bool), x, fl.tensor([[3, 4]]).sum() * 1.0),
])
def test_a_constant_that_turns_out_to_be_unused(program: Any) -> None:
    x = fl.arange(3.0)
    np.testing.assert_array_equal(fl.compile(program, fullgraph=True)(x).numpy(), program(x).numpy())


def test_narrow_floats_are_added_at_computed_positions():
    """g++ has no `+=` for them."""
    x, index, rows = fl.zeros(20, 64).bfloat16(), fl.arange(40) % 20, fl.randn(40, 64).bfloat16()
    got = fl.compile(lambda x, index, rows: x.index_add(0, index, rows))(x, index, rows)
    fl.testing.assert_close(got, rows[:20] + rows[20:])


@pytest.mark.skipif(not onednn.available(), reason="oneDNN's products")
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("turned", [False, True])
def test_a_batch_of_products_with_one_matrix_is_one_product(rows: int, turned: bool) -> None:
    """So vmap has weights, which all examples share but have gradients for apart."""
    b = Builder()
    x, w = b.input(array(32, rows, 48)), b.input(array(40, 48) if turned else array(48, 40))
    wide = b.permute(b.expand(b.unsqueeze(w, 0), (32, 40, 48)), (0, 2, 1)) if turned else b.expand(b.unsqueeze(w, 0), (32, 48, 40))
    graph = check(b, b.relu(b.bmm(b.mul(x, 2.0), wide)), tol=1e-4)
    assert [s.op for s in graph.program.steps if isinstance(s, Extern)] == ["mm"]
    apart = Builder()
    x = apart.input(array(rows, 32, 48))
    wide = apart.expand(apart.unsqueeze(apart.input(array(48, 40)), 0), (32, 48, 40))
    check(apart, apart.bmm(apart.permute(x, (1, 0, 2)), wide), tol=1e-4)
