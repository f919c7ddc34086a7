"""Fourier transforms against torch and NumPy, with gradients."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl

RNG = np.random.default_rng(5)
R = RNG.standard_normal((3, 4, 5))
C = R + 1j * RNG.standard_normal((3, 4, 5))
NORMS = [None, "forward", "ortho"]

CASES = {
    "fft": (lambda t, x: t.fft.fft(x), C),
    "fft of reals": (lambda t, x: t.fft.fft(x, dim=0), R),
    "fft padded": (lambda t, x: t.fft.fft(x, 7), C),
    "fft cropped": (lambda t, x: t.fft.fft(x, 3, dim=1), C),
    "ifft": (lambda t, x: t.fft.ifft(x), C),
    "fft2": (lambda t, x: t.fft.fft2(x), C),
    "ifft2": (lambda t, x: t.fft.ifft2(x, (3, 6)), C),
    "fftn": (lambda t, x: t.fft.fftn(x), C),
    "fftn dims": (lambda t, x: t.fft.fftn(x, dim=(0, 2)), C),
    "ifftn": (lambda t, x: t.fft.ifftn(x, s=(2, 3)), C),
    "rfft": (lambda t, x: t.fft.rfft(x), R),
    "rfft even": (lambda t, x: t.fft.rfft(x, dim=1), R),
    "rfft padded": (lambda t, x: t.fft.rfft(x, 8), R),
    "irfft": (lambda t, x: t.fft.irfft(x), C),
    "irfft odd": (lambda t, x: t.fft.irfft(x, 7), C),
    "rfft2": (lambda t, x: t.fft.rfft2(x), R),
    "rfftn": (lambda t, x: t.fft.rfftn(x), R),
    "irfft2": (lambda t, x: t.fft.irfft2(x), C),
    "irfftn": (lambda t, x: t.fft.irfftn(x, (3, 4, 9)), C),
    "hfft": (lambda t, x: t.fft.hfft(x), C),
    "ihfft": (lambda t, x: t.fft.ihfft(x) * 1, R),
    "fftshift": (lambda t, x: t.fft.fftshift(x), R),
    "ifftshift": (lambda t, x: t.fft.ifftshift(x, (0, 2)), R),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(agrees, name):
    fn, x = CASES[name]
    agrees(fn, x)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "fft2", "ifftn", "hfft"])
def test_norms(agrees, name, norm):
    x = R if name == "rfft" else C
    agrees(lambda t, x: getattr(t.fft, name)(x, norm=norm), x)


def test_single_precision_stays_single(agrees):
    agrees(lambda t, x: t.fft.fft(x), C.astype(np.complex64), tolerance=1e-4)
    agrees(lambda t, x: t.fft.irfft(t.fft.rfft(x)), R.astype(np.float32)[..., :4].copy(), tolerance=1e-4)


@pytest.mark.parametrize("fn", [lambda t: t.fft.fftfreq(7, 0.5), lambda t: t.fft.rfftfreq(8), lambda t: t.fft.fft(t.arange(4))])
def test_frequencies_and_integers(agrees, fn):
    agrees(fn)


def test_inverse_gives_back():
    x = fl.tensor(C)
    assert fl.allclose(fl.fft.ifftn(fl.fft.fftn(x)), x)
    r = fl.tensor(R)
    assert fl.allclose(fl.fft.irfftn(fl.fft.rfftn(r), r.shape), r)
    assert fl.allclose(fl.fft.fft(x), fl.from_numpy(np.fft.fft(C)))


def test_gradients_by_finite_differences():
    x = fl.tensor(R[0], requires_grad=True)
    assert fl.autograd.gradcheck(lambda v: fl.view_as_real(fl.fft.rfft(v)), (x,))
    assert fl.autograd.gradcheck(lambda v: fl.fft.irfft(fl.fft.rfft(v), 6), (x,))
    assert fl.autograd.gradgradcheck(lambda v: (fl.fft.fft2(v).abs() ** 2), (x,))


@pytest.mark.parametrize("fn", [lambda t, x: t.fft.fft(x, norm="half"), lambda t, x: t.fft.rfft(x), lambda t, x: t.fft.fft(x, 0),
                                lambda t, x: t.fft.fftn(x, dim=(0, 0)), lambda t, x: t.fft.fftn(x, s=(2, 2), dim=(0,)),
                                lambda t, x: t.fft.fft(x, dim=5)])
def test_refused(both_refuse, fn):
    both_refuse(fn, C)
