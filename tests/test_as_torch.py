"""`import flambeau.as_torch`, and the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def says(code: str) -> str:
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_modules_are_the_same_objects() -> None:
    says(
        "import flambeau.as_torch\n"
        "import torch, torch.utils.data as data, torch.nn as nn, torch.nn.functional as F\n"
        "from torch import Tensor\n"
        "import flambeau, flambeau.utils.data, flambeau.nn.functional\n"
        "assert torch is flambeau and data is flambeau.utils.data and nn is flambeau.nn\n"
        "assert F is flambeau.nn.functional is nn.functional and Tensor is flambeau.Tensor\n"
        "assert data.__spec__.name == 'flambeau.utils.data' and torch.__name__ == 'torch' and torch.__package__ == 'flambeau'\n"
    )


def test_modules_say_torch_and_are_found_by_what_they_say() -> None:
    says(
        "import flambeau.as_torch\n"
        "import sys, types, torch, torch.jit, torch.utils.data, torch.nn.utils.prune, torch.func\n"
        "own = {name: module for name, module in sys.modules.items() if name.startswith('torch.') and isinstance(module, types.ModuleType)}\n"
        "assert len(own) > 100\n"
        "for name, module in own.items():\n"
        "    assert sys.modules[module.__name__] is module and module.__spec__.name.startswith('flambeau'), name\n"
        "for name in ('nn', 'nn.functional', 'jit', 'optim', 'utils.data', 'linalg', 'nn.utils.prune'):\n"
        "    assert sys.modules['torch.' + name].__name__ == 'torch.' + name, name\n"
    )


def test_programs_are_compiled_the_same_where_modules_say_torch() -> None:
    says(
        "import flambeau.as_torch\n"
        "import torch\n"
        "net, x = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ELU()), torch.ones(2, 3)\n"
        "same = lambda f, *args: torch.testing.assert_close(torch.compile(f, backend='eager', fullgraph=True)(*args), f(*args))\n"
        "same(lambda x: net(x).sum() + torch.distributions.Normal(x, 1.0).log_prob(x).sum(), x)\n"
        "same(torch.func.grad(lambda x: x.square().sum()), x)\n"
        "same(torch.func.vmap(lambda row: torch.nn.functional.softmax(row, 0)), x)\n"
        "optimizer = torch.optim.Adam(net.parameters())\n"
        "net(x).sum().backward()\n"
        "torch.compile(optimizer.step, backend='eager')()\n"
    )


def test_programs_are_scripted_the_same_where_modules_say_torch(tmp_path: Path) -> None:
    """What the library's functions in Python ask of it, and whose classes and functions a program calls."""
    (tmp_path / "program.py").write_text("""
import flambeau.as_torch, torch
import torch.nn as nn
for layer in (nn.ReLU(), nn.Softmax(-1), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.GELU(), nn.Dropout()), nn.PReLU(),
              nn.Tanhshrink(), nn.LayerNorm(4), nn.Softsign(), nn.GLU(), nn.MultiheadAttention(4, 2)):
    given = (torch.ones(2, 4),) * (3 if isinstance(layer, nn.MultiheadAttention) else 1)
    got, want = torch.jit.script(layer.eval())(*given), layer(*given)
    assert torch.allclose(got[0], want[0]), layer
print("all")
""")
    run = python("program.py", cwd=tmp_path)
    assert run.stdout == "all\n" and not run.stderr, run.stderr


def test_the_version_that_libraries_see() -> None:
    assert says(
        "import flambeau.as_torch, torch\n"
        "from importlib.metadata import version\n"
        "from importlib.util import find_spec\n"
        "assert find_spec('torch') and find_spec('torch.nn') and not find_spec('torch.nowhere')\n"
        "assert version('torch') == torch.__version__\n"
        "print(torch.__version__)"
    ).startswith("2.13.0")


