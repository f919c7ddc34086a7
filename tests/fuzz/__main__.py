"""Random programs on torch and on Flambeau: what differs is made small and written to a folder (docs/testing.md)."""

from __future__ import annotations

import argparse
import sys
import time

from . import workers
from .hunt import Hunt, summary
from .modes import MODES


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long, for all modes together")
    parser.add_argument("--programs", type=int, default=10**9, help="at most so many programs a mode and job")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="programs depend on it alone; the clock's without")
    parser.add_argument("--mode", choices=["all", *MODES], default="all")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--out", default="out/fuzz", help="where the scripts of what differs go")
    parser.add_argument(
        "--show", type=int, metavar="SEED", help="print the program of a seed that a summary names, and run nothing"
    )
    options = parser.parse_args()
    if options.show is not None:
        import torch

        mode = "eager" if options.mode == "all" else options.mode
        print(MODES[mode].script(Hunt(mode, torch).generator.program(options.show)))
        return 0
    wanted = [mode for mode in MODES if not mode.startswith("cuda")] if options.mode == "all" else [options.mode]
    results = [(mode, *workers.hunt(mode, options, options.seconds / len(wanted))) for mode in wanted]
    print(f"seed {options.seed}")
    for mode, programs, finds in results:
        print(summary(mode, programs, finds))
    return int(any(finds for _, _, finds in results))


if __name__ == "__main__":
    sys.exit(main())
