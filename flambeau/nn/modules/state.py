"""state_dict and load_state_dict of modules."""

from __future__ import annotations

import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from typing import Any

from ...core import dispatch
from ...core.homes import own_name
from ...core.settings import Conversions
from ...core.tensor import Tensor
from ...utils.swapping import swap_tensors
from ..parameter import Parameter, is_lazy

EXTRA_STATE = "_extra_state"
ORIGINAL = "_orig_mod."
"""What stands before the names in a compiled module."""


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What `load_state_dict` returns."""

    __slots__ = ()

    def __repr__(self) -> str:
        return super().__repr__() if self.missing_keys or self.unexpected_keys else "<All keys matched successfully>"

    __str__ = __repr__


class _StateDict(OrderedDict):
    """An OrderedDict that carries the versions of the modules in `_metadata`."""


def has_extra_state(module: Any) -> bool:
    """Whether the module's class overrides `get_extra_state`."""
    for cls in type(module).__mro__:
        if "get_extra_state" in cls.__dict__:
            return own_name(cls.__module__) != __package__ + ".module"
    return False


def save_own(module: Any, destination: dict, prefix: str, keep_vars: bool) -> None:
    """Put the parameters, persistent buffers and extra state of this one module into `destination`."""
    for name, param in module._parameters.items():
        if param is not None:
            destination[prefix + name] = param if keep_vars else param.detach()
    for name, buffer in module._buffers.items():
        if buffer is not None and name not in module._non_persistent_buffers_set:
            destination[prefix + name] = buffer if keep_vars else buffer.detach()
    if has_extra_state(module):
        destination[prefix + EXTRA_STATE] = module.get_extra_state()


