// The frame hook (PEP 523): while a thread has a callback, each fresh ordinary Python frame is offered to the cache entries of
// its code object and then to the callback. docs/interfaces.md, "Frame hook", is the contract.
//
// Everything here runs under the GIL. Guards, callbacks and replacements are Python and may switch threads, so a list of
// entries is an immutable tuple: a reader holds the one it found, a writer puts another in its place.
#include "frame_access.h"

#include <pthread.h>
#include <cstdlib>
#include <initializer_list>
#include <unordered_map>

namespace {

// ---------------------------------------------------------------------------------------------- what a code object carries
using Hints = std::unordered_map<PyObject*, PyObject*>;

struct CodeRecord {
    bool skip;
    PyObject* entries;  // tuple of (guard, replacement), most recent hit first; never null
    Hints* hints;       // by the first argument: the entry that fitted the last time; borrowed, so looked for among the entries
};

constexpr size_t most_hints = 1024;

Py_ssize_t code_slot = -1;
PyObject* no_entries;  // the empty tuple

void release_record(void* memory) {
    CodeRecord* record = (CodeRecord*)memory;
    if (record == nullptr) return;
    Py_CLEAR(record->entries);
    delete record->hints;
    std::free(record);
}

CodeRecord* find_record(PyCodeObject* code) {
    void* memory = nullptr;
    _PyCode_GetExtra((PyObject*)code, code_slot, &memory);
    return (CodeRecord*)memory;
}

CodeRecord* make_record(PyCodeObject* code) {
    if (CodeRecord* record = find_record(code)) return record;
    CodeRecord* record = (CodeRecord*)std::calloc(1, sizeof(CodeRecord));
    if (record == nullptr) return PyErr_NoMemory(), nullptr;
    record->entries = Py_NewRef(no_entries);
    if (_PyCode_SetExtra((PyObject*)code, code_slot, record) < 0) {
        release_record(record);
        return nullptr;
    }
    return record;
}

// The old tuple is released last, because that can run Python.
void replace_entries(CodeRecord* record, PyObject* entries) {
    PyObject* old = record->entries;
    record->entries = entries;
    Py_DECREF(old);
}

bool add_entry(PyCodeObject* code, PyObject* entry) {
    CodeRecord* record = make_record(code);
    if (record == nullptr) return false;
    Py_ssize_t count = PyTuple_GET_SIZE(record->entries);
    PyObject* grown = PyTuple_New(count + 1);
    if (grown == nullptr) return false;
    PyTuple_SET_ITEM(grown, 0, Py_NewRef(entry));
    for (Py_ssize_t i = 0; i < count; i++)
        PyTuple_SET_ITEM(grown, i + 1, Py_NewRef(PyTuple_GET_ITEM(record->entries, i)));
    replace_entries(record, grown);
    return true;
}

// Moves entry `hit` of `seen` to the front, unless another thread has changed the list since.
void promote_entry(CodeRecord* record, PyObject* seen, Py_ssize_t hit) {
    if (record->entries != seen) return;
    Py_ssize_t count = PyTuple_GET_SIZE(seen);
    PyObject* moved = PyTuple_New(count);
    if (moved == nullptr) return PyErr_Clear();
    PyTuple_SET_ITEM(moved, 0, Py_NewRef(PyTuple_GET_ITEM(seen, hit)));
    for (Py_ssize_t i = 0, to = 1; i < count; i++)
        if (i != hit) PyTuple_SET_ITEM(moved, to++, Py_NewRef(PyTuple_GET_ITEM(seen, i)));
    replace_entries(record, moved);
}

// ------------------------------------------------------------------------------------------------ what a thread carries
struct Watch {
    PyObject* callback;  // null when off
    uint64_t thread_id;  // of the PyThreadState that owns it
};

// An OS thread can outlive one PyThreadState and get another, so the pointer counts only while the ids agree.
thread_local Watch* this_watch = nullptr;
thread_local char *stack_end = nullptr, *stack_limit = nullptr;

const char watch_key[] = "flambeau._C.watch";
constexpr size_t stack_reserve = 256 * 1024;

int watching_threads = 0;
bool installed = false;
_PyFrameEvalFunction previous_eval = _PyEval_EvalFrameDefault;

PyObject* eval_frame(PyThreadState* tstate, Frame* frame, int throwflag);

void install() {
    PyInterpreterState* interpreter = PyInterpreterState_Get();
    if (installed) return;
    previous_eval = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    _PyInterpreterState_SetEvalFrameFunc(interpreter, eval_frame);
    installed = true;
}

// With another tool's function on top of ours we stay where we are: that tool still calls us.
void uninstall() {
    PyInterpreterState* interpreter = PyInterpreterState_Get();
    if (!installed || _PyInterpreterState_GetEvalFrameFunc(interpreter) != eval_frame) return;
    _PyInterpreterState_SetEvalFrameFunc(interpreter, previous_eval);
    installed = false;
}

// Takes over the reference `callback` and returns the one that was there.
PyObject* swap_callback(Watch* watch, PyObject* callback) {
    PyObject* old = watch->callback;
    watch->callback = callback;
    if (old == nullptr && callback != nullptr && watching_threads++ == 0) install();
    if (old != nullptr && callback == nullptr && --watching_threads == 0) uninstall();
    return old;
}

void release_watch(PyObject* capsule) {
    Watch* watch = (Watch*)PyCapsule_GetPointer(capsule, watch_key);
    if (watch == nullptr) return PyErr_Clear();
    PyObject* callback = swap_callback(watch, nullptr);
    if (this_watch == watch) this_watch = nullptr;
    delete watch;
    Py_XDECREF(callback);
}

// This thread's watch, made at first use and released with its PyThreadState; null with an error set.
Watch* make_watch(PyThreadState* tstate) {
    if (this_watch != nullptr && this_watch->thread_id == tstate->id) return this_watch;
    PyObject* locals = PyThreadState_GetDict();
    if (locals == nullptr) return PyErr_SetString(PyExc_RuntimeError, "this thread has no Python state"), nullptr;
    Watch* watch = new Watch{nullptr, tstate->id};
    PyObject* capsule = PyCapsule_New(watch, watch_key, release_watch);
    if (capsule == nullptr || PyDict_SetItemString(locals, watch_key, capsule) < 0) {
        if (capsule == nullptr) delete watch;
        Py_XDECREF(capsule);
        return nullptr;
    }
    Py_DECREF(capsule);
    return this_watch = watch;
}

inline PyObject* current_callback(PyThreadState* tstate) {
    Watch* watch = this_watch;
    return watch != nullptr && watch->thread_id == tstate->id ? watch->callback : nullptr;
}

// Frames that pass through the hook nest on the C stack, where plain 3.11 frames do not: with a raised recursion limit a deep
// recursion would run off its end. Stacks that a library has made itself are not known here and never low.
bool stack_is_low() {
    char here;
    if (stack_limit == nullptr) {
        pthread_attr_t attributes;
        void* lowest = nullptr;
        size_t size = 0;
        if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
            pthread_attr_getstack(&attributes, &lowest, &size);
            pthread_attr_destroy(&attributes);
        }
        stack_end = (char*)lowest;
        stack_limit = stack_end + (size / 4 < stack_reserve ? size / 4 : stack_reserve) + 1;
    }
    return &here < stack_limit && &here >= stack_end;
}

