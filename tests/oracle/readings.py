"""What is compared of an entry: each reading feeds its samples to both libraries and raises `Differs` where they part."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import flambeau

from . import convert
from .compare import AUTOCAST, Differs, dtype_name, is_tensor, leaves, same_structure, same_values, shared
from .database import DTYPES, counterpart, entries, offers, samples, translated
from .exclusions import RANDOM, TIES
from .exclusions import READINGS as LEFT_OUT

Reading = Callable[[Any, int], int]
Source = Callable[[], dict[str, Any]]
READINGS: dict[str, Reading] = {}
SOURCES: dict[str, Source] = {}     # where the entries of a reading are from, if not the database of operators
_WIDE = {torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.complex64: torch.complex128,
         torch.complex32: torch.complex128}


class Refused(Exception):
    """torch itself does not compute this sample, so there is nothing to compare."""


def reading(name: str, of: Source = entries) -> Callable[[Reading], Reading]:
    """Enter a reading: a function of an entry and of how many samples at most, which says how many were compared."""
    def enter(fn: Reading) -> Reading:
        READINGS[name], SOURCES[name] = fn, of
        return fn
    return enter


def entries_of(name: str) -> dict[str, Any]:
    """The entries of a reading, by title."""
    return SOURCES.get(name, entries)()


class Call:
    """One sample for both libraries, each with tensors of its own."""

    def __init__(self, entry: Any, sample: Any) -> None:
        self.entry, self.sample = entry, sample
        everything = (sample.input, tuple(sample.args), dict(sample.kwargs))
        self.everything = everything
        self.theirs = convert.theirs(everything)
        self.ours = convert.ours(everything)

    def run_theirs(self, fn: Any = None, **more: Any) -> Any:
        """torch's answer; what it refuses is not compared."""
        try:
            return _seeded(torch, fn or self.entry.op, self.theirs, more)
        except Exception as error:
            raise Refused(str(error)) from error

    def run_ours(self, fn: Any, **more: Any) -> Any:
        """Flambeau's answer to what torch answers."""
        try:
            return _seeded(flambeau, fn, self.ours, more)
        except Exception as error:
            raise Differs("raises", f"{type(error).__name__}: {str(error)[:300]}") from error

    def wide(self) -> Any:
        """torch's answer in double precision, or None."""
        def change(t: torch.Tensor) -> torch.Tensor:
            return t.detach().to(_WIDE[t.dtype]) if t.dtype in _WIDE else t
        try:
            return _seeded(torch, self.entry.op, convert.theirs(self.everything, change), {})
        except Exception:
            return None


def _seeded(library: Any, fn: Any, arguments: Any, more: dict[str, Any]) -> Any:
    first, args, kwargs = arguments
    library.manual_seed(42)
    return fn(first, *args, **kwargs, **more)


def _found(entry: Any) -> Any:
    fn = counterpart(entry)
    if fn is None:
        raise Differs("missing", "no such function")
    return fn


def _normal(call: Call, theirs: Any, ours: Any) -> tuple[Any, Any, Any]:
    """The results without what is free in them (the signs of eigenvectors), as the sample says."""
    process = call.sample.output_process_fn_grad
    other = translated(process)
    if other is None or getattr(process, "__name__", "") == "_identity":
        return theirs, ours, lambda x: x
    return process(theirs), other(ours), process


def _same(call: Call, ours: Any, theirs: Any) -> None:
    same_structure(ours, theirs)
    if call.entry.name in TIES:
        ours, theirs = (result[0] if isinstance(result, tuple) else [] for result in (ours, theirs))
    a, b, process = (lambda t: (t[1], t[0], t[2]))(_normal(call, theirs, ours))
    try:
        same_values(a, b)
    except Differs:
        wide = call.wide()
        same_values(a, b, None if wide is None else process(wide))


