// DispatchState: thread-local attributes that both Python and the fast paths of elementwise.cpp read.
#include "state.h"

#include <structmember.h>

#include <cstddef>
#include <initializer_list>
#include <vector>

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

long recording() { return dispatch_state.grad_enabled | dispatch_state.inference << 1 | dispatch_state.asked << 2; }
void record(long bits) { dispatch_state.grad_enabled = bits & 1, dispatch_state.inference = bits & 2, dispatch_state.asked = bits & 4; }

PyObject* get_recording(PyObject*, void*) {
    return PyLong_FromLong(recording());
}

int set_recording(PyObject*, PyObject* value, void*) {
    if (check_value(value) < 0) return -1;
    long bits = PyLong_AsLong(value);
    if (bits == -1 && PyErr_Occurred()) return -1;
    record(bits);
    return 0;
}

// ---- what may take over operators: function modes, proxies, autocast; and who watches them ----

// The first of autocast's settings says whether it is on for some device.
void count_overrides() {
    PyObject *modes = dispatch_state.function_modes, *settings = autocast_settings(), *watchers = dispatch_state.watchers;
    bool autocast = settings != nullptr && PyTuple_GET_ITEM(settings, 0) == Py_True;
    dispatch_state.overrides = dispatch_state.proxies + (modes != nullptr ? (long)PyTuple_GET_SIZE(modes) : 0) + autocast +
        (watchers != nullptr ? (long)PyTuple_GET_SIZE(watchers) : 0);
}

int set_proxies(PyObject* self, PyObject* value, void* closure) {
    int status = set_number<&DispatchState::proxies>(self, value, closure);
    count_overrides();
    return status;
}

template <PyObject* DispatchState::*member>
void put_object(PyObject* value) {  // takes over a reference, or null
    PyObject* old = dispatch_state.*member;
    dispatch_state.*member = value;
    count_overrides();
    Py_XDECREF(old);
}

template <PyObject* DispatchState::*member>
PyObject* get_object(PyObject*, void*) { return Py_NewRef(dispatch_state.*member != nullptr ? dispatch_state.*member : Py_None); }

template <PyObject* DispatchState::*member>
int set_object(PyObject*, PyObject* value, void*) {
    if (check_value(value) < 0) return -1;
    put_object<member>(value == Py_None ? nullptr : Py_NewRef(value));
    return 0;
}

template <PyObject* DispatchState::*member>
PyObject* get_tuple(PyObject*, void*) { return dispatch_state.*member != nullptr ? Py_NewRef(dispatch_state.*member) : PyTuple_New(0); }

template <PyObject* DispatchState::*member>
int set_tuple(PyObject*, PyObject* value, void*) {
    if (check_value(value) < 0) return -1;
    if (!PyTuple_Check(value)) return PyErr_SetString(PyExc_TypeError, "this attribute of the dispatch state is a tuple"), -1;
    put_object<member>(PyTuple_GET_SIZE(value) > 0 ? Py_NewRef(value) : nullptr);
    return 0;
}

constexpr auto set_function_modes = set_tuple<&DispatchState::function_modes>, set_modes = set_tuple<&DispatchState::modes>,
    set_watcher_tuple = set_tuple<&DispatchState::watchers>;

int set_autocast(PyObject*, PyObject* value, void*) {
    if (check_value(value) < 0) return -1;
    bool good = value == Py_None;
    if (PyTuple_Check(value) && PyTuple_GET_SIZE(value) == 2) {
        PyObject* settings = PyTuple_GET_ITEM(value, 0);
        good = PyTuple_Check(settings) && PyTuple_GET_SIZE(settings) > 0 && PyBool_Check(PyTuple_GET_ITEM(settings, 0));
    }
    if (!good) return PyErr_SetString(PyExc_TypeError, "autocast must be None or (settings, cache), the settings a tuple that begins with a bool"), -1;
    return set_object<&DispatchState::autocast>(nullptr, value, nullptr);
}

// ---- where factories make tensors ----

int set_devices(PyObject*, PyObject* value, void*) {
    if (value != nullptr && value != Py_None && !(PyTuple_Check(value) && PyTuple_GET_SIZE(value) > 0))
        return PyErr_SetString(PyExc_TypeError, "devices must be None or a tuple of at least one"), -1;
    return set_object<&DispatchState::devices>(nullptr, value, nullptr);
}

