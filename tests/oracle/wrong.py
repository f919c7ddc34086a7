"""Readings of calls made wrong: each argument of torch's samples, in turn, is what cannot stand there. Compared: exceptions' types, results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

import flambeau

from . import convert
from .compare import TOLERANCE, Differs, dtype_name, leaves, same_structure, same_values
from .database import counterpart, entries, named, offers, samples, translated
from .exclusions import CRASHES, RANDOM, TIES, WRONG
from .modules import modules
from .optimizers import optimizers
from .readings import reading, shown_call

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Wrong(NamedTuple):
    """A call with one thing wrong, and what."""

    what: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _retyped(kind: torch.dtype) -> Callable[[torch.Tensor], Any]:
    return lambda t: None if t.dtype == kind else t.detach().to(kind)


def _cut(t: torch.Tensor) -> torch.Tensor | None:
    return t.narrow(-1, 0, t.shape[-1] - 1) if t.ndim and t.shape[-1] > 1 else None


TENSORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "None": lambda t: None, "a string": lambda t: "x", "an object": lambda t: object, "a list of numbers": lambda t: [1.0, 2.0],
    "a number": lambda t: 2, "int64": _retyped(torch.int64), "bool": _retyped(torch.bool), "complex64": _retyped(torch.complex64),
    "float64": _retyped(torch.float64), "float16": _retyped(torch.float16), "float32": _retyped(torch.float32),
    "on meta": lambda t: t.detach().to("meta"), "one more dimension": lambda t: t.unsqueeze(0), "of no dimension": lambda t: t.new_ones(()),
    "flattened": lambda t: t.reshape(-1) if t.ndim > 1 else None, "cut": _cut,
    "one more in front": lambda t: torch.cat([t, t[:1]]) if t.ndim and t.shape[0] else None, "empty": lambda t: t.new_empty(0),
}
"""What stands in the place of a tensor; None is left out, but in the first line."""

NUMBERS: tuple[tuple[type | tuple[type, ...], tuple[Any, ...]], ...] = (
    (bool, (None, 2, "x", 0.5)),
    (int, (-100, 33, -1, 0, None, 1.5, "x", True, 1 << 70, (1, 2))),
    (float, (None, "x", 1j, -1.0, True, (1.0,))),
    (complex, (None, "x")),
    (str, ("nope", 3, None)),
    (torch.dtype, ("x", None, 3, torch.int64, torch.bool, torch.complex64)),
    ((torch.device, torch.layout, torch.memory_format), ("nope", 3)),
    (type(None), ("x", 1.5, 1, True, (0, 0))),
)
"""By the type of an argument, what stands in its place."""


def _sequences(value: Any) -> Iterator[Any]:
    """Wrong sequences of numbers."""
    kind = type(value) if type(value) in (list, tuple) else tuple
    plain = kind(value)
    yield from (None, "x", 1.5, kind(), kind([*plain, *plain[-1:]]), kind(plain[:-1]), kind([*plain[:-1], "x"]), kind([*plain[:-1], 1.5]),
                kind([*plain[:-1], -100]), kind([*plain[:-1], 33]), kind([*plain[:-1], None]))


def _instead(value: Any) -> Iterator[tuple[str, Any]]:
    """What may stand in the place of a value, wrong or at the edge of it."""
    if isinstance(value, torch.Tensor):
        if value.layout == torch.strided:
            for what, change in TENSORS.items():
                try:
                    other = change(value)
                except (RuntimeError, IndexError):
                    continue
                if other is not None or what == "None":
                    yield what, other
        return
    if isinstance(value, list | tuple) and any(isinstance(v, torch.Tensor) for v in value):
        yield from (("None", None), ("empty", type(value)()) if type(value) in (list, tuple) else ("a string", "x"))
        for i, v in enumerate(value[:2]):
            yield from ((f"[{i}] {what}", [*value[:i], other, *value[i + 1:]]) for what, other in _instead(v))
        return
    if isinstance(value, list | tuple):
        yield from ((repr(other), other) for other in _sequences(value))
        return
    for kind, others in NUMBERS:
        if isinstance(value, kind):
            yield from ((repr(other), other) for other in others if type(other) is not type(value) or other != value)
            return


def wrong_calls(args: tuple[Any, ...], kwargs: dict[str, Any], out: Any = None) -> Iterator[Wrong]:
    """The calls that are one argument away from a right one. `out`: what the right one answers, if it takes `out=`."""
    for i, value in enumerate(args):
        yield from (Wrong(f"argument {i} {what}", (*args[:i], other, *args[i + 1:]), kwargs) for what, other in _instead(value))
    for key, value in kwargs.items():
        yield from (Wrong(f"{key}: {what}", args, {**kwargs, key: other}) for what, other in _instead(value))
        yield Wrong(f"no {key}", args, {k: v for k, v in kwargs.items() if k != key})
    yield Wrong("an argument less", args[:-1], kwargs)
    yield Wrong("an argument more", (*args, None), kwargs)
    yield Wrong("a string more", (*args, "x"), kwargs)
    yield Wrong("an unknown keyword", args, {**kwargs, "no_such_argument": 1})
    if isinstance(out, torch.Tensor):
        outs = {"a string": "x", "a tuple": (out, out), **{what: TENSORS[what](out) for what in ("int64", "bool", "float64", "on meta")},
                "that needs a gradient": out.detach().clone().requires_grad_() if out.is_floating_point() else None,
                "expanded": out.detach()[:1].expand(out.shape) if out.ndim and out.shape[0] > 1 else None}
        yield from (Wrong(f"out= {what}", args, {**kwargs, "out": other}) for what, other in outs.items() if other is not None)


def _answer(library: Any, fn: Any, arguments: Arguments) -> Any:
    """What a call answers, or the exception that it raises."""
    library.manual_seed(42)
    try:
        return fn(*arguments[0], **arguments[1])
    except Exception as error:
        return error


def compare(entry: Any, fn: Any, ours: Any, call: Wrong) -> None:
    """Raise `Differs` where the two libraries part in one call: `fn` of torch and `ours`."""
    arguments = (call.args, call.kwargs)
    if (entry.name, call.what) in CRASHES:
        return
    expected = _answer(torch, fn, convert.theirs(arguments))
    answer = _answer(flambeau, ours, convert.ours(arguments))
    said = f"{call.what} | {shown_call(*arguments)}"
    if any(part in call.what or part == entry.name for part in WRONG) and (
            not isinstance(expected, Exception) or isinstance(expected, NotImplementedError)):      # that has no form for meta tensors
        return
    if isinstance(expected, Exception):
        told = f"torch {type(expected).__name__}: {str(expected)[:120]} | {said}"
        if not isinstance(answer, Exception):
            raise Differs("no error", told)
        if type(expected).__name__ not in (kind.__name__ for kind in type(answer).__mro__):
            raise Differs("error type", f"{type(answer).__name__}: {str(answer)[:120]}, {told}")
    elif isinstance(answer, Exception):
        raise Differs("raises", f"{type(answer).__name__}: {str(answer)[:150]} | {said}")
    else:
        _same(entry, answer, expected, arguments, said)


def _same(entry: Any, answer: Any, expected: Any, given: Any, said: str) -> None:
    try:
        same_structure(answer, expected)
        if any(t.is_meta for t in leaves(expected)) or entry.name in RANDOM:
            return
        if entry.name in TIES:
            answer, expected = (result[0] if isinstance(result, tuple) else [] for result in (answer, expected))
        same_values(answer, expected, least=max([TOLERANCE.get(dtype_name(t), 0.0) for t in leaves(given)], default=0.0))
    except Differs as difference:
        raise Differs(difference.kind, f"{str(difference).partition(': ')[2]} | {said}") from difference


Calls = Iterator[tuple[Any, Any, Wrong]]


def _calls(entry: Any, most: int) -> Calls:
    """(torch's function, ours, call) of an entry of the database of operators."""
    ours = counterpart(entry)
    dtype = next((d for d in ("float32", "int64", "bool", "complex64") if offers(entry, d)), None)
    if dtype is None or ours is None:
        return
    for sample in samples(entry, dtype, most=most):
        args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
        out = _answer(torch, entry.op, (args, kwargs)) if entry.supports_out else None
        yield from ((entry.op, ours, call) for call in wrong_calls(args, kwargs, out))


def _in_place(entry: Any, most: int) -> Calls:
    """The same of an operator's method that writes."""
    method = entry.inplace_variant
    dtype = next((d for d in ("float32", "int64", "bool", "complex64") if offers(entry, d)), None)
    if method is None or dtype is None:
        return
    ours = translated(method) or getattr(flambeau.Tensor, getattr(method, "__name__", ""), None)
    for sample in samples(entry, dtype, most=most) if ours is not None else ():
        first, args, kwargs = sample.input, tuple(sample.args), dict(sample.kwargs)
        if not isinstance(first, torch.Tensor) or first.layout != torch.strided:
            continue
        written = {what: TENSORS[what](first) for what in ("int64", "bool", "complex64", "on meta", "cut", "of no dimension")}
        written |= {"a leaf": first.detach().clone().requires_grad_() if first.is_floating_point() else None,
                    "expanded": first.detach()[:1].expand(first.shape) if first.ndim and first.shape[0] > 1 else None}
        calls = [Wrong(f"written to: {what}", (other, *args), kwargs) for what, other in written.items() if other is not None]
        calls += [Wrong(call.what, (first, *call.args), call.kwargs) for call in wrong_calls(args, kwargs)]
        yield from ((method, ours, call) for call in calls)


def _of_modules(entry: Any, most: int) -> Calls:
    """Modules made and called with one thing wrong."""
    cls = named(entry.name)
    torch.manual_seed(0)
    drawn = entry.module_inputs_func(entry, device="cpu", dtype=torch.float32, requires_grad=False, training=False)
    for sample in drawn[::max(1, -(-len(drawn) // (most or 6)))]:
        made, given = sample.constructor_input, sample.forward_input
        if given is None:
            continue
        for call in wrong_calls(tuple(made.args), dict(made.kwargs)):
            yield (*(_run_of(kind, given) for kind in (entry.module_cls, cls)), call)
        for call in wrong_calls(tuple(given.args), dict(given.kwargs)):
            yield (*(_run_on(kind, made) for kind in (entry.module_cls, cls)), call)


def _change(cls: Any) -> Callable[[Any], Any]:
    return convert.theirs if cls.__module__.startswith("torch.") and issubclass(cls, torch.nn.Module) else convert.ours


def _run_of(cls: Any, given: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        module = cls(*args, **kwargs).eval()
        inputs, named_inputs = _change(cls)((tuple(given.args), dict(given.kwargs)))
        module(*inputs, **named_inputs)
    return run


def _run_on(cls: Any, made: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        arguments, named_arguments = _change(cls)((tuple(made.args), dict(made.kwargs)))
        return cls(*arguments, **named_arguments).eval()(*args, **kwargs)
    return run


def _of_optimizers(entry: Any, most: int) -> Calls:
    """Optimizers made with one thing wrong, and one step of each."""
    cls = named("optim." + entry.name)

    def run_of(library: Any, kind: Any) -> Callable[..., Any]:
        def run(given: Any = None, *args: Any, **kwargs: Any) -> Any:
            p = library.ones(2, 2).requires_grad_()
            optimizer = kind([p] if given == "parameters" else given, *args, **kwargs)
            if entry.only_supports_sparse_grads or entry.step_requires_closure:
                return
            (p * p).sum().backward()
            optimizer.step()
        return run
    inputs = entry.optim_inputs_func(device="cpu")
    for given in inputs[:most or None]:
        kwargs = {"lr": 0.01, **given.kwargs}
        for call in wrong_calls(("parameters",), kwargs):
            yield run_of(torch, entry.optim_cls), run_of(flambeau, cls), call


def differences(entry: Any, calls: Callable[[Any, int], Calls], most: int = 0) -> Iterator[tuple[str, str, str]]:
    """("agrees" or the kind of difference, particulars, what is wrong) of every call made of an entry."""
    for theirs, ours, call in calls(entry, most):
        if any(t.ndim > 32 for t in leaves((call.args, call.kwargs))):
            continue
        try:
            compare(entry, theirs, ours, call)
            yield "agrees", "", call.what
        except Differs as difference:
            yield difference.kind, str(difference).partition(": ")[2], call.what


SOURCES = {"wrong calls": (_calls, entries), "wrong calls, in place": (_in_place, entries), "wrong calls, modules": (_of_modules, modules),
           "wrong calls, optimizers": (_of_optimizers, optimizers)}


def enter(name: str) -> None:
    """Enter a reading of the calls that SOURCES has by this name."""
    calls, source = SOURCES[name]

    @reading(name, of=source)
    def read(entry: Any, most: int) -> int:
        found = list(differences(entry, calls, most or 3))
        wrong = [d for d in found if d[0] != "agrees"]
        if wrong:
            kinds = ", ".join(f"{kind} {n}" for kind, n in Counter(kind for kind, *_ in wrong).items())
            raise Differs(wrong[0][0], f"{wrong[0][1]} | of {len(found)} calls: {kinds}")
        return len(found)


for _name in SOURCES:
    enter(_name)
