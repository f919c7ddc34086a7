"""A NumPy number as an operator's attribute is that number: nothing is computed in its dtype."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import flambeau as fl
from flambeau.nn import functional as F

SPACES = (fl, fl.nn.functional, fl.special)


def takers() -> Iterator[tuple[str, Callable, int, str]]:
    """Functions with an attribute that is a float, how many tensors they need, and the attribute's name."""
    for space in SPACES:
        for name in dir(space):
            fn = getattr(space, name, None)
            if name.startswith("_") or inspect.isclass(fn) or not callable(fn) or name in ("set_printoptions", "set_default_device"):
                continue
            try:
                parameters = inspect.signature(fn).parameters.values()
            except ValueError:
                continue
            tensors = sum(p.default is inspect.Parameter.empty and "Tensor" in str(p.annotation) for p in parameters)
            for p in parameters if tensors else ():
                if isinstance(p.default, float):
                    yield f"{name}({p.name})", fn, tensors, p.name


@pytest.mark.filterwarnings("ignore")
def test_attributes() -> None:
    x = fl.linspace(0.1, 2, 6, dtype=fl.float64).reshape(2, 3)
    looked_at = 0
    for what, fn, tensors, attribute in takers():
        for value in (np.float32(0.3), np.float16(0.7), np.float32(1.1)):
            made = []
            for number in (float(value), value):
                fl.manual_seed(0)
                try:
                    made.append(fn(*[x] * tensors, **{attribute: number}))
                except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
                    made.append(None)
            if isinstance(made[0], fl.Tensor):
                looked_at += 1
                assert made[0].dtype is made[1].dtype and fl.equal(made[0].nan_to_num(), made[1].nan_to_num()), (what, value)
    assert looked_at > 60


def test_scale_of_celu() -> None:
    x = fl.tensor([-2.0], dtype=fl.float64)
    assert fl.nn.functional.celu(x, np.float32(1.5)).item() == fl.nn.functional.celu(x, 1.5).item()


