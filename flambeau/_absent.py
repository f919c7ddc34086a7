"""Names of torch's namespaces that exist to be imported, and say clearly what is missing when they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn


def absent(name: str, instead: str) -> Callable[..., NoReturn]:
    """A function called `name` whose call raises NotImplementedError with `instead`, what to use in its place."""

    def missing(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{name} is not implemented; {instead}")

    missing.__name__ = missing.__qualname__ = name.rpartition(".")[2]
    missing.__doc__ = f"Not implemented; {instead}."
    return missing


def absent_type(name: str, instead: str) -> type:
    """A class called `name`, of which nothing is an instance: for isinstance, annotations and base classes. Making one raises as
    `absent` does."""
    module, _, short = name.rpartition(".")
    refuse = absent(name, instead)
    return type(short, (), {"__new__": lambda cls, *args, **kwargs: refuse(), "__doc__": refuse.__doc__, "__module__": module})


def absent_name(name: str, instead: str) -> Any:
    """By torch's habit of naming: a class where the last part begins with a capital, else a function."""
    return (absent_type if name.rpartition(".")[2].lstrip("_")[:1].isupper() else absent)(name, instead)


def absent_names(module: str, names: Iterable[str], instead: str) -> Callable[[str], Any]:
    """A module's `__getattr__` that answers each of `names` with what `absent_name` makes, always the same one, and no other name."""
    known = frozenset(names)
    made: dict[str, Any] = {}

    def lookup(name: str) -> Any:
        if name not in known:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        if name not in made:
            made[name] = absent_name(f"{module}.{name}", instead)
        return made[name]

    return lookup
