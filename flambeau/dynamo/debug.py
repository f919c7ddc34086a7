"""Looking in: what each stage of one compilation made, as logs and as a folder.

`TORCH_COMPILE_DEBUG=1` writes a folder for each compiled frame below `flambeau_debug/` (or `TORCH_COMPILE_DEBUG_DIR`): the
replacement and its guards, the captured, joint, forward and backward graphs, the loop IR, the schedule, the generated code, a
runnable repro, and `report.html`, which leads from the user's line to graph nodes and on to kernels. `FLAMBEAU_REPORT=FILE`
writes only the report, one file for all compilations of the process. `TORCH_LOGS` with `aot_graphs`, `schedule` or
`output_code` shows the same texts.
"""

from __future__ import annotations

import itertools
import os
import re
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import fx
from ..core.lazy import LazyModule
from ..core.settings import told
from ..core.symbolic import hint_of
from ..core.tensor import Tensor
from . import logs, policy
from .report import Kernel, kernels_of, names_of, page, section
from .report_memory import MemoryOverTime, memory_of

PACKAGE = __name__.split(".", maxsplit=1)[0]
_aot, _graph, _ir = LazyModule("flambeau.aot"), LazyModule("flambeau.inductor.graph"), LazyModule("flambeau.inductor.loop.ir")
_numbers = itertools.count()
_folders: list[Folder] = []
_told: set[str] = set()
_STARTED = time.strftime("%Y_%m_%d_%H_%M_%S")


def enabled() -> bool:
    """Is a folder to be written?"""
    return told("TORCH_COMPILE_DEBUG", "0") != "0"


def report_file() -> Path | None:
    """Where the report of the whole process goes, if it is wanted."""
    name = told("FLAMBEAU_REPORT")
    return Path(name) if name else None


def watched() -> bool:
    """Does anybody want to see what the rooms below make?"""
    loggers = (logs.aot_graphs, logs.schedule, logs.output_code)
    return enabled() or report_file() is not None or any(log.isEnabledFor(10) for log in loggers)


class Folder:
    """The files of one compilation, and what the report needs."""

    def __init__(self, name: str) -> None:
        root = Path(told("TORCH_COMPILE_DEBUG_DIR", "flambeau_debug"))
        self.path = root / f"run_{_STARTED}_pid_{os.getpid()}" / f"{next(_numbers):03d}_{re.sub(r'[^0-9A-Za-z_]', '_', name)}"
        self.kernels: list[Kernel] = []
        self.memory: list[MemoryOverTime] = []
        self.codes: list[Any] = []
        """What was compiled, so that the times of a profile are found."""
        self.times: dict[tuple[int, int, int], float] = {}
        self.captured: Any = None
        self.texts: dict[str, str] = {}
        self.count = 0

    def write(self, name: str, text: str) -> None:
        self.texts[name] = text
        if enabled():
            write(self.path / name, text)

    # -- listeners of the rooms below ---------------------------------------------------------------------------------------
    def saw_graph(self, stage: str, gm: fx.GraphModule) -> None:
        """A functional graph of aot."""
        code = gm.graph.python_code(verbose=True).src
        self.write(f"aot_{stage}.py", code)
        logs.aot_graphs.debug("%s graph\n%s", stage, code)

    def saw_code(self, compiled: Any) -> None:
        """A graph that inductor compiled."""
        stem = f"inductor_{self.count}"
        self.count += 1
        seconds = ", ".join(f"{stage} {1000 * t:.1f} ms" for stage, t in compiled.seconds.items())
        self.write(f"{stem}_loops.txt", f"# {seconds}\n" + "\n".join(_ir.print_program(compiled.program)) + "\n")
        schedule = self._schedule(compiled)
        self.kernels += kernels_of(stem, compiled)
        self.memory.append(memory_of(stem, names_of(compiled), compiled))
        self.codes.append(compiled.code)
        self.write(f"{stem}_schedule.txt", schedule)
        logs.schedule.debug("schedule\n%s", schedule)
        source = compiled.unit.source if compiled.unit is not None else getattr(compiled.cuda, "source", "")
        if source:
            self.write(f"{stem}_code.cpp", source)
        self.write(f"{stem}_wrapper.py", compiled.wrapper)
        logs.output_code.debug("generated code\n%s\n%s", source, compiled.wrapper)

    def _schedule(self, compiled: Any) -> str:
        lines = []
        for number, node in enumerate(compiled.nodes):
            steps = [member.step for member in getattr(node, "members", ())] or [node]
            kind = f"kernel {number}" if getattr(node, "members", None) else f"library call {number}"
            lines.append(f"== {kind}: {getattr(node, 'style', getattr(node, 'op', ''))}")
            lines += [line for step in steps for line in _ir.print_step(step)]
            lines.append("")
        return "\n".join(lines) + "\n"

    # -- the end ------------------------------------------------------------------------------------------------------------
    def finish(self, captured: Any) -> None:
        """What capture itself made, the repro and the report."""
        common = report_file()
        if not enabled() and common is None:
            return
        self.write("replacement.py", f"# {captured.where}, made by dynamo in {1000 * captured.seconds:.0f} ms\n" + captured.source)
        self.write("guards.py", captured.guard_source)
        if captured.broken is not None:
            self.write("graph_break.txt", str(captured.broken) + "\n")
        if captured.graph is not None:
            self.write("captured.py", source_of(captured.graph, verbose=True))
            self.write("repro.py", repro(captured.graph))
        self.captured = captured
        _folders.append(self)
        self.report()
        if common is not None:
            _write_common(common)

    def section(self) -> str:
        """What the report says of this compilation."""
        return section(self.captured, self.path.name, self.kernels, self.texts, self.times, self.memory)

    def report(self) -> None:
        """Write `report.html`."""
        if enabled():
            write(self.path / "report.html", page(self.captured.where, [self.section()]))


