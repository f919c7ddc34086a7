"""torch.nn.grad: the gradients of convolutions, by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core.tensor import Tensor
from ..ops import prims
from ..ops.nn_windows import Sizes, ntuple


def _attrs(rank: int, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> tuple:
    return (*(ntuple(v, rank) for v in (stride, padding, dilation)), groups)


def _of_input(rank: int) -> Callable:
    def fn(input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Sizes = 1, padding: Sizes = 0, dilation: Sizes = 1,
           groups: int = 1) -> Tensor:
        attrs = _attrs(rank, stride, padding, dilation, groups)
        return prims.convolution_input_grad(grad_output, weight, tuple(input_size), *attrs)

    fn.__name__ = fn.__qualname__ = f"conv{rank}d_input"
    fn.__doc__ = f"The gradient of conv{rank}d with respect to its input."
    return fn


def _of_weight(rank: int) -> Callable:
    def fn(input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Sizes = 1, padding: Sizes = 0, dilation: Sizes = 1,
           groups: int = 1) -> Tensor:
        attrs = _attrs(rank, stride, padding, dilation, groups)
        return prims.convolution_weight_grad(grad_output, input, tuple(weight_size), *attrs)

    fn.__name__ = fn.__qualname__ = f"conv{rank}d_weight"
    fn.__doc__ = f"The gradient of conv{rank}d with respect to its weight."
    return fn


conv1d_input, conv2d_input, conv3d_input = map(_of_input, (1, 2, 3))
conv1d_weight, conv2d_weight, conv3d_weight = map(_of_weight, (1, 2, 3))
