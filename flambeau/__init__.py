"""Flambeau: PyTorch 2, rebuilt small. `import flambeau as torch`.

This file is the public namespace: the dtypes, devices and every operator of the table, and the libraries beside them
(`nn`, `optim`, ...), which load when they are first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from . import _openmp  # isort: skip  # what _C needs to load
from . import (
    _C,  # first: it installs the array allocator
    _homes,
    autograd,
    ops,
    sparse,
)

# isort: off
from ._lazy import NoSuchName as _NoSuchName, show as _show
from ._left_out import NAMES as _LEFT_OUT
from .autograd.grad_mode import enable_grad, inference_mode, is_grad_enabled, is_inference_mode_enabled, no_grad, set_grad_enabled
from .core import shared as _shared
from .core.device import default_device as get_default_device
from .core.device import device, set_default_device
from .core.dtypes import ALIASES, DTYPES, NAMED_ONLY, can_cast, dtype, finfo, iinfo, promote_types
from .core.memory_format import (
    channels_last, channels_last_3d, contiguous_format, jagged, layout, memory_format, preserve_format, sparse_bsc, sparse_bsr,
    sparse_coo, sparse_csc, sparse_csr, strided,
)
from .core.settings import told as _told
from .core.size import Size, broadcast_shapes
from .core.storage import Storage as _Storage
from .core.tensor import Tensor, is_inference
from .ops.creation import TYPED_TENSORS as _TYPED_TENSORS
from .ops.help import Help as _Help, complete as _complete, composed as _composed, install as _complete_others
from .ops.primitives import generated as _kernels
from .ops.promotion import default_dtype as get_default_dtype
from .ops.promotion import result_type, set_default_dtype
from .ops.registry import OPERATORS as _OPERATORS
from .ops.storages import TYPED_STORAGES as _TYPED_STORAGES
from .ops.storages import UntypedStorage as _UntypedStorage
from .sparse.construct import (
    sparse_bsc_tensor, sparse_bsr_tensor, sparse_compressed_tensor, sparse_coo_tensor, sparse_csc_tensor, sparse_csr_tensor,
)
from .sparse.convert import (
    ccol_indices_copy, col_indices_copy, crow_indices_copy, indices_copy, resize_as_sparse_, row_indices_copy, values_copy,
)
from .sparse.products import dsmm, hspmm, saddmm, smm, spmm, sspaddmm
# isort: on

__version__ = "0.1.0"
_homes.install()

inf, nan, pi, e = float("inf"), float("nan"), 3.141592653589793, 2.718281828459045
newaxis = None

globals().update(DTYPES)
globals().update(NAMED_ONLY)
globals().update(ALIASES)
globals().update(_TYPED_TENSORS)
globals().update(_TYPED_STORAGES)
globals().update(_LEFT_OUT)
for _name, _operator in _OPERATORS.items():
    globals().setdefault(_name, _operator)
for _name in ("as_strided_", "dequantize", "detach_", "resize_as_"):
    globals()[_name] = getattr(Tensor, _name)  # methods that are functions too


def _question(name: str) -> Any:
    """What a method answers about a tensor, as a function."""
    def ask(input: Tensor) -> Any:
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        return getattr(input, name)()

    ask.__name__ = ask.__qualname__ = name
    ask.__doc__ = getattr(Tensor, name).__doc__
    return ask


for _name in ("get_device", "is_complex", "is_conj", "is_distributed", "is_floating_point", "is_neg", "is_signed", "numel"):
    globals()[_name] = _question(_name)


def _generated(slot: str, module: str = ".inductor.operators") -> Any:
    """Fills the slots for generated kernels when the first large operation asks for one: the compiler loads only then."""
    def first(*args: Any) -> Any:
        importlib.import_module(module, __package__).install()
        return getattr(_kernels, slot)(*args)
    return first


def _teach_multiprocessing() -> None:
    _shared.told_of_first = lambda: None
    importlib.import_module(".multiprocessing", __package__)


def _compose(of: Any, written: str) -> str:
    text: str = importlib.import_module("._help", __package__).text(of, written)
    return text


_Help.compose = staticmethod(_compose)
_shared.told_of_first = _teach_multiprocessing
_kernels.cpu = _generated("cpu")
_kernels.gpu = _generated("gpu", ".inductor.gpu_operators")

# Libraries and names that load on first use: name -> (module, attribute or None for the module itself).
_LAZY: dict[str, tuple[str, Any]] = {
    name: (f".{name}", None) for name in (
        "nn", "optim", "fx", "func", "utils", "special", "linalg", "fft", "distributions", "amp", "profiler", "distributed", "jit",
        "aot", "inductor", "dynamo", "compiler", "cuda", "backends", "serialization", "random", "hub", "testing",
        "library", "overrides", "types", "version", "multiprocessing", "onnx", "nested", "quantization", "mps", "xpu", "cpu",
        "return_types", "torch_version", "_utils", "__future__", "_C", "accelerator", "export", "storage", "ao", "signal",
        "futures", "masked", "quasirandom", "__config__", "package", "functional", "classes", "monitor")
} | {
    **{name: (f".{name}", None) for name in ("_dynamo", "_inductor", "_functorch", "_logging", "_subclasses", "_guards", "_decomp",
                                              "_prims", "_refs", "_prims_common", "_tensor", "_tensor_str",
                                              "_jit_internal", "_VF", "_lowrank", "_export", "_ops", "_higher_order_ops")},
    "DeviceObjType": (".core.device", "device"),
    "legacy_contiguous_format": (".core.memory_format", "contiguous_format"),
} | {
    name.rpartition("=")[2]: (module, name.partition("=")[0]) for module, names in {
        "._settings": (
            "OutOfMemoryError", "use_deterministic_algorithms", "are_deterministic_algorithms_enabled",
            "is_deterministic_algorithms_warn_only_enabled", "set_deterministic_debug_mode", "get_deterministic_debug_mode",
            "set_float32_matmul_precision", "get_float32_matmul_precision", "set_num_threads", "get_num_threads",
            "set_num_interop_threads", "get_num_interop_threads", "set_warn_always", "is_warn_always_enabled", "typename",
            "compiled_with_cxx11_abi", "AcceleratorError", "init_num_threads", "is_vulkan_available", "_assert", "_assert_async",
            "_assert_scalar", "_check", "_check_with",
            "_check_is_size", "_check_index", "_check_value", "_check_type", "_check_not_implemented", "set_default_tensor_type",
            "set_flush_denormal", "_check_tensor_all", "_check_tensor_all_with"),
        ".core.symbolic": (
            "SymInt", "SymFloat", "SymBool", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt",
            "sym_sum"),
        ".dynamo": ("compile",),
        ".serialization": ("save", "load"),
        ".amp": ("autocast", "is_autocast_enabled", "is_autocast_cpu_enabled", "get_autocast_dtype", "set_autocast_enabled",
                 "set_autocast_dtype", "get_autocast_cpu_dtype", "get_autocast_gpu_dtype", "is_autocast_cache_enabled",
                 "set_autocast_cache_enabled", "clear_autocast_cache", "GradScaler"),
        ".accelerator": ("get_device_module",),
        ".cpu": ("Stream", "Event"),
        ".utils.dlpack": ("to_dlpack",),
        ".storage": ("UntypedStorage", "TypedStorage", "UntypedStorage=StorageBase"),
        ".func": ("vmap",),
        ".autograd.anomaly": ("is_anomaly_enabled", "is_anomaly_check_nan_enabled", "set_anomaly_enabled"),
        "._lowrank": ("pca_lowrank", "svd_lowrank"),
        "._higher_order_ops.cond": ("cond",),
        "._higher_order_ops.while_loop": ("while_loop",),
        ".nn.modules.rnn": ("gru_cell", "lstm_cell", "rnn_relu_cell", "rnn_tanh_cell"),
        ".nn.functional": ("rrelu", "rrelu_", "max_pool1d_with_indices"),
        ".ops.generators": ("Generator", "default_generator", "manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state"),
        "._torch_c": ("Tag", "ScriptObject", "TensorType", "PyTorchFileReader", "PyTorchFileWriter", "qscheme", "per_channel_affine",
                      "per_tensor_affine",
                      "per_channel_symmetric", "per_tensor_symmetric", "per_channel_affine_float_qparams",
                      "DispatchKey", "AggregationType", "SUM", "AVG", "PRIVATE_OPS"),
        ".futures": ("Future",),
        ".random": ("thread_safe_generator",),
        "._lobpcg": ("lobpcg",),
        ".core.schema": ("parse_schema",),
        "._private": ("_int_mm", "_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_", "_cast_Byte", "_cast_Char",
                      "_cast_Double", "_cast_Float", "_cast_Half", "_cast_Int", "_cast_Long", "_cast_Short",
                      "_shape_as_tensor", "_scaled_mm", "_softmax_backward_data", "_batch_norm_with_update", "_chunk_cat",
                      "_native_batch_norm_legit", "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "_scaled_mm_v2"),
        ".sparse.convert": ("_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo"),
        ".sparse.construct": tuple(f"_validate_sparse_{kind}_tensor_args" for kind in ("coo", "csr", "csc", "bsr", "bsc", "compressed")),
        ".nested.construct": ("from_mask=_nested_tensor_from_mask", "is_left_aligned=_nested_tensor_from_mask_left_aligned",
                              "from_list=_nested_tensor_from_tensor_list", "from_padded_sizes=_nested_from_padded",
                              "view_of_buffer=_nested_view_from_buffer"),
        ".ops.segments": ("segment_reduce=_segment_reduce",),
        ".jit": ("ScriptModule", "ScriptFunction", "fork", "wait"),
        "._dynamo": ("disable=_disable_dynamo",),
        ".ops.printing": ("set_printoptions",),
    }.items() for name in names
}


def __getattr__(name: str) -> Any:
    if name == "torch":
        return importlib.import_module(__package__ or "flambeau")    # torch.torch is torch
    found = _LAZY.get(name)
    if found is None:
        if _homes.knows(f"{__package__}.{name}"):
            return importlib.import_module(f".{name}", __package__)
        raise _NoSuchName(__package__ or "flambeau", name)
    module, attribute = found
    try:
        loaded = importlib.import_module(module, __package__)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith(f"{__package__}{module}"):
            raise AttributeError(f"module 'flambeau' has no attribute '{name}' ({error})") from None
        raise
    value = loaded if attribute is None else _composed(getattr(loaded, attribute))
    globals()[name] = value
    return value


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


def is_storage(obj: Any) -> bool:
    """Whether `obj` is a storage."""
    return isinstance(obj, (_Storage, _UntypedStorage))


if _told("TORCH_LOGS"):     # a misspelt name is an error at once
    importlib.import_module(".dynamo.logs", __package__)

_show(__name__, _LAZY)
__all__ = [name for name in globals() if not name.startswith("_")]


_complete(vars(Tensor))
_complete_others()
