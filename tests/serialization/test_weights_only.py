"""What a file may and may not do while it is loaded."""

from __future__ import annotations

import collections
import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

import flambeau
from flambeau.serialization import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals


def file_with(data: bytes) -> io.BytesIO:
    """A checkpoint whose pickle is `data`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("archive/data.pkl", data)
        file.writestr("archive/version", "3\n")
    buffer.seek(0)
    return buffer


class Touch:
    """Makes a file when it is unpickled by something that trusts it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(6))
def test_a_call_is_refused_and_not_made(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "made"
    hostile = pickle.dumps({"weights": Touch(target)}, protocol=protocol)
    with pytest.raises(pickle.UnpicklingError, match=r"Weights only load failed"):
        flambeau.load(file_with(hostile))
    assert not target.exists()
    flambeau.load(file_with(hostile), weights_only=False)
    assert target.exists()


def test_the_error_names_the_global_and_the_way_out() -> None:
    hostile = pickle.dumps(Touch(Path("x")), protocol=2)
    with pytest.raises(pickle.UnpicklingError, match=r"GLOBAL (posix|nt)\.mkdir.*add_safe_globals\(\[(posix|nt)\.mkdir\]\)"):
        flambeau.load(file_with(hostile))


@pytest.mark.parametrize("text", [
    b"cos\nsystem\n(S'true'\ntR.",
    b"c__builtin__\neval\n(X\x01\x00\x00\x001tR.",
    b"cbuiltins\ngetattr\n.",
    b"ctorch.serialization\nload\n.",
    b"ctorch.nn.modules.linear\nLinear\n.",
    b"cflambeau\nload\n.",
    b"(S'true'\nios\nsystem\n.",
    b"(cos\nsystem\nS'true'\no.",
    b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    b"\x80\x02\x82\x01.",
    b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR.",
    b"ccollections\ndefaultdict\n(ctorch\nfloat32\ntR.",
    b"]N}b.",
    b"ctorch\nSize\n}X\x01\x00\x00\x00aK\x01sb.",
    b"ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aK\x01sb.",
    b"ctorch\nTensor\n(N}X\x07\x00\x00\x00__add__K\x01stb.",
    b"X\x01\x00\x00\x00a(tR.",
    b"\x80\x02(K\x01K\x02tQ.",
    b"K\x01K\x02\x86",
    b"\x86.",
    b"e.",
    b"h\x07.",
    b"",
    b"junk",
])
def test_hostile_and_broken_pickles(text: bytes) -> None:
    with pytest.raises((pickle.UnpicklingError, RuntimeError)):
        flambeau.load(file_with(text))


class Settings:
    """A class of the user's."""

    def __init__(self, rate: float) -> None:
        self.rate = rate


class Slotted:
    __slots__ = ("a",)


class WithState(Settings):
    def __getstate__(self) -> Any:
        return (self.rate,)

    def __setstate__(self, state: Any) -> None:
        (self.rate,) = state


def saved(obj: Any) -> io.BytesIO:
    buffer = io.BytesIO()
    flambeau.save(obj, buffer)
    buffer.seek(0)
    return buffer


def test_safe_globals() -> None:
    with pytest.raises(pickle.UnpicklingError, match="Settings"):
        flambeau.load(saved(Settings(0.1)))
    with safe_globals([Settings]):
        assert flambeau.load(saved(Settings(0.1))).rate == 0.1
        assert Settings in get_safe_globals()
    assert get_safe_globals() == []
    add_safe_globals([(Settings, f"{Settings.__module__}.Settings"), WithState, Slotted])
    try:
        assert flambeau.load(saved([Settings(0.2)]))[0].rate == 0.2
        assert flambeau.load(saved(WithState(0.3))).rate == 0.3
        slotted = Slotted()
        slotted.a = 5
        assert flambeau.load(saved(slotted)).a == 5
    finally:
        clear_safe_globals()
    with pytest.raises(pickle.UnpicklingError):
        flambeau.load(saved(Settings(0.1)))
    with pytest.raises(TypeError, match="a class, a function"):
        add_safe_globals(["os.system"])


def test_allowing_a_class_does_not_allow_its_subclasses_names() -> None:
    with safe_globals([Settings]), pytest.raises(pickle.UnpicklingError, match="WithState"):
        flambeau.load(saved(WithState(0.1)))


def test_without_weights_only_anything_loads() -> None:
    loaded = flambeau.load(saved({"s": Settings(0.5), "c": collections.Counter("aab")}), weights_only=False)
    assert loaded["s"].rate == 0.5 and loaded["c"]["a"] == 2


def test_unpickling_options_need_trust() -> None:
    with pytest.raises(TypeError, match="errors"):
        flambeau.load(saved(1), errors="strict")
    assert flambeau.load(saved(1), encoding="latin1") == 1      # plain data have no texts of another encoding
    assert flambeau.load(saved(1), weights_only=False, encoding="latin1") == 1
