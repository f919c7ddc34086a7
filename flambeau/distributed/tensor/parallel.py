"""torch.distributed.tensor.parallel: which submodules compute with parts of their parameters, and how what goes in and comes out lies."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from typing import Any

from ...core.tensor import Tensor
from ...nn.modules.linear import Linear
from ...nn.modules.module import Module
from ...nn.modules.sparse import Embedding
from ...nn.parameter import Parameter
from ..device_mesh import DeviceMesh, current_mesh
from .api import distribute_tensor
from .dtensor import DTensor
from .loss import loss_parallel
from .placement_types import Placement, Replicate, Shard


def distribute_module(module: Module, device_mesh: DeviceMesh | None = None, partition_fn: Callable | None = None,
                      input_fn: Callable | None = None, output_fn: Callable | None = None) -> Module:
    """The module with its parameters over the mesh: `partition_fn(name, submodule, mesh)` makes some into DTensors, the others are
    replicated. `input_fn(module, inputs, mesh)` and `output_fn(module, outputs, mesh)` see what goes in and comes out."""
    mesh = current_mesh() if device_mesh is None else device_mesh
    for name, child in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, child, mesh)
        for key, p in child._parameters.items():
            if p is not None and not isinstance(p, DTensor):
                child.register_parameter(key, Parameter(distribute_tensor(p.detach(), mesh), p.requires_grad))
        for key, b in child._buffers.items():
            if b is not None and not isinstance(b, DTensor):
                child._buffers[key] = distribute_tensor(b, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda mod, inputs: input_fn(mod, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda mod, inputs, outputs: output_fn(mod, outputs, mesh))
    return module


def _laid(value: Any, mesh: DeviceMesh, now: Placement, wanted: Placement | None) -> Any:
    """A tensor that lies as `now` if it is a plain one, as `wanted`."""
    if not isinstance(value, Tensor):
        return value
    spread = value if isinstance(value, DTensor) else DTensor.from_local(value, mesh, [now])
    return spread if wanted is None else spread.redistribute(placements=[wanted])


def _given(value: Any, mesh: DeviceMesh, wanted: Placement | None, local: bool) -> Any:
    """A result as it is to leave a module."""
    if not isinstance(value, DTensor):
        return value
    out = value if wanted is None else value.redistribute(placements=[wanted])
    return out.to_local() if local else out


class ParallelStyle(ABC):
    """How one module is to be spread; `apply(module, mesh)`."""

    @abstractmethod
    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """The module, spread."""


    shown: tuple[str, ...] = ("input_layouts", "output_layouts", "use_local_output")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.shown)})"


class _Linear(ParallelStyle):
    """Of a Linear or Embedding: how its parameters lie, its input and its output."""

    of_linear: dict[str, Placement]
    of_embedding: dict[str, Placement]
    needs: Placement
    leaves: Placement

    def __init__(self, input_layouts: Placement, output_layouts: Placement, use_local_output: bool) -> None:
        self.input_layouts, self.output_layouts, self.use_local_output = (input_layouts,), (output_layouts,), use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        if not isinstance(module, (Linear, Embedding)):
            raise NotImplementedError(f"{type(self).__name__} supports nn.Linear and nn.Embedding, not {type(module).__name__}")
        where = self.of_linear if isinstance(module, Linear) else self.of_embedding
        needs = self.needs if isinstance(module, Linear) else Replicate()

        def partition(name: str, child: Module, mesh: DeviceMesh) -> None:
            for key, p in child._parameters.items():
                if p is not None:
                    child.register_parameter(key, Parameter(distribute_tensor(p.detach(), mesh, [where[key]]), p.requires_grad))
            del name

        return distribute_module(
            module, device_mesh, partition, lambda m, inputs, mesh: tuple(_laid(x, mesh, self.input_layouts[0], needs) for x in inputs),
            lambda m, out, mesh: _given(out, mesh, self.output_layouts[0], self.use_local_output))


class ColwiseParallel(_Linear):
    """Each process computes some of a Linear's outputs (of an Embedding's columns)."""

    of_linear = {"weight": Shard(0), "bias": Shard(0)}
    of_embedding = {"weight": Shard(1)}
    needs = Replicate()

    def __init__(self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None,
                 use_local_output: bool = True) -> None:
        super().__init__(input_layouts or Replicate(), output_layouts or Shard(-1), use_local_output)


class RowwiseParallel(_Linear):
    """Each process computes summands of a Linear's outputs from its part of the inputs; of an Embedding it keeps some rows."""

    of_linear = {"weight": Shard(1), "bias": Replicate()}
    of_embedding = {"weight": Shard(0)}
    needs = Shard(-1)

    def __init__(self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None,
                 use_local_output: bool = True) -> None:
        super().__init__(input_layouts or Shard(-1), output_layouts or Replicate(), use_local_output)


class SequenceParallel(ParallelStyle):
    """A norm or dropout of a part of the sequence; its parameters are replicated."""

    shown = ("sequence_dim", "use_local_output")

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding, self.use_local_output, self.sequence_dim = Shard(sequence_dim), use_local_output, sequence_dim

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        return distribute_module(
            module, device_mesh, None,
            lambda m, inputs, mesh: (_laid(inputs[0], mesh, self.sequence_sharding, self.sequence_sharding), *inputs[1:]),
            lambda m, out, mesh: _given(out, mesh, None, self.use_local_output))


