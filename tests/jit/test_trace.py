"""torch.jit.trace: what is traced runs with other sizes, shares its module's state, and, saved, runs in torch to the same numbers."""

from __future__ import annotations

import copy
import importlib.util
import io
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau import nn
from tests.ops.calls import CALLS, arrays, evaluate


def saved(module) -> bytes:
    buffer = io.BytesIO()
    fl.jit.save(module, buffer)
    return buffer.getvalue()


def in_torch(archive: bytes):
    """The archive as torch loads it."""
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.load(io.BytesIO(archive))


def theirs(value):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle")
    if isinstance(value, fl.Tensor):
        return torch.from_numpy(value.detach().numpy().copy())
    return type(value)(map(theirs, value)) if isinstance(value, (tuple, list)) else {k: theirs(v) for k, v in value.items()}


def leaves(value) -> list:
    if isinstance(value, dict):
        return leaves(list(value.values()))
    return [t for v in value for t in leaves(v)] if isinstance(value, (list, tuple)) else [value] if hasattr(value, "dtype") else []


def agree(a, b, tolerance: float = 1e-4) -> bool:
    a, b = leaves(a), leaves(b)
    return len(a) == len(b) and all(
        tuple(x.shape) == tuple(y.shape) and str(x.dtype) == str(y.dtype)
        and np.allclose(x.detach().resolve_conj().numpy(), y.detach().resolve_conj().numpy(), tolerance, tolerance, True)
        for x, y in zip(a, b))


