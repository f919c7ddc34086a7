"""What an event holds (torch.utils.tensorboard.summary): scalars, histograms, images, text, sound, hyperparameters."""

from __future__ import annotations

import io
import struct
import time
import wave
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from .events import content, double, doubles, integer, single, singles


class Summary(bytes):
    """A summary, as its message."""

    def SerializeToString(self) -> bytes:
        """The message, under protobuf's name."""
        return bytes(self)


def array_of(x: Any) -> np.ndarray:
    """A tensor, array or number as an array."""
    if isinstance(x, Tensor):
        x = x.detach().cpu()
        return (x.float() if x.dtype.is_floating_point and x.dtype.itemsize < 4 else x).numpy()
    return np.asarray(x)


def _value(tag: str, *parts: bytes, plugin: str | None = None, data: bytes = b"") -> Summary:
    about = b"" if plugin is None else content(9, content(1, content(1, plugin) + (content(2, data) if data else b"")))
    return Summary(content(1, b"".join([content(1, tag), about, *parts])))


def _tensor(kind: int, shape: Sequence[int], values: bytes) -> bytes:
    dims = b"".join(content(2, integer(1, n)) for n in shape)
    return content(8, integer(1, kind) + content(2, dims) + values)


def scalar(tag: str, tensor: Any, collections: Any = None, new_style: bool = False, double_precision: bool = False) -> Summary:
    """One number."""
    number = array_of(tensor)
    if number.size != 1:
        raise ValueError(f"scalar should be 0D, got a value of shape {list(number.shape)} for {tag!r}")
    value = float(number.reshape(()))
    if not new_style:
        return _value(tag, single(2, value))
    kind, stored = (2, doubles(6, [value])) if double_precision else (1, singles(5, [value]))
    return _value(tag, _tensor(kind, (), stored), plugin="scalars")


def _edges() -> np.ndarray:
    """The limits of TensorBoard's own bins: a tenth wider each, on both sides of 0."""
    steps = [1e-12]
    while steps[-1] < 1e20:
        steps.append(steps[-1] * 1.1)
    return np.array([*(-s for s in reversed(steps)), 0.0, *steps])