def _each(entry: Any, dtype: str, most: int, check: Callable[[Any, Call], None], gradient: bool = False) -> int:
    """Check every sample; how many torch computes."""
    fn, n = _found(entry), 0
    for sample in samples(entry, dtype, gradient, most):
        try:
            check(fn, Call(entry, sample))
            n += 1
        except Refused:
            continue
        except Differs as difference:
            raise Differs(difference.kind, f"{str(difference).partition(': ')[2]} | {_sample(sample)}") from difference
    return n


def shown(value: Any) -> str:
    """An argument as a message shows it: of a tensor, dtype and layout."""
    if isinstance(value, torch.Tensor):
        plain = value.layout != torch.strided or value.is_contiguous()
        return f"{dtype_name(value)}{list(value.shape)}" + ("" if plain else f"/{value.stride()}")
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(shown, value)) + ")"
    return repr(value)


def _sample(sample: Any) -> str:
    return shown_call((sample.input, *sample.args), sample.kwargs)


def shown_call(args: Any, kwargs: dict[str, Any]) -> str:
    """The arguments of a call as a message shows them."""
    return ", ".join([*map(shown, args), *(f"{k}={shown(v)}" for k, v in kwargs.items())])[:300]


def _forward(dtype: str) -> Reading:
    def forward(entry: Any, most: int) -> int:
        def check(fn: Any, call: Call) -> None:
            theirs = call.run_theirs()
            ours = call.run_ours(fn)
            _same(call, ours, theirs)
            a, b = shared(ours, call.ours), shared(theirs, call.theirs)
            if a != b:
                raise Differs("views", f"results share memory with inputs {a}, torch {b}")
            same_values(list(leaves(call.ours)), list(leaves(call.theirs)), kind="inputs afterwards")
        return _each(entry, dtype, most, check) if offers(entry, dtype) else 0
    return forward


for _dtype in DTYPES:
    READINGS[_dtype] = _forward(_dtype)


@reading("nodes")
def nodes(entry: Any, most: int) -> int:
    """What the nodes on the tape are called that made the results, where torch has a gradient."""
    def called(results: Any) -> list[str]:
        return [type(t.grad_fn).__name__ for t in leaves(results)]

    def check(fn: Any, call: Call) -> None:
        theirs, ours = called(call.run_theirs()), called(call.run_ours(fn))
        if any(a != b for a, b in zip(ours, theirs) if b not in ("NotImplemented", "NoneType")):
            raise Differs("node", f"{ours}, torch {theirs}")
    return _each(entry, "float32", most, check, gradient=True) if offers(entry, "float32") else 0


def _scalar(library: Any, results: Any, weights: list[np.ndarray]) -> Any:
    """A weighted sum of all results that have a gradient; None where there is none."""
    total = None
    wanted = [t for t in leaves(results) if t.requires_grad and (t.is_floating_point() or t.is_complex())]
    for i, t in enumerate(wanted):
        if i == len(weights):
            weights.append(np.random.default_rng(i).uniform(0.5, 1.5, tuple(t.shape)))
        if weights[i].shape != tuple(t.shape):
            raise Differs("shape", f"{tuple(t.shape)}, torch {weights[i].shape}")
        t = t.to_dense() if str(t.layout).rpartition(".")[2] != "strided" else t
        part = (t * library.from_numpy(weights[i]).to(t.dtype)).sum()
        part = part.real + part.imag if part.is_complex() else part
        total = part if total is None else total + part
    return total


def _gradients(library: Any, run: Callable[[], Any], inputs: Callable[[], Any], weights: list[np.ndarray], order: int) -> list[Any]:
    """Gradients of a weighted sum, and for order 2 those of their own weighted sum."""
    results: Any = run()
    wanted = [t for t in leaves(inputs()) if t.requires_grad]
    found: list[Any] = []
    for level in range(order):
        total = _scalar(library, results, weights if level == 0 else weights[-1:] and [])
        if total is None:
            break
        results = library.autograd.grad(total, wanted, create_graph=level + 1 < order, allow_unused=True)
        found.append(results)
    return found


