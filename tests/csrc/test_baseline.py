"""One native module for every x86-64 processor: what needs wide registers is in functions of its own, chosen when the module runs."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess

import pytest

from flambeau import _C

GUARDED = ("avx2", "avx512", "split_gemm")
"""Namespaces whose functions are called by what `instruction_set()` says (csrc/by_instruction_set.h, csrc/split_gemm.cpp)."""
WIDE = re.compile(r"%(?:[yzt]mm\d|k[0-7]\b)")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="about x86-64")
@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
def test_wide_registers_are_used_in_guarded_functions_alone() -> None:
    function, wide, guarded = "", set(), set()
    command = ["objdump", "-d", "--no-show-raw-insn", _C.__file__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listing:
        for line in listing.stdout or ():
            if line.endswith(">:\n"):
                function = line.split("<", 1)[1][:-3]
            elif WIDE.search(line):
                (guarded if any(name in function for name in GUARDED) else wide).add(function)
    assert listing.returncode == 0
    if not guarded:
        pytest.skip("the module has no names of functions, or no wide registers")
    assert not wide, sorted(wide)[:20]
