"""Layers whose arguments depend on one another: sampling of images, unpooling, bags, attention, cells, groups of products."""

from __future__ import annotations

from typing import Any

from .draw import Draw
from .parameters import boolean, one_of, small
from .program import Input, Ref
from .special import Fields, _each_of, _float, image, of_rank, probability, sized


def beside_the_first(*shape: int) -> Any:
    """A tensor of the first's dtype and this shape."""
    return lambda d: d.fresh(shape)


# -- images
def grid(d: Draw) -> Ref:
    spatial = d.it.ndim - 2
    return d.fresh((d.it.shape[0], *(d.int(1, 3) for _ in range(spatial)), spatial), kind="unit" if d.chance(0.6) else None)


def grid_size(d: Draw) -> tuple[int, ...]:
    spatial = d.it.shape[-2]
    return (d.it.shape[0], 2, *(d.int(1, 3) for _ in range(spatial)))


def theta(d: Draw) -> Ref:
    spatial = d.choice([2, 2, 3])
    return d.fresh((d.int(1, 2), spatial, spatial + 1), _float(d))


def batch_of_images(d: Draw) -> Ref:
    spatial = d.choice([2, 2, 2, 3])
    return d.fresh((d.int(1, 2), d.int(1, 3), *(d.int(1, 4) for _ in range(spatial))), _float(d), plain=0.5)


def unpool(spatial: int) -> Fields:
    """What was pooled by twos, without overlaps: each index lies in its own window."""

    def indices(d: Draw) -> Ref:
        sizes = tuple(d.it.shape[-spatial:])
        values = [0]
        for n in sizes:
            values = [v * 2 * n + 2 * i for v in values for i in range(n)]
        lead = tuple(d.it.shape[:-spatial])
        return d.keep(Input(f"x{d.made}", "int64", lead + sizes, tuple(values)))    # repeated for each channel

    return dict(
        input=lambda d: d.fresh((*d.choice([(2, 2), (2,)]), *(d.int(1, 2) for _ in range(spatial))), _float(d)),
        indices=indices, kernel_size=one_of(2), stride=one_of(None, 2), padding=one_of(0),
        output_size=lambda d: [2 * n for n in d.it.shape[-spatial:]],
    )


# -- bags of rows
def offsets(d: Draw) -> Ref:
    n = d.it.shape[0]
    # the size of the input is the last, as include_last_offset wants it: torch takes less for one thing or another
    rising = [0, *sorted(d.int(0, n) for _ in range(d.int(0, 2))), n]
    return d.keep(Input(f"x{d.made}", "int64", (len(rising),), tuple(rising)))


BAG: Fields = dict(
    input=lambda d: d.indices((d.int(0, 6),), 5),
    weight=lambda d: d.fresh((5, d.size()), _float(d)),
    offsets=offsets,
    mode=one_of("sum", "mean", "max"),
    per_sample_weights=lambda d: d.fresh(d.it.shape, str(d.value(d.args["weight"]).dtype).removeprefix("torch.")),
    include_last_offset=boolean,
    padding_idx=one_of(None, 1, -1),
    scale_grad_by_freq=one_of(False),
)


# -- sequences
def cell(gates: int, states: int = 1) -> Fields:
    """A step of a recurrent layer over (batch, inputs)."""

    def state(d: Draw) -> Any:
        d.args["hidden"] = d.int(1, 3)
        made = [d.fresh((d.it.shape[0], d.args["hidden"])) for _ in range(states)]
        return tuple(made) if states > 1 else made[0]

    def weight(which: str) -> Any:
        return lambda d: d.fresh((gates * d.args["hidden"], d.it.shape[1] if which == "input" else d.args["hidden"]))

    bias = lambda d: d.fresh((gates * d.args["hidden"],))
    return dict(input=lambda d: d.fresh((d.int(1, 3), d.int(1, 3)), d.choice(["float32", "float32", "float64"])), hx=state,
                w_ih=weight("input"), w_hh=weight("hidden"), b_ih=bias, b_hh=bias)


def attention_mask(d: Draw) -> Any:
    n, m = d.it.shape[-2], d.value(d.args["key"]).shape[-2]
    shape = (n, m) if d.chance(0.5) else (*d.it.shape[:-2], n, m) if d.chance(0.5) else (1, m)
    return None if d.chance(0.4) else d.fresh(shape, "bool" if d.chance(0.5) else None)


ATTENTION: Fields = dict(
    query=lambda d: d.fresh((*d.choice([(2, 2), (2, 1), (2,), ()]), d.int(1, 5), d.choice([4, 8])), _float(d), plain=0.6),
    key=lambda d: d.fresh((*d.it.shape[:-2], d.int(1, 5), d.it.shape[-1])),
    value=lambda d: d.fresh((*d.value(d.args["key"]).shape[:-1], d.int(1, 5) if d.chance(0.3) else d.it.shape[-1])),
    attn_mask=attention_mask,
    dropout_p=one_of(0.0),
    is_causal=boolean,
    scale=one_of(None, 0.5),
    enable_gqa=one_of(False),
)


