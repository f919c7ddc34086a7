"""Functions of Python that are given as text."""

from __future__ import annotations
import __future__

import ast
import sys
import typing
from collections.abc import Callable
from typing import Any

from .errors import SourceText, failure

_OF_TYPES = (ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Constant, ast.BinOp, ast.BitOr, ast.expr_context)
_PLACE = "<string>"


def functions_of(text: str, names: dict[str, Any]) -> dict[str, Callable]:
    """The functions that a text defines; they see `torch`, the names of typing, `names` and one another.

    Nothing of the text runs: it has functions alone, without decorators, whose defaults are written out. RuntimeError for anything else.
    """
    try:
        tree = ast.parse(text, type_comments=True)
    except SyntaxError as error:
        raise RuntimeError(f"{error.msg}:\n  File \"{_PLACE}\", line {error.lineno}\n{error.text or ''}") from None
    lines = text.splitlines()
    found: dict[str, Callable] = {}
    library = sys.modules[__name__.partition(".")[0]]
    around = {**vars(typing), **names, "torch": library, "Tensor": library.Tensor}
    for node in tree.body:
        source = SourceText(lines, _PLACE, 1, 0, node)
        if not isinstance(node, ast.FunctionDef) or node.decorator_list:
            raise failure(f"expected def but found {type(node).__name__}", source, node)
        if node.name in names or node.name in found:
            raise failure(f"function '{node.name}' is defined already", source, node)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None and not _is_written_out(default):
                raise failure("the default of a parameter is no number, text, None or list of these", source, default)
        for part in ast.walk(node):
            for kind in (getattr(part, "annotation", None), getattr(part, "returns", None)):
                if kind is not None and not all(isinstance(p, _OF_TYPES) for p in ast.walk(kind)):
                    raise failure("Unknown type name", source, kind)
        module = ast.Module([node], [])
        exec(compile(module, _PLACE, "exec", __future__.annotations.compiler_flag, dont_inherit=True), around, found)
        found[node.name].source_text = ast.get_source_segment(text, node)       # type: ignore[attr-defined]
    around.update(found)
    return found


def _is_written_out(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True
