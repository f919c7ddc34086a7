// Eager: the call of one record of the op table in native code, from the arguments to the new tensors: by the loop of a scalar
// operation, by a program for small tensors, by one of GPU kernels. The first that is made for such arguments computes; where none is
// the answer is NotImplemented. Shortcut: an operator over such a scalar operation.
#include "eager.h"

#include "arguments.h"
#include "gpu_program.h"
#include "state.h"
#include "tensors.h"

namespace {

struct Eager {
    PyObject_HEAD
    PyObject *scalar, *replays, *gpu;  // Elementwise, Replays, GpuPrograms; or null
    vectorcallfunc vectorcall;
};

// Whether neither a mode nor a gradient has to do with a call.
bool is_plain(PyObject* const* args, Py_ssize_t count) {
    return dispatch_state.word == 0 &&
           (!dispatch_state.grad_enabled ||
            each_argument(args, count, [](PyObject* argument) { return !is_tensor(argument) || needs_no_grad(argument); }));
}

PyObject* answer(const Eager* self, PyObject* const* args, Py_ssize_t count, bool below) {
    PyObject* made = self->scalar != nullptr ? run_scalar(self->scalar, args, count, below) : nullptr;
    if (made != nullptr || PyErr_Occurred()) return made;
    if ((self->replays == nullptr && self->gpu == nullptr) || !(below || is_plain(args, count))) Py_RETURN_NOTIMPLEMENTED;
    if (self->replays != nullptr) made = run_replay(self->replays, args, count);
    if (made == nullptr && !PyErr_Occurred() && self->gpu != nullptr) made = run_on_gpu(self->gpu, args, count);
    if (made != nullptr || PyErr_Occurred()) return made;
    Py_RETURN_NOTIMPLEMENTED;
}

PyObject* call(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
    if (names != nullptr) Py_RETURN_NOTIMPLEMENTED;
    return answer((Eager*)self, args, PyVectorcall_NARGS(flags), false);
}

PyObject* below(PyObject* self, PyObject* args) {
    if (!PyTuple_Check(args)) return PyErr_Format(PyExc_TypeError, "below() takes the tuple of the record's arguments");
    return answer((Eager*)self, &PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args), true);
}

PyObject* create(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject *scalar, *replays;
    if (!PyArg_ParseTuple(arguments, "OO:Eager", &scalar, &replays)) return nullptr;
    if ((scalar != Py_None && !is_scalar(scalar)) || (replays != Py_None && !are_replays(replays)))
        return PyErr_Format(PyExc_TypeError, "Eager() takes an Elementwise and Replays, or None, got %R and %R", scalar, replays);
    Eager* self = (Eager*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->scalar = scalar != Py_None ? Py_NewRef(scalar) : nullptr;
    self->replays = replays != Py_None ? Py_NewRef(replays) : nullptr;
    self->vectorcall = call;
    return (PyObject*)self;
}

PyObject* get_gpu(PyObject* self, void*) {
    PyObject* gpu = ((Eager*)self)->gpu;
    return Py_NewRef(gpu != nullptr ? gpu : Py_None);
}

int set_gpu(PyObject* object, PyObject* value, void*) {
    Eager* self = (Eager*)object;
    if (value == nullptr || !are_gpu_programs(value)) return PyErr_SetString(PyExc_TypeError, "expected GpuPrograms"), -1;
    if (self->scalar != nullptr) launch_scalar(self->scalar, value);
    Py_XSETREF(self->gpu, Py_NewRef(value));
    return 0;
}

PyMethodDef eager_methods[] = {
    {"below", below, METH_O, "below(args)\n\nThe same below autograd and the modes, for the tuple of the arguments."},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef eager_members[] = {
    {"scalar", T_OBJECT, offsetof(Eager, scalar), READONLY, "The Elementwise; or None."},
    {"replays", T_OBJECT, offsetof(Eager, replays), READONLY, "The Replays; or None."},
    vectorcall_member<Eager>,
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef eager_getters[] = {
    {"gpu", get_gpu, set_gpu, "The GpuPrograms, once a GPU is used; or None.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot eager_slots[] = {
    {Py_tp_doc, (void*)"Eager(scalar, replays)\n--\n\nA call of a record in native code: its results, or NotImplemented; also where a "
                       "mode or a gradient has to do with it."},
    {Py_tp_new, (void*)create}, {Py_tp_dealloc, (void*)release<Eager, &Eager::scalar, &Eager::replays, &Eager::gpu>},
    {Py_tp_call, (void*)PyVectorcall_Call},
    {Py_tp_methods, eager_methods}, {Py_tp_members, eager_members}, {Py_tp_getset, eager_getters}, {0, nullptr},
};
PyType_Spec eager_spec = {"flambeau._C.Eager", sizeof(Eager), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, eager_slots};

struct Shortcut {
    PyObject_HEAD
    PyObject *scalar, *body;
    Py_ssize_t tensors;  // so many arguments are no numbers
    vectorcallfunc vectorcall;
};

PyObject* shortcut_call(PyObject* object, PyObject* const* args, size_t flags, PyObject* names) {
    Shortcut* self = (Shortcut*)object;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    bool fits = names == nullptr && count >= self->tensors;
    for (Py_ssize_t i = 0; fits && i < self->tensors; i++) fits = is_tensor(args[i]);
    PyObject* made = fits ? run_scalar(self->scalar, args, count, false) : nullptr;
    return made != nullptr || PyErr_Occurred() ? made : PyObject_Vectorcall(self->body, args, flags, names);
}

PyObject* shortcut_create(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject *scalar, *body;
    Py_ssize_t tensors;
    if (!PyArg_ParseTuple(arguments, "OOn:Shortcut", &scalar, &body, &tensors)) return nullptr;
    if (!is_scalar(scalar) || !PyCallable_Check(body))
        return PyErr_Format(PyExc_TypeError, "Shortcut() takes an Elementwise and a function, got %R and %R", scalar, body);
    Shortcut* self = (Shortcut*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->scalar = Py_NewRef(scalar), self->body = Py_NewRef(body), self->tensors = tensors;
    self->vectorcall = shortcut_call;
    return (PyObject*)self;
}

PyType_Slot shortcut_slots[] = {
    {Py_tp_doc, (void*)"Shortcut(scalar, body, tensors)\n--\n\nCalls `body` where `scalar` has no answer or one of the first `tensors` "
                       "arguments is none."},
    {Py_tp_new, (void*)shortcut_create}, {Py_tp_dealloc, (void*)release<Shortcut, &Shortcut::scalar, &Shortcut::body>},
    {Py_tp_call, (void*)PyVectorcall_Call}, {Py_tp_members, vectorcall_alone<Shortcut>}, {0, nullptr},
};
PyType_Spec shortcut_spec = {"flambeau._C.Shortcut", sizeof(Shortcut), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, shortcut_slots};

}  // namespace

void add_eager(PyObject* module) {
    add_type(module, eager_spec);
    add_type(module, shortcut_spec);
}
