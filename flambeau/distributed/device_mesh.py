"""DeviceMesh: the processes in an array of several dimensions, with a group along each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from ..core.dtypes import int32
from ..core.tensor import Tensor, from_array
from .groups import (
    GroupMember,
    all_groups,
    check_backend,
    default_group,
    get_process_group_ranks,
    init_process_group,
    is_initialized,
    new_group,
)
from .objects import all_gather_object
from .process_group import ProcessGroup

_current: list[DeviceMesh] = []


class _Root:
    """What all parts of one mesh share: the whole, the groups, by the ranks of this process's row, and the flattened meshes by name."""

    def __init__(self) -> None:
        self.groups: dict[tuple[int, ...], ProcessGroup] = {}
        self.flat: dict[str, DeviceMesh] = {}
        self.whole: DeviceMesh | None = None


class DeviceMesh:
    """An array of ranks (of the default group), whose dimensions may have names. All processes make it, with the same array.

    `mesh["dp"]` or `mesh["dp", "tp"]` is this process's part along those dimensions. Nothing is communicated but in making groups.
    """

    _flambeau_fact = "identity"  # by which a captured graph knows it

    def __init__(self, device_type: str, mesh: Any, *, mesh_dim_names: Sequence[str] | None = None) -> None:
        if mesh is None:
            raise ValueError("Must provide either `mesh` or `_layout`: DeviceMesh() needs an array of ranks")
        array = np.array(mesh.tolist() if isinstance(mesh, Tensor) else mesh, np.int64)
        _check_type(device_type)
        _check_names(mesh_dim_names, array.ndim)
        world = default_group() if is_initialized() else _begin()
        if array.size > world.size():
            raise RuntimeError(f"Mesh should not be bigger than default world size {world.size()}, but found {array.size} ranks!")
        if len(np.unique(array)) != array.size:
            raise RuntimeError(f"DeviceMesh cannot have duplicate values, but found {array.tolist()}")
        self._set(device_type, array, mesh_dim_names, _Root())
        for dim in range(array.ndim):
            self._group_rows(np.moveaxis(array, dim, -1).reshape(-1, array.shape[dim]), self._name(dim))

    def _set(self, device_type: str, array: np.ndarray, names: Sequence[str] | None, root: _Root) -> None:
        self.device_type, self._array, self._root = device_type, array, root
        root.whole = root.whole or self
        self.mesh_dim_names = None if names is None else tuple(names)
        found = np.argwhere(array == default_group().rank())
        self._coordinate = tuple(int(i) for i in found[0]) if len(found) else None

    def _name(self, dim: int) -> str:
        return "mesh_" + (self.mesh_dim_names[dim] if self.mesh_dim_names else f"dim_{dim}")

    def _group_rows(self, rows: np.ndarray, desc: str) -> None:
        """A group for each row, one of which is this process's."""
        world = default_group()
        for ranks in rows.tolist():
            if ranks == list(world._ranks):
                self._root.groups[tuple(ranks)] = world
                continue
            made = new_group(ranks, group_desc=desc, sort_ranks=False)
            if made is not GroupMember.NON_GROUP_MEMBER:
                self._root.groups[tuple(ranks)] = made

    # -- what it is ------------------------------------------------------------------------------------------------------
    @property
    def mesh(self) -> Tensor:
        """The ranks."""
        return from_array(self._array.astype(np.int32), int32)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of processes along each dimension."""
        return self._array.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    def size(self, mesh_dim: int | None = None) -> int:
        """The number of processes, of all or along a dimension."""
        return self._array.size if mesh_dim is None else self._array.shape[mesh_dim]

    def numel(self) -> int:
        """The number of processes."""
        return self._array.size

    def get_rank(self) -> int:
        """This process's rank in the default group."""
        return default_group().rank()

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Where this process is in the array; None if it is not."""
        return self._coordinate

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This process's number along a dimension."""
        if self._coordinate is None:
            raise RuntimeError(f"rank {default_group().rank()} is not in {self}")
        return self._coordinate[self._only(mesh_dim, "get_local_rank")]

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of this process along a dimension."""
        dim = self._only(mesh_dim, "get_group")
        if self._coordinate is None:
            raise RuntimeError(f"rank {default_group().rank()} is not in {self}, and in none of its groups")
        row = self._array[tuple(slice(None) if d == dim else i for d, i in enumerate(self._coordinate))]
        found = self._root.groups.get(tuple(row.tolist()))
        if found is None:
            raise RuntimeError(f"this process has no group of the ranks {row.tolist()}, which {self} needs: make such a DeviceMesh before "
                               "one is unpickled")
        return found

    def get_all_groups(self) -> list[ProcessGroup]:
        """The groups of this process along all dimensions."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def _only(self, mesh_dim: int | str | None, what: str) -> int:
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(f"Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` needs to be specified "
                                   f"when device_mesh.ndim > 1 ({what}())")
            return 0
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise KeyError(f"no dimension {mesh_dim!r} in {self}; it has {list(self.mesh_dim_names or ())}")
            return (self.mesh_dim_names or ()).index(mesh_dim)
        if not -self.ndim <= mesh_dim < self.ndim:
            raise IndexError(f"mesh_dim {mesh_dim} of {self}, which has {self.ndim} dimensions")
        return mesh_dim % self.ndim

    # -- parts ---------------------------------------------------------------------------------------------------------------
    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        wanted = (names,) if isinstance(names, str) else tuple(names)
        if not self.mesh_dim_names:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        if len(wanted) == 1 and wanted[0] in self._root.flat:
            return self._root.flat[wanted[0]]
        if unknown := [name for name in wanted if name not in self.mesh_dim_names]:
            raise KeyError(f"Invalid mesh_dim_names {unknown} specified. Valid mesh_dim_names are {self.mesh_dim_names}.")
        dims = [self.mesh_dim_names.index(name) for name in wanted]
        if dims != sorted(set(dims)):
            raise KeyError(f"Invalid mesh_dim_names {wanted}: name dimensions of {self.mesh_dim_names} once, in their order")
        if len(dims) == self.ndim:
            return self
        return self._part(dims)

    def _part(self, dims: list[int]) -> DeviceMesh:
        if self._coordinate is None:
            raise RuntimeError(f"rank {default_group().rank()} is not in {self}, and in none of its parts")
        made: DeviceMesh = object.__new__(DeviceMesh)
        here = tuple(slice(None) if d in dims else i for d, i in enumerate(self._coordinate))
        made._set(self.device_type, self._array[here], [self.mesh_dim_names[d] for d in dims] if self.mesh_dim_names else None, self._root)
        return made

    def _with(self, other: DeviceMesh) -> DeviceMesh:
        """The mesh of these dimensions, and then `other`'s: both are parts of one by different names."""
        whole, names = self._root.whole, (*(self.mesh_dim_names or ()), *(other.mesh_dim_names or ()))
        known = whole.mesh_dim_names or () if whole is not None else ()
        if whole is None or other._root is not self._root or len(names) != self.ndim + other.ndim or len({*names}) < len(names) or (
                not {*names} <= {*known}):
            raise ValueError(f"{self} and {other} are no different dimensions of one DeviceMesh with mesh_dim_names: take both of one, "
                             "mesh[\"dp\"] and mesh[\"tp\"]")
        dims = [known.index(name) for name in names]
        array = whole._part(sorted(dims))._array.transpose([sorted(dims).index(dim) for dim in dims])
        made: DeviceMesh = object.__new__(DeviceMesh)
        made._set(self.device_type, array, names, self._root)
        return made

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """All dimensions as one, which from now on is a part of this mesh's whole by its name. All processes call it."""
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ("flat",))
        if name in self._root.flat:
            return self._root.flat[name]
        ranks = self._array.reshape(-1)
        if tuple(ranks.tolist()) not in self._root.groups:
            every: list = [None] * default_group().size()
            if default_group().calls is None:
                all_gather_object(every, ranks.tolist())
            rows = dict.fromkeys(tuple(r) for r in every if r) or {tuple(ranks.tolist()): None}
            for row in rows:
                self._group_rows(np.array([row]), f"mesh_{name}")
        made: DeviceMesh = object.__new__(DeviceMesh)
        made._set(self.device_type, ranks, (name,), self._root)
        self._root.flat[name] = made
        return made

    @staticmethod
    def from_group(group: ProcessGroup | list[ProcessGroup], device_type: str, mesh: Any = None, *,
                   mesh_dim_names: Sequence[str] | None = None) -> DeviceMesh:
        """The mesh of groups that exist: of one, or of one along each dimension of the array `mesh`."""
        groups = [group] if isinstance(group, ProcessGroup) else list(group)
        if mesh is None:
            if len(groups) > 1:
                raise ValueError("Must pass mesh if passing multiple ProcessGroups")
            mesh = get_process_group_ranks(groups[0])
        array = np.array(mesh.tolist() if isinstance(mesh, Tensor) else mesh, np.int64)
        if array.ndim != len(groups):
            raise ValueError(f"Expects mesh with ndim equal to number of ProcessGroups but got mesh {array.tolist()} and {len(groups)} "
                             "ProcessGroups")
        _check_names(mesh_dim_names, array.ndim)
        made: DeviceMesh = object.__new__(DeviceMesh)
        made._set(device_type, array, mesh_dim_names, _Root())
        made._root.groups.update((tuple(g._ranks), g) for g in groups)
        return made

    # -- as a value ------------------------------------------------------------------------------------------------------------
    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DeviceMesh) and self.device_type == other.device_type
                                 and self.mesh_dim_names == other.mesh_dim_names and np.array_equal(self._array, other._array))

    def __hash__(self) -> int:
        return hash((self.device_type, self.mesh_dim_names, self.shape, self._array.tobytes()))

    def __repr__(self) -> str:
        names = self.mesh_dim_names
        sizes = f"({', '.join(f'{name}={n}' for name, n in zip(names, self.shape))})" if names else str(self.shape)
        steps = tuple(self._step(dim) for dim in range(self.ndim))
        return f"DeviceMesh({sizes}, '{self.device_type}', stride={steps})"

    def _step(self, dim: int) -> Any:
        """By how much ranks grow along a dimension; () where there is one."""
        return int((self._array.take(1, dim) - self._array.take(0, dim)).flat[0]) if self.shape[dim] > 1 else ()

    def __reduce__(self) -> Any:
        """Its ranks and names; where it is read it has the groups of these ranks that are there."""
        return mesh_of, (self.device_type, self._array.tolist(), self.mesh_dim_names)

    def __deepcopy__(self, memo: dict) -> DeviceMesh:
        return memo.setdefault(id(self), self)

    def __enter__(self) -> DeviceMesh:
        _current.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        _current.pop()


