"""Runs generated Triton kernels on NumPy arrays: `TRITON_INTERPRET=1 python tests/inductor/triton_interpreter.py CASE...`

Triton's interpreter stands for the GPU and a few lines of NumPy for CuPy, so that kernels, the Python around them, and the
generated kernels of eager execution are checked where there is no GPU. Prints a line for each case that is right; raises at
the first that is not.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import gc
import sys
import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

import flambeau as fl
from flambeau import _C
from flambeau.aot.trace import make_fx
from flambeau.backends.cuda import cubins, strays
from flambeau.core.device import device
from flambeau.core.symbolic import ShapeEnv, SymFloat
from flambeau.core.tensor import from_array
from flambeau.fx import GraphModule
from flambeau.inductor import gpu_operators
from flambeau.inductor.gpu import cuda
from flambeau.inductor.gpu.products import Tile, find_products
from flambeau.inductor.gpu.settled import Settled
from flambeau.inductor.graph import compile_graph
from flambeau.inductor.loop.scheduler import GPU, schedule
from flambeau.inductor.operators import trace_call
from flambeau.inductor.targets import lower
from flambeau.ops.registry import COMPOSITES, PRIMITIVES


# -- NumPy as CuPy -------------------------------------------------------------------------------------------
class Memory:
    """An address that keeps its array alive."""

    device_id = 0

    def __init__(self, ptr: int, owner: Any) -> None:
        self.ptr, self.owner = ptr, owner

    def __add__(self, offset: int) -> Memory:
        return Memory(self.ptr + offset, self.owner)


class Array(np.ndarray):
    """A NumPy array with CuPy's attributes."""

    def __new__(cls, shape: Any, kind: Any = float, memory: Any = None, strides: Any = None) -> Array:
        if memory is None:
            count = int(np.prod(shape)) if not isinstance(shape, int) else shape
            room = np.full(count * np.dtype(kind).itemsize + 64, 0x7F, np.uint8)     # nobody may rely on zeros
            shift = -room.ctypes.data % 64
            made = np.ndarray.__new__(cls, shape, kind, room, shift)
            made.memory = Memory(room.ctypes.data + shift, room)
            return made
        made = np.ndarray.__new__(cls, shape, kind, memory.owner, memory.ptr - memory.owner.ctypes.data, strides)
        made.memory = memory
        return made

    data = property(lambda self: self.memory)       # type: ignore[assignment]
    _c_contiguous = property(lambda self: self.flags.c_contiguous)


def to_gpu(array: np.ndarray) -> Array:
    """A copy with the same memory order."""
    order = sorted(range(array.ndim), key=lambda d: -array.strides[d])
    out = Array(tuple(array.shape[d] for d in order), array.dtype)
    np.copyto(out, array.transpose(order))
    back = tuple(int(b) for b in np.argsort(order))
    return Array(array.shape, array.dtype, out.memory, tuple(out.strides[b] for b in back)) if array.ndim else out


def expanded(array: Array, shape: tuple) -> Array:
    """A view that repeats elements."""
    lead = len(shape) - array.ndim
    strides = [0] * lead + [0 if n != m else s for n, m, s in zip(array.shape, shape[lead:], array.strides)]
    return Array(shape, array.dtype, array.memory, strides)


cupy: Any = types.ModuleType("cupy")
cupy.ndarray = cupy.empty = Array
cupy.cuda = types.SimpleNamespace(alloc_pinned_memory=lambda n: np.zeros(n, np.uint8),
                                  Device=lambda *_: types.SimpleNamespace(compute_capability="90"),
                                  Event=lambda **_: types.SimpleNamespace(record=lambda: None, ptr=0),
                                  runtime=types.SimpleNamespace(getDevice=lambda: 0, getDeviceCount=lambda: 1))


# -- Triton's interpreter as the driver ----------------------------------------------------------------------
class Pointer:
    """What the interpreter takes for a tensor: it works on the memory in place."""

    def __init__(self, address: int, kind: str) -> None:
        self.address, self.dtype = address, kind

    def data_ptr(self) -> int:
        return self.address

    def untyped_storage(self) -> Pointer:
        return self

    def cpu(self) -> Pointer:
        return self

    def new_empty(self, *_: Any, **__: Any) -> Pointer:
        return Pointer(self.address, self.dtype)

    def set_(self, *_: Any) -> None: ...
    def copy_(self, *_: Any) -> None: ...
    def storage_offset(self) -> int: return 0
    def size(self) -> tuple: return ()
    def stride(self) -> tuple: return ()


