"""Triton functions as cubins: compiled without a GPU, kept in the disk cache, loaded and launched by CuPy.

`Kernel` launches a function of this package (optimizer steps, attention); inductor prints functions of its own and takes the
same way.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import inspect
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ... import _C
from ...core.cache import cache_directory, read_sealed, write_sealed

HINT = "compiling for NVIDIA GPUs needs Triton and CuPy: pip install 'flambeau[cuda]'"
TYPES = {
    "bool": "i1", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint16": "u16", "uint32": "u32",
    "uint64": "u64", "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
}
_KINDS = {"i32": "i", "i64": "l", "fp32": "f", "fp64": "d"}
_STATIC_SHARED = 48 * 1024          # more shared memory than this has to be asked for
_PACKED = re.compile(r"(add|min|max)\.([su])16x2\s+(%r\d+), (%r\d+), (%r\d+);")
# libdevice takes subnormal numbers for 0 otherwise; a product that is fused with a sum is not the one that was rounded for another use
_EXACT = {"enable_reflect_ftz": False, "enable_fp_fusion": False}
_MAX_DYNAMIC_SHARED = 8             # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class NoTriton(RuntimeError):
    """Triton or CuPy is missing."""


@dataclass
class Cubin:
    """A compiled kernel as the driver takes it; `kinds` has a letter for each parameter (see `_C.CudaKernel`)."""

    name: str
    code: bytes
    shared: int
    num_warps: int
    kinds: str


def triton() -> Any:
    """The module; NoTriton with what to install."""
    try:
        return importlib.import_module("triton")
    except ImportError as error:
        raise NoTriton(f"{HINT} ({error})") from None


def unpacked(ptx: str) -> str:
    """PTX with each sum, minimum and maximum of a pair of 16-bit integers as two of single ones.

    ptxas (12.8 to 13.0, from -O1) may lose the constant of such a sum: `add.s16x2` of 0xffff0009 adds 0 to a half that is
    also used alone. LLVM makes these of positions that it knows to be small.
    """
    return _PACKED.sub(r"""{
	.reg .b16 %low<3>, %high<3>;
	mov.b32 {%low1, %high1}, \4;
	mov.b32 {%low2, %high2}, \5;
	\1.\g<2>16 %low0, %low1, %low2;
	\1.\g<2>16 %high0, %high1, %high2;
	mov.b32 \3, {%low0, %high0};
	}""", ptx)


def _assembled(ptx: str) -> bytes:
    """The cubin of a text of PTX."""
    target = re.search(r"\.target (\w+)", ptx)
    tool = importlib.import_module("triton.knobs").nvidia.ptxas.path
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        made = subprocess.run([tool, f"--gpu-name={target[1] if target else ''}", str(source), "-o", str(out)],
                              capture_output=True, text=True)
        if made.returncode:
            raise RuntimeError(f"ptxas refuses a kernel: {made.stderr.strip()}")
        return out.read_bytes()


def compile_function(function: Callable[[], Any], source: str, signature: Mapping[str, str], constants: Mapping[str, Any],
                     capability: int, aligned: frozenset[str], options: Mapping[str, int]) -> Cubin:
    """The cubin of a `triton.jit` function (what `function` returns) from the cache, or by Triton.

    `source` stands for its text in the cache; `signature` gives Triton's type of each parameter in order ("constexpr" for
    those in `constants`); `aligned` names the parameters that are multiples of 16; `options` are Triton's.
    """
    kinds = "".join("p" if t[0] == "*" else _KINDS[t] for t in signature.values() if t != "constexpr")
    description = json.dumps([source, list(signature.items()), dict(constants), capability, sorted(aligned), dict(options),
                              triton().__version__, _PACKED.pattern, _EXACT])
    key = hashlib.sha256(description.encode()).hexdigest()[:32]
    path = cache_directory() / "cubin" / key[:2] / key
    content = read_sealed(path)
    if content is not None:
        head, _, code = content.partition(b"\n")
        facts = json.loads(head)
        return Cubin(facts["name"], code, facts["shared"], facts["num_warps"], kinds)
    compiler = importlib.import_module("triton.compiler")
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", capability, 32)
    names = list(signature)
    attrs = {(names.index(p),): [["tt.divisibility", 16]] for p in aligned}
    values = {(names.index(c),): v for c, v in constants.items()}
    made = triton().compile(compiler.ASTSource(fn=function(), signature=dict(signature), constexprs=values, attrs=attrs),
                            target=target, options={**_EXACT, **options})
    ptx = unpacked(made.asm["ptx"])
    code = made.asm["cubin"] if ptx == made.asm["ptx"] else _assembled(ptx)
    cubin = Cubin(made.metadata.name, code, made.metadata.shared, made.metadata.num_warps, kinds)
    facts = {"name": cubin.name, "shared": cubin.shared, "num_warps": cubin.num_warps}
    write_sealed(path, json.dumps(facts).encode() + b"\n" + cubin.code)
    return cubin


@functools.cache
def _driver() -> int:
    """The address of the driver's launch."""
    return ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p).value or 0


