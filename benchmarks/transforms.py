"""torch.func against torch: milliseconds of processor time a call on one thread, eager and compiled.

    python -m benchmarks.transforms [NAME ...] [--compiled-torch]

The libraries are measured in turns within one process; the least disturbed of several rounds counts, by the median.
`--compiled-torch` compiles torch's side too, which takes minutes.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

Call = tuple[Callable, tuple]
ROUNDS = 11


def _network(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(1, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3200, 64), nn.ReLU(),
                         nn.Linear(64, 10))


def _mlp(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10))


def _per_sample(make: Callable, *shape: int) -> Callable[[Any], Call]:
    """A gradient for each sample of a batch of `shape`."""
    def call(torch: Any) -> Call:
        model = make(torch)
        params = {name: p.detach() for name, p in model.named_parameters()}

        def loss(params: dict, x: Any, label: Any) -> Any:
            out = torch.func.functional_call(model, params, (x.unsqueeze(0),))
            return torch.nn.functional.cross_entropy(out, label.unsqueeze(0))

        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
        return each, (params, torch.randn(*shape), torch.arange(shape[0]) % 10)
    return call


def _derivative(transform: str, size: int, reduced: bool = False) -> Callable[[Any], Call]:
    """A transform of sin(W a) for a square W, or of its sum."""
    def call(torch: Any) -> Call:
        w = torch.randn(size, size)
        f = (lambda a: (w @ a).sin().sum()) if reduced else lambda a: (w @ a).sin()
        return getattr(torch.func, transform)(f), (torch.randn(size),)
    return call


def _ensemble(torch: Any) -> Call:
    models = [_network(torch) for _ in range(4)]
    params, buffers = torch.func.stack_module_state(models)
    params = {name: p.detach() for name, p in params.items()}
    run = torch.func.vmap(lambda p, b, x: torch.func.functional_call(models[0], (p, b), (x,)), in_dims=(0, 0, None))
    return run, (params, buffers, torch.randn(16, 1, 28, 28))


def _small(torch: Any) -> Call:
    return torch.func.vmap(lambda a: (a * a).sum().sqrt()), (torch.randn(100, 8),)


WORKS: dict[str, Callable[[Any], Call]] = {
    "gradients for each of 32 images, CNN": _per_sample(_network, 32, 1, 28, 28),
    "gradients for each of 64 samples, MLP": _per_sample(_mlp, 64, 64),
    "Jacobian of 128 x 128, reverse": _derivative("jacrev", 128),
    "Jacobian of 128 x 128, forward": _derivative("jacfwd", 128),
    "Hessian of 64 x 64": _derivative("hessian", 64, reduced=True),
    "ensemble of four CNNs": _ensemble,
    "vmap of three small operators": _small,
}


def _sides(work: Callable[[Any], Call], torch: Any, reference: Any, compile_reference: bool) -> dict[str, Callable[[], Any]]:
    found = {}
    for name, library, compiled in (("Flambeau eager", torch, False), ("Flambeau compiled", torch, True), ("torch eager", reference, False),
                                    ("torch compiled", reference, True)):
        if name == "torch compiled" and not compile_reference:
            continue
        run, args = work(library)
        found[name] = (lambda run=library.compile(run) if compiled else run, args=args: run(*args))
    return found


def _measured(sides: dict[str, Callable[[], Any]]) -> dict[str, float]:
    for run in sides.values():
        for _ in range(3):
            run()
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, run in sides.items():
            started = time.process_time()
            run()
            taken[name].append(time.process_time() - started)
    return {name: 1e3 * statistics.median(times) for name, times in taken.items()}


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(WORKS))
    parser.add_argument("--compiled-torch", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch, reference = importlib.import_module("flambeau"), importlib.import_module("torch")
    torch.set_num_threads(1)
    reference.set_num_threads(1)
    heading: list[str] = []
    for name in options.names:
        times = _measured(_sides(WORKS[name], torch, reference, options.compiled_torch))
        if not heading:
            heading = list(times)
            print("| work, ms | " + " | ".join(heading) + " |\n|---" + "|---" * len(heading) + "|")
        print(f"| {name} | " + " | ".join(f"{times[side]:.2f}" for side in heading) + " |", flush=True)


if __name__ == "__main__":
    main()
