"""`report.html`: a tree of the program's modules, and in each the user's lines with their call sites, graph nodes and kernels.

A kernel is credited to the nodes of the captured graph that it computes, for each call where equal blocks share their code. Times are those
of what a profiler saw run (`torch.profiler`) while the report's folder was there; shares are of what the machine is measured to do.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..backends.cpu.peaks import peaks
from ..core.lazy import LazyModule
from ..core.symbolic import hint_of
from ..core.tensor import Tensor
from .report_memory import MemoryOverTime, figure

_call, _native = LazyModule("flambeau.inductor.call"), LazyModule("flambeau.inductor.cpu.native")

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # as code objects spell it: links and all
LONGEST_TEXT = 60_000   # characters of a stage's text in the report; the files have all of it
SHOWN_NODES = 12        # of a row

_STYLE = """body { font: 14px sans-serif; margin: 2em }
table { border-collapse: collapse; margin: 4px 0 8px }
td, th { border: 1px solid #bbb; padding: 3px 8px; text-align: left; vertical-align: top }
code { white-space: pre-wrap } th { background: #eee }
details.m { margin-left: 1.2em } summary { cursor: pointer } .s { color: #666; font-size: 12px }"""


@dataclass
class Kernel:
    """A kernel or library call in one of the calls of its graph."""

    stem: str
    number: int
    name: str
    nodes: list[Any]            # of the captured graph
    moved: int = 0              # bytes
    flops: int = 0
    key: tuple[int, int, int] = (0, 0, 0)   # its code, its number, and the first node of the block; for times


@dataclass
class Row:
    """One of the user's lines, as it was reached."""

    frames: tuple[tuple, ...]
    nodes: list[Any] = field(default_factory=list)
    kernels: dict[int, Kernel] = field(default_factory=dict)    # by their place in the report


@dataclass
class Module:
    """A module and what is below it."""

    name: str = ""
    kind: str = ""
    rows: dict[tuple, Row] = field(default_factory=dict)
    inner: dict[str, Module] = field(default_factory=dict)

    def kernels(self) -> dict[int, Kernel]:
        """All of it."""
        found = {i: kernel for row in self.rows.values() for i, kernel in row.kernels.items()}
        for module in self.inner.values():
            found |= module.kernels()
        return found


def kernels_of(stem: str, compiled: Any) -> list[Kernel]:
    """Those of a graph that inductor compiled, for each block that it stands for."""
    captured = compiled.gm.graph.meta.get("captured")
    code = compiled.code
    if captured is None:
        return []
    named = _named(compiled)
    blocks = captured.graph.meta.get("blocks") or [list(captured.graph.nodes)]
    work = [_work(compiled.program, node) for node in compiled.nodes]
    found = []
    for block in blocks:
        first = id(block[0]) if "blocks" in captured.graph.meta else 0
        found += [Kernel(stem, k, name, [block[i] for i in places if i < len(block)], *work[k], (id(code), k, first))
                  for k, (name, places) in enumerate(named)]
    return found


def _named(compiled: Any) -> list[tuple[str, Any]]:
    """The names of kernels and calls, and the places of their nodes in the captured graph."""
    return _native.names_of_kernels(compiled.nodes)


def names_of(compiled: Any) -> list[str]:
    """The names of a graph's kernels and calls, in order."""
    return [name for name, _ in _named(compiled)]


def _work(program: Any, node: Any) -> tuple[int, int]:
    """Bytes that a kernel or call moves, and its floating-point operations, for the examples' sizes."""
    buffers = [program.buffers[name] for name in {*node.reads, *node.writes} if name in program.buffers]
    moved = sum(_product(buffer.shape) * buffer.dtype.itemsize for buffer in buffers)
    members = getattr(node, "members", None)
    if members is None:
        return moved, _flops_of_call(node)
    flops = 0
    for member in members:
        step = member.step
        operations = sum(value.op not in ("load", "constant", "index") for value in step.values)
        flops += operations * _product([size for _, size in (*step.loops, *step.reduce_loops)])
    return moved, flops


def _flops_of_call(node: Any) -> int:
    rule = getattr(node.target, "flops", None)
    if rule is None:
        return 0
    shapes = [tuple(map(_number, view.shape)) for view in node.inputs]
    try:
        return int(rule(tuple(map(_number, node.outputs[0].shape)), *_call.fill(node.args, shapes, {})))
    except (TypeError, ValueError, IndexError, KeyError):     # sizes that vary, or operands that lie in another way than the rule's
        return 0


def _number(size: Any) -> int:
    return size if isinstance(size, int) else int(getattr(size, "hint", 0) or 0)


def _product(sizes: Iterable[Any]) -> int:
    made = 1
    for size in sizes:
        made *= _number(size)
    return made


# -- the tree ------------------------------------------------------------------------------------------------------------------


def _tree(nodes: Iterable[Any], kernels: Sequence[Kernel]) -> Module:
    root = Module()
    home: dict[Any, Row] = {}
    for node in nodes:
        stack = node.meta.get("stack")
        if not node.op.startswith("call") or not stack:
            continue
        own = tuple(frame for frame in stack if not frame[0].startswith(_HOME)) or (stack[-1],)
        row = _module(root, node).rows.setdefault(tuple(frame[:2] for frame in own), Row(own))
        row.nodes.append(node)
        home[node] = row
    for i, kernel in enumerate(kernels):
        for node in kernel.nodes:
            if node in home:
                home[node].kernels[i] = kernel
    return root


def _module(root: Module, node: Any) -> Module:
    modules = list(node.meta.get("nn_module_stack", {}).values())
    if not modules:
        return root
    kinds = {path: kind.__name__ for path, kind in modules}
    root.kind = root.kind or kinds.get("", "")
    found, path = root, ""
    for name in filter(None, modules[-1][0].split(".")):
        path = f"{path}.{name}" if path else name
        found = found.inner.setdefault(name, Module(name))
        found.kind = found.kind or kinds.get(path, "")
    return found


# -- the page ------------------------------------------------------------------------------------------------------------------


def page(title: str, sections: Sequence[str]) -> str:
    """A whole HTML page."""
    head = f"<!doctype html><meta charset='utf-8'><title>{html.escape(title)}</title><style>{_STYLE}</style>"
    return head + "<hr>".join(sections) + "\n"


def section(captured: Any, name: str, kernels: Sequence[Kernel], texts: dict[str, str], times: dict[tuple[int, int, int], float],
            memory: Sequence[MemoryOverTime] = ()) -> str:
    """One compilation: the tree, its memory, and the texts of all stages. `times`: microseconds of kernels, by their keys."""
    nodes = captured.graph.graph.nodes if captured.graph is not None else ()
    tree = _tree(nodes, kernels)
    body = _of_module(tree, name, times, True)
    shown = "".join(f'<details id="{name}/{file}"><summary>{file}</summary><pre>{html.escape(_cut(text))}</pre></details>'
                    for file, text in sorted(texts.items()))
    broken = f"<h2>Graph break</h2><pre>{html.escape(str(captured.broken))}</pre>" if captured.broken is not None else ""
    return (f"<h1>{html.escape(captured.where)}</h1><p>Captured and compiled in {1000 * captured.seconds:.0f} ms, "
            f"{len(captured.guards)} guards, {len(kernels)} kernels and library calls in a call: {_totals(kernels, times)}.</p>"
            f"{broken}{body}{_of_memory(memory)}<h2>Stages</h2>{shown}\n")


def _of_memory(memory: Sequence[MemoryOverTime]) -> str:
    shown = "".join(figure(one, _scaled) for one in memory)
    return f"<h2>Memory</h2>{shown}" if shown else ""


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}\n... {len(text) - LONGEST_TEXT} more characters in the file"


def _of_module(module: Module, name: str, times: dict[tuple[int, int, int], float], is_root: bool = False) -> str:
    inner = "".join(_of_module(one, name, times) for one in module.inner.values())
    rows = "".join(_of_row(row, name, times) for row in module.rows.values())
    table = f"<table><tr><th>Your line</th><th>Graph nodes</th><th>Kernels</th></tr>{rows}</table>" if rows else ""
    if is_root:
        return f"<h2>{html.escape(module.kind or 'Program')}</h2>{table}{inner}"
    totals = _totals(module.kernels().values(), times)
    title = f"<b>{html.escape(module.name)}</b> {html.escape(module.kind)} <span class='s'>{totals}</span>"
    return f"<details class='m'><summary>{title}</summary>{table}{inner}</details>"


def _totals(kernels: Iterable[Kernel], times: dict[tuple[int, int, int], float]) -> str:
    kernels = list(kernels)
    parts = [f"{_scaled(sum(k.moved for k in kernels))}B moved", f"{_scaled(sum(k.flops for k in kernels))}flop"]
    taken = sum(times.get(k.key, 0.0) for k in kernels)
    return ", ".join([*parts, *([_duration(taken)] if taken else [])])


def _scaled(number: float) -> str:
    """Three digits and the prefix of a unit."""
    for unit in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} T"


def _duration(microseconds: float) -> str:
    for unit in ("us", "ms"):
        if microseconds < 1000:
            return f"{microseconds:.3g} {unit}"
        microseconds /= 1000
    return f"{microseconds:.3g} s"


def _of_row(row: Row, name: str, times: dict[tuple[int, int, int], float]) -> str:
    lines = [html.escape(f"{os.path.basename(file)}:{line} {text}") for file, line, _, text in reversed(row.frames)]
    outer = f"<br><span class='s'>{'<br>'.join(f'from {line}' for line in lines[1:])}</span>" if lines[1:] else ""
    shown = [html.escape(_of_node(node)) for node in row.nodes[:SHOWN_NODES]]
    if len(row.nodes) > SHOWN_NODES:
        shown.append(f"... {len(row.nodes) - SHOWN_NODES} more")
    kernels = "<br>".join(_of_kernel(kernel, name, times) for kernel in row.kernels.values())
    return (f"<tr><td title='{html.escape(row.frames[-1][0])}'><code>{lines[0]}</code>{outer}</td>"
            f"<td><code>{'<br>'.join(shown)}</code></td><td>{kernels}</td></tr>")


def _of_node(node: Any) -> str:
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    arguments = ", ".join(source.name for source in node._inputs)
    return f"{node.name} = {target}({arguments}): {_type(node.meta.get('val'))}"


def _type(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{[hint_of(size) for size in value.shape]}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_type, value))})"
    return type(value).__name__


def _of_kernel(kernel: Kernel, name: str, times: dict[tuple[int, int, int], float]) -> str:
    link = f'<a href="#{name}/{kernel.stem}_schedule.txt">{kernel.stem} {kernel.number}</a>'
    taken, rate = times.get(kernel.key), ""
    if taken:
        rate = f", {_duration(taken)}: {_scaled(kernel.moved / taken * 1e6)}B/s"
        rate += f", {_scaled(kernel.flops / taken * 1e6)}flop/s" if kernel.flops else ""
        rate += f", {_share(*peaks().reached(kernel.flops, kernel.moved, taken / 1e6))}"
    return f"{link} {html.escape(kernel.name)} <span class='s'>{_totals([kernel], {})}{rate}</span>"


def _share(share: float, of: str) -> str:
    return "faster than memory, from caches" if of == "memory" and share > 1 else f"{share:.0%} of the machine's peak {of}"
