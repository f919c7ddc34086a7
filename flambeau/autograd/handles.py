"""Handles of hooks: what takes a hook out of the dict that holds it."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any


def _itself(x: Any) -> Callable[[], Any]:
    return lambda: x


HookDict = OrderedDict  # of all dicts this one can be referred to weakly; and PyTorch unpickles it


class RemovableHandle:
    """Puts a hook into `hooks_dict` (in front with `prepend`), marks it in each dict of `flags`, and takes it out again:
    `handle.remove()`, or as a context manager. Without a hook, whoever makes the handle puts it there, as `hooks_dict[handle.id]`, and
    what belongs to it into `extra_dict` (or several)."""

    __module__ = "flambeau.utils.hooks"     # where PyTorch has it, and its pickles look for it
    _ids = itertools.count()

    def __init__(self, hooks_dict: dict, hook: Any = None, *, extra_dict: Any = (), prepend: bool = False, flags: tuple[dict, ...] = ()):
        self.id = next(self._ids)
        extra = (extra_dict,) if isinstance(extra_dict, dict) else extra_dict or ()
        self._homes = [weakref.ref(d) if isinstance(d, HookDict) else _itself(d) for d in (hooks_dict, *flags, *extra)]
        if hook is None:
            return
        hooks_dict[self.id] = hook
        for flag in flags:
            flag[self.id] = True
        if prepend:
            hooks_dict.move_to_end(self.id, last=False)  # type: ignore[attr-defined]

    def remove(self) -> None:
        """Take the hook out; again is harmless."""
        for home in self._homes:
            hooks = home()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self) -> tuple:
        hooks, *extra = (home() for home in self._homes)
        return (hooks, self.id, tuple(extra)) if extra else (hooks, self.id)

    def __setstate__(self, fields: tuple) -> None:
        hooks, self.id, *extra = fields
        homes = ({} if hooks is None else hooks, *itertools.chain(*extra))
        self._homes = [weakref.ref(d) if isinstance(d, HookDict) else _itself(d) for d in homes]
        RemovableHandle._ids = itertools.count(max(next(RemovableHandle._ids), self.id + 1))

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()
