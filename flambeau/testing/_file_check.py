"""`FileCheck`: what a text must have, in order. The way of LLVM's tool of that name, for texts of graphs and generated code."""

from __future__ import annotations

import re
from typing import Any


class FileCheck:
    """Checks that are put together one after another and then run on a text: `FileCheck().check("a").check_not("b").run(text)`.

    Each check begins behind what the one before it has found; `check_not` is about the text between its neighbours, and checks of
    `check_dag` that follow one another may be found in any order.
    """

    def __init__(self) -> None:
        self._checks: list[tuple[str, str, int]] = []

    def _add(self, kind: str, pattern: str, count: int = 1) -> FileCheck:
        self._checks.append((kind, pattern, count))
        return self

    def check(self, text: str) -> FileCheck:
        """`text` comes next, at any distance."""
        return self._add("CHECK", re.escape(text))

    def check_regex(self, pattern: str) -> FileCheck:
        """The same of a regular expression."""
        return self._add("CHECK", pattern)

    def check_not(self, text: str) -> FileCheck:
        """`text` doesn't come before the next check's text, or before the end."""
        return self._add("CHECK-NOT", re.escape(text))

    def check_same(self, text: str) -> FileCheck:
        """`text` comes on the line of the check before."""
        return self._add("CHECK-SAME", re.escape(text))

    def check_next(self, text: str) -> FileCheck:
        """`text` comes on the line after that of the check before."""
        return self._add("CHECK-NEXT", re.escape(text))

    def check_count(self, text: str, count: int, exactly: bool = False) -> FileCheck:
        """`text` comes so many times; with `exactly` not once more."""
        self._add("CHECK-COUNT", re.escape(text), count)
        return self.check_not(text) if exactly else self

    def check_dag(self, text: str) -> FileCheck:
        """`text` comes, in any order with the others of `check_dag` beside it."""
        return self._add("CHECK-DAG", re.escape(text))

    def check_source_highlighted(self, text: str) -> FileCheck:
        """`text` comes, and the line below underlines it with `~`."""
        return self._add("CHECK-SOURCE-HIGHLIGHTED", re.escape(text))

    def run(self, test_string: Any) -> None:
        """Raise RuntimeError with the check that fails and the text."""
        text = str(test_string)
        at, nots, index = 0, [], 0
        while index < len(self._checks):
            kind, pattern, count = self._checks[index]
            index += 1
            if kind == "CHECK-NOT":
                nots.append(pattern)
                continue
            begin = at
            if kind == "CHECK-DAG":
                group = [pattern]
                while index < len(self._checks) and self._checks[index][0] == kind:
                    group.append(self._checks[index][1])
                    index += 1
                spans = [self._find(kind, each, text, at) for each in group]
                first, at = min(start for start, _ in spans), max(end for _, end in spans)
            else:
                first = None
                for _ in range(count):
                    start, end = self._find(kind, pattern, text, at)
                    self._placed(kind, pattern, text, at, start, end)
                    first, at = start if first is None else first, end
            self._absent(nots, text, begin, len(text) if first is None else first)
            nots = []
        self._absent(nots, text, at, len(text))

    def _find(self, kind: str, pattern: str, text: str, at: int) -> tuple[int, int]:
        found = re.compile(pattern).search(text, at)
        if found is None:
            raise RuntimeError(f'Expected to find "{_plain(pattern)}" but did not find it\nSearched string:\n{text[at:]}\n'
                               f"From {kind}: {_plain(pattern)}")
        return found.span()

    def _placed(self, kind: str, pattern: str, text: str, at: int, start: int, end: int) -> None:
        lines = text.count("\n", at, start)
        wanted = {"CHECK-SAME": 0, "CHECK-NEXT": 1}.get(kind, lines)
        if lines != wanted:
            raise RuntimeError(f'Expected to find "{_plain(pattern)}" {wanted} lines below and found it {lines} below\n'
                               f"Searched string:\n{text[at:]}\nFrom {kind}: {_plain(pattern)}")
        if kind == "CHECK-SOURCE-HIGHLIGHTED":
            column = start - (text.rfind("\n", 0, start) + 1)
            below = text[text.find("\n", end) + 1:].partition("\n")[0] if "\n" in text[end:] else ""
            if below[column:column + end - start] != "~" * (end - start):
                raise RuntimeError(f'Expected to find "{_plain(pattern)}" underlined with ~\nSearched string:\n{text[at:]}\nFrom {kind}')

    @staticmethod
    def _absent(patterns: list[str], text: str, begin: int, end: int) -> None:
        for pattern in patterns:
            if re.compile(pattern).search(text, begin, end) is not None:
                raise RuntimeError(f'Expected to not find "{_plain(pattern)}" but found it\nSearched string:\n{text[begin:end]}\n'
                                   f"From CHECK-NOT: {_plain(pattern)}")


def _plain(pattern: str) -> str:
    return re.sub(r"\\(.)", r"\1", pattern)
