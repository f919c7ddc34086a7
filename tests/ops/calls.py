"""Calls of the public operators as expressions, one or a few for each, which tests evaluate with tensors of every layout and dtype.

Names: `t` the library, `F` its functional; tensors x, y, z (3, 4), w (4,), s (), A, B (4, 4), S symmetric and positive, P positive
(3, 4), U in (0, 1), X (2, 3, 4), Y (2, 4, 3), I an image (2, 4, 6, 6), J (2, 4, 8), V (2, 4, 4, 4, 4); of integers i, j (3, 4), k (4,)
indices below 3, r (3,); of bools b, c (3, 4).
"""

from __future__ import annotations

from typing import Any

import numpy as np


def _words(text: str) -> list[str]:
    return text.split()


UNARY = _words("""
abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac lgamma log
log10 log1p log2 logit neg positive rad2deg reciprocal relu round rsqrt sigmoid sign sgn sin sinc sinh sqrt square tan
tanh trunc i0 nan_to_num isnan isinf isfinite isposinf isneginf signbit logical_not angle conj conj_physical
resolve_conj resolve_neg real fix special.erfcx special.i0e special.i1 special.i1e special.log_ndtr special.ndtr
special.ndtri special.entr special.psi special.bessel_j0 special.bessel_j1
""")
BINARY = _words("""
add sub mul div true_divide floor_divide remainder fmod pow float_power atan2 maximum minimum fmax fmin hypot copysign
nextafter logaddexp logaddexp2 eq ne lt le gt ge logical_and logical_or logical_xor xlogy heaviside ldexp rsub isclose
dist special.xlog1py
""")
INTEGERS = _words("bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm")
REDUCTIONS = _words("""
sum mean prod amax amin nansum nanmean var std logsumexp all any norm argmax argmin count_nonzero median nanmedian mode
aminmax max min var_mean std_mean
""")
ACTIVATIONS = _words("""
elu selu celu gelu silu mish softplus softsign tanhshrink hardtanh hardswish hardsigmoid hardshrink softshrink
leaky_relu relu6 logsigmoid rrelu threshold
""")
LOSSES = _words("""
mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss kl_div poisson_nll_loss
""")

