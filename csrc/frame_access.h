// The one place that knows how each CPython lays out a fresh frame: one block a version, nothing else depends on it.
#pragma once
#define Py_BUILD_CORE 1
#include "module.h"
#undef HAVE_STD_ATOMIC  // C's header of atomics is not C++; the compiler's own are laid out alike
extern "C" {
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_interpframe.h>
#endif
}
#if PY_VERSION_HEX >= 0x030D0000
extern "C" {
#include <internal/pycore_ceval.h>
}
#endif
#undef Py_BUILD_CORE

#ifdef Py_GIL_DISABLED
#error "the frame hook relies on the GIL"
#endif

using Frame = _PyInterpreterFrame;

inline bool collector_runs(PyThreadState* tstate) { return tstate->interp->gc.collecting != 0; }

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030F0000
#error "the frame hook knows CPython 3.11 to 3.14"

#elif PY_VERSION_HEX < 0x030C0000  // 3.11
inline Frame* innermost_frame(PyThreadState* tstate) { return tstate->cframe->current_frame; }
inline bool frame_is_real(Frame*) { return true; }
inline char* frame_instruction(Frame* frame) { return (char*)frame->prev_instr; }
inline PyCodeObject* frame_code(Frame* frame) { return frame->f_code; }
inline PyObject* frame_function(Frame* frame) { return (PyObject*)frame->f_func; }
inline bool frame_is_fresh(Frame* frame) { return frame->prev_instr == _PyCode_CODE(frame->f_code) - 1; }
inline PyObject* frame_local(Frame* frame, Py_ssize_t i) { return frame->localsplus[i]; }
inline Py_ssize_t request_code_slot(freefunc release) { return _PyEval_RequestCodeExtraIndex(release); }
// Here the caller of the evaluation function clears the frame, whoever evaluated it.
inline void discard_frame(PyThreadState*, Frame*) {}

#elif PY_VERSION_HEX < 0x030D0000  // 3.12
inline Frame* innermost_frame(PyThreadState* tstate) { return tstate->cframe->current_frame; }
inline bool frame_is_real(Frame* frame) { return frame->owner != FRAME_OWNED_BY_CSTACK; }
inline char* frame_instruction(Frame* frame) { return (char*)frame->prev_instr; }
inline PyCodeObject* frame_code(Frame* frame) { return frame->f_code; }
inline PyObject* frame_function(Frame* frame) { return frame->f_funcobj; }
inline bool frame_is_fresh(Frame* frame) { return frame->prev_instr == _PyCode_CODE(frame->f_code) - 1; }
inline PyObject* frame_local(Frame* frame, Py_ssize_t i) { return frame->localsplus[i]; }
inline Py_ssize_t request_code_slot(freefunc release) { return PyUnstable_Eval_RequestCodeExtraIndex(release); }
// From 3.12 on the evaluator clears the frame. 3.12 does not export how, but it clears a frame that an exception leaves:
// throw one in before the first instruction, where no handler and no traceback entry can see it.
inline void discard_frame(PyThreadState* tstate, Frame* frame) {
    PyObject* pending = PyErr_GetRaisedException();
    PyThreadState_EnterTracing(tstate);  // no profiler shall see the made-up exception
    PyErr_SetNone(PyExc_StopIteration);
    PyObject* result = _PyEval_EvalFrameDefault(tstate, frame, 1);
    PyThreadState_LeaveTracing(tstate);
    Py_XDECREF(result);
    PyErr_SetRaisedException(pending);
}

#else  // 3.13 and 3.14, whose references on frames have tags
inline Frame* innermost_frame(PyThreadState* tstate) { return tstate->current_frame; }
inline char* frame_instruction(Frame* frame) { return (char*)frame->instr_ptr; }
inline PyCodeObject* frame_code(Frame* frame) { return _PyFrame_GetCode(frame); }
inline bool frame_is_fresh(Frame* frame) { return frame->instr_ptr == _PyCode_CODE(_PyFrame_GetCode(frame)); }
#if PY_VERSION_HEX < 0x030E0000
inline bool frame_is_real(Frame* frame) { return frame->owner != FRAME_OWNED_BY_CSTACK; }
inline PyObject* frame_function(Frame* frame) { return frame->f_funcobj; }
inline PyObject* frame_local(Frame* frame, Py_ssize_t i) { return frame->localsplus[i]; }
#else
inline bool frame_is_real(Frame* frame) { return frame->owner < FRAME_OWNED_BY_INTERPRETER; }
inline PyObject* frame_function(Frame* frame) { return PyStackRef_AsPyObjectBorrow(frame->f_funcobj); }
inline PyObject* frame_local(Frame* frame, Py_ssize_t i) { return PyStackRef_AsPyObjectBorrow(frame->localsplus[i]); }
#endif
inline Py_ssize_t request_code_slot(freefunc release) { return PyUnstable_Eval_RequestCodeExtraIndex(release); }
inline void discard_frame(PyThreadState* tstate, Frame* frame) {
    PyObject* pending = PyErr_GetRaisedException();
    _PyEval_FrameClearAndPop(tstate, frame);
    PyErr_SetRaisedException(pending);
}
#endif
