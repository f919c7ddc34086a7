"""How an instruction that can't be captured is done in the replacement function, as plain Python.

`RECIPES` maps an instruction to `recipe(frame, instruction, writer) -> Step`: it pops the instruction's operands from the
symbolic stack and says which statement does its work and what it pushes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

from ..core.tables import enters
from .bytecode import PY312, PY313, PY314, Instruction
from .handlers.calls import take_call
from .handlers.exceptions import EXIT
from .handlers.operators import NUMBERED, SUBSCRIPT
from .typed import Frame, Writer

RESULT = "_result"
ERROR = "_error"


@dataclass
class Step:
    """What to do: `statement`, then go on with `pushed` on the stack (names, or None for NULL)."""

    statement: str
    pushed: list[str | None] = field(default_factory=list)
    condition: str | None = None
    """For branches: the test that decides whether to jump."""
    keep: bool = False
    """For JUMP_IF_..._OR_POP: the operand stays when the jump is taken."""
    raises: bool = False
    """Nothing comes after it but a handler."""


Recipe = Callable[["Frame", Instruction, "Writer"], Step]
RECIPES: dict[str, Recipe] = {}


recipe = functools.partial(enters, RECIPES)


def operands(f: Frame, w: Writer, count: int) -> list[str]:
    return [w.value(value) for value in f.pop_many(count)]


@recipe("CALL", "CALL_KW", "CALL_FUNCTION_EX")
def call(f: Frame, i: Instruction, w: Writer) -> Step:
    function, args, kwargs = take_call(f, i)
    return Step(f"{RESULT} = {w.call(w.value(function), args, kwargs)}", [RESULT])


@recipe("BINARY_OP")
def binary_op(f: Frame, i: Instruction, w: Writer) -> Step:
    left, right = operands(f, w, 2)
    if i.arg == SUBSCRIPT:
        return Step(f"{RESULT} = {left}[{right}]", [RESULT])
    symbol = NUMBERED[i.arg]
    if symbol.endswith("="):
        return Step(f"{RESULT} = {left}; {RESULT} {symbol} {right}", [RESULT])
    return Step(f"{RESULT} = {left} {symbol} {right}", [RESULT])


@recipe("COMPARE_OP")
def compare_op(f: Frame, i: Instruction, w: Writer) -> Step:
    left, right = operands(f, w, 2)
    return Step(f"{RESULT} = {left} {i.argval.removeprefix('bool(').removesuffix(')')} {right}", [RESULT])


TEMPLATES: dict[str, tuple[int, str]] = {
    "UNARY_NEGATIVE": (1, "-{0}"), "UNARY_POSITIVE": (1, "+{0}"), "UNARY_INVERT": (1, "~{0}"), "UNARY_NOT": (1, "not {0}"),
    "TO_BOOL": (1, "bool({0})"), "GET_ITER": (1, "iter({0})"), "FORMAT_SIMPLE": (1, "format({0})"),
    "BINARY_SUBSCR": (2, "{0}[{1}]"), "BINARY_SLICE": (3, "{0}[{1}:{2}]"),
}  # fmt: skip
"""Instructions that push an expression of their operands: how many, and how it is written."""

STATEMENTS: dict[str, tuple[int, str]] = {
    "STORE_SUBSCR": (3, "{1}[{2}] = {0}"), "DELETE_SUBSCR": (2, "del {0}[{1}]"),
    "STORE_ATTR": (2, "{1}.{name} = {0}"), "DELETE_ATTR": (1, "del {0}.{name}"),
}  # fmt: skip
"""Instructions that push nothing."""


@recipe(*TEMPLATES)
def expression(f: Frame, i: Instruction, w: Writer) -> Step:
    count, template = TEMPLATES[i.opname]
    return Step(f"{RESULT} = {template.format(*operands(f, w, count))}", [RESULT])


@recipe(*STATEMENTS)
def statement(f: Frame, i: Instruction, w: Writer) -> Step:
    count, template = STATEMENTS[i.opname]
    return Step(template.format(*operands(f, w, count), name=i.argval))


@recipe("CONTAINS_OP", "IS_OP")
def contains_or_is(f: Frame, i: Instruction, w: Writer) -> Step:
    left, right = operands(f, w, 2)
    plain, inverted = ("in", "not in") if i.opname == "CONTAINS_OP" else ("is", "is not")
    return Step(f"{RESULT} = {left} {inverted if i.arg else plain} {right}", [RESULT])


@recipe("GET_LEN")
def get_len(f: Frame, i: Instruction, w: Writer) -> Step:
    (value,) = operands(f, w, 1)
    return Step(f"{RESULT} = len({value})", [value, RESULT])


@recipe("BEFORE_WITH")
def before_with(f: Frame, i: Instruction, w: Writer) -> Step:
    (manager,) = operands(f, w, 1)
    return Step(f"_exit = {manager}.__exit__; {RESULT} = {manager}.__enter__()", ["_exit", None, RESULT] if PY314 else ["_exit", RESULT])


@recipe("WITH_EXCEPT_START")
def with_except_start(f: Frame, i: Instruction, w: Writer) -> Step:
    error, exit_method = w.value(f.stack[-1]), w.value(f.stack[EXIT])
    return Step(f"{RESULT} = {exit_method}(type({error}), {error}, {error}.__traceback__)", [RESULT])


@recipe("RAISE_VARARGS")
def raise_varargs(f: Frame, i: Instruction, w: Writer) -> Step:
    return Step(("raise", "raise {}", "raise {} from {}")[i.arg].format(*operands(f, w, i.arg)), raises=True)


@recipe("LOAD_ATTR", "LOAD_METHOD")
def load_attr(f: Frame, i: Instruction, w: Writer) -> Step:
    (owner,) = operands(f, w, 1)
    return _for_a_call(f"{RESULT} = {owner}.{i.argval}", i.opname == "LOAD_METHOD" or bool(PY312 and i.arg & 1))


def _for_a_call(statement: str, called: bool) -> Step:
    """What pushes a NULL beside its result if that is called next."""
    return Step(statement, [RESULT] if not called else [RESULT, None] if PY313 else [None, RESULT])


@recipe("LOAD_GLOBAL")
def load_global(f: Frame, i: Instruction, w: Writer) -> Step:
    scope, name = w.fetch(f.globals_source), i.argval
    # the replacement's own globals are builtins
    return _for_a_call(f"{RESULT} = {scope}[{name!r}] if {name!r} in {scope} else {name}", bool(i.arg & 1))


@recipe("UNPACK_SEQUENCE")
def unpack_sequence(f: Frame, i: Instruction, w: Writer) -> Step:
    (value,) = operands(f, w, 1)
    names = [f"_item{k}" for k in range(i.arg)]
    return Step(f"({', '.join(names)},) = {value}" if names else f"() = {value}", list(reversed(names)))


@recipe("FORMAT_VALUE")
def format_value(f: Frame, i: Instruction, w: Writer) -> Step:
    spec = operands(f, w, 1)[0] if i.arg & 4 else "''"
    (value,) = operands(f, w, 1)
    convert = ("{}", "str({})", "repr({})", "ascii({})")[i.arg & 3].format(value)
    return Step(f"{RESULT} = format({convert}, {spec})", [RESULT])


@recipe("IMPORT_NAME")
def import_name(f: Frame, i: Instruction, w: Writer) -> Step:
    level, names = operands(f, w, 2)
    return Step(f"{RESULT} = __import__({i.argval!r}, {w.fetch(f.globals_source)}, None, {names}, {level})", [RESULT])


def _branch(test: str, keep: bool = False) -> Recipe:
    def make(f: Frame, i: Instruction, w: Writer) -> Step:
        (value,) = operands(f, w, 1)
        return Step("", [value] if keep else [], test.format(value), keep=keep)

    return make


for _prefix in ("POP_JUMP_FORWARD_IF_", "POP_JUMP_BACKWARD_IF_", "POP_JUMP_IF_"):
    RECIPES[_prefix + "TRUE"] = _branch("{0}")
    RECIPES[_prefix + "FALSE"] = _branch("not {0}")
    RECIPES[_prefix + "NONE"] = _branch("{0} is None")
    RECIPES[_prefix + "NOT_NONE"] = _branch("{0} is not None")

RECIPES["JUMP_IF_TRUE_OR_POP"] = _branch("{0}", keep=True)
RECIPES["JUMP_IF_FALSE_OR_POP"] = _branch("not {0}", keep=True)