x = fl.arange(24.0).reshape(2, 3, 4)
im = fl.arange(64.0).reshape(1, 1, 8, 8)
INTEGERS: dict[str, Callable] = {
    "pad": lambda i: F.pad(x, (i(1), i(2))),
    "padneg": lambda i: F.pad(x, (i(-1), i(1)), value=2.0),
    "padr": lambda i: F.pad(x, (i(1), i(1)), mode='reflect'),
    "padc": lambda i: F.pad(x, (i(1), i(1)), mode='circular'),
    "padp": lambda i: F.pad(x, (i(1), i(1)), mode='replicate'),
    "reshape": lambda i: x.reshape(i(4), i(6)),
    "reshape2": lambda i: x.reshape((i(4), i(-1))),
    "view": lambda i: x.view(i(6), i(4)),
    "permute": lambda i: x.permute(i(2), i(0), i(1)),
    "expand": lambda i: x[:1].expand(i(2), i(3), i(4)),
    "repeat": lambda i: x.repeat(i(1), i(2), i(1)),
    "tile": lambda i: fl.tile(x, (i(2), i(1))),
    "roll": lambda i: fl.roll(x, i(1), i(0)),
    "roll2": lambda i: fl.roll(x, (i(1), i(2)), (i(0), i(1))),
    "flip": lambda i: x.flip(i(0)),
    "rot": lambda i: fl.rot90(x, i(1), (i(0), i(1))),
    "narrow": lambda i: x.narrow(i(2), i(1), i(2)),
    "split": lambda i: x.split(i(2), i(2)),
    "split2": lambda i: x.split([i(1), i(3)], i(2)),
    "chunk": lambda i: x.chunk(i(2), i(2)),
    "tsplit": lambda i: x.tensor_split(i(2), i(2)),
    "tsplit2": lambda i: x.tensor_split((i(1), i(3)), i(2)),
    "zeros": lambda i: fl.zeros(i(2), i(3)),
    "zeros2": lambda i: fl.zeros((i(2), i(3))),
    "full": lambda i: fl.full((i(2),), i(3)),
    "eye": lambda i: fl.eye(i(2), i(3)),
    "arange": lambda i: fl.arange(i(1), i(9), i(2)),
    "linspace": lambda i: fl.linspace(0, 1, i(3)),
    "newz": lambda i: x.new_zeros(i(2), i(2)),
    "empty": lambda i: fl.empty(i(2)).shape,
    "randperm": lambda i: fl.randperm(i(3)).shape,
    "randint": lambda i: fl.randint(i(1), i(3), (i(2),)).shape,
    "unfold": lambda i: x.unfold(i(2), i(2), i(1)),
    "funfold": lambda i: F.unfold(im, (i(2), i(2)), padding=i(1), stride=i(2)),
    "pool": lambda i: F.max_pool2d(im, i(2), i(1), i(1)),
    "avg": lambda i: F.avg_pool2d(im, (i(2), i(2)), (i(1), i(2))),
    "adapt": lambda i: F.adaptive_avg_pool2d(im, (i(2), i(3))),
    "adaptm": lambda i: F.adaptive_max_pool2d(im, i(2)),
    "conv": lambda i: F.conv2d(im, fl.ones(1, 1, 3, 3), stride=(i(1), i(2)), padding=i(1), dilation=i(1)),
    "convt": lambda i: F.conv_transpose2d(im, fl.ones(1, 1, 3, 3), stride=i(2), padding=(i(1), i(1)), output_padding=i(1)),
    "interp": lambda i: F.interpolate(im, size=(i(4), i(5))),
    "interp2": lambda i: F.interpolate(im, size=i(4), mode='bilinear'),
    "shuffle": lambda i: F.pixel_shuffle(im.reshape(1, 4, 4, 4), i(2)),
    "unshuffle": lambda i: F.pixel_unshuffle(im, i(2)),
    "sum": lambda i: x.sum(i(1)),
    "sum2": lambda i: x.sum((i(0), i(2))),
    "mean": lambda i: x.mean(i(0)),
    "max": lambda i: x.max(i(1))[0],
    "argmax": lambda i: x.argmax(i(1)),
    "softmax": lambda i: x.softmax(i(1)),
    "cumsum": lambda i: x.cumsum(i(1)),
    "topk": lambda i: x.topk(i(2), i(2))[0],
    "sort": lambda i: x.sort(i(1))[0],
    "kth": lambda i: x.kthvalue(i(2), i(1))[0],
    "var": lambda i: x.var(i(1)),
    "norm": lambda i: x.norm(2, i(1)),
    "lse": lambda i: x.logsumexp(i(1)),
    "all": lambda i: (x > 3).all(i(1)),
    "quant": lambda i: x.quantile(0.5, i(1)),
    "median": lambda i: x.median(i(1))[0],
    "diff": lambda i: x.diff(i(2), i(1)),
    "diag": lambda i: x[0].diagonal(i(1)),
    "diag2": lambda i: fl.diag(x[0], i(1)),
    "tril": lambda i: x.tril(i(1)),
    "asst": lambda i: x.as_strided((i(2), i(2)), (i(4), i(1)), i(1)),
    "onehot": lambda i: F.one_hot(fl.tensor([1]), i(3)),
    "unflat": lambda i: x.unflatten(i(2), (i(2), i(2))),
    "movedim": lambda i: x.movedim(i(0), i(2)),
    "squeeze": lambda i: x[:1].squeeze(i(0)),
    "unsq": lambda i: x.unsqueeze(i(1)),
    "select": lambda i: x.select(i(1), i(2)),
    "isel": lambda i: x.index_select(i(1), fl.tensor([0])),
    "rep": lambda i: x.repeat_interleave(i(2), i(1)),
    "transpose": lambda i: x.transpose(i(0), i(1)),
    "flatten": lambda i: x.flatten(i(1), i(2)),
    "stack": lambda i: fl.stack([x, x], i(1)),
    "cat": lambda i: fl.cat([x, x], i(1)),
    "unbind": lambda i: x.unbind(i(1)),
    "gather": lambda i: x.gather(i(1), fl.zeros(2, 1, 4).long()),
    "scatter": lambda i: x.scatter(i(1), fl.zeros(2, 1, 4).long(), i(5)),
    "iadd": lambda i: x.index_add(i(1), fl.tensor([0]), x[:, :1]),
    "stft": lambda i: fl.stft(fl.arange(32.0), i(8), i(4), i(8), return_complex=True),
    "fft": lambda i: fl.fft.fft(x, i(3), i(1)),
    "rfft2": lambda i: fl.fft.rfft2(x, (i(2), i(4)), (i(1), i(2))),
    "mpow": lambda i: fl.linalg.matrix_power(fl.eye(2), i(3)),
    "bincount": lambda i: fl.bincount(fl.tensor([1]), minlength=i(4)),
    "histc": lambda i: fl.histc(x, i(3)),
    "comb": lambda i: fl.combinations(fl.arange(3), i(2)),
    "vander": lambda i: fl.vander(fl.arange(3), i(2)),
    "gn": lambda i: F.group_norm(x.reshape(2, 4, 3), i(2)),
    "ln": lambda i: F.layer_norm(x, (i(4),)),
    "glu": lambda i: F.glu(x, i(2)),
    "normalize": lambda i: F.normalize(x, 2, i(1)),
    "cos": lambda i: F.cosine_similarity(x, x + 1, i(1)),
    "emb": lambda i: F.embedding(fl.tensor([1]), fl.ones(3, 2), padding_idx=i(1)),
    "ce": lambda i: F.cross_entropy(x[0], fl.tensor([1, 2, 3]), ignore_index=i(2)),
    "mn": lambda i: fl.multinomial(fl.ones(3), i(2)).shape,
    "hann": lambda i: fl.hann_window(i(4)),
    "triu": lambda i: fl.triu_indices(i(2), i(3), i(1)),
    "index": lambda i: x[i(1), i(0):i(2)],
    "index2": lambda i: x[:, i(-1)],
    "swap": lambda i: x.swapaxes(i(0), i(1)),
    "cdim": lambda i: fl.take_along_dim(x, fl.zeros(2, 1, 4).long(), i(1)),
    "tri": lambda i: fl.tril(x, i(-1)),
    "logs": lambda i: fl.logspace(0, 1, i(3)),
    "bit": lambda i: fl.tensor([1, 2]) << i(1),
    "nuc": lambda i: fl.cross(fl.ones(2, 3), fl.ones(2, 3), dim=i(1)),
    "renorm": lambda i: fl.renorm(x, 2, i(0), 1.0),
    "trapz": lambda i: fl.trapezoid(x, dim=i(1)),
    "lu": lambda i: fl.block_diag(x[i(0)]),
    "bdrop": lambda i: fl.tensordot(x[0], x[0].t(), i(1)),
    "uf": lambda i: fl.unique(x, dim=i(0)),
    "cm": lambda i: fl.channel_shuffle(x.reshape(1, 2, 3, 4), i(2)),
    "msort": lambda i: fl.count_nonzero(x, i(1)),
}
"""Calls in which every number that counts something goes through `i`."""


@pytest.mark.filterwarnings("ignore:A window was not provided")
@pytest.mark.parametrize("kind", [np.int64, np.int32, lambda v: np.uint8(v) if v >= 0 else np.int8(v)])
@pytest.mark.parametrize("name", INTEGERS)
def test_sizes_and_dimensions(name: str, kind: Callable) -> None:
    def results(i: Callable) -> list:
        fl.manual_seed(0)
        out = INTEGERS[name](i)
        out = out if type(out) in (tuple, list) else [out]
        return [(type(t), tuple(t.shape), t.tolist()) if isinstance(t, fl.Tensor) else t for t in out]

    assert results(kind) == results(int)