// ---------------------------------------------------------------------------------------------------- offering a frame
// The callback is off for as long as one of these lives.
struct Quiet {
    Watch* watch;
    PyObject* callback;
    explicit Quiet(Watch* w) : watch(w), callback(w->callback) { watch->callback = nullptr; }
    ~Quiet() {
        PyObject* meanwhile = watch->callback;
        watch->callback = callback;
        if (meanwhile != nullptr) {  // set by the guard or callback itself: theirs ends here
            watching_threads--;
            Py_DECREF(meanwhile);
        }
    }
};

Py_ssize_t count_arguments(PyCodeObject* code) {
    return code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS) +
           !!(code->co_flags & CO_VARKEYWORDS);
}

bool is_ordinary(PyCodeObject* code) {
    constexpr int function_body = CO_OPTIMIZED | CO_NEWLOCALS;
    constexpr int suspendable = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE;
    return (code->co_flags & function_body) == function_body && (code->co_flags & suspendable) == 0;
}

// 1, 0, or -1 with an error set.
int guard_holds(PyObject* entry, PyObject** arguments, size_t count) {
    PyObject* answer = PyObject_Vectorcall(PyTuple_GET_ITEM(entry, 0), arguments, count | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    int holds = answer == Py_True ? 1 : answer == nullptr ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return holds;
}

// Twelve layers of one class may have an entry each, and are called in turn: the entry of each is remembered by its address.
Py_ssize_t hinted_entry(const CodeRecord* record, PyObject* entries, PyObject* key) {
    if (record->hints == nullptr || PyTuple_GET_SIZE(entries) < 2) return -1;
    auto hint = record->hints->find(key);
    if (hint == record->hints->end()) return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries); i++)
        if (PyTuple_GET_ITEM(entries, i) == hint->second) return i;
    return -1;
}

