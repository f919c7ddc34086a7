#pragma once
#include <Python.h>

// Whether all names that Surroundings watch are bound to what they were: 1, 0, or -1 with an error set. Nothing of the thread's state.
int places_unchanged(PyObject* surroundings);
