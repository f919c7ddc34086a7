"""From an exported program to an ONNX graph: operators without a form are taken apart, the others written, one after another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..core.dtypes import int64
from ..core.symbolic import SymInt, is_symbolic, to_python
from ..core.tensor import Tensor
from ..dynamo.graph_builder import must_hold
from ..export.forms import Apart, key_of, line_of, told
from ..export.graph_signature import InputKind, OutputKind
from ..export.program import ExportedProgram
from ..export.record import COMPARISONS, set_grad_enabled
from ..fx import Graph, GraphModule, Node, map_arg
from ..ops.aten import Overload
from . import complex as complex_numbers
from . import elementwise, functions, layers, linalg, numbers, reductions, shapes, sources, vision
from .errors import UnsupportedOperatorError
from .forms import find
from .writer import Body, Number, Value, Writer, needed, plain_name, used

WRITERS = (elementwise, functions, layers, linalg, numbers, reductions, shapes, sources, vision)     # the modules that have the rows
_SAID_ELSEWHERE = (set_grad_enabled, must_hold, *COMPARISONS.values())      # steps that compute nothing


class Translation:
    """One program, written."""

    def __init__(self, program: ExportedProgram, opset: int, whole: Mapping[Any, Any]) -> None:
        self.opset, self.whole = opset, whole
        self.program = program.run_decompositions(Apart(self._has_form))
        self.o = Writer(opset)
        self.o.inner = self.inner
        self.values: dict[Node, Any] = {}
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []

    def run(self, input_names: Sequence[str] | None, output_names: Sequence[str] | None) -> None:
        """Write it all."""
        graph = self.program.graph
        self._refuse_unknown()
        self._place_inputs(graph, list(input_names or ()))
        self._write(graph, self.program.graph_module)
        self._place_outputs(graph, list(output_names or ()))
        o = self.o
        o.steps = needed(o.steps, [v.name for v in self.outputs])
        kept = used(o.steps) | {v.name for v in self.outputs}
        o.tensors = {name: x for name, x in o.tensors.items() if name in kept}

    # -- what has no form --------------------------------------------------------------------------------------------
    def _refuse_unknown(self) -> None:
        """UnsupportedOperatorError that tells all operators that have no form, and the lines that call them."""
        missing: dict[str, list[str]] = {}
        for node in _all_nodes(self.program.graph, self.program.graph_module):
            if node.op == "call_function" and not self._form(node):
                missing.setdefault(key_of(node.target), []).append(line_of(node))
        if not missing:
            return
        error = UnsupportedOperatorError(", ".join(missing), self.opset, None)
        error.args = (f"{len(missing)} operator{'s have' if len(missing) > 1 else ' has'} no form in ONNX (opset {self.opset}):\n"
                      f"{told(missing)}\nCompute it outside of the model, write it by other operators, or pass its translation in "
                      "custom_translation_table.",)
        raise error

    def _has_form(self, target: Any, args: tuple, kwargs: dict) -> bool:
        return target in self.whole or self._find(target, args, kwargs) is not None

    def _find(self, target: Any, args: tuple, kwargs: dict) -> Any:
        return complex_numbers.find(target, args, kwargs, self.opset) or _without_complex(find, target, args, kwargs, self.opset)

    def _form(self, node: Node) -> Any:
        target = node.target
        if target in _SAID_ELSEWHERE:
            return _nothing
        if target in self.whole:
            return self.whole[target]
        args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda n: n.meta.get("val", n))
        return self._find(target, args, kwargs)

    # -- inputs and outputs ------------------------------------------------------------------------------------------
    def _place_inputs(self, graph: Graph, names: list[str]) -> None:
        program = self.program
        specs = {s.arg.name: s for s in program.graph_signature.input_specs}
        for node in [n for n in graph.nodes if n.op == "placeholder"]:
            spec, fake = specs[node.name], node.meta.get("val")
            if spec.kind is not InputKind.USER_INPUT:
                path = str(spec.target)
                tensor = program.state_dict.get(path, program.constants.get(path))
                assert isinstance(tensor, Tensor)
                self.values[node] = self._constant(path, tensor)
            elif isinstance(fake, (Tensor, SymInt)):
                self.values[node] = self._user_input(names.pop(0) if names else str(node.target), fake)
            else:
                self.values[node] = fake
        if names:
            raise ValueError(f"torch.onnx.export: input_names has {len(names)} more names than the model has inputs: {names}; the inputs "
                             f"are {[v.name for v in self.inputs]}")

    def _constant(self, path: str, tensor: Tensor) -> Any:
        """A tensor of the module; of a complex one the parts."""
        if tensor.dtype.is_complex:
            return complex_numbers.Complex(*[self._constant(f"{path}.{part}", getattr(tensor.detach(), part).clone())
                                             for part in ("real", "imag")])
        value = Value(self.o.name(path), tensor.dtype, tensor.shape)
        self.o.tensors[value.name] = tensor
        return value

    def _user_input(self, name: str, fake: Any) -> Value:
        shape = tuple(fake._layout.shape) if isinstance(fake, Tensor) else ()
        if complex_numbers.is_complex(fake):
            raise NotImplementedError(f"torch.onnx.export: the input {name} is of {fake.dtype}, which ONNX has no form of; let the model "
                                      "take torch.view_as_real(x), and begin with torch.view_as_complex")
        value = Value(self.o.name(name), fake.dtype if isinstance(fake, Tensor) else int64, shape)
        self.inputs.append(value)
        return value if isinstance(fake, Tensor) else Number(self.o.Unsqueeze(value, [0]).name)

    def _place_outputs(self, graph: Graph, names: list[str]) -> None:
        specs = self.program.graph_signature.output_specs
        found = [out for out, spec in zip(graph.output_node().args[0], specs, strict=True) if spec.kind is OutputKind.USER_OUTPUT]
        found = [out for out in found if out is not None and not isinstance(out, str)]
        if len(names) > len(found):
            raise ValueError(f"torch.onnx.export: output_names has {len(names)} names, and the model {len(found)} outputs")
        self.o.at = "outputs"
        for i, out in enumerate(found):
            value = self.values[out] if isinstance(out, Node) else self.o.constant(out)
            if isinstance(value, complex_numbers.Complex):
                value = complex_numbers.pairs(self.o, value)
            if isinstance(value, Number):
                value = self.o.scalar(value)
            made = self.o.Identity(value)
            wanted = names[i] if i < len(names) else out.name if isinstance(out, Node) else f"output_{i}"
            self._rename(made, self.o.name(wanted))
            fake = out.meta["val"] if isinstance(out, Node) else None
            made.shape = tuple(fake._layout.shape) if isinstance(fake, Tensor) else ()
            if complex_numbers.is_complex(fake):
                made.shape += (2,)
            self.outputs.append(made)

    def _rename(self, value: Value, name: str) -> None:
        self.o.steps[-1].outputs = [name]
        value.name = name

    # -- steps -------------------------------------------------------------------------------------------------------
    def _write(self, graph: Graph, owner: Any) -> None:
        for node in graph.nodes:
            if node.op == "get_attr":
                self.values[node] = getattr(owner, str(node.target))
            elif node.op == "call_function" and node.target not in _SAID_ELSEWHERE:
                self._step(node)

    def _step(self, node: Node) -> None:
        o, target, fake = self.o, node.target, node.meta.get("val")
        write = self._form(node)
        paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
        o.at = plain_name(f"{paths[-1]}.{node.name}" if paths and paths[-1] else node.name)
        o.out, o.given = fake, map_arg(node.args, lambda n: n.meta.get("val"))
        args, kwargs = map_arg((node.args, dict(node.kwargs)), self.values.__getitem__)
        if isinstance(target, Overload):
            kwargs = {k: v for k, v in kwargs.items() if k not in ("layout", "device", "pin_memory", "memory_format", "non_blocking")}
        made = write(o, *args, **kwargs)
        self.values[node] = _known(made, fake)

    def inner(self, module: GraphModule, args: list[Any], inputs: list[Value] | None = None) -> Body:
        """The graph of a function, on values for its inputs; those of `inputs` are the body's own."""
        o, before, at, out = self.o, self.o.steps, self.o.at, self.o.out
        o.steps = []
        try:
            for node, value in zip([n for n in module.graph.nodes if n.op == "placeholder"], args, strict=True):
                self.values[node] = value
            self._write(module.graph, module)
            o.at = at
            outs = [_known(o.Identity(self.values[n]), n.meta["val"]) for n in module.graph.output_node().args[0]]
            return Body(o.steps, inputs or [], outs)
        finally:
            o.steps, o.at, o.out = before, at, out