class Libdevice:
    """The device functions, which the interpreter lacks, by NumPy."""

    def __getattr__(self, name: str) -> Any:
        plain = {"rsqrt": lambda x: 1 / np.sqrt(x), "pow": np.power, "nearbyint": np.rint, "rint": np.rint}.get(name) or getattr(np, name)

        def function(*args: Any) -> Any:
            first = next(a for a in args if isinstance(a, tl.tensor))
            values = [a.handle.data if isinstance(a, tl.tensor) else a for a in args]
            with np.errstate(all="ignore"):
                return tl.tensor(TensorHandle(np.asarray(plain(*values), first.handle.data.dtype), first.handle.dtype), first.type)
        return function


TYPES = {"fp32": "float32", "fp64": "float64", "fp16": "float16", "bf16": "bfloat16", "i1": "int1", "u8": "uint8", "i8": "int8",
         "i16": "int16", "i32": "int32", "i64": "int64", "u32": "uint32", "u64": "uint64"}
launches = [0]


def interpreted(kernel: Any) -> Any:
    """A printed kernel as the loaded function that launches it."""
    module = cuda._import(cuda.module_text([kernel]))
    module.libdevice = Libdevice()
    function = getattr(module, kernel.name)
    kinds = [k for k in kernel.signature.values() if k != "constexpr"]

    def launch(stream: int, grid: int = 0, *args: Any) -> None:
        if len(args) < len(kinds):      # a program's step of no blocks comes with the parameters alone
            return
        launches[0] += 1
        assert len(args) == len(kinds), (kernel.signature, args)
        given = [Pointer(a, TYPES[k[1:]]) if k[0] == "*" else a for a, k in zip(args, kinds)]
        function[(grid,)](*given, **kernel.constants)
    return launch


def by_halves(self: Any, inputs: tuple) -> list:
    """A reduction by a function of Triton's, on whole arrays; the interpreter's own goes element by element."""
    values = [np.moveaxis(t.handle.data, self.axis, 0) for t in inputs]
    while len(values[0]) > 1:
        half = len(values[0]) // 2
        made = self.combine_fn.fn(*[self.to_tensor(v[part], t.dtype) for part in (slice(half), slice(half, None))
                                    for v, t in zip(values, inputs)])
        values = [t.handle.data for t in (made if isinstance(made, tuple) else (made,))]
    return [self.to_tensor(np.expand_dims(v[0], self.axis) if self.keep_dims else v[0], t.dtype) for v, t in zip(values, inputs)]


def install() -> None:
    """Put the stand-ins in place."""
    interpreter.ReduceOps.generic_reduce = by_halves
    plain = interpreter._patch_lang_tensor

    def with_index(tensor: Any, scope: Any) -> None:
        """NumPy 2.4 no longer takes arrays of one element for numbers, as the interpreter does with bounds of loops."""
        plain(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))
    interpreter._patch_lang_tensor = with_index
    sys.modules["cupy"] = cupy
    _C.know_gpu_arrays(Array, lambda: 0, lambda: 0, lambda n: Array(n, np.uint8).memory)
    cubins.stream_pointer = lambda: lambda: 0     # type: ignore[assignment]
    cuda.compile_all = lambda kernels, capability, aligned: list(kernels)     # type: ignore[assignment]
    cubins.load = interpreted     # type: ignore[assignment]


# -- the cases -----------------------------------------------------------------------------------------------
RNG = np.random.default_rng(0)


def close(got: Any, want: Any, kind: Any = None) -> None:
    """Within rounding, results or tuples of them."""
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for a, b in zip(got, want):
            close(a, b)
        return
    want = want._data if hasattr(want, "_data") else want
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, want.shape, got.dtype, want.dtype)
    narrow = got.dtype.itemsize < 4 and got.dtype.kind not in "iub"
    tolerance = (3e-2, 3e-2 * max(1.0, float(np.abs(np.asarray(want, "f8")).max(initial=0)))) if narrow else (1e-4, 1e-4)
    np.testing.assert_allclose(np.asarray(got, "f8"), np.asarray(want, "f8"), *tolerance)


def compiled(fn: Any, *arrays: np.ndarray, parameters: Sequence[int] = ()) -> None:
    """A function of tensors, compiled for these sizes, against eager on the CPU."""
    want = fn(*[from_array(a.copy()) for a in arrays])
    with fl.core.dispatch.fake_mode():
        fakes = [fl.empty(a.shape, dtype=from_array(a).dtype, device="cuda") for a in arrays]
    gm = make_fx(fn)(*fakes)
    for position, node in enumerate([n for n in gm.graph.nodes if n.op == "placeholder"]):
        node.meta["parameter"] = position in parameters
    graph = compile_graph(gm)
    for order in (to_gpu, to_gpu, shifted):
        got = graph([from_array(order(a), None, device("cuda", 0)) for a in arrays])
        close([g._data for g in got], want if isinstance(want, tuple) else [want])
    runs_natively(graph)


