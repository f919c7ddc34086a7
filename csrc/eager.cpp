// Eager: the call of one record of the op table in native code, from the arguments to the new tensors: by the loop of a scalar
// operation, by a program for small tensors, by one of GPU kernels. The first that is made for such arguments computes; where none is
// the answer is NotImplemented. Shortcut: an operator over such a scalar operation.
#include "eager.h"

#include "arguments.h"
#include "gpu_program.h"
#include "state.h"
#include "tape.h"
#include "tensors.h"

namespace {

struct Eager {
    PyObject_HEAD
    PyObject *scalar, *replays, *gpu;  // Elementwise, Replays, GpuPrograms; or null
    PyObject* record;                  // borrowed: whose it is
    Small small;                       // or null
    PyObject* layouts;                 // of a view: {layout and arguments: the view's layout}; or null
    vectorcallfunc vectorcall;
};

bool wants_gradient(PyObject* const* args, Py_ssize_t count) {
    return dispatch_state.grad_enabled &&
           !each_argument(args, count, [](PyObject* argument) { return !is_tensor(argument) || needs_no_grad(argument); });
}

// Null without an error where there is no answer. An operator's operands may have several shapes, which only the scalar operation takes.
PyObject* compute(const Eager* self, PyObject* const* args, Py_ssize_t count, Asked asked, bool by_operator) {
    PyObject* made = self->scalar != nullptr ? run_scalar(self->scalar, args, count, asked) : nullptr;
    if (made != nullptr || PyErr_Occurred() || by_operator) return made;
    if (self->layouts != nullptr) return remembered_view(self->layouts, self->record, args, count);
    if (self->small != nullptr && !dispatch_state.fake) made = self->small(args, count);
    if (made != nullptr || PyErr_Occurred()) return made;
    if (self->replays != nullptr) made = run_replay(self->replays, args, count);
    if (made == nullptr && !PyErr_Occurred() && self->gpu != nullptr) made = run_on_gpu(self->gpu, args, count);
    return made;
}

// The same, put on the tape.
PyObject* recorded(const Eager* self, PyObject* const* args, Py_ssize_t count, bool by_operator) {
    PyObject* derivative = self->record != nullptr ? PyObject_GetAttrString(self->record, "derivative") : nullptr;
    if (derivative == nullptr) return nullptr;
    Py_DECREF(derivative);
    PyObject* made = derivative != Py_None ? compute(self, args, count, Asked::to_record, by_operator) : nullptr;
    if (made == nullptr) return nullptr;
    PyObject* all = tuple_of(args, count);
    if (all == nullptr || !hang(self->record, all, made)) Py_CLEAR(made);
    Py_XDECREF(all);
    return made;
}

// Where no mode has to do with the call.
PyObject* answer(const Eager* self, PyObject* const* args, Py_ssize_t count, bool by_operator) {
    if (dispatch_state.word != 0) return nullptr;
    return wants_gradient(args, count) ? recorded(self, args, count, by_operator) : compute(self, args, count, Asked::plainly, by_operator);
}

PyObject* or_not_implemented(PyObject* made) { return made != nullptr || PyErr_Occurred() ? made : Py_NewRef(Py_NotImplemented); }

PyObject* call(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
    if (names != nullptr) Py_RETURN_NOTIMPLEMENTED;
    return or_not_implemented(answer((Eager*)self, args, PyVectorcall_NARGS(flags), false));
}

PyObject* below(PyObject* self, PyObject* args) {
    if (!PyTuple_Check(args)) return PyErr_Format(PyExc_TypeError, "below() takes the tuple of the record's arguments");
    return or_not_implemented(compute((Eager*)self, &PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args), Asked::below, false));
}

