"""What `help(torch.softmax)` and `torch.softmax?` show: the line that is written with an operator, and what its record and a call tell.

Composed when it is looked at, so that nothing of it can be stale: the signature, what each parameter means (one vocabulary for all), the
errors that the body raises, the facets of the record, the dtypes that a call was tried with, and an example that was run.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import flambeau as torch

from .core import dispatch
from .ops.examples import EXAMPLES
from .ops.registry import is_operator
from .ops.telling import signature_text

VOCABULARY = {
    "input": "the tensor", "self": "the tensor", "x": "the tensor", "other": "a tensor that broadcasts with the first, or a number",
    "dim": "the dimension, or several where it is a reduction; negative ones count from the end",
    "dims": "dimensions or sizes, one by one or as one sequence",
    "dim0": "a dimension", "dim1": "another dimension", "keepdim": "whether reduced dimensions stay, of one element",
    "dtype": "what the result's elements are; None: as the operands say",
    "device": "where the result lies: 'cpu', 'cuda', 'cuda:1', 'meta'",
    "out": "a tensor that the result is written into", "layout": "torch.strided, or a sparse layout",
    "requires_grad": "whether gradients of the result are kept", "pin_memory": "whether a GPU can copy from it directly",
    "memory_format": "the order in memory: torch.contiguous_format, torch.channels_last, ...",
    "size": "the shape, as a tuple or number by number", "shape": "the shape", "generator": "where random numbers come from",
    "weight": "the weights", "bias": "what is added at the end, one number a channel; None: nothing", "stride": "steps of the window",
    "padding": "how far the border is extended on each side", "dilation": "distance between the window's elements",
    "groups": "into how many parts the channels are split, each with weights of its own", "kernel_size": "size of the window",
    "ceil_mode": "whether the output size is rounded up", "output_size": "size of the result", "eps": "what is added against division by 0",
    "target": "what should have come out", "reduction": "'none', 'mean' or 'sum' over all elements",
    "size_average": "old form of `reduction`", "reduce": "old form of `reduction`, or how values that meet are combined",
    "p": "the probability, or the norm's power", "training": "whether it is training: else nothing random happens",
    "inplace": "whether the input is overwritten", "alpha": "a factor of the second operand", "beta": "a factor of the first operand",
    "value": "a factor, or what is filled in", "index": "positions along `dim`, integers", "indices": "positions, integers",
    "src": "what is written", "source": "what is written", "tensors": "a sequence of tensors", "mask": "truth values: where",
    "min": "the least value; None: none", "max": "the largest value; None: none", "start": "the first value", "end": "where it stops",
    "step": "the distance from one to the next", "steps": "how many", "n": "a number", "k": "how many, or which diagonal",
    "diagonal": "which diagonal: 0 is the main one, above it positive", "offset": "how far from the beginning or the main diagonal",
    "upper": "whether the upper triangle counts", "A": "a matrix, or a batch of them", "B": "a matrix, or a batch of them",
    "mode": "which way it is done", "align_corners": "whether the corner elements' centres are kept",
    "running_mean": "mean of each channel so far", "running_var": "variance of each channel so far", "momentum": "weight of what is new",
    "fill_value": "the value of all elements", "rounding_mode": "None, 'trunc' (towards 0) or 'floor'",
    "correction": "what is taken off the "
    "number of elements", "unbiased": "whether one is taken off the number of elements", "axis": "`dim`, as NumPy calls it",
    "in_features": "length of an input vector", "out_features": "length of an output vector", "in_channels": "channels of the input",
    "out_channels": "channels of the result", "num_features": "channels", "num_embeddings": "how many rows",
    "embedding_dim": "length of a row",
    "normalized_shape": "the last dimensions, over which it is normalised", "params": "parameters, or dictionaries that group them",
    "lr": "the learning rate", "weight_decay": "how strongly weights are pulled towards 0", "betas": "decay of the running averages",
}
"""What a parameter's name means, wherever it stands."""

SPACES = ("", "nn.functional", "linalg", "fft", "special", "nn", "optim")
ATTEMPTS = 300


