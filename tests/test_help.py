"""`help` and IPython's `?`: what is written with an operator, and what is composed from its record, is there and true."""

from __future__ import annotations

import inspect
import pydoc
import re

import pytest

import flambeau as fl
from flambeau import _help
from flambeau.ops.examples import EXAMPLES
from flambeau.ops.registry import OPERATORS

PUBLIC = {id(fn): name for name, fn in OPERATORS.items() if not name.startswith("_") and _help.path(fn)}
MODULES = [name for name in fl.nn.modules.__all__ if issubclass(getattr(fl.nn, name), fl.nn.Module)]
# Examples need something that a line does not make: a file, a state, a training step, another operator's saved values.
WITHOUT = re.compile(r".*_backward|.*_step_|.*_copy|native_.*|from_file|set_rng_state|setitem_|scale_all_|recurrent_steps|flash_attention|"
                     r"affine_grid_generator|grid_sampler_3d|max_unpool3d|istft|ormqr|nonzero_static|conv_tbc|convolution|addr_|addmv_|"
                     r"baddbmm_|clip_|geometric_|range|view_scatter|fractional_max_pool3d")
WITHOUT_MODULES = {"AdaptiveLogSoftmaxWithLoss", "FractionalMaxPool3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d",
                   "MaxUnpool3d", "Module", "NLLLoss2d", "RNNBase", "RNNCellBase"}


def _holds(said: str) -> str | None:
    """What is wrong with the example of a docstring, run once more."""
    call, _, shown = said.partition("Example:\n    >>> ")[2].partition("\n")
    fl.manual_seed(0)
    found = repr(eval(call, {"torch": fl}))
    wanted = "\n".join(line.removeprefix("    ") for line in shown.splitlines())
    return None if found == wanted else f"{call} gives {found}, not {wanted}"


@pytest.mark.timeout(600)
def test_every_operator_has_an_example_that_holds() -> None:
    missing, wrong = [], []
    for name in PUBLIC.values():
        said = inspect.getdoc(OPERATORS[name]) or ""
        if ">>>" not in said:
            missing.append(name)
        elif (error := _holds(said)) is not None:
            wrong.append(error)
    assert not wrong
    assert not [name for name in missing if not WITHOUT.fullmatch(name)]


@pytest.mark.parametrize("name", MODULES)
def test_every_module_has_an_example_that_holds(name: str) -> None:
    said = inspect.getdoc(getattr(fl.nn, name)) or ""
    assert f"torch.nn.{name}(" in said or name in WITHOUT_MODULES
    assert ">>>" in said or name in WITHOUT_MODULES
    assert ">>>" not in said or _holds(said) is None


@pytest.mark.parametrize("name", EXAMPLES)
def test_written_examples_run(name: str) -> None:
    assert _help.written_example(name).result is not None


def test_what_help_says() -> None:
    said = pydoc.render_doc(fl.softmax, renderer=pydoc.plaintext)
    for part in ("exp(x) / sum(exp(x))", "torch.softmax(input: Tensor, dim: int, dtype: dtype | None = None", "    dim: ", "Tensor.softmax",
                 "int64: refused", "float32 -> float32", "Gradient: that of its steps", ">>> torch.softmax(", "tensor([0.1402"):
        assert part in said, said
    assert "RuntimeError: label_smoothing must be between" in (inspect.getdoc(fl.nn.functional.cross_entropy) or "")
    assert "lr: the learning rate" in (inspect.getdoc(fl.optim.AdamW) or "")
    assert fl.softmax.__doc__.startswith("exp(x)") and "\n" not in fl.softmax.__doc__
