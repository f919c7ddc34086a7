"""An exported program from JSON and bytes. Whatever they hold, nothing of it is executed."""

from __future__ import annotations

import ast
import keyword
import math
from typing import Any

import numpy as np

from ..core import memory_format as formats
from ..core.device import device
from ..core.dtypes import DTYPES
from ..core.expr import Index, floordiv, maximum, minimum, modulo, var
from ..core.tensor import Tensor, fake, from_array
from ..fx import Graph, GraphModule, Node
from ..nn import Parameter
from ..utils._pytree import tree_unflatten, treespec_loads
from .dims import Check, ExportEnv
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
from .program import ExportedProgram, InputText, ModuleCallEntry, ModuleCallSignature, Symbol, ValueRange
from .targets import find_target

_ARGUMENTS: dict[str, Any] = {"TensorArgument": TensorArgument, "SymIntArgument": SymIntArgument}
_FORMATS = {str(f).removeprefix("torch."): f for f in vars(formats).values() if isinstance(f, (formats.memory_format, formats.layout))}
_OPS = frozenset(("==", "!=", "<", "<=", ">", ">="))


class Decoder:
    """Reads what `Encoder` made."""

    def __init__(self, record: dict[str, Any], tensors: bytes) -> None:
        self.record, self.tensors = record, np.frombuffer(bytearray(tensors), np.uint8)
        self.env = ExportEnv(duck_shape=False)
        self.known: dict[tuple, Tensor] = {}
        for name, hint, lo, hi in record["symbols"]:
            if hint is None:
                self.env.unbacked.add(_identifier(name))
            else:
                self.env.hints[_identifier(name)] = _integer(hint)
            self.env.sources[name] = [name]
            self.env._ranges[name] = (-math.inf if lo is None else lo, math.inf if hi is None else hi)

    def _entry(self, entry: Any) -> ModuleCallEntry:
        """A module of the program, by its path or with how it is called."""
        if isinstance(entry, str):
            return ModuleCallEntry(entry)
        path, inputs, outputs, in_spec, out_spec = entry
        given, made = ([self._argument(a) for a in each] for each in (inputs, outputs))
        return ModuleCallEntry(str(path), ModuleCallSignature(given, made, treespec_loads(in_spec), treespec_loads(out_spec)))

    def program(self) -> ExportedProgram:
        """All of it."""
        r = self.record
        module = self.graph(r["graph"])
        module.graph.meta["dialect"] = str(r["dialect"])
        inputs = [InputSpec(InputKind[kind], self._argument(arg), target, persistent) for kind, arg, target, persistent in r["inputs"]]
        outputs = [OutputSpec(OutputKind[kind], self._argument(arg), target) for kind, arg, target in r["outputs"]]
        in_spec, out_spec = treespec_loads(r["in_spec"]), treespec_loads(r["out_spec"])
        signature = ModuleCallSignature([], [], in_spec, out_spec, [str(name) for name in r["arg_names"]])
        examples = None
        if r["example_inputs"] is not None:
            leaves = [self.tensor(e["tensor"]) if "tensor" in e else self.value(e["value"], {}) for e in r["example_inputs"]]
            examples = tree_unflatten(leaves, in_spec)
        return ExportedProgram(
            module, module.graph, ExportGraphSignature(inputs, outputs), {str(path): self.tensor(t) for path, t in r["state_dict"].items()},
            {Symbol(name): ValueRange(self.value(lo, {}), self.value(hi, {})) for name, lo, hi in r["ranges"]},
            [ModuleCallEntry("", signature), *[self._entry(entry) for entry in r["modules"] if entry]], examples,
            {str(path): self.tensor(t) for path, t in r["constants"].items()},
            user_inputs=[InputText(str(text), self.meta(value)) for text, value in r["user_inputs"]],
            checks=[Check(_one_of(op, _OPS), self.expr(left), self.expr(right), str(text)) for op, left, right, text in r["checks"]])

    def _argument(self, arg: list) -> Any:
        if arg[0] == "ConstantArgument":
            return ConstantArgument(str(arg[1]), self.value(arg[2], {}))
        return _ARGUMENTS[arg[0]](str(arg[1]))

    # -- graphs ------------------------------------------------------------------------------------------------------
    def graph(self, record: dict[str, Any]) -> GraphModule:
        """A graph, with those that are its attributes."""
        graph, nodes = Graph(), dict[str, Node]()
        inner = {_identifier(name): self.graph(of) for name, of in record["graphs"].items()}
        for op, name, target, args, kwargs, meta in record["nodes"]:
            if op not in ("placeholder", "get_attr", "call_function", "output"):
                raise ValueError(f"a step of the kind {op!r:.40}")
            what = find_target(target) if op == "call_function" else _identifier(target)
            if op == "get_attr" and what not in inner:
                raise ValueError(f"the graph has no attribute {what!r}")
            node = graph.own_name(
                graph.create_node(op, what, self.value(args, nodes), self.value(kwargs, nodes), _identifier(name)), name)
            if node.name != name or name in nodes:
                raise ValueError(f"the name {name!r:.80} of a step")
            nodes[name] = node
            node.meta = self._meta_of(meta)
        return GraphModule(inner, graph)

    def _meta_of(self, meta: dict[str, Any]) -> dict[str, Any]:
        stack = tuple([(str(file), _integer(line), str(function), str(source)) for file, line, function, source in meta.get("stack", ())])
        text = "".join(f'File "{file}", line {line}, in {function}\n    {source}\n' for file, line, function, source in stack)
        return {"val": self.meta(meta["val"]), "stack": stack, "stack_trace": text.rstrip("\n"),
                "nn_module_stack": {str(key): (str(path), str(cls)) for key, path, cls in meta.get("modules", ())}}

    def value(self, v: Any, nodes: dict[str, Node]) -> Any:
        """An argument."""
        if v is None or isinstance(v, (bool, int, float, str)):
            return v
        if isinstance(v, list):
            return [self.value(x, nodes) for x in v]
        (kind, content), = v.items()
        if kind == "node":
            return nodes[content]
        if kind in ("tuple", "slice"):
            items = [self.value(x, nodes) for x in content]
            return tuple(items) if kind == "tuple" else slice(*items)
        if kind == "dict":
            return {self.value(key, nodes): self.value(x, nodes) for key, x in content}
        return self._constant(kind, content)

    def _constant(self, kind: str, content: Any) -> Any:
        if kind == "float":
            return float(_one_of(content, ("inf", "-inf", "nan")))
        if kind == "complex":
            return complex(*content)
        if kind == "dtype":
            return DTYPES[content]
        if kind in ("memory_format", "layout"):
            return _FORMATS[content]
        if kind == "device":
            return device(content)
        if kind == "size":
            return self.env.symint(self.expr(content))
        raise ValueError(f"a value of the kind {kind!r:.40}")

    def meta(self, v: Any) -> Any:
        """What is known of a value."""
        if isinstance(v, dict) and "fake" in v:
            kind, shape, strides, offset, where, grad = v["fake"]
            shape, strides = ([self.value(n, {}) for n in each] for each in (shape, strides))
            made = fake(tuple(shape), DTYPES[kind], device(where), tuple(strides), self.value(offset, {}))
            if grad:
                made.requires_grad = True
            return made
        if isinstance(v, dict) and "several" in v:
            return tuple([self.meta(x) for x in v["several"]])
        return v["symbolic"] if isinstance(v, dict) and "symbolic" in v else self.value(v, {})

    def expr(self, text: Any) -> Index:
        """An expression of sizes: names, whole numbers, + - * // %, max and min."""
        if not isinstance(text, str) or len(text) > 10_000:
            raise ValueError(f"the size {text!r:.40}")
        return self._expr(ast.parse(text, mode="eval").body)

    def _expr(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in self.env.sources:
            return var(node.id, lo=2 if node.id in self.env.hints else self.env._ranges[node.id][0])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._expr(node.operand)
        if isinstance(node, ast.BinOp):
            left, right = self._expr(node.left), self._expr(node.right)
            for kind, make in ((ast.Add, lambda: left + right), (ast.Sub, lambda: left - right), (ast.Mult, lambda: left * right),
                               (ast.FloorDiv, lambda: floordiv(left, right)), (ast.Mod, lambda: modulo(left, right))):
                if isinstance(node.op, kind):
                    return make()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("max", "min") and not node.keywords:
            return (maximum if node.func.id == "max" else minimum)(*map(self._expr, node.args))
        raise ValueError(f"the size {ast.dump(node):.80}")

    # -- tensors -----------------------------------------------------------------------------------------------------
    def tensor(self, d: dict[str, Any]) -> Tensor:
        """A tensor with data."""
        kind, shape, order = DTYPES[d["dtype"]], tuple(map(_integer, d["shape"])), list(d["order"])
        at, size = _integer(d["at"]), _integer(d["bytes"])
        if sorted(order) != list(range(len(shape))) or math.prod(shape) * kind.itemsize != size or at + size > len(self.tensors) \
                or at % kind.itemsize:
            raise ValueError(f"a tensor of shape {list(shape)} of {kind} in {size} bytes at {at} of {len(self.tensors)}")
        key = (at, kind.name, shape, tuple(order), d["parameter"], d["device"])
        if size and key in self.known:
            return self.known[key]
        array = self.tensors[at:at + size].view(kind.numpy).reshape([shape[i] for i in order])
        made = from_array(array.transpose(np.argsort(order)) if order else array)
        where = device(d["device"])
        made = made if where.type == "cpu" else made.to(where)
        if d["parameter"]:
            made = Parameter(made, bool(d["requires_grad"]))
        elif d["requires_grad"]:
            made.requires_grad = True
        self.known[key] = made
        return made


def _identifier(name: Any) -> str:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or name == "__debug__":
        raise ValueError(f"the name {name!r:.80}")
    return name


def _integer(n: Any) -> int:
    if type(n) is not int or not 0 <= n < 1 << 63:
        raise ValueError(f"the number {n!r:.40}")
    return n


def _one_of(value: Any, known: Any) -> Any:
    if value not in known:
        raise ValueError(f"{value!r:.40}")
    return value
