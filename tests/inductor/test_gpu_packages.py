"""Packages for GPUs without one: cubins and the launches that a stand-in for NVIDIA's driver takes down, and products that one for cuBLAS
computes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau.export import Dim, export

pytest.importorskip("triton", reason="Triton is an optional extra (flambeau[cuda])")
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

RUN = """
import sys
import flambeau as torch
program = torch._inductor.aoti_load_package(sys.argv[1])
for path in sys.argv[2:]:
    given = torch.load(path)
    torch.save(program(*given), path + ".out")
    torch.save(given, path)
"""


class Of(torch.nn.Module):
    """A function, with a weight and a buffer."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.arange(20.0).reshape(4, 5) / 7)
        self.register_buffer("state", torch.eye(3))

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


class Head(torch.nn.Module):
    """Kernels, products, a table that is indexed, and a batch that varies."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.table = torch.nn.Linear(8, 5), torch.nn.LayerNorm(5), torch.nn.Embedding(10, 8)

    def forward(self, i: torch.Tensor, x: torch.Tensor) -> Any:
        return self.norm(self.linear(x + self.table(i))).softmax(-1), x.sum()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-ins."""
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("driver_stub.c")
    for name in ("libcuda.so.1", "libcublas.so.13"):
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(folder / name), str(source)], check=True)
    return folder


def package(module: torch.nn.Module, args: tuple, path: Path, **options: Any) -> str:
    program = export(module.eval(), args, **options)
    return torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs={"cuda.arch": "90"})


def run(path: str, calls: list[tuple], driver: Path, folder: Path, **said: str) -> tuple[list[Any], list[list[str]], str]:
    """What calls of a package give in a process of their own, what the driver was asked, and the error."""
    names = []
    for k, args in enumerate(calls):
        torch.save(args, folder / f"{k}.pt")
        names.append(str(folder / f"{k}.pt"))
    log = folder / "log"
    log.write_text("")
    variables = {**os.environ, "LD_LIBRARY_PATH": str(driver), "DRIVER_LOG": str(log), **said}
    done = subprocess.run([sys.executable, "-c", RUN, path, *names], env=variables, capture_output=True, text=True, check=False)
    made = [torch.load(name + ".out") for name in names] if done.returncode == 0 else []
    return made, [line.split() for line in log.read_text().splitlines()], done.stderr


def test_cubins_and_launches(driver: Path, tmp_path: Path) -> None:
    batch = Dim("batch", max=64)
    args = torch.tensor([1, 2, 3]), torch.ones(3, 8)
    path = package(Head(), args, tmp_path / "head.pt2", dynamic_shapes=({0: batch}, {0: batch}))
    with zipfile.ZipFile(path) as archive:
        assert "cuda 90" in archive.read("manifest.txt").decode().splitlines()
        assert archive.namelist() == ["manifest.txt", "library.so", "weights.bin"]
        cubins = archive.read("weights.bin").count(b"\x7fELF")
    calls = [args, (torch.tensor([4] * 40), torch.ones(40, 8)), args]
    made, log, error = run(path, calls, driver, tmp_path)
    assert [tuple(out.shape) for out, _ in made] == [(3, 5), (40, 5), (3, 5)], error
    loaded, launched = [line for line in log if line[0] == "load"], [line for line in log if line[0] == "launch"]
    assert loaded == [["load", "cubin"]] * cubins and len({line[1] for line in launched}) == cubins
    assert [line[1:] for line in log if line[0] == "product"] == [["1", "5", n, "8"] for n in ("3", "40", "3")]
    assert len(launched) % 3 == 0 and all(int(line[2]) > 0 and int(line[3]) % 32 == 0 for line in launched)
    last = max(k for k, line in enumerate(log) if line[0] == "alloc")
    assert sum(line[0] == "product" for line in log[:last]) < 3     # the last call has the first one's memory again


