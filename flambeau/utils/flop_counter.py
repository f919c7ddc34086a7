"""Counting floating-point operations of products: `with FlopCounterMode() as counter: model(x).sum().backward()`."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from ..autograd.engine import queue_callback
from ..core import dispatch
from ..core.tensor import Tensor
from ..func.trees import flatten
from ..nn.modules.hooks import register_module_forward_hook, register_module_forward_pre_hook
from ..ops import aten

_registered: dict[Any, Callable[..., int]] = {}


_COUNTED = frozenset(getattr(aten, name) for name in (
    "mm", "bmm", "addmm", "convolution", "convolution_backward", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_backward"))


def _checked(op: Any) -> Any:
    if op in _COUNTED:
        raise NotImplementedError(f"the count of {op} cannot be changed: Flambeau computes it in other steps than PyTorch; give formulas "
                                  "for other operators")
    return op


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable:
    """A decorator: `formula(*args, out_shape)`, with shapes in the places of tensors, counts for the operators `targets`; with
    `get_raw` it gets the tensors, and `out_val`."""

    def register(formula: Callable) -> Callable:
        for op in targets if isinstance(targets, (list, tuple)) else (targets,):
            _registered[_checked(op)] = formula if get_raw else _of_shapes(formula)
        return formula

    return register


def _shapes(values: Any) -> Any:
    if isinstance(values, Tensor):
        return values.shape
    return type(values)(map(_shapes, values)) if type(values) in (list, tuple) else values


def _of_shapes(formula: Callable) -> Callable:
    return lambda *args, out_val: formula(*_shapes(args), out_shape=_shapes(out_val))


class FlopCounterMode:
    """Counts the operations of matrix products, convolutions and attention within the block, forward and backward, by module.

    `depth`: how many levels of modules the table has. `display`: print it at the end. `custom_mapping`: operator -> formula, as for
    `register_flop_formula`. Counts stand under the operators of `torch.ops.aten` that PyTorch would use, but for transposed
    convolutions, which are told by the step that computes them. What compiled graphs compute is not seen.
    """

    def __init__(self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: dict[Any, Callable] | None = None) -> None:
        if mods is not None:
            warnings.warn("mods argument is not needed anymore, you can stop passing it", stacklevel=2)
        self.depth, self.display = depth, display
        self.formulas = _registered | {_checked(op): _of_shapes(f) for op, f in (custom_mapping or {}).items()}
        self.counts: defaultdict[str, Counter] = defaultdict(Counter)

    # -- counting ---------------------------------------------------------------------------------------------------------
    def handle(self, prim: Any, args: tuple) -> Any:
        """Count a call, or the steps of an operator that has no formula."""
        op, formula = aten.name_of(prim, args), getattr(prim, "flops", None)
        given = self.formulas.get(op)
        if formula is None and given is None and prim.kind == "operator" and not prim.fused:
            with dispatch.push_mode(self):
                return prim.run(args)
        out = dispatch.run(prim, args)
        if formula is not None:
            self._add(op, formula(_shapes(out), *_shapes(args)))
        elif given is not None:
            self._add(op, given(*args, out_val=out))
        return out

    def _add(self, op: Any, count: int) -> None:
        for name in ("Global", *self.active):
            self.counts[name][op] += count

    # -- modules: a module is at work in its forward, and from the gradients of its outputs to those of its inputs -----------------
    def __enter__(self) -> FlopCounterMode:
        self.counts.clear()
        self.active: dict[str, None] = {}
        self.names: dict[Any, str] = {}
        self.hooks = [register_module_forward_pre_hook(self._begin), register_module_forward_hook(self._end, always_call=True)]
        self.scope = dispatch.push_mode(self)
        self.scope.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.scope.__exit__(*error)
        for hook in self.hooks:
            hook.remove()
        if self.display:
            print(self.get_table(self.depth))

    def _begin(self, module: Any, args: tuple) -> None:
        if module not in self.names:
            root = type(module).__name__
            self.names |= {child: f"{root}.{path}" if path else root for path, child in module.named_modules()}
        name = self.names[module]
        self.active[name] = None
        awaited = [a for a in flatten(args)[0] if isinstance(a, Tensor) and a.requires_grad]
        missing = [len(awaited)]

        def arrived(grad: Any) -> None:
            missing[0] -= 1
            if not missing[0]:
                self._leave(name)

        for tensor in awaited:
            tensor.register_hook(arrived)

    def _end(self, module: Any, args: tuple, output: Any) -> None:
        name = self.names[module]
        self._leave(name)

        def begin(grad: Any) -> None:
            self.active[name] = None
            queue_callback(lambda: self._leave(name))

        for tensor in flatten(output)[0]:
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(begin)

    def _leave(self, name: str) -> None:
        self.active.pop(name, None)

    # -- results ----------------------------------------------------------------------------------------------------------
    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """{module: {operator: count}}; "Global" has everything."""
        return {name: dict(counts) for name, counts in self.counts.items()}

    def get_total_flops(self) -> int:
        """The sum of all counts."""
        return self.counts["Global"].total() if self.counts else 0

    def get_table(self, depth: int | None = None) -> str:
        """The counts as text: modules down to `depth`, each with its operators."""
        depth, total = self.depth if depth is None else depth, self.get_total_flops()
        rows = [("Module", "FLOP", "% Total")]
        for name, counts in sorted(({"Global": Counter()} | self.counts).items(), key=lambda item: (item[0] != "Global", item[0])):
            level = 0 if name == "Global" else name.count(".") + 1
            if level <= depth:
                rows.append(_row(" " * level + name, counts.total(), total))
                rows += [_row(" " * (level + 1) + f"- {op}", n, total) for op, n in counts.items()]
        widths = [max(map(len, column)) for column in zip(*rows)]
        rows.insert(1, tuple("-" * w for w in widths))  # type: ignore[arg-type]
        return "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows)


def _row(name: str, count: int, total: int) -> tuple[str, str, str]:
    power = min(max(len(str(total)) - 1, 0) // 3, 5)
    return name, f"{count / 1000**power:.3f}{' KMBTP'[power].strip()}", f"{count / total:.2%}" if total else "0.00%"


__all__ = ["FlopCounterMode", "register_flop_formula"]
