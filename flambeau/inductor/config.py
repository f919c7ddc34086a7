"""Settings of the compiler: `flambeau.inductor.config.repeats = False`, for one function `torch.compile(options={"repeats": False})`.

`torch._inductor.config` is this module. A name that does not exist is an AttributeError; `ACCEPTED` are PyTorch's that change nothing here,
and say so when they are set.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

from flambeau.core.config_module import accepted_beside, install

cuda_graphs: bool = False
"""Record launches on a GPU and replay them (`triton.cudagraphs` too)."""

max_autotune: bool = False
"""Measure cuBLAS against Triton for every product that a pointwise kernel finishes."""

native: bool = True
"""Print C++; without, the loop IR runs through NumPy."""

repeats: bool = True
"""Compile equal blocks of a deep network once, and call that several times."""

join_collectives: bool = True
"""Make one of small collectives that follow each other and do not need each other's results (in all processes, or in none)."""

fallback_random: bool = False
"""Draw random numbers as eager code does: such operators run as they are written, between what is compiled."""

cache: bool = True
"""Look compiled programs up in the disk cache, and keep them there."""

fx_graph_cache: bool = True
"""As `cache`: both have to be on."""

force_disable_caches: bool = False
"""Turn `cache` off."""

post_grad_custom_pre_pass: Callable | None = None
"""Called with each functional graph (`torch.fx.Graph`) before it is compiled; it may change it. Such graphs aren't kept on disk."""

post_grad_custom_post_pass: Callable | None = None
"""The same, after the other one."""

ACCEPTED: Final[dict[str, Any]] = accepted_beside(__file__)

COMPILING = ("cuda_graphs", "max_autotune", "native", "repeats", "join_collectives", "cache")
"""Settings that the compiled program depends on."""

install(__name__, ACCEPTED, shown_as="torch._inductor.config", own={"triton.cudagraphs": False},
        anyway={"emulate_precision_casts": True, "size_asserts": False, "worker_start_method": "fork"})


def effective(options: dict[str, Any]) -> dict[str, Any]:
    """The settings in `COMPILING` for one compilation: this module's, and over them the `options` of `torch.compile`.

    RuntimeError for an option that does not exist; one without effect has a warning.
    """
    chosen: dict[str, Any] = {name: globals()[name] for name in (*COMPILING, "fx_graph_cache", "force_disable_caches")}
    chosen["triton.cudagraphs"] = globals()["triton"].cudagraphs
    for name, value in options.items():
        if name in chosen:
            if not isinstance(value, bool):
                raise RuntimeError(f"Unexpected type of attr {name}, got {type(value).__name__} should be bool")
            chosen[name] = value
        elif name not in ACCEPTED:
            raise RuntimeError(f"Unexpected optimization option {name}, known options are {sorted({*chosen, *ACCEPTED})}")
        elif value != ACCEPTED[name]:
            warnings.warn(f"torch.compile(options={{{name!r}: {value!r}}}) has no effect here", UserWarning, stacklevel=3)
    return {**{name: chosen[name] for name in COMPILING},
            "cuda_graphs": chosen["cuda_graphs"] or chosen["triton.cudagraphs"],
            "cache": chosen["cache"] and chosen["fx_graph_cache"] and not chosen["force_disable_caches"]}
