"""torch.nn.utils.prune: parameters with some of their elements held at zero.

A pruned `weight` is made anew before every forward, by a hook, from the parameter `weight_orig` and the buffer `weight_mask`. The hook is
the pruning method itself; several on one parameter are kept together in a `PruningContainer`, each pruning what the ones before left.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from ... import cat, no_grad, ones_like, rand, rand_like
from ...core.tensor import Tensor
from ..modules.module import Module


class BasePruningMethod(ABC):
    """A way to choose a mask. Subclasses give `compute_mask` and `PRUNING_TYPE`: "unstructured", "structured" (then with `dim`) or
    "global"."""

    _tensor_name: str
    PRUNING_TYPE: str

    def __call__(self, module: Module, inputs: Any) -> None:
        """The hook: the masked parameter, before each forward. It changes no inputs."""
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """A mask for `t`, whose elements' importance is in it, on top of `default_mask`."""

    def apply_mask(self, module: Module) -> Tensor:
        """The parameter times its mask."""
        if not hasattr(self, "_tensor_name"):
            raise AssertionError(f"Module {module} has to be pruned")
        mask, orig = getattr(module, f"{self._tensor_name}_mask"), getattr(module, f"{self._tensor_name}_orig")
        return mask.to(orig.dtype) * orig

    @classmethod
    def apply(cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any) -> Any:
        """Prune parameter `name` of a module by this method, made with the other arguments; the method, or the container of all."""
        before = _method_of(module, name)
        method = cls(*args, **kwargs)
        method._tensor_name = name
        given = getattr(module, name)
        orig = given if before is None else getattr(module, f"{name}_orig")
        if importance_scores is not None and importance_scores.shape != orig.shape:
            raise AssertionError(f"importance_scores should have the same shape as parameter {name} of {module}: got "
                                 f"{list(importance_scores.shape)} and {list(orig.shape)}")
        scores = orig if importance_scores is None else importance_scores
        default = ones_like(orig) if before is None else getattr(module, f"{name}_mask").detach()
        hook = method
        if before is not None:
            hook = PruningContainer(*(before if isinstance(before, PruningContainer) else (before,)))
            hook.add_pruning_method(method)
        with no_grad():
            mask = hook.compute_mask(scores, default)
        if before is None:
            del module._parameters[name]
            module.register_parameter(f"{name}_orig", orig)
            module.register_buffer(f"{name}_mask", mask)
        else:
            setattr(module, f"{name}_mask", mask)
            _drop_hook(module, name)
        setattr(module, name, hook.apply_mask(module))
        module.register_forward_pre_hook(hook)
        return hook

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A pruned copy of a tensor that belongs to no module."""
        if importance_scores is not None and importance_scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t: got "
                                 f"{list(importance_scores.shape)} and {list(t.shape)}")
        default = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(t if importance_scores is None else importance_scores, default)

    def remove(self, module: Module) -> None:
        """Make the pruning permanent: the parameter has its name again, and zeros. The hook is the caller's to take out (`remove`)."""
        name = self._tensor_name
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        orig = module._parameters.pop(f"{name}_orig")
        assert orig is not None
        orig.data = weight.data
        del module._buffers[f"{name}_mask"]
        setattr(module, name, orig)


def _hooks(module: Module, name: str) -> Iterator[Any]:
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            yield key


