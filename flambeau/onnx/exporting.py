"""`torch.onnx.export`: a module as a model in ONNX."""

from __future__ import annotations

import io
import os
import re
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core.symbolic import SymInt, to_python
from ..core.tensor import Tensor
from ..export import Dim, ExportedProgram
from ..export.dims import dims_of, named_inputs, walk
from ..export.tracing import traced
from ..nn.modules.module import Module
from ..ops import aten
from ..ops.custom import find
from ..utils._pytree import tree_leaves, tree_map
from .custom import as_form, as_symbolic
from .enums import OperatorExportTypes, TrainingMode
from .errors import OnnxExporterError, OnnxExporterWarning
from .forms import FORMS
from .program import ONNXProgram, needs
from .translate import Translation

LEAST, DEFAULT = 18, 20     # opsets that are written; earlier ones are converted to
_state = {"exporting": False}
SYMBOLICS: dict[tuple[str, int], Callable] = {}      # (operator, opset) -> symbolic function


def is_in_onnx_export() -> bool:
    """Whether a model is being exported to ONNX at this moment."""
    return _state["exporting"]


@contextmanager
def _exporting() -> Iterator[None]:
    before, _state["exporting"] = _state["exporting"], True
    try:
        yield
    finally:
        _state["exporting"] = before


@contextmanager
def _in_mode(model: Any, training: TrainingMode) -> Iterator[None]:
    """The model as it is to be exported: for evaluation, for training, or as it is."""
    if training is TrainingMode.PRESERVE or not isinstance(model, Module):
        yield
        return
    modes = [(m, m.training) for m in model.modules()]
    model.train(training is TrainingMode.TRAINING)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


# -- sizes that vary ---------------------------------------------------------------------------------------------------------------
def _from_axes(model: Any, args: tuple, kwargs: dict[str, Any], axes: Mapping[str, Any], input_names: Sequence[str]) -> Any:
    """`dynamic_axes`, which knows inputs by the names that they get, as `dynamic_shapes`; the sizes may turn out to be fixed. What it says
    of outputs follows from the inputs."""
    names = iter(input_names)

    def said(value: Any, own: str) -> Any:
        if not isinstance(value, Tensor):
            return None
        found = axes.get(next(names, own), axes.get(own))
        return None if found is None else {d % value.ndim: Dim.AUTO for d in found}

    return {name: tree_map(lambda leaf, name=name: said(leaf, name), value) for name, value in named_inputs(model, args, kwargs).items()}


def _in_place_of_names(shapes: Any, make: Callable[[str], Any]) -> Any:
    """`dynamic_shapes` with Dims in the place of texts."""
    return tree_map(lambda said: make(said) if isinstance(said, str) else said, shapes)


def _names_of_sizes(program: ExportedProgram, model: Any, args: tuple, kwargs: dict, shapes: Any) -> dict[str, str]:
    """Names for symbols: those of Dims, and texts."""
    if shapes is None:
        return {}
    named = named_inputs(model, args, kwargs)
    found: dict[str, str] = {}
    for text, said in zip(program._user_inputs, walk(named, shapes), strict=True):
        if isinstance(text.value, Tensor):
            for size, one in zip(text.value._layout.shape, dims_of(text.value, said)):
                name = getattr(one, "__name__", None)
                if isinstance(size, SymInt) and isinstance(name, str) and re.fullmatch(r"\w+", to_python(size.expr)):
                    found.setdefault(to_python(size.expr), name)
    return found


