// What the files of csrc/ share: the table of init functions, and small helpers over the C API.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

void add_alloc(PyObject* module);
void add_attention(PyObject* module);
void add_elementwise(PyObject* module);
void add_frame_hook(PyObject* module);
void add_guards(PyObject* module);
void add_kernels(PyObject* module);
void add_launch(PyObject* module);
void add_onednn(PyObject* module);
void add_optim(PyObject* module);
void add_philox(PyObject* module);
void add_pool(PyObject* module);
void add_replay(PyObject* module);
void add_special(PyObject* module);
void add_state(PyObject* module);
void add_tensors(PyObject* module);
void add_threads(PyObject* module);
void add_unchanged(PyObject* module);

// Adds `type` to `module` under its short name; returns false with an error set when that fails.
inline bool add_type(PyObject* module, PyTypeObject* type) { return PyModule_AddType(module, type) == 0; }
