"""A version string that also compares with tuples and other version strings (torch.torch_version)."""

from __future__ import annotations

import re
from typing import Any

from .version import __version__ as _internal_version

_PRE_RELEASE = -1


def _key(version: Any) -> tuple[int, ...]:
    """The release numbers; a pre-release (2.1a0, 2.1.dev3, 2.1rc1) sorts before its release."""
    if isinstance(version, (tuple, list)):
        return tuple(int(part) for part in version)
    public = str(version).partition("+")[0]
    found = re.match(r"v?(\d+(?:\.\d+)*)(.*)$", public)
    if found is None:
        raise ValueError(f"not a version: {version!r}")
    numbers = [int(part) for part in found.group(1).split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return (*numbers, _PRE_RELEASE) if found.group(2) else tuple(numbers)


class TorchVersion(str):
    """A `str` whose comparisons order by release numbers: `TorchVersion("2.13.0") > "2.4"`, `>= (2, 4)`."""

    def _compare(self, other: Any) -> int:
        mine, theirs = _key(self), _key(other)
        size = max(len(mine), len(theirs))
        mine, theirs = mine + (0,) * (size - len(mine)), theirs + (0,) * (size - len(theirs))
        return (mine > theirs) - (mine < theirs)

    def __lt__(self, other: Any) -> bool:
        return self._compare(other) < 0

    def __le__(self, other: Any) -> bool:
        return self._compare(other) <= 0

    def __gt__(self, other: Any) -> bool:
        return self._compare(other) > 0

    def __ge__(self, other: Any) -> bool:
        return self._compare(other) >= 0

    def __eq__(self, other: Any) -> bool:
        return self._compare(other) == 0

    def __ne__(self, other: Any) -> bool:
        return self._compare(other) != 0

    __hash__ = str.__hash__


__version__ = TorchVersion(_internal_version)