# -- modules -------------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The programs that tests of loading give to torch, over Flambeau."""
    text = (Path(__file__).parent / "programs.py").read_text()
    text = re.sub(r"^import torch\b", "import flambeau as torch", re.sub("import torch.nn", "import flambeau.nn", text), flags=re.MULTILINE)
    path = tmp_path_factory.mktemp("traced") / "flambeau_programs.py"
    path.write_text(re.sub(r"^from torch\b", "from flambeau", text, flags=re.MULTILINE))
    spec = importlib.util.spec_from_file_location("flambeau_programs", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def larger(value):
    """An input of another batch."""
    return fl.cat([value, value.flip(0)]) if isinstance(value, fl.Tensor) else value


@pytest.mark.parametrize("name", ("methods", "sequences", "attention, evaluated", "images", "function"))
def test_modules_run_with_other_sizes_here_and_in_torch(programs, name):
    fl.manual_seed(0)
    make, inputs = programs.TRACED[name]
    module, given = make(), inputs()
    if isinstance(module, nn.Module):
        module.eval()
    traced = fl.jit.trace(module, given, strict=False)
    other = tuple(map(larger, given))
    expected = module(*other)
    assert agree(traced(*other), expected)
    archive = saved(traced)
    assert agree(fl.jit.load(io.BytesIO(archive))(*other), module(*other))
    assert agree(in_torch(archive)(*theirs(other)), expected)


class Net(nn.Module):
    """Some of everything that a trace keeps: shared weights, buffers, submodules with numbers for names, in-place steps, constants."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
        self.second = nn.Linear(4, 3)
        self.tied = nn.Linear(4, 3)
        self.tied.weight = self.second.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("seen", fl.zeros(()))
        self.register_buffer("none", None)

    def forward(self, x, scale):
        y = self.norm(self.first(x))
        self.seen.add_(1)
        z = self.second(y) + self.tied(y) * fl.tensor([1.0, 2.0, 3.0])
        z = z.view(x.size(0) * 3, -1).reshape(-1, 3)
        z[0] = 0.5
        z[:, 1:] += scale
        rows = fl.arange(z.shape[0]).unsqueeze(1)
        return z * rows, y.mean(), fl.zeros(x.shape[0] // 2 + 1, 2)

    def twice(self, x):
        return x * 2 + self.seen


def test_state_is_shared():
    fl.manual_seed(0)
    net = Net()
    x, scale = fl.randn(4, 3), fl.tensor(2.0)
    traced = fl.jit.trace(net, (x, scale), check_trace=False)
    assert type(traced) is fl.jit.TopLevelTracedModule and isinstance(traced, fl.jit.ScriptModule)
    assert traced.second.weight is net.second.weight and traced.seen is net.seen and type(net.seen) is fl.Tensor
    assert list(traced.state_dict()) == list(net.state_dict())
    with fl.no_grad():
        net.second.weight.mul_(0.5)
    twin = copy.deepcopy(net)
    assert agree(traced(fl.ones(6, 3), scale), twin(fl.ones(6, 3), scale)) and agree(net.norm.running_mean, twin.norm.running_mean)
    traced(x, scale)[0].sum().backward()
    twin(x, scale)[0].sum().backward()
    for p, q in zip(net.parameters(), twin.parameters()):
        assert agree(p.grad, q.grad)


def test_gradients_in_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle")
    fl.manual_seed(0)
    net = Net().eval()
    x, scale = fl.randn(4, 3), fl.tensor(2.0)
    module = in_torch(saved(fl.jit.trace(net, (x, scale))))
    assert isinstance(module, torch.jit.ScriptModule) and [n for n, _ in module.named_parameters()] == [
        n for n, _ in net.named_parameters(remove_duplicate=False)]
    expected, result = net(x, scale), module(*theirs((x, scale)))
    assert agree(result, expected)
    expected[0].sum().backward()
    result[0].sum().backward()
    assert agree(dict(module.named_parameters())["first.0.weight"].grad, net.first[0].weight.grad)


def test_several_methods_and_keywords():
    net = Net().eval()
    x, scale = fl.ones(2, 3), fl.tensor(1.0)
    traced = fl.jit.trace_module(net, {"forward": (x, scale), "twice": x})
    assert agree(traced.twice(fl.ones(5)), net.twice(fl.ones(5))) and agree(traced(x, scale), net(x, scale))
    assert agree(in_torch(saved(traced)).twice(theirs(x)), net.twice(x))
    named = fl.jit.trace(net, example_kwarg_inputs={"scale": scale, "x": x})
    assert agree(named(x=x, scale=scale), net(x, scale))


def test_functions():
    def fn(x, pair, table):
        a, b = pair
        return {"sum": x + a * b, "part": table["k"][x > 0]}

    given = (fl.tensor([1.0, -1.0]), (fl.ones(2), fl.ones(())), {"k": fl.arange(2)})
    with pytest.raises(RuntimeError, match="strict=False"):
        fl.jit.trace(fn, given)
    traced = fl.jit.trace(fn, given, strict=False)
    assert isinstance(traced, fl.jit.ScriptFunction) and traced.name == "fn" and "torch.index" in traced.code
    assert traced.save_to_buffer() == saved(traced) and "aten::index" in str(traced.graph)
    other = (fl.tensor([-1.0, 3.0, 4.0]), (fl.ones(3), fl.full((), 2.0)), {"k": fl.arange(3)})
    assert agree(traced(*other), fn(*other)) and agree(in_torch(saved(traced))(*theirs(other)), fn(*other))
    with pytest.raises(RuntimeError, match="cannot be traced"):
        fl.jit.trace(fn, (1, 2, 3))
    with pytest.raises(RuntimeError, match="can be output from traced functions"):
        fl.jit.trace(lambda x: "text", fl.ones(2))


@pytest.mark.parametrize(("kind", "fn"), [
    ("boolean", lambda x: x + 1 if x.sum() > 0 else x), ("integer", lambda x: x * int(x[0])), ("float", lambda x: x * float(x[0])),
    ("number", lambda x: x * x[0].item()), ("list", lambda x: x * x.tolist()[0]), ("index", lambda x: x[x.argmax().__index__()]),
])
def test_what_python_decides_is_told(kind, fn):
    with pytest.warns(fl.jit.TracerWarning, match=f"Converting a tensor to a Python {kind} might cause the trace to be incorrect"):
        traced = fl.jit.trace(fn, fl.tensor([2.0, 1.0]), check_trace=False)
    assert agree(traced(fl.tensor([2.0, 1.0])), fn(fl.tensor([2.0, 1.0])))


def test_results_are_checked():
    count = []

    def fn(x):
        count.append(1)
        return x + len(count)

    with pytest.warns(fl.jit.TracerWarning, match="does not match the corresponding output of the Python function"):
        fl.jit.trace(fn, fl.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fl.jit.trace(lambda x: F.dropout(x, 0.5), fl.ones(100))


def test_a_trace_leaves_nothing_behind():
    net = Net()
    before = copy.deepcopy(net.state_dict())
    x = fl.ones(2, 3)
    fl.jit.trace(net, (x, fl.ones(())))
    assert type(x) is fl.Tensor and type(net.norm.running_mean) is fl.Tensor and not fl.jit.is_tracing()
    assert float(net.seen) == float(before["seen"]) + 1      # the run itself; checks leave buffers as they were
    with pytest.raises(ZeroDivisionError):
        fl.jit.trace(lambda x: x / (1 // 0), x)
    assert type(fl.ones(3) + x) is fl.Tensor and fl.ones(2).shape == (2,)


def test_who_asks_is_told_of_a_trace():
    seen = []

    def fn(x):
        seen.append(fl.jit.is_tracing())
        return x + 1

    fl.jit.trace(fn, fl.ones(1), check_trace=False)
    assert seen == [True]


def test_what_torchscript_has_no_operator_for_is_named():
    with pytest.raises(NotImplementedError, match="unique is no operator that TorchScript has"):
        fl.jit.trace(lambda x: fl.unique(x), fl.ones(2), check_trace=False)


def test_extra_files_and_paths(tmp_path):
    traced = fl.jit.trace(nn.Linear(2, 2), fl.ones(1, 2))
    path = tmp_path / "net.pt"
    fl.jit.save(traced, path, _extra_files={"a.txt": "hello"})
    extra = {"a.txt": ""}
    assert agree(fl.jit.load(path, _extra_files=extra)(fl.ones(1, 2)), traced(fl.ones(1, 2))) and extra["a.txt"] == b"hello"
    assert traced.save_to_buffer()[:2] == b"PK"
    with pytest.raises(TypeError, match="trace it first"):
        fl.jit.save(nn.Linear(1, 1), path)


def test_what_was_loaded_is_saved_again(programs):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = importlib.import_module("tests.jit.programs")
        for name in ("objects", "sequences", "interface", "methods"):
            make, inputs = source.SCRIPTED[name]
            module, given = torch.jit.script(make().eval()), inputs()
            buffer = io.BytesIO()
            torch.jit.save(module, buffer)
            again = in_torch(saved(fl.jit.load(io.BytesIO(buffer.getvalue()))))
            assert agree(again(*copy.deepcopy(given)), module(*given))


# -- every operator --------------------------------------------------------------------------------------------------------------
RANDOM = ("rand", "bernoulli", "dropout", "gumbel", "multinomial", "normal", "poisson", "empty", "linalg.eig(")
NONE = {"t.unique(i)": "unique", "t.cdist(x, y)": "distances", "F.local_response_norm(I, 2)": "pad_zeros",
        "F.embedding_bag(i, x)": "_embedding", "F.embedding_bag(i, x, mode='max')": "_embedding"}
"""Calls that have no operator of TorchScript, and what is told of them."""


def traced_call(call: str):
    tensors = {name: fl.tensor(np.asarray(v, np.float32) if np.asarray(v).dtype == np.float64 else np.asarray(v))
               for name, v in arrays().items()}
    used = [name for name in tensors if re.search(rf"\b{name}\b", call)]

    def fn(*given):
        return evaluate(fl, call, {**tensors, **dict(zip(used, given))})

    given = [tensors[name] for name in used]
    expected = fn(*[t.clone() for t in given])
    traced = fl.jit.trace(fn, tuple(t.clone() for t in given), check_trace=False, strict=False) if leaves(expected) else None
    return traced, given, expected


@pytest.mark.parametrize("part", range(8))
def test_every_operator_is_traced_and_runs_in_torch(part):
    wrong = {}
    for call in CALLS[part::8]:
        if call in NONE:
            with pytest.raises(NotImplementedError, match=f"{NONE[call]} is no operator"):
                traced_call(call)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced, given, expected = traced_call(call)
        if traced is None or any(word in call for word in RANDOM):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # torch's, of functions that are new or old
            if not agree(traced(*[t.clone() for t in given]), expected):
                wrong[call] = "here"
            elif call != "x.view(x.dtype)" and not agree(in_torch(saved(traced))(*theirs(given)), expected):    # torch reads it as sizes
                wrong[call] = "in torch"
    assert not wrong
