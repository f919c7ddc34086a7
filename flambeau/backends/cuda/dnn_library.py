"""cuDNN's graph API by ctypes: the library, its descriptors, and execution plans of single convolutions.

A convolution is described by descriptors (tensors, the window, the operation, a graph of that one operation); cuDNN's
heuristics rank the engines that can run it, and the first that can be built becomes the plan. Numbers are cuDNN's enumerations,
which are part of its ABI (cuDNN 8 and 9). Nothing here needs CuPy or a GPU before a plan is made.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...core.size import permuted_strides
from ...core.windows import ROLES
from .. import cudnn as settings

HINT = "convolutions on NVIDIA GPUs need cuDNN 9: pip install nvidia-cudnn-cu13 (or nvidia-cudnn-cu12 for CUDA 12)"
NAME = "libcudnn.so.9"
FOLDERS = ("cudnn/lib", "cu13/lib", "cu12/lib")     # below the namespace package `nvidia`, where pip puts it

# cudnnBackendDescriptorType_t
CONVOLUTION, ENGINE, ENGINE_CONFIG, HEURISTICS, PLAN = 1, 2, 3, 4, 5
FORWARD, WEIGHT_GRAD, INPUT_GRAD, GRAPH, VARIANT_PACK, TENSOR = 10, 11, 12, 15, 16, 17
# cudnnBackendAttributeType_t, and how its elements lie in memory
HANDLE, DATA_TYPE, BOOLEAN, INT64, FLOAT, DOUBLE, POINTER, CONVOLUTION_MODE, HEURISTICS_MODE, NUMERICAL_NOTE, DESCRIPTOR = (
    0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 15)
C_TYPES: dict[int, Any] = {
    HANDLE: ctypes.c_void_p, DATA_TYPE: ctypes.c_int, BOOLEAN: ctypes.c_bool, INT64: ctypes.c_int64, FLOAT: ctypes.c_float,
    DOUBLE: ctypes.c_double, POINTER: ctypes.c_void_p, CONVOLUTION_MODE: ctypes.c_int, HEURISTICS_MODE: ctypes.c_int,
    NUMERICAL_NOTE: ctypes.c_int, DESCRIPTOR: ctypes.c_void_p,
}
# dtype -> cudnnDataType_t of its tensors, and of the sums
DATA_TYPES = {"float32": (0, 0), "float64": (1, 1), "float16": (2, 0), "bfloat16": (9, 0)}
CROSS_CORRELATION = 1
INSTANT, FALLBACK = 0, 2                # cudnnBackendHeurMode_t
TENSOR_CORE, DOWN_CONVERT = 0, 1        # cudnnBackendNumericalNote_t
REFUSED = range(2000, 4000)             # cudnnStatus_t of version 9: bad parameters, and what is not supported

# each operation and its first attribute: alpha, then beta, the window, w, x and y follow
OPERATIONS = dict(zip(ROLES, ((FORWARD, 700), (INPUT_GRAD, 706), (WEIGHT_GRAD, 712))))
UIDS = {"x": 1, "w": 2, "y": 3}
ALIGNMENT = 16
MOST_WORKSPACE = 1 << 30
MOST_PACKS = 64         # sets of addresses that a plan remembers


class CudnnError(RuntimeError):
    """What cuDNN answered, with its own words."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


class Window(NamedTuple):
    """How a convolution slides: one number per spatial dimension each."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


class Operand(NamedTuple):
    """A tensor: (n, c, *spatial) sizes and strides in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Convolution(NamedTuple):
    """One convolution or one of its gradients (core/windows.py): x * w -> y.

    There are groups where w has fewer channels than x. `exact`: f32 is not to be rounded to TF32.
    """

    kind: str
    dtype: str
    x: Operand
    w: Operand
    y: Operand
    window: Window
    exact: bool = False


# -- describing a convolution ----------------------------------------------------------------------------------
def order_of(rank: int, last: bool) -> tuple[int, ...]:
    """The dimensions from outermost to innermost in memory: channels innermost, or contiguous."""
    return (0, *range(2, rank), 1) if last else tuple(range(rank))


def laid_out(shape: Sequence[Any], last: bool) -> tuple:
    """Strides in elements of a tensor with its channels innermost, or contiguous."""
    return permuted_strides(shape, order_of(len(shape), last))


def describe(kind: str, dtype: str, shapes: Sequence[Sequence[int]], last: bool, stride: Sequence[int], padding: Sequence[int],
             dilation: Sequence[int]) -> Convolution:
    """The description of a convolution of these shapes of x, w and y; one spatial axis becomes two."""
    flat = len(stride) == 1
    lifted = [(*shape[:2], 1, *shape[2:]) if flat else tuple(shape) for shape in shapes]
    x, w, y = (Operand(shape, laid_out(shape, last)) for shape in lifted)
    numbers = [((first, *values) if flat else tuple(values)) for first, values in zip((1, 0, 1), (stride, padding, dilation))]
    return Convolution(kind, dtype, x, w, y, Window(*numbers), dtype == "float32" and not settings.allow_tf32)


