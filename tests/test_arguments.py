"""What a caller says is heard: no public function takes an argument that its body never reads, but for those below, which change nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "flambeau"
# The compiler's own rooms: their functions are rows of tables, called with the same arguments each.
INSIDE = ("aot", "backends", "dynamo", "inductor", "ops/prims", "serialization")

# By the parameter's name: the reason is the same everywhere.
PARAMETERS = {
    "foreach": "one way to compute it, whichever is asked for",
    "non_blocking": "copies on the CPU are done when they return; between memories it is passed on",
    "cudnn_enabled": "the library is not a caller's choice", "cudnn_enable": "as above",
    "stable": "sorting is always stable",
    "assume_unique": "a promise that would make it faster",
    "lib": "what is registered stays, with a library or without one",
    "tags": "what may be done to an operator follows from its schema",
    "g": "a rule's gradient", "gs": "as above",
}

# By function ("file: function"): parameters of a protocol that others implement too, or the reason why they have nothing to change.
FUNCTIONS = {
    # A protocol: the caller hands over what any implementation may need.
    "_absent.py: missing": "stands for any function", "_torch_c.py: setting": "as above",
    "as_torch.py: create_module": "importlib's", "as_torch.py: find_spec": "importlib's",
    "autograd/function.py": "torch.autograd.Function's methods", "cuda/graphed.py: backward": "torch.autograd.Function's",
    "autograd/graph.py: apply": "a node of the tape", "autograd/selective.py: result": "a mode's",
    "distributions/transforms.py: log_abs_det_jacobian": "a transform's: some derivatives are constant",
    "func/higher_order.py: rng_state": "a mode's", "func/tape.py: rng_state": "a mode's",
    "fx/interpreter.py": "one method for each kind of node", "fx/tracer.py: is_leaf_module": "overridden by users",
    "nn/attention/flex_attention.py: noop_mask": "a mask_mod: every pair counts",
    "nn/modules/linear.py: __init__": "Identity takes anything, as in torch",
    "nn/modules/conv.py: initialize_parameters": "a lazy module's", "ops/batching.py": "batching rules",
    "ops/fft.py: fft_": "shape rules", "ops/replay.py: bitcast": "a rule", "ops/registry.py: casting": "a wrapper's stub",
    "ops/registry.py: into": "a rule", "ops/sorting.py: unique_prim": "a shape rule", "ops/linalg_decompositions.py: rule": "a rule",
    "ops/nn_recurrent.py: back": "a rule", "utils/flop_counter.py": "hooks", "func/transforms.py: pullback": "graphs are kept always",
    # Nothing to choose from.
    "_dynamo/__init__.py: optimize": "an old name's options", "accelerator.py: current_accelerator": "one that isn't there is not told",
    "autograd/graph.py: __init__ device_type": "one kind of accelerator", "ops/views.py: _pin_memory": "as above",
    "ops/views.py: _is_pinned": "as above", "ops/facts.py: _to_dense": "gradients are never sparse",
    "compiler.py: nested_compile_region": "a region is compiled where it is called", "core/symbolic.py: symint": "hints are computed",
    "cpu.py: current_stream": "one stream", "cpu.py: stream": "one stream", "cuda/memory.py: memory_summary": "it is short already",
    "cuda/streams.py: capture_begin": "nothing of other threads fails a capture",
    "fx/_compatibility.py: compatibility": "a mark", "fx/graph.py: find_nodes": "nodes are always in order",
    "jit/": "TorchScript does not exist; Python stays as it is", "onnx/symbolic_helper.py": "as above: nothing exports",
    "mps.py": "there is no MPS", "nn/attention/__init__.py: sdpa_kernel": "all backends mean one kernel",
    "nn/attention/flex_attention.py: create_block_mask": "they tune kernels", "nn/attention/flex_attention.py: flex_attention": "as above",
    "nn/functional.py: gumbel_softmax": "no effect in torch either", "profiler/__init__.py: key_averages": "operators have no overloads",
    "nn/utils/parametrizations.py: orthogonal": "coordinates of the optimizer's: each orthogonal matrix is represented",
    "ops/sorting.py: unique": "distinct values are always in order", "profiler/__init__.py: table": "there is no column of sources",
    "testing.py: assert_close": "all tensors are strided", "autograd/gradcheck.py": "checks that are not made yet",
}


def body_of(function: ast.FunctionDef) -> list[ast.stmt]:
    """Without the docstring."""
    return [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]


def is_public(function: ast.FunctionDef) -> bool:
    """By its name, or registered under another: `@method("name")`, `@operator`."""
    if not function.name.startswith("_") or function.name == "__init__":
        return True
    marks = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    return any(isinstance(m, ast.Name) and m.id in ("method", "operator") for m in marks)


def unread(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(function, parameter) for every parameter of a public function that its body doesn't name; not of those that only raise."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or not is_public(function):
            continue
        body = body_of(function)
        if not body or isinstance(body[-1], ast.Raise):
            continue
        names = {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name)}
        spec = function.args
        parameters = [p.arg for p in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg) if p is not None]
        yield from ((function.name, p) for p in parameters
                    if p not in names and p not in ("self", "cls", "out") and not p.startswith("_") and "locals" not in names)


def excuse(place: str, parameter: str) -> str | None:
    """What in the tables excuses it."""
    if parameter in PARAMETERS:
        return parameter
    return next((key for key in FUNCTIONS if f"{place} {parameter}".startswith(key)), None)


def test_no_argument_is_ignored():
    found, used = [], set()
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        if file.startswith(INSIDE):
            continue
        for function, parameter in unread(ast.parse(path.read_text())):
            why = excuse(f"{file}: {function}", parameter)
            used.add(why)
            if why is None:
                found.append(f"{file}: {function}({parameter}=)")
    assert not found, "accepted and never read; implement it, refuse what it can't do, or say why it changes nothing:\n" + "\n".join(found)
    assert not (stale := {*PARAMETERS, *FUNCTIONS} - used), f"nothing of this kind is left: {stale}"


def test_the_walk_finds_them():
    text = "def f(a, b, *, c=1, **d):\n  '''doc'''\n  return a\ndef _g(x): return 1\n@method('h')\ndef _h(x): return 1\ndef r(x): raise E"
    assert list(unread(ast.parse(text))) == [("f", "b"), ("f", "c"), ("f", "d"), ("_h", "x")]
    assert excuse("a.py: f", "b") is None and excuse("a.py: f", "foreach") and excuse("jit/a.py: f", "b")
