"""Hooks of modules: the hooks of every module, and backward hooks as identities on the tape."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ...autograd import Function
from ...autograd.handles import HookDict, RemovableHandle
from ...core import dispatch
from ...core.tensor import Tensor


class GlobalHooks:
    """Hooks that every module runs; `any` says whether there is one."""

    forward_pre: HookDict = HookDict()
    forward: HookDict = HookDict()
    always: HookDict = HookDict()
    with_kwargs: HookDict = HookDict()
    backward_pre: HookDict = HookDict()
    backward: HookDict = HookDict()
    any = False
    parameters: HookDict = HookDict()
    buffers: HookDict = HookDict()
    modules: HookDict = HookDict()

    @classmethod
    def add(cls, hooks: dict, hook: Callable, flags: tuple[dict, ...] = ()) -> RemovableHandle:
        """Add a hook for every module."""
        cls.any = True
        return _OfEveryModule(hooks, hook, flags=flags)


class _OfEveryModule(RemovableHandle):
    """Its removal may leave modules without hooks of all, which are called faster."""

    def remove(self) -> None:
        """Take the hook out; again is harmless."""
        super().remove()
        GlobalHooks.any = bool(GlobalHooks.forward_pre or GlobalHooks.forward or GlobalHooks.backward_pre or GlobalHooks.backward)


def registered(hooks: HookDict, module: Any, name: str, value: Any) -> Any:
    """What is registered under `name` when the hooks have seen `value`."""
    for hook in tuple(hooks.values()):
        answer = hook(module, name, value)
        value = value if answer is None else answer
    return value


def register_module_parameter_registration_hook(hook: Callable) -> RemovableHandle:
    """`hook(module, name, parameter)` when any module gets a parameter; it may return another one."""
    return RemovableHandle(GlobalHooks.parameters, hook)


def register_module_buffer_registration_hook(hook: Callable) -> RemovableHandle:
    """`hook(module, name, buffer)` when any module gets a buffer; it may return another one."""
    return RemovableHandle(GlobalHooks.buffers, hook)


def register_module_module_registration_hook(hook: Callable) -> RemovableHandle:
    """`hook(module, name, submodule)` when any module gets a submodule; it may return another one."""
    return RemovableHandle(GlobalHooks.modules, hook)


def register_module_forward_pre_hook(hook: Callable) -> RemovableHandle:
    """`hook(module, args)` before the forward of every module; it may return other args."""
    return GlobalHooks.add(GlobalHooks.forward_pre, hook)


def register_module_forward_hook(hook: Callable, *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """`hook(module, args, output)` after the forward of every module; it may return another output."""
    flags = ((GlobalHooks.with_kwargs,) if with_kwargs else ()) + ((GlobalHooks.always,) if always_call else ())
    return GlobalHooks.add(GlobalHooks.forward, hook, flags)


def register_module_full_backward_pre_hook(hook: Callable) -> RemovableHandle:
    """`hook(module, grad_output)` before the backward of every module."""
    return GlobalHooks.add(GlobalHooks.backward_pre, hook)


def register_module_full_backward_hook(hook: Callable) -> RemovableHandle:
    """`hook(module, grad_input, grad_output)` after the backward of every module."""
    return GlobalHooks.add(GlobalHooks.backward, hook)


class _Identity(Function):
    """Passes tensors through; in backward hands all their gradients to `seen` at once, which may return others. `filled`: zeros for those
    that there are none of."""

    @staticmethod
    def forward(ctx: Any, seen: Callable, filled: bool, *tensors: Tensor) -> Any:
        ctx.seen = seen
        ctx.set_materialize_grads(filled)
        passed = tuple(t.view_as(t) for t in tensors)
        ctx.mark_non_differentiable(*[p for p, t in zip(passed, tensors) if not t.requires_grad])
        return passed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple:
        return (None, None, *ctx.seen(grads))


class BackwardHooks:
    """One call of a module with full backward hooks: wraps its inputs and outputs, and calls the hooks in backward."""

    def __init__(self, module: Any, pre: list[Callable], post: list[Callable]):
        self.module, self.pre, self.post = module, pre, post
        self.grad_outputs: tuple | None = None
        self.input_positions: list[int] = []
        self.input_count = 0
        self.wraps_input = False

    def wrap_inputs(self, args: tuple) -> tuple:
        """The arguments with their tensors behind an identity that sees grad_input."""
        self.input_count = len(args)
        self.input_positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        tensors = [args[i] for i in self.input_positions]
        if not dispatch.state.grad_enabled or not any(t.requires_grad for t in tensors):
            return args
        self.wraps_input = True
        return _replaced(args, self.input_positions, _Identity.apply(self._saw_grad_inputs, True, *tensors))

    def wrap_output(self, output: Any) -> Any:
        """The output (a tensor or tuple) behind an identity that sees grad_output."""
        if not dispatch.state.grad_enabled:
            return output
        single = isinstance(output, Tensor)
        outputs = (output,) if single else output
        if not isinstance(outputs, tuple):
            warnings.warn("For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received "
                          f"{type(output)}", stacklevel=4)
            return output
        positions = [i for i, o in enumerate(outputs) if isinstance(o, Tensor)]
        tensors = [outputs[i] for i in positions]
        if not any(t.requires_grad for t in tensors):
            return output

        def saw(grads: tuple) -> tuple:
            return self._saw_grad_outputs(grads, positions, len(outputs))

        wrapped = _replaced(outputs, positions, _Identity.apply(saw, False, *tensors))
        return wrapped[0] if single else wrapped

    def _saw_grad_outputs(self, grads: tuple, positions: list[int], count: int) -> tuple:
        full: tuple = _replaced((None,) * count, positions, grads)
        for hook in self.pre:
            answer = hook(self.module, full)
            if answer is not None:
                full = answer if isinstance(answer, tuple) else (answer,)
        self.grad_outputs = full
        if self.post and not self.wraps_input:
            warnings.warn("Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require "
                          "gradients. What it gets as grad_input is None", stacklevel=5)
            self._call_post((None,) * self.input_count)
        return tuple(full[i] for i in positions)

    def _saw_grad_inputs(self, grads: tuple) -> tuple:
        full = _replaced((None,) * self.input_count, self.input_positions, grads)
        full = self._call_post(full)
        return tuple(full[i] for i in self.input_positions)

    def _call_post(self, grad_inputs: tuple) -> tuple:
        for hook in self.post:
            answer = hook(self.module, grad_inputs, self.grad_outputs)
            if answer is not None:
                answer = answer if isinstance(answer, tuple) else (answer,)
                if len(answer) != len(grad_inputs):
                    raise RuntimeError("Backward hook returned an invalid number of grad_input, got "
                                       f"{len(answer)}, but expected {len(grad_inputs)}")
                grad_inputs = answer
        return grad_inputs


def _replaced(values: tuple, positions: list[int], new: Any) -> tuple:
    out = list(values)
    for i, value in zip(positions, new if isinstance(new, tuple) else (new,)):
        out[i] = value
    return tuple(out)
