"""`ExportedProgram.run_decompositions`: a functional graph, of what remains when operators are taken apart.

The graph is recorded again, step by step. An operator of the table is computed by its function, whose operators are recorded (and taken
apart) in its place. What writes becomes a new value: every memory has a cell with its value now, and a view that is read after a write is
taken again from it. Memories of inputs that were written to end as outputs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from itertools import count, takewhile
from typing import Any

from ..aot.trace import stand_in, stripped
from ..core import dispatch
from ..core.symbolic import DataDependentSize, SymInt, is_symbolic, is_var, to_python
from ..core.tensor import Tensor
from ..dynamo.graph_builder import must_hold
from ..fx import GraphModule, Node, map_arg
from ..ops import aten
from ..ops.aten import AtenOperator, Overload
from ..ops.custom import CustomOperator
from ..ops.primitives import ViewPrimitive
from ..ops.wrappers import told
from ..utils._pytree import tree_map
from . import program as programs
from .core_table import OwnBody, body_of, default_table, is_core, undo
from .dims import ExportEnv
from .graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from .program import ExportedProgram, copied
from .record import COMPARISONS, Recorder, _Operators, _Primitives, constant_input, set_grad_enabled


class CustomDecompTable(dict):
    """overload -> the function that computes it from core operators; delete what is to stay whole."""

    by_bodies = True        # what a function leaves (NotImplemented) is computed by the operator's own body

    def __init__(self, *given: Any) -> None:
        super().__init__(*(given or (default_table(),)))

    def copy(self) -> CustomDecompTable:
        """Another one of the same entries."""
        return CustomDecompTable(self)

    def materialize(self) -> dict[Any, Callable]:
        """The entries as a plain dict."""
        return dict(self)


def default_decompositions() -> CustomDecompTable:
    """What `run_decompositions()` takes apart: overload -> the function that computes it from core operators. A copy, to be changed."""
    return CustomDecompTable()


class Cell:
    """A memory: its value now, and how often it was written to."""

    def __init__(self, base: Tensor) -> None:
        self.base, self.value, self.writes = base, base, 0


class CellView:
    """How a tensor looks into a memory: by which steps, and its value as of `writes`."""

    def __init__(self, tensor: Tensor, cell: Cell, chain: tuple) -> None:
        self.tensor, self.cell, self.chain = tensor, cell, chain
        self.value, self.writes = tensor, cell.writes


class Functional(Recorder):
    """Records without writes, and takes operators apart."""

    def __init__(self, name_of_constant: Callable[[Tensor, bool], str], env: Any, table: Mapping[Any, Callable]) -> None:
        super().__init__(name_of_constant, env)
        self.table = table
        self._views: dict[int, CellView] = {}
        self._apart: list[Any] = []      # operators whose functions are running
        self._depth = getattr(table, "depth", 1)
        self._bodies = 0        # how many of them are operators' own bodies
        self.known_as: SymInt | None = None     # the size that the next step finds and only a run knows

    # -- memory ------------------------------------------------------------------------------------------------------
    def view(self, tensor: Tensor) -> CellView:
        """What is known of a tensor."""
        found = self._views.get(id(tensor))
        if found is None:
            found = self._views[id(tensor)] = CellView(tensor, Cell(tensor), ())
        return found

    def current(self, value: Any) -> Any:
        """A tensor's value now."""
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.current, value)) if type(value) in (list, tuple) else list(map(self.current, value))
        if not isinstance(value, Tensor):
            return value
        view = self.view(value)
        if view.writes != view.cell.writes:
            now = view.cell.value
            for step in view.chain:
                now = self._take(step, now)
            view.value, view.writes = now, view.cell.writes
        return view.value

    def _unknown(self, name: str, tensor: Any) -> SymInt:
        """The symbol that the program has for the size already: one mask picks as many elements of each tensor."""
        found, self.known_as = self.known_as, None
        return super()._unknown(name, tensor) if found is None else found

    def _take(self, step: tuple, base: Tensor) -> Any:
        target, args, kwargs, place = step
        made = super().call(target, target, (base, *args), kwargs)
        return made if place is None else made[place]

    def assign(self, target: Tensor, new: Tensor) -> None:
        """Let the memory that `target` looks into have a new value there."""
        view = self.view(target)
        if new.dtype is not target.dtype:
            new = aten._to_copy.default(new, dtype=target.dtype)
        view.cell.value = self._put(view.cell.value, view.chain, new)
        view.cell.writes += 1
        view.value, view.writes = new, view.cell.writes

    def _put(self, base: Tensor, chain: tuple, new: Tensor) -> Tensor:
        if not chain:
            return new
        first, *rest = chain
        if rest:
            new = self._put(self._take(first, base), tuple(rest), new)
        with _Operators(self):
            return undo(base, first, new)

    # -- recording ---------------------------------------------------------------------------------------------------
    def call(self, target: Callable, run: Callable, args: tuple, kwargs: dict, given: tuple | None = None,
             named: dict | None = None) -> Any:
        """As the recorder, of values as they are now; in-place operators by others, those of the table by their functions."""
        args, kwargs = (args if given is None else given), (kwargs if named is None else named)
        if isinstance(target, Overload):
            run = target
        if target in self.table and self._apart.count(target) < self._depth_of(target):
            return self._by_table(target, args, kwargs)
        if self._bodies and hasattr(target, "_operator") and target not in self._apart:     # an operator that ATen hasn't
            return self._by_table(target, args, kwargs, OwnBody(target))
        if isinstance(target, Overload) and target.__name__.endswith("_") and not target.__name__.endswith("__") and args:
            return self._without_writing(target, args, kwargs)
        if isinstance(target, CustomOperator) and target.mutates:
            return self._writing_copies(target, args, kwargs)
        now = tuple(map(self.current, args)), {name: self.current(v) for name, v in kwargs.items()}
        out = super().call(target, run, *now)
        first = now[0][0] if now[0] else None
        if isinstance(target, AtenOperator) and isinstance(first, Tensor):
            for place, part in enumerate(out if isinstance(out, (tuple, list)) else (out,)):
                if isinstance(part, Tensor) and part is not first and part._storage.memory is first._storage.memory:
                    self._looks(part, args[0], (target, now[0][1:], now[1], place if isinstance(out, (tuple, list)) else None))
        return out

    def _looks(self, part: Tensor, source: Tensor, step: tuple) -> None:
        of = self.view(source)
        self._views[id(part)] = CellView(part, of.cell, (*of.chain, step))

    def _depth_of(self, target: Any) -> int:
        """How often what takes an operator apart may run within itself: a body may call its operator in a simpler way."""
        return 3 if isinstance(self.table.get(target), OwnBody) else self._depth

    def _by_table(self, target: Callable, args: tuple, kwargs: dict, body: OwnBody | None = None) -> Any:
        again = target in self._apart
        self._apart.append(target)
        modes = dispatch.state.modes
        seen = any(isinstance(mode, _Primitives) for mode in modes)     # not while one of them is being answered
        compute = body or self.table[target]
        try:
            with _Operators(self), nullcontext() if seen else dispatch.push_mode(_Primitives(self)):
                out = NotImplemented if isinstance(compute, OwnBody) else compute(*args, **kwargs)
                if out is NotImplemented and (isinstance(compute, OwnBody) or getattr(self.table, "by_bodies", False)):
                    out = self._by_core_alone(target, args, kwargs, again)
        finally:
            self._apart.pop()
        if out is NotImplemented:
            depth = self._depth_of(target)
            self._apart += [target] * depth
            try:
                return self.call(target, target, args, kwargs)
            finally:
                del self._apart[-depth:]
        return out

    def _by_core_alone(self, target: Callable, args: tuple, kwargs: dict, again: bool) -> Any:
        """What a body gives; NotImplemented, and nothing recorded, where it fails, comes to more than core operators, or goes by sizes."""
        tree_map(self.current, (args, kwargs))     # recorded before
        last = next(iter(reversed(self.graph.nodes)), None)
        known: tuple[dict, ...] = self._nodes, self._places, self._views, self._stand_ins, self.symbols, self.sizes._made
        before, env = [dict(each) for each in known], self.env
        env_before = env.frozen, env.guess
        env.frozen, env.guess = True, None
        self._bodies += 1
        try:
            out = body_of(target, args, kwargs, again)
        except Exception:     # whatever it is: the operator itself is recorded then
            out = NotImplemented
        finally:
            self._bodies -= 1
            env.frozen, env.guess = env_before
        made = list(takewhile(lambda node: node is not last, reversed(self.graph.nodes)))
        if out is not NotImplemented and all(map(_is_of_core, made)):
            return out
        for node in made:
            self.graph.erase_node(node)
        for each, was in zip(known, before, strict=True):
            each.clear()
            each.update(was)
        return NotImplemented

    def constant(self, tensor: Tensor, made_here: bool = False) -> Node:
        """As the recorder; a body that needs one stays whole."""
        if self._bodies:
            raise NotImplementedError("a constant within a body")
        return super().constant(tensor, made_here)

    def primitive(self, prim: Any, args: tuple) -> Any:
        """As the recorder; a step of a body as ATen has it."""
        if not self._bodies or (isinstance(prim, ViewPrimitive) and not self.knows(args[0])):
            return super().primitive(prim, args)
        return told(prim, args, lambda target, given, named: self.call(target, target, given, named) if isinstance(target, Overload)
                    else super(Functional, self).primitive(prim, args))

    def _without_writing(self, target: Overload, args: tuple, kwargs: dict) -> Tensor:
        """An in-place operator as the new value of what it writes to."""
        name = target.__name__[:-1]
        if name == "zero":
            return self._without_writing(aten.overload_named("fill_.Scalar"), (*args, 0), kwargs)
        schema = aten.schema_of(name, target._overloadname)
        if schema is None:
            raise NotImplementedError(f"run_decompositions: {target} has no form that does not write; use one in the program")
        source = self.current(args[1]) if name == "copy" and len(args) > 1 else None
        if isinstance(source, Tensor) and list(source.shape) == list(args[0].shape) and source.device == args[0].device:
            with _Operators(self):
                self.assign(args[0], source)
            return args[0]
        with _Operators(self):
            new = aten._overload(schema)(self.current(args[0]), *args[1:], **kwargs)
            self.assign(args[0], new)
        return args[0]

    def _writing_copies(self, target: CustomOperator, args: tuple, kwargs: dict) -> Any:
        """An operator of the user's that writes: it is given copies, which are the new values."""
        given = target.signature.bind(*args, **kwargs)
        copies: dict[int, tuple[Tensor, Tensor]] = {}

        def copied_now(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return list(map(copied_now, value))
            if not isinstance(value, Tensor):
                return value
            return copies.setdefault(id(value), (value, self.call(aten.clone.default, aten.clone.default, (value,), {})))[1]

        for name, value in given.arguments.items():
            given.arguments[name] = copied_now(value) if name in target.mutates else self.current(value)
        out = super().call(target, target, given.args, given.kwargs)
        with _Operators(self):
            for tensor, copy in copies.values():
                self.assign(tensor, copy)
        return out


def _is_of_core(node: Node) -> bool:
    """Whether a step is a core operator, a part of its results, or a size."""
    return is_core(node.target) or node.target is operator.getitem or is_symbolic(node.meta.get("val"))


def _differ(error: Exception) -> bool:
    """What functions of the table are told of two sizes that only a run knows; which have to be equal the graph checks already."""
    if not isinstance(error, DataDependentSize) or error.asked is None or error.asked.op not in ("==", "!="):
        raise error
    return error.asked.op == "!="


class _Rerun:
    """Records a program's graph again."""

    def __init__(self, old: ExportedProgram, table: Mapping[Any, Callable]) -> None:
        self.old = old
        values = [n.meta.get("val") for n in old.graph.nodes]
        env = next((s.env for v in values for s in (v._layout.shape if isinstance(v, Tensor) else (v,)) if isinstance(s, SymInt)), None)
        self.recorder = Functional(self._constant, env or ExportEnv(duck_shape=False), table)
        self.values: dict[Node, Any] = {}
        self.lifted: dict[str, Tensor] = {}

    def _constant(self, tensor: Tensor, made_here: bool) -> str:
        held = len(self.old.constants)
        return next(name for i in count(held) if (name := f"lifted_tensor_{i}") not in self.old.constants
                    and name not in self.recorder.constants)

    def run(self) -> ExportedProgram:
        """The new program."""
        recorder, nodes = self.recorder, list(self.old.graph.nodes)
        for node in (n for n in nodes if n.op == "placeholder"):
            value = node.meta["val"]
            made = stand_in(value) if isinstance(value, Tensor) else value
            new = recorder.input(str(node.target), made)
            self.values[node] = made
            if isinstance(made, SymInt) and is_var(made.expr):
                recorder.symbols.setdefault(to_python(made.expr), new)
        self._read_sizes(nodes)
        env = recorder.env
        before, (env.large, env.guess) = (env.large, env.guess), (True, _differ)
        try:
            with recorder.recording():
                for node in nodes:
                    self._step(node)
                return self._finish(nodes)
        finally:
            env.large, env.guess = before

    def _read_sizes(self, nodes: list[Node]) -> None:
        """A node for each symbol that decompositions may ask for and the old graph has none of."""
        known = {to_python(v.expr) for n in nodes if isinstance(v := n.meta.get("val"), SymInt) and is_var(v.expr)}
        for node in (n for n in nodes if n.op == "placeholder" and isinstance(n.meta["val"], Tensor)):
            for dim, size in enumerate(node.meta["val"]._layout.shape):
                if isinstance(size, SymInt) and is_var(size.expr) and (name := to_python(size.expr)) not in known:
                    known.add(name)
                    read = self.recorder.graph.call_function(aten.sym_size.int, (self.recorder.node_of(self.values[node]), dim))
                    read.meta["val"] = size
                    self.recorder.symbols[name] = read

    def _step(self, node: Node) -> None:
        recorder = self.recorder
        if node.op in ("placeholder", "output"):
            return
        stack = node.meta.get("stack", ())
        recorder.stack_of, recorder.modules = (lambda: stack), list(node.meta.get("nn_module_stack", {}).items())
        if node.op == "get_attr":
            recorder.functions[str(node.target)] = getattr(self.old.graph_module, str(node.target))
            self.values[node] = recorder.graph.get_attr(str(node.target))
            return
        args, kwargs = map_arg((node.args, dict(node.kwargs)), self.values.__getitem__)
        target: Any = node.target
        value = node.meta.get("val")
        if is_symbolic(value) or target is must_hold or (value is None and target in COMPARISONS.values()):
            copy = recorder.graph.call_function(target, *map_arg((node.args, dict(node.kwargs)), self._node))
            copy.meta = dict(node.meta)
            self.values[node] = copy if value is None else value
            if isinstance(value, SymInt) and is_var(value.expr):
                recorder.symbols.setdefault(to_python(value.expr), copy)
            elif isinstance(value, SymInt):
                recorder.sizes._made.setdefault(value.expr, copy)
        elif isinstance(target, (AtenOperator,)) or hasattr(target, "_operator") or hasattr(target, "run"):
            recorder.known_as = _unknown_in(value)
            self.values[node] = recorder.call(target, target, tuple(args), kwargs)
            recorder.known_as = None
        elif any(isinstance(a, Node) and isinstance(getattr(self.old.graph_module, str(a.target), None), GraphModule) for a in node.args):
            out = recorder.write(target, map_arg(node.args, self._node), {}, tuple([stripped(v) for v in value or ()]))
            self.values[node] = out
        elif target is set_grad_enabled:
            pass
        else:
            self.values[node] = target(*args, **kwargs)

    def _node(self, node: Node) -> Any:
        value = self.values[node]
        return value if isinstance(value, Node) else self.recorder.argument(self.recorder.current(value))

    def _finish(self, nodes: list[Node]) -> ExportedProgram:
        recorder, signature = self.recorder, self.old.graph_signature
        outs, specs = [], []
        for node, spec in zip([n for n in nodes if n.op == "placeholder"], signature.input_specs, strict=True):
            value = self.values[node]
            if isinstance(value, Tensor) and recorder.view(value).cell.writes:
                kind = {InputKind.BUFFER: OutputKind.BUFFER_MUTATION, InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION}.get(
                    spec.kind, OutputKind.USER_INPUT_MUTATION)
                outs.append(recorder.node_of(recorder.current(value)))
                specs.append(OutputSpec(kind, TensorArgument(outs[-1].name), spec.target or node.name))
        leading = len(outs)
        outs += [self._node(out) if isinstance(out, Node) else out for out in nodes[-1].args[0]]
        for out, before in zip(outs[leading:], signature.output_specs, strict=True):      # of a program that was taken apart, writes too
            arg: Any = ConstantArgument("", out)
            if isinstance(out, Node):
                arg = TensorArgument(out.name) if isinstance(out.meta["val"], Tensor) else SymIntArgument(out.name)
            specs.append(OutputSpec(before.kind, arg, before.target))
        graph = recorder.graph
        graph.output(tuple(outs))
        graph.eliminate_dead_code(lambda node: node.target is must_hold or bool(getattr(node.target, "mutates", ())))
        graph.meta["dialect"] = "ATEN"
        known = {s.arg.name: s for s in signature.input_specs}
        made = {constant_input(name): name for name in recorder.constants}     # what decompositions hold
        inputs = [InputSpec(s.kind, s.arg, s.target, s.persistent) if (s := known.get(node.name)) is not None else
                  InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), made[str(node.target)])
                  for node in graph.nodes if node.op == "placeholder"]
        return copied(self.old, root=recorder.functions, graph=graph, graph_signature=ExportGraphSignature(inputs, specs),
                      constants=self.old.constants | recorder.constants)


def _unknown_in(value: Any) -> SymInt | None:
    """The one size of a result that only a run knows; None where there are none or several."""
    found = {to_python(n.expr): n for t in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(t, Tensor)
             for n in t._layout.shape if isinstance(n, SymInt) and is_var(n.expr) and to_python(n.expr) in n.env.unbacked}
    return next(iter(found.values())) if len(found) == 1 else None


def run_decompositions(program: ExportedProgram, table: Mapping[Any, Callable] | None) -> ExportedProgram:
    """`program.run_decompositions(table)`."""
    return _Rerun(program, CustomDecompTable() if table is None else table).run()


programs.run_decompositions = run_decompositions
