"""Collectives of any objects, which travel pickled: between the processes of one job, which trust each other.

They pass where the group's processes exchange things, on the CPU if they can, so that neither a `device` nor a batch makes a difference.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from ..core.tensor import Tensor, from_array
from .collectives import _group, _root, recv, send
from .process_group import ProcessGroup


def _packed(obj: Any) -> np.ndarray:
    return np.frombuffer(pickle.dumps(obj), np.uint8).copy()


def _tensor(array: np.ndarray, group: ProcessGroup) -> Tensor:
    """Where the group's processes exchange it: on the CPU it is the array itself."""
    return from_array(array).to(group.device())


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.cpu()._data


def _unpacked(array: np.ndarray) -> Any:
    return pickle.loads(array.tobytes())  # it came from a process of this job


def _sizes(group: ProcessGroup, size: int) -> np.ndarray:
    sizes = _tensor(np.zeros(group.size(), np.int64), group)
    group._allgather_base(sizes, _tensor(np.array([size], np.int64), group)).wait()
    return _array(sizes)


def _padded(array: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([array, np.zeros(size - array.size, np.uint8)])


def all_gather_object(object_list: list, obj: Any, group: Any = None) -> None:
    """Everyone's `obj` into everyone's `object_list`."""
    if (g := _group(group)) is None:
        return
    _room("object_list", object_list, g)
    data = _packed(obj)
    sizes = _sizes(g, data.size)
    rows = _tensor(np.zeros((g.size(), int(sizes.max())), np.uint8), g)
    g._allgather_base(rows, _tensor(_padded(data, rows.shape[1]), g)).wait()
    for i, row in enumerate(_array(rows)):
        object_list[i] = _unpacked(row[: sizes[i]])


def gather_object(obj: Any, object_gather_list: list | None = None, dst: int | None = None, group: Any = None,
                  group_dst: int | None = None) -> None:
    """Everyone's `obj` into the `object_gather_list` of process `dst`."""
    if (g := _group(group)) is None:
        return
    root = _root(g, dst, group_dst, "dst", 0)
    if g.rank() == root:
        if object_gather_list is None:
            raise ValueError("Argument ``object_gather_list`` must be specified on destination rank.")
        _room("object_gather_list", object_gather_list, g)
    elif object_gather_list:
        raise ValueError("Argument ``object_gather_list`` must NOT be specified on non-destination ranks.")
    data = _packed(obj)
    sizes = _sizes(g, data.size)
    outs = [_tensor(np.zeros(int(sizes.max()), np.uint8), g) for _ in sizes] if g.rank() == root else []
    g.gather(outs, _tensor(_padded(data, int(sizes.max())), g), root).wait()
    if object_gather_list is not None and g.rank() == root:
        for i, out in enumerate(outs):
            object_gather_list[i] = _unpacked(_array(out)[: sizes[i]])


def _room(name: str, objects: list, group: ProcessGroup) -> None:
    if len(objects) != group.size():
        raise ValueError(f"{name} has {len(objects)} places for the objects of {group.size()} processes")


def broadcast_object_list(object_list: list, src: int | None = None, group: Any = None, device: Any = None,
                          group_src: int | None = None) -> None:
    """The objects of process `src` into everyone's `object_list`."""
    del device
    if (g := _group(group)) is None:
        return
    root = _root(g, src, group_src, "src")
    packed = [_packed(obj) for obj in object_list] if g.rank() == root else []
    sizes = _sent(np.array([p.size for p in packed] or [0] * len(object_list), np.int64), g, root)
    data = _sent(np.concatenate(packed) if packed else np.empty(int(sizes.sum()), np.uint8), g, root)
    if g.rank() != root:
        for i, part in enumerate(np.split(data, np.cumsum(sizes)[:-1])):
            object_list[i] = _unpacked(part)


def _sent(array: np.ndarray, group: ProcessGroup, root: int) -> np.ndarray:
    """The array of process `root`."""
    tensor = _tensor(array, group)
    group.broadcast(tensor, root).wait()
    return _array(tensor)


def scatter_object_list(scatter_object_output_list: list, scatter_object_input_list: list | None = None, src: int | None = None,
                        group: Any = None, group_src: int | None = None) -> None:
    """An object of process `src` to each, into the first place of its `scatter_object_output_list`."""
    if (g := _group(group)) is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    root, data, sizes = _root(g, src, group_src, "src", 0), [], np.zeros(g.size(), np.int64)
    if g.rank() == root:
        if scatter_object_input_list is None:
            raise ValueError("source rank must provide non-None scatter_object_input_list")
        _room("scatter_object_input_list", scatter_object_input_list, g)
        data = [_packed(obj) for obj in scatter_object_input_list]
        sizes[:] = [d.size for d in data]
    sizes = _sent(sizes, g, root)
    mine = _tensor(np.zeros(int(sizes.max()), np.uint8), g)
    g.scatter(mine, [_tensor(_padded(d, mine.numel()), g) for d in data], root).wait()
    scatter_object_output_list[0] = _unpacked(_array(mine)[: sizes[g.rank()]])


def send_object_list(object_list: list, dst: int | None = None, group: Any = None, device: Any = None, group_dst: int | None = None,
                     use_batch: bool = False) -> None:
    """The objects to process `dst`."""
    del device, use_batch
    if (g := _group(group)) is None:
        return
    packed = [_packed(obj) for obj in object_list]
    send(_tensor(np.array([p.size for p in packed], np.int64), g), dst, group, 0, group_dst)
    send(_tensor(np.concatenate(packed), g), dst, group, 0, group_dst)


def recv_object_list(object_list: list, src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None,
                     use_batch: bool = False) -> int:
    """Objects from process `src`, or anyone, into `object_list`; from whom they were."""
    del device, use_batch
    if (g := _group(group)) is None:
        return -1
    counts = _tensor(np.zeros(len(object_list), np.int64), g)
    source = recv(counts, src, group, 0, group_src)
    sizes = _array(counts)
    data = _tensor(np.empty(int(sizes.sum()), np.uint8), g)
    recv(data, source, group)
    for i, part in enumerate(np.split(_array(data), np.cumsum(sizes)[:-1])):
        object_list[i] = _unpacked(part)
    return source
