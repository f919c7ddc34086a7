"""Random programs of loops, branches, try, with, closures, side effects and graph breaks: compiled does what eager does."""

from __future__ import annotations

import linecache
import random

import pytest
from dynamo_harness import Counter, same

import flambeau as torch
from flambeau import dynamo

LOG: list = []
note = dynamo.disable(LOG.append)


@dynamo.disable
def maybe(n):
    if n % 2:
        raise ValueError(n)


def counted(n, times):
    for k in range(times):
        note(k)
        yield n + k


def helper(t, n):
    if n % 3 == 0:
        note(n)
    return t + n


class Scope:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, *exc):
        self.log.append("out")
        return False


class Box:
    def __init__(self, count):
        self.count, self.value = count, None


class Writer:
    """Writes one random program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []

    def source(self) -> str:
        self.lines = ["def program(x, y, n, items, d, box):", "    z = x * 2"]
        self.block(1, 0)
        return "\n".join([*self.lines, "    return x, y, z, n, items, d", ""])

    def emit(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def block(self, indent: int, depth: int) -> None:
        for _ in range(self.random.randint(2, 5)):
            kinds = [self.arithmetic] * 4 + [self.effect] * 4 + [self.call] * 3
            kinds += [self.branch, self.loop, self.handler, self.scope] if depth < 3 else []
            self.random.choice(kinds)(indent, depth)

    def name(self) -> str:
        return self.random.choice("xyz")

    def arithmetic(self, indent: int, depth: int) -> None:
        a, op, b = self.name(), self.random.choice("+-*"), self.random.choice(["x", "y", "z", "n", "1.5"])
        self.emit(indent, self.random.choice([f"{a} = {a} {op} {b}", f"n = n {op} {self.random.randint(1, 3)}"]))

    def effect(self, indent: int, depth: int) -> None:
        a = self.name()
        self.emit(indent, self.random.choice([f"items.append({a})", f"d[n % 3] = {a}", "box.count += 1", f"box.value = {a}",
                                              "n += box.count"]))  # fmt: skip

    def call(self, indent: int, depth: int) -> None:
        a = self.name()
        self.emit(indent, self.random.choice([f"{a} = helper({a}, n)", "note(len(items))", f"{a} = (lambda t, k=n: t * k + x)({a})"]))

    def branch(self, indent: int, depth: int) -> None:
        self.emit(indent, f"if {self.random.choice(['n % 2', 'len(items) > 2', 'x.sum() > 0', 'y.sum() < n', '0 in d'])}:")
        self.block(indent + 1, depth + 1)
        if self.random.random() < 0.5:
            self.emit(indent, "else:")
            self.block(indent + 1, depth + 1)

    def loop(self, indent: int, depth: int) -> None:
        i = f"i{depth}"
        target, source = self.random.choice([
            (i, f"range({self.random.randint(0, 3)})"), (i, "list(d)"), (i, "[1, n, 3]"), (i, "(k + 1 for k in range(2))"),
            (f"{i}, {self.name()}", "enumerate([x, y])"), (f"{i}, {self.name()}", "zip((4, 5, 6), [z, x])"),
            (f"{i}, {self.name()}", "list(d.items())"), (i, "counted(n, 2)"), (self.name(), "(x, y)"), (i, "reversed([3, 1])"),
        ])  # fmt: skip
        if self.random.random() < 0.25:
            self.emit(indent, f"{i} = 0")
            self.emit(indent, f"while {i} < {self.random.randint(1, 3)}{self.random.choice(['', ' and x.sum() < 100'])}:")
            self.emit(indent + 1, f"{i} += 1")
        else:
            self.emit(indent, f"for {target} in {source}:")
        self.block(indent + 1, depth + 1)
        if self.random.random() < 0.4:
            way_out = self.random.choice(["break", "continue", "return x, n"])
            self.emit(indent + 1, f"if {self.random.choice(['n > 5', 'x.sum() > 50'])}: {way_out}")
        if self.random.random() < 0.3:
            self.emit(indent, "else:")
            self.block(indent + 1, depth + 1)

    def handler(self, indent: int, depth: int) -> None:
        self.emit(indent, "try:")
        self.block(indent + 1, depth + 1)
        if self.random.random() < 0.6:
            self.emit(indent + 1, "maybe(n)")
        self.emit(indent, "except ValueError as e:")
        self.block(indent + 1, depth + 1)
        if self.random.random() < 0.4:
            self.emit(indent, "finally:")
            self.emit(indent + 1, "n += 1")

    def scope(self, indent: int, depth: int) -> None:
        self.emit(indent, "with Scope(items) as s:")
        self.block(indent + 1, depth + 1)


def outcome(program, call: int) -> tuple:
    """What a call gives or raises, what it did to its arguments, and what it noted down."""
    items: list = [1] * call
    table, box = {0: 1}, Box(call)
    LOG.clear()
    try:
        result = program(torch.ones(3) * (1 - call), torch.ones(3) * call, call + 1, items, table, box)
    except Exception as error:
        result = (type(error), str(error))
    return result, items, table, vars(box), list(LOG)


@pytest.mark.parametrize("seed", range(40))
def test_same_as_eager(seed: int) -> None:
    source, filename = Writer(seed).source(), f"<program {seed}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    scope = dict(globals())
    exec(compile(source, filename, "exec"), scope)
    program = scope["program"]
    compiled = dynamo.compile(program, backend=Counter())
    for call in range(3):
        expected, got = outcome(program, call), outcome(compiled, call)
        assert same(expected, got), f"{source}\neager {expected}\ncompiled {got}"
