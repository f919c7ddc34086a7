"""Which public names of torch's documented modules there are here: `python -m flambeau coverage` writes docs/coverage.md.

Asked in two processes, as the libraries share a name. A name works here if it is there and isn't one that only raises with what to use
instead (flambeau/_absent.py); parameters are compared where both signatures can be read.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
MODULES = [
    "torch", "torch.Tensor", "torch.accelerator", "torch.amp", "torch.autograd", "torch.autograd.forward_ad", "torch.autograd.functional",
    "torch.autograd.graph", "torch.autograd.profiler", "torch.backends.cuda", "torch.backends.cudnn", "torch.compiler", "torch.cpu",
    "torch.cuda", "torch.cuda.amp", "torch.cuda.nvtx", "torch.distributed", "torch.distributed.fsdp", "torch.distributed.tensor",
    "torch.distributions", "torch.distributions.constraints", "torch.distributions.transforms", "torch.export", "torch.fft", "torch.func",
    "torch.futures", "torch.fx", "torch.hub", "torch.jit", "torch.library", "torch.linalg", "torch.masked", "torch.mps",
    "torch.multiprocessing", "torch.nested", "torch.nn", "torch.nn.attention", "torch.nn.attention.flex_attention", "torch.nn.functional",
    "torch.nn.init", "torch.nn.utils", "torch.nn.utils.parametrizations", "torch.nn.utils.parametrize", "torch.nn.utils.prune",
    "torch.nn.utils.rnn", "torch.nn.utils.stateless", "torch.onnx", "torch.optim", "torch.optim.lr_scheduler", "torch.optim.swa_utils",
    "torch.overrides", "torch.package", "torch.profiler", "torch.quasirandom", "torch.random", "torch.serialization",
    "torch.signal.windows", "torch.sparse", "torch.special", "torch.storage", "torch.testing", "torch.utils.benchmark",
    "torch.utils.checkpoint", "torch.utils.cpp_extension", "torch.utils.data", "torch.utils.dlpack", "torch.utils.flop_counter",
    "torch.utils.hooks", "torch.utils.module_tracker", "torch.utils.tensorboard", "torch.xpu",
]
ABSENT = "Not implemented; "


def _found(dotted: str) -> Any:
    if dotted == "torch.Tensor":
        return importlib.import_module("torch").Tensor
    return importlib.import_module(dotted)


def _public(where: Any) -> list[str]:
    listed = getattr(where, "__all__", None)
    if listed is not None and where is not importlib.import_module("torch"):
        return sorted(name for name in listed if not name.startswith("_"))
    names = set(listed or ()) | set(dir(where))
    return sorted(name for name in names if not name.startswith("_") and _is_documented(getattr(where, name, None)))


def _is_documented(value: Any) -> bool:
    """Not a module, nor another package's, nor a function or class without a word on it."""
    if isinstance(value, ModuleType) or not str(getattr(value, "__module__", None) or "torch").startswith("torch"):
        return False
    if isinstance(value, (bool, str, dict, type(None))):
        return False
    return not callable(value) or bool(str(getattr(value, "__doc__", None) or "").strip())


def _parameters(value: Any) -> list[str] | None:
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in found):
        return None
    return [p.name for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in ("self", "input", "tensor")]


def describe(modules: list[str]) -> dict[str, dict[str, list[str] | None]]:
    """By module, what this process's torch offers there."""
    offered: dict[str, dict[str, list[str] | None]] = {}
    for module in modules:
        try:
            where = _found(module)
        except ImportError:     # an optional part is not installed
            continue
        offered[module] = {name: _parameters(getattr(where, name, None)) for name in _public(where)}
    return offered


def judge(offered: dict[str, dict[str, list[str] | None]]) -> dict[str, dict[str, Any]]:
    """By module and name: "works", "raises" or "missing", and the parameters that are lacking."""
    verdicts: dict[str, dict[str, Any]] = {}
    for module, names in offered.items():
        verdicts[module] = {}
        try:
            where = _found(module)
        except Exception:
            where = None
        for name, parameters in names.items():
            try:
                value = getattr(where, name)
            except Exception:
                verdicts[module][name] = ("missing", [])
                continue
            raises = str(getattr(value, "__doc__", None) or "").startswith(ABSENT)
            mine = _parameters(value)
            lacking = [] if raises or parameters is None or mine is None else sorted(set(parameters) - set(mine))
            verdicts[module][name] = ("raises" if raises else "works", lacking)
    return verdicts


def table(verdicts: dict[str, dict[str, Any]]) -> str:
    """The page."""
    rows, notes = [], []
    total = dict.fromkeys(("works", "raises", "missing"), 0)
    for module, names in sorted(verdicts.items()):
        by = {kind: [name for name, (found, _) in sorted(names.items()) if found == kind] for kind in total}
        total = {kind: total[kind] + len(found) for kind, found in by.items()}
        lacking = [f"{name}({', '.join(less)})" for name, (_, less) in sorted(names.items()) if less]
        rows.append(f"| `{module}` | {len(names)} | {len(by['works'])} | {len(by['raises'])} | {len(by['missing'])} |")
        for title, found in (("raise with what to use instead", by["raises"]), ("missing", by["missing"]), ("parameters lacking", lacking)):
            if found:
                notes.append(f"- `{module}`, {title}: {', '.join(found)}")
    count = sum(total.values())
    return "\n".join([
        "# Coverage of torch 2.13's public names", "",
        "Written by `python -m flambeau coverage`, which asks PyTorch itself (tests/oracle/coverage.py).", "",
        f"{count} names: {total['works']} work ({total['works'] / count:.1%}), {total['raises']} raise and name what to use instead, "
        f"{total['missing']} are missing.", "",
        "| module | public names | work | raise with a reason | missing |", "|---|---|---|---|---|", *rows, "", "## Which", "", *notes, ""])


def _ask(program: str, given: Any) -> Any:
    begin = "import sys, json, warnings\nwarnings.simplefilter('ignore')\n"
    code = f"{begin}from tests.oracle import coverage\nprint(json.dumps({program}))"
    prefix = "" if "describe" in program else "import flambeau.as_torch\n"
    done = subprocess.run([sys.executable, "-c", prefix + code], input=json.dumps(given), text=True, stdout=subprocess.PIPE, check=True,
                          cwd=ROOT)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "coverage.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    offered = _ask("coverage.describe(json.load(sys.stdin))", MODULES)
    text = table(_ask("coverage.judge(json.load(sys.stdin))", offered))
    options.output.write_text(text)
    print(text.splitlines()[4])


if __name__ == "__main__":
    main()
