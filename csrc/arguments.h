// The arguments of an operator as native paths go through them.
#pragma once
#include "tensors.h"

// With lists and tuples of tensors opened: visit(argument) for each until it answers false.
template <class Visit>
bool each_argument(PyObject* const* args, Py_ssize_t count, Visit visit) {
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject* argument = args[i];
        bool opens = false;
        if (PyList_CheckExact(argument) || PyTuple_CheckExact(argument))
            for (Py_ssize_t k = 0; !opens && k < PySequence_Fast_GET_SIZE(argument); k++) opens = is_tensor(PySequence_Fast_GET_ITEM(argument, k));
        if (!opens) {
            if (!visit(argument)) return false;
            continue;
        }
        for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(argument); k++)
            if (!visit(PySequence_Fast_GET_ITEM(argument, k))) return false;
    }
    return true;
}