void give_hint(CodeRecord* record, PyObject* entry, PyObject* key) {
    if (record->hints == nullptr) record->hints = new Hints;
    if (record->hints->size() >= most_hints) record->hints->clear();
    (*record->hints)[key] = entry;
}

// Asks the entries of `record`: the one that fitted this first argument the last time, then first to last. Returns a new reference
// to the replacement of the first whose guard holds; or null, with an error set if a guard raised.
PyObject* find_replacement(CodeRecord* record, Watch* watch, PyObject** arguments, size_t count) {
    PyObject* entries = Py_NewRef(record->entries);
    PyObject* key = arguments[count > 1 ? 1 : 0];
    Quiet quiet(watch);
    Py_ssize_t hinted = hinted_entry(record, entries, key), found = hinted;
    int holds = hinted >= 0 ? guard_holds(PyTuple_GET_ITEM(entries, hinted), arguments, count) : 0;
    for (Py_ssize_t i = 0; holds == 0 && i < PyTuple_GET_SIZE(entries); i++)
        if (i != hinted) holds = guard_holds(PyTuple_GET_ITEM(entries, found = i), arguments, count);
    PyObject* replacement = nullptr;
    if (holds > 0) {
        replacement = Py_NewRef(PyTuple_GET_ITEM(PyTuple_GET_ITEM(entries, found), 1));
        if (found > 0 && found != hinted) {
            give_hint(record, PyTuple_GET_ITEM(entries, found), key);
            promote_entry(record, entries, found);
        }
    }
    Py_DECREF(entries);
    return replacement;
}

bool is_entry(PyObject* object) {
    return PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 2 && PyCallable_Check(PyTuple_GET_ITEM(object, 0)) &&
           PyCallable_Check(PyTuple_GET_ITEM(object, 1));
}

