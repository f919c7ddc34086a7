"""Compiled graphs on NVIDIA GPUs: Triton kernels and library calls over CuPy memory, without PyTorch.

Kernels are compiled to cubins ahead of their first launch, in parallel, and kept in the disk cache; no driver of Triton's is
needed at run time, for CuPy loads and launches them. Compiling needs no GPU (`compile_cubin`), launching does.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import operator
import os
import re
import sys
import types
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flambeau.backends.cuda import cubins, recording
from flambeau.backends.cuda.cubins import HINT, Cubin, NoTriton
from flambeau.backends.cuda.strays import Places
from flambeau.core.cache import YOUNG, cache_directory, read, temporary_folder, warn_unusable, write_file
from flambeau.core.device import CPU, at, device
from flambeau.core.dtypes import DTYPES, dtype
from flambeau.core.expr import Index
from flambeau.core.lazy import LazyModule
from flambeau.core.size import extent
from flambeau.core.tensor import Tensor, from_array, laid_out
from flambeau.inductor import call as calls
from flambeau.inductor.gpu.products import Product, print_product
from flambeau.inductor.gpu.settled import Settled, kept_buffers, settled_steps
from flambeau.inductor.gpu.triton import PROLOGUE, TritonKernel
from flambeau.inductor.gpu.triton_rows import print_triton
from flambeau.inductor.gpu.written import Written
from flambeau.inductor.library import family_of
from flambeau.inductor.loop.ir import ALL_OUTPUTS, Extern, Program, View
from flambeau.inductor.loop.scheduler import Kernel, Node

# NVIDIA's libraries, which a graph may not need
_LIBRARIES = {name: LazyModule(f"flambeau.backends.cuda.{name}") for name in ("blas", "blaslt", "dnn")}


# -- compiling -----------------------------------------------------------------------------------------------
def module_text(kernels: Sequence[TritonKernel]) -> str:
    """The Python module that holds the kernels."""
    return "\n\n".join([PROLOGUE, *(f"@triton.jit\ndef {k.name}{k.text}" for k in kernels)])


def _import(text: str) -> types.ModuleType:
    """The module of `text`. Triton reads functions' sources from files, so it lies in the cache."""
    key = hashlib.sha256(text.encode()).hexdigest()[:24]
    path = cache_directory() / "triton" / f"kernels_{key}.py"
    name = f"flambeau_kernels_{key}"
    if name in sys.modules:
        return sys.modules[name]
    try:
        if read(path, noted=YOUNG / 2) != text.encode():  # Triton is going to read it again
            write_file(path, text.encode())
    except OSError as error:
        warn_unusable(error)
        path = temporary_folder("flambeau-kernels-") / path.name
        path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:  # interrupted, say: the next call begins anew
        del sys.modules[name]
        raise
    return module


def compile_cubin(kernel: TritonKernel, capability: int, aligned: frozenset[str]) -> Cubin:
    """The cubin of a kernel for compute capability `capability` (90 for Hopper), from the cache or by Triton.

    `aligned`: the pointer parameters known to be multiples of 16 bytes.
    """
    return cubins.compile_function(
        lambda: getattr(_import(module_text([kernel])), kernel.name), PROLOGUE + kernel.text, kernel.signature, kernel.constants,
        capability, aligned, kernel.options)


def compile_all(kernels: Sequence[TritonKernel], capability: int, aligned: Sequence[frozenset[str]]) -> list[Cubin]:
    """The cubins of several kernels, compiled in parallel."""
    with ThreadPoolExecutor(min(len(kernels) or 1, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda pair: compile_cubin(pair[0], capability, pair[1]), zip(kernels, aligned)))


# -- the program ---------------------------------------------------------------------------------------------
ALIGNMENT = 16      # bytes, of every buffer's address


@dataclass
class CudaUnit:
    """A printed program: kernels (each text once), the steps that use them, and the code around them."""

    kernels: list[TritonKernel]
    steps: list[tuple[TritonKernel | Extern, Node | Product]]
    code: CudaCode
    scope: dict[str, Any] = field(default_factory=dict)     # what the names in the calls mean, once the kernels are built


