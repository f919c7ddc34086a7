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


def absent_names(module: str, names: Iterable[str], instead: str) -> Callable[[str], Any]:
    """A module's `__getattr__` that answers each of `names` with an `absent` function, and no other name."""
    known = frozenset(names)

    def lookup(name: str) -> Any:
        if name in known:
            return absent(f"{module}.{name}", instead)
        raise AttributeError(f"module '{module}' has no attribute '{name}'")

    return lookup