PyObject* create(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject *scalar, *replays, *record;
    const char* small = nullptr;
    int views = 0;
    if (!PyArg_ParseTuple(arguments, "OOO|zp:Eager", &scalar, &replays, &record, &small, &views)) return nullptr;
    if (small != nullptr && find_small(small) == nullptr) return PyErr_Format(PyExc_ValueError, "there is no native call %s of a library", small);
    if ((scalar != Py_None && !is_scalar(scalar)) || (replays != Py_None && !are_replays(replays)))
        return PyErr_Format(PyExc_TypeError, "Eager() takes an Elementwise and Replays, or None, got %R and %R", scalar, replays);
    Eager* self = (Eager*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->scalar = scalar != Py_None ? Py_NewRef(scalar) : nullptr;
    self->replays = replays != Py_None ? Py_NewRef(replays) : nullptr;
    self->record = record, self->small = small != nullptr ? find_small(small) : nullptr, self->vectorcall = call;
    if (views && (self->layouts = PyDict_New()) == nullptr) Py_CLEAR(self);
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
    {Py_tp_doc, (void*)"Eager(scalar, replays, record, small=None, views=False)\n--\n\nA call of a record in native code, put on the tape where an argument needs a "
                       "gradient: its results, or NotImplemented; also where a mode has to do with it. The record must outlive it. `small`: the name of a library's call for small tensors; "
                       "`views`: its layouts are remembered."},
    {Py_tp_new, (void*)create}, {Py_tp_dealloc, (void*)release<Eager, &Eager::scalar, &Eager::replays, &Eager::gpu, &Eager::layouts>},
    {Py_tp_call, (void*)PyVectorcall_Call},
    {Py_tp_methods, eager_methods}, {Py_tp_members, eager_members}, {Py_tp_getset, eager_getters}, {0, nullptr},
};
PyType_Spec eager_spec = {"flambeau._C.Eager", sizeof(Eager), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, eager_slots};

PyTypeObject* eager_type = nullptr;

struct Shortcut {
    PyObject_HEAD
    PyObject *eager, *body;
    Py_ssize_t tensors;  // so many arguments are no numbers
    vectorcallfunc vectorcall;
};

constexpr Py_ssize_t most_operands = 3;

// The common sizes of the operands, where their tensors are of one dtype and not all of one shape, but can be expanded to one; null without
// an error elsewhere.
PyObject* common_sizes(PyObject* const* args, Py_ssize_t count) {
    PyObject *dtype = nullptr, *common = nullptr;
    bool alike = true;
    for (Py_ssize_t k = 0; k < count; k++) {
        if (!is_tensor(args[k])) continue;
        PyObject *layout = layout_of(args[k]), *own = read_slot(args[k], known_slots().dtype);
        if (layout == nullptr || (dtype != nullptr && own != dtype)) return Py_XDECREF(common), nullptr;
        PyObject* sizes = PyTuple_GET_ITEM(layout, 0);
        dtype = own;
        if (common == nullptr) {
            common = Py_NewRef(sizes);
            continue;
        }
        bool longer = PyTuple_GET_SIZE(sizes) > PyTuple_GET_SIZE(common);
        PyObject *more = longer ? sizes : common, *less = longer ? common : sizes;
        Py_ssize_t rank = PyTuple_GET_SIZE(more), skipped = rank - PyTuple_GET_SIZE(less);
        PyObject* made = PyTuple_New(rank);
        for (Py_ssize_t d = 0; made != nullptr && d < rank; d++) {
            PyObject *a = PyTuple_GET_ITEM(more, d), *b = d < skipped ? a : PyTuple_GET_ITEM(less, d - skipped);
            bool plain = PyLong_CheckExact(a) && PyLong_CheckExact(b);
            Py_ssize_t n = plain ? PyLong_AsSsize_t(a) : 0, m = plain ? PyLong_AsSsize_t(b) : 0;
            if (!plain || (n != m && n != 1 && m != 1)) Py_CLEAR(made);
            else PyTuple_SET_ITEM(made, d, Py_NewRef(n == 1 ? b : a));
        }
        alike = alike && skipped == 0 && PyObject_RichCompareBool(sizes, common, Py_EQ) == 1;
        Py_SETREF(common, made);
        if (common == nullptr) return nullptr;
    }
    if (alike) Py_CLEAR(common);
    return common;
}

// Operands of several shapes, recorded: they are expanded to one first. Null without an error where that cannot be done here.
PyObject* recorded_together(const Eager* self, PyObject* const* args, Py_ssize_t count) {
    PyObject* common = count <= most_operands && wants_gradient(args, count) ? common_sizes(args, count) : nullptr;
    if (common == nullptr) return nullptr;
    PyObject* alike[most_operands] = {};
    bool good = true;
    for (Py_ssize_t k = 0; good && k < count; k++) {
        PyObject* sizes = is_tensor(args[k]) ? PyTuple_GET_ITEM(layout_of(args[k]), 0) : nullptr;
        bool same = sizes == nullptr || PyObject_RichCompareBool(sizes, common, Py_EQ) == 1;
        alike[k] = same ? Py_NewRef(args[k]) : expanded(args[k], common);
        good = alike[k] != nullptr;
    }
    PyObject* made = good ? recorded(self, alike, count, true) : nullptr;
    for (PyObject* operand : alike) Py_XDECREF(operand);
    Py_DECREF(common);
    return made;
}

PyObject* shortcut_call(PyObject* object, PyObject* const* args, size_t flags, PyObject* names) {
    Shortcut* self = (Shortcut*)object;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    bool fits = names == nullptr && count >= self->tensors;
    for (Py_ssize_t i = 0; fits && i < self->tensors; i++) fits = is_tensor(args[i]);
    PyObject* made = fits ? answer((Eager*)self->eager, args, count, true) : nullptr;
    if (made == nullptr && fits && dispatch_state.word == 0 && !PyErr_Occurred()) made = recorded_together((Eager*)self->eager, args, count);
    return made != nullptr || PyErr_Occurred() ? made : PyObject_Vectorcall(self->body, args, flags, names);
}

PyObject* shortcut_create(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject *eager, *body;
    Py_ssize_t tensors;
    if (!PyArg_ParseTuple(arguments, "O!On:Shortcut", eager_type, &eager, &body, &tensors)) return nullptr;
    if (!PyCallable_Check(body)) return PyErr_Format(PyExc_TypeError, "Shortcut() takes an Eager and a function, got %R and %R", eager, body);
    Shortcut* self = (Shortcut*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->eager = Py_NewRef(eager), self->body = Py_NewRef(body), self->tensors = tensors;
    self->vectorcall = shortcut_call;
    return (PyObject*)self;
}

PyType_Slot shortcut_slots[] = {
    {Py_tp_doc, (void*)"Shortcut(eager, body, tensors)\n--\n\nCalls `body` where `eager` has no answer or one of the first `tensors` "
                       "arguments is none."},
    {Py_tp_new, (void*)shortcut_create}, {Py_tp_dealloc, (void*)release<Shortcut, &Shortcut::eager, &Shortcut::body>},
    {Py_tp_call, (void*)PyVectorcall_Call}, {Py_tp_members, vectorcall_alone<Shortcut>}, {0, nullptr},
};
PyType_Spec shortcut_spec = {"flambeau._C.Shortcut", sizeof(Shortcut), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, shortcut_slots};

}  // namespace

PyObject* layouts_of(PyObject* eager) { return Py_IS_TYPE(eager, eager_type) ? ((Eager*)eager)->layouts : nullptr; }

void add_eager(PyObject* module) {
    eager_type = add_type(module, eager_spec);
    add_type(module, shortcut_spec);
}