CALLS = [
    *(f"t.{name}(x)" for name in UNARY),
    *(f"t.{name}(x, y)" for name in BINARY),
    *(f"t.{name}(x, 2)" for name in _words("add sub mul div floor_divide remainder pow eq lt rsub fmod true_divide float_power")),
    *(f"t.{name}(x, w)" for name in _words("add mul div maximum pow eq")),
    *(f"t.{name}(x, s)" for name in _words("add mul div sub eq pow")),
    *(f"t.{name}(i, j)" for name in INTEGERS), "t.bitwise_not(i)",
    *(f"t.{name}(x{args})" for name in REDUCTIONS if name not in ("aminmax", "mode", "logsumexp", "norm") for args in ("", ", 0",
    ", 1")
      if not (name in ("amax",) and args == "")),
    *(f"t.{name}(X, 1, keepdim=True)" for name in _words("sum mean amax argmax var logsumexp all median")),
    "t.logsumexp(x, 1)", "t.norm(x)", "t.norm(x, dim=1)", "t.mode(x, 1)", "t.aminmax(x)", "t.aminmax(x, dim=1)",
    "t.quantile(x, 0.3)",
    "t.quantile(x, 0.3, dim=0)", "t.nanquantile(x, U[0], dim=1)", "t.kthvalue(x, 2, 1)", "t.topk(x, 2)", "t.topk(x, 2, dim=0)",
    "t.sort(x)",
    "t.sort(x, 0)", "t.argsort(x, 0)", "t.msort(x)", "t.cumsum(x, 0)", "t.cumsum(x, 1)", "t.cumprod(x, 1)", "t.cummax(x, 0)",
    "t.cummin(x, 1)", "t.logcumsumexp(x, 1)", "t.diff(x)", "t.diff(x, n=0)", "t.diff(x, dim=0)", "t.trapezoid(x)",
    "t.cumulative_trapezoid(x)", "t.bincount(k)", "t.histc(x, 4)", "t.unique(i)", "t.unique_consecutive(i)", "t.searchsorted(w, x)",
    "t.bucketize(x, w)", "t.cov(x)", "t.corrcoef(x)", "t.cov(w)", "t.renorm(x, 2, 0, 1.0)", "t.std(x, dim=(0, 1))",
    # three operands
    "t.addcmul(x, y, z)", "t.addcdiv(x, y, P)", "t.lerp(x, y, 0.3)", "t.lerp(x, y, U)", "t.where(b, x, y)", "t.where(b, x, 0.0)",
    "t.clamp(x, -1, 1)", "t.clamp(x, min=y)", "t.clip(x, y, z)", "x.clamp_min(0)", "x.clamp_max(w)", "t.addcmul(x, y, w)",
    # filling, indexing
    "t.masked_fill(x, b, 2)", "t.masked_select(x, b)", "t.masked_scatter(x, b, y)", "t.index_select(x, 1, k)", "t.gather(x, 0, i)",
    "t.take_along_dim(x, i, 0)", "t.scatter(x, 0, i, y)", "t.scatter(x, 0, i, 2)", "t.scatter_add(x, 0, i, y)",
    "t.scatter_reduce(x, 0, i, y, 'amax')", "t.index_add(x, 0, r, y)", "t.index_copy(x, 0, r, y)", "t.index_fill(x, 0, r, 2)",
    "t.index_put(x, (r,), y)", "t.take(x, i)", "t.put(x, k, w)", "t.nonzero(x)", "t.argwhere(x)", "x[r]", "x[:, k]", "x[r, r]",
    "x[b]",
    "x[None, ..., 0]", "x[1:]", "t.select_scatter(x, w, 0, 1)", "t.slice_scatter(x, y[:1], 0, 0, 1)", "t.diagonal_scatter(A, w)",
    "t.index_reduce(x, 0, r, y, 'prod')", "t.tril(x)", "t.triu(X)", "t.diag(x)", "t.diag(w)", "t.diag_embed(x)", "t.diagflat(w)",
    "t.trace(A)",
    # views and their kin
    "x.view(4, 3)", "x.view(-1)", "x.reshape(2, 6)", "x.reshape(3, 4)", "t.reshape(X, (6, 4))", "t.flatten(X)", "t.flatten(w)",
    "t.flatten(X, 1, 1)", "t.ravel(x)", "t.squeeze(x[None])", "t.squeeze(x)", "t.unsqueeze(x, 1)", "t.permute(X, (2, 0, 1))",
    "t.permute(X, (0, 1, 2))", "t.transpose(x, 0, 1)", "t.transpose(x, 0, 0)", "x.t()", "x.T", "X.mT", "A.H", "t.movedim(X, 0, 2)",
    "t.swapaxes(x, 0, 1)", "t.expand_copy(w, (3, 4))", "w.expand(3, 4)", "x.expand(3, 4)", "x.expand_as(y)",
    "t.broadcast_to(w, (3, 4))",
    "t.broadcast_tensors(x, w)", "t.narrow(x, 1, 0, 4)", "t.select(x, 0, 1)", "t.split(x, 2)", "t.chunk(x, 1)", "t.unbind(x)",
    "t.tensor_split(x, 2)", "t.hsplit(x, 2)", "t.vsplit(x, 3)", "t.diagonal(x)", "x.unfold(1, 2, 1)", "s.unfold(0, 1, 1)",
    "t.atleast_1d(x)",
    "t.atleast_2d(w)", "t.atleast_3d(X)", "t.view_as_complex(Q)", "x.view_as(y)", "x.view(x.dtype)", "x.as_strided((2, 2), (1, 1))",
    "t.unflatten(x, 1, (2, 2))", "x.unflatten(1, (4,))", "t.block_diag(x, y)", "x.detach()",
    "x.alias() if hasattr(x, 'alias') else x[:]",
    "x.data", "x.swapdims(0, 1)", "t.adjoint(A)", "t.matrix_power(A, 1)", "t.matrix_power(A, 0)", "t.matrix_power(A, 3)",
    # copies and conversions
    "x.clone()", "x.contiguous()", "x.to(x.dtype)", "x.to(t.float64)", "x.float()", "x.double()", "x.half()", "x.long()",
    "x.bool()",
    "x.to(x.dtype, copy=True)", "x.type_as(y)", "x.cpu()", "t.zeros_like(x)", "t.ones_like(x)", "t.full_like(x, 2)",
    "t.empty_like(x)",
    "t.rand_like(x)", "t.zeros_like(x, dtype=t.float64)", "t.zeros_like(x, memory_format=t.contiguous_format)", "x.new_zeros(3, 4)",
    "x.new_empty((2,))", "x.clone(memory_format=t.contiguous_format)", "t.as_tensor(x)", "t.asarray(x)", "t.bernoulli(U)",
    "t.complex(x, y)", "t.polar(P, x)", "t.empty_permuted((2, 3), (1, 0))", "t.cat((x, y))", "t.cat((x, y), 1)", "t.cat((x,))",
    "t.stack((x, y))",
    "t.hstack((x, y))", "t.vstack((x, y))", "t.dstack((x, y))", "t.column_stack((x, y))", "t.cartesian_prod(w, w)",
    "t.cartesian_prod(w)",
    "t.combinations(w)", "t.meshgrid(w, w, indexing='ij')", "t.flip(x, (0,))", "t.flip(x, ())", "t.fliplr(x)", "t.flipud(x)",
    "t.roll(x, 1, 0)",
    "t.roll(x, 0, 0)", "t.roll(x, 3)", "t.roll(x, (0,), (1,))", "t.rot90(x)", "t.rot90(x, 4)", "t.rot90(x, 2)", "t.tile(x, (1,))",
    "t.tile(x, (2, 1))", "x.repeat(1, 1)", "x.repeat(2, 1)", "t.repeat_interleave(x, 2)", "t.repeat_interleave(x, 1, dim=0)",
    "t.constant_pad_nd(x, (0, 0))", "t.constant_pad_nd(x, (1, 1))", "t.vander(w)", "t.ldexp(x, k)", "t.clone(X)",
    # products
    "t.mm(A, B)", "t.matmul(x, A)", "t.matmul(X, Y)", "t.bmm(X, Y)", "t.mv(x, w)", "t.dot(w, w)", "t.vdot(w, w)", "t.inner(x, y)",
    "t.outer(w, w)", "t.ger(w, w)", "t.addmm(A, A, B)", "t.addmm(w, x, B)", "t.addmv(w, A, w)", "t.addr(A, w, w)",
    "t.baddbmm(X @ Y, X, Y)",
    "t.addbmm(X[0] @ Y[0], X, Y)", "t.chain_matmul(A, B, A)", "t.linalg.multi_dot((A, B, A))", "t.kron(x, y)",
    "t.tensordot(x, y, 2)",
    "t.tensordot(x, A, 1)", "t.einsum('ij,jk->ik', x, A)", "t.einsum('ij->ji', x)", "t.einsum('ij->ij', x)",
    "t.cross(x[:, :3], y[:, :3])",
    "t.linalg.cross(x[:, :3], y[:, :3])", "t.cdist(x, y)", "t.linalg.vecdot(x, y)", "t.cosine_similarity(x, y)",
    "t.pairwise_distance(x, y)", "F.linear(x, A)", "F.linear(x, A, w)", "F.bilinear(x, y, A[None], w[:1])",
    # linear algebra
    "t.linalg.inv(S)", "t.linalg.det(S)", "t.linalg.slogdet(S)", "t.linalg.cholesky(S)", "t.linalg.qr(x)", "t.linalg.svd(x)",
    "t.linalg.svdvals(x)",
    "t.linalg.eigh(S)", "t.linalg.eigvalsh(S)", "t.linalg.solve(S, A)", "t.linalg.lstsq(S, A)", "t.linalg.lu(S)",
    "t.linalg.lu_factor(S)",
    "t.linalg.pinv(x)", "t.linalg.matrix_norm(x)", "t.linalg.vector_norm(x, dim=1)", "t.linalg.norm(x)", "t.linalg.matrix_exp(A)",
    "t.linalg.matrix_rank(S)", "t.linalg.cond(S)", "t.linalg.solve_triangular(S, A, upper=True)", "t.cholesky_solve(A, S)",
    "t.cholesky_inverse(S)", "t.linalg.vander(w)", "t.linalg.diagonal(x)", "t.logdet(S)", "t.linalg.eig(S)", "t.linalg.eigvals(S)",
    "t.linalg.householder_product(A, w)", "t.linalg.tensorinv(S, ind=1)", "t.linalg.ldl_factor(S)", "t.geqrf(x)",
    # Fourier
    "t.fft.fft(x)", "t.fft.ifft(x)", "t.fft.rfft(x)", "t.fft.irfft(x)", "t.fft.fft2(X)", "t.fft.fftn(x)", "t.fft.fftshift(x)",
    "t.fft.ifftshift(x)", "t.fft.hfft(x)",
    # activations, norms
    *(f"F.{name}(x)" for name in ACTIVATIONS if name != "threshold"), "F.threshold(x, 0.1, 20)", "F.prelu(x, w)", "F.glu(x)",
    "F.glu(x, 1)",
    "F.softmax(x, 1)", "F.softmax(I, 1)", "F.log_softmax(I, 1)", "F.softmax(X, 0)", "F.softmin(x, 1)",
    "t.softmax(x, 0, dtype=t.float64)",
    "F.normalize(x)", "F.layer_norm(x, (4,))", "F.layer_norm(x, (4,), w, w)", "F.layer_norm(I, (6, 6))", "F.rms_norm(x, (4,))",
    "F.rms_norm(I, (6,))", "F.group_norm(I, 2)", "F.group_norm(I, 2, w, w)", "F.instance_norm(I)", "F.batch_norm(I, w, P[0])",
    "F.batch_norm(I, None, None, w, w, training=True)", "F.batch_norm(x, w, P[0])", "F.batch_norm(J, None, None, training=True)",
    "F.local_response_norm(I, 2)", "F.dropout(x, 0.5)", "F.dropout(I, 0.5)", "F.dropout(I, 0.0)",
    "F.dropout(x, 0.5, training=False)",
    "F.dropout2d(I, 0.5)", "F.alpha_dropout(I, 0.5)", "F.feature_alpha_dropout(I, 0.5)", "F.gumbel_softmax(x)",
    # windows
    "F.conv1d(J, J[:, :, :3])", "F.conv2d(I, I[:, :, :3, :3])", "F.conv2d(I, I[:, :, :3, :3], w[:2], padding=1)",
    "F.conv3d(V, V[:, :, :2, :2, :2])",
    "F.conv_transpose1d(J, A[:, :, None])", "F.conv_transpose2d(I, A[:, :, None, None])", "F.max_pool1d(J, 2)",
    "F.max_pool2d(I, 2)",
    "F.max_pool2d(I, 2, return_indices=True)", "F.max_pool3d(V, 2)", "F.avg_pool1d(J, 2)", "F.avg_pool2d(I, 2)",
    "F.avg_pool3d(V, 2)",
    "F.adaptive_avg_pool1d(J, 3)", "F.adaptive_avg_pool2d(I, 3)", "F.adaptive_avg_pool2d(I, 1)", "F.adaptive_avg_pool2d(I, 6)",
    "F.adaptive_avg_pool3d(V, 2)", "F.adaptive_max_pool1d(J, 3)", "F.adaptive_max_pool2d(I, 3)", "F.adaptive_max_pool3d(V, 2)",
    "F.lp_pool2d(I, 2, 2)",
    "F.max_unpool2d(*F.max_pool2d(I, 2, return_indices=True), 2)", "F.unfold(I, 2)", "F.fold(F.unfold(I, 2), (6, 6), 2)",
    "F.interpolate(I, scale_factor=2)", "F.interpolate(I, (5, 5), mode='bilinear')", "F.interpolate(I, (5, 5), mode='bicubic')",
    "F.interpolate(I, (3, 3), mode='area')", "F.interpolate(J, 5, mode='linear')", "F.interpolate(V, 2, mode='trilinear')",
    "F.interpolate(I, (6, 6))", "F.pixel_shuffle(I, 2)", "F.pixel_shuffle(I, 1)", "F.pixel_unshuffle(I, 2)",
    "F.pixel_unshuffle(I, 1)",
    "F.channel_shuffle(I, 2)", "F.channel_shuffle(I, 1)", "F.pad(I, (1, 1, 1, 1))", "F.pad(I, (0, 0))",
    "F.pad(I, (1, 1, 1, 1), mode='reflect')",
    "F.pad(I, (1, 1, 1, 1), mode='replicate')", "F.pad(I, (1, 1, 1, 1), mode='circular')", "F.pad(J, (1, 1), mode='reflect')",
    "F.grid_sample(I, X[:, :3, :2][:, None].expand(2, 3, 3, 2), align_corners=False)", "F.affine_grid(X[:, :2, :3], (2, 1, 4, 4), False)",
    "t.native_channel_shuffle(I, 2)",
    # losses
    *(f"F.{name}(x, {'U' if name == 'kl_div' else 'y'})" for name in LOSSES), *(f"F.{name}(x, y, reduction='none')" for name in
    LOSSES),
    "F.binary_cross_entropy(U, U)", "F.binary_cross_entropy(U, U, reduction='none')", "F.binary_cross_entropy_with_logits(x, U)",
    "F.binary_cross_entropy_with_logits(x, U, reduction='none')", "F.cross_entropy(x, r)",
    "F.cross_entropy(x, r, reduction='none')",
    "F.cross_entropy(x, U)", "F.cross_entropy(I, k[:2, None, None].expand(2, 6, 6), reduction='none')", "F.nll_loss(x, r)",
    "F.nll_loss(x, r, reduction='none')", "F.gaussian_nll_loss(x, y, P)", "F.hinge_embedding_loss(x, y)",
    "F.margin_ranking_loss(x, y, z)",
    "F.cosine_embedding_loss(x, y, w[:3])", "F.triplet_margin_loss(x, y, z)", "F.multi_margin_loss(x, r)",
    "F.multilabel_soft_margin_loss(x, y)",
    "F.smooth_l1_loss(x, y, beta=0.5)",
    # others
    "F.embedding(i, x)", "F.embedding_bag(i, x)", "F.embedding_bag(i, x, mode='max')", "F.one_hot(i, 3)",
    "F.scaled_dot_product_attention(X, X, X)", "F.scaled_dot_product_attention(I, I, I, is_causal=True)", "F.pdist(x)",
    "t.multinomial(P, 2)", "t.normal(x, P)", "t.poisson(P)", "t.heaviside(x, y)", "t.gradient(x)",
    "t.stft(J[0], 4, return_complex=True, window=w)", "t.dequantize(x) if False else x + 0", "t.is_nonzero(s)", "t.numel(x)",
    "t.polygamma(1, P)", "t.mvlgamma(P + 2, 2)", "t.special.zeta(P + 2, P)", "t.gammainc(P, P) if hasattr(t, 'gammainc') else P",
    "t.igamma(P, P)", "t.igammac(P, P)", "t.frexp(x)", "t.special.multigammaln(P + 2, 2)", "t.count_nonzero(x, 1)",
    "t.nan_to_num(x, 0.0)",
    "t.allclose(x, y)", "t.equal(x, y)", "t.isin(i, j)", "t.result_type(x, 1)", "t.can_cast(x.dtype, t.float64)", "t.isreal(x)",
    "t.round(x, decimals=1)", "t.div(x, y, rounding_mode='floor')", "t.div(x, y, rounding_mode='trunc')", "t.add(x, y, alpha=2)",
    "t.sub(x, y, alpha=2)", "t.sum(x, dtype=t.float64)", "t.cumsum(x, 0, dtype=t.float64)", "t.prod(x, 1, dtype=t.float64)",
    "t.mean(x, 0, dtype=t.float64)",
]

