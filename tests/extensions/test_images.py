"""Files of images: written and read again, in the modes that torchvision has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fl

pytest.importorskip("PIL")
fl.ops.load_library("site-packages/torchvision/image.so")
image = fl.ops.image


def picture(channels: int = 3) -> Any:
    ramp = np.arange(channels * 8 * 10).reshape(channels, 8, 10) % 251
    return fl.tensor(ramp.astype(np.uint8))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("decode", [lambda d, m: image.decode_png(d, m), lambda d, m: image.decode_image(d, m, True)])
def test_png_keeps_every_element(channels: int, decode: Any) -> None:
    x = picture(channels)
    assert decode(image.encode_png(x, 6), 0).tolist() == x.tolist()


def test_modes() -> None:
    data = image.encode_png(picture(), 1)
    assert [image.decode_png(data, mode).shape[0] for mode in (0, 1, 2, 3, 4)] == [3, 1, 2, 3, 4]
    assert image.decode_png(image.encode_png(picture(1), 1), 3).shape == (3, 8, 10)


def test_jpeg_is_close() -> None:
    smooth = fl.tensor(np.broadcast_to(np.arange(0, 160, 8, dtype=np.uint8), (3, 16, 20)).copy())
    data = image.encode_jpeg(smooth, 95)
    for decode in (image.decode_jpeg, image.decode_image):
        assert (decode(data, 0).int() - smooth.int()).abs().max() <= 4


def test_files(tmp_path: Path) -> None:
    data = image.encode_png(picture(), 3)
    image.write_file(str(tmp_path / "x.png"), data)
    assert image.read_file(str(tmp_path / "x.png")).tolist() == data.tolist()


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda: image.decode_png(image.encode_jpeg(picture(), 75), 0), RuntimeError, "decode"),
    (lambda: image.decode_image(fl.zeros(0, dtype=fl.uint8), 0), RuntimeError, "non-empty"),
    (lambda: image.encode_png(picture().float(), 3), RuntimeError, "uint8"),
    (lambda: image.encode_png(picture(), 10), RuntimeError, "between 0 and 9"),
    (lambda: image.encode_jpeg(picture(), 0), RuntimeError, "between 1 and 100"),
    (lambda: image.decode_jpegs_cuda([picture()], 0, "cuda"), NotImplementedError, "CPU"),
])
def test_refusals(call: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()
