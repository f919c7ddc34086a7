"""`ExportedProgram`: a graph of ATen's operators, what its inputs and outputs are, and the tensors that belong to it."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ..core.symbolic import Expr, SymInt, evaluate, free_variables, is_var, to_python
from ..core.tensor import Tensor
from ..fx import Graph, GraphModule, Node
from ..nn import Module, Parameter
from ..ops import aten
from ..utils._pytree import TreeSpec, tree_flatten, tree_unflatten
from .dims import Check, solve
from .graph_signature import ExportGraphSignature, InputKind, OutputKind


@dataclasses.dataclass
class ModuleCallSignature:
    """How a module of the program is called."""

    inputs: list[Any]
    outputs: list[Any]
    in_spec: TreeSpec
    out_spec: TreeSpec
    forward_arg_names: list[str] | None = None


@dataclasses.dataclass
class ModuleCallEntry:
    """A module of the program; a signature is known of the program's own (path "")."""

    fqn: str
    signature: ModuleCallSignature | None = None


class CallSpec(NamedTuple):
    """The structure of the inputs and of the outputs."""

    in_spec: TreeSpec | None
    out_spec: TreeSpec | None


class ValueRange(NamedTuple):
    """From `lower` to `upper`, both possible."""

    lower: float
    upper: float

    def __repr__(self) -> str:
        return f"VR[{self.lower}, {'int_oo' if self.upper == math.inf else self.upper}]"


class Symbol(str):
    """A size by name, or an expression of such; prints without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclasses.dataclass
class InputText:
    """A user's input: how it is called (`d['k'][0]`)."""

    text: str
    value: Any     # a fake tensor, a SymInt, or a constant