def _method_of(module: Module, name: str) -> BasePruningMethod | None:
    found = [module._forward_pre_hooks[key] for key in _hooks(module, name)]
    if len(found) > 1:
        raise AssertionError(f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. Use a PruningContainer.")
    return found[0] if found else None


def _drop_hook(module: Module, name: str) -> None:
    for key in list(_hooks(module, name)):
        del module._forward_pre_hooks[key]


class PruningContainer(BasePruningMethod):
    """Several methods for one parameter, in the order in which they are applied."""

    def __init__(self, *args: Any):
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if len(args) == 1 and not isinstance(args[0], Iterable):
            self._tensor_name = args[0]._tensor_name
        elif args:
            self._tensor_name = next(iter(args))._tensor_name
        for method in args[0] if len(args) == 1 and isinstance(args[0], Iterable) else args:
            self._tensor_name = method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """One more method, for the same parameter. TypeError for what is none."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise ValueError("Can only add pruning methods acting on the parameter named "
                             f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'")
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of the last method, which sees what `default_mask` leaves of `t`."""
        method = self._pruning_methods[-1]
        left = self._left(method, t, default_mask)
        mask = default_mask.clone()
        mask[left] = method.compute_mask(t[left], default_mask[left]).to(mask.dtype)
        return mask

    @staticmethod
    def _left(method: Any, t: Tensor, mask: Tensor) -> Any:
        """An index of what is not pruned yet, as far as this kind of method can tell it apart."""
        if method.PRUNING_TYPE == "unstructured":
            return mask == 1
        if method.PRUNING_TYPE == "global":
            return (slice(None),) * t.ndim
        if method.PRUNING_TYPE != "structured":
            raise AttributeError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}; it is one of unstructured, structured, global")
        if not hasattr(method, "dim"):
            raise AttributeError("Pruning methods of PRUNING_TYPE 'structured' need to have the attribute `dim` defined.")
        dim = method.dim % t.ndim
        others = [d for d in range(t.ndim) if d != dim]
        return (slice(None),) * dim + (mask.sum(others) != 0,)


class Identity(BasePruningMethod):
    """Prunes nothing, but has a mask."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The default."""
        return default_mask if default_mask.shape == t.shape else ones_like(t)

    @classmethod
    def apply(cls, module: Module, name: str) -> Any:  # type: ignore[override]
        """Prune parameter `name` of a module by a mask of ones."""
        return super().apply(module, name)


