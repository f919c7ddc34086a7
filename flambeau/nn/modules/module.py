"""`Module`: a tree of parameters, buffers and submodules with a `forward`."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from itertools import chain
from typing import Any, TypeVar

from flambeau import _C

from ...core.device import device as device_type
from ...core.dispatch import classes_off
from ...core.dtypes import as_dtype, dtype_of_name
from ...core.dtypes import dtype as dtype_type
from ...core.settings import Conversions
from ...core.tensor import Tensor, look_at
from ...ops.creation import empty_like
from ...utils.swapping import swap_tensors
from ..parameter import Buffer, Parameter, is_lazy
from . import state
from .hooks import (
    BackwardHooks,
    GlobalHooks,
    HookDict,
    RemovableHandle,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
    registered,
)
from .state import EXTRA_STATE as _EXTRA_STATE_KEY_SUFFIX
from .state import _IncompatibleKeys

T = TypeVar("T", bound="Module")
_ROOT = __name__.partition(".")[0]     # torch.compile lies above this room and is reached when called

_HOOK_DICTS = ("_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_hooks_with_kwargs",
               "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks",
               "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")


_TOO_EARLY = "before Module.__init__() call: begin __init__ with super().__init__()"


def _forward_unimplemented(self: Module, *input: Any) -> Any:
    """Defines the computation performed at every call; every subclass has its own."""
    meant = [name for name in vars(type(self)) if name != "forward" and get_close_matches(name, ["forward"], cutoff=0.8)]
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function'
                              + (f"; did you mean it by {meant[0]!r}?" if meant else ""))


def _instead(given: Any) -> str:
    """What to give where a module is expected, for what is given instead of one."""
    if isinstance(given, type) and issubclass(given, Module):
        return f"; {given.__name__}() would be one"
    if isinstance(given, (list, tuple)):
        return "; give the modules one by one, with * before the sequence"
    name = getattr(given, "__name__", "")
    return f"; {name} is a function: call it in forward, or use the module that computes it" if callable(given) and name else ""


class _WrappedHook:
    """A hook that may be called with its module before the other arguments. The module is not kept alive, but pickled and copied."""

    def __init__(self, hook: Callable, module: Any = None) -> None:
        self.hook, self.with_module = hook, module is not None
        self.module = None if module is None else weakref.ref(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.module is None:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self) -> dict:
        fields = {"hook": self.hook, "with_module": self.with_module}
        return fields if self.module is None else {**fields, "module": self.module()}

    def __setstate__(self, fields: dict) -> None:
        self.__init__(fields["hook"], fields.get("module"))     # type: ignore[misc]


class Module:
    """Base of all neural network modules.

    Assigning a Parameter, a Buffer or another Module to an attribute registers it. Calling the module runs its hooks
    around `forward`.
    """

    dump_patches = False
    call_super_init = False
    training: bool
    _version: int = 1
    _compiled_call_impl: Callable | None = None
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            given = next(iter(kwargs), None)
            raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument '{given}'" if given else
                            f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given")
        fields = self.__dict__
        fields["training"] = True
        fields["_parameters"], fields["_buffers"], fields["_modules"] = {}, {}, {}
        fields["_non_persistent_buffers_set"] = set()
        fields["_is_full_backward_hook"] = None
        for name in _HOOK_DICTS:
            fields[name] = HookDict()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    forward: Callable[..., Any] = _forward_unimplemented

    # -- calling -----------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        return self._call_impl(*args, **kwargs)

    def _slow_forward(self, *args: Any, **kwargs: Any) -> Any:
        """`forward`, as those ask for it who write a `_call_impl` of their own."""
        return self.forward(*args, **kwargs)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        if not (self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks
                or GlobalHooks.any):
            return self.forward(*args, **kwargs)
        called: set[int] = set()
        try:
            return self._call_with_hooks(args, kwargs, called)
        except Exception:
            self._call_remaining(args, kwargs, called)
            raise

    def _call_with_hooks(self, args: tuple, kwargs: dict, called: set[int]) -> Any:
        for key, hook in (*GlobalHooks.forward_pre.items(), *self._forward_pre_hooks.items()):
            args, kwargs = self._run_pre_hook(hook, args, kwargs, key in self._forward_pre_hooks_with_kwargs)
        backward = self._backward_scope()
        if backward is not None:
            args = backward.wrap_inputs(args)
        result = self.forward(*args, **kwargs)
        for key, hook in (*GlobalHooks.forward.items(), *self._forward_hooks.items()):
            called.add(key)
            with_kwargs = key in self._forward_hooks_with_kwargs or key in GlobalHooks.with_kwargs
            answer = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
            if answer is not None:
                result = answer
        return result if backward is None else backward.wrap_output(result)

    def _run_pre_hook(self, hook: Callable, args: tuple, kwargs: dict, with_kwargs: bool) -> tuple[tuple, dict]:
        if not with_kwargs:
            answer = hook(self, args)
            if answer is not None:
                args = answer if isinstance(answer, tuple) else (answer,)
            return args, kwargs
        answer = hook(self, args, kwargs)
        if answer is None:
            return args, kwargs
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {answer}.")
        return answer

    def _call_remaining(self, args: tuple, kwargs: dict, called: set[int]) -> None:
        """After an exception in forward: the hooks registered with always_call see the output None."""
        always = {**GlobalHooks.always, **self._forward_hooks_always_called}
        for key, hook in (*GlobalHooks.forward.items(), *self._forward_hooks.items()):
            if key in always and key not in called:
                named = (kwargs,) if key in self._forward_hooks_with_kwargs or key in GlobalHooks.with_kwargs else ()
                try:
                    hook(self, args, *named, None)
                except Exception as error:
                    warnings.warn("module forward hook with ``always_call=True`` raised an exception that was silenced as another error was "
                                  f"raised in forward: {error}", stacklevel=2)

    def _backward_scope(self) -> BackwardHooks | None:
        pre = [*GlobalHooks.backward_pre.values(), *self._backward_pre_hooks.values()]
        post = [*GlobalHooks.backward.values(), *self._backward_hooks.values()]
        return BackwardHooks(self, pre, post) if pre or post else None

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile this module's call in place with `torch.compile`, to which all arguments go."""
        self._compiled_call_impl = sys.modules[_ROOT].compile(self._call_impl, *args, **kwargs)

    # -- hooks -------------------------------------------------------------------------------------
    def register_forward_pre_hook(self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """`hook(module, args[, kwargs])` before forward; it may return other args (with kwargs: a pair)."""
        flags = (self._forward_pre_hooks_with_kwargs,) if with_kwargs else ()
        return RemovableHandle(self._forward_pre_hooks, hook, prepend=prepend, flags=flags)

    def register_forward_hook(self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False,
                              always_call: bool = False) -> RemovableHandle:
        """`hook(module, args[, kwargs], output)` after forward; it may return another output."""
        flags = ((self._forward_hooks_with_kwargs,) if with_kwargs else ()) + \
            ((self._forward_hooks_always_called,) if always_call else ())
        return RemovableHandle(self._forward_hooks, hook, prepend=prepend, flags=flags)

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """`hook(module, grad_output)` when the gradients of the outputs are known; it may return others."""
        return RemovableHandle(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """`hook(module, grad_input, grad_output)` when the gradients of the inputs are known; it may return other grad_input."""
        self._of_kind(full=True)
        return RemovableHandle(self._backward_hooks, hook, prepend=prepend)

    def register_backward_hook(self, hook: Callable) -> RemovableHandle:
        """The old name; behaves as `register_full_backward_hook`, which no module may have beside it."""
        self._of_kind(full=False)
        return RemovableHandle(self._backward_hooks, hook)

    def _of_kind(self, full: bool) -> None:
        if self._is_full_backward_hook is (not full):
            raise RuntimeError("Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only one of "
                               "them.")
        self._is_full_backward_hook = full

    def register_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """`hook(module, state_dict, prefix, local_metadata)` after `state_dict()`; changes the dict in place."""
        hook._from_public_api = True     # type: ignore[attr-defined]
        return RemovableHandle(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook: Callable) -> RemovableHandle:
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError("Cannot register the same function as the state dict post hook that was previously registered "
                               "via register_state_dict_post_hook")
        return RemovableHandle(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """`hook(module, prefix, keep_vars)` before `state_dict()` collects."""
        return RemovableHandle(self._state_dict_pre_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """`hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)` before loading."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable, with_module: bool = False) -> RemovableHandle:
        return RemovableHandle(self._load_state_dict_pre_hooks, _WrappedHook(hook, self) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """`hook(module, incompatible_keys)` after loading."""
        return RemovableHandle(self._load_state_dict_post_hooks, hook)

    # -- registration ------------------------------------------------------------------------------
    def _check_name(self, name: Any, what: str) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {what} {_TOO_EARLY}")
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain "."' + (f', got: {name}' if what == "module" else ""))
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter (or None as a placeholder) under `name`."""
        self._check_name(name, "parameter")
        if hasattr(self, name) and name not in self._parameters:
            raise KeyError(f"attribute '{name}' already exists")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{type(param).__name__}' object to parameter '{name}' (torch.nn.Parameter or None required)")
        if param is not None and param.grad_fn is not None:
            raise ValueError(f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. "
                             f"To express '{name}' as a function of another Tensor, compute the value in the forward() method.")
        self._parameters[name] = registered(GlobalHooks.parameters, self, name, param) if GlobalHooks.parameters else param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but not trained; `persistent` says whether it is part of the state_dict."""
        self._check_name(name, "buffer")
        if hasattr(self, name) and name not in self._buffers:
            raise KeyError(f"attribute '{name}' already exists")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' (torch Tensor or None required)")
        self._buffers[name] = registered(GlobalHooks.buffers, self, name, tensor) if GlobalHooks.buffers else tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule (or None) under `name`."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{type(module).__name__} is not a Module subclass{_instead(module)}")
        self._check_name(name, "module")
        if hasattr(self, name) and name not in self._modules:
            raise KeyError(f"attribute '{name}' already exists")
        self._modules[name] = registered(GlobalHooks.modules, self, name, module) if GlobalHooks.modules else module

    def register_module(self, name: str, module: Module | None) -> None:
        """Alias of `add_module`."""
        self.add_module(name, module)

    # -- attributes --------------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__
        for home in ("_parameters", "_buffers", "_modules"):
            registered = fields.get(home)
            if registered is not None and name in registered:
                return registered[name]
        if "_modules" not in fields and (name in _HOOK_DICTS or name == "training"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}': its __init__ did not call super().__init__()")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        fields = self.__dict__
        if isinstance(value, Parameter):
            if "_parameters" not in fields:
                raise AttributeError(f"cannot assign parameters {_TOO_EARLY}")
            _drop(name, fields, self._buffers, self._modules)
            self._non_persistent_buffers_set.discard(name)
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if "_modules" not in fields:
                raise AttributeError(f"cannot assign module {_TOO_EARLY}")
            _drop(name, fields, self._parameters, self._buffers)
            self._non_persistent_buffers_set.discard(name)
            self._modules[name] = registered(GlobalHooks.modules, self, name, value) if GlobalHooks.modules else value
        elif (kind := _registered_as(fields, name)) is not None:
            self._replace(kind, name, value)
        elif isinstance(value, Tensor) and isinstance(value, Buffer) and "_buffers" in fields:
            _drop(name, fields, self._parameters, self._modules)
            self.register_buffer(name, value, getattr(value, "persistent", True))
        else:
            object.__setattr__(self, name, value)

    def _replace(self, kind: str, name: str, value: Any) -> None:
        """Assign to a registered name something that registers nothing of itself."""
        if kind == "_buffers":
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"cannot assign '{type(value).__name__}' object to buffer '{name}' "
                                "(torch.nn.Buffer, torch.Tensor or None required)")
            persistent = getattr(value, "persistent", True) if isinstance(value, Buffer) else \
                name not in self._non_persistent_buffers_set
            self.register_buffer(name, value, persistent)
        elif value is None:
            self.__dict__[kind][name] = None
        else:
            what, wanted = ("parameter", "torch.nn.Parameter") if kind == "_parameters" else ("child module", "torch.nn.Module")
            raise TypeError(f"cannot assign '{type(value).__name__}' object to {what} '{name}' ({wanted} or None expected)"
                            if what == "child module" else
                            f"cannot assign '{type(value).__module__}.{type(value).__name__}' as {what} '{name}' "
                            f"({wanted} or None expected)")

    def __delattr__(self, name: str) -> None:
        kind = _registered_as(self.__dict__, name)
        if kind is None:
            object.__delattr__(self, name)
            return
        del self.__dict__[kind][name]
        self._non_persistent_buffers_set.discard(name)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers}
        return sorted(name for name in names if not name[0].isdigit())

    def __getstate__(self) -> dict:
        fields = self.__dict__.copy()
        fields.pop("_compiled_call_impl", None)
        return fields

    def __setstate__(self, fields: dict) -> None:
        self.__dict__.update(fields)
        for name in _HOOK_DICTS:
            self.__dict__.setdefault(name, HookDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_is_full_backward_hook", None)

    # -- by path -----------------------------------------------------------------------------------
    def get_submodule(self, target: str) -> Module:
        """The module at the dotted path `target`; '' is this one. AttributeError if there is none."""
        module: Module = self
        if not target:
            return module
        for item in target.split("."):
            if not hasattr(module, item):
                raise AttributeError(f"{type(module).__name__} has no attribute `{item}`")
            module = getattr(module, item)
            if not isinstance(module, Module):
                raise AttributeError(f"`{item}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put `module` at the dotted path `target`; with `strict` only where one is already."""
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        *path, name = target.split(".")
        parent = self.get_submodule(".".join(path))
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{type(parent).__name__} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        setattr(parent, name, module)

    def _at(self, target: str) -> tuple[Module, str, Any]:
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, name):
            raise AttributeError(f"{type(owner).__name__} has no attribute `{name}`")
        return owner, name, getattr(owner, name)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at the dotted path `target`; AttributeError if there is none."""
        _, name, found = self._at(target)
        if not isinstance(found, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at the dotted path `target`; AttributeError if there is none."""
        owner, name, found = self._at(target)
        if name not in owner._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return found

    def get_extra_state(self) -> Any:
        """What else belongs in the state_dict; override together with `set_extra_state`."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` gave."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    # -- traversal ---------------------------------------------------------------------------------
    def _named_members(self, members: Callable, prefix: str = "", recurse: bool = True,
                       remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in members(module):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter) pairs."""
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, buffer) pairs."""
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def children(self) -> Iterator[Module]:
        """The immediate submodules, each once."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, immediate submodule) pairs."""
        seen: set[int] = set()
        for name, module in self._modules.items():
            if module is not None and id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        for _, module in self.named_modules():
            yield module

    def named_modules(self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """(dotted name, module) pairs, this one first under `prefix`."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    # -- state -------------------------------------------------------------------------------------
    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        state.save_own(self, destination, prefix, keep_vars)

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> dict[str, Any]:
        """The parameters and persistent buffers of the tree by dotted name (detached unless `keep_vars`)."""
        if args:
            warnings.warn("Positional args are being deprecated, use kwargs instead. Refer to torch.nn.Module.state_dict for details.",
                          FutureWarning, stacklevel=2)
            destination = args[0] if destination is None else destination
            prefix = args[1] if len(args) > 1 and prefix == "" else prefix
            keep_vars = args[2] if len(args) > 2 else keep_vars
        return state.state_dict(self, destination, prefix, keep_vars)

    def _load_from_state_dict(self, state_dict: dict, prefix: str, local_metadata: dict, strict: bool, missing_keys: list,
                              unexpected_keys: list, error_msgs: list) -> None:
        state.load_own(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> _IncompatibleKeys:
        """Copy (or with `assign`, take) the tensors of `state_dict` into this tree.

        Returns (missing_keys, unexpected_keys). RuntimeError lists all that does not fit: missing and unexpected keys
        (when `strict`), and shapes that differ.
        """
        return state.load_state_dict(self, state_dict, strict, assign)

    # -- conversion --------------------------------------------------------------------------------
    def _apply(self: T, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> T:
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, param in self._parameters.items():
            if param is not None:
                self._parameters[name] = _converted(param, fn)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def apply(self: T, fn: Callable[[Module], None]) -> T:
        """Call `fn` on every submodule, children first, then on this module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """Move to a device and/or convert floating-point parameters and buffers to a dtype, in place.

        `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(tensor)`, with `non_blocking`, `copy`, `memory_format`.
        """
        where, kind, memory_format = _parse_to(args, kwargs)
        if kind is not None and not (kind.is_floating_point or kind.is_complex):
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={kind}")

        def convert(t: Tensor) -> Tensor:
            wanted = kind if kind is not None and (t.dtype.is_floating_point or t.dtype.is_complex) else t.dtype
            extra = {"memory_format": memory_format} if memory_format is not None and not is_lazy(t) and t.ndim in (4, 5) else {}
            if t.is_meta and where is not None and device_type(where).type != "meta":
                raise NotImplementedError("Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of "
                                          "torch.nn.Module.to() when moving module from meta to a different device.")
            return t.to(where if where is not None else t.device, wanted, **extra)

        return self._apply(convert)

    def to_empty(self: T, *, device: Any, recurse: bool = True) -> T:
        """Move to `device` without copying: the tensors there are uninitialised."""
        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def type(self: T, dst_type: Any) -> T:
        """Convert all parameters and buffers to a dtype."""
        return self._apply(lambda t: t.type(dst_type))

    def _to_floating(self: T, kind: dtype_type) -> T:
        return self._apply(lambda t: t.to(kind) if t.dtype.is_floating_point else t)

    def float(self: T) -> T:
        """Floating-point parameters and buffers as float32."""
        return self._to_floating(dtype_of_name("float32"))

    def double(self: T) -> T:
        """Floating-point parameters and buffers as float64."""
        return self._to_floating(dtype_of_name("float64"))

    def half(self: T) -> T:
        """Floating-point parameters and buffers as float16."""
        return self._to_floating(dtype_of_name("float16"))

    def bfloat16(self: T) -> T:
        """Floating-point parameters and buffers as bfloat16."""
        return self._to_floating(dtype_of_name("bfloat16"))

    def cuda(self: T, device: Any = None) -> T:
        """Move to a CUDA device."""
        where = device_type("cuda" if device is None else device)
        return self._apply(lambda t: t.to(where))

    def cpu(self: T) -> T:
        """Move to the CPU."""
        return self._apply(lambda t: t.to(device_type("cpu")))

    def share_memory(self: T) -> T:
        """Put parameters, buffers and gradients into shared memory: processes that are forked later, or get the module, train it
        together."""
        for tensor in chain(self.parameters(), self.buffers()):
            for part in (tensor, tensor.grad):
                if part is not None:
                    part.share_memory_()
        return self

    def train(self: T, mode: bool = True) -> T:
        """Set training mode here and below."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: T) -> T:
        """Set evaluation mode: `train(False)`."""
        return self.train(False)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Set whether the parameters are trained."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop (or zero) the gradients of all parameters."""
        for param in self.parameters():
            if set_to_none:
                param.grad = None
            elif param.grad is not None:
                param.grad = param.grad.detach()
                param.grad.zero_()

    # -- printing ----------------------------------------------------------------------------------
    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What a subclass wants to say of itself between the parentheses."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        child_lines = [f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()]
        if not child_lines and len(extra_lines) <= 1:
            return f"{self._get_name()}({extra})"
        body = "\n  ".join(extra_lines + child_lines)
        return f"{self._get_name()}(\n  {body}\n)" if body else f"{self._get_name()}()"

    def _replicate_for_data_parallel(self) -> Module:
        raise NotImplementedError("replication over devices is not supported; use one process a device")


def _addindent(s_: str, numSpaces: int) -> str:
    """A text whose lines but the first are moved to the right; libraries that print modules call it."""
    return s_.replace("\n", "\n" + " " * numSpaces)


def _registered_as(fields: dict, name: str) -> str | None:
    for kind in ("_parameters", "_modules", "_buffers"):
        registered = fields.get(kind)
        if registered is not None and name in registered:
            return kind
    return None


def _drop(name: str, *homes: dict) -> None:
    for home in homes:
        home.pop(name, None)


def _converted(param: Parameter, fn: Callable) -> Parameter:
    """The parameter, converted in place, so that optimizers and other modules that hold it follow; or as `torch.__future__` has it."""
    if is_lazy(param):
        with classes_off():     # which would refuse to compute with it
            look_at(param, fn(param.detach()._as_subclass(Tensor)))
        return param
    data, grad = fn(param.detach()), param.grad
    grad = None if grad is None else fn(grad.detach()).requires_grad_(grad.requires_grad)
    if Conversions.swap or not Conversions.overwrite:
        param.grad = None
    if not Conversions.swap and not Conversions.overwrite and data.is_meta == param.is_meta:
        param.data, param.grad = data, grad
        return param
    made = Parameter(data, param.requires_grad)
    made.grad = grad
    if Conversions.swap:
        swap_tensors(param, made)
        return param
    return made


def _parse_to(args: tuple, kwargs: dict) -> tuple[Any, Any, Any]:
    """(device, dtype, memory_format) of the arguments of `Module.to`."""
    where, kind, memory_format = kwargs.get("device"), kwargs.get("dtype"), kwargs.get("memory_format")
    if isinstance(kwargs.get("tensor"), Tensor):
        args = (kwargs["tensor"], *args)
    for a in args:
        if isinstance(a, Tensor):
            where, kind = a.device, a.dtype
        elif isinstance(a, (dtype_type, type)):
            kind = a
        elif isinstance(a, (device_type, str)) or (isinstance(a, int) and not isinstance(a, bool)):
            where = a
        elif a is not None and not isinstance(a, bool):
            raise TypeError(f"to() received an invalid argument of type {type(a).__name__}; expected a device, dtype or Tensor")
    return (None if where is None else device_type(where)), (None if kind is None else as_dtype(kind, "to")), memory_format


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """(device, dtype, non_blocking, memory_format) of the arguments of `Module.to`, for modules that write one of their own."""
    where, kind, memory_format = _parse_to(args, kwargs)
    return where, kind, bool(kwargs.get("non_blocking", next((a for a in args if isinstance(a, bool)), False))), memory_format


_global_parameter_registration_hooks = GlobalHooks.parameters      # torch's names of the same dictionaries
_global_buffer_registration_hooks = GlobalHooks.buffers
_global_module_registration_hooks = GlobalHooks.modules
_global_forward_hooks, _global_forward_pre_hooks = GlobalHooks.forward, GlobalHooks.forward_pre
_global_backward_hooks, _global_backward_pre_hooks = GlobalHooks.backward, GlobalHooks.backward_pre
_global_forward_hooks_with_kwargs, _global_forward_hooks_always_called = GlobalHooks.with_kwargs, GlobalHooks.always

_C.know_module_call(Module._call_impl.__code__)     # profiles tell which module an event is of

__all__ = ["Module", "RemovableHandle", "register_module_buffer_registration_hook", "register_module_module_registration_hook",
           "register_module_parameter_registration_hook", "register_module_forward_hook", "register_module_forward_pre_hook",
           "register_module_full_backward_hook", "register_module_full_backward_pre_hook", "_EXTRA_STATE_KEY_SUFFIX",
           "_IncompatibleKeys"]
