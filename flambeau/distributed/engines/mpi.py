"""Collectives over MPI (mpi4py). Each group has a communicator; operations are MPI's nonblocking ones, which `Work` asks after.

Processes that nothing but a store brought together are joined by `join`: see `pmi`. Half-precision values are added up in float32.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DistBackendError
from ..reduce_op import RedOpType
from ..stores import PrefixStore, Store
from .base import HostEngine, Posted
from .pmi import PMIServer

_INSTALL = ("torch.distributed between CPUs needs MPI: pip install 'flambeau[distributed]' (or: pip install mpi4py mpich), or "
            "use backend=\"fake\" for a group in one process")


def load() -> Any:
    """mpi4py's module MPI, not initialised; ImportError that says what to install."""
    # Read when the library is loaded: a UCX of several transports warns of those that a container lacks, and its handlers of
    # signals would hide Python's own.
    os.environ.setdefault("UCX_LOG_LEVEL", "error")
    os.environ.setdefault("UCX_HANDLE_ERRORS", "none")
    try:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: without a library to load
        raise ImportError(f"{_INSTALL}. ({type(error).__name__}: {error})") from None
    return MPI


def available() -> bool:
    """Whether mpi4py and an MPI library are there."""
    try:
        load()
    except ImportError:
        return False
    return True


_LAUNCHED = ("PMI_FD", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_MPI_TYPE")


def launched() -> bool:
    """Whether mpiexec, mpirun or srun started this process as one of a job."""
    return any(name in os.environ for name in _LAUNCHED)


def launched_as() -> tuple[int, int]:
    """(rank, size) in the job that mpiexec started."""
    _initialise()
    world = load().COMM_WORLD
    return world.rank, world.size


class _Job:
    """The MPI job that this process belongs to, from its first group to its end."""

    name: str | None = None
    world: Any = None
    session: Any = None     # where the world is that of one


def _initialise(timeout: float = 300.0) -> None:
    """Begin MPI, in a thread: mpi4py would keep the interpreter to itself, which rank 0 needs to answer the others meanwhile, and what
    does not end could not be given up."""
    MPI = load()
    if _Job.world is not None:
        return
    if not MPI.Is_initialized():
        _within(timeout, "MPI_Init_thread", None, None, MPI.THREAD_MULTIPLE, ctypes.byref(ctypes.c_int()))
        for comm in (MPI.COMM_WORLD, MPI.COMM_SELF):
            comm.Set_errhandler(MPI.ERRORS_RETURN)
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise DistBackendError(f"this MPI lets one thread at a time use it, which is not enough: {MPI.Get_library_version()}")
    _Job.world = MPI.COMM_WORLD


def _begin_again(timeout: float) -> None:
    """MPI as a job of several processes where somebody has begun it for this one alone: what begins twice is a session."""
    MPI = load()
    if MPI.Is_initialized() and not MPI.Is_finalized():
        MPI.Finalize()
    handle = ctypes.c_int if MPI._sizeof(MPI.Session) == ctypes.sizeof(ctypes.c_int) else ctypes.c_void_p
    info, session = MPI.Info.Create({"mpi_thread_support_level": "MPI_THREAD_MULTIPLE"}), handle()
    _within(timeout, "MPI_Session_init", handle(MPI._handleof(info)), handle(MPI._handleof(MPI.ERRORS_RETURN)), ctypes.byref(session))
    _Job.session = MPI.Session.fromhandle((session.value or 0) & (1 << 8 * ctypes.sizeof(handle)) - 1)
    _Job.world = MPI.Intracomm.Create_from_group(_Job.session.Create_group("mpi://WORLD"), "flambeau", MPI.INFO_NULL, MPI.ERRORS_RETURN)


def _within(timeout: float, function: str, *args: Any) -> None:
    """Call a function of MPI, of a library that mpi4py's is linked with; DistBackendError where it does not end."""
    begin = getattr(ctypes.CDLL(load().__file__), function)
    thread = threading.Thread(target=begin, args=args, daemon=True)
    thread.start()
    thread.join(timeout)
    if thread.is_alive():
        raise DistBackendError(f"MPI did not begin within {timeout:g} s: another process of the job has ended or hangs")


def _this_host() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()}.{boot.read_text().strip() if boot.exists() else ''}"


