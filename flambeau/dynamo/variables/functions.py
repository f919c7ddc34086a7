"""Python functions: existing ones, ones made during capture, bound methods, partials, cells; and how calls bind arguments."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, NoReturn

from ..break_kinds import graph_break
from ..source import Source, constant_source
from ..typed import Trace, Writer
from .base import NONE, Args, ConstantVariable, Kwargs, LazyVariable, ValueVariable, Variable, is_none
from .dicts import DictVariable
from .sequences import TupleVariable


class CellVariable(Variable):
    """A closure cell; `contents` is None while it is unbound."""

    kind: Any = types.CellType

    def __init__(self, contents: Variable | None = None, source: Source | None = None) -> None:
        self.contents, self.source = contents, source

    def load(self, tx: Trace, name: str) -> Variable:
        if self.contents is None:
            if name in tx.frames[-1].code.co_freevars:
                tx.raise_(NameError, f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope")
            tx.raise_(UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value")
        self.contents = self.contents.realize(tx)
        return self.contents

    def store(self, tx: Trace, value: Variable | None) -> None:
        tx.effects.touch(self)
        self.contents = value

    def attr(self, tx: Trace, name: str) -> Variable:
        if name == "cell_contents":
            return self.load(tx, name) if self.contents is not None else tx.raise_(ValueError, "Cell is empty")
        return super().attr(tx, name)

    def make(self, w: Writer) -> str:
        cell = w.bind(f"{w.constant(types.CellType)}()")
        w.remember(self, cell)
        w.effects_of(self)
        return cell

    def replay(self, w: Writer) -> None:
        target = w.value(self)
        if self.contents is not None:
            w.effect(f"{target}.cell_contents = {w.value(self.contents)}")
        elif self.source is not None:
            w.effect(f"del {target}.cell_contents")


class FunctionBase(Variable):
    """What calling needs to know of a Python function."""

    kind: Any = types.FunctionType

    code: types.CodeType
    globals: dict[str, Any]
    function: Any = None
    """The real function, if there is one."""
    qualname = ""

    def closure_cells(self, tx: Trace) -> list[CellVariable]:
        raise NotImplementedError

    def default_values(self, tx: Trace) -> tuple[list[Variable], dict[str, Variable]]:
        """Positional and keyword-only defaults."""
        raise NotImplementedError

    def bind(self, tx: Trace, args: Args, kwargs: Kwargs) -> dict[str, Variable]:
        """The callee's locals, by Python's rules; a bad call raises TypeError in the traced program."""
        code = self.code
        defaults, keyword_defaults = self.default_values(tx)
        count, keyword_only = code.co_argcount, code.co_kwonlyargcount
        names = code.co_varnames[: count + keyword_only]
        positional, position = names[:count], count + keyword_only
        bound: dict[str, Variable] = dict(zip(positional, args, strict=False))
        extra: dict[str, Variable] = {}
        for name, value in kwargs.items():
            accepted = name in names and name not in code.co_varnames[: code.co_posonlyargcount]
            if accepted and name in bound:
                self._wrong_call(tx, args, kwargs)
            (bound if accepted else extra)[name] = value
        for name, default in zip(reversed(positional), reversed(defaults), strict=False):
            bound.setdefault(name, default)
        for name, default in keyword_defaults.items():
            bound.setdefault(name, default)
        variadic, takes_any_keyword = code.co_flags & inspect.CO_VARARGS, code.co_flags & inspect.CO_VARKEYWORDS
        if any(name not in bound for name in names) or (len(args) > count and not variadic) or (extra and not takes_any_keyword):
            self._wrong_call(tx, args, kwargs)
        if variadic:
            bound[code.co_varnames[position]] = TupleVariable(list(args[count:]))
            position += 1
        if takes_any_keyword:
            entries: dict[Any, tuple[Variable, Variable]] = {k: (ConstantVariable(k), v) for k, v in extra.items()}
            bound[code.co_varnames[position]] = DictVariable(entries)
        return bound

    def _wrong_call(self, tx: Trace, args: Args, kwargs: Kwargs) -> NoReturn:
        """Raise Python's own TypeError: a function with the same signature refuses the same call before it runs anything."""
        defaults, keyword_defaults = self.default_values(tx)
        cells = tuple(types.CellType() for _ in self.code.co_freevars)
        stub = types.FunctionType(self.code, {}, self.code.co_name, (None,) * len(defaults), cells)
        stub.__kwdefaults__ = dict.fromkeys(keyword_defaults)
        stub.__qualname__ = self.function.__qualname__ if self.function is not None else self.qualname
        tx.checked(stub, *[None] * len(args), **dict.fromkeys(kwargs))
        raise AssertionError(f"{stub.__qualname__} takes a call that capture refused")

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        return tx.inline(self, args, kwargs)


