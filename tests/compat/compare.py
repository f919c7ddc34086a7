"""Compare what two workers wrote: the largest difference of each kind of array, relative to the array's own size."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np


def _largest(arrays: Any, kind: str) -> float:
    floats = [arrays[n] for n in arrays if n.startswith(f"{kind}.") and arrays[n].dtype.kind == "f" and arrays[n].size]
    return max((float(np.abs(a[np.isfinite(a)]).max(initial=0.0)) for a in floats), default=0.0)


def differences(mine: Path, theirs: Path) -> dict[str, tuple[float, str]]:
    """For each kind (eval, loss, grad, stepped, buffer) the worst |a - b| / scale and where it is.

    Kinds that `mine` has none of are left out. The scale is the largest magnitude in the array; of gradients and of buffers it
    is at least 1e-3 of the largest of all of them, as what is zero but for rounding has no scale of its own. Parameters with
    such gradients are left out after the step.
    """
    a = np.load(mine)
    kinds = {name.partition(".")[0] for name in a}  # `--only` leaves some out
    b = {name: array for name, array in np.load(theirs).items() if name.partition(".")[0] in kinds}
    if set(a) != set(b):
        raise AssertionError(f"only {mine.name} has {sorted(set(a) - set(b))}; only {theirs.name} has {sorted(set(b) - set(a))}")
    largest = {kind: _largest(b, kind) for kind in ("grad", "buffer")}
    worst: dict[str, tuple[float, str]] = {}
    for name in b:
        kind = name.partition(".")[0]
        x, y = a[name], b[name]
        if x.shape != y.shape or x.dtype != y.dtype:
            raise AssertionError(f"{name}: {x.shape} {x.dtype} and {y.shape} {y.dtype}")
        if kind == "stepped" and f"grad.{name[8:]}" in b:
            # Adam's first step is lr * sign(gradient), whatever the gradient's size.
            meaningful = np.abs(b[f"grad.{name[8:]}"]) > 1e-5 * largest["grad"]
            x, y = x[meaningful], y[meaningful]
        if not y.size:
            continue
        x, y = x.astype(np.float64), y.astype(np.float64)
        if np.isnan(x).any() != np.isnan(y).any():
            raise AssertionError(f"{name}: NaN in one of them")
        finite = np.isfinite(y)
        scale = max(np.abs(y[finite]).max(initial=0.0), 1e-3 * largest.get(kind, 1e-3))
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
