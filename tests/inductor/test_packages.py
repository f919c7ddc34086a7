"""Ahead-of-time packages: programs of many kinds run as eager does, in Python and in C++; bad files are refused before anything runs."""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau.backends.cpu import onednn
from flambeau.export import Dim, export
from flambeau.inductor.package import scales
from flambeau.inductor.package.archive import manifest
from flambeau.nn import functional as F

INCLUDE = Path(torch.__file__).parent / "include"

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def package(module: torch.nn.Module, args: tuple, path: Path, **options: Any) -> str:
    return torch._inductor.aoti_compile_and_package(export(module.eval(), args, **options), package_path=str(path))


class Function(torch.nn.Module):
    def __init__(self, fn: Callable) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: torch.Tensor) -> Any:
        return self.fn(*args)


class Images(torch.nn.Module):
    """Convolutions with norms, grouped and pooled; a residual; a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.nn.BatchNorm2d(8)
        self.second = torch.nn.Conv2d(8, 8, 3, padding=1, groups=4)
        self.head = torch.nn.Linear(8, 5)
        with torch.no_grad():
            self.norm.running_mean.uniform_(-1, 1)
            self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.norm(self.first(x)).relu(), 2)
        return self.head((x + self.second(x)).mean((2, 3))).softmax(-1)


class Counter(torch.nn.Module):
    """Writes to a buffer, and to an input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        x.mul_(2)
        return x.sum() + self.count


