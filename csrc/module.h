// What the files of csrc/ share: the table of init functions, and small helpers over the C API.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstddef>

void add_alloc(PyObject* module);
void add_attention(PyObject* module);
void add_eager(PyObject* module);
void add_elementwise(PyObject* module);
void add_frame_hook(PyObject* module);
void add_guards(PyObject* module);
void add_instruction_set(PyObject* module);
void add_kernels(PyObject* module);
void add_launch(PyObject* module);
void add_mt19937(PyObject* module);
void add_onednn(PyObject* module);
void add_optim(PyObject* module);
void add_philox(PyObject* module);
void add_pool(PyObject* module);
void add_replay(PyObject* module);
void add_special(PyObject* module);
void add_state(PyObject* module);
void add_surroundings(PyObject* module);
void add_tensors(PyObject* module);
void add_threads(PyObject* module);
void add_unchanged(PyObject* module);

// A type of `module`, which lives as long as the process; null with an error set where it cannot be made.
inline PyTypeObject* add_type(PyObject* module, PyType_Spec& spec, PyObject* bases = nullptr) {
    PyTypeObject* type = (PyTypeObject*)PyType_FromSpecWithBases(&spec, bases);
    return type != nullptr && PyModule_AddType(module, type) == 0 ? type : nullptr;
}

// The member that says where an instance keeps the function that a call of it runs; and the members of a type with this one alone.
template <class Object>
constexpr PyMemberDef vectorcall_member = {"__vectorcalloffset__", T_PYSSIZET, offsetof(Object, vectorcall), READONLY, nullptr};
template <class Object>
PyMemberDef vectorcall_alone[2] = {vectorcall_member<Object>, {}};

// The end of every dealloc.
inline void free_object(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

// The dealloc of a type whose instances hold references in these fields and nothing else.
template <class Object, PyObject* Object::*... held>
void release(PyObject* object) {
    (Py_XDECREF(((Object*)object)->*held), ...);
    free_object(object);
}
