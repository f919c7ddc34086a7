"""`compile_fx`, the backend "inductor", and what of its work is kept in the disk cache."""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from typing import Any

from flambeau import _C
from flambeau.aot import Uncacheable, aot_compile
from flambeau.aot.collectives import join_collectives
from flambeau.aot.joint import TracedProgram
from flambeau.aot.unknown import in_pieces
from flambeau.backends import cudnn
from flambeau.backends.cpu import onednn
from flambeau.core import dispatch
from flambeau.core.lazy import LazyModule
from flambeau.core.tensor import Tensor
from flambeau.fx import Node
from flambeau.inductor import config
from flambeau.inductor.call import CLASSES as CALL_CLASSES
from flambeau.inductor.call import listening
from flambeau.inductor.cpu import compile as build
from flambeau.inductor.cpu.native import NativeCode, call_primitive
from flambeau.inductor.loop.boxes import Slot
from flambeau.inductor.loop.ir import Assumed, Extern, View
from flambeau.inductor.loop.post_ops import PostOp
from flambeau.ops.registry import is_operator

# what is read from the disk cache needs none of these
_freeze, _graph = LazyModule("flambeau.inductor.package.freeze"), LazyModule("flambeau.inductor.graph")
_cuda = LazyModule("flambeau.inductor.gpu.cuda")
_cubins, _dnn, _layouts = [LazyModule(f"flambeau.backends.cuda.{name}") for name in ("cubins", "dnn_library", "layouts")]

GRAPH_MODES = ("reduce-overhead", "max-autotune")  # those that record CUDA graphs
TUNED_MODES = ("max-autotune", "max-autotune-no-cudagraphs")


def _from_generator(node: Node) -> bool:
    """Whether a draw is one of those that come from the generator of the CPU in compiled code too."""
    fn: Any = getattr(Tensor, str(node.target), None) if node.op == "call_method" else node.target
    val = node.meta.get("val")
    return isinstance(val, Tensor) and val.device.type == "cpu" and is_operator(fn) and "from_generator" in fn._operator.tags


@in_pieces(draws_as_eager=lambda: config.fallback_random, left_to_eager=_from_generator)
def compile_fx(gm: Any, example_inputs: Sequence[Any], *, mode: str | None = None, **options: Any) -> Callable[..., Any]:
    """The backend "inductor": aot traces, differentiates and partitions; `compile_graph` compiles the pieces.

    `options` are settings (`config.py`) that hold while this is compiled. RuntimeError for one that does not exist.
    """
    modes = {"cuda_graphs": mode in GRAPH_MODES, "max_autotune": mode in TUNED_MODES}
    settings = config.effective({**{name: True for name, wanted in modes.items() if wanted}, **options})

    def compiler(graph: Any, inputs: Sequence[Any]) -> Any:
        with _settings(settings):
            return _graph.compile_graph(graph, inputs)

    repeats = settings["repeats"] and _may_cut([e for e in example_inputs if isinstance(e, Tensor)], settings["cuda_graphs"])
    return aot_compile(gm, example_inputs, forward_compiler=compiler, artefacts=Kept(settings) if settings["cache"] else None,
                       repeats=repeats, rewrite=join_collectives if settings["join_collectives"] else None)


