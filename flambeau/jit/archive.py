"""`torch.jit.load`: archives of TorchScript, which hold text and data. Nothing in them is run while they are read.

    NAME/data.pkl             the module: instances of the classes of the text, tensors as references to storages
    NAME/code/**.py           the text of the classes (`program.py`)
    NAME/constants.pkl        tensors that the text calls CONSTANTS.c0, c1, ...
    NAME/data/, constants/    the bytes of storages
    NAME/extra/               what users add
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..nn.parameter import Parameter
from ..serialization.api import FileLike, Storages, opened
from ..serialization.archive import ArchiveReader
from ..serialization.errors import LoadError
from ..serialization.locations import MAP_LOCATION
from ..serialization.unpickler import restricted_load
from .module import RecursiveScriptModule
from .program import ScriptProgram
from .types import SourceError, fits
from .values import Class, ScriptObject

NEWEST = 10     # of the file format, as torch counts it
_HOLDS_SELF = ("__setstate__", "__getstate__")


class Pickled:
    """An instance of a class of the archive, before it is made: what the pickle says of it."""

    made_of: Class
    takes_bare_argument = True

    def __new__(cls, *args: Any) -> Any:
        if cls.made_of.kind == "NamedTuple":
            return cls.made_of.python(*args)
        if cls.made_of.kind == "Enum":
            return cls.made_of.python(*args)
        if args:
            raise LoadError(f"the archive makes a {cls.made_of.name} of arguments")
        made = super().__new__(cls)
        made.state = {}
        return made

    state: Any

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _list_of(kind: type) -> Callable[[Any], list]:
    def build(items: Any) -> list:
        if type(items) is not list or any(type(item) is not kind for item in items):
            raise LoadError(f"the archive describes a list of {kind.__name__} wrongly")
        return items

    return build


def _tagged(value: Any, kind: Any) -> Any:
    """A list or dict; the types of attributes are told by their classes."""
    if type(value) not in (list, dict) or type(kind) is not str:
        raise LoadError("the archive gives a type to something other than a list or a dict")
    return value


def _tensor_at(key: Any) -> Any:
    raise LoadError("the archive refers to a tensor outside of it")


_BUILDERS = {("torch.jit._pickle", name): build for name, build in (
    ("build_intlist", _list_of(int)), ("build_doublelist", _list_of(float)), ("build_boollist", _list_of(bool)),
    ("build_tensorlist", _list_of(Tensor)), ("restore_type_tag", _tagged), ("build_tensor_from_id", _tensor_at))}


class _Maker:
    """Makes modules and objects of what was pickled."""

    def __init__(self, program: ScriptProgram, source: str) -> None:
        self.program, self.source = program, source
        self.made: dict[int, Any] = {}
        self.parameters: dict[tuple, Parameter] = {}      # by place: lists hold parameters of their module too

    def parameters_of(self, value: Any, seen: set[int]) -> None:
        """Make the parameters of all modules in `value`."""
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, Pickled):
            state = self.state_of(value)
            for name in value.made_of.parameters:
                if isinstance(state.get(name), Tensor):
                    t = state[name]
                    self.parameters.setdefault(_place(t), Parameter(t.detach(), t.requires_grad))
        for part in _parts(value):
            self.parameters_of(part, seen)

    def state_of(self, value: Pickled) -> dict[str, Any]:
        """The attributes that the pickle gives an object; LoadError for others than its class has."""
        made_of, state = value.made_of, value.state
        if made_of.methods.keys() & set(_HOLDS_SELF):
            raise NotImplementedError(f"{self.source}: {made_of.name} has a __setstate__ of its own, which would run while the archive is "
                                      "loaded; load it with PyTorch, and save a module that keeps its state in attributes")
        if type(state) is not dict or state.keys() != made_of.attributes.keys():
            raise LoadError(f"{self.source} is damaged: attributes of {made_of.name} should be {', '.join(made_of.attributes)}")
        return state

    def make(self, value: Any) -> Any:
        """`value` with objects in the places of what was pickled."""
        if id(value) in self.made:
            return self.made[id(value)]
        if isinstance(value, Tensor):
            return self.parameters.get(_place(value), value) if self.parameters else value
        if isinstance(value, Pickled):
            return self._object(value)
        if type(value) is list:
            value[:] = map(self.make, value)
        elif type(value) is dict:
            value.update({key: self.make(v) for key, v in value.items()})
        elif isinstance(value, tuple):
            parts = map(self.make, value)
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return value

    def _object(self, value: Pickled) -> Any:
        made_of = value.made_of
        state = self.state_of(value)
        if made_of.kind == "Module":
            module = self.made[id(value)] = RecursiveScriptModule(made_of, self.program)
            for name, part in state.items():
                self._set(module, name, self.make(part))
            return module
        made = self.made[id(value)] = ScriptObject(made_of)
        made._fields.update({name: self.make(part) for name, part in state.items()})
        self._check(made_of, made._fields)
        return made

    def _check(self, made_of: Class, fields: dict[str, Any]) -> None:
        for name, value in fields.items():
            if not fits(made_of.attributes[name], value, self.program.is_instance):
                raise LoadError(f"{self.source} is damaged: attribute {name} of {made_of.name} should be a {made_of.attributes[name]}, "
                                f"and is a {type(value).__name__}")

    def _set(self, module: RecursiveScriptModule, name: str, value: Any) -> None:
        made_of = module._class
        self._check(made_of, {name: value})
        if name == "training":
            module.training = value
        elif isinstance(value, RecursiveScriptModule):
            module._modules[name] = value
        elif name in made_of.parameters:
            module._parameters[name] = value
        elif name in made_of.buffers:
            module._buffers[name] = value
        else:
            module._values[name] = value


def _place(t: Tensor) -> tuple:
    return id(t._storage), tuple(t.shape), tuple(t.stride()), t.storage_offset(), t.dtype


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Pickled):
        return list(value.state.values()) if type(value.state) is dict else []
    return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, (list, tuple)) else []


class _Archive:
    """An archive that is being read."""

    def __init__(self, reader: ArchiveReader, map_location: MAP_LOCATION) -> None:
        self.reader, self.source, self.map_location = reader, reader.source, map_location
        if "constants.pkl" not in reader.members or not any(name.startswith("code/") for name in reader.members):
            raise LoadError(f"{self.source} is no TorchScript archive: torch.load reads checkpoints, torch.export.load exported programs")
        self.version = self._version()

    def _version(self) -> int:
        member = next((name for name in ("version", ".data/version") if name in self.reader.members), None)
        text = self.reader.read(member).decode("latin1").strip() if member is not None else ""
        if not re.fullmatch(r"\d{1,9}", text):
            raise LoadError(f"{self.source} does not tell the version of its format: {text[:20]!r}")
        if int(text) > NEWEST or int(text) < 3:
            raise LoadError(f"{self.source} has version {text} of the format; versions 3 to {NEWEST} are read")
        return int(text)

    def program(self) -> ScriptProgram:
        """Its text."""
        sources = {}
        for member in self.reader.members:
            if member.startswith("code/") and member.endswith(".py"):
                module = member.removeprefix("code/").removesuffix(".py").replace("/", ".")
                if not re.fullmatch(r"__torch__(\.\w+)*", module):
                    raise LoadError(f"{self.source} has text in {member[:80]!r}, where none belongs")
                try:
                    sources[module] = self.reader.read(member).decode()
                except UnicodeDecodeError as error:
                    raise LoadError(f"{self.source}: {member} is no text") from error
        try:
            return ScriptProgram(sources, self._constants(), self.version)
        except SourceError as error:
            raise LoadError(f"{self.source}: {error}") from None

    def _constants(self) -> list[Any]:
        found = self.unpickle("constants", {})
        if not isinstance(found, (tuple, list)):
            raise LoadError(f"{self.source} is damaged: its constants are a {type(found).__name__}")
        return list(found)

    def unpickle(self, member: str, classes: dict[tuple[str, str], Any]) -> Any:
        """The object of `member`.pkl, whose storages are in a folder of that name."""
        storages = Storages(self.reader, self.map_location, member)
        try:
            return restricted_load(self.reader.read(f"{member}.pkl"), storages.load, {**_BUILDERS, **classes})
        except LoadError as error:
            raise LoadError(f"{self.source}: {str(error).partition(chr(10))[0]}") from error

    def module(self) -> RecursiveScriptModule:
        """What the archive holds."""
        program = self.program()
        classes: dict[tuple[str, str], Any] = {}
        for name, made_of in program.classes.items():
            module, _, short = name.rpartition(".")
            classes[module, short] = type(short, (Pickled,), {"made_of": made_of})
        try:
            root = self.unpickle("data", classes)
            maker = _Maker(program, self.source)
            maker.parameters_of(root, set())
            made = maker.make(root)
        except RecursionError:
            raise LoadError(f"{self.source} is damaged: its objects are nested too deeply") from None
        if not isinstance(made, RecursiveScriptModule):
            raise LoadError(f"{self.source} holds a {type(made).__name__}, not a module")
        return made


def load(f: FileLike, map_location: MAP_LOCATION = None, _extra_files: dict[str, Any] | None = None,
         _restore_shapes: bool = False) -> RecursiveScriptModule:
    """The module in a TorchScript archive, a path or a binary file object, as torch.jit.save (here or in PyTorch) wrote it.

    Its text is interpreted when the module is called; nothing is run while it is loaded. `_extra_files` is a dict whose keys are names of
    extra files in the archive; their contents become its values. Raises ValueError where there is no such file, LoadError (a RuntimeError)
    where it is damaged, of another format, or holds what no TorchScript does.
    """
    if _restore_shapes:
        raise NotImplementedError("torch.jit.load(_restore_shapes=True): shapes of traced inputs are not restored; leave it out")
    try:
        scope = opened(f)
        with scope as (file, source):
            archive = _Archive(ArchiveReader(file, source), map_location)
            made = archive.module()
            for name in _extra_files or ():
                if f"extra/{name}" in archive.reader.members:
                    _extra_files[name] = archive.reader.read(f"extra/{name}")   # type: ignore[index]
    except FileNotFoundError as error:
        raise ValueError(f"The provided filename {f} does not exist") from error
    return made
