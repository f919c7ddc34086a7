"""Selective activation checkpointing: a policy says which results the first run keeps, so that the second need not compute them."""

from __future__ import annotations

import contextlib
import enum
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..core import dispatch
from ..core.tensor import Tensor
from ..ops import aten
from ..ops.custom import CustomOperator
from .graph import bare, version_to_save


class CheckpointPolicy(enum.Enum):
    """What becomes of an operator's result. MUST and PREFER differ where something else also decides; here nothing does."""

    MUST_SAVE, PREFER_SAVE, MUST_RECOMPUTE, PREFER_RECOMPUTE, MUST_CPU_OFFLOAD, PREFER_CPU_OFFLOAD = range(6)


SAC_IGNORED_OPS = {aten.AtenOperator("detach")}
"""Operators that no policy is asked about, and whose results neither run keeps. Sizes and strides are no operators here."""

_RECOMPUTED = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)
_OFFLOADED = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)


class SelectiveCheckpointContext:
    """What a policy is told beside the operator and its arguments: the result, `op_output`."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output


class _Kept:
    """A result that the second run takes over."""

    def __init__(self, tensor: Tensor, offload: bool) -> None:
        self.device, self.version = tensor.device, version_to_save(tensor)
        self.tensor = tensor.cpu() if offload else bare(tensor)

    def get(self, may_change: bool) -> Tensor:
        if not may_change and self.tensor.device == self.device and self.tensor._version != self.version:
            raise RuntimeError("Tensor cached during selective activation checkpoint has been mutated; pass "
                               "allow_cache_entry_mutation=True to create_selective_checkpoint_contexts if that is meant")
        return bare(self.tensor.to(self.device))


class _Run:
    """A mode, entered once for each run: calls are known by the operator and how many of it came before."""

    def __init__(self, kept: dict[tuple, Any]) -> None:
        self.kept = kept

    def __enter__(self) -> None:
        self.seen: Counter = Counter()
        self.scope = dispatch.push_mode(self)
        self.scope.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.scope.__exit__(*error)

    def handle(self, prim: Any, args: tuple) -> Any:
        """Views and writes are always done again: they cost no memory, or are wanted for what they change."""
        if prim.kind in ("view", "inplace"):
            return dispatch.run(prim, args)
        op = aten.name_of(prim, args)
        if op in SAC_IGNORED_OPS:
            return dispatch.run(prim, args)
        self.seen[op] += 1
        return self.result(prim, args, op, (op, self.seen[op]))

    def result(self, prim: Any, args: tuple, op: Any, key: tuple) -> Any:
        raise NotImplementedError


class _First(_Run):
    def __init__(self, kept: dict[tuple, Any], policy: Callable) -> None:
        super().__init__(kept)
        self.policy = policy

    def result(self, prim: Any, args: tuple, op: Any, key: tuple) -> Any:
        out = dispatch.run(prim, args)
        choice = self.policy(SelectiveCheckpointContext(is_recompute=False, op_output=out), op, *args)
        if isinstance(choice, bool):
            choice = CheckpointPolicy.MUST_SAVE if choice else CheckpointPolicy.PREFER_RECOMPUTE
        if choice not in _RECOMPUTED:
            self.kept[key] = _mapped(lambda t: _Kept(t, choice in _OFFLOADED), out)
        return out


class _Second(_Run):
    def __init__(self, kept: dict[tuple, Any], may_change: bool) -> None:
        super().__init__(kept)
        self.may_change = may_change

    def result(self, prim: Any, args: tuple, op: Any, key: tuple) -> Any:
        if key not in self.kept:
            return dispatch.run(prim, args)
        return _mapped(lambda kept: kept.get(self.may_change), self.kept[key])


def _mapped(fn: Callable, values: Any) -> Any:
    return tuple(map(fn, values)) if isinstance(values, tuple) else fn(values)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[contextlib.AbstractContextManager, contextlib.AbstractContextManager]:
    """What `checkpoint(..., context_fn=functools.partial(create_selective_checkpoint_contexts, policy))` needs.

    `policy(ctx, op, *args)` answers with a CheckpointPolicy for each operator that the first run computes; a list names the operators
    whose results are kept. An operator is `torch.ops.aten.NAME.default` or one of the program's own; it stands for what Flambeau
    computes in one step, so that a linear layer is `aten.addmm` (`aten.mm` without bias) whatever the shape of its input.
    """
    if isinstance(policy_fn_or_list, (list, tuple)):
        for op in policy_fn_or_list:
            if not isinstance(op, (aten.AtenOperator, CustomOperator)):
                raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}. ")
        chosen = frozenset(policy_fn_or_list)
        policy: Callable = lambda ctx, op, *args: op in chosen  # noqa: E731
    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    kept: dict[tuple, Any] = {}
    return _First(kept, policy), _Second(kept, allow_cache_entry_mutation)
