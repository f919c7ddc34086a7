"""Names that exist to be imported: where torch keeps them, what they say when they are used, and modules that share a function's name."""

from __future__ import annotations

import importlib
import operator
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flambeau as fl
from flambeau import _absent, _homes

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("row", sorted(_homes.KEPT.keys() | _homes.LEFT_OUT.keys()))
def test_every_row_can_be_imported_and_names_what_it_says(row: str) -> None:
    module = importlib.import_module(f"flambeau.{row}")
    assert module.__doc__
    source, kept = _homes.KEPT.get(row, ("", ""))
    home = importlib.import_module(f"flambeau.{source}".rstrip("."))
    if kept == "*":
        assert module is home
        return
    for name in kept.split():
        here, _, there = name.partition("=")
        assert getattr(module, here) is operator.attrgetter(there or here)(home)
    assert isinstance(module.__loader__, _homes._Loader), "a file has taken the row's place: drop it"
    for name in _homes.LEFT_OUT.get(row, ("", ""))[1].split():
        found = getattr(module, name)
        assert found is getattr(module, name)
        with pytest.raises(NotImplementedError, match=f"{name} is not implemented; "):
            found()
        assert not isinstance(found, type) or not isinstance(3, found)
    with pytest.raises(AttributeError):
        _ = module.no_such_name


def test_what_is_left_out_can_be_a_base_class() -> None:
    base = _absent.absent_type("torch.x.Base", "use y")

    class Below(base):  # type: ignore[misc, valid-type]
        pass

    with pytest.raises(NotImplementedError, match=r"torch\.x\.Base is not implemented; use y"):
        Below(1, key=2)
    assert issubclass(Below, base) and base.__module__ == "torch.x"


def test_dtypes_that_no_tensor_has_say_so() -> None:
    assert repr(fl.qint8) == "torch.qint8" and fl.qint8 != fl.quint8 and fl.chalf is fl.complex32
    assert fl.complex32.is_complex and not fl.uint4.is_signed and fl.int4.is_signed
    for kind in (fl.qint8, fl.complex32, fl.int4, fl.float8_e5m2fnuz):
        with pytest.raises(NotImplementedError, match=f"tensors of {kind} are not implemented; "):
            fl.zeros(3, dtype=kind)
        with pytest.raises(NotImplementedError, match="not implemented"):
            fl.ones(3).to(kind)


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_functions_stay_where_a_module_has_their_name() -> None:
    """Importing torch.a.b binds b in a, where a function of that name may stand."""
    _run("import flambeau.as_torch, importlib, pkgutil, types\nimport torch, torch.nn.utils, torch.autograd, torch.func\n"
         "checked = 0\n"
         "for package in (torch.nn.utils, torch.autograd, torch.func, torch.nn, torch.optim, torch.fx, torch.distributions):\n"
         "    for found in pkgutil.iter_modules(package.__path__):\n"
         "        before = vars(package).get(found.name)\n"
         "        if before is None or isinstance(before, types.ModuleType): continue\n"
         "        importlib.import_module(package.__name__.replace('flambeau', 'torch') + '.' + found.name)\n"
         "        assert getattr(package, found.name) is before, found.name\n"
         "        checked += 1\n"
         "assert checked >= 3, checked\n"
         "import torch.nn.utils.spectral_norm, torch.autograd.gradcheck\n"
         "assert callable(torch.nn.utils.spectral_norm) and callable(torch.autograd.gradcheck)")


def test_torch_is_called_torch() -> None:
    _run("import flambeau.as_torch, torch, sys\nassert torch.__name__ == 'torch' and torch.torch is torch\n"
         "import torch._C._functorch as f\nassert f.is_batchedtensor(torch.ones(2)) is False\n"
         "assert torch._C.Value and torch._C._disabled_torch_function_impl\n"
         "compiled = torch.compile(lambda x: x + 1 if torch.is_tensor(x) else x, fullgraph=True, backend='eager')\n"
         "assert float(compiled(torch.ones(()))) == 2\n")


def test_namespaces_of_operators_may_be_named_before_there_are_operators() -> None:
    space = fl.ops.not_yet_defined
    assert space is fl.ops.not_yet_defined
    with pytest.raises(AttributeError, match="no_operator"):
        _ = space.no_operator


def test_modules_of_layers_say_what_is_theirs() -> None:
    torch = pytest.importorskip("torch")
    for module in ("activation", "batchnorm", "conv", "container", "dropout", "fold", "instancenorm", "linear", "pixelshuffle", "pooling",
                   "rnn", "sparse", "transformer"):
        wanted = set(getattr(torch.nn.modules, module).__all__)
        ours = importlib.import_module(f"flambeau.nn.modules.{module}").__all__
        assert wanted - set(ours) <= {"Container"} and len(ours) == len(set(ours)), (module, wanted.symmetric_difference(ours))


def test_a_mode_is_left_for_a_while() -> None:
    seen = []

    class Seen(fl.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Seen() as mode:
        with fl.utils._python_dispatch._pop_mode_temporarily() as innermost:
            fl.ones(2).exp()
        assert innermost is mode and not seen
        fl.ones(2).exp()
    assert seen