def _axis_names(program: ExportedProgram, axes: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """Names for symbols, of `dynamic_axes` that have some."""
    found: dict[str, str] = {}
    tensors = [t for t in program._user_inputs if isinstance(t.value, Tensor)]
    for i, text in enumerate(tensors):
        said = axes.get(names[i] if i < len(names) else text.text)
        for d, name in (said.items() if isinstance(said, Mapping) else ()):
            size = text.value._layout.shape[d]
            if isinstance(size, SymInt):
                found.setdefault(to_python(size.expr), str(name))
    return found


def _registered(opset: int) -> dict[Any, Callable]:
    """The operators that have symbolic functions, of each the last up to an opset."""
    found: dict[Any, Callable] = {}
    for (name, since), function in sorted(SYMBOLICS.items(), key=lambda item: item[0]):
        operator = find(name)
        if operator is None and name.startswith("aten::") and hasattr(aten, name[6:]):
            operator = getattr(aten, name[6:])
        ours = not name.startswith("aten::") and operator is not None and any(True for _ in FORMS.rows_of(operator))   # an extension's
        if operator is not None and since <= opset and not ours:
            found[operator] = as_symbolic(function)
    return found


# -- the export ----------------------------------------------------------------------------------------------------------------------
def _exported(model: Any, args: tuple, kwargs: dict[str, Any], shapes: Any, assigns: bool) -> ExportedProgram:
    if not isinstance(model, Module):
        raise OnnxExporterError(f"torch.onnx.export takes a torch.nn.Module or an ExportedProgram, got {type(model).__name__}")
    try:
        return traced(model, args, kwargs, shapes, assigns=assigns)
    except Exception as error:
        raise OnnxExporterError(f"Failed to export the model with torch.export, which is the first step.\n{type(error).__name__}: {error}"
                                ) from error


def _checked(args: Any, kwargs: Any) -> tuple[tuple, dict[str, Any]]:
    """The example inputs; a dict at the end of `args` is `kwargs`, as the documentation has it."""
    args = args if isinstance(args, tuple) else (args,)
    if kwargs is None and args and isinstance(args[-1], dict):
        args, kwargs = args[:-1], args[-1]
    return args, dict(kwargs or {})


def export(model: Any, args: Any = (), f: Any = None, *, kwargs: dict[str, Any] | None = None, verbose: bool | None = None,
           input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None, opset_version: int | None = None,
           dynamo: bool = True, external_data: bool = True, dynamic_shapes: Any = None,
           custom_translation_table: Mapping[Any, Callable | Sequence[Callable]] | None = None, report: bool = False, optimize: bool = True,
           verify: bool = False, profile: bool = False, dump_exported_program: bool = False, artifacts_dir: str | os.PathLike[str] = ".",
           export_params: bool = True, keep_initializers_as_inputs: bool = False,
           dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None, training: TrainingMode = TrainingMode.EVAL,
           operator_export_type: OperatorExportTypes = OperatorExportTypes.ONNX, do_constant_folding: bool = True,
           custom_opsets: Mapping[str, int] | None = None, export_modules_as_functions: bool | Collection[type] = False,
           autograd_inlining: bool = True) -> ONNXProgram | None:
    """Export a module, or an ExportedProgram, to ONNX: an ONNXProgram, which is also saved to `f` if that is given.

    `args`, `kwargs` are example inputs. `dynamic_shapes` says which sizes vary, as for torch.export.export; a text in the place of a Dim
    names a size. `dynamic_axes` says it by the inputs' names, `{"x": {0: "batch"}}`. `input_names`, `output_names` name the first inputs
    and outputs. `opset_version`: 18 and later; earlier ones by conversion. `custom_translation_table`: functions of onnxscript by operator.
    `external_data`: weights go to a file beside `f`. `verify` runs the model beside the module, `report` writes what was exported
    to `artifacts_dir`, `dump_exported_program` the program as well. With `dynamo=False` the module is exported in the mode that `training`
    says, weights stay in the file, and nothing is returned. OnnxExporterError tells what cannot be exported, all of it at once.
    """
    if operator_export_type is not OperatorExportTypes.ONNX or export_modules_as_functions or profile:
        raise NotImplementedError("torch.onnx.export: operator_export_type=, export_modules_as_functions= and profile= are not "
                                  "implemented; custom_translation_table= writes operators of one's own, cProfile tells the time")
    onnx = needs("onnx")
    wanted = DEFAULT if opset_version is None else opset_version
    newest = onnx.defs.onnx_opset_version()
    if not isinstance(wanted, int) or not 1 <= wanted <= newest:
        raise ValueError(f"Unsupported ONNX opset version: {wanted!r}; the onnx package has opsets up to {newest}")
    args, kwargs = _checked(args, kwargs)
    started = time.perf_counter()
    with _exporting(), _in_mode(model, TrainingMode.PRESERVE if dynamo else training):
        if dynamo and isinstance(model, Module) and model.training:
            warnings.warn("Exporting a model while it is in training mode. Please ensure that this is intended, as it may lead to "
                          "different behavior during inference. Calling model.eval() before export is recommended.", stacklevel=2)
        program, names = _program(model, args, kwargs, dynamic_shapes, dynamic_axes, list(input_names or ()), not dynamo)
    own = {op: as_form(fn) for op, fn in (custom_translation_table or {}).items()}
    translation = Translation(program, max(wanted, LEAST), own if dynamo else _registered(max(wanted, LEAST)) | own)
    names |= {to_python(c.left): to_python(c.right) for c in program._checks if c.op == "==" and isinstance(c.right, int)}    # fixed
    translation.run(input_names, output_names)
    translation.o.domains |= dict(custom_opsets or {})
    made = ONNXProgram(translation, program, names)
    if optimize and do_constant_folding:
        made.optimize()
    if wanted < LEAST:
        made.convert(wanted)
    _tell(made, verbose, report, dump_exported_program, Path(artifacts_dir), time.perf_counter() - started)
    if verify:
        _verify(made, model, args, kwargs)
    if f is not None:
        _save(made, f, external_data and dynamo, export_params, keep_initializers_as_inputs)
    return made if dynamo else None


def _program(model: Any, args: tuple, kwargs: dict[str, Any], shapes: Any, axes: Any, names: list[str],
             assigns: bool) -> tuple[ExportedProgram, dict]:
    if isinstance(model, ExportedProgram):
        return model, {}
    if axes and shapes is None and isinstance(model, Module):
        program = _exported(model, args, kwargs, _from_axes(model, args, kwargs, axes, names), assigns)
        return program, _axis_names(program, axes, names)
    program = _exported(model, args, kwargs, _in_place_of_names(shapes, lambda name: Dim.DYNAMIC), assigns)
    return program, _names_of_sizes(program, model, args, kwargs, _in_place_of_names(shapes, Dim))


def _save(made: ONNXProgram, f: Any, external: bool, params: bool, inputs_too: bool) -> None:
    if isinstance(f, io.IOBase) or hasattr(f, "write"):
        f.write(made.model_proto.SerializeToString())
        return
    made.save(f, include_initializers=params, keep_initializers_as_inputs=inputs_too, external_data=True if external else None)


def _tell(made: ONNXProgram, verbose: bool | None, report: bool, dump: bool, folder: Path, seconds: float) -> None:
    """What was asked to be told of an export."""
    if verbose:
        print(f"[torch.onnx] {made!r} in {seconds:.1f} s")
    if report:
        counts: dict[str, int] = {}
        for step in made._writer.steps:
            counts[step.op] = counts.get(step.op, 0) + 1
        rows = "\n".join(f"| {op} | {n} |" for op, n in sorted(counts.items()))
        (folder / "onnx_export_report.md").write_text(f"# ONNX export\n\n{made!r}\n\n| operator | nodes |\n|---|---:|\n{rows}\n\n"
                                                      f"```\n{made.exported_program}\n```\n")
    if dump:
        (folder / "onnx_exported_program.txt").write_text(str(made.exported_program))


def _verify(made: ONNXProgram, model: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    """Run the model beside the module; OnnxExporterWarning for outputs that differ."""
    module = made.exported_program.module() if isinstance(model, ExportedProgram) else model
    wanted = [x for x in tree_leaves(module(*args, **kwargs)) if isinstance(x, Tensor)]
    for value, mine, theirs in zip(made._outputs, made(*args, **kwargs), wanted):
        apart = (mine.double() - theirs.detach().double()).abs().max().item() if theirs.numel() else 0.0
        if not apart <= 1e-3 * max(1.0, theirs.detach().double().abs().max().item() if theirs.numel() else 0.0):
            warnings.warn(f"The output {value.name} of the exported model differs from the module's by {apart:.3g}", OnnxExporterWarning,
                          stacklevel=3)
