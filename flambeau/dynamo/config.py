"""Settings of graph capture. Set them as attributes: `torch._dynamo.config.recompile_limit = 16`."""

from __future__ import annotations

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

max_trace_steps: int = 2_000_000
"""Bytecode instructions that one capture may interpret before it gives up (loops are unrolled)."""

eager_attempts: int = 3
"""After so many captures of one function that came to nothing, stop trying."""
