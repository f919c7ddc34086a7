"""A whole call of a program as one call of compiled code, once it has run often enough on tensors of the same shapes.

The interpreter itself is traced, on fake tensors, so that all of the language serves: what it decides on the way hangs on shapes, numbers and
attributes, with which later calls are compared. What decides by values of tensors, draws random numbers, sets attributes, prints or calls
Python stays interpreted.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from ..aot.compile import as_module
from ..core import dispatch
from ..core.settings import TABLE
from ..core.tensor import Tensor
from ..fx import GraphModule
from ..inductor import compile_frozen, compile_fx
from ..utils._pytree import tree_flatten, tree_unflatten
from .values import Function

LEAST_STEPS = 3             # of operators: a program of fewer is as fast when it is interpreted
RUNS_BEFORE = 16            # with tensors of the same shapes
MOST_KINDS = 8              # of shapes that one program is compiled for
_PLAIN = (int, float, bool, str, complex, type(None))

Guards = list[tuple[dict, str, Any, Any]]


class Unfit(Exception):
    """A program does what compiled code would not do again."""


class Following:
    """What a program reads of modules, and does beside computing, while it is traced. `now` is under way in its own thread."""

    now: Following | None = None
    lock = threading.RLock()

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.guards: Guards = []
        self.steps = 0

    def read(self, home: dict, name: str, value: Any) -> None:
        """An attribute was read: it has to be the same when the code is called."""
        if threading.get_ident() != self.thread:
            return
        lay = (value._layout, value.dtype) if isinstance(value, Tensor) else None
        if lay is None and not isinstance(value, _PLAIN) and not hasattr(type(value), "script_read"):
            raise Unfit(f"{name} is a {type(value).__name__}, which may change")
        self.guards.append((home, name, value, lay))

    def handle(self, prim: Any, args: tuple) -> Any:
        """A step of the program."""
        if "random" in prim.tags:
            raise Unfit(f"{prim.name} draws random numbers")
        self.steps += 1
        return dispatch.run(prim, args)

    @classmethod
    def acts(cls, what: str) -> None:
        """The program does something that is to happen at each call."""
        if cls.now is not None and cls.now.thread == threading.get_ident():
            raise Unfit(what)


def _settings() -> Guards:
    """The settings that operators read where they are traced."""
    homes: list[tuple[Any, tuple]] = [(vars(s.owner) if isinstance(s.owner, type) else s.owner, s.keys) for s in TABLE.values()
                                      if s.traced and isinstance(s.owner, (type, dict))]
    return [(home, key, home[key], None) for home, keys in homes for key in keys]


def _holds(guards: Guards) -> bool:
    for home, name, value, lay in guards:
        found = home.get(name)
        if found is not value and (lay is not None or type(found) is not type(value) or found != value):
            return False
        if lay is not None and (found._layout != lay[0] or found.dtype is not lay[1]):
            return False
    return True


class Whole:
    """A function or method of a program, called with arguments that are of exactly the declared types.

    `frozen`: all that it reads keeps its contents, and it is compiled at the first call."""

    def __init__(self, function: Function, owner: tuple, frozen: bool = False) -> None:
        self.function, self.owner, self.frozen = function, owner, frozen
        self.runs = 0 if frozen else RUNS_BEFORE
        self.seen: Counter[tuple] = Counter()
        self.kernels: dict[tuple, tuple[Callable[..., Any], Guards] | None] = {}      # None: to be interpreted

    def __call__(self, frame: dict[str, Any], args: tuple) -> Any:
        """The result for a frame with these arguments."""
        key = self._key(args)
        if key is not None:
            found = self.kernels.get(key, self)
            if found is self:
                found = self._missing(key, args)
            if found is not None:
                kernel, guards = found      # type: ignore[misc]
                if _holds(guards):
                    return kernel(*args)
                del self.kernels[key]
                self.seen[key] = 0
        return self.function.run(frame)

    def _key(self, args: tuple) -> tuple | None:
        """What the code for these arguments depends on; None where it may not be asked."""
        state = dispatch.state
        if state.word or state.overrides:      # modes, of which autocast is one
            return None
        key: list[Any] = [state.recording, state.devices]
        for v in args:
            if type(v) is Tensor:
                if (v._grad is not None and state.grad_enabled and v.requires_grad) or type(v._data) is not np.ndarray:
                    return None
                key.append((v._layout, v.dtype))
            else:
                key.append(v.hex() if type(v) is float else v)
        return tuple(key)

    def _missing(self, key: tuple, args: tuple) -> tuple[Callable[..., Any], Guards] | None:
        self.seen[key] += 1
        if self.seen[key] <= self.runs or len(self.kernels) >= MOST_KINDS:
            return None
        with Following.lock:
            made = self.kernels[key] = self._compiled(args)
        return made

    def _state(self) -> list[Tensor]:
        """The tensors that modules of the program hold."""
        return [value for owner in self.owner if hasattr(owner, "modules") for module in owner.modules()
                for home in ("_parameters", "_buffers", "_values") for value in module.__dict__.get(home, {}).values()
                if isinstance(value, Tensor)]

    def _compiled(self, args: tuple) -> tuple[Callable[..., Any], Guards] | None:
        """The code, and what it takes for granted; None where there is none for such a call."""
        state = self._state()
        if dispatch.state.grad_enabled and any(t.requires_grad for t in state):
            return None
        places = [i for i, v in enumerate(args) if isinstance(v, Tensor)]
        numbers = [None if isinstance(v, Tensor) else v for v in args]
        following, shape = Following(), []      # type: tuple[Following, list[Any]]

        def run(*tensors: Tensor) -> tuple:
            following.__init__()    # type: ignore[misc]    # a trace may be made twice
            given: list[Any] = list(numbers)
            for i, tensor in zip(places, tensors, strict=True):
                given[i] = tensor
            outer, Following.now = Following.now, following
            try:
                with dispatch.push_mode(following):
                    leaves, spec = tree_flatten(self.function(*self.owner, *given))
            finally:
                Following.now = outer
            if not all(isinstance(leaf, (Tensor, *_PLAIN)) for leaf in leaves):
                raise Unfit("it gives objects")
            shape[:] = [spec]
            return tuple(leaves)

        gm: GraphModule = as_module(run, len(places))
        for n, tensor in enumerate(state):
            gm._buffers[f"state_{n}"] = tensor
        compiler = compile_frozen if self.frozen and not state else compile_fx
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code = compiler(gm, [args[i] for i in places])
        except Exception:       # whatever goes wrong in a program on fake tensors, its interpreter tells
            return None
        if following.steps < LEAST_STEPS or not shape:
            return None
        return _called(code, places if len(places) < len(args) else None, shape[0]), _settings() + following.guards


def _called(code: Callable[..., tuple], places: list[int] | None, spec: Any) -> Callable[..., Any]:
    """`code` with a program's arguments, of which it takes those in `places`, and its result."""
    whole = spec.is_leaf()
    if places is None and whole:
        return lambda *args: code(*args)[0]

    def call(*args: Any) -> Any:
        leaves = code(*args) if places is None else code(*[args[i] for i in places])
        return leaves[0] if whole else tree_unflatten(list(leaves), spec)

    return call
