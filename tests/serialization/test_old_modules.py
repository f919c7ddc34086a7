"""What older programs left: files of before PyTorch 1.6, modules that were pickled whole, lazy ones, states of the older weight_norm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")
pytestmark = pytest.mark.filterwarnings("ignore")  # the older functions are deprecated

MADE = {
    "linear": (lambda: torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)), (2, 3)),
    "lazy": (lambda: torch.nn.Sequential(torch.nn.LazyConv2d(2, 3), torch.nn.Flatten()), (2, 3, 5, 5)),
    "weight_norm": (lambda: torch.nn.utils.weight_norm(torch.nn.Linear(3, 4)), (2, 3)),
    "spectral_norm": (lambda: torch.nn.utils.spectral_norm(torch.nn.Linear(3, 4)), (2, 3)),
}
READ = """
import sys, warnings
warnings.simplefilter("ignore")
import flambeau.as_torch, torch
module = torch.load(sys.argv[1], weights_only=False).eval()
torch.manual_seed(0)
out = module(torch.ones(*map(int, sys.argv[2].split(","))))
print([round(v, 4) for v in out.flatten().tolist()] if sys.argv[3] == "values" else tuple(out.shape))
"""


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before 1.6"])
@pytest.mark.parametrize("kind", MADE)
def test_modules_that_were_pickled_whole(kind: str, zipped: bool, tmp_path: Path) -> None:
    make, shape = MADE[kind]
    module: Any = make()
    torch.save(module, tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)
    out = module.eval()(torch.ones(*shape))
    compared = "shape" if kind == "lazy" else "values"
    command = [sys.executable, "-c", READ, str(tmp_path / "m.pt"), ",".join(map(str, shape)), compared]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    if compared == "shape":
        assert done.stdout.strip() == str(tuple(out.shape))
    else:
        assert eval(done.stdout) == pytest.approx(out.flatten().tolist(), abs=2e-4)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before 1.6"])
def test_states_of_the_older_weight_norm(zipped: bool, tmp_path: Path) -> None:
    old = torch.nn.utils.weight_norm(torch.nn.Linear(3, 4))
    torch.save(old.state_dict(), tmp_path / "s.pt", _use_new_zipfile_serialization=zipped)
    state = fl.load(tmp_path / "s.pt")
    for norm in (fl.nn.utils.weight_norm, fl.nn.utils.parametrizations.weight_norm):
        module = norm(fl.nn.Linear(3, 4))
        assert str(module.load_state_dict(state)) == "<All keys matched successfully>"
        assert module(fl.ones(2, 3)).flatten().tolist() == pytest.approx(old(torch.ones(2, 3)).flatten().tolist(), abs=1e-5)
