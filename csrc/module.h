// What the files of csrc/ share: the list of init functions, and small helpers over the C API.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstddef>
#include <initializer_list>

// The files that have something for Python: `void add_NAME(PyObject* module)`.
#define FL_PARTS(X) \
    X(alloc) X(attention) X(call_key) X(eager) X(elementwise) X(frame_hook) X(guards) X(kernels) X(launch) X(mt19937) X(onednn) X(optim) \
    X(package) X(philox) X(pool) X(processor) X(products) X(recorder) X(replay) X(state) X(surroundings) X(tape) X(tensors) X(threads) X(traced) X(unchanged) \
    X(versions)
#define FL_DECLARED(name) void add_##name(PyObject* module);
FL_PARTS(FL_DECLARED)
#undef FL_DECLARED

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

// A tuple of borrowed objects.
inline PyObject* tuple_of(PyObject* const* items, Py_ssize_t count) {
    PyObject* made = PyTuple_New(count);
    for (Py_ssize_t i = 0; made != nullptr && i < count; i++) PyTuple_SET_ITEM(made, i, Py_NewRef(items[i]));
    return made;
}

// An answer that may be none: null without an error becomes NotImplemented.
inline PyObject* or_not_implemented(PyObject* made) { return made != nullptr || PyErr_Occurred() ? made : Py_NewRef(Py_NotImplemented); }

// The end of every dealloc.
inline void free_object(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

// What the garbage collector asks of a type whose instances hold references in these fields.
template <class Object, auto... held>
struct Held {
    static int traverse(PyObject* object, visitproc visit, void* arg) {
        for (PyObject* value : {(PyObject*)Py_TYPE(object), (PyObject*)(((Object*)object)->*held)...}) Py_VISIT(value);
        return 0;
    }
    static int clear(PyObject* object) {
        auto drop = [](auto*& field) { Py_CLEAR(field); };
        (drop(((Object*)object)->*held), ...);
        return 0;
    }
};

// The dealloc of a type whose instances hold references in these fields and nothing else.
template <class Object, PyObject* Object::*... held>
void release(PyObject* object) {
    (Py_XDECREF(((Object*)object)->*held), ...);
    free_object(object);
}
