"""What `torch.onnx.export` gives: a model in ONNX, which is saved, looked at and run."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.dtypes import dtype_of_numpy
from ..core.tensor import Tensor
from ..export.program import ExportedProgram, flat_inputs
from ..ops.creation import as_tensor
from .errors import OnnxExporterError, OnnxExporterWarning
from .translate import Translation, dimension
from .writer import NUMBERS, Body, Step, Value, array_of, without_copies, without_repeats

MOST = 2**31 - 2**20     # a message of protocol buffers holds less than two gigabytes
_SMALL = 1024            # what stays in the model where its weights lie beside it


def needs(name: str) -> Any:
    """An optional package; OnnxExporterError that tells how to install it."""
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        if name == "onnx" and error.name == "onnxruntime":
            return onnx
        raise OnnxExporterError(f"torch.onnx needs the package {error.name}: pip install 'flambeau[onnx]'") from error
    return {"onnx": onnx, "onnxruntime": onnxruntime}[name]


class ONNXProgram:
    """An exported model.

    `model_proto` is it as onnx.ModelProto; `save(path)` writes it; called with the inputs of the model it runs in ONNX Runtime and
    answers with the outputs, flat. `exported_program` is what it was made of.
    """

    def __init__(self, translation: Translation, program: ExportedProgram, names: Mapping[str, str]) -> None:
        self.exported_program = program
        self._writer, self._inputs, self._outputs = translation.o, translation.inputs, translation.outputs
        self._dimensions = dict(names)
        self._session: Any = None
        self._weights = self._writer.tensors
        self._converted: Any = None     # the model in an earlier opset

    def __repr__(self) -> str:
        told = ", ".join(map(repr, self._inputs)), ", ".join(map(repr, self._outputs))
        return f"ONNXProgram(opset {self._writer.opset}, {len(self._writer.steps)} nodes, inputs: {told[0]}, outputs: {told[1]})"

    # -- the model -----------------------------------------------------------------------------------------------------
    @property
    def model_proto(self) -> Any:
        """The model as onnx.ModelProto; OnnxExporterError if its weights are too large for one: `save` writes those beside it."""
        if self._bytes() > MOST:
            raise OnnxExporterError(f"The model has {self._bytes()} bytes of weights, and a ModelProto holds less than 2 GB; use "
                                    "save(path), which writes them to a file beside the model")
        return self._proto(self._tensor) if self._converted is None else self._converted

    @property
    def model(self) -> Any:
        """The model in the onnx package's form."""
        return self.model_proto

    def _bytes(self) -> int:
        return sum(_size(x) for x in self._weights.values())

    def _tensor(self, name: str, x: Any) -> Any:
        proto = needs("onnx").TensorProto(name=name, data_type=NUMBERS[_kind(x)], dims=list(x.shape))
        proto.raw_data = array_of(x).tobytes()
        return proto

    def _proto(self, tensor: Callable[[str, Any], Any], inputs_too: bool = False) -> Any:
        onnx = needs("onnx")
        helper, o = onnx.helper, self._writer
        weights = [tensor(name, x) for name, x in self._weights.items()]
        inputs = [self._info(v) for v in self._inputs]
        if inputs_too:
            inputs += [helper.make_tensor_value_info(name, NUMBERS[_kind(x)], list(x.shape)) for name, x in self._weights.items()]
        graph = helper.make_graph([self._node(step) for step in o.steps], "main_graph", inputs,
                                  [self._info(v) for v in self._outputs], initializer=weights)
        opsets = [helper.make_opsetid("", o.opset), *[helper.make_opsetid(d, n) for d, n in o.domains.items()]]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="flambeau", functions=list(o.functions.values()))
        model.ir_version = helper.find_min_ir_version_for([helper.make_opsetid("", o.opset)])
        if o.functions:
            model.ir_version = max(model.ir_version, 8)
        return model

    def _info(self, value: Value) -> Any:
        shape = None if value.shape is None else [dimension(n, self._dimensions) for n in value.shape]
        return needs("onnx").helper.make_tensor_value_info(value.name, NUMBERS[value.dtype], shape)

    def _node(self, step: Step) -> Any:
        helper = needs("onnx").helper
        attributes = {name: self._body(x) if isinstance(x, Body) else x for name, x in step.attributes.items()}
        return helper.make_node(step.op, step.inputs, step.outputs, name=step.name, domain=step.domain, **attributes)

    def _body(self, body: Body) -> Any:
        bare = [Value(v.name, v.dtype) for v in body.outputs]
        return needs("onnx").helper.make_graph([self._node(step) for step in body.steps], "body", [self._info(v) for v in body.inputs],
                                               [self._info(v) for v in bare])

    # -- files -----------------------------------------------------------------------------------------------------------
    def save(self, destination: str | os.PathLike[str], *, include_initializers: bool = True, keep_initializers_as_inputs: bool = False,
             external_data: bool | None = None) -> None:
        """Write the model. With `external_data`, and always from 2 GB on, its weights are written to a file `NAME.data` beside it;
        without `include_initializers` they are left out, and are inputs of the model."""
        path = Path(destination)
        if self._converted is not None:
            needs("onnx").save_model(self._converted, path, save_as_external_data=bool(external_data), location=path.name + ".data")
            return
        if not include_initializers:
            path.write_bytes(self._without_weights().SerializeToString())
            return
        if external_data or (external_data is None and self._bytes() > MOST):
            self._save_beside(path, keep_initializers_as_inputs)
            return
        if self._bytes() > MOST:
            raise OnnxExporterError("The model's weights take more than 2 GB; save(path, external_data=True) writes them beside it")
        path.write_bytes(self._proto(self._tensor, keep_initializers_as_inputs).SerializeToString())

    def _without_weights(self) -> Any:
        weights, bare = {v for v, x in self._weights.items() if isinstance(x, Tensor)}, needs("onnx").TensorProto
        model = self._proto(lambda name, x: bare(name=name) if name in weights else self._tensor(name, x), True)
        kept = [t for t in model.graph.initializer if t.name not in weights]
        infos = [i for i in model.graph.input if i.name in weights or i.name in {v.name for v in self._inputs}]
        for field, values in (("initializer", kept), ("input", infos)):
            model.graph.ClearField(field)
            getattr(model.graph, field).extend(values)
        return model

    def _save_beside(self, path: Path, inputs_too: bool) -> None:
        onnx = needs("onnx")
        beside, at = path.name + ".data", 0

        def external(name: str, x: Any) -> Any:
            nonlocal at
            if _size(x) < _SMALL:
                return self._tensor(name, x)
            data = array_of(x)
            at += -at % 64
            proto = onnx.TensorProto(name=name, data_type=NUMBERS[_kind(x)], dims=list(x.shape), data_location=onnx.TensorProto.EXTERNAL)
            for key, value in (("location", beside), ("offset", at), ("length", data.nbytes)):
                proto.external_data.add(key=key, value=str(value))
            file.seek(at)     # what lies between are zeros
            data.reshape(-1).view(np.uint8).tofile(file)
            at += data.nbytes
            return proto

        with (path.parent / beside).open("wb") as file:
            model = self._proto(external, inputs_too)
        path.write_bytes(model.SerializeToString())

    # -- running -----------------------------------------------------------------------------------------------------------
    def initialize_inference_session(self, initializer: Callable[[Any], Any] | None = None) -> None:
        """Make the session of ONNX Runtime that calls use: `initializer(model as bytes, or its path)` makes one of one's own."""
        make = initializer or _session
        if self._bytes() <= MOST:
            self._session = make(self.model_proto.SerializeToString())
            return
        with tempfile.TemporaryDirectory() as folder:
            self.save(Path(folder) / "model.onnx", external_data=True)
            self._session = make(str(Path(folder) / "model.onnx"))

    def __call__(self, *args: Any, **kwargs: Any) -> Sequence[Tensor]:
        """Run the model in ONNX Runtime; its outputs, flat."""
        if self._session is None:
            self.initialize_inference_session()
        feeds = {name: np.asarray(array_of(x) if isinstance(x, Tensor) else x) for name, x in self._feeds(args, kwargs).items()}
        return tuple([as_tensor(out) for out in self._session.run(None, feeds)])

    def call_reference(self, *args: Any, **kwargs: Any) -> Sequence[Tensor]:
        """Run the model in the onnx package's reference evaluator; its outputs, flat."""
        needs("onnx")
        from onnx.reference import ReferenceEvaluator
        feeds = {name: np.asarray(array_of(x) if isinstance(x, Tensor) else x) for name, x in self._feeds(args, kwargs).items()}
        return tuple([as_tensor(np.asarray(out)) for out in ReferenceEvaluator(self.model_proto).run(None, feeds)])

    def _feeds(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        leaves = flat_inputs(self.exported_program.call_spec.in_spec, args, kwargs)
        given = [x for x, text in zip(leaves, self.exported_program._user_inputs, strict=True) if _varies(text.value)]
        return {v.name: x for v, x in zip(self._inputs, given, strict=True)}

    def release(self) -> None:
        """Let go of the session."""
        self._session = None

    # -- changes -------------------------------------------------------------------------------------------------------------
    def apply_weights(self, state_dict: Mapping[str, Tensor]) -> None:
        """Replace weights by name; ValueError for one of another shape or dtype."""
        for name, value in state_dict.items():
            mine = self._weights.get(name)
            if mine is None:
                continue
            if tuple(mine.shape) != tuple(value.shape) or _kind(mine) is not value.dtype:
                raise ValueError(f"the weight {name!r} is {list(mine.shape)} of {_kind(mine)}, got {list(value.shape)} of {value.dtype}")
            self._weights[name] = value
        self._session = None

    def rename_axes(self, rename_mapping: Mapping[str, str]) -> None:
        """Give sizes that vary other names."""
        for symbol, name in list(self._dimensions.items()):
            self._dimensions[symbol] = rename_mapping.get(name, name)
        for name, wanted in rename_mapping.items():
            self._dimensions.setdefault(name, wanted)

    def optimize(self) -> None:
        """Write equal steps once, and outputs by the steps that make them."""
        self._writer.steps = without_copies(without_repeats(self._writer.steps, {v.name for v in self._outputs}))

    def convert(self, opset: int) -> None:
        """Bring the model to an earlier opset; OnnxExporterWarning, and the model stays, where that cannot be."""
        from onnx import version_converter
        try:
            self._converted = version_converter.convert_version(self.model_proto, opset)
        except Exception as error:     # its errors are of many kinds
            warnings.warn(f"The model is in opset {self._writer.opset}: it could not be converted to opset {opset} ({error})",
                          OnnxExporterWarning, stacklevel=3)


def _session(model: Any) -> Any:
    return needs("onnxruntime").InferenceSession(model, providers=["CPUExecutionProvider"])


def _varies(value: Any) -> bool:
    return isinstance(value, Tensor) or type(value).__name__ == "SymInt"


def _kind(x: Any) -> Any:
    return x.dtype if isinstance(x, Tensor) else dtype_of_numpy(x.dtype)


def _size(x: Any) -> int:
    return int(np.prod(x.shape)) * _kind(x).itemsize
