"""torch.utils.mobile_optimizer: modules made ready for one device that only evaluates them."""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import Any

from ..jit import RecursiveScriptModule, freeze, optimize_for_inference, script
from ..nn.modules.module import Module
from ..nn.utils.fx_passes import fuse, remove_dropout


class MobileOptimizerType(enum.Enum):
    """What may be left out, by `optimization_blocklist`."""

    CONV_BN_FUSION, INSERT_FOLD_PREPACK_OPS, REMOVE_DROPOUT, FUSE_ADD_RELU, HOIST_CONV_PACKED_PARAMS, CONV_1D_TO_2D, \
        VULKAN_AUTOMATIC_GPU_TRANSFER = range(1, 8)


def optimize_for_mobile(script_module: Any, optimization_blocklist: Collection[MobileOptimizerType] | None = None,
                        preserved_methods: list[str] | None = None, backend: str = "CPU") -> Module:
    """A module in evaluation mode, scripted, frozen and optimized for inference: batch norms and activations are part of the
    convolutions before them, and weights are packed, from the first call on.

    Of a plain module, batch norms are folded and dropouts removed before it is scripted, so that its archive is without them too.
    `preserved_methods` stay.
    """
    if backend.upper() != "CPU":
        raise NotImplementedError(f"optimize_for_mobile(backend={backend!r}) is not implemented; 'CPU' is, and "
                                  "torch.backends._nnapi.prepare.convert_model_to_nnapi makes models for Android's NNAPI")
    blocked = set(optimization_blocklist or ())
    finished = freeze if MobileOptimizerType.INSERT_FOLD_PREPACK_OPS in blocked else optimize_for_inference
    if isinstance(script_module, RecursiveScriptModule):
        return finished(script_module.eval(), preserved_methods)
    if not isinstance(script_module, Module):
        raise TypeError(f"Got {type(script_module)}, but ScriptModule is expected.")
    made = script_module.eval()
    if preserved_methods is None:       # a graph has forward alone
        made = made if MobileOptimizerType.CONV_BN_FUSION in blocked else fuse(made)
        made = made if MobileOptimizerType.REMOVE_DROPOUT in blocked else remove_dropout(made)
    return finished(script(made), preserved_methods)


__all__ = ["MobileOptimizerType", "optimize_for_mobile"]