# -- the library -----------------------------------------------------------------------------------------------
def find_library() -> list[str]:
    """Where libcudnn may be: pip's folders first, then wherever the loader looks."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    places = [Path(root, folder, NAME) for root in roots for folder in FOLDERS]
    return [*(str(p) for p in places if p.exists()), NAME]


class Library:
    """libcudnn and the functions of it that are used here."""

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self.lib = self._load(find_library() if names is None else names)
        c_int, pointer, int64 = ctypes.c_int, ctypes.c_void_p, ctypes.c_int64
        self.lib.cudnnGetVersion.restype = ctypes.c_size_t
        self.lib.cudnnGetErrorString.restype = ctypes.c_char_p
        self.lib.cudnnGetErrorString.argtypes = [c_int]
        self.lib.cudnnGetLastErrorString.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self.lib.cudnnGetLastErrorString.restype = None
        self.lib.cudnnCreate.argtypes = [pointer]
        self.lib.cudnnSetStream.argtypes = [pointer, pointer]
        self.lib.cudnnBackendCreateDescriptor.argtypes = [c_int, pointer]
        self.lib.cudnnBackendDestroyDescriptor.argtypes = [pointer]
        self.lib.cudnnBackendSetAttribute.argtypes = [pointer, c_int, c_int, int64, pointer]
        self.lib.cudnnBackendGetAttribute.argtypes = [pointer, c_int, c_int, int64, pointer, pointer]
        self.lib.cudnnBackendFinalize.argtypes = [pointer]
        self.lib.cudnnBackendExecute.argtypes = [pointer, pointer, pointer]

    @staticmethod
    def _load(names: Sequence[str]) -> Any:
        said = []
        for name in names:
            try:
                return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                said.append(str(error))
        raise RuntimeError(f"{HINT} ({'; '.join(said)})")

    def version(self) -> int:
        """As cuDNN writes it: 91500 is 9.15.0."""
        return int(self.lib.cudnnGetVersion())

    def check(self, status: int, what: str) -> None:
        """CudnnError unless `status` is success."""
        if status:
            said = ctypes.create_string_buffer(512)
            self.lib.cudnnGetLastErrorString(said, 512)
            name = self.lib.cudnnGetErrorString(status).decode()
            raise CudnnError(f"{what}: {name} {said.value.decode(errors='replace')}".strip(), status)

    def create_handle(self) -> ctypes.c_void_p:
        """A new handle on the current device."""
        handle = ctypes.c_void_p()
        self.check(self.lib.cudnnCreate(ctypes.byref(handle)), "cudnnCreate")
        return handle


@functools.cache
def library() -> Library:
    """cuDNN, loaded at the first call. RuntimeError with what to install where it is missing."""
    return Library()


class Descriptor:
    """One of the library's descriptors, destroyed with this object; `keep` holds those that it refers to."""

    def __init__(self, lib: Library, kind: int):
        self.lib, self.pointer = lib, ctypes.c_void_p()
        self.keep: list[Any] = []
        lib.check(lib.lib.cudnnBackendCreateDescriptor(kind, ctypes.byref(self.pointer)), "cudnnBackendCreateDescriptor")

    def set(self, attribute: int, kind: int, *values: Any) -> Descriptor:
        """Set an attribute to `values` of one type."""
        raw = [v.pointer if isinstance(v, Descriptor) else v for v in values]
        self.keep += [v for v in values if isinstance(v, Descriptor)]
        array = (C_TYPES[kind] * len(raw))(*raw)
        self.lib.check(self.lib.lib.cudnnBackendSetAttribute(self.pointer, attribute, kind, len(raw), array), f"attribute {attribute}")
        return self

    def finalize(self) -> Descriptor:
        """Let the library check what was set."""
        self.lib.check(self.lib.lib.cudnnBackendFinalize(self.pointer), "cudnnBackendFinalize")
        return self

    def numbers(self, attribute: int, kind: int, most: int) -> list[int]:
        """Up to `most` values of an attribute."""
        array, count = (C_TYPES[kind] * max(most, 1))(), ctypes.c_int64()
        self.lib.check(self.lib.lib.cudnnBackendGetAttribute(self.pointer, attribute, kind, most, ctypes.byref(count), array),
                       f"attribute {attribute}")
        return list(array[:min(count.value, most)])

    def descriptors(self, attribute: int, kind: int, most: int) -> list[Descriptor]:
        """Up to `most` descriptors of an attribute."""
        made = [Descriptor(self.lib, kind) for _ in range(most)]
        array, count = (ctypes.c_void_p * most)(*[d.pointer for d in made]), ctypes.c_int64()
        self.lib.check(self.lib.lib.cudnnBackendGetAttribute(self.pointer, attribute, DESCRIPTOR, most, ctypes.byref(count), array),
                       f"attribute {attribute}")
        return made[:count.value]

    def __del__(self) -> None:
        if self.pointer:
            self.lib.lib.cudnnBackendDestroyDescriptor(self.pointer)


