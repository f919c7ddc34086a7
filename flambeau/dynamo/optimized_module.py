"""A compiled nn.Module: an object of the module's own class that shares all of its state."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from functools import partial
from typing import Any

from .compiler import Compiler, get_compiler, optimize


class OptimizedModule:
    """Mixed into the class of a compiled module. Parameters, buffers, hooks and attributes are the original's own: keys of the
    state_dict are plain, and changing one changes the other."""

    _flambeau_original: Any
    _flambeau_compiler: Compiler
    _flambeau_call: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return type(self)._flambeau_call(*args, **kwargs)

    @property
    def _orig_mod(self) -> Any:
        """The module that was compiled."""
        return type(self)._flambeau_original

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