class ExportedProgram:
    """What `torch.export.export` gives. `module()` runs it, `run_decompositions()` takes its operators apart, `torch.export.save` keeps it.

    `state_dict` holds parameters and buffers by path, `constants` the other tensors; `range_constraints` says how far the sizes may vary.
    """

    def __init__(self, root: Any, graph: Graph, graph_signature: ExportGraphSignature, state_dict: dict[str, Any],
                 range_constraints: dict[Any, Any], module_call_graph: list[ModuleCallEntry],
                 example_inputs: tuple[tuple, dict] | None = None, constants: dict[str, Any] | None = None, *,
                 user_inputs: list[InputText] | None = None, checks: list[Check] | None = None) -> None:
        self._graph_module = root if isinstance(root, GraphModule) and root.graph is graph else GraphModule(root, graph)
        self._graph_signature, self._state_dict, self._constants = graph_signature, state_dict, constants or {}
        self._range_constraints, self._module_call_graph = range_constraints, module_call_graph
        self._example_inputs = example_inputs
        self._user_inputs = user_inputs or []
        self._checks = checks or []

    # -- what it holds -----------------------------------------------------------------------------------------------
    @property
    def graph_module(self) -> GraphModule:
        """The graph as a module whose inputs are parameters, buffers, constants and the user's inputs, flat."""
        return self._graph_module

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._graph_module.graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """What the graph's inputs and outputs are."""
        return self._graph_signature

    @property
    def state_dict(self) -> dict[str, Any]:
        """Parameters and persistent buffers by path."""
        return self._state_dict

    @property
    def constants(self) -> dict[str, Any]:
        """The program's other tensors, and buffers that are not persistent."""
        return self._constants

    tensor_constants = constants

    @property
    def range_constraints(self) -> dict[Any, Any]:
        """How far sizes may vary."""
        return self._range_constraints

    @property
    def module_call_graph(self) -> list[ModuleCallEntry]:
        """The modules of the program."""
        return self._module_call_graph

    @property
    def example_inputs(self) -> tuple[tuple, dict] | None:
        """The inputs that the program was exported with."""
        return self._example_inputs

    @example_inputs.setter
    def example_inputs(self, value: tuple[tuple, dict] | None) -> None:
        if value is not None and not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], tuple)
                                      and isinstance(value[1], dict)):
            raise ValueError("Example inputs should be a tuple of (args, kwargs), a tuple and a dict")
        self._example_inputs = value

    @property
    def call_spec(self) -> CallSpec:
        """The structure of the inputs and of the outputs."""
        signature = self._module_call_graph[0].signature
        return CallSpec(None, None) if signature is None else CallSpec(signature.in_spec, signature.out_spec)

    @property
    def dialect(self) -> str:
        """TRAINING for what `export` gives, ATEN for what `run_decompositions` makes of it."""
        return str(self.graph.meta.get("dialect", "TRAINING"))

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Paths and parameters."""
        for path in self.graph_signature.parameters:
            yield path, self.state_dict[path]

    def parameters(self) -> Iterator[Parameter]:
        """The parameters."""
        for _, parameter in self.named_parameters():
            yield parameter

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Paths and buffers."""
        hidden = set(self.graph_signature.non_persistent_buffers)
        for path in self.graph_signature.buffers:
            yield path, (self.constants if path in hidden else self.state_dict)[path]

    def buffers(self) -> Iterator[Tensor]:
        """The buffers."""
        for _, buffer in self.named_buffers():
            yield buffer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Unable to call ExportedProgram directly. You should use `exported_program.module()` instead.")

    def __str__(self) -> str:
        body = "\n".join(f"    {line}" if line else line for line in self.graph_module.readable().splitlines())
        return f"ExportedProgram:\n{body}\nGraph signature: {self.graph_signature}\nRange constraints: {self.range_constraints}\n"

    def print_readable(self, print_output: bool = True) -> str:
        """Print the graph with the user's lines; the text."""
        return self.graph_module.print_readable(print_output)

    def validate(self) -> None:
        """Check that graph and signature belong together."""
        self.graph.lint()
        names = [n.name for n in self.graph.nodes if n.op == "placeholder"]
        if names != [s.arg.name for s in self.graph_signature.input_specs]:
            raise RuntimeError("the graph's inputs are not those of its signature")
        outs = self.graph.output_node().args[0]
        if not isinstance(outs, (tuple, list)) or len(outs) != len(self.graph_signature.output_specs):
            raise RuntimeError("the graph's outputs are not those of its signature")
        check_paths({*self.state_dict, *self.constants})
        self._validate_targets()
        users = [s for s in self.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
        spec = self.call_spec
        if spec.out_spec is not None and spec.out_spec.num_leaves != len(users):
            raise RuntimeError(f"the graph has {len(users)} outputs of the user's, and their structure {spec.out_spec.num_leaves}")
        inputs = [s for s in self.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
        if spec.in_spec is not None and not spec.in_spec.num_leaves == len(inputs) == len(self._user_inputs):
            raise RuntimeError(f"the graph has {len(inputs)} inputs of the user's, and their structure {spec.in_spec.num_leaves}")

    def _validate_targets(self) -> None:
        """Every input that is no user's has its tensor, and every new value an input that it is for."""
        signature = self.graph_signature
        for spec in signature.input_specs:
            if spec.kind is not InputKind.USER_INPUT and spec.target not in self.state_dict and spec.target not in self.constants:
                raise RuntimeError(f"there is no tensor {spec.target!r} for the input {spec.arg.name}")
        known = {spec.target or spec.arg.name for spec in signature.input_specs}
        for out in signature.output_specs:
            if out.kind is not OutputKind.USER_OUTPUT and out.target not in known:
                raise RuntimeError(f"the output {out.arg.name} is the new value of {out.target!r}, which is no input")

    # -- running -----------------------------------------------------------------------------------------------------
    def module(self, check_guards: bool = True) -> GraphModule:
        """The program as a module that is called as the one that was exported, with parameters and buffers of its own names."""
        return ExportedModule(self, check_guards)

    def run_decompositions(self, decomp_table: Mapping[Any, Callable] | None = None) -> ExportedProgram:
        """The program as a functional graph, in which operators of the table are computed by its functions; new values of buffers and of
        inputs that it writes to are outputs of the graph."""
        return run_decompositions(self, decomp_table)


def check_paths(paths: Collection[str]) -> None:
    """ValueError for paths that a program's module cannot have tensors at: it has another attribute there, or one below the other."""
    for path in paths:
        owner, *rest = path.split(".")
        taken = next((part for part, kind in ((owner, ExportedModule), *((part, Module) for part in rest))
                      if not part or hasattr(kind, part) or part in _FIELDS), None)
        if taken is not None:
            raise ValueError(f"the tensor {path!r} cannot be an attribute of the program's module, which has a {taken!r} of its own; "
                             "give it, or the module that holds it, another name")
        above = next((path[:i] for i, c in enumerate(path) if c == "." and path[:i] in paths), None)
        if above is not None:
            raise ValueError(f"there are tensors {above!r} and {path!r}")


def run_decompositions(program: ExportedProgram, table: Mapping[Any, Callable] | None) -> ExportedProgram:
    """Slot that decompose.py fills."""
    raise NotImplementedError("ExportedProgram.run_decompositions")


_FIELDS = frozenset(vars(Module())) | {"meta"}    # what each module keeps about itself


class ExportedModule(GraphModule):
    """An exported program that runs: a graph over the user's inputs, with parameters, buffers and constants as its attributes."""

    def __init__(self, program: ExportedProgram, check_guards: bool) -> None:
        check_paths({*program.state_dict, *program.constants})
        graph, root = with_attributes(program)
        super().__init__(root, graph, "GraphModule")
        graphs = {name for name, value in root.items() if isinstance(value, GraphModule)}
        for path, value in program.state_dict.items():     # other names of tensors that are tied, too
            if path not in root and path.partition(".")[0] not in graphs:
                _attach(self, path, value)
        spec = program.call_spec
        self.__dict__["_specs"] = spec
        self.__dict__["_arguments"] = Arguments(program._user_inputs, program._checks) if check_guards else None
        hidden = set(program.graph_signature.non_persistent_buffers) | set(program.graph_signature.lifted_tensor_constants)
        for path in hidden:
            owner = self.get_submodule(path.rpartition(".")[0])
            owner._non_persistent_buffers_set.add(path.rpartition(".")[2])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = flat_inputs(self._specs.in_spec, args, kwargs)
        if self._arguments is not None:
            self._arguments.check(leaves)
        outs = super().__call__(*leaves)
        return tree_unflatten(outs, self._specs.out_spec)

    def train(self, mode: bool = True) -> Any:
        """An exported program is in the mode in which it was exported."""
        raise NotImplementedError("Calling train() is not supported yet.")

    def eval(self) -> Any:
        """An exported program is in the mode in which it was exported."""
        raise NotImplementedError("Calling eval() is not supported yet.")


def _attach(root: Any, path: str, value: Any) -> None:
    *owners, name = path.split(".")
    owner: Any = root
    for part in owners:
        if part not in owner._modules:
            owner.add_module(part, Module())
        owner = owner._modules[part]
    if isinstance(value, Parameter):
        owner.register_parameter(name, value)
    else:
        owner.register_buffer(name, value)


def with_attributes(program: ExportedProgram) -> tuple[Graph, dict[str, Any]]:
    """The program's graph over the user's inputs alone, and what it has for attributes."""
    graph, root = Graph(), dict[str, Any]()
    nodes: dict[Node, Node] = {}
    specs = {s.arg.name: s for s in program.graph_signature.input_specs}
    for node in [n for n in program.graph.nodes if n.op == "placeholder"]:
        if specs[node.name].kind is InputKind.USER_INPUT:
            nodes[node] = graph.node_copy(node)
    for node in [n for n in program.graph.nodes if n.op == "placeholder"]:
        spec = specs[node.name]
        if spec.kind is not InputKind.USER_INPUT:
            assert spec.target is not None
            root[spec.target] = program.state_dict[spec.target] if spec.target in program.state_dict else program.constants[spec.target]
            nodes[node] = graph.get_attr(spec.target)
            nodes[node].meta = dict(node.meta)
    for node in program.graph.nodes:
        if node.op == "get_attr":
            root[str(node.target)] = getattr(program.graph_module, str(node.target))
        if node.op not in ("placeholder", "output"):
            nodes[node] = graph.node_copy(node, nodes.__getitem__)
    outs = list(program.graph.output_node().args[0])
    kept: list[Any] = []
    by_path = {s.target or s.arg.name: nodes[n] for n, s in ((n, specs[n.name]) for n in nodes if n.op == "placeholder")}
    for out, what in zip(outs, program.graph_signature.output_specs, strict=True):
        value = nodes[out] if isinstance(out, Node) else out
        if what.kind is OutputKind.USER_OUTPUT:
            kept.append(value)
        else:
            graph.call_function(aten.copy_.default, (by_path[str(what.target)], value))
    graph.output(tuple(kept))
    return graph, root


def flat_inputs(in_spec: TreeSpec | None, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
    """The leaves of a call's inputs; ValueError if they have another structure."""
    if in_spec is None:
        return list(args)
    names = in_spec.children_specs[1].context
    if set(names) == set(kwargs):
        kwargs = {name: kwargs[name] for name in names}
    leaves, got = tree_flatten((args, kwargs))
    if got != in_spec:
        raise ValueError(f"Trying to flatten user inputs with exported input tree spec: \n{in_spec}\nbut actually got inputs with tree "
                         f"spec of: \n{got}.\nPlease check that the inputs have the same number and type of args and kwargs as the ones "
                         "you used when tracing.")
    return leaves


class Arguments:
    """Checks that a call's inputs are what the program was exported for."""

    def __init__(self, inputs: list[InputText], checks: list[Check]) -> None:
        self.inputs, self.checks = inputs, checks

    def check(self, leaves: list[Any]) -> None:
        """AssertionError that names what does not fit; ValueError for another kind of input."""
        values: dict[str, int] = {}
        later: list[tuple[Any, int, str]] = []
        for wanted, leaf in zip(self.inputs, leaves, strict=True):
            if isinstance(wanted.value, Tensor):
                self._tensor(wanted.text, wanted.value, leaf, values, later)
            elif isinstance(wanted.value, SymInt):
                if type(leaf) is not int:
                    raise ValueError(f"input {wanted.text} is an int that varies, got {type(leaf).__name__}")
                values[to_python(wanted.value.expr)] = leaf
            elif not _same_constant(wanted.value, leaf):
                raise AssertionError(f"Guard failed: {wanted.text} == {wanted.value!r}" if wanted.value is not None
                                     else f"Guard failed: {wanted.text} is None")
        for expr, actual, text in later:
            self._derived(expr, actual, text, values)
        for check in self.checks:
            if free_variables(check.left) | free_variables(check.right) <= values.keys() and not check.holds(values):
                raise AssertionError(f"Guard failed: {check.text}")

    @staticmethod
    def _tensor(text: str, like: Tensor, got: Any, values: dict[str, int], later: list) -> None:
        if not isinstance(got, Tensor):
            raise ValueError(f"input {text} is a tensor of shape {list(like.shape)}, got {type(got).__name__}")
        if got.ndim != like.ndim:
            raise AssertionError(f"Guard failed: {text}.dim() == {like.ndim} (got a tensor of shape {list(got.shape)})")
        if got.dtype is not like.dtype:
            raise AssertionError(f"Guard failed: {text}.dtype == {like.dtype} (got {got.dtype})")
        for dim, (expected, actual) in enumerate(zip(like._layout.shape, got.shape, strict=True)):
            where = f"{text}.size()[{dim}]"
            if isinstance(expected, SymInt):
                name = to_python(expected.expr)
                if is_var(expected.expr) and name not in values:
                    values[name] = actual
                else:
                    later.append((expected.expr, actual, where))
            elif expected != actual:
                raise AssertionError(f"Guard failed: {where} == {expected} (got {actual})")

    @staticmethod
    def _derived(expr: Expr, actual: int, text: str, values: dict[str, int]) -> None:
        if not free_variables(expr) <= values.keys():
            solved = solve(expr, actual)
            if solved is None:
                raise AssertionError(f"Guard failed: {text} is of the form {to_python(expr)} (got {actual})")
            values[solved[0]] = solved[1]
        elif evaluate(expr, values) != actual:
            raise AssertionError(f"Guard failed: {text} == {to_python(expr)} (got {actual}, where {to_python(expr)} is "
                                 f"{evaluate(expr, values)})")


def _same_constant(wanted: Any, got: Any) -> bool:
    return wanted is got or (type(wanted) is type(got) and wanted == got)


def copied(program: ExportedProgram, **changes: Any) -> ExportedProgram:
    """The program with other parts."""
    parts: dict[str, Any] = {
        "root": program.graph_module, "graph": program.graph, "graph_signature": copy.deepcopy(program.graph_signature),
        "state_dict": program.state_dict, "range_constraints": program.range_constraints,
        "module_call_graph": program.module_call_graph, "example_inputs": program.example_inputs, "constants": program.constants,
        "user_inputs": program._user_inputs, "checks": program._checks}
    return ExportedProgram(**(parts | changes))
