"""Operators whose arguments depend on one another: for each, drawers by parameter name that stand before the general ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .draw import Draw, dtype_name
from .inputs import FLOATS
from .parameters import Drawer, boolean, index_along, index_vector, matrix, one_of, positive, small, source_along, source_for_index, unit
from .program import Ref, Word

Fields = dict[str, Drawer]


# -- first tensors
def of_rank(low: int, high: int | None = None, least: int = 0, reuse: float = 0.6) -> Drawer:
    """A tensor of so many dimensions whose sizes are at least `least`."""
    high = low if high is None else high

    def draw(d: Draw) -> Ref:
        fits = lambda t: low <= t.ndim <= high and all(n >= least for n in t.shape)
        return d.tensor(fits, lambda: d.fresh([max(least, d.size()) for _ in range(d.int(low, high))]), reuse)

    return draw


def image(spatial: int, least: int = 3) -> Drawer:
    """A batch (or one) of channels over so many spatial dimensions."""

    def draw(d: Draw) -> Ref:
        n = spatial + (2 if d.chance(0.8) else 1)
        fits = lambda t: t.ndim == n and all(s >= least for s in t.shape[-spatial:]) and t.is_floating_point()

        def fresh() -> Ref:
            lead = [d.choice([1, 2, 2, 0] if d.chance(0.2) else [1, 2])] * (n - spatial - 1) + [d.choice([2, 4])]
            return d.fresh(lead + [d.int(least, 6) for _ in range(spatial)], _float(d), plain=0.5)

        return d.tensor(fits, fresh, 0.5)

    return draw


def _float(d: Draw) -> str:
    return d.dtype if d.dtype in FLOATS else d.choice(["float32", "float32", "float64", "bfloat16", "float16"])


def floating(d: Draw) -> Ref:
    return d.tensor(
        lambda t: t.is_floating_point() if hasattr(t, "is_floating_point") else "float" in t.dtype,
        lambda: d.fresh(d.shape(), _float(d)),
    )


def probability(d: Draw) -> Ref:
    return d.fresh(d.shape(), _float(d), "unit")


def integral(d: Draw) -> Ref:
    return d.fresh(d.shape(), d.choice(["int64", "int32", "uint8", "int8"]), "unit")


# -- tensors that follow from the first
def sized(*dims: Callable[[Draw], Any], dtype: str | None = None) -> Drawer:
    return lambda d: d.fresh([dim(d) for dim in dims], dtype)


def last(d: Draw) -> int:
    return d.it.shape[-1] if d.it.ndim else 1


def right_factor(d: Draw) -> Ref:
    """What can stand right of the first in a matmul."""
    n, k = d.it.ndim, last(d)
    if d.chance(0.2) or n == 0:
        return d.fresh((k,))
    batch = tuple(1 if d.chance(0.2) else s for s in d.it.shape[:-2]) if n > 2 and d.chance(0.7) else ()
    return d.fresh((*batch, k, d.size()))


def batch1(d: Draw) -> Ref:
    d.args["inner"] = d.size()
    n = d.it.shape[-2] if d.it.ndim > 1 else d.size()
    return d.fresh((d.it.shape[0] if d.it.ndim == 3 else 2, n, d.args["inner"]))


def batch2(d: Draw) -> Ref:
    left = d.value(d.args["batch1"])
    return d.fresh((left.shape[0], left.shape[2], last(d)))


def mat1(d: Draw) -> Ref:
    return d.fresh((d.it.shape[0] if d.it.ndim == 2 else d.size(), d.size()))


def mat2(d: Draw) -> Ref:
    return d.fresh((d.value(d.args["mat1"]).shape[1], last(d)))


# -- layers
def conv(spatial: int, transposed: bool = False) -> Fields:
    def weight(d: Draw) -> Ref:
        channels = d.it.shape[-spatial - 1]
        groups = d.args["groups_"] = d.choice([1, 1, 2]) if channels % 2 == 0 and channels else 1
        kernel = [d.int(1, 3) for _ in range(spatial)]
        out = d.choice([2, 4])
        return d.fresh(((channels, out) if transposed else (out, channels // groups)) + tuple(kernel))

    def bias(d: Draw) -> Any:
        w = d.value(d.args["weight"])
        return d.fresh((w.shape[1] * d.args["groups_"] if transposed else w.shape[0],)) if d.chance(0.7) else None

    return dict(
        input=image(spatial),
        weight=weight,
        bias=bias,
        groups=lambda d: d.args["groups_"],
        stride=_each(spatial, 1, 2),
        padding=(
            _each(spatial, 0, 2)
            if transposed
            else lambda d: d.choice(["same", "valid"]) if d.chance(0.1) else _each(spatial, 0, 2)(d)
        ),
        dilation=_each(spatial, 1, 2),
        output_padding=_each(spatial, 0, 1),
    )


def _each(spatial: int, low: int, high: int) -> Drawer:
    return lambda d: d.int(low, high) if d.chance(0.6) else tuple(d.int(low, high) for _ in range(spatial))


def pool(spatial: int) -> Fields:
    return dict(
        input=image(spatial),
        kernel_size=_each(spatial, 1, 3),
        stride=_each(spatial, 1, 3),
        padding=_each(spatial, 0, 1),
        dilation=_each(spatial, 1, 2),
        output_size=_each(spatial, 1, 4),
        norm_type=one_of(1.0, 2.0, 3.0),
        divisor_override=small(1, 3),
    )


def channels(dtype: str | None = None, kind: str | None = None) -> Drawer:
    return lambda d: d.fresh((d.it.shape[1] if d.it.ndim > 1 else 1,), dtype, kind) if d.chance(0.7) else None


def normalized(d: Draw) -> Any:
    shape = d.args["normalized_shape"]
    return d.fresh(shape) if d.chance(0.7) else None


NORM = dict(
    input=of_rank(2, 4, 1),
    weight=channels(),
    bias=channels(),
    running_mean=lambda d: d.fresh(d.it.shape[1:2]),
    running_var=lambda d: d.fresh(d.it.shape[1:2], None, "unit"),
    training=boolean,
    use_input_stats=boolean,
    momentum=one_of(0.1, 0.5),
    num_groups=lambda d: d.choice([g for g in (1, 2, 4) if d.it.shape[1] % g == 0]),
)
LAYER_NORM = dict(input=of_rank(1, 4), weight=normalized, bias=normalized)


# -- losses
def logits(d: Draw) -> Ref:
    return d.tensor(
        lambda t: t.ndim >= 1 and t.is_floating_point() and t.numel(),
        lambda: d.fresh([d.int(1, 4) for _ in range(d.int(1, 3))], _float(d)),
    )


def classes(d: Draw) -> Ref:
    n = d.it.shape[1] if d.it.ndim > 1 else d.it.shape[0]
    return d.indices((d.it.shape[:1] + d.it.shape[2:]) if d.it.ndim > 1 else (), n)


def class_weights(d: Draw) -> Any:
    return d.fresh((d.it.shape[1] if d.it.ndim > 1 else d.it.shape[0],), None, "unit") if d.chance(0.5) else None


def signs(d: Draw) -> Ref:
    return d.fresh(d.it.shape, None, "whole")


CLASS_LOSS = dict(
    input=logits,
    target=classes,
    weight=class_weights,
    ignore_index=one_of(-100, 0, 1),
    label_smoothing=one_of(0.0, 0.1),
    p=one_of(1, 2),
)
PAIR_LOSS = dict(input=floating, target=lambda d: d.like(), weight=lambda d: d.like(kind="unit"))
SIGN_LOSS = dict(input1=floating, input=floating, input2=lambda d: d.like(), target=signs)


# -- indexing
INDEX = dict(
    input=of_rank(0, 3, 1),
    self=of_rank(0, 3, 1),
    index=index_vector,
    source=source_along,
    src=source_along,
    reduce=one_of("prod", "mean", "amax", "amin"),
    value=lambda d: d.number(),
)
SCATTER = dict(input=of_rank(0, 3, 1), self=of_rank(0, 3, 1), index=index_along, src=source_for_index)
TAKE = dict(index=lambda d: d.indices(d.shape(), max(1, d.it.numel()), negative=True), source=source_for_index)


def subscripts(d: Draw) -> list:
    count = d.int(1, max(1, min(3, d.it.ndim)))
    shape = (d.int(0, 3),)
    return [d.indices(shape if d.chance(0.8) else (), d.it.shape[i] if i < d.it.ndim else 1) for i in range(count)]


def select_source(d: Draw) -> Ref:
    shape = list(d.it.shape)
    del shape[d.args.get("dim", 0)]
    return d.fresh(shape)


def position(d: Draw) -> int:
    n = d.it.shape[d.args.get("dim", 0)] if d.it.ndim else 1
    return d.int(-n, max(-n, n - 1))


def narrow_start(d: Draw) -> int:
    n = d.it.shape[d.args.get("dim", 0)] if d.it.ndim else 0
    return d.int(0, n)


def narrow_length(d: Draw) -> int:
    n = d.it.shape[d.args.get("dim", 0)] if d.it.ndim else 0
    return max(0, n - d.args["start"] - d.int(0, 1)) if d.args["start"] >= 0 else d.int(0, 1)


def splits(d: Draw) -> list[int]:
    n = d.it.shape[0] if d.it.ndim else 1
    cut = d.int(0, n)
    return [cut, n - cut]


def padding(d: Draw) -> list[int]:
    low = -1 if d.chance(0.2) else 0
    count = 2 * d.int(1, max(1, min(3, d.it.ndim)))
    return [d.int(low, 2) for _ in range(count)]


def unfolded(d: Draw) -> tuple[int, ...]:
    n = d.it.shape[d.args.get("dim", 0)] if d.it.ndim else 1
    factors = [f for f in range(1, n + 1) if n % f == 0] or [1]
    f = d.choice(factors)
    return (f, -1) if d.chance(0.4) else (f, n // f)


def reachable(d: Draw) -> tuple[int, ...]:
    return tuple(d.int(1, 2) for _ in range(d.int(0, 3)))


def few_strides(d: Draw) -> tuple[int, ...]:
    return tuple(d.int(0, 1) for _ in d.args["size"])


def tallness(d: Draw) -> Ref:
    return d.fresh((*(() if d.chance(0.7) else (2,)), d.int(1, 4), d.int(1, 4)), d.choice(["float32", "float64", "complex64"]))


def right_side(d: Draw) -> Ref:
    return d.fresh((*d.it.shape[:-1], d.int(1, 3)))


def triangular(d: Draw) -> Ref:
    return d.fresh(d.it.shape)


EMBED = dict(
    input=lambda d: d.indices(d.shape(0, 3), 5),
    weight=lambda d: d.fresh((5, d.size()), _float(d)),
    padding_idx=one_of(None, 1, -1),
    max_norm=one_of(None),
    norm_type=one_of(2.0),
    scale_grad_by_freq=boolean,
    sparse=one_of(False),
)


def _each_of(names: list[str], fields: Fields) -> dict[str, Fields]:
    """The same drawers for several operators."""
    return dict.fromkeys(names, fields)


SPECIAL: dict[str, Fields] = {
    "mm": dict(input=of_rank(2), mat2=right_factor),
    "bmm": dict(input=of_rank(3), mat2=lambda d: d.fresh((d.it.shape[0], last(d), d.size()))),
    "matmul": dict(input=of_rank(1, 4), other=right_factor),
    "mv": dict(input=of_rank(2), vec=sized(last)),
    **_each_of(["dot", "vdot", "inner"], dict(tensor=of_rank(1), input=of_rank(1), other=lambda d: d.like())),
    **_each_of(["outer", "ger"], dict(input=of_rank(1), vec2=sized(lambda d: d.size()))),
    "addmm": dict(input=of_rank(1, 2), mat1=mat1, mat2=mat2),
    "addmv": dict(input=of_rank(1), mat=sized(last, lambda d: d.size()), vec=lambda d: d.fresh(d.value(d.args["mat"]).shape[1:])),
    "addr": dict(input=of_rank(2), vec1=sized(lambda d: d.it.shape[0]), vec2=sized(last)),
    **_each_of(["baddbmm", "addbmm"], dict(input=of_rank(2, 3), batch1=batch1, batch2=batch2)),
    "linear": dict(
        input=of_rank(1, 3), weight=sized(lambda d: d.size(), last), bias=lambda d: d.fresh(d.value(d.args["weight"]).shape[:1])
    ),
    "kron": dict(input=of_rank(0, 2), other=lambda d: d.like()),
    "cross": dict(input=lambda d: d.fresh((2, 3)), other=lambda d: d.like(), dim=one_of(-1, 1)),
    "tensordot": dict(a=of_rank(2, 3), b=lambda d: d.fresh((last(d), d.size())), dims=one_of(0, 1)),
    "cdist": dict(x1=of_rank(2, 3), x2=lambda d: d.like()),
    "bilinear": dict(
        input1=of_rank(2), input2=lambda d: d.like(), weight=sized(lambda d: d.size(), last, last), bias=lambda d: None
    ),
    **{f"conv{n}d": conv(n) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": conv(n, True) for n in (1, 2, 3)},
    **{f"{kind}_pool{n}d": pool(n) for n in (1, 2, 3) for kind in ("avg", "max", "adaptive_avg", "adaptive_max", "lp")},
    **_each_of(["batch_norm", "instance_norm", "group_norm"], NORM),
    **_each_of(["layer_norm", "rms_norm"], LAYER_NORM),
    "local_response_norm": dict(input=of_rank(3, 4, 1), size=small(1, 3), alpha=one_of(0.1), beta=one_of(0.75), k=one_of(1.0)),
    "prelu": dict(input=of_rank(2, 4), weight=sized(lambda d: d.it.shape[1])),
    **_each_of(["cross_entropy", "nll_loss", "multi_margin_loss"], CLASS_LOSS),
    **_each_of(
        ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "poisson_nll_loss", "kl_div"],
        {**PAIR_LOSS, "beta": positive, "delta": positive},
    ),
    "gaussian_nll_loss": {**PAIR_LOSS, "var": unit},
    "multilabel_soft_margin_loss": dict(input=of_rank(2), target=unit),
    **_each_of(["binary_cross_entropy"], {**PAIR_LOSS, "input": probability, "target": unit}),
    "binary_cross_entropy_with_logits": {**PAIR_LOSS, "target": unit, "pos_weight": lambda d: d.like(kind="unit")},
    **_each_of(["margin_ranking_loss", "hinge_embedding_loss"], SIGN_LOSS),
    "cosine_embedding_loss": {**SIGN_LOSS, "input1": of_rank(2), "target": lambda d: d.fresh(d.it.shape[:1], None, "whole")},
    "triplet_margin_loss": dict(anchor=of_rank(2), positive=lambda d: d.like(), negative=lambda d: d.like()),
    **_each_of(["index_select", "index_add", "index_copy", "index_fill", "index_reduce"], INDEX),
    **_each_of(["gather", "scatter", "scatter_add", "scatter_reduce"], SCATTER),
    **_each_of(["take", "put"], TAKE),
    "take_along_dim": dict(input=of_rank(1, 3, 1), indices=index_along),
    "index_put": dict(input=of_rank(1, 3, 1), self=of_rank(1, 3, 1), indices=subscripts, values=lambda d: d.fresh(())),
    "select": dict(input=of_rank(1, 4, 1), index=position),
    "select_scatter": dict(input=of_rank(1, 4, 1), src=select_source, index=position),
    "slice_scatter": dict(
        input=of_rank(1, 4, 1), src=lambda d: d.like(), step=lambda d: 1, start=lambda d: None, end=lambda d: None
    ),
    "diagonal_scatter": dict(input=of_rank(2), src=lambda d: d.fresh(d.it.diagonal().shape), offset=lambda d: 0),
    **_each_of(["narrow", "narrow_copy"], dict(input=of_rank(1, 4), start=narrow_start, length=narrow_length)),
    **_each_of(
        ["split_with_sizes", "unsafe_split_with_sizes"], dict(tensor=of_rank(1, 3), split_size_or_sections=splits, dim=lambda d: 0)
    ),
    **_each_of(
        ["pad", "constant_pad_nd"],
        dict(input=of_rank(1, 5), pad=padding, mode=one_of("constant", "constant", "reflect", "replicate", "circular")),
    ),
    "unflatten": dict(input=of_rank(1, 3), sizes=unfolded),
    "unfold": dict(size=small(0, 3), step=small(1, 2), kernel_size=_each(2, 1, 2), input=of_rank(1, 4)),
    "permute": dict(dims=lambda d: tuple(d.rng.sample(range(d.it.ndim), d.it.ndim))),
    "repeat": dict(sizes=lambda d: tuple(d.int(0, 2) for _ in range(d.it.ndim + d.int(0, 1)))),
    "tile": dict(dims=lambda d: tuple(d.int(0, 2) for _ in range(d.int(0, 3)))),
    "repeat_interleave": dict(repeats=small(0, 3), output_size=lambda d: None),
    "broadcast_to": dict(size=lambda d: (d.size(), *d.it.shape)),
    "expand_as": dict(other=lambda d: d.fresh((d.size(), *d.it.shape))),
    "masked_select": dict(mask=lambda d: d.beside("bool")),
    "masked_scatter": dict(mask=lambda d: d.beside("bool"), source=lambda d: d.like()),
    "masked_fill": dict(mask=lambda d: d.beside("bool"), value=lambda d: d.number()),
    "where": dict(
        condition=lambda d: d.tensor(lambda t: str(t.dtype) == "torch.bool", lambda: d.fresh(d.shape(), "bool")),
        input=lambda d: d.beside(d.dtype) if d.chance(0.7) else d.number(),
        other=lambda d: d.beside(d.dtype) if d.chance(0.6) else d.number(),
    ),
    **_each_of(["as_strided"], dict(size=reachable, stride=few_strides)),
    "one_hot": dict(tensor=lambda d: d.indices(d.shape(0, 3), 4)),
    "embedding": EMBED,
    "bincount": dict(input=lambda d: d.indices((d.int(0, 6),), 4), weights=lambda d: d.like("float32")),
    "lerp": dict(end=lambda d: d.beside(), weight=lambda d: d.choice([0.5, 0.0, 2.0]) if d.chance(0.5) else d.beside()),
    "bucketize": dict(boundaries=lambda d: d.keep_sorted(4)),
    "searchsorted": dict(sorted_sequence=lambda d: d.keep_sorted(4), input=lambda d: d.fresh((d.int(0, 4),))),
    "pixel_shuffle": dict(input=lambda d: d.fresh((4, 2, 3), _float(d))),
    "pixel_unshuffle": dict(input=lambda d: d.fresh((2, 4, 2), _float(d))),
    "channel_shuffle": dict(input=lambda d: d.fresh((1, 4, 2, 2), _float(d))),
    "interpolate": dict(
        input=image(2, 2),
        size=lambda d: d.choice([None, 3, (4, 5)]),
        scale_factor=lambda d: None if d.args.get("size") else d.choice([2, 0.5, 1.5]),
        mode=one_of("nearest", "bilinear", "bicubic", "area", "nearest-exact"),
        align_corners=lambda d: None,
        recompute_scale_factor=lambda d: None,
        antialias=lambda d: False,
    ),
    "complex": dict(real=lambda d: d.fresh(d.shape(), d.choice(["float32", "float64"]))),
    "polar": dict(abs=lambda d: d.fresh(d.shape(), d.choice(["float32", "float64"]))),
    "heaviside": dict(values=lambda d: d.like()),
    **_each_of(["gcd", "lcm"], dict(input=integral, other=lambda d: d.beside(dtype_name(d.it)))),
    **_each_of(["bitwise_left_shift", "bitwise_right_shift"], dict(input=integral, other=small(0, 4))),
    **_each_of(["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"], dict(input=integral)),
    "ldexp": dict(other=lambda d: d.beside("int32")),
    "float_power": dict(exponent=small(-1, 3)),
    "matrix_power": dict(A=matrix, n=small(-1, 4)),
    "vander": dict(x=of_rank(1)),
    "cov": dict(input=of_rank(1, 2), correction=one_of(0, 1)),
    "corrcoef": dict(input=of_rank(1, 2)),
    "combinations": dict(input=of_rank(1)),
    "cartesian_prod": dict(tensors=of_rank(1)),
    "diag": dict(input=of_rank(1, 2)),
    "tril": dict(input=of_rank(2, 3)),
    "triu": dict(input=of_rank(2, 3)),
    "histc": dict(input=floating, min=lambda d: -1, max=lambda d: 1),
    "renorm": dict(input=of_rank(2, 3), p=one_of(1, 2), dim=one_of(0, 1, -1)),
    "dist": dict(other=lambda d: d.like()),
    "std": dict(dim=lambda d: d.dims()),
    "softplus": dict(beta=positive, threshold=one_of(20, 1)),
    "threshold": dict(value=one_of(0.0, -1.0)),
    **_each_of(
        ["qr", "svdvals", "pinv", "matrix_rank", "svd"],
        dict(
            A=tallness,
            input=tallness,
            tol=lambda d: None,
            atol=lambda d: None,
            rtol=lambda d: None,
            hermitian=lambda d: False,
            driver=lambda d: None,
        ),
    ),
    **_each_of(["solve", "solve_ex"], dict(B=right_side, left=lambda d: True)),
    "solve_triangular": dict(A=matrix, B=right_side, upper=boolean, left=lambda d: True),
    "multi_dot": dict(
        tensors=lambda d: [d.fresh((2, 3), "float32"), d.fresh((3, 4), "float32"), d.fresh((4, d.size()), "float32")]
    ),
    "type_as": dict(other=lambda d: d.fresh(())),
    "copy_": dict(src=lambda d: d.beside()),
    "fill_diagonal_": dict(self=of_rank(2, 2)),
    "full": dict(size=lambda d: d.shape()),
    "expand": dict(input=of_rank(0, 3)),
    "flatten": dict(start_dim=lambda d: 0 if d.chance(0.5) else d.dim()),
    "view_as": dict(other=lambda d: d.fresh(d.it.shape)),
    "reshape_as": dict(other=lambda d: d.fresh(d.it.shape)),
    "clamp": dict(min=lambda d: d.number(), max=lambda d: d.number()),
    "mvlgamma": dict(p=small(1, 2)),
    "multigammaln": dict(p=small(1, 2)),
    "diag_embed": dict(input=of_rank(0, 3), dim1=lambda d: -2, dim2=lambda d: -1),
    "rot90": dict(dims=lambda d: [0, 1], k=small(-1, 3), input=of_rank(2, 3)),
    "isin": dict(elements=of_rank(0, 3), test_elements=lambda d: d.fresh((d.int(0, 4),))),
    "quantile": dict(input=lambda d: d.fresh(d.shape(), "float32")),
    "nanquantile": dict(input=lambda d: d.fresh(d.shape(), "float32")),
    "fold": dict(
        input=lambda d: d.fresh((2, 4, 4), _float(d)),
        output_size=lambda d: (3, 3),
        kernel_size=lambda d: 2,
        stride=lambda d: 1,
        padding=lambda d: 0,
        dilation=lambda d: 1,
    ),
    "glu": dict(input=lambda d: d.fresh((2, 4), _float(d))),
    "view": dict(dtype=lambda d: Word("torch.int32")),
}
