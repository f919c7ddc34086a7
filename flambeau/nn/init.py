"""torch.nn.init: fill parameters in place. Every random one takes a `generator`."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np

from ..core import dispatch
from ..core.tensor import Tensor, from_array
from ..ops.creation import empty_like
from ..ops.random import randperm


def _no_grad(fill: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    with dispatch.grad_enabled(False):
        fill(tensor, *args, **kwargs)
    return tensor


_GAINS = {"linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0, "conv_transpose2d": 1.0,
          "conv_transpose3d": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 0.75}


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """The factor by which a nonlinearity shrinks the standard deviation, to be made up for by the weights."""
    if nonlinearity == "leaky_relu":
        if param is not None and (isinstance(param, bool) or not isinstance(param, (int, float))):
            raise ValueError(f"negative_slope {param} not a valid number")
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform in [a, b)."""
    return _no_grad(Tensor.uniform_, tensor, a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with this mean and standard deviation."""
    return _no_grad(Tensor.normal_, tensor, mean, std, generator=generator)


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None) -> Tensor:
    """Normal, limited to [a, b]: drawn anew where it is not."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn("mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be incorrect.",
                      stacklevel=2)

    def cdf(x: float) -> float:
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    low, high = cdf((a - mean) / std), cdf((b - mean) / std)
    with dispatch.grad_enabled(False):
        if tensor._data is None:    # nobody can look whether all are within
            tensor.uniform_(2 * low - 1, 2 * high - 1, generator=generator)
            return tensor.erfinv_().mul_(std * math.sqrt(2.0)).add_(mean).clamp_(min=a, max=b)
        if high - low > _OFTEN:
            propose = functools.partial(_normal_proposal, mean=mean, std=std, a=a, b=b, generator=generator)
        else:
            propose = functools.partial(_uniform_proposal, mean=mean, std=std, a=a, b=b, generator=generator)
        made, missing = propose(tensor)
        while bool(missing.any()):
            again, refused = propose(tensor)
            made, missing = again.where(missing, made), missing & refused
        return tensor.copy_(made)


_OFTEN = 0.3    # of normal numbers within bounds


def _normal_proposal(like: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> tuple[Tensor, Tensor]:
    """Normal numbers, and which of them are refused."""
    made = empty_like(like).normal_(mean, std, generator=generator)
    return made, (made < a) | (made > b)


def _uniform_proposal(like: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> tuple[Tensor, Tensor]:
    """Uniform numbers in [a, b], and which are refused: C. P. Robert, "Simulation of truncated normal variables", 1995."""
    made = empty_like(like).uniform_(a, b, generator=generator)
    chance = empty_like(like).uniform_(generator=generator)
    mode = min(max(0.0, (a - mean) / std), (b - mean) / std)
    return made, chance.log() > (mode * mode - ((made - mean) / std).square()) / 2


def constant_(tensor: Tensor, val: float) -> Tensor:
    """The same number everywhere."""
    return _no_grad(Tensor.fill_, tensor, val)


def ones_(tensor: Tensor) -> Tensor:
    """1 everywhere."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """0 everywhere."""
    return constant_(tensor, 0.0)


def _write_array(tensor: Tensor, values: np.ndarray) -> Tensor:
    with dispatch.grad_enabled(False):
        tensor.copy_(from_array(np.ascontiguousarray(values)))
    return tensor


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return _write_array(tensor, np.eye(*tensor.shape, dtype=np.float64))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution weight that passes channels through unchanged (as many as there are, in each group)."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    shape = tuple(tensor.shape)
    if shape[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    outs = shape[0] // groups
    values = np.zeros(shape)
    for g in range(groups):
        for d in range(min(outs, shape[1])):
            values[(g * outs + d, d, *(n // 2 for n in shape[2:]))] = 1
    return _write_array(tensor, values)


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """Inputs of each output, and outputs of each input, of a linear or convolution weight."""
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform in +-gain * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    bound = gain * math.sqrt(6.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with standard deviation gain * sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


def _kaiming_scale(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return 0.0
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """Uniform in +-gain * sqrt(3 / fan) (He et al. 2015)."""
    bound = math.sqrt(3.0) * _kaiming_scale(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """Normal with standard deviation gain / sqrt(fan) (He et al. 2015)."""
    return normal_(tensor, 0.0, _kaiming_scale(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """A (semi-)orthogonal matrix: the Q of a random normal matrix, with the signs that make it unique (Saxe et al. 2013)."""
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if not tensor.numel() or tensor._data is None:
        return tensor
    rows = tensor.shape[0]
    normal_(tensor, 0, 1, generator)
    flat = tensor.detach()._data.reshape(rows, -1).astype(np.float64)
    q, r = np.linalg.qr(flat.T if rows < flat.shape[1] else flat)
    q = q * np.sign(np.diag(r))
    return _write_array(tensor, (gain * (q.T if rows < flat.shape[1] else q)).reshape(tuple(tensor.shape)))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal, but for a fraction `sparsity` of zeros in each column (Martens 2010)."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    normal_(tensor, 0, std, generator)
    with dispatch.grad_enabled(False):
        for column in range(columns):
            tensor[randperm(rows)[:zeros], column] = 0
    return tensor


def _deprecated(name: str) -> Any:
    current = globals()[name + "_"]

    def old(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.", FutureWarning, stacklevel=2)
        return current(*args, **kwargs)

    old.__name__, old.__doc__ = name, f"The old name of `{name}_`."
    return old


# By the names that libraries import.
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_, _no_grad_fill_, _no_grad_zero_ = (
    uniform_, normal_, trunc_normal_, constant_, zeros_)

uniform, normal, constant, eye, dirac = (_deprecated(n) for n in ("uniform", "normal", "constant", "eye", "dirac"))
xavier_uniform, xavier_normal = _deprecated("xavier_uniform"), _deprecated("xavier_normal")
kaiming_uniform, kaiming_normal = _deprecated("kaiming_uniform"), _deprecated("kaiming_normal")
orthogonal, sparse = _deprecated("orthogonal"), _deprecated("sparse")
