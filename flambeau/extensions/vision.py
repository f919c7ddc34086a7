"""`torch.ops.torchvision`: what detectors need of boxes and regions of images.

Regions are rows (index of the image, x1, y1, x2, y2). RoIAlign (He et al., "Mask R-CNN", 2017) averages samples on a grid in each bin of
a region, read bilinearly; as the grid is a product of rows and columns, a region's result is a product of three matrices: rows' weights,
the image, columns' weights. The position-sensitive kinds (Dai et al., "R-FCN", 2016) read another channel for each bin. RoIPool (Girshick,
"Fast R-CNN", 2015) takes a bin's largest element. Deformable convolution: Zhu et al., "Deformable ConvNets v2" (2018).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..autograd import grad as gradients
from ..autograd.grad_mode import enable_grad
from ..core.dtypes import float32, int32, int64
from ..core.tensor import Tensor
from ..core.windows import window_count
from ..library import get_ctx
from ..ops.counting import arange
from ..ops.creation import from_numpy, zeros
from ..ops.joining import stack
from ..ops.nn.resize import _rows_read
from ..ops.pointwise import where
from . import Extension

vision = Extension("torchvision")
vision.constants(_cuda_version=-1)


# -- boxes -------------------------------------------------------------------------------------------------
def _some(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    return dets.new_empty((get_ctx().new_dynamic_size(),), dtype=int64)


@vision.operator("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", _some)
def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Indices (i64) of the boxes (n, 4) that no better one overlaps by more than `iou_threshold`, the best first."""
    if dets.ndim != 2 or dets.shape[1] != 4 or scores.ndim != 1 or scores.shape[0] != dets.shape[0]:
        raise RuntimeError(f"nms: boxes are a tensor [N, 4] and scores one [N], got shapes {list(dets.shape)} and {list(scores.shape)}")
    if dets.dtype is not scores.dtype:
        raise RuntimeError(f"dets should have the same type as scores, got {dets.dtype} and {scores.dtype}")
    order = _host(scores.argsort(descending=True, stable=True))
    boxes = _host(dets)[order]
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept, left = [], np.arange(len(order))
    while len(left):
        best, left = left[0], left[1:]
        kept.append(order[best])
        low, high = np.maximum(boxes[best, :2], boxes[left, :2]), np.minimum(boxes[best, 2:], boxes[left, 2:])
        shared = np.maximum(high - low, 0).prod(1)
        with np.errstate(invalid="ignore", divide="ignore"):
            left = left[~(shared / (areas[best] + areas[left] - shared) > iou_threshold)]
    return from_numpy(np.array(kept, dtype=np.int64)).to(dets.device)


def _host(x: Tensor) -> np.ndarray:
    """The elements on the host, floats no narrower than float32."""
    x = x.detach().cpu()
    return (x.to(float32) if x.dtype.is_floating_point and x.dtype.itemsize < 4 else x).numpy()


for _schema in ("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
                "qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, int rois_zero_point, "
                "float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor"):
    vision.refused(_schema, "there are no quantized tensors; use floats")


# -- regions -----------------------------------------------------------------------------------------------
class _Side(NamedTuple):
    """How the bins of all regions read one dimension of the image: `weight` (regions, bins, size), not zero in low[k]:high[k]."""

    weight: np.ndarray
    low: np.ndarray
    high: np.ndarray


def _reach(weight: np.ndarray) -> _Side:
    read = (weight != 0).any(axis=1)
    some = read.any(axis=1)
    low = np.where(some, read.argmax(1), 0)
    return _Side(weight, low, np.where(some, weight.shape[2] - read[:, ::-1].argmax(1), 0))


