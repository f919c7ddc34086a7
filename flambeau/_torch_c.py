"""The few names of `torch._C` that libraries reach for. `flambeau.as_torch` hangs them on the native module."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ._absent import absent, absent_type
from .amp.autocast_mode import without_casts
from .autograd.batched import levels
from .autograd.engine import current_pass
from .autograd.grad_mode import is_grad_enabled, set_grad_enabled
from .backends.cpu import get_cpu_capability
from .core import dispatch
from .core.device import default_device, device
from .core.dtypes import dtype
from .core.memory_format import layout, memory_format
from .core.schema import Argument, FunctionSchema, parse_schema
from .core.size import Size
from .core.tensor import Tensor
from .cpu import get_capabilities
from .ops.aten_forms import FORMS
from .ops.custom import NAMESPACES, Namespace
from .ops.generators import Generator, default_generator
from .ops.linalg.decompositions import _LinAlgError
from .ops.registry import OPERATORS
from .overrides import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    _get_function_stack_at,
    _get_torch_function_state,
    _len_torch_function_stack,
    _pop_torch_function_stack,
    _push_on_torch_function_stack,
    _set_torch_function_state,
    _TorchFunctionState,
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
)
from .serialization.api import add_own_globals


def _get_tracing_state() -> Any:
    """The trace of torch.jit.trace that is being made, which has `push_scope(name)` and `pop_scope()`; None where there is none."""
    modes = dispatch.state.function_modes
    recorder = getattr(modes[-1], "recorder", None) if modes else None
    return recorder if hasattr(recorder, "push_scope") else None


def _log_api_usage_once(name: str) -> None:
    """Nothing is logged."""


def _get_privateuse1_backend_name() -> str:
    """The name of a device type that an extension added; none does."""
    return "privateuseone"


def _get_accelerator(check: bool | None = None) -> device:
    """The device type to prefer: the CPU, as there is no accelerator."""
    return device("cpu")


def _are_functorch_transforms_active() -> bool:
    """Whether vmap is at work. Derivatives need no care: their tensors are ordinary ones."""
    return bool(levels())


def _set_grad_enabled(mode: bool) -> None:
    """Turn recording on or off."""
    set_grad_enabled(mode)


def _keeps_nothing(default: Any) -> Callable[..., Any]:
    def setting(*args: Any) -> Any:
        return default

    return setting


class DispatchKey(enum.Enum):
    """Names of torch's dispatch keys, of which Flambeau's ladder has no use."""

    (Undefined, CPU, CUDA, AutocastCPU, AutocastCUDA, AutocastXPU, CompositeExplicitAutograd, CompositeImplicitAutograd, Autograd,
     AutogradCPU, AutogradCUDA, ADInplaceOrView, Python, Meta) = range(14)


class AggregationType(enum.Enum):
    """How TorchScript's ranks put scores together: names alone."""

    SUM, AVG = 0, 1


SUM, AVG = AggregationType.SUM, AggregationType.AVG
PRIVATE_OPS = ("unique_dim",)
"""Operators that torch keeps to itself though they are in its namespace."""

Tag = enum.IntEnum("Tag", "core cudagraph_unsafe data_dependent_output dynamic_output_shape flexible_layout generated inplace inplace_view "
                   "maybe_aliasing_or_mutating needs_contiguous_strides needs_exact_strides needs_fixed_stride_order "
                   "nondeterministic_bitwise nondeterministic_seeded out out_variant pointwise pt2_compliant_tag reduction view_copy",
                   start=0)
"""What torch says of operators; here a record's own tags say it."""


class DispatchKeySet:
    """A set of dispatch keys."""

    def __init__(self, *keys: DispatchKey) -> None:
        self.keys = frozenset(keys)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self.keys, *other.keys)

    def has(self, key: DispatchKey) -> bool:
        """Whether `key` is in the set."""
        return key in self.keys


_AUTOCAST_KEYS = frozenset({DispatchKey.AutocastCPU, DispatchKey.AutocastCUDA, DispatchKey.AutocastXPU})


def _ExcludeDispatchKeyGuard(keys: DispatchKeySet) -> AbstractContextManager[Any]:
    """Within the block nothing is cast: autocast's keys are the ones that can be left out."""
    if not keys.keys <= _AUTOCAST_KEYS:
        names = sorted(key.name for key in keys.keys - _AUTOCAST_KEYS)
        raise NotImplementedError(f"torch._C._ExcludeDispatchKeyGuard is implemented for the keys of autocast, got {', '.join(names)}; use "
                                  "torch.no_grad() to go below autograd")
    return without_casts()


