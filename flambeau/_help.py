"""What `help(torch.softmax)` and `torch.softmax?` show: the line that is written with a function or class, and what it and a call tell.

Composed when it is looked at, so that nothing of it can be stale: the signature, what each parameter means (one vocabulary for all), the
shapes and dtypes that a call was tried with, the errors that the body raises, the facets of an operator's record, and an example that was run.
"""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import itertools
import linecache
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import flambeau as torch

from ._examples import EXAMPLES as LIBRARIES
from ._vocabulary import VOCABULARY
from .core import dispatch
from .ops.examples import EXAMPLES
from .ops.help import SPACES
from .ops.registry import is_operator
from .ops.telling import signature_text

ATTEMPTS, MOST_ERRORS = 300, 8
TRIED = ("Tensor", "nn.functional", "linalg", "fft", "special", "nn.init", "signal.windows", "sparse", "masked", "distributions.transforms")
"""Namespaces of functions that may be called to see what they give: they change nothing but their arguments."""



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


SHOWN = ("cuda", "accelerator", "distributed", "distributed.fsdp", "distributed.tensor", "nn.parallel", "multiprocessing", "hub", "onnx",
         "export", "compiler", "jit", "library", "package", "profiler", "utils.tensorboard", "utils.benchmark", "serialization")
"""Namespaces whose examples are shown, and not run: they need a GPU or other processes, write files, or change what the program does."""
ASKS = re.compile(r"(is|get|has|current|list|max|memory|host_memory|device|default|reset|empty|ipc)_\w+|"
                  r"initial_seed|seed|init|synchronize|\w+_(handle|available|enabled|memory_used|snapshot)")
"""Names of what is asked without arguments."""

BY_NAME = dict.fromkeys(("input", "self", "other"), _TENSORS) | {
    "params": ("[torch.nn.Parameter(torch.ones(2))]",), "optimizer": ("torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)",),
    "tensor": ("torch.empty(2, 3)",), "M": ("4",),
} | dict.fromkeys(("loc", "scale", "rate", "concentration", "concentration0", "concentration1", "df", "df1", "df2", "alpha", "total_count",
                   "temperature"), ("2.0", _VECTOR)) | dict.fromkeys(("low", "probs"), ("0.25", _VECTOR))
FORMS: tuple[tuple[Callable[[], type], str], ...] = (
    (lambda: torch.optim.Optimizer, "{}.param_groups[0]['lr']"), (lambda: torch.optim.lr_scheduler.LRScheduler, "{}.get_last_lr()"),
    (lambda: torch.distributions.Distribution, "{}.sample((2,)).shape"),
    (lambda: torch.distributions.Transform, "{}(torch.tensor([0.5, 1.0]))"),
)
"""How an object of a class is looked at."""


def path(of: Any) -> str | None:
    """The public name: `torch.nn.functional.relu`; by the name that it has there, or any."""
    own = getattr(of, "__name__", "")
    prefix, _, short = own.partition("_")
    if prefix and prefix in SPACES:
        getattr(torch, prefix)      # a namespace loads on first use
    loaded = {space: sys.modules.get(f"{__package__}.{space}".rstrip(".")) for space in (*SPACES, prefix)}
    rooms: dict[str, Mapping[str, Any]] = {space: vars(room) for space, room in loaded.items() if room is not None}
    rooms["Tensor"] = vars(torch.Tensor)
    for space, name in ((prefix, short), *((space, own) for space in rooms)):
        if name and name[0] != "_" and rooms.get(space, {}).get(name) is of:
            return ".".join(filter(None, ("torch", space, name)))
    found = ((space, name) for space, names in rooms.items() for name, value in names.items() if value is of and name[0] != "_")
    return next((".".join(filter(None, ("torch", *names))) for names in found), None)


class Example(NamedTuple):
    """Statements that were run, and what the last one gives. Its outermost call is taken apart: `function(*arguments)`."""

    code: str
    result: Any
    function: str = ""
    arguments: Sequence[str] = ()

    def lines(self) -> list[str]:
        return [*(f">>> {line}" for line in self.code.splitlines()), *([] if self.result is None else repr(self.result).splitlines())]