# -- descriptors of a convolution ------------------------------------------------------------------------------
def _tensor(lib: Library, name: str, operand: Operand, kind: int) -> Descriptor:
    made = Descriptor(lib, TENSOR).set(901, DATA_TYPE, kind).set(902, INT64, *operand.shape).set(903, INT64, *operand.strides)
    return made.set(906, INT64, UIDS[name]).set(900, INT64, ALIGNMENT).finalize()


def graph_of(lib: Library, handle: ctypes.c_void_p, conv: Convolution) -> Descriptor:
    """The graph of the one operation."""
    kind, compute = DATA_TYPES[conv.dtype]
    window, rank = conv.window, len(conv.window.stride)
    slide = Descriptor(lib, CONVOLUTION).set(106, INT64, rank).set(100, DATA_TYPE, compute).set(101, CONVOLUTION_MODE, CROSS_CORRELATION)
    slide.set(105, INT64, *window.padding).set(104, INT64, *window.padding).set(102, INT64, *window.dilation)
    slide.set(103, INT64, *window.stride).finalize()
    tensors = {name: _tensor(lib, name, getattr(conv, name), kind) for name in "xwy"}
    what, first = OPERATIONS[conv.kind]
    number = DOUBLE if compute == 1 else FLOAT
    operation = Descriptor(lib, what).set(first, number, 1.0).set(first + 1, number, 0.0).set(first + 2, DESCRIPTOR, slide)
    for position, name in enumerate("wxy"):
        operation.set(first + 3 + position, DESCRIPTOR, tensors[name])
    operation.finalize()
    return Descriptor(lib, GRAPH).set(800, HANDLE, handle).set(801, DESCRIPTOR, operation).finalize()


def configurations(lib: Library, graph: Descriptor, exact: bool, most: int = 16) -> Iterator[Descriptor]:
    """Engines with their settings that cuDNN proposes for a graph, best first; `exact`: none on TF32 tensor cores."""
    for mode in (INSTANT, FALLBACK):
        try:
            ranked = Descriptor(lib, HEURISTICS).set(201, DESCRIPTOR, graph).set(200, HEURISTICS_MODE, mode).finalize()
            found = ranked.descriptors(202, ENGINE_CONFIG, most)
        except CudnnError:
            continue
        for config in found:
            config.keep.append(graph)
            if not exact or not set(_notes(config)) & {TENSOR_CORE, DOWN_CONVERT}:
                yield config


def _notes(config: Descriptor) -> list[int]:
    """The numerical notes of a configuration's engine."""
    engine = config.descriptors(300, ENGINE, 1)
    return engine[0].numbers(1303, NUMERICAL_NOTE, 16) if engine else []


class ExecutionPlan:
    """A configuration made ready on a device: call it with the addresses of x, w, y and of `workspace` bytes."""

    def __init__(self, lib: Library, handle: ctypes.c_void_p, config: Descriptor):
        self.lib, self.handle = lib, handle
        self.plan = Descriptor(lib, PLAN).set(400, HANDLE, handle).set(401, DESCRIPTOR, config).finalize()
        self.workspace = self.plan.numbers(402, INT64, 1)[0]
        self.packs: dict[tuple[int, int, int, int], Descriptor] = {}     # programs use the same memory again and again
        self.call = self._prepare()

    def _prepare(self) -> Callable[[int, int, int, int], None]:
        lib, handle, plan = self.lib, self.handle, self.plan
        execute, packs = lib.lib.cudnnBackendExecute, self.packs

        def call(x: int, w: int, y: int, workspace: int) -> None:
            key = (x, w, y, workspace)
            pack = packs.get(key)
            if pack is None:
                if len(packs) >= MOST_PACKS:
                    packs.clear()
                pack = packs[key] = _variant_pack(lib, *key)
            status = execute(handle, plan.pointer, pack.pointer)
            if status:
                lib.check(status, "a convolution by cuDNN")
        return call


def _variant_pack(lib: Library, x: int, w: int, y: int, workspace: int) -> Descriptor:
    """Addresses as a plan takes them."""
    made = Descriptor(lib, VARIANT_PACK).set(1000, INT64, UIDS["x"], UIDS["w"], UIDS["y"]).set(1001, POINTER, x, w, y)
    return made.set(1003, POINTER, workspace).finalize()


def plans(lib: Library, handle: ctypes.c_void_p, conv: Convolution, most_workspace: int = MOST_WORKSPACE) -> Iterator[ExecutionPlan]:
    """The plans that can be built for a convolution, best first by cuDNN's ranking. None where it cannot do it at all."""
    try:
        graph = graph_of(lib, handle, conv)
    except CudnnError as error:
        if error.status not in REFUSED:
            raise
        return
    for config in configurations(lib, graph, conv.exact):
        try:
            plan = ExecutionPlan(lib, handle, config)
        except CudnnError:
            continue
        if plan.workspace <= most_workspace:
            yield plan
