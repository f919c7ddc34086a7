"""`GradScaler`: scales the loss so that gradients of narrow floats do not vanish, and skips steps whose gradients overflow."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable
from typing import Any

from ..autograd.grad_mode import no_grad
from ..core.tensor import Tensor
from ..cuda.library import device_count
from ..ops.nn.steps import scale_all_
from ..optim.optimizer import Optimizer

READY, UNSCALED, STEPPED = "READY", "UNSCALED", "STEPPED"
_STATE = {"scale": "_scale", "growth_factor": "_growth_factor", "backoff_factor": "_backoff_factor",
          "growth_interval": "_growth_interval", "_growth_tracker": "_growth_tracker"}


def _accessors(name: str, doc: str) -> tuple[Callable, Callable]:
    """`get_name()` and `set_name(value)`."""
    def get(self: GradScaler) -> Any:
        return getattr(self, f"_{name}")

    def put(self: GradScaler, value: Any) -> None:
        setattr(self, f"_{name}", value)

    get.__name__, put.__name__ = f"get_{name}", f"set_{name}"
    get.__doc__, put.__doc__ = doc, f"Set: {doc[0].lower()}{doc[1:]}"
    return get, put


class OptState(enum.Enum):
    """How far a step of an optimizer is."""

    READY, UNSCALED, STEPPED = range(3)


class GradScaler:
    """scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()."""

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:
        if enabled and device == "cuda" and not device_count():
            warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
            enabled = False
        if enabled and growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if enabled and backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._device, self._enabled = device, enabled
        self._scale, self._growth_tracker = float(init_scale), 0
        self._growth_factor, self._backoff_factor, self._growth_interval = growth_factor, backoff_factor, growth_interval
        self._stages: dict[int, str] = {}
        self._found_inf: dict[int, bool] = {}

    def scale(self, outputs: Any) -> Any:
        """The loss, or losses, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(o) for o in outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, and note whether some are infinite or NaN."""
        if not self._enabled:
            return
        stage = self._stages.get(id(optimizer), READY)
        if stage is UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if stage is STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        with no_grad():
            if grads:
                scale_all_(grads, 1.0 / self._scale)
            self._found_inf[id(optimizer)] = any(not bool(g.isfinite().all()) for g in grads)
        self._stages[id(optimizer)] = UNSCALED

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """optimizer.step(), unless a gradient is infinite or NaN."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or any(isinstance(a, Callable) for a in args):     # type: ignore[arg-type]
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        stage = self._stages.get(id(optimizer), READY)
        if stage is STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if stage is READY:
            self.unscale_(optimizer)
        self._stages[id(optimizer)] = STEPPED
        return None if self._found_inf[id(optimizer)] else optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Shrink the scale if a gradient overflowed; let it grow after enough steps without."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._found_inf:
            raise AssertionError("No inf checks were recorded prior to update.")
        elif any(self._found_inf.values()):
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._scale *= self._growth_factor
                self._growth_tracker = 0
        self._stages.clear()
        self._found_inf.clear()

    def get_scale(self) -> float:
        """The scale; 1 when disabled."""
        return self._scale if self._enabled else 1.0

    get_growth_factor, set_growth_factor = _accessors("growth_factor", "By how much the scale grows.")
    get_backoff_factor, set_backoff_factor = _accessors("backoff_factor", "By how much the scale shrinks.")
    get_growth_interval, set_growth_interval = _accessors("growth_interval", "After how many good steps the scale grows.")

    def is_enabled(self) -> bool:
        """Whether it scales at all."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors and counters; empty when disabled."""
        if not self._enabled:
            return {}
        return {name: getattr(self, field) for name, field in _STATE.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state_dict."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.")
        for name, field in _STATE.items():
            setattr(self, field, state_dict[name])
        self._scale = float(self._scale)
