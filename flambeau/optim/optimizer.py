"""`Optimizer`: parameter groups, per-parameter state, state_dict, hooks."""

from __future__ import annotations

import copy
import functools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, ClassVar

from ..autograd.grad_mode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from ..backends.cuda.recording import under_way
from ..core import dispatch
from ..core.device import CPU, device
from ..core.dtypes import float32, float64
from ..core.memory_format import preserve_format
from ..core.sparse import SparseTensor
from ..core.tensor import Tensor
from ..core.watching import watched
from ..nn.modules.hooks import HookDict, RemovableHandle
from ..ops.creation import tensor, zeros_like
from ..ops.nn.steps import as_number
from ..ops.promotion import default_dtype
from ..ops.telling import parameters_in
from ..ops.views import view_as_real
from ..utils._foreach_utils import _group_tensors_by_device_and_dtype

ParamsT = Iterable[Any]
StateDict = dict[str, Any]

_pre_hooks: HookDict = HookDict()
_post_hooks: HookDict = HookDict()


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def register_optimizer_step_pre_hook(hook: Callable) -> RemovableHandle:
    """`hook(optimizer, args, kwargs)` before the step of every optimizer."""
    return RemovableHandle(_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable) -> RemovableHandle:
    """`hook(optimizer, args, kwargs)` after the step of every optimizer."""
    return RemovableHandle(_post_hooks, hook)


def step_counter(where: device = CPU) -> Tensor:
    """A count of steps as the state_dicts hold it: a 0-dim float tensor."""
    return tensor(0.0, dtype=float64 if default_dtype() is float64 else float32, device=where)


