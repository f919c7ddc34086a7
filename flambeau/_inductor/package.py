"""`torch._inductor.aoti_compile_and_package` and `aoti_load_package`: exported programs as files that run without Python (docs/aoti.md)."""

from __future__ import annotations

import copy
import io
import json
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from .. import _C
from ..backends.cpu import onednn
from ..backends.cuda import cubins
from ..core.device import CPU, device
from ..core.dtypes import DTYPES
from ..core.expr import to_cpp
from ..core.tensor import Tensor, fake, from_array
from ..core.unresolved import resolved
from ..export.dims import Check
from ..export.graph_signature import InputKind
from ..export.program import ExportedModule, ExportedProgram, flat_inputs
from ..export.tracing import export
from ..inductor import config
from ..inductor.cpu.compile import needed_features
from ..inductor.package.archive import write_package
from ..inductor.package.build import build
from ..inductor.package.written import Requirement
from ..nn import Module
from ..serialization.archive import replacing
from ..utils._pytree import keystr, tree_flatten_with_path, tree_map, tree_unflatten, treespec_dumps, treespec_loads
from ..version import __version__


def aoti_compile_and_package(exported_program: ExportedProgram, _deprecated_unused_args: Any = None,
                             _deprecated_unused_kwargs: Any = None, *, package_path: str | os.PathLike[str] | IO[bytes] | None = None,
                             inductor_configs: dict[str, Any] | None = None) -> str:
    """Compile an exported program to a `.pt2` file that runs without Python; its path.

    The file holds one shared library and the weights: `aoti_load_package` runs it, and so does a C++ program with `flambeau/aoti.h`.
    Parameters are constants of it: what follows from them alone is computed now. `package_path`: a file that ends in .pt2, or what can
    be written to; without, a file in the folder for temporary ones. NotImplementedError names all that has no native code, and where.

    A program whose tensors are on a GPU becomes a package for such GPUs, with the cubins in it. `inductor_configs={"cuda.arch": "90"}` says
    the compute capability that it is for; then one on the CPU is compiled for GPUs too, and no GPU is needed.
    """
    if not isinstance(exported_program, ExportedProgram):
        raise TypeError(f"aoti_compile_and_package takes an ExportedProgram, which torch.export.export makes, got "
                        f"{type(exported_program).__name__}")
    if _deprecated_unused_args is not None or _deprecated_unused_kwargs is not None:
        raise TypeError("aoti_compile_and_package takes no example inputs; the exported program has them")
    options = dict(inductor_configs or {})
    capability = _capability(exported_program, options.pop("cuda.arch", None))
    config.effective(options)
    if package_path is None:
        with tempfile.NamedTemporaryFile(prefix="flambeau-", suffix=".pt2", delete=False) as kept:
            package_path = kept.name
    if isinstance(package_path, (str, os.PathLike)):
        path = os.fspath(package_path)
        if not path.endswith(".pt2"):
            raise ValueError(f"Expect package_path={path!r} to be a file ending in .pt2")
        content = _package(exported_program, capability)
        with replacing(path) as file:
            file.write(content)
        return path
    package_path.write(_package(exported_program, capability))
    return str(getattr(package_path, "name", ""))


def _capability(program: ExportedProgram, said: Any) -> int:
    """The compute capability that a package is for: as was said, or of the GPU that the program's tensors are on; 0 for a CPU."""
    values = [n.meta.get("val") for n in program.graph.nodes]
    kinds = {v.device.type for v in values if isinstance(v, Tensor)} - {"cpu"}
    if said is not None and not (str(said).isdigit() and int(said) >= 70):
        raise ValueError(f'aoti_compile_and_package: "cuda.arch" is a compute capability such as "90", got {said!r}')
    if others := kinds - {"cuda"}:
        raise NotImplementedError(f"aoti_compile_and_package: the program has tensors on {', '.join(sorted(others))}; packages are for CPUs "
                                  "and NVIDIA GPUs. Export the module after .to('cpu')")
    if said is not None:
        return int(said)
    on_gpus = [v.device.index or 0 for v in values if isinstance(v, Tensor) and v.device.type == "cuda"]
    return int(cubins._capability(on_gpus[0])) if on_gpus else 0


def _moved(value: Any) -> Any:
    """A tensor, or a device, of a program as though that had been exported on the CPU: packages are traced there."""
    if isinstance(value, device):
        return CPU
    if not isinstance(value, Tensor) or value.device == CPU:
        return value
    return value.detach().cpu() if value._data is not None else fake(value._layout.shape, value.dtype, CPU, value._layout.strides)


