"""What a caller says is heard: public functions read all their arguments, but for those named below, which change nothing."""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import flambeau as fl
from flambeau.profiler import ProfilerActivity, profile, schedule
from flambeau.utils.safetensors import SafetensorError, safe_open, save_file

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
}

# By function, "file: function parameter" or a beginning of that.
FUNCTIONS = {
    # A protocol: the caller hands over what any implementation may need.
    "_torch_c.py: setting": "stands for any setting",
    "as_torch.py: create_module": "importlib's",
    "as_torch.py: find_spec": "importlib's",
    "_homes.py: find_spec": "importlib's",
    "autograd/function.py": "torch.autograd.Function's methods",
    "autograd/selective.py: result": "a mode's",
    "core/tensor.py: __init__": "object's: __new__ reads them",
    "cuda/graphed.py: backward": "torch.autograd.Function's",
    "distributions/transforms.py: log_abs_det_jacobian": "a transform's: some derivatives are constant",
    "distributed/checkpoint/filesystem.py: read_metadata": "a storage's methods: the caller hands over what any may need",
    "distributed/checkpoint/filesystem.py: set_up_storage": "as above",
    "distributed/checkpoint/format_utils.py: read_metadata": "as above",
    "distributed/checkpoint/format_utils.py: set_up_storage_reader": "as above",
    "distributed/checkpoint/hf_storage.py: read_metadata": "as above",
    "distributed/engines/fake.py": "an engine's methods: nobody is there to send to",
    "func/transforms.py: pullback": "torch.autograd.backward's; the graph is always kept",
    "func/higher_order.py: step": "a loop's step: what it reads of them varies",
    "extensions/vision.py: ps_roi_": "an operator's schema: channels follow from the sizes",
    "extensions/vision.py: roi_pool_backward": "an operator's schema: where the largest elements are is all that counts",
    "fx/interpreter.py": "one method for each kind of node",
    "fx/tracer.py: is_leaf_module": "overridden by users",
    "nn/attention/flex_attention.py: noop_mask": "a mask_mod: every pair counts",
    "nn/modules/conv.py: initialize_parameters": "a lazy module's",
    "nn/modules/linear.py: __init__": "Identity takes anything, as in torch",
    "ops/batching.py": "batching rules",
    "ops/creation.py: _array_wrap": "NumPy's",
    "ops/fft.py: fft_": "shape rules",
    "ops/nn/layers.py: _embedding": "its gradient's",
    "ops/nn/layers.py: _sparse_embedding": "as above",
    "ops/nn/recurrent.py: back": "a rule",
    "ops/printing.py: _reduce_ex": "pickle's",
    "ops/sorting.py: unique_prim": "a shape rule",
    "utils/flop_counter.py": "hooks",
    # Nothing to choose from.
    "accelerator.py: current_accelerator check_available": "one that isn't there is not told",
    "autograd/gradcheck.py: gradcheck": "every derivative is checked whole, and no tensor is sparse",
    "autograd/graph.py: __init__ device_type": "one kind of accelerator",
    "core/symbolic.py: symint hint": "hints are computed",
    "cpu.py: current_stream": "one stream",
    "cuda/memory.py: memory_summary abbreviated": "it is short already",
    "cuda/streams.py: capture_begin capture_error_mode": "nothing of other threads fails a capture",
    "fx/_compatibility.py: compatibility": "a mark",
    "fx/graph.py: find_nodes sort": "nodes are always in order",
    "jit/__init__.py": "Python stays as it is",
    "jit/language.py": "Python stays as it is", "jit/scripting.py: script optimize": "no effect in torch either",
    "jit/frontend/library.py: gumbel_softmax eps": "no effect in torch either",
    "jit/freeze.py: freeze optimize_numerics": "nothing is computed anew",
    "jit/trace.py: trace optimize": "no effect in torch either",
    "jit/trace.py: trace_module optimize": "no effect in torch either",
    "mps.py": "there is no MPS",
    "nn/attention/__init__.py: sdpa_kernel set_priority": "all backends mean one kernel",
    "nn/attention/flex_attention.py: create_block_mask": "they tune kernels that there are not here",
    "nn/attention/flex_attention.py: flex_attention kernel_options": "as above",
    "onnx/exporting.py: export autograd_inlining": "autograd's functions are always run through",
    **{f"onnx/{name}.py": "rows of a table, which are called as ATen is" for name in ("layers", "reductions", "shapes", "sources")},
    "nnapi/convert.py": "rows of a table, which are called as ATen is",
    "onnx/symbolic_helper.py": "a mark of an exporter that there is not here",
    "utils/cpp_extension.py": "there are no such folders",
    "utils/data/collate.py: collate_": "a row of a table: some hold nothing else",
    "utils/tensorboard/summary.py: scalar collections": "no effect in torch either",
    "ops/sorting.py: unique sorted": "distinct values are always in order",
    "ops/conversions.py: _is_pinned device": "one kind of accelerator",
    "ops/conversions.py: _pin_memory device": "one kind of accelerator",
    "_decomp/__init__.py: register_decomposition unsafe": "functions are registered as they are given",
    "_dynamo/backends/debugging.py": "a backend's parameters",
    "_dynamo/comptime.py": "one level of frames; printing is brief",
    "_dynamo/testing.py: keep inputs": "a compiler's parameters", "_functorch/aot_autograd.py: boxed_nop example_inputs": "as above",
    "_functorch/aot_autograd.py": "what is written to inputs is a result here, in every mode; parameters are inputs like others",
    "_functorch/partitioners.py": "the program knows its results; one partition for all compilers",
    "_inductor/__init__.py: list_mode_options dynamic": "modes mean the same for all sizes",
    "_logging/__init__.py: getArtifactLogger module_qname": "channels are the process's",
    "_subclasses/fake_tensor.py: __init__ allow_fallback_kernels": "no kernel runs to find out a shape",
    "compiler/captured.py: nested_compile_region": "each call is captured, so there are no entries to be kept and found",
    "compiler/__init__.py: substitute_in_graph": "the substitute is captured like any function",
    "fx/passes/split_module.py: split_module root_m": "everything is in the graph's own module, here as in torch",
    "fx/passes/split_module.py: split_module keep_original": "submodules come in the order in which they are needed, names stay",
    "profiler/by_autograd.py": "one way to record; the CPU alone",
    "profiler/events.py: key_averages group_by_overload_name": "operators have no overloads",
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
    assert not found, "accepted and never read; implement it, refuse what it can't do, or say why it changes nothing: " + ", ".join(found)
    assert not (stale := {*PARAMETERS, *FUNCTIONS} - used), f"nothing of this kind is left: {stale}"


def test_the_walk_finds_them():
    text = ("def f(a, b, *, c=1, **d):\n  'doc'\n  return a\ndef _g(x): return 1\n@method('h')\ndef _h(x): return 1\n"
            "def r(x): raise E")
    assert list(unread(ast.parse(text))) == [("f", "b"), ("f", "c"), ("f", "d"), ("_h", "x")]
    assert excuse("a.py: f", "b") is None and excuse("a.py: f", "foreach") and excuse("mps.py: f", "b")


# -- what some of them do ----------------------------------------------------------------------------------------------------
X = fl.arange(12.0).reshape(3, 4)
FACTORIES = [      # (owner, names, arguments)
    (fl, "zeros ones empty rand randn randperm arange eye scalar_tensor hann_window kaiser_window", (2,)),
    (fl, "zeros_like ones_like empty_like rand_like randn_like", (X,)),
    (fl, "tril_indices triu_indices", (2, 3)),
    (fl, "linspace logspace", (0, 1, 3)),
    (fl, "full", ((2,), 1)), (fl, "full_like randint_like", (X, 3)), (fl, "randint", (3, (2,))), (fl, "normal", (0.0, 1.0, (2,))),
    (fl, "empty_strided", ((2,), (1,))), (fl.fft, "fftfreq rfftfreq", (4,)),
    (X, "new_zeros new_ones new_empty", ((2,),)), (X, "new_full", ((2,), 1)), (X, "new_tensor", ([1],)),
    (X, "new_empty_strided", ((2,), (1,))),
]


@pytest.mark.parametrize(("make", "args"), [
    pytest.param(getattr(owner, name), args, id=name) for owner, names, args in FACTORIES for name in names.split()])
def test_factories_heed_layout_and_pinning(make, args):
    assert make(*args, layout=fl.strided, pin_memory=False).layout is fl.strided
    with pytest.raises(NotImplementedError, match="jagged"):
        make(*args, layout=fl.jagged)
    if make not in (fl.zeros, fl.empty):
        with pytest.raises(NotImplementedError, match="sparse_coo"):
            make(*args, layout=fl.sparse_coo)
    with pytest.raises(TypeError, match="layout"):
        make(*args, layout="strided")
    if fl.cuda.is_available():
        assert make(*args, pin_memory=True).is_pinned()
    else:
        with pytest.raises(RuntimeError, match="accelerator"):
            make(*args, pin_memory=True)


def test_linear_algebra():
    u, s, v = fl.svd(X, compute_uv=False)
    assert u.shape == (3, 3) and v.shape == (4, 4) and not u.any() and not v.any()
    fl.testing.assert_close(s, fl.linalg.svdvals(X))
    for call in (fl.linalg.svd, fl.linalg.svdvals):
        with pytest.raises(RuntimeError, match="driver"):
            call(X, driver="gesvd")
    low = fl.tensor([[1.0, 100.0], [0.0, 0.0]])     # hermitian: its lower triangle is read
    assert fl.linalg.matrix_rank(low, hermitian=True) == 1 == fl.linalg.matrix_rank(low)
    assert fl.linalg.matrix_rank(fl.tensor([[1.0, 1.0], [1.0, 2.0]]).triu(), hermitian=True) == 2
    assert fl.linalg.matrix_rank(fl.tensor([[0.0, 5.0], [0.0, 0.0]]), hermitian=True) == 0


def test_formats_of_resized_tensors():
    assert fl.zeros(16).resize_(2, 2, 2, 2, memory_format=fl.channels_last).stride() == (8, 1, 4, 2)
    assert fl.zeros(2, 2, 2, 2).resize_(2, 2, 2, 2, memory_format=fl.channels_last).stride() == (8, 1, 4, 2)
    other = fl.zeros(2, 3, 4, 4).contiguous(memory_format=fl.channels_last)
    assert fl.zeros(1).resize_as_(other, memory_format=fl.preserve_format).stride() == other.stride()
    with pytest.raises(RuntimeError, match="preserve_format"):
        fl.zeros(4).resize_(2, 2, memory_format=fl.preserve_format)


def test_strategies_of_jacobians():
    f, x = fl.autograd.functional, fl.tensor([1.0, 2.0])
    square, total = lambda a: a * a, lambda a: (a * a).sum()
    fl.testing.assert_close(f.jacobian(square, x, vectorize=True, strategy="forward-mode"), fl.diag(2 * x))
    fl.testing.assert_close(f.hessian(total, x, vectorize=True, outer_jacobian_strategy="forward-mode"), 2 * fl.eye(2))
    for error, options in ((AssertionError, {"strategy": "sideways"}), (NotImplementedError, {"strategy": "forward-mode"}),
                           (RuntimeError, {"strict": True, "vectorize": True}),
                           (NotImplementedError, {"strategy": "forward-mode", "vectorize": True, "create_graph": True})):
        with pytest.raises(error):
            f.jacobian(square, x, **options)
        with pytest.raises(error):
            f.hessian(total, x, **{"outer_jacobian_strategy" if k == "strategy" else k: v for k, v in options.items()})


def test_randomness_of_jacfwd():
    x, noisy = fl.ones(64), lambda a: a * fl.rand(())
    same, different = (fl.func.jacfwd(noisy, randomness=r)(x).diagonal() for r in ("same", "different"))
    assert (same == same[0]).all() and different.unique().numel() > 32 and not different.requires_grad
    for options in ({}, {"randomness": "any"}):
        with pytest.raises(RuntimeError, match="randomness"):
            fl.func.jacfwd(noisy, **options)(x)


def test_strict_jvp():
    x = fl.ones(2)
    assert fl.func.jvp(lambda a: a * 2, (x,), (x,), strict=True)[1].tolist() == [2, 2]
    for constant in (lambda a: fl.ones(2), lambda a: (a, fl.ones(2))):
        with pytest.raises(RuntimeError, match="independent"):
            fl.func.jvp(constant, (x,), (x,), strict=True)


def test_old_names_of_backward():
    x = fl.ones(2, requires_grad=True)
    with pytest.warns(FutureWarning, match="grad_variables"):
        fl.autograd.backward(x.sum(), grad_variables=fl.tensor(3.0))
    assert x.grad.tolist() == [3, 3]
    with pytest.warns(FutureWarning), pytest.raises(RuntimeError, match="grad_tensors"):
        fl.autograd.backward(x.sum(), fl.tensor(1.0), grad_variables=fl.tensor(3.0))
    with pytest.warns(FutureWarning, match="only_inputs"):
        fl.autograd.grad(x.sum(), x, only_inputs=False)


def test_profiles(tmp_path):
    plan = schedule(wait=2, warmup=1, active=1, repeat=2, skip_first=1, skip_first_wait=1)
    assert [plan(i).name[:6] for i in range(8)] == ["NONE", "WARMUP", "RECORD", "NONE", "NONE", "WARMUP", "RECORD", "NONE"]
    with profile(record_shapes=True) as taken:
        (fl.add(X, X), fl.add(X, X), fl.add(X, X[0]))
    counts = {str(e.input_shapes): e.count for e in taken.key_averages(group_by_input_shape=True) if e.key == "aten::add"}
    assert counts == {"[[3, 4], [3, 4]]": 2, "[[3, 4], [4]]": 1}
    assert [e.count for e in taken.key_averages() if e.key == "aten::add"] == [3]
    text = taken.key_averages(group_by_input_shape=True).table(header="above", time_unit="ms", max_name_column_width=20)
    assert text.splitlines()[1] == "above" and "Self CPU ms" in text and "[[3, 4], [4]]" in text
    fl.profiler.tensorboard_trace_handler(f"{tmp_path}/new", use_gzip=True)(taken)
    with gzip.open(next((tmp_path / "new").glob("*.json.gz"))) as file:
        assert json.load(file)["traceEvents"]
    for error, options in ((TypeError, {"stacks": True}), (AssertionError, {"activities": []}),
                           (AssertionError, {"activities": [ProfilerActivity.XPU]})):
        with pytest.raises(error):
            profile(**options)
    with pytest.warns(UserWarning, match="only ProfilerActivity.CPU"):
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.XPU])
    with pytest.warns(UserWarning, match="experimental_config.*changes nothing here"):
        profile(experimental_config=object())


