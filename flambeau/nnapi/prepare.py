"""`torch.backends._nnapi.prepare`: a module as one that runs an NNAPI model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..export import Dim, ExportedProgram
from ..export.tracing import traced
from ..nn.modules.module import Module
from ..ops.creation import as_tensor, ones, zeros
from ..utils._pytree import tree_leaves
from .codes import NnapiError
from .convert import Conversion
from .interpreter import run
from .model import ARRAYS, Model, from_bytes, to_bytes

ANEURALNETWORKS_PREFER_LOW_POWER, ANEURALNETWORKS_PREFER_FAST_SINGLE_ANSWER, ANEURALNETWORKS_PREFER_SUSTAINED_SPEED = range(3)
_EXAMPLE = 64     # what a size that varies is while the model is traced


class NnapiModule(Module):
    """A module that runs an NNAPI model, on the host by its interpreter; `words` and `weights` are the model's bytes."""

    def __init__(self, words: bytes, weights: bytes, compilation_preference: int, relax_f32_to_f16: bool) -> None:
        super().__init__()
        self.register_buffer("words", as_tensor(np.frombuffer(words, np.uint8).copy()))
        self.register_buffer("weights", as_tensor(np.frombuffer(weights, np.uint8).copy()))
        self.compilation_preference, self.relax_f32_to_f16 = compilation_preference, relax_f32_to_f16

    def model(self) -> Model:
        """The model, read from its bytes: NnapiError if they are none."""
        return from_bytes(self.words.numpy().tobytes(), self.weights.numpy().tobytes())

    def init(self, args: Sequence[Tensor]) -> None:
        """Check that inputs fit, as a device would when it compiles the model for their sizes."""
        self(*args)

    def forward(self, *args: Tensor) -> Any:
        model = self.model()
        if len(args) != len(model.inputs):
            raise NnapiError(f"the NNAPI model takes {len(model.inputs)} inputs, got {len(args)}")
        given = [_as_array(a, ARRAYS[model.operands[i].type]) for a, i in zip(args, model.inputs)]
        outs = [as_tensor(np.array(out)) for out in run(model, given)]
        return outs[0] if len(outs) == 1 else outs


def _as_array(x: Any, kind: Any) -> np.ndarray:
    if not isinstance(x, Tensor):
        raise TypeError(f"an NNAPI model takes tensors, got {type(x).__name__}")
    array = x.detach().cpu().contiguous().numpy()
    return array.astype(kind) if array.dtype.kind in "ib" else array


def process_for_nnapi(model: Any, inputs: Any, serializer: Callable | None = None, return_shapes: Any = None,
                      use_int16_for_qint16: bool = False) -> tuple[Model, bytes, bytes]:
    """The model, its words and its weights. Sizes of 0 in `inputs` vary."""
    if serializer is not None or use_int16_for_qint16:
        raise NotImplementedError("convert_model_to_nnapi: serializer= and use_int16_for_qint16= are not implemented; the bytes are those "
                                  "of flambeau.nnapi.to_bytes, and quantised values have eight bits")
    program = model if isinstance(model, ExportedProgram) else _program(model, inputs)
    made = Conversion(program).run()
    if return_shapes is not None and len(return_shapes) != len(made.outputs):
        raise NnapiError(f"return_shapes has {len(return_shapes)} entries, and the model {len(made.outputs)} outputs")
    return made, *to_bytes(made)


def _program(model: Any, inputs: Any) -> ExportedProgram:
    if not isinstance(model, Module):
        raise TypeError(f"convert_model_to_nnapi takes a module or an ExportedProgram, got {type(model).__name__}")
    given = tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)
    if not all(isinstance(x, Tensor) for x in tree_leaves(given)):
        raise TypeError("convert_model_to_nnapi takes tensors as inputs")
    shapes = [{d: Dim.AUTO for d, n in enumerate(x.shape) if n == 0} for x in given]
    examples = tuple([(ones if x.dtype.is_floating_point else zeros)([n or _EXAMPLE for n in x.shape], dtype=x.dtype) for x in given])
    if any(shapes):
        forward = getattr(model.forward, "__code__", None)
        varies = forward is not None and bool(forward.co_flags & 4)      # *args
        return traced(model, examples, {}, (tuple(shapes),) if varies else tuple(shapes))
    return traced(model, examples, {}, None)


def convert_model_to_nnapi(model: Any, inputs: Any, serializer: Callable | None = None, return_shapes: Any = None,
                           use_int16_for_qint16: bool = False, compilation_preference: int = ANEURALNETWORKS_PREFER_SUSTAINED_SPEED,
                           relax_f32_to_f16: bool = False) -> NnapiModule:
    """A module (traced, exported or as it is) as one that runs an NNAPI model.

    A size of 0 in `inputs` varies: it is known when the module is called. NnapiError tells all operators that NNAPI has not, with the lines
    that call them. `compilation_preference` and `relax_f32_to_f16` travel with the module for a device; the host does not ask them.
    """
    _, words, weights = process_for_nnapi(model, inputs, serializer, return_shapes, use_int16_for_qint16)
    return NnapiModule(words, weights, compilation_preference, relax_f32_to_f16)
