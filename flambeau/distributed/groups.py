"""The groups of this process: `init_process_group`, `new_group` and what can be asked about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ..core.device import device as Device
from ..core.settings import told
from . import rendezvous as _rendezvous
from .engines import mpi, nccl
from .engines.base import Engine
from .engines.fake import FakeEngine
from .engines.through_store import StoreEngine
from .process_group import DebugLevel, ProcessGroup, get_debug_level, set_debug_level_from_env
from .stores import HashStore, PrefixStore, Store
from .tcp_store import TCPStore

default_pg_timeout = timedelta(minutes=30)
_NOT_YET = "Default process group has not been initialized, please make sure to call init_process_group."


class Backend(str):
    """A backend's name, in lower case. "gloo" and "mpi" are MPI here, between CPUs, "nccl" is NCCL between GPUs; "fake" is a group in
    one process."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL, FAKE = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl", "fake"
    backend_list = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE]
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL}

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, not {name!r}")
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(cls, name: str, func: Any, extended_api: bool = False, devices: Any = None) -> None:
        """Not implemented: engines are MPI, NCCL and the fake one."""
        raise NotImplementedError(f"register_backend({name!r}) is not implemented; use \"gloo\" (served by MPI), \"nccl\" or \"fake\"")


class GroupMember:
    """What stands for membership."""

    NON_GROUP_MEMBER = -100

    WORLD: ProcessGroup | None = None


class _WorldOf(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The default group."""
        return GroupMember.WORLD

    @WORLD.setter
    def WORLD(cls, group: ProcessGroup | None) -> None:
        GroupMember.WORLD = group


class group(metaclass=_WorldOf):
    """Holds the default group, `group.WORLD`."""


class _Groups:
    """What this process has: its groups by name, the MPI ranks of the default group's processes (once MPI is needed), its GPU if that
    was said, and how often it began."""

    by_name: dict[str, ProcessGroup] = {}
    places: Sequence[int] | None = None
    gpu: int | None = None
    begun = 0
    named = 0
    own_store = False  # made here, not given


_CPU_ENGINES = {"gloo": "mpi", "mpi": "mpi", "fake": "fake"}


def _devices_of(backend: str | None) -> dict[str, str]:
    """{device type: backend} of "gloo", "cpu:gloo,cuda:nccl" or None."""
    if backend is None or backend == Backend.UNDEFINED:
        return {"cuda": "nccl"} if nccl.available() and not mpi.available() else {"cpu": "gloo", "cuda": "nccl"}
    if ":" not in backend:
        name: str = Backend(backend)
        check_backend(name)
        if name == "nccl":
            nccl.require()
            return {"cuda": "nccl"}
        return {"cpu": str(name), "cuda": str(name)}
    devices: dict[str, str] = {}
    for part in backend.split(","):
        kind, colon, name = part.strip().partition(":")
        if not colon or not kind or not name or kind in devices:
            raise ValueError(f"The custom backend string argument is invalid: {backend}; it is of the form \"cpu:gloo,cuda:nccl\"")
        check_backend(Backend(name))
        devices[kind] = str(Backend(name))
    return devices


class BackendConfig:
    """The backend of each device type that "gloo", or "cpu:gloo,cuda:nccl", comes to."""

    def __init__(self, backend: str) -> None:
        if ":" in backend:
            parts = [part.strip().partition(":") for part in backend.split(",")]
            if any(not colon or not kind or not name for kind, colon, name in parts) or len({kind for kind, _, _ in parts}) != len(parts):
                raise ValueError(f"The custom backend string argument is invalid: {backend}; it is of the form \"cpu:gloo,cuda:nccl\"")
            self.device_backend_map = {kind: str(Backend(name)) for kind, _, name in parts}
        else:
            self.device_backend_map = (dict(Backend.default_device_backend_map) if backend in ("", Backend.UNDEFINED)
                                       else dict.fromkeys(("cpu", "cuda"), str(Backend(backend))))

    def get_device_backend_map(self) -> dict[str, str]:
        """{device type: backend}."""
        return self.device_backend_map

    def __repr__(self) -> str:
        return ",".join(f"{kind}:{name}" for kind, name in self.device_backend_map.items())


def check_backend(name: str) -> None:
    """AssertionError for a name that is no backend's, RuntimeError for one that is not here."""
    if name not in Backend.backend_list:
        raise AssertionError(f"Unknown backend type {name}")
    if name not in (*_CPU_ENGINES, "nccl"):
        raise RuntimeError(f"Distributed package doesn't have {name.upper()} built in; use \"gloo\" or \"mpi\" on CPUs")


# -- beginning and end ----------------------------------------------------------------------------------------------
def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: timedelta | None = None, world_size: int = -1, rank: int = -1,
    store: Store | None = None, group_name: str = "", pg_options: Any = None, device_id: Any = None,
) -> None:
    """Find the other processes, by `init_method` (env:// unless said otherwise) or a `store`, and make the default group of all.

    "gloo" and "mpi" are MPI between CPUs (pip install 'flambeau[distributed]'), "nccl" is NCCL between GPUs; "fake" is rank `rank` of
    `world_size` without others. `device_id`: the GPU of this process, for what no tensor says (barriers, objects). Names and options of
    groups (`group_name`, `pg_options`) mean nothing here.
    """
    del group_name, pg_options
    if GroupMember.WORLD is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    set_debug_level_from_env()
    seconds = _seconds(timeout)
    devices, _Groups.own_store = _devices_of(backend), store is None
    if store is not None:
        if world_size <= 0 or rank < 0:
            raise AssertionError("world_size must be positive and rank non-negative if using store")
    elif set(devices.values()) == {"fake"} and world_size > 0 and rank >= 0:
        store = HashStore()
    else:
        store, rank, world_size = next(_rendezvous.rendezvous(init_method or "env://", rank, world_size, timeout=seconds))
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} does not exist in a world of {world_size} processes")
    store.set_timeout(seconds)
    _Groups.begun += 1
    here = PrefixStore(f"default_pg/{_Groups.begun - 1}", store)
    _Groups.places, _Groups.gpu = None, _gpu(device_id)
    if "fake" not in devices.values():
        _meet(here, rank, world_size, seconds)
        _join(devices, here, rank, world_size, seconds)
    GroupMember.WORLD = _make(range(world_size), rank, "0", devices, seconds, here, "default_pg")
    _Groups.named = 1


