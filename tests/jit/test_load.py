"""torch.jit.load reads what torch's torch.jit.save wrote: the same results, gradients, attributes and errors."""

from __future__ import annotations

import copy
import importlib
import io
import random
import re
import warnings
import zipfile

import numpy as np
import pytest

import flambeau as fl
from flambeau.serialization import LoadError
from tests.ops.calls import CALLS, arrays, evaluate

torch = pytest.importorskip("torch", reason="PyTorch is the oracle")


@pytest.fixture(scope="module")
def programs():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("tests.jit.programs")


def saved(module) -> bytes:
    """The archive that torch writes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        buffer = io.BytesIO()
        torch.jit.save(module, buffer)
    return buffer.getvalue()


def scripted(thing):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(thing)


def traced(thing, inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(thing, inputs, strict=False, check_trace=False)


def load(archive: bytes, **kwargs):
    return fl.jit.load(io.BytesIO(archive), **kwargs)


def ours(value):
    """torch's values as Flambeau's."""
    if isinstance(value, torch.Tensor):
        return fl.tensor(value.detach().numpy().copy())
    if isinstance(value, (list, tuple)):
        return type(value)(map(ours, value))
    return {k: ours(v) for k, v in value.items()} if isinstance(value, dict) else value


def same(a, b) -> None:
    """Results agree, in structure and numbers."""
    if isinstance(b, torch.Tensor):
        assert str(a.dtype) == str(b.dtype).replace("torch", "torch") and tuple(a.shape) == tuple(b.shape)
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=2e-5, atol=2e-5)
    elif isinstance(b, (list, tuple)):
        assert isinstance(a, tuple) == isinstance(b, tuple) and len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(b, dict):
        assert list(a) == list(b)
        for key in b:
            same(a[key], b[key])
    else:
        assert type(a) is type(b) and (a == b or a != a), (a, b)


def tensors(value) -> list:
    if isinstance(value, dict):
        return tensors(list(value.values()))
    return [t for v in value for t in tensors(v)] if isinstance(value, (list, tuple)) else [value] if hasattr(value, "grad_fn") else []


def loss(result):
    return sum((t.double() ** 2).sum() for t in tensors(result) if t.requires_grad)


def check(module, archive: bytes, inputs: tuple) -> None:
    """The loaded module computes what torch's computes, and so do the gradients of its parameters; it is left with the same state."""
    loaded = load(archive)
    theirs, result = module(*inputs), loaded(*ours(inputs))
    same(result, theirs)
    names = dict(module.named_parameters()) if isinstance(module, torch.nn.Module) else {}
    assert [name for name, _ in loaded.named_parameters()] == list(names)
    if names:
        loss(theirs).backward()
        loss(result).backward()
        for name, p in loaded.named_parameters():
            assert (p.grad is None) == (names[name].grad is None)
            if p.grad is not None:
                np.testing.assert_allclose(p.grad.numpy(), names[name].grad.numpy(), rtol=1e-3, atol=1e-4)
    if isinstance(module, torch.nn.Module):
        state = module.state_dict()
        assert list(loaded.state_dict()) == list(state)
        for name, value in loaded.state_dict().items():
            same(value, state[name])


NAMES = ("interface", "objects", "objects by default", "containers", "numbers", "loops", "loops that break", "indexing", "scopes", "forks",
         "methods", "an int", "a text", "sequences", "packed", "attention", "attention, evaluated", "images", "function")


@pytest.mark.parametrize("name", NAMES)
def test_what_torch_scripted_runs_to_the_same(programs, name):
    assert tuple(programs.SCRIPTED) == NAMES
    torch.manual_seed(0)
    make, inputs = programs.SCRIPTED[name]
    given = inputs()
    module = make()
    if name == "attention":
        module = module.train()
        for dropout in (m for m in module.modules() if hasattr(m, "dropout") and isinstance(m.dropout, float)):
            dropout.dropout = 0.0
        for dropout in (m for m in module.modules() if isinstance(m, torch.nn.Dropout)):
            dropout.p = 0.0
    module = scripted(module)
    archive = saved(module)
    check(module, archive, copy.deepcopy(given))


@pytest.mark.parametrize("name", ("methods", "sequences", "attention, evaluated", "images", "function"))
def test_what_torch_traced_runs_to_the_same(programs, name):
    torch.manual_seed(0)
    make, inputs = programs.TRACED[name]
    given = inputs()
    module = traced(make(), copy.deepcopy(given))
    archive = saved(module)
    check(module, archive, given)


