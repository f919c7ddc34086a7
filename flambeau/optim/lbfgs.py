"""Limited-memory BFGS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.grad_mode import enable_grad, no_grad
from ..core.tensor import Tensor
from .optimizer import Optimizer, ParamsT, as_real


def _cubic_interpolate(x1: float, f1: float, g1: float, x2: float, f2: float, g2: float, bounds: tuple[float, float] | None = None) -> float:
    """The minimum of the cubic through two points and their slopes, within `bounds` (Nocedal and Wright, eq. 3.59)."""
    low, high = bounds if bounds is not None else (min(x1, x2), max(x1, x2))
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if square < 0:
        return (low + high) / 2
    d2 = square**0.5
    if x1 <= x2:
        t = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    else:
        t = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return min(max(t, low), high)


class _Point:
    """A step length with the loss, gradient and slope there."""

    def __init__(self, t: float, loss: float, grad: Tensor, slope: float):
        self.t, self.loss, self.grad, self.slope = t, loss, grad, slope


def _strong_wolfe(obj_func: Callable[[Any, float, Tensor], tuple[float, Tensor]], x: Any, t: float, d: Tensor, f: float, g: Tensor,
                  gtd: float | Tensor, c1: float = 1e-4, c2: float = 0.9, tolerance_change: float = 1e-9,
                  max_ls: int = 25) -> tuple[float, Tensor, float, int]:
    """A step length with sufficient decrease and a flat enough slope (Nocedal and Wright, algorithms 3.5 and 3.6).

    `obj_func(x, t, d)` gives loss and gradient at x + t * d; `f`, `g`, `gtd` are loss, gradient and slope at `x`, and `t` is tried first.
    Gives loss, gradient, step length and the number of calls.
    """
    size, f, gtd = d.abs().max().item(), float(f), float(gtd)

    def at(length: float) -> _Point:
        new_loss, new_grad = obj_func(x, length, d)
        return _Point(length, new_loss, new_grad, new_grad.dot(d).item())

    start = _Point(0.0, f, g, gtd)
    before, now, calls, iterations = start, at(t), 1, 0
    bracket: list[_Point] = []
    while iterations < max_ls:
        if now.loss > f + c1 * now.t * gtd or (iterations > 1 and now.loss >= before.loss):
            bracket = [before, now]
            break
        if abs(now.slope) <= -c2 * gtd:
            return now.loss, now.grad, now.t, calls
        if now.slope >= 0:
            bracket = [before, now]
            break
        low, high = now.t + 0.01 * (now.t - before.t), now.t * 10
        longer = _cubic_interpolate(before.t, before.loss, before.slope, now.t, now.loss, now.slope, (low, high))
        before, now, calls, iterations = now, at(longer), calls + 1, iterations + 1
    if not bracket:
        bracket = [start, now]
    best, found = _zoom(at, bracket, f, gtd, size, c1, c2, tolerance_change, max_ls - iterations)
    return best.loss, best.grad, best.t, calls + found


def _zoom(at: Callable, bracket: list[_Point], loss: float, slope: float, size: float, c1: float, c2: float, tolerance: float,
          most: int) -> tuple[_Point, int]:
    """Shrink the bracket until a point in it satisfies both conditions."""
    calls, stuck = 0, False
    low, high = sorted(bracket, key=lambda p: p.loss)
    for _ in range(max(most, 0)):
        width = abs(high.t - low.t)
        if width * size < tolerance:
            break
        first, last = min(low.t, high.t), max(low.t, high.t)
        t = _cubic_interpolate(low.t, low.loss, low.slope, high.t, high.loss, high.slope)
        margin = 0.1 * (last - first)
        if min(last - t, t - first) < margin:
            if stuck or t >= last or t <= first:
                t = last - margin if abs(t - last) < abs(t - first) else first + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        point = at(t)
        calls += 1
        if point.loss > loss + c1 * t * slope or point.loss >= low.loss:
            high = point
            if high.loss < low.loss:
                low, high = high, low
        else:
            if abs(point.slope) <= -c2 * slope:
                return point, calls
            if point.slope * (high.t - low.t) >= 0:
                high = low
            low = point
    return low, calls


class LBFGS(Optimizer):
    """Limited-memory BFGS over one parameter group; `step(closure)` evaluates the closure several times."""

    def __init__(self, params: ParamsT, lr: float | Tensor = 1, max_iter: int = 20, max_eval: int | None = None,
                 tolerance_grad: float = 1e-7,
                 tolerance_change: float = 1e-9, history_size: int = 100, line_search_fn: str | None = None) -> None:
        if not (isinstance(lr, Tensor) or lr >= 0.0):
            raise ValueError(f"Invalid learning rate: {lr}")
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn})
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params: list[Tensor] = self.param_groups[0]["params"]

    def _flat_grad(self) -> Tensor:
        parts = [as_real(p.detach() * 0 if p.grad is None else p.grad).reshape(-1) for p in self._params]
        return parts[0].new_cat(parts, 0)

    def _move(self, t: float, direction: Tensor) -> None:
        offset = 0
        for p in map(as_real, self._params):
            n = p.numel()
            p.add_(direction[offset:offset + n].view_as(p), alpha=t)
            offset += n

    def _direction(self, state: dict, grad: Tensor) -> Tensor:
        """-H grad by the two-loop recursion (Nocedal 1980)."""
        q = -grad
        remembered, alphas = list(zip(state["old_dirs"], state["old_stps"], state["ro"])), state["al"]
        for i, (y, s, rho) in reversed(list(enumerate(remembered))):
            alphas[i] = s.dot(q) * rho
            q = q - y * alphas[i]
        d = q * state["H_diag"]
        for i, (y, s, rho) in enumerate(remembered):
            d = d + s * (alphas[i] - y.dot(d) * rho)
        return d

    def _remember(self, state: dict, grad: Tensor, history: int) -> None:
        y, s = grad - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = y.dot(s)
        if curvature.item() > 1e-10:
            if len(state["old_dirs"]) == history:
                for name in ("old_dirs", "old_stps", "ro"):
                    state[name].pop(0)
            state["old_dirs"].append(y)
            state["old_stps"].append(s)
            state["ro"].append(1.0 / curvature)
            state["H_diag"] = curvature / y.dot(y)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Several iterations; `closure` zeroes the gradients, computes the loss, calls backward and returns the loss."""
        if closure is None:
            raise TypeError("LBFGS.step() needs a closure that computes the loss and its gradients")

        def evaluate() -> Any:
            with enable_grad():
                return closure()

        with no_grad():
            return self._iterate(evaluate)

    def _iterate(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss = closure()
        loss = float(first_loss)
        calls = 1
        state["func_evals"] += 1
        grad = self._flat_grad()
        if grad.abs().max().item() <= group["tolerance_grad"]:
            return first_loss
        for n_iter in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                state.update(d=-grad, old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            else:
                self._remember(state, grad, group["history_size"])
                state.setdefault("al", [None] * group["history_size"])
                state["d"] = self._direction(state, grad)
            d = state["d"]
            state["prev_flat_grad"], state["prev_loss"] = grad.clone(), loss
            lr = group["lr"]
            t = min(1.0, 1.0 / grad.abs().sum().item()) * lr if state["n_iter"] == 1 else lr
            state["t"] = t
            slope = grad.dot(d).item()
            if slope > -group["tolerance_change"]:
                break
            evaluations = 0
            if group["line_search_fn"] == "strong_wolfe":
                loss, grad, t, evaluations = self._search(closure, float(t), d, loss, grad, slope)
            else:
                self._move(float(t), d)
                if n_iter != group["max_iter"]:
                    loss, grad, evaluations = float(closure()), self._flat_grad(), 1
            state["t"] = t
            calls += evaluations
            state["func_evals"] += evaluations
            if self._finished(group, n_iter, calls, grad, d, t, loss, state["prev_loss"]):
                break
        return first_loss

    @staticmethod
    def _finished(group: dict, n_iter: int, calls: int, grad: Tensor, d: Tensor, t: float, loss: float, before: float) -> bool:
        return (n_iter == group["max_iter"] or calls >= group["max_eval"]
                or grad.abs().max().item() <= group["tolerance_grad"]
                or (d * t).abs().max().item() <= group["tolerance_change"]
                or abs(loss - before) < group["tolerance_change"])

    def _search(self, closure: Callable[[], Any], t: float, d: Tensor, loss: float, grad: Tensor,
                slope: float) -> tuple[float, Tensor, float, int]:
        start = [p.detach().clone() for p in self._params]

        def evaluate(saved: list[Tensor], length: float, along: Tensor) -> tuple[float, Tensor]:
            self._move(length, along)
            value, slope_there = float(closure()), self._flat_grad()
            for p, before in zip(self._params, saved):
                p.copy_(before)
            return value, slope_there

        loss, grad, t, evaluations = _strong_wolfe(evaluate, start, t, d, loss, grad, slope)
        self._move(t, d)
        return loss, grad, t, evaluations
