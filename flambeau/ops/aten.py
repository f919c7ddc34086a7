"""`torch.ops.aten.NAME`: the names under which selective checkpointing and flop counts tell of operators.

One handle stands for all overloads of an operator. Calling it calls the operator of the table, or, where ATen's arguments are others,
the form of `aten_forms.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .aten_forms import FORMS
from .custom import CustomOperator
from .registry import OPERATORS, PRIMITIVES


class AtenOperator:
    """`aten.mm`, and `aten.mm.default` as well."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return f"aten.{self.__name__}"

    def __getattr__(self, overload: str) -> AtenOperator:
        if overload.startswith("_"):
            raise AttributeError(overload)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        form = FORMS.get(self.__name__)
        if form is not None:
            return form(*args, **kwargs)
        if self.__name__ not in OPERATORS:
            raise NotImplementedError(f"{self} is only a name here; call the function of torch that it belongs to")
        return OPERATORS[self.__name__](*args, **kwargs)


# Records of other names: record -> aten's, or a function of the arguments that gives it.
_ATEN: dict[str, str | Callable[..., str]] = {
    "_linear": lambda x, w, bias: "mm" if bias is None else "addmm",
    "_conv_bias": "convolution", "convolution_input_grad": "convolution_backward", "convolution_weight_grad": "convolution_backward",
    "flash_attention": "_scaled_dot_product_flash_attention",
    "flash_attention_backward": "_scaled_dot_product_flash_attention_backward",
    "attention_weights": "_softmax", "_layer_norm": "native_layer_norm", "_batch_norm_train": "native_batch_norm",
    "_batch_norm_eval": "native_batch_norm", "truediv": "div", "convert": "_to_copy", "copy_into": "copy_",
    "_max_pool": "max_pool2d_with_indices",
    "_avg_pool": "avg_pool2d", "_gelu": "gelu", "_silu": "silu", "_embedding": "embedding", "_mean": "mean",
}
_KNOWN = {name for name in _ATEN.values() if isinstance(name, str)} | {
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_flash_attention_for_cpu"}
# Operators of aten's that libraries name (to say what to do at them) and that no record here is called.
_NAMED = frozenset((
    "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_conj", "_convert_weight_to_int4pack",
    "_convert_weight_to_int4pack_for_cpu", "_dyn_quant_matmul_4bit", "_dyn_quant_pack_4bit_weight", "_efficientzerotensor",
    "_embedding_bag", "_embedding_bag_forward_only", "_fft_c2c", "_foreach_add_", "_fused_adam", "_grouped_mm", "_int_mm",
    "_is_all_true", "_local_scalar_dense", "_mkldnn_transpose", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
    "_nnz", "_pin_memory", "_reshape_alias", "_reshape_copy", "_scaled_dot_product_cudnn_attention_backward", "_scaled_mm",
    "_scaled_mm_v2", "_sparse_addmm", "_sparse_mm_reduce_impl", "_to_copy", "_unsafe_index", "_unsafe_view", "_upsample_bilinear2d_aa",
    "_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu", "_weight_int4pack_mm_with_scales_and_zeros", "as_strided_copy",
    "binary_cross_entropy_backward", "col2im", "col_indices", "convolution_overrideable", "crow_indices", "cudnn_batch_norm", "detach_",
    "detach_copy", "dim", "div_mode", "empty_permuted", "expand_copy", "fill", "hardswish_backward", "hardtanh_backward",
    "is_contiguous", "is_non_overlapping_and_dense", "is_pinned", "is_same_size", "is_strides_like_format", "leaky_relu_backward",
    "lift", "lift_fresh", "lift_fresh_copy", "miopen_batch_norm", "mkldnn_linear", "native_dropout", "native_dropout_backward",
    "native_group_norm", "native_group_norm_backward", "native_layer_norm_backward", "nll_loss_backward", "nll_loss_forward",
    "permute_copy", "prim_device", "record_stream", "rrelu_with_noise", "set_", "slice_backward", "slice_scatter",
    "split_with_sizes_copy", "sym_constrain_range_for_size", "sym_is_contiguous", "sym_numel", "sym_size", "sym_storage_offset",
    "sym_stride", "threshold_backward", "transpose_", "unsafe_chunk", "unsafe_split", "upsample_bicubic2d", "upsample_bilinear2d",
    "upsample_linear1d", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_trilinear3d", "values",
    "view_copy",
))
_FLASH = "_scaled_dot_product_flash_attention"


@functools.cache
def _handle(name: str) -> AtenOperator:
    return AtenOperator(name)


def __getattr__(name: str) -> AtenOperator:
    if name.startswith("__") or not any(name in table for table in (OPERATORS, PRIMITIVES, FORMS, _KNOWN, _NAMED)):
        raise AttributeError(f"torch.ops.aten has no operator {name!r}")
    return _handle(_FLASH if name in _KNOWN and name.startswith("_scaled") and not name.endswith("backward") else name)


def name_of(record: Any, args: tuple) -> AtenOperator | CustomOperator:
    """What a call that a mode sees is called."""
    owner = getattr(record, "owner", None)
    if owner is not None:
        return owner
    name = _ATEN.get(record.name, record.name)
    return _handle(name if isinstance(name, str) else name(*args))