def same_gradients(run_theirs: Callable[[], Any], their_inputs: Callable[[], Any], run_ours: Callable[[], Any],
                   our_inputs: Callable[[], Any], order: int = 1) -> None:
    """Are the gradients of what two functions answer the same for what they are given?"""
    weights: list[np.ndarray] = []
    try:
        theirs = _gradients(torch, run_theirs, their_inputs, weights, order)
    except Exception as error:
        raise Refused(str(error)) from error
    try:
        ours = _gradients(flambeau, run_ours, our_inputs, weights, order)
    except Differs:
        raise
    except Exception as error:
        raise Differs("raises", f"{type(error).__name__}: {str(error)[:300]}") from error
    lone = [[g is None for g in level] for level in ours] != [[g is None for g in level] for level in theirs]
    if lone and not _only_zeros(ours, theirs):
        raise Differs("no gradient", "for other inputs than torch")
    for a, b in zip(ours, theirs, strict=False):
        pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
        same_values([x for x, _ in pairs], [y for _, y in pairs], kind="gradient", least=1e-7 if order > 1 else 0.0)    # digits go twice


def _gradient(order: int) -> Reading:
    def gradient(entry: Any, most: int) -> int:
        if not entry.supports_autograd or (order > 1 and not entry.supports_gradgrad):
            return 0
        def check(fn: Any, call: Call) -> None:
            process = call.sample.output_process_fn_grad
            other = translated(process) or (lambda x: x)
            same_gradients(lambda: process(_seeded(torch, call.entry.op, call.theirs, {})), lambda: call.theirs,
                           lambda: other(_seeded(flambeau, fn, call.ours, {})), lambda: call.ours, order)
        return sum(_each(entry, dtype, most, check, True) for dtype in ("float64", "complex128")
                   if getattr(torch, dtype) in entry.supported_backward_dtypes("cpu"))
    return gradient


def _only_zeros(ours: list[Any], theirs: list[Any]) -> bool:
    """A gradient that one library leaves out, where the other's is zero everywhere."""
    flat = [(x, y) for a, b in zip(ours, theirs, strict=False) for x, y in zip(a, b, strict=True)]
    rest = [t for a in (ours[len(theirs):], theirs[len(ours):]) for level in a for t in level]
    lone = [x if y is None else y for x, y in flat if (x is None) != (y is None)]
    return all(t is None or np.all(np.abs(convert.array(t)) < 1e-9) for t in lone + rest)


READINGS["gradient"] = _gradient(1)
READINGS["double backward"] = _gradient(2)


@reading("forward mode")
def _forward_mode(entry: Any, most: int) -> int:
    if not entry.supports_forward_ad:
        return 0
    def tangents(library: Any, fn: Any, arguments: Any, process: Any) -> Any:
        import importlib
        ad = importlib.import_module(f"{library.__name__}.autograd.forward_ad")
        with ad.dual_level():
            def dual(v: Any) -> Any:
                if is_tensor(v) and v.requires_grad:
                    t = library.from_numpy(np.random.default_rng(1).uniform(0.5, 1.5, tuple(v.shape))).to(v.dtype)
                    return ad.make_dual(v.detach(), t)
                if isinstance(v, list | tuple):
                    return type(v)(map(dual, v))
                return {k: dual(x) for k, x in v.items()} if isinstance(v, dict) else v
            results = process(_seeded(library, fn, dual(arguments), {}))
            return [ad.unpack_dual(t).tangent for t in leaves(results)]
    def check(fn: Any, call: Call) -> None:
        if any(t.layout != torch.strided for t in leaves(call.theirs)):
            raise Refused("sparse")
        try:
            theirs = tangents(torch, call.entry.op, call.theirs, call.sample.output_process_fn_grad)
        except Exception as error:
            raise Refused(str(error)) from error
        try:
            ours = tangents(flambeau, fn, call.ours, translated(call.sample.output_process_fn_grad) or (lambda x: x))
        except Exception as error:
            raise Differs("raises", f"{type(error).__name__}: {str(error)[:300]}") from error
        if len(ours) != len(theirs):
            raise Differs("structure", f"{len(ours)} results, torch {len(theirs)}")
        for x, y in zip(ours, theirs, strict=True):
            if x is None or y is None:
                lone = x if y is None else y
                if lone is not None and convert.array(lone).any():
                    raise Differs("no tangent", "of another result than torch")
            else:
                same_values(x, y, kind="tangent")
    return _each(entry, "float64", most, check, True) if offers(entry, "float64") else 0


