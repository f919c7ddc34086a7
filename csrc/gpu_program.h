// Programs of one operator on GPUs (flambeau._C.GpuPrograms), for native paths.
#pragma once
#include "module.h"

bool are_gpu_programs(PyObject* object);

// The program for these arguments: its results; null without an error where there is none.
PyObject* run_on_gpu(PyObject* programs, PyObject* const* args, Py_ssize_t count);

// A pointwise operation on a GPU's tensors of one floating dtype and shape, and numbers: a new tensor. Null without an error
// where that does not hold, or (unless `below` them) where a mode or a gradient has to do with it.
PyObject* quick_on_gpu(PyObject* programs, PyObject* const* args, Py_ssize_t count, bool below);

// The same with the result written over the first operand; false where it was not done, with or without an error.
bool into_on_gpu(PyObject* programs, PyObject* const* args, Py_ssize_t count);
