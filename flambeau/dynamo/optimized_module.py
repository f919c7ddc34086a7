"""A compiled nn.Module: an object of the module's own class that shares all of its state, under PyTorch's names."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from .compiler import Compiler, get_compiler, optimize


class OptimizedModule:
    """Mixed into the class of a compiled module. Parameters, buffers, hooks and attributes are the original's own: changing one changes
    the other. In the tree of modules it is one with a single child, `_orig_mod`, so that names and keys are those of PyTorch's."""

    _wraps = "_orig_mod"
    _flambeau_original: Any
    _flambeau_compiler: Compiler
    _flambeau_call: Any
    _version: int

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return type(self)._flambeau_call(*args, **kwargs)

    @property
    def _orig_mod(self) -> Any:
        """The module that was compiled."""
        return type(self)._flambeau_original

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """The original, as `_orig_mod`."""
        yield "_orig_mod", self._orig_mod

    def named_modules(self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """This module, then the original and all below it."""
        memo = set() if memo is None else memo
        if self not in memo:
            if remove_duplicate:
                memo.add(self)
            yield prefix, self
            yield from self._orig_mod.named_modules(memo, f"{prefix}._orig_mod" if prefix else "_orig_mod", remove_duplicate)

    def _named_members(self, members: Callable, prefix: str = "", recurse: bool = True,
                       remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        if recurse:
            yield from self._orig_mod._named_members(members, f"{prefix}._orig_mod" if prefix else "_orig_mod", True, remove_duplicate)

    def apply(self, fn: Callable[[Any], None]) -> Any:
        """`fn` of the original and all below it, deepest first; not of this object too, which has the same state."""
        self._orig_mod.apply(fn)
        return self

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> dict[str, Any]:
        """The original's, with `_orig_mod.` before its keys. Loading takes keys with and without it."""
        destination, prefix, keep_vars = *args, *(destination, prefix, keep_vars)[len(args):]  # type: ignore[misc]
        state = self._orig_mod.state_dict(destination=destination, prefix=f"{prefix}_orig_mod.", keep_vars=keep_vars)
        if hasattr(state, "_metadata"):
            state._metadata[prefix[:-1]] = {"version": self._version}
        return state

    @property
    def dynamo_ctx(self) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """What compiles a function as this module is compiled: with the same backend and options."""
        return partial(optimize, compiler=type(self)._flambeau_compiler)

    def __reduce_ex__(self, protocol: Any) -> Any:
        compiler = type(self)._flambeau_compiler
        backend = compiler.backend_name if isinstance(compiler.backend_name, str) else compiler.backend
        return _rebuild, (self._orig_mod, backend, compiler.fullgraph, compiler.dynamic, compiler.options)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return optimize_module(copy.deepcopy(self._orig_mod, memo), type(self)._flambeau_compiler)

    def __repr__(self) -> str:
        return f"Optimized{self._orig_mod!r}"


def optimize_module(module: Any, compiler: Compiler) -> Any:
    """Another object over the same state whose calls are compiled."""
    if isinstance(module, OptimizedModule):
        module = module._orig_mod
    cls = type(module)
    contents = {
        "_flambeau_original": module, "_flambeau_compiler": compiler,
        "_flambeau_call": staticmethod(optimize(module.__call__, compiler)),
        "__module__": cls.__module__, "__doc__": cls.__doc__,
    }  # fmt: skip
    made: Any = object.__new__(types.new_class(cls.__name__, (OptimizedModule, cls), {}, lambda body: body.update(contents)))
    object.__setattr__(made, "__dict__", module.__dict__)
    return made


def _rebuild(module: Any, backend: Any, fullgraph: bool, dynamic: bool | None, options: dict[str, Any]) -> Any:
    return optimize_module(module, get_compiler(backend, fullgraph, dynamic, options))
