"""A version string that also compares with tuples and other version strings (torch.torch_version)."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from .version import __version__ as _internal_version

_PRE_RELEASE = -1
_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)((?:[._-]?(?:alpha|beta|preview|pre|post|rev|dev|rc|a|b|c|r)[._-]?\d*)*)(?:\+.*)?", re.IGNORECASE)


def _key(version: Any) -> tuple[int, ...] | None:
    """The release numbers; a pre-release (2.1a0, 2.1.dev3, 2.1rc1) sorts before its release. None for what is no version."""
    text = ".".join(map(str, version)) if isinstance(version, (tuple, list)) else str(version)
    found = _VERSION.fullmatch(text)
    if found is None:
        return None
    numbers = [int(part) for part in found.group(1).split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return (*numbers, _PRE_RELEASE) if found.group(2) else tuple(numbers)


def _comparing(compare: Callable[[Any, Any], bool]) -> Callable[[TorchVersion, Any], Any]:
    """A comparison of release numbers; with a text that is no version, of texts."""
    def method(self: TorchVersion, other: Any) -> Any:
        if not isinstance(other, (str, tuple, list)) and not hasattr(other, "release"):     # packaging's Version
            return NotImplemented
        mine, theirs = _key(self), _key(other)
        if mine is None or theirs is None:
            return compare(str(self), str(other))
        size = max(len(mine), len(theirs))
        return compare(mine + (0,) * (size - len(mine)), theirs + (0,) * (size - len(theirs)))

    return method


class TorchVersion(str):
    """A `str` whose comparisons order by release numbers: `TorchVersion("2.13.0") > "2.4"`, `>= (2, 4)`."""

    __lt__, __le__, __gt__ = _comparing(operator.lt), _comparing(operator.le), _comparing(operator.gt)
    __ge__, __eq__ = _comparing(operator.ge), _comparing(operator.eq)
    __ne__, __hash__ = str.__ne__, str.__hash__     # in PyTorch, too, "2.13.0" is not "2.13"


__version__ = TorchVersion(_internal_version)
