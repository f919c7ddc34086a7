"""Small eager operators against torch: microseconds a call on one thread, forward and backward.

    python -m benchmarks.small_ops [NAME ...] [--min-ratio R] [--reference torch|none] [--device cpu|cuda]

Both libraries are measured in turns within one process, by processor time (the machine may be busy), as the least of several
rounds. Everything has fewer than 16 thousand elements, so what is seen is the cost of a call. On a GPU it is the clock's time of
many calls and one synchronisation after them.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any

Work = Callable[[], Any]
ROUNDS, SECONDS = 7, 0.012  # of each measurement


def one_input(fn: Callable[[Any], Any], *shape: int) -> Callable[[Any], Iterator[tuple[str, Work]]]:
    """`fn(x)` and its backward, for a float tensor of `shape` (torch's generator is not needed: the values are i / n)."""
    def works(torch: Any) -> Iterator[tuple[str, Work]]:
        x = _ramp(torch, *shape)
        run = bind(fn, torch)
        yield "", lambda: run(x)
        leaf = _ramp(torch, *shape).requires_grad_()
        yield from with_backward(torch, lambda: run(leaf), [leaf])
    return works


def forward_only(make: Callable[[Any], Work]) -> Callable[[Any], Iterator[tuple[str, Work]]]:
    """A work without gradient; `make(torch)` prepares it."""
    def works(torch: Any) -> Iterator[tuple[str, Work]]:
        yield "", make(torch)
    return works


def trained(make: Callable[[Any], tuple[Work, list]]) -> Callable[[Any], Iterator[tuple[str, Work]]]:
    """`make(torch)` gives a function and the leaves whose gradients are wanted."""
    def works(torch: Any) -> Iterator[tuple[str, Work]]:
        run, leaves = make(torch)

        def forward() -> Any:
            with torch.no_grad():
                return run()
        yield "", forward
        yield from with_backward(torch, run, leaves)
    return works


def with_backward(torch: Any, run: Work, leaves: list) -> Iterator[tuple[str, Work]]:
    """Forward and backward together: what a training step pays."""
    out = run()
    seed = torch.ones_like(out if not isinstance(out, (tuple, list)) else out[0])

    def both() -> Any:
        out = run()
        torch.autograd.grad(out if not isinstance(out, (tuple, list)) else out[0], leaves, seed)
    yield "+ backward", both


def bind(fn: Callable, torch: Any) -> Callable[[Any], Any]:
    """`fn(torch, x)` as a function of x."""
    return lambda x: fn(torch, x)


def _ramp(torch: Any, *shape: int) -> Any:
    n = 1
    for s in shape:
        n *= s
    return (torch.arange(n, dtype=torch.float32) * 0.37).sin().reshape(shape).clone()


def _binary(fn: Callable) -> Callable:
    def make(torch: Any) -> tuple[Work, list]:
        a, b = _ramp(torch, 32, 32).requires_grad_(), (_ramp(torch, 32, 32) + 2).requires_grad_()
        return lambda: fn(torch, a, b), [a, b]
    return trained(make)


def _module(make_layer: Callable, *shape: int) -> Callable:
    def make(torch: Any) -> tuple[Work, list]:
        layer, x = make_layer(torch), _ramp(torch, *shape).requires_grad_()
        return lambda: layer(x), [x, *layer.parameters()]
    return trained(make)


def _indices(torch: Any, like: Any = None) -> Any:
    return torch.tensor([3, 1, 7, 30, 2, 2, 9, 15], device=None if like is None else like.device)


def _embedding(torch: Any) -> tuple[Work, list]:
    weight, index = _ramp(torch, 32, 64).requires_grad_(), _indices(torch)
    return lambda: torch.nn.functional.embedding(index, weight), [weight]


def _cross_entropy(torch: Any) -> tuple[Work, list]:
    logits, target = _ramp(torch, 8, 32).requires_grad_(), _indices(torch)
    return lambda: torch.nn.functional.cross_entropy(logits, target), [logits]


def _sdpa(torch: Any) -> tuple[Work, list]:
    q, k, v = (_ramp(torch, 2, 4, 16, 16).requires_grad_() for _ in range(3))
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), [q, k, v]


