"""Strict export: dynamo captures the program's Python, and its graph is run on the stand-ins in the program's place.

The captured program is called once on the real inputs. Where its graph would run, the graph's steps are recorded on the stand-ins, whose
results go into whatever the program makes of them; so the structure of what it returns is its own. What dynamo has found out about sizes
becomes known to the export's own symbols.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ..core.expr import free_variables, is_var, substitute, to_python
from ..core.symbolic import ConstraintViolationError, Relation, SymBool, SymInt, expr_of
from ..core.tensor import Tensor
from ..dynamo import Explanation, compile
from ..dynamo.api import observe_call
from ..dynamo.exceptions import Unsupported, UserError
from ..dynamo.graph_builder import must_hold
from ..func.higher_order import choose, repeat, scanned
from ..fx import GraphModule, Interpreter, Node
from ..nn import Module
from ..utils._pytree import tree_unflatten
from .functions import Functions, as_scan


class _Steps(Interpreter):
    """Runs a captured graph under a recorder, which is told where each step comes from."""

    def __init__(self, module: GraphModule, recorder: Any) -> None:
        super().__init__(module)
        self.recorder = recorder

    def run_node(self, n: Node) -> Any:
        """As the interpreter."""
        recorder = self.recorder
        stack, modules = n.meta.get("stack", ()), n.meta.get("nn_module_stack", {})
        recorder.stack_of = lambda: stack
        recorder.modules = [("L__self__" + ("_" + path.replace(".", "_") if path else ""), (path, f"{cls.__module__}.{cls.__qualname__}"))
                            for path, cls in modules.values()]
        return super().run_node(n)

    def call_function(self, target: Any, args: tuple, kwargs: dict) -> Any:
        """As the interpreter; what takes functions is recorded with them."""
        functions = Functions(self.recorder)
        if target is choose:
            pred, yes, no, operands = args
            return tuple(functions.cond(pred, lambda: tuple(yes(*operands)), lambda: tuple(no(*operands)), ()))
        if target is repeat:
            test, body, carried, captured = args
            return functions.while_loop(lambda *c: test(*c, *captured)[0], lambda *c: tuple(body(*c, *captured)), tuple(carried))
        if target is scanned:
            return as_scan(functions, *args)
        if target is must_hold and isinstance(args[0], SymBool):
            return args[0].env.learn(args[0].relation)
        return super().call_function(target, args, kwargs)


class Capture:
    """A backend for dynamo: its graphs run on stand-ins."""

    def __init__(self, trace: Any) -> None:
        self.trace = trace
        self.stand_ins = {id(leaf.value): leaf.stand_in for leaf in trace.inputs.leaves if isinstance(leaf.value, Tensor)}
        self.stand_ins |= trace.state.stand_ins
        self.error: Exception | None = None
        self.varying: set[str] = set()       # the ints among the inputs that the graph takes as ints that vary
        self.fixed: dict[str, str] = {}      # sizes that were to vary, and of which the program works for one alone; with the user's line

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        places = [n for n in gm.graph.nodes if n.op == "placeholder"]

        def run(*args: Any) -> Any:
            given = [self.stand_ins.get(id(a), a) for a in args]
            values = self._symbols(places, given)
            given = [values[str(n.meta["val"])] if isinstance(n.meta["val"], SymInt) else a for n, a in zip(places, given, strict=True)]
            self._learn(places, values)
            try:
                with self.trace.recorder.recording():
                    return _Steps(gm, self.trace.recorder).run(*given)
            except Exception as error:     # dynamo would call the function as it is written, on the real inputs
                self.error = error
                raise

        return run

    def _symbols(self, places: list[Node], given: list[Any]) -> dict[str, Any]:
        """What dynamo's symbols are here."""
        values: dict[str, Any] = {}
        env = self.trace.inputs.sizes.env
        for node, value in zip(places, given, strict=True):
            theirs = node.meta["val"]
            if not isinstance(theirs, Tensor):
                continue
            for size, ours in zip(theirs._layout.shape, value._layout.shape, strict=True):
                if isinstance(size, SymInt) and is_var(size.expr):
                    values.setdefault(to_python(size.expr), ours)
                elif isinstance(size, int) and isinstance(ours, SymInt):    # dynamo has fixed it
                    line = next((line for name, line in self.fixed.items() if self._is(name, ours)), "")
                    env.evaluate_at(line, Relation("==", ours.expr, size))
        for leaf in self.trace.inputs.leaves:
            if isinstance(leaf.stand_in, SymInt):
                found = {str(n.meta["val"]): leaf.stand_in for n in places if isinstance(n.meta["val"], SymInt)
                         and str(n.meta["val"]) not in values and n.meta["val"].hint == leaf.value}
                values.update(found)
                self.varying.update([leaf.text] if found else [])
        for node, value in zip(places, given, strict=True):
            if isinstance(node.meta["val"], SymInt):
                values.setdefault(str(node.meta["val"]), value)
        return values

    def _is(self, name: str, size: SymInt) -> bool:
        """Whether dynamo calls this size so."""
        return any(name == f"{leaf.text}.shape[{d}]" for leaf in self.trace.inputs.leaves if isinstance(leaf.value, Tensor)
                   for d, ours in enumerate(leaf.stand_in._layout.shape) if ours is size)

    def fix_ints(self) -> None:
        """The ints that were to vary, of which the graph has the number alone."""
        for leaf in self.trace.inputs.leaves:
            if isinstance(leaf.stand_in, SymInt) and leaf.text not in self.varying:
                relation = Relation("==", leaf.stand_in.expr, leaf.value)
                leaf.stand_in.env.evaluate(relation, "strict=True, which captures numbers as they are")

    def _learn(self, places: list[Node], values: dict[str, Any]) -> None:
        """Dynamo's guards on sizes hold for ours, but that sizes differ: what is recorded is right for equal ones."""
        envs = {id(s.env): s.env for n in places for s in (n.meta["val"]._layout.shape if isinstance(n.meta["val"], Tensor)
                                                          else (n.meta["val"],)) if isinstance(s, SymInt)}
        ours = {name: expr_of(value) for name, value in values.items()}
        env = self.trace.inputs.sizes.env
        for theirs in envs.values():
            for relation, line in theirs.guards:
                if relation.op != "!=" and free_variables(relation.left) | free_variables(relation.right) <= ours.keys():
                    env.evaluate_at(line, Relation(relation.op, substitute(relation.left, ours), substitute(relation.right, ours)))