def runs_natively(graph: Any) -> None:
    """Whether every program of a graph was written down."""
    written = graph.call.call if isinstance(graph.call, Settled) else graph.call
    assert written.programs and all(isinstance(p, _C.GpuProgram) for p in written.programs.values()), written.programs


def shifted(array: np.ndarray) -> Array:
    """A copy that is not aligned, with its memory the other way around."""
    room = Array(array.size + 1, array.dtype)
    out = Array(array.shape, array.dtype, room.memory + array.itemsize, np.empty(array.shape[::-1], array.dtype).T.strides)
    np.copyto(out, array)
    return out


def generated(name: str, *args: Any) -> None:
    """An operator's generated kernel on these arrays, against its CPU kernel; several times, as sizes change."""
    record = PRIMITIVES.get(name) or COMPOSITES[name]
    if record.eager.gpu is None:
        record.eager.gpu = _C.GpuPrograms(functools.partial(gpu_operators.generated_gpu, record), 64)

    def on(a: Any, place: Any) -> Any:
        return [on(item, place) for item in a] if isinstance(a, list) else place(a) if isinstance(a, np.ndarray) else a
    tensors = tuple([on(a, lambda a: from_array(a, None, device("cuda", 0))) for a in args])
    for _ in range(2):      # written down, then found again
        before = launches[0]
        made = record.eager.gpu(tensors)
        assert made is not NotImplemented, f"{name} has no generated kernel"
        assert launches[0] > before
    got = tuple([t._data for t in made]) if isinstance(made, tuple) else made._data
    plain = [on(a, lambda a: from_array(np.array(a))) for a in args]
    with fl.no_grad():
        want = record(*plain)
    close(got, want)


def a(*shape: int, kind: Any = "f4") -> Array:
    """A random array on the "GPU"."""
    return to_gpu(RNG.standard_normal(shape).astype(kind))


BF16 = fl.bfloat16.numpy


def eager_pointwise() -> None:
    for n in (64, 80, 97):
        generated("add", a(n, 128), a(n, 128))
        generated("mul", a(n, 128, kind=BF16), 0.3 + n)
        generated("exp", a(n, 67))
    generated("convert", a(64, 128), fl.bfloat16)
    generated("convert", a(64, 128, kind=BF16), fl.float32)
    generated("add", a(64, 128, kind=BF16), expanded(a(128, kind=BF16), (64, 128)))
    generated("add", a(80, 96), expanded(a(96), (80, 96)))
    wide = a(64, 300)
    generated("mul", Array((64, 100), "f4", wide.memory + 400, wide.strides), a(64, 100))    # a slice of rows, not aligned
    generated("where", to_gpu(RNG.random((64, 128)) < 0.5), a(64, 128), 0.0)
    generated("tanh", to_gpu(np.asfortranarray(RNG.standard_normal((64, 80)).astype("f4"))))


def to_integers() -> None:
    """Every float becomes the integer that it becomes on the processor (include/convert.h)."""
    floats = [0.0, -0.5, 1.9, -1.9, 255.5, 300, -300, 2**31 - 129, 2**31, -2**31, 3e9, 2**62, 2**63, -2**63, 1.5e19, 1e30, -1e30, np.nan,
              np.inf, -np.inf]
    for source in ("f4", "f8"):
        x = to_gpu(np.resize(np.array(floats, source), (20, 64)))
        for kind in (fl.uint8, fl.int8, fl.int16, fl.int32, fl.int64, fl.uint32, fl.uint64):
            generated("convert", x, kind)


def places(*shape: int, below: int) -> Array:
    """Positions."""
    return to_gpu(RNG.integers(0, below, shape))


