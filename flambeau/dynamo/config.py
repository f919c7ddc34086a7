"""Settings of graph capture. Set them as attributes: `torch._dynamo.config.recompile_limit = 16`.

A name that does not exist is an AttributeError; `ACCEPTED` are PyTorch's that change nothing here, and say so when they are set.
"""

from __future__ import annotations

from typing import Any, Final

from ..core.config_module import accepted_beside, install
from ..core.settings import told

recompile_limit: int = 8
"""How many versions of one function are kept for one module (and one wrapped function) before it is run eagerly."""

fail_on_recompile_limit_hit: bool = False
"""Raise `RecompileLimitExceeded` at a limit, instead of warning once and running eagerly what no version fits."""

accumulated_recompile_limit: int = 256
"""How many versions of one code object are kept in all, for all modules and functions that share it."""

suppress_errors: bool = False
"""On an error of the backend: warn and run the frame eagerly, instead of raising `BackendCompilerFailed`."""

automatic_dynamic_shapes: bool = True
"""When a function is compiled again because one size changed, treat this size as a variable."""

assume_static_by_default: bool = True
"""Compile for the sizes seen first (`dynamic=True` turns this off for one function)."""

specialize_int: bool = False
"""Never treat a Python int argument as a variable, even when it changes."""

max_trace_steps: int = 1_000_000
"""Bytecode instructions and elements of iterables that one capture may go through before it gives up (loops are unrolled)."""

eager_attempts: int = 3
"""After so many captures of one function that came to nothing, stop trying."""

specialize_float: bool = False
"""Never treat a Python float argument as a variable, even when it changes."""

dynamic_shapes: bool = True
"""May sizes be variables at all? (`dynamic=False` says so for one function.)"""

error_on_recompile: bool = False
"""Raise `RecompileError` where a function that is compiled would be compiled once more."""

disable: bool = False
"""Run everything as it is written."""

repro_after: str | None = told("TORCHDYNAMO_REPRO_AFTER") or None
"""Write a minimal program when the backend ("dynamo"), or what lies below aot ("aot"), fails."""

repro_level: int = int(told("TORCHDYNAMO_REPRO_LEVEL", "2"))
"""What is a failure: 1 or 2, an exception; 3 and 4, results that differ from eager's too; the smallest program is looked for from 2 on."""

ACCEPTED: Final[dict[str, Any]] = accepted_beside(__file__)

install(__name__, ACCEPTED, shown_as="torch._dynamo.config",
        anyway={"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True, "inline_inbuilt_nn_modules": True,
                "capture_func_transforms": True, "allow_rnn": True, "verbose": True,
                "guard_nn_modules": True, "install_free_tensors": True},
        aliases={"cache_size_limit": "recompile_limit", "accumulated_cache_size_limit": "accumulated_recompile_limit"})
