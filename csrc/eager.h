// What an eager call is computed by, for csrc/eager.cpp: each gives the results, or null without an error where it is not made for these
// arguments.
#pragma once
#include "module.h"

bool is_scalar(PyObject* object);     // a flambeau._C.Elementwise
bool are_replays(PyObject* object);   // a flambeau._C.Replays

// One scalar operation; unless `below` them, nothing where a mode or a gradient has to do with it.
PyObject* run_scalar(PyObject* elementwise, PyObject* const* args, Py_ssize_t count, bool below);

// From now on it also serves what is on a GPU.
void launch_scalar(PyObject* elementwise, PyObject* programs);

PyObject* run_replay(PyObject* replays, PyObject* const* args, Py_ssize_t count);
