"""Modules of settings: `config.name = value` of a name that does not exist is an error, and of one without effect a warning.

`install(__name__, accepted)` makes the calling module one. Its own annotated globals are settings with an effect; `accepted` are settings
of PyTorch's that change nothing here, with PyTorch's defaults; a dotted name (`cpp.threads`) belongs to a group.
"""

from __future__ import annotations

import ast
import copy
import functools
import hashlib
import pickle
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any


class _Place:
    """What a module and a group have in common: settings by name."""

    def _settings_path(self, name: str) -> str:
        return f"{object.__getattribute__(self, '_settings_name')}.{name}"

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            object.__setattr__(self, name, value)
            return
        known: dict[str, Any] = object.__getattribute__(self, "_settings_of")
        name = _aliases(self).get(name, name)
        if name not in known:
            raise AttributeError(f"{self._settings_path(name)} does not exist")
        without_effect = object.__getattribute__(self, "_settings_without_effect")
        if name in without_effect and value not in (without_effect[name], object.__getattribute__(self, "_settings_anyway").get(name)):
            warnings.warn(f"{self._settings_path(name)} = {value!r} has no effect here", UserWarning, stacklevel=_outside())
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        known = object.__getattribute__(self, "_settings_of")
        if name not in known:
            raise AttributeError(f"{self._settings_path(name)} does not exist")
        object.__setattr__(self, name, copy.deepcopy(known[name]))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        alias = _aliases(self).get(name)
        if alias is not None:
            return getattr(self, alias)
        raise AttributeError(f"{self._settings_path(name)} does not exist")


def _aliases(place: Any) -> Mapping[str, str]:
    return object.__getattribute__(place, "_settings_aliases")


def _outside() -> int:
    """How far up the frame is that is not this module's."""
    level, frame = 1, sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    return level


class _Group(_Place):
    """Settings under a name of their own, such as `config.triton`."""


class ConfigModule(_Place, types.ModuleType):
    """A module whose attributes are settings."""

    def _settings_items(self) -> Iterator[tuple[str, Any]]:
        for name in object.__getattribute__(self, "_settings_of"):
            value = getattr(self, name)
            if isinstance(value, _Group):
                yield from ((f"{name}.{inner}", getattr(value, inner)) for inner in object.__getattribute__(value, "_settings_of"))
            else:
                yield name, value

    def _settings_place(self, name: str) -> tuple[Any, str]:
        group, _, inner = name.rpartition(".")
        return (getattr(self, group), inner) if group else (self, inner)

    def get_config_copy(self) -> dict[str, Any]:
        """All settings, by name; those of a group with its name and a dot."""
        return {name: copy.deepcopy(value) for name, value in self._settings_items()}

    to_dict = shallow_copy_dict = get_config_copy

    def save_config(self) -> bytes:
        """All settings, for `load_config`."""
        return pickle.dumps({name: value for name, value in self._settings_items() if not callable(value)})

    def load_config(self, content: bytes | dict[str, Any]) -> None:
        """Set what `save_config` or `get_config_copy` gave."""
        for name, value in (content if isinstance(content, dict) else pickle.loads(content)).items():
            place, inner = self._settings_place(name)
            if getattr(place, inner) != value:
                setattr(place, inner, value)

    def get_hash(self) -> bytes:
        """A hash of all settings."""
        return hashlib.md5(repr(sorted((n, repr(v)) for n, v in self._settings_items())).encode(), usedforsecurity=False).digest()

    def codegen_config(self) -> str:
        """The settings that differ from their defaults, as assignments."""
        lines = []
        for name, value in self._settings_items():
            place, inner = self._settings_place(name)
            if value != object.__getattribute__(place, "_settings_of")[inner]:
                lines.append(f"{self._settings_path(name)} = {value!r}")
        return "\n".join(lines)

    def patch(self, arg1: str | dict[str, Any] | None = None, arg2: Any = None, **changes: Any) -> _Patch:
        """Other settings for a block or, as a decorator, a function:
        `patch("name", value)`, `patch({"a.b": value})`, `patch(name=value)`."""
        if isinstance(arg1, str):
            changes[arg1] = arg2
        elif isinstance(arg1, dict):
            changes |= arg1
        for name in changes:
            place, inner = self._settings_place(name)
            getattr(place, inner)   # AttributeError
        return _Patch(self, changes)


class _Patch:
    def __init__(self, module: ConfigModule, changes: dict[str, Any]) -> None:
        self.module, self.changes = module, changes
        self.before: list[list[tuple[Any, str, Any]]] = []

    def __enter__(self) -> None:
        saved: list[tuple[Any, str, Any]] = []
        self.before.append(saved)
        for name, value in self.changes.items():
            place, inner = self.module._settings_place(name)
            saved.append((place, inner, getattr(place, inner)))
            setattr(place, inner, value)

    def __exit__(self, *error: object) -> None:
        for place, inner, value in reversed(self.before.pop()):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                setattr(place, inner, value)

    def __call__(self, function: Callable) -> Callable:
        if isinstance(function, type):
            raise NotImplementedError("config.patch of a class is not implemented; decorate its methods, or use `with config.patch(...):`")

        @functools.wraps(function)
        def patched(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return patched


def _prepare(place: Any, name: str, settings: dict[str, Any], accepted: dict[str, Any], anyway: Mapping[str, Any],
             aliases: Mapping[str, str]) -> None:
    for key, value in (("_settings_name", name), ("_settings_of", settings), ("_settings_without_effect", accepted),
                       ("_settings_anyway", anyway), ("_settings_aliases", aliases)):
        object.__setattr__(place, key, value)


def accepted_beside(file: str) -> dict[str, Any]:
    """The settings without effect of the module in `file`: beside it stands each of PyTorch's defaults with all that have it."""
    pairs = ast.literal_eval(Path(file).with_name("accepted_settings.txt").read_text(encoding="utf-8"))
    return {name: value for value, names in pairs for name in names.split()}


def install(module_name: str, accepted: Mapping[str, Any], *, shown_as: str = "", anyway: Mapping[str, Any] | None = None,
            aliases: Mapping[str, str] | None = None, own: Mapping[str, Any] | None = None) -> ConfigModule:
    """Make a module one of settings. `anyway`: values of accepted settings that say what is done here in any case; `aliases`: other
    names of settings; `own`: settings with an effect in groups, beside the module's annotated globals."""
    module: Any = sys.modules[module_name]
    anyway, shown = dict(anyway or {}), shown_as or module_name
    own_ones = {name: vars(module)[name] for name in vars(module).get("__annotations__", {}) if name in vars(module) and name != "ACCEPTED"}
    groups: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {"": (own_ones, {})}
    for which, table in enumerate((own or {}, accepted)):
        for full, value in table.items():
            group, _, name = full.rpartition(".")
            groups.setdefault(group, ({}, {}))[which][name] = value
    module.__class__ = ConfigModule
    for group, (effective, ineffective) in groups.items():
        place: Any = module if not group else _Group.__new__(_Group)
        prefix = f"{group}." if group else ""
        inside = {name[len(prefix):]: value for name, value in anyway.items() if name.startswith(prefix)}
        settings = {**effective, **ineffective}
        _prepare(place, f"{shown}.{group}" if group else shown, settings, ineffective, inside, dict(aliases or {}) if not group else {})
        for name, value in settings.items():
            object.__setattr__(place, name, copy.deepcopy(value))
        if group:
            object.__setattr__(module, group, place)
            object.__getattribute__(module, "_settings_of")[group] = place
    return module
