"""The examples run through `python -m flambeau run`, and a resumed training continues to the last bit."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flambeau.backends.cpu import onednn

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments: object, warnings: str = "error") -> str:
    """What a program prints; fails the test with its error output if it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-W", warnings, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
    return done.stdout


def flambeau(*arguments: object, **options: str) -> str:
    return run("-m", "flambeau", "run", *arguments, **options)


@pytest.mark.timeout(300)
def test_gpt(tmp_path: Path) -> None:
    said = flambeau("examples/gpt.py", "--smoke", "--out", tmp_path)
    assert "torch is flambeau" in said
    apart = float(re.search(r"differ by at most (\S+)", said).group(1))  # type: ignore[union-attr]
    assert apart < 1e-4
    assert (tmp_path / "loss.svg").read_text().count("<polyline") == 2
    assert "scaled_dot_product_attention" in (tmp_path / "report.html").read_text()


def final_loss(said: str) -> str:
    return re.search(r"final loss (\S+)", said).group(1)  # type: ignore[union-attr]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", [[], ["--compile"]], ids=["eager", "compiled"])
def test_digits_resnet_resumes_to_the_last_bit(tmp_path: Path, mode: list[str]) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    options = ["examples/digits_resnet.py", "--smoke", *mode]
    said = flambeau(*options, "--out", whole)
    again = flambeau(*options, "--out", resumed, "--resume", whole / "epoch-1.pt")
    assert "1 epochs done" in again
    assert final_loss(again) == final_loss(said)


@pytest.mark.timeout(300)
def test_torch_runs_the_same_file_and_reads_the_checkpoint(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    flambeau("examples/digits_resnet.py", "--smoke", "--out", tmp_path)
    checkpoint = torch.load(tmp_path / "epoch-2.pt")
    assert checkpoint["epoch"] == 2 and checkpoint["model"]["stem.0.weight"].shape == (4, 1, 3, 3)
    model_only = tmp_path / "epoch-1.pt"
    checkpoint["random"] = torch.Generator().get_state()  # each library's generator has a state of its own
    torch.save(checkpoint, model_only)
    said = run("examples/digits_resnet.py", "--smoke", "--out", tmp_path, "--resume", model_only, warnings="default")
    assert "2 epochs done" in said and "final loss" in said


@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_cpp_inference(tmp_path: Path) -> None:
    """Packages run in a C++ program without Python, and in a server."""
    flambeau("examples/cpp_inference/models.py", "--smoke", "--out", tmp_path)
    program = ["g++", "-std=c++17", "-Iflambeau/include", "examples/cpp_inference/main.cpp", "-o", tmp_path / "serve", "-ldl", "-pthread"]
    subprocess.run(program, cwd=ROOT, check=True, timeout=120)
    environment = {**os.environ, "FLAMBEAU_ONEDNN": onednn.library_path() or ""}
    done = subprocess.run([tmp_path / "serve", tmp_path, "2", "5"], env=environment, capture_output=True, text=True, timeout=60)
    assert re.match(r"resnet18: load .* class \d+\ngpt: load .* tokens( \d+){6}\n", done.stdout), done.stdout + done.stderr
    plot = tmp_path / "latency.svg"
    said = flambeau("examples/cpp_inference/server.py", tmp_path / "resnet18.pt2", "--clients", 3, "--requests", 4, "--plot", plot)
    assert re.match(r"12 requests of 3 clients, 2 sessions: p50 \S+ ms, p99 \S+ ms, \S+ a second", said)
    assert plot.read_text().count("<polyline") == 1


SMALL = {  # by example: the libraries that it needs, the pictures that it leaves, and what it says that is PyTorch's too, but for rounding
    "cartpole_ppo": ((), ["return.svg"], r"mean return (\S+) at first"),
    "digits_diffusion": (("sklearn",), ["loss.svg", "digits.png"], r"final loss (\S+);"),
    "ddp_char_gpt": ((), ["loss.svg"], r"final loss (\S+)"),
    "hf_trainer": (("transformers", "accelerate"), ["loss.svg"], r"loss (\S+),"),
    "lightning_digits": (("sklearn", "lightning", "torchmetrics"), ["loss.svg"], r"final loss (\S+);"),
}
# torchvision, which the libraries import where it is installed, has a compiled part for another build of PyTorch.
ON_TORCH = """
import runpy, sys, torch
sys.path[:0] = ["tests/compat", "examples"]
import worker
worker.declare_torchvision_operators(torch)
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SMALL)
def test_small_examples(name: str, tmp_path: Path) -> None:
    """They run, leave their pictures, and say what they say on PyTorch."""
    needs, pictures, number = SMALL[name]
    missing = [library for library in needs if importlib.util.find_spec(library) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    options = [f"examples/{name}.py", "--smoke", "--out"]
    warnings = "default" if needs[1:] else "error"  # those of other people's libraries are theirs
    said = flambeau(*options, tmp_path / "eager", warnings=warnings)
    for picture in pictures:
        drawn = (tmp_path / "eager" / picture).read_bytes()
        assert drawn.startswith(b"\x89PNG") if picture.endswith("png") else b"<polyline" in drawn
    pytest.importorskip("torch")
    reference = run("-c", ON_TORCH, *options, tmp_path / "torch", warnings="ignore")
    ours, theirs = (float(re.search(number, text).group(1)) for text in (said, reference))  # type: ignore[union-attr]
    assert abs(ours - theirs) < 2e-3 * abs(theirs), (said, reference)


def test_gcn(tmp_path: Path) -> None:
    """A graph network with sparse matrices and sparse gradients comes to what it comes to with PyTorch."""
    said = flambeau("examples/gcn.py", "--nodes", 200, "--steps", 20, "--out", tmp_path)
    assert said.startswith("flambeau") and (tmp_path / "loss.svg").exists()
    pytest.importorskip("torch")
    reference = run("examples/gcn.py", "--nodes", 200, "--steps", 20, "--out", tmp_path, warnings="ignore")
    numbers = [[float(x) for x in re.search(r"loss (\S+), right ([\d.]+)", text).groups()] for text in (said, reference)]  # type: ignore[union-attr]
    assert abs(numbers[0][0] - numbers[1][0]) < 2e-4 and abs(numbers[0][1] - numbers[1][1]) < 0.02


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["cartpole_ppo", "digits_diffusion"])
def test_small_examples_compiled(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("sklearn") is None:
        pytest.skip("needs sklearn")
    said = [flambeau(f"examples/{name}.py", "--smoke", "--out", tmp_path, *options) for options in ((), ("--compile",))]
    ours, compiled = (float(re.search(SMALL[name][2], text).group(1)) for text in said)  # type: ignore[union-attr]
    assert abs(ours - compiled) < 2e-3 * abs(ours), said
