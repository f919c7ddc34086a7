// Traced: an operator of which is remembered what its body calls. For the same layouts, dtypes and constants that is the same
// records with the same constants (flambeau/ops/traced.py finds it out), and so a second call need not go through the body's Python.
#include "call_key.h"
#include "eager.h"
#include "module.h"
#include "state.h"
#include "surroundings.h"
#include "tensors.h"

#include <algorithm>
#include <vector>

namespace {

// Told by `know_traced`.
PyObject *settings_table, *look_at_settings, *trace;
PyObject* settings;        // Surroundings; null: to be made
Py_ssize_t settings_count; // of the table, then
bool at_once = false;      // are calls traced that were not seen before?
long era = 0;              // how often settings were another

constexpr Py_ssize_t most_programs = 1024;  // of one operator
constexpr long calls_before = 3;            // of a kind, until it is traced: that takes as long as some calls
constexpr size_t most_tensors = 64;
constexpr int most_failures = 8;
constexpr size_t most_arguments = 16;  // of a step

// ------------------------------------------------------------------------------------------------------------ steps
// What stands in the place of an argument, or of a result.
struct Part {
    enum Kind { constant, value, list, tuple, named } kind;
    PyObject* object = nullptr;  // owned: the constant; or what makes a named tuple of a sequence
    Py_ssize_t index = 0;        // among the values: the call's tensors, then the results of the steps
    std::vector<Part> items;
};

struct Step {
    PyObject *eager, *call;  // owned: native code's answer, or else Python's
    std::vector<Part> args;
    Py_ssize_t results;      // -1: one, no tuple
    std::vector<Py_ssize_t> last;  // values that nobody reads later
    int quiet = 0, writes = 0;     // is nothing recorded, is memory written?
};

struct Steps {
    PyObject_HEAD
    Py_ssize_t inputs, values;
    std::vector<Step>* steps;
    Part* result;
};
PyTypeObject* steps_type = nullptr;

void drop(std::vector<Part>& parts) {
    for (Part& part : parts) {
        Py_XDECREF(part.object);
        drop(part.items);
    }
}

void steps_free(PyObject* object) {
    Steps* self = (Steps*)object;
    if (self->steps != nullptr)
        for (Step& step : *self->steps) {
            Py_XDECREF(step.eager), Py_XDECREF(step.call);
            drop(step.args);
        }
    if (self->result != nullptr) {
        Py_XDECREF(self->result->object);
        drop(self->result->items);
    }
    delete self->steps, delete self->result;
    free_object(object);
}

// A part as Python tells it: (kind, object or number or parts).
bool read_part(PyObject* told, Py_ssize_t values, Part& part) {
    int kind;
    PyObject *object, *make = nullptr;
    if (!PyTuple_Check(told) || !PyArg_ParseTuple(told, "iO|O", &kind, &object, &make)) return false;
    part.kind = (Part::Kind)kind;
    if (kind == Part::constant) return part.object = Py_NewRef(object), true;
    if (kind == Part::value) {
        part.index = PyLong_AsSsize_t(object);
        if (!PyErr_Occurred() && (part.index < 0 || part.index >= values)) PyErr_SetString(PyExc_ValueError, "there is no such value yet");
        return !PyErr_Occurred();
    }
    if (kind > Part::named || !PyTuple_Check(object)) return PyErr_SetString(PyExc_ValueError, "a part is of an unknown kind"), false;
    part.object = Py_XNewRef(make);
    part.items.resize((size_t)PyTuple_GET_SIZE(object));
    for (size_t i = 0; i < part.items.size(); i++)
        if (!read_part(PyTuple_GET_ITEM(object, (Py_ssize_t)i), values, part.items[i])) return false;
    return true;
}

bool read_step(PyObject* told, Py_ssize_t& values, Step& step) {
    PyObject *eager, *call, *args, *last;
    if (!PyTuple_Check(told) || !PyArg_ParseTuple(told, "OOO!nppO!", &eager, &call, &PyTuple_Type, &args, &step.results, &step.quiet, &step.writes, &PyTuple_Type, &last))
        return false;
    step.eager = Py_NewRef(eager), step.call = Py_NewRef(call);
    step.args.resize((size_t)PyTuple_GET_SIZE(args));
    if (step.args.size() > most_arguments) return PyErr_SetString(PyExc_ValueError, "too many arguments for a step"), false;
    for (size_t i = 0; i < step.args.size(); i++)
        if (!read_part(PyTuple_GET_ITEM(args, (Py_ssize_t)i), values, step.args[i])) return false;
    values += step.results < 0 ? 1 : step.results;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(last); i++) step.last.push_back(PyLong_AsSsize_t(PyTuple_GET_ITEM(last, i)));
    return !PyErr_Occurred();
}