def _join(devices: dict[str, str], store: Store, rank: int, size: int, timeout: timedelta) -> None:
    """Make all processes one MPI job, if these backends need it and they are none yet."""
    if _Groups.places is None and devices.get("cpu") in _CPU_ENGINES:
        _Groups.places = mpi.join(store, rank, size, timeout.total_seconds(), _address(store, rank))


def _gpu(device_id: Any) -> int | None:
    """The number of the GPU that is meant."""
    where = None if device_id is None else Device("cuda", device_id) if isinstance(device_id, int) else Device(device_id)
    return where.index if where is not None and where.type == "cuda" else None


def _seconds(timeout: timedelta | None) -> timedelta:
    if timeout is None:
        return default_pg_timeout
    if not isinstance(timeout, timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    return timeout


def _meet(store: Store, rank: int, size: int, timeout: timedelta) -> None:
    """Wait for all; ValueError if a rank is there twice or thinks of another number of processes."""
    if store.add(f"came/{rank}", 1) > 1:
        raise ValueError(f"rank {rank} of {size} is there twice: another process with this rank found the same store")
    store.set(f"size/{rank}", str(size))
    store.add("came", 1)
    names = [f"size/{r}" for r in range(size)]
    try:
        store.wait(names, timeout)
    except RuntimeError as error:
        missing = [r for r, name in enumerate(names) if not store.check([name])]
        raise type(error)(f"Timed out after {timeout.total_seconds():g} s waiting for {size} processes: rank(s) "
                          f"{', '.join(map(str, missing))} did not come. {error}") from None
    sizes = {r: int(store.get(name)) for r, name in enumerate(names)}
    if other := {r: n for r, n in sizes.items() if n != size}:
        raise ValueError(f"the processes do not agree on the world size: rank {rank} has {size}, others {other} (rank: world size)")


def _address(store: Store, rank: int) -> str:
    """An address of this machine that the other processes can reach."""
    inner = store._underlying_non_prefix_store if isinstance(store, PrefixStore) else store
    if not isinstance(inner, TCPStore):
        return "127.0.0.1"
    mine = inner.address().removeprefix("::ffff:")
    return inner.host if mine in ("127.0.0.1", "::1") and rank == 0 else mine


def _make(ranks: Sequence[int], rank: int, name: str, devices: dict[str, str], timeout: timedelta, store: Store, desc: str) -> ProcessGroup:
    """The group of these ranks of the default group, in which this process is number `rank`."""
    engines: dict[str, Engine] = {}
    control: Any = None
    if "fake" in devices.values():
        engines["cpu"] = FakeEngine(rank, len(ranks))
    else:
        checks = get_debug_level() is DebugLevel.DETAIL
        if devices.get("cpu") in _CPU_ENGINES:
            assert _Groups.places is not None
            places, number = [_Groups.places[r] for r in ranks], int(name) if name.isdigit() else hash_of(name)
            engines["cpu"] = mpi.MPIEngine(places, 2 * number)
            control = mpi.MPIEngine(places, 2 * number + 1) if checks else None
        elif checks:
            control = StoreEngine(rank, len(ranks), store)
        if devices.get("cuda") == "nccl":
            engines["cuda"] = nccl.NCCLEngine(rank, len(ranks), store, timeout.total_seconds(), _Groups.gpu)
    made = ProcessGroup(engines, ranks, name, devices, timeout, store, control, desc)
    _Groups.by_name[name] = made
    return made


def hash_of(name: str) -> int:
    """The same number in all processes."""
    return sum(byte * 31 ** i for i, byte in enumerate(name.encode())) % 14000


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Forget a group; the default one with all others. MPI stays, for groups to come."""
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    which = group or GroupMember.WORLD
    if which is None:
        raise AssertionError("Process group cannot be None")
    if which not in _Groups.by_name.values():
        raise ValueError(f"{which!r} is not a group of this process (any more)")
    gone = list(_Groups.by_name.values()) if which is GroupMember.WORLD else [which]
    for one in gone:
        one.shutdown()
        _Groups.by_name = {name: g for name, g in _Groups.by_name.items() if g is not one}
    if which is GroupMember.WORLD:
        _farewell(which)
        GroupMember.WORLD = None


def _farewell(world: ProcessGroup) -> None:
    """Who serves the store stays a moment, until the others need it no more."""
    store = world.get_group_store()
    inner = store._underlying_non_prefix_store if isinstance(store, PrefixStore) else store
    if _Groups.own_store and isinstance(inner, TCPStore):
        inner.leave()


# -- more groups -----------------------------------------------------------------------------------------------------
def default_group(given: ProcessGroup | None = None) -> ProcessGroup:
    """The group that was given, or the default one; ValueError where there is none yet, and of what is no group."""
    if isinstance(given, ProcessGroup):
        return given
    if given is not None:
        raise ValueError(f"Group {given} is not registered, please create group with torch.distributed.new_group API")
    if GroupMember.WORLD is None:
        raise ValueError(_NOT_YET)
    return GroupMember.WORLD


_get_default_group = default_group


def all_groups() -> list[ProcessGroup]:
    """The groups that this process is in."""
    return list(_Groups.by_name.values())


def new_group(
    ranks: Sequence[int] | None = None, timeout: timedelta | None = None, backend: str | None = None, pg_options: Any = None,
    use_local_synchronization: bool = False, group_desc: str | None = None, device_id: Any = None, sort_ranks: bool = True,
) -> Any:
    """A group of some of the processes. All processes call it, in the same order (or with `use_local_synchronization` its members
    alone); GroupMember.NON_GROUP_MEMBER for those that are not in it."""
    world = default_group()
    del pg_options, device_id  # the GPU is the process's
    members = list(range(world.size())) if ranks is None else [int(r) for r in ranks]
    if len(members) > world.size():
        raise ValueError("the new group's world size should be less or equal to the world size set by init_process_group")
    if len(set(members)) != len(members):
        raise ValueError(f"ranks list must not contain duplicate entries, got {members}")
    if any(not 0 <= r < world.size() for r in members):
        raise ValueError(f"the new group's ranks {members} should be within the world of {world.size()} processes")
    members = sorted(members) if sort_ranks else members
    if use_local_synchronization:
        name = f"{'_'.join(map(str, members))}:{sum(n.startswith('_'.join(map(str, members)) + ':') for n in _Groups.by_name)}"
    else:
        name, _Groups.named = str(_Groups.named), _Groups.named + 1
    devices = world.backends if backend is None or world.calls is not None else _devices_of(backend)
    wait = world.timeout if timeout is None else _seconds(timeout)
    if world.calls is None:
        if use_local_synchronization and _Groups.places is None and devices.get("cpu") in _CPU_ENGINES:
            raise NotImplementedError(f"new_group(backend={backend!r}, use_local_synchronization=True) in a world between GPUs is not "
                                      "implemented: MPI begins in all processes; init_process_group(\"cpu:gloo,cuda:nccl\") begins it")
        _join(devices, PrefixStore(f"mpi/{name}", world.get_group_store()), world.rank(), world.size(), wait)
    if world.rank() not in members:
        return GroupMember.NON_GROUP_MEMBER
    store = PrefixStore(f"group/{name}", world.get_group_store())
    if world.calls is None:
        _meet(store, members.index(world.rank()), len(members), wait)
    return _make(members, members.index(world.rank()), name, devices, wait, store, group_desc or "undefined")


def shrink_group(ranks_to_exclude: Sequence[int], group: ProcessGroup | None = None, shrink_flags: int = 0, pg_options: Any = None) -> Any:
    """A new group of those of a group (the default one) that are not excluded, by their ranks in it. Those that stay call it."""
    if shrink_flags or pg_options is not None:
        raise NotImplementedError(f"shrink_group(shrink_flags={shrink_flags}, pg_options={pg_options!r}) is not implemented: operations "
                                  "under way are not given up, and groups have no options; leave both out")
    world = default_group() if group is None else group
    gone = {int(r) for r in ranks_to_exclude}
    if not gone:
        raise ValueError("ranks_to_exclude cannot be empty")
    if not gone <= set(range(world.size())):
        raise ValueError(f"Some ranks in ranks_to_exclude are out of range for the group of {world.size()}: {sorted(gone)}")
    if world.rank() in gone:
        raise RuntimeError(f"rank {world.rank()} is excluded: it does not call shrink_group")
    members = get_process_group_ranks(world)
    return new_group([r for i, r in enumerate(members) if i not in gone], use_local_synchronization=True)


def new_subgroups(group_size: int | None = None, group: ProcessGroup | None = None, timeout: timedelta | None = None,
                  backend: str | None = None, pg_options: Any = None, group_desc: str | None = None) -> tuple[Any, list]:
    """Groups of `group_size` consecutive processes (those of one machine, if not said): (this process's, all)."""
    whole = default_group(group)
    if group_size is None:
        group_size = int(told("LOCAL_WORLD_SIZE") or whole.size())
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if group_size > whole.size():
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({whole.size()})")
    if whole.size() % group_size:
        raise ValueError(f"The world size ({whole.size()}) must be divisible by 'group_size={group_size}'")
    ranks = get_process_group_ranks(whole)
    parts = [ranks[i : i + group_size] for i in range(0, len(ranks), group_size)]
    return new_subgroups_by_enumeration(parts, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(ranks_per_subgroup_list: Sequence[Sequence[int]], timeout: timedelta | None = None,
                                 backend: str | None = None, pg_options: Any = None, group_desc: str | None = None) -> tuple[Any, list]:
    """Groups of these ranks, none in two: (this process's or None, all)."""
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    every = [r for ranks in ranks_per_subgroup_list for r in ranks]
    if len(set(every)) != len(every):
        raise ValueError(f"a rank appears in two subgroups: {[list(r) for r in ranks_per_subgroup_list]}")
    mine, groups = None, []
    for ranks in ranks_per_subgroup_list:
        made = new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        groups.append(made)
        if default_group().rank() in ranks:
            mine = made
    return mine, groups


def split_group(parent_pg: ProcessGroup | None = None, split_ranks: Sequence[Sequence[int]] | None = None, timeout: timedelta | None = None,
                pg_options: Any = None, group_desc: str | None = None, backend: Any = None) -> ProcessGroup | None:
    """This process's part of a group that is split into these lists of its ranks; None for one that is in no part."""
    parent = default_group(parent_pg)
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    ranks = get_process_group_ranks(parent)
    mine, _ = new_subgroups_by_enumeration([[ranks[r] for r in part] for part in split_ranks], timeout, backend, pg_options, group_desc)
    return mine


# -- questions ---------------------------------------------------------------------------------------------------------
def is_initialized() -> bool:
    """Whether there is a default group."""
    return GroupMember.WORLD is not None


def get_rank(group: Any = None) -> int:
    """This process's number in a group; -1 if it is not in it."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else default_group(group).rank()


def get_world_size(group: Any = None) -> int:
    """How many processes a group has; -1 if this one is not in it."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else default_group(group).size()


def get_backend(group: ProcessGroup | None = None) -> Backend:
    """The name of a group's backend, as it was asked for: "gloo" is MPI here."""
    return Backend(default_group(group).name())


def get_backend_config(group: ProcessGroup | None = None) -> str:
    """The backends of a group by device: "cpu:gloo,cuda:gloo"."""
    return ",".join(f"{device}:{name}" for device, name in default_group(group).backends.items())


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """The numbers that a group's processes have in the default group."""
    return list(default_group(group)._ranks)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The number in `group` of a process of the default group."""
    if group is GroupMember.WORLD:
        return global_rank
    if global_rank not in group._ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return group._ranks.index(global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The number in the default group of a process of `group`."""
    if group is GroupMember.WORLD:
        return group_rank
    if not 0 <= group_rank < group.size():
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return group._ranks[group_rank]


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The number of this process on its machine, which the launcher says in LOCAL_RANK."""
    if told("LOCAL_RANK"):
        return int(told("LOCAL_RANK"))
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work")


def get_pg_count() -> int:
    """How many groups there are."""
    return len(_Groups.by_name)


def get_default_backend_for_device(device: Any) -> str:
    """The backend for tensors of a device."""
    kind = device.split(":")[0] if isinstance(device, str) else Device(device).type
    if kind not in Backend.default_device_backend_map:
        raise ValueError(f"Default backend not registered for device : {device}")
    return Backend.default_device_backend_map[kind]


def is_available() -> bool:
    """True: the package is there. Whether MPI is, `is_mpi_available` says."""
    return True


def is_mpi_available() -> bool:
    """Whether mpi4py and an MPI library are installed."""
    return mpi.available()


def is_gloo_available() -> bool:
    """Whether "gloo" can be asked for: MPI serves it."""
    return mpi.available()


def is_nccl_available() -> bool:
    """Whether there are a GPU, CuPy and NCCL."""
    return nccl.available()


def is_ucc_available() -> bool:
    """False: there is no such engine."""
    return False


is_xccl_available = is_ucc_available


def is_backend_available(backend: str) -> bool:
    """Whether `init_process_group(backend)` works here."""
    name = backend.lower()
    return name == "fake" or (name in _CPU_ENGINES and mpi.available()) or (name == "nccl" and nccl.available())


def is_torchelastic_launched() -> bool:
    """Whether torchrun started this process."""
    return told("TORCHELASTIC_RUN_ID") != ""
