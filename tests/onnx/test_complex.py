"""Complex numbers, which ONNX has not, as two tensors: in ONNX Runtime beside eager."""

import numpy as np
import pytest

import flambeau as fl
from flambeau.export import Dim
from flambeau.onnx.errors import UnsupportedOperatorError

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def rotary(x):
    turned = fl.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * fl.polar(fl.ones(4), fl.arange(4.0))
    return fl.view_as_real(turned).flatten(-2)


PROGRAMS = {
    "rotary": rotary,
    "fft": lambda x: fl.fft.fft(x).abs(),
    "fft2": lambda x: fl.fft.fft2(x).real,
    "back": lambda x: fl.fft.ifft(fl.fft.fft(x, norm="ortho"), norm="ortho").real,
    "forward": lambda x: fl.view_as_real(fl.fft.ifft(fl.fft.fft(x, norm="forward"), norm="forward")),
    "half": lambda x: fl.fft.rfft(x).imag,
    "and back": lambda x: fl.fft.irfft(fl.fft.rfft(x) * 2),
    "odd": lambda x: fl.fft.irfft(fl.fft.rfft(x), n=7),
    "filter": lambda x: fl.fft.irfft(fl.fft.rfft(x, dim=0, norm="ortho").sum(1, keepdim=True), n=x.shape[0], dim=0, norm="ortho"),
    "spectrum": lambda x: fl.stft(x, 4, window=fl.hann_window(4), return_complex=True).abs(),
    "arithmetic": lambda x: fl.view_as_real((fl.complex(x, x + 1) * (2 - 1j) + x - 1j) / fl.complex(x + 3, x * 0 + 1)),
    "products": lambda x: fl.view_as_real(fl.complex(x, -x) @ fl.complex(x.mT, x.mT + 1)),
    "moved": lambda x: fl.view_as_real(fl.cat([fl.complex(x, x * 2).mT[1:], fl.complex(x, x).mT[:2].conj()]).flatten().reshape(-1, 3)),
    "outputs": lambda x: fl.complex(x, x + 1) + 1,
}


class Program(fl.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x):
        return PROGRAMS[self.name](x)


@pytest.mark.parametrize("opset", [18, 20])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, opset):
    fl.manual_seed(0)
    net, x = Program(name).eval(), fl.randn(6, 8)[:, :8]
    if name in ("products", "moved"):
        x = x[:3]
    model = fl.onnx.export(net, (x,), opset_version=opset)
    for some in (x, fl.randn(*x.shape)):
        want = net(some)
        want = fl.view_as_real(want) if want.is_complex() else want
        np.testing.assert_allclose(model(some)[0].numpy(), want.numpy(), rtol=1e-4, atol=1e-5)


class Mixing(fl.nn.Module):
    """As FNet mixes tokens; and a constant of complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turns", fl.polar(fl.ones(8), fl.arange(8.0)))

    def forward(self, x):
        mixed = fl.fft.fft(x, dim=-1).real
        return mixed + fl.view_as_real(x * self.turns).sum(-1)


def test_sizes_may_vary_beside_those_that_are_transformed():
    net = Mixing().eval()
    model = fl.onnx.export(net, (fl.randn(3, 8),), dynamic_shapes=({0: Dim("rows")},))
    for rows in (2, 5):
        x = fl.randn(rows, 8)
        np.testing.assert_allclose(model(x)[0].numpy(), net(x).numpy(), rtol=1e-4, atol=1e-5)


class Plain(fl.nn.Module):
    def forward(self, x):
        return x * 2


def test_what_complex_numbers_have_no_form_of():
    class Sine(fl.nn.Module):
        def forward(self, x):
            return fl.view_as_real(fl.complex(x, x).sin())

    with pytest.raises(UnsupportedOperatorError, match="sin"):
        fl.onnx.export(Sine().eval(), (fl.ones(2),))
    with pytest.raises(NotImplementedError, match="view_as_complex"):
        fl.onnx.export(Plain().eval(), (fl.ones(2, dtype=fl.complex64),))
