"""`help` and IPython's `?`: what is written with an operator, and what is composed from its record, is there and true."""

from __future__ import annotations

import enum
import importlib
import inspect
import pydoc
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import flambeau as fl
from flambeau import _help
from flambeau._examples import EXAMPLES as LIBRARIES
from flambeau.ops.examples import EXAMPLES
from flambeau.ops.help import SPACES
from flambeau.ops.registry import OPERATORS

PUBLIC = {id(fn): name for name, fn in OPERATORS.items() if not name.startswith("_") and _help.path(fn)}
MODULES = [name for name in fl.nn.modules.__all__ if issubclass(getattr(fl.nn, name), fl.nn.Module)]
OUTSIDE = {"cuda", "accelerator", "hub", "multiprocessing", "utils.tensorboard", "onnx"}
"""Namespaces whose examples need a GPU, a network, other processes or another package."""
NEEDS_MORE = {
    "export.load": "a file", "export.save": "writes one", "utils.benchmark.Timer": "time", "utils.benchmark.Compare": "time",
    "profiler.ExecutionTraceObserver": "writes a file", "distributed.TCPStore": "a port", "distributed.init_process_group": "MPI",
    "distributed.FileStore": "a file", "distributed.recv_object_list": "another process", "distributed.breakpoint": "a person",
    "library.wrap_triton": "a kernel of the triton package",
}


def _holds(said: str) -> str | None:
    """What is wrong with the example of a docstring, run once more."""
    lines = said.partition("Example:\n")[2].splitlines()
    code = "\n".join(line.removeprefix("    >>> ") for line in lines if line.startswith("    >>> "))
    wanted = "\n".join(line.removeprefix("    ") for line in lines if not line.startswith("    >>> "))
    found = _help.run(code)
    shown = "" if found is None else repr(found)
    return None if shown == wanted else f"{code} gives {shown}, not {wanted}"


def _public(space: str) -> dict[str, object]:
    """The functions and classes of a namespace that PyTorch has too."""
    mine, theirs = importlib.import_module(f"flambeau.{space}".rstrip(".")), importlib.import_module(f"torch.{space}".rstrip("."))
    found = {name: getattr(mine, name, None) for name in dir(theirs) if not name.startswith("_") and callable(getattr(theirs, name))}
    return {name: value for name, value in found.items() if isinstance(value, (type, FunctionType)) and value.__module__.startswith("flambeau")
            and value.__module__ not in ("flambeau._left_out", "flambeau._absent", "flambeau.ops.absent")
            and not issubclass(value if isinstance(value, type) else object, (enum.Enum, BaseException))}


@pytest.mark.timeout(600)
def test_every_operator_has_an_example_that_holds() -> None:
    said = {name: inspect.getdoc(OPERATORS[name]) or "" for name in PUBLIC.values()}
    assert not [name for name, text in said.items() if ">>>" not in text]
    assert not [error for text in said.values() if (error := _holds(text)) is not None]


@pytest.mark.parametrize("name", MODULES)
def test_every_module_has_an_example_that_holds(name: str) -> None:
    said = inspect.getdoc(getattr(fl.nn, name)) or ""
    assert ">>>" in said and _holds(said) is None


@pytest.mark.timeout(600)
@pytest.mark.parametrize("space", [space for space in SPACES if space not in ("profiler.by_autograd", "distributed.fsdp", "utils.tensorboard")])
def test_every_public_name_says_what_it_takes_and_raises_and_has_an_example(space: str) -> None:
    pytest.importorskip("torch")
    lacking = []
    for name, value in _public(space).items():
        said = inspect.getdoc(value) or ""
        parameters = [p for p in _signature(value) if p.name != "self" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        wanted = ["Example:", *(["Raises:", "Parameters:"] if parameters else ())]
        lacking += [f"{name}: {part}" for part in wanted if part not in said]
    assert not lacking


def _signature(value: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return []


@pytest.mark.parametrize("name", EXAMPLES)
def test_written_examples_run(name: str) -> None:
    assert _help.made(EXAMPLES[name]).result is not None


@pytest.mark.parametrize(("space", "name"), [
    (space, name) for space, names in LIBRARIES.items() if space not in OUTSIDE for name in names
    if f"{space}.{name}" not in NEEDS_MORE and "cuda" not in names[name] and "ittapi" not in names[name]])
def test_examples_of_libraries_run(space: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        _help.run(LIBRARIES[space][name].replace("~", ".".join(filter(None, ("torch", space, name)))))
    finally:
        if fl.distributed.is_initialized():
            fl.distributed.destroy_process_group()


def test_what_help_says() -> None:
    said = pydoc.render_doc(fl.softmax, renderer=pydoc.plaintext)
    for part in ("exp(x) / sum(exp(x))", "torch.softmax(input: Tensor, dim: int, dtype: dtype | None = None", "    dim: ", "Tensor.softmax",
                 "int64: refused", "float32 -> float32", "Gradient: that of its steps", ">>> torch.softmax(", "tensor([0.1402"):
        assert part in said, said
    assert "RuntimeError: label_smoothing must be between" in (inspect.getdoc(fl.nn.functional.cross_entropy) or "")
    assert "lr: the learning rate" in (inspect.getdoc(fl.optim.AdamW) or "")
    assert fl.softmax.__doc__.startswith("exp(x)") and "\n" not in fl.softmax.__doc__
