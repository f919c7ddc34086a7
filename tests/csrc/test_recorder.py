"""The native recorder and the log of memory: nesting, errors, frames, watchers of several kinds, references that are given back."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import _C
from flambeau.core.dispatch import state
from flambeau.core.watching import watched


@pytest.fixture
def recorder() -> Any:
    made = _C.Recorder(True, True)
    state.watchers = (made,)
    yield made
    state.watchers = ()


def names(recorder: Any) -> list[tuple[str, int]]:
    return [(entry[1], entry[4]) for entry in recorder.entries()]


def test_what_operators_call_is_their_own_and_what_others_call_is_told(recorder: Any) -> None:
    inner = lambda: watched("inner", lambda x: x + 1, (2,), None)
    assert watched("outer", inner, (), None, 2) == watched("hidden", inner, (), {}) == 3
    assert names(recorder) == [("outer", -1), ("inner", 0), ("hidden", -1)]
    assert all(end >= start > 0 for _, _, start, end, *_ in recorder.entries()) and recorder.innermost() == -1


def test_errors_pass_and_leave_all_as_it_was(recorder: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        watched("outer", lambda: watched("inner", lambda: 1 // 0, (), None), (), None, 2)
    assert names(recorder) == [("outer", -1), ("inner", 0)] and recorder.innermost() == -1 and state.watchers == (recorder,)
    for wrong in ((), ("name", len), ("name", len, [], None), ("name", len, (), 3)):
        with pytest.raises(TypeError):
            watched(*wrong)


def test_watchers_of_several_kinds(recorder: Any) -> None:
    told = []

    class Other:
        def begin(self, name: str, args: Any = (), kind: int = 0, sequence: int = -1) -> str:
            told.append((name, kind, sequence))
            return name

        def end(self, event: str) -> None:
            told.append((event, state.watchers))

    other = Other()
    state.watchers = (recorder, other)
    assert watched("call", lambda: state.watchers, (), None, 0, 5) == ()
    assert told == [("call", 0, 5), ("call", (recorder, other))] and names(recorder) == [("call", -1)]


def test_arguments_and_frames(recorder: Any) -> None:
    here = sys._getframe().f_lineno + 1
    watched("call", lambda *a, **k: None, (fl.ones(2, 3), [fl.ones(4), 1.5], None, object()), {"dim": 1})
    *_, (given, named), places = recorder.entries()[-1]
    assert [type(value) for value in given] == [tuple, list, type(None), type(None)] and named == {"dim": 1}
    assert tuple(given[0][0].shape) == (2, 3) and given[0][1] is fl.float32 and given[1][1] == 1.5
    assert places[0][:2] == (sys._getframe().f_code, here) and places[0][2] is None


def test_modules_are_told_and_let_go(recorder: Any) -> None:
    net = fl.nn.Sequential(fl.nn.Linear(2, 2))
    net(fl.ones(1, 2))
    linear = next(entry for entry in recorder.entries() if entry[1] == "aten::linear")
    assert [module for _, _, module in linear[-1] if module is not None] == [net[0], net]
    gone = weakref.ref(net)
    del net, linear
    gc.collect()
    assert gone() is not None
    recorder.forget()
    gc.collect()
    assert gone() is None and len(recorder) == 0


def test_what_began_before_it_was_forgotten_ends_quietly(recorder: Any) -> None:
    number = recorder.begin("before")
    recorder.forget()
    after = recorder.begin("after")
    recorder.end(number)
    recorder.end(after)
    assert names(recorder) == [("after", -1)] and recorder.entries()[0][0] == after == number + 1


def test_nodes_are_numbered(recorder: Any) -> None:
    x = fl.ones(2, requires_grad=True)
    y = x * 2
    entry = next(entry for entry in recorder.entries() if entry[1] == "aten::mul")
    assert entry[7] < y.grad_fn._sequence_nr() <= entry[8]


@pytest.mark.parametrize("size", [8, 500, 5_000, 5_000_000])
def test_memory_of_all_sizes(size: int) -> None:
    logs = [_C.MemoryLog(True), _C.MemoryLog()]
    for log in logs:
        log.start()
    array = np.empty(size, np.uint8)
    address = array.ctypes.data
    array = np.resize(array, 2)
    logs[0].stop()
    fl.ones(30)
    logs[1].stop()
    for log, stacks in zip(logs, (True, False)):
        mine = [change for change in log.take() if change[0] == address]
        assert [change[1] for change in mine[:2]] == [size, 0]
        assert bool(mine[0][4]) is stacks and (not stacks or mine[0][4][0][0] is sys._getframe().f_code)
        assert log.take() == []


def test_the_first_changes_are_kept_where_that_is_asked() -> None:
    log = _C.MemoryLog()
    log.limit(3)
    log.start()
    kept = [np.empty(2000, np.uint8) for _ in range(5)]
    log.stop()
    assert [change[0] for change in log.take()] == [array.ctypes.data for array in kept[:3]]


def test_children_record_nothing(recorder: Any) -> None:
    log = _C.MemoryLog()
    log.start()
    child = os.fork()
    if not child:
        np.empty(5000)
        fl.ones(3)
        os._exit(int(bool(state.watchers) or len(recorder) > 0 or len(log.take()) > 0))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and state.watchers == (recorder,)
    np.empty(7000, np.uint8)
    log.stop()
    assert 7000 in [change[1] for change in log.take()]
