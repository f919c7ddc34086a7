"""Launching GPU functions from the native module, with a stand-in for the driver."""

from __future__ import annotations

import ctypes

import pytest

from flambeau import _C

DRIVER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
WORDS = {"p": ctypes.c_uint64, "l": ctypes.c_int64, "i": ctypes.c_int32, "d": ctypes.c_double, "f": ctypes.c_float}


class Driver:
    """Takes down what it is asked to launch; answers with `statuses` in turn, then 0."""

    def __init__(self, kinds: str, statuses: tuple[int, ...] = ()) -> None:
        self.kinds, self.statuses, self.seen, self.entered = kinds, list(statuses), [], 0
        self.function = DRIVER(self._launch)
        self.kernel = _C.CudaKernel(ctypes.cast(self.function, ctypes.c_void_p).value, 0xABC, kinds, 128, 64, self, self._enter)

    def _launch(self, function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra):
        pointers = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))
        words = [ctypes.cast(pointers[k], ctypes.POINTER(WORDS[kind]))[0] for k, kind in enumerate(self.kinds + "pp")]
        self.seen.append(((function, stream, (gx, gy, gz), (bx, by, bz), shared), words))
        return self.statuses.pop(0) if self.statuses else 0

    def _enter(self) -> None:
        self.entered += 1


def test_parameters_arrive_in_their_types():
    driver = Driver("plidf")
    driver.kernel(7, 5, 2**63 + 16, -(2**40), -3, 2.5, 1.5)
    assert driver.seen == [((0xABC, 7, (5, 1, 1), (128, 1, 1), 64), [2**63 + 16, -(2**40), -3, 2.5, 1.5, 0, 0])]
    driver.kernel(7, 0, 16, 0, 0, 0.0, 0.0)     # an empty grid launches nothing
    assert len(driver.seen) == 1


def test_a_thread_without_context_enters_it_once():
    driver = Driver("p", (201,))
    driver.kernel(0, 1, 16)
    assert driver.entered == 1 and len(driver.seen) == 2


def test_refusals_are_errors():
    driver = Driver("pi", (700,))
    with pytest.raises(RuntimeError, match="700"):
        driver.kernel(0, 1, 16, 2)
    with pytest.raises(TypeError, match="2 parameters, got 3 arguments"):
        driver.kernel(0, 1, 16)
    with pytest.raises(TypeError):
        driver.kernel(0, 1, 16, "x")
    with pytest.raises(ValueError, match="kinds"):
        _C.CudaKernel(1, 1, "px", 32, 0, None, None)


def test_prepared_calls():
    seen = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_void_p, ctypes.c_int,
                            ctypes.c_int, ctypes.c_int64, ctypes.c_int, ctypes.c_int)
    function = kind(lambda *args: seen.append(args) or 7)
    call = _C.PreparedCall(ctypes.cast(function, ctypes.c_void_p).value, (-1, None, -(2**40), 3, 2**63, 5, None, 6, -7, None), function)
    assert call(2**62, -2, 9) == 7
    assert seen == [(-1, 2**62, -(2**40), 3, 2**63, 5, -2, 6, -7, 9)]
    with pytest.raises(TypeError, match="3 arguments, got 1"):
        call(1)
    with pytest.raises(ValueError, match="at most 24"):
        _C.PreparedCall(1, (0,) * 25, None)