def print_program(program: Program, nodes: Sequence[Node | Product], arrays: bool = False, calling: type[_Calling] | None = None) -> CudaUnit:
    """Triton text for the kernels of `nodes`, and the calls that run them in order; `arrays`: they take and give arrays; `calling` finds
    the calls."""
    known: dict[tuple, TritonKernel] = {}
    steps: list[tuple[TritonKernel | Extern, Node | Product]] = []
    for node in nodes:
        if isinstance(node, Extern):
            steps.append((node, node))
            continue
        printed = print_node(program, nodes, node)
        key = (printed.text, *printed.signature.items(), *printed.constants.items(), *printed.options.items(),
               aligned_parameters(program, printed))
        first = known.get(key)
        if first is None:
            printed.name = f"k{len(known)}_{_label(node)}"
            known[key] = first = printed
        printed.name = first.name
        steps.append((printed, node))
    return CudaUnit(list(known.values()), steps, (calling or _Calling)(program, steps, arrays).code())


def print_node(program: Program, nodes: Sequence[Node | Product], node: Kernel | Product) -> TritonKernel:
    """One kernel of the program."""
    stored = _stored(program, nodes, node)
    return print_product(node, program, stored) if isinstance(node, Product) else print_triton(node, program, stored)


def _label(kernel: Kernel | Product) -> str:
    """What a kernel does, for profiles."""
    ops = dict.fromkeys(o.op for m in kernel.members for o in m.step.origins)
    return "_".join(re.sub(r"\W", "_", op) for op in list(ops)[-5:])[:60]


def _stored(program: Program, nodes: Sequence[Node | Product], kernel: Kernel | Product) -> set[str]:
    """The kernel's buffers that others read."""
    others = {out.buffer for out in program.outputs if isinstance(out, View)}
    for node in nodes:
        if node is not kernel:
            others |= node.reads
    return kernel.writes & others


def _written_by(step: Extern) -> Callable[[Any, int, Extern], calls.Step] | None:
    """What makes the step of a library's call, which writes into given buffers; None for one that makes its results."""
    family = family_of(step)
    return None if family is None else family.cuda