def _bilinear(start: np.ndarray, length: np.ndarray, bins: int, samples: int, size: int) -> _Side:
    """Means of samples at even distances in each bin, read between the two elements that they lie between."""
    kind = start.dtype.type
    step = length / kind(bins)
    number = np.full(len(start), samples) if samples > 0 else np.ceil(step).astype(np.int64)
    i = np.arange(max(number.max(initial=0), 1))
    share = np.maximum(number, 1).astype(kind)[:, None, None]
    at = ((start[:, None] + np.arange(bins, dtype=kind) * step[:, None])[:, :, None] + (i + kind(0.5)) * step[:, None, None] / share)
    counts = (i < number[:, None, None]) & (at >= -1) & (at <= size)
    at = np.maximum(at, 0)
    low = np.minimum(at.astype(np.int64), size - 1)
    rest = np.where(low < size - 1, at - low, 0).astype(kind)
    weight = np.zeros((len(start), bins, size), kind)
    k, p = np.arange(len(start))[:, None, None], np.arange(bins)[None, :, None]
    np.add.at(weight, (k, p, low), np.where(counts, (1 - rest) / share, 0))
    np.add.at(weight, (k, p, np.minimum(low + 1, size - 1)), np.where(counts, rest / share, 0))
    return _reach(weight)


