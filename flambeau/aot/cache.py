"""Compiled programs kept between processes: from a captured graph straight to what runs.

An entry is a file named by the hash of all that its content depends on (`keys.describe`, Flambeau's own files, and what the
compiler adds). It holds what calls need and no graph: the program's interface, what backward is given, the compilers'
artefacts, and the guards on sizes that tracing found. It is sealed, and read by an unpickler that knows a fixed list of
classes and no others. `TORCH_LOGS=cache` tells of every program whether it was found, and why not.
"""

from __future__ import annotations

import hashlib
import io
import logging
import pickle
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple, Protocol

import numpy as np

from flambeau.aot import joint
from flambeau.aot.keys import Uncacheable, describe, env_of, name_of, surroundings
from flambeau.aot.runtime import Compiled, Part, Saving
from flambeau.core import cache
from flambeau.core.device import device
from flambeau.core.dtypes import dtype, dtype_of_name
from flambeau.core.expr import Expr, _rebuild
from flambeau.core.memory_format import memory_format, memory_format_named
from flambeau.core.size import Size
from flambeau.core.symbolic import Relation, ShapeEnv, SymInt
from flambeau.core.tensor import Tensor, from_array
from flambeau.core.unresolved import resolved
from flambeau.fx import GraphModule
from flambeau.ops.primitives import primitive_named
from flambeau.ops.registry import CompositeRecord, Primitive, composite_named

log = logging.getLogger("flambeau.cache")
stats: Counter[str] = Counter()  # hits, misses and bypasses of this process
LARGEST_CONSTANTS = 1 << 24  # bytes of tensors in one entry


class Artefacts(Protocol):
    """What a compiler offers so that what it makes can be kept."""

    @property
    def classes(self) -> tuple[Any, ...]:
        """Beyond those of aot, classes and functions that its records are made of."""

    def fingerprint(self, program: str) -> str:
        """All that its results depend on beside the program and Flambeau's own files. Uncacheable."""

    def pack(self, compiled: Compiled) -> Any:
        """A record of something compiled. Uncacheable."""

    def unpack(self, record: Any) -> Compiled | None:
        """What the record is of, ready to run; None if a file that belongs to it is missing or damaged."""


class Parts(NamedTuple):
    """A compiled program: all that calls need."""

    interface: joint.Interface
    graphs: list[Part]  # the whole, or forward and backward
    saving: Saving | None = None