class _Calling:
    """Finds the calls: each buffer is made before its first use, and let go of after its last.

    Where steps are `settled` (settled.py), they are `settle(inputs, kept)` and the others `call(inputs, kept)`.
    """

    def __init__(self, program: Program, steps: Sequence[tuple[TritonKernel | Extern, Node | Product]], arrays: bool):
        self.program, self.steps, self.arrays = program, steps, arrays
        self.settled = set() if arrays else settled_steps(program, steps)
        self.kept = tuple(kept_buffers(steps, self.settled))
        self.symbols = calls.symbols_of(program)
        self.flat: set[str] = set()     # buffers that are made without their shape
        self.made: list[calls.Step] = []

    def code(self) -> CudaCode:
        """The calls and what they refer to."""
        program = self.program
        settle = self._settle() if self.settled else None
        results = {v.buffer for v in program.outputs if isinstance(v, View)}
        keep = [calls.Keep(self.kept)] if self.settled else []
        steps = self._body(set(range(len(self.steps))) - self.settled, results, keep)
        call = calls.Call(self.symbols, calls.overlapped(steps), [self._result(v) for v in program.outputs], takes_arrays=self.arrays,
                          gives_arrays=self.arrays)
        return CudaCode(call, settle, dict(program.constants), program.exact)

    def _settle(self) -> calls.Call:
        keep = calls.Keep(self.kept, tuple(map(self._empty, self.kept)))
        steps = self._body(self.settled, set(self.kept), [keep])
        results = [calls.Look(name, self.program.buffers[name].dtype, ()) for name in self.kept]
        return calls.Call(self.symbols, steps, list(results), "settle", gives_arrays=True)

    def _body(self, steps: set[int], results: set[str], keep: list[calls.Keep]) -> list[calls.Step]:
        """Some of the steps; `keep` brings in what is there before and after them."""
        program = self.program
        last = {name: k for k in sorted(steps) for name in self._buffers(self.steps[k][0])}
        wanted = last.keys() | results
        self.made = [self._take(name, k) for k, name in enumerate(program.inputs) if name in wanted]
        if not self.arrays and steps.isdisjoint(self.settled):
            self.made.append(calls.Clear())
        self.made += [self._take(name, None) for name in program.constants if name in wanted]
        self.made += keep
        alive = {n for n in program.inputs if n} | set(program.constants) | set(self.kept)
        for k in sorted(steps):
            step = self.steps[k][0]
            used = self._buffers(step)
            answered = [v.buffer for v in step.outputs] if isinstance(step, Extern) and _written_by(step) is None else []
            self.made += [self._empty(name) for name in used if name not in alive and name not in answered]
            alive |= set(used)
            self.made.append(self._step(k, step))
            dead = tuple([n for n in used if last[n] == k and n not in results and n not in self.kept])
            if dead:
                self.made.append(calls.Drop(dead))
        return self.made

    def _take(self, name: str | None, position: int | None) -> calls.Take:
        assert name is not None
        buffer = self.program.buffers[name]
        given = self.arrays and position is not None    # who calls with arrays has looked at their layouts
        strides = None if given else calls.in_bytes(buffer.strides, buffer.dtype)
        return calls.Take(name, buffer.dtype, position, buffer.shape, strides, ALIGNMENT)

    def _buffers(self, step: TritonKernel | Extern) -> list[str]:
        if isinstance(step, Extern):
            return list(dict.fromkeys([*sorted(step.reads), *step.writes]))
        return [name for name, _ in step.pointers]

    def _step(self, k: int, step: TritonKernel | Extern) -> calls.Step:
        if isinstance(step, TritonKernel):
            return self._launch(step)
        if (cuda := _written_by(step)) is not None:
            return cuda(self, k, step)
        results = tuple([(v.buffer, calls.in_bytes(v.strides, v.dtype)) for v in step.outputs])
        return calls.Primitive(k, replace(step, origins=()), tuple(map(self.look, step.inputs)), results)

    def _launch(self, kernel: TritonKernel) -> calls.Launch:
        pointers = [(name, offset * self.program.buffers[name].dtype.itemsize) for name, offset in kernel.pointers]
        rows = kernel.rows
        grid = rows if kernel.tile == 1 else -(-rows // kernel.tile) if isinstance(rows, int) else (rows + (kernel.tile - 1)) // kernel.tile
        return calls.Launch(kernel.name, grid, tuple(pointers), tuple(kernel.symbols), kernel.indexing or "")

    def _empty(self, name: str) -> calls.Make:
        buffer = self.program.buffers[name]
        if calls.is_contiguous(buffer):
            return calls.Make(name, buffer.dtype, buffer.shape)
        self.flat.add(name)     # kernels take its address; who wants an array looks at it with strides
        return calls.Make(name, buffer.dtype, (buffer.numel,))

    def look(self, view: View) -> calls.Look:
        return calls.look(view, calls.is_whole(view, self.program.buffers[view.buffer]) and view.buffer not in self.flat)

    def _result(self, out: View | Index | None) -> calls.Look | Index | None:
        return self.look(out) if isinstance(out, View) else out


# -- running -------------------------------------------------------------------------------------------------
def aligned_parameters(program: Program, kernel: TritonKernel) -> frozenset[str]:
    """The parameters that are multiples of 16: sizes, and addresses, for every buffer's is, so that what counts is the offset."""
    found = []
    for k, (name, offset) in enumerate(kernel.pointers):
        shift = offset * program.buffers[name].dtype.itemsize
        if isinstance(shift, int) and shift % 16 == 0 and name not in program.assumed.unaligned:
            found.append(f"p{k}")
    return frozenset(found) | (program.assumed.multiples & set(kernel.symbols))


def build(program: Program, nodes: Sequence[Node | Product], call_primitive: Callable, arrays: bool = False,
          replayed: bool = False, gpu: int = 0) -> tuple[CudaUnit, Callable[[list], list]]:
    """Compile and load the program for GPU `gpu`, the current one; the callable takes and gives lists of tensors and numbers, or arrays.

    `replayed`: its launches are recorded, and replayed from then on.
    """
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        raise NoTriton(f"{HINT} ({error})") from None
    unit = print_program(program, nodes, arrays)
    capability = int(cupy.cuda.Device().compute_capability)
    compiled = compile_all(unit.kernels, capability, [aligned_parameters(program, k) for k in unit.kernels])
    unit.code.cubins = {k.name: cubin for k, cubin in zip(unit.kernels, compiled, strict=True)}
    unit.code.replayed, unit.code.gpu = replayed, gpu
    unit.scope, call = unit.code.link(call_primitive)
    return unit, call


@dataclass
class CudaCode:
    """All that a call needs: plain enough to be kept in the cache between processes."""

    call: calls.Call
    settle: calls.Call | None             # what is made of parameters alone
    constants: dict[str, Tensor]
    tensors: int                    # how many of the first results are for users; others go to the backward graph alone
    cubins: dict[str, Cubin] = field(default_factory=dict)      # by the kernels' names
    replayed: bool = False          # whether its launches are recorded
    gpu: int = 0                    # on which it runs

    def calls(self) -> list[calls.Call]:
        """In the order in which they run."""
        return [self.call] if self.settle is None else [self.settle, self.call]

    def text(self) -> str:
        """The calls as Python."""
        return "\n".join(map(calls.print_call, self.calls()))

    def link(self, call_primitive: Callable) -> tuple[dict[str, Any], Callable[[list], list]]:
        """(what the names in the calls mean, with kernels loaded on its GPU; the function from inputs to outputs)."""
        cupy, where = importlib.import_module("cupy"), _gpu(self.gpu)
        with at(where):
            scope, call = self._link(cupy, call_primitive)
        alone = self.call.takes_arrays or cupy.cuda.runtime.getDeviceCount() == 1
        return scope, call if alone else functools.partial(_call_there, where, call)

    def _link(self, cupy: Any, call_primitive: Callable) -> tuple[dict[str, Any], Callable[[list], list]]:
        loaded = {name: cubins.load(cubin) for name, cubin in self.cubins.items()}
        prepared = {s.name: _LIBRARIES[s.library].by_address(*s.facts) for call in self.calls() for s in call.of(calls.ByAddress)}
        scope: dict[str, Any] = {
            "__name__": __name__, **DTYPES,
            "empty": cupy.ndarray, "current_stream": cubins.stream_pointer(), "strided": _strided(cupy), "fit": _fit(cupy),
            "tensor": _tensor, "laid_out": _laid_out, "constants": self.constants, "extern": _extern(call_primitive, _fit(cupy)),
            "begin": _begin(under_way := calls.UnderWay(), _fit(cupy)), "end": under_way.end, "strays": Places(),
            "steps": {s.number: s.step for call in self.calls() for s in call.of(calls.Primitive)},
            "product": lambda *arrays: _LIBRARIES["blas"].matmul(*arrays), "convolve": lambda *args: _LIBRARIES["dnn"].run(*args),
            **loaded, **prepared,
        }
        exec(compile(self.text(), "<inductor cuda wrapper>", "exec"), scope)
        if self.call.takes_arrays:
            return scope, scope["call"]
        tensors = ALL_OUTPUTS if self.replayed else self.tensors    # recorded memory is looked after by its tensors
        call = Written(self.call, scope, tensors, _gpu(self.gpu))
        record = Replayed if self.replayed else None
        if self.settle is not None:   # what is settled once stays outside of the recording
            return scope, Settled(scope["settle"], call, [s.position for s in self.settle.of(calls.Take) if s.position is not None], record)
        return scope, record(call) if record else call


def _call_there(where: device, call: Callable[..., list], inputs: list, *kept: tuple) -> list:
    with at(where):
        return call(inputs, *kept)


@functools.cache
def _gpu(index: int) -> device:
    return device("cuda", index)


def _place(array: Any) -> device:
    return CPU if type(array) is np.ndarray else _gpu(array.data.device_id)


def _tensor(array: Any, kind: dtype | None = None) -> Tensor:
    return from_array(array, kind, _place(array))


def _laid_out(array: Any, kind: dtype, strides: tuple) -> Tensor:
    return laid_out(array, kind, strides, _place(array))


def _strided(cupy: Any) -> Callable:
    make = cupy.ndarray

    def strided(array: Any, shape: tuple, strides: tuple, offset: int) -> Any:
        """Another look at an array's memory, strides and offset in bytes."""
        if type(array) is np.ndarray:
            return np.lib.stride_tricks.as_strided(array.reshape(-1)[offset // array.itemsize :], shape, strides)
        return make(shape, array.dtype, array.data + offset if offset else array.data, strides)
    return strided


def _fit(cupy: Any) -> Callable:
    """Inputs as the code expects them: these strides (in bytes), and aligned to 16 bytes."""
    def fit(array: Any, strides: tuple) -> Any:
        if type(array) is np.ndarray:    # a tensor of the host, which a primitive takes
            return array
        same = all(a == b or n == 1 for a, b, n in zip(array.strides, strides, array.shape))
        if same and array.data.ptr % 16 == 0:
            return array
        size = array.dtype.itemsize
        room = cupy.empty(extent(array.shape, [s // size for s in strides]), array.dtype)
        out = cupy.ndarray(array.shape, array.dtype, room.data, strides=strides)
        if same and array.size:     # as_strided may see what lies between its elements
            room[...] = cupy.ndarray(room.shape, array.dtype, array.data)
        else:
            out[...] = array
        return out
    return fit


def _extern(call_primitive: Callable, fit: Callable) -> Callable:
    """Runs a step by the primitive's own kernel; its results are the step's buffers."""
    def extern(step: Extern, views: Sequence[Any], strides: Sequence[tuple], sizes: dict[str, int]) -> list[Any]:
        results = call_primitive(step, [_tensor(v) for v in views], sizes)
        return [fit(r._data, s) for r, s in zip(results, strides, strict=True)]
    return extern


def _begin(under_way: calls.UnderWay, fit: Callable) -> Callable:
    """Begins a step; its results will be in the arrays that are returned."""
    def begin(number: int, step: Extern, views: Sequence[Any], strides: Sequence[tuple], sizes: dict[str, int]) -> list[Any]:
        begun = step.target.begin(*calls.fill(step.args, [_tensor(v) for v in views], sizes))
        return under_way.begin(number, begun, strides, fit)
    return begin


# -- CUDA graphs ---------------------------------------------------------------------------------------------
_data_of = operator.attrgetter("_data")


class Recording:
    """One recorded run of a program: what it reads, and the memory that its results are left in (`copying`: they are copied out)."""

    def __init__(self, graph: Any, inputs: list, outputs: list, kept: list, copying: bool):
        self.graph, self.inputs, self.kept = graph, inputs, kept
        arrays = [t._data if isinstance(t, Tensor) else None for t in outputs]
        read = {id(t._data.data.mem) for t in inputs if isinstance(t, Tensor)}
        self.outputs = [t if a is None else _Result(a, copying or id(a.data.mem) in read) for t, a in zip(outputs, arrays)]
        del arrays, outputs
        self.results = [r for r in self.outputs if isinstance(r, _Result) and not r.copied]
        for result in self.results:
            result.unused = sys.getrefcount(result.memory)

    def is_free(self) -> bool:
        """Whether nobody holds results of the last run any more."""
        return all(sys.getrefcount(result.memory) == result.unused for result in self.results)

    def deliver(self) -> list:
        """The results: small ones copied, so that they may be kept; others as they lie until the next run."""
        return [r.tensor() if isinstance(r, _Result) else r for r in self.outputs]


class _Result:
    """A result of a recorded program, by its memory."""

    def __init__(self, array: Any, copied: bool):
        self.array, self.memory, self.unused = array, array.data.mem, 0
        self.copied = copied or array.nbytes <= COPIED_TO
        self.make, self.pointer = type(array), type(array.data)
        self.facts, self.offset, self.gpu = (array.shape, array.dtype), array.data.ptr - array.data.mem.ptr, _gpu(array.data.device_id)

    def tensor(self) -> Tensor:
        """A tensor over the memory, or a copy."""
        if self.copied:
            return from_array(self.array.copy(), None, self.gpu)
        return from_array(self.make(*self.facts, self.pointer(self.memory, self.offset), self.array.strides), None, self.gpu)


COPIED_TO = 1 << 14     # bytes of a result that is copied out, so that it may be kept (losses are)


class Replayed:
    """A compiled program whose launches are recorded once and replayed: for work bound by the cost of launching.

    The first two calls run as they are (and show which inputs stay where they are, as parameters do). The third is recorded,
    in a memory pool of its own. From then on inputs that move are copied to where the recording reads them; large results stay
    in the recording's memory. While somebody holds those, a second recording takes the calls, whose results are copied out.
    An input that moves unexpectedly means recording anew.
    """

    WARM = 2

    def __init__(self, call: Callable[[list], list]):
        self.call, self.count = call, 0
        self.addresses: list[int] = []
        self.moving: set[int] = set()
        self.fixed: Callable[[list], tuple] = tuple     # the inputs that stay, of a list of all
        self.arrays: tuple = ()                         # where they are
        self.recordings: list[Recording] = []
        self.cupy = importlib.import_module("cupy")
        self.pool = self.cupy.cuda.MemoryPool()
        self.stream = self.cupy.cuda.Stream(non_blocking=True)

    def __call__(self, inputs: list) -> list:
        if self.recordings and (all(map(operator.is_, map(_data_of, self.fixed(inputs)), self.arrays)) or self._is_known(inputs)):
            found = next((recording for recording in self.recordings if recording.is_free()), None)
            return self._replay(found or self._record(inputs), inputs)
        addresses = _addresses(inputs)
        if self.addresses:
            self.moving |= {k for k, (a, b) in enumerate(zip(addresses, self.addresses)) if a != b}
        self.addresses = addresses
        self.recordings.clear()
        self.count += 1
        if self.count <= self.WARM:
            return self.call(inputs)
        return self._replay(self._record(inputs), inputs)

    def _is_known(self, inputs: list) -> bool:
        """Whether the inputs are where they were, though other arrays say so."""
        return all(a == b or k in self.moving for k, (a, b) in enumerate(zip(_addresses(inputs), self.addresses)))

    def _record(self, inputs: list) -> Recording:
        cupy, current = self.cupy, self.cupy.cuda.get_current_stream()
        places = [k for k, t in enumerate(inputs) if isinstance(t, Tensor) and k not in self.moving]
        self.fixed = operator.itemgetter(*places) if len(places) > 1 else lambda inputs: tuple([inputs[k] for k in places])
        self.arrays = tuple([inputs[k]._data for k in places])
        own = [_tensor(t._data.copy()) if k in self.moving and isinstance(t, Tensor) else t for k, t in enumerate(inputs)]
        current.synchronize()
        with cupy.cuda.using_allocator(self.pool.malloc), self.stream:
            self.call(list(own))  # fills the pool
            self.stream.synchronize()
            with recording.Recording(cupy.cuda.runtime.getDevice()) as made:
                self.stream.begin_capture(cupy.cuda.runtime.streamCaptureModeRelaxed)
                try:
                    outputs = self.call(list(own))
                finally:
                    graph = self.stream.end_capture()
        self.stream.synchronize()
        self.recordings.append(Recording(graph, own, outputs, made.kept, copying=bool(self.recordings)))
        del outputs
        return self.recordings[-1]

    def _replay(self, recording: Recording, inputs: list) -> list:
        stream = self.cupy.cuda.get_current_stream()
        for k in self.moving:
            mine = recording.inputs[k]
            if not isinstance(mine, Tensor):
                continue
            target, source = mine._data, inputs[k]._data
            if source._c_contiguous and target._c_contiguous and source.dtype == target.dtype:
                target.data.copy_from_device_async(source.data, source.nbytes, stream)
            else:
                target[...] = source
        recording.graph.launch(stream)
        inputs.clear()
        return recording.deliver()


def _addresses(inputs: list) -> list[int]:
    return [t._data.data.ptr if isinstance(t, Tensor) else 0 for t in inputs]