// `with device:`. The stack is the thread's: one device object may be in use in many blocks.
PyObject* device_enter(PyObject* self, PyObject*) {
    PyObject* outer = dispatch_state.devices;
    Py_ssize_t depth = outer != nullptr ? PyTuple_GET_SIZE(outer) : 1;
    PyObject* inner = PyTuple_New(depth + 1);
    if (inner == nullptr) return nullptr;
    for (Py_ssize_t i = 0; i < depth; i++)
        PyTuple_SET_ITEM(inner, i, Py_NewRef(outer != nullptr ? PyTuple_GET_ITEM(outer, i) : Py_None));  // None: the CPU
    PyTuple_SET_ITEM(inner, depth, Py_NewRef(self));
    dispatch_state.devices = inner;
    Py_XDECREF(outer);
    return Py_NewRef(self);
}

PyObject* device_exit(PyObject*, PyObject* const*, Py_ssize_t) {
    PyObject* inner = dispatch_state.devices;
    Py_ssize_t depth = inner != nullptr ? PyTuple_GET_SIZE(inner) : 0;
    if (depth < 2) return PyErr_SetString(PyExc_RuntimeError, "the block of this device has not been entered"), nullptr;
    bool untouched = depth == 2 && PyTuple_GET_ITEM(inner, 0) == Py_None;
    PyObject* outer = untouched ? nullptr : PyTuple_GetSlice(inner, 0, depth - 1);
    if (!untouched && outer == nullptr) return nullptr;
    dispatch_state.devices = outer;
    Py_DECREF(inner);
    Py_RETURN_NONE;
}

