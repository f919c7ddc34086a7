"""Discrete Fourier transforms over NumPy's, linear primitives whose transposes are again transforms."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.device import as_device
from ..core.dtypes import COMPLEX, FLOAT, dtype, float32, float64, scalar_type
from ..core.size import canonical_dim, permuted_strides, several
from ..core.tensor import Tensor, from_array
from . import prims
from .creation import count, finish_line, kind_for
from .joining import roll
from .order import laid
from .promotion import cast, default_dtype
from .registry import Linear, Spec, operator, primitive
from .writing import with_out

_WHY = {"loop": "a transform is not a loop over independent elements; inductor calls the kernel"}
# The transpose of a transform runs the other way with the same factor, which that way has the other name.
_SWAPPED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


@np.errstate(all="ignore")
def _complex_kernel(x: np.ndarray, dims: Sequence[int], forward: bool, norm: str) -> np.ndarray:
    return (np.fft.fftn if forward else np.fft.ifftn)(x, axes=dims, norm=norm).astype(x.dtype, copy=False)  # type: ignore[arg-type]


@primitive("fft_c2c", kernel=_complex_kernel, tags=("linear",), why_absent=_WHY, derivative=Linear(
    x=lambda g, dims, forward, norm: fft_c2c(g, dims, not forward, _SWAPPED[norm])),
    samples=lambda r: [(r.standard_normal((3, 4)) + 1j * r.standard_normal((3, 4)), (0, 1), True, "backward"),
                       (r.standard_normal((3, 4)) + 1j * r.standard_normal((3, 4)), (1,), False, "ortho")])
def fft_c2c(x: Tensor, dims: tuple[int, ...], forward: bool, norm: str) -> Spec:
    """The transform (or its inverse) of complex numbers over `dims`; norm is backward, ortho or forward."""
    return Spec(x._layout.shape, x.dtype, transformed(x, x._layout.shape, dims))


def transformed(x: Tensor, shape: Sequence, dims: Sequence[int], last: int | None = None) -> tuple:
    """Strides of a transform: its dimensions innermost (`last` innermost of all), these and the others in x's memory order. Where x
    repeats that says nothing: `dims` stay as they are given, and the last of the others take the places that these leave."""
    outer = [d for d in range(x.ndim) if d not in dims]
    outer = [d if d not in dims else outer.pop() for d in range(len(outer))]
    by_memory = functools.partial(sorted, key=lambda d: -x._layout.strides[d])
    inner = by_memory(d for d in dims if d != last)
    return permuted_strides(shape, [*by_memory(outer), *inner, *(() if last is None else (last,))])


def _real_back(g: Tensor, shape: Sequence, dim: int, norm: str) -> Tensor:
    """Zeros for the frequencies left out, back, and the real part."""
    high = tuple(shape[d] - n if d == dim else 0 for d, n in enumerate(g.shape))
    zeros = (0,) * g.ndim
    return prims.real(fft_c2c(prims.pad_zeros(g, zeros, high, zeros), (dim,), False, _SWAPPED[norm]))


@primitive("fft_r2c", kernel=np.errstate(all="ignore")(lambda x, dim, norm: np.fft.rfft(x, axis=dim, norm=norm)), tags=("linear",),
           why_absent=_WHY, derivative=Linear(x=lambda g, x_shape, dim, norm: _real_back(g, x_shape, dim, norm)),
           samples=lambda r: [(r.standard_normal((2, 5)), 1, "backward"), (r.standard_normal((4, 2)), 0, "ortho")])
def fft_r2c(x: Tensor, dim: int, norm: str) -> Spec:
    """The transform of real numbers along `dim`: the n // 2 + 1 frequencies that determine the rest."""
    shape = x._layout.shape
    made = (*shape[:dim], shape[dim] // 2 + 1, *shape[dim + 1:])
    return Spec(made, x.dtype.to_complex(), transformed(x, made, (dim,)))


def _half_back(g: Tensor, dim: int, n: int, norm: str) -> Tensor:
    """Frequencies that stand for two count twice."""
    out = fft_r2c(g, dim, _SWAPPED[norm])
    k = out.new_arange(n // 2 + 1)
    twice = cast((k > 0) & (2 * k != n), g.dtype) + 1
    return out * prims.view_(twice, tuple(n // 2 + 1 if d == dim else 1 for d in range(g.ndim)))


@np.errstate(all="ignore")
def _c2r(x: np.ndarray, dim: int, n: int, norm: Any) -> np.ndarray:
    if x.shape[dim] == 0:  # NumPy takes the first frequency without looking whether there is one
        x = np.zeros((*x.shape[:dim], 1, *x.shape[dim + 1:]), x.dtype)
    return np.fft.irfft(x, n, axis=dim, norm=norm)


@primitive("fft_c2r", kernel=_c2r, tags=("linear",), why_absent=_WHY,
           derivative=Linear(x=lambda g, dim, n, norm: _half_back(g, dim, n, norm)),
           samples=lambda r: [(r.standard_normal((2, 4)) + 1j * r.standard_normal((2, 4)), 1, n, "backward") for n in (6, 7)])
def fft_c2r(x: Tensor, dim: int, n: int, norm: str) -> Spec:
    """`n` real numbers from the n // 2 + 1 frequencies along `dim` (the imaginary parts that must be zero are ignored)."""
    shape = x._layout.shape
    made = (*shape[:dim], n, *shape[dim + 1:])
    return Spec(made, x.dtype.to_real(), transformed(x, made, (dim,)))


# -- arguments ---------------------------------------------------------------------------------------------------
def _norm(norm: str | None) -> str:
    norm = "backward" if norm is None else norm
    if norm not in _SWAPPED:
        raise RuntimeError(f"Invalid normalization mode: {norm!r}; it is forward, backward or ortho")
    return norm


def _sized(x: Tensor, dims: Sequence[int], sizes: Sequence) -> Tensor:
    """Cropped (a view) or padded with zeros at the end to `sizes` along `dims` (None and -1: as it is)."""
    high = [0] * x.ndim
    for d, n in zip(dims, sizes):
        if n is None or n == -1:
            continue
        if n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")
        if n < x.shape[d]:
            x = prims.slice_(x, d, 0, n, 1)
        high[d] = n - x.shape[d]
    for d in dims:
        points = x.shape[d] + high[d]
        if type(points) is int and points < 1:
            raise RuntimeError(f"Invalid number of data points ({points}) specified for dimension {d} of shape {list(x.shape)}")
    zeros = (0,) * x.ndim
    return prims.pad_zeros(x, zeros, tuple(high), zeros) if any(n != 0 for n in high) else x    # a guard: a copy lies in rows


def _input(x: Tensor, name: str, *, real: bool = False) -> Tensor:
    if x.dtype.itemsize < 4 and x.dtype.category == FLOAT and x.device.type == "cpu":
        raise RuntimeError(f"Unsupported dtype {scalar_type(x.dtype)}")
    if real:
        if x.dtype.category == COMPLEX:
            raise RuntimeError(f"{name} expects a real input tensor, but got {x.dtype}")
        x = x if x.dtype.category == FLOAT else cast(x, default_dtype())
        return x if x.dtype in (float32, float64) else cast(x, float32)
    return x if x.dtype.category == COMPLEX else cast(x, (x.dtype if x.dtype.category == FLOAT else default_dtype()).to_complex())


def _counted(x: Tensor, dims: Any) -> tuple[int, ...]:
    """Dimensions counted from the front. IndexError."""
    found = tuple(canonical_dim(d, x.ndim) for d in several(dims))
    if found and not x.ndim:
        raise IndexError(f"Dimension specified as {dims} but tensor has no dimensions")
    return found


def _dims(x: Tensor, s: Sequence | None, dim: Any) -> tuple[tuple[int, ...], Sequence]:
    if dim is None:
        dim = range(x.ndim) if s is None else range(x.ndim - len(several(s)), x.ndim)
        if s is not None and len(dim) > x.ndim:
            raise RuntimeError(f"Got shape with {len(dim)} values but input tensor only has {x.ndim} dimensions.")
    dims = _counted(x, dim)
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"FFT dims must be unique, got {list(dims)}")
    sizes = (None,) * len(dims) if s is None else several(s)
    if len(sizes) != len(dims):
        raise RuntimeError(f"When dim and shape were given, they must have the same length, got {list(dims)} and {list(sizes)}")
    return dims, sizes


def _some_dims(x: Tensor, s: Sequence | None, dim: Any, name: str) -> tuple[tuple[int, ...], Sequence]:
    dims, sizes = _dims(x, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    return dims, sizes


# -- transforms -----------------------------------------------------------------------------------------------------
def _complex_transform(x: Tensor, s: Sequence | None, dim: Any, norm: str | None, forward: bool, name: str) -> Tensor:
    x = _input(x, name)
    dims, sizes = _dims(x, s, dim)
    return fft_c2c(_sized(x, dims, sizes), dims, forward, _norm(norm)) if dims else x.clone()


def _line_transform(x: Tensor, s: Sequence, dim: Any, norm: str | None, forward: bool, name: str) -> Tensor:
    """Along one dimension: of real numbers, unless padded, it lies by their strides, not those of their cast, which repeats nothing."""
    out = _complex_transform(x, s, dim, norm, forward, name)
    dims = _counted(x, dim)
    if x.dtype not in (float32, float64) or x.is_contiguous() or out.shape[dims[0]] > x.shape[dims[0]]:
        return out
    return laid(out, transformed(x, out._layout.shape, dims))


def _real_transform(x: Tensor, s: Sequence | None, dim: Any, norm: str | None, name: str) -> Tensor:
    """Along the last dimension from real numbers, over the others from the complex ones that this gives."""
    x = _input(x, name, real=True)
    dims, sizes = _some_dims(x, s, dim, name)
    out = fft_r2c(sized := _sized(x, dims, sizes), dims[-1], _norm(norm))
    if len(dims) == 1:
        return out
    out = fft_c2c(out, dims[:-1], True, _norm(norm))
    return laid(out, transformed(sized, out._layout.shape, dims, dims[-1]))


def _half(x: Tensor, s: Sequence | None, dim: Any, name: str) -> tuple[Tensor, tuple[int, ...], Any]:
    """(the half of the numbers that stands for all, the dimensions, how many real numbers it comes to)."""
    x = _input(x, name)
    dims, sizes = _some_dims(x, s, dim, name)
    last = sizes[-1] if sizes[-1] not in (None, -1) else 2 * (x.shape[dims[-1]] - 1)
    if type(last) is int and last < 1:
        raise RuntimeError(f"Invalid number of data points ({last}) specified")
    return _sized(x, dims, (*sizes[:-1], last // 2 + 1)), dims, last


def _to_real_transform(x: Tensor, s: Sequence | None, dim: Any, norm: str | None, name: str) -> Tensor:
    x, dims, last = _half(x, s, dim, name)
    if len(dims) == 1:
        return fft_c2r(x, dims[-1], last, _norm(norm))
    out = fft_c2r(fft_c2c(x, dims[:-1], False, _norm(norm)), dims[-1], last, _norm(norm))
    return laid(out, transformed(x, out._layout.shape, dims, dims[-1]))


def _one(name: str, transform: Callable, doc: str) -> Callable:
    def fn(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
        if n is not None and n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")
        return transform(input, (n,), (dim,), norm, name=name)

    fn.__name__, fn.__doc__ = name, doc
    return operator(with_out(fn, rows=True), name=f"fft_{name}", autocast={"cpu": "wide"})


def _many(name: str, transform: Callable, default: Any, doc: str) -> Callable:
    def fn(input: Tensor, s: Sequence[int] | None = None, dim: Any = default, norm: str | None = None) -> Tensor:
        if s is not None and None in several(s):
            raise TypeError(f"fft_{name}(): argument 's' must be tuple of ints, not {s}")
        return transform(input, s, dim, norm, name=name)

    fn.__name__, fn.__doc__ = name, doc
    fn.__annotations__["dim"] = "Dims" if default is None else "Ints | Absent"
    return operator(with_out(fn, rows=True), name=f"fft_{name}", autocast={"cpu": "wide"})


def _hermitian(x: Tensor, s: Sequence | None, dim: Any, norm: str | None, name: str) -> Tensor:
    """From what is hermitian-symmetric in the last dimension to real numbers: over the other dimensions first."""
    x, dims, last = _half(x, s, dim, name)
    x = fft_c2c(x, dims[:-1], True, _norm(norm)) if len(dims) > 1 else x
    return fft_c2r(x.conj(), dims[-1], last, _SWAPPED[_norm(norm)])


def _to_hermitian(x: Tensor, s: Sequence | None, dim: Any, norm: str | None, name: str) -> Tensor:
    x = _input(x, name, real=True)
    dims, sizes = _some_dims(x, s, dim, name)
    out = fft_r2c(_sized(x, dims, sizes), dims[-1], _SWAPPED[_norm(norm)]).conj()
    return fft_c2c(out, dims[:-1], False, _norm(norm)) if len(dims) > 1 else out


_FORWARD = functools.partial(_complex_transform, forward=True)
_INVERSE = functools.partial(_complex_transform, forward=False)
fft = _one("fft", functools.partial(_line_transform, forward=True), "The discrete Fourier transform along one dimension, of n points.")
ifft = _one("ifft", functools.partial(_line_transform, forward=False), "The inverse of fft.")
fft2 = _many("fft2", _FORWARD, (-2, -1), "The transform over two dimensions.")
ifft2 = _many("ifft2", _INVERSE, (-2, -1), "The inverse of fft2.")
fftn = _many("fftn", _FORWARD, None, "The transform over several dimensions.")
ifftn = _many("ifftn", _INVERSE, None, "The inverse of fftn.")
rfft = _one("rfft", _real_transform, "The transform of real numbers: its n // 2 + 1 first frequencies.")
irfft = _one("irfft", _to_real_transform, "The inverse of rfft, of n points (2 (m - 1) unless given).")
rfft2 = _many("rfft2", _real_transform, (-2, -1), "The transform of real numbers over two dimensions.")
irfft2 = _many("irfft2", _to_real_transform, (-2, -1), "The inverse of rfft2.")
rfftn = _many("rfftn", _real_transform, None, "The transform of real numbers over several dimensions.")
irfftn = _many("irfftn", _to_real_transform, None, "The inverse of rfftn.")
hfft = _one("hfft", _hermitian, "The transform of a hermitian-symmetric signal given by its first half: real.")
hfft2 = _many("hfft2", _hermitian, (-2, -1), "The transform of a hermitian-symmetric signal over two dimensions: real.")
ihfft2 = _many("ihfft2", _to_hermitian, (-2, -1), "The inverse of hfft2.")
hfftn = _many("hfftn", _hermitian, None, "The transform of a hermitian-symmetric signal over several dimensions: real.")
ihfftn = _many("ihfftn", _to_hermitian, None, "The inverse of hfftn.")


@operator(name="fft_ihfft", autocast={"cpu": "wide"})
@with_out
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of hfft."""
    return rfft(input, n, dim, _SWAPPED[_norm(norm)]).conj()


# -- frequencies and shifts ----------------------------------------------------------------------------------------------
def _frequencies(name: str, make: Callable, doc: str) -> Callable:
    def fn(n: int, d: float = 1.0, *, out: Any = None, dtype: dtype | None = None, layout: Any = None, device: Any = None,
           pin_memory: bool | None = False, requires_grad: bool | None = False) -> Tensor:
        n = count(n)
        if isinstance(d, Tensor) and d.ndim:
            raise TypeError(f"{name}(): argument 'd' (position 2) must be float, not Tensor")
        points = n if make is np.fft.fftfreq else int(n / 2) + 1    # of a real transform half, rounded towards zero
        if points < 0:
            raise RuntimeError(f"{name}(): expected a non-negative number of points, got {n}")
        kind = kind_for(dtype, out, default_dtype())
        if kind.category < FLOAT:
            raise RuntimeError(f"{name} requires a floating point or complex dtype, not {kind}")
        with np.errstate(all="ignore"):
            counted = (make(n, 1.0) if n > 0 else np.arange(points) / np.float64(n)) / float(d)
        made = from_array(counted.astype(kind.numpy)).to(as_device(device))
        return finish_line(made, requires_grad, out, layout, pin_memory)

    fn.__name__, fn.__doc__ = name, doc
    return operator(fn, name=f"fft_{name}")


fftfreq = _frequencies("fftfreq", np.fft.fftfreq, "The frequencies of the points of an n-point transform, spacing d.")
rfftfreq = _frequencies("rfftfreq", np.fft.rfftfreq, "The frequencies of the points of an n-point real transform, spacing d.")


def _shifted(x: Tensor, dim: Any, half: Callable[[Any], Any]) -> Tensor:
    dims = _counted(x, range(x.ndim) if dim is None else dim)
    return roll(x, tuple(half(x.shape[d]) for d in dims), dims) if dims else x.clone()


@operator(name="fft_fftshift", node="roll")
def fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The zero frequency moved to the middle."""
    return _shifted(input, dim, lambda n: n // 2)


@operator(name="fft_ifftshift", node="roll")
def ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The inverse of fftshift."""
    return _shifted(input, dim, lambda n: (n + 1) // 2)