class _ByAmount(BasePruningMethod):
    """Prunes an `amount`: a share, or a number of elements or channels."""

    def __init__(self, amount: float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def count(self, size: int) -> int:
        """How many of `size` are to be pruned."""
        found = _compute_nparams_toprune(self.amount, size)
        _validate_pruning_amount(found, size)
        return found


class RandomUnstructured(_ByAmount):
    """Prunes elements at random."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The default, without some elements more."""
        return _without_largest(default_mask, rand_like(t), self.count(t.numel()), True)

    @classmethod
    def apply(cls, module: Module, name: str, amount: float) -> Any:  # type: ignore[override]
        """Prune parameter `name` of a module."""
        return super().apply(module, name, amount)


class L1Unstructured(_ByAmount):
    """Prunes the elements of the smallest magnitude."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The default, without the smallest elements."""
        return _without_largest(default_mask, t.abs(), self.count(t.numel()), False)

    @classmethod
    def apply(cls, module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Any:  # type: ignore[override]
        """Prune parameter `name` of a module."""
        return super().apply(module, name, amount, importance_scores=importance_scores)


def _without_largest(mask: Tensor, scores: Tensor, count: int, largest: bool) -> Tensor:
    if not count:
        return mask.clone()
    flat = mask.clone().reshape(-1)
    flat[scores.reshape(-1).topk(count, largest=largest).indices] = 0
    return flat.reshape(mask.shape)


class _ByChannel(_ByAmount):
    """Prunes whole channels, along `dim`."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def importance(self, t: Tensor) -> Tensor:
        """How much each channel counts."""
        raise NotImplementedError(f"{type(self).__name__} has to say what a channel counts")

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The default, without the channels that count least."""
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        count = self.count(t.shape[self.dim])
        if not count:
            return default_mask
        kept = t.new_zeros(t.shape[self.dim])
        kept[self.importance(t).topk(t.shape[self.dim] - count).indices] = 1
        shape = [1] * t.ndim
        shape[self.dim] = -1
        return default_mask * kept.reshape(shape).to(default_mask.dtype)


class RandomStructured(_ByChannel):
    """Prunes channels at random."""

    def importance(self, t: Tensor) -> Tensor:
        """Random numbers."""
        return rand(t.shape[self.dim])

    @classmethod
    def apply(cls, module: Module, name: str, amount: float, dim: int = -1) -> Any:  # type: ignore[override]
        """Prune parameter `name` of a module."""
        return super().apply(module, name, amount, dim=dim)


class LnStructured(_ByChannel):
    """Prunes the channels of the smallest norm."""

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def importance(self, t: Tensor) -> Tensor:
        """The norms."""
        return _compute_norm(t, self.n, self.dim)

    @classmethod
    def apply(cls, module: Module, name: str, amount: float, n: Any, dim: int,  # type: ignore[override]
              importance_scores: Tensor | None = None) -> Any:
        """Prune parameter `name` of a module."""
        return super().apply(module, name, amount, n, dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Prunes by a mask that is given."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The default where the mask is not zero."""
        if default_mask.shape != self.mask.shape:
            raise AssertionError(f"default_mask shape {default_mask.shape} must match self.mask shape {self.mask.shape}")
        return default_mask * self.mask.to(default_mask.dtype).to(t.device)

    @classmethod
    def apply(cls, module: Module, name: str, mask: Tensor) -> Any:  # type: ignore[override]
        """Prune parameter `name` of a module."""
        return super().apply(module, name, mask=mask)


# -- functions ---------------------------------------------------------------------------------------------------------------------
def identity(module: Module, name: str) -> Module:
    """A mask of ones for a parameter. The module, as from all of these."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prune `amount` of a parameter's elements, a share or a number, at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Module:
    """Prune the elements of the smallest magnitude (of themselves, or of `importance_scores`)."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prune channels along `dim` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None) -> Module:
    """Prune the channels along `dim` of the smallest `n`-norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune a parameter where `mask` is zero."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters: Any, pruning_method: Any, importance_scores: dict | None = None, **kwargs: Any) -> None:
    """Prune several parameters, (module, name) each, as if they were one: `pruning_method` is a class, made with `kwargs`."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    pairs = list(parameters)
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method {pruning_method} of type '
                        f"{method.PRUNING_TYPE}")
    flat = cat([scores.get(pair, getattr(*pair)).detach().reshape(-1) for pair in pairs])
    masks = [getattr(module, f"{name}_mask", ones_like(getattr(module, name))).detach() for module, name in pairs]
    method._tensor_name = "several"
    mask = PruningContainer(method).compute_mask(flat, cat([m.reshape(-1) for m in masks]))
    for (module, name), part in zip(pairs, mask.split([m.numel() for m in masks])):
        custom_from_mask(module, name, part.reshape(getattr(module, name).shape))


def remove(module: Module, name: str) -> Module:
    """Make the pruning of a parameter permanent: no hook, no mask any more."""
    method = _method_of(module, name)
    if method is None:
        raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    method.remove(module)
    _drop_hook(module, name)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one within it, is pruned."""
    return any(isinstance(hook, BasePruningMethod) for m in module.modules() for hook in m._forward_pre_hooks.values())


# -- checks ------------------------------------------------------------------------------------------------------------------------
def _validate_pruning_amount_init(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if float(amount) < 0 or (not _is_count(amount) and float(amount) > 1):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _is_count(amount: Any) -> bool:
    return isinstance(amount, numbers.Integral)


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    if _is_count(amount) and amount > tensor_size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    return int(amount) if _is_count(amount) else round(amount * tensor_size)


def _validate_structured_pruning(t: Tensor) -> None:
    if t.ndim <= 1:
        raise ValueError("Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
                         f"{t.shape} with {t.ndim} dims")


def _validate_pruning_dim(t: Tensor, dim: int) -> None:
    if not -t.ndim <= dim < t.ndim:
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


def _compute_norm(t: Tensor, n: Any, dim: int) -> Tensor:
    return t.norm(p=n, dim=[d for d in range(t.ndim) if d != dim % t.ndim])