RANDOM = ("rand", "bernoulli", "dropout", "gumbel", "multinomial", "normal", "poisson", "empty", "linalg.eig(")
REFUSED_BY_TORCH = ("x.view(x.dtype)", "x.data", "F.max_unpool2d(*F.max_pool2d(I, 2, return_indices=True), 2)")


@pytest.mark.parametrize("part", range(8))
def test_every_operator_that_torch_traces(part):
    wrong = {}
    values = {name: np.asarray(v, np.float32) if np.asarray(v).dtype == np.float64 else np.asarray(v) for name, v in arrays().items()}
    given = {name: torch.tensor(v) for name, v in values.items()}
    for call in CALLS[part::8]:
        used = [name for name in values if re.search(rf"\b{name}\b", call)] or ["w"]
        if call in REFUSED_BY_TORCH or any(word in call for word in RANDOM):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = evaluate(torch, call, {name: t.clone() for name, t in given.items()})
            if not tensors(expected):
                continue
            archive = saved(traced(lambda *args, call=call, used=used: evaluate(torch, call, {**given, **dict(zip(used, args))}),
                                   tuple(given[name].clone() for name in used)))
            found = load(archive)(*[fl.tensor(values[name]) for name in used])
        for a, b in zip(tensors(found), tensors(expected), strict=True):
            if not np.allclose(a.detach().resolve_conj().numpy(), b.detach().resolve_conj().numpy(), 1e-4, 1e-5, equal_nan=True):
                wrong[call] = a, b
    assert not wrong


def test_a_loaded_module_is_a_module(programs, tmp_path):
    torch.manual_seed(0)
    module = scripted(programs.Methods().eval())
    path = tmp_path / "net.pt"
    path.write_bytes(saved(module))
    loaded = fl.jit.load(path)
    assert isinstance(loaded, fl.jit.ScriptModule) and isinstance(loaded, fl.nn.Module) and loaded.original_name == "Methods"
    assert not loaded.training and not loaded.norm.training and loaded.train().norm.training and loaded.steps == 3
    loaded.eval()
    assert [name for name, _ in loaded.named_modules()] == [name for name, _ in module.named_modules()]
    assert isinstance(loaded.norm.weight, fl.nn.Parameter) and len(loaded.layers) == 2
    x = torch.randn(4, 3)
    same(loaded.other(4), module.other(4))
    same(loaded.layers[0](ours(x)), module.layers[0](x))
    assert "x = " in loaded.code or "torch." in loaded.code
    assert loaded.graph.findAllNodes("prim::CallMethod") and "aten::add_" in str(loaded.graph)
    assert "original_name=Linear" in repr(loaded)
    twin = copy.deepcopy(loaded)
    with fl.no_grad():
        twin.norm.weight.fill_(0.0)
    assert float(loaded.norm.weight.sum()) and not float(twin.norm.weight.sum())
    loaded.double()
    assert loaded(fl.ones(4, 3, dtype=fl.float64)).dtype is fl.float64
    loaded.load_state_dict({name: fl.zeros_like(value) for name, value in loaded.state_dict().items()})
    assert not float(loaded(fl.ones(4, 3, dtype=fl.float64)).abs().sum())
    with pytest.raises(AttributeError, match="constant"):
        loaded.steps = 4
    with pytest.raises(RuntimeError, match="missing value for argument 'x'"):
        loaded()
    with pytest.raises(RuntimeError, match="Expected a value of type 'Tensor' for argument 'x' but instead found type 'str'"):
        loaded("text")
    with pytest.raises(RuntimeError, match=r"Unknown keyword argument .y."):
        loaded(fl.ones(4, 3), y=1)
    with pytest.raises(TypeError, match="cannot be pickled"):
        fl.save(loaded, io.BytesIO())


def test_a_compiler_sees_it_and_hooks_come_before_it(programs):
    module = scripted(programs.Methods().eval())
    loaded = load(saved(module))
    x = fl.ones(4, 3)
    expected = loaded(x)
    for name in ("forward_hook", "forward_pre_hook", "backward_hook", "full_backward_hook", "full_backward_pre_hook"):
        for one in (module, loaded):
            with pytest.raises(RuntimeError, match=f"register_{name} is not supported on ScriptModules"):
                getattr(one, f"register_{name}")(lambda *_: None)
    assert fl.allclose(fl.compile(lambda x: loaded(x) * 2)(x), expected * 2)


