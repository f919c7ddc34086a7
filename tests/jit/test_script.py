"""torch.jit.script: programs of TorchScript's language give the same values and errors as PyTorch's, and archives that both read."""

from __future__ import annotations

import copy
import functools
import io
import math
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau.inductor import compile_fx
from flambeau.jit import fuse
from flambeau.nn import functional as F

torch = pytest.importorskip("torch", reason="PyTorch is the oracle")

FILES = ("scripted_functions", "scripted_errors", "scripted_modules")


def programs(file: str, library: Any, name: str) -> list[tuple[Any, tuple]]:
    """The programs of a file, for one library: (function or module, arguments)."""
    found: list[tuple[Any, tuple]] = []
    path = Path(__file__).with_name(f"{file}.py")
    module = sys.modules.setdefault(f"{file}_{name}", types.ModuleType(f"{file}_{name}"))
    module.__file__ = str(path)

    def prog(*args: Any) -> Any:
        def mark(fn: Any) -> Any:
            found.append((fn, args))
            return fn

        return mark

    vars(module).update(torch=library, nn=library.nn, F=library.nn.functional, Tensor=library.Tensor, Final=library.jit.Final, prog=prog)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), vars(module))
    return found


BOTH = {file: list(zip(programs(file, torch, "torch"), programs(file, fl, "flambeau"))) for file in FILES}
CASES = [pytest.param(file, at, id=f"{getattr(pair[0][0], '__name__', type(pair[0][0]).__name__)}-{at}")
         for file, pairs in BOTH.items() for at, pair in enumerate(pairs)]


def plain(value: Any) -> Any:
    """A result of either library as NumPy's arrays, numbers and containers."""
    if hasattr(value, "detach"):
        return value.detach().numpy()
    if isinstance(value, (list, tuple)):
        return (isinstance(value, tuple), [plain(v) for v in value])
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return str(value) if type(value).__name__ == "device" else value


def same(a: Any, b: Any) -> None:
    """Values agree in structure, types and numbers."""
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)
    elif isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (float, complex)):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    else:
        assert a == b