def histogram(name: str, values: Any, bins: Any = "tensorflow", max_bins: int | None = None) -> Summary:
    """How often values fall into bins: TensorBoard's own, or those of numpy.histogram. `max_bins` joins neighbours."""
    flat = array_of(values).reshape(-1).astype(np.float64)
    if not flat.size:
        raise ValueError("The input has no element.")
    counts, limits = np.histogram(flat, bins=_edges() if isinstance(bins, str) and bins == "tensorflow" else bins)
    if max_bins is not None and len(counts) > max_bins:
        every = -(-len(counts) // max_bins)
        counts = np.add.reduceat(counts, np.arange(0, len(counts), every))
        limits = np.append(limits[:-1][::every], limits[-1])
    filled = np.flatnonzero(counts)
    first, last = (filled[0], filled[-1] + 1) if len(filled) else (0, 1)
    shown = [0, *counts[first:last]]     # an empty bin tells where the first begins
    return histogram_raw(name, float(flat.min()), float(flat.max()), flat.size, float(flat.sum()), float(flat @ flat),
                         limits[first:last + 1], shown)


def histogram_raw(name: str, min: float, max: float, num: float, sum: float, sum_squares: float, bucket_limits: Any,
                  bucket_counts: Any) -> Summary:
    """A histogram whose bins are counted already."""
    facts = b"".join(double(i, float(v)) for i, v in enumerate((min, max, num, sum, sum_squares), 1))
    return _value(name, content(5, facts + doubles(6, map(float, bucket_limits)) + doubles(7, map(float, bucket_counts))))


def png(pixels: np.ndarray) -> bytes:
    """(height, width, channels) bytes as a PNG."""
    height, width, channels = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1).tobytes()

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def arranged(tensor: Any, formats: str) -> np.ndarray:
    """An image, or a batch as a grid, as (height, width, 3 channels)."""
    array, order = array_of(tensor), formats.upper()
    if len(order) != array.ndim or len(set(order)) != len(order) or not set(order) <= set("NCHW"):
        raise ValueError(f"dataformats={formats!r} does not fit an image of shape {list(array.shape)}")
    for axis in "NHWC":
        if axis not in order:
            array, order = array[None], axis + order
    array = array.transpose([order.index(axis) for axis in "NHWC"])
    count, height, width, channels = array.shape
    columns = min(8, count)
    grid = np.zeros((-(-count // columns) * height, columns * width, channels), array.dtype)
    for i, image in enumerate(array):
        row, column = divmod(i, columns)
        grid[row * height:(row + 1) * height, column * width:(column + 1) * width] = image
    return np.repeat(grid, 3, 2) if channels == 1 else grid


def image(tag: str, tensor: Any, rescale: float = 1, dataformats: str = "NCHW") -> Summary:
    """A picture: bytes as they are, floats from 0 to 1."""
    pixels = arranged(tensor, dataformats)
    scaled = pixels.astype(np.float64) * (1 if pixels.dtype == np.uint8 else 255)
    data = np.clip(scaled, 0, 255).astype(np.uint8)
    if rescale != 1:
        height, width = (max(1, round(n * rescale)) for n in data.shape[:2])
        rows, columns = (np.arange(n) * m // n for n, m in ((height, data.shape[0]), (width, data.shape[1])))
        data = data[rows][:, columns]
    facts = b"".join(integer(i, n) for i, n in enumerate(data.shape, 1))
    return _value(tag, content(4, facts + content(4, png(data))))


def audio(tag: str, tensor: Any, sample_rate: int = 44100) -> Summary:
    """Sound in one channel, from -1 to 1."""
    samples = (np.clip(array_of(tensor).reshape(-1).astype(np.float64), -1, 1) * 32767).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(sample_rate)
        out.writeframes(samples.tobytes())
    facts = single(1, sample_rate) + integer(2, 1) + integer(3, len(samples)) + content(4, file.getvalue()) + content(5, "audio/wav")
    return _value(tag, content(6, facts))


def text(tag: str, text: str) -> Summary:
    """Markdown."""
    return _value(f"{tag}/text_summary", _tensor(7, (1,), content(8, text)), plugin="text")


def pr_curve(tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None) -> Summary:
    """Precision and recall at thresholds from 0 to 1."""
    count = min(num_thresholds, 127)
    truth, scores = array_of(labels).reshape(-1).astype(bool), array_of(predictions).reshape(-1).astype(np.float64)
    weigh = np.ones(scores.size) if weights is None else array_of(weights).reshape(-1).astype(np.float64)
    bins = np.clip((scores * (count - 1)).astype(np.int64), 0, count - 1)
    hits, misses = (np.bincount(bins, weigh * chosen, count)[::-1].cumsum()[::-1] for chosen in (truth, ~truth))
    rows = [hits, misses, misses[0] - misses, hits[0] - hits, hits / np.maximum(hits + misses, 1e-7), hits / max(hits[0], 1e-7)]
    data = integer(1, 0) + integer(2, count)
    return _value(tag, _tensor(1, (6, count), singles(5, np.stack(rows).reshape(-1))), plugin="pr_curves", data=data)


def _struct_value(value: Any) -> tuple[int, bytes]:
    """(the type that the plugin gives it, the value)."""
    if isinstance(value, (bool, np.bool_)):
        return 2, integer(4, int(value))
    if isinstance(value, str):
        return 1, content(3, value)
    if isinstance(value, (int, float, np.number)) or (isinstance(value, Tensor) and value.numel() == 1):
        return 3, double(2, float(value))
    raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")


def hparams(hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any], hparam_domain_discrete: Mapping[str, list] | None = None
            ) -> tuple[Summary, Summary, Summary]:
    """The three summaries of a run with hyperparameters: what there is, its start with values, its end."""
    for name, given in (("hparam_dict", hparam_dict), ("metric_dict", metric_dict)):
        if not isinstance(given, Mapping):
            raise TypeError(f"parameter: {name} should be a dictionary, nothing logged.")
    domains = hparam_domain_discrete or {}
    infos = started = b""
    for name, value in hparam_dict.items():
        if value is None:
            continue
        kind, stored = _struct_value(value)
        domain = b"".join(content(1, _struct_value(v)[1]) for v in domains.get(name, ()))
        infos += content(4, content(1, name) + integer(4, kind) + (content(5, domain) if domain else b""))
        started += content(1, content(1, name) + content(2, stored))
    infos += b"".join(content(5, content(1, content(2, name))) for name in metric_dict)
    now = time.time()
    parts = (("experiment", content(2, infos + double(3, now))),
             ("session_start_info", content(3, started + double(5, now))),
             ("session_end_info", content(4, integer(1, 1) + double(2, now))))
    made = [_value(f"_hparams_/{name}", plugin="hparams", data=data) for name, data in parts]
    return made[0], made[1], made[2]
