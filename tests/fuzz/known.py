"""Differences that stay: where torch is wrong, or where Flambeau's own choice is documented. Each has its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .program import Step


@dataclass(frozen=True)
class Known:
    """An excuse: for errors a predicate over (ours, torch's, step), for values one over the step, for layouts (strides, offset,
    memory shared), versions, gradients and the indices of equal elements one over the step too; for all that a step does one over the
    step and torch's result."""

    reason: str
    error: Callable[[BaseException | None, BaseException | None, Step], bool] | None = None
    values: Callable[[Step], bool] | None = None
    layout: Callable[[Step], bool] | None = None
    version: Callable[[Step], bool] | None = None
    gradient: Callable[[Step], bool] | None = None
    index: Callable[[Step], bool] | None = None
    whole: Callable[[Step, Any], bool] | None = None


def _says(error: BaseException | None, *words: str) -> bool:
    return error is not None and any(word in str(error) for word in words)


def _of(*names: str) -> Callable[[Step], bool]:
    return lambda step: step.op.rpartition(".")[2] in names


KNOWN = (
    Known(
        "torch has no kernel for this dtype on the CPU; Flambeau computes it",
        error=lambda ours, theirs, step: (
            ours is None
            and _says(
                theirs,
                "not implemented for",
                "not supported",
                "does not support",
                "not support",
                "nsupported dtype",
                "INTERNAL ASSERT",
                "expected scalar type",
            )
        ),
    ),
    Known(
        "Flambeau names what it leaves out",
        error=lambda ours, theirs, step: isinstance(ours, NotImplementedError) and theirs is not None,
    ),
    Known(
        "torch's parser refuses an argument by its type before the operator sees it; Flambeau takes what Python's own rules take, and "
        "refuses the rest with an exception of the step that could not use it",
        error=lambda ours, theirs, step: isinstance(theirs, TypeError) and not isinstance(ours, AttributeError),
    ),
    Known(
        "torch still writes through expanded tensors in operators where it warns that it will refuse",
        error=lambda ours, theirs, step: theirs is None and _says(ours, "more than one element of the written-to tensor"),
    ),
    Known(
        "torch takes NumPy's bool for a float, not for a bool; what comes of it is not compared",
        whole=lambda step, theirs: "numpy.bool_(" in step.code(),
    ),
    Known("whether 3-D convolutions of torch lie channels last hangs on the dtype, the batch and the number of threads; Flambeau's do "
          "where the weight or the batch does", layout=_of("conv3d", "conv_transpose3d")),
    Known("torch judges an image of four dimensions without a batch as a batch of images without depth, and refuses it",
          error=lambda ours, theirs, step: _says(theirs, "Unsupported memory format. Supports only ChannelsLast3d")),
    Known("a conjugate is computed, never a view that waits", layout=_of("mH", "H", "adjoint", "conj", "imag")),
    Known("a truth value written in place has no gradient; torch gives zeros for a comparison's operands, and passes a logical operation's",
          gradient=_of(*[name + "_" for name in ("eq", "ne", "lt", "le", "gt", "ge", "equal", "not_equal", "less", "less_equal", "greater",
                                                 "greater_equal", "logical_not", "logical_and", "logical_or", "logical_xor")])),
    Known("Flambeau knows derivatives that torch lacks, or that torch gives up because of a write of its own",
          gradient=lambda step: "_polynomial_" in step.op or "bessel" in step.op or step.op.endswith("vander")),
    Known("torch's derivative is wrong: of ldexp 2**-n in integers, of polar by the sign of the length, of hardsigmoid a sixth in float32",
          gradient=_of("ldexp", "ldexp_", "polar", "hardsigmoid")),
    Known("norm(p=0) counts: its gradient is zeros here and None in torch", gradient=_of("norm", "renorm", "dist")),
    Known(
        "torch's Python stumbles over an argument of a wrong type; Flambeau says which",
        error=lambda ours, theirs, step: isinstance(theirs, AttributeError) and isinstance(ours, TypeError),
    ),
    Known(
        "torch's deprecated calls with a number before the tensors that it scales, of which it warns",
        error=lambda ours, theirs, step: (
            _says(ours, "too many positional arguments") and _of(*(n + e for n in ("add", "sub", "addcmul", "addcdiv", "addmm", "addmv",
                  "addr", "baddbmm", "addbmm", "subtract") for e in ("", "_")))(step)
        ),
    ),
    Known(
        "torch computes garbage for matrices of narrow floats (the exponential of the identity is negative there)",
        error=lambda ours, theirs, step: isinstance(ours, NotImplementedError) and _of("matrix_exp")(step),
    ),
    Known(
        "there is no complex dtype of two float16",
        whole=lambda step, theirs: "complex32" in str(getattr(theirs, "dtype", "")),
        error=lambda ours, theirs, step: _says(ours, "view_as_complex is only supported for float and double"),
    ),
    Known("which of several equal elements is meant is nobody's promise", index=_of("topk", "kthvalue", "mode", "median", "nanmedian")),
    Known(
        "torch copies the gaps between the elements of a sliced tensor too",
        layout=_of("slice_scatter", "select_scatter", "diagonal_scatter"),
    ),
    Known("torch writes running statistics without counting it as a write", version=_of("batch_norm", "instance_norm")),
)


def excuses_step(step: Step, theirs: Any) -> bool:
    return any(k.whole is not None and k.whole(step, theirs) for k in KNOWN)


def excuses_version(step: Step) -> bool:
    return any(k.version is not None and k.version(step) for k in KNOWN)


def excuses_layout(step: Step) -> bool:
    return any(k.layout is not None and k.layout(step) for k in KNOWN)


def excuses_error(ours: BaseException | None, theirs: BaseException | None, step: Step) -> bool:
    return any(k.error is not None and k.error(ours, theirs, step) for k in KNOWN)


def excuses_gradients(step: Step) -> bool:
    return any(k.gradient is not None and k.gradient(step) for k in KNOWN)


def excuses_values(step: Step) -> bool:
    return any(k.values is not None and k.values(step) for k in KNOWN)


def excuses_index(step: Step, name: str) -> bool:
    """Whether `name` is the second result of a step, of which it is free which of several indices it holds."""
    return name == f"{step.target}[1]" and any(k.index is not None and k.index(step) for k in KNOWN)


def excuses_backward(ours: BaseException | None, theirs: BaseException | None) -> bool:
    """Flambeau keeps less for the backward pass than torch, so that programs run which torch refuses."""
    return ours is None and _says(theirs, "modified by an inplace operation", "derivative for", "not implemented for")