// Asks the callback. Returns a new reference to the replacement; or null: run the frame as it is, or an error is set.
PyObject* ask_callback(Watch* watch, PyCodeObject* code, PyObject** arguments, size_t count) {
    PyObject* values = PyTuple_New(count - 1);
    if (values == nullptr) return nullptr;
    for (size_t i = 1; i < count; i++) PyTuple_SET_ITEM(values, i - 1, Py_NewRef(arguments[i]));
    PyObject* answer;
    {
        Quiet quiet(watch);
        PyObject* offered[] = {nullptr, arguments[0], (PyObject*)code, values};
        answer = PyObject_Vectorcall(quiet.callback, offered + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
        Py_DECREF(values);
    }
    PyObject* replacement = nullptr;
    if (answer != nullptr && answer != Py_None) {
        if (!is_entry(answer))
            PyErr_Format(PyExc_TypeError, "a frame callback returns (guard, replacement) or None, not %R", answer);
        else if (add_entry(code, answer))
            replacement = Py_NewRef(PyTuple_GET_ITEM(answer, 1));
    }
    Py_XDECREF(answer);
    return replacement;
}

PyObject* offer_frame(PyThreadState* tstate, Frame* frame, PyCodeObject* code, CodeRecord* record, Watch* watch) {
    constexpr size_t small = 24;
    size_t count = 1 + count_arguments(code);
    PyObject* on_stack[small + 1];
    PyObject** space = on_stack;
    if (count > small) {
        space = (PyObject**)PyMem_Malloc((count + 1) * sizeof(PyObject*));
        if (space == nullptr) return PyErr_NoMemory();
    }
    // Slot 0 is left to the callee (PY_VECTORCALL_ARGUMENTS_OFFSET). The frame owns the arguments all the while.
    PyObject** arguments = space + 1;
    space[0] = nullptr;
    arguments[0] = frame_function(frame);
    for (size_t i = 1; i < count; i++) arguments[i] = frame_local(frame, i - 1);

    PyObject* replacement = nullptr;
    if (record != nullptr && record->entries != no_entries)
        replacement = find_replacement(record, watch, arguments, count);
    if (replacement == nullptr && !PyErr_Occurred() && watch->callback != nullptr)
        replacement = ask_callback(watch, code, arguments, count);

    bool as_it_is = replacement == nullptr && !PyErr_Occurred();
    PyObject* result = nullptr;
    if (replacement != nullptr) {
        result = PyObject_Vectorcall(replacement, arguments, count | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
        Py_DECREF(replacement);
    }
    if (space != on_stack) PyMem_Free(space);
    if (as_it_is) return previous_eval(tstate, frame, 0);
    discard_frame(tstate, frame);
    return result;
}

// Finalizers, callbacks of the garbage collector and handlers of signals (their last argument is a frame) run wherever the program
// happens to be: neither they nor what they call belongs to the function that is compiled.
bool runs_behind_the_program(PyThreadState* tstate, PyCodeObject* code, Frame* frame) {
    static PyObject* finalizer = PyUnicode_InternFromString("__del__");
    if (collector_runs(tstate) || code->co_name == finalizer) return true;
    PyObject* last = code->co_argcount > 1 ? frame_local(frame, code->co_argcount - 1) : nullptr;
    return last != nullptr && PyFrame_Check(last);
}

PyObject* eval_frame(PyThreadState* tstate, Frame* frame, int throwflag) {
    if (stack_is_low() && frame->owner == FRAME_OWNED_BY_THREAD && !throwflag) {
        PyErr_SetString(PyExc_RecursionError, "maximum C stack depth exceeded");
        discard_frame(tstate, frame);
        return nullptr;
    }
    if (throwflag || current_callback(tstate) == nullptr || tstate->tracing) return previous_eval(tstate, frame, throwflag);
    PyCodeObject* code = frame_code(frame);
    CodeRecord* record = find_record(code);
    if ((record != nullptr && record->skip) || !is_ordinary(code) || !frame_is_fresh(frame))
        return previous_eval(tstate, frame, 0);
    if (runs_behind_the_program(tstate, code, frame)) {
        Quiet quiet(this_watch);
        return previous_eval(tstate, frame, 0);
    }
    return offer_frame(tstate, frame, code, record, this_watch);
}

// --------------------------------------------------------------------------------------------------- the Python surface
PyObject* set_frame_callback(PyObject*, PyObject* callback) {
    if (callback != Py_None && !PyCallable_Check(callback))
        return PyErr_Format(PyExc_TypeError, "set_frame_callback(): expected a callable or None, got %R", callback);
    Watch* watch = make_watch(PyThreadState_Get());
    if (watch == nullptr) return nullptr;
    PyObject* old = swap_callback(watch, callback == Py_None ? nullptr : Py_NewRef(callback));
    return old != nullptr ? old : Py_NewRef(Py_None);
}

PyObject* get_frame_callback(PyObject*, PyObject*) {
    PyObject* callback = current_callback(PyThreadState_Get());
    return Py_NewRef(callback != nullptr ? callback : Py_None);
}

PyCodeObject* as_code(PyObject* object, const char* function) {
    if (PyCode_Check(object)) return (PyCodeObject*)object;
    PyErr_Format(PyExc_TypeError, "%s(): expected a code object, got %R", function, object);
    return nullptr;
}

PyObject* skip_code(PyObject*, PyObject* object) {
    PyCodeObject* code = as_code(object, "skip_code");
    CodeRecord* record = code != nullptr ? make_record(code) : nullptr;
    if (record == nullptr) return nullptr;
    record->skip = true;
    Py_RETURN_NONE;
}

PyObject* cache_entries(PyObject*, PyObject* object) {
    PyCodeObject* code = as_code(object, "cache_entries");
    if (code == nullptr) return nullptr;
    CodeRecord* record = find_record(code);
    return PySequence_List(record != nullptr ? record->entries : no_entries);
}

PyObject* add_cache_entry(PyObject*, PyObject* arguments) {
    PyObject *object, *guard, *replacement;
    if (!PyArg_ParseTuple(arguments, "OOO:add_cache_entry", &object, &guard, &replacement)) return nullptr;
    PyCodeObject* code = as_code(object, "add_cache_entry");
    if (code == nullptr) return nullptr;
    PyObject* entry = PyTuple_Pack(2, guard, replacement);
    if (entry == nullptr) return nullptr;
    bool added = false;
    if (!is_entry(entry))
        PyErr_Format(PyExc_TypeError, "add_cache_entry(): guard and replacement must be callable, got %R", entry);
    else
        added = add_entry(code, entry);
    Py_DECREF(entry);
    if (!added) return nullptr;
    Py_RETURN_NONE;
}

PyObject* clear_cache(PyObject*, PyObject* object) {
    PyCodeObject* code = as_code(object, "clear_cache");
    if (code == nullptr) return nullptr;
    if (CodeRecord* record = find_record(code)) {
        record->skip = false;
        replace_entries(record, Py_NewRef(no_entries));
    }
    Py_RETURN_NONE;
}

// ------------------------------------------------------------------------------------------- callables with a callback
// `undisturbed(fn)` and `watched(fn, callback)`: fn with the thread's callback off, or set, while it runs.
struct Scoped {
    PyObject_HEAD
    PyObject* wrapped;
    PyObject* callback;  // null: off
    PyObject* dict;
    PyObject* weakrefs;
    vectorcallfunc vectorcall;
};

PyObject* scoped_call(PyObject* callable, PyObject* const* arguments, size_t count, PyObject* names) {
    Scoped* self = (Scoped*)callable;
    PyThreadState* tstate = PyThreadState_Get();
    if (self->callback == current_callback(tstate)) return PyObject_Vectorcall(self->wrapped, arguments, count, names);
    Watch* watch = make_watch(tstate);
    if (watch == nullptr) return nullptr;
    PyObject* outer = swap_callback(watch, Py_XNewRef(self->callback));
    PyObject* result = PyObject_Vectorcall(self->wrapped, arguments, count, names);
    PyObject* inner = swap_callback(watch, outer);
    Py_XDECREF(inner);
    return result;
}

using HeldScoped = Held<Scoped, &Scoped::wrapped, &Scoped::callback, &Scoped::dict>;

void scoped_dealloc(PyObject* object) {
    PyObject_GC_UnTrack(object);
    if (((Scoped*)object)->weakrefs != nullptr) PyObject_ClearWeakRefs(object);
    HeldScoped::clear(object);
    free_object(object);
}

// What the wrapper has not itself (__name__, __defaults__ ...) is the wrapped function's.
PyObject* scoped_getattr(PyObject* object, PyObject* name) {
    PyObject* own = PyObject_GenericGetAttr(object, name);
    if (own != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
    PyErr_Clear();
    return PyObject_GetAttr(((Scoped*)object)->wrapped, name);
}

PyObject* scoped_bind(PyObject* object, PyObject* instance, PyObject*) {
    if (instance == nullptr || instance == Py_None) return Py_NewRef(object);
    return PyMethod_New(object, instance);
}

PyObject* scoped_repr(PyObject* object) {
    Scoped* self = (Scoped*)object;
    if (self->callback == nullptr) return PyUnicode_FromFormat("undisturbed(%R)", self->wrapped);
    return PyUnicode_FromFormat("watched(%R, %R)", self->wrapped, self->callback);
}

// The object that `module.qualified.name` of the wrapped function leads to now; new reference, null without an error.
PyObject* found_by_name(PyObject* qualified_name, PyObject* module_name) {
    PyObject* found = PyUnicode_Check(module_name) ? PyImport_GetModule(module_name) : nullptr;
    PyObject* dot = PyUnicode_FromString(".");
    PyObject* names = dot != nullptr && PyUnicode_Check(qualified_name) ? PyUnicode_Split(qualified_name, dot, -1) : nullptr;
    for (Py_ssize_t i = 0; names != nullptr && found != nullptr && i < PyList_GET_SIZE(names); i++)
        Py_SETREF(found, PyObject_GetAttr(found, PyList_GET_ITEM(names, i)));
    if (names == nullptr) Py_CLEAR(found);
    Py_XDECREF(names);
    Py_XDECREF(dot);
    PyErr_Clear();
    return found;
}

PyObject *undisturbed_function, *watched_function;

// A wrapper that is itself what its module has by that name (a decorated function) pickles by name, as functions do; any other
// one by what it wraps.
PyObject* scoped_reduce(PyObject* object, PyObject*) {
    Scoped* self = (Scoped*)object;
    PyObject* name = PyObject_GetAttrString(object, "__qualname__");
    PyObject* module = PyObject_GetAttrString(object, "__module__");
    PyErr_Clear();
    PyObject* found = name != nullptr && module != nullptr ? found_by_name(name, module) : nullptr;
    PyObject* result;
    if (found == object)
        result = Py_NewRef(name);
    else if (self->callback == nullptr)
        result = Py_BuildValue("O(O)", undisturbed_function, self->wrapped);
    else
        result = Py_BuildValue("O(OO)", watched_function, self->wrapped, self->callback);
    Py_XDECREF(found);
    Py_XDECREF(module);
    Py_XDECREF(name);
    return result;
}

PyMethodDef scoped_methods[] = {{"__reduce__", scoped_reduce, METH_NOARGS, nullptr}, {nullptr}};

PyMemberDef scoped_members[] = {
    {"__wrapped__", T_OBJECT_EX, offsetof(Scoped, wrapped), READONLY, "The function that is called."},
    {"callback", T_OBJECT, offsetof(Scoped, callback), READONLY, "The frame callback while it runs; None: off."},
    {"__dictoffset__", T_PYSSIZET, offsetof(Scoped, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Scoped, weakrefs), READONLY, nullptr},
    vectorcall_member<Scoped>,
    {nullptr},
};

PyGetSetDef scoped_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr},
};

PyType_Slot scoped_slots[] = {
    {Py_tp_call, (void*)PyVectorcall_Call},   {Py_tp_traverse, (void*)HeldScoped::traverse},
    {Py_tp_clear, (void*)HeldScoped::clear},       {Py_tp_dealloc, (void*)scoped_dealloc},
    {Py_tp_getattro, (void*)scoped_getattr},  {Py_tp_repr, (void*)scoped_repr},
    {Py_tp_descr_get, (void*)scoped_bind},    {Py_tp_members, scoped_members},
    {Py_tp_getset, scoped_getset},            {Py_tp_methods, scoped_methods},
    {0, nullptr},
};

PyType_Spec scoped_spec = {
    "flambeau._C.Scoped", sizeof(Scoped), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, scoped_slots,
};

PyTypeObject* scoped_type;

// __module__ and __doc__ would be found on the type first, so the instance gets its own.
bool copy_text(PyObject* scoped, PyObject* wrapped) {
    for (const char* name : {"__module__", "__doc__"}) {
        PyObject* text = PyObject_GetAttrString(wrapped, name);
        if (text == nullptr) {
            PyErr_Clear();
            continue;
        }
        int failed = PyObject_SetAttrString(scoped, name, text);
        Py_DECREF(text);
        if (failed) return false;
    }
    return true;
}

PyObject* make_scoped(const char* name, PyObject* wrapped, PyObject* callback) {
    if (!PyCallable_Check(wrapped))
        return PyErr_Format(PyExc_TypeError, "%s(): expected a callable, got %R", name, wrapped);
    Scoped* self = PyObject_GC_New(Scoped, scoped_type);
    if (self == nullptr) return nullptr;
    self->wrapped = Py_NewRef(wrapped);
    self->callback = Py_XNewRef(callback);
    self->dict = nullptr;
    self->weakrefs = nullptr;
    self->vectorcall = scoped_call;
    PyObject_GC_Track(self);
    if (!copy_text((PyObject*)self, wrapped)) Py_CLEAR(self);
    return (PyObject*)self;
}

PyObject* undisturbed(PyObject*, PyObject* wrapped) { return make_scoped("undisturbed", wrapped, nullptr); }

PyObject* watched(PyObject*, PyObject* arguments) {
    PyObject *wrapped, *callback;
    if (!PyArg_ParseTuple(arguments, "OO:watched", &wrapped, &callback)) return nullptr;
    if (!PyCallable_Check(callback))
        return PyErr_Format(PyExc_TypeError, "watched(): expected a callable as callback, got %R", callback);
    return make_scoped("watched", wrapped, callback);
}

PyMethodDef methods[] = {
    {"set_frame_callback", set_frame_callback, METH_O,
     "set_frame_callback(callback) -> previous\n\nThis thread's frame callback, or None for off."},
    {"get_frame_callback", get_frame_callback, METH_NOARGS, "get_frame_callback() -> this thread's callback or None"},
    {"skip_code", skip_code, METH_O, "skip_code(code)\n\nNever offer frames of `code`."},
    {"cache_entries", cache_entries, METH_O, "cache_entries(code) -> [(guard, replacement), ...], most recent hit first"},
    {"add_cache_entry", add_cache_entry, METH_VARARGS, "add_cache_entry(code, guard, replacement)"},
    {"clear_cache", clear_cache, METH_O, "clear_cache(code)\n\nForget the entries of `code` and that it is skipped."},
    {"undisturbed", undisturbed, METH_O, "undisturbed(fn) -> fn, with this thread's frame callback off while it runs"},
    {"watched", watched, METH_VARARGS, "watched(fn, callback) -> fn, with `callback` set in this thread while it runs"},
    {nullptr},
};

}  // namespace

void add_frame_hook(PyObject* module) {
    if (code_slot < 0) code_slot = request_code_slot(release_record);
    if (code_slot < 0) {
        PyErr_SetString(PyExc_ImportError, "CPython has no code slot left for the frame hook");
        return;
    }
    no_entries = PyTuple_New(0);
    scoped_type = add_type(module, scoped_spec);
    if (no_entries == nullptr || scoped_type == nullptr) return;
    if (PyModule_AddFunctions(module, methods) < 0) return;
    undisturbed_function = PyObject_GetAttrString(module, "undisturbed");
    watched_function = PyObject_GetAttrString(module, "watched");
}
