"""How an argument is drawn, by the name of its parameter. `d` is the draw; `d.it` the operator's first tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .draw import Draw, dtype_name
from .inputs import DTYPES
from .program import Ref, Word

Drawer = Callable[[Draw], Any]


class Skip(Exception):
    """This operator cannot be drawn from what is at hand."""


def one_of(*options: Any) -> Drawer:
    return lambda d: d.choice(options)


def boolean(d: Draw) -> bool:
    return d.chance(0.5)


def small(low: int, high: int) -> Drawer:
    return lambda d: d.int(low, high)


def dtype(d: Draw) -> Word:
    return Word("torch." + d.rng.choices(list(DTYPES), list(DTYPES.values()))[0])


def other(d: Draw) -> Any:
    return d.number() if d.chance(0.4) else d.beside()


def memory_format(d: Draw) -> Word:
    return Word(d.choice(["torch.contiguous_format", "torch.preserve_format", "torch.channels_last"]))


def mask(d: Draw) -> Ref:
    return d.beside("bool")


def matrix(d: Draw) -> Ref:
    """A matrix, mostly square, or a batch of them, of a dtype that decompositions take."""
    n = d.choice([1, 2, 3, 3])
    batch = (2,) if d.chance(0.25) else ()
    return d.tensor(
        lambda t: t.ndim >= 2 and t.shape[-1] == t.shape[-2],
        lambda: d.fresh((*batch, n, n), d.choice(["float32", "float64", "complex64", "complex128"])),
        0.4,
    )


def index_along(d: Draw) -> Ref:
    """An index of at least the dimensions of the first tensor, for gather and scatter along `dim`."""
    dim = d.args.get("dim", 0)
    shape = [max(0, n - d.int(0, 1)) for n in d.it.shape]
    if not shape:
        return d.indices((), 1)
    shape[dim] = d.int(0, d.it.shape[dim] + 2) if d.it.shape[dim] else 0
    return d.indices(shape, d.it.shape[dim])


def index_vector(d: Draw) -> Ref:
    dim = d.args.get("dim", 0)
    size = d.it.shape[dim] if d.it.ndim else 1
    return d.indices((d.int(0, 4),) if d.chance(0.9) else (), size, d.choice(["int64", "int64", "int32"]))


def source_along(d: Draw) -> Ref:
    """What index_add and its kin put at `index` along `dim`."""
    dim, count = d.args.get("dim", 0), d.value(d.args["index"]).numel()
    shape = list(d.it.shape)
    if shape:
        shape[dim] = count
    return d.fresh(shape)


def source_for_index(d: Draw) -> Any:
    return d.fresh(d.value(d.args["index"]).shape)


def sizes_of_elements(d: Draw) -> Any:
    shape = d.same_elements(d.it.numel())
    return list(shape) if d.chance(0.3) else shape


def expanding(d: Draw) -> tuple[int, ...]:
    shape = tuple(d.size() if n == 1 else (-1 if d.chance(0.2) else n) for n in d.it.shape)
    return (d.size(),) * d.int(0, 1) + shape


def chunks(d: Draw) -> Any:
    return d.int(1, 4)


def sections(d: Draw) -> Any:
    if d.chance(0.5):
        return d.int(1, 4)
    size = d.it.shape[0] if d.it.ndim else 1
    cut = d.int(0, size)
    return [cut, size - cut]


def order_of_norm(d: Draw) -> Any:
    return d.choice([2, 1, 0, 3, 0.5, -1, float("inf"), float("-inf"), 2.0])


def positive(d: Draw) -> float:
    return d.choice([0.5, 1.0, 2.0, 0.1])


def permutation(d: Draw) -> tuple[int, ...]:
    order = list(range(d.it.ndim))
    d.rng.shuffle(order)
    return tuple(p - d.it.ndim if d.chance(0.2) else p for p in order)


def several(d: Draw) -> Any:
    """Dimensions to flip, tile or roll."""
    return tuple(d.rng.sample(range(d.it.ndim), d.int(0, d.it.ndim)))


def tensors(d: Draw) -> list:
    """Tensors that can be put one after another."""
    first = d.tensor()
    d.it = d.value(first)
    return [first] + [d.like() if d.chance(0.8) else d.beside() for _ in range(d.int(0, 2))]


def spatial(low: int, high: int) -> Drawer:
    """A size for each spatial dimension, or one for all."""

    def draw(d: Draw) -> Any:
        n = max(1, min(3, d.it.ndim - 2))
        return d.int(low, high) if d.chance(0.5) else tuple(d.int(low, high) for _ in range(n))

    return draw


def slice_start(d: Draw) -> int:
    return d.int(-3, 3)


def values_at(d: Draw) -> Ref:
    return d.beside()


def storage(d: Draw) -> tuple[int, ...]:
    return tuple(d.int(1, 3) for _ in range(d.int(0, 3)))


def strides(d: Draw) -> tuple[int, ...]:
    size = d.args.get("size", ())
    return tuple(d.int(0, 3) for _ in range(len(size) if isinstance(size, tuple) else 1))


def quantiles(d: Draw) -> Any:
    return d.choice([0.0, 0.25, 0.5, 1.0]) if d.chance(0.6) else d.fresh((d.int(1, 3),), dtype_name(d.it), "unit")


def unit(d: Draw) -> Ref:
    return d.like(kind="unit")


def target(d: Draw) -> Ref:
    return d.like()


reduction = one_of("mean", "sum", "none")

SWITCHES = """
    keepdim descending stable sorted return_inverse return_counts right out_int32 upper accumulate largest
    return_indices ceil_mode count_include_pad equal_nan increasing unitriangular pivot full log_input log_target
    inplace wrap non_blocking copy periodic as_tuple with_replacement hermitian full_matrices swap zero_infinity invert
    assume_unique left unbiased include_self density compute_uv some transpose align_corners normalized center
