"""The native module: frame hook, guards, kernel launching, memory, random numbers. See csrc/ and docs/interfaces.md."""

from collections.abc import Callable, Sequence
from os import PathLike
from types import CodeType, FunctionType
from typing import Any, SupportsIndex, TypeAlias, TypeVar

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])
Array = TypeVar("Array", bound=np.ndarray[Any, Any])
Type: TypeAlias = type
Guard = Callable[..., Any]
Entry = tuple[Guard, Callable[..., Any]]
FrameCallback = Callable[[FunctionType, CodeType, tuple[Any, ...]], Entry | None]

parts: tuple[str, ...]
"""Names of the files of csrc/ that this build has."""

# -- frame hook (csrc/frame_hook.cpp)
def set_frame_callback(callback: FrameCallback | None, /) -> FrameCallback | None: ...
def get_frame_callback() -> FrameCallback | None: ...
def skip_code(code: CodeType, /) -> None: ...
def cache_entries(code: CodeType, /) -> list[Entry]: ...
def add_cache_entry(code: CodeType, guard: Guard, replacement: Callable[..., Any], /) -> None: ...
def clear_cache(code: CodeType, /) -> None: ...
def undisturbed(fn: Function, /) -> Function: ...
def watched(fn: Function, callback: FrameCallback, /) -> Function: ...

# -- guards (csrc/guards.cpp)
class TensorSpec:
    """What a compiled entry expects of a tensor: `spec(tensor)` tells whether it holds."""

    type: Type
    dtype: Any
    device: Any
    shape: tuple[int | None, ...]
    strides: tuple[int | None, ...] | bool | None
    def __init__(
        self,
        type: Type,
        dtype: Any,
        device: Any,
        shape: tuple[int | None, ...],
        strides: tuple[int | None, ...] | bool | None = None,
        requires_grad: bool | None = None,
    ) -> None: ...
    def __call__(self, tensor: Any, /) -> bool: ...
    def difference(self, tensor: Any, /) -> str | None: ...

def check_tensors(tensors: tuple[Any, ...], specs: tuple[TensorSpec, ...], /) -> bool: ...

# -- kernel libraries (csrc/launch.cpp)
class NativeGraph:
    """A function of a compiled kernel library; flambeau/include/runtime.h is what it sees."""

    path: str
    symbol: str
    n_args: int
    def __init__(self, library_path: str | PathLike[str], symbol: str, n_args: int) -> None: ...
    def __call__(self, args: Sequence[Any], scalars: Sequence[SupportsIndex | float] = (), /) -> None: ...

# -- memory (csrc/alloc.cpp)
def memory_stats() -> dict[str, int]: ...
def empty_cache() -> None: ...
def set_cache_limit(bytes: int, /) -> None: ...

# -- random numbers (csrc/philox.cpp; flambeau/include/philox.h has the mapping)
def philox_bits(out: Array, seed: int, offset: int, /) -> Array: ...
def philox_uniform(out: Array, seed: int, offset: int, /) -> Array: ...
def philox_normal(out: Array, seed: int, offset: int, /) -> Array: ...
def philox_block(
    counter: tuple[int, int, int, int], key: tuple[int, int], /
) -> tuple[int, int, int, int]: ...

# -- threads (csrc/threads.cpp)
def set_num_threads(number: int, /) -> None: ...
def get_num_threads() -> int: ...