PyObject* steps_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    Py_ssize_t inputs;
    PyObject *steps, *result;
    if (!PyArg_ParseTuple(arguments, "nO!O:Steps", &inputs, &PyTuple_Type, &steps, &result)) return nullptr;
    Steps* self = (Steps*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->inputs = self->values = inputs;
    self->steps = new std::vector<Step>((size_t)PyTuple_GET_SIZE(steps)), self->result = new Part;
    bool good = true;
    for (size_t i = 0; good && i < self->steps->size(); i++) good = read_step(PyTuple_GET_ITEM(steps, (Py_ssize_t)i), self->values, (*self->steps)[i]);
    if (!good || !read_part(result, self->values, *self->result)) Py_CLEAR(self);
    return (PyObject*)self;
}

PyObject* given(const Part& part, PyObject* const* values) {
    if (part.kind == Part::constant) return Py_NewRef(part.object);
    if (part.kind == Part::value) return Py_NewRef(values[part.index]);
    Py_ssize_t count = (Py_ssize_t)part.items.size();
    PyObject* made = part.kind == Part::list ? PyList_New(count) : PyTuple_New(count);
    for (Py_ssize_t i = 0; made != nullptr && i < count; i++) {
        PyObject* item = given(part.items[(size_t)i], values);
        if (item == nullptr) return Py_DECREF(made), nullptr;
        if (part.kind == Part::list) PyList_SET_ITEM(made, i, item);
        else PyTuple_SET_ITEM(made, i, item);
    }
    if (part.kind == Part::named && made != nullptr) Py_SETREF(made, PyObject_CallOneArg(part.object, made));
    return made;
}

// The values that a step's call gives, from `at` on; false with an error set.
bool run_step(const Step& step, PyObject** values, Py_ssize_t at) {
    PyObject* args[most_arguments] = {};
    size_t count = step.args.size();
    bool good = true, records = dispatch_state.grad_enabled;
    if (step.quiet) dispatch_state.grad_enabled = false;
    for (size_t i = 0; good && i < count; i++) good = (args[i] = given(step.args[i], values)) != nullptr;
    PyObject* made = good ? call_eager(step.eager, args, (Py_ssize_t)count) : nullptr;
    if (good && made == nullptr && !PyErr_Occurred()) made = PyObject_Vectorcall(step.call, args, count, nullptr);
    for (PyObject* argument : args) Py_XDECREF(argument);
    dispatch_state.grad_enabled = records;
    if (made == nullptr) return false;
    if (step.results < 0) return values[at] = made, true;
    if (!PyTuple_Check(made) || PyTuple_GET_SIZE(made) != step.results) return Py_DECREF(made), PyErr_SetString(PyExc_RuntimeError, "a step gave another number of results"), false;
    for (Py_ssize_t i = 0; i < step.results; i++) values[at + i] = Py_NewRef(PyTuple_GET_ITEM(made, i));
    Py_DECREF(made);
    return true;
}

// Null with an error set; `wrote`: memory was written, so that the body cannot run in the steps' place.
PyObject* run_steps(const Steps* self, const std::vector<PyObject*>& inputs, bool* wrote) {
    std::vector<PyObject*> values((size_t)self->values);
    std::copy(inputs.begin(), inputs.end(), values.begin());
    Py_ssize_t at = self->inputs;
    bool good = true;
    for (const Step& step : *self->steps) {
        if (!(good = run_step(step, values.data(), at))) break;
        *wrote = *wrote || step.writes;
        at += step.results < 0 ? 1 : step.results;
        for (Py_ssize_t index : step.last) Py_CLEAR(values[(size_t)index]);
    }
    PyObject* result = good ? given(*self->result, values.data()) : nullptr;
    for (size_t i = (size_t)self->inputs; i < values.size(); i++) Py_XDECREF(values[i]);
    return result;
}

