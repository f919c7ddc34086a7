// Eager: the call of one record of the op table in native code, from the arguments to the new tensors: by the loop of a scalar
// operation, by a program for small tensors, by one of GPU kernels. The first that is made for such arguments computes; where none is
// the answer is NotImplemented. Shortcut: an operator over such a scalar operation.
#include "eager.h"

#include "arguments.h"
#include "call_key.h"
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
    PyObject* specs;                   // of a primitive with a kernel: {layouts, dtypes and constants: what its shape rule says}; or null
    bool has_kernel;                   // of an operator: it may answer for any arguments
    PyObject* layouts;                 // of a view: {layout and arguments: the view's layout}; or null
    vectorcallfunc vectorcall;
};

// Told by `know_kernels`.
PyObject *wrap, *cpu_name, *kernels_name, *promise_name;
PyTypeObject* spec_type;

constexpr Py_ssize_t most_specs = 128;

// The array of a tensor, or the argument as it is.
PyObject* array_or_itself(PyObject* argument) {
    PyArrayObject* array = cpu_array(argument);
    return Py_NewRef(array != nullptr ? (PyObject*)array : argument);
}

// The same, and a list where there are tensors in a list or tuple.
PyObject* for_kernel(PyObject* argument) {
    bool holds = false;
    if (PyList_CheckExact(argument) || PyTuple_CheckExact(argument))
        for (Py_ssize_t i = 0; !holds && i < PySequence_Fast_GET_SIZE(argument); i++) holds = is_tensor(PySequence_Fast_GET_ITEM(argument, i));
    if (!holds) return array_or_itself(argument);
    Py_ssize_t count = PySequence_Fast_GET_SIZE(argument);
    PyObject* made = PyList_New(count);
    for (Py_ssize_t i = 0; made != nullptr && i < count; i++) PyList_SET_ITEM(made, i, array_or_itself(PySequence_Fast_GET_ITEM(argument, i)));
    return made;
}

// The tensor around what a kernel gave; an operator's promises nothing. Takes over the reference.
PyObject* wrapped(PyObject* array, PyObject* spec) {
    PyObject* made = nullptr;
    if (spec == Py_None) {
        made = PyArray_FromAny(array, nullptr, 0, 0, 0, nullptr);
        Py_DECREF(array);
        return new_tensor(made);
    } else if (!Py_IS_TYPE(spec, spec_type)) {
        PyErr_SetString(PyExc_TypeError, "a shape rule gave no Spec");
    } else if (Py_IS_TYPE(array, &PyArray_Type) && PyArray_IS_C_CONTIGUOUS((PyArrayObject*)array) && PyTuple_GET_ITEM(spec, 2) == Py_None) {
        return new_tensor_of(array, PyTuple_GET_ITEM(spec, 1), cpu_device(), nullptr);
    } else {
        made = PyObject_CallFunctionObjArgs(wrap, array, spec, cpu_device(), nullptr);
    }
    Py_DECREF(array);
    return made;
}

// What the shape rule says, borrowed; null without an error where Python has to.
PyObject* find_specs(const Eager* self, PyObject* const* args, Py_ssize_t count) {
    CallKey key;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!tell(key, args[i])) return nullptr;
    PyObject* made = key.made();
    PyObject* found = made != nullptr ? PyDict_GetItemWithError(self->specs, made) : nullptr;
    if (made != nullptr && found == nullptr && !PyErr_Occurred()) {
        PyObject* all = tuple_of(args, count);
        PyObject* told = all != nullptr ? PyObject_CallMethodOneArg(self->record, promise_name, all) : nullptr;
        Py_XDECREF(all);
        if (told != nullptr && PyDict_GET_SIZE(self->specs) >= most_specs) PyDict_Clear(self->specs);
        if (told != nullptr && PyDict_SetItem(self->specs, made, told) == 0) found = told;
        Py_XDECREF(told);  // the dict holds it
    }
    Py_XDECREF(made);
    return found;
}

constexpr Py_ssize_t most_arguments = 16;

bool are_plain(PyObject* const* args, Py_ssize_t count) {
    CallKey nothing;
    for (Py_ssize_t i = 0; i < count; i++)
        if (is_tensor(args[i]) || PyList_CheckExact(args[i]) || PyTuple_Check(args[i]) ? !tell(nothing, args[i]) : false) return false;
    return true;
}

// The results of a kernel as tensors. Takes over the reference.
PyObject* all_wrapped(PyObject* out, PyObject* specs) {
    bool promised = specs != Py_None;
    if (promised ? Py_IS_TYPE(specs, spec_type) : !PyTuple_CheckExact(out)) return wrapped(out, specs);
    PyObject* results = PySequence_Fast(out, "a kernel gave no tuple");
    Py_ssize_t count = results != nullptr ? PySequence_Fast_GET_SIZE(results) : -1;
    bool fits = count >= 0 && (!promised || (PyTuple_Check(specs) && PyTuple_GET_SIZE(specs) == count));
    PyObject* made = fits ? PyTuple_New(count) : nullptr;
    for (Py_ssize_t i = 0; made != nullptr && i < count; i++) {
        PyObject* one = wrapped(Py_NewRef(PySequence_Fast_GET_ITEM(results, i)), promised ? PyTuple_GET_ITEM(specs, i) : Py_None);
        if (one == nullptr) Py_CLEAR(made);
        else PyTuple_SET_ITEM(made, i, one);
    }
    Py_XDECREF(results), Py_DECREF(out);
    return made;
}

