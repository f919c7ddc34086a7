"""How an instruction that can't be captured is done in the replacement function, as plain Python.

`RECIPES` maps an instruction to `recipe(frame, instruction, writer) -> Step`: it pops the instruction's operands from the
symbolic stack and says which statement does its work and what it pushes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .bytecode import PY312, PY313, Instruction
from .handlers.calls import take_call
from .handlers.operators import NUMBERED
from .variables.base import NULL, Variable

if TYPE_CHECKING:
    from .frame import Frame
    from .replacement import Writer

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


Recipe = Callable[["Frame", Instruction, "Writer"], Step]
RECIPES: dict[str, Recipe] = {}


def recipe(*names: str) -> Callable[[Recipe], Recipe]:
    def register(function: Recipe) -> Recipe:
        RECIPES.update(dict.fromkeys(names, function))
        return function

    return register


def operands(f: Frame, w: Writer, count: int) -> list[str]:
    return [w.value(value) for value in f.pop_many(count)]


@recipe("CALL", "CALL_KW", "CALL_FUNCTION_EX")
def call(f: Frame, i: Instruction, w: Writer) -> Step:
    function, args, kwargs = take_call(f, i)
    parts = [w.value(arg) for arg in args]
    named = {name: w.value(value) for name, value in kwargs.items()}
    if all(name.isidentifier() for name in named):
        parts += [f"{name}={value}" for name, value in named.items()]
    else:
        parts.append("**{" + ", ".join(f"{name!r}: {value}" for name, value in named.items()) + "}")
    return Step(f"{RESULT} = {w.value(function)}({', '.join(parts)})", [RESULT])


@recipe("BINARY_OP")
def binary_op(f: Frame, i: Instruction, w: Writer) -> Step:
    left, right = operands(f, w, 2)
    symbol = NUMBERED[i.arg]
    if symbol.endswith("="):
        return Step(f"{RESULT} = {left}; {RESULT} {symbol} {right}", [RESULT])
    return Step(f"{RESULT} = {left} {symbol} {right}", [RESULT])


@recipe("COMPARE_OP")
def compare_op(f: Frame, i: Instruction, w: Writer) -> Step:
    left, right = operands(f, w, 2)
    return Step(f"{RESULT} = {left} {i.argval.removeprefix('bool(').removesuffix(')')} {right}", [RESULT])


@recipe("CONTAINS_OP")
def contains_op(f: Frame, i: Instruction, w: Writer) -> Step:
    left, right = operands(f, w, 2)
    return Step(f"{RESULT} = {left} {'not in' if i.arg else 'in'} {right}", [RESULT])


@recipe("IS_OP")
def is_op(f: Frame, i: Instruction, w: Writer) -> Step:
    left, right = operands(f, w, 2)
    return Step(f"{RESULT} = {left} {'is not' if i.arg else 'is'} {right}", [RESULT])


def _unary(template: str) -> Recipe:
    return lambda f, i, w: Step(f"{RESULT} = {template.format(*operands(f, w, 1))}", [RESULT])


RECIPES["UNARY_NEGATIVE"] = _unary("-{0}")
RECIPES["UNARY_POSITIVE"] = _unary("+{0}")
RECIPES["UNARY_INVERT"] = _unary("~{0}")
RECIPES["UNARY_NOT"] = _unary("not {0}")
RECIPES["TO_BOOL"] = _unary("bool({0})")
RECIPES["GET_ITER"] = _unary("iter({0})")
RECIPES["FORMAT_SIMPLE"] = _unary("format({0})")


@recipe("GET_LEN")
def get_len(f: Frame, i: Instruction, w: Writer) -> Step:
    (value,) = operands(f, w, 1)
    return Step(f"{RESULT} = len({value})", [value, RESULT])


@recipe("BEFORE_WITH")
def before_with(f: Frame, i: Instruction, w: Writer) -> Step:
    (manager,) = operands(f, w, 1)
    return Step(f"_exit = {manager}.__exit__; {RESULT} = {manager}.__enter__()", ["_exit", RESULT])


@recipe("BINARY_SUBSCR")
def binary_subscr(f: Frame, i: Instruction, w: Writer) -> Step:
    owner, key = operands(f, w, 2)
    return Step(f"{RESULT} = {owner}[{key}]", [RESULT])


@recipe("STORE_SUBSCR")
def store_subscr(f: Frame, i: Instruction, w: Writer) -> Step:
    value, owner, key = operands(f, w, 3)
    return Step(f"{owner}[{key}] = {value}")


@recipe("DELETE_SUBSCR")
def delete_subscr(f: Frame, i: Instruction, w: Writer) -> Step:
    owner, key = operands(f, w, 2)
    return Step(f"del {owner}[{key}]")


@recipe("BINARY_SLICE")
def binary_slice(f: Frame, i: Instruction, w: Writer) -> Step:
    owner, start, stop = operands(f, w, 3)
    return Step(f"{RESULT} = {owner}[{start}:{stop}]", [RESULT])


@recipe("LOAD_ATTR", "LOAD_METHOD")
def load_attr(f: Frame, i: Instruction, w: Writer) -> Step:
    (owner,) = operands(f, w, 1)
    statement = f"{RESULT} = {owner}.{i.argval}"
    if i.opname == "LOAD_METHOD" or (PY312 and i.arg & 1):
        return Step(statement, [RESULT, None] if PY313 else [None, RESULT])
    return Step(statement, [RESULT])


@recipe("STORE_ATTR")
def store_attr(f: Frame, i: Instruction, w: Writer) -> Step:
    value, owner = operands(f, w, 2)
    return Step(f"{owner}.{i.argval} = {value}")


@recipe("DELETE_ATTR")
def delete_attr(f: Frame, i: Instruction, w: Writer) -> Step:
    (owner,) = operands(f, w, 1)
    return Step(f"del {owner}.{i.argval}")


@recipe("LOAD_GLOBAL")
def load_global(f: Frame, i: Instruction, w: Writer) -> Step:
    scope = w.fetch(f.globals_source)
    statement = f"{RESULT} = {scope}[{i.argval!r}] if {i.argval!r} in {scope} else __builtins__[{i.argval!r}]"
    if i.arg & 1:
        return Step(statement, [RESULT, None] if PY313 else [None, RESULT])
    return Step(statement, [RESULT])


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


def _branch(test: str) -> Recipe:
    return lambda f, i, w: Step("", [], test.format(*operands(f, w, 1)))


for _prefix in ("POP_JUMP_FORWARD_IF_", "POP_JUMP_BACKWARD_IF_", "POP_JUMP_IF_"):
    RECIPES[_prefix + "TRUE"] = _branch("{0}")
    RECIPES[_prefix + "FALSE"] = _branch("not {0}")
    RECIPES[_prefix + "NONE"] = _branch("{0} is None")
    RECIPES[_prefix + "NOT_NONE"] = _branch("{0} is not None")


def _branch_or_pop(test: str) -> Recipe:
    def make(f: Frame, i: Instruction, w: Writer) -> Step:
        (value,) = operands(f, w, 1)
        return Step("", [value], test.format(value), keep=True)

    return make


RECIPES["JUMP_IF_TRUE_OR_POP"] = _branch_or_pop("{0}")
RECIPES["JUMP_IF_FALSE_OR_POP"] = _branch_or_pop("not {0}")


def is_null(variable: Variable) -> bool:
    return variable is NULL
