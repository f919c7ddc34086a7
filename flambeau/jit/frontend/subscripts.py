"""Subscripts, of tensors, lists, dicts, tuples and modules: read and assigned to."""

from __future__ import annotations

import ast
from typing import Any

from .expressions import Expressions, ModuleValue
from .matching import literal_value
from .static import BOOL, INT, NONE, TENSOR, Known, Several, Type, Value, is_part, optional


class Subscripts(Expressions):
    """Expressions, and what stands in brackets behind them."""

    def _subscript(self, node: ast.Subscript, hint: Type | None) -> Any:
        of = self.expr(node.value)
        if isinstance(of, Known) and (isinstance(of.obj, type) or hasattr(of.obj, "__origin__")):
            raise self.error(node, "a type is no value")
        if isinstance(of, ModuleValue) and hint is not None and hint.name in self.unit.module_interfaces:
            return of.info.item_of_kind(self, of, self.value(node.slice), hint, node)
        return self.item(of, self.index_of(node), node)

    def index_of(self, node: ast.Subscript) -> ast.AST:
        """What is in the brackets, with `slice(a, b)` as `a:b`, and `Ellipsis` as `...`: so graphs print them."""
        at = node.slice
        return ast.copy_location(ast.Tuple(list(map(self._sliced, at.elts)), at.ctx), at) if isinstance(at, ast.Tuple) else self._sliced(at)

    def _sliced(self, part: ast.expr) -> ast.expr:
        if isinstance(part, ast.Name) and part.id == "Ellipsis":
            return ast.copy_location(ast.Constant(...), part)
        if not isinstance(part, ast.Call) or not isinstance(part.func, ast.Name) or part.keywords or not 1 <= len(part.args) <= 3:
            return part
        called = self.expr(part.func)
        if not isinstance(called, Known) or called.obj is not slice:
            return part
        bounds = [None if isinstance(a, ast.Constant) and a.value is None else a for a in part.args]
        return ast.copy_location(ast.Slice(*([None, *bounds] if len(bounds) == 1 else bounds)), part)

    def item(self, of: Any, at: ast.AST, node: ast.AST) -> Any:
        """`of[at]`."""
        if isinstance(of, ModuleValue):
            return of.info.item(self, of, at, node)
        if isinstance(of, Several):
            return self._of_several(of, at, node)
        value = self.first_class(of, node)
        if value.type == TENSOR:
            return self.indexed(value, at, node)
        kinds = self.tuple_types(value.type)
        if kinds is not None:
            return self._of_tuple(value, kinds, at, node)
        if isinstance(at, ast.Slice):
            return self._slice(value, at, node)
        own = self.classes.get(value.type.name)
        if own is not None:
            return self.call_method(value, "__getitem__", [self.value(at)], {}, node)
        value, key = self._ordered(value, at)
        if (value.type.name == "List" and key.type == INT) or (value.type.name == "Dict" and is_part(key.type, value.type.args[0],
                                                                                                     self.classes)):
            return Value(value.type.args[-1], f"{value.text if value.simple else f'({value.text})'}[{key.text}]")
        return self.operator(node, "__getitem__", [value, key])

    def _ordered(self, value: Value, at: ast.AST) -> tuple[Value, Value]:
        mark = len(self.out)
        key, held = self.value(at), [value]
        if len(self.out) > mark:
            self._spill(held, mark)
        return held[0], key

    def _constant_index(self, at: ast.AST, node: ast.AST) -> Any:
        value = self.value(at)
        if isinstance(value.constant, (int, str)):
            return value.constant
        raise self.error(node, "an index here must be a number that is known while compiling: the elements are of several types")

    def _of_several(self, of: Several, at: ast.AST, node: ast.AST) -> Any:
        if isinstance(at, ast.Slice):
            return Several(of.items[self.constant_slice(at, node)])
        found = self._constant_index(at, node)
        if not -len(of.items) <= found < len(of.items):
            raise self.error(node, f"index {found} is out of range for {len(of.items)} elements")
        return of.items[found]

    def constant_slice(self, at: ast.Slice, node: ast.AST) -> slice:
        """A slice of known numbers."""
        return slice(*(None if part is None else self._constant_index(part, node) for part in (at.lower, at.upper, at.step)))

    def _of_tuple(self, value: Value, kinds: tuple[Type, ...], at: ast.AST, node: ast.AST) -> Value:
        if isinstance(at, ast.Slice):
            return self.tuple_of(self.elements(value, node)[self.constant_slice(at, node)])
        index = self.value(at)
        if not isinstance(index.constant, int):
            if len(set(kinds)) == 1:
                listed = self.list_of(self.elements(value, node), None)
                return Value(kinds[0], f"({listed.text})[{index.text}]")
            raise self.error(node, "tuple index must be a compile time constant")
        if not -len(kinds) <= index.constant < len(kinds):
            raise self.error(node, f"Tuple index out of range: {index.constant} for {len(kinds)} elements")
        place = index.constant % len(kinds)
        if value.parts is not None and value.simple:
            return value.parts[place]
        return Value(kinds[place], f"{value.text if value.simple else f'({value.text})'}[{place}]")

    def _slice(self, value: Value, at: ast.Slice, node: ast.AST) -> Value:
        bounds = [self.value(part) if part is not None else literal_value(None) for part in (at.lower, at.upper)]
        if at.step is not None:
            bounds.append(self.value(at.step))
        return self.operator(node, "slice", [value, *bounds])

    def indexed(self, value: Value, at: ast.AST, node: ast.AST) -> Value:
        """A tensor's subscript: views by numbers, slices, None and `...`, and then by tensors."""
        value, indices = self.views(value, at, node)
        if not indices:
            return value
        return Value(TENSOR, f"torch.index({value.text}, annotate(List[Optional[Tensor]], [{', '.join(indices)}]))")

    def views(self, value: Value, at: ast.AST, node: ast.AST) -> tuple[Value, list[str]]:
        """The view that a subscript begins with, and the tensors that index it."""
        parts = list(at.elts) if isinstance(at, ast.Tuple) else [at]
        dots = next((i for i, p in enumerate(parts) if isinstance(p, ast.Constant) and p.value is ...), len(parts))
        text, tensors = value.text, {}     # type: tuple[str, dict[int, str]]
        dim = 0
        for place, part in enumerate(parts):
            if place == dots:
                later = [self._takes(p) for p in parts[dots + 1:]]
                dim = -sum(later)
                continue
            text, dim = self._one_index(text, part, dim, tensors, node, place > dots)
        if not tensors:
            return Value(TENSOR, text), []
        last = max(tensors) if min(tensors) >= 0 else -1
        if min(tensors) < 0:
            raise self.error(node, "tensors behind `...` in a subscript: write the dimensions out")
        return Value(TENSOR, text), [tensors.get(d, "None") for d in range(last + 1)]

    def _takes(self, part: ast.AST) -> int:
        """How many dimensions of a tensor an index is for."""
        return 0 if isinstance(part, ast.Constant) and part.value is None else 1

    def _one_index(self, text: str, part: ast.AST, dim: int, tensors: dict[int, str], node: ast.AST, after: bool) -> tuple[str, int]:
        if isinstance(part, ast.Slice):
            if part.lower is None and part.upper is None and part.step is None:
                return text, dim + 1
            bounds = [self.value(p).text if p is not None else "None" for p in (part.lower, part.upper)]
            step = [self.value(part.step).text] if part.step is not None else []
            return f"torch.slice({', '.join([text, str(dim), *bounds, *step])})", dim + 1
        index = self.value(part)
        if index.type == INT:
            return f"torch.select({text}, {dim}, {index.text})", dim + after
        if index.type == NONE:
            return f"torch.unsqueeze({text}, {dim - after})", dim + (not after)
        if index.type.name == "List":
            index = Value(TENSOR, f"torch.tensor({index.text})")
        if index.type == BOOL:
            text, index = f"torch.unsqueeze({text}, {dim})", Value(TENSOR, f"torch.tensor([{index.text}])")
        if index.type == optional(TENSOR) or index.type == TENSOR:
            tensors[dim] = index.text
            return text, dim + 1
        raise self.error(node, f"Unsupported operation: indexing tensor with unsupported index type '{index.type}'. Only ints, slices, "
                               "lists and tensors are supported")

    def write_item(self, of: Value, at: ast.AST, new: Value, node: ast.AST) -> None:
        """`of[at] = new`."""
        if of.type == TENSOR:
            view, indices = self.views(of, at, node)
            if new.type != TENSOR:
                view = self.kept(view)
                new = Value(TENSOR, f"torch.tensor({new.text}, dtype=ops.prim.dtype({view.text}), device=ops.prim.device({view.text}))")
            change = f"torch.index_put_({view.text}, annotate(List[Optional[Tensor]], [{', '.join(indices)}]), {new.text})" if indices \
                else f"torch.copy_({view.text}, {new.text})"
            self.out.append(f"{self.fresh()} = {change}")
            return
        if isinstance(at, ast.Slice):
            raise self.error(node, "Sliced expressions not yet supported for lists that are assigned to")
        of, key = self._ordered(of, at)
        if of.type.name not in ("List", "Dict"):
            self.out.append(f"{self.fresh()} = {self.call_method(of, '__setitem__', [key, new], {}, node).text}")
            return
        made = self.operator(node, "_set_item", [of, key, new])
        self.out.append(made.text if made.type == NONE else f"{self.fresh()} = {made.text}")