OF_FUNCTIONS = frozenset(dir(lambda: None))
"""Attributes that every function has; they come before those of its `__dict__`."""


class FunctionVariable(FunctionBase):
    """A Python function that exists."""

    def __init__(self, function: types.FunctionType, source: Source | None = None) -> None:
        self.function = function
        self.source = source
        self.code, self.globals = function.__code__, function.__globals__

    def as_constant(self) -> Any:
        return self.function

    def describe(self) -> str:
        return f"function {self.function.__module__}.{self.function.__qualname__}"

    def closure_cells(self, tx: Trace) -> list[CellVariable]:
        base = self.origin()
        return [
            tx.existing_cell(cell, base.cell(i, name))
            for i, (name, cell) in enumerate(zip(self.code.co_freevars, self.function.__closure__ or (), strict=False))
        ]

    def origin(self) -> Source:
        return self.source if self.source is not None else constant_source(self.function)

    def default_values(self, tx: Trace) -> tuple[list[Variable], dict[str, Variable]]:
        base = self.origin()
        positional: list[Variable] = [
            LazyVariable(value, base.default(i)) for i, value in enumerate(self.function.__defaults__ or ())
        ]
        keyword: dict[str, Variable] = {
            name: LazyVariable(value, base.derive("{0}.__kwdefaults__").item(name))
            for name, value in (self.function.__kwdefaults__ or {}).items()
        }
        return positional, keyword

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        return tx.call_function(self, args, kwargs)

    def attr(self, tx: Trace, name: str) -> Variable:
        changed = tx.effects.changed(self.function.__dict__)
        found = changed.lookup(tx, ConstantVariable(name)) if changed is not None and name not in OF_FUNCTIONS else None
        if found is not None:
            return found
        value = tx.checked(getattr, self.function, name)
        if name in ("__get__", "__call__"):
            return tx.bound_special(self, name)
        return tx.wrap(value, self.origin().attr(name))

    def has_attr(self, tx: Trace, name: str) -> bool:
        return name in OF_FUNCTIONS or self._entries(tx).contains(tx, ConstantVariable(name))

    def _entries(self, tx: Trace) -> Variable:
        return tx.wrap(self.function.__dict__, self.origin().attr("__dict__"))

    def set_attr(self, tx: Trace, name: str, value: Variable) -> None:
        if name.startswith("__"):
            graph_break("unknown attribute", f"{self.describe()}.{name} = ...")
        if self.source is not None:
            tx.guard_identity(self.source, self.function)
        self._entries(tx).set_item(tx, ConstantVariable(name), value)

    def make(self, w: Writer) -> str:
        return w.constant(self.function)


_DEFAULTS = {"__defaults__": "defaults", "__kwdefaults__": "keyword_defaults", "__annotate__": "annotate"}


def _docstring(code: types.CodeType) -> str | None:
    return types.FunctionType(code, {}, closure=tuple(types.CellType() for _ in code.co_freevars)).__doc__