"""

PARAMETERS: dict[str, Drawer] = {
    # numbers and switches
    **dict.fromkeys(SWITCHES.split(), boolean),
    "alpha": lambda d: d.number(),
    "beta": lambda d: d.number(),
    "value": lambda d: d.number(),
    "fill_value": lambda d: d.number(),
    "min": other,
    "max": other,
    "exponent": other,
    "weight": lambda d: d.number(),
    "dtype": dtype,
    "memory_format": memory_format,
    "reduction": reduction,
    "rounding_mode": one_of(None, "trunc", "floor"),
    "correction": one_of(0, 1, 2, 0.5, None),
    "decimals": small(-1, 3),
    "eps": one_of(1e-5, 0.1, 1e-3),
    "p": one_of(2, 1, 0.5, 3.0, float("inf"), 0),
    "ord": order_of_norm,
    "n": small(0, 3),
    "k": small(1, 3),
    "diagonal": small(-2, 2),
    "offset": small(-2, 2),
    "chunks": chunks,
    "dx": positive,
    "lambd": positive,
    "threshold": one_of(0.0, 1.0, -0.5),
    "negative_slope": one_of(0.01, 0.2, -0.5),
    "margin": one_of(0.0, 1.0, 0.3),
    "delta": positive,
    "min_val": one_of(-1.0, 0.0),
    "max_val": one_of(1.0, 0.5),
    "nan": one_of(0.0, 1.5),
    "posinf": one_of(None, 9.0),
    "neginf": one_of(None, -9.0),
    "maxnorm": positive,
    "rtol": one_of(1e-5, 0.1),
    "atol": one_of(1e-8, 0.5),
    "approximate": one_of("none", "tanh"),
    "interpolation": one_of("linear", "lower", "higher", "midpoint", "nearest"),
    "norm": one_of(None, "ortho", "forward", "backward"),
    "reduce": one_of("sum", "prod", "mean", "amax", "amin"),
    "indexing": one_of("ij", "xy"),
    "UPLO": one_of("L", "U"),
    "mode": one_of("reduced", "complete", "r"),
    "bins": small(1, 5),
    "minlength": small(0, 4),
    "upscale_factor": one_of(1, 2),
    "downscale_factor": one_of(1, 2),
    "r": small(0, 3),
    "N": small(0, 4),
    "edge_order": one_of(1, 2),
    "spacing": one_of(1, 0.5),
    "window_length": small(0, 6),
    "steps": small(0, 5),
    "groups": one_of(1, 2),
    "num_classes": small(4, 10),
    "d": positive,
    "base": one_of(2.0, 10.0),
    "row": small(0, 4),
    "col": small(0, 4),
    # dimensions
    "dim": lambda d: d.dim(),
    "dim0": lambda d: d.dim(),
    "dim1": lambda d: d.dim(),
    "dim2": lambda d: d.dim(),
    "axis": lambda d: d.dim(),
    "axis0": lambda d: d.dim(),
    "axis1": lambda d: d.dim(),
    "start_dim": lambda d: d.dim(),
    "end_dim": lambda d: d.dim(),
    "source": lambda d: d.dim(),
    "destination": lambda d: d.dim(),
    "dimension": lambda d: d.dim(),
    "dims": several,
    "shifts": lambda d: d.int(-3, 3),
    "start": slice_start,
    "end": slice_start,
    "length": small(0, 3),
    "step": small(1, 3),
    "repeats": small(0, 3),
    "split_size_or_sections": sections,
    "indices_or_sections": sections,
    # shapes
    "shape": sizes_of_elements,
    "size": storage,
    "stride": strides,
    "storage_offset": small(0, 2),
    "sizes": expanding,
    "output_size": spatial(1, 3),
    "kernel_size": spatial(1, 3),
    "padding": spatial(0, 1),
    "training": boolean,
    "lower": one_of(0.1, 0.25),
    "upper": one_of(0.3, 0.5),
    "data": lambda d: d.choice([1, 2.5, True, [1, 2], [[0.5], [1.5]], [], [True, False]]),
    "rcond": one_of(1e-3, 0.1),
    "m": small(0, 4),
    "input_scale": one_of(1.0, 0.5),
    "dilation": spatial(1, 2),
    "normalized_shape": lambda d: tuple(d.it.shape[d.int(0, max(0, d.it.ndim - 1)) :]),
    # tensors beside the first
    "other": other,
    "tensor1": values_at,
    "tensor2": values_at,
    "end_": values_at,
    "values": values_at,
    "test_elements": values_at,
    "mask": mask,
    "condition": mask,
    "index": index_along,
    "tensors": tensors,
    "src": source_for_index,
    "target": target,
    "q": quantiles,
    "boundaries": lambda d: d.fresh((d.int(0, 4),), kind="unit"),
    "tau": lambda d: d.fresh(d.it.shape[:-1]),
    "prepend": lambda d: d.like(),
    "append": lambda d: d.like(),
    "input2": target,
    "x2": target,
    "other_": values_at,
    "positive": target,
    "negative": target,
    "imag": target,
    "angle": target,
    "A": matrix,
}
