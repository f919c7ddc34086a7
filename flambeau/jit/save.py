"""`torch.jit.save`: a program's text and its module's data as an archive that torch.jit.load reads, here and in PyTorch."""

from __future__ import annotations

import ast
import os
import struct
import sys
from contextlib import nullcontext
from enum import Enum
from pathlib import Path
from typing import IO, Any

from ..core.storage import Storage
from ..core.tensor import Tensor
from ..ops.storages import UntypedStorage
from ..serialization.api import FileLike
from ..serialization.archive import ArchiveWriter, replacing
from ..serialization.names import STORAGE_NAMES
from .module import SAVE, RecursiveScriptModule, ScriptFunction, ScriptModule
from .program import ScriptProgram
from .types import Type
from .values import Class, ScriptObject

FORMAT = b"10\n"
_BUILDERS = {"int": "build_intlist", "float": "build_doublelist", "bool": "build_boollist", "Tensor": "build_tensorlist"}
_ANY = Type("Any")


class TypedPickler:
    """Writes values of TorchScript's types in pickle's protocol 2, as its C++ reader wants them: lists and dicts say their types."""

    def __init__(self, program: ScriptProgram) -> None:
        self.program, self.out = program, bytearray(b"\x80\x02")
        self.storages: dict[int, tuple[str, Storage]] = {}
        self.memo: dict[int, int] = {}
        self.kept: list[Any] = []

    def dump(self, value: Any, kind: Type) -> bytes:
        """The pickle of one value."""
        self.write(value, kind)
        return bytes(self.out + b".")

    def write(self, value: Any, kind: Type = _ANY) -> None:
        """A value of a type."""
        if isinstance(value, (RecursiveScriptModule, ScriptObject)):
            self._object(value)
        elif isinstance(value, Tensor):
            self._tensor(value)
        elif isinstance(value, Enum):
            self._global(*self._class_of(kind, value))
            self.write(value.value)
            self.out += b"R"
        elif isinstance(value, (list, dict)):
            self._container(value, self._inner(kind))
        elif isinstance(value, tuple):
            self._tuple(value, self._inner(kind))
        else:
            self._plain(value)

    @staticmethod
    def _inner(kind: Type) -> Type:
        return kind.args[0] if kind.name == "Optional" else kind

    def _plain(self, value: Any) -> None:
        out = self.out
        if value is None or isinstance(value, bool):
            out += {None: b"N", True: b"\x88", False: b"\x89"}[value]
        elif isinstance(value, int):
            out += b"K" + struct.pack("<B", value) if 0 <= value < 256 else b"J" + struct.pack("<i",
                value) if -2**31 <= value < 2**31 else \
                b"\x8a\x08" + struct.pack("<q", value)
        elif isinstance(value, float):
            out += b"G" + struct.pack(">d", value)
        elif isinstance(value, str):
            data = value.encode()
            out += b"X" + struct.pack("<I", len(data)) + data
        elif type(value).__name__ == "device":
            self._global("torch", "device")
            self.write(str(value))
            out += b"\x85R"
        else:
            raise NotImplementedError(f"torch.jit.save: an attribute is a {type(value).__name__}, which archives of TorchScript don't hold")

    def _global(self, module: str, name: str) -> None:
        self.out += f"c{module}\n{name}\n".encode()

    def _class_of(self, kind: Type, value: Any) -> tuple[str, str]:
        found = self.program.classes.get(kind.name) or next(c for c in self.program.classes.values() if c.python is type(value))
        module, _, name = found.name.rpartition(".")
        return module, name

    def _tuple(self, value: tuple, kind: Type) -> None:
        made_of = self.program.classes.get(kind.name)
        kinds = list(made_of.attributes.values()) if made_of is not None else list(kind.args) or [_ANY] * len(value)
        if made_of is not None:
            self._global(*self._class_of(kind, value))
        self.out += b"("
        for part, its in zip(value, kinds):
            self.write(part, its)
        self.out += b"t" if made_of is None else b"tR"

    def _container(self, value: Any, kind: Type) -> None:
        element = kind.args[0].name if kind.name == "List" else ""
        builder = _BUILDERS.get(element)
        self._global("torch.jit._pickle", builder or "restore_type_tag")
        if builder:
            self.out += b"("
        if isinstance(value, list):
            self.out += b"]("
            for part in value:
                self.write(part, kind.args[0] if kind.args else _ANY)
            self.out += b"e"
        else:
            self.out += b"}("
            for key, part in value.items():
                self.write(key)
                self.write(part, kind.args[1] if kind.args else _ANY)
            self.out += b"u"
        if builder:
            self.out += b"tR"
        else:
            self.write(str(kind))
            self.out += b"\x86R"

    def _object(self, value: Any) -> None:
        """A module or an object; one that was written is referred to."""
        if id(value) in self.memo:
            self.out += b"j" + struct.pack("<I", self.memo[id(value)])
            return
        made_of: Class = value._class
        module, _, name = made_of.name.rpartition(".")
        self._global(module, name)
        self.out += b")\x81}("
        for attribute, kind in made_of.attributes.items():
            self.write(attribute)
            held = value._fields[attribute] if isinstance(value, ScriptObject) else _held(value, attribute)
            self.write(held, kind)
        at = self.memo[id(value)] = len(self.memo)      # once it is built: PyTorch's reader has nothing to remember before
        self.kept.append(value)
        self.out += b"ubr" + struct.pack("<I", at)

    def _tensor(self, t: Tensor) -> None:
        kind = STORAGE_NAMES.get(t.dtype.name)
        if kind is None:
            raise NotImplementedError(f"torch.jit.save: tensors of {t.dtype} have no storage class of TorchScript's; convert them")
        storage = t._storage
        key = self.storages.setdefault(id(storage), (str(len(self.storages)), storage))[0]
        self._global("torch._utils", "_rebuild_tensor_v2")
        self.out += b"(("
        self.write("storage")
        self._global("torch", kind)
        self.write(key)
        self.write(str(t.device))
        self.write(storage.nbytes // t.dtype.itemsize)
        self.out += b"tQ"
        self.write(t.storage_offset())
        for numbers in (t.shape, t.stride()):
            self._tuple(tuple(map(int, numbers)), _ANY)
        self.write(t.requires_grad)
        self._global("collections", "OrderedDict")
        self.out += b")RtR"


def _held(module: RecursiveScriptModule, name: str) -> Any:
    return getattr(module, name, None) if name == "_is_full_backward_hook" else module.script_read(name)


def save(m: Any, f: FileLike, _extra_files: dict[str, Any] | None = None) -> None:
    """Write a ScriptModule or a ScriptFunction to a path or a binary file object, with its text and data.

    A file under a path is replaced only once the new one is complete. `_extra_files` maps names to bytes or text, which go along.
    """
    if isinstance(m, ScriptFunction):
        m = m.owner if m.owner is not None else _holder(m)
    m = vars(m).get("_scripted", m) if isinstance(m, ScriptModule) else m
    if not isinstance(m, RecursiveScriptModule):
        raise TypeError(f"torch.jit.save takes a ScriptModule or a ScriptFunction, got {type(m).__name__}: script or trace it first")
    if m._program.python_calls:
        name = next(iter(m._program.python_calls))
        raise RuntimeError(f"Could not export Python function call '{name}': an archive holds no Python. Script what @torch.jit.ignore "
                           "marks, or mark it @torch.jit.unused")
    is_path = isinstance(f, (str, os.PathLike))
    opened: Any = replacing(f) if is_path else nullcontext(f)   # type: ignore[arg-type]
    with opened as file:
        _write(file, Path(f).stem if is_path else "archive", m, _extra_files or {})    # type: ignore[arg-type]


def _holder(fn: ScriptFunction) -> RecursiveScriptModule:
    """A module whose `forward` is a function."""
    name = "__torch__.PlaceholderModule"
    head: Any = ast.parse(fn._function.source).body[0]
    names = ", ".join(a.arg for a in head.args.args)
    head.name, head.body = "forward", ast.parse(f"return {fn.qualified_name}({names})").body
    head.args.args.insert(0, ast.arg("self", ast.parse(name, mode="eval").body))
    lines = ["__parameters__ = []", "__buffers__ = []", "training : bool", *ast.unparse(head).splitlines()]
    text = "\n".join(["class PlaceholderModule(Module):", *(f"  {line}" for line in lines)]) + "\n"
    program = fn._program
    sources = program.sources | {"__torch__": program.sources.get("__torch__", "") + text}
    program = ScriptProgram(sources, program.constants, python=program.python, python_calls=program.python_calls)
    return RecursiveScriptModule(program.classes[name], program)


def _write(file: IO[bytes], name: str, m: RecursiveScriptModule, extra: dict[str, Any]) -> None:
    program = m._program
    data, constants = TypedPickler(program), TypedPickler(program)
    pickled = data.dump(m, Type(m._class.name))
    fixed = constants.dump(tuple(program.constants), Type("Tuple"))
    with ArchiveWriter(file, name) as archive:
        archive.write("data.pkl", pickled)
        for module, text in program.sources.items():
            archive.write(f"code/{module.replace('.', '/')}.py", text.encode())
        archive.write("constants.pkl", fixed)
        for folder, pickler in (("data", data), ("constants", constants)):
            for key, storage in pickler.storages.values():
                archive.write(f"{folder}/{key}", memoryview(UntypedStorage(storage).cpu()._storage.buffer))
        for key, value in extra.items():
            archive.write(f"extra/{key}", value.encode() if isinstance(value, str) else bytes(value))
        archive.write("byteorder", sys.byteorder.encode())
        archive.write("version", FORMAT)


SAVE.append(save)
