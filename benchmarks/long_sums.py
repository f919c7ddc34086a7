"""Errors of long sums against float64, relative to the largest result: `python -m benchmarks.long_sums [largest power of 10]`.

Data of one sign, constant, and far from zero (mean 1e4, deviation 1), over all, last, first and middle dimensions and in steps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np

import flambeau as fl
from flambeau.core.tensor import from_array

DATA: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "one sign": lambda r, n: r.random(n, np.float32),
    "constant": lambda r, n: np.full(n, 0.1, np.float32),
    "offset": lambda r, n: np.float32(1e4) + r.standard_normal(n, np.float32),
}
LAYOUTS: dict[str, Callable[[np.ndarray], tuple[np.ndarray, int | None]]] = {
    "all": lambda x: (x, None), "last": lambda x: (x.reshape(4, -1), 1), "first": lambda x: (x.reshape(-1, 4), 0),
    "middle": lambda x: (x.reshape(2, -1, 5), 1), "strided": lambda x: (x.reshape(-1, 2)[:, 0], 0),
    "transposed": lambda x: (x.reshape(-1, 10).T, 1),
}
WANTED: dict[str, tuple[Callable, Callable]] = {
    "sum": (lambda x, d: x.sum(d), lambda x, d: x.sum(d, dtype=np.float64)),
    "mean": (lambda x, d: x.mean(d), lambda x, d: x.mean(d, dtype=np.float64)),
    "var": (lambda x, d: x.var(d), lambda x, d: x.var(d, dtype=np.float64, ddof=1)),
    "norm": (lambda x, d: fl.linalg.vector_norm(x, 2, d), lambda x, d: np.sqrt(np.square(x, dtype=np.float64).sum(d))),
}


def errors(size: int) -> Iterator[tuple[str, str, str, float, float]]:
    """(data, layout, reduction, the eager error, the compiled one)."""
    for data, make in DATA.items():
        x = make(np.random.default_rng(0), size)
        for layout, view in LAYOUTS.items():
            y, dim = view(x)
            for name, (ours, exact) in WANTED.items():
                if name == "var" and data == "constant":
                    continue
                want = exact(y, dim)
                fl.compiler.reset()
                found = [fn(from_array(y), dim).numpy() for fn in (ours, fl.compile(ours))]
                eager, compiled = (float(np.abs(got - want).max() / np.abs(want).max()) for got in found)
                yield data, layout, name, eager, compiled


def main() -> None:
    """A line for each case, and the largest error of each size."""
    for power in range(4, int(sys.argv[1]) + 1 if len(sys.argv) > 1 else 8):
        size, worst = 10 ** power, 0.0
        for data, layout, name, eager, compiled in errors(size):
            worst = max(worst, eager, compiled)
            print(f"1e{power} {data:9} {layout:11} {name:5} eager {eager:.1e} compiled {compiled:.1e}", flush=True)
        print(f"1e{power}: at most {worst:.1e}", flush=True)


if __name__ == "__main__":
    main()