def _edges(start: np.ndarray, length: np.ndarray, bins: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the whole elements of each bin begin and end: (regions, bins) both."""
    kind = start.dtype.type
    step, number = (length / kind(bins))[:, None], np.arange(bins, dtype=kind)
    low, high = np.floor(number * step + start[:, None]), np.ceil((number + 1) * step + start[:, None])
    return np.clip(low, 0, size).astype(np.int64), np.clip(high, 0, size).astype(np.int64)


def _whole(start: np.ndarray, length: np.ndarray, bins: int, size: int, last: int) -> _Side:
    """Means of a bin's whole elements, `last` elements before the image's end at the latest; 0 of a bin without any."""
    low, high = _edges(start, length, bins, size - last)
    x = np.arange(size)
    inside = (x >= low[:, :, None]) & (x < high[:, :, None])
    return _reach(inside / np.maximum(high - low, 1)[:, :, None].astype(start.dtype))


def _rounded(x: np.ndarray) -> np.ndarray:
    """To whole numbers, halves away from zero."""
    return np.sign(x) * np.floor(np.abs(x) + x.dtype.type(0.5))


def _check(name: str, input: Tensor, rois: Tensor) -> np.ndarray:
    """The regions on the host, once they and the images fit."""
    if rois.ndim != 2 or rois.shape[1] != 5:
        raise RuntimeError(f"{name}: rois must have shape as Tensor[K, 5], got {list(rois.shape)}")
    if input.ndim != 4:
        raise RuntimeError(f"{name}: input is a batch of images [N, C, H, W], got {list(input.shape)}")
    if input.dtype is not rois.dtype:
        raise RuntimeError(f"{name}: Expected tensor for input to have the same type as tensor for rois; but type {input.dtype} does not "
                           f"equal {rois.dtype}")
    return _host(rois)


class _Regions(NamedTuple):
    """Which image each region reads, and how its rows and columns do."""

    images: np.ndarray
    rows: _Side
    columns: _Side

    def reads(self, like: Tensor) -> Iterator[tuple[tuple, Tensor, Tensor]]:
        """By region: the indices of the part of the images that it reads, the weights of rows (bins, h) and of columns (w, bins)."""
        rows, columns = (from_numpy(side.weight).to(like.device) for side in (self.rows, self.columns))
        for k, image in enumerate(self.images.tolist()):
            y, x = (slice(int(side.low[k]), int(side.high[k])) for side in (self.rows, self.columns))
            yield (image, ..., y, x), rows[k, :, y], columns[k, :, x].transpose(0, 1)


def _regions(rois: np.ndarray, scale: float, pooled: tuple[int, int], size: tuple[int, int], shift: float, least: float,
             side: Callable[[np.ndarray, np.ndarray, int, int], _Side]) -> _Regions:
    kind = rois.dtype.type
    corners = rois[:, 1:] * kind(scale) - kind(shift)
    length = corners[:, 2:] - corners[:, :2]
    length = np.maximum(length, kind(least)) if least else length
    rows, columns = (side(corners[:, d], length[:, d], n, whole) for d, n, whole in ((1, pooled[0], size[0]), (0, pooled[1], size[1])))
    return _Regions(rois[:, 0].astype(np.int64), rows, columns)


def _aligned(rois: np.ndarray, scale: float, pooled: tuple, size: tuple, samples: int, aligned: bool) -> _Regions:
    return _regions(rois, scale, pooled, size, 0.5 if aligned else 0.0, 0.0 if aligned else 1.0,
                    lambda start, length, bins, whole: _bilinear(start, length, bins, samples, whole))


def _wide(x: Tensor) -> Tensor:
    """In what sums are made: at least float32."""
    return x.to(float32) if x.dtype.itemsize < 4 else x


def _pooled_shape(input: Tensor, rois: Tensor, scale: float, height: int, width: int, *rest: Any) -> Tensor:
    return input.new_empty((rois.shape[0], input.shape[1], height, width))


@vision.operator("roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int "
                 "sampling_ratio, bool aligned) -> Tensor", _pooled_shape)
def roi_align(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int,
              aligned: bool) -> Tensor:
    """Means of bilinear samples in the bins of regions: (regions, channels, height, width)."""
    regions = _aligned(_check("roi_align", input, rois), spatial_scale, (pooled_height, pooled_width), tuple(input.shape[2:]),
                       sampling_ratio, aligned)
    source = _wide(input)
    out = [by_row @ (source[part] @ by_column) for part, by_row, by_column in regions.reads(input)]
    return stack(out).to(input.dtype) if out else _pooled_shape(input, rois, spatial_scale, pooled_height, pooled_width)


@vision.operator("_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, SymInt "
                 "batch_size, SymInt channels, SymInt height, SymInt width, int sampling_ratio, bool aligned) -> Tensor",
                 lambda grad, rois, scale, ph, pw, *sizes: grad.new_empty(sizes[:4]))
def roi_align_backward(grad: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, batch_size: int,
                       channels: int, height: int, width: int, sampling_ratio: int, aligned: bool) -> Tensor:
    """The gradient of `roi_align` by the images."""
    regions = _aligned(_host(rois), spatial_scale, (pooled_height, pooled_width), (height, width), sampling_ratio, aligned)
    g, made = _wide(grad), zeros(batch_size, channels, height, width, dtype=_wide(grad).dtype, device=grad.device)
    for k, (part, by_row, by_column) in enumerate(regions.reads(grad)):
        made[part] += by_row.transpose(0, 1) @ (g[k] @ by_column.transpose(0, 1))
    return made.to(grad.dtype)


def _keep_roi_align(ctx: Any, inputs: tuple, output: Tensor) -> None:
    input, rois, *ctx.settings = inputs
    ctx.save_for_backward(rois)
    ctx.sizes = tuple(input.shape)


def _roi_align_gradient(ctx: Any, g: Tensor) -> tuple:
    scale, height, width, samples, aligned = ctx.settings
    return roi_align_backward(g, ctx.saved_tensors[0], scale, height, width, *ctx.sizes, samples, aligned), *[None] * 6


vision.gradient("roi_align", _roi_align_gradient, _keep_roi_align)


# -- position-sensitive regions: bin (p, q) of channel c reads channel (c * height + p) * width + q ----------
def _by_position(regions: _Regions, input: Tensor, pooled: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Each bin's mean of its own channel (regions, channels, height, width), and which channel that is (i32)."""
    n, channels, height, width = input.shape
    if channels % (pooled[0] * pooled[1]):
        raise RuntimeError(f"input channels must be a multiple of pooling height * pooling width, got {channels} and {list(pooled)}")
    count = channels // (pooled[0] * pooled[1])
    source = _wide(input).reshape(n, count, *pooled, height, width)
    out = [((source[part] * by_row.unsqueeze(1).unsqueeze(-1)).sum(-2) * by_column.transpose(0, 1)).sum(-1)
           for part, by_row, by_column in regions.reads(input)]
    mapping = arange(channels, dtype=int32, device=input.device).reshape(1, count, *pooled).repeat(len(out), 1, 1, 1)
    shape = (0, count, *pooled)
    return stack(out).to(input.dtype) if out else input.new_empty(shape), mapping


def _by_position_backward(regions: _Regions, grad: Tensor, sizes: tuple[int, int, int, int]) -> Tensor:
    n, channels, height, width = sizes
    count, *pooled = grad.shape[1:]
    g, made = _wide(grad), zeros(n, count, *pooled, height, width, dtype=_wide(grad).dtype, device=grad.device)
    for k, (part, by_row, by_column) in enumerate(regions.reads(grad)):
        made[part] += g[k][..., None, None] * by_row.unsqueeze(1).unsqueeze(-1) * by_column.transpose(0, 1).unsqueeze(1)
    return made.reshape(n, channels, height, width).to(grad.dtype)


def _positions_shape(input: Tensor, rois: Tensor, scale: float, height: int, width: int, *rest: Any) -> tuple[Tensor, Tensor]:
    shape = (rois.shape[0], input.shape[1] // (height * width), height, width)
    return input.new_empty(shape), input.new_empty(shape, dtype=int32)


def _centred(rois: np.ndarray, scale: float, pooled: tuple, size: tuple, samples: int) -> _Regions:
    return _aligned(rois, scale, pooled, size, samples, True)


def _cut(rois: np.ndarray, scale: float, pooled: tuple, size: tuple, last: int = 0) -> _Regions:
    """Regions of whole elements, at least one wide. torchvision's results end before the `last` row and column, its gradients don't."""
    whole = np.concatenate([rois[:, :1], _rounded(rois[:, 1:] * rois.dtype.type(scale))], 1)
    return _regions(whole, 1.0, pooled, size, 0.0, 1.0, lambda start, length, bins, n: _whole(start, length, bins, n, last))


@vision.operator("ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int "
                 "sampling_ratio) -> (Tensor, Tensor)", _positions_shape)
def ps_roi_align(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int,
                 sampling_ratio: int) -> tuple[Tensor, Tensor]:
    """`roi_align` where each bin reads channels of its own, and these channels (i32)."""
    pooled = (pooled_height, pooled_width)
    return _by_position(_centred(_check("ps_roi_align", input, rois), spatial_scale, pooled, tuple(input.shape[2:]), sampling_ratio), input,
                        pooled)


@vision.operator("_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, SymInt pooled_height, "
                 "SymInt pooled_width, int sampling_ratio, SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor",
                 lambda grad, rois, mapping, scale, ph, pw, samples, *sizes: grad.new_empty(sizes))
def ps_roi_align_backward(grad: Tensor, rois: Tensor, channel_mapping: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int,
                          sampling_ratio: int, batch_size: int, channels: int, height: int, width: int) -> Tensor:
    """The gradient of `ps_roi_align` by the images."""
    regions = _centred(_host(rois), spatial_scale, (pooled_height, pooled_width), (height, width), sampling_ratio)
    return _by_position_backward(regions, grad, (batch_size, channels, height, width))


@vision.operator("ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> "
                 "(Tensor, Tensor)", _positions_shape)
def ps_roi_pool(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int) -> tuple[Tensor, Tensor]:
    """Means of whole elements where each bin reads channels of its own, and these channels (i32)."""
    pooled = (pooled_height, pooled_width)
    return _by_position(_cut(_check("ps_roi_pool", input, rois), spatial_scale, pooled, tuple(input.shape[2:]), 1), input, pooled)


@vision.operator("_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, SymInt pooled_height, "
                 "SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor",
                 lambda grad, rois, mapping, scale, ph, pw, *sizes: grad.new_empty(sizes))
def ps_roi_pool_backward(grad: Tensor, rois: Tensor, channel_mapping: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int,
                         batch_size: int, channels: int, height: int, width: int) -> Tensor:
    """The gradient of `ps_roi_pool` by the images."""
    regions = _cut(_host(rois), spatial_scale, (pooled_height, pooled_width), (height, width))
    return _by_position_backward(regions, grad, (batch_size, channels, height, width))


def _keep_regions(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    input, rois, *ctx.settings = inputs
    ctx.save_for_backward(rois, output[1])
    ctx.sizes = tuple(input.shape)


def _regions_gradient(backward: Callable) -> Callable:
    def gradient(ctx: Any, g: Tensor, _: Any) -> tuple:
        return backward(g, *ctx.saved_tensors, *ctx.settings, *ctx.sizes), *[None] * (1 + len(ctx.settings))

    return gradient


# -- the largest elements of regions -----------------------------------------------------------------------
def _largest_shape(input: Tensor, rois: Tensor, scale: float, height: int, width: int) -> tuple[Tensor, Tensor]:
    out = _pooled_shape(input, rois, scale, height, width)
    return out, out.new_empty(out.shape, dtype=int32)


@vision.operator("roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> "
                 "(Tensor, Tensor)", _largest_shape)
def roi_pool(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int) -> tuple[Tensor, Tensor]:
    """The largest element of each bin of whole elements (0 where there is none), and where in the image it is (i32, or -1)."""
    boxes = _check("roi_pool", input, rois)
    kind, (height, width) = boxes.dtype.type, input.shape[2:]
    corners = _rounded(boxes[:, 1:] * kind(spatial_scale))
    length = np.maximum(corners[:, 2:] - corners[:, :2] + 1, 1)
    nought = np.zeros(len(boxes), kind)
    edges = []
    for d, bins, size in ((1, pooled_height, height), (0, pooled_width, width)):
        low, high = _edges(nought, length[:, d], bins, 1 << 40)
        first = corners[:, d, None].astype(np.int64)
        edges.append((np.clip(low + first, 0, size), np.clip(high + first, 0, size)))
    (top, bottom), (left, right) = edges
    images = _host(input)
    out = np.zeros((len(boxes), input.shape[1], pooled_height, pooled_width), images.dtype)
    where_ = np.full(out.shape, -1, np.int32)
    for k, p, q in np.ndindex(len(boxes), pooled_height, pooled_width):
        y, x, wide = top[k, p], left[k, q], right[k, q] - left[k, q]
        if wide > 0 and bottom[k, p] > y:
            part = images[int(boxes[k, 0]), :, y:bottom[k, p], x:x + wide].reshape(len(out[k]), -1)
            best = part.argmax(1)
            out[k, :, p, q] = np.take_along_axis(part, best[:, None], 1)[:, 0]
            where_[k, :, p, q] = (y + best // wide) * width + x + best % wide
    return from_numpy(out).to(input.device, input.dtype), from_numpy(where_).to(input.device)


@vision.operator("_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, float spatial_scale, SymInt pooled_height, SymInt "
                 "pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor",
                 lambda grad, rois, argmax, scale, ph, pw, *sizes: grad.new_empty(sizes))
def roi_pool_backward(grad: Tensor, rois: Tensor, argmax: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int,
                      batch_size: int, channels: int, height: int, width: int) -> Tensor:
    """The gradient of `roi_pool` by the images: what came to each largest element."""
    image = rois[:, 0].to(int64).reshape(-1, 1, 1, 1)
    plane = (image * channels + arange(channels, device=grad.device).reshape(1, -1, 1, 1)) * (height * width)
    some = argmax >= 0
    flat = where(some, plane + argmax, 0).flatten()
    made = zeros(batch_size * channels * height * width, dtype=grad.dtype, device=grad.device)
    return made.index_add(0, flat, where(some, grad, 0).flatten()).reshape(batch_size, channels, height, width)


for _name, _backward in (("roi_pool", roi_pool_backward), ("ps_roi_align", ps_roi_align_backward), ("ps_roi_pool", ps_roi_pool_backward)):
    vision.gradient(_name, _regions_gradient(_backward), _keep_regions)


# -- convolution -------------------------------------------------------------------------------------------
_DEFORM = ("Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt "
           "pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask")


def _deform_shape(input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *settings: Any) -> Tensor:
    sizes = [window_count(input.shape[2 + d], weight.shape[2 + d], *settings[d:6:2]) for d in (0, 1)]
    return input.new_empty((input.shape[0], weight.shape[0], *sizes))


def _taps(at: tuple[Tensor, Tensor], size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The four elements around positions (rows, columns), as indices into the flattened image and weights: (..., 4, positions) both."""
    index, weight = [], []
    low = [x.detach().floor() for x in at]
    for corner in ((0, 0), (0, 1), (1, 0), (1, 1)):
        place = [x + step for x, step in zip(low, corner)]
        share = [(x - y) if step else 1 - (x - y) for x, y, step in zip(at, low, corner)]
        exists = (place[0] >= 0) & (place[0] < size[0]) & (place[1] >= 0) & (place[1] < size[1])
        index.append(where(exists, place[0] * size[1] + place[1], 0).to(int64))
        weight.append(where(exists, share[0] * share[1], 0))
    return stack(index, 1), stack(weight, 1)


def _deformed(input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, stride_h: int, stride_w: int, pad_h: int,
              pad_w: int, dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool) -> Tensor:
    """A convolution whose taps are moved by `offset` (n, offset_groups * kernel * 2, h, w), rows before columns, and scaled by `mask`."""
    n, channels, height, width = input.shape
    kernel, steps = tuple(weight.shape[2:]), ((stride_h, pad_h, dilation_h), (stride_w, pad_w, dilation_w))
    sizes = [window_count(input.shape[2 + d], kernel[d], *steps[d]) for d in (0, 1)]
    taps, points = kernel[0] * kernel[1], sizes[0] * sizes[1]
    wanted = [n, 2 * offset_groups * taps, *sizes]
    if list(offset.shape) != wanted or (use_mask and list(mask.shape) != [n, offset_groups * taps, *sizes]):
        raise RuntimeError(f"deform_conv2d: offset is of shape {wanted}, and mask of half as many channels, got {list(offset.shape)} and "
                           f"{list(mask.shape)}")
    moved = _wide(offset).reshape(n * offset_groups, *kernel, 2, *sizes)
    at = []
    for d, (stride, pad, dilation) in enumerate(steps):
        tap, out = (arange(count, device=input.device, dtype=moved.dtype) for count in (kernel[d], sizes[d]))
        regular = (tap * dilation - pad).reshape([-1, *[1] * (3 - d)]) + (out * stride).reshape([-1, *[1] * (1 - d)])
        at.append((moved.select(3, d) + regular).reshape(n * offset_groups, taps * points))
    index, share = _taps((at[0], at[1]), (height, width))
    if use_mask:
        share = share * _wide(mask).reshape(n * offset_groups, 1, taps * points)
    rows = _wide(input).reshape(n * offset_groups, channels // offset_groups, height * width).transpose(1, 2)
    columns = _rows_read(rows, index, share).transpose(1, 2).reshape(n, groups, channels // groups * taps, points)
    out = _wide(weight).reshape(1, groups, weight.shape[0] // groups, channels // groups * taps) @ columns
    return (out.reshape(n, weight.shape[0], *sizes) + _wide(bias).reshape(1, -1, 1, 1)).to(input.dtype)


deform_conv2d = vision.operator(f"deform_conv2d({_DEFORM}) -> Tensor", _deform_shape)(_deformed)


@vision.operator(f"_deform_conv2d_backward(Tensor grad, {_DEFORM}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
                 lambda grad, *args: tuple(t.new_empty(t.shape) for t in args[:5]))
def deform_conv2d_backward(grad: Tensor, *args: Any) -> tuple:
    """The gradients of `deform_conv2d` by its tensors."""
    with enable_grad():
        tensors = [t.detach().requires_grad_() for t in args[:5]]
        out = _deformed(*tensors, *args[5:])
        found = gradients(out, tensors, grad, allow_unused=True)
    return tuple(t.new_zeros(t.shape) if g is None else g for t, g in zip(tensors, found))


def _keep_deform(ctx: Any, inputs: tuple, output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.settings = inputs[5:]


vision.gradient("deform_conv2d", lambda ctx, g: (*deform_conv2d_backward(g, *ctx.saved_tensors, *ctx.settings), *[None] * 9), _keep_deform)