def outcome(library: Any, fn: Any, args: tuple) -> tuple[str, Any, Any]:
    """What becomes of a program: ("refused", the error), ("failed", the error) or ("ran", its result); and the scripted one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            scripted = library.jit.script(fn)
        except Exception as error:
            return "refused", type(error).__name__, None
        try:
            return "ran", plain(scripted(*copy.deepcopy(args))), scripted
        except Exception as error:
            return "failed", type(error).__name__, scripted


@pytest.mark.parametrize(("file", "at"), CASES)
def test_programs_run_alike_scripted_and_in_archives(file, at):
    (theirs, their_args), (ours, our_args) = BOTH[file][at]
    how, expected, scripted = outcome(torch, theirs, their_args)
    found_how, found, made = outcome(fl, ours, our_args)
    assert found_how == how
    if how != "ran":
        assert found == expected
        return
    same(found, expected)
    if made._program.python_calls:
        with pytest.raises(RuntimeError, match="Could not export Python function call"):
            made.save_to_buffer()
        return
    state = isinstance(theirs, torch.nn.Module) and any(True for _ in theirs.buffers())    # a run has changed it
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = torch.jit.load(io.BytesIO(made.save_to_buffer()))
        torch.jit.save(scripted, buffer)
        buffer.seek(0)
        again = fl.jit.load(buffer)
        if not state:
            same(plain(loaded(*copy.deepcopy(their_args))), expected)
            same(plain(again(*copy.deepcopy(our_args))), expected)


def test_there_are_many_programs():
    assert sum(map(len, BOTH.values())) >= 150


# -- what a scripted thing is ------------------------------------------------------------------------------------------------------
class Net(fl.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = fl.nn.Linear(3, 2)
        self.count = 0

    def forward(self, x):
        self.count += 1
        return self.linear(x)

    @fl.jit.export
    def twice(self, x):
        return self.forward(self.linear.weight) * 2 + x.sum()


def test_scripted_modules_are_modules():
    net = Net()
    scripted = fl.jit.script(net)
    assert isinstance(scripted, fl.jit.ScriptModule) and isinstance(scripted, fl.jit.RecursiveScriptModule)
    assert scripted.original_name == "Net" and fl.jit.script(scripted) is scripted
    assert list(scripted.state_dict()) == list(net.state_dict())
    assert scripted.linear.weight is net.linear.weight
    assert "torch.linear" in scripted.linear.code and scripted.graph.findAllNodes("prim::CallMethod")
    assert hasattr(scripted, "twice") and not hasattr(scripted, "thrice")
    scripted(fl.ones(1, 3))
    assert scripted.count == 1 and net.count == 0
    scripted.count = 7
    assert copy.deepcopy(scripted).count == 7
    assert scripted.eval().training is False and scripted.train().linear.training
    with pytest.raises(RuntimeError, match="Expected a value of type 'int'"):
        scripted.count = "a"
    assert scripted.to(fl.float64).linear.weight.dtype is fl.float64


def doubled_sum(x, times: int = 2):
    y = x * times
    return y.sum()


class Inner(fl.nn.Module):
    def forward(self, x):
        y = fl.relu(x)
        return y + (1 if self.training else 2)


class Outer(fl.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = fl.nn.Sequential(Inner(), fl.nn.Tanh())

    def forward(self, x):
        y = self.layers(x)
        return doubled_sum(y) + y


def test_the_inlined_graph_has_what_is_called():
    scripted = fl.jit.script(Outer())
    kinds = [node.kind() for node in scripted.graph.nodes()]
    assert "prim::CallMethod" in kinds and "prim::CallFunction" in kinds and "aten::relu" not in kinds
    graph = scripted.inlined_graph
    kinds = [node.kind() for node in graph.nodes() if node.kind().startswith("aten")]
    assert kinds == ["aten::relu", "aten::add", "aten::tanh", "aten::mul", "aten::sum", "aten::add"]
    assert not graph.findAllNodes("prim::CallMethod") and len(graph.findAllNodes("prim::If")) == 1
    made = [name for node in graph.nodes() for name in node.outputs()]
    assert len(made) == len(set(made))


def test_gradients_go_through_programs():
    net = Net()
    scripted = fl.jit.script(net)
    scripted(fl.ones(2, 3)).sum().backward()
    assert fl.equal(net.linear.weight.grad, fl.full((2, 3), 2.0))


def wrong(x):
    y = x * 2
    return y + undefined_name    # noqa: F821


def calls_wrong(x):
    return wrong(x)


def test_errors_point_at_the_users_line():
    with pytest.raises(RuntimeError) as caught:
        fl.jit.script(calls_wrong)
    line = wrong.__code__.co_firstlineno + 2
    text = str(caught.value)
    assert "undefined value undefined_name" in text and f'test_script.py", line {line}' in text
    marked = text.splitlines()[next(i for i, s in enumerate(text.splitlines()) if "<--- HERE" in s) - 1:][:2]
    assert marked[0].index("undefined_name") == marked[1].index("~") and marked[1].count("~") == len("undefined_name")
    assert "'wrong' is being compiled since it was called from 'calls_wrong'" in text


def untyped(a, b, c):
    return a + b * len(c)


def test_examples_tell_types():
    with pytest.raises(RuntimeError):
        fl.jit.script(untyped)(2, 3, [1])
    scripted = fl.jit.script(untyped, example_inputs=[(2, 3, [1]), (4, 5, [2, 3])])
    assert scripted.schema == "untyped(int a, int b, int[] c) -> int" and scripted(2, 3, [1, 2]) == 8


def times(a, n):
    return a * n


def calls_others(x, k):
    return times(x, k) + k


def may_be_none(a, b):
    if b is None:
        return a
    return a + b


def of_containers(xs, named, pair):
    total = xs[0]
    for x in xs:
        total = total + x * named["a"]
    return total, pair[1]


def half_said(x, n: float, m):
    return x * n + m


class Untyped(fl.nn.Module):
    def forward(self, x, n):
        return self.scaled(x, n) + n

    def scaled(self, x, n):
        return x * n


X2 = fl.ones(2)


@pytest.mark.parametrize(("make", "examples", "call", "schema"), [
    (lambda: calls_others, lambda _: [(X2, 3)], (X2, 4), "Tensor x, int k"),
    (lambda: may_be_none, lambda _: [(X2, None), (X2, 2)], (X2, 3), "Tensor a, int? b"),
    (lambda: of_containers, lambda _: [([X2], {"a": 2}, (1, "b"))], ([X2, X2], {"a": 1}, (2, "c")),
     "Tensor[] xs, Dict(str, int) named, (int, str) pair"),
    (lambda: half_said, lambda _: [(X2, 2.0, 3)], (X2, 1.5, 2), "Tensor x, float n, int m"),
    (Untyped, lambda net: {net: [(X2, 3)]}, (X2, 4), "Tensor x, int n"),
    (Untyped, lambda net: {net.forward: [(X2, 3)]}, (X2, 4), "Tensor x, int n"),
    (Untyped, lambda net: [(X2, 3)], (X2, 4), "Tensor x, int n")])
def test_examples_tell_the_types_of_all_that_is_called(make, examples, call, schema):
    obj = make()
    scripted = fl.jit.script(obj, example_inputs=examples(obj))
    assert schema in (scripted.schema if not isinstance(obj, fl.nn.Module) else scripted.forward.schema)
    found, expected = scripted(*call), obj(*call)
    for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, expected)), strict=True):
        assert fl.equal(a, b) if isinstance(a, fl.Tensor) else a == b


def test_examples_have_a_form():
    with pytest.raises(ValueError, match="List\\[Tuple\\]"):
        fl.jit.script(Untyped(), example_inputs=3)


NUMBERS = {"bool": True, "int": 3, "float": 2.5}
OF_NUMBERS = ("a + b", "a - b", "a * b", "a / b", "a // b", "a % b", "a ** b", "a < b", "a <= b", "a == b", "a != b", "min(a, b)", "max(a, b)",
              "pow(a, b)", "divmod(a, b)", "torch.add(a, b)", "abs(a)", "-a", "round(a)", "math.sqrt(a)", "[a, a][0] + b", "given(a, b)")


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(("first", "second"), [(a, b) for a in NUMBERS for b in NUMBERS if "bool" in (a, b)])
def test_bools_are_numbers(first, second, tmp_path):
    """Beside numbers, as arguments and from Python; what PyTorch refuses is refused."""
    found = []
    for library in (torch, fl):
        source = ["def given(a: float, b: float):\n    return a - b"]
        source += [f"def number{at}(a: {first}, b: {second}):\n    return {text}" for at, text in enumerate(OF_NUMBERS)]
        source += [f"def from_python_{kind}(a: {kind}):\n    return a" for kind in (*NUMBERS, "complex")]
        path = tmp_path / f"numbers_{library.__name__}.py"
        path.write_text("\n\n\n".join(source))
        space = {"torch": library, "math": math, "__name__": path.stem}
        exec(compile(path.read_text(), str(path), "exec"), space)
        calls = [(space[f"number{at}"], (NUMBERS[first], NUMBERS[second])) for at in range(len(OF_NUMBERS))]
        calls += [(space[f"from_python_{kind}"], (NUMBERS[first],)) for kind in (*NUMBERS, "complex")]
        answers = []
        for fn, args in calls:
            try:
                answer = library.jit.script(fn)(*args)
                answers.append((type(answer), answer))
            except RuntimeError:
                answers.append((RuntimeError, None))
        found.append(answers)
    names = [*OF_NUMBERS, *NUMBERS, "complex"]
    assert [(name, a, b) for name, a, b in zip(names, *found, strict=True) if a != b] == []


NAMED = {     # of the operators that name what they give, a call of each
    **{name: f"torch.{name}(x, 1)" for name in ("max", "min", "sort", "median", "nanmedian", "mode", "cummax", "cummin")},
    "topk": "x.topk(2)", "kthvalue": "torch.kthvalue(x, k=2)", "aminmax": "torch.aminmax(x, dim=0)", "frexp": "torch.frexp(x)",
    "histogram": "torch.histogram(x, 4)", "lu_unpack": "torch.lu_unpack(s, torch.ones(3, dtype=torch.int32))",
    **{name: f"torch.{name}(s)" for name in ("svd", "qr", "slogdet", "geqrf")}, "triangular_solve": "torch.triangular_solve(x, s)",
    **{f"linalg_{name}": f"torch.linalg.{name}(s)" for name in ("svd", "qr", "eigh", "eig", "slogdet", "lu", "cholesky_ex", "inv_ex",
       "lu_factor", "lu_factor_ex", "ldl_factor", "ldl_factor_ex")},
    "linalg_lstsq": "torch.linalg.lstsq(s, x)", "linalg_solve_ex": "torch.linalg.solve_ex(s, x)",
}
UNNAMED = {"histogramdd": "its edges are a list, and torch's scripts give a tuple of two as well"}


def named_functions(name: str, folder: Path, library: Any) -> list[Any]:
    """Functions that read the results of an operator by name, by place and whole."""
    fields = getattr(fl.return_types, name)._fields
    source = [f"def fields(x, s):\n    r = {NAMED[name]}\n    return {', '.join(f'r.{field}' for field in fields)}",
              f"def one(x, s):\n    return {NAMED[name]}.{fields[-1]}, {NAMED[name]}[0]",
              f"def parts(x, s):\n    {', '.join(fields)} = {NAMED[name]}\n    return {', '.join(reversed(fields))}",
              f"def whole(x, s):\n    return {NAMED[name]}"]
    path = folder / f"named_{name}_{library.__name__}.py"
    path.write_text("\n\n\n".join(source))
    space = {"torch": library, "__name__": path.stem}
    exec(compile(path.read_text(), str(path), "exec"), space)
    return [space[kind] for kind in ("fields", "one", "parts", "whole")]


def test_all_named_results_are_called():
    assert NAMED.keys() | UNNAMED.keys() == {name for name, kind in vars(fl.return_types).items() if isinstance(kind, type)}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*linalg:UserWarning", "ignore:.*deprecated:UserWarning")
@pytest.mark.parametrize("name", NAMED)
def test_named_results(name, tmp_path):
    """In scripts they are read by name, which archives have too; what Python gets is a plain tuple, as torch's is."""
    given = [[[3.0, 1.0, 2.0], [6.0, 5.0, 4.0], [0.0, 9.0, -1.0]], [[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]]]
    ours, theirs = ([library.tensor(value) for value in given] for library in (fl, torch))
    for mine, other in zip(*(named_functions(name, tmp_path, library) for library in (fl, torch)), strict=True):
        expected, scripted = mine(*ours), fl.jit.script(mine)
        file = io.BytesIO()
        fl.jit.save(scripted, file)
        found = [scripted(*ours), fl.jit.load(io.BytesIO(file.getvalue()))(*ours)]
        kinds = torch.jit.script(other)(*theirs)
        read = torch.jit.load(io.BytesIO(file.getvalue()))(*theirs)
        for answer in found:
            assert type(answer) is type(kinds) is type(read) is tuple
            for a, b, c, d in zip(answer, expected, kinds, read, strict=True):
                assert fl.equal(a, b) and str(a.dtype).partition(".")[2] == str(c.dtype).partition(".")[2] == str(d.dtype).partition(".")[2]
                assert tuple(a.shape) == tuple(c.shape) == tuple(d.shape)


