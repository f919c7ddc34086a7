"""What detectors need of boxes and regions of images (`torch.ops.torchvision`), in ONNX."""

from __future__ import annotations

from ..core.dtypes import float32, int64
from .forms import form
from .writer import Value, Writer

_ALL = 2**31 - 1


@form("torchvision::nms")
def nms(o: Writer, boxes: Value, scores: Value, iou_threshold: float) -> Value:
    """The boxes that no better one overlaps by more, the best first: those of one image and one class."""
    of_one = o.Unsqueeze(o.cast(boxes, float32), [0]), o.Unsqueeze(o.cast(scores, float32), [0, 1])
    kept = o.NonMaxSuppression(*of_one, o.constant([_ALL], int64), o.constant([iou_threshold], float32), _dtype=int64)
    return o.Gather(kept, o.constant(2, int64), axis=1)     # rows of image, class, box


@form("torchvision::roi_align")
def roi_align(o: Writer, images: Value, regions: Value, spatial_scale: float, height: int, width: int, sampling_ratio: int,
              aligned: bool) -> Value:
    """Each region's bins, of samples that are read bilinearly. Rows are the image's number and the corners."""
    corners, number = o.Gather(regions, o.constant([1, 2, 3, 4], int64), axis=1), o.Gather(regions, o.constant(0, int64), axis=1)
    return o.RoiAlign(images, corners, o.cast(number, int64), mode="avg", output_height=height, output_width=width,
                      sampling_ratio=max(sampling_ratio, 0), spatial_scale=float(spatial_scale),
                      coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel")


__all__: list[str] = []
