"""Runs a script twice, under Python's profiler and under ours, and prints the first rows of both."""

from __future__ import annotations

import argparse
import cProfile
import pstats
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...core.lazy import LazyModule

ROWS = 15


def _run(script: str, args: Sequence[str]) -> None:
    sys.argv = [script, *args]
    sys.path.insert(0, str(Path(script).resolve().parent))
    runpy.run_path(script, run_name="__main__")


def _title(text: str) -> None:
    print(f"{'-' * 80}\n  {text}\n{'-' * 80}")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the account of a script."""
    parser = argparse.ArgumentParser(prog="python -m torch.utils.bottleneck", description=__doc__)
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    given = parser.parse_args(argv)
    LazyModule("flambeau.as_torch").install()
    _title("Environment Summary")
    print(LazyModule("flambeau.utils.collect_env").get_pretty_env_info())
    python = cProfile.Profile()
    python.runcall(_run, given.script, given.args)
    taken: Any = LazyModule("flambeau.profiler").profile()
    with taken:
        _run(given.script, given.args)
    _title("cProfile output")
    pstats.Stats(python).sort_stats("tottime").print_stats(ROWS)
    _title(f"autograd profiler output (CPU mode): the {ROWS} that took longest themselves")
    print(taken.key_averages().table(sort_by="self_cpu_time_total", row_limit=ROWS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