def write(file: Path, text: str) -> bool:
    """Write a file to look at. Where that cannot be (a full disk, a read-only folder) one warning for each disk's fault: the program
    goes on."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        _warn_unwritten(error.strerror or str(error), str(file))
        return False
    return True


def _warn_unwritten(what: str, file: str) -> None:
    if what not in _told:
        _told.add(what)
        warnings.warn(f"what was asked to be written down of the compilation is not, {file!r} and maybe others: {what}", stacklevel=3)


def _write_common(file: Path) -> None:
    write(file, page("What torch.compile made", [folder.section() for folder in _folders]))


def profiled(log: Iterable[Any]) -> None:
    """Put the times of kernels that a profiler saw into the reports; `log` are calls of compiled libraries as it was told of them."""
    if not _folders:
        return
    known = {id(code): folder for folder in _folders for code in folder.codes}
    changed = {}
    for (code, first), start, laps, block in log:
        folder = known.get(id(code))
        if folder is None:
            continue
        changed[id(folder)] = folder
        for k, end in enumerate(memoryview(laps).cast("q"), first):
            key = (id(code), k, id(block[0]) if block else 0)
            folder.times[key] = folder.times.get(key, 0.0) + (end - start) / 1e3
            start = end
    for folder in changed.values():
        folder.report()
    common = report_file()
    if changed and common is not None:
        _write_common(common)


@contextmanager
def watching(name: str) -> Iterator[Folder | None]:
    """Listen to aot and inductor while the backend is at work."""
    if not watched():
        yield None
        return
    folder = Folder(name)
    observers = _aot.Observers.listening
    listening = _graph.listening
    observers.append(folder.saw_graph)
    listening.append(folder.saw_code)
    try:
        yield folder
    finally:
        observers.remove(folder.saw_graph)
        listening.remove(folder.saw_code)


def source_of(gm: fx.GraphModule, verbose: bool = False) -> str:
    """The graph as a Python function `forward`, below those that its operators call."""
    return "\n".join(
        module.graph.python_code(verbose=verbose).src.replace("def forward(", f"def {path.rpartition('.')[2] or 'forward'}(", 1)
        for path, module in reversed([*gm.named_modules()]))


def repro(gm: fx.GraphModule) -> str:
    """A script that compiles the captured graph alone, on random inputs of the same shapes and dtypes."""
    functions = list(dict.fromkeys(path.rpartition(".")[2] for path, _ in gm.named_modules() if path))
    names = {name: value for module in gm.modules() for name, value in module.graph.python_code().globals.items()}
    lines = ["# Compiles this one graph and compares it with eager.", f"import {PACKAGE} as torch", ""]
    lines += [_import(name, value) for name, value in names.items()]
    lines += ["", "", source_of(gm), "", "class Functions:"]
    lines += [f"    {name} = staticmethod(lambda *args: {name}(Functions, *args))" for name in functions] or ["    pass"]
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    arguments = [f"    {_example(node.meta['val'])},  # {node.name}" for node in placeholders]
    lines += ["inputs = [", *arguments, "]", "compiled = torch.compile(lambda *args: forward(Functions, *args), backend='inductor')"]
    lines += ["for expected, got in zip(forward(Functions, *inputs), compiled(*inputs)):", "    print((expected - got).abs().max())"]
    return "\n".join(lines) + "\n"


def _import(name: str, value: Any) -> str:
    if isinstance(value, ModuleType) and policy.is_own(value.__name__):     # perhaps as `torch`, to as_torch's programs
        return f"import {PACKAGE}{value.__name__.removeprefix('torch').removeprefix(PACKAGE)} as {name}"
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module and qualname and "<" not in qualname:
        return f"from {module} import {qualname.split('.')[0]} as {name}"
    return f"{name} = {value!r}"


def _example(value: Any) -> str:
    if not isinstance(value, Tensor):
        return repr(hint_of(value))
    shape = tuple(int(hint_of(size)) for size in value.shape)
    if value.dtype.is_floating_point:
        text = f"torch.randn({shape}, dtype={value.dtype!r})"
        return f"{text}.requires_grad_()" if value.requires_grad else text
    return f"torch.zeros({shape}, dtype={value.dtype!r})"
