"""`FxGraphDrawer`: a graph as text for Graphviz, which draws it where its program `dot` is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node

COLORS = {"placeholder": "AliceBlue", "call_module": "LemonChiffon1", "get_param": "Yellow2", "get_attr": "LightGrey",
          "output": "PowderBlue", "call_function": "LightGoldenrod1", "call_method": "Thistle"}


class Dot:
    """A drawing in Graphviz's language."""

    def __init__(self, text: str) -> None:
        self.text = text

    def to_string(self) -> str:
        """The text."""
        return self.text

    def create(self, format: str = "svg") -> bytes:
        """The drawing, made by `dot`."""
        program = shutil.which("dot")
        if program is None:
            raise FileNotFoundError('"dot" not found in path: install Graphviz, or use to_string() or write(path, format="raw")')
        return subprocess.run([program, f"-T{format}"], input=self.text.encode(), stdout=subprocess.PIPE, check=True).stdout

    create_svg = create

    def write(self, path: str, *, format: str = "raw") -> bool:
        """Into a file: the text ("raw", "dot") or a drawing."""
        Path(path).write_bytes(self.text.encode() if format in ("raw", "dot") else self.create(format))
        return True

    def write_raw(self, path: str) -> bool:
        """The text into a file."""
        return self.write(path)

    def write_svg(self, path: str) -> bool:
        """A drawing into a file."""
        return self.write(path, format="svg")

    def write_png(self, path: str) -> bool:
        """A drawing into a file."""
        return self.write(path, format="png")

    def write_pdf(self, path: str) -> bool:
        """A drawing into a file."""
        return self.write(path, format="pdf")


class FxGraphDrawer:
    """Draws a GraphModule and its submodules: `FxGraphDrawer(gm, "name").get_dot_graph().write_svg("graph.svg")`."""

    def __init__(self, graph_module: GraphModule, name: str, ignore_getattr: bool = False, ignore_parameters_and_buffers: bool = False,
                 *, dot_graph_shape: str | None = None) -> None:
        self.name = name
        self.ignored = ("get_attr",) if ignore_getattr or ignore_parameters_and_buffers else ()
        self.shape = dot_graph_shape or "record"
        self._graphs = {name: Dot(self._draw(graph_module, name))}
        for path, module in graph_module.named_modules():
            if path and isinstance(module, GraphModule):
                full = f"{name}_{path.replace('.', '_')}"
                self._graphs[full] = Dot(self._draw(module, full))

    def get_dot_graph(self, submod_name: str | None = None) -> Dot:
        """The drawing of the whole, or of a submodule."""
        return self._graphs[self.name if submod_name is None else submod_name]

    get_main_dot_graph = get_dot_graph

    def get_all_dot_graphs(self) -> dict[str, Dot]:
        """By name."""
        return dict(self._graphs)

    def _draw(self, gm: GraphModule, name: str) -> str:
        shown = [node for node in gm.graph.nodes if node.op not in self.ignored]
        lines = [f'digraph "{name}" {{', "rankdir=TB;"]
        for node in shown:
            style = f'shape={self.shape}, style="filled,rounded", fillcolor={COLORS[node.op]}, fontcolor="#000000"'
            lines.append(f'"{node.name}" [label="{_label(node)}", {style}];')
        lines += [f'"{source.name}" -> "{node.name}";' for node in shown for source in node.all_input_nodes if source in shown]
        return "\n".join([*lines, "}"]) + "\n"


def _label(node: Node) -> str:
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    parts = [f"name=%{node.name}", f"op_code={node.op}", f"target={target}"]
    value: Any = node.meta.get("tensor_meta", node.meta.get("val"))
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        parts.append(f"dtype={value.dtype} shape={tuple(value.shape)}")
    return "{" + "|".join("".join("\\" + c if c in '{}|<>"\\' else c for c in part) for part in parts) + "}"


__all__ = ["FxGraphDrawer"]