def _on_cpu_alone(program: ExportedProgram) -> ExportedModule:
    """The program as a module on the CPU; the one that was exported stays where it is."""
    here = copy.copy(program)
    here._state_dict = {path: _moved(value) for path, value in program.state_dict.items()}
    here._constants = {path: _moved(value) for path, value in program.constants.items()}
    module = ExportedModule(here, check_guards=False)
    for node in module.graph.nodes:
        node.args, node.kwargs = tree_map(_moved, node.args), tree_map(_moved, node.kwargs)
        node.meta = {**node.meta, "val": tree_map(_moved, node.meta.get("val"))}
    return module


def _package(program: ExportedProgram, capability: int) -> bytes:
    """The file's content."""
    module = _on_cpu_alone(program) if capability else ExportedModule(program, check_guards=False)
    examples = [_moved(given.value) for given in program._user_inputs]
    names = [s.arg.name for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    spec = program.call_spec
    assert spec.in_spec is not None and spec.out_spec is not None
    tensors = [name for name, value in zip(names, examples, strict=True) if isinstance(value, Tensor)]
    built = build(module, examples, tensors, _output_names(spec.out_spec), [_requirement(check) for check in program._checks], capability)
    call = {"inputs": treespec_dumps(spec.in_spec), "outputs": treespec_dumps(spec.out_spec),
            "given": [None if isinstance(value, Tensor) else [_plain(value, "input")] for value in examples],
            "results": [[kind, _plain(value, "output")] for kind, value in built.outputs]}
    facts = [("made", __version__), ("states", str(built.states)), ("call", json.dumps(call, allow_nan=False))]
    file = io.BytesIO()
    write_package(file, built.library, built.weights, abi=_C.package_abi, features=needed_features(),
                  facts=[*facts, *([("cuda", str(capability))] if capability else [])])
    return file.getvalue()


def _requirement(check: Check) -> Requirement:
    return Requirement(f"{to_cpp(check.left)} {check.op} {to_cpp(check.right)}", check.text)


def _plain(value: Any, what: str) -> Any:
    if value is None or type(value) in (bool, int, str) or (type(value) is float and np.isfinite(value)):
        return value
    raise NotImplementedError(f"aoti_compile_and_package: an {what} is {value!r:.60}, of type {type(value).__name__}; packages take and "
                              "give tensors, and constant numbers and strings")


def _output_names(out_spec: Any) -> list[str]:
    """What outputs are called: by their place in what the program gives."""
    paths, _ = tree_flatten_with_path(tree_unflatten(range(out_spec.num_leaves), out_spec))
    return ["output" + keystr(path) for path, _ in paths]


class AOTICompiledModel:
    """A package, loaded: called as the module that was exported, without gradients. Calls from several threads run beside each other."""

    def __init__(self, path: str, *, single_threaded: bool = False):
        self._threads = 1 if single_threaded else _C.get_num_threads()
        self._first = _C.PackageSession(path, onednn.library_path() or "", self._threads)
        self._idle, self._lock = [self._first], threading.Lock()
        self._in_spec, self._out_spec, self._given, self._results = _called(path, self._first.facts)
        self._devices = {"cpu", "cuda"} if "cuda" in self._first.facts else {"cpu"}

    @property
    def inputs(self) -> tuple[tuple[str, str, tuple[int, ...], tuple[str, ...]], ...]:
        """Of each tensor that it takes its name, dtype, sizes (-1: varies) and these as text."""
        return self._first.inputs

    @property
    def outputs(self) -> tuple[tuple[str, str, tuple[int, ...], tuple[str, ...]], ...]:
        """The same of those that it gives."""
        return self._first.outputs

    def get_metadata(self) -> dict[str, str]:
        """What the package says of itself."""
        return {name: fact for name, fact in self._first.facts.items() if name != "call"}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = flat_inputs(self._in_spec, args, kwargs)
        tensors = []
        for name, (leaf, constant) in enumerate(zip(leaves, self._given, strict=True)):
            if constant is None:
                tensors.append(self._sent(leaf, name))
            elif type(leaf) is not type(constant[0]) or leaf != constant[0]:
                raise ValueError(f"input {name} of the program is {constant[0]!r}, as it was exported; got {leaf!r:.60}")
        arrays = tuple([np.asarray(resolved(t._data)) for t in tensors])
        with self._session() as session:
            made = session.run(arrays, tuple([_C.package_dtypes.index(t.dtype.name) for t in tensors]))
        where = next((leaf.device for leaf in leaves if isinstance(leaf, Tensor)), CPU)
        outs = [_output(kind, value, made) for kind, value in self._results]
        return tree_unflatten([out.to(where) if isinstance(out, Tensor) else out for out in outs], self._out_spec)

    def _sent(self, leaf: Any, place: int) -> Tensor:
        """An input in the host's memory."""
        if not isinstance(leaf, Tensor) or leaf.device.type not in self._devices:
            got = f"one on {leaf.device}" if isinstance(leaf, Tensor) else type(leaf).__name__
            where = " or a GPU" if "cuda" in self._devices else ""
            raise ValueError(f"input {place} of the program is a tensor on the CPU{where}, got {got}")
        if leaf.dtype.name not in _C.package_dtypes:
            raise ValueError(f"input {place} of the program is a tensor of {leaf.dtype}, which packages have not")
        return leaf.detach().cpu()

    @contextmanager
    def _session(self) -> Iterator[_C.PackageSession]:
        """One that nobody else has. Buffers that the program writes to belong to it: such a program has one alone, for which calls wait."""
        if self._first.facts["states"] != "0":
            with self._lock:
                yield self._first
            return
        try:
            session = self._idle.pop()
        except IndexError:
            session = _C.PackageSession(self._first, "", self._threads)
        try:
            yield session
        finally:
            self._idle.append(session)


def _called(path: str, facts: Mapping[str, str]) -> tuple[Any, Any, list, list]:
    """How Python calls a package: the structures of what it takes and gives, its constants, and what its results are."""
    try:
        call = json.loads(facts["call"])
        in_spec, out_spec, given, results = treespec_loads(call["inputs"]), treespec_loads(call["outputs"]), call["given"], call["results"]
        fits = in_spec.num_leaves == len(given) and out_spec.num_leaves == len(results)
        fits = fits and all(one is None or len(one) == 1 for one in given) and all(kind in _KINDS for kind, _ in results)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise RuntimeError(f"{path} is no ahead-of-time package of Flambeau's, or a damaged one: how it is called cannot be read "
                           f"({type(error).__name__})") from None
    if not fits:
        raise RuntimeError(f"{path} is no ahead-of-time package of Flambeau's, or a damaged one: how it is called does not fit together")
    return in_spec, out_spec, given, results


_KINDS = ("tensor", "int", "constant")


def _output(kind: str, value: Any, made: Sequence[tuple[np.ndarray, int, tuple[int, ...], tuple[int, ...]]]) -> Any:
    if kind == "constant":
        return value
    data, code, sizes, strides = made[value]
    dtype = DTYPES[_C.package_dtypes[code]]
    array = np.ndarray(sizes, dtype.numpy, data, 0, tuple([s * dtype.itemsize for s in strides]))
    return from_array(array, dtype) if kind == "tensor" else int(array)


def aoti_load_package(path: str | os.PathLike[str] | IO[bytes], run_single_threaded: bool = False,
                      device_index: int = -1) -> AOTICompiledModel:
    """The program in a file that `aoti_compile_and_package` wrote, to be called as the module that was exported. RuntimeError, before
    anything of it is run, for a file that is damaged, newer, or for another processor. `run_single_threaded`: each call computes on one
    thread."""
    if device_index != -1:
        raise NotImplementedError("aoti_load_package(device_index=...): packages are for CPUs; torch.compile serves GPUs")
    if isinstance(path, (str, os.PathLike)):
        return AOTICompiledModel(os.fspath(path), single_threaded=run_single_threaded)
    with tempfile.NamedTemporaryFile(prefix="flambeau-", suffix=".pt2") as file:
        file.write(path.read())
        file.flush()
        return AOTICompiledModel(file.name, single_threaded=run_single_threaded)


def aot_compile(gm: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *, options: dict[str, Any] | None = None) -> str:
    """Export a module for inputs like these, whose sizes do not vary, and package it; the path of the package."""
    return aoti_compile_and_package(export(gm, args, kwargs), inductor_configs=options)


def aot_compile_exported(f: Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *, dynamic_shapes: Any = None,
                         options: dict[str, Any] | None = None) -> str:
    """As `aot_compile`, where sizes vary as `dynamic_shapes` says."""
    return aoti_compile_and_package(export(f, args, kwargs, dynamic_shapes=dynamic_shapes), inductor_configs=options)


def aot_load(so_path: str, device: str) -> AOTICompiledModel:
    """As `aoti_load_package`, for this device."""
    if device != "cpu":
        raise NotImplementedError(f"torch._export.aot_load(device={device!r}): packages are for CPUs; torch.compile serves GPUs")
    return aoti_load_package(so_path)


__all__ = ["AOTICompiledModel", "aot_compile", "aoti_compile_and_package", "aoti_load_package"]
