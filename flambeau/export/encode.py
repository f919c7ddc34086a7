"""An exported program as JSON and bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.device import device
from ..core.dtypes import dtype
from ..core.memory_format import layout, memory_format
from ..core.symbolic import SymBool, SymFloat, SymInt, to_python
from ..core.tensor import Tensor
from ..core.unresolved import resolved
from ..fx import Graph, GraphModule, Node
from ..nn import Parameter
from ..utils._pytree import tree_flatten, tree_leaves, treespec_dumps
from .graph_signature import ConstantArgument
from .program import ExportedProgram
from .targets import name_of


class Encoder:
    """Makes the JSON; `blobs` are the tensors' bytes, in order."""

    def __init__(self) -> None:
        self.blobs: list[bytes] = []
        self._end = 0
        self._seen: dict[tuple, int] = {}

    def program(self, ep: ExportedProgram) -> dict[str, Any]:
        """All of it."""
        signature = ep.module_call_graph[0].signature
        assert signature is not None
        return {
            "graph": self.graph(ep.graph, ep.graph_module),
            "dialect": ep.dialect,
            "inputs": [[s.kind.name, self._argument(s.arg), s.target, s.persistent] for s in ep.graph_signature.input_specs],
            "outputs": [[s.kind.name, self._argument(s.arg), s.target] for s in ep.graph_signature.output_specs],
            "state_dict": {path: self.tensor(value) for path, value in ep.state_dict.items()},
            "constants": {path: self.tensor(value) for path, value in ep.constants.items()},
            "ranges": [[str(name), self.value(r.lower), self.value(r.upper)] for name, r in ep.range_constraints.items()],
            "symbols": self._symbols(ep),
            "checks": [[c.op, to_python(c.left), to_python(c.right), c.text] for c in ep._checks],
            "user_inputs": [[i.text, self.meta(i.value)] for i in ep._user_inputs],
            "in_spec": treespec_dumps(signature.in_spec), "out_spec": treespec_dumps(signature.out_spec),
            "arg_names": signature.forward_arg_names,
            "modules": [entry.fqn if entry.signature is None or not entry.fqn else self._call(entry) for entry in ep.module_call_graph],
            "example_inputs": self._examples(ep),
        }

    def _call(self, entry: Any) -> list:
        """How a module is called."""
        told = entry.signature
        return [entry.fqn, *([self._argument(a) for a in arguments] for arguments in (told.inputs, told.outputs)),
                treespec_dumps(told.in_spec), treespec_dumps(told.out_spec)]

    def _examples(self, ep: ExportedProgram) -> Any:
        if ep.example_inputs is None:
            return None
        return [{"tensor": self.tensor(leaf)} if isinstance(leaf, Tensor) else {"value": self.value(leaf)}
                for leaf in tree_flatten(ep.example_inputs)[0]]

    @staticmethod
    def _symbols(ep: ExportedProgram) -> list:
        values = [v for n in ep.graph.nodes for v in tree_leaves(n.meta.get("val"))]
        envs = {id(s.env): s.env for v in values for s in (v._layout.shape if isinstance(v, Tensor) else (v,))
                if isinstance(s, (SymInt, SymFloat))}
        env = next(iter(envs.values()), None)
        if env is None:
            return []
        names = [*env.hints, *sorted(env.unbacked)]
        return [[name, env.hints.get(name), *[None if abs(end) == math.inf else end for end in env._ranges[name]]] for name in names]

    def _argument(self, arg: Any) -> list:
        name = type(arg).__name__
        return [name, arg.name, self.value(arg.value)] if isinstance(arg, ConstantArgument) else [name, arg.name]

    # -- graphs ------------------------------------------------------------------------------------------------------
    def graph(self, graph: Graph, owner: Any) -> dict[str, Any]:
        """A graph, with those that are its attributes."""
        inner = {}
        for node in graph.nodes:
            if node.op == "get_attr":
                value = getattr(owner, str(node.target))
                if not isinstance(value, GraphModule):
                    raise NotImplementedError(f"torch.export.save: the graph's attribute {node.target} is a {type(value).__name__}")
                inner[str(node.target)] = self.graph(value.graph, value)
        return {"nodes": [self.node(node) for node in graph.nodes], "graphs": inner}

    def node(self, node: Node) -> list:
        """One step."""
        target = name_of(node.target) if node.op == "call_function" else str(node.target)
        meta = {"val": self.meta(node.meta.get("val"))}
        if node.meta.get("stack"):
            meta["stack"] = [list(frame) for frame in node.meta["stack"]]
        if node.meta.get("nn_module_stack"):
            meta["modules"] = [[key, str(path), cls if isinstance(cls, str) else f"{cls.__module__}.{cls.__qualname__}"]
                               for key, (path, cls) in node.meta["nn_module_stack"].items()]
        return [node.op, node.name, target, self.value(node.args), self.value(dict(node.kwargs)), meta]

    def value(self, v: Any) -> Any:
        """An argument: plain values as they are, others as `{kind: text}`."""
        if isinstance(v, Node):
            return {"node": v.name}
        if v is None or type(v) in (bool, int, str):
            return v
        if isinstance(v, float):
            return v if math.isfinite(v) else {"float": repr(v)}
        if isinstance(v, list):
            return [self.value(x) for x in v]
        if isinstance(v, tuple):
            return {"tuple": [self.value(x) for x in v]}
        if isinstance(v, dict):
            return {"dict": [[self.value(key), self.value(x)] for key, x in v.items()]}
        if isinstance(v, slice):
            return {"slice": [self.value(x) for x in (v.start, v.stop, v.step)]}
        if isinstance(v, complex):
            return {"complex": [v.real, v.imag]}
        for kind, cls in (("dtype", dtype), ("memory_format", memory_format), ("layout", layout)):
            if isinstance(v, cls):
                return {kind: str(v).removeprefix("torch.")}
        if isinstance(v, device):
            return {"device": str(v)}
        if isinstance(v, SymInt):
            return {"size": to_python(v.expr)}
        if isinstance(v, np.generic):
            return self.value(v.item())
        raise NotImplementedError(f"torch.export.save: an argument of type {type(v).__name__} ({v!r:.60}) cannot be saved; numbers, "
                                  "strings, dtypes, devices, formats and containers of them can")

    def meta(self, v: Any) -> Any:
        """What is known of a value."""
        if isinstance(v, Tensor):
            shape, strides, offset = v._layout
            return {"fake": [v.dtype.name, [self.value(n) for n in shape], [self.value(n) for n in strides], self.value(offset),
                             str(v.device), v.requires_grad]}
        if isinstance(v, (SymFloat, SymBool)):
            return {"symbolic": repr(v)}
        if type(v) in (tuple, list):
            return {"several": [self.meta(x) for x in v]}
        return self.value(v)

    # -- tensors -----------------------------------------------------------------------------------------------------
    def tensor(self, t: Tensor) -> dict[str, Any]:
        """A tensor with data: where its bytes are, once for those that share them whole."""
        if t._data is None:
            raise NotImplementedError(f"torch.export.save: a tensor of shape {list(t.shape)} without data")
        host = np.asarray(resolved(t.detach().cpu()._data))
        order = sorted(range(host.ndim), key=lambda d: -abs(host.strides[d]) if host.shape[d] > 1 else 0)
        dense = np.ascontiguousarray(host.transpose(order))
        key = (t._storage.buffer.__array_interface__["data"][0] if t.device.type == "cpu" and t._storage.nbytes else id(t),
               t.storage_offset(), tuple(t.shape), tuple(t.stride()), t.dtype.name)
        if key not in self._seen:
            self._end += -self._end % 64
            self._seen[key] = self._end
            data = dense.reshape(-1).view(np.uint8).tobytes()
            self.blobs.append(b"\0" * (self._end - sum(map(len, self.blobs))))
            self.blobs.append(data)
            self._end += len(data)
        return {"dtype": t.dtype.name, "shape": list(t.shape), "order": order, "at": self._seen[key], "bytes": dense.nbytes,
                "device": str(t.device), "requires_grad": t.requires_grad, "parameter": isinstance(t, Parameter)}