def chain(x: fl.Tensor, y: fl.Tensor):
    z = fl.tanh(x * 2 + y)
    z = fl.sigmoid(z) * x - y
    return z, z / 3


def activations(x: fl.Tensor, y: fl.Tensor):
    z = fl.relu(x) / 3 - y
    z = fl.clamp(z, -0.5, 0.5) * fl.abs(x)
    return F.gelu(z) + fl.addcmul(x, y, z)


def falls(x: fl.Tensor, y: fl.Tensor):
    z = F.dropout(x * 2, 0.5, True) + y
    return fl.where(z > 0, z, y) + z.sum()


@pytest.mark.parametrize(("fn", "kernels"), [(chain, 1), (activations, 1), (falls, 0)])
def test_chains_of_pointwise_operators_become_one_kernel(fn, kernels, monkeypatch):
    made = []
    monkeypatch.setattr(fuse, "compile_fx", lambda *args: made.append(args) or compile_fx(*args))
    scripted = fl.jit.script(fn)
    for size in (40000, 40000, 40000, 40000, 8):
        x, y = fl.linspace(-2, 2, size), fl.linspace(1, -3, size)
        fl.manual_seed(0)
        found = scripted(x, y)
        fl.manual_seed(0)
        expected = fn(x, y)
        for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, expected)), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-4)
    assert len(made) == kernels
    x = fl.randn(40000, requires_grad=True)
    out = scripted(x, x.detach())
    (out[0] if isinstance(out, tuple) else out).sum().backward()
    assert x.grad is not None