@reading("in-place")
def _in_place(entry: Any, most: int) -> int:
    method = entry.inplace_variant
    if method is None:
        return 0
    name = getattr(method, "__name__", "")
    ours_method = translated(method)
    fn = ours_method if ours_method is not None else getattr(flambeau.Tensor, name, None)
    if fn is None:
        raise Differs("missing", name)
    def check(_: Any, call: Call) -> None:
        theirs = call.run_theirs(method)
        ours = call.run_ours(fn)
        same_structure(ours, theirs)
        try:
            same_values(ours, theirs)
        except Differs:
            same_values(ours, theirs, call.wide())
        if (ours is call.ours[0]) != (theirs is call.theirs[0]):
            raise Differs("views", "the result is not the input")
    return sum(_each(entry, dtype, most, check) for dtype in ("float32", "int64") if offers(entry, dtype))


@reading("out=")
def _out(entry: Any, most: int) -> int:
    if not entry.supports_out:
        return 0
    def check(fn: Any, call: Call) -> None:
        expected = call.run_theirs()
        if not is_tensor(expected) and not (isinstance(expected, tuple) and all(map(is_tensor, expected))):
            raise Refused("no tensors")
        def places(library: Any, wrong: bool) -> Any:
            def place(t: torch.Tensor) -> Any:
                kind = getattr(library, dtype_name(t))
                return library.zeros((0,) if wrong else tuple(t.shape), dtype=kind)
            return place(expected) if is_tensor(expected) else tuple(map(place, expected))
        for wrong in (False, True):
            theirs, ours = places(torch, wrong), places(flambeau, wrong)
            call.run_theirs(out=theirs)
            result = call.run_ours(fn, out=ours)
            same_structure(ours, theirs)
            _same(call, ours, theirs)
            if is_tensor(ours) and result is not ours:
                raise Differs("out", "the result is not what was given as out=")
    return sum(_each(entry, dtype, most, check) for dtype in ("float32", "int64") if offers(entry, dtype))


@reading("errors")
def _errors(entry: Any, most: int) -> int:
    if entry.error_inputs_func is None:
        return 0
    fn, n = _found(entry), 0
    torch.manual_seed(0)
    for case in entry.error_inputs("cpu"):
        if any(t.ndim > 64 for t in leaves((case.sample_input.input, case.sample_input.args))):
            continue    # more than NumPy's arrays have
        call = Call(entry, case.sample_input)
        try:
            _seeded(torch, entry.op, call.theirs, {})
            continue
        except Exception as error:
            expected = error
        try:
            _seeded(flambeau, fn, call.ours, {})
        except Exception as error:
            if type(error).__name__ != type(expected).__name__ and not isinstance(error, type(expected)):
                raise Differs("error type", f"{type(error).__name__}: {str(error)[:150]}, torch {type(expected).__name__}: "
                                            f"{str(expected)[:150]} | {_sample(case.sample_input)}") from error
        else:
            raise Differs("no error", f"torch {type(expected).__name__}: {str(expected)[:150]} | {_sample(case.sample_input)}")
        n += 1
    return n


