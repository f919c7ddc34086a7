"""Compare what two workers wrote: the largest difference of each kind of array, relative to the array's own size."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np


def differences(mine: Path, theirs: Path) -> dict[str, tuple[float, str]]:
    """For each kind (eval, loss, grad, stepped, buffer) the worst |a - b| / scale and where it is.

    The scale is the largest magnitude in the array; of gradients it is at least 1e-3 of the largest of all gradients, as those that are
    zero but for rounding have no scale of their own; parameters with such gradients are left out after the step.
    """
    a, b = np.load(mine), np.load(theirs)
    if set(a) != set(b):
        raise AssertionError(f"arrays differ: only in {mine.name}: {sorted(set(a) - set(b))}; only in {theirs.name}: {sorted(set(b) - set(a))}")
    largest = max((np.abs(b[n]).max() for n in b if n.startswith("grad") and b[n].size), default=0.0)
    worst: dict[str, tuple[float, str]] = {}
    for name in b:
        kind = name.partition(".")[0]
        x, y = a[name], b[name]
        if x.shape != y.shape or x.dtype != y.dtype:
            raise AssertionError(f"{name}: {x.shape} {x.dtype} and {y.shape} {y.dtype}")
        if kind == "stepped" and f"grad.{name[8:]}" in b:
            meaningful = np.abs(b[f"grad.{name[8:]}"]) > 1e-5 * largest  # Adam's first step is lr * sign(gradient), whatever its size
            x, y = x[meaningful], y[meaningful]
        if not y.size:
            continue
        x, y = x.astype(np.float64), y.astype(np.float64)
        if np.isnan(x).any() != np.isnan(y).any():
            raise AssertionError(f"{name}: NaN in one of them")
        finite = np.isfinite(y)
        scale = max(np.abs(y[finite]).max(initial=0.0), 1e-3 * largest if kind == "grad" else 1e-6)
        found = float(np.abs(np.where(x == y, 0.0, x - y)).max() / (scale or 1.0))
        if kind not in worst or not found <= worst[kind][0]:
            worst[kind] = (found, name)
    return worst


def main() -> None:
    folder = Path(sys.argv[1])
    suffix = sys.argv[2] if len(sys.argv) > 2 else ""
    reference = ".double" if "double" in suffix else ""
    for theirs in sorted(folder.glob(f"*.torch{reference}.npz")):
        case = theirs.name.removesuffix(f".torch{reference}.npz")
        mine = folder / f"{case}.flambeau{suffix}.npz"
        if not mine.exists():
            print(f"{case:36} missing")
            continue
        try:
            worst = differences(mine, theirs)
        except AssertionError as error:
            print(f"{case:36} {error}")
            continue
        bad = max(worst.items(), key=lambda item: item[1][0])
        flag = " " if bad[1][0] <= 1e-3 else "!"
        print(f"{flag}{case:36}", " ".join(f"{k} {v:.1e}" for k, (v, _) in worst.items()), f" ({bad[1][1]})" if flag == "!" else "")


if __name__ == "__main__":
    main()