def _without_complex(find: Any, target: Any, args: tuple, kwargs: dict, opset: int) -> Any:
    """The row of the table for real numbers; None where there are complex ones."""
    given = complex_numbers.leaves_of((args, kwargs))
    return None if any(complex_numbers.is_complex(x) or isinstance(x, complex) for x in given) else find(target, args, kwargs, opset)


def _nothing(o: Writer, *args: Any) -> None:
    """A step that computes nothing."""


def _known(made: Any, fake: Any) -> Any:
    """A result with the shape that the trace found."""
    if isinstance(made, complex_numbers.Complex):
        return complex_numbers.Complex(*[Value(part.name, part.dtype, fake._layout.shape) for part in made])
    if isinstance(fake, Tensor) and isinstance(made, Value):
        assert made.dtype is fake.dtype, f"{made} was to be of {fake.dtype}"
        known = Value(made.name, fake.dtype, fake._layout.shape)
        return known
    if is_symbolic(fake) and isinstance(made, Value):
        return Number(made.name, made.dtype)
    if isinstance(fake, (tuple, list)) and isinstance(made, (tuple, list)):
        return tuple([_known(m, f) for m, f in zip(made, fake)])
    return made


def _all_nodes(graph: Graph, owner: Any) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        inner = getattr(owner, str(node.target), None) if node.op == "get_attr" else None
        if isinstance(inner, GraphModule):
            yield from _all_nodes(inner.graph, inner)


def dimension(size: Any, names: Mapping[str, str]) -> int | str:
    """A size for the model's signature: an int, or a text of named sizes."""
    if not isinstance(size, SymInt):
        return int(size)
    text = re.sub(r"[A-Za-z_]\w*", lambda m: names.get(m[0], m[0]), to_python(size.expr))
    return int(text) if text.isdigit() else text
