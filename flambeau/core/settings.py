"""Settings of the process: what the environment says, and in one table, which three readers share, what changes what operators do.

A setting is a name in a class, dict or list that a program may write to at any time. Compiled code is used only while all of them
are as they were when it was captured (`dynamo.surroundings`); a write to one during capture goes into the graph or breaks it; and all
are part of the key of what is kept between processes (`aot.keys`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flambeau import _C

from .warned import Repeated, warn

ENVIRONMENT = {
    "CXX": "the C++ compiler: g++, or else clang++",
    "FLAMBEAU_CACHE_DIR": "where what is compiled is kept", "XDG_CACHE_HOME": "the folder that it is in, and that of TORCH_HOME",
    "FLAMBEAU_CACHE_LIMIT": "the most bytes of it: 4G",
    "FLAMBEAU_CXXFLAGS": "further flags for the C++ compiler", "FLAMBEAU_CXX_TIMEOUT": "seconds after which it counts as hung: 600",
    "FLAMBEAU_JOB_SECRET": "what the processes of a job show each other",
    "FLAMBEAU_ROUND": "how often the processes of a job have been started", "LOGLEVEL": "from which level launchers log: WARNING",
    "FLAMBEAU_REPORT": "the file of a report on all compilations",
    "FLAMBEAU_VERIFY": "check every graph and loop program after each pass: 0",
    "TORCHDYNAMO_REPRO_AFTER": "write a minimal program where the backend (dynamo) or what lies below aot (aot) fails",
    "TORCHDYNAMO_REPRO_LEVEL": "what a failure is: 2",
    "TORCH_COMPILE_DEBUG": "write a folder for each compilation: 0", "TORCH_COMPILE_DEBUG_DIR": "where: flambeau_debug",
    "TORCH_DISTRIBUTED_DEBUG": "OFF, INFO or DETAIL", "TORCH_HOME": "where torch.hub keeps what it fetches",
    "TORCH_NCCL_BLOCKING_WAIT": "let the host wait for collectives between GPUs, not the stream alone: 0",
    "TORCH_FORCE_WEIGHTS_ONLY_LOAD": "torch.load reads nothing but plain data, whatever is asked for: 0",
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "torch.load reads everything where weights_only is not given: 0",
    "TORCH_LOGS": "what to log", "TORCH_LOGS_FORMAT": "how a line is formatted", "TORCH_LOGS_OUT": "the file",
    **dict.fromkeys(("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "SLURM_NTASKS",
                     "SLURM_LAUNCH_NODE_IPADDR", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                     "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE"), "what a launcher tells the processes of a job"),
}
"""All variables that are read, what they say, and what goes without. oneDNN and MPI read further ones."""


def told(name: str, default: str = "") -> str:
    """What a variable of the environment says."""
    if name not in ENVIRONMENT:
        raise KeyError(f"{name} is not in the table of settings")
    return os.environ.get(name) or default


@dataclass(frozen=True)
class Setting:
    """The names `keys` in `owner`."""

    name: str
    owner: Any
    keys: tuple[Any, ...]
    traced: bool = False
    """Is it read where operators are traced, and nowhere later? Then a graph may change it in its middle."""

    def values(self) -> tuple[Any, ...]:
        """What it is now."""
        return tuple(get_setting(self.owner, key) for key in self.keys)


TABLE: dict[str, Setting] = {}
READ: dict[str, Callable[[], Any]] = {}
"""What native code holds and follows from settings of the table: for keys alone."""


def add_setting(name: str, owner: Any, *keys: Any, traced: bool = False) -> None:
    """Enter a setting. A name that is there already is an error."""
    if name in TABLE:
        raise ValueError(f"there is a setting called {name!r} already: {TABLE[name]}")
    TABLE[name] = Setting(name, owner, keys, traced)


def get_setting(owner: Any, key: Any) -> Any:
    """What one name is bound to."""
    if isinstance(owner, _C.DispatchState):
        return getattr(owner, key)
    return vars(owner)[key] if isinstance(owner, type) else owner[key]


def set_setting(owner: Any, key: Any, value: Any) -> None:
    """Bind one name."""
    if isinstance(owner, (type, _C.DispatchState)):
        setattr(owner, key, value)
    else:
        owner[key] = value


def bound_names() -> Iterator[tuple[Any, Any, Any]]:
    """(owner, key, what it is bound to) of every name in the table that all threads share."""
    for setting in TABLE.values():
        if not isinstance(setting.owner, _C.DispatchState):
            for key in setting.keys:
                yield setting.owner, key, get_setting(setting.owner, key)


def setting_at(owner: Any, key: Any = None) -> Setting | None:
    """The setting that a name, or any name, of this object is."""
    return next((s for s in TABLE.values() if s.owner is owner and (key is None or key in s.keys)), None)


def fingerprint() -> str:
    """All of them as text."""
    lines = [f"{name} {setting.values()}" for name, setting in TABLE.items()] + [f"{name} {read()!r}" for name, read in READ.items()]
    return "\n".join(sorted(lines))


class Numerics:
    """Settings that no room below the public namespace owns."""

    deterministic = 0
    """0: off; 1: warn; 2: error."""
    fill_uninitialized_memory = True
    """With `deterministic`: what `empty` gives is filled."""
    matmul_precision = "highest"


add_setting("numerics", Numerics, "deterministic", "fill_uninitialized_memory", "matmul_precision")


class Conversions:
    """How modules convert their parameters, and load them (`torch.__future__`)."""

    overwrite = False
    swap = False


add_setting("conversions", Conversions, "overwrite", "swap")


add_setting("warnings", Repeated, "always")


class Verification:
    """Is every graph and every loop program checked after each pass of the compiler? It changes no result, so it is no row of the
    table; only what was compiled while it is off is not found in the cache while it is on."""

    on = told("FLAMBEAU_VERIFY", "0") != "0"
    """`FLAMBEAU_VERIFY=1`, or set it here. Off unless asked for, since it takes compile time (docs/inductor.md)."""


READ["verification"] = lambda: Verification.on


def alert_not_deterministic(name: str) -> None:
    """For an operator that PyTorch documents as having no deterministic form: RuntimeError or a warning, as was asked for."""
    if not Numerics.deterministic:
        return
    text = (f"{name} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'. Turn it off "
            "for this operation alone, or use warn_only=True")
    if Numerics.deterministic == 2:
        raise RuntimeError(text)
    warn(text)