class Optimizer:
    """Base of all optimizers. Subclasses give `defaults` and implement `step`."""

    takes_sparse = False  # whether gradients may be sparse
    last = ""   # the options that stand behind the others in groups and checkpoints, in this order, where it isn't the parameters'

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        if isinstance(lr := defaults.get("lr"), Tensor) and lr.numel() != 1:
            raise ValueError(f"Tensor lr must be 1-element, this one has shape {list(lr.shape)}")
        self.defaults = defaults
        self._hooks()
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                            f"{type(params).__name__}")
        self.state: defaultdict = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = parameters_in(params, type(self).__name__)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(dict(group))

    def _hooks(self) -> None:
        for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
                     "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks",
                     "_optimizer_load_state_dict_post_hooks"):
            if name not in self.__dict__:
                self.__dict__[name] = HookDict()

    def _patch_step_function(self) -> None:
        """What classes around another optimizer call instead of `__init__`: there are hooks then, which `step` calls as of any class."""
        self._hooks()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])     # type: ignore[method-assign]

    _group_tensors_by_device_and_dtype = staticmethod(_group_tensors_by_device_and_dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._hooks()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n" + "".join(f"    {k}: {group[k]}\n" for k in sorted(group) if k != "params")
        return text + ")"

    # -- groups ------------------------------------------------------------------------------------
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own; options left out take the defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of "
                            "tensors in sets will change between runs. Please use a list instead.")
        params = list(params)
        named = [p for p in params if isinstance(p, tuple)]
        if named:
            if len(named) != len(params):
                raise ValueError("all optimizer params should be with/without names. Some param names are missing")
            param_group["param_names"] = [name for name, _ in params]
            params = [p for _, p in params]
        if self.param_groups and ("param_names" in param_group) != ("param_names" in self.param_groups[0]):
            raise ValueError("all optimizer param groups should be with/without names. cannot add param group "
                             f"{'with' if named else 'without'} names to the optimizer")
        param_group["params"] = params
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not self.defaults.get("differentiable") and not (p.is_leaf or getattr(p, "retains_grad", False)):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len({id(p) for p in params}) != len(params):
            warnings.warn("optimizer contains a parameter group with duplicate parameters, which are stepped more than once; this will "
                          "be an error", stacklevel=3)
        taken = {id(p) for group in self.param_groups for p in group["params"]}
        if any(id(p) in taken for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop (or zero) the gradients of all parameters."""
        if dispatch.state.watchers:
            watched(f"Optimizer.zero_grad#{type(self).__name__}.zero_grad", self._zero_grad, (set_to_none,), None, 7)
        else:
            self._zero_grad(set_to_none)

    def _zero_grad(self, set_to_none: bool) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    if p.grad.grad_fn is not None:
                        p.grad = p.grad.detach()
                    p.grad.zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters by their gradients. `closure` computes the loss again and returns it."""
        raise NotImplementedError(f"{type(self).__name__} does not implement step()")

    # -- saving ------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """{'state': per-parameter state by number, 'param_groups': options with the numbers of their parameters}."""
        for hook in list(self._optimizer_state_dict_pre_hooks.values()):     # type: ignore[attr-defined]
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            packed = {k: v for k, v in group.items() if k != "params"}
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {numbers[id(k)] if isinstance(k, Tensor) else k: v for k, v in self.state.items()}
        result: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in list(self._optimizer_state_dict_post_hooks.values()):     # type: ignore[attr-defined]
            answer = hook(self, result)
            result = result if answer is None else answer
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state_dict: groups must have as many parameters as ours. State follows the parameters' dtype and device."""
        state_dict = state_dict.copy()
        for hook in list(self._optimizer_load_state_dict_pre_hooks.values()):     # type: ignore[attr-defined]
            answer = hook(self, state_dict)
            state_dict = state_dict if answer is None else answer
        ours, theirs = self.param_groups, copy.deepcopy(state_dict["param_groups"])
        if len(ours) != len(theirs):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(ours, theirs)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        by_number = dict(zip(chain.from_iterable(g["params"] for g in theirs), chain.from_iterable(g["params"] for g in ours)))
        state: defaultdict = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in by_number:
                state[by_number[key]] = _adopted(by_number[key], value)
            else:
                state[key] = value
        groups = []
        for mine, given in zip(ours, theirs):
            given["params"] = mine["params"]
            if "param_names" in mine and "param_names" not in given:
                given["param_names"] = mine["param_names"]
            groups.append(given)
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in list(self._optimizer_load_state_dict_post_hooks.values()):     # type: ignore[attr-defined]
            hook(self)

    # -- hooks -------------------------------------------------------------------------------------
    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """`hook(optimizer, args, kwargs)` before each step; it may return other (args, kwargs)."""
        return RemovableHandle(self._optimizer_step_pre_hooks, hook)     # type: ignore[attr-defined]

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        """`hook(optimizer, args, kwargs)` after each step."""
        return RemovableHandle(self._optimizer_step_post_hooks, hook)     # type: ignore[attr-defined]

    def register_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer)` before state_dict()."""
        return RemovableHandle(self._optimizer_state_dict_pre_hooks, hook, prepend=prepend)     # type: ignore[attr-defined]

    def register_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer, state_dict)` after state_dict(); it may return another."""
        return RemovableHandle(self._optimizer_state_dict_post_hooks, hook, prepend=prepend)     # type: ignore[attr-defined]

    def register_load_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer, state_dict)` before loading; it may return another."""
        return RemovableHandle(self._optimizer_load_state_dict_pre_hooks, hook, prepend=prepend)     # type: ignore[attr-defined]

    def register_load_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer)` after loading."""
        return RemovableHandle(self._optimizer_load_state_dict_post_hooks, hook, prepend=prepend)     # type: ignore[attr-defined]

    # -- for subclasses ------------------------------------------------------------------------------
    def _with_grad(self, group: dict[str, Any]) -> list[Tensor]:
        """The parameters of a group that have a gradient."""
        found = [p for p in group["params"] if p.grad is not None]
        if not self.takes_sparse and any(type(p.grad) is SparseTensor for p in found):
            raise RuntimeError(f"{type(self).__name__} does not support sparse gradients, please consider SparseAdam, SGD or Adagrad "
                               "instead, or make them dense (sparse=False)")
        return found


def _adopted(param: Tensor, value: Any, key: str | None = None) -> Any:
    """Loaded state as a parameter's own: a copy on its device, floats in its dtype; counters of steps stay as they are."""
    if isinstance(value, Tensor):
        if key == "step":
            return value.detach().clone()
        kind = param.dtype if param.dtype.is_floating_point and value.dtype.is_floating_point else value.dtype
        return value.detach().to(param.device, kind).clone()
    if isinstance(value, dict):
        return {k: _adopted(param, v, k) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_adopted(param, v) for v in value)
    return value


def _with_hooks(step: Callable) -> Callable:
    """`step` with the hooks around it."""
    if getattr(step, "hooked", False):
        return step

    def with_hooks(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        before = getattr(self, "_optimizer_step_pre_hooks", None)
        if before is None:      # a class around another optimizer, whose __init__ doesn't call ours
            return step(self, *args, **kwargs)
        for hook in (*_pre_hooks.values(), *before.values()):
            answer = hook(self, (self, *args), kwargs)
            if answer is not None:
                if not isinstance(answer, tuple) or len(answer) != 2:
                    raise RuntimeError(f"step pre hook must return None or a tuple of (new_args, new_kwargs), but got {answer}.")
                given, kwargs = answer
                args = tuple(given[1:])
        result = step(self, *args, **kwargs)
        for hook in (*self._optimizer_step_post_hooks.values(), *_post_hooks.values()):     # type: ignore[attr-defined]
            hook(self, (self, *args), kwargs)
        return result

    @functools.wraps(step)
    def wrapper(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if dispatch.state.watchers:
            return watched(f"Optimizer.step#{type(self).__name__}.step", with_hooks, (self, *args), kwargs, 7)
        return with_hooks(self, *args, **kwargs)

    wrapper.hooked = True     # type: ignore[attr-defined]
    return wrapper


# By option: what is wrong with a value, and the values that are right.
_BOUNDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "lr": ("Invalid learning rate: {}", lambda lr: isinstance(lr, Tensor) or lr >= 0.0),
    "eps": ("Invalid epsilon value: {}", lambda eps: all(e is None or e >= 0.0 for e in (eps if isinstance(eps, tuple) else (eps,)))),
    "etas": ("Invalid eta values: {0[0]}, {0[1]}", lambda etas: 0.0 < etas[0] < 1.0 < etas[1]),
    "rho": ("Invalid rho value: {}", lambda rho: 0.0 <= rho <= 1.0),
    "d": ("Clipping threshold d should be >= 1 but is: {}", lambda d: d >= 1),
    "beta2_decay": ("beta2_decay should be <= 0 but is: {}", lambda decay: decay <= 0),
    **{name: (f"Invalid {name} value: {{}}", lambda value: value >= 0) for name in (
        "weight_decay", "momentum", "lr_decay", "initial_accumulator_value", "momentum_decay")},
}


def options(arguments: dict[str, Any]) -> dict[str, Any]:
    """The options among a constructor's `locals()`; ValueError for a value out of bounds, RuntimeError for two implementations."""
    found = {name: value for name, value in arguments.items() if name not in ("self", "params", "__class__")}
    found |= {name: found.pop(name) for name in arguments["__class__"].last.split()}
    if found.get("foreach") and found.get("fused"):
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    if found.get("fused") and found.get("differentiable"):
        raise RuntimeError("`fused` does not support `differentiable`")
    for name, value in found.items():
        if name in _BOUNDS and not _BOUNDS[name][1](value):
            raise ValueError(_BOUNDS[name][0].format(value))
    betas = found.get("betas", ())
    if len({isinstance(beta, Tensor) for beta in betas}) > 1:
        raise ValueError("betas must be either both floats or both Tensors")
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
    return found


class GroupOptimizer(Optimizer):
    """An optimizer whose step is one pass over each group: subclasses implement `_step_group`.

    `since`: options that older checkpoints lack, with what they did then.
    """

    since: ClassVar[dict[str, Any]] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.since.items():
                group.setdefault(name, value)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters by their gradients. `closure` computes the loss (with gradients) first; it is returned."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            with set_grad_enabled(bool(group.get("differentiable")) and is_grad_enabled()):
                self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how to step a group")

    def _counter(self, param: Tensor) -> Tensor:
        """A count of steps, on the parameter's device if the optimizer is `capturable`."""
        return step_counter(param.device if self.defaults.get("capturable") else CPU)

    def _begin(self, params: list[Tensor], fields: Mapping[str, Callable[[Tensor], Any]], counted: bool = True) -> bool:
        """Make the states of those parameters that have none, `fields` say how, with a count of steps if `counted`; whether there were any.
        It looks at nothing that a step computes, so that a capture of the first step makes them beforehand."""
        bare = [param for param in params if all(value is None for value in self.state[param].values())]
        for param in bare:
            count = {"step": self._counter(param)} if counted else {}
            self.state[param].update(count | {name: make(param) for name, make in fields.items()})
        return bool(bare)

    def _counted(self, param: Tensor) -> dict[str, Any]:
        """The state of a parameter with its step counted up; complex numbers as pairs."""
        state = self.state[param]
        if param.is_cuda and under_way and not self.defaults.get("capturable"):
            raise RuntimeError(f"Attempting CUDA graph capture of step() for an instance of {type(self).__name__}, whose count of steps "
                               "is on the host and would stand still at each replay; make it with capturable=True")
        if self.defaults.get("differentiable"):     # what the last step left for its gradient stays as it was
            state.update({name: value.clone() for name, value in state.items() if isinstance(value, Tensor)})
        state["step"] += 1
        return {name: as_real(value) for name, value in state.items()} if param.dtype.is_complex else state

    def _each(self, group: dict[str, Any], **fields: Callable[[Tensor], Any]) -> Iterator[tuple[Tensor, Tensor, dict[str, Any]]]:
        """(parameter, gradient to descend, state) of those that have a gradient; a decoupled weight decay is done here.

        A complex number is a pair of real ones, in all three: a step looks at the parts apart.
        """
        decoupled, decay = group.get("decoupled_weight_decay"), group.get("weight_decay")
        params = self._with_grad(group)
        self._begin(params, fields)
        for param in params:
            p, g = as_real(param), as_real(param.grad)
            g = -g if group.get("maximize") else g
            if decay and not decoupled:
                g = g.add(p, alpha=decay)
            elif decay:
                p.mul_(1 - as_number(group["lr"]) * decay)
            yield p, g, self._counted(param)

    def _refuse_complex(self, params: list[Tensor]) -> None:
        """RuntimeError where a step has no meaning for pairs of real numbers."""
        if any(p.dtype.is_complex for p in params):
            raise RuntimeError(f"{type(self).__name__} does not support complex parameters")


def as_real(value: Any) -> Any:
    """A complex tensor as pairs of real numbers in the same memory; anything else as it is."""
    return view_as_real(value) if isinstance(value, Tensor) and value.dtype.is_complex and type(value) is not SparseTensor else value


def zeros(param: Tensor) -> Tensor:
    """Zeros in the shape and memory order of `param`."""
    return zeros_like(param.detach(), memory_format=preserve_format)


def filled(param: Tensor, value: Any) -> Tensor:
    """`value` in the shape and memory order of `param`; in both parts of complex numbers."""
    made = zeros(param)
    as_real(made).add_(value)
    return made


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """The types of devices whose steps a CUDA graph may record."""
    return ["cuda", "xpu", "hpu", "privateuseone", *["xla"] * supports_xla]


def _default_to_fused_or_foreach(params: Any, differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
    """(fused, foreach) where nobody chose: neither on a CPU; foreach for parameters that all lie on GPUs."""
    on_gpu = not differentiable and all(p is None or p.device.type == "cuda" for p in params)
    return use_fused and on_gpu, on_gpu and not use_fused


def _use_grad_for_differentiable(func: Callable) -> Callable:
    """Decorate a `step`: gradients are recorded if the optimizer is `differentiable`."""
    @functools.wraps(func)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        with enable_grad() if self.defaults["differentiable"] else no_grad():
            return func(self, *args, **kwargs)

    return step