def test_errors_are_those_of_the_program(programs):
    loaded = load(saved(scripted(programs.Errors())))
    assert loaded(fl.ones(2, 2)).shape == (2, 2)
    with pytest.raises(fl.jit.Error, match=r"builtins\.ValueError: two dimensions wanted, got 3") as caught:
        loaded(fl.ones(2, 2, 2))
    assert any("in TorchScript, Errors.forward, line" in note for note in caught.value.__notes__)
    with pytest.raises(fl.jit.Error, match="too few rows"):
        loaded(fl.ones(1, 2))


def test_extra_files_and_where_tensors_go(programs):
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(programs.Scopes()), buffer, _extra_files={"note.txt": b"hello"})
    extra = {"note.txt": "", "none": "as it was"}
    loaded = load(buffer.getvalue(), _extra_files=extra, map_location="meta")
    assert extra == {"note.txt": b"hello", "none": "as it was"} and loaded.w.device.type == "meta"


def test_files_that_are_something_else(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        fl.jit.load(tmp_path / "none.pt")
    buffer = io.BytesIO()
    fl.save({"a": 1}, buffer)
    with pytest.raises(LoadError, match="no TorchScript archive"):
        load(buffer.getvalue())
    with pytest.raises(LoadError):
        load(b"PK nothing")


def rewritten(archive: bytes, change) -> bytes:
    """The archive with members that `change(name, data)` gives; None leaves one out."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(made, "w") as new:
        for info in old.infolist():
            data = change(info.filename, old.read(info))
            if data is not None:
                new.writestr(info.filename, data)
    return made.getvalue()


HOSTILE = (
    "import os", "x = __import__('os')", "def f() -> int:\n  import os\n  return 1", "def f(x: Tensor) -> Tensor:\n  return [y for y in x]",
    "def f() -> int:\n  return (lambda: 1)()", "def f(x: Tensor) -> Tensor:\n  global y\n  return x", "@f\ndef g() -> int:\n  return 1",
    "class A(Module, metaclass=f):\n  pass", "class A(object):\n  pass", "def f(*a: int) -> int:\n  return 1",
    "class A:\n  x : int = print(1)",
    "def f() -> Tensor:\n  return torch.from_file(\"/etc/passwd\")", "def f() -> int:\n  return ops.prim.exec(\"1\")",
    "def f() -> int:\n  return CONSTANTS.c99", "def f() -> int:\n  return 9223372036854775808", "def f() -> int:\n  return x[1:2]",
    "def f(x: Tensor) -> int:\n  x[0] = 1\n  return 1", "def f() -> int:\n  yield 1", "class A(NamedTuple):\n  _x : int", "(" * 300,
    "def f() -> str:\n  return f\"{x}\"", "def f() -> int:\n  return " + "-" * 5000 + "1", "\0", "def f() -> 3:\n  return 1",
    "class A(Module):\n  __class__ : int", "def f(x: int) -> int:\n  return x if x else (y := 1)", "class A(Module):\n  x : Optional",
    "class A(Module):\n  x : Dict[int]", "class A(Module):\n  x : Final[int] = -\"a\"", "class A(Module):\n  x : Final[int] = {[1]: 2}",
    "class A(Module):\n  x : Final[int] = torch.len([])", "class A(Module):\n  x : Final[int] = (lambda: 1)", "class A(Enum):\n  mro = 1",
    "async def f() -> int:\n  return 1",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_text_that_is_no_torchscript_is_refused_before_anything_runs(programs, text, capsys):
    archive = saved(scripted(programs.AddOne()))
    bad = rewritten(archive, lambda name, data: data + b"\n" + text.encode() if name.endswith("programs.py") else data)
    with pytest.raises(LoadError) as caught:
        load(bad)
    assert len(str(caught.value)) < 400 and not capsys.readouterr().out


@pytest.mark.parametrize("text", [
    "x.__class__", "x.__class__.__mro__", "self.__dict__", "self._class", "(self).state_dict()", "(x).numpy()", "self.forward.__globals__",
    "open(\"/etc/passwd\")", "eval(\"1\")", "getattr(self, \"__init__\")", "os.system(\"true\")", "torch.save(x, \"f\")",
    "torch.nonsense(x)",
    "ops.nowhere.nothing(x)", "torch.format(\"{0.__class__}\", 1)", "torch.percentFormat(\"%99999999d\", 1)", "torch.mul(\"a\", torch.mul)",
])
def test_programs_reach_nothing_but_their_own(programs, text):
    archive = saved(scripted(programs.AddOne()))

    def change(name, data):
        return data.replace(b"torch.add(x, 1)", text.encode()) if name.endswith("programs.py") else data

    with pytest.raises((RuntimeError, AttributeError, TypeError, ValueError)):
        result = load(rewritten(archive, change))(fl.ones(2))
        assert isinstance(result, str) and "{0" in result
        raise RuntimeError("text stays text")


def test_no_file_is_opened_to_show_a_line_that_cannot_be_parsed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("<unknown>", "<string>", "programs.py"):     # what Python's parser may take a text without a name for
        (tmp_path / name).write_text("a secret\n" * 50)
    archive = rewritten(saved(fl.jit.trace(fl.nn.ReLU(), fl.ones(2))), lambda name, data: data + b"def (\n" if name.endswith(".py") else data)
    with pytest.raises(LoadError, match="line") as caught:
        load(archive)
    error: BaseException | None = caught.value
    while error is not None:
        assert "secret" not in (getattr(error, "text", None) or str(error))
        error = error.__context__
    with pytest.raises(RuntimeError, match="never closed") as given:
        fl.jit.CompilationUnit("def f(x):\n    return (\ndef\n")
    assert "secret" not in str(given.value) and "return (" in str(given.value)


def test_damaged_archives_end_in_one_error(programs):
    archive = saved(scripted(programs.Methods()))
    rng = random.Random(0)
    for _ in range(300):
        bad = bytearray(archive)
        for _ in range(rng.choice((1, 1, 4, 50))):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        cut = bad[:rng.randrange(len(bad))] if rng.random() < 0.2 else bad
        try:
            load(bytes(cut))
        except (LoadError, NotImplementedError):
            pass


def test_archives_whose_sums_are_right_and_whose_contents_are_not(programs):
    archive = saved(scripted(programs.Objects()))
    rng = random.Random(1)
    for turn in range(300):
        victim = ("data.pkl", "programs.py", "constants.pkl", "version")[turn % 4]

        def change(name, data, victim=victim):
            if not name.endswith(victim):
                return data
            bad = bytearray(data)
            for _ in range(rng.choice((1, 2, 8))):
                bad[rng.randrange(len(bad))] = rng.randrange(256)
            return bytes(bad[:rng.randrange(1, len(bad))] if rng.random() < 0.2 else bad)

        try:
            load(rewritten(archive, change))
        except (LoadError, NotImplementedError):
            pass


WORDS = ("os", "__class__", "training", "Final[int]", "99999999999999999999", "-1", '"../x"', "ops.open", "CONSTANTS.c9", "self", "None")


def test_archives_with_other_words_in_their_text(programs):
    """What is loaded is a program of the language, or there is one error of one line."""
    archive = saved(scripted(programs.Objects()))
    rng = random.Random(2)
    for _ in range(300):
        def change(name, data):
            if not name.endswith(".py"):
                return data
            text = data.decode()
            for _ in range(rng.choice((1, 1, 2))):
                words = list(re.finditer(r"[A-Za-z_][\w.]*|\d+", text))
                at, other = rng.choice(words), rng.choice(words)
                word = other[0] if rng.random() < 0.6 else rng.choice(WORDS)
                text = text[:at.start()] + word + text[at.end():]
            return text.encode()

        try:
            load(rewritten(archive, change))
        except (LoadError, NotImplementedError) as error:
            assert "\n" not in str(error).strip()


@pytest.mark.parametrize("line", ["  training : Final[bool] = 4", "  training : Final[bool] = True", "  __len__ : Final[int] = 3"])
def test_what_a_module_has_is_no_constant(programs, line):
    archive = saved(scripted(programs.Methods()))
    changed = rewritten(archive, lambda name, data: data.replace(b"  training : bool", line.encode()) if name.endswith(".py") else data)
    with pytest.raises(LoadError, match="an attribute is called"):
        load(changed)
