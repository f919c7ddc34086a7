"""torch.jit.trace, save and load: a function or module as the graph of what it did with example inputs, which runs without its Python.

The graph is an exported program (docs/export.md), whose sizes vary as far as the code lets them; one that is 1 in the examples stays 1.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

from ..core.tensor import Tensor
from ..export import Dim, ExportedProgram, export
from ..export import load as load_program
from ..export import save as save_program
from ..nn.modules.module import Module
from ..testing import assert_close
from ..utils._pytree import tree_map


class ScriptModule(Module):
    """The class that traced modules have."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("torch.jit.ScriptModule is not implemented: torch.jit.script keeps Python as it is; torch.jit.trace "
                                  "makes such modules, and torch.compile makes programs fast")


class TracedModule(ScriptModule):
    """What `trace` makes of a module: parameters and buffers of the same names, and the recorded graph in place of `forward`."""

    def __init__(self, program: ExportedProgram, original_name: str) -> None:
        Module.__init__(self)
        self.original_name = original_name
        inner = program.module(check_guards=True)
        object.__setattr__(self, "_program", program)
        object.__setattr__(self, "_inner", inner)
        self._parameters, self._buffers, self._modules = inner._parameters, inner._buffers, inner._modules

    @property
    def graph(self) -> Any:
        """The recorded graph."""
        return self._program.graph

    @property
    def code(self) -> str:
        """The recorded graph as Python."""
        return self._program.graph_module.code

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the graph computes. AssertionError for sizes that the traced code doesn't take."""
        return self._inner(*args, **kwargs)

    def train(self, mode: bool = True) -> TracedModule:
        """Set the flag; the graph stays as it was recorded, in training or not."""
        self.training = bool(mode)
        return self

    def extra_repr(self) -> str:
        """Of what it is the trace."""
        return f"original_name={self.original_name}"


class ScriptFunction:
    """The class that traced functions have."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("torch.jit.ScriptFunction is not implemented: torch.jit.script keeps Python as it is; torch.jit.trace "
                                  "makes such functions")


class TracedFunction(ScriptFunction):
    """What `trace` makes of a function."""

    def __init__(self, module: TracedModule, name: str) -> None:
        self._module, self.name = module, name

    graph = property(lambda self: self._module.graph)
    code = property(lambda self: self._module.code)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._module(*args, **kwargs)

    def save(self, f: Any, _extra_files: Mapping[str, Any] | None = None) -> None:
        """torch.jit.save."""
        save(self, f, _extra_files)


class _AsModule(Module):
    def __init__(self, fn: Callable) -> None:
        super().__init__()
        self.forward = fn


def _sizes(value: Any) -> Any:
    return dict.fromkeys(range(value.ndim), Dim.AUTO) or None if isinstance(value, Tensor) else None


def _record(module: Module, args: tuple, kwargs: dict[str, Any]) -> ExportedProgram:
    shapes = {"args": args, "kwargs": kwargs}
    named = tree_map(_sizes, shapes)
    try:
        return export(module, args, kwargs, dynamic_shapes=(*named["args"], *named["kwargs"].values()) or None)
    except NotImplementedError:
        raise
    except Exception as error:
        raise RuntimeError(f"torch.jit.trace: {type(module).__name__} cannot be recorded for these inputs: {error}") from error


def _check(traced: Any, original: Callable, args: tuple, kwargs: dict[str, Any], tolerance: float) -> None:
    try:
        assert_close(traced(*args, **kwargs), original(*args, **kwargs), rtol=tolerance, atol=tolerance, equal_nan=True)
    except AssertionError as error:
        raise TracingCheckError(f"Tracing failed sanity checks! The traced function does not match the Python function: {error}") from None


class TracingCheckError(Exception):
    """What was recorded does something else than the function."""


def trace(func: Any, example_inputs: Any = None, optimize: Any = None, check_trace: bool = True, check_inputs: Any = None,
          check_tolerance: float = 1e-5, strict: bool = True, _force_outplace: bool = False, _module_class: Any = None,
          _compilation_unit: Any = None, example_kwarg_inputs: dict[str, Any] | None = None, _store_inputs: bool = True) -> Any:
    """What a function or module does with example inputs (a tensor or a tuple; or a dict of keywords), recorded: branches are those that
    were taken, numbers those that were seen. With `check_trace` a module in evaluation mode, or a function, is compared with the record, on
    `check_inputs` too. RuntimeError where it cannot be recorded. The other arguments change nothing: results may hold dicts, and programs
    are functional in any case."""
    del optimize, strict, _force_outplace, _module_class, _compilation_unit, _store_inputs
    if isinstance(func, (ScriptModule, ScriptFunction)):
        return func
    if example_inputs is None and example_kwarg_inputs is None:
        raise RuntimeError("torch.jit.trace: example_inputs or example_kwarg_inputs must be given")
    args = () if example_inputs is None else (example_inputs,) if isinstance(example_inputs, Tensor) else tuple(example_inputs)
    kwargs = dict(example_kwarg_inputs or {})
    module = func if isinstance(func, Module) else _AsModule(func)
    traced: Any = TracedModule(_record(module, args, kwargs), type(func).__name__ if isinstance(func, Module) else func.__name__)
    traced.train(module.training)
    if not isinstance(func, Module):
        traced = TracedFunction(traced, func.__name__)
    if check_trace and not (isinstance(func, Module) and func.training):
        for more in (args, *(check_inputs or ())):
            _check(traced, func, (more,) if isinstance(more, Tensor) else tuple(more), kwargs, check_tolerance)
    return traced


def trace_module(mod: Module, inputs: dict[str, Any], optimize: Any = None, check_trace: bool = True, check_inputs: Any = None,
                 check_tolerance: float = 1e-5, strict: bool = True, _force_outplace: bool = False, _module_class: Any = None,
                 _compilation_unit: Any = None, example_inputs_is_kwarg: bool = False, _store_inputs: bool = True) -> Any:
    """`trace` of a module's forward, by the name of the method: `{"forward": inputs}`. Other methods are not recorded."""
    if not isinstance(mod, Module):
        raise AttributeError(f"expected torch.nn.Module as the first argument, got {type(mod).__name__}")
    if set(inputs) != {"forward"}:
        raise NotImplementedError(f"torch.jit.trace_module: methods {sorted(set(inputs) - {'forward'})} are not recorded; trace one that "
                                  "has the method as its forward")
    given = inputs["forward"]
    return trace(mod, None if example_inputs_is_kwarg else given, optimize, check_trace,
                 None if check_inputs is None else [more["forward"] for more in check_inputs], check_tolerance, strict, _force_outplace,
                 _module_class, _compilation_unit, given if example_inputs_is_kwarg else None, _store_inputs)