def _each(layouts: Any) -> tuple:
    return (layouts,) if isinstance(layouts, Placement) or layouts is None else tuple(layouts)


class PrepareModuleInput(ParallelStyle):
    """Inputs that lie as `input_layouts` are brought to `desired_input_layouts`; None leaves one alone. Keyword arguments likewise."""

    shown = ("input_layouts", "desired_input_layouts", "input_kwarg_layouts", "desired_input_kwarg_layouts", "use_local_output")

    def __init__(self, *, input_layouts: Any = None, desired_input_layouts: Any = None, input_kwarg_layouts: dict | None = None,
                 desired_input_kwarg_layouts: dict | None = None, use_local_output: bool = False) -> None:
        self.input_layouts, self.desired_input_layouts = _each(input_layouts), _each(desired_input_layouts)
        self.input_kwarg_layouts, self.desired_input_kwarg_layouts = input_kwarg_layouts or {}, desired_input_kwarg_layouts or {}
        self.use_local_output = use_local_output
        if len(self.input_layouts) != len(self.desired_input_layouts):
            raise AssertionError("input_layouts and desired_input_layouts should have same length!")

    def _one(self, value: Any, now: Placement | None, wanted: Placement | None, mesh: DeviceMesh) -> Any:
        if now is None:
            return value
        out = _laid(value, mesh, now, wanted)
        return out.to_local() if self.use_local_output and isinstance(out, DTensor) else out

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def prepare(m: Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
            del m
            known = [self._one(a, n, w, device_mesh) for a, n, w in zip(args, self.input_layouts, self.desired_input_layouts)]
            named = {k: self._one(v, self.input_kwarg_layouts.get(k), self.desired_input_kwarg_layouts.get(k), device_mesh)
                     for k, v in kwargs.items()}
            return (*known, *args[len(known):]), named
        module.register_forward_pre_hook(prepare, with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """Outputs that lie as `output_layouts` are brought to `desired_output_layouts`; None leaves one alone."""

    shown = ("output_layouts", "desired_output_layouts", "use_local_output")

    def __init__(self, *, output_layouts: Any, desired_output_layouts: Any, use_local_output: bool = True) -> None:
        self.output_layouts, self.desired_output_layouts = _each(output_layouts), _each(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("output_layouts and desired_output_layouts should have same length!")

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def prepare(m: Module, args: tuple, out: Any) -> Any:
            del m, args
            outs = out if isinstance(out, tuple) else (out,)
            made = tuple(o if n is None else _given(_laid(o, device_mesh, n, w), device_mesh, None, self.use_local_output)
                         for o, n, w in zip(outs, self.output_layouts, self.desired_output_layouts, strict=True))
            return made if isinstance(out, tuple) else made[0]
        module.register_forward_hook(prepare)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """PrepareModuleInput and PrepareModuleOutput of one module."""

    shown = (*PrepareModuleInput.shown[:-1], "use_local_input", *PrepareModuleOutput.shown)

    def __init__(self, *, input_layouts: Any = None, desired_input_layouts: Any = None, input_kwarg_layouts: dict | None = None,
                 desired_input_kwarg_layouts: dict | None = None, use_local_input: bool = False, output_layouts: Any,
                 desired_output_layouts: Any, use_local_output: bool = True) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts, input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts, use_local_output=use_local_input)
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts, desired_output_layouts=desired_output_layouts, use_local_output=use_local_output)
        vars(self).update({**vars(self.prepare_module_input), **vars(self.prepare_module_output), "use_local_input": use_local_input})

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)


def parallelize_module(module: Module, device_mesh: DeviceMesh | None = None,
                       parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None, *,
                       src_data_rank: int | None = 0) -> Module:
    """Spread a module as a style says, or its submodules as a plan {name, of which parts may be "*": style} does."""
    if src_data_rank != 0:
        raise NotImplementedError(f"parallelize_module(src_data_rank={src_data_rank}) is not implemented; parameters are those of the "
                                  "first process")
    mesh = current_mesh() if device_mesh is None else device_mesh
    if mesh.ndim != 1:
        raise ValueError(f"parallelize_module takes a mesh of one dimension, such as mesh[\"tp\"], not {mesh}")
    if parallelize_plan is None:
        warnings.warn("No parallelize_plan is provided: parallelize_module() does nothing", stacklevel=2)
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError("Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, "
                        f"{type(parallelize_plan)} found!")
    for pattern, style in parallelize_plan.items():
        found = _named(module, pattern.split(".") if pattern else [])
        if not found:
            warnings.warn(f"Parallelize plan key '{pattern}' could not be resolved: there is no such submodule in {type(module).__name__}, "
                          "skipping this plan entry.", stacklevel=2)
        for child in found:
            style._apply(child, mesh)
    return module


def _named(module: Module, path: Sequence[str]) -> list[Module]:
    if not path:
        return [module]
    children = [c for name, c in module.named_children() if fnmatch(name, path[0])]
    return [found for c in children for found in _named(c, path[1:])]


__all__ = ["ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput",
           "RowwiseParallel", "SequenceParallel", "loss_parallel", "parallelize_module"]