def _compiled(backend: str, dynamic: bool | None = None) -> Reading:
    def compiled(entry: Any, most: int) -> int:
        def check(fn: Any, call: Call) -> None:
            call.run_theirs()
            again = convert.ours(call.everything)
            eager = call.run_ours(fn)
            first, args, kwargs = again
            flambeau._dynamo.reset()
            made = flambeau.compile(lambda first, args, kwargs: fn(first, *args, **kwargs), backend=backend, dynamic=dynamic)
            flambeau.manual_seed(42)
            try:
                result = made(first, args, kwargs)
            except Exception as error:
                raise Differs("raises", f"{type(error).__name__}: {str(error)[:300]}") from error
            same_structure(result, eager)
            if entry.name in RANDOM:
                return
            same_values(result, eager, kind="compiled")
            weights: list[np.ndarray] = []
            try:
                a = _gradients(flambeau, lambda: eager, lambda: call.ours, weights, 1)
            except Exception:
                return
            b = _gradients(flambeau, lambda: result, lambda: again, weights, 1)
            for x, y in zip(b, a, strict=True):
                same_values([v for v in x if v is not None], [v for v in y if v is not None], kind="compiled gradient")
        gradient = entry.supports_autograd
        dtype = next((d for d in ("float32", "int64", "bool", "complex64") if offers(entry, d)), None)
        return _each(entry, dtype, most, check, gradient and dtype == "float32") if dtype else 0
    return compiled


READINGS["compiled (aot_eager)"] = _compiled("aot_eager")
READINGS["compiled (inductor)"] = _compiled("inductor")
READINGS["compiled (dynamic sizes)"] = _compiled("aot_eager", dynamic=True)


@reading("autocast")
def _autocast(entry: Any, most: int) -> int:
    def check(fn: Any, call: Call) -> None:
        with torch.autocast("cpu", torch.bfloat16), flambeau.autocast("cpu", flambeau.bfloat16):
            theirs = call.run_theirs()
            ours = call.run_ours(fn)
            same_structure(ours, theirs)
            try:
                a, b, _ = _normal(call, theirs, ours)
            except Exception as error:
                raise Refused(str(error)) from error
        if entry.name not in TIES:
            same_values(b, a, kind="autocast", least=AUTOCAST)
    return _each(entry, "float32", most, check) if offers(entry, "float32") else 0


@reading("vmap")
def _vmap(entry: Any, most: int) -> int:
    def check(fn: Any, call: Call) -> None:
        def flat(arguments: Any) -> list[Any]:
            return [t for t in leaves(arguments) if t.is_floating_point()]
        def run(library: Any, op: Any, arguments: Any, tensors: Any) -> Any:
            process = call.sample.output_process_fn_grad
            process = process if library is torch else translated(process) or (lambda x: x)
            left = list(tensors)
            def put(v: Any) -> Any:
                if is_tensor(v):
                    return left.pop(0) if v.is_floating_point() else v
                if isinstance(v, list | tuple):
                    return type(v)(map(put, v)) if type(v) in (list, tuple) else v
                return {k: put(x) for k, x in v.items()} if isinstance(v, dict) else v
            return list(leaves(process(_seeded(library, op, put(arguments), {}))))
        def batched(library: Any, op: Any, arguments: Any) -> Any:
            stacked = [library.stack([t, t * 0.5]) for t in flat(arguments)]
            return library.vmap(lambda *ts: run(library, op, arguments, ts))(*stacked)
        if not flat(call.theirs):
            raise Refused("no floats")
        try:
            theirs = batched(torch, call.entry.op, call.theirs)
        except Exception as error:
            raise Refused(str(error)) from error
        try:
            ours = batched(flambeau, fn, call.ours)
        except Exception as error:
            raise Differs("raises", f"{type(error).__name__}: {str(error)[:300]}") from error
        if [tuple(t.shape) for t in ours] != [tuple(t.shape) for t in theirs]:
            raise Differs("shape", f"{[tuple(t.shape) for t in ours]}, torch {[tuple(t.shape) for t in theirs]}")
        if entry.name not in TIES:
            same_values(ours, theirs, kind="vmap")
    return _each(entry, "float32", most, check) if offers(entry, "float32") else 0


def judged(entry: Any, name: str, most: int = 0) -> tuple[str, str]:
    """("agrees" | "none" | kind of difference, particulars) of one reading of one entry."""
    left_out = (LEFT_OUT[part] for part in LEFT_OUT if part in name)
    if any(entry.name in names for names in left_out):
        return "none", "left out"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            n = READINGS[name](entry, most)
        except Differs as difference:
            return difference.kind, str(difference).partition(": ")[2]
    return ("agrees", f"{n} samples") if n else ("none", "torch computes no sample")