def test_missing_submodules_are_named() -> None:
    says(
        "import flambeau.as_torch\n"
        "try:\n    import torch.nowhere.at_all\n"
        "except ModuleNotFoundError as error:\n    assert error.name == 'torch.nowhere', error\n"
        "else:\n    raise AssertionError\n"
        "import flambeau.as_torch as again\n"
        "again.install()\n"
    )


def test_torch_may_not_be_there_already() -> None:
    pytest.importorskip("torch")
    done = python("-c", "import torch, flambeau.as_torch")
    assert done.returncode == 1 and "before the first `import torch`" in done.stderr


def test_run(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    (tmp_path / "script.py").write_text(
        "import sys, torch, beside\n"
        "if __name__ == '__main__':\n    print(torch.__name__, sys.argv, beside.VALUE, torch.ones(2).sum().item())\n"
        "    sys.exit(3)\n"
    )
    done = python("-m", "flambeau", "run", str(tmp_path / "script.py"), "--rate", "1", "-v")
    assert done.returncode == 3, done.stderr
    assert done.stdout == f"torch {[str(tmp_path / 'script.py'), '--rate', '1', '-v']} 7 2.0\n"
    module = python("-m", "flambeau", "run", "-m", "script", "x", cwd=tmp_path)
    assert module.returncode == 3 and module.stdout.endswith("'x'] 7 2.0\n"), module.stderr


def test_library_functions_are_operators_of_scripts_where_modules_say_torch(tmp_path: Path) -> None:
    script = tmp_path / "scripted.py"
    script.write_text("import torch\n"
                      "@torch.jit.script\n"
                      "def made(i: torch.Tensor, v: torch.Tensor, n: int):\n"
                      "    return torch.sparse_coo_tensor(i, v, [n, n]).to_dense()\n"
                      "print(made(torch.tensor([[0, 1], [1, 0]]), torch.tensor([1, 2]), 2).tolist())\n")
    done = python("-m", "flambeau", "run", str(script))
    assert done.stdout == "[[0, 1], [2, 0]]\n", done.stderr


def test_run_without_a_script() -> None:
    missing = python("-m", "flambeau", "run", "nowhere.py")
    assert missing.returncode == 2 and "no such script: nowhere.py" in missing.stderr
    assert python("-m", "flambeau").returncode == 2


@pytest.mark.parametrize(("text", "runs"), [
    ("import torch\ntorch.zeros(2) @ torch.zeros(3)\n", True), ("x = (\n", False), ("raise KeyboardInterrupt\n", True)])
def test_errors_of_a_script_begin_with_its_own_line(tmp_path: Path, text: str, runs: bool) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    done = python("-m", "flambeau", "run", str(script))
    frames = [line.strip() for line in done.stderr.splitlines() if line.startswith("  File ")]
    assert done.returncode and frames[0].startswith(f'File "{script}", line'), done.stderr
    assert "runpy" not in done.stderr and "__main__.py" not in done.stderr
    assert not runs or frames[0].endswith(f"line {text.count(chr(10))}, in <module>")


def test_version_and_the_head_of_a_listing() -> None:
    told = python("-m", "flambeau", "--version")
    assert told.returncode == 0 and told.stdout.startswith("flambeau ")
    listing = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-m', 'flambeau', 'ops'], stdout=-1, stderr=-1); " \
              "p.stdout.readline(); p.stdout.close(); print(p.stderr.read().decode() or 'silent')"
    assert python("-c", listing).stdout == "silent\n"


def test_info_and_ops() -> None:
    info = python("-m", "flambeau", "info")
    assert info.returncode == 0 and "numpy" in info.stdout, info.stderr
    ops = python("-m", "flambeau", "ops", "relu*")
    assert ops.returncode == 0 and "relu" in ops.stdout and "operators" in ops.stdout, ops.stderr


def test_classes_say_where_torch_has_them() -> None:
    """Libraries look at `__module__`, and pickles, `_target_` strings and the lists of what a file may name spell classes by it."""
    torch = pytest.importorskip("torch")
    every = ("Tensor device dtype Size Generator layout memory_format finfo SymInt FloatStorage FloatTensor nn.Parameter nn.Buffer "
             "nn.Linear nn.Module nn.ModuleList nn.LSTM nn.MultiheadAttention nn.LayerNorm nn.CrossEntropyLoss optim.Adam optim.Optimizer "
             "optim.lr_scheduler.StepLR optim.swa_utils.AveragedModel autograd.Function fx.GraphModule fx.Node utils.data.DataLoader "
             "utils.data.TensorDataset nn.utils.rnn.PackedSequence no_grad autocast amp.GradScaler storage.UntypedStorage")
    names = [*every.split(), *(f"optim.{name}" for name, cls in vars(torch.optim).items() if isinstance(cls, type)),
             *(f"distributions.{name}" for name in torch.distributions.__all__ if isinstance(getattr(torch.distributions, name), type))]
    told = says(
        "import flambeau.as_torch, torch, operator, pickle, importlib, torch.nn.utils.rnn, torch.optim.swa_utils, torch.storage\n"
        f"for name in {names}:\n"
        "    cls = operator.attrgetter(name)(torch)\n"
        "    assert getattr(importlib.import_module(cls.__module__), cls.__name__) is cls, name\n"
        "    assert pickle.loads(pickle.dumps(cls)) is cls, name\n"
        "    print(cls.__module__)\n"
    ).split()
    expected = []
    for name in names:
        found = torch
        for part in name.split("."):
            found = getattr(found, part)
        expected.append(found.__module__)
    assert told == expected


def test_what_is_named_so_goes_on_working() -> None:
    says(
        "import flambeau.as_torch, torch, io, copy, inspect, pickle\n"
        "net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LSTM(2, 2))\n"
        "assert str(pickle.loads(pickle.dumps(net))) == str(copy.deepcopy(net)) == str(net)\n"
        "buffer = io.BytesIO()\n"
        "torch.save(net, buffer)\n"
        "assert b'torch.nn.modules.linear' in buffer.getvalue() or b'torch.nn\\nLinear' in buffer.getvalue()\n"
        "buffer.seek(0)\n"
        "assert type(torch.load(buffer, weights_only=False)[0]) is torch.nn.Linear\n"
        "buffer.seek(0)\n"
        "with torch.serialization.safe_globals([torch.nn.Sequential, torch.nn.Linear, torch.nn.LSTM]):\n"
        "    assert type(torch.load(buffer)[1]) is torch.nn.LSTM\n"
        "assert 'class Linear' in inspect.getsource(torch.nn.Linear)\n"
        "x = torch.ones(1, 2)\n"
        "assert torch.equal(torch.compile(net[0], fullgraph=True)(x), net[0](x))\n"
        "graph = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))\n"
        "assert [n.op for n in graph.graph.nodes] == ['placeholder', 'call_module', 'call_module', 'output']\n"
    )


def test_modules_are_attributes_without_an_import() -> None:
    """As most of PyTorch's are: `torch.profiler.profiler`, `torch.fx.experimental.proxy_tensor`."""
    says(
        "import flambeau.as_torch\n"
        "import torch, functools\n"
        "for name in ('profiler.profiler', 'fx.experimental.proxy_tensor', 'autograd.profiler_util', 'nn.parallel.data_parallel', 'mtia',\n"
        "             'package.importer', 'fx.passes.infra.pass_base', 'jit._state', '_library.infer_schema', 'testing._internal'):\n"
        "    module = functools.reduce(getattr, name.split('.'), torch)\n"
        "    assert module.__spec__.name == 'flambeau.' + name, module\n"
        "for package in (torch, torch.nn, torch.fx, torch.profiler):\n"
        "    assert not hasattr(package, 'nowhere') and not hasattr(package, '__nowhere__')\n"
    )
