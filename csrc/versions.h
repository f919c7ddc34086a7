// Versions of dicts and classes: no two states of any two of a process ever have the same one, so an equal version means that nothing
// was written in between.
#pragma once
#include <Python.h>

#include <cstdint>

#if PY_VERSION_HEX < 0x030E0000
inline uint64_t version_of(PyObject* dict) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    return ((PyDictObject*)dict)->ma_version_tag;
#pragma GCC diagnostic pop
}
#else
uint64_t version_of(PyObject* dict);  // given by versions.cpp
#endif

// Of a class and all that it inherits from: set to 0 by a write to any of them, and given anew by the next lookup (mostly).
inline uint64_t version_of_type(PyObject* type) { return ((PyTypeObject*)type)->tp_version_tag; }
