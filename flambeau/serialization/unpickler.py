"""Reading a checkpoint's pickle: `restricted_load` yields data only, `TrustingUnpickler` may run code.

Python's own unpickler calls whatever a file names and lets it set attributes of what it named. `restricted_load` is
therefore an interpreter of its own, over the opcodes that data need and a list of allowed names; see PEP 307 and
`pickletools` for what the opcodes mean.
"""

from __future__ import annotations

import _compat_pickle
import pickle
import pickletools
import reprlib
import struct
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import IO, Any

from ..core.size import Size
from ..core.sparse import SparseTensor
from ..core.tensor import Tensor
from .errors import LoadError
from .names import SAFE_CALLS, SAFE_GLOBALS, TORCH_GLOBALS, SizesNote, check_sparse, find_torch_global, is_own

PersistentLoad = Callable[[Any], Any]


class TrustingUnpickler(pickle.Unpickler):
    """Python's unpickler, PyTorch's names answered by Flambeau. It runs what the file says: only for trusted files."""

    def __init__(self, file: IO[bytes], persistent_load: PersistentLoad, **options: Any) -> None:
        super().__init__(file, **options)
        self.persistent_load = persistent_load  # type: ignore[method-assign]

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" or module.startswith("torch."):
            return find_torch_global(module, name)
        return super().find_class(module, name)


def trusting(unpickler: Any) -> Any:
    """A class that reads as `unpickler` of the caller's pickle module does: it is asked for every name but those that PyTorch's files have
    for tensors themselves, their storages and dtypes."""
    class Given(unpickler):
        def __init__(self, file: IO[bytes], persistent_load: PersistentLoad, **options: Any) -> None:
            super().__init__(file, **options)
            self.persistent_load = persistent_load

        def find_class(self, module: str, name: str) -> Any:
            known = TORCH_GLOBALS.get((module, name))
            return super().find_class(module, name) if known is None else known

    return Given


def refused(what: str) -> LoadError:
    """The error for a file that holds more than data."""
    return LoadError(
        f"Weights only load failed. {what}\nA file loaded with weights_only=True (the default) can only hold tensors "
        "and plain Python data. If you trust where it comes from, torch.load(..., weights_only=False) reads it, and "
        "can run whatever code it contains."
    )


def _name_today(module: str, name: str) -> tuple[str, str]:
    """A global by its name in Python 3; protocols before 3 spell some as Python 2 did."""
    return _compat_pickle.NAME_MAPPING.get((module, name), (_compat_pickle.IMPORT_MAPPING.get(module, module), name))


def _refused_global(module: str, name: str) -> LoadError:
    full = name if module == "builtins" else f"{module}.{name}"
    return refused(f"Unsupported global: GLOBAL {full} was not an allowed global by default. Please use "
                   f"`torch.serialization.add_safe_globals([{full}])` or the "
                   f"`torch.serialization.safe_globals([{full}])` context manager to allowlist this global if you "
                   "trust this class/function.")


# -- how much there may be -------------------------------------------------------------------------------------
# A short pickle can describe much: tuples of the same tuple, forty deep, have 2^40 elements for whoever walks over them.
MOST_NESTED = 500
FREE_ELEMENTS, ELEMENTS_PER_BYTE, WORK_PER_BYTE = 1_000_000, 1000, 64
_MAPPINGS = (dict, OrderedDict, Counter, defaultdict)
_CONTAINERS = (tuple, list, set, frozenset, Size)


def _parts(value: Any) -> Iterator[Any] | None:
    """What `value` consists of; None if it has no parts or belongs to a class of the user's."""
    kind = type(value)
    if kind in _CONTAINERS:
        return iter(value)
    if kind in _MAPPINGS:
        return chain(value, value.values(), getattr(value, "__dict__", {}).values())
    return iter(value.__dict__.values()) if isinstance(value, Tensor) else None


