"""torch.export.dynamic_shapes: what says which sizes vary, and `refine_dynamic_shapes_from_suggested_fixes`."""

from __future__ import annotations

import ast
from typing import Any

from ..utils._pytree import tree_map
from .dims import Dim, DimHint, ShapesCollection, dims
from .inputs import AdditionalInputs

Constraint = Dim | DimHint
"""What may be said of a size, for annotations."""

_DimHint = DimHint


def refine_dynamic_shapes_from_suggested_fixes(msg: str, dynamic_shapes: Any) -> Any:
    """The tree of shapes with what an export's error suggests below "Suggested fixes:": other bounds, a number, another Dim.

    Dims that hang on one that is changed hang on the new one. ValueError for a text without fixes, or a fix of a name that is no Dim of
    `dynamic_shapes`.
    """
    _, found, listed = msg.partition("Suggested fixes:")
    if not found:
        raise ValueError("refine_dynamic_shapes_from_suggested_fixes: the message has no 'Suggested fixes:'")
    known: dict[str, Dim] = {}

    def note(said: Any) -> None:
        if isinstance(said, Dim):
            known.setdefault(said.root.__name__, said.root)

    tree_map(note, dynamic_shapes)
    fixes: dict[str, Any] = {}
    for line in filter(None, map(str.strip, listed.splitlines())):
        name, equals, text = line.partition(" = ")
        if not equals:
            break
        if name not in known:
            raise ValueError(f"refine_dynamic_shapes_from_suggested_fixes: {line!r} is of no Dim of dynamic_shapes, which has {list(known)}")
        fixes[name] = _value(ast.parse(text, mode="eval").body, known, fixes)

    def refined(said: Any) -> Any:
        if not isinstance(said, Dim) or said.root.__name__ not in fixes:
            return said
        root = fixes[said.root.__name__]
        return said.scale * root + said.offset if said is not said.root else root

    return tree_map(refined, dynamic_shapes)


def _value(node: ast.expr, known: dict[str, Dim], fixes: dict[str, Any]) -> Any:
    """A fix: `Dim('a', max=5)`, `3`, `b` or `2*_b + 1`, where names that are not known are new Dims."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return fixes.get(name) or known.setdefault(name, Dim(name))
        case ast.Call(func=ast.Name(id="Dim"), args=[ast.Constant(value=str(name))], keywords=bounds):
            return Dim(name, **{str(bound.arg): ast.literal_eval(bound.value) for bound in bounds})
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _value(left, known, fixes) * _value(right, known, fixes)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _value(left, known, fixes) + _value(right, known, fixes)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _value(left, known, fixes) - _value(right, known, fixes)
    raise ValueError(f"refine_dynamic_shapes_from_suggested_fixes: {ast.unparse(node)!r} is no fix of a size")


__all__ = ["AdditionalInputs", "Constraint", "Dim", "ShapesCollection", "dims", "refine_dynamic_shapes_from_suggested_fixes"]