class NestedFunction(FunctionBase):
    """A function that the program makes during capture: a lambda, a comprehension, an inner def."""

    def __init__(self, code: types.CodeType, globals_: dict[str, Any], globals_source: Source) -> None:
        self.code, self.globals, self.globals_source = code, globals_, globals_source
        self.qualname: str = getattr(code, "co_qualname", code.co_name)
        self.defaults: Variable | None = None
        self.keyword_defaults: Variable | None = None
        self.annotations: Variable | None = None
        """The tuple of names and types by turns."""
        self.annotate: Variable | None = None
        """3.14: the function that makes them when they are asked for."""
        self.cells: list[CellVariable] = []
        self.entries = DictVariable()
        """Its `__dict__`."""
        self.written: dict[str, Variable] = {}
        """Attributes of other kinds that the program gave it: `__name__` and the like."""

    def describe(self) -> str:
        return f"function {self.qualname}"

    def closure_cells(self, tx: Trace) -> list[CellVariable]:
        return self.cells

    def default_values(self, tx: Trace) -> tuple[list[Variable], dict[str, Variable]]:
        positional = list(tx.iterate(self.defaults)) if self.defaults is not None else []
        keyword: dict[str, Variable] = {}
        if isinstance(self.keyword_defaults, DictVariable):
            keyword = {key: value for key, (_, value) in self.keyword_defaults.open(tx).items()}
        return positional, keyword

    def attr(self, tx: Trace, name: str) -> Variable:
        if name in self.written:
            return self.written[name]
        known: dict[str, Callable[[], Variable]] = {
            "__name__": lambda: ConstantVariable(self.code.co_name),
            "__qualname__": lambda: ConstantVariable(self.qualname),
            "__module__": lambda: ConstantVariable(self.globals.get("__name__")),
            "__doc__": lambda: ConstantVariable(_docstring(self.code)),
            "__code__": lambda: ConstantVariable(self.code),
            "__defaults__": lambda: self.defaults or NONE,
            "__kwdefaults__": lambda: self.keyword_defaults or NONE,
            "__annotations__": lambda: self.written.setdefault("__annotations__", self._annotated(tx)),
            "__annotate__": lambda: self.annotate or NONE,
            "__type_params__": lambda: TupleVariable([]),
            "__dict__": lambda: self.entries,
            "__closure__": lambda: TupleVariable(list(self.cells)) if self.cells else NONE,
        }  # fmt: skip
        if name in known:
            return known[name]()
        if name in ("__get__", "__call__"):
            return tx.bound_special(self, name)
        if name in self.entries.items:
            return self.entries.items[name][1]
        tx.raise_(AttributeError, f"'function' object has no attribute '{name}'")

    def has_attr(self, tx: Trace, name: str) -> bool:
        return name in self.entries.items or name in OF_FUNCTIONS

    def _annotated(self, tx: Trace) -> Variable:
        if self.annotate is not None:
            return tx.call(self.annotate, [ConstantVariable(1)], {})  # annotationlib.Format.VALUE
        items = list(tx.iterate(self.annotations)) if self.annotations is not None else []
        return tx.make_dict(dict(zip(items[::2], items[1::2], strict=True)))

    def set_attr(self, tx: Trace, name: str, value: Variable) -> None:
        if name in ("__code__", "__dict__"):
            graph_break("unknown attribute", f"{self.describe()}.{name} = ...")
        if name == "__annotate__":
            self.annotations = self.written.pop("__annotations__", None) and None
        if name in _DEFAULTS:
            setattr(self, _DEFAULTS[name], None if is_none(value) else value)
        elif name in OF_FUNCTIONS:
            self.written[name] = value
        else:
            self.entries.set_item(tx, ConstantVariable(name), value)

    def build(self, w: Writer) -> str:
        cells = "".join(f"{w.value(cell)}, " for cell in self.cells)
        defaults = w.value(self.defaults) if self.defaults is not None else "None"
        function = w.bind(
            f"{w.constant(types.FunctionType)}({w.constant(self.code)}, {w.fetch(self.globals_source)}, "
            f"{self.code.co_name!r}, {defaults}, ({cells}))"
        )
        w.remember(self, function)
        if self.keyword_defaults is not None:
            w.effect(f"{function}.__kwdefaults__ = {w.value(self.keyword_defaults)}")
        if self.annotations is not None and "__annotations__" not in self.written:
            self.written["__annotations__"] = self._annotated(w.trace)
        if self.annotate is not None and "__annotations__" not in self.written:
            self.written["__annotate__"] = self.annotate
        for name, value in self.written.items():
            w.effect(f"{function}.{name} = {w.value(value)}")
        for key, value in self.entries.items.values():
            w.effect(f"{function}.__dict__[{w.value(key)}] = {w.value(value)}")
        return function


