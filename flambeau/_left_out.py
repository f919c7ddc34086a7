"""What torch's own namespace and its tensors have beside, and is left out: names that raise with what to use instead."""

from __future__ import annotations

from . import autograd
from ._absent import absent, absent_name, absent_type
from .core.tensor import Tensor

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
    "no tensor is nested: pad the rows to one length (torch.nn.utils.rnn.pad_sequence)": ("to_padded_tensor",),
    "oneDNN computes with tensors as they are": ("to_mkldnn",),
    "name dimensions by einsum or einops, or index with torch.arange": ("index",),
}.items() for name in names}
"""Methods of tensors."""

autograd.NestedIOFunction = absent_type(
    "torch.autograd.NestedIOFunction", "flatten what goes in and comes out (torch.utils._pytree) around a torch.autograd.Function")

for _name, _method in METHODS.items():
    setattr(Tensor, _name, _method)