def _where(torch: Any) -> tuple[Work, list]:
    a, b = _ramp(torch, 32, 32).requires_grad_(), _ramp(torch, 32, 32).requires_grad_()
    mask = a.detach() > 0
    return lambda: torch.where(mask, a, b), [a, b]


def _cat(torch: Any) -> tuple[Work, list]:
    parts = [_ramp(torch, 8, 32).requires_grad_() for _ in range(4)]
    return lambda: torch.cat(parts, 0), parts


def _adamw(torch: Any) -> Work:
    parameters = [_ramp(torch, 16, 16).requires_grad_() for _ in range(20)]
    for p in parameters:
        p.grad = torch.ones_like(p)
    return torch.optim.AdamW(parameters, lr=1e-3).step


def _sgd(torch: Any) -> Work:
    parameters = [_ramp(torch, 16, 16).requires_grad_() for _ in range(20)]
    for p in parameters:
        p.grad = torch.ones_like(p)
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9).step


def _module_call(torch: Any) -> Work:
    class Nothing(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x
    layer, x = Nothing(), torch.zeros(4)
    return lambda: layer(x)


def _graph_of_ten(torch: Any) -> tuple[Work, list]:
    x, w = _ramp(torch, 8, 8).requires_grad_(), _ramp(torch, 8, 8).requires_grad_()

    def run() -> Any:
        y = (x @ w).relu() * 2 + x
        z = (y.exp() - w).tanh()
        return (z * y).sum(1).mean()
    return run, [x, w]


def _in_place(torch: Any) -> Work:
    x, y = _ramp(torch, 32, 32), _ramp(torch, 32, 32)
    return lambda: x.add_(y, alpha=1e-9)


def _with(fn: Callable, *shape: int) -> Callable:
    """Forward alone of `fn(torch, x)`."""
    def make(torch: Any) -> Work:
        x = _ramp(torch, *shape)
        return lambda: fn(torch, x)
    return forward_only(make)


WORKS: dict[str, Callable[[Any], Iterator[tuple[str, Work]]]] = {
    "a + b": _binary(lambda t, a, b: a + b),
    "a - b": _binary(lambda t, a, b: a - b),
    "a * b": _binary(lambda t, a, b: a * b),
    "a / b": _binary(lambda t, a, b: a / b),
    "maximum": _binary(lambda t, a, b: t.maximum(a, b)),
    "a @ b": _binary(lambda t, a, b: a @ b),
    "a + 1": one_input(lambda t, x: x + 1, 32, 32),
    "a * 2": one_input(lambda t, x: x * 2, 32, 32),
    "a ** 2": one_input(lambda t, x: x ** 2, 32, 32),
    "a + row": one_input(lambda t, x: x + x[0], 32, 32),
    "-a": one_input(lambda t, x: -x, 32, 32),
    "a > 0": _with(lambda t, x: x > 0, 32, 32),
    "a == a": _with(lambda t, x: x == x, 32, 32),
    "add_": forward_only(_in_place),
    "mul_": _with(lambda t, x: x.mul_(1.0), 32, 32),
    "zero_": _with(lambda t, x: x.zero_(), 32, 32),
    "relu": one_input(lambda t, x: x.relu(), 32, 32),
    "gelu": one_input(lambda t, x: t.nn.functional.gelu(x), 32, 32),
    "silu": one_input(lambda t, x: t.nn.functional.silu(x), 32, 32),
    "sigmoid": one_input(lambda t, x: x.sigmoid(), 32, 32),
    "tanh": one_input(lambda t, x: x.tanh(), 32, 32),
    "exp": one_input(lambda t, x: x.exp(), 32, 32),
    "log": one_input(lambda t, x: x.log(), 32, 32),
    "sqrt": one_input(lambda t, x: x.sqrt(), 32, 32),
    "abs": one_input(lambda t, x: x.abs(), 32, 32),
    "clamp": one_input(lambda t, x: x.clamp(-0.5, 0.5), 32, 32),
    "where": trained(_where),
    "masked_fill": one_input(lambda t, x: x.masked_fill(x.detach() > 0, 0.0), 32, 32),
    "sum": one_input(lambda t, x: x.sum(), 32, 32),
    "sum(-1)": one_input(lambda t, x: x.sum(-1), 32, 32),
    "mean": one_input(lambda t, x: x.mean(), 32, 32),
    "mean(-1)": one_input(lambda t, x: x.mean(-1, keepdim=True), 32, 32),
    "max": one_input(lambda t, x: x.max(), 32, 32),
    "max(-1)": one_input(lambda t, x: x.max(-1)[0], 32, 32),
    "argmax": _with(lambda t, x: x.argmax(-1), 32, 32),
    "var": one_input(lambda t, x: x.var(-1), 32, 32),
    "cumsum": one_input(lambda t, x: x.cumsum(-1), 32, 32),
    "norm": one_input(lambda t, x: x.norm(), 32, 32),
    "topk": one_input(lambda t, x: x.topk(4)[0], 32, 32),
    "sort": one_input(lambda t, x: x.sort()[0], 32, 32),
    "softmax": one_input(lambda t, x: x.softmax(-1), 8, 32),
    "log_softmax": one_input(lambda t, x: x.log_softmax(-1), 8, 32),
    "cross_entropy": trained(_cross_entropy),
    "mse_loss": _binary(lambda t, a, b: t.nn.functional.mse_loss(a, b)),
    "layer_norm": _module(lambda t: t.nn.LayerNorm(32), 8, 32),
    "batch_norm": _module(lambda t: t.nn.BatchNorm2d(8), 4, 8, 8, 8),
    "group_norm": _module(lambda t: t.nn.GroupNorm(2, 8), 4, 8, 8, 8),
    "linear": _module(lambda t: t.nn.Linear(32, 32), 8, 32),
    "conv2d": _module(lambda t: t.nn.Conv2d(8, 8, 3, padding=1), 2, 8, 8, 8),
    "max_pool2d": one_input(lambda t, x: t.nn.functional.max_pool2d(x, 2), 2, 8, 8, 8),
    "avg_pool2d": one_input(lambda t, x: t.nn.functional.avg_pool2d(x, 2), 2, 8, 8, 8),
    "adaptive_avg_pool2d": one_input(lambda t, x: t.nn.functional.adaptive_avg_pool2d(x, 1), 2, 8, 8, 8),
    "pad": one_input(lambda t, x: t.nn.functional.pad(x, (1, 1)), 32, 32),
    "dropout": one_input(lambda t, x: t.nn.functional.dropout(x, 0.1), 32, 32),
    "embedding": trained(_embedding),
    "attention": trained(_sdpa),
    "bmm": one_input(lambda t, x: t.bmm(x, x), 4, 16, 16),
    "einsum": one_input(lambda t, x: t.einsum("bij,bkj->bik", x, x), 4, 16, 16),
    "cat": trained(_cat),
    "stack": one_input(lambda t, x: t.stack([x, x, x]), 8, 32),
    "split": one_input(lambda t, x: x.split(8, -1), 8, 32),
    "chunk, add": one_input(lambda t, x: sum(x.chunk(4, -1)), 8, 32),
    "unbind": one_input(lambda t, x: x.unbind(0), 4, 32),
    "view": one_input(lambda t, x: x.view(16, 64), 32, 32),
    "reshape": one_input(lambda t, x: x.reshape(16, 64), 32, 32),
    "transpose": one_input(lambda t, x: x.transpose(0, 1), 32, 32),
    "permute": one_input(lambda t, x: x.permute(2, 0, 1), 4, 8, 16),
    "expand": one_input(lambda t, x: x.expand(8, 32, 32), 32, 32),
    "unsqueeze": one_input(lambda t, x: x.unsqueeze(1), 32, 32),
    "squeeze": one_input(lambda t, x: x.squeeze(1), 32, 1, 32),
    "flatten": one_input(lambda t, x: x.flatten(1), 4, 8, 16),
    "contiguous": one_input(lambda t, x: x.t().contiguous(), 32, 32),
    "clone": one_input(lambda t, x: x.clone(), 32, 32),
    "detach": _with(lambda t, x: x.detach(), 32, 32),
    "x[3]": one_input(lambda t, x: x[3], 32, 32),
    "x[:, 2:8]": one_input(lambda t, x: x[:, 2:8], 32, 32),
    "x[index]": one_input(lambda t, x: x[_indices(t, x)], 32, 32),
    "x[mask]": _with(lambda t, x: x[x > 0], 32, 32),
    "x[3] = 1": _with(lambda t, x: x.__setitem__(3, 1.0), 32, 32),
    "gather": one_input(lambda t, x: x.gather(0, _indices(t, x).unsqueeze(1)), 32, 32),
    "index_select": one_input(lambda t, x: x.index_select(0, _indices(t, x)), 32, 32),
    "tril": one_input(lambda t, x: x.tril(), 32, 32),
    "to(float64)": one_input(lambda t, x: x.to(t.float64), 32, 32),
    "float()": _with(lambda t, x: x.float(), 32, 32),
    "item": _with(lambda t, x: x[0, 0].item(), 32, 32),
    "shape, dim, numel": _with(lambda t, x: (x.shape[0], x.dim(), x.numel(), x.size(1)), 32, 32),
    "zeros": _with(lambda t, x: t.zeros(32, 32), 1),
    "ones_like": _with(lambda t, x: t.ones_like(x), 32, 32),
    "full": _with(lambda t, x: t.full((8,), 2.0), 1),
    "arange": _with(lambda t, x: t.arange(32), 1),
    "tensor([...])": _with(lambda t, x: t.tensor([1.0, 2.0, 3.0]), 1),
    "randn": _with(lambda t, x: t.randn(32, 32), 1),
    "Module call": forward_only(_module_call),
    "graph of ten": trained(_graph_of_ten),
    "AdamW, 20 small": forward_only(_adamw),
    "SGD, 20 small": forward_only(_sgd),
}


class Meter:
    """How a library's calls are timed on a device."""

    def __init__(self, library: Any, device: str):
        self.clock = time.process_time if device == "cpu" else time.perf_counter
        self.wait = (lambda: None) if device == "cpu" else library.cuda.synchronize

    def seconds(self, work: Work, count: int) -> float:
        """Of so many calls."""
        self.wait()
        started = self.clock()
        for _ in range(count):
            work()
        self.wait()
        return self.clock() - started


def microseconds(works: list[Work], meters: list[Meter]) -> list[float]:
    """Of one call of each, in turns."""
    counts = [_enough(w) for w in works]
    best = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for i, (work, count, meter) in enumerate(zip(works, counts, meters, strict=True)):
            best[i] = min(best[i], meter.seconds(work, count) / count * 1e6)
    return best


def _enough(work: Work) -> int:
    """How many calls fill a measurement. The first calls are not counted: they may compile."""
    for _ in range(5):
        work()
    started = time.perf_counter()
    for _ in range(5):
        work()
    return max(5, int(SECONDS / max((time.perf_counter() - started) / 5, 1e-7)))


def rows(libraries: list[Any], names: list[str], device: str = "cpu") -> Iterator[tuple[str, list[float]]]:
    """(name, microseconds per library) for each chosen work."""
    meters = [Meter(library, device) for library in libraries]
    for name, works in WORKS.items():
        if names and name not in names:
            continue
        for variants in zip(*[_on(device, library, works) for library in libraries], strict=True):
            title = " ".join([name, variants[0][0]]).strip()
            yield title, microseconds([work for _, work in variants], meters)


def _on(device: str, library: Any, works: Callable[[Any], Iterator[tuple[str, Work]]]) -> list[tuple[str, Work]]:
    """The variants of a work, whose tensors are made on a device."""
    with library.device(device):
        return list(works(library))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", help="works to measure (all)")
    parser.add_argument("--min-ratio", type=float, default=0.0, help="show only what is slower than this times torch")
    parser.add_argument("--reference", default="torch", choices=["torch", "none"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args()
    libraries = [importlib.import_module("flambeau")]
    if options.reference == "torch":
        libraries.append(importlib.import_module("torch"))
    for library in libraries:
        library.set_num_threads(1)
    print("| work | Flambeau us | torch us | ratio |\n|---|---|---|---|")
    ratios = []
    for title, (ours, *theirs) in rows(libraries, options.names, options.device):
        ratio = ours / theirs[0] if theirs else float("nan")
        ratios.append(ratio)
        if not ratio < options.min_ratio:
            print(f"| {title} | {ours:.1f} | {theirs[0] if theirs else float('nan'):.1f} | {ratio:.2f} |", flush=True)
    if ratios:
        ordered = sorted(ratios)
        print(f"\n{len(ratios)} works: median ratio {ordered[len(ratios) // 2]:.2f}, "
              f"{sum(r > 2 for r in ratios)} slower than 2x torch, {sum(r <= 1 for r in ratios)} at least as fast")


if __name__ == "__main__":
    main()