def measure(value: Any) -> int:
    """How many parts `value` has at all levels, each counted as often as it occurs; in time proportional to the distinct ones.

    LoadError if it is nested too deeply. What is part of itself is counted once.
    """
    sizes = {id(value): 0}
    opened, counts = [(id(value), _parts(value) or iter(()))], [0]
    while opened:
        key, parts = opened[-1]
        for part in parts:
            counts[-1] += 1
            known = sizes.get(id(part))
            if known is not None:
                counts[-1] += known
            elif (inner := _parts(part)) is not None:
                if len(opened) >= MOST_NESTED:
                    raise refused(f"Data are nested more than {MOST_NESTED} deep.")
                sizes[id(part)] = 0
                opened.append((id(part), inner))
                counts.append(0)
                break
        else:
            opened.pop()
            sizes[key] = counts.pop()
            if counts:
                counts[-1] += sizes[key]
    return sizes[id(value)]


# -- the machine -----------------------------------------------------------------------------------------------
_DATA_ATTRIBUTES = (OrderedDict, Tensor)  # what may be given attributes besides the classes that the user allowed
_DAMAGE = (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError, RecursionError, EOFError,
           struct.error, DeprecationWarning)  # the last where warnings are errors: of escapes in a text


class _Machine:
    """The stack machine of the pickle format, over `allowed` globals."""

    def __init__(self, allowed: Mapping[tuple[str, str], Any], users: Mapping[tuple[str, str], Any],
                 persistent_load: PersistentLoad) -> None:
        self.allowed, self.persistent_load = allowed, persistent_load
        self.trusted = tuple(thing for thing in users.values() if isinstance(thing, type))
        self.calls = {**{id(known): safe for known, safe in SAFE_CALLS.items()},
                      **{id(thing): thing for thing in users.values() if callable(thing)}}
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []  # the stacks below the marks that are open
        self.memo: dict[int, Any] = {}
        self.work = 0  # that may still be done beyond reading each opcode
        self.sparse: list[SparseTensor] = []  # whose indices are still to be checked

    def run(self, data: bytes) -> Any:
        """The object that `data` describes."""
        self.work = FREE_ELEMENTS + WORK_PER_BYTE * len(data)
        try:
            for opcode, arg, _ in pickletools.genops(data):
                if opcode.name == "STOP":
                    made = self.stack.pop()
                    if measure(made) > FREE_ELEMENTS + ELEMENTS_PER_BYTE * len(data):
                        raise refused("It holds one thing in another so often that nobody could walk over them all.")
                    return made
                action = _ACTIONS.get(opcode.name)
                if action is None:
                    raise refused(f"Unsupported operand {opcode.name}.")
                action(self, arg)
        except _DAMAGE as error:
            why = error.args[0] if error.args and isinstance(error.args[0], (str, int)) else ""
            raise LoadError(f"the checkpoint's data.pkl is damaged or truncated: {type(error).__name__} {why}") from error
        except LoadError:
            raise
        except RuntimeError as error:  # of a device, say, that does not exist
            raise LoadError(str(error)) from error
        raise LoadError("the checkpoint's data.pkl is empty")

    def spend(self, work: int) -> None:
        """Count work that a few bytes may ask for again and again."""
        self.work -= work
        if self.work < 0:
            raise refused("It asks for far more work than its size explains.")

    def check_key(self, key: Any) -> None:
        """Refuse a key that takes long to hash: a tuple's parts are hashed each time, as often and as deeply as they occur."""
        if isinstance(key, tuple):
            self.spend(measure(key))

    # -- stack and memo ---------------------------------------------------------------------------------------------
    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop_to_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.marks.pop()
        return items

    def mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def drop(self, value: Any) -> None:
        """Forget what was taken off the stack."""

    def put(self, key: int) -> None:
        self.memo[key] = self.stack[-1]

    def get(self, key: int) -> None:
        self.stack.append(self.memo[key])

    # -- containers -------------------------------------------------------------------------------------------------
    def make_tuple(self, count: int) -> None:
        items = tuple(self.stack[-count:])
        if len(items) != count:
            raise ValueError("a tuple is larger than the stack")
        del self.stack[-count:]
        self.push(items)

    def append(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, (list, bytearray)):
            raise refused(f"Can only append to a list, got {type(target).__name__}.")
        target.extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) not in (dict, OrderedDict, Counter, defaultdict):
            raise refused(f"Can only set items of a dict, got {type(target).__name__}.")
        for key, value in zip(items[::2], items[1::2], strict=True):
            self.check_key(key)
            target[key] = value

    def add_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not set:
            raise refused(f"Can only add to a set, got {type(target).__name__}.")
        for item in items:
            self.check_key(item)
        target.update(items)

    def make_frozenset(self) -> None:
        items = self.pop_to_mark()
        for item in items:
            self.check_key(item)
        self.push(frozenset(items))

    # -- globals ----------------------------------------------------------------------------------------------------
    def find(self, module: str, name: str) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("a global's name is no text")
        module, name = _name_today(module, name)
        found = self.allowed.get((module, name))
        if found is None and module.partition(".")[0] == "torch":  # a class of the library, allowed by the user
            found = next((kind for kind in self.trusted if kind.__qualname__ == name and is_own(kind)), None)
        if found is None:
            raise _refused_global(module, name)
        self.push(found)

    def reduce(self) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        call = self.calls.get(id(function))
        if getattr(call, "takes_bare_argument", False) and not isinstance(args, tuple):    # TorchScript's members of enums
            args = (args,)
        if call is None or not isinstance(args, tuple):
            raise refused(f"Trying to call {getattr(function, '__name__', reprlib.repr(function))}, which is not an allowed function.")
        if call is not function or call in SAFE_CALLS:
            self.spend(measure(args) + sum(len(arg) for arg in args if isinstance(arg, (str, bytes))))
        made = call(*args)
        if isinstance(made, SparseTensor):
            self.sparse.append(made)
        self.push(made)

    def new_object(self) -> None:
        args, kind = self.stack.pop(), self.stack.pop()
        allowed = kind in self.trusted if isinstance(kind, type) else False
        if not (allowed or (kind in (OrderedDict, SizesNote) and args == ())) or not isinstance(args, tuple):
            raise refused(f"Trying to make an instance of {reprlib.repr(kind)}, which is not an allowed class.")
        self.push(kind.__new__(kind, *args))

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, (*self.trusted, SizesNote)) and hasattr(target, "__setstate__"):
            target.__setstate__(state)
        elif isinstance(target, self.trusted) and isinstance(state, tuple) and len(state) == 2:
            for name, value in {**(state[0] or {}), **(state[1] or {})}.items():
                setattr(target, name, value)
        elif isinstance(target, (*_DATA_ATTRIBUTES, *self.trusted)) and isinstance(state, dict):
            self.spend(len(state))
            target.__dict__.update(state)
        else:
            raise refused(f"Can only set the attributes of an OrderedDict, a Tensor or an instance of an allowed "
                          f"class, not of {reprlib.repr(target)}.")

    def persistent(self) -> None:
        self.push(self.persistent_load(self.stack.pop()))