def doubled(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


@fl.jit.script_if_tracing
def branch(x):
    return doubled(x)


def test_script_if_tracing_keeps_branches_in_a_trace():
    traced = fl.jit.trace(lambda x: branch(x) + 1, fl.ones(2), check_trace=False)
    assert fl.equal(branch(fl.ones(2)), fl.full((2,), 2.0))
    assert fl.equal(traced(fl.ones(2)), fl.full((2,), 3.0))


def test_traced_and_loaded_modules_are_parts_of_scripted_ones():
    linear = fl.nn.Linear(3, 3)
    traced = fl.jit.trace(fl.nn.Sequential(linear, fl.nn.ReLU()), fl.randn(1, 3))
    loaded = fl.jit.load(io.BytesIO(fl.jit.script(Net()).save_to_buffer()))
    net = fl.nn.Sequential(traced, loaded)
    scripted = fl.jit.script(net)
    x = fl.randn(4, 3)
    expected = loaded.linear(fl.relu(linear(x)))
    assert fl.allclose(scripted(x), expected)
    assert fl.allclose(fl.jit.load(io.BytesIO(scripted.save_to_buffer()))(x), expected)


class Exporting(fl.nn.Module):
    """As LightningModule.to_torchscript does it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = fl.nn.Sequential(fl.nn.Conv2d(1, 2, 3, padding=1), fl.nn.ReLU(), fl.nn.Flatten(), fl.nn.Linear(2 * 16, 3))
        self.unrelated = object()

    def forward(self, x):
        return self.net(x)

    @fl.jit.unused
    def log(self, name: str) -> None:
        print(name)

    def to_torchscript(self, method: str, example: fl.Tensor) -> fl.jit.ScriptModule:
        mode = self.training
        with fl.no_grad():
            made = fl.jit.script(self.eval()) if method == "script" else fl.jit.trace(self.eval(), example)
        self.train(mode)
        return made


@pytest.mark.parametrize("method", ["script", "trace"])
def test_modules_export_themselves(method):
    net, x = Exporting(), fl.randn(2, 1, 4, 4)
    made = net.to_torchscript(method, x)
    assert net.training and isinstance(made, fl.jit.ScriptModule)
    assert fl.allclose(made(x), net(x), atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = torch.jit.load(io.BytesIO(made.save_to_buffer()))
    np.testing.assert_allclose(loaded(torch.tensor(x.numpy())).detach().numpy(), net(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_the_graph_of_a_trace_has_sizes_and_scopes():
    net, x = Exporting().eval(), fl.randn(2, 1, 4, 4)
    names = {module: name for name, module in net.named_modules()}
    state = fl._torch_c._get_tracing_state
    for module in net.modules():
        module.register_forward_pre_hook(lambda module, args: state().push_scope(names[module] or "top"))
        module.register_forward_hook(lambda module, args, out: state().pop_scope())
    graph, out = fl.jit._get_trace_graph(net, (x,))
    assert out.shape == (2, 3) and state() is None
    found = [(n.kind(), n.scopeName(), [v.type().sizes() for v in n.outputs()]) for n in graph.nodes()]
    assert found == [("aten::_convolution", "top/net/net.0", [[2, 2, 4, 4]]), ("aten::relu", "top/net/net.1", [[2, 2, 4, 4]]),
                     ("aten::flatten", "top/net/net.2", [[2, 32]]), ("aten::linear", "top/net/net.3", [[2, 3]])]
    assert [v.type().sizes() for v in graph.outputs()] == [[2, 3]] and [v.node().kind() for v in graph.outputs()] == ["aten::linear"]
    assert not any(n.attributeNames() for n in graph.nodes())
    values = [v.toIValue() if v.type().sizes() is None else v.type().sizes() for v in next(graph.nodes()).inputs()]
    assert values == [[2, 1, 4, 4], [2, 1, 3, 3], [2], [1, 1], [1, 1], [1, 1], False, [0, 0], 1]


@fl.jit.script
def gated(x: fl.Tensor):
    return x * fl.sigmoid(x)


def test_scripted_functions_are_captured_as_their_python():
    compiled = fl.compile(lambda x: gated(x) + 1, fullgraph=True, backend="eager")
    x = fl.randn(3)
    assert fl.allclose(compiled(x), gated(x) + 1)
    assert fl.func.vmap(gated)(x.unsqueeze(0)).shape == (1, 3)


# -- operators of a library's own ----------------------------------------------------------------------------------------------------
DEFINED = {
    "inc(Tensor x, int n=1) -> Tensor": lambda x, n=1: x + n,
    "inc_(Tensor(a!) x, int n=1) -> Tensor(a!)": lambda x, n=1: x.add_(n),
    "two(Tensor x) -> (Tensor, Tensor)": lambda x: (x + 1, x + 2),
    "several(Tensor x) -> Tensor[]": lambda x: [x, x + 1],
    "number(Tensor x) -> int": lambda x: 3,
    "named(Tensor x) -> (Tensor a, int b)": lambda x: (x + 1, 1),
    "nothing(Tensor(a!) x) -> ()": lambda x: None,
}


def defined(library: Any) -> tuple[Any, Any]:
    """A scripted call of each, and the library that has them."""
    home = library.library.Library("scripted_ops", "DEF")
    for text, fn in DEFINED.items():
        home.define(text)
        home.impl(text.partition("(")[0], fn, "CompositeImplicitAutograd")
    ops = library.ops.scripted_ops

    def program(x):
        ops.nothing(x)
        a, b = ops.two(x)
        y = x.clone()
        ops.inc_(y, 2)
        return ops.inc(x), ops.inc(x, n=3), a, b, y, ops.several(x)[1], ops.number(x) + 1, ops.named(x)[1] + 1

    program.__annotations__["x"] = library.Tensor
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return library.jit.script(program), home


def test_operators_of_a_library_give_what_their_signatures_say():
    results = []
    for library in (torch, fl):
        scripted, home = defined(library)
        results.append(plain(scripted(library.ones(2))))
        home._destroy()
    same(results[1], results[0])


# -- programs that are given as text -------------------------------------------------------------------------------------------------
TEXT = """
def scaled(x, by: float = 2.5, shift: Optional[int] = None):
    if shift is not None:
        x = x + shift
    return torch.relu(x) * by

def both(x: List[Tensor], d: Dict[str, int]) -> Tuple[Tensor, int]:
    return scaled(x[0], 3., d["a"]), len(d)
"""


@pytest.mark.parametrize("library", [torch, fl], ids=["torch", "flambeau"])
def test_functions_are_given_as_text(library):
    unit = library.jit.CompilationUnit(TEXT)
    x = library.linspace(-1, 1, 4)
    assert library.allclose(unit.scaled(x), library.relu(x) * 2.5)
    out, count = unit.both([x], {"a": 1})
    assert library.allclose(out, (x + 1) * 3) and count == 1
    unit.define("def again(x):\n  return x * 2\n")
    assert library.allclose(unit.again(x), x * 2)
    for wrong in ("y = 3\n", "def f(x):\n  return nothing\n", "def f(:\n", "def scaled(x):\n  return x\n", "import os\n"):
        with pytest.raises(RuntimeError):
            unit.define(wrong)
    with pytest.raises(AttributeError, match="'CompilationUnit' has no attribute 'absent'"):
        _ = unit.absent


@pytest.mark.parametrize("text", ["def f(x=print('run')):\n  return x\n", "@print\ndef f(x):\n  return x\n", "print('run')\n",
                                  "def f(x: print('run')):\n  return x\n"])
def test_nothing_of_a_text_is_run(text, capsys):
    with pytest.raises((RuntimeError, fl.jit.frontend.NotSupportedError)):
        fl.jit.CompilationUnit(text)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("library", [torch, fl], ids=["torch", "flambeau"])
def test_modules_are_given_methods_as_text(library):
    class Given(library.jit.ScriptModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = library.nn.Parameter(library.full((3,), 2.0))
            self.define("def forward(self, x):\n    return x * self.weight + 1\n")

    net, x = Given(), library.ones(2, 3)
    assert library.equal(net(x), library.full((2, 3), 3.0))
    net(x).sum().backward()
    assert library.equal(net.weight.grad, library.full((3,), 2.0))
    plain = library.jit.ScriptModule()
    plain.define("def twice(self, x):\n  return x * 2\ndef forward(self, x):\n  return self.twice(x) + 1\n")
    assert library.equal(plain(x), x * 2 + 1) and library.equal(plain.twice(x), x * 2)


def test_partials_hold_arguments_of_functions():
    def scaled(x, by: float, plus: int = 1):
        return x * by + plus

    three, double = functools.partial(scaled, plus=3), functools.partial(scaled, by=2.0)

    def program(x):
        return three(x, 2.0), double(x), double(x, by=1.5), double(x, plus=0)

    x = fl.arange(4.0)
    for found, expected in zip(fl.jit.script(program)(x), program(x)):
        assert found.tolist() == expected.tolist()


def changes_its_kind(x: fl.Tensor, high: bool) -> bool:
    z: int | float = 3
    if high:
        z = 2.5
    return isinstance(z, int)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_union_is_declared_in_archives_as_torch_reads_it():
    torch = pytest.importorskip("torch")
    scripted = fl.jit.script(changes_its_kind)
    for load, x in ((fl.jit.load, fl.ones(1)), (torch.jit.load, torch.ones(1))):
        loaded = load(io.BytesIO(scripted.save_to_buffer()))
        assert loaded(x, False) is True and loaded(x, True) is False


def differs_in_type(x: fl.Tensor):
    if x.sum() > 0:
        y = 1
    else:
        y = "a"
    return y


def is_missing_on_one_way(x: fl.Tensor):
    if x.sum() > 0:
        z = x
    return z


@pytest.mark.parametrize(("f", "why", "used"), [
    (differs_in_type, "Type mismatch: y is set to type int in the true branch and type str in the false branch", "return y"),
    (is_missing_on_one_way, "z is not defined in the false branch", "return z")])
def test_names_that_branches_leave_differently_are_told_with_both_places(f, why, used):
    with pytest.raises(RuntimeError) as caught:
        fl.jit.script(f)
    before, _, after = str(caught.value).partition("and was used here:\n")
    assert why in before and "if x.sum() > 0:\n    ~~~" in before and "HERE" in before and f"{used}\n           ~ <--- HERE" in after