class Tied(torch.nn.Module):
    """One weight twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(32, 16)
        self.lstm = torch.nn.LSTM(16, 16, batch_first=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.lstm(self.embedding(ids))[0] @ self.embedding.weight.T


BATCH, LENGTH = Dim("batch", max=64), Dim("length", min=2, max=64)


def several(x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    return {"views": [x.T, x[1:], x], "sum": x + y, "n": x.shape[0], "none": None, "same": y, "three": 3}


# name: (module, inputs of a size, dynamic_shapes)
PROGRAMS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[int], tuple], Any]] = {
    "images": (Images, lambda n: (torch.randn(n, 3, 8, 8),), ({0: BATCH},)),
    "sequence": (Tied, lambda n: (torch.randint(0, 32, (n, 7)),), ({0: BATCH},)),
    "several outputs": (lambda: Function(several), lambda n: (torch.randn(n, 3), torch.randn(n, 3)),
                        (({0: BATCH}, {0: BATCH}),)),
    "transposed inputs": (lambda: Function(lambda x: x @ x.T), lambda n: (torch.randn(4, 4).T,), None),
    "bfloat16": (lambda: Function(lambda x: (x * 2).softmax(-1)), lambda n: (torch.randn(n, 8, dtype=torch.bfloat16),), (({0: BATCH},),)),
    "dtypes": (lambda: Function(lambda a, b, c: (a > 1, b.to(torch.uint8), c.double() / 3)),
               lambda n: (torch.arange(n), torch.randn(n) > 0, torch.arange(n, dtype=torch.int16)), (({0: BATCH},) * 3,)),
    "scalars": (lambda: Function(lambda x: x * 3 + 1), lambda n: (torch.tensor(2.5),), None),
    "attention": (lambda: Function(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True)),
                  lambda n: (torch.randn(2, 2, n, 8),), (({2: LENGTH},),)),
}


def same(got: Any, expected: Any) -> None:
    leaves, spec = torch.utils._pytree.tree_flatten(got)
    wanted, other = torch.utils._pytree.tree_flatten(expected)
    assert spec == other
    for a, b in zip(leaves, wanted, strict=True):
        if isinstance(b, torch.Tensor):
            assert a.dtype is b.dtype and a.shape == b.shape
            torch.testing.assert_close(a, b.detach())
        else:
            assert a == b


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str, tmp_path: Path) -> None:
    make, inputs, shapes = PROGRAMS[name]
    torch.manual_seed(0)
    module = make().eval()
    loaded = torch._inductor.aoti_load_package(package(module, inputs(4), tmp_path / "p.pt2", dynamic_shapes=shapes))
    for n in (4, 9, 2) if shapes else (4,):
        args = inputs(n)
        same(loaded(*args), module(*args))


def test_no_elements(tmp_path: Path) -> None:
    loaded = torch._inductor.aoti_load_package(package(Images(), (torch.randn(4, 3, 8, 8),), tmp_path / "p.pt2",
                                                       dynamic_shapes=({0: BATCH},)))
    assert loaded(torch.randn(0, 3, 8, 8)).shape == (0, 5)


def test_buffers_belong_to_what_is_loaded(tmp_path: Path) -> None:
    path = package(Counter(), (torch.ones(2),), tmp_path / "p.pt2")
    one, two = torch._inductor.aoti_load_package(path), torch._inductor.aoti_load_package(path)
    x = torch.ones(2)
    assert [float(one(x)[0, 0]) for _ in range(3)] == [4 + 1, 8 + 2, 16 + 3] and x.tolist() == [8, 8]
    assert float(two(torch.ones(2))[0, 0]) == 5


def test_what_calls_keep_to(tmp_path: Path) -> None:
    loaded = torch._inductor.aoti_load_package(package(Function(lambda x, y: x[:, None] * y), (torch.randn(4), torch.randn(4, 3)),
                                                       tmp_path / "p.pt2", dynamic_shapes=(({0: BATCH}, {0: BATCH}),)))
    with pytest.raises(ValueError, match=r"\[s0, 3\] of float32, got one of \[4, 2\] of float32"):
        loaded(torch.randn(4), torch.randn(4, 2))
    with pytest.raises(ValueError, match=r"of float32, got one of .* of float64"):
        loaded(torch.randn(4, dtype=torch.float64), torch.randn(4, 3))
    with pytest.raises(ValueError, match=r"size\(\)\[0\] <= 64; got .*\[65\]"):
        loaded(torch.randn(65), torch.randn(65, 3))
    with pytest.raises(ValueError, match=r"size\(\)\[0\] == s0, where s0 is .*size\(\)\[0\]; got"):
        loaded(torch.randn(5), torch.randn(4, 3))
    with pytest.raises(ValueError, match="Trying to flatten"):
        loaded(torch.randn(5))


def test_an_index_out_of_bounds(tmp_path: Path) -> None:
    table = torch.randn(8, 2)
    path = package(Function(lambda i: F.embedding(i, table)), (torch.tensor([1, 2]),), tmp_path / "p.pt2")
    loaded = torch._inductor.aoti_load_package(path)
    with pytest.raises(IndexError, match="index 8 is out of bounds"):
        loaded(torch.tensor([1, 8]))


def test_all_that_needs_python_is_told_at_once(tmp_path: Path) -> None:
    def two(x: torch.Tensor) -> tuple:
        a = torch.linalg.svdvals(x)
        return a, x.cummax(0)[0]

    with pytest.raises(NotImplementedError, match=r"2 operators have no native code(.|\n)*svdvals(.|\n)*x\.cummax\(0\)"):
        package(Function(two), (torch.randn(3, 3),), tmp_path / "p.pt2")
    assert not list(tmp_path.iterdir())


def test_other_refusals(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="draws random numbers"):
        package(Function(lambda x: x + torch.rand_like(x)), (torch.randn(3),), tmp_path / "p.pt2")
    with pytest.raises(TypeError, match="ExportedProgram"):
        torch._inductor.aoti_compile_and_package(Images(), package_path=str(tmp_path / "p.pt2"))
    with pytest.raises(ValueError, match=r"ending in \.pt2"):
        torch._inductor.aoti_compile_and_package(export(Images().eval(), (torch.randn(1, 3, 8, 8),)), package_path=str(tmp_path / "p"))
    with pytest.raises(NotImplementedError, match="device_index"):
        torch._inductor.aoti_load_package(tmp_path / "p.pt2", device_index=0)


def test_what_parameters_alone_decide_is_computed_once(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.randn(4, 4))

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ (self.weight.exp() / self.weight.exp().sum(0)).T

    path = package(Net(), (torch.randn(2, 4),), tmp_path / "p.pt2")
    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo("weights.bin").file_size == weight.nbytes        # what was folded, and nothing that it is made of
    x = torch.randn(2, 4)
    torch.testing.assert_close(torch._inductor.aoti_load_package(path)(x), Net()(x).detach())


@pytest.mark.parametrize(("after", "folds"), [
    (lambda y, norm, c: norm(y), 1), (lambda y, norm, c: norm(y).relu(), 1), (lambda y, norm, c: (3 - norm(y)) / 2, 1),
    (lambda y, norm, c: norm(y) * y, 0), (lambda y, norm, c: y * c[None, :, None, None] - 1, 1), (lambda y, norm, c: y + c.view(-1, 1, 1), 0),
    (lambda y, norm, c: norm(y * 2) + y.mean(), 0), (lambda y, norm, c: y * row_scale() + 1, 0)])
def test_scales_of_channels_move_into_convolutions(after: Callable, folds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = torch.nn.Conv2d(4, 6, 3, groups=2, bias=False), torch.nn.BatchNorm2d(6)
            self.register_buffer("c", torch.linspace(0.5, 2, 6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return after(self.conv(x), self.norm, self.c)

    found = []
    constant = scales._constant
    monkeypatch.setattr(scales, "_constant", lambda *args: found.append(args) or constant(*args))
    torch.manual_seed(0)
    net = Scaled()
    for _ in range(3):
        net(torch.randn(4, 4, 8, 8))
    path = package(net, (torch.randn(2, 4, 8, 8),), tmp_path / "scaled.pt2", dynamic_shapes=({0: Dim("images")},))
    assert len(found) == 2 * folds
    loaded = torch._inductor.aoti_load_package(path)
    for images in (2, 5):
        x = torch.randn(images, 4, 8, 8)
        same(loaded(x), net(x))


def row_scale() -> torch.Tensor:
    """What differs within a channel."""
    return torch.linspace(1, 2, 6)[None, None, :, None]


def test_threads_share_what_is_loaded(tmp_path: Path) -> None:
    module = Images().eval()
    loaded = torch._inductor.aoti_load_package(package(module, (torch.randn(4, 3, 8, 8),), tmp_path / "p.pt2"))
    inputs = [torch.randn(4, 3, 8, 8) for _ in range(4)]
    with torch.no_grad():
        expected = [module(x) for x in inputs]
    wrong: list[int] = []

    def calls(k: int) -> None:
        wrong.extend(k for _ in range(20) if not torch.allclose(loaded(inputs[k]), expected[k], atol=1e-5))

    threads = [threading.Thread(target=calls, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_other_names(tmp_path: Path) -> None:
    path = torch._inductor.aot_compile(Images().eval(), (torch.randn(1, 3, 8, 8),))
    try:
        assert torch._export.aot_load(path, "cpu")(torch.randn(1, 3, 8, 8)).shape == (1, 5)
    finally:
        os.unlink(path)
    file = io.BytesIO()
    torch._inductor.aoti_compile_and_package(export(Images().eval(), (torch.randn(1, 3, 8, 8),)), package_path=file)
    assert torch._inductor.aoti_load_package(io.BytesIO(file.getvalue()))(torch.randn(1, 3, 8, 8)).shape == (1, 5)


# -- bad files --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = package(Function(lambda x: x * 2 + torch.arange(3)), (torch.ones(3),), tmp_path_factory.mktemp("sound") / "p.pt2")
    return Path(path).read_bytes()


def refusal(content: bytes, path: Path) -> str | None:
    """What loading these bytes says; None where they load, and compute as they should."""
    path.write_bytes(content)
    try:
        loaded = torch._inductor.aoti_load_package(path)
    except RuntimeError as error:
        return str(error)
    assert loaded(torch.ones(3)).tolist() == [2, 3, 4]
    return None


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Cut short, with bits turned, with a stretch of other bytes, or with bytes put in or taken out."""
    data, at = bytearray(content), rng.choice((rng.randrange(len(content)), rng.randrange(1200), len(content) - 1 - rng.randrange(300)))
    kind = rng.randrange(5)
    if kind == 0:
        return bytes(data[:at])
    if kind == 1:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 2:
        data[at:at + 8] = rng.randbytes(min(8, len(data) - at))
    elif kind == 3:
        data[at:at] = rng.randbytes(rng.randrange(1, 9))
    else:
        del data[at:at + rng.randrange(1, 9)]
    return bytes(data)


