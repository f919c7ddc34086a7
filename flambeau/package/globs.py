"""Patterns of dotted names, and what is in a package as a tree of folders."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Union

GlobPattern = Union[str, Iterable[str]]  # noqa: UP007 - a value: libraries import it


class GlobGroup:
    """Patterns of names made of segments: `*` stands for a part of a segment, a segment `**` for any number of them. A name matches if it
    fits one of `include` and none of `exclude`."""

    def __init__(self, include: GlobPattern, *, exclude: GlobPattern = (), separator: str = ".") -> None:
        self._text = f"GlobGroup(include={include}, exclude={exclude})"
        self.separator = separator
        self.include, self.exclude = (self._compiled(given) for given in (include, exclude))

    def _compiled(self, given: GlobPattern) -> list[re.Pattern]:
        return [self._pattern(text) for text in ([given] if isinstance(given, str) else given)]

    def _pattern(self, text: str) -> re.Pattern:
        mark, pattern = re.escape(self.separator), ""
        for segment in text.split(self.separator):
            if segment == "**":
                pattern += f"({mark}[^{mark}]+)*"
            elif "**" in segment:
                raise ValueError(f"** can only appear as an entire path segment, not in {text!r}")
            else:
                pattern += mark + f"[^{mark}]*".join(map(re.escape, segment.split("*")))
        return re.compile(pattern)

    def matches(self, candidate: str) -> bool:
        """Whether a name is one of those that are meant."""
        name = self.separator + candidate
        return any(p.fullmatch(name) for p in self.include) and not any(p.fullmatch(name) for p in self.exclude)

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


class Directory:
    """A folder of a package, or a file of it."""

    def __init__(self, name: str, is_dir: bool) -> None:
        self.name, self.is_dir = name, is_dir
        self.children: dict[str, Directory] = {}

    def _add(self, path: str) -> None:
        at = self
        *folders, last = path.split("/")
        for folder in folders:
            at = at.children.setdefault(folder, Directory(folder, True))
        at.children[last] = Directory(last, False)

    def has_file(self, filename: str) -> bool:
        """Whether there is a file of this path below."""
        first, _, rest = filename.partition("/")
        child = self.children.get(first)
        return child is not None and (child.has_file(rest) if rest else True)

    def _lines(self, indent: str) -> list[str]:
        order = sorted(self.children.values(), key=lambda d: (not d.is_dir, d.name))
        lines = []
        for child in order:
            lines += [f"{indent}{'└' if child is order[-1] else '├'}── {child.name}",
                      *child._lines(indent + ("    " if child is order[-1] else "│   "))]
        return lines

    def __str__(self) -> str:
        return "\n".join([f"─── {self.name}", *self._lines("    "), ""])
