"""Which names of torch the installed libraries want, and which of them Flambeau doesn't answer.

    python tests/ecosystem/scan.py [--all] [--oracle] [--json FILE] PACKAGE...

Reads the packages' sources without importing them. Without --all only what is run as a module is imported counts (imports, base
classes, decorators, defaults, constants); with it, function bodies too. --oracle leaves out what
the installed PyTorch doesn't answer either.
One line is printed for each unanswered name: how many libraries want it, the name, the libraries.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import json
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOTS = ("torch", "functorch")


class Uses(ast.NodeVisitor):
    """The dotted names below torch that one source file uses: `names[dotted]` is True where importing the file already needs it."""

    def __init__(self) -> None:
        self.names: dict[str, bool] = {}
        self.aliases: dict[str, str] = {}
        self.depth = 0  # of function bodies around
        self.soft = 0  # of `try` around that catches a missing name, and of `if TYPE_CHECKING`

    def _want(self, name: str) -> None:
        if name.partition(".")[0] in ROOTS and name not in ROOTS:
            self.names[name] = self.names.get(name, False) or not (self.depth or self.soft)

    def visit_Import(self, node: ast.Import) -> None:
        for item in node.names:
            self._want(item.name)
            self.aliases[item.asname or item.name.partition(".")[0]] = item.name if item.asname else item.name.partition(".")[0]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or not node.module:
            return
        for item in node.names:
            name = node.module if item.name == "*" else f"{node.module}.{item.name}"
            self._want(name)
            if item.name != "*":
                self.aliases[item.asname or item.name] = name

    def visit_Attribute(self, node: ast.Attribute) -> None:
        parts: list[str] = []
        at: ast.expr = node
        while isinstance(at, ast.Attribute):
            parts.append(at.attr)
            at = at.value
        if isinstance(at, ast.Name) and at.id in self.aliases and isinstance(node.ctx, ast.Load):
            self._want(".".join([self.aliases[at.id], *reversed(parts)]))
        else:
            self.generic_visit(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        for part in (*getattr(node, "decorator_list", ()), node.args):  # these are run where the function is defined
            self.visit(part)
        self.depth += 1
        for part in node.body if isinstance(node.body, list) else [node.body]:
            self.visit(part)
        self.depth -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _function

    def visit_Try(self, node: ast.Try) -> None:
        self.soft += 1
        for part in node.body:
            self.visit(part)
        self.soft -= 1
        for part in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(part)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self.soft += 1  # a branch that may well be for another release, or for type checkers
        for part in (*node.body, *node.orelse):
            self.visit(part)
        self.soft -= 1


def sources(package: str) -> Iterator[Path]:
    """The Python files of an installed package, less its tests."""
    found = importlib.util.find_spec(package)
    if found is None:
        return
    if found.submodule_search_locations:
        for place in found.submodule_search_locations:
            yield from (path for path in sorted(Path(place).rglob("*.py")) if not {"tests", "test", "testing"} & set(path.parts))
    elif found.origin:
        yield Path(found.origin)


def wanted(packages: Iterable[str], everything: bool = False) -> dict[str, set[str]]:
    """By dotted name of torch, the packages that want it."""
    by_name: dict[str, set[str]] = defaultdict(set)
    for package in packages:
        for path in sources(package):
            uses = Uses()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a library's invalid escapes are its own
                try:
                    uses.visit(ast.parse(path.read_text(errors="replace")))
                except SyntaxError:
                    continue
            for name, needed in uses.names.items():
                if needed or everything:
                    by_name[name].add(package)
    return by_name


def answers(name: str) -> bool:
    """Whether the torch of this process has `name`: a module, or an attribute of one."""
    root, *rest = name.split(".")
    value: Any = importlib.import_module(root)
    path = root
    for part in rest:
        path += f".{part}"
        try:
            value = getattr(value, part)
        except Exception:  # whatever a module's __getattr__ raises
            try:
                value = importlib.import_module(path)
            except Exception:
                return False
    return True


def unanswered(names: Iterable[str], by: str = "flambeau") -> set[str]:
    """Those of `names` that `by` (flambeau or torch) lacks; asked in another process, as the two share a name."""
    begin = "import flambeau.as_torch" if by == "flambeau" else "import torch"
    program = (f"{begin}\nimport sys, json, warnings; warnings.simplefilter('ignore'); sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
               "import scan\nprint(json.dumps([n for n in json.load(sys.stdin) if not scan.answers(n)]))")
    done = subprocess.run([sys.executable, "-c", program], input=json.dumps(sorted(names)), text=True, stdout=subprocess.PIPE, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Print what is missing, the most wanted first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", metavar="PACKAGE")
    parser.add_argument("--all", action="store_true", help="function bodies too")
    parser.add_argument("--oracle", action="store_true", help="leave out what PyTorch doesn't answer either")
    parser.add_argument("--json", type=Path, help="write the missing names and who wants them there")
    options = parser.parse_args()
    by_name = wanted(options.packages, options.all)
    if options.oracle:
        by_name = {name: by_name[name] for name in set(by_name) - unanswered(by_name, "torch")}
    missing = unanswered(by_name)
    for name in sorted(missing, key=lambda name: (-len(by_name[name]), name)):
        print(f"{len(by_name[name]):>4}  {name:<70} {' '.join(sorted(by_name[name])[:8])}")
    share = len(missing) / max(1, len(by_name))
    print(f"{len(by_name)} names wanted by {len(options.packages)} packages, {len(missing)} unanswered ({share:.1%})")
    if options.json:
        options.json.write_text(json.dumps({name: sorted(by_name[name]) for name in sorted(missing)}, indent=1))


if __name__ == "__main__":
    main()
