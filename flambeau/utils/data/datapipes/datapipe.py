"""The bases of pipes, and steps that are methods of every pipe."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from ...._absent import absent_type
from ....ops.generators import random_seed
from ..dataset import Dataset, IterableDataset, T_co

_IterDataPipeSerializationWrapper, _MapDataPipeSerializationWrapper = (
    absent_type(f"torch.utils.data.datapipes.datapipe.{_name}", "pickle the pipe itself")
    for _name in ("_IterDataPipeSerializationWrapper", "_MapDataPipeSerializationWrapper"))


class _Steps:
    """`pipe.batch(4)` is the step registered as "batch", made of the pipe."""

    functions: ClassVar[dict[str, Callable]] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in self.functions:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return functools.partial(self.functions[name], self)

    @classmethod
    def register_datapipe_as_function(cls, function_name: str, cls_to_register: type, enable_df_api_tracing: bool = False) -> None:
        """Make a class a step of all pipes of this kind."""
        if enable_df_api_tracing:
            raise NotImplementedError("enable_df_api_tracing is not implemented; leave it out")
        if function_name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")
        cls.functions[function_name] = cls_to_register

    register_function = register_datapipe_as_function

    def __repr__(self) -> str:
        return type(self).__qualname__

    def reset(self) -> None:
        """Called by who begins anew; a pipe that keeps something between passes forgets it here."""


class IterDataPipe(_Steps, IterableDataset[T_co]):
    """A stream: define `__iter__`."""

    functions: ClassVar[dict[str, Callable]] = {}

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError("Subclasses of IterDataPipe should implement __iter__.")

    def __add__(self, other: Any) -> Any:
        return self.concat(other)


class MapDataPipe(_Steps, Dataset[T_co]):
    """A mapping of indices: define `__getitem__`, and `__len__`."""

    functions: ClassVar[dict[str, Callable]] = {}

    def __add__(self, other: Any) -> Any:
        return self.concat(other)


class functional_datapipe:
    """A class decorator: the class becomes a step of every pipe of its kind, under `name`."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name, self.enable_df_api_tracing = name, enable_df_api_tracing

    def __call__(self, cls: type) -> type:
        for kind in (IterDataPipe, MapDataPipe):
            if issubclass(cls, kind):
                kind.register_datapipe_as_function(self.name, cls, self.enable_df_api_tracing)
                return cls
        raise TypeError(f"`functional_datapipe` can only decorate IterDataPipe or MapDataPipe, not {cls.__name__}")


def traverse_dps(datapipe: Any) -> dict[int, tuple[Any, dict]]:
    """The graph that ends in a pipe: {its id: (the pipe, the graphs of the pipes that it reads)}."""
    inner: dict[int, tuple[Any, dict]] = {}
    for value in vars(datapipe).values():
        for part in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(part, _Steps):
                inner.update(traverse_dps(part))
    return {id(datapipe): (datapipe, inner)}


def pipes_of(datapipe: Any) -> Iterator[Any]:
    """A pipe and all those that it reads from."""
    for pipe, inner in traverse_dps(datapipe).values():
        yield pipe
        for below, _ in inner.values():
            yield from pipes_of(below)


def apply_shuffle_settings(datapipe: Any, shuffle: bool | None = None) -> Any:
    """Turn all shuffling steps that end in a pipe on or off; None leaves them."""
    for pipe in pipes_of(datapipe) if shuffle is not None else ():
        if callable(getattr(type(pipe), "set_shuffle", None)):
            pipe.set_shuffle(shuffle)
    return datapipe


def apply_sharding(datapipe: Any, num_of_instances: int, instance_id: int) -> Any:
    """Give all sharding steps that end in a pipe this share."""
    for pipe in pipes_of(datapipe):
        if callable(getattr(type(pipe), "apply_sharding", None)):
            pipe.apply_sharding(num_of_instances, instance_id)
    return datapipe


def apply_random_seed(datapipe: Any, rng: Any) -> Any:
    """Seed all random steps that end in a pipe from a generator."""
    for pipe in pipes_of(datapipe):
        if callable(getattr(type(pipe), "set_seed", None)):
            pipe.set_seed(random_seed(rng))
    return datapipe


def named_after(names: list[str], home: dict[str, Any], kind: type) -> None:
    """Give the steps of a module torch's names: MapperIterDataPipe is what `Mapper` stands for."""
    for name in names:
        step = home[name]
        step.__name__ = step.__qualname__ = f"{name}{kind.__name__}"
        home[step.__name__] = step


__all__ = ["IterDataPipe", "MapDataPipe", "functional_datapipe"]
