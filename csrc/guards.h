// What guards.cpp and unchanged.cpp share: asking one tensor whether it is as its TensorSpec says.
#pragma once
#include "module.h"

bool is_tensor_spec(PyObject* object);

// 1, 0, or -1 with an error set. `spec` is a TensorSpec.
int tensor_fits(PyObject* spec, PyObject* tensor);