def _literal(machine: _Machine, arg: Any) -> None:
    machine.push(arg)


_LITERALS = [
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE", "SHORT_BINUNICODE",
    "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
]  # fmt: skip
_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(_LITERALS, _literal),
    "PROTO": lambda m, arg: None,
    "FRAME": lambda m, arg: None,
    "NONE": lambda m, arg: m.push(None),
    "NEWTRUE": lambda m, arg: m.push(True),
    "NEWFALSE": lambda m, arg: m.push(False),
    "MARK": lambda m, arg: m.mark(),
    "POP": lambda m, arg: m.drop(m.stack.pop()),
    "POP_MARK": lambda m, arg: m.drop(m.pop_to_mark()),
    "DUP": lambda m, arg: m.push(m.stack[-1]),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.get),
    "MEMOIZE": lambda m, arg: m.put(len(m.memo)),
    "EMPTY_DICT": lambda m, arg: m.push({}),
    "EMPTY_LIST": lambda m, arg: m.push([]),
    "EMPTY_TUPLE": lambda m, arg: m.push(()),
    "EMPTY_SET": lambda m, arg: m.push(set()),
    "FROZENSET": lambda m, arg: m.make_frozenset(),
    "BYTEARRAY8": lambda m, arg: m.push(bytearray(arg)),
    "TUPLE": lambda m, arg: m.push(tuple(m.pop_to_mark())),
    "TUPLE1": lambda m, arg: m.make_tuple(1),
    "TUPLE2": lambda m, arg: m.make_tuple(2),
    "TUPLE3": lambda m, arg: m.make_tuple(3),
    "LIST": lambda m, arg: m.push(m.pop_to_mark()),
    "APPEND": lambda m, arg: m.append([m.stack.pop()]),
    "APPENDS": lambda m, arg: m.append(m.pop_to_mark()),
    "SETITEM": lambda m, arg: m.set_items([m.stack.pop(-2), m.stack.pop()]),
    "SETITEMS": lambda m, arg: m.set_items(m.pop_to_mark()),
    "ADDITEMS": lambda m, arg: m.add_items(m.pop_to_mark()),
    "GLOBAL": lambda m, arg: m.find(*arg.split(" ", 1)),
    "STACK_GLOBAL": lambda m, arg: m.find(m.stack.pop(-2), m.stack.pop()),
    "REDUCE": lambda m, arg: m.reduce(),
    "NEWOBJ": lambda m, arg: m.new_object(),
    "BUILD": lambda m, arg: m.build(),
    "BINPERSID": lambda m, arg: m.persistent(),
}  # fmt: skip


