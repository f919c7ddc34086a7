"""Convolutions over CuPy arrays by cuDNN, 1 to 3 spatial axes: forward, and the gradients by input and weight.

x is (n, c, *sizes), w (o, c / groups, *kernel), y (n, o, *sizes'). All three lie in memory either with their channels innermost
(which the tensor cores' kernels want) or contiguous; what lies otherwise is copied first. Results take the memory order of the
input, as on the CPU. Plans are made once for a description and kept.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import cupy

from ... import _C
from ...core.dtypes import DTYPES
from ...core.windows import ROLES, by_role, window_count
from .. import cudnn as settings
from ..cpu import conv as host
from . import dnn_library
from .cubins import stream_pointer
from .dnn_library import DATA_TYPES, Convolution, ExecutionPlan, Operand
from .programs import REMEMBERED, Launch, Place, program

Array = Any
Call = Callable[[int, int, int], None]      # of the addresses of x, w and y
CANDIDATES = 8          # plans that are timed against each other with torch.backends.cudnn.benchmark
REPEATS = 3


class _Handles:
    """One handle for each device, told of the stream that is used."""

    def __init__(self) -> None:
        self.made: dict[int, Any] = {}
        self.streams: dict[int, int] = {}

    def __call__(self, device: int) -> Any:
        """The device's handle."""
        if device not in self.made:
            self.made[device] = dnn_library.library().create_handle()
        return self.made[device]

    def use(self, device: int, stream: int) -> None:
        """Let what the device's handle does next go to `stream`."""
        lib = dnn_library.library()
        lib.check(lib.lib.cudnnSetStream(self(device), stream), "cudnnSetStream")
        self.streams[device] = stream


_handles = _Handles()
_current_stream = stream_pointer()
_calls: dict[tuple, Call] = {}


# -- running -----------------------------------------------------------------------------------------------------
def by_address(conv: Convolution) -> Call:
    """What computes a convolution from the addresses of x, w and y, prepared once.

    Where cuDNN cannot do it in this memory order it is done in the other one, through copies. With torch.backends.cudnn.benchmark
    cuDNN's candidates are timed against each other, else the one that it ranks first is taken.
    """
    key = (cupy.cuda.runtime.getDevice(), conv, settings.benchmark)
    call = _calls.get(key)
    if call is None:
        call = _prepare(conv)
        if call is None:
            call = _relaid(conv)
        _calls[key] = call
    return call


def _prepare(conv: Convolution) -> Call | None:
    found = dnn_library.plans(dnn_library.library(), _handles(cupy.cuda.runtime.getDevice()), conv)
    plan = next(found, None)
    if plan is not None and settings.benchmark:
        plan = _fastest(conv, [plan, *(p for p, _ in zip(found, range(CANDIDATES - 1)))])
    return None if plan is None else _runner(plan)


def _relaid(conv: Convolution) -> Call:
    """The convolution in the other memory order, with copies around it; on the processor, if there is no kernel for that either."""
    operands, target = (conv.x, conv.w, conv.y), ROLES[conv.kind][2]
    last = conv.x.strides == dnn_library.laid_out(conv.x.shape, True)
    other = dnn_library.describe(conv.kind, conv.dtype, [o.shape for o in operands], not last, *conv.window)
    call = _prepare(other)
    if call is None:
        return _on_host(conv)
    kind = DTYPES[conv.dtype].numpy

    def relaid(x: int, w: int, y: int) -> None:
        arrays = [_at(place, o, kind) for place, o in zip((x, w, y), operands)]
        moved = [empty(a.shape, kind, not last) if k == target else placed(a, not last) for k, a in enumerate(arrays)]
        call(*(a.data.ptr for a in moved))
        _copy(arrays[target], moved[target])
    return relaid