def state_dict(module: Any, destination: Any, prefix: str, keep_vars: bool) -> dict[str, Any]:
    """The state of the tree; children go through their own `state_dict`, which users override."""
    if destination is None:
        destination = OrderedDict()
        destination._metadata = OrderedDict()
    metadata = {"version": module._version}
    if hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]] = metadata
    for hook in list(module._state_dict_pre_hooks.values()):
        hook(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    for hook in list(module._state_dict_hooks.values()):
        answer = hook(module, destination, prefix, metadata)
        if getattr(hook, "_from_public_api", False):
            if answer is not None:
                raise RuntimeError("state_dict post-hook must return None")
        elif answer is not None:
            destination = answer
    return destination


def load_own(module: Any, state: dict, prefix: str, local_metadata: dict, strict: bool, missing_keys: list,
             unexpected_keys: list, error_msgs: list) -> None:
    """Copy the entries under `prefix` into this one module; note what is missing, unexpected or of the wrong shape."""
    for hook in list(module._load_state_dict_pre_hooks.values()):
        hook(state, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
    persistent = {k: v for k, v in module._buffers.items() if k not in module._non_persistent_buffers_set}
    own = {k: v for k, v in (*module._parameters.items(), *persistent.items()) if v is not None}
    assign = local_metadata.get("assign_to_params_buffers", False)
    for name, target in own.items():
        key = prefix + name
        if key in state:
            _load_one(module, name, target, key, state[key], assign, error_msgs)
        elif strict:
            missing_keys.append(key)
    extra = prefix + EXTRA_STATE
    if has_extra_state(module):
        if extra in state:
            module.set_extra_state(state[extra])
        elif strict:
            missing_keys.append(extra)
    elif strict and extra in state:
        unexpected_keys.append(extra)
    if strict:
        for key in state:
            if key.startswith(prefix) and key != extra:
                first = key[len(prefix):].split(".", 1)
                if (len(first) > 1 and first[0] not in module._modules) or (len(first) == 1 and first[0] not in own):
                    unexpected_keys.append(key)


def _load_one(module: Any, name: str, target: Tensor, key: str, value: Any, assign: bool, error_msgs: list) -> None:
    if not isinstance(value, Tensor):
        error_msgs.append(f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from '
                          f"checkpoint but received {type(value)}")
        return
    if is_lazy(target) and is_lazy(value) and not assign:
        return
    if not is_lazy(target) and not is_lazy(value):
        if target.ndim == 0 and tuple(value.shape) == (1,):
            value = value.reshape(())  # scalars of old checkpoints
        if tuple(value.shape) != tuple(target.shape):
            error_msgs.append(f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, the shape in "
                              f"current model is {target.shape}.")
            return
    if target.is_meta and not value.is_meta and not assign:
        warnings.warn(f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current model, "
                      "which is a no-op. (Did you mean to pass `assign=True` to assign items in the state dictionary to their "
                      "corresponding key in the module instead of copying them in place?)", stacklevel=2)
    try:
        with dispatch.grad_enabled(False):
            if Conversions.swap:
                _swap(target, value, assign)
            elif assign:
                _assign(module, name, target, value)
            else:
                target.copy_(value)
    except Exception as error:
        verb = "swapping" if Conversions.swap else "assigning" if assign else "copying"
        error_msgs.append(f'While {verb} the parameter named "{key}", whose dimensions in the model '
                          f"are {target.shape} and whose dimensions in the checkpoint are {value.shape}, an exception occurred : "
                          f"{error.args}.")


def _assign(module: Any, name: str, target: Tensor, value: Tensor) -> None:
    if isinstance(target, Parameter):
        if isinstance(value, Parameter):
            value.requires_grad_(target.requires_grad)
        else:
            value = Parameter(value, requires_grad=target.requires_grad)
    setattr(module, name, value)


def _swap(target: Tensor, value: Tensor, assign: bool) -> None:
    """Let the target become what its class makes of the value (`module_load`)."""
    made = target.module_load(value, assign=assign)
    if made is target or made is value:
        raise RuntimeError(f"module_load of {type(target).__name__} returned one of the tensors that it was given: return another, such as "
                           "its detach()")
    if isinstance(target, Parameter) and not isinstance(made, Parameter):
        made = Parameter(made, requires_grad=target.requires_grad)
    swap_tensors(target, made.requires_grad_(target.requires_grad))


def load_state_dict(module: Any, state: Mapping[str, Any], strict: bool, assign: bool) -> _IncompatibleKeys:
    """Load the tree; all faults are gathered and raised as one RuntimeError."""
    if not isinstance(state, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state)}.")
    missing: list[str] = []
    unexpected: list[str] = []
    errors: list[str] = []
    metadata = getattr(state, "_metadata", None)
    copy = _StateDict(state)
    if metadata is not None:
        copy._metadata = metadata     # type: ignore[attr-defined]

    def load(current: Any, entries: Any, prefix: str = "") -> None:
        original = vars(type(current)).get("_flambeau_original")
        if original is not None:
            load(original, _of_original(entries, prefix, unexpected), prefix + ORIGINAL)
            return
        local = {} if metadata is None else metadata.get(prefix[:-1]) or metadata.get(prefix.replace(ORIGINAL, "")[:-1], {})
        if assign:
            local = {**local, "assign_to_params_buffers": True}
        current._load_from_state_dict(entries, prefix, local, True, missing, unexpected, errors)
        for name, child in current._modules.items():
            if child is not None:
                below = f"{prefix}{name}."
                load(child, {k: v for k, v in entries.items() if k.startswith(below)}, below)
        keys = _IncompatibleKeys(missing, unexpected)
        for hook in list(current._load_state_dict_post_hooks.values()):
            if hook(current, keys) is not None:
                raise AssertionError("Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                                     "values, if incompatible_keys need to be modified, it should be done inplace.")

    load(module, copy)
    if strict:
        if unexpected:
            errors.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
        if missing:
            errors.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
    if errors:
        lines = "\n\t".join(errors)
        raise RuntimeError(f"Error(s) in loading state_dict for {type(module).__name__}:\n\t{lines}")
    return _IncompatibleKeys(missing, unexpected)


def _of_original(entries: Any, prefix: str, unexpected: list[str]) -> _StateDict:
    """The entries of a compiled module, as those of the module that was compiled: PyTorch's have `_orig_mod.`, plain ones have not."""
    below = prefix + ORIGINAL
    if not any(key.startswith(below) for key in entries):
        return _StateDict({below + key[len(prefix):]: value for key, value in entries.items()})
    unexpected += [key for key in entries if not key.startswith(below)]
    return _StateDict({key: value for key, value in entries.items() if key.startswith(below)})


def _quoted(keys: list[str]) -> str:
    return ", ".join(f'"{k}"' for k in keys)