def restricted_load(data: bytes, persistent_load: PersistentLoad, allowed: Mapping[tuple[str, str], Any],
                    sparse: list[SparseTensor] | None = None) -> Any:
    """The object that the pickle `data` describes, `allowed` being the user's additions to `SAFE_GLOBALS`.

    Raises LoadError, naming it, at the first thing that is not plain data. Where the bytes of tensors come behind the pickle, sparse
    tensors are entered in `sparse`, for `check_sparse` to look at when they are read.
    """
    machine = _Machine({**SAFE_GLOBALS, **allowed}, allowed, persistent_load)
    made = machine.run(data)
    if sparse is None:
        check_sparse(machine.sparse)
    else:
        sparse += machine.sparse
    return made


def unsafe_globals(data: bytes, allowed: Mapping[tuple[str, str], Any]) -> list[str]:
    """The full names in the pickle `data` that `restricted_load` would refuse, in their order."""
    names: list[tuple[Any, Any]] = []
    texts: list[Any] = [None, None]
    memo: dict[Any, Any] = {}
    arg: Any
    for opcode, arg, _ in pickletools.genops(data):
        if opcode.name == "GLOBAL":
            module, _, name = arg.partition(" ")
            names.append((module, name))
        elif opcode.name == "STACK_GLOBAL":
            names.append((texts[-2], texts[-1]))
        elif opcode.name.endswith("PUT") or opcode.name == "MEMOIZE":
            memo[len(memo) if arg is None else arg] = texts[-1]
        elif opcode.name.endswith("GET"):
            texts.append(memo.get(arg))
        else:
            texts.append(arg if isinstance(arg, str) else None)
    known = {**SAFE_GLOBALS, **allowed}
    today = dict.fromkeys(_name_today(module, name) for module, name in names if isinstance(module, str) and isinstance(name, str))
    return [f"{module}.{name}" for module, name in today if (module, name) not in known]