def compile_frozen(gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """`compile_fx` of a graph without gradients, whose constants keep their contents: what follows from them is computed now, and
    convolutions have their weights in oneDNN's own order from the first call on."""
    def fixed(program: TracedProgram) -> None:
        _freeze.fold(program)
        for constant in program.constants.values():
            if constant.device.type == "cpu" and constant._data is not None:
                weakref.finalize(constant, _C.onednn_forget, constant.data_ptr(), constant.nbytes).atexit = False

    def compiler(graph: Any, inputs: Sequence[Any]) -> Any:
        return _graph.compile_graph(graph, inputs, assumed=Assumed(frozen=True))

    return aot_compile(gm, example_inputs, forward_compiler=compiler, rewrite=fixed)


def _may_cut(tensors: Sequence[Tensor], recorded: bool) -> bool:
    """Whether equal blocks may share their code: on GPUs not where calls are recorded, nor without gradients, where what is made of
    parameters alone is kept (settled.py): both belong to one block."""
    if all(t.device.type == "cpu" for t in tensors):
        return True
    return not recorded and dispatch.state.grad_enabled and any(t.requires_grad for t in tensors)


@contextmanager
def _settings(values: dict[str, Any]) -> Iterator[None]:
    saved = {name: getattr(config, name) for name in values}
    try:
        for name, value in values.items():
            setattr(config, name, value)
        yield
    finally:
        for name, value in saved.items():
            setattr(config, name, value)


# --- the cache ---


class Kept:
    """How compiled graphs are kept: on CPUs by their library's name and the function around it, on GPUs by their cubins."""

    def __init__(self, settings: dict[str, Any]):
        self.settings, self.on_gpu = settings, False

    @property
    def classes(self) -> tuple[Any, ...]:
        """What records are made of."""
        of_gpus = (_cuda.CudaCode, _cubins.Cubin, _layouts.MatrixLayout, _dnn.Convolution, _dnn.Operand, _dnn.Window) if self.on_gpu else ()
        return (NativeCode, *CALL_CLASSES, Extern, View, PostOp, Slot, *of_gpus)

    def fingerprint(self, program: str) -> str:
        """The settings, the machine, the compilers and the libraries."""
        if listening:
            raise Uncacheable("its kernels are being looked at")
        if config.post_grad_custom_pre_pass is not None or config.post_grad_custom_post_pass is not None:
            raise Uncacheable("a pass of the program's own changes it")
        settings = sorted(self.settings.items())
        self.on_gpu = "cuda" in program
        if not self.on_gpu and build.compiler() is None:
            raise Uncacheable("there is no C++ compiler")
        return f"{settings} {_cpu()} {_gpu() if self.on_gpu else ''}"

    def pack(self, compiled: Any) -> tuple[str, Any]:
        """The name of the library, "" where there is none, and the rest."""
        code = compiled.code
        if self.on_gpu and isinstance(code, _cuda.CudaCode):
            return "", code
        if not isinstance(code, NativeCode):
            raise Uncacheable("it runs through NumPy")
        return build.key_of(compiled.unit.source) if code.functions else "", code

    def unpack(self, record: tuple[str, Any]) -> Callable[[list], list] | None:
        """The library or the cubins loaded, and the function around them."""
        key, code = record
        if not isinstance(code, NativeCode):
            return code.link(call_primitive)[1]
        runs = build.open_library(key, code.functions) if key else []
        return None if runs is None else code.link(runs)


def _cpu() -> str:
    """The C++ compiler and what it reads, the processor, and the oneDNN that decides about layouts and epilogues."""
    if build.compiler() is None:
        return "no compiler"
    return f"{hashlib.sha256(build.fixed_part()).hexdigest()} {_onednn()}"


def _gpu() -> str:
    """The device that is current, and the libraries that compile for it and decide about it."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        raise Uncacheable(f"there is no CuPy ({error})") from None
    runtime = cupy.cuda.runtime
    number = runtime.getDevice()
    facts = runtime.getDeviceProperties(number)
    device = [number, facts["name"], facts["major"], facts["minor"], facts["multiProcessorCount"]]
    flags = sorted((name, value) for name, value in vars(cudnn).items() if isinstance(value, (bool, int, str)) and name[0] != "_")
    return f"{device} {runtime.driverGetVersion()} {runtime.runtimeGetVersion()} {_versions()} {flags}"


@functools.cache
def _versions() -> list[str]:
    found = []
    for name in ("cupy-cuda13x", "cupy-cuda12x", "cupy", "triton", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12", "nvidia-cublas"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def _onednn() -> str:
    """Which oneDNN decides about layouts and epilogues."""
    path = onednn.library_path() if onednn.available() else None
    told = sorted(item for item in os.environ.items() if item[0].startswith(("ONEDNN_", "DNNL_")))
    return f"{os.path.basename(os.path.realpath(path))} {os.stat(path).st_size} {told}" if path else ""
