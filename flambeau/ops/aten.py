"""`torch.ops.aten.NAME`: the names under which selective checkpointing and flop counts tell of operators.

One handle stands for all overloads of an operator, and is equal to each. Calling it calls the operator of the table, or, where ATen's
arguments are others, the form of `aten_forms.py`; an overload takes the arguments of its own signature (`aten_schemas.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core import dispatch
from ..core.schema import FunctionSchema
from ..core.tensor import Tensor
from .aten_forms import FORMS
from .aten_schemas import behind, operation, overload_of, schema_of, schemas
from .custom import CustomOperator
from .registry import COMPOSITES, OPERATORS, PRIMITIVES, without_top_mode
from .telling import wrong_argument


class AtenOperator:
    """`aten.mm`, and `aten.mm.default` as well."""

    namespace = "aten"

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return f"aten.{self.__name__}"

    def __getattr__(self, overload: str) -> AtenOperator:
        if overload.startswith("_") or overload == "overload_name":
            raise AttributeError(overload)
        found = schema_of(self.__name__, overload)
        return self if found is None else _overload(found)

    def name(self) -> str:
        """`aten::mm`."""
        return f"aten::{self.__name__}"

    @property
    def overloadpacket(self) -> AtenOperator:
        """The operator, which a step that ATen hasn't in this form is itself."""
        return _handle(self.__name__)

    _overloadpacket = overloadpacket

    def overloads(self) -> list[str]:
        """The names of its overloads."""
        return [s.overload_name or "default" for s in schemas().get(self.__name__, ())]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AtenOperator):
            return NotImplemented
        mine, theirs = (vars(op).get("_overloadname") for op in (self, other))
        return self.__name__ == other.__name__ and (mine == theirs or mine is None or theirs is None)

    def __hash__(self) -> int:
        return hash(self.__name__)

    def __reduce__(self) -> Any:
        return _named, (self.__name__, vars(self).get("_overloadname"))

    def resolve(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Callable, Sequence[Any], Mapping[str, Any]]:
        """What a call of it is a call of: (a form or an operator of the table, args, kwargs)."""
        form = FORMS.get(self.__name__)
        if form is not None:
            return form, args, kwargs
        fn = behind(self.__name__)
        if fn is None:
            raise NotImplementedError(f"{self} is only a name here; call the function of torch that it belongs to")
        return fn, args, kwargs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fn, args, kwargs = self.resolve(args, kwargs)       # type: ignore[assignment]
        try:
            return fn(*args, **kwargs)
        except (TypeError, AttributeError) as error:
            told = wrong_argument(repr(self), fn, args, kwargs, error)
            if told is None and "(): argument '" not in str(error):
                raise
            raise RuntimeError(str(told or error)) from None       # as ATen says of a call that no overload fits