def join(store: Store, rank: int, size: int, timeout: float, address: str) -> list[int]:
    """Become one MPI job with the other processes that have this store; the ranks of all there. `address`: this machine's, for others."""
    MPI = load()
    if size == 1:
        _initialise()
        with contextlib.suppress(OSError):
            os.unlink(f"/dev/shm/mpich_shm_{os.getpid():x}_0")   # of a process alone, which nobody else opens
        return [_Job.world.rank]
    table = PrefixStore("mpi", store)
    table.set(f"host/{rank}", _this_host())
    if (MPI.Is_initialized() and _Job.world is None and MPI.COMM_WORLD.size == 1) and not launched():
        _Job.name = _ALONE      # somebody has begun MPI, as libraries do that ask it whether there is an mpirun
    elif MPI.Is_initialized() or launched():
        _initialise()
    table.set(f"job/{rank}", f"{_Job.name or ''}:{_Job.world.rank if _Job.world is not None else -1}")
    jobs = [table.get(f"job/{r}").decode().rpartition(":") for r in range(size)]
    if _Job.world is None and all(int(number) < 0 for _, _, number in jobs):
        _start_job(MPI, table, rank, size, timeout, address, any(name == _ALONE for name, _, _ in jobs))
        return list(range(size))
    places = [int(number) for _, _, number in jobs]
    if len({name for name, _, _ in jobs}) > 1 or min(places) < 0 or len(set(places)) < size or _Job.world.size <= max(places):
        raise DistBackendError(f"these {size} processes are not of one MPI job (their jobs and ranks: {jobs}). A process stays in the job "
                               "of its first init_process_group: start new processes for other groups of them")
    return places


_ALONE = "alone"


def _start_job(MPI: Any, table: Store, rank: int, size: int, timeout: float, address: str, again: bool) -> None:
    """`again`: MPI has begun in some of the processes, and ended. Then they use no shared memory, which MPICH has measured for one."""
    if "Open MPI" in MPI.Get_library_version():
        raise DistBackendError("Open MPI cannot join processes that mpirun did not start: start the program with mpirun, or "
                               "pip install mpich, whose processes come from anywhere (MPI4PY_LIBMPI says which library is loaded)")
    if rank == 0:
        hosts = [table.get(f"host/{r}").decode() for r in range(size)]
        where = "127.0.0.1" if len(set(hosts)) == 1 else address
        server = PMIServer(where, [f"{host}.{r}" for r, host in enumerate(hosts)] if again else hosts, timeout)
        table.set("name", secrets.token_hex(8))
        for r, number in enumerate(server.tokens):
            table.set(f"pmi/{r}", f"{where}:{server.port}|{number}")
    port, _, token = table.get(f"pmi/{rank}").decode().partition("|")
    os.environ.update(PMI_PORT=port, PMI_ID=token)
    try:
        _begin_again(timeout) if again else _initialise(timeout)
    finally:
        for name in ("PMI_PORT", "PMI_ID"):
            os.environ.pop(name, None)
    if _Job.world.size != size or _Job.world.rank != rank:
        raise DistBackendError(f"MPI made rank {_Job.world.rank} of {_Job.world.size} of rank {rank} of {size}; its library does not read "
                               f"PMI_PORT: {MPI.Get_library_version().splitlines()[0]}")
    _Job.name = table.get("name").decode()
    _remove_shared_files(MPI)


def _remove_shared_files(MPI: Any) -> None:
    """Take away the names of MPI's shared memory: all that need it have it now, and a killed process leaves nothing behind."""
    _Job.world.Barrier()
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for name in {line.split(maxsplit=5)[5].strip() for line in maps if "/dev/shm/mpich_shm" in line}:
            with contextlib.suppress(OSError):
                os.unlink(name)


