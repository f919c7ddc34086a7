"""torch.autograd: gradients by the tape. `backward`, `grad`, `Function`, hooks, anomaly mode, gradcheck."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..core import dispatch
from ..core.tensor import Tensor
from ..core.warned import warn_once
from ..ops import writing
from ..ops.registry import handle_torch_function, has_torch_function
from . import batched, checkpoint, forward_ad, functional, graph, handles, joint_hooks
from .anomaly import detect_anomaly, is_anomaly_enabled, set_detect_anomaly
from .engine import _is_checkpoint_valid as _is_checkpoint_valid
from .engine import enforce_grad_layout_policy, queue_callback, retain_grad, run_backward, tensor_hook
from .function import Function, FunctionCtx, once_differentiable
from .grad_mode import (
    _unsafe_preserve_version_counter,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_multithreading_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .graph import save_on_cpu, saved_tensors_hooks


def _as_tuple(x: Any) -> tuple:
    return (x,) if isinstance(x, (Tensor, graph.GradientEdge)) or x is None else tuple(x)


def _seeds(grads: Any, roots: tuple) -> tuple:
    """A gradient for each root, None where none is given."""
    if grads is None:
        return (None,) * len(roots)
    found = _as_tuple(grads)
    if len(found) != len(roots):
        raise RuntimeError(f"got {len(roots)} tensors and {len(found)} gradients")
    return found


def _check_batched(grads: tuple, roots: tuple) -> None:
    for i, (g, root) in enumerate(zip(grads, roots)):
        if isinstance(g, Tensor) and isinstance(root, Tensor) and g.shape[1:] != root.shape:
            raise RuntimeError("If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. The "
                               "sizes of the remaining dimensions are expected to match the shape of corresponding output, but a mismatch "
                               f"was detected: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of {root.shape}.")


def _answers_itself(*tensors: Any) -> bool:
    """Whether a class of the user's has a say in what `grad` and `backward` are; our own are asked step by step."""
    return bool(dispatch.override_classes) and not dispatch.state.classes_off and has_torch_function(
        [t for t in tensors if not dispatch.takes_every_call(t)])


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Accumulate the gradients of sum(tensors * grad_tensors) in the leaves' `.grad` (or in `inputs` alone)."""
    if grad_variables is not None:
        warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
        if grad_tensors is not None:
            raise RuntimeError("backward() got both `grad_tensors` and its old name `grad_variables`; use `grad_tensors` alone.")
        grad_tensors = grad_variables
    roots = _as_tuple(tensors)
    grads = _seeds(grad_tensors, roots)
    if inputs is not None and not _as_tuple(inputs):
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    if create_graph:
        warn_once("Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient which can "
                  "cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this.")
    run_backward(
        roots, grads, inputs=None if inputs is None else _as_tuple(inputs),
        retain_graph=create_graph if retain_graph is None else retain_graph, create_graph=create_graph, accumulate=True,
    )


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """Gradients of sum(outputs * grad_outputs) with respect to `inputs`, as a tuple.

    `is_grads_batched`: for each of several `grad_outputs`, along their first dimension, at once.
    """
    if not only_inputs:
        warnings.warn("only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradients in other leaves "
                      "use torch.autograd.backward.", FutureWarning, stacklevel=2)
    roots, wanted = _as_tuple(outputs), _as_tuple(inputs)
    if _answers_itself(*roots, *wanted):
        return handle_torch_function(grad, (*roots, *wanted), roots, wanted, grad_outputs=grad_outputs, retain_graph=retain_graph,
                                     create_graph=create_graph, only_inputs=only_inputs, allow_unused=allow_unused,
                                     is_grads_batched=is_grads_batched, materialize_grads=materialize_grads)
    if not wanted:
        raise RuntimeError("grad requires non-empty inputs.")
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False.")
    grads = _seeds(grad_outputs, roots)
    if is_grads_batched:
        _check_batched(grads, roots)
    run = batched.run_backward if is_grads_batched else run_backward
    found = run(
        roots, grads, inputs=wanted, retain_graph=create_graph if retain_graph is None else retain_graph, create_graph=create_graph,
        accumulate=False,
    )
    if materialize_grads:
        if any(isinstance(t, graph.GradientEdge) and g is None for g, t in zip(found, wanted)):
            raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
        return tuple(t.new_zeros(t.shape) if g is None else g for g, t in zip(found, wanted))
    missing = [i for i, g in enumerate(found) if g is None]
    if missing and not allow_unused:
        raise RuntimeError(f"The differentiated Tensor at index {missing[0]} appears to not have been used in the graph. Set "
                           "allow_unused=True if this is the desired behavior.")
    return tuple(found)  # type: ignore[arg-type]