def made(code: str) -> Example | None:
    """The example that some statements are, run; None where they fail."""
    try:
        *before, last = ast.parse(code).body
        result = run(code)
    except Exception:
        return None
    call: ast.expr | None = last.value if isinstance(last, ast.Expr) else None
    while isinstance(call, (ast.Attribute, ast.Subscript)):      # f(x)[0].shape
        call = call.value
    if before or not isinstance(call, ast.Call):
        return Example(code, result)
    function, arguments = ast.unparse(call.func), [*map(ast.unparse, call.args), *(f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords)]
    if isinstance(call.func, ast.Attribute) and not re.fullmatch(r"[\w.]+", function):      # of an object: x.sum(0)
        function, arguments = f"lambda self, *args, **named: self.{call.func.attr}(*args, **named)", [ast.unparse(call.func.value), *arguments]
    return Example(code, result, function, arguments)


def run(code: str) -> Any:
    """What the last of some statements gives, if it is an expression; what others draw and warn of is as it was."""
    tree = ast.parse(code)
    linecache.cache["<example>"] = (len(code), None, code.splitlines(keepends=True), "<example>")   # torch.jit.script reads sources
    last = tree.body.pop()
    if not isinstance(last, ast.Expr):
        tree.body.append(last)
    names = {"torch": torch}
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("error")
        torch.manual_seed(0)
        exec(compile(tree, "<example>", "exec"), names)
        return eval(compile(ast.Expression(last.value), "<example>", "eval"), names) if isinstance(last, ast.Expr) else None


def _candidates(p: inspect.Parameter) -> tuple[str, ...]:
    if p.name in BY_NAME:
        return BY_NAME[p.name]
    kind = str(p.annotation).replace(" | None", "").replace(" | Absent", "")
    return _BY_KIND.get(kind, _BY_KIND["Any"])


