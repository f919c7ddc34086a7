"""Window functions and the short-time Fourier transform."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..core.device import as_device
from ..core.dtypes import FLOAT, dtype, float64
from ..core.tensor import Tensor
from ..core.warned import warn_once
from . import prims
from .checks import checked
from .creation import count, finish
from .fft import fft, ifft, irfft, rfft
from .math import i0_prim
from .promotion import cast, default_dtype
from .registry import OPERATORS, operator
from .writing import with_out


def _window(name: str, formula: Callable[..., Tensor], doc: str) -> Callable:
    """`formula(n, length, ...)`: the window at positions n of a symmetric window of that length."""
    def fn(window_length: int, periodic: bool = True, *args: Any, dtype: dtype | None = None, layout: Any = None,
           device: Any = None, pin_memory: bool | None = False, requires_grad: bool | None = False, **params: Any) -> Tensor:
        kind, where = dtype or default_dtype(), as_device(device)
        window_length = count(window_length)
        if kind.category != FLOAT and not (kind.is_complex and window_length <= 1):
            raise RuntimeError(f"{name} expects floating point dtypes, got: {kind}")
        if window_length < 0:
            raise RuntimeError(f"{name} requires non-negative window_length, got window_length={window_length}")
        if window_length <= 1:
            return finish(prims.full((window_length,), 1.0, kind, where), requires_grad, None, layout, pin_memory)
        length = window_length + 1 if periodic else window_length
        made = formula(prims.iota(window_length, 0, 1, float64, where), length, *args, **params)
        return finish(cast(made, kind), requires_grad, None, layout, pin_memory)

    fn.__name__, fn.__doc__ = name, doc
    return operator(with_out(fn))


def cosines(n: Tensor, length: int, *a: float) -> Tensor:
    """a[0] - a[1] cos(x) + a[2] cos(2 x) - ..., where x turns once over the window."""
    turn = n * (2 * math.pi / (length - 1))
    return sum([(-1) ** k * c * (k * turn).cos() for k, c in enumerate(a)])


def bartlett(n: Tensor, length: int) -> Tensor:
    """A triangle."""
    return 1 - (n * (2 / (length - 1)) - 1).abs()


def kaiser(n: Tensor, length: int, beta: float = 12.0) -> Tensor:
    """The Kaiser window of shape beta."""
    x = n * (2 / (length - 1)) - 1
    return i0_prim((1 - x * x).clamp(min=0).sqrt() * beta) / i0_prim(n.new_full((), beta))


bartlett_window = _window("bartlett_window", bartlett, "A triangle.")
hann_window = _window("hann_window", lambda n, length: cosines(n, length, 0.5, 0.5), "The Hann window.")
hamming_window = _window("hamming_window", lambda n, length, alpha=0.54, beta=0.46: cosines(n, length, alpha, beta),
                         "The Hamming window, alpha - beta cos.")
blackman_window = _window("blackman_window", lambda n, length: cosines(n, length, 0.42, 0.5, 0.08), "The Blackman window.")
kaiser_window = _window("kaiser_window", kaiser, "The Kaiser window of shape beta.")


def _full_window(x: Tensor, window: Tensor | None, win_length: int, n_fft: int) -> Tensor:
    """The window centred in n_fft points."""
    if window is None:
        window = x.new_full((win_length,), 1.0, dtype=x.dtype.to_real())
    if tuple(window.shape) != (win_length,):
        raise RuntimeError(f"expected a 1D window tensor of size equal to win_length={win_length}, but got {list(window.shape)}")
    left = (n_fft - win_length) // 2
    return prims.pad_zeros(window, (left,), (n_fft - win_length - left,), (0,))


@operator(method=True, autocast={"cpu": "wide"})
def stft(input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Tensor | None = None,
         center: bool | None = True, pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None,
         return_complex: bool | None = None, align_to_window: bool | None = None) -> Tensor:
    """Transforms of windows of a signal: (..., time) -> (..., frequencies, frames), complex (or pairs if not return_complex).
    `align_to_window`, without `center`: the first frame's window, not its transform's width, begins where the signal does."""
    hop, length = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    if hop < 1:
        raise RuntimeError(f"stft: expected hop_length > 0, but got hop_length={hop}")
    if input.ndim not in (1, 2):
        raise RuntimeError(f"stft expects a 1D or 2D tensor, got shape {list(input.shape)}")
    if not 0 < length <= n_fft:
        raise RuntimeError(f"stft: expected 0 < win_length <= n_fft, but got win_length={length}")
    if return_complex is None and not input.dtype.is_complex:
        raise RuntimeError("stft requires the return_complex parameter be given for real inputs, and will further require that "
                           "return_complex=True in a future PyTorch release.")
    if return_complex is False:
        warn_once("stft with return_complex=False is deprecated. In a future release, stft will return complex tensors for all inputs; "
                  "torch.view_as_real makes pairs of them.")
    if window is None:
        warn_once("A window was not provided. A rectangular window will be applied, which is known to cause spectral leakage; to apply it "
                  "without this warning, give window=torch.ones(n_fft), or torch.hann_window(n_fft) instead.")
    x = input if input.ndim == 2 else prims.unsqueeze(input, 0)
    if center:
        x = prims.squeeze(OPERATORS["pad"](prims.unsqueeze(x, 1), (n_fft // 2, n_fft // 2), pad_mode), (1,))
        if align_to_window is not None:
            raise RuntimeError(f"stft align_to_window should only be set when center = false, got align_to_window={align_to_window}")
    elif align_to_window:
        x = OPERATORS["pad"](x, ((n_fft - length) // 2, n_fft - length - (n_fft - length) // 2))
    if n_fft > x.shape[-1]:
        raise RuntimeError(f"stft: expected 0 < n_fft <= {x.shape[-1]}, but got n_fft={n_fft}")
    frames = x.unfold(-1, n_fft, hop) * _full_window(x, window, length, n_fft)
    one = (not x.dtype.is_complex) if onesided is None else onesided
    out = (rfft if one else fft)(frames, norm="ortho" if normalized else None).transpose(1, 2)
    out = out if input.ndim == 2 else prims.squeeze(out, (0,))
    return prims.view_as_real(out) if return_complex is False else out


@operator(method=True)
def istft(input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Tensor | None = None,
          center: bool = True, normalized: bool = False, onesided: bool | None = None, length: int | None = None,
          return_complex: bool = False) -> Tensor:
    """The signal whose stft this is, by least squares (Griffin and Lim, 1984): overlap-add divided by the windows' energy."""
    hop, width = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    if not input.dtype.is_complex or input.ndim not in (2, 3) or not hop > 0 or not 0 < width <= n_fft:
        raise RuntimeError(f"istft: expected a complex tensor (frequencies, frames) or (batch, frequencies, frames), 0 < hop_length and "
                           f"0 < win_length <= n_fft, but got {input.dtype} of shape {list(input.shape)}, hop_length={hop}, "
                           f"win_length={width} and n_fft={n_fft}")
    x = input if input.ndim == 3 else prims.unsqueeze(input, 0)
    one = x.shape[1] != n_fft if onesided is None else onesided
    if x.shape[1] != (n_fft // 2 + 1 if one else n_fft):
        raise RuntimeError(f"istft: expected the frequency dimension (3rd to the last) of the input tensor to be {n_fft // 2 + 1} or, not "
                           f"onesided, {n_fft}, but got {x.shape[1]} of shape {list(input.shape)}, with onesided={onesided}")
    if one and return_complex:
        raise RuntimeError("istft: a complex signal has spectra of both sides: expected onesided=False with return_complex=True")
    if window is None:
        warn_once("A window was not provided. A rectangular window will be applied. Please provide the same window used by stft to make the "
                  "inversion lossless.")
    norm = "ortho" if normalized else None
    spectra = x.transpose(1, 2)
    if not one and not return_complex:      # of a real signal the other half says nothing new, and is not read
        spectra, one = spectra[..., :n_fft // 2 + 1], True
    frames = irfft(spectra, n_fft, norm=norm) if one else ifft(spectra, n_fft, norm=norm)
    taper = _full_window(frames, window, width, n_fft)
    count = frames.shape[1]
    total = n_fft + hop * (count - 1)
    places = (frames.new_arange(count).reshape(-1, 1) * hop + frames.new_arange(n_fft)).reshape(-1)
    signal = prims.index_add(frames.new_zeros((x.shape[0], total)), 1, places, (frames * taper).reshape(x.shape[0], -1))
    energy = prims.index_add(taper.new_zeros((total,)), 0, places, (taper * taper).repeat(count))
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else (total - n_fft // 2 if center else total)
    inside = min(end, total)
    energy = energy[start:inside]
    if energy._data is None:
        energy = checked(energy, energy.detach().abs() >= 1e-11)
    elif float(energy.detach().abs().min()) < 1e-11:
        raise RuntimeError("istft: window overlap add min: 1; the window is zero somewhere between frames (see NOLA)")
    out = signal[:, start:inside] / energy
    if end > total:
        out = prims.pad_zeros(out, (0, 0), (0, end - total), (0, 0))
    return out if input.ndim == 3 else prims.squeeze(out, (0,))