def test_unknown_arguments_are_refused():
    for call in (lambda: fl.randint_like(X, 3, sizes=2), lambda: fl.normal(0.0, 1.0, (2,), sizes=2),
                 lambda: fl.normal(X, 1.0, dtype=fl.float64),
                 lambda: fl.random.fork_rng(device_kind="cpu"), lambda: X.to_dense(kind=1), lambda: X.dequantize(1)):
        with pytest.raises(TypeError):
            call()
    assert X.to_dense(fl.float64).dtype is fl.float64 and X.to_dense() is X
    a, b = (fl.randint_like(X, 9, generator=fl.Generator().manual_seed(1)) for _ in range(2))
    assert a.equal(b)
    with pytest.raises(RuntimeError, match="coalesce"):
        X.coalesce()
    with pytest.raises(RuntimeError, match="device"), fl.random.fork_rng(device_type="abacus"):
        pass


def test_custom_operators_are_overridden_where_that_is_allowed():
    library = fl.library.Library("arguments", "DEF")
    library.define("same(Tensor x) -> Tensor")
    with pytest.raises(RuntimeError, match="alias_analysis"):
        library.define("other(Tensor x) -> Tensor", "GUESS")
    library.impl("same", lambda x: x.clone(), "CPU")
    fl.library.register_fake("arguments::same", lambda x: fl.empty_like(x))
    for again in (lambda: library.impl("same", lambda x: x + 1, "CPU", allow_override=False),
                  lambda: fl.library.register_fake("arguments::same", lambda x: x, allow_override=False)):
        with pytest.raises(RuntimeError, match="already"):
            again()
    library.impl("same", lambda x: x + 1, "CPU")
    assert fl.ops.arguments.same(X).equal(X + 1)
    with pytest.raises(NotImplementedError, match="with_keyset"):
        library.impl("same", lambda keys, x: x, "CUDA", with_keyset=True)


def test_arrays_of_safetensors(tmp_path):
    save_file({"x": X}, tmp_path / "x.safetensors")
    with safe_open(tmp_path / "x.safetensors", framework="np") as file:
        assert isinstance(file.get_tensor("x"), np.ndarray)
    for error, framework in ((NotImplementedError, "flax"), (SafetensorError, "pencil")):
        with pytest.raises(error):
            safe_open(tmp_path / "x.safetensors", framework=framework)
