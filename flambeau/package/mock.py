"""Stands in a package for a module that was mocked: it can be imported, and raises when anything of it is used."""

from __future__ import annotations

from typing import Any

_MAGIC = ("__call__", "__getitem__", "__setitem__", "__len__", "__iter__", "__contains__", "__enter__", "__exit__", "__add__", "__sub__",
          "__mul__", "__truediv__", "__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "__int__", "__float__")


class MockedObject:
    """Of a module that is not in the package. What is made of it (`module.Name`) is such an object again."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, name: str) -> MockedObject:
        if name.startswith("__"):
            raise AttributeError(name)
        return MockedObject(f"{self._name}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise NotImplementedError(f"Object '{self._name}' was mocked out during packaging but it is being used in {name} = {value!r}")

    def __mro_entries__(self, bases: tuple) -> tuple:
        return tuple([base for base in bases if not isinstance(base, MockedObject)])


def _raising(name: str) -> Any:
    def method(self: Any, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"Object '{self._name}' was mocked out during packaging but it is being used in {name}")

    return method


for _name in _MAGIC:
    setattr(MockedObject, _name, _raising(_name))
MockedObject.__hash__ = object.__hash__  # type: ignore[method-assign]


def __getattr__(name: str) -> MockedObject:
    if name.startswith("__"):
        raise AttributeError(name)
    return MockedObject(f"{__name__}.{name}")