def _on_host(conv: Convolution) -> Call:
    """The convolution on the processor, through two copies: some of a single pixel have no kernel in cuDNN."""
    kind, target = DTYPES[conv.dtype].numpy, ROLES[conv.kind][2]
    attrs = (*conv.window, conv.x.shape[1] // conv.w.shape[1])

    def call(*places: int) -> None:
        arrays = [_at(place, operand, kind) for place, operand in zip(places, (conv.x, conv.w, conv.y))]
        given: list[Any] = [cupy.asnumpy(a) if k != target else None for k, a in enumerate(arrays)]
        x, w, y = given
        if conv.kind == "convolution":
            made = host.convolution(x, w, None, *attrs)
        elif conv.kind == "convolution_input_grad":
            made = host.convolution_input_grad(y, w, conv.x.shape, *attrs)
        else:
            made = host.convolution_weight_grad(y, x, conv.w.shape, *attrs)
        arrays[target][...] = cupy.asarray(made)
    return call


def _at(place: int, operand: Operand, kind: Any) -> Array:
    """The array at an address that somebody else keeps alive."""
    size = math.prod(operand.shape) * kind.itemsize
    memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(place, size, None), 0)
    return cupy.ndarray(operand.shape, kind, memory, strides=[s * kind.itemsize for s in operand.strides])


def _runner(plan: ExecutionPlan) -> Call:
    compute, size, alloc = plan.call, plan.workspace, cupy.cuda.alloc
    device, streams = cupy.cuda.runtime.getDevice(), _handles.streams

    def call(x: int, w: int, y: int) -> None:
        stream = _current_stream()
        if streams.get(device) != stream:
            _handles.use(device, stream)
        if size:
            room = alloc(size)
            compute(x, w, y, room.ptr)
        else:
            compute(x, w, y, 0)
    return call


def _fastest(conv: Convolution, candidates: Sequence[ExecutionPlan]) -> ExecutionPlan:
    """The plan that takes the least time on arrays of its own."""
    if len(candidates) == 1:
        return candidates[0]
    size = DTYPES[conv.dtype].itemsize
    arrays = [cupy.zeros(math.prod(o.shape) * size, "u1") for o in (conv.x, conv.w, conv.y)]
    places = [a.data.ptr for a in arrays]
    times = []
    for plan in candidates:
        call = _runner(plan)
        try:
            call(*places)
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            for _ in range(REPEATS):
                call(*places)
            end.record()
            end.synchronize()
        except dnn_library.CudnnError:
            times.append(math.inf)
            continue
        times.append(cupy.cuda.get_elapsed_time(start, end))
    return candidates[times.index(min(times))]


def is_channels_last(x: Array) -> bool:
    """Whether x lies in memory with its channels innermost, and not contiguous as it is."""
    return x.ndim >= 4 and not x.flags.c_contiguous and x.transpose(dnn_library.order_of(x.ndim, True)).flags.c_contiguous


def empty(shape: Sequence[int], dtype: Any, last: bool) -> Array:
    """An uninitialised array in one of the two memory orders."""
    order = dnn_library.order_of(len(shape), last)
    back = sorted(range(len(shape)), key=order.__getitem__)
    return cupy.empty([shape[d] for d in order], dtype).transpose(back)


def placed(x: Array, last: bool) -> Array:
    """`x` in one of the two memory orders, copied where it lies otherwise; aligned for vector loads."""
    if x.transpose(dnn_library.order_of(x.ndim, last)).flags.c_contiguous and x.data.ptr % dnn_library.ALIGNMENT == 0:
        return x
    out = empty(x.shape, x.dtype, last)
    _copy(out, x)
    return out


def _copy(out: Array, x: Array) -> None:
    if x.dtype.itemsize == 2:       # CuPy's kernels know no bfloat16
        out, x = out.view("u2"), x.view("u2")
    out[...] = x


def run(kind: str, x: Array, w: Array, y: Array, last: bool, *window: Sequence[int]) -> None:
    """Compute one of the three from the other two; the result lies in the memory order that is asked for already."""
    target = ROLES[kind][2]
    operands = [a if k == target else placed(a, last) for k, a in enumerate((x, w, y))]
    conv = dnn_library.describe(kind, x.dtype.name, [a.shape for a in operands], last, *window)
    by_address(conv)(*(a.data.ptr for a in operands))


