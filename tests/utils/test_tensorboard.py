"""torch.utils.tensorboard: event files, read by our reader of the format and, where it is installed, by TensorBoard's."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau.utils.tensorboard import SummaryWriter, events, summary


def read_records(path: str | Path) -> Iterator[bytes]:
    """The data of each record of a file; ValueError where a checksum is wrong. A record cut short at the end is left out."""
    raw, at = Path(path).read_bytes(), 0
    while at + 12 <= len(raw):
        (size,), (check,) = struct.unpack_from("<Q", raw, at), struct.unpack_from("<I", raw, at + 8)
        if check != events._masked_crc(raw[at:at + 8]):
            raise ValueError(f"{path}: the length of the record at byte {at} is damaged")
        if at + 16 + size > len(raw):
            return
        data = raw[at + 12:at + 12 + size]
        if struct.unpack_from("<I", raw, at + 12 + size)[0] != events._masked_crc(data):
            raise ValueError(f"{path}: the record at byte {at} is damaged")
        yield data
        at += 16 + size


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: number and content (int, float or bytes)."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = number()
        kind = key & 7
        if kind == 0:
            yield key >> 3, number()
        elif kind == 2:
            size = number()
            yield key >> 3, message[at:at + size]
            at += size
        else:
            form, size = ("<d", 8) if kind == 1 else ("<f", 4)
            yield key >> 3, struct.unpack_from(form, message, at)[0]
            at += size


def values(folder: Path) -> dict[str, list[tuple[int | None, dict[int, Any]]]]:
    """By tag, the step and the fields of every value in a folder's files."""
    found: dict[str, list] = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for data in read_records(path):
            event = dict(fields(data))
            for _, value in fields(event.get(5, b"")):
                parts = dict(fields(value))
                found.setdefault(parts[1].decode(), []).append((event.get(2), parts))
    return found


def test_checksums_are_castagnoli_s() -> None:
    assert events._masked_crc(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_everything_that_is_logged_is_in_the_file(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss", fl.tensor(step / 2), step)
        writer.add_scalar("new", 1.5, 7, new_style=True)
        writer.add_histogram("weights", fl.linspace(-1, 1, 11), 4)
        writer.add_image("picture", fl.rand(3, 4, 5), 1)
        writer.add_images("pictures", np.zeros((9, 2, 3, 1), np.uint8), 1, dataformats="NHWC")
        writer.add_text("note", "*read*", 2)
        writer.add_audio("sound", fl.zeros(100), 1, sample_rate=8000)
        writer.add_pr_curve("curve", fl.tensor([0, 1, 1, 0]), fl.tensor([0.1, 0.9, 0.6, 0.7]), 0)
        writer.add_scalars("both", {"a": 1, "b": 2}, 3)
        writer.add_hparams({"lr": 0.1, "name": "x", "flag": True}, {"accuracy": 0.5}, run_name="h")
    got = values(tmp_path)
    assert [(step or 0, parts[2]) for step, parts in got["loss"]] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert dict(fields(got["new"][0][1][8]))[5] == struct.pack("<f", 1.5)
    histogram = dict(fields(got["weights"][0][1][5]))
    assert (histogram[1], histogram[2], histogram[3]) == (-1.0, 1.0, 11.0)
    assert sum(struct.unpack(f"<{len(histogram[7]) // 8}d", histogram[7])) == 11 and len(histogram[6]) == len(histogram[7])
    picture = dict(fields(got["picture"][0][1][4]))
    assert (picture[1], picture[2], picture[3]) == (4, 5, 3) and picture[4].startswith(b"\x89PNG")
    assert dict(fields(got["pictures"][0][1][4]))[2] == 8 * 3
    assert b"*read*" in got["note/text_summary"][0][1][8]
    assert dict(fields(got["sound"][0][1][6]))[4].startswith(b"RIFF")
    assert "curve" in got
    assert values(tmp_path / "both_a")["both"][0][1][2] == 1.0 and values(tmp_path / "both_b")["both"][0][1][2] == 2.0
    assert {"_hparams_/experiment", "_hparams_/session_start_info", "_hparams_/session_end_info", "accuracy"} == set(values(tmp_path / "h"))


def test_pictures_are_png(tmp_path: Path) -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    data = summary.png(pixels)
    start = data.index(b"IDAT") + 4
    rows = zlib.decompress(data[start:start + struct.unpack(">I", data[start - 8:start - 4])[0]])
    np.testing.assert_array_equal(np.frombuffer(rows, np.uint8).reshape(2, 13)[:, 1:], pixels.reshape(2, 12))


def test_damaged_records_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(events.record(b"abc"))
    assert list(read_records(path)) == [b"abc"]
    raw = bytearray(path.read_bytes())
    raw[13] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="damaged"):
        list(read_records(path))


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda w: w.add_scalar("x", fl.ones(3)), ValueError, "0D"),
    (lambda w: w.add_histogram("x", fl.ones(0)), ValueError, "no element"),
    (lambda w: w.add_image("x", fl.ones(3, 3), dataformats="CHW"), ValueError, "dataformats"),
    (lambda w: w.add_hparams(3, {}), TypeError, "dictionary"),
    (lambda w: w.add_graph(None), NotImplementedError, "add_graph"),
])  # fmt: skip
def test_what_cannot_be_logged_says_so(tmp_path: Path, call: Any, error: type[Exception], message: str) -> None:
    with SummaryWriter(tmp_path) as writer, pytest.raises(error, match=message):
        call(writer)


def test_tensorboard_reads_it(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 0.25, 3)
        writer.add_histogram("weights", fl.randn(100), 4)
        writer.add_image("picture", fl.rand(3, 4, 5), 1)
    events_read = reader.EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in events_read.Scalars("loss")] == [(3, 0.25)]
    assert events_read.Histograms("weights")[0].histogram_value.num == 100
    assert events_read.Images("picture")[0].width == 5
