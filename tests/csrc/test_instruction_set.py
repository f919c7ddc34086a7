"""Which instructions are used: one variable narrows oneDNN, the loops of csrc/ and generated kernels, and results stay right."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from flambeau import _C
from flambeau.backends.cpu import get_cpu_capability

LEVELS = _C.instruction_sets()
PROGRAM = """
import numpy as np
import flambeau as fl
from flambeau import _C
from flambeau.backends.cpu import onednn
from flambeau.inductor.cpu import compile as compiler

print(_C.instruction_set(), *[flag for flag in compiler.flags() if flag.startswith("-m")])
fl.manual_seed(0)
x = fl.randn(300, 70)
expected = np.exp(x.double().numpy()).sum(1)
for f in (lambda x: x.exp().sum(1), fl.compile(lambda x: x.exp().sum(1))):
    np.testing.assert_allclose(f(x).numpy(), expected, rtol=1e-5)
w = fl.randn(70, 64)
np.testing.assert_allclose((x @ w).numpy(), x.double().numpy() @ w.double().numpy(), rtol=1e-4, atol=1e-4)
print(x.flatten()[:8].tolist())
"""


def run(level: str | None) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    if level is not None:
        environment["ONEDNN_MAX_CPU_ISA"] = level
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_names():
    assert LEVELS[0] in ("SSE41", "DEFAULT") and _C.instruction_set() in LEVELS
    assert get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512")


@pytest.mark.skipif(len(LEVELS) < 2, reason="this processor has one set of instructions")
def test_each_level_computes_the_same_numbers():
    widest = run(None)
    assert widest[0].split()[0] == LEVELS[-1] and run("no such level")[0] == widest[0]
    for level in LEVELS[:-1]:
        used, numbers = run(level.lower())
        assert used.split()[0] == level and used != widest[0]
        assert numbers == widest[1]
