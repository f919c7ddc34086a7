"""What argument generators draw from: the random numbers, the tensors at hand, and fresh inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from . import inputs
from .program import Input, Ref, Word

SIZES = (2, 3, 4, 5, 7, 1, 8, 0)
SIZE_WEIGHTS = (30, 30, 20, 10, 5, 8, 4, 3)


def dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


class Draw:
    """The state of one program being drawn; `it` is the first tensor of the step at hand, `args` its arguments so far."""

    def __init__(self, rng: Random, lib: Any, grad: float = 0.0):
        self.rng, self.lib, self.grad = rng, lib, grad
        self.space: dict[str, Any] = {"torch": lib}
        self.pool: list[tuple[Ref, Any]] = []
        self.pending: list[Input] = []
        self.made = 0
        self.sizes = rng.choices(SIZES, SIZE_WEIGHTS, k=3)
        self.dtype = inputs.dtype(rng)
        self.it: Any = None
        self.ref: Ref | None = None
        self.args: dict[str, Any] = {}

    # -- choices
    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def choice(self, options: Any) -> Any:
        return self.rng.choice(list(options))

    def int(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def number(self, dtype: str | None = None) -> Any:
        """A Python number that goes with a dtype, now and then one that does not, or a NumPy scalar."""
        dtype = dtype or (dtype_name(self.it) if self.it is not None else self.dtype)
        r = self.rng.random()
        if r < 0.04:
            return self.choice([True, complex(1, -2), float("nan"), float("inf"), 300, 1e30, -0.0, 2**40])
        if r < 0.08:
            return Word(self.choice(["numpy.float32(1.5)", "numpy.int64(3)", "numpy.float64(-0.5)", "numpy.bool_(True)"]))
        if dtype in inputs.INTEGERS or dtype == "bool" or r < 0.4:
            return self.int(-2, 4)
        return self.choice([0.5, 2.0, -1.5, 0.25, 3.0, 0.1, 1e-3])

    def dim(self, ndim: int | None = None) -> int:
        n = max(1, self.it.ndim if ndim is None else ndim)
        return self.rng.randrange(-n, n)

    def dims(self) -> Any:
        """One dimension, several, or all of them."""
        r = self.rng.random()
        if r < 0.45 or self.it.ndim == 0:
            return self.dim()
        if r < 0.6:
            return None
        picked = self.rng.sample(range(self.it.ndim), self.int(1, self.it.ndim))
        picked = [d - self.it.ndim if self.chance(0.3) else d for d in picked]
        return tuple(picked) if self.chance(0.7) else picked

    def size(self) -> int:
        return self.choice(self.sizes)

    def shape(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        n = self.rng.choices(range(5), (10, 25, 35, 20, 10))[0]
        return tuple(self.size() for _ in range(min(max(n, low), high)))

    def same_elements(self, count: int) -> tuple[int, ...]:
        """A shape of so many elements, perhaps with one -1."""
        shape, left = [], count
        for _ in range(self.int(0, 3)):
            factors = [f for f in range(1, left + 1) if left % f == 0] if left else [1, 2]
            shape.append(self.choice(factors))
            left //= shape[-1] if left else 1
        shape.append(left)
        self.rng.shuffle(shape)
        if self.chance(0.3):
            shape[self.rng.randrange(len(shape))] = -1
        return tuple(shape)

    # -- tensors
    def evaluate(self, made: Input) -> Any:
        return eval(made.expression(), {"torch": self.lib})

    def fresh(self, shape: Any, dtype: str | None = None, kind: str | None = None, plain: float = 0.6) -> Ref:
        dtype = dtype or (dtype_name(self.it) if self.it is not None else self.dtype)
        dtype = dtype if dtype in inputs.DTYPES else self.dtype     # torch has more of them: complex32
        made = inputs.make(self.rng, f"x{self.made}", dtype, tuple(shape), kind=kind, plain=plain)
        return self.keep(made)

    def keep(self, made: Input) -> Ref:
        self.made += 1
        if self.grad and ("float" in made.dtype or "complex" in made.dtype) and self.chance(self.grad):
            made = replace(made, grad=True)
        self.pending.append(made)
        self.space[made.name] = self.evaluate(made)
        return Ref(made.name)

    def indices(self, shape: Any, below: int, dtype: str = "int64", negative: bool = False) -> Ref:
        """An index tensor whose values lie below a size."""
        low = -below if negative else 0
        values = tuple(self.int(low, below - 1) if below > 0 else 0 for _ in range(min(61, max(1, _count(shape)))))
        return self.keep(Input(f"x{self.made}", dtype, tuple(shape), values))

    def keep_sorted(self, count: int) -> Ref:
        """A vector of rising values."""
        return self.keep(Input(f"x{self.made}", "float32", (count,), tuple(sorted(self.int(-3, 3) / 2 for _ in range(count)))))

    def value(self, ref: Ref) -> Any:
        return eval(ref.name, self.space)

    def tensor(
        self, fits: Callable[[Any], bool] = lambda t: True, fresh: Callable[[], Ref] | None = None, reuse: float = 0.75
    ) -> Ref:
        """A tensor at hand that fits, or else a fresh one."""
        if self.chance(reuse):
            found = [ref for ref, t in self.pool[-12:] if fits(t)]
            if found:
                return self.choice(found)
        if fresh is not None:
            return fresh()
        dtype = self.dtype if self.chance(0.65) else inputs.dtype(self.rng)
        for _ in range(20):
            shape = self.shape()
            if fits(_Shape(shape, dtype)):
                break
        return self.fresh(shape, dtype)

    def beside(self, dtype: str | None = None, reuse: float = 0.6) -> Ref:
        """A tensor that broadcasts with the first."""
        shape = tuple(self.it.shape)

        def fresh() -> Ref:
            own = shape[self.int(0, len(shape)) :] if self.chance(0.3) else shape
            own = tuple(1 if self.chance(0.12) else n for n in own)
            return self.fresh(own, dtype or (dtype_name(self.it) if self.chance(0.8) else inputs.dtype(self.rng)))

        return self.tensor(lambda t: (dtype is None or dtype_name(t) == dtype) and _broadcasts(tuple(t.shape), shape), fresh, reuse)

    def like(self, dtype: str | None = None, reuse: float = 0.6, kind: str | None = None) -> Ref:
        """A tensor of the first's shape."""
        name = dtype or dtype_name(self.it)
        return self.tensor(
            lambda t: t.shape == self.it.shape and dtype_name(t) == name, lambda: self.fresh(self.it.shape, name, kind), reuse
        )


class _Shape:
    """Stands for a tensor not made yet."""

    def __init__(self, shape: tuple[int, ...], dtype: str):
        self.shape, self.ndim, self.dtype = shape, len(shape), f"torch.{dtype}"


def _count(shape: Any) -> int:
    n = 1
    for s in shape:
        n *= s
    return n


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(a[::-1], b[::-1]))
