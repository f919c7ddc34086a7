"""Generated kernels of eager execution, products that end in a bias, products of odd rows: against the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl
from flambeau.inductor import gpu_operators

functional = fl.nn.functional
RNG = np.random.default_rng(0)

CASES = {
    "softmax": lambda x, w: x.softmax(-1),
    "softmax_columns": lambda x, w: x.softmax(0),
    "log_softmax": lambda x, w: x.log_softmax(-1),
    "layer_norm": lambda x, w: functional.layer_norm(x, (200,), w, w),
    "rms_norm": lambda x, w: functional.rms_norm(x, (200,), w),
    "gelu": lambda x, w: functional.gelu(x + w, approximate="tanh"),
    "scaled": lambda x, w: x * 0.3 - w / 7,
    "strided": lambda x, w: x[:, 3:103] * x[:, 100:200].exp(),
    "transposed": lambda x, w: (x.t() * 2).contiguous() + x.t(),
    "reductions": lambda x, w: x.sum(0) * x.amax(0) + x.mean(),
    "rows": lambda x, w: x.sum(1) + x.std(1),
    "heads": lambda x, w: x.view(60, 20, 10).transpose(0, 1).softmax(-1),
    "cross_entropy": lambda x, w: functional.cross_entropy(x, (x.detach() * 0).argmax(1)),
}


def _run(name, kind, where):
    rng = np.random.default_rng(1)
    x, w = (fl.tensor(rng.standard_normal(s), dtype=kind, device=where, requires_grad=True) for s in ((60, 200), (200,)))
    out = CASES[name](x, w)
    out.float().square().sum().backward()
    return [t.detach().double().cpu().numpy() for t in (out, x.grad, w.grad) if t is not None]


@pytest.mark.parametrize("kind", [fl.float32, fl.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_matches_cpu(name, kind):
    tolerance = 1e-4 if kind is fl.float32 else 3e-2
    for a, b in zip(_run(name, kind, "cuda"), _run(name, kind, "cpu"), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, np.abs(b).max()))


def test_one_kernel_serves_many_sizes_and_numbers():
    family = None
    for n in (64, 96, 128):
        x = fl.ones(n, 128, device="cuda")
        assert (x * (n / 2.0) == n / 2.0).all()
        made = next(f for record, f in gpu_operators._families.items() if record.name == "mul")
        assert family is None or len(made.flat) == family
        family = len(made.flat)


def test_linear_with_bias():
    for kind, tolerance in ((fl.float32, 1e-4), (fl.bfloat16, 2e-2), (fl.float64, 1e-10)):
        for shape in ((40, 64), (3, 5, 64)):
            x, w, b = (fl.tensor(RNG.standard_normal(s), dtype=kind) for s in (shape, (48, 64), (48,)))
            got = functional.linear(x.cuda(), w.cuda(), b.cuda()).cpu().double().numpy()
            want = functional.linear(x.double(), w.double(), b.double()).numpy()
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * 8)


@pytest.mark.parametrize("order", ["nn", "nt", "tn"])
def test_products_of_rows_that_are_no_whole_words(order):
    n, k, m = 200, 1001, 803
    x = fl.tensor(RNG.standard_normal((n, k) if order[0] == "n" else (k, n))).bfloat16()
    y = fl.tensor(RNG.standard_normal((k, m) if order[1] == "n" else (m, k))).bfloat16()
    a, b = (x if order[0] == "n" else x.t()), (y if order[1] == "n" else y.t())
    c, d = (x.cuda() if order[0] == "n" else x.cuda().t()), (y.cuda() if order[1] == "n" else y.cuda().t())
    got = (c @ d).double().cpu().numpy()
    np.testing.assert_allclose(got, a.double().numpy() @ b.double().numpy(), rtol=2e-2, atol=0.02 * k**0.5)


def test_replayed_results_may_be_kept():
    run = fl.compile(lambda x: (x * 2, x.sum()), mode="reduce-overhead")
    kept = [run(fl.full((64, 1024), float(k), device="cuda")) for k in range(8)]
    for k, (double, total) in enumerate(kept):
        assert (double == 2 * k).all() and total.item() == k * 65536
    del kept, double, total
    for k in range(6):
        out, _ = run(fl.full((64, 1024), float(k), device="cuda"))
        assert (out == 2 * k).all()
        view = out[1:]
        del out
        run(fl.zeros(64, 1024, device="cuda"))
        assert (view == 2 * k).all()


def test_launches_from_another_thread():
    import threading
    x, seen = fl.ones(100, 100, device="cuda"), []
    thread = threading.Thread(target=lambda: seen.append(((x * 3).softmax(-1).sum()).item()))
    thread.start()
    thread.join()
    assert abs(seen[0] - 100) < 1e-3
