"""torch.export.unflatten: an exported program as a tree of modules again, of which one may be exchanged for another."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from ..core.tensor import Tensor
from ..fx import Graph, GraphModule, Node
from ..nn import Module
from ..utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten
from .graph_signature import ConstantArgument
from .program import Arguments, ExportedProgram, ModuleCallSignature, flat_inputs, with_attributes


class InterpreterModule(GraphModule):
    """A module of an exported program: what it does, as a graph over what it is given, and its parameters and submodules."""

    def __init__(self) -> None:
        super().__init__({}, Graph(), type(self).__name__)
        self.__dict__["_signature"] = None

    def __str__(self) -> str:
        return Module.__repr__(self)  # type: ignore[arg-type]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        signature: ModuleCallSignature | None = self._signature
        if signature is None:
            return super().__call__(*args, **kwargs)
        return tree_unflatten(super().__call__(*flat_inputs(signature.in_spec, args, kwargs)), signature.out_spec)


class UnflattenedModule(InterpreterModule):
    """The program's own module: called as the one that was exported."""

    def __init__(self, export_module: ExportedProgram, flat_args_adapter: Any = None) -> None:
        super().__init__()
        self.__dict__["_adapter"] = flat_args_adapter
        self.__dict__["_specs"] = export_module.call_spec
        self.__dict__["_arguments"] = Arguments(export_module._user_inputs, export_module._checks)
        _Unflattening(export_module, self).run()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = self._flat(args, kwargs)
        self._arguments.check(leaves)
        return tree_unflatten(GraphModule.__call__(self, *leaves), self._specs.out_spec)

    def _flat(self, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
        wanted: TreeSpec = self._specs.in_spec
        if self._adapter is None:
            return flat_inputs(wanted, args, kwargs)
        leaves, given = tree_flatten((args, kwargs))
        if given == wanted:
            return leaves
        adapted: list[Any] = self._adapter.adapt(target_spec=wanted, input_spec=given, input_args=leaves, metadata=None, obj=(args, kwargs))
        if len(adapted) != wanted.num_leaves:
            raise TypeError(f"the adapter of flat arguments gave {len(adapted)}, and the program takes {wanted.num_leaves}")
        return adapted


class _Unflattening:
    """Distributes a program's graph over modules, by the modules that its nodes were recorded in."""

    def __init__(self, program: ExportedProgram, root: UnflattenedModule):
        self.root = root
        self.graph, self.values = with_attributes(program)
        self.names = {n.name: n for n in self.graph.nodes}
        self.tensors = {**program.constants, **program.state_dict}
        self.signatures = {e.fqn: e.signature for e in program.module_call_graph if e.fqn and e.signature is not None}
        self.made: dict[str, InterpreterModule] = {}      # by path, where repeated calls that differ have a path each
        self.hidden = {*program.graph_signature.non_persistent_buffers, *program.constants}

    def run(self) -> None:
        """Make all modules."""
        nodes = [n for n in self.graph.nodes if n.op not in ("placeholder", "output") and not self._is_attribute(n)]
        inputs = [n for n in self.graph.nodes if n.op == "placeholder"]
        self.root.graph = self._written(self.root, "", nodes, 0, inputs, lambda new: tuple(
            [new(out) if isinstance(out, Node) else out for out in self.graph.output_node().args[0]]))
        for path, value in self.tensors.items():
            self._register(path, value, path not in self.hidden)

    # -- the tree ------------------------------------------------------------------------------------------------------
    def _owner(self, path: str) -> tuple[Any, str]:
        """The module that holds what lies at a path, made if need be, and the name there."""
        owner: Any = self.root
        *parts, name = path.split(".")
        for part in parts:
            if part not in owner._modules:
                owner.add_module(part, Module())
            owner = owner._modules[part]
        return owner, name

    def _register(self, path: str, value: Any, persistent: bool) -> None:
        owner, name = self._owner(path)
        if isinstance(value, Tensor) and value.requires_grad:
            owner.register_parameter(name, value)
        else:
            owner.register_buffer(name, value, persistent=persistent)

    def _module(self, path: str) -> InterpreterModule:
        """The module at a path."""
        if path not in self.made:
            owner, name = self._owner(path)
            inner = owner._modules[name]._modules if name in owner._modules else {}    # those of a container that is called after all
            self.made[path] = InterpreterModule()
            self.made[path]._modules.update(inner)
            owner.add_module(name, self.made[path])
        return self.made[path]

    def _local(self, path: str, value: Any, owner: Any, at: str) -> str:
        """How the module at a path names what lies at another one: beside its own, or for itself alone."""
        if not at or path.startswith(at + "."):
            return path[len(at) + 1 if at else 0:]
        name = "_outer_" + path.replace(".", "_").replace("@", "_")
        owner.__dict__[name] = value
        return name

    # -- graphs --------------------------------------------------------------------------------------------------------
    def _is_attribute(self, node: Node) -> bool:
        return node.op == "get_attr"

    def _written(self, owner: InterpreterModule, path: str, nodes: Sequence[Node], depth: int, inputs: Sequence[Any],
                 outputs: Callable[[Callable[[Node], Node]], Any]) -> Graph:
        """The graph of what `nodes` do, in the module at a path."""
        graph, new = Graph(), dict[Node, Any]()
        for given in inputs:
            placeholder = graph.placeholder(given.name if isinstance(given, Node) else "constant")
            if isinstance(given, Node):
                new[given] = placeholder
                placeholder.meta = dict(given.meta)

        def renewed(node: Node) -> Node:
            if node not in new and self._is_attribute(node):
                new[node] = graph.get_attr(self._attribute(node, owner, path))
                new[node].meta = dict(node.meta)
            return new[node]

        for call, group in groupby(nodes, lambda node: _modules(node)[depth:depth + 1]):
            members = list(group)
            if call:
                self._call(graph, owner, path, call[0], members, depth + 1, new, renewed)
                continue
            for node in members:
                new[node] = graph.node_copy(node, renewed)
        graph.output(outputs(renewed))
        return graph

    def _attribute(self, node: Node, owner: InterpreterModule, at: str) -> str:
        target = str(node.target)
        value = self.values[target]
        if isinstance(value, GraphModule):
            owner.add_module(target, value)
            return target
        names = [name for name, tensor in self.tensors.items() if tensor is value] or [target]
        return self._local(next((name for name in names if name.startswith(at + ".")), target), value, owner, at)

    def _call(self, graph: Graph, owner: InterpreterModule, at: str, call: tuple[str, str], members: list[Node], depth: int,
              new: dict[Node, Any], renewed: Callable[[Node], Node]) -> None:
        """A call of a submodule."""
        key, path = call
        inside = set(members)
        repeated = key.partition("@")[2]
        signature = self.signatures.get(f"{path}@{repeated}" if repeated else path)
        used = dict.fromkeys(n for member in members for n in member.all_input_nodes if n not in inside and not self._is_attribute(n))
        results = [n for n in members if any(user not in inside for user in n.users)]
        if signature is not None:
            given, results = self._by(signature.inputs), self._by(signature.outputs)
            if missing := [n.name for n in used if n not in given]:
                raise RuntimeError(f"unflatten: the module {path!r} uses {', '.join(missing)} beside what it is given, so its signature "
                                   "cannot be preserved")
        else:
            given = list(used)
        module, name = self._callee(path, members, depth, given, results, signature)
        target = self._local(name, module, owner, at)
        leaves = [renewed(n) if isinstance(n, Node) else n for n in given]
        args, kwargs = (tuple(leaves), {}) if signature is None else tree_unflatten(leaves, signature.in_spec)
        made = graph.call_module(target, args, kwargs)
        if signature is not None:
            made = graph.call_function(tree_leaves, (made,))
        if signature is None and len(results) == 1:
            new[results[0]] = made
            return
        for k, result in enumerate(results):
            if isinstance(result, Node) and result not in new:
                new[result] = graph.call_function(operator.getitem, (made, k))

    def _by(self, arguments: Sequence[Any]) -> list[Any]:
        return [a.value if isinstance(a, ConstantArgument) else self.names[a.name] for a in arguments]

    def _callee(self, path: str, members: list[Node], depth: int, given: Sequence[Any], results: Sequence[Any],
                signature: ModuleCallSignature | None) -> tuple[InterpreterModule, str]:
        """The module that does this, and where it lies: the one of its path, or of a path with a number where that does something else."""
        def outputs(renewed: Callable[[Node], Node]) -> Any:
            outs = tuple([renewed(n) if isinstance(n, Node) else n for n in results])
            return outs[0] if len(outs) == 1 and signature is None else outs

        for number in range(len(self.graph.nodes)):
            name = f"{path}@{number}" if number else path
            module = self._module(name)
            graph = self._written(module, name, members, depth, given, outputs)
            if not module.graph.nodes:
                module.graph = graph
                module.__dict__["_signature"] = signature
            if _form(module.graph) == _form(graph):
                return module, name
        raise AssertionError("more calls than nodes")


def _modules(node: Node) -> list[tuple[str, str]]:
    """The calls of modules that a node was recorded in, without the program's own: keys and paths."""
    return [(key, path) for key, (path, _) in node.meta.get("nn_module_stack", {}).items() if path]


def _form(graph: Graph) -> list[Any]:
    """A graph without names."""
    numbers = {node: k for k, node in enumerate(graph.nodes)}

    def plain(value: Any) -> Any:
        if isinstance(value, Node):
            return ("node", numbers[value])
        if isinstance(value, (tuple, list)):
            return [plain(v) for v in value]
        if isinstance(value, dict):
            return {key: plain(v) for key, v in value.items()}
        return repr(value)

    return [(node.op, "" if node.op == "placeholder" else str(node.target), plain(node.args), plain(dict(node.kwargs)))
            for node in graph.nodes]


def unflatten(module: ExportedProgram, flat_args_adapter: Any = None) -> UnflattenedModule:
    """The program as a tree of modules with the names, parameters and calls of the one that was exported.

    A module may be exchanged for another: one whose path was given to `export(preserve_module_call_signature=)` is called as it was; others
    are called with the tensors that they use. `flat_args_adapter` brings calls with another structure of inputs to the exported one.
    """
    return UnflattenedModule(module, flat_args_adapter)


__all__ = ["InterpreterModule", "UnflattenedModule", "unflatten"]