# -- groups of products
def ends(d: Draw) -> Ref:
    """Where each of two groups ends, in what `mat_a` or `mat_b` has together."""
    b = d.value(d.args["mat_b"])
    n = d.it.shape[-2] if b.ndim == 3 else d.it.shape[-1] if d.it.ndim == 2 else b.shape[-1]
    return d.keep(Input(f"x{d.made}", "int32", (2,), tuple(sorted([d.int(0, n), n]))))


GROUPED: Fields = dict(
    mat_a=lambda d: d.fresh((d.choice([8, 16]), 8) if d.chance(0.7) else (2, 8, 8),
                            d.choice(["bfloat16", "bfloat16", "float32", "float16"]), plain=1.0),
    mat_b=lambda d: d.fresh((2, 8, 8) if d.it.ndim == 2 and d.chance(0.6) else (d.it.shape[-1], 16), plain=1.0),
    offs=ends,
)

QUANTIZED: Fields = dict(
    input=lambda d: d.fresh(d.shape(1), "float32"),
    scale=one_of(0.1, 0.5),
    zero_point=small(0, 3),
    quant_min=one_of(0, -4),
    quant_max=one_of(15, 7),
)


def _per_channel(kind: str, dtype: str) -> Any:
    return lambda d: d.fresh(d.it.shape[:1], dtype, kind)


def cross_entropy_targets(d: Draw) -> Ref:
    return d.indices(d.it.shape[:-1], d.value(d.args["linear_weight"]).shape[0])


def classes_of_each(d: Draw) -> Ref:
    """Which classes an example has, ended by -1."""
    n = d.it.shape[-1]
    return d.keep(Input(f"x{d.made}", "int64", tuple(d.it.shape), tuple(d.int(-1, n - 1) for _ in range(max(1, d.it.numel())))))


LAYERS: dict[str, Fields] = {
    "grid_sample": dict(input=batch_of_images, grid=grid, mode=one_of("bilinear", "nearest", "bicubic"),
                        padding_mode=one_of("zeros", "border", "reflection"), align_corners=boolean),
    "affine_grid": dict(theta=theta, size=grid_size, align_corners=boolean),
    **{f"max_unpool{n}d": unpool(n) for n in (1, 2, 3)},
    "embedding_bag": BAG,
    "lstm_cell": cell(4, 2),
    "gru_cell": cell(3),
    "rnn_tanh_cell": cell(1),
    "rnn_relu_cell": cell(1),
    "scaled_dot_product_attention": ATTENTION,
    "grouped_mm": GROUPED,
    "fake_quantize_per_tensor_affine": QUANTIZED,
    "fake_quantize_per_channel_affine": {**QUANTIZED, "scale": _per_channel("unit", "float32"), "axis": one_of(0),
                                         "zero_point": lambda d: d.indices(d.it.shape[:1], 4, "int32")},
    "linear_cross_entropy": dict(
        input=lambda d: d.fresh((*((d.int(1, 3),) if d.chance(0.8) else ()), d.int(1, 4)), _float(d)),
        linear_weight=lambda d: d.fresh((d.int(1, 4), d.it.shape[-1])),
        target=cross_entropy_targets,
        linear_bias=lambda d: d.fresh(d.value(d.args["linear_weight"]).shape[:1]),
        weight=lambda d: d.fresh(d.value(d.args["linear_weight"]).shape[:1], None, "unit"),
        ignore_index=one_of(None, 0, 1),
        label_smoothing=one_of(0.0, 0.1),
    ),
    "multilabel_margin_loss": dict(input=lambda d: d.fresh([d.int(1, 4) for _ in range(d.int(1, 2))], _float(d)), target=classes_of_each),
    "native_layer_norm": dict(input=of_rank(1, 4, 1), weight=lambda d: d.fresh(d.args["normalized_shape"]),
                              bias=lambda d: d.fresh(d.args["normalized_shape"])),
    "conv_tbc": dict(input=lambda d: d.fresh((d.int(2, 4), 2, 3), _float(d)), weight=lambda d: d.fresh((d.int(1, 2), 3, 2)),
                     bias=beside_the_first(2), pad=small(0, 1)),
    **_each_of(["dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"], dict(    # nothing is dropped, or all
        training=boolean, p=lambda d: d.choice([0.0, 1.0] if d.args["training"] else [0.5, 0.0, 1.0]))),
    "triplet_margin_with_distance_loss": dict(anchor=of_rank(2), positive=lambda d: d.like(), negative=lambda d: d.like(),
                                              distance_function=one_of(None)),
    "upsample": dict(input=image(2, 2), size=lambda d: d.choice([None, 3, (4, 5)]),
                     scale_factor=lambda d: None if d.args.get("size") else 2,
                     mode=one_of("nearest", "bilinear", "bicubic")),
    "norm_except_dim": dict(v=of_rank(1, 3), pow=one_of(2, 1), dim=one_of(0, -1)),
    "binary_cross_entropy": dict(input=probability, target=lambda d: d.like(kind="unit"), weight=lambda d: d.like(kind="unit")),
    "glu": dict(input=lambda d: d.fresh((d.choice([2, 4]), d.choice([2, 4])), _float(d))),
    "pdist": dict(input=of_rank(2)),
    "prelu": dict(input=of_rank(0, 4), weight=sized(lambda d: d.it.shape[1] if d.it.ndim > 1 and d.chance(0.5) else 1)),
}
