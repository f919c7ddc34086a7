"""What errors say of the call that they end: which argument is wrong, and on what the operator was called."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from ..core.device import device
from ..core.dtypes import FLOAT, dtype
from ..core.tensor import Tensor, shape_of
from ..core.warned import warn

MAY_BE_THE_CALL = (AttributeError, TypeError, ValueError, RuntimeError)
"""What an operator may fail with for an argument that can't stand where it is."""
_SHOWN = 4      # entries of a list


_TOLD = {"getitem_": "getitem", "setitem_": "setitem"}
"""Operators that users don't call by their names."""


class NotANumber(TypeError):
    """An operand is neither a tensor nor a number; `obj` is the operand, by which the operator finds its name."""

    def __init__(self, obj: Any) -> None:
        super().__init__(f"expected a Tensor or a number, got {type(obj).__name__}")
        self.obj = obj


class _Call(str):
    """The note of an error that names the operator; one of an operator further out takes its place."""

    __slots__ = ()


def known(name: str) -> str:
    """The name of an operator as users know it: nn.functional's have a prefix where torch has one of another signature."""
    return _TOLD.get(name) or name.removeprefix("functional_")


def tell(name: str, fn: Callable, args: tuple, kwargs: dict, error: Exception, answered: bool = False) -> None:
    """Raise a TypeError that says what is wrong with the arguments of a call that failed, if that is why; else let the error name the
    call, with shapes and dtypes, in its note. `answered`: by a class that took the call over, which has its own reasons."""
    name = known(name)
    kinds = MAY_BE_THE_CALL[:2] if answered else MAY_BE_THE_CALL
    if isinstance(error, kinds) and (wrong := wrong_argument(name, fn, args, kwargs, error)) is not None:
        raise wrong from None
    if isinstance(error, (IndexError, OverflowError, RuntimeError)) and (kind := _overflows(fn, args, kwargs)) is not None:
        raise kind(f"Overflow when unpacking long long: {called(name, args, kwargs)} has an int of more than 64 bits") from error
    if isinstance(error, IndexError) and str(error) == "tuple index out of range":
        shapes = [list(a.shape) for a in args if isinstance(a, Tensor)]
        raise RuntimeError(f"{name}() expects tensors of more dimensions, got shapes {shapes}") from error
    notes = getattr(error, "__notes__", [])
    if notes and isinstance(notes[-1], _Call):
        notes.pop()
    error.add_note(_Call(f"in {called(name, args, kwargs)}"))


def called(name: str, args: tuple, kwargs: dict) -> str:
    """A call as text: `softmax(float32[2, 3], dim=5)`."""
    return f"{name}({', '.join([*map(shown, args), *(f'{key}={shown(value)}' for key, value in kwargs.items())])})"


def shown(value: Any) -> str:
    """An argument as text: a tensor by its dtype, shape and device, if that is not the CPU; other objects by their class."""
    if isinstance(value, Tensor):
        place = "" if value.device.type == "cpu" else f" on {value.device}"
        return f"{str(value.dtype).removeprefix('torch.')}{list(shape_of(value))}{place}"
    if isinstance(value, (list, tuple)):
        parts = [*map(shown, value[:_SHOWN]), *(["..."] if len(value) > _SHOWN else [])]
        return f"[{', '.join(parts)}]" if isinstance(value, list) else f"({', '.join(parts)}{',' * (len(value) == 1)})"
    return repr(value) if value is None or isinstance(value, (bool, int, float, complex, str, dtype, device)) else type(value).__name__