PyType_Slot steps_slots[] = {
    {Py_tp_doc, (void*)"Steps(inputs, steps, result)\n--\n\nWhat a call of an operator comes to. steps: tuples of (Eager, function, args, number of results or -1, "
                       "is nothing recorded, is memory written, values that nobody reads later); args and result of parts: (0, constant), (1, number of a value: tensors of the call, then results), (2, parts "
                       "of a list), (3, of a tuple), (4, of a named one, what makes it of them)."},
    {Py_tp_new, (void*)steps_new}, {Py_tp_dealloc, (void*)steps_free}, {0, nullptr},
};
PyType_Spec steps_spec = {"flambeau._C.Steps", sizeof(Steps), 0, Py_TPFLAGS_DEFAULT, steps_slots};

// ------------------------------------------------------------------------------------------------------------ Traced
struct Traced {
    PyObject_HEAD
    PyObject *body, *programs;  // {key: Steps, None where there can be none, or how often it was seen}
    long era;
    int failures;  // in a row: bodies that are never steady are left alone
    vectorcallfunc vectorcall;
};

// Whether the settings are as they were when programs were made; else all are forgotten. False with an error set.
bool follow_settings(Traced* self) {
    int same = settings != nullptr && PyDict_GET_SIZE(settings_table) == settings_count ? places_unchanged(settings) : 0;
    if (same < 0) return false;
    if (same == 0) {
        PyObject* made = PyObject_CallNoArgs(look_at_settings);
        if (made == nullptr) return false;
        Py_XSETREF(settings, made);
        settings_count = PyDict_GET_SIZE(settings_table), era++;
    }
    if (self->era != era) PyDict_Clear(self->programs), self->era = era;
    return true;
}

// The program for such a call, borrowed from `programs`; null where there is none (yet), or with an error set.
PyObject* find_program(Traced* self, PyObject* key, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    PyObject* found = PyDict_GetItemWithError(self->programs, key);
    if (found != nullptr && Py_IS_TYPE(found, steps_type)) return found;
    if (found == Py_None || PyErr_Occurred()) return nullptr;
    PyObject* made = nullptr;
    long seen = found != nullptr ? PyLong_AsLong(found) : 0;
    bool waits = !at_once && seen < calls_before;
    if (waits) {
        made = PyLong_FromLong(seen + 1);
    } else {
        PyObject *all = tuple_of(args, count), *named = PyDict_New();
        for (Py_ssize_t i = 0; named != nullptr && names != nullptr && i < PyTuple_GET_SIZE(names); i++)
            if (PyDict_SetItem(named, PyTuple_GET_ITEM(names, i), args[count + i]) < 0) Py_CLEAR(named);
        made = all != nullptr && named != nullptr ? PyObject_CallFunctionObjArgs(trace, self->body, all, named, nullptr) : nullptr;
        Py_XDECREF(all), Py_XDECREF(named);
    }
    if (made == nullptr) return nullptr;
    if (PyDict_GET_SIZE(self->programs) >= most_programs) PyDict_Clear(self->programs);
    bool good = PyDict_SetItem(self->programs, key, made) == 0;
    if (!waits) self->failures = made == Py_None ? self->failures + 1 : 0;
    bool runs = good && Py_IS_TYPE(made, steps_type);
    Py_DECREF(made);  // the dict holds it
    return runs ? made : nullptr;
}

// Whether the error that is set is one of an earlier call on a GPU, of which this one is the first to hear (backends/cuda/strays.py).
bool is_told_late() {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    bool late = value != nullptr && PyObject_HasAttrString(value, "told_late");
    PyErr_Restore(type, value, traceback);
    return late;
}

