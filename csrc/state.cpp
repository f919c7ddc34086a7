// DispatchState: thread-local attributes that both Python and the fast paths of elementwise.cpp read.
#include "state.h"

#include <initializer_list>

#include "module.h"

thread_local DispatchState dispatch_state;

namespace {

int check_value(PyObject* value) {
    if (value != nullptr) return 0;
    PyErr_SetString(PyExc_AttributeError, "attributes of the dispatch state cannot be deleted");
    return -1;
}

template <long DispatchState::*member>
PyObject* get_number(PyObject*, void*) { return PyLong_FromLong(dispatch_state.*member); }

template <long DispatchState::*member>
int set_number(PyObject*, PyObject* value, void*) {
    if (check_value(value) < 0) return -1;
    long number = PyLong_AsLong(value);
    if (number == -1 && PyErr_Occurred()) return -1;
    dispatch_state.*member = number;
    return 0;
}

template <bool DispatchState::*member>
PyObject* get_flag(PyObject*, void*) { return Py_NewRef(dispatch_state.*member ? Py_True : Py_False); }

template <bool DispatchState::*member>
int set_flag(PyObject*, PyObject* value, void*) {
    if (check_value(value) < 0) return -1;
    int flag = PyObject_IsTrue(value);
    if (flag < 0) return -1;
    dispatch_state.*member = flag;
    return 0;
}

// Grad mode as the user's scopes set it and is_grad_enabled tells it: in inference mode it records nothing.
bool& grad_mode() { return dispatch_state.inference ? dispatch_state.asked : dispatch_state.grad_enabled; }

PyObject* get_grad_mode(PyObject*, void*) { return Py_NewRef(grad_mode() ? Py_True : Py_False); }

int set_grad_mode(PyObject*, PyObject* value, void*) {
    if (check_value(value) < 0) return -1;
    int flag = PyObject_IsTrue(value);
    if (flag >= 0) grad_mode() = flag;
    return flag < 0 ? -1 : 0;
}

PyObject* get_recording(PyObject*, void*) {
    return PyLong_FromLong(dispatch_state.grad_enabled | dispatch_state.inference << 1 | dispatch_state.asked << 2);
}

int set_recording(PyObject*, PyObject* value, void*) {
    if (check_value(value) < 0) return -1;
    long bits = PyLong_AsLong(value);
    if (bits == -1 && PyErr_Occurred()) return -1;
    dispatch_state.grad_enabled = bits & 1, dispatch_state.inference = bits & 2, dispatch_state.asked = bits & 4;
    return 0;
}

PyObject* get_modes(PyObject*, void*) {
    return dispatch_state.modes != nullptr ? Py_NewRef(dispatch_state.modes) : PyTuple_New(0);
}

int set_modes(PyObject*, PyObject* value, void*) {
    if (check_value(value) < 0) return -1;
    if (!PyTuple_Check(value)) return PyErr_SetString(PyExc_TypeError, "modes must be a tuple"), -1;
    PyObject* old = dispatch_state.modes;
    dispatch_state.modes = PyTuple_GET_SIZE(value) > 0 ? Py_NewRef(value) : nullptr;
    Py_XDECREF(old);
    return 0;
}

// ---- with grad_enabled(flag): ----

struct GradScope {
    PyObject_HEAD
    bool flag, saved;
};

PyObject* scope_create(PyTypeObject* type, PyObject* arguments, PyObject*) {
    int flag;
    if (!PyArg_ParseTuple(arguments, "p:grad_enabled", &flag)) return nullptr;
    GradScope* self = (GradScope*)type->tp_alloc(type, 0);
    if (self != nullptr) self->flag = flag;
    return (PyObject*)self;
}

PyObject* scope_enter(PyObject* self, PyObject*) {
    ((GradScope*)self)->saved = dispatch_state.grad_enabled;
    dispatch_state.grad_enabled = ((GradScope*)self)->flag;
    Py_RETURN_NONE;
}

PyObject* scope_exit(PyObject* self, PyObject* const*, Py_ssize_t) {
    dispatch_state.grad_enabled = ((GradScope*)self)->saved;
    Py_RETURN_NONE;
}

PyMethodDef scope_methods[] = {
    {"__enter__", scope_enter, METH_NOARGS, nullptr},
    {"__exit__", (PyCFunction)(void*)scope_exit, METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot scope_slots[] = {
    {Py_tp_doc, (void*)"grad_enabled(flag)\n--\n\nTurn gradient recording on or off for a block."},
    {Py_tp_new, (void*)scope_create}, {Py_tp_methods, scope_methods}, {0, nullptr},
};
PyType_Spec scope_spec = {"flambeau._C.grad_enabled", sizeof(GradScope), 0, Py_TPFLAGS_DEFAULT, scope_slots};

PyGetSetDef members[] = {
    {"word", get_number<&DispatchState::word>, set_number<&DispatchState::word>, "Number of active modes.", nullptr},
    {"overrides", get_number<&DispatchState::overrides>, set_number<&DispatchState::overrides>,
     "Number of active __torch_function__ modes.", nullptr},
    {"grad_enabled", get_flag<&DispatchState::grad_enabled>, set_flag<&DispatchState::grad_enabled>, nullptr, nullptr},
    {"inference", get_flag<&DispatchState::inference>, set_flag<&DispatchState::inference>, nullptr, nullptr},
    {"grad_mode", get_grad_mode, set_grad_mode, "grad_enabled as the user's scopes see and set it.", nullptr},
    {"recording", get_recording, set_recording, "All of these in one number, to be put back: grad_enabled + 2 inference + 4 asked.", nullptr},
    {"fake", get_flag<&DispatchState::fake>, set_flag<&DispatchState::fake>, "Factories make fake tensors.", nullptr},
    {"modes", get_modes, set_modes, "The stack of modes, a tuple.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, (void*)"What dispatch must know beside the arguments; every thread has values of its own."},
    {Py_tp_getset, members},
    {0, nullptr},
};

PyType_Spec spec = {"flambeau._C.DispatchState", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

void add_state(PyObject* module) {
    add_type(module, spec);
    add_type(module, scope_spec);
}
