// Reads the slots of flambeau.Tensor directly. Where they lie is asked of the first tensor's class and kept.
#pragma once
#include "module.h"
#include "numpy_api.h"

struct TensorSlots {
    PyTypeObject* type = nullptr;  // the class that defines the slots
    Py_ssize_t data = 0, layout = 0, dtype = 0, device = 0, grad = 0, view = 0;
};

// Offset of the __slots__ member `name` of `type`, or -1. `owner`, if given, is set to the class that defines it.
Py_ssize_t slot_offset(PyTypeObject* type, const char* name, PyTypeObject** owner = nullptr);

// The slots of `object`'s class if it is a tensor's; else null, without an error.
const TensorSlots* tensor_slots(PyObject* object);

// The same for the class that everyone is to look at from now on; false if it has no such slots.
bool learn_slots(PyTypeObject* type);
const TensorSlots& known_slots();

inline PyObject* read_slot(PyObject* object, Py_ssize_t offset) { return *(PyObject**)((char*)object + offset); }

// `tensor.requires_grad` as Tensor has it, whatever its class overrides: 1, 0, or -1 with an error set.
int ask_requires_grad(PyObject* tensor, const TensorSlots* slots);

// The NumPy array of `object`: itself, or the tensor's. Borrowed; null with a TypeError set.
PyArrayObject* array_of(PyObject* object);