// Null without an error where the body has to run.
PyObject* follow(Traced* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    Py_ssize_t all = count + (names != nullptr ? PyTuple_GET_SIZE(names) : 0);
    CallKey key;
    std::vector<PyObject*> tensors;
    PyObject* devices = dispatch_state.devices;  // where a body that names none makes tensors
    key.add(dispatch_state.grad_enabled), key.add(dispatch_state.inference), key.add(count), key.add(devices != nullptr);
    if (devices != nullptr && !key.add_object(devices)) return nullptr;
    for (Py_ssize_t i = 0; i < all; i++)
        if (!tell(key, args[i], &tensors) || tensors.size() > most_tensors) return nullptr;
    if ((names != nullptr && !key.add_object(names)) || !follow_settings(self)) return nullptr;
    PyObject* made = key.made();
    PyObject* program = made != nullptr ? Py_XNewRef(find_program(self, made, args, count, names)) : nullptr;
    Py_XDECREF(made);
    if (program == nullptr) return nullptr;
    bool wrote = false;
    PyObject* result = run_steps((Steps*)program, tensors, &wrote);
    Py_DECREF(program);
    if (result == nullptr && !wrote && PyErr_ExceptionMatches(PyExc_Exception) && !is_told_late()) PyErr_Clear();  // the body says what is wrong
    return result;
}

PyObject* traced_call(PyObject* object, PyObject* const* args, size_t flags, PyObject* names) {
    Traced* self = (Traced*)object;
    const DispatchState& state = dispatch_state;
    bool plainly = self->failures < most_failures && state.word == 0 && state.overrides == 0 && !state.fake && trace != nullptr;
    PyObject* made = plainly ? follow(self, args, PyVectorcall_NARGS(flags), names) : nullptr;
    return made != nullptr || PyErr_Occurred() ? made : PyObject_Vectorcall(self->body, args, flags, names);
}

PyObject* traced_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject* body;
    if (!PyArg_ParseTuple(arguments, "O:Traced", &body)) return nullptr;
    Traced* self = (Traced*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->body = Py_NewRef(body), self->programs = PyDict_New(), self->vectorcall = traced_call;
    return self->programs != nullptr ? (PyObject*)self : (Py_DECREF(self), nullptr);
}

PyMemberDef traced_members[] = {
    {"body", T_OBJECT, offsetof(Traced, body), READONLY, "The operator's body."},
    {"programs", T_OBJECT, offsetof(Traced, programs), READONLY, "{what a call depends on: Steps, None where there are none, or how often it was seen}"},
    vectorcall_member<Traced>,
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot traced_slots[] = {
    {Py_tp_doc, (void*)"Traced(body)\n--\n\nCalls an operator's body, or runs the steps that a call like this was found to come to."},
    {Py_tp_new, (void*)traced_new}, {Py_tp_dealloc, (void*)release<Traced, &Traced::body, &Traced::programs>},
    {Py_tp_call, (void*)PyVectorcall_Call}, {Py_tp_members, traced_members}, {0, nullptr},
};
PyType_Spec traced_spec = {"flambeau._C.Traced", sizeof(Traced), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, traced_slots};

PyObject* know_traced(PyObject*, PyObject* args) {
    PyObject *table, *look, *function;
    if (!PyArg_ParseTuple(args, "O!OO", &PyDict_Type, &table, &look, &function)) return nullptr;
    settings_table = Py_NewRef(table);
    look_at_settings = Py_NewRef(look), trace = Py_NewRef(function);
    Py_RETURN_NONE;
}

PyObject* trace_at_once(PyObject*, PyObject* flag) {
    int told = PyObject_IsTrue(flag);
    if (told < 0) return nullptr;
    at_once = told;
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"trace_at_once", trace_at_once, METH_O, "trace_at_once(flag)\n\nWhether operators trace a call at its first sight, not its fourth: for tests."},
    {"know_traced", know_traced, METH_VARARGS,
     "know_traced(settings, look, trace)\n\nOnce: the table of settings, what makes Surroundings of "
     "it, and trace(body, args, kwargs) -> Steps or None."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_traced(PyObject* module) {
    PyModule_AddFunctions(module, methods);
    steps_type = add_type(module, steps_spec);
    add_type(module, traced_spec);
}