_FACTS = "flambeau_trace.json"


def save(m: Any, f: Any, _extra_files: Mapping[str, Any] | None = None) -> None:
    """Write what `trace` made to a path or binary file, with `_extra_files` (name -> text or bytes). PyTorch does not read it: it has
    TorchScript's code."""
    if not isinstance(m, (TracedModule, TracedFunction)):
        raise NotImplementedError(f"torch.jit.save of {type(m).__name__}: there is no TorchScript of Python code; torch.jit.trace it "
                                  "first, or keep the weights with torch.save(model.state_dict())")
    module = m._module if isinstance(m, TracedFunction) else m
    facts = {"kind": "function" if isinstance(m, TracedFunction) else "module", "name": module.original_name, "training": module.training}
    files = {name: text if isinstance(text, str) else bytes(text).decode("latin-1") for name, text in (_extra_files or {}).items()}
    save_program(module._program, f, extra_files={_FACTS: json.dumps(facts), **files})


def load(f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None, _restore_shapes: bool = False) -> Any:
    """Read what `save` wrote, tensors on `map_location`; the files named by the keys of `_extra_files` are put there. RuntimeError for
    files of PyTorch's, which hold TorchScript's code."""
    del _restore_shapes
    found: dict[str, Any] = dict.fromkeys((_FACTS, *(_extra_files or ())), "")
    try:
        program = load_program(f, extra_files=found)
    except (ValueError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
        raise RuntimeError(f"torch.jit.load: {f} holds no trace that Flambeau wrote; PyTorch's files hold TorchScript's code: load the "
                           f"weights with torch.load, or export the model with torch.export ({error})") from error
    for name in _extra_files or ():
        _extra_files[name] = found[name].encode() if isinstance(found[name], str) else found[name]    # type: ignore[index]
    facts = json.loads(found[_FACTS] or "{}")
    module: Any = TracedModule(program, facts.get("name", "Module"))
    if map_location is not None:
        module.to(map_location)
    module.train(facts.get("training", False))
    return TracedFunction(module, module.original_name) if facts.get("kind") == "function" else module


__all__ = ["ScriptFunction", "ScriptModule", "TracedFunction", "TracedModule", "TracingCheckError", "load", "save", "trace", "trace_module"]
