"""Warnings that torch gives once in a process, or at each call: the same calls warn, and so say both libraries' categories."""

import subprocess
import sys

import pytest

CALLS = {
    "transpose": "torch.ones(3).T",
    "transpose of more": "torch.ones(2, 3, 4).T",
    "meshgrid": "torch.meshgrid(torch.arange(2), torch.arange(3))",
    "read-only": "torch.from_numpy(frozen)",
    "read-only buffer": "torch.frombuffer(b'12345678', dtype=torch.int32)",
    "mask": "torch.ones(2)[torch.tensor([1, 0], dtype=torch.uint8)]",
}
ALWAYS = ("mask",)
PROGRAM = """
import sys, warnings
{imports}
import numpy
frozen = numpy.zeros(3)
frozen.flags.writeable = False
for call in sys.argv[1:]:
    counts = []
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            eval(call)
        counts.append([w.category.__name__ for w in caught])
    print(counts)
"""


def counts(imports: str) -> dict[str, str]:
    program = PROGRAM.format(imports=imports)
    ran = subprocess.run([sys.executable, "-c", program, *CALLS.values()], capture_output=True, text=True, check=True)
    return dict(zip(CALLS, ran.stdout.splitlines()))


def test_they_are_given_once():
    warned = counts("import flambeau as torch")
    assert warned.pop("transpose of more") == "[[], []]"     # that of the transpose was given
    assert warned == {name: "[['UserWarning'], ['UserWarning']]" if name in ALWAYS else "[['UserWarning'], []]" for name in warned}


def test_torch_gives_the_same():
    pytest.importorskip("torch")
    assert counts("import flambeau as torch") == counts("import torch")
