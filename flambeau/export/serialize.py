"""Exported programs in files: `save` and `load`.

A `.pt2` file is a zip archive, stored plain: `manifest.json` (format, version, and length and SHA-256 of every other member),
`program.json` (the graph), `tensors.bin` (all tensors, one behind the other), and `extra/NAME` for what the user puts in. Nothing in it
is code: a graph refers to operators by names that are looked up in the op table, and nowhere else.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from typing import IO, Any

from ..serialization.archive import replacing
from .decode import Decoder
from .encode import Encoder
from .program import ExportedProgram

VERSION = 1
FORMAT = "flambeau exported program"
_PARTS = ("program.json", "tensors.bin")
_EXTRA = "extra/"


class ArchiveError(RuntimeError):
    """A file is no exported program, a damaged one, or one of a newer version."""


def save(ep: ExportedProgram, f: str | os.PathLike[str] | IO[bytes], *, extra_files: Mapping[str, Any] | None = None,
         opset_version: Mapping[str, int] | None = None, pickle_protocol: int | None = None) -> None:
    """Write a program to a `.pt2` file, or to what can be written to. `extra_files`: name -> text, or bytes, to go with it."""
    if not isinstance(ep, ExportedProgram):
        raise TypeError(f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}' instead.")
    if opset_version is not None or pickle_protocol is not None:
        raise NotImplementedError("torch.export.save(opset_version=, pickle_protocol=): files have a version of their own, and no pickles")
    encoder = Encoder()
    members: dict[str, bytes] = {"program.json": json.dumps(encoder.program(ep), allow_nan=False).encode()}
    members["tensors.bin"] = b"".join(encoder.blobs)
    for name, content in (extra_files or {}).items():
        _check_name(name)
        members[_EXTRA + name] = content.encode() if isinstance(content, str) else bytes(content)
    described = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in members.items()}
    manifest = json.dumps({"format": FORMAT, "version": VERSION, "members": described}).encode()
    if isinstance(f, (str, os.PathLike)):
        with replacing(f) as file:
            _write(file, {"manifest.json": manifest, **members})
    else:
        _write(f, {"manifest.json": manifest, **members})


def _write(file: IO[bytes], members: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)


def _check_name(name: str) -> None:
    parts = name.split("/")
    if not name or name.startswith("/") or "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"extra_files: {name!r} is no plain relative path")


def load(f: str | os.PathLike[str] | IO[bytes], *, extra_files: dict[str, Any] | None = None,
         expected_opset_version: Mapping[str, int] | None = None) -> ExportedProgram:
    """The program in a file that `save` wrote. Nothing in the file is executed. ArchiveError for whatever else it is.

    `extra_files`: names to be filled with the texts that were saved with it.
    """
    if expected_opset_version is not None:
        raise NotImplementedError("torch.export.load(expected_opset_version=): files have a version of their own, which is checked")
    if isinstance(f, (str, os.PathLike)):
        source = os.fspath(f)
        with open(f, "rb") as file:
            members = _members(file, source)
    else:
        source = getattr(f, "name", None) or "the data"
        members = _members(f, str(source))
    try:
        program: ExportedProgram = Decoder(json.loads(members["program.json"]), members["tensors.bin"]).program()
        program.validate()
    except NotImplementedError:
        raise
    except Exception as error:     # whatever a file holds, its reader hears of it in one way
        raise ArchiveError(f"{source} holds no valid program: {type(error).__name__}: {str(error)[:500]}") from error
    for name in extra_files or ():
        content = members.get(_EXTRA + name)
        if content is None:
            raise KeyError(f"{source} holds no extra file {name!r}; it holds {sorted(set(members) - set(_PARTS))}")
        assert extra_files is not None
        extra_files[name] = content.decode()
    return program


def _members(file: IO[bytes], source: str) -> dict[str, bytes]:
    """The contents of an archive, checked against its manifest."""
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            names = [info.filename for info in infos]
            if len(set(names)) < len(names) or "manifest.json" not in names:
                raise ValueError("it has no manifest" if len(set(names)) == len(names) else "a name occurs twice")
            if any(info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size for info in infos):
                raise ValueError("a member is compressed")
            manifest = json.loads(archive.read("manifest.json"))
            described = _described(manifest, source)
            if set(names) != {"manifest.json", *described}:
                raise ValueError(f"its members are {sorted(names)[:8]}, and its manifest tells of {sorted(described)[:8]}")
            return {name: _checked(archive.read(name), name, what) for name, what in described.items()}
    except ArchiveError:
        raise
    except Exception as error:     # zipfile gives many kinds for damaged archives
        raise ArchiveError(f"{source} is not an exported program of Flambeau's, or a damaged one: {type(error).__name__}: "
                           f"{str(error)[:300]}") from error


def _described(manifest: Any, source: str) -> dict[str, Any]:
    """What a manifest says of the other members."""
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError("its manifest names another format")
    version = manifest.get("version")
    if type(version) is not int or version < 1:
        raise ValueError(f"version {version!r:.40}")
    if version > VERSION:
        raise ArchiveError(f"{source} is an exported program of version {version}; this Flambeau reads versions up to {VERSION}, so a "
                           "newer one is needed to load it")
    described = manifest["members"]
    if not set(_PARTS) <= set(described):
        raise ValueError(f"its manifest tells of {sorted(described)[:8]}")
    for name in set(described) - set(_PARTS):
        if not name.startswith(_EXTRA):
            raise ValueError(f"a member is called {name!r:.80}")
        _check_name(name[len(_EXTRA):])
    return dict(described)


def _checked(data: bytes, name: str, what: Any) -> bytes:
    if len(data) != what["bytes"] or hashlib.sha256(data).hexdigest() != what["sha256"]:
        raise ValueError(f"{name} is damaged")
    return data


def to_bytes(ep: ExportedProgram) -> bytes:
    """What `save` would write."""
    file = io.BytesIO()
    save(ep, file)
    return file.getvalue()
