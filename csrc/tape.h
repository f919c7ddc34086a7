// Autograd's tape: what a primitive has done is hung on its results.
#pragma once
#include <Python.h>

// Records that `prim` made `out` of `args`, a tuple. False with an error set.
bool hang(PyObject* prim, PyObject* args, PyObject* out);