class Overload(AtenOperator):
    """`aten.add.Tensor`: one signature of an operator, which calls and graphs have."""

    def __init__(self, schema: FunctionSchema) -> None:
        super().__init__(schema.operator)
        self._schema, self._overloadname = schema, schema.overload_name or "default"
        self.public_name = f"ops.{self!r}"

    def __repr__(self) -> str:
        return f"aten.{self.__name__}.{self._overloadname}"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self!r} has no attribute {name!r}")

    def name(self) -> str:
        """`aten::add.Tensor`."""
        return f"aten::{self.__name__}" + ("" if self._overloadname == "default" else f".{self._overloadname}")

    def resolve(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Callable, Sequence[Any], Mapping[str, Any]]:
        """What a call of it is a call of; its own arguments are bound to the operator's."""
        return super().resolve(args, kwargs) if self.__name__ in FORMS else operation(self._schema, args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        modes = dispatch.state.function_modes
        if modes and hasattr(modes[-1], "overload"):     # a recorder, which writes down what was called
            with without_top_mode():
                return modes[-1].overload(self, args, kwargs)
        return super().__call__(*args, **kwargs)


def whole_layers() -> bool:
    """Whether what runs is written down by someone who wants a recurrent network's layers as one operator."""
    modes = dispatch.state.function_modes
    return bool(modes) and getattr(modes[-1], "whole_layers", False)


@functools.cache
def _overload(schema: FunctionSchema) -> Overload:
    return Overload(schema)


def overload_named(name: str) -> Overload:
    """`aten.NAME.OVERLOAD` by name; without an overload the default one, or the only one."""
    operator, _, overload = name.partition(".")
    known = schemas().get(operator, [])
    found = schema_of(operator, overload or "default") or (known[0] if len(known) == 1 and not overload else None)
    if found is None:
        raise AttributeError(f"torch.ops.aten has no overload {name!r}")
    return _overload(found)


def overload_target(fn: Callable, args: tuple, kwargs: dict) -> tuple[Overload, list, dict] | None:
    """What a call of an operator of the table is in ATen: (overload, args, kwargs); None if it is no call of ATen's."""
    found = overload_of(fn._operator.name, fn, args, kwargs)    # type: ignore[attr-defined]
    return None if found is None else (_overload(found[0]), *found[1:])


_BESIDE_NUMBERS = ("add", "sub", "mul", "div")
"""Of these the overload of two tensors is told of a tensor and a number, too, as the operators `+ - * /` of Python call it."""


@dataclass(frozen=True)
class Step:
    """What a call among several gives."""

    which: int


def steps_of(prim: Any, args: tuple) -> tuple[list[tuple[Callable, tuple, dict]], Any]:
    """What a call is in ATen where its record says so by `steps`: calls of overloads, each of which may take what those before it give,
    as `Step(which)`, and which of them give its result (of several results, a tuple)."""
    calls: list[tuple[Callable, tuple, dict]] = []

    def call(name: str | Callable, *given: Any, **named: Any) -> Step:
        calls.append((overload_named(name) if isinstance(name, str) else name, given, named))
        return Step(len(calls) - 1)

    return calls, None if prim.aten.steps is None else prim.aten.steps(call, *args)


def step_target(handle: AtenOperator, prim: Any, args: tuple) -> tuple[Overload, tuple, dict] | None:
    """What a call of a primitive is in ATen: (overload, args, kwargs); None if none of ATen's says the same."""
    if len(steps := steps_of(prim, args)[0]) == 1:
        return steps[0]     # type: ignore[return-value]
    call = prim.aten.call
    if callable(call):
        told = call(*args)
        found = None if told is None else overload_of(told[0], OPERATORS[told[0]], told[1], told[2])
    else:
        found = overload_of(handle.__name__, prim, args, {}) if call or not prim.aten.name else None
    if found is None or ((found[0].overload_name != "Tensor" or found[0].operator not in _BESIDE_NUMBERS) and any(
            a.kind == "Tensor" and not isinstance(v, Tensor) for a, v in zip(found[0].arguments, found[1]))):
        return None     # a number in a tensor's place
    return _overload(found[0]), tuple(found[1]), found[2]


def _named(name: str, overload: str | None) -> AtenOperator:
    return _handle(name) if overload is None else getattr(_handle(name), overload)


# Operators of aten's that libraries name (to say what to do at them) and that no record here is called.
_NAMED = frozenset((
    "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_conj", "_convert_weight_to_int4pack",
    "_convert_weight_to_int4pack_for_cpu", "_dyn_quant_matmul_4bit", "_dyn_quant_pack_4bit_weight", "_efficientzerotensor",
    "_efficient_attention_forward",
    "_embedding_bag_forward_only", "_flash_attention_forward", "_fused_adam", "_int_mm", "_is_all_true", "_mkldnn_transpose", "_nnz",
    "_pin_memory", "_reshape_alias", "_reshape_copy", "_scaled_dot_product_cudnn_attention_backward", "_scaled_mm", "_scaled_mm_v2",
    "_sparse_addmm", "_sparse_mm_reduce_impl", "_unsafe_index", "_weight_int4pack_mm",
    "_weight_int4pack_mm_for_cpu", "_weight_int4pack_mm_with_scales_and_zeros", "binary_cross_entropy_backward", "col_indices",
    "convolution_overrideable", "crow_indices", "cudnn_batch_norm", "detach_", "dim", "div_mode", "hardswish_backward",
    "hardtanh_backward", "is_contiguous", "is_non_overlapping_and_dense", "is_pinned", "is_strides_like_format",
    "leaky_relu_backward", "lift", "miopen_batch_norm", "mkldnn_linear", "native_dropout_backward", "native_group_norm_backward",
    "prim_device", "record_stream", "rrelu_with_noise", "set_", "slice_backward", "sym_constrain_range_for_size", "sym_is_contiguous",
    "transpose_", "values",
))
# Forms of attention that are one operator here.
_ATTENTION = dict.fromkeys(("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
                            "_scaled_dot_product_flash_attention_for_cpu"), "_scaled_dot_product_flash_attention")


@functools.cache
def _handle(name: str) -> AtenOperator:
    return AtenOperator(name)


def _names_record(name: str) -> bool:
    return any(r.aten.name == name for table in (PRIMITIVES, COMPOSITES) for r in table.values())


def __getattr__(name: str) -> AtenOperator:
    tables = (OPERATORS, PRIMITIVES, FORMS, _ATTENTION, _NAMED, schemas())
    if name.startswith("__") or not (any(name in table for table in tables) or _names_record(name)):
        raise AttributeError(f"torch.ops.aten has no operator {name!r}")
    return _handle(_ATTENTION.get(name, name))


def name_of(record: Any, args: tuple) -> AtenOperator | CustomOperator:
    """What a call that a mode sees is called."""
    owner = getattr(record, "owner", None)
    if owner is not None:
        return owner
    name = record.aten.name
    return _handle((name if isinstance(name, str) else name(*args)) or record.name)