class MethodVariable(Variable):
    """A function bound to an object."""

    kind: Any = types.MethodType

    def __init__(self, function: Variable, owner: Variable, source: Source | None = None) -> None:
        self.function, self.owner, self.source = function, owner, source

    def describe(self) -> str:
        return f"method {self.function.describe()}"

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        return tx.call(self.function, [self.owner, *args], kwargs)

    def attr(self, tx: Trace, name: str) -> Variable:
        if name == "__self__":
            return self.owner
        if name == "__func__":
            return self.function
        return self.function.attr(tx, name)

    def has_attr(self, tx: Trace, name: str) -> bool:
        return name in ("__self__", "__func__") or self.function.has_attr(tx, name)

    def key(self) -> Any:
        return ("method", self.function.key(), self.owner.key())

    def make(self, w: Writer) -> str:
        return f"{w.constant(types.MethodType)}({w.value(self.function)}, {w.value(self.owner)})"


_OF_PARTIALS = frozenset(dir(functools.partial(print)))


class PartialVariable(Variable):
    """`functools.partial(function, *args, **kwargs)`."""

    kind: Any = functools.partial

    def __init__(self, function: Variable, args: Args, kwargs: Kwargs, source: Source | None = None, value: Any = None) -> None:
        self.function, self.args, self.kwargs, self.source, self.value = function, args, kwargs, source, value
        self.entries = DictVariable({})     # the `__dict__` of one that the program makes

    def set_attr(self, tx: Trace, name: str, value: Variable) -> None:
        if self.source is not None or name in ("func", "args", "keywords"):
            graph_break("unknown attribute", f"{self.describe()}.{name} = ...")
        self.entries.set_item(tx, ConstantVariable(name), value)

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        return tx.call(self.function, [*(a.realize(tx) for a in self.args), *args], {**self.kwargs, **kwargs})

    def attr(self, tx: Trace, name: str) -> Variable:
        if name == "func":
            return self.function
        if name == "args":
            return TupleVariable(list(self.args))
        if name == "keywords":
            return DictVariable({k: (ConstantVariable(k), v) for k, v in self.kwargs.items()})
        if name == "__dict__":
            return self.entries if self.source is None else tx.wrap(self.value.__dict__, self.source.attr(name))
        if name in self.entries.items:
            return self.entries.items[name][1]
        if self._given(tx, name):
            assert self.source is not None
            return tx.wrap(self.value.__dict__[name], self.source.dict_item(name))
        if name not in _OF_PARTIALS:
            tx.raise_(AttributeError, f"'functools.partial' object has no attribute '{name}'")
        if name in ("__module__", "__doc__"):
            return tx.literal(getattr(functools.partial, name))
        return super().attr(tx, name)

    def has_attr(self, tx: Trace, name: str) -> bool:
        return name in self.entries.items or name in _OF_PARTIALS or self._given(tx, name)

    def is_plain(self, tx: Trace) -> bool:
        """Has it no attributes but its own? A partial of one is one of its function."""
        return not tx.truth(self.attr(tx, "__dict__").realize(tx))

    def _given(self, tx: Trace, name: str) -> bool:
        """Has an existing one an attribute that the program gave it?"""
        if self.source is None:
            return False
        if name not in self.value.__dict__:
            tx.guard_absent(self.source, name)
        return name in self.value.__dict__

    def make(self, w: Writer) -> str:
        made = w.bind(w.call(w.constant(functools.partial), [self.function, *self.args], self.kwargs))
        w.remember(self, made)
        for key, value in self.entries.items.values():
            w.effect(f"{made}.__dict__[{w.value(key)}] = {w.value(value)}")
        return made


class DisabledVariable(ValueVariable):
    """A function under torch.compiler.disable: called between graphs."""

    def attr(self, tx: Trace, name: str) -> Variable:
        return tx.wrap(getattr(self.value, name), (self.source or constant_source(self.value)).attr(name))

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        name = getattr(self.value, "__qualname__", repr(self.value))
        graph_break("call of disabled function", f"{name} is marked with torch.compiler.disable")