def eager_moves() -> None:
    """What moves elements: for any sizes, lists of tensors among the arguments, and small ones."""
    for rows in (3, 40, 41):
        generated("cat", [a(rows, 16), a(7, 16), a(rows, 16)], 0)
        generated("cat", [a(2, rows, 8, kind=BF16), a(2, 5, 8, kind=BF16)], 1)
        generated("pad_zeros", a(rows, 9), (1, 0), (2, 3), (0, 0))
        generated("flip", a(rows, 9), (1,))
        generated("clone", to_gpu(np.asfortranarray(RNG.standard_normal((rows, 8)))), fl.contiguous_format)
        generated("gather", a(rows, 9), 1, places(rows, 4, below=9))
        generated("index_select", a(9, rows), 0, places(6, below=9))
        generated("index", a(9, rows), [places(6, below=9)])
        generated("index", a(rows, 9, 4), [None, places(6, below=9), places(2, 6, below=4)])
        generated("index_put", a(9, rows), [to_gpu(RNG.permutation(9)[:6])], a(6, rows), False)
        generated("index_put", a(9, rows), [places(6, below=9)], a(6, rows), True)
        generated("scatter", a(rows, 9), 1, to_gpu(RNG.permuted(np.tile(np.arange(9), (rows, 1)), axis=1)[:, :4].copy()), a(rows, 4), "set")
        generated("index_add", a(9, rows), 0, places(6, below=9), a(6, rows))


def small_folds() -> None:
    """Small arrays share kernels for any sizes."""
    for n in (2, 5, 7):
        generated("sum", a(n), (0,))
        generated("amax", a(n, 3), (1,))
        generated("_softmax", a(n, n + 1), 1)
        generated("_layer_norm", a(n, 6), a(6), a(6), 1, 1e-5)
    record = COMPOSITES["_softmax"]
    assert len(gpu_operators._families[record].made) < 3


def eager_operators() -> None:
    for rows in (48, 50):
        generated("_layer_norm", a(1, rows, 96), a(96), a(96), 1, 1e-5)
        generated("_log_softmax", a(1, rows, 40), 1)
    for rows in (48, 50):
        generated("_softmax", a(rows, 200), 1)
        generated("_layer_norm", a(rows, 4, 96), a(96), a(96), 1, 1e-5)
    generated("_log_softmax", a(48, 200, kind=BF16), 1)
    generated("_rms_norm", a(48, 128), a(128), 1, 1e-6)
    x, mean, rstd = a(48, 128), a(48), a(48)
    generated("layer_norm_backward", a(48, 128), x, a(128), mean, rstd)
    generated("layer_norm_backward_affine", a(48, 128), x, mean, rstd)
    generated("_gelu", a(64, 128, kind=BF16), "tanh")
    generated("gelu_backward", a(64, 128), a(64, 128), "none")


def eager_reductions() -> None:
    for rows in (64, 70):
        generated("sum", a(rows, 100), (0,))
        generated("sum", a(rows, 100, kind=BF16), (1,))
        generated("amax", a(rows, 100), (1,))
    generated("sum", a(300, 300), (0, 1))
    generated("argmax", a(64, 100), 1)


