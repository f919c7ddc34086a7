"""`torch.ops.image`: torchvision's files of images, read and written by Pillow, which torchvision needs as well."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from ..core.dtypes import uint8
from ..core.tensor import Tensor
from ..ops.creation import from_numpy
from . import Extension

images = Extension("image")
images.constants(_jpeg_version=62)

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_GPU = "images are decoded on the CPU; use device='cpu'"


@images.operator("read_file(str filename) -> Tensor")
def read_file(filename: str) -> Tensor:
    """A file's bytes."""
    return from_numpy(np.frombuffer(Path(filename).read_bytes(), np.uint8).copy())


@images.operator("write_file(str filename, Tensor data) -> Tensor")
def write_file(filename: str, data: Tensor) -> Tensor:
    """Write bytes to a file."""
    if data.ndim != 1 or data.dtype is not uint8:
        raise RuntimeError(f"write_file: expected a 1-D tensor of uint8, got {list(data.shape)} of {data.dtype}")
    Path(filename).write_bytes(data.cpu().numpy().tobytes())
    return data


def _opened(data: Tensor, formats: tuple[str, ...] | None) -> Any:
    from PIL import Image

    if data.ndim != 1 or data.dtype is not uint8 or not data.numel():
        raise RuntimeError(f"expected a non-empty 1-D tensor of uint8, got {list(data.shape)} of {data.dtype}")
    try:
        return Image.open(io.BytesIO(data.cpu().numpy().tobytes()), formats=formats)
    except OSError as error:
        raise RuntimeError(f"cannot decode the image: {error}") from error


def _planes(picture: Any, mode: int, upright: bool) -> Tensor:
    """Channels first, in the mode that is asked for: 0 as it is, else by the number of channels."""
    from PIL import ImageOps

    if upright:
        picture = ImageOps.exif_transpose(picture)
    if mode not in (0, *_MODES):
        raise NotImplementedError(f"images are read in modes 0 to 4, got {mode}")
    wanted = _MODES.get(mode) or (picture.mode if picture.mode in _MODES.values() else "RGBA" if "transparency" in picture.info else "RGB")
    pixels = np.array(picture if picture.mode == wanted else picture.convert(wanted))
    return from_numpy(np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1).transpose(2, 0, 1)))


def _decoder(name: str, formats: tuple[str, ...] | None, upright: bool = True) -> None:
    rest = ", bool apply_exif_orientation=False" if upright else ""

    @images.operator(f"{name}(Tensor data, int mode{rest}) -> Tensor")
    def decode(data: Tensor, mode: int, apply_exif_orientation: bool = False) -> Tensor:
        return _planes(_opened(data, formats), mode, apply_exif_orientation)


_decoder("decode_image", None)
_decoder("decode_png", ("PNG",))
_decoder("decode_jpeg", ("JPEG",))
_decoder("decode_webp", ("WEBP",), upright=False)


@images.operator("decode_gif(Tensor data) -> Tensor")
def decode_gif(data: Tensor) -> Tensor:
    """All pictures of a GIF in RGB, (n, 3, h, w), or the only one without n."""
    picture = _opened(data, ("GIF",))
    frames = []
    for k in range(getattr(picture, "n_frames", 1)):
        picture.seek(k)
        frames.append(np.array(picture.convert("RGB")).transpose(2, 0, 1))
    return from_numpy(np.ascontiguousarray(frames[0] if len(frames) == 1 else np.stack(frames)))


def _encoded(data: Tensor, kind: str, **options: Any) -> Tensor:
    from PIL import Image

    if data.ndim != 3 or data.dtype is not uint8 or data.shape[0] not in (1, 3):
        raise RuntimeError(f"expected an image [1 or 3, H, W] of uint8, got {list(data.shape)} of {data.dtype}")
    pixels = data.cpu().numpy().transpose(1, 2, 0)
    made = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)).save(made, kind, **options)
    return from_numpy(np.frombuffer(made.getvalue(), np.uint8).copy())


@images.operator("encode_png(Tensor data, int compression_level) -> Tensor")
def encode_png(data: Tensor, compression_level: int) -> Tensor:
    """The bytes of a PNG file."""
    if not 0 <= compression_level <= 9:
        raise RuntimeError(f"Compression level should be between 0 and 9, got {compression_level}")
    return _encoded(data, "PNG", compress_level=compression_level)


@images.operator("encode_jpeg(Tensor data, int quality) -> Tensor")
def encode_jpeg(data: Tensor, quality: int) -> Tensor:
    """The bytes of a JPEG file."""
    if not 1 <= quality <= 100:
        raise RuntimeError(f"Image quality should be a positive number between 1 and 100, got {quality}")
    return _encoded(data, "JPEG", quality=quality)


images.refused("decode_jpegs_cuda(Tensor[] encoded_images, int mode, Device device) -> Tensor[]", _GPU)
images.refused("encode_jpegs_cuda(Tensor[] decoded_images, int quality) -> Tensor[]", _GPU)