_VECTOR, _MATRIX = "torch.tensor([0.5, 1.0, 2.0])", "torch.tensor([[2.0, 1.0], [1.0, 3.0]])"
_TENSORS = (_VECTOR, _MATRIX, "torch.tensor([1, 0, 2])", "torch.tensor([True, False, True])", "torch.tensor([[0, 1], [1, 0]])",
            "torch.ones(1, 2, 4)", "torch.ones(1, 2, 4, 4)", "torch.ones(2, 2, 2)", "torch.ones(1, 1, 4, 4, 4)", "torch.tensor(2.0)",
            "torch.tensor([1 + 2j, 3 - 1j])")
_BY_KIND = {
    "Tensor": _TENSORS, "int": ("1", "2", "0", "3"), "float": ("0.5", "2.0"), "bool": ("True",), "str": ("'mean'",),
    "Sizes": ("2", "(2, 2)"), "Sequence[int]": ("(0,)", "(2, 2)", "(1, 0)"), "Sequence[Tensor]": (f"[{_VECTOR}, {_VECTOR}]",),
    "Any": ("2", "(2,)", *_TENSORS[:3]), "dtype": ("torch.float64",), "list": (f"[{_VECTOR}, {_VECTOR}]",),
    "Ints": ("2", "0"), "tuple": ("(2,)", "(0,)"),
}


def path(of: Any) -> str | None:
    """The public name: `torch.nn.functional.relu`, or None for what is a method alone."""
    prefix, _, short = of.__name__.partition("_")
    for space, name in ((prefix if prefix in SPACES else "", short), *((space, of.__name__) for space in SPACES)):
        room = functools.reduce(getattr, filter(None, space.split(".")), torch)
        if name and vars(room).get(name) is of:
            return ".".join(filter(None, ("torch", space, name)))
    return None


class Example(NamedTuple):
    """A call that was run, and the arguments that were found for it, of which others can be made."""

    call: str
    arguments: list[str]
    result: Any

    def lines(self) -> list[str]:
        return [f">>> {self.call}", *repr(self.result).splitlines()]


def written_example(name: str) -> Example | None:
    """The one that is written for this name, run."""
    call = EXAMPLES.get(name)
    return None if call is None else Example(call, [], attempt(lambda: eval(call, {"torch": torch}), []))


def _candidates(p: inspect.Parameter) -> tuple[str, ...]:
    if p.name in ("input", "self", "other"):
        return _TENSORS
    kind = str(p.annotation).replace(" | None", "").replace(" | Absent", "")
    return _BY_KIND.get(kind, _BY_KIND["Any"])