// The kernel in Python; null without an error where it has to be called from there.
PyObject* run_kernel(const Eager* self, PyObject* const* args, Py_ssize_t count) {
    if (wrap == nullptr || count > most_arguments || dispatch_state.fake) return nullptr;
    PyObject* specs = self->specs != nullptr ? find_specs(self, args, count) : are_plain(args, count) ? Py_None : nullptr;
    if (specs == nullptr || (self->specs != nullptr && specs == Py_None)) return nullptr;
    PyObject* kernels = PyObject_GetAttr(self->record, kernels_name);
    PyObject* kernel = kernels != nullptr ? Py_XNewRef(PyDict_GetItemWithError(kernels, cpu_name)) : nullptr;
    Py_XDECREF(kernels);
    if (kernel == nullptr) return nullptr;
    Py_INCREF(specs);
    PyObject* given[most_arguments] = {};
    bool good = true;
    for (Py_ssize_t i = 0; good && i < count; i++) good = (given[i] = for_kernel(args[i])) != nullptr;
    PyObject* out = good ? PyObject_Vectorcall(kernel, given, (size_t)count, nullptr) : nullptr;
    for (PyObject* argument : given) Py_XDECREF(argument);
    Py_DECREF(kernel);
    PyObject* made = nullptr;
    if (out == Py_NotImplemented) Py_DECREF(out);
    else if (out != nullptr) made = all_wrapped(out, specs);
    else if (PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();  // Python, which calls it again, says what is wrong
    Py_DECREF(specs);
    return made;
}

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
    if (made == nullptr && !PyErr_Occurred() && (self->specs != nullptr || self->has_kernel)) made = run_kernel(self, args, count);
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
    int views = 0, promises = 0, has_kernel = 0;
    if (!PyArg_ParseTuple(arguments, "OOO|zppp:Eager", &scalar, &replays, &record, &small, &views, &promises, &has_kernel)) return nullptr;
    if (small != nullptr && find_small(small) == nullptr) return PyErr_Format(PyExc_ValueError, "there is no native call %s of a library", small);
    if ((scalar != Py_None && !is_scalar(scalar)) || (replays != Py_None && !are_replays(replays)))
        return PyErr_Format(PyExc_TypeError, "Eager() takes an Elementwise and Replays, or None, got %R and %R", scalar, replays);
    Eager* self = (Eager*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->scalar = scalar != Py_None ? Py_NewRef(scalar) : nullptr;
    self->replays = replays != Py_None ? Py_NewRef(replays) : nullptr;
    self->record = record, self->small = small != nullptr ? find_small(small) : nullptr, self->vectorcall = call;
    self->has_kernel = has_kernel;
    if ((views && (self->layouts = PyDict_New()) == nullptr) || (promises && (self->specs = PyDict_New()) == nullptr)) Py_CLEAR(self);
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
    {Py_tp_doc, (void*)"Eager(scalar, replays, record, small=None, views=False, promises=False, has_kernel=False)\n--\n\nA call of a record in native code, put on the tape where an argument needs a "
                       "gradient: its results, or NotImplemented; also where a mode has to do with it. The record must outlive it. `small`: the name of a library's call for small tensors; "
                       "`views`: its layouts are remembered; `promises`: what `record.promise(args)` says is, and its kernel called; `has_kernel`: an operator's, which answers NotImplemented where it does not serve."},
    {Py_tp_new, (void*)create}, {Py_tp_dealloc, (void*)release<Eager, &Eager::scalar, &Eager::replays, &Eager::gpu, &Eager::specs, &Eager::layouts>},
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

PyObject* know_kernels(PyObject*, PyObject* args) {
    PyTypeObject* spec;
    PyObject* function;
    if (!PyArg_ParseTuple(args, "O!O", &PyType_Type, &spec, &function)) return nullptr;
    cpu_name = PyUnicode_InternFromString("cpu"), kernels_name = PyUnicode_InternFromString("kernels"), promise_name = PyUnicode_InternFromString("promise");
    spec_type = (PyTypeObject*)Py_NewRef(spec), wrap = Py_NewRef(function);
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"know_kernels", know_kernels, METH_VARARGS, "know_kernels(Spec, wrap)\n\nOnce: what shape rules answer with, and what makes a tensor of (array, spec, device)."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyObject* call_eager(PyObject* eager, PyObject* const* args, Py_ssize_t count) {
    return Py_IS_TYPE(eager, eager_type) ? answer((Eager*)eager, args, count, false) : nullptr;
}

PyObject* layouts_of(PyObject* eager) { return Py_IS_TYPE(eager, eager_type) ? ((Eager*)eager)->layouts : nullptr; }

void add_eager(PyObject* module) {
    PyModule_AddFunctions(module, methods);
    eager_type = add_type(module, eager_spec);
    add_type(module, shortcut_spec);
}