PyMethodDef device_methods[] = {
    {"__enter__", device_enter, METH_NOARGS, nullptr},
    {"__exit__", (PyCFunction)(void*)device_exit, METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyObject* device_create(PyTypeObject* type, PyObject*, PyObject*) { return type->tp_alloc(type, 0); }
PyType_Slot device_slots[] = {
    {Py_tp_doc, (void*)"A scope over where factories make tensors; base of device."},
    {Py_tp_new, (void*)device_create}, {Py_tp_dealloc, (void*)free_object}, {Py_tp_methods, device_methods}, {0, nullptr},
};
PyType_Spec device_spec = {"flambeau._C.DeviceScope", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, device_slots};

// ---- with grad_enabled(flag): and with dispatch_scope(...): ----
// An interrupt (Ctrl-C) comes between bytecodes: entering and leaving in native code cannot be cut in two.

struct GradScope {
    PyObject_HEAD
    bool flag, saved;
};

PyObject* grad_create(PyTypeObject* type, PyObject* arguments, PyObject*) {
    int flag;
    if (!PyArg_ParseTuple(arguments, "p:grad_enabled", &flag)) return nullptr;
    GradScope* self = (GradScope*)type->tp_alloc(type, 0);
    if (self != nullptr) self->flag = flag;
    return (PyObject*)self;
}

PyObject* grad_enter(PyObject* self, PyObject*) {
    ((GradScope*)self)->saved = dispatch_state.grad_enabled;
    dispatch_state.grad_enabled = ((GradScope*)self)->flag;
    Py_RETURN_NONE;
}

PyObject* grad_exit(PyObject* self, PyObject* const*, Py_ssize_t) {
    dispatch_state.grad_enabled = ((GradScope*)self)->saved;
    Py_RETURN_NONE;
}

PyMethodDef grad_methods[] = {
    {"__enter__", grad_enter, METH_NOARGS, nullptr},
    {"__exit__", (PyCFunction)(void*)grad_exit, METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot grad_slots[] = {
    {Py_tp_doc, (void*)"grad_enabled(flag)\n--\n\nTurn gradient recording on or off for a block."},
    {Py_tp_new, (void*)grad_create}, {Py_tp_methods, grad_methods}, {0, nullptr},
};
PyType_Spec grad_spec = {"flambeau._C.grad_enabled", sizeof(GradScope), 0, Py_TPFLAGS_DEFAULT, grad_slots};

// ---- the user's scopes: no_grad, enable_grad, set_grad_enabled, inference_mode ----

struct UserScope {
    PyObject_HEAD
    std::vector<long>* saved;   // what was, for each time that it was entered
    char flag;                  // grad mode within it
    int recording;              // or all of `recording`, unless negative
    int before;                 // what is restored, unless negative
};

PyObject* user_create(PyTypeObject* type, PyObject*, PyObject*) {
    UserScope* self = (UserScope*)type->tp_alloc(type, 0);
    if (self != nullptr) self->saved = new std::vector<long>, self->recording = self->before = -1;
    return (PyObject*)self;
}

PyObject* user_enter(PyObject* object, PyObject*) {
    UserScope* self = (UserScope*)object;
    self->saved->push_back(self->before < 0 ? recording() : self->before);
    if (self->recording < 0) grad_mode() = self->flag;
    else record(self->recording);
    Py_RETURN_NONE;
}

PyObject* user_exit(PyObject* object, PyObject* const*, Py_ssize_t) {
    UserScope* self = (UserScope*)object;
    if (self->saved->empty()) return PyErr_SetString(PyExc_RuntimeError, "the block of this scope has not been entered"), nullptr;
    record(self->saved->back());
    self->saved->pop_back();
    Py_RETURN_NONE;
}

void user_free(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    delete ((UserScope*)object)->saved;
    type->tp_free(object);
    Py_DECREF(type);
}

PyMethodDef user_methods[] = {
    {"__enter__", user_enter, METH_NOARGS, nullptr},
    {"__exit__", (PyCFunction)(void*)user_exit, METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyObject* user_saved(PyObject* object, void*) {
    const std::vector<long>& saved = *((UserScope*)object)->saved;
    PyObject* made = PyList_New((Py_ssize_t)saved.size());
    for (size_t i = 0; made != nullptr && i < saved.size(); i++) PyList_SET_ITEM(made, i, PyLong_FromLong(saved[i]));
    return made;
}

PyGetSetDef user_getters[] = {
    {"saved", user_saved, nullptr, "What was, for each time that it was entered.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMemberDef user_members[] = {
    {"flag", T_BOOL, offsetof(UserScope, flag), 0, "Grad mode within the block."},
    {"recording", T_INT, offsetof(UserScope, recording), 0, "Or all of the state's `recording`, unless negative."},
    {"before", T_INT, offsetof(UserScope, before), 0, "What is restored, unless negative; else what was at entry."},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot user_slots[] = {
    {Py_tp_doc, (void*)"A scope over grad and inference mode that may be entered again; base of no_grad and its kin."},
    {Py_tp_new, (void*)user_create}, {Py_tp_dealloc, (void*)user_free}, {Py_tp_methods, user_methods}, {Py_tp_members, user_members},
    {Py_tp_getset, user_getters},
    {0, nullptr},
};
PyType_Spec user_spec = {"flambeau._C.UserScope", sizeof(UserScope), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, user_slots};

// ---- hooks for saved tensors ----

struct HooksScope {
    PyObject_HEAD
    PyObject* hooks;
};

// What the innermost scope says, borrowed: a pair of hooks, None, or a str, why there may be none.
PyObject* innermost_hooks() {
    PyObject* stack = dispatch_state.saved_hooks;
    Py_ssize_t depth = stack != nullptr ? PyList_GET_SIZE(stack) : 0;
    return depth > 0 ? PyList_GET_ITEM(stack, depth - 1) : Py_None;
}

PyObject* hooks_enter(PyObject* self, PyObject*) {
    if (dispatch_state.saved_hooks == nullptr && (dispatch_state.saved_hooks = PyList_New(0)) == nullptr) return nullptr;
    PyObject *hooks = ((HooksScope*)self)->hooks, *outer = innermost_hooks();
    if (hooks == nullptr) hooks = Py_None;
    PyObject* refusal = PyUnicode_Check(outer) ? outer : PyUnicode_Check(hooks) ? hooks : nullptr;
    if (refusal != nullptr && (PyTuple_Check(hooks) || PyTuple_Check(outer))) return PyErr_SetObject(PyExc_RuntimeError, refusal), nullptr;
    if (PyList_Append(dispatch_state.saved_hooks, hooks) < 0) return nullptr;
    return Py_NewRef(self);
}

PyObject* hooks_exit(PyObject*, PyObject* const*, Py_ssize_t) {
    PyObject* stack = dispatch_state.saved_hooks;
    Py_ssize_t depth = stack != nullptr ? PyList_GET_SIZE(stack) : 0;
    if (depth == 0) return PyErr_SetString(PyExc_RuntimeError, "the block of these hooks has not been entered"), nullptr;
    if (PyList_SetSlice(stack, depth - 1, depth, nullptr) < 0) return nullptr;
    Py_RETURN_NONE;
}

void hooks_free(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    Py_XDECREF(((HooksScope*)self)->hooks);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject* hooks_create(PyTypeObject* type, PyObject*, PyObject*) { return type->tp_alloc(type, 0); }

PyObject* get_saved_hooks(PyObject*, void*) {
    PyObject* hooks = innermost_hooks();
    return Py_NewRef(PyUnicode_Check(hooks) ? Py_None : hooks);
}

PyMethodDef hooks_methods[] = {
    {"__enter__", hooks_enter, METH_NOARGS, nullptr},
    {"__exit__", (PyCFunction)(void*)hooks_exit, METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef hooks_members[] = {
    {"hooks", T_OBJECT, offsetof(HooksScope, hooks), 0, "The pair (pack, unpack); or a message: within the block nobody may hang any."},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot hooks_slots[] = {
    {Py_tp_doc, (void*)"A scope over what is kept for backward; base of saved_tensors_hooks."},
    {Py_tp_new, (void*)hooks_create}, {Py_tp_dealloc, (void*)hooks_free}, {Py_tp_methods, hooks_methods}, {Py_tp_members, hooks_members},
    {0, nullptr},
};
PyType_Spec hooks_spec = {"flambeau._C.HooksScope", sizeof(HooksScope), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, hooks_slots};

// ---- function modes and autocast ----

// A block that `inside()` describes: a tuple (function_modes, autocast). It may be entered again.
struct Entry {
    PyObject *function_modes, *autocast;  // what was
    unsigned long thread;
    bool mode;                            // the scope itself is a function mode
};

struct OverrideScope {
    PyObject_HEAD
    std::vector<Entry>* entered;
};

PyObject* override_create(PyTypeObject* type, PyObject*, PyObject*) {
    OverrideScope* self = (OverrideScope*)type->tp_alloc(type, 0);
    if (self != nullptr) self->entered = new std::vector<Entry>;
    return (PyObject*)self;
}

// The last place of `item` in a tuple, which may be null; -1 where it is not.
Py_ssize_t last_place(PyObject* tuple, PyObject* item) {
    Py_ssize_t place = tuple != nullptr ? PyTuple_GET_SIZE(tuple) - 1 : -1;
    while (place >= 0 && PyTuple_GET_ITEM(tuple, place) != item) place--;
    return place;
}

PyObject* override_enter(PyObject* self, PyObject*) {
    PyObject* inside = PyObject_CallMethod(self, "inside", nullptr);
    if (inside == nullptr) return nullptr;
    Entry before{Py_XNewRef(dispatch_state.function_modes), Py_XNewRef(dispatch_state.autocast), PyThread_get_thread_ident(), false};
    bool good = PyTuple_Check(inside) && PyTuple_GET_SIZE(inside) == 2;
    if (!good) PyErr_SetString(PyExc_TypeError, "inside() must give (function_modes, autocast)");
    good = good && set_function_modes(nullptr, PyTuple_GET_ITEM(inside, 0), nullptr) == 0;
    if (good && set_autocast(nullptr, PyTuple_GET_ITEM(inside, 1), nullptr) < 0) {
        good = false;
        put_object<&DispatchState::function_modes>(Py_XNewRef(before.function_modes));
    }
    Py_DECREF(inside);
    if (!good) return Py_XDECREF(before.function_modes), Py_XDECREF(before.autocast), nullptr;
    Py_ssize_t depth = before.function_modes != nullptr ? PyTuple_GET_SIZE(before.function_modes) : 0;
    before.mode = last_place(dispatch_state.function_modes, self) >= depth;
    ((OverrideScope*)self)->entered->push_back(before);
    return Py_NewRef(self);
}

// What is left when a mode goes, wherever it stands by now: others may have been left out of order.
PyObject* without(PyObject* function_modes, Py_ssize_t place) {
    Py_ssize_t depth = PyTuple_GET_SIZE(function_modes) - 1;
    PyObject* rest = PyTuple_New(depth);
    for (Py_ssize_t i = 0; rest != nullptr && i < depth; i++)
        PyTuple_SET_ITEM(rest, i, Py_NewRef(PyTuple_GET_ITEM(function_modes, i + (i >= place))));
    return rest;
}

PyObject* override_exit(PyObject* self, PyObject* const*, Py_ssize_t) {
    auto& entered = *((OverrideScope*)self)->entered;
    if (entered.empty()) return PyErr_SetString(PyExc_RuntimeError, "the block of this scope has not been entered"), nullptr;
    Entry entry = entered.back();
    if (entry.thread != PyThread_get_thread_ident())
        return PyErr_SetString(PyExc_RuntimeError, "the block of this scope was entered in another thread, which has to leave it"), nullptr;
    if (entry.mode) {
        PyObject* now = dispatch_state.function_modes;
        Py_ssize_t place = last_place(now, self);
        PyObject* rest = place >= 0 ? without(now, place) : Py_XNewRef(now);
        if (place >= 0 && rest == nullptr) return nullptr;
        entered.pop_back();
        Py_XDECREF(entry.function_modes);
        Py_XDECREF(entry.autocast);
        put_object<&DispatchState::function_modes>(rest);
        Py_RETURN_NONE;
    }
    entered.pop_back();
    put_object<&DispatchState::function_modes>(entry.function_modes);
    put_object<&DispatchState::autocast>(entry.autocast);
    Py_RETURN_NONE;
}

int override_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    for (const Entry& entry : *((OverrideScope*)self)->entered) {
        Py_VISIT(entry.function_modes);
        Py_VISIT(entry.autocast);
    }
    return 0;
}

int override_clear(PyObject* self) {
    std::vector<Entry> entered;
    entered.swap(*((OverrideScope*)self)->entered);
    for (const Entry& entry : entered) {
        Py_XDECREF(entry.function_modes);
        Py_XDECREF(entry.autocast);
    }
    return 0;
}

void override_free(PyObject* self) {
    PyObject_GC_UnTrack(self);
    override_clear(self);
    delete ((OverrideScope*)self)->entered;
    free_object(self);
}

PyMethodDef override_methods[] = {
    {"__enter__", override_enter, METH_NOARGS, nullptr},
    {"__exit__", (PyCFunction)(void*)override_exit, METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyObject* override_depth(PyObject* self, void*) { return PyLong_FromSize_t(((OverrideScope*)self)->entered->size()); }

PyGetSetDef override_getters[] = {
    {"depth", override_depth, nullptr, "How many of its blocks are open.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot override_slots[] = {
    {Py_tp_doc, (void*)"A scope over this thread's function modes and autocast; `inside()` gives both as they are within it."},
    {Py_tp_new, (void*)override_create}, {Py_tp_dealloc, (void*)override_free}, {Py_tp_methods, override_methods},
    {Py_tp_traverse, (void*)override_traverse}, {Py_tp_clear, (void*)override_clear},
    {Py_tp_getset, override_getters}, {0, nullptr},
};
PyType_Spec override_spec = {"flambeau._C.OverrideScope", sizeof(OverrideScope), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, override_slots};

constexpr int unchanged = -1;

struct Scope {
    PyObject_HEAD
    PyObject *modes, *value, *saved_modes;  // references; modes may be null: they stay
    long word, classes_off;                 // are added
    int fake, grad;
    DispatchState saved;
};

PyObject* scope_create(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
    static const char* names[] = {"modes", "word", "fake", "grad", "value", "classes_off", nullptr};
    PyObject *modes = Py_None, *value = Py_None;
    long word = 0, classes_off = 0;
    int fake = unchanged, grad = unchanged;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|OlppOl:dispatch_scope", (char**)names, &modes, &word, &fake, &grad, &value,
                                     &classes_off))
        return nullptr;
    if (modes != Py_None && !PyTuple_Check(modes)) return PyErr_SetString(PyExc_TypeError, "modes must be a tuple or None"), nullptr;
    Scope* self = (Scope*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->modes = modes == Py_None ? nullptr : Py_NewRef(modes);
    self->value = Py_NewRef(value);
    self->word = word, self->classes_off = classes_off, self->fake = fake, self->grad = grad;
    return (PyObject*)self;
}

PyObject* scope_enter(PyObject* object, PyObject*) {
    Scope* self = (Scope*)object;
    self->saved = dispatch_state;
    Py_XSETREF(self->saved_modes, Py_XNewRef(dispatch_state.modes));
    if (self->modes != nullptr && set_modes(nullptr, self->modes, nullptr) < 0) return nullptr;
    dispatch_state.word += self->word, dispatch_state.classes_off += self->classes_off;
    if (self->fake != unchanged) dispatch_state.fake = self->fake;
    if (self->grad != unchanged) dispatch_state.grad_enabled = self->grad;
    return Py_NewRef(self->value);
}

PyObject* scope_exit(PyObject* object, PyObject* const*, Py_ssize_t) {
    Scope* self = (Scope*)object;
    dispatch_state.word = self->saved.word, dispatch_state.classes_off = self->saved.classes_off;
    if (self->fake != unchanged) dispatch_state.fake = self->saved.fake;
    if (self->grad != unchanged) {
        dispatch_state.grad_enabled = self->saved.grad_enabled, dispatch_state.inference = self->saved.inference;
        dispatch_state.asked = self->saved.asked;
    }
    if (self->modes != nullptr) {
        PyObject* inner = dispatch_state.modes;
        dispatch_state.modes = self->saved_modes, self->saved_modes = nullptr;
        Py_XDECREF(inner);
    }
    Py_RETURN_NONE;
}

void scope_free(PyObject* object) {
    Scope* self = (Scope*)object;
    PyTypeObject* type = Py_TYPE(object);
    Py_XDECREF(self->modes), Py_XDECREF(self->value), Py_XDECREF(self->saved_modes);
    type->tp_free(object);
    Py_DECREF(type);
}

PyMethodDef scope_methods[] = {
    {"__enter__", scope_enter, METH_NOARGS, nullptr},
    {"__exit__", (PyCFunction)(void*)scope_exit, METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot scope_slots[] = {
    {Py_tp_doc, (void*)"dispatch_scope(modes=None, word=0, fake=unchanged, grad=unchanged, value=None, classes_off=0)\n--\n\n"
     "Within the block the state has these modes, its word and classes_off are so much larger, and it is fake or records gradients as\n"
     "told."},
    {Py_tp_new, (void*)scope_create}, {Py_tp_dealloc, (void*)scope_free}, {Py_tp_methods, scope_methods}, {0, nullptr},
};
PyType_Spec scope_spec = {"flambeau._C.dispatch_scope", sizeof(Scope), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, scope_slots};

PyGetSetDef members[] = {
    {"word", get_number<&DispatchState::word>, set_number<&DispatchState::word>, "Number of active modes.", nullptr},
    {"overrides", get_number<&DispatchState::overrides>, nullptr, "Number of function modes, proxies' scopes, watchers and autocast.", nullptr},
    {"function_modes", get_tuple<&DispatchState::function_modes>, set_function_modes, "The stack of __torch_function__ modes, a tuple.", nullptr},
    {"watchers", get_tuple<&DispatchState::watchers>, set_watcher_tuple, "Who is told of operators and kernels that ran, a tuple.", nullptr},
    {"autocast", get_object<&DispatchState::autocast>, set_autocast, "(settings, cache), or None where autocast was not touched.", nullptr},
    {"proxies", get_number<&DispatchState::proxies>, set_proxies, "Number of scopes in which operators may meet proxies.", nullptr},
    {"classes_off", get_number<&DispatchState::classes_off>, set_number<&DispatchState::classes_off>,
     "Number of scopes in which classes are not asked for __torch_function__.", nullptr},
    {"devices", get_object<&DispatchState::devices>, set_devices, "Where factories make tensors, innermost block last; None: the CPU, as in place of the first.", nullptr},
    {"overwriting", get_object<&DispatchState::overwriting>, set_object<&DispatchState::overwriting>, "The target whose new value is being computed, or None.", nullptr},
    {"grad_enabled", get_flag<&DispatchState::grad_enabled>, set_flag<&DispatchState::grad_enabled>, nullptr, nullptr},
    {"inference", get_flag<&DispatchState::inference>, set_flag<&DispatchState::inference>, nullptr, nullptr},
    {"grad_mode", get_grad_mode, set_grad_mode, "grad_enabled as the user's scopes see and set it.", nullptr},
    {"recording", get_recording, set_recording, "All of these in one number, to be put back: grad_enabled + 2 inference + 4 asked.", nullptr},
    {"fake", get_flag<&DispatchState::fake>, set_flag<&DispatchState::fake>, "Factories make fake tensors.", nullptr},
    {"modes", get_tuple<&DispatchState::modes>, set_modes, "The stack of modes, a tuple.", nullptr},
    {"saved_hooks", get_saved_hooks, nullptr, "The innermost (pack, unpack) for tensors that are kept for backward, or None.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, (void*)"What dispatch must know beside the arguments; every thread has values of its own."},
    {Py_tp_getset, members},
    {0, nullptr},
};

PyType_Spec spec = {"flambeau._C.DispatchState", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

void set_watchers(PyObject* watchers) { put_object<&DispatchState::watchers>(watchers); }

void add_state(PyObject* module) {
    add_type(module, spec);
    add_type(module, grad_spec);
    add_type(module, user_spec);
    add_type(module, hooks_spec);
    add_type(module, override_spec);
    add_type(module, device_spec);
    add_type(module, scope_spec);
}