@dataclass
class Request:
    """A program to be found or made."""

    gm: GraphModule
    examples: Sequence[Any]
    attributes: Sequence[Tensor]
    needs: tuple | None
    artefacts: Artefacts
    watched: bool = False  # somebody wants to see the stages, so there must be some
    groups: tuple = ()  # whose gradients are handed over early
    env: ShapeEnv | None = field(init=False, default=None)

    def key(self) -> str:
        """The entry's name. Uncacheable."""
        version = cache.package_hash()
        if version is None:
            raise Uncacheable("Flambeau's own files cannot be read, or were changed after this process started")
        self.env = env_of(self.examples)
        program = describe(self.gm, self.examples, self.attributes, self.needs)
        parts = [version, surroundings(), self.artefacts.fingerprint(program), program, str(self.groups)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def obtain(request: Request, build: Callable[[], Parts]) -> Parts:
    """The program, from the cache or from `build`, whose result is then kept."""
    started = time.perf_counter()
    try:
        key = request.key()
    except Uncacheable as reason:
        _tell("bypass", str(reason), started)
        return build()
    if request.watched:
        _tell("bypass", "its stages are being looked at", started)
    else:
        found = _load(request, key)
        if found is not None:
            _tell("hit", key, started)
            return found
        _tell("miss", key, started)
    known = len(request.env.guards) if request.env is not None else 0
    parts = build()
    try:
        _store(request, key, parts, known)
    except Uncacheable as reason:
        _tell("bypass", f"{key} is not kept: {reason}", time.perf_counter())
    return parts


def _tell(what: str, detail: str, started: float) -> None:
    stats[what] += 1
    log.debug("%s: %s (%.1f ms)", what, detail, (time.perf_counter() - started) * 1e3)


def path_of(key: str) -> Path:
    """Where an entry is, or would be."""
    return cache.cache_directory() / "programs" / key[:2] / key


# -- entries -----------------------------------------------------------------------------------------------------------


def _store(request: Request, key: str, parts: Parts, known: int) -> None:
    if parts.interface.no_backward is not None:
        raise Uncacheable(f"it has no backward ({parts.interface.no_backward})")
    guards = [] if request.env is None else [(*guard.relation, guard.reason) for guard in request.env.guards[known:]]
    graphs = [(request.artefacts.pack(part.compiled), part.outputs) for part in parts.graphs]
    room = io.BytesIO()
    _Pickler(room, request.artefacts.classes, request.env).dump((parts.interface, graphs, parts.saving, guards))
    cache.write_sealed(path_of(key), room.getvalue())


def _load(request: Request, key: str) -> Parts | None:
    content = cache.read_sealed(path_of(key))
    if content is None:
        return None
    try:
        interface, graphs, saving, guards = _Unpickler(io.BytesIO(content), request.artefacts.classes, request.env).load()
    except Exception as error:  # not written by `_store`, though sealed
        log.debug("the entry %s is not what it should be: %s: %s", key, type(error).__name__, error)
        return None
    parts = []
    for record, outputs in graphs:
        compiled = request.artefacts.unpack(record)
        if compiled is None:
            return None
        parts.append(Part(compiled, outputs))
    for op, left, right, reason in guards:
        assert request.env is not None
        request.env.evaluate(Relation(op, left, right), reason)  # holds: the sizes of the examples are in the key
    return Parts(interface, parts, saving)


# -- what entries are made of ------------------------------------------------------------------------------------------


def _tensor(kind: dtype, shape: tuple[int, ...], where: device, data: bytes) -> Tensor:
    """A constant."""
    made = from_array(np.frombuffer(bytearray(data), kind.numpy).reshape(shape), kind)
    return made if where.type == "cpu" else made.to(where)


def _numpy_dtype(name: str) -> np.dtype:
    return dtype_of_name(name).numpy


_CLASSES: tuple[Any, ...] = (
    joint.Interface, joint.FromArgument, joint.FromAttribute, joint.FromSize, joint.FromGenerator, joint.Constant,
    joint.Result, joint.SameInput, joint.ViewOf, joint.OutputPlace, Saving, Size, SymInt, Expr, _rebuild, _tensor, device,
    dtype_of_name, memory_format_named, primitive_named, composite_named, slice, range, complex, _numpy_dtype,
)  # fmt: skip
_RECORDS = (Primitive, CompositeRecord)
_PLAIN = frozenset({int, float, bool, str, bytes, type(None), type(Ellipsis), tuple, list, dict, set, frozenset, dtype, memory_format})


def _table(classes: Sequence[Any]) -> dict[tuple[str, str], Any]:
    return {(known.__module__, known.__qualname__): known for known in (*_CLASSES, *classes)}


class _Pickler(pickle.Pickler):
    """Writes records of known classes, and refuses all else."""

    def __init__(self, file: io.BytesIO, classes: Sequence[Any], env: ShapeEnv | None) -> None:
        super().__init__(file, protocol=5)
        self.known = _table(classes)
        self.types = _PLAIN | {known for known in self.known.values() if isinstance(known, type)}
        self.env = env
        self.room = LARGEST_CONSTANTS

    def persistent_id(self, obj: Any) -> str | None:
        """The capture's own sizes, which the process that reads this has too."""
        if isinstance(obj, ShapeEnv):
            if obj is not self.env:
                raise Uncacheable("it holds a size of another capture")
            return "sizes"
        return None

    def reducer_override(self, obj: Any) -> Any:
        """Tensors by value; Uncacheable for whatever is not in the list."""
        if isinstance(obj, Tensor):
            return _tensor, self._constant(obj)
        if isinstance(obj, np.dtype):
            return _numpy_dtype, (obj.name,)
        if isinstance(obj, _RECORDS):
            name_of(obj) if isinstance(obj, Primitive) else None
            return NotImplemented
        if isinstance(obj, (type, FunctionType, BuiltinFunctionType)):
            if self.known.get((obj.__module__, obj.__qualname__)) is obj:
                return NotImplemented
            raise Uncacheable(f"it holds {obj.__module__}.{obj.__qualname__}")
        if type(obj) not in self.types:
            raise Uncacheable(f"it holds a {type(obj).__module__}.{type(obj).__qualname__}")
        return NotImplemented

    def _constant(self, t: Tensor) -> tuple:
        if type(t) is not Tensor or t._data is None or not t.is_contiguous():
            raise Uncacheable("it holds a tensor that is not a plain one")
        self.room -= t.numel() * t.dtype.itemsize
        if self.room < 0:
            raise Uncacheable(f"its constants take more than {LARGEST_CONSTANTS >> 20} MiB")
        return t.dtype, tuple(t.shape), t.device, np.ascontiguousarray(resolved(t.detach().cpu()._data)).tobytes()


class _Unpickler(pickle.Unpickler):
    """Reads what `_Pickler` writes."""

    def __init__(self, file: io.BytesIO, classes: Sequence[Any], env: ShapeEnv | None) -> None:
        super().__init__(file)
        self.known = _table(classes)
        self.env = env

    def persistent_load(self, pid: str) -> Any:
        """The sizes of this capture."""
        return self.env

    def find_class(self, module: str, name: str) -> Any:
        """One of the known classes and functions."""
        found = self.known.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"{module}.{name} does not belong into an entry of the cache")
        return found
