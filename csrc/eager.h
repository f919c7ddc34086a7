// What an eager call is computed by, for csrc/eager.cpp: each gives the results, or null without an error where it is not made for these
// arguments.
#pragma once
#include "module.h"

bool is_scalar(PyObject* object);     // a flambeau._C.Elementwise
bool are_replays(PyObject* object);   // a flambeau._C.Replays

// Who asks. Users' calls and an operator's: nothing is done where a mode or a gradient has to do with it. To be recorded: gradients are
// none of its business, and operands of several shapes are nothing that could be recorded as a whole. `below` autograd and the modes:
// numbers are compared as the primitives do it.
enum class Asked { plainly, to_record, below };

// One scalar operation.
PyObject* run_scalar(PyObject* elementwise, PyObject* const* args, Py_ssize_t count, Asked asked);

// A library's call on small CPU tensors, by name (products.cpp); null if there is none of this name.
using Small = PyObject* (*)(PyObject* const* args, Py_ssize_t count);
Small find_small(const char* name);

// The layouts that an Eager remembers of views, {key: layout}, borrowed; null for others.
PyObject* layouts_of(PyObject* eager);

// From now on it also serves what is on a GPU.
void launch_scalar(PyObject* elementwise, PyObject* programs);

// The answer of an Eager to a primitive's arguments; null without an error where there is none.
PyObject* call_eager(PyObject* eager, PyObject* const* args, Py_ssize_t count);

PyObject* run_replay(PyObject* replays, PyObject* const* args, Py_ssize_t count);