@contextmanager
def _marked(trace: Any, fixed: Collection[str]) -> Iterator[None]:
    """The example tensors, with the dimensions that vary marked for dynamo, but those that are fixed."""
    marked = []
    for leaf in trace.inputs.leaves:
        if isinstance(leaf.value, Tensor):
            shape = leaf.stand_in._layout.shape
            dims = frozenset(d for d, size in enumerate(shape)
                             if isinstance(size, SymInt) and f"{leaf.text}.shape[{d}]" not in fixed)
            marked.append((leaf.value, vars(leaf.value).get("_dynamo_dynamic_dims"), vars(leaf.value).get("_dynamo_static_dims")))
            vars(leaf.value).update(_dynamo_dynamic_dims=dims, _dynamo_static_dims=frozenset(range(len(shape))) - dims)
    try:
        yield
    finally:
        for tensor, *before in marked:
            for name, value in zip(("_dynamo_dynamic_dims", "_dynamo_static_dims"), before, strict=True):
                if value is None:
                    delattr(tensor, name)
                else:
                    setattr(tensor, name, value)


def _with_all_breaks(first: Unsupported, mod: Module, trace: Any) -> Unsupported:
    """What keeps a program from being one graph: all of it, where it goes on behind the first."""
    found = Explanation()
    with suppress(Exception):      # what goes wrong behind a break is no problem of the export
        observe_call(found, mod, trace.inputs.args, trace.inputs.kwargs)
    breaks = [info for info, _ in found.distinct_breaks()]
    if len(breaks) < 2:
        return first
    told = "\n".join(f"  - {info}".replace("\n", "\n  ") for info in breaks)
    return type(first)(f"{len(breaks)} problems keep the module from being exported as one graph:\n{told}")


def _apart(trace: Any) -> None:
    """Let a tensor that is an input twice, or a tensor of the module too, be another one: what the program is given may differ there."""
    seen = set(trace.state.stand_ins)
    for leaf in trace.inputs.leaves:
        if isinstance(leaf.value, Tensor):
            if id(leaf.value) in seen:
                leaf.value = leaf.value.detach().clone().requires_grad_(leaf.value.requires_grad)
            seen.add(id(leaf.value))


def captured(trace: Any, mod: Module) -> Callable[..., Any]:
    """What to call in place of `mod`: takes the stand-ins, and runs what dynamo captures of it on the real inputs."""
    _apart(trace)
    args, kwargs = tree_unflatten([leaf.value for leaf in trace.inputs.leaves], trace.inputs.spec)
    capture = Capture(trace)

    def call(*_: Any, **__: Any) -> Any:
        try:
            with _marked(trace, capture.fixed), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "torch.compile: the graph of")
                answer = compile(mod, backend=capture, fullgraph=True, dynamic=False)(*args, **kwargs)
        except ConstraintViolationError as error:
            if not error.where.keys() - capture.fixed.keys():
                raise
            capture.fixed |= error.where        # captured once more with these, so that all is told that is to be told of sizes
            return call()
        except Unsupported as error:
            raise error if isinstance(error, UserError) else _with_all_breaks(error, mod, trace) from error
        finally:
            if capture.error is not None:
                raise capture.error
        capture.fix_ints()
        return answer

    return call
