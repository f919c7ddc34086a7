"""Texts of numbers that change: made where they leave the frame, and read only where the program reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from dynamo_harness import Counter, same

import flambeau as torch
from flambeau import dynamo


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []


def in_an_object(x: Any, n: int) -> Any:
    log = Log()
    log.lines.append("step " + str(n) + " of {}".format(n * 2))     # noqa: UP032
    log.name = f"run{n}"
    return x * n, log.lines, log.name


def in_an_exception(x: Any, n: int) -> Any:
    try:
        raise ValueError(f"wrong: {n}")
    except ValueError as error:
        return x + n, str(error), error.args


def joined(x: Any, n: int) -> Any:
    parts = [f"{n}", f"{x.shape[0]}"]
    text = "/".join(parts)
    parts.append("later")
    return x + n, text, parts, "-".join(str(size) for size in x.shape)


def asserted(x: Any, n: int) -> Any:
    assert x.shape[0] == 3, f"{n} of {x.shape}"
    return x + n


def of_what_is_read(x: Any, n: int) -> Any:
    loss = (x * n).sum().item()
    return x * loss, f"loss {loss:.2f}", {"loss": str(loss)}


UNREAD: dict[str, Callable[[Any, Any], Any]] = {
    "f-strings": lambda x, n: (x * n, f"{n}", f"{n:>5}", f"{n!r:<4}|", f"{n + 1=}", f"{x.shape[0]} {x.shape} {x.shape[0] * n}"),
    "functions": lambda x, n: (x + n, str(n), repr(n), ascii(n), format(n, "+"), hex(n), bin(n), oct(n)),
    "templates": lambda x, n: (x + n, "%d|%5s" % (n, n), "%d" % n, "{}{:03d}".format(n, n), "{0:{1}}".format(n, 5)),     # noqa: UP031, UP032
    "a float": lambda x, n: (x * (n / 10), f"{n / 10:.3f}", str(n * 0.5), f"{n / 10!r} {n // 3}"),
    "passed on": lambda x, n: (lambda text: (x + n, {"text": text}, [text, text], isinstance(text, str), type(text)))(f"{n}"),
    "unused": lambda x, n: (f"{n}", x + n)[1],
    **{f.__name__: f for f in (in_an_object, in_an_exception, joined, asserted, of_what_is_read)},
}

READ: dict[str, Callable[[Any, Any], Any]] = {
    "compared": lambda x, n: x + 1 if f"{n}" == "5" else x - 1,
    "its length": lambda x, n: x + len(f"{n}"),
    "a key": lambda x, n: ({f"{n}": x}, {"4": x}.get(f"{n}")),
    "a name": lambda x, n: getattr(x, "t" if f"{n}".endswith("5") else "abs")(),
    "taken apart": lambda x, n: (x + 1, list(f"{n},{n}"), f"{n},2".split(","), f"{n}"[0], int(f"{n}") + 1),
    "changed": lambda x, n: (x + 1, f"a{n}".upper(), f"{n}" * 2, f"{n}".zfill(4)),
    "a code point": lambda x, n: (x + 1, "%c" % (n + 64), chr(n + 64)),     # noqa: UP031
    "a template": lambda x, n: (x + 1, f"%{n}d" % 3, f"{{:{n}}}".format(3)),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_not_read_fixes_no_number(name: str) -> None:
    counter = Counter()
    compiled = dynamo.compile(UNREAD[name], backend=counter)
    for n in (4, 5, 6, 9, 12):
        assert same(compiled(torch.arange(3.0), n), UNREAD[name](torch.arange(3.0), n)), n
    assert len(counter.graphs) <= 2


@pytest.mark.parametrize("name", READ)
def test_what_is_read_is_right(name: str) -> None:
    compiled = dynamo.compile(READ[name], backend="eager")
    for n in (4, 5, 6, 15, 12):
        assert same(compiled(torch.ones(3, 3), n), READ[name](torch.ones(3, 3), n)), n


def test_a_text_that_does_not_take_every_number_is_made_where_it_stands() -> None:
    def f(x: Any, n: int) -> Any:
        try:
            return x + 1, "%c" % n     # noqa: UP031
        except OverflowError as error:
            return x - 1, type(error)

    compiled = dynamo.compile(f, backend="eager")
    for n in (65, 66, -1, -2, 67):
        assert same(compiled(torch.ones(3), n), f(torch.ones(3), n)), n


def test_a_text_of_a_float_needs_no_break() -> None:
    def f(x: Any, rate: float) -> Any:
        return x * rate, f"{rate:.2f}"

    counter = Counter()
    compiled = dynamo.compile(f, backend=counter, fullgraph=True)
    for rate in (0.1, 0.2, float("nan"), float("inf"), -0.0):
        assert same(compiled(torch.ones(3), rate), f(torch.ones(3), rate))
    assert len(counter.graphs) == 2


def test_what_is_given_and_what_is_made_go_into_one_text() -> None:
    def f(x: Any, name: str, n: int) -> Any:
        return x + n, f"{name}.{n}", name + "!"

    counter = Counter()
    compiled = dynamo.compile(f, backend=counter)
    for n in range(3, 9):
        assert same(compiled(torch.ones(3), f"name{n}", n), f(torch.ones(3), f"name{n}", n))
    assert len(counter.graphs) == 2
