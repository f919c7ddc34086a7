"""torch.distributed.checkpoint.state_dict: names to import."""

from __future__ import annotations

from ..._absent import absent_names

__getattr__ = absent_names(
    "torch.distributed.checkpoint.state_dict",
    ("StateDictOptions", "get_model_state_dict", "set_model_state_dict", "get_optimizer_state_dict",
     "set_optimizer_state_dict", "get_state_dict", "set_state_dict"),
    "save the state dict of rank 0 with torch.save",
)
