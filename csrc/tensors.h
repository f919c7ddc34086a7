// Making tensors and asking them simple things, without Python.
#pragma once
#include "kinds.h"
#include "tensor_slots.h"

// A tensor around `array`, whose reference is taken over (also on failure). Its dtype follows from the array's; on the CPU.
PyObject* new_tensor(PyObject* array);

// The array of a tensor with elements on the CPU; borrowed. Null (no error) for anything else.
PyArrayObject* cpu_array(PyObject* object);

bool is_tensor(PyObject* object);

// Whether autograd certainly has nothing to do with `tensor`: false also where that takes Python to find out.
bool needs_no_grad(PyObject* tensor);

// An array of these sizes in row-major order; not for bfloat16.
PyObject* new_array(Kind kind, int rank, const npy_intp* sizes);