def test_damaged_files(sound: bytes, tmp_path: Path) -> None:
    rng = random.Random(0)
    for _ in range(300):
        said = refusal(mutated(sound, rng), tmp_path / "bad.pt2")
        assert said is None or ("bad.pt2" in said and "\n" not in said)


def rewritten(content: bytes, change: Callable[[dict[str, bytes]], None]) -> bytes:
    """The archive with other members."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    change(members)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return file.getvalue()


def with_fact(word: str, fact: str) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        lines = [line.partition(" ")[::2] for line in members["manifest.txt"].decode().splitlines()[1:-1]]
        members["manifest.txt"] = manifest([(name, fact if name == word else told) for name, told in lines])
    return change


@pytest.mark.parametrize(("change", "said"), [
    (with_fact("version", "2"), "version 2; .* reads versions up to 1"),
    (with_fact("abi", "7"), "interface 7, .* built for interface 1"),
    (with_fact("machine", "pdp11"), "compiled for pdp11"),
    (with_fact("needs", "avx2 avx9"), "a processor with.* avx9"),
    (lambda members: members.update({"../evil.so": b"x"}), r'a member "\.\./evil\.so"'),
    (lambda members: members.pop("weights.bin"), "no weights.bin"),
    (lambda members: members.update({"library.so": members["library.so"][:-1] + b"!"}), "library is damaged"),
    (lambda members: members.update({"manifest.txt": b"flambeau package\n"}), "manifest"),
])
def test_files_that_do_not_fit(sound: bytes, tmp_path: Path, change: Callable, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        (tmp_path / "other.pt2").write_bytes(rewritten(sound, change))
        torch._inductor.aoti_load_package(tmp_path / "other.pt2")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="cannot be opened: No such file"):
        torch._inductor.aoti_load_package(tmp_path / "none.pt2")
    with pytest.raises(RuntimeError, match="is no file"):
        torch._inductor.aoti_load_package(tmp_path)


# -- C++ --------------------------------------------------------------------------------------------------------------------

PROGRAM = r"""
#include <aoti.h>
#include <iostream>

