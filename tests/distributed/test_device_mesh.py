"""DeviceMesh: names, parts, groups and ranks, in real processes and on a fake group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flambeau import distributed as dist
from flambeau.distributed.device_mesh import DeviceMesh, init_device_mesh
from tests.distributed.processes import needs_mpi, run


def facts(torch: Any, rank: int, world: int) -> dict:
    """What a mesh of 2 x 2 says of itself, and sums along its dimensions."""
    d = torch.distributed
    d.init_process_group("gloo")
    make = torch.distributed.device_mesh.init_device_mesh
    mesh = make("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
    found: dict[str, Any] = {"shape": tuple(mesh.shape), "ndim": mesh.ndim, "size": (mesh.size(), mesh.size(1)), "mesh": mesh.mesh.tolist(),
                             "coordinate": list(mesh.get_coordinate()), "rank": mesh.get_rank()}
    flat = mesh["dp", "tp"]._flatten("all")
    for name, part in (("dp", mesh["dp"]), ("tp", mesh["tp"]), ("all", mesh["all"])):
        x = torch.ones(2) * rank
        d.all_reduce(x, group=part.get_group())
        found[name] = (x.tolist(), part.mesh.tolist(), part.get_local_rank(), part.mesh_dim_names, part.size(),
                       d.get_process_group_ranks(part.get_group()))
    found["same"] = (mesh["dp"] == mesh["dp"], mesh["dp"] == mesh["tp"], flat == mesh["all"], hash(mesh["tp"]) == hash(mesh["tp"]))
    found["named"] = (mesh.get_local_rank("tp"),
                      d.get_process_group_ranks(mesh.get_group("dp")), d.get_process_group_ranks(mesh.get_group(1)))
    other = torch.distributed.device_mesh.DeviceMesh("cpu", [[3, 1], [2, 0]])
    found["other"] = (list(other.get_coordinate()), d.get_process_group_ranks(other.get_group(0)), other.get_local_rank(1))
    from_group = torch.distributed.device_mesh.DeviceMesh.from_group(mesh.get_group("tp"), "cpu")
    found["from"] = (from_group.mesh.tolist(), from_group.get_local_rank())
    d.barrier()
    return found


@needs_mpi
def test_of_two_by_two() -> None:
    for rank, found in enumerate(run(facts, 4)):
        row, column = divmod(rank, 2)
        assert (found["shape"], found["ndim"], found["size"], found["mesh"]) == ((2, 2), 2, (4, 2), [[0, 1], [2, 3]])
        assert found["coordinate"] == [row, column] and found["rank"] == rank
        up, along = [column, column + 2], [2 * row, 2 * row + 1]
        assert found["dp"] == ([float(sum(up))] * 2, up, row, ("dp",), 2, up)
        assert found["tp"] == ([float(sum(along))] * 2, along, column, ("tp",), 2, along)
        assert found["all"] == ([6.0, 6.0], [0, 1, 2, 3], rank, ("all",), 4, [0, 1, 2, 3])
        assert found["same"] == (True, False, True, True) and found["named"] == (column, up, along)
        place = {3: [0, 0], 1: [0, 1], 2: [1, 0], 0: [1, 1]}[rank]
        assert found["other"] == (place, [[3, 2], [1, 0]][place[1]], place[1]) and found["from"] == (along, column)


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", rank=3001, world_size=4096)
    yield init_device_mesh("cpu", (512, 8), mesh_dim_names=("dp", "tp"))
    dist.destroy_process_group()


def test_of_thousands(mesh: DeviceMesh) -> None:
    assert mesh.get_coordinate() == (375, 1) and mesh["tp"].mesh.tolist() == list(range(3000, 3008))
    assert mesh["dp"].size() == 512 and mesh["dp"].get_group().rank() == 375
    assert mesh._flatten("all").get_group() is dist.group.WORLD
    assert "dp=512, tp=8" in repr(mesh) and mesh.get_all_groups() == [mesh.get_group("dp"), mesh.get_group("tp")]


REFUSED = [
    (lambda m: m["pp"], KeyError, "pp"), (lambda m: m["tp", "dp"], KeyError, "in their order"),
    (lambda m: m.get_group(), RuntimeError, "mesh_dim"),
    (lambda m: m.get_group("pp"), KeyError, "pp"), (lambda m: m.get_local_rank(2), IndexError, "2 dimensions"),
    (lambda m: DeviceMesh("cpu", range(5000)), RuntimeError, "bigger than default world size 4096"),
    (lambda m: DeviceMesh("cpu", [1, 1]), RuntimeError, "duplicate"), (lambda m: init_device_mesh("cpu:0", (2,)), RuntimeError, "index"),
    (lambda m: init_device_mesh("cpu", (2,), mesh_dim_names=("a", "b")), RuntimeError, "same length"),
    (lambda m: init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "a")), RuntimeError, "unique"),
    (lambda m: DeviceMesh("cpu", [[0, 1], [2, 3]])["a"], RuntimeError, "without mesh_dim_names"),
    (lambda m: DeviceMesh("cpu", [0, 1]).get_group(), RuntimeError, "rank 3001 is not in"),
    (lambda m: DeviceMesh.from_group([dist.group.WORLD] * 2, "cpu"), ValueError, "multiple"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_is_refused(mesh: DeviceMesh, call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(mesh)