# -- reductions -------------------------------------------------------------------------------------------------
_OPS = {RedOpType.SUM: "SUM", RedOpType.AVG: "SUM", RedOpType.PREMUL_SUM: "SUM", RedOpType.PRODUCT: "PROD", RedOpType.MIN: "MIN",
        RedOpType.MAX: "MAX", RedOpType.BAND: "BAND", RedOpType.BOR: "BOR", RedOpType.BXOR: "BXOR"}
_OF_BOOLS = {"SUM": "LOR", "MAX": "LOR", "PROD": "LAND", "MIN": "LAND"}
_TYPES = {
    "int8": "SINT8_T", "int16": "SINT16_T", "int32": "SINT32_T", "int64": "SINT64_T", "uint8": "UINT8_T", "uint16": "UINT16_T",
    "uint32": "UINT32_T", "uint64": "UINT64_T", "float32": "FLOAT", "float64": "DOUBLE", "complex64": "C_FLOAT_COMPLEX",
    "complex128": "C_DOUBLE_COMPLEX", "bool": "UINT8_T",
}




class MPIEngine(HostEngine):
    """The operations of one group, on a communicator of its own."""

    def __init__(self, places: Sequence[int], tag: int) -> None:
        """Of the processes at `places` in the MPI job, in this order; all of them make one, with the same `tag`."""
        self._MPI = load()
        self._comm = _Job.world.Create_group(_Job.world.group.Incl(list(places)), tag % 30000)
        self.rank, self.size = self._comm.rank, self._comm.size

    def _typed(self, array: np.ndarray) -> list:
        return [array.reshape(-1).view(np.uint8), array.size, getattr(self._MPI, _TYPES[array.dtype.name])]

    def _raw(self, array: np.ndarray) -> list:
        return [array.reshape(-1).view(np.uint8), array.nbytes, self._MPI.BYTE]

    def _op(self, op: RedOpType, dtype: np.dtype) -> Any:
        name = _OPS[op]
        return getattr(self._MPI, _OF_BOOLS.get(name, name) if dtype == np.bool_ else name)

    def _brought(self, array: np.ndarray, op: RedOpType, factor: Any) -> np.ndarray:
        """`array` as it goes into a reduction: `array` itself where MPI knows its dtype."""
        if array.dtype.name not in _TYPES:  # bfloat16, float16, float8
            array = array.astype(np.float32)
        return array * np.asarray(factor, array.dtype) if op is RedOpType.PREMUL_SUM else array

    def _taken(self, out: np.ndarray, found: np.ndarray, op: RedOpType) -> Callable[[], None] | None:
        """What leaves the result `found` in `out`."""
        if op is RedOpType.AVG:
            return lambda: np.copyto(out, found / np.asarray(self.size, found.dtype), casting="unsafe")
        return None if found is out else lambda: np.copyto(out, found, casting="unsafe")

    def all_reduce(self, array: np.ndarray, op: RedOpType, factor: Any = None) -> Posted:
        """Everyone's `array` combined, into everyone's."""
        wide = self._brought(array, op, factor)
        request = self._comm.Iallreduce(self._MPI.IN_PLACE, self._typed(wide), self._op(op, array.dtype))
        return Posted(request, self._taken(array, wide, op))

    def reduce(self, array: np.ndarray, dst: int, op: RedOpType, factor: Any = None) -> Posted:
        """Everyone's `array` combined, into that of `dst`."""
        wide, how = self._brought(array, op, factor), self._op(op, array.dtype)
        if self.rank != dst:
            return Posted(self._comm.Ireduce(self._typed(wide), None, how, dst))
        return Posted(self._comm.Ireduce(self._MPI.IN_PLACE, self._typed(wide), how, dst), self._taken(array, wide, op))

    def reduce_scatter(self, out: np.ndarray, arrays: np.ndarray, op: RedOpType, factor: Any = None) -> Posted:
        """Everyone's `arrays` combined, a part for each rank, into its `out`."""
        wide = self._brought(arrays, op, factor)
        found = out if wide.dtype == out.dtype else np.empty(out.shape, wide.dtype)
        data, _, kind = self._typed(wide)
        request = self._comm.Ireduce_scatter_block([data, found.size, kind], self._typed(found), self._op(op, out.dtype))
        return Posted(request, self._taken(out, found, op))

    # -- bytes from here to there -----------------------------------------------------------------------------------------------------
    def broadcast(self, array: np.ndarray, src: int) -> Posted:
        """`array` of `src` into everyone's."""
        return Posted(self._comm.Ibcast(self._raw(array), src))

    def all_gather(self, out: np.ndarray, array: np.ndarray) -> Posted:
        """Everyone's `array`, one after another, into everyone's `out`."""
        return Posted(self._comm.Iallgather(self._raw(array), [out.reshape(-1).view(np.uint8), array.nbytes, self._MPI.BYTE]))

    def gather(self, out: np.ndarray | None, array: np.ndarray, dst: int) -> Posted:
        """Everyone's `array`, one after another, into `out` of `dst`."""
        into = None if out is None else [out.reshape(-1).view(np.uint8), array.nbytes, self._MPI.BYTE]
        return Posted(self._comm.Igather(self._raw(array), into, dst))

    def scatter(self, out: np.ndarray, arrays: np.ndarray | None, src: int) -> Posted:
        """The parts of `arrays` of `src`, one for each rank, into everyone's `out`."""
        parts = None if arrays is None else [arrays.reshape(-1).view(np.uint8), out.nbytes, self._MPI.BYTE]
        return Posted(self._comm.Iscatter(parts, self._raw(out), src))

    def all_to_all(self, out: np.ndarray, array: np.ndarray, received: Sequence[int], sent: Sequence[int]) -> Posted:
        """`sent[r]` elements of `array` to each rank r, and `received[r]` from it into `out`."""
        def side(data: np.ndarray, counts: Sequence[int]) -> list:
            sizes = np.asarray(counts, np.int64) * data.itemsize
            return [data.reshape(-1).view(np.uint8), (sizes, np.cumsum(sizes) - sizes), self._MPI.BYTE]

        return Posted(self._comm.Ialltoallv(side(array, sent), side(out, received)))

    def barrier(self) -> Posted:
        """Done when all ranks have come here."""
        return Posted(self._comm.Ibarrier())

    def send(self, array: np.ndarray, dst: int, tag: int) -> Posted:
        """`array` to `dst`."""
        return Posted(self._comm.Isend(self._raw(array), dst, self._tag(tag)))

    def recv(self, array: np.ndarray, src: int | None, tag: int, came: Callable[[int], None]) -> Posted:
        """Into `array` from `src` or, with None, from anyone."""
        MPI = self._MPI
        request = self._comm.Irecv(self._raw(array), MPI.ANY_SOURCE if src is None else src, self._tag(tag))
        return Posted(_Received(request, MPI.Status(), array.nbytes, came))

    def _tag(self, tag: int) -> int:
        most = self._comm.Get_attr(self._MPI.TAG_UB)
        if not 0 <= tag <= most:
            raise ValueError(f"tag={tag}: MPI's tags are 0 to {most}")
        return tag

    def close(self) -> None:
        """Nothing more comes. The communicator stays: to free one is a collective, and a peer may have gone."""


class _Received:
    """The request of a receive, which must get all the bytes that there is room for."""

    def __init__(self, request: Any, status: Any, size: int, came: Callable[[int], None]) -> None:
        self.request, self.status, self.size, self.came = request, status, size, came

    def Test(self) -> bool:
        """Whether it is done."""
        if not self.request.Test(self.status):
            return False
        if (got := self.status.Get_elements(load().BYTE)) != self.size:
            raise RuntimeError(f"{got} bytes came for a tensor of {self.size}; sender and receiver need tensors of one size and dtype")
        self.came(self.status.Get_source())
        return True
