"""What a capture takes for granted around a function: settings of the process, and what names in modules and classes are bound to.

Any of it may be written to at any time, by a test that patches `torch.sin`, say, or a profiler that wraps `nn.Module.__call__`. So
whatever capture looks up by name is noted here, and one native call (`_C.Surroundings`) tells whether all of it would be found again.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from .. import _C, backends  # noqa: F401 - whose rooms have settings
from ..core import dispatch
from ..core.settings import TABLE, bound_names, get_setting, set_setting, setting_at
from ..fx.node import mark_impure

MISSING: Any = object()
_IMMUTABLE_TYPE = 1 << 8


def lookup_in_class(cls: type, name: str) -> Any:
    """The raw entry of the first class in the MRO that has `name`, or MISSING."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def attributes_of(value: Any) -> Any:
    """The `__dict__` of an object, past a `__getattribute__` of its class; empty where it has none."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}


@mark_impure
def write_setting(name: str, key: Any, value: Any) -> None:
    """Put into graphs: from here on a setting of the table has another value."""
    set_setting(TABLE[name].owner, key, value)


class Surroundings:
    """Grows during one capture."""

    def __init__(self) -> None:
        state = dispatch.state
        self.state = state.recording, state.overrides, dispatch.autocast_settings(), state.devices
        self._noted: dict[int, tuple[Any, dict[Any, tuple[str, Any]]]] = {}
        self._before: dict[tuple[str, Any], Any] = {}
        self._note_settings()

    def _note_settings(self) -> None:
        for owner, key, value in bound_names():
            self.note(owner, key, "equal", value)

    def note(self, owner: Any, key: Any, wanted: str, value: Any = None) -> None:
        """`wanted` as in `_C.Surroundings`; what was noted first counts."""
        self._noted.setdefault(id(owner), (owner, {}))[1].setdefault(key, (wanted, value))

    def look_up(self, cls: type, name: str) -> Any:
        """`lookup_in_class`, noted. The value of an entry that is no descriptor has guards of its own."""
        found = lookup_in_class(cls, name)
        if all(base.__flags__ & _IMMUTABLE_TYPE for base in cls.__mro__):
            return found
        if found is MISSING:
            self.note(cls, name, "absent")
        elif hasattr(type(found), "__get__"):
            self.note(cls, name, "same", found)
        else:
            self.note(cls, name, "plain")
        return found

    def note_global(self, scope: dict[str, Any], name: str, value: Any) -> None:
        """`value` was found under this name of a module, whose `__getattr__` may have made it."""
        self.note(scope, name, "same" if name in scope else "no_other", value)

    def note_function(self, function: types.FunctionType) -> None:
        """A function that was found by name has this code."""
        self.note(function, None, "same", function.__code__)

    # -- settings that the program writes to ----------------------------------------------------------------------------------
    def assign(self, name: str, key: Any, value: Any) -> None:
        """A setting changes, for what is captured next."""
        owner = TABLE[name].owner
        self._before.setdefault((name, key), get_setting(owner, key))
        set_setting(owner, key, value)

    def put_back(self) -> None:
        """The end of the capture."""
        for (name, key), value in self._before.items():
            set_setting(TABLE[name].owner, key, value)

    def putting_back(self, compiled: Any) -> Any:
        """What changes settings in its middle, so that they are put back at its end: a graph that fails leaves none behind."""
        places = [(TABLE[name].owner, key) for name, key in self._before]
        if not places:
            return compiled

        def run(*args: Any) -> Any:
            before = [get_setting(owner, key) for owner, key in places]
            try:
                return compiled(*args)
            finally:
                for (owner, key), value in zip(places, before, strict=True):
                    set_setting(owner, key, value)

        return run

    # -- the guard ------------------------------------------------------------------------------------------------------------
    def guard(self) -> _C.Surroundings:
        """What tells whether all is as it was."""
        self._note_settings()    # of rooms that capture has loaded
        return _C.Surroundings(*self.state, tuple(
            (owner, tuple((key, wanted, value) for key, (wanted, value) in names.items())) for owner, names in self._noted.values()
        ))  # fmt: skip

    def __len__(self) -> int:
        return sum(len(names) for _, names in self._noted.values())


def explain(difference: Any) -> str:
    """What `_C.Surroundings.difference` says, in words."""
    if not isinstance(difference, tuple):
        return str(difference)
    owner, key = difference
    setting = setting_at(owner, key)
    if setting is not None:
        return f"setting {setting.name}: {key} is {get_setting(owner, key)!r} now"
    if isinstance(owner, types.FunctionType):
        return f"function {owner.__qualname__} has another code"
    if owner is sys.modules:
        return f"sys.modules[{key!r}] is another module"
    home = owner.get("__name__", "a module") if isinstance(owner, dict) else owner.__qualname__
    return f"{home}.{key} was written to"
