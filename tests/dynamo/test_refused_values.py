# ruff: noqa: E501 - a table
"""What an operator refuses because of what is in a tensor, or because of sizes, it refuses when compiled as well, with the same error."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import dynamo

T = torch.tensor


def li(*values: int) -> Any:
    return T(list(values), dtype=torch.int64)


x = torch.arange(12.0).reshape(3, 4)

CASES: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "gather hi": (lambda x, i: torch.gather(x, 1, i), x, T([[0, 4]])),
    "gather lo": (lambda x, i: torch.gather(x, 1, i), x, T([[0, -1]])),
    "take hi": (lambda x, i: torch.take(x, i), x, li(12)),
    "take lo": (lambda x, i: torch.take(x, i), x, li(-13)),
    "take_along_dim": (lambda x, i: torch.take_along_dim(x, i, 1), x, T([[9], [0], [0]])),
    "index_select": (lambda x, i: torch.index_select(x, 0, i), x, li(3)),
    "index_select lo": (lambda x, i: torch.index_select(x, 0, i), x, li(-1)),
    "getitem": (lambda x, i: x[i], x, li(3)),
    "getitem lo": (lambda x, i: x[i], x, li(-4)),
    "getitem 2": (lambda x, i: x[:, i]*2, x, li(0, 4)),
    "getitem 2d": (lambda x, i: x[i, i], x, li(3)),
    "getitem 0d": (lambda x, i: x[i], x, T(3)),
    "index_put": (lambda x, i: x.index_put((i, ), T(1.)), x, li(5)),
    "index_put acc": (lambda x, i: x.index_put((i, ), T(1.), accumulate=True), x, li(-5)),
    "index_add": (lambda x, i: x.index_add(0, i, x[:1]), x, li(3)),
    "index_copy": (lambda x, i: x.index_copy(0, i, x[:1]), x, li(3)),
    "index_fill": (lambda x, i: x.index_fill(0, i, 2.), x, li(3)),
    "index_fill lo": (lambda x, i: x.index_fill(0, i, 2.), x, li(-4)),
    "index_reduce": (lambda x, i: x.index_reduce(0, i, x[:1], "prod"), x, li(3)),
    "scatter": (lambda x, i: x.scatter(1, i, 1.0), x, T([[4]])),
    "scatter lo": (lambda x, i: x.scatter(1, i, 1.0), x, T([[-1]])),
    "scatter src": (lambda x, i: x.scatter(0, i, x), x, T([[7]])),
    "scatter_add": (lambda x, i: x.scatter_add(1, i, x), x, T([[4]])),
    "scatter_reduce": (lambda x, i: x.scatter_reduce(1, i, x, "amax"), x, T([[4]])),
    "put": (lambda x, i: torch.put(x, i, T([1.])) if hasattr(torch, "put") else x.put(i, T([1.])), x, li(12)),
    "put_": (lambda x, i: x.clone().put_(i, T([1.]), accumulate=True), x, li(-13)),
    "embedding": (lambda x, i: F.embedding(i, x), x, li(3)),
    "embedding lo": (lambda x, i: F.embedding(i, x), x, li(-1)),
    "embedding_bag": (lambda x, i: F.embedding_bag(i, x), x, T([[3, 0]])),
    "embedding_bag offsets": (lambda x, i: F.embedding_bag(i, x, li(0, 9)), x, li(0, 1)),
    "embedding_bag off0": (lambda x, i: F.embedding_bag(i, x, li(1, 1)), x, li(0, 1)),
    "one_hot hi": (lambda x, i: F.one_hot(i, 3)+x[0, 0].long(), x, li(3)),
    "one_hot lo": (lambda x, i: F.one_hot(i, 3), x, li(-1)),
    "one_hot lo auto": (lambda x, i: F.one_hot(i), x, li(-1)),
    "one_hot 0": (lambda x, i: F.one_hot(i, 0), x, li(0)),
    "cross_entropy": (lambda x, i: F.cross_entropy(x, i), x, li(0, 1, 4)),
    "cross_entropy lo": (lambda x, i: F.cross_entropy(x, i), x, li(0, 1, -1)),
    "cross_entropy ls": (lambda x, i: F.cross_entropy(x, i, label_smoothing=.1), x, li(0, 1, 9)),
    "cross_entropy w": (lambda x, i: F.cross_entropy(x, i, weight=torch.ones(4)), x, li(0, 1, 9)),
    "cross_entropy none": (lambda x, i: F.cross_entropy(x, i, reduction="none"), x, li(0, 1, 9)),
    "nll": (lambda x, i: F.nll_loss(x, i), x, li(0, 1, 4)),
    "nll 2d": (lambda x, i: F.nll_loss(x[None, :, :].permute(0, 2, 1), i), x, T([[0, 1, 4]])),
    "multi_margin": (lambda x, i: F.multi_margin_loss(x, i), x, li(0, 1, 4)),
    "multilabel_margin": (lambda x, i: F.multilabel_margin_loss(x[:1], i), x, T([[0, 1, 4, -1]])),
    "bincount neg": (lambda x, i: torch.bincount(i), x, li(0, -1)),
    "bce hi": (lambda x, y: F.binary_cross_entropy(x/11+1, y), x, torch.zeros(3, 4)),
    "bce lo": (lambda x, y: F.binary_cross_entropy(x/11-1, y), x, torch.zeros(3, 4)),
    "as_strided": (lambda x, i: torch.as_strided(x, (4, 4), (4, 1))+1, x, x),
    "as_strided off": (lambda x, i: torch.as_strided(x, (2, ), (1, ), 11)+1, x, x),
    "as_strided neg": (lambda x, i: torch.as_strided(x, (2, ), (-1, ))+1, x, x),
    "as_strided_scatter": (lambda x, i: torch.as_strided_scatter(x, torch.zeros(4, 4), (4, 4), (4, 1)), x, x),
    "as_strided_scatter off": (lambda x, i: torch.as_strided_scatter(x, torch.zeros(2), (2, ), (1, ), 11), x, x),
    "as_strided_scatter shape": (lambda x, i: torch.as_strided_scatter(x, torch.zeros(3), (2, ), (1, ), 0), x, x),
    "select_scatter": (lambda x, i: torch.select_scatter(x, torch.zeros(4), 0, 3), x, x),
    "slice_scatter": (lambda x, i: torch.slice_scatter(x, torch.zeros(2, 4), 0, 0, 3), x, x),
    "diagonal_scatter": (lambda x, i: torch.diagonal_scatter(x, torch.zeros(4)), x, x),
    "masked_scatter few": (lambda x, m: x.masked_scatter(m, T([1.])), x, x>3),
    "masked_select shape": (lambda x, m: x.masked_select(m), x, T([True, False])),
    "setitem mask vals": (lambda x, m: x.clone().__setitem__(m, torch.ones(2)), x, x>3),
    "multinomial neg": (lambda x, i: torch.multinomial(x-5, 1), x, x),
    "multinomial zero": (lambda x, i: torch.multinomial(x*0, 1), x, x),
    "multinomial many": (lambda x, i: torch.multinomial(x+1, 9), x, x),
    "multinomial nan": (lambda x, i: torch.multinomial(x*float("nan"), 1), x, x),
    "bernoulli neg": (lambda x, i: torch.bernoulli(x-12), x, x),
    "poisson neg": (lambda x, i: torch.poisson(-x-1), x, x),
    "normal negstd": (lambda x, i: torch.normal(x, -x-1), x, x),
    "randperm neg": (lambda x, i: torch.randperm(-1), x, x),
    "randint empty": (lambda x, i: torch.randint(3, 3, (2, )), x, x),
    "repeat_interleave neg": (lambda x, i: torch.repeat_interleave(x, i, 0), x, li(1, 1, -1)),
    "repeat_interleave len": (lambda x, i: torch.repeat_interleave(x, i, 0), x, li(1, 1)),
    "cholesky_inverse": (lambda x, i: torch.cholesky_inverse(x[:, :3]), x, x),
    "searchsorted sorter": (lambda x, i: torch.searchsorted(x[0], x[1], sorter=i), x, li(0, 1, 2, 9)),
    "searchsorted dims": (lambda x, i: torch.searchsorted(x, x[:2]), x, x),
    "bucketize 2d": (lambda x, i: torch.bucketize(x, x), x, x),
    "histc": (lambda x, i: torch.histc(x, bins=3, min=2, max=1), x, x),
    "histc nan": (lambda x, i: torch.histc(x*float("nan"), bins=3), x, x),
    "cholesky": (lambda x, i: torch.linalg.cholesky(-torch.eye(3)*x[:, :3]-1), x, x),
    "inv": (lambda x, i: torch.linalg.inv(x[:, :3]*0), x, x),
    "solve": (lambda x, i: torch.linalg.solve(x[:, :3]*0, x), x, x),
    "eigh nan": (lambda x, i: torch.linalg.eigh(x[:, :3]*float("nan")), x, x),
    "svd nan": (lambda x, i: torch.linalg.svd(x*float("nan")), x, x),
    "int div 0": (lambda x, i: torch.div(i, i*0, rounding_mode="floor"), x, li(1, 2)),
    "int mod 0": (lambda x, i: i%(i*0), x, li(1, 2)),
    "int fmod 0": (lambda x, i: torch.fmod(i, i*0), x, li(1, 2)),
    "floordiv 0": (lambda x, i: i//0, x, li(1, 2)),
    "remainder 0": (lambda x, i: torch.remainder(i, 0), x, li(1, 2)),
    "int pow neg": (lambda x, i: torch.pow(i, -1), x, li(1, 2)),
    "max empty": (lambda x, i: x[:0].max(), x, x),
    "max empty dim": (lambda x, i: x[:0].max(0), x, x),
    "argmax empty": (lambda x, i: x[:0].argmax(), x, x),
    "kthvalue": (lambda x, i: x.kthvalue(9), x, x),
    "topk": (lambda x, i: x.topk(9), x, x),
    "quantile": (lambda x, q: torch.quantile(x, q), x, T([1.5])),
    "quantile neg": (lambda x, q: torch.quantile(x, -0.5), x, T([1.5])),
    "narrow": (lambda x, i: x.narrow(0, 2, 3), x, x),
    "narrow t": (lambda x, i: x.narrow(0, i, 3), x, T(2)),
    "select": (lambda x, i: x.select(0, 3), x, x),
    "unfold": (lambda x, i: x.unfold(0, 4, 1), x, x),
    "split": (lambda x, i: x.split([1, 1]), x, x),
    "tensor_split": (lambda x, i: x.tensor_split(0), x, x),
    "roll": (lambda x, i: x.roll(1, 5), x, x),
    "diag_embed": (lambda x, i: torch.diag_embed(x, 0, 0, 0), x, x),
    "ctc": (lambda x, i: F.ctc_loss(x[:, None, :], i, li(3), li(9)), x, T([[1, 2]])),
    "ctc label": (lambda x, i: F.ctc_loss(x[:, None, :], i, li(3), li(2)), x, T([[1, 99]])),
    "bce target": (lambda x, y: F.binary_cross_entropy(x/11, y), x, torch.full((3, 4), 1.5)),
    "ctc in": (lambda x, i: F.ctc_loss(x[:, None, :], i, li(9), li(1)), x, T([[1, 2]])),
    "max_unpool": (lambda x, i: F.max_unpool1d(x[:, :2], i, 2), x, T([[0, 9], [0, 1], [0, 1]])),
    "lu_unpack": (lambda x, i: torch.lu_unpack(x[:, :3], i.int()), x, li(9, 9, 9)),
    "householder": (lambda x, i: torch.linalg.householder_product(x.T, x[0]), x, x),
    "gather dims": (lambda x, i: torch.gather(x, 1, i), x, T([0])),
    "segment_reduce": (lambda x, i: torch.segment_reduce(x[0], "sum", lengths=i), x, li(9)),
    "dropout p": (lambda x, i: F.dropout(x, 1.5), x, x),
    "gaussian_nll": (lambda x, v: F.gaussian_nll_loss(x, x, v), x, -torch.ones(3, 4)),
    "rnn pack": (lambda x, l: torch.nn.utils.rnn.pack_padded_sequence(x[:, :, None], l, batch_first=True), x, li(4, 0, 1)),
    "mask where": (lambda x, m: torch.where(m, x, 1.0), x, T([True, False])),
    "view": (lambda x, i: x.view(5, -1), x, x),
    "expand": (lambda x, i: x.expand(2, 4), x, x),
    "im2col": (lambda x, i: F.unfold(x[None, None], 9), x, x),
    "col2im": (lambda x, i: F.fold(x[None], (9, 9), 2), x, x),
    "conv": (lambda x, i: F.conv1d(x[None], torch.ones(1, 3, 9)), x, x),
    "pad": (lambda x, i: F.pad(x[None], (9, 9), mode="reflect"), x, x),
    "interpolate": (lambda x, i: F.interpolate(x[None], size=0), x, x),
    "pool": (lambda x, i: F.max_pool1d(x[None], 9), x, x),
    "pixel": (lambda x, i: F.pixel_shuffle(x[None, :, None], 2), x, x),
    "cdist": (lambda x, i: torch.cdist(x, x[:, :2]), x, x),
    "logspace": (lambda x, i: torch.logspace(0, 1, -1), x, x),
    "arange": (lambda x, i: torch.arange(0, 1, 0), x, x),
    "eye": (lambda x, i: torch.eye(-1), x, x),
    "geometric": (lambda x, i: x.clone().geometric_(1.5), x, x),
    "exponential": (lambda x, i: x.clone().exponential_(-1.), x, x),
    "log_normal": (lambda x, i: x.clone().log_normal_(0, -1), x, x),
    "uniform": (lambda x, i: x.clone().uniform_(1, 0), x, x),
    "random": (lambda x, i: x.clone().random_(1, 1), x, x),
    "binomial": (lambda x, i: torch.binomial(x, x+1), x, x),
    "dirichlet": (lambda x, i: torch.distributions.Dirichlet(-x).sample(), x, x),
    "normal dist": (lambda x, i: torch.distributions.Normal(x, -x).log_prob(x), x, x),
    "cat dist": (lambda x, i: torch.distributions.Categorical(probs=-x-1).log_prob(i), x, li(0, 0, 0)),
}
NATIVE = ("cholesky", "cholesky_inverse", "gather hi", "gather lo", "scatter lo", "index_select lo", "one_hot hi", "bce lo", "cross_entropy lo", "embedding", "int mod 0", "multinomial neg")
"""With generated code."""


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        function(*args)
    except Exception as error:
        return type(error), str(error)
    return None


@pytest.mark.parametrize("name", CASES)
def test_refused_when_compiled(name: str) -> None:
    program, values, other = CASES[name]
    for needs_grad in (False, True):
        given = values.clone().requires_grad_(needs_grad)
        expected = outcome(program, given, other)
        assert expected is not None, "a case of something else"
        for settings in ({"backend": "aot_eager"}, {"backend": "aot_eager", "dynamic": True}, {"backend": "inductor", "fullgraph": True}):
            if settings["backend"] == "inductor" and (name not in NATIVE or needs_grad):
                continue
            got = outcome(dynamo.compile(program, **settings), given, other)
            assert got is not None, settings
            assert got[0] is expected[0], (settings, expected, got)


@pytest.mark.parametrize("name", CASES)
def test_refused_though_nobody_reads_it(name: str) -> None:
    """Steps that come to no result are dropped, but for what eager mode refuses."""
    program, values, other = CASES[name]

    def unread(x: Any, i: Any) -> Any:
        made = x + 1
        program(x, i)
        return made * 2

    for needs_grad in (False, True):
        given = values.clone().requires_grad_(needs_grad)
        expected = outcome(program, given, other)
        for backend in ("aot_eager", "inductor") if name in NATIVE and not needs_grad else ("aot_eager",):
            got = outcome(dynamo.compile(unread, backend=backend), given, other)
            assert got is not None and got[0] is expected[0], (backend, expected, got)


def test_what_fits_isnt_refused() -> None:
    """After an error, and from the start."""
    def program(p, i):
        return F.one_hot(i, 4).sum(-1) + F.binary_cross_entropy(p, p) + p.gather(1, i % 4) + i % i.clamp(min=1)

    compiled = dynamo.compile(program, backend="inductor", fullgraph=True)
    good, wrong = torch.full((2, 4), 0.5), torch.full((2, 4), 1.5)
    index = torch.tensor([[0, 1, 2, 3]] * 2).T[:2, :2].repeat(1, 2)
    assert compiled(good, index).equal(program(good, index))
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        compiled(wrong, index)
    with pytest.raises(RuntimeError, match="smaller than num_classes, got 4"):
        compiled(good, index + 3)
    assert compiled(good, index).equal(program(good, index))


def test_the_error_is_the_programs_own() -> None:
    """Its traceback has the program's line, and what was to happen before it has happened."""
    seen = []

    def program(values, i):
        seen.append(1)
        picked = values[i]      # here
        seen.append(2)
        return picked + 1

    compiled = dynamo.compile(program, backend="aot_eager")
    compiled(x, li(0))
    with pytest.raises(IndexError) as caught:
        compiled(x, li(5))
    assert "picked = values[i]" in str(caught.traceback[-2].statement) or any("here" in str(entry.statement) for entry in caught.traceback)
    assert seen == [1, 2, 1]


def test_a_graph_that_fails_alone_is_told() -> None:
    def backend(gm, examples):
        def run(*args):
            raise IndexError("of its own")

        return run

    compiled = dynamo.compile(lambda values: values + 1, backend=backend)
    with pytest.warns(UserWarning, match="raised IndexError: of its own, which the function as it is written did not"):
        assert compiled(torch.ones(1)).item() == 2


def test_a_programs_own_operator_runs_once() -> None:
    calls = []

    @torch.library.custom_op("refused::counted", mutates_args=())
    def counted(values: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if float(values.sum()) > 100:
            raise ValueError("too much")
        return values * 2

    counted.register_fake(lambda values: torch.empty_like(values))
    compiled = dynamo.compile(lambda values: counted(values) + 1, backend="aot_eager")
    with warnings.catch_warnings():
        compiled(torch.ones(2))
        calls.clear()
        with pytest.raises(ValueError, match="too much"):
            compiled(torch.full((2,), 100.0))
    assert calls == [1]