def long_sums() -> None:
    """Sums over many elements of one sign and far from zero are as good as sums in f64."""
    def works(x: Any) -> Any:
        return x.sum(), x.sum(0), x.sum(-1), (x * 2).mean(0), x.logsumexp(-1)

    count = 3 << 14
    for data in (np.full(count, 0.1, "f4"), (1e4 + RNG.standard_normal(count)).astype("f4")):
        for shape in ((3, count // 3), (count // 96, 96)):
            x = data.reshape(shape)
            with fl.core.dispatch.fake_mode():
                fake = fl.empty(shape, device="cuda")
            got = compile_graph(make_fx(works)(fake))([from_array(to_gpu(x), None, device("cuda", 0))])
            for g, want in zip(got, works(fl.from_numpy(x.astype("f8")))):
                np.testing.assert_allclose(g._data, want.numpy(), 1e-6)
    for scale in (1.0, 1e-3):
        x = (1e3 * scale + RNG.standard_normal((4, 20000))).astype("f4")
        with fl.core.dispatch.fake_mode():
            fake = fl.empty(x.shape, device="cuda")
        (got,) = compile_graph(make_fx(lambda x: x.var(1))(fake))([from_array(to_gpu(x), None, device("cuda", 0))])
        np.testing.assert_allclose(got._data, x.astype("f8").var(1, ddof=1), 1e-5)


def graphs() -> None:
    functional = fl.nn.functional
    x, w = RNG.standard_normal((24, 96)).astype("f4"), RNG.standard_normal(96).astype("f4")
    compiled(lambda x, w: functional.gelu(x * 2 + w), x, w)
    compiled(lambda x, w: (x.softmax(-1), x.sum(0), x.sum(), x.amax(1) + x.amin(1), (x > 0).any(1)), x, w)
    compiled(lambda x, w: functional.layer_norm(x, (96,), w, w), x, w)
    compiled(lambda x, w: (x.t().contiguous() + 1, x.bfloat16() * 3, x[:, 3:50] * 2), x, w)
    long = RNG.standard_normal((3, 9000)).astype("f4")
    compiled(lambda x: (x.softmax(-1), x.var(1), x.argmax(1)), long)
    ids = RNG.integers(0, 24, (7, 5))
    compiled(lambda x, ids: functional.embedding(ids, x), x, ids)
    compiled(lambda x, ids: fl.zeros(24, 96, device=x.device).index_add(0, ids.reshape(-1), x[:1].expand(35, 96)), x, ids)
    labels = RNG.integers(0, 96, 24)
    compiled(lambda x, y: functional.cross_entropy(x, y), x, labels)


def long_rows() -> None:
    """Rows that are looped over: folds that join the loop of an earlier one, whole tiles and the rest, odd lengths, NaN, infinities."""
    functional = fl.nn.functional

    def works(x: Any, w: Any) -> Any:
        n = x.shape[1]
        return (functional.log_softmax(x * 2, -1), x.logsumexp(-1), x.var(1), functional.layer_norm(x, (n,), w, w), (x * w).sum(1),
                x.amax(1) - x.amin(1), (x > 3).any(1))
    x, w = RNG.standard_normal((33, 16500)).astype("f4"), RNG.standard_normal(16500).astype("f4")
    x[0] += 200
    x[1] -= 200
    x[2] *= 20
    x[3, ::2] = -np.inf
    compiled(works, x, w)
    compiled(lambda x: (x.softmax(-1), x.var(1)), RNG.standard_normal((33, 32768)).astype("f2"))
    x = RNG.standard_normal((33, 33001)).astype("f4")
    x[0] = -np.inf
    x[1, 77] = np.inf
    x[2, 33000] = np.nan
    x[3, 1:] = -np.inf
    x[4, :2] = np.inf
    compiled(lambda x: (x.softmax(-1), x.logsumexp(-1)), x)
    compiled(lambda x: x.var(1), (RNG.standard_normal((33, 16401)) * 1e-2 + 100).astype("f4"))
    generated("_softmax", a(33, 17000, kind=BF16), 1)
    size = ShapeEnv().create_symint(9000, "columns", True)
    with fl.core.dispatch.fake_mode():
        fake = fl.empty(33, size, device="cuda")
    graph = compile_graph(make_fx(lambda x, n: x[:, 1:].softmax(-1).sum(-1) + x[:, 1:].var(-1))(fake, size))
    x = RNG.standard_normal((33, 9001)).astype("f4")
    (got,) = graph([from_array(to_gpu(x), None, device("cuda", 0)), 9001])
    close(got._data, 1 + x[:, 1:].var(-1, ddof=1))


def programs() -> None:
    """What a graph's program can do beside launches: primitives on arrays, inputs and numbers as results, sizes that change."""
    PRIMITIVES["cumsum"].kernels["cuda"] = lambda x, dim, reverse: to_gpu(np.asarray(x).cumsum(dim))
    x, w = RNG.standard_normal((24, 96)).astype("f4"), RNG.standard_normal((96, 24)).astype("f4")
    compiled(lambda x, w: ((x * 2).cumsum(1) + 1, w.t().cumsum(0), x[:, 5:], w), x, w)
    with fl.core.dispatch.fake_mode():
        fake = fl.empty(24, 96, device="cuda")
    constant = from_array(to_gpu(w.T.copy()), None, device("cuda", 0))
    graph = compile_graph(make_fx(lambda x: x + constant)(fake))
    close(graph([from_array(to_gpu(x), None, device("cuda", 0))])[0]._data, x + w.T)
    runs_natively(graph)

    env = ShapeEnv()
    rows, factor = env.create_symint(24, "rows", True), SymFloat.variable("f0", env)
    with fl.core.dispatch.fake_mode():
        fake = fl.empty(rows, 96, device="cuda")
    mode, _ = trace_call(lambda x, n, f: (x * f).cumsum(1) + n, [fake, rows, factor], [("rows", rows), ("factor", factor)])
    graph = compile_graph(GraphModule({}, mode.graph))
    sized = compile_graph(make_fx(lambda x, n: (x, n + 1, x * n))(fake, rows))
    for k, n in enumerate((24, 40, 24, 40, 40)):
        x = RNG.standard_normal((n, 96)).astype("f4")
        got, = graph([n, k + 0.5, from_array(to_gpu(x), None, device("cuda", 0))])
        close(got._data, (x * np.float32(k + 0.5)).cumsum(1) + n)
        same, more, times = sized([from_array(to_gpu(x), None, device("cuda", 0)), n])
        close((same._data, times._data), (x, x * n))
        assert more == n + 1
    for made in (graph, sized):
        runs_natively(made)
        assert len(made.call.programs) == 2


def saved() -> None:
    """What one graph saves another one takes, as it lies or laid out anew; it is a tensor where somebody asks."""
    x = RNG.standard_normal((24, 96)).astype("f4")
    with fl.core.dispatch.fake_mode():
        fake = fl.empty(24, 96, device="cuda")
        turned = fl.empty(96, 24, device="cuda").t()
    first = make_fx(lambda x: (x + 1, x * 2, (x * 3)[:, 8:], (x * 4).t().contiguous().t()))(fake)
    first.graph.meta["exact_outputs"] = 1
    graph = compile_graph(first)
    got, *others = graph([from_array(to_gpu(x), None, device("cuda", 0))])
    runs_natively(graph)
    close(got._data, x + 1)
    assert all(isinstance(other, _C.SavedArray) for other in others)
    for other, want in zip(others, (x * 2, (x * 3)[:, 8:], x * 4)):
        assert other.shape == want.shape and other.dtype is fl.float32
        close(other.tensor()._data, want)
        close(other._data, want)
    for like in (fake, turned):
        graph = compile_graph(make_fx(lambda a, b: (a * b, a.sum(0)))(like, like))
        for given in ((others[0], others[2]), (others[2], others[0]), (others[0], got)):
            wants = [g._data for g in given]
            product, total = graph(list(given))
            close((product._data, total._data), (wants[0] * wants[1], wants[0].sum(0)))
        runs_natively(graph)


def tables() -> None:
    """Rows of sizes and addresses for kernels over many tensors, by dtype; refused where companions are laid out differently."""
    def tensors(*arrays: Array) -> list:
        return [from_array(x, None, device("cuda", 0)) for x in arrays]
    turned = Array((3, 4), "f4", a(4, 3).memory, (4, 12))
    params = tensors(a(3, 4), turned, a(0), a(5, kind=BF16), a(1, 7))
    grads = tensors(a(3, 4), Array((3, 4), "f4", a(4, 3).memory, (4, 12)), a(0), a(5, kind=BF16), Array((1, 7), "f4", a(7).memory, (4, 4)))
    floats, narrow = _C.gpu_rows((params, grads))
    assert (floats[0], floats[1], narrow[0], narrow[1]) == (fl.float32, [0, 1, 4], fl.bfloat16, [3])
    assert floats[2].tolist() == [[params[k]._data.size, params[k]._data.data.ptr, grads[k]._data.data.ptr] for k in (0, 1, 4)]
    assert narrow[2][:, 0].tolist() == [5]
    gaps = tensors(Array((2, 4), "f4", a(2, 8).memory, (32, 4)))
    columns = tensors(Array((2, 4), "f4", a(4, 3).memory, (4, 8)))
    for wrong in (gaps, columns, tensors(a(2, 5)), tensors(a(2, 4, kind=BF16)), [fl.zeros(2, 4)]):
        assert _C.gpu_rows((tensors(a(2, 4)), wrong)) is None
    assert _C.gpu_rows((gaps,)) is None
    assert _C.gpu_rows(([], [])) == []
    for wrong in ((params, grads[:2]), (params, 3)):
        try:
            _C.gpu_rows(wrong)
        except TypeError:
            continue
        raise AssertionError(wrong)


def lifetimes() -> None:
    """No array outlives the step that reads it last, inputs included."""
    alive: list[int] = []

    def cumsum(x: Array, dim: int, reverse: bool) -> Array:
        alive.append(len({id(a.memory.owner) for a in gc.get_objects() if type(a) is Array and hasattr(a, "memory")} - before))
        return to_gpu(np.asarray(x))
    PRIMITIVES["cumsum"].kernels["cuda"] = cumsum
    with fl.core.dispatch.fake_mode():
        fake = fl.empty(24, 96, device="cuda")
    graph = compile_graph(make_fx(lambda x: ((x.cumsum(0).cumsum(1) * 2).cumsum(0) + 1).cumsum(1))(fake))
    before = {id(a.memory.owner) for a in gc.get_objects() if type(a) is Array}
    graph([from_array(to_gpu(np.zeros((24, 96), "f4")), None, device("cuda", 0))])
    runs_natively(graph)
    assert alive == [1, 1, 1, 1], alive


def products() -> None:
    """Products that end in pointwise kernels: every tile, sizes that are no multiples, views of heads, residuals."""
    functional = fl.nn.functional

    def fn(x: Any, w: Any, b: Any, y: Any) -> Any:
        return functional.gelu(functional.linear(x, w, b), approximate="tanh") + y, (x[:40] @ w.t()).relu().view(2, 20, -1)

    for rows, columns, inner in ((48, 64, 80), (70, 50, 33)):
        arrays = [RNG.standard_normal(s).astype("f2") for s in ((rows, inner), (columns, inner), (columns,), (rows, columns))]
        tensors = [from_array(to_gpu(x), None, device("cuda", 0)) for x in arrays]
        want = fn(*[from_array(x) for x in arrays])
        with fl.core.dispatch.fake_mode():
            fakes = [fl.empty(x.shape, dtype=fl.float16, device="cuda") for x in arrays]
        program, _ = lower(make_fx(fn)(*fakes))
        nodes = schedule(program, GPU)
        found = find_products(program, nodes)
        assert len(found) == 2, nodes
        for tile in (Tile(16, 32, 16, 4, 2), Tile(32, 16, 64, 4, 2), Tile(64, 64, 32, 4, 2)):
            chosen: list[Any] = [n for n in nodes if all(n is not call for call, _, _ in found)]
            for _, kernel, product in found:
                chosen[chosen.index(kernel)] = dataclasses.replace(product, tile=tile)
            _, call = cuda.build(program, chosen, None)
            close([t._data for t in call(list(tensors))], want)


def ended_products() -> None:
    """Products that end in a bias and an activation: NumPy stands for cuBLASLt, given the same addresses and descriptions."""
    ended: list[str] = []

    def matrix(place: int, rows: int, columns: int, of: Any, kind: Any) -> np.ndarray:
        shape = (rows, of.leading) if of.rows else (columns, of.leading)
        flat = np.frombuffer((ctypes.c_char * (shape[0] * shape[1] * kind.itemsize)).from_address(place), kind).reshape(shape)
        return flat[:, :columns] if of.rows else flat[:, :rows].T

    def by_address(name: str, n: int, m: int, k: int, of_a: Any, of_b: Any, of_out: Any, activation: str = "none") -> Any:
        kind = np.dtype(name)
        ended.append(activation)

        def call(a: int, b: int, out: int, bias: int = 0) -> None:
            total = matrix(a, n, k, of_a, kind).astype("f4") @ matrix(b, k, m, of_b, kind).astype("f4")
            if bias:
                total += np.frombuffer((ctypes.c_char * (m * kind.itemsize)).from_address(bias), kind)
            total = functional.gelu(fl.tensor(total), approximate="tanh").numpy() if activation == "gelu_tanh" else total
            matrix(out, n, m, of_out, kind)[...] = np.maximum(total, 0) if activation == "relu" else total
        return call
    functional = fl.nn.functional
    for name in ("blas", "blaslt"):
        stub: Any = types.ModuleType(f"flambeau.backends.cuda.{name}")
        stub.by_address, stub.matmul = by_address, None
        sys.modules[stub.__name__] = stub
    sys.modules["flambeau.backends.cuda.blas"].by_address = (      # type: ignore[attr-defined]
        lambda kind, shape, k, *layouts: by_address(kind.name, *shape, k, *layouts))
    linear = functional.linear
    works = {
        "": lambda x, w, b: linear(x, w, b), "relu": lambda x, w, b: linear(x, w, b).relu(),
        "gelu_tanh": lambda x, w, b: functional.gelu(linear(x.view(4, 12, 64), w, b), approximate="tanh").view(12, -1),
    }
    for activation, fn in works.items():
        for bias, parameters in (("f2", ()), ("f4", (2,)), ("f4", ())):
            ended.clear()
            compiled(lambda x, w, b, fn=fn: fn(x, w, b.half()), RNG.standard_normal((48, 64)).astype("f2"),
                     (RNG.standard_normal((80, 64)) / 8).astype("f2"), RNG.standard_normal(80).astype(bias), parameters=parameters)
            assert ended == ["none" if bias == "f4" and not parameters else activation], (activation, ended)
    plain = [
        lambda x, w, b: linear(x, w, b) * 2, lambda x, w, b: functional.gelu(linear(x, w, b)),
        lambda x, w, b: linear(x, w, b) + x[:, :1], lambda x, w, b: (x @ w.t()) + b.sum(),
        lambda x, w, b: (lambda h: (h, h.relu()))(linear(x, w, b)), lambda x, w, b: functional.silu(linear(x, w, b)),
        lambda x, w, b: linear(x, w[:79], b[:79]),
    ]
    for fn in plain:
        ended.clear()
        compiled(fn, RNG.standard_normal((48, 64)).astype("f2"), (RNG.standard_normal((80, 64)) / 8).astype("f2"),
                 RNG.standard_normal(80).astype("f2"))
        assert ended == ["none"], ended


def noted(index: int, size: int) -> None:
    """That kernels have noted an index, once."""
    try:
        strays.check()
    except IndexError as error:
        assert f"index {index} is out of bounds for a dimension of size {size}" in str(error), error
    else:
        raise AssertionError(f"index {index} was not noted")
    strays.check()


def stray_indices() -> None:
    """Indices out of range touch nothing and are noted with the operator; results of all others are right."""
    x, src = RNG.standard_normal((24, 40)).astype("f4"), RNG.standard_normal((35, 40)).astype("f4")
    functional = fl.nn.functional
    reads = {
        "index_select": lambda x, ids: functional.embedding(ids, x),
        "gather": lambda x, ids: x.gather(0, ids[:, None].expand(35, 40)),
        "index": lambda x, ids: x[ids] * 2,
        "index_sum": lambda x, ids: x[ids].sum(1),
        "index_columns": lambda x, ids: x[ids].sum(0),
    }
    writes = {
        "index_add": lambda x, ids, src: fl.zeros_like(x).index_add(0, ids, src),
        "scatter": lambda x, ids, src: x.scatter_add(0, ids[:, None].expand(35, 40), src),
        "index_put": lambda x, ids, src: x.index_put((ids,), src, accumulate=True),
    }
    good = RNG.integers(0, 24, 35)
    for name, function in (*reads.items(), *writes.items()):
        arrays = (x, good, src)[:2 if name in reads else 3]
        compiled(function, *arrays)
        strays.check()
        with fl.core.dispatch.fake_mode():
            fakes = [fl.empty(a.shape, dtype=from_array(a).dtype, device="cuda") for a in arrays]
        graph = compile_graph(make_fx(function)(*fakes))
        for wrong in (24, 2**40, -25) if "index_" not in name else (24, 2**40):
            bad = good.copy()
            bad[[3, 17]] = wrong
            got, = graph([from_array(to_gpu(a), None, device("cuda", 0)) for a in (x, bad, src)[:len(arrays)]])
            noted(wrong, 24)
            if name in ("index_select", "index"):
                want = function(from_array(x), from_array(good))._data
                keep = np.delete(np.arange(35), [3, 17])
                np.testing.assert_allclose(got._data[keep], want[keep], 1e-6)
            elif name in writes:
                cpu = np.delete(np.arange(35), [3, 17])
                want = function(from_array(x), from_array(good[cpu]), from_array(src[cpu]))._data if name != "scatter" else None
                if want is not None:
                    np.testing.assert_allclose(got._data, want, 1e-5, 1e-5)
    for rows in (24, 30):
        generated("index_select", a(rows, 40), 0, to_gpu(good))
        generated("gather", a(rows, 40), 0, to_gpu(RNG.integers(0, rows, (20, 40))))
    strays.check()
    table, ids = from_array(a(24, 40), None, device("cuda", 0)), good.copy()
    ids[5] = 24
    PRIMITIVES["index_select"].eager.gpu((table, 0, from_array(to_gpu(ids), None, device("cuda", 0))))
    noted(24, 24)


def empty_indices() -> None:
    """Where there is nothing to read or write by index, nothing is, and nothing is noted; programs without a launch are programs."""
    functions = {
        "rows": lambda x, i, s: x[i] + 1,
        "gather": lambda x, i, s: x.gather(0, fl.zeros_like(s, dtype=fl.int64)),
        "embedding sums": lambda x, i, s: fl.nn.functional.embedding(i, x).sum(0),
        "index_add": lambda x, i, s: x.index_add(0, i, s),
        "index_put": lambda x, i, s: x.index_put((i,), s),
        "scatter_add along rows": lambda x, i, s: x.scatter_add(1, fl.zeros_like(s, dtype=fl.int64), s),
        "scatter": lambda x, i, s: x.scatter(0, fl.zeros_like(s, dtype=fl.int64), s),
    }
    for n, m, k in ((3, 0, 2), (3, 0, 0), (3, 2, 0), (0, 0, 2), (1, 0, 1)):
        for function in functions.values():
            compiled(function, np.ones((n, k), "f4"), np.zeros(m, "i8"), np.ones((m, k), "f4"))
    strays.check()


CASES = {f.__name__: f for f in (products, ended_products, long_rows, long_sums, eager_pointwise, to_integers, eager_moves, small_folds,
                                eager_operators,
                                eager_reductions, graphs, programs, saved, tables, lifetimes, stray_indices, empty_indices)}


if __name__ == "__main__":
    install()
    for case in sys.argv[1:] or CASES:
        CASES[case]()
        print(f"{case} is right, {launches[0]} launches")