def _disabled_torch_function_impl(func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
    """`__torch_function__` of a class that doesn't take over: the function itself, with plain tensors as results."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


class qscheme:
    """How a quantised tensor maps integers to numbers; no tensor is quantised."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


per_tensor_affine, per_channel_affine, per_tensor_symmetric, per_channel_symmetric, per_channel_affine_float_qparams = map(qscheme, (
    "per_tensor_affine", "per_channel_affine", "per_tensor_symmetric", "per_channel_symmetric", "per_channel_affine_float_qparams"))

add_own_globals((scheme, f"torch.{scheme.name}") for scheme in (
    per_tensor_affine, per_channel_affine, per_tensor_symmetric, per_channel_symmetric, per_channel_affine_float_qparams))

_NO_SCRIPT = "Flambeau has no TorchScript: compile with torch.compile"
_SCRIPT_TYPES = (
    "Graph", "Value", "Node", "Block", "ScriptMethod", "ScriptModule", "ScriptFunction", "ScriptObject",
    "CompilationUnit", "Type", "TensorType", "IntType", "FloatType", "BoolType", "StringType", "ListType", "TupleType", "DictType",
    "OptionalType", "ClassType", "ScriptList", "ScriptDict", "NoneType", "AnyType", "JITException", "PyTorchFileReader", "PyTorchFileWriter")
globals().update({name: absent_type(f"torch._C.{name}", _NO_SCRIPT) for name in _SCRIPT_TYPES})
_SWITCHES = (
    "_jit_set_profiling_executor", "_jit_set_profiling_mode", "_jit_override_can_fuse_on_cpu", "_jit_override_can_fuse_on_gpu",
    "_jit_set_texpr_fuser_enabled", "_jit_set_nvfuser_enabled", "_jit_set_nvfuser_guard_mode", "_jit_can_fuse_on_cpu",
    "_jit_can_fuse_on_gpu", "_get_graph_executor_optimize", "_jit_set_num_profiled_runs", "_jit_get_inline_everything_mode",
    "_jit_set_inline_everything_mode", "_jit_get_te_must_use_llvm_cpu", "_jit_set_te_must_use_llvm_cpu", "_jit_texpr_fuser_enabled",
    "_jit_set_symbolic_shapes_test_mode", "_jit_symbolic_shapes_test_mode_enabled", "_jit_set_emit_hooks", "_jit_clear_class_registry",
    "_jit_override_can_fuse_on_cpu_legacy", "_jit_get_tracer_state_warn", "_jit_set_tracer_state_warn",
    "_debug_get_fusion_group_inlining", "_debug_set_fusion_group_inlining", "_debug_set_autodiff_subgraph_inlining",
)

vars(NAMESPACES.setdefault("mkldnn", Namespace("mkldnn"))).update(
    _is_mkldnn_acl_supported=lambda: False, _is_mkldnn_bf16_supported=lambda: bool(get_capabilities().get("avx512_f")),
    _is_mkldnn_fp16_supported=lambda: bool(get_capabilities().get("avx512_fp16")))

class _Functions:
    """`torch._C._VariableFunctions` and its kin, where PyTorch has its operators. Those that there are not here refuse when they are
    called."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and f"{name[2:-2]}" not in ("and", "or", "xor", "lshift", "rshift"):
            raise AttributeError(f"torch._C.{self.__name__} has no {name}")
        found = OPERATORS.get(name) or FORMS.get(name) or absent(f"torch._C.{self.__name__}.{name}", "use the public operators")
        setattr(self, name, found)
        return found


_SPACES = ("_VariableFunctions", "_linalg", "_special", "_fft", "_sparse")
EXPORTED: dict[str, Any] = {name: _Functions(name) for name in _SPACES} | {name: _keeps_nothing(False) for name in _SWITCHES} | {
    "_is_tracing": _keeps_nothing(False),
    "_AutoDispatchBelowAutograd": contextlib.nullcontext,    # what an operator's function for autograd calls is below it in any case
    "_get_tracing_state": _get_tracing_state,
    "_log_api_usage_once": _log_api_usage_once,
    "_get_privateuse1_backend_name": _get_privateuse1_backend_name,
    "_get_accelerator": _get_accelerator,
    "_are_functorch_transforms_active": _are_functorch_transforms_active,
    "_set_grad_enabled": _set_grad_enabled,
    "DispatchKey": DispatchKey,
    "_LinAlgError": _LinAlgError,
    "DispatchKeySet": DispatchKeySet,
    "_ExcludeDispatchKeyGuard": _ExcludeDispatchKeyGuard,
    **{name: globals()[name] for name in _SCRIPT_TYPES},
    "_disabled_torch_function_impl": _disabled_torch_function_impl,
    "Argument": Argument,
    "FunctionSchema": FunctionSchema,
    "parse_schema": parse_schema,
    "_get_default_device": lambda: str(default_device()),
    "_TensorMeta": type(Tensor),
    "Tag": Tag,
    "qscheme": qscheme,
    "_has_cuda": False,
    "_has_mps": False,
    "_has_xpu": False,
    "_has_mkldnn": True,
    "has_mkl": False,
    "has_lapack": True,
    "has_openmp": True,
    "_GLIBCXX_USE_CXX11_ABI": True,
    "device": device,
    "dtype": dtype,
    "layout": layout,
    "memory_format": memory_format,
    "Size": Size,
    "default_generator": default_generator,
    "TensorBase": Tensor,
    "_TensorBase": Tensor,
    "Generator": Generator,
    "is_grad_enabled": is_grad_enabled,
    "_current_graph_task_id": current_pass,
    **{made.__name__: made for made in (
        DisableTorchFunction, DisableTorchFunctionSubclass, _TorchFunctionState, _get_torch_function_state, _set_torch_function_state,
        _len_torch_function_stack, _get_function_stack_at, _push_on_torch_function_stack, _pop_torch_function_stack)},
    "_get_cpu_capability": get_cpu_capability,
    "_is_torch_function_mode_enabled": lambda: bool(dispatch.state.function_modes),
    "_is_torch_function_enabled": lambda: not dispatch.state.classes_off,
    "_has_torch_function": has_torch_function,
    "_has_torch_function_unary": has_torch_function_unary,
    "_has_torch_function_variadic": has_torch_function_variadic,
}