def _tensor_backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Sequence[Tensor] | None = None,
) -> None:
    """Accumulate the gradient of this tensor in the leaves it was computed from."""
    if type(self) is not Tensor and _answers_itself(self):
        return handle_torch_function(_tensor_backward, (self,), self, gradient=gradient, retain_graph=retain_graph,
                                     create_graph=create_graph, inputs=inputs)
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def _register_post_accumulate_grad_hook(self: Tensor, hook: Any) -> handles.RemovableHandle:
    """Call `hook(self)` after backward added to this leaf's `.grad`."""
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self.grad_fn is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    meta = self._grad
    if meta.post_accumulate_hooks is None:  # type: ignore[union-attr]
        meta.post_accumulate_hooks = {}  # type: ignore[union-attr]
    return handles.RemovableHandle(meta.post_accumulate_hooks, hook)  # type: ignore[union-attr]


_tensor_backward.__name__ = "backward"
Tensor.backward = _tensor_backward  # type: ignore[assignment, method-assign]
def _register_hook(self: Tensor, hook: Callable) -> Any:
    """Call `hook(gradient)` when the gradient is there; what it gives, if not None, takes its place. A handle: `remove()` ends it."""
    return tensor_hook(self, hook)


def _retain_grad(self: Tensor) -> None:
    """Keep the gradient of a result in `.grad` too."""
    retain_grad(self)


_register_hook.__name__, _retain_grad.__name__ = "register_hook", "retain_grad"
Tensor.register_hook, Tensor.retain_grad = _register_hook, _retain_grad  # type: ignore[assignment, method-assign]
Tensor.register_post_accumulate_grad_hook = _register_post_accumulate_grad_hook  # type: ignore[assignment, method-assign]
Tensor.retains_grad = property(lambda self: self._grad is not None and bool(self._grad.retains_grad))  # type: ignore[assignment, method-assign]
writing.InPlace.check = staticmethod(batched.check_inplace)
writing.InPlace.rebase = staticmethod(batched.rebase)

for _name in joint_hooks.__all__:
    setattr(graph, _name, getattr(joint_hooks, _name))    # its place in torch


def _profiler_enabled() -> bool:
    """Whether a profile is taken in this thread."""
    return bool(dispatch.state.watchers)


class _VariableMeta(type):
    """isinstance(x, Variable) asks for a tensor."""

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor)


class _Engine:
    """The engine, as callers of `Variable._execution_engine` know it."""

    queue_callback = staticmethod(queue_callback)


class Variable(metaclass=_VariableMeta):
    """`Variable(x, requires_grad=...)`: the tensor as a leaf of its own over the same memory, as of old. Tensors need no wrapping."""

    _execution_engine = _Engine

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = False, volatile: bool | None = None) -> Any:
        if volatile is not None:
            warnings.warn("volatile was removed and now has no effect. Use `with torch.no_grad():` instead.", UserWarning, stacklevel=2)
        if not isinstance(data, (Tensor, type(None))):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        made = Tensor() if data is None else data.detach()
        return made.requires_grad_(bool(requires_grad))



def __getattr__(name: str) -> Any:
    if name == "kineto_available":      # its other place in torch
        return importlib.import_module(".profiler", __name__).kineto_available
    if name in ("profiler", "forward_ad", "variable"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

__all__ = [
    "backward", "grad", "Function", "FunctionCtx", "once_differentiable", "Variable", "no_grad", "enable_grad", "inference_mode",
    "set_grad_enabled", "is_grad_enabled", "detect_anomaly", "set_detect_anomaly", "is_anomaly_enabled", "gradcheck",
    "gradgradcheck", "GradcheckError", "NestedIOFunction",
    "enforce_grad_layout_policy", "saved_tensors_hooks", "save_on_cpu", "functional", "checkpoint", "queue_callback", "graph",
    "forward_ad",
]
