"""torch.nn.grad: the gradients of convolutions, by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core.tensor import Tensor
from ..ops import prims
from ..ops.nn.windows import Sizes, ntuple


def _gradients(rank: int) -> tuple[Callable, Callable]:
    def attrs(stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> tuple:
        return (*(ntuple(v, rank) for v in (stride, padding, dilation)), groups)

    def of_input(input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Sizes = 1, padding: Sizes = 0,
                 dilation: Sizes = 1, groups: int = 1) -> Tensor:
        return prims.convolution_input_grad(grad_output, weight, tuple(input_size), *attrs(stride, padding, dilation, groups))

    def of_weight(input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Sizes = 1, padding: Sizes = 0,
                  dilation: Sizes = 1, groups: int = 1) -> Tensor:
        return prims.convolution_weight_grad(grad_output, input, tuple(weight_size), *attrs(stride, padding, dilation, groups))

    for fn, what in ((of_input, "input"), (of_weight, "weight")):
        fn.__name__ = fn.__qualname__ = f"conv{rank}d_{what}"
        fn.__doc__ = f"The gradient of conv{rank}d with respect to its {what}."
    return of_input, of_weight


(conv1d_input, conv1d_weight), (conv2d_input, conv2d_weight), (conv3d_input, conv3d_weight) = map(_gradients, (1, 2, 3))
