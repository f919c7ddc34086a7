"""The bases of pipes, and steps that are methods of every pipe."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

from ...._absent import absent_type
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


class IterDataPipe(_Steps, IterableDataset[T_co]):
    """A stream: define `__iter__`."""

    functions: ClassVar[dict[str, Callable]] = {}


class MapDataPipe(_Steps, Dataset[T_co]):
    """A mapping of indices: define `__getitem__`, and `__len__`."""

    functions: ClassVar[dict[str, Callable]] = {}


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


__all__ = ["IterDataPipe", "MapDataPipe", "functional_datapipe"]