@functools.cache
def stream_pointer() -> Callable[[], int]:
    """A function that gives the handle of the current stream."""
    try:
        return importlib.import_module("cupy_backends.cuda.stream").get_current_stream_ptr
    except (ImportError, AttributeError):
        current = importlib.import_module("cupy").cuda.get_current_stream
        return lambda: current().ptr


def load(cubin: Cubin) -> Callable[..., None]:
    """Load a cubin on the current device: `kernel(stream, grid, *parameters)`, the stream and arrays by address."""
    cupy = importlib.import_module("cupy")
    module = cupy.cuda.function.Module()
    module.load(cubin.code)
    function = module.get_function(cubin.name)
    if cubin.shared > _STATIC_SHARED:
        cupy.cuda.driver.funcSetAttribute(function.ptr, _MAX_DYNAMIC_SHARED, cubin.shared)
    return launcher(function, cubin.kinds, cubin.num_warps * 32, cubin.shared, module)


def launcher(function: Any, kinds: str, threads: int, shared: int = 0, module: Any = None) -> Callable[..., None]:
    """`kernel(stream, grid, *parameters)` of a function that CuPy has loaded, and of whose module."""
    enter = functools.partial(importlib.import_module("cupy").cuda.runtime.free, 0)     # a call of the runtime makes the context the thread's
    return _C.CudaKernel(_driver(), function.ptr, kinds, threads, shared, module or function, enter)


@functools.cache
def _capability(device: int) -> int:
    return int(importlib.import_module("cupy").cuda.Device(device).compute_capability)


class Kernel:
    """A `triton.jit` function of this package, launched through CuPy.

    Arguments are arrays, ints and NumPy floats in the order of the function's parameters that are no constants.
    It is compiled anew for other dtypes and constants, and for ints and addresses that are or are not multiples of 16.
    """

    def __init__(self, function: Any):
        self.function = function
        self.names = list(function.arg_names)
        self.source = inspect.getsource(sys.modules[function.__module__])
        self._loaded: dict[tuple, Callable[..., None]] = {}

    def describe(self, args: Sequence[Any]) -> tuple[tuple, tuple]:
        """(what the compiled code depends on: a (type, is a multiple of 16) for each argument; what is passed)."""
        kinds: list = []
        passed: list = []
        for a in args:
            if isinstance(a, int):
                kinds.append(("i32" if -(2**31) <= a < 2**31 else "i64", a % 16 == 0))
                passed.append(a)
            elif isinstance(a, np.floating):
                kinds.append((TYPES[a.dtype.name], False))
                passed.append(a)
            else:
                address = a.data.ptr
                kinds.append(("*" + TYPES[a.dtype.name], address % 16 == 0))
                passed.append(address)
        return tuple(kinds), tuple(passed)

    def compile(self, kinds: Sequence[tuple[str, bool]], constants: Mapping[str, Any], options: Mapping[str, int],
                capability: int) -> Cubin:
        """The cubin for arguments of these kinds."""
        given = iter(kinds)
        types = {n: ("constexpr", False) if n in constants else next(given) for n in self.names}
        signature = {n: kind for n, (kind, _) in types.items()}
        aligned = frozenset(n for n, (_, multiple) in types.items() if multiple)
        return compile_function(lambda: self.function, self.function.__name__ + self.source, signature, constants, capability,
                                aligned, options)

    def prepared(self, args: Sequence[Any], constants: Mapping[str, Any], **options: int) -> tuple[Callable[..., None], tuple]:
        """(the loaded kernel for arguments such as these, the numbers that follow its addresses)."""
        device = importlib.import_module("cupy").cuda.runtime.getDevice()
        kinds, passed = self.describe(args)
        key = (device, kinds, *constants.values(), *options.values())
        kernel = self._loaded.get(key)
        if kernel is None:
            kernel = self._loaded[key] = load(self.compile(kinds, constants, options, _capability(device)))
        return kernel, passed[sum(kind[0] == "*" for kind, _ in kinds):]

    def bind(self, args: Sequence[Any], constants: Mapping[str, Any], **options: int) -> Callable[[tuple, tuple], None]:
        """The launch for arguments such as these: takes the grid and the addresses of the arrays, which come first."""
        (kernel, numbers), stream = self.prepared(args, constants, **options), stream_pointer()
        return lambda grid, addresses: kernel(stream(), *grid, *addresses, *numbers)

    def __call__(self, grid: tuple, args: Sequence[Any], constants: Mapping[str, Any], **options: int) -> None:
        arrays = [a for a in args if not isinstance(a, (int, np.floating))]
        if any(x is not y for x, y in zip(arrays, args)):
            raise TypeError("arrays come before numbers")
        self.bind(args, constants, **options)(grid, tuple([a.data.ptr for a in arrays]))