@functools.cache
def example(of: Callable) -> Example | None:
    """A call of an operator with small arguments that it takes; None where none of those that are tried fits."""
    if (written := written_example(of.__name__)) is not None:
        return written
    where = path(of)
    required = [p for p in inspect.signature(of).parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    for texts in itertools.islice(itertools.product(*map(_candidates, required)), ATTEMPTS):
        arguments = list(texts)
        call = f"{where}({', '.join(arguments)})" if where else f"{texts[0]}.{of.__name__}({', '.join(texts[1:])})" if texts else ""
        result = attempt(of, arguments)
        if result is not None and len(repr(result)) < 600 and repr(result) == repr(attempt(of, arguments)):
            return Example(call, arguments, result)
    return None


@functools.cache
def module_example(of: type) -> Example | None:
    """A module that is made and called, and the shape that it gives; None where nothing that is tried fits."""
    required = [p for p in inspect.signature(of).parameters.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    if (written := written_example(of.__name__)) is not None:
        return written
    at = len(required)
    inputs = [(x,) for x in _TENSORS] + list(itertools.product(_TENSORS[:5], repeat=2)) + [(_VECTOR,) * 3]
    for given, texts in itertools.islice(itertools.product(inputs, itertools.product(*map(_candidates, required))), ATTEMPTS):
        result = attempt(lambda *values: of(*values[:at])(*values[at:]), (*texts, *given))
        first = result[0] if isinstance(result, tuple) else result
        if isinstance(first, torch.Tensor):
            call = f"{path(of)}({', '.join(texts)})({', '.join(given)}){'[0]' * isinstance(result, tuple)}.shape"
            return Example(call, [*texts, *given], first.shape)
    return None


def attempt(of: Callable, arguments: Sequence[str], change: Callable[[Any], Any] = lambda value: value) -> Any:
    """What a call gives, with its tensors changed; None where it raises, or gives NaN."""
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("error")
        torch.manual_seed(0)
        try:
            result = of(*(change(eval(text, {"torch": torch})) for text in arguments))
        except Exception:
            return None
    return None if "nan" in repr(result) else result


def _cast(kind: Any) -> Callable[[Any], Any]:
    return lambda value: value.to(kind) if isinstance(value, torch.Tensor) and value.dtype is torch.float32 else value


def dtypes(of: Callable, one: Example) -> Iterator[str]:
    """What comes of tensors of each kind of number."""
    if not any("0.5" in text or "2.0" in text for text in one.arguments):
        return
    for kind in (torch.bool, torch.int64, torch.float32, torch.complex64):
        found = attempt(of, one.arguments, _cast(kind))
        first = found[0] if isinstance(found, (tuple, list)) and found else found
        yield f"{short(kind)} -> {short(first.dtype)}" if isinstance(first, torch.Tensor) else f"{short(kind)}: refused"


def short(kind: Any) -> str:
    return str(kind).removeprefix("torch.")


def differentiable(of: Callable, one: Example) -> bool:
    """Whether what a call gives can be differentiated for its floating point arguments."""
    def leaf(value: Any) -> Any:
        return value.requires_grad_() if isinstance(value, torch.Tensor) and value.dtype.is_floating_point else value

    found = attempt(of, one.arguments, leaf)
    return any(isinstance(part, torch.Tensor) and part.requires_grad for part in (found if isinstance(found, (tuple, list)) else [found]))


def raised(body: Callable) -> Iterator[str]:
    """The errors that a body raises by itself: `RuntimeError: what is said`."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(body))))
    except (OSError, TypeError, SyntaxError, IndentationError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            said = node.exc.args[0] if node.exc.args else None
            yield f"{node.exc.func.id}: {_said(said)}" if isinstance(said, (ast.Constant, ast.JoinedStr)) else node.exc.func.id


def _said(text: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(text, ast.Constant):
        return str(text.value)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else f"<{ast.unparse(part.value)}>" for part in text.values
                   if isinstance(part, (ast.Constant, ast.FormattedValue)))


def facts(of: Any, one: Example | None) -> Iterator[str]:
    """What the record of an operator says of it."""
    info = of._operator
    methods = [f"Tensor.{name}" for name in info.methods if not name.startswith("__")]
    if methods:
        yield f"Methods: {', '.join(methods)}"
    if hasattr(torch.Tensor, f"{of.__name__}_"):
        yield f"In place: Tensor.{of.__name__}_"
    if one is not None and one.arguments:
        if found := list(dtypes(of, one)):
            yield f"Dtypes: {', '.join(found)}"
        rule = "a rule of its own" if info.vjp is not None else "that of its steps"
        yield f"Gradient: {rule if differentiable(of, one) else 'none'}"
    if info.autocast:
        yield f"Autocast: {', '.join(f'{device} {what}' for device, what in info.autocast.items())}"
    if info.lowering or info.fused:
        yield f"Compiled: {f'kept whole ({info.lowering})' if info.lowering else 'one generated kernel, eager too where it is large'}"


def section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{title}:", *(f"    {line}" for line in lines)]) if lines else ""


def text(of: Any, written: str) -> str:
    """The whole docstring: `written`, and what can be told of the function or class."""
    with dispatch.grad_enabled(True):
        return _text(of, inspect.cleandoc(written))


@functools.cache
def _text(of: Any, written: str) -> str:
    try:
        signature = inspect.signature(of)
    except (TypeError, ValueError):
        return written
    known = [f"{name}: {VOCABULARY[name]}" for name in signature.parameters if name in VOCABULARY]
    parts = [written, signature_text(path(of) or of.__name__, signature), section("Parameters", known)]
    if is_operator(of):
        one = example(of)
        parts.append("\n".join(facts(of, one)))
        parts.append(section("Raises", list(dict.fromkeys(raised(of._operator.body)))))
        if one is not None:
            parts.append(section("Example", one.lines()))
    elif isinstance(of, type):
        parts.append(section("Raises", list(dict.fromkeys(raised(of.__init__)))))     # type: ignore[misc]
        if issubclass(of, torch.nn.Module) and (one := module_example(of)) is not None:    # type: ignore[arg-type]
            parts.append(section("Example", one.lines()))
    return "\n\n".join(filter(None, parts))
