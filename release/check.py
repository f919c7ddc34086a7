"""What a wheel must do where it was just installed: `python -I check.py none|g++|clang++`, the compiler that there is."""

from __future__ import annotations

import shutil
import sys
import sysconfig
import tempfile
import warnings
from importlib import metadata
from pathlib import Path

import flambeau as torch

LARGEST = 240  # megabytes, with all that it depends on


def batches() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(64, 1, 8, 8), torch.randint(4, (64,))


def network() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
                               torch.nn.Linear(512, 4))  # fmt: skip


def train(compiled: bool) -> list[float]:
    """The losses of some steps."""
    images, labels = batches()
    net = network()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    model = torch.compile(net) if compiled else net
    losses = []
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def installed() -> float:
    """Megabytes of the environment, oneDNN's library included, without pip and what Python caches."""
    files = (f for f in Path(sys.prefix).rglob("*") if f.is_file() and not f.is_symlink() and f.suffix != ".pyc")
    return sum(f.stat().st_size for f in files if "/site-packages/pip" not in str(f) and "/setuptools" not in str(f)) / 1e6


def main(compiler: str) -> None:
    assert Path(torch.__file__).is_relative_to(sysconfig.get_path("purelib")), torch.__file__
    assert metadata.metadata("flambeau")["Description-Content-Type"] == "text/markdown"
    assert compiler == "none" or shutil.which(compiler), f"no {compiler} on PATH"
    eager = train(compiled=False)
    assert eager[-1] < 0.8 * eager[0], eager
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        compiled = train(compiled=True)
        torch.compile(torch.sin)(torch.ones(3))
    told = [str(w.message) for w in told]
    assert all(abs(a - b) < 1e-3 for a, b in zip(eager, compiled)), (eager, compiled)
    if compiler == "none":
        assert len(told) == 1 and "no C++ compiler" in told[0], told
    else:
        assert not told, told
    with tempfile.NamedTemporaryFile() as file:
        torch.save(network().state_dict(), file.name)
        network().load_state_dict(torch.load(file.name))
    size = installed()
    assert size < LARGEST, f"{size:.0f} MB installed, more than {LARGEST}"
    print(f"ok: Python {sysconfig.get_python_version()}, compiler {compiler}, {torch._C.instruction_set()}, {size:.0f} MB installed")


if __name__ == "__main__":
    main(sys.argv[1])