class _Bare(str):
    """An annotation that a signature prints without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def signature_text(name: str, signature: inspect.Signature) -> str:
    """How a function is called: `sum(input: Tensor, dim: Dims = None, keepdim: bool = False)`."""
    bare = [p.replace(annotation=_Bare(p.annotation)) if isinstance(p.annotation, str) else p for p in signature.parameters.values()]
    return f"{name}{signature.replace(parameters=bare, return_annotation=signature.empty)}"


def is_whole(value: Any) -> bool:
    """Whether a value may stand for an int: a tensor does if it holds one integer."""
    if isinstance(value, Tensor) and not value.is_fake:
        return value.numel() == 1 and value.dtype.category < FLOAT
    return hasattr(type(value), "__index__")


def other_form(name: str, fn: Callable, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
    """A call that failed, in the form that the operator takes, where it has another one that PyTorch takes too."""
    return with_numbers(fn, args, kwargs) or with_factors_last(name, fn, args, kwargs)


_INTEGERS = re.compile(r"^(?!.*Tensor).*\b(int|float|Ints|Dims|Sizes)\b")
"""Annotations of where numbers stand, and no tensors."""


_COUNTS = re.compile(r"^(?!.*(Tensor|float)).*\b(int|Ints|Dims|Sizes)\b")
"""Those of integers alone."""


def with_numbers(fn: Callable, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
    """A call with ints in the places of tensors that hold one integer, where the signature has no tensors; None if there are none."""
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs)
    except TypeError:
        return None
    changed = False
    for name, parameter in inspect.signature(fn).parameters.items():
        value = bound.arguments.get(name)
        if _INTEGERS.search(str(parameter.annotation)) and (number := _whole(value)) is not value:
            bound.arguments[name], changed = number, True
    return (bound.args, bound.kwargs) if changed else None


_FACTORS = ("beta", "alpha", "value")


def with_factors_last(name: str, fn: Callable, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
    """A call in the old form, which has factors before what they multiply (`add(x, 2, y)`), as one that has them as keywords; None if it
    is none."""
    parameters = inspect.signature(fn).parameters.values()
    factors = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name in _FACTORS]
    operands = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    extra = len(args) + sum(operand in kwargs for operand in operands) - len(operands)
    if not 0 < extra <= len(factors) or len(args) < 2 or any(_INTEGERS.search(str(p.annotation)) for p in parameters if p.name in operands):
        return None
    first, *rest = (args[1], args[0], *args[2:]) if "beta" in factors and not isinstance(args[0], Tensor) else args
    numbers, tensors = [_number(a) for a in rest[:extra]], (first, *rest[extra:])
    if None in numbers or not all(isinstance(a, Tensor) for a in tensors):
        return None
    moved = dict(zip(factors, numbers))
    warn(f"{known(name)}() with {' and '.join(moved)} before the tensors is deprecated; give them as keywords, as in "
                  f"{known(name)}({', '.join(operands)}, {', '.join(f'{key}={value}' for key, value in moved.items())})")
    return tensors, {**kwargs, **moved}


def _number(value: Any) -> Any:
    """A number, also out of a tensor of no dimension; None for what is none."""
    if isinstance(value, Tensor):
        return value.item() if value._data is not None and not value.ndim else None
    return value if isinstance(value, (int, float, complex)) else None


def _whole(value: Any) -> Any:
    """The integer that a tensor holds, also of those in a sequence; other values are as they are."""
    if type(value) in (tuple, list):
        numbers = [_whole(v) for v in value]
        return value if all(a is b for a, b in zip(numbers, value)) else type(value)(numbers)
    return int(value) if isinstance(value, Tensor) and value._data is not None and is_whole(value) else value


_MAY_STAND: dict[Any, Callable[[Any], bool]] = {
    "Tensor": lambda value: hasattr(type(value), "__torch_function__"),
    "int": is_whole,
    "bool": lambda value: not isinstance(value, (str, float)) and (not isinstance(value, Tensor) or value.is_fake or value.numel() == 1),
    "dtype": lambda value: isinstance(value, (dtype, type)),
    "Sequence[Tensor]": lambda value: isinstance(value, (tuple, list)) and all(hasattr(type(v), "__torch_function__") for v in value),
    "float | str": lambda value: isinstance(value, str) or hasattr(type(value), "__float__"),
    "tuple[int, int]": lambda value: isinstance(value, (tuple, list)) and all(map(is_whole, value)),
    "float": lambda value: hasattr(type(value), "__float__") and (not isinstance(value, Tensor) or value.is_fake or value.numel() == 1),
}
_MAY_STAND["Dims"] = lambda value: type(value) is not bool and _MAY_STAND["Dims | bool"](value)
_MAY_STAND |= dict.fromkeys(("Sizes", "Sequence[int]", "int | Sequence[int]", "Ints", "Dims | bool"), lambda value: all(
    is_whole(v) for v in (value if isinstance(value, (tuple, list)) else () if value is None else [value])))
"""By annotation: whether a value may stand there."""


def _is_misplaced(value: Any, annotation: Any) -> bool:
    """Whether no value like this may stand where the signature has the annotation."""
    may_stand = _MAY_STAND.get(str(annotation).removesuffix(" | None").removesuffix(" | Absent"))
    return may_stand is not None and not may_stand(value) and (value is not None or annotation in _MAY_STAND)


def _overflows(fn: Callable, args: tuple, kwargs: dict) -> type[Exception] | None:
    """What a call with an int of more than 64 bits is refused by, where the signature has sizes, dimensions or counts: one number as
    a value that is wrong, one of several as no list of ints."""
    signature = inspect.signature(fn)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None
    for key, value in given.items():
        counts = _COUNTS.search(str(signature.parameters[key].annotation))
        if counts and any(type(v) is int and not -1 << 63 <= v < 1 << 64 for v in _within(value)):
            return ValueError if type(value) is int else TypeError
    return None


def _within(value: Any) -> Iterator:
    """An argument, and what it holds if it is a sequence."""
    yield value
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _within(item)


_ASKED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d", "fractional_max_pool2d",
                     "fractional_max_pool3d", "gaussian_nll_loss", "glu", "group_norm", "instance_norm", "interpolate",
                     "local_response_norm", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_unpool2d", "max_unpool3d", "norm", "normalize",
                     "softsign", "stft", "tanhshrink"), ("input",)),
    **dict.fromkeys(("binary_cross_entropy", "binary_cross_entropy_with_logits", "huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss"),
                    ("input", "target")),
    "embedding_bag": ("input", "weight", "offsets", "per_sample_weights"), "linear_cross_entropy": ("input", "linear_weight", "target"),
    "margin_ranking_loss": ("input1", "input2", "target"), "max_unpool1d": ("input", "indices"), "unravel_index": ("indices",),
}
"""The tensors that PyTorch asks for an attribute before it looks at their class: what is none lacks it, an AttributeError."""


def wrong_argument(name: str, fn: Callable, args: tuple, kwargs: dict, error: Exception) -> Exception | None:
    """The error that says what is wrong with a call that failed, if an argument is missing, unknown, or no Tensor or int where the signature
    says so, or if it is the one that is no number or lacked an attribute."""
    def refusal(key: str) -> type[Exception]:
        return AttributeError if key in _ASKED.get(name, ()) else TypeError

    signature = inspect.signature(fn)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    if not takes_any and (unknown := [key for key in kwargs if key not in signature.parameters]):
        return TypeError(f"{name}() got an unexpected keyword argument '{unknown[0]}'; it is called as {signature_text(name, signature)}")
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as unbound:
        if not isinstance(error, MAY_BE_THE_CALL[:2]):
            return None
        return TypeError(f"{name}(): {unbound}; it is called as {signature_text(name, signature)}")
    places = [(position, key, parameter, given.get(key, parameter.default))
              for position, (key, parameter) in enumerate(signature.parameters.items(), 1)]
    for position, key, parameter, found in places:
        several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if key in given and not several and found is not parameter.default and _is_misplaced(found, parameter.annotation):
            return refusal(key)(f"{name}(): argument '{key}' (position {position}) must be {parameter.annotation}, not {type(found).__name__}")
    if isinstance(error, NotANumber):
        for position, key, _, found in places:
            if found is error.obj:
                return refusal(key)(f"{name}(): argument '{key}' (position {position}) must be Tensor or a number, not {type(found).__name__}")
    elif isinstance(error, AttributeError):
        for position, key, parameter, found in places:
            for value in _within(found):
                if value is error.obj and value is not parameter.default and not (
                        isinstance(value, Tensor) and hasattr(Tensor, str(error.name))):
                    return refusal(key)(f"{name}(): argument '{key}' (position {position}) cannot be {type(value).__name__}: it has no "
                                f"{error.name}; the argument is {parameter.annotation}")
    return None


def parameters_in(given: Any, whose: str) -> list:
    """Parameters as a list. TypeError for a module or a method in their place, with what to give instead."""
    try:
        return list(given)
    except TypeError as error:
        if hasattr(given, "parameters"):
            raise TypeError(f"{error}: {whose} takes its parameters, {type(given).__name__}.parameters()") from None
        raise TypeError(f"{error}: {whose} takes what it gives when called, with ()") from None if callable(given) else error