int main(int count, char** words) {
    try {
        flambeau::Package package(words[1]);
        flambeau::Session session(package, 2);
        for (const flambeau::Port& port : package.inputs())
            std::cout << port.name << " " << name_of(port.dtype) << " " << port.dims.at(0) << "\n";
        std::vector<float> data(6, 1.5f);
        for (int64_t n : {1, 2, 7}) {
            std::vector<flambeau::Tensor> out = session.run({flambeau::Tensor::of(data.data(), {n, 3}, {0, 1})});
            std::cout << out[0].sizes.at(0) << " " << out[0].as<float>()[0] << "\n";
        }
        try {
            out_of(session);
        } catch (const flambeau::InputError& error) {
            std::cout << "input: " << error.what() << "\n";
        }
        flambeau::Package broken(words[2]);
    } catch (const flambeau::PackageError& error) {
        std::cout << "package: " << error.what() << "\n";
    }
}
""".replace("out_of(session);", "session.run({flambeau::Tensor::empty(flambeau::DType::int64, {2, 3})});")


@pytest.mark.timeout(200)
def test_in_cpp(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    with torch.no_grad():
        module[0].weight.fill_(1)
        module[0].bias.fill_(0.5)
    path = package(module, (torch.randn(2, 3),), tmp_path / "p.pt2", dynamic_shapes=({0: BATCH},))
    broken = tmp_path / "broken.pt2"
    broken.write_bytes(Path(path).read_bytes()[:-40])
    (tmp_path / "main.cpp").write_text(PROGRAM)
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", f"-I{INCLUDE}", str(tmp_path / "main.cpp"),
               "-o", str(tmp_path / "main"), "-ldl", "-pthread"]
    subprocess.run(command, check=True, timeout=120)
    environment = {**os.environ, "FLAMBEAU_ONEDNN": onednn.library_path() or ""}
    said = subprocess.run([tmp_path / "main", path, broken], check=True, capture_output=True, text=True, env=environment, timeout=60).stdout
    lines = said.splitlines()
    assert lines[:4] == ["input float32 s0", "1 5", "2 5", "7 5"]
    assert lines[4] == "input: input 0, input, is a tensor of shape [s0, 3] of float32, got one of [2, 3] of int64"
    assert lines[5].startswith(f"package: {broken} is no ahead-of-time package")