def _required(of: Any) -> list[inspect.Parameter]:
    return [p for p in inspect.signature(of).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


@functools.cache
def example(of: Any) -> Example | None:
    """A call that was run: the one that is written, or else one with small arguments that fit; None where none of those that are tried does."""
    where = path(of)
    space, _, name = str(where).removeprefix("torch.").rpartition(".")
    lazily = LIBRARIES[""].get(name) if getattr(torch, name, None) is of else None      # a name that loads on first use
    code = LIBRARIES.get(space, {}).get(name) or lazily or EXAMPLES.get(of.__name__)
    if code is not None:
        code = code.replace("~", str(where))
        return Example(code, None) if space in SHOWN or "cuda" in code else made(code)
    if not isinstance(of, type) and ASKS.match(name) and not _required(of):
        return Example(f"{where}()", None) if space in SHOWN else made(f"{where}()")
    if isinstance(of, type) and issubclass(of, torch.nn.Module):
        return _module_example(of) if where else None
    form = next((form for kind, form in FORMS if isinstance(of, type) and issubclass(of, kind())), None)
    if form is None and not is_operator(of) and space not in TRIED:
        return None
    for texts in itertools.islice(itertools.product(*map(_candidates, _required(of))), ATTEMPTS):
        method = space == "Tensor" or where is None
        call = f"{where}({', '.join(texts)})" if not method else f"{texts[0]}.{name or of.__name__}({', '.join(texts[1:])})" if texts else ""
        found = attempt(form.format(call) if form else call)
        if found is not None and (form or (len(repr(found.result)) < 600 and repr(found.result) == repr(run(found.code)))):
            return found
    return None


def _module_example(of: type) -> Example | None:
    """A module that is made and called, and the shape that it gives."""
    required = [p for p in _required(of) if p.kind is p.POSITIONAL_OR_KEYWORD]
    inputs = [(x,) for x in _TENSORS] + list(itertools.product(_TENSORS[:5], repeat=2)) + [(_VECTOR,) * 3]
    for given, texts in itertools.islice(itertools.product(inputs, itertools.product(*map(_candidates, required))), ATTEMPTS):
        call = f"{path(of)}({', '.join(texts)})({', '.join(given)})"
        found = attempt(call)
        if found is not None and isinstance(found.result, (torch.Tensor, tuple)):
            return made(f"{call}{'[0]' * isinstance(found.result, tuple)}.shape")
    return None


def attempt(code: str) -> Example | None:
    """The example that a call is; None where it raises, or gives NaN."""
    found = made(code) if code else None
    try:
        return None if found is None or found.result is None or "nan" in repr(found.result) else found
    except Exception:       # what cannot be shown yet, such as a parameter without a shape
        return None


def _flat(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _flat(part)


def called(one: Example, change: Callable[[torch.Tensor], Any] = lambda value: value) -> Any:
    """What the call of an example gives, with its tensors changed; None where it raises, or gives NaN."""
    code = f"(lambda *given, **named: ({one.function})(*change(given), **change(named)))({', '.join(one.arguments)})"

    def changed(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return change(value)
        if isinstance(value, dict):
            return {key: changed(part) for key, part in value.items()}
        return type(value)(map(changed, value)) if type(value) in (list, tuple) else value

    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("error")
            torch.manual_seed(0)
            found = eval(code, {"torch": torch, "change": changed})
    except Exception:
        return None
    return None if "nan" in repr(found) else found


def shapes(one: Example) -> str:
    """The shapes of the tensors that the call of an example takes and gives: `(3,), (2, 2) -> (2, 3)`."""
    taken: list[torch.Tensor] = []
    given = list(_flat(called(one, lambda tensor: taken.append(tensor) or tensor)))     # type: ignore[func-returns-value]
    text = ["?" if t.is_nested else str(tuple(t.shape)) for t in (*taken, *given)]
    return f"{', '.join(text[:len(taken)])} -> {', '.join(text[len(taken):])}".strip() if text else ""


def dtypes(one: Example) -> Iterator[str]:
    """What comes of tensors of each kind of number in the place of those in float32."""
    floats: list[torch.Tensor] = []
    plain = list(_flat(called(one, lambda tensor: floats.append(tensor) or tensor)))    # type: ignore[func-returns-value]
    if not any(tensor.dtype is torch.float32 for tensor in floats):
        if plain or floats:
            yield f"{', '.join(short(t.dtype) for t in floats)} -> {', '.join(short(t.dtype) for t in plain)}".strip()
        return
    for kind in (torch.bool, torch.int64, torch.float32, torch.float64, torch.complex64):
        found = called(one, lambda value, kind=kind: value.to(kind) if value.dtype is torch.float32 else value)     # type: ignore[misc]
        first = next(_flat(found), found)
        yield (f"{short(kind)}: refused" if found is None else
               f"{short(kind)} -> {short(first.dtype) if isinstance(first, torch.Tensor) else type(first).__name__}")


def short(kind: Any) -> str:
    return str(kind).removeprefix("torch.")


def differentiable(one: Example) -> bool:
    """Whether what a call gives can be differentiated for its floating point arguments."""
    found = called(one, lambda value: value.detach().requires_grad_() if value.dtype.is_floating_point else value)
    return any(part.requires_grad for part in _flat(found))


def raised(body: Callable, depth: int = 2, seen: frozenset[CodeType] = frozenset()) -> Iterator[str]:
    """The errors that a body raises, and what it calls of its room: `RuntimeError: what is said`."""
    body = inspect.unwrap(body)
    code = getattr(body, "__code__", None)
    if code is None or code in seen:
        return
    for node in ast.walk(_source(body)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            said = node.exc.args[0] if node.exc.args else None
            yield f"{node.exc.func.id}: {_said(said)}" if isinstance(said, (ast.Constant, ast.JoinedStr)) else node.exc.func.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and depth:
            helper = body.__globals__.get(node.func.id)
            if isinstance(helper, FunctionType) and helper.__module__.startswith(str(__package__)):
                yield from raised(helper, depth - 1, seen | {code})


def _source(body: Callable) -> ast.AST:
    """A function's statements, without its decorators."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(body))).body[0]
    except (OSError, TypeError, SyntaxError):
        return ast.Module([], [])
    return ast.Module(tree.body, []) if isinstance(tree, ast.FunctionDef) else tree


def _said(text: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(text, ast.Constant):
        return str(text.value)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else f"<{_name(part.value)}>" for part in text.values
                   if isinstance(part, (ast.Constant, ast.FormattedValue)))


def _name(value: ast.expr) -> str:
    """An expression in a text, if it is short enough to say something."""
    text = ast.unparse(value)
    return text if len(text) < 30 else "..."


def facts(of: Any, one: Example | None) -> Iterator[str]:
    """What the record of an operator says of it."""
    info = of._operator
    methods = [f"Tensor.{name}" for name in info.methods if not name.startswith("__")]
    if methods:
        yield f"Methods: {', '.join(methods)}"
    if hasattr(torch.Tensor, f"{of.__name__}_"):
        yield f"In place: Tensor.{of.__name__}_"
    if one is not None and one.arguments:
        rule = "a rule of its own" if info.vjp is not None else "that of its steps"
        yield f"Gradient: {rule if differentiable(one) else 'none'}"
    if info.autocast:
        yield f"Autocast: {', '.join(f'{device} {what}' for device, what in info.autocast.items())}"
    if info.library or info.fused:
        yield f"Compiled: {f'kept whole ({info.library})' if info.library else 'one generated kernel, eager too where it is large'}"


def tried(one: Example | None) -> Iterator[str]:
    """The shapes and dtypes of a call."""
    if one is not None and one.function and (seen := shapes(one)):
        yield f"Shapes: {seen}"
        yield f"Dtypes: {', '.join(dtypes(one))}"


def told(name: str, p: inspect.Parameter) -> str:
    """What a parameter is: by its name, or else its type; and its value where none is given."""
    kind = "" if p.annotation is p.empty else p.annotation if isinstance(p.annotation, str) else inspect.formatannotation(p.annotation)
    meaning = VOCABULARY.get(name) or f"{name.strip('_').replace('_', ' ')}{f' ({kind})' if kind not in ('', 'Any') else ''}"
    default = f"; {p.default!r} if not given" if isinstance(p.default, (bool, int, float, str, tuple)) else ""
    return f"{name}: {meaning}{default}"


def errors(of: Any) -> list[str]:
    """The errors of a function, or of making an object of a class."""
    bodies = [of._operator.body] if is_operator(of) else [of] if not isinstance(of, type) else [
        body for name in ("__new__", "__init__", "__post_init__", "forward", "__call__") for owner in of.__mro__
        if owner.__module__.startswith(str(__package__)) and isinstance(body := vars(owner).get(name), FunctionType)]
    found = list(dict.fromkeys(line for body in bodies for line in raised(body)))
    return found[:MOST_ERRORS] or ["nothing of its own; TypeError for arguments that do not fit the signature"]


def section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{title}:", *(f"    {line}" for line in lines)]) if lines else ""


def text(of: Any, written: str) -> str:
    """The whole docstring: `written`, and what can be told of the function or class."""
    with dispatch.grad_enabled(True):
        return _text(of, inspect.cleandoc(written))


@functools.cache
def _text(of: Any, written: str) -> str:
    if isinstance(of, type) and issubclass(of, enum.Enum):
        return "\n\n".join((written, section("Members", [member.name for member in of])))
    if isinstance(of, type) and issubclass(of, BaseException):
        return written
    try:
        signature = inspect.signature(of)
    except (TypeError, ValueError):     # a class of C's
        signature = inspect.Signature()
    known = [told(name, p) for name, p in signature.parameters.items() if name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    one = example(of)
    recorded = list(facts(of, one)) if is_operator(of) else []
    parts = [written, signature_text(path(of) or of.__name__, signature), section("Parameters", known),
             "\n".join([*tried(one), *recorded]), section("Raises", errors(of)), section("Example", [] if one is None else one.lines())]
    return "\n\n".join(filter(None, parts))
