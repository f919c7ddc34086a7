"""The catalogue of graph breaks: every refusal of capture has its kind here, in words a user knows.

`graph_break(kind, context, ...)` is the only way to make one. A kind gives the standing explanation and the way out; the
place that breaks adds the context (which function, which value).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from traceback import FrameSummary
from typing import NoReturn

from .exceptions import GraphBreak, UncapturedHigherOrderOpError, Unsupported


@dataclass(frozen=True)
class Kind:
    explanation: str
    hints: tuple[str, ...] = ()
    error: type[Exception] = Unsupported
    """What is raised where graphs must not break."""


_DISABLE = "If it need not be compiled, decorate it with @torch.compiler.disable to make the break explicit."
_MOVE = "Move it out of the compiled function."

KINDS: dict[str, Kind] = {
    "explicit graph break": Kind("The program asked for it: torch._dynamo.graph_break()."),
    "data-dependent branch": Kind(
        "A Python branch depends on the values in a tensor, which are known only when the graph runs.",
        ("Use torch.where or a mask instead of `if`.", "Branch on shapes or Python numbers instead of tensor values."),
    ),
    "tensor to Python value": Kind(
        "A tensor's contents are read into Python (item, tolist, int, float, numpy ...); they are known only when the graph runs.",
        ("Keep the value as a 0-dim tensor.", _MOVE),
    ),
    "random number as a Python value": Kind(
        "Python draws a number whose value the program needs, to branch or to count; it is known only when the program runs.",
        ("Draw it outside of the compiled function, or use torch.rand.", _MOVE),
    ),
    "print or logging": Kind(
        "Output has to happen when the program runs, between two graphs.",
        ("Remove the call or put it outside of the compiled function.",),
    ),
    "call of disabled function": Kind("The function is marked with torch.compiler.disable."),
    "call of C function": Kind(
        "The function is written in C and capture has no model of it, so it is called between two graphs.",
        (_MOVE, _DISABLE),
    ),
    "call of unknown object": Kind("Capture doesn't know how to call an object of this type.", (_MOVE, _DISABLE)),
    "call of skipped function": Kind("The function belongs to a module that is never captured.", (_DISABLE,)),
    "call of generator": Kind(
        "The function is a generator or coroutine that leaves the compiled function.",
        ("Consume the generator inside of the compiled function, or return a list.",),
    ),
    "recursion": Kind("The calls nest too deeply to be inlined.", ("Use a loop.",)),
    "unknown attribute": Kind("Capture can't tell what this attribute access does.", (_MOVE,)),
    "unknown operation": Kind("Capture has no model of this operation on these types.", (_MOVE,)),
    "unknown value": Kind("Capture has no model of this kind of value.", (_MOVE,)),
    "unknown iterable": Kind("Capture can't iterate over this object.", ("Turn it into a list or tuple first.",)),
    "iterator escapes": Kind(
        "A half-used iterator or generator leaves the captured part of the program.",
        ("Use a list or tuple instead of the iterator.",),
    ),
    "value can't be rebuilt": Kind(
        "A value made during capture has to exist outside of the graph, and capture can't rebuild it.", (_MOVE,)
    ),
    "unsupported instruction": Kind("Capture has no model of this bytecode instruction.", (_MOVE,)),
    "unknown context manager": Kind(
        "Capture can't enter this context manager.", ("Enter it outside of the compiled function.", _DISABLE)
    ),
    "exception": Kind(
        "The traced program raises an exception that leaves the function; the function is run eagerly so that the "
        "traceback is the program's own."
    ),
    "operator failed on fake tensors": Kind(
        "The operator refused these shapes, dtypes or arguments; it is run eagerly so that the error is the program's own."
    ),
    "data-dependent operator": Kind(
        "The shape of the result depends on the values in a tensor, which are known only when the graph runs.",
        ("Use torch.where or a mask of constant shape.",),
    ),
    "data-dependent size": Kind("A size is computed from the values in a tensor."),
    "autograd inside a compiled function": Kind(
        "backward() and autograd.grad() run between two graphs.",
        ("Compile the forward and the loss; call backward outside of the compiled function.",),
    ),
    "fake tensor": Kind(
        "The function is called with a tensor that has a shape but no data, by somebody who traces it or asks for shapes, so "
        "its operators are called one by one."
    ),
    "sparse tensor": Kind(
        "The function is called with a tensor in a sparse layout, which graphs do not hold, so its operators are called one by one.",
        ("Pass the indices and values, and build the sparse tensor in a function of its own.",),
    ),
    "nested tensor": Kind(
        "The function is called with a nested tensor, which graphs do not hold, so its operators are called one by one.",
        ("Pass the values and offsets, and build the nested tensor in a function of its own.",),
    ),
    "conjugate or negative view": Kind(
        "The function is called with a tensor whose memory holds the conjugates or negatives of its elements, which compiled code does not "
        "expect, so its operators are called one by one.",
        ("Pass x.resolve_conj() or x.resolve_neg().",),
    ),
    "frame inspection": Kind("The program looks at its own Python frame, so the frame has to be a real one."),
    "trace too long": Kind(
        "Capture went through more instructions and elements than config.max_trace_steps.", ("Loops are unrolled: compile the loop's body.",)
    ),
    "loop with a graph break": Kind(
        "There is a graph break inside a for or while loop, so the loop runs as a Python loop, and each round of it is compiled as "
        "a function of its own.",
    ),
    "context manager with a graph break": Kind(
        "There is a graph break inside a with block whose context manager is a generator (contextlib.contextmanager), so the "
        "generator runs as ordinary Python, and the block is compiled by itself.",
    ),
    "except block with a graph break": Kind(
        "There is a graph break in an except or finally block, so the statement that raises runs as ordinary Python, and the block "
        "is compiled by itself.",
    ),
    "break inside a loop": Kind(
        "There is a graph break inside a loop that can't be taken apart, so the function that holds the loop runs as ordinary "
        "Python; the functions that it calls are still captured.",
        ("Move the loop's body into a function of its own, or compile that function.",),
    ),
    "higher-order operator": Kind(
        "A function that an operator calls once, often or never must change nothing, give new tensors, and do nothing that breaks a graph.",
        ("Return x.clone() instead of x.", "Do what has an effect outside of the operator."),
        UncapturedHigherOrderOpError,
    ),
    "random state": Kind("Python's or NumPy's random numbers change at each call.", ("Use torch's random functions.",)),
    "global state": Kind(
        "The function reads or changes what holds for the whole process, such as the state of random numbers, so it is called between "
        "two graphs.",
        (_MOVE,),
    ),
}


@dataclass
class Break:
    """One graph break, as `explain` and the logs show it."""

    kind: str
    context: str
    explanation: str
    hints: tuple[str, ...]
    stack: tuple[tuple[str, int, str, str], ...] = field(default=())
    """The user's frames, `(filename, line, function, source line)`, innermost last."""

    cause: Break | None = None
    """The break inside that this one is made around."""

    @property
    def innermost(self) -> Break:
        """What the program did that capture has no model of."""
        return self if self.cause is None else self.cause.innermost

    @property
    def where(self) -> str:
        if not self.stack:
            return "?"
        filename, line, function, _ = self.stack[-1]
        return f"{filename}:{line} in {function}"

    @property
    def reason(self) -> str:
        """What broke the graph, why, and the ways out."""
        return "\n".join([f"{self.kind}: {self.context}", f"  {self.explanation}", *(f"  way out: {hint}" for hint in self.hints)])

    @property
    def user_stack(self) -> list[FrameSummary]:
        """The user's frames, innermost last."""
        return [FrameSummary(filename, line, function, line=text) for filename, line, function, text in self.stack]

    def __str__(self) -> str:
        lines = [self.reason]
        for filename, line, function, text in self.stack:
            lines.append(f'  File "{filename}", line {line}, in {function}')
            if text:
                lines.append(f"    {text}")
        return "\n".join(lines)


def describe(kind: str, context: str, explanation: str | None = None, hints: tuple[str, ...] | None = None) -> Break:
    """The record of a break of a catalogued kind."""
    standing = KINDS[kind]
    return Break(kind, context, explanation or standing.explanation, standing.hints if hints is None else hints)


def graph_break(kind: str, context: str, explanation: str | None = None, hints: tuple[str, ...] | None = None) -> NoReturn:
    """Stop capture here: what was captured so far becomes a graph, and `context` is done by plain Python."""
    raise GraphBreak(describe(kind, context, explanation, hints))
