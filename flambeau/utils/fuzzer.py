"""Tensors of drawn sizes for benchmarks: parameters with distributions, and tensors whose shapes they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..core.dtypes import bool_, dtype, float32
from ..core.tensor import Tensor
from ..ops.registry import OPERATORS


class ParameterAlias:
    """In a distribution: the value of another parameter."""

    def __init__(self, alias_to: str) -> None:
        self.alias_to = alias_to

    def __repr__(self) -> str:
        return f"ParameterAlias[alias_to: {self.alias_to}]"


_KINDS = ("loguniform", "uniform")


class FuzzedParameter:
    """A number that is drawn: between `minval` and `maxval`, "uniform" or "loguniform", or by a dict of values and their probabilities.
    `strict`: it is not made to fit where a tensor needs fewer dimensions."""

    def __init__(self, name: str, minval: float | None = None, maxval: float | None = None, distribution: Any = None,
                 strict: bool = False) -> None:
        if not (isinstance(distribution, dict) or distribution in _KINDS):
            raise AssertionError(f"FuzzedParameter({name!r}): the distribution is one of {_KINDS}, or a dict, got {distribution!r}")
        if not isinstance(distribution, dict) and (minval is None or maxval is None):
            raise ValueError(f"FuzzedParameter({name!r}): `minval` and `maxval` are required for distribution {distribution!r}")
        if isinstance(distribution, dict) and abs(sum(distribution.values()) - 1) > 1e-4:
            raise AssertionError(f"FuzzedParameter({name!r}): probabilities add up to {sum(distribution.values())}, not 1")
        self._name, self._least, self._most, self._distribution, self.strict = name, minval, maxval, distribution, strict

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    def sample(self, state: np.random.RandomState) -> Any:
        """A number: of integers where the bounds are."""
        if isinstance(self._distribution, dict):
            values = list(self._distribution)
            return values[state.choice(len(values), p=list(self._distribution.values()))]
        low: Any = self._least
        high: Any = self._most
        whole = isinstance(low, int) and isinstance(high, int)
        if self._distribution == "uniform":
            return int(state.randint(low, high + 1)) if whole else float(state.uniform(low, high))
        drawn = 2 ** state.uniform(math.log2(low), math.log2(high))
        return int(drawn) if whole else drawn


def _flat(values: Sequence[Any]) -> list[Any]:
    return [v for item in values for v in (item if isinstance(item, (list, tuple)) else [item])]


class FuzzedTensor:
    """A tensor whose sizes (and steps between elements) are numbers or names of parameters. With `probability_contiguous` it lies in rows,
    else in another order; `dim_parameter` names how many of the sizes count. Draws with fewer or more elements are thrown away."""

    def __init__(self, name: str, size: tuple[str | int, ...], steps: tuple[str | int, ...] | None = None,
                 probability_contiguous: float = 0.5, min_elements: int | None = None, max_elements: int | None = None,
                 max_allocation_bytes: int | None = None, dim_parameter: str | None = None, roll_parameter: str | None = None,
                 dtype: dtype = float32, cuda: bool = False, tensor_constructor: Callable[..., Tensor] | None = None) -> None:
        if roll_parameter is not None:
            raise NotImplementedError("FuzzedTensor(roll_parameter=...) is not implemented; leave it out, and roll the sizes yourself")
        self._name, self._size, self._steps, self._contiguous = name, size, steps, probability_contiguous
        self._least, self._most, self._bytes = min_elements or 0, max_elements or math.inf, max_allocation_bytes or math.inf
        self._dim, self._dtype, self._device = dim_parameter, dtype, "cuda" if cuda else "cpu"
        self._make = tensor_constructor or self.default_tensor_constructor

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @staticmethod
    def default_tensor_constructor(size: Sequence[int], dtype: dtype, device: Any = None, **parameters: Any) -> Tensor:
        """Normal numbers, or integers below 127."""
        del parameters     # for constructors of one's own
        if dtype.is_floating_point or dtype.is_complex:
            return OPERATORS["rand"](size, dtype=dtype, device=device)
        return OPERATORS["randint"](0, 2 if dtype is bool_ else 127, size, dtype=dtype, device=device)

    def _numbers(self, given: Sequence[Any], params: dict[str, Any]) -> tuple[int, ...]:
        rank = params[self._dim] if self._dim is not None else len(given)
        return tuple(params[v] if isinstance(v, str) else v for v in given[:rank])

    def shapes(self, params: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """(sizes, steps, sizes of the memory that the tensor is a part of)."""
        size = self._numbers(self._size, params)
        steps = self._numbers(self._steps, params) if self._steps is not None else (1,) * len(size)
        return size, steps, tuple(n * step for n, step in zip(size, steps))

    def satisfies_constraints(self, params: dict[str, Any]) -> bool:
        """Whether a tensor of these sizes is neither too small nor too large."""
        size, _, room = self.shapes(params)
        return self._least <= math.prod(size) <= self._most and math.prod(room) * self._dtype.itemsize <= self._bytes

    def make(self, params: dict[str, Any], state: np.random.RandomState) -> tuple[Tensor, dict[str, Any]]:
        """The tensor, and facts on it."""
        size, steps, room = self.shapes(params)
        raw = self._make(size=room, dtype=self._dtype, device=self._device, **params)
        order = np.arange(len(size))
        if len(size) > 1 and state.rand() > self._contiguous:
            while (order == np.arange(len(size))).all():
                order = state.permutation(order)
            raw = raw.permute(tuple(int(d) for d in order)).contiguous().permute(tuple(int(d) for d in np.argsort(order)))
        made = raw[tuple(slice(0, n * step, step) for n, step in zip(size, steps))]
        return made, {"numel": made.numel(), "order": order, "steps": steps, "is_contiguous": made.is_contiguous(),
                      "dtype": str(self._dtype)}


class Fuzzer:
    """Draws parameters and makes tensors of them: `for tensors, facts, parameters in fuzzer.take(10)`. `constraints` are functions of the
    parameters that must hold. The same seed draws the same."""

    def __init__(self, parameters: Sequence[Any], tensors: Sequence[Any], constraints: Sequence[Callable] | None = None,
                 seed: int | None = None) -> None:
        self._parameters, self._tensors, self._constraints = _flat(parameters), _flat(tensors), list(constraints or ())
        self._state = np.random.RandomState(np.random.RandomState().randint(2**32 - 1, dtype=np.int64) if seed is None else seed)
        names = {p.name for p in self._parameters} & {t.name for t in self._tensors}
        if names:
            raise ValueError(f"Duplicate names: {sorted(names)} are those of parameters and of tensors")
        self._drawn = self._rejected = 0

    def _draw(self) -> dict[str, Any]:
        drawn = {p.name: p.sample(self._state) for p in self._parameters}
        for name, value in drawn.items():
            while isinstance(value, ParameterAlias):
                value = drawn[value.alias_to]
            drawn[name] = value
        return drawn

    def take(self, n: int) -> Iterator[tuple[dict[str, Tensor], dict[str, dict], dict[str, Any]]]:
        """`n` times tensors by name, facts on them, and the parameters. RuntimeError where next to nothing that is drawn will do."""
        for _ in range(n):
            for _ in range(1000):
                params = self._draw()
                self._drawn += 1
                if all(t.satisfies_constraints(params) for t in self._tensors) and all(fits(**params) for fits in self._constraints):
                    break
                self._rejected += 1
            else:
                raise RuntimeError("Fuzzer: 1000 draws in a row met no constraint; widen min_elements and max_elements, or the constraints")
            made = {t.name: t.make(params, self._state) for t in self._tensors}
            yield {name: tensor for name, (tensor, _) in made.items()}, {name: facts for name, (_, facts) in made.items()}, params

    @property
    def rejection_rate(self) -> float:
        """The part of the draws that were thrown away."""
        return self._rejected / self._drawn if self._drawn else 0.0
