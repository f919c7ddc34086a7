"""What torch's own namespace and its tensors have beside, and is left out: names that raise with what to use instead."""

from __future__ import annotations

from . import autograd
from ._absent import absent, absent_name, absent_type
from .core.tensor import Tensor
from .ops.registry import OPERATORS

_SCALES = "no tensor is quantized: keep integers in torch.int8 and scales beside them; torch.fake_quantize_per_tensor_affine rounds as " \
          "quantisation does"
NAMES = {name: absent_name(f"torch.{name}", instead) for instead, names in {
    "Flambeau has no TorchScript: compile with torch.compile": (
        "ScriptClass", "import_ir_module", "import_ir_module_from_buffer", "merge_type_from_type_comment", "parse_ir",
        "parse_type_comment", "unify_type_list"),
    _SCALES: ("quantize_per_channel", "quantize_per_tensor", "quantize_per_tensor_dynamic", "quantized_batch_norm",
              "quantized_max_pool1d", "quantized_max_pool2d"),
}.items() for name in names}
"""Functions and classes of the namespace."""

METHODS = {name: absent(f"torch.Tensor.{name}", instead) for instead, names in {
    _SCALES: ("int_repr", "q_scale", "q_zero_point", "q_per_channel_axis", "q_per_channel_scales", "q_per_channel_zero_points", "qscheme"),
    "a dense tensor has no rows to pad: make nested ones with torch.nested": ("to_padded_tensor",),
    "oneDNN computes with tensors as they are": ("to_mkldnn",),
    "autocast casts operators' arguments": ("_autocast_to_full_precision", "_autocast_to_reduced_precision"),
    "use torch.addmm and torch.relu, which compile to one kernel": ("_addmm_activation",),
    "use normal_ and uniform_": ("_philox_normal_", "_philox_uniform_"),
    "a dense tensor has no components: make nested ones with torch.nested": (
        "_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets"),
    "write sparse tensors anew: torch.sparse_coo_tensor": ("_sparse_mask_projection",),
    "keep the tensor that was sliced": ("slice_inverse",),
    "name dimensions by einsum or einops, or index with torch.arange": ("index",),
}.items() for name in names}
"""Methods of tensors."""

ATEN_METHODS = {
    "all": "_is_all_true", "any": "_is_any_true", "clone": "_lazy_clone", "conj": "_conj", "conj_physical": "_conj_physical",
    "to_dense": "_to_dense", "to_sparse": "_to_sparse", "to_sparse_csr": "_to_sparse_csr", "to_sparse_csc": "_to_sparse_csc",
    "to_sparse_bsr": "_to_sparse_bsr", "to_sparse_bsc": "_to_sparse_bsc", "sparse_dim": "_dimI", "dense_dim": "_dimV",
}
"""Methods of tensors and their names in ATen."""

for _target, _alias in ATEN_METHODS.items():
    setattr(Tensor, _alias, getattr(Tensor, _target))
Tensor.hash_tensor = OPERATORS["hash_tensor"]    # type: ignore[method-assign]


def _is_zerotensor(self: Tensor) -> bool:
    return self.numel() < 0     # never: zeros have elements like others


Tensor._is_zerotensor = _is_zerotensor    # type: ignore[method-assign, assignment]

autograd.NestedIOFunction = absent_type(
    "torch.autograd.NestedIOFunction", "flatten what goes in and comes out (torch.utils._pytree) around a torch.autograd.Function")

for _name, _method in METHODS.items():
    setattr(Tensor, _name, _method)
