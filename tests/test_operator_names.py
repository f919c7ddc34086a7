"""The house rule on names of operators: what is true of some of them is a facet or a tag of their records, not a list elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from flambeau.core.scalar import FOLDS, SCATTERED_BY
from flambeau.ops.registry import OPERATORS, PRIMITIVES

PACKAGE = Path(__file__).resolve().parent.parent / "flambeau"
NAMES = OPERATORS.keys() | PRIMITIVES.keys()
MOST = 4    # names that a collection may hold before it is a list of operators
LISTS = {
    "_examples.py": "what users type, by name",
    "_decomp/__init__.py": "what PyTorch calls no core operator",
    "backends/cuda/kernels.py": "implementations by primitive: the table's column for GPUs",
    "backends/cuda/library.py": "likewise, by libraries",
    "core/symbolic.py": "Python's operators on sizes",
    "dynamo/operations.py": "Python's operators", "dynamo/variables/floats.py": "Python's operators",
    "dynamo/variables/sequences.py": "Python's operators", "dynamo/variables/tensor.py": "Python's operators",
    "dynamo/variables/toolbox.py": "Python's operators", "fx/codegen.py": "Python's operators",
    "fx/proxy.py": "Python's operators",
    "dynamo/policy.py": "functions of NumPy", "dynamo/variables/arrays.py": "functions of NumPy, and what computes them here",
    "core/scalar.py": "what libraries do to products", "inductor/loop/ranges.py": "scalar operations of the loop IR",
    "onnx/elementwise.py": "the scalar table's column for ONNX", "onnx/layers.py": "forms in ONNX, a row each",
    "onnx/custom.py": "Python's operators",
    "_homes.py": "names of torch's modules",
    "nn/init.py": "PyTorch's gain of each",
    "special/__init__.py": "a namespace's own names", "export/targets.py": "Python's operators on sizes",
    "export/core_table.py": "what core ATen lacks, and its views",
    "jit/printer.py": "Python's operators on sizes", "jit/frontend/expressions.py": "Python's operators",
    "jit/frontend/statements.py": "Python's operators",
    "sparse/elementwise.py": "operators whose forms for sparse tensors follow there",
    "masked/maskedtensor.py": "operators that move elements, whose one form for masked tensors follows there",
}
"""Files outside of ops/ that may hold such lists, and why they are no facet of an operator."""


def _members(node: ast.AST) -> list[str]:
    """The names in a display of strings or attributes, in the keys of one, or in a text of words."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.split()
    items = node.elts if isinstance(node, (ast.List, ast.Tuple, ast.Set)) else node.keys if isinstance(node, ast.Dict) else []
    texts = [item.value for item in items if isinstance(item, ast.Constant)]
    return [t for t in texts if isinstance(t, str)] + [item.attr for item in items if isinstance(item, ast.Attribute)]


def _displays(node: ast.AST) -> Iterator[ast.AST]:
    """All that a module holds, but texts that document it and the names that it exports."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assign) and ast.unparse(child.targets[0]) == "__all__":
            continue
        if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)) and not isinstance(child, ast.JoinedStr):
            yield child
            yield from _displays(child)


def _lists(tree: ast.AST) -> Iterator[int]:
    for node in _displays(tree):
        members = set(_members(node))
        known = members & NAMES
        if len(known) > MOST and 2 * len(known) > len(members) and not (isinstance(node, ast.Constant) and known != members):
            yield node.lineno   # type: ignore[attr-defined]


def test_no_module_above_the_table_lists_operators() -> None:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        lines = [] if name.startswith("ops/") else list(_lists(ast.parse(path.read_text(encoding="utf-8"))))
        if lines:
            found[name] = lines
    assert found.keys() == LISTS.keys(), (f"lists of operators' names: {({k: v for k, v in found.items() if k not in LISTS})}; "
                                          f"no longer there: {sorted(LISTS.keys() - found.keys())}")


def test_what_is_true_of_folds_stands_in_their_table() -> None:
    """A table by the names of folds, or of those that scatters take, is a column of FOLDS."""
    folds = FOLDS.keys() | SCATTERED_BY.keys()
    found = {}
    for path in PACKAGE.rglob("*.py"):
        tables = [node for node in _displays(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Dict)]
        lines = [node.lineno for node in tables if len(node.keys) < 2 * len(folds & set(_members(node))) > 4]
        if lines:
            found[path.relative_to(PACKAGE).as_posix()] = lines
    assert found.keys() == {"core/scalar.py"}, f"tables by names of folds: {found}"


def test_the_scan_sees_what_it_should() -> None:
    assert list(_lists(ast.parse('X = frozenset(("mm", "bmm", "add", "mul", "sub"))\nY = "mm bmm add mul sub"\nZ = ("mm", "add")')))
    assert list(_lists(ast.parse("X = (ops.mm, ops.bmm, ops.add, ops.mul, ops.sub)"))) == [1]
    assert not list(_lists(ast.parse('"""mm bmm add mul sub"""\n__all__ = ["mm", "bmm", "add", "mul", "sub"]')))
