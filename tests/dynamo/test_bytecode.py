"""Reading and writing code objects, of whatever Python the tests run on."""

from __future__ import annotations

import argparse
import asyncio.base_events
import contextlib
import dis
import tarfile
import types
from collections.abc import Iterator

import pytest

from flambeau.dynamo.assembler import Line, assemble
from flambeau.dynamo.bytecode import BORROWING, ENTERING, Instruction, decode
from flambeau.dynamo.handlers import TABLE

LEFT_OUT = {
    "coroutines, which are not captured": "ASYNC_GEN_WRAP BEFORE_ASYNC_WITH END_ASYNC_FOR GET_AITER GET_ANEXT GET_AWAITABLE",
    "bodies of modules and classes": "DELETE_NAME IMPORT_STAR LOAD_NAME STORE_NAME LOAD_LOCALS PRINT_EXPR LOAD_CLASSDEREF "
                                     "LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS",
    "`except*`, a graph break": "CALL_INTRINSIC_2 CHECK_EG_MATCH PREP_RERAISE_STAR",
    "templates, a graph break": "BUILD_INTERPOLATION BUILD_TEMPLATE",
    "the interpreter's own": "CLEANUP_THROW ENTER_EXECUTOR EXIT_INIT_CHECK INTERPRETER_EXIT RESERVED",
    "read as others": f"EXTENDED_ARG LOAD_SPECIAL {' '.join(BORROWING)}",
}


def test_every_instruction_has_a_handler_or_a_reason_to_have_none() -> None:
    quick: dict[str, int] = getattr(dis, "_specialized_opmap", {})
    names = {name for name, number in dis.opmap.items() if number < 256 and name not in quick and not name.startswith("INSTRUMENTED_")}
    assert names - set(TABLE) <= set(" ".join(LEFT_OUT.values()).split())


def _codes(module: types.ModuleType) -> Iterator[types.CodeType]:
    assert module.__file__ is not None
    with open(module.__file__, encoding="utf-8") as file:
        waiting = [compile(file.read(), module.__file__, "exec")]
    while waiting:
        code = waiting.pop()
        waiting += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        yield code


def _told(instruction: Instruction) -> tuple[object, ...]:
    position = instruction.position
    return (instruction.opname, None if instruction.target is not None else instruction.arg, instruction.target,
            None if position is None else tuple(position))  # fmt: skip


@pytest.mark.parametrize("module", [argparse, asyncio.base_events, contextlib, tarfile], ids=lambda module: module.__name__)
def test_what_is_read_is_written_again(module: types.ModuleType) -> None:
    count = 0
    for code in _codes(module):
        program = decode(code)
        lines = [Line(i.opname, i.arg, i.target, i.position) for i in program.instructions]
        raw, table, exceptions = assemble(lines, program.exceptions, code.co_firstlineno)
        again = decode(code.replace(co_code=raw, co_linetable=table, co_exceptiontable=exceptions))
        assert [_told(i) for i in again.instructions] == [_told(i) for i in program.instructions], code
        assert again.exceptions == program.exceptions, code
        count += len(lines)
    assert count > 2000


def test_a_block_is_entered_by_one_instruction() -> None:
    def entering(manager: contextlib.AbstractContextManager[int]) -> int:
        with manager as a, manager as b:
            return a + b

    names = [i.opname for i in decode(entering.__code__).instructions]
    assert names.count("BEFORE_WITH") == 2 and "LOAD_SPECIAL" not in names and len(ENTERING) == 6