def mesh_of(device_type: str, ranks: Any, names: Sequence[str] | None) -> DeviceMesh:
    """The mesh of these ranks with the groups that this process has already: making new ones would need the other processes."""
    array = np.array(ranks, np.int64)
    made: DeviceMesh = object.__new__(DeviceMesh)
    made._set(device_type, array, names, _Root())
    for group in all_groups():
        made._root.groups.setdefault(tuple(group._ranks), group)
    return made


def _begin() -> ProcessGroup:
    init_process_group()
    return default_group()


def _check_type(device_type: str) -> None:
    if ":" in device_type:
        raise RuntimeError(f"Device type with index is not supported but got {device_type}: give the type of the device alone")


def _check_names(names: Sequence[str] | None, ndim: int) -> None:
    if names is None:
        return
    if len(set(names)) != len(names):
        raise RuntimeError(f"Each mesh_dim_name must be unique. Found repeated mesh_dim_name in mesh_dim_names {names}")
    if len(names) != ndim:
        raise RuntimeError(f"mesh_shape and mesh_dim_names should have same length! Found {len(names)} names for {ndim} dimensions")


def init_device_mesh(device_type: str, mesh_shape: tuple[int, ...], *, mesh_dim_names: tuple[str, ...] | None = None,
                     backend_override: dict[int | str, Any] | None = None) -> DeviceMesh:
    """The mesh of the first processes in rows of this shape. All processes call it; the default group begins if there is none.
    `backend_override`, the backends of groups by dimension (number or name), may name those there are; all are served alike."""
    _check_names(mesh_dim_names, len(mesh_shape))
    _check_type(device_type)
    for dim, backend in (backend_override or {}).items():
        if dim not in (*range(len(mesh_shape)), *(mesh_dim_names or ())):
            raise RuntimeError(f"init_device_mesh(backend_override=...): the mesh has no dimension {dim!r}")
        name, options = backend if isinstance(backend, tuple) else (backend, None)
        if not isinstance(name, str) or options is not None:
            raise NotImplementedError(f"init_device_mesh(backend_override=...): options of backends are not implemented, got {backend!r}; "
                                      "name a backend alone")
        check_backend(name)
    return DeviceMesh(device_type, np.arange(math.prod(mesh_shape)).reshape(mesh_shape), mesh_dim_names=mesh_dim_names)


def current_mesh() -> DeviceMesh:
    """The mesh of the innermost `with mesh:`; else one of all processes in a row."""
    if _current:
        return _current[-1]
    if not is_initialized():
        raise RuntimeError("No device mesh is currently active! Give device_mesh=, or use `with mesh:`")
    world = default_group()
    return DeviceMesh.from_group(world, next(iter(world.backends)))


__all__ = ["DeviceMesh", "init_device_mesh", "mesh_of"]
