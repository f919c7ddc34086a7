"""A worker process: one library, one work. Reads commands as JSON lines on stdin, answers each with a JSON line.

    {"do": "build", "work": "gpt_train", "compiled": true}  -> {"seconds": ...}
    {"do": "run", "steps": 3}                               -> {"seconds": [...], "values": [...]}

Not for people: `benchmarks/harness.py` starts it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any


def main() -> None:
    library = sys.argv[1]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the libraries print must not mix with the answers
    start = time.perf_counter()
    if library == "flambeau":
        importlib.import_module("flambeau.as_torch")
    torch = importlib.import_module("torch")
    imported = time.perf_counter() - start
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    step: Callable[[], Any] | None = None

    def build(work: str, compiled: bool) -> dict[str, Any]:
        nonlocal step
        works = importlib.import_module("benchmarks.works")
        step = works.WORKS[work](compiled)
        return {"import": imported, "version": str(torch.__version__)}

    def run(steps: int) -> dict[str, Any]:
        assert step is not None, "build comes first"
        seconds, values = [], []
        for _ in range(steps):
            before = time.perf_counter()
            values.append(step())
            seconds.append(time.perf_counter() - before)
        return {"seconds": seconds, "values": values}

    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"build": build, "run": run}[command.pop("do")](**command)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


main()