def _program(kind: str, record: Any, args: Sequence[Any]) -> _C.GpuProgram | None:
    """What such convolutions of tensors of these layouts come to; None where operands or the result go through copies."""
    first, second, *rest = args
    shape, a, b = record.shape(*args).shape, first._data, second._data
    window = rest[-4:-1]
    last = is_channels_last(a) or (kind == "convolution_weight_grad" and is_channels_last(b))
    if a.dtype.name not in DATA_TYPES or a.dtype != b.dtype or last or 0 in shape or not (_is_placed(a) and _is_placed(b)):
        return None
    shapes = by_role(kind, (a.shape, b.shape), shape)
    name: str = a.dtype.name
    made: dict[tuple, Call] = {}

    def call(*places: int) -> None:
        setting = settings.benchmark, settings.allow_tf32
        found = made.get(setting)
        if found is None:
            found = made[setting] = by_address(dnn_library.describe(kind, name, shapes, False, *window))
        found(*places)
    return program(2, [(shape, a.dtype)], [Launch(call, 0, tuple([Place(False, k) for k in by_role(kind, (0, 1), 2)]))])


def _is_placed(x: Array) -> bool:
    """Whether x is contiguous, and aligned for vector loads."""
    return x._c_contiguous and x.data.ptr % dnn_library.ALIGNMENT == 0


def _check(x: Array, name: str) -> None:
    if x.dtype.name not in DATA_TYPES:
        raise RuntimeError(f'"{name}" not implemented for {x.dtype.name!r} on CUDA; float16, bfloat16, float32 and float64 are')


def convolution(x: Array, w: Array, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int) -> Array:
    """Cross-correlation of x with w, padded with zeros."""
    _check(x, "convolution")
    sizes = map(window_count, x.shape[2:], w.shape[2:], stride, padding, dilation)
    last = is_channels_last(x)
    out = empty((x.shape[0], w.shape[0], *sizes), x.dtype, last)
    if not out.size or not x.size:
        out.fill(0)
        return out
    run("convolution", x, w, out, last, stride, padding, dilation)
    return out


def convolution_input_grad(g: Array, w: Array, x_shape: Sequence[int], stride: Sequence[int], padding: Sequence[int],
                           dilation: Sequence[int], groups: int) -> Array:
    """The gradient of `convolution` by x, which has `x_shape`; also the transposed convolution."""
    _check(g, "convolution_input_grad")
    last = is_channels_last(g)
    out = empty(tuple(x_shape), g.dtype, last)
    if not out.size or not g.size:
        out.fill(0)
        return out
    run("convolution_input_grad", out, w, g, last, stride, padding, dilation)
    return out


def convolution_weight_grad(g: Array, x: Array, w_shape: Sequence[int], stride: Sequence[int], padding: Sequence[int],
                            dilation: Sequence[int], groups: int) -> Array:
    """The gradient of `convolution` by w, which has `w_shape`: contiguous."""
    _check(x, "convolution_weight_grad")
    out = cupy.empty(tuple(w_shape), x.dtype)
    if not out.size or not x.size:
        out.fill(0)
        return out
    last = is_channels_last(x) or is_channels_last(g)
    target = out if not last else empty(out.shape, out.dtype, True)
    run("convolution_weight_grad", x, target, g, last, stride, padding, dilation)
    if target is not out:
        _copy(out, target)
    return out


KERNELS: dict[str, Callable] = {
    "convolution": convolution, "convolution_input_grad": convolution_input_grad, "convolution_weight_grad": convolution_weight_grad,
}


def install(primitives: dict[str, Any]) -> None:
    """Fill in the CUDA column of the convolutions. cuDNN is loaded when one is called."""
    for name, kernel in KERNELS.items():
        primitives[name].kernels["cuda"] = kernel
        primitives[name].eager.gpu = _C.GpuPrograms(functools.partial(_program, name, primitives[name]), REMEMBERED)
