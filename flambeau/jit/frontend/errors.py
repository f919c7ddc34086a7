"""What is wrong with a program that torch.jit.script is given: messages that show the user's line, and mark the place in it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class FrontendError(Exception):
    """A program that can't be compiled."""


class NotSupportedError(FrontendError):
    """Python that TorchScript doesn't have."""


class UnsupportedNodeError(NotSupportedError):
    """A statement or expression of Python that TorchScript doesn't have."""


class SourceText(NamedTuple):
    """The text of a function or class: its lines without their common indentation, and where they stand."""

    lines: list[str]
    file: str
    first: int
    indent: int
    tree: Any

    def shown(self, node: ast.AST) -> str:
        """The line of a node in its surroundings, with a mark below it."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end = getattr(node, "end_col_offset", None)
        if end is None or getattr(node, "end_lineno", line) != line:
            end = len(self.lines[line - 1])
        near = self.lines[max(0, line - 3):line]
        pad = " " * self.indent
        mark = pad + " " * column + "~" * max(1, end - column) + " <--- HERE"
        after = self.lines[line:line + 2]
        body = [*(f"{pad}{text}" for text in near), mark, *(f"{pad}{text}" for text in after)]
        return f'  File "{self.file}", line {self.first + line - 1}\n' + "\n".join(body) + "\n"


def source_of(obj: Any) -> SourceText:
    """The text of a function or class; OSError's and TypeError's of what has none become a RuntimeError."""
    written = getattr(obj, "source_text", None)     # of what was made at run time
    try:
        lines, first = (written.splitlines(keepends=True), 1) if written is not None else inspect.getsourcelines(obj)
        file = inspect.getsourcefile(obj) or "?"
    except (OSError, TypeError) as error:
        raise OSError(f"Can't get source for {obj}. TorchScript requires source access in order to carry out compilation, make sure "
                      f"original .py files are available ({error})") from None
    text = "".join(lines)
    plain = textwrap.dedent(text)
    indent = len(lines[0]) - len(plain.splitlines(keepends=True)[0])
    try:
        tree = ast.parse(plain, type_comments=True)
    except SyntaxError:     # a comment of a type that is none
        tree = ast.parse(plain)
    return SourceText(plain.splitlines(), file, max(first, 1), indent, tree.body[0])


@contextmanager
def called_from(name: str, source: SourceText, node: ast.AST, inside: str) -> Iterator[None]:
    """Errors in the block tell from where `name` was compiled."""
    try:
        yield
    except (RuntimeError, FrontendError) as error:
        if error.args and isinstance(error.args[0], str) and "_script_error" in error.__dict__:
            error.args = (f"{error.args[0]}'{name}' is being compiled since it was called from '{inside}'\n{source.shown(node)}",)
        raise


def failure(message: str, source: SourceText, node: ast.AST, kind: Callable[[str], Exception] = RuntimeError) -> Exception:
    """The error for a place of a program."""
    error = kind(f"\n{message}:\n{source.shown(node)}" if kind is RuntimeError else f"{message}:\n{source.shown(node)}")
    error.__dict__["_script_error"] = True
    return error