ARRAYS_OF_INTEGERS = "ijkr"


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """The tensors' values, by name."""
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {name: rng.standard_normal((3, 4)) for name in "xyz"}
    made |= {"w": rng.standard_normal(4), "s": rng.standard_normal(()), "A": rng.standard_normal((4, 4)), "B":
    rng.standard_normal((4, 4)),
             "P": rng.uniform(0.5, 2, (3, 4)), "U": rng.uniform(0.1, 0.9, (3, 4)), "X": rng.standard_normal((2, 3, 4)),
             "Y": rng.standard_normal((2, 4, 3)), "I": rng.standard_normal((2, 4, 6, 6)), "J": rng.standard_normal((2, 4, 8)),
             "V": rng.standard_normal((2, 4, 4, 4, 4)), "Q": rng.standard_normal((3, 2))}
    made["S"] = made["A"] @ made["A"].T + 4 * np.eye(4)
    made |= {name: rng.integers(0, 3, (3, 4)) for name in "ij"}
    made |= {"k": np.array([0, 2, 1, 0]), "r": np.array([0, 2, 1])}
    return made | {name: rng.random((3, 4)) > 0.5 for name in "bc"}


def names_in(call: str) -> list[str]:
    """The tensors that an expression reads."""
    used = compile(call, "call", "eval").co_names
    return [name for name in used if len(name) == 1 and name not in "tF"]


def evaluate(lib: Any, call: str, tensors: dict[str, Any]) -> Any:
    """The value of the expression with a library and tensors of it."""
    return eval(call, {"t": lib, "F": lib.nn.functional, "hasattr": hasattr, **tensors})