PRODUCTS: dict[str, Any] = {
    "rows": lambda m, x: x @ m.weight,
    "columns": lambda m, x: m.weight.t() @ x.t(),
    "both": lambda m, x: (x @ m.weight, x.t() @ x),
    "batches": lambda m, x: torch.bmm(x.expand(3, 4, 4), x.expand(3, 4, 4).transpose(1, 2)),
    "parts": lambda m, x: x[1:, :2] @ m.weight[1:3],
    "none": lambda m, x: x[:0] @ m.weight,
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, driver: Path, tmp_path: Path) -> None:
    module, x = Of(PRODUCTS[name]), torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    made, _, error = run(package(module, (x,), tmp_path / "p.pt2"), [(x,), (x.t().contiguous().t(),)], driver, tmp_path)
    want = module(x)
    assert len(made) == 2, error
    for got in made:
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, want)), strict=True):
            assert a.shape == b.shape and torch.allclose(a, b, atol=1e-5)


TWO = """
import sys
import flambeau as torch
first, second = map(torch._inductor.aoti_load_package, sys.argv[1:])
x = torch.eye(4)
for program, factor in ((first, 1), (second, 3), (first, 1), (second, 3)):
    assert torch.equal(program(x), factor * torch.arange(20.0).reshape(4, 5)), factor
"""


def test_packages_in_one_process_have_weights_of_their_own(driver: Path, tmp_path: Path) -> None:
    paths = []
    for factor in (1, 3):
        module = Of(lambda m, x: x @ m.weight)
        module.weight.data = factor * torch.arange(20.0).reshape(4, 5)
        paths.append(package(module, (torch.eye(4),), tmp_path / f"{factor}.pt2"))
    variables = {**os.environ, "LD_LIBRARY_PATH": str(driver), "DRIVER_LOG": str(tmp_path / "log")}
    done = subprocess.run([sys.executable, "-c", TWO, *paths], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_buffers_are_kept_between_calls(driver: Path, tmp_path: Path) -> None:
    def step(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.state.copy_(m.state @ x)
        return m.state @ x

    x = torch.tensor([[0.0, 1, 0], [0, 0, 1], [2, 0, 0]])
    made, _, error = run(package(Of(step), (x,), tmp_path / "p.pt2"), [(x,)] * 3, driver, tmp_path)
    assert [torch.equal(out, torch.linalg.matrix_power(x, k)) for k, out in enumerate(made, 2)] == [True] * 3, error


@pytest.mark.parametrize(("said", "told"), [
    ({"DRIVER_INIT": "100"}, "CUDA error 100 from cuInit"),
    ({"DRIVER_CAPABILITY": "80"}, "the package is for GPUs of compute capability 90, this one has 80"),
    ({"DRIVER_LAUNCH": "700"}, "CUDA error 700 from cuLaunchKernel"),
    ({"DRIVER_STRAY": "3"}, "IndexError: index 12 is out of bounds for"),
])
def test_what_the_driver_says_is_one_error(said: dict[str, str], told: str, driver: Path, tmp_path: Path) -> None:
    module, args = Of(lambda m, i: m.weight[i] * 2), (torch.tensor([1, 2]),)
    _, _, error = run(package(module, args, tmp_path / "p.pt2"), [args], driver, tmp_path, **said)
    assert told in error.splitlines()[-1], error


@pytest.mark.parametrize("said", ({}, {"DRIVER_HOLDS_INPUTS": "1"}), ids=("host", "device"))
def test_inputs_that_are_written(said: dict[str, str], driver: Path, tmp_path: Path) -> None:
    """Wherever they lie; what a view's elements lie between stays."""
    def function(m: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.copy_(x @ m.weight)
        return x @ m.weight

    module = Of(function)
    args = torch.arange(8.0).reshape(2, 4), torch.full((2, 8), 3.0)[:, :5]
    path = package(module, args, tmp_path / "p.pt2")
    (made,), _, error = run(path, [args], driver, tmp_path, **said)
    _, after = torch.load(tmp_path / "0.pt")
    assert torch.equal(made, args[0] @ module.weight) and torch.equal(after, made), error
    rest = torch.as_strided(after, (2, 3), (8, 1), 5)
    assert (rest == 3).all()


def test_what_has_no_kernel_is_refused_with_its_lines(tmp_path: Path) -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(1, 1, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(x).flatten(1).sort()[0]

    with pytest.raises(NotImplementedError, match=r"(?s)no native code for GPUs.*convolution.*sort"):
        package(Two(), (torch.ones(1, 1, 5, 5),), tmp_path / "p.pt2")
    with pytest.raises(ValueError, match="compute capability"):
        torch._inductor.aoti_compile_and_package(export(Of(lambda m, x: x + 1), (torch.ones(3),)), inductor_configs={"cuda.arch": "x"})
