// The recorder of profiles: what runs in a thread, when, inside of what and where in the program, for well under a microsecond an event.
// Python makes sense of it afterwards (flambeau/profiler/record.py). A log of memory is the same for blocks of the allocator.
#include "recorder.h"

#include <pthread.h>

#include <algorithm>
#include <ctime>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "fork_lock.h"
#include "frame_access.h"
#include "module.h"
#include "state.h"
#include "tensors.h"

std::atomic<int> memory_logs{0};
static long nodes = 0;  // of autograd, so far
PyObject* next_node() { return PyLong_FromLong(++nodes); }

namespace {

int64_t now() {  // as time.perf_counter_ns()
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

PyObject* give_next_node(PyObject*, PyObject*) { return next_node(); }

// ------------------------------------------------------------------------------------------------------------ frames
struct Place {
    PyObject* code;    // owned
    int at;            // byte of the bytecode
    PyObject* module;  // owned, or null: the module that the frame is a call of
};
using Places = std::vector<Place>;

constexpr int deepest = 128;
PyObject* module_call = nullptr;  // the code by which modules are called; its first argument is the module

// Adds the frames of this thread, innermost first. Makes no object and so runs no collector.
void add_places(Places& places) {
    int depth = 0;
    for (Frame* frame = innermost_frame(PyThreadState_Get()); frame != nullptr && depth < deepest; frame = frame->previous) {
        if (!frame_is_real(frame)) continue;
        PyCodeObject* code = frame_code(frame);
        PyObject* module = (PyObject*)code == module_call ? frame_local(frame, 0) : nullptr;
        places.push_back({Py_NewRef((PyObject*)code), (int)(frame_instruction(frame) - (char*)_PyCode_CODE(code)), Py_XNewRef(module)});
        depth++;
    }
}

void drop(Places& places) {
    Places dropped;
    dropped.swap(places);
    for (Place& place : dropped) Py_DECREF(place.code), Py_XDECREF(place.module);
}

// ((code, line, module or None), ...)
PyObject* as_tuple(const Place* places, size_t count) {
    PyObject* tuple = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; tuple != nullptr && i < count; i++) {
        PyObject* module = places[i].module != nullptr ? places[i].module : Py_None;
        PyObject* entry = Py_BuildValue("OiO", places[i].code, PyCode_Addr2Line((PyCodeObject*)places[i].code, places[i].at), module);
        if (entry == nullptr) return Py_DECREF(tuple), nullptr;
        PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, entry);
    }
    return tuple;
}

// ------------------------------------------------------------------------------------------------------------ Recorder
struct Entry {
    PyObject* name;    // owned
    PyObject* inputs;  // owned, or null
    int64_t start, end;
    Py_ssize_t parent;      // or -1
    long kind, sequence;    // of a node that runs; or -1
    long first, last;       // the nodes of autograd that it made: from first + 1 to last
    size_t places, count;
};

struct Recorder {
    PyObject_HEAD
    bool record_shapes, with_stack;
    Py_ssize_t dropped;  // entries that are no longer there
    size_t most;         // entries that are kept
    std::vector<Entry>* log;
    std::vector<Py_ssize_t>* open;
    Places* places;
};
PyTypeObject* recorder_type = nullptr;

PyObject* recorder_new(PyTypeObject* type, PyObject* args, PyObject* keywords) {
    static const char* names[] = {"record_shapes", "with_stack", nullptr};
    int shapes = 0, stack = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|pp:Recorder", (char**)names, &shapes, &stack)) return nullptr;
    Recorder* self = (Recorder*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->record_shapes = shapes, self->with_stack = stack, self->dropped = 0, self->most = SIZE_MAX;
    self->log = new std::vector<Entry>, self->open = new std::vector<Py_ssize_t>, self->places = new Places;
    return (PyObject*)self;
}

int recorder_traverse(PyObject* object, visitproc visit, void* arg) {
    Recorder* self = (Recorder*)object;
    Py_VISIT(Py_TYPE(object));
    for (Entry& entry : *self->log) {
        Py_VISIT(entry.name);
        Py_VISIT(entry.inputs);
    }
    for (Place& place : *self->places) {
        Py_VISIT(place.code);
        Py_VISIT(place.module);
    }
    return 0;
}

int recorder_clear(PyObject* object) {
    Recorder* self = (Recorder*)object;
    std::vector<Entry> entries;
    entries.swap(*self->log);
    self->dropped += (Py_ssize_t)entries.size();
    self->open->clear();
    drop(*self->places);
    for (Entry& entry : entries) Py_DECREF(entry.name), Py_XDECREF(entry.inputs);
    return 0;
}

void recorder_free(PyObject* object) {
    PyObject_GC_UnTrack(object);
    recorder_clear(object);
    Recorder* self = (Recorder*)object;
    delete self->log, delete self->open, delete self->places;
    free_object(object);
}

// What is told of an argument: (layout, dtype) of a tensor, a list of such, a number or a string as it is; None for what else there is.
PyObject* seen(PyObject* value) {
    if (is_tensor(value)) {
        PyObject* layout = layout_of(value);
        PyErr_Clear();
        const TensorSlots* slots = tensor_slots(value);
        PyObject* kind = slots != nullptr ? read_slot(value, slots->dtype) : nullptr;
        return PyTuple_Pack(2, layout != nullptr ? layout : Py_None, kind != nullptr ? kind : Py_None);
    }
    if (PyLong_Check(value) || PyFloat_Check(value) || PyUnicode_Check(value)) return Py_NewRef(value);
    if (!PyList_Check(value) && !PyTuple_Check(value)) Py_RETURN_NONE;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
    PyObject* list = PyList_New(count);
    for (Py_ssize_t i = 0; list != nullptr && i < count; i++) {
        PyObject* item = seen(PySequence_Fast_GET_ITEM(value, i));
        if (item == nullptr) return Py_DECREF(list), nullptr;
        PyList_SET_ITEM(list, i, item);
    }
    return list;
}

// ([positional ones], {those by name}); null with an error set.
PyObject* all_seen(PyObject* args, PyObject* kwargs) {
    PyObject* list = args != nullptr && (PyTuple_Check(args) || PyList_Check(args)) ? seen(args) : PyList_New(0);
    PyObject* named = PyDict_New();
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (list != nullptr && named != nullptr && kwargs != nullptr && PyDict_Next(kwargs, &at, &key, &value)) {
        PyObject* item = seen(value);
        if (item == nullptr || PyDict_SetItem(named, key, item) < 0) Py_CLEAR(named);
        Py_XDECREF(item);
    }
    PyObject* both = list != nullptr && named != nullptr ? PyTuple_Pack(2, list, named) : nullptr;
    Py_XDECREF(list), Py_XDECREF(named);
    return both;
}

// The number of the event that begins; -1 where no more are kept.
Py_ssize_t begin(Recorder* self, PyObject* name, PyObject* args, PyObject* kwargs, long kind, long sequence) {
    if (self->log->size() >= self->most) return -1;
    PyObject* inputs = self->record_shapes ? all_seen(args, kwargs) : nullptr;
    if (inputs == nullptr) PyErr_Clear();
    size_t first = self->places->size();
    if (self->with_stack) add_places(*self->places);
    Py_ssize_t number = self->dropped + (Py_ssize_t)self->log->size();
    self->log->push_back({Py_NewRef(name), inputs, now(), 0, self->open->empty() ? -1 : self->open->back(), kind, sequence, nodes, nodes,
                          first, self->places->size() - first});
    self->open->push_back(number);
    return number;
}

void end(Recorder* self, Py_ssize_t number) {
    if (number < self->dropped) return;
    std::vector<Py_ssize_t>& open = *self->open;
    for (size_t i = open.size(); i-- > 0;)
        if (open[i] == number) {
            open.erase(open.begin() + (long)i);
            break;
        }
    Entry& entry = (*self->log)[(size_t)(number - self->dropped)];
    entry.end = now(), entry.last = nodes;
}

PyObject* recorder_begin(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    if (count < 1 || count > 4) return PyErr_SetString(PyExc_TypeError, "begin(name, args=(), kind=0, sequence=-1)"), nullptr;
    long kind = count > 2 ? PyLong_AsLong(args[2]) : 0, sequence = count > 3 ? PyLong_AsLong(args[3]) : -1;
    if (PyErr_Occurred()) return nullptr;
    return PyLong_FromSsize_t(begin((Recorder*)self, args[0], count > 1 ? args[1] : nullptr, nullptr, kind, sequence));
}

PyObject* recorder_end(PyObject* self, PyObject* number) {
    Py_ssize_t value = PyLong_AsSsize_t(number);
    if (value == -1 && PyErr_Occurred()) return nullptr;
    end((Recorder*)self, value);
    Py_RETURN_NONE;
}

PyObject* recorder_innermost(PyObject* self, PyObject*) {
    std::vector<Py_ssize_t>& open = *((Recorder*)self)->open;
    return PyLong_FromSsize_t(open.empty() ? -1 : open.back());
}

PyObject* recorder_entries(PyObject* object, PyObject*) {
    Recorder* self = (Recorder*)object;
    PyObject* list = PyList_New(0);
    for (size_t i = 0; list != nullptr && i < self->log->size(); i++) {
        const Entry entry = (*self->log)[i];
        PyObject* places = as_tuple(self->places->data() + entry.places, entry.count);
        PyObject* made = places == nullptr ? nullptr : Py_BuildValue("nOLLnllllON", self->dropped + (Py_ssize_t)i, entry.name,
            (long long)entry.start, (long long)entry.end, entry.parent, entry.kind, entry.sequence, entry.first, entry.last,
            entry.inputs != nullptr ? entry.inputs : Py_None, places);
        if (made == nullptr || PyList_Append(list, made) < 0) Py_CLEAR(list);
        Py_XDECREF(made);
    }
    return list;
}

PyObject* recorder_forget(PyObject* self, PyObject*) {
    recorder_clear(self);
    Py_RETURN_NONE;
}

PyObject* recorder_limit(PyObject* self, PyObject* most) {
    Py_ssize_t value = PyLong_AsSsize_t(most);
    if (value < 0) return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_ValueError, "limit(): expected at least 0, got %zd", value);
    ((Recorder*)self)->most = (size_t)value;
    Py_RETURN_NONE;
}

Py_ssize_t recorder_length(PyObject* self) { return (Py_ssize_t)((Recorder*)self)->log->size(); }

PyMethodDef recorder_methods[] = {
    {"begin", (PyCFunction)(void*)recorder_begin, METH_FASTCALL, "begin(name, args=(), kind=0, sequence=-1) -> number\n\nSomething starts."},
    {"end", recorder_end, METH_O, "end(number)\n\nIt is over."},
    {"innermost", recorder_innermost, METH_NOARGS, "The number of the last event that is not over; or -1."},
    {"entries", recorder_entries, METH_NOARGS,
     "[(number, name, start, end, parent, kind, sequence, first, last, inputs, places), ...], in the order in which they began."},
    {"limit", recorder_limit, METH_O, "limit(most)\n\nEvents that begin after so many are not kept."},
    {"forget", recorder_forget, METH_NOARGS, "All that was written down so far."},
    {nullptr},
};
PyType_Slot recorder_slots[] = {
    {Py_tp_doc, (void*)"Recorder(record_shapes=False, with_stack=False)\n--\n\nWrites down what runs in one thread (core/watching.py)."},
    {Py_tp_new, (void*)recorder_new}, {Py_tp_dealloc, (void*)recorder_free}, {Py_tp_traverse, (void*)recorder_traverse},
    {Py_tp_clear, (void*)recorder_clear}, {Py_tp_methods, recorder_methods}, {Py_sq_length, (void*)recorder_length}, {0, nullptr},
};
PyType_Spec recorder_spec = {"flambeau._C.Recorder", sizeof(Recorder), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, recorder_slots};

// ------------------------------------------------------------------------------------------------------------ calls
PyObject* slowly = nullptr;  // the same function for watchers of other types
constexpr Py_ssize_t most_recorders = 8;
constexpr long named = 7;  // by the program: recorders may look at the arguments

bool all_recorders(PyObject* watchers) {
    if (watchers == nullptr || PyTuple_GET_SIZE(watchers) > most_recorders) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(watchers); i++)
        if (!PyObject_TypeCheck(PyTuple_GET_ITEM(watchers, i), recorder_type)) return false;
    return true;
}

// recorded(name, function, args, kwargs, kind=0, sequence=-1, seen=None): `watched` of core/watching.py.
PyObject* recorded(PyObject*, PyObject* const* given, Py_ssize_t count) {
    if (count < 4 || count > 7 || !PyTuple_Check(given[2]) || !(given[3] == Py_None || PyDict_Check(given[3])))
        return PyErr_SetString(PyExc_TypeError, "recorded(name, function, args: tuple, kwargs: dict | None, kind=0, sequence=-1, seen=None)"), nullptr;
    PyObject *args = given[2], *kwargs = given[3] == Py_None ? nullptr : given[3], *watchers = dispatch_state.watchers;
    long kind = count > 4 ? PyLong_AsLong(given[4]) : 0, sequence = count > 5 ? PyLong_AsLong(given[5]) : -1;
    if (PyErr_Occurred()) return nullptr;
    if (kind == named || !all_recorders(watchers)) return PyObject_Vectorcall(slowly, given, (size_t)count, nullptr);
    Py_ssize_t number[most_recorders], n = PyTuple_GET_SIZE(watchers);
    Py_INCREF(watchers);
    for (Py_ssize_t i = 0; i < n; i++)
        number[i] = begin((Recorder*)PyTuple_GET_ITEM(watchers, i), given[0], count > 6 ? given[6] : args, count > 6 ? nullptr : kwargs,
                          kind, sequence);
    if (kind == 0) set_watchers(nullptr);
    PyObject* result = PyObject_Call(given[1], args, kwargs);
    if (kind == 0) set_watchers(Py_NewRef(watchers));
    for (Py_ssize_t i = n; i-- > 0;) end((Recorder*)PyTuple_GET_ITEM(watchers, i), number[i]);
    Py_DECREF(watchers);
    return result;
}

PyObject* know_watched(PyObject*, PyObject* function) {
    Py_XSETREF(slowly, Py_NewRef(function));
    Py_RETURN_NONE;
}

PyObject* know_module_call(PyObject*, PyObject* code) {
    if (!PyCode_Check(code)) return PyErr_Format(PyExc_TypeError, "expected code, got %R", code);
    Py_XSETREF(module_call, Py_NewRef(code));
    Py_RETURN_NONE;
}

// ------------------------------------------------------------------------------------------------------------ memory
struct Change {
    void* memory;
    size_t size;  // 0: given back
    int64_t time;
    unsigned long thread;
    Places places;
};

struct MemoryLog {
    PyObject_HEAD
    bool with_stack, running, first;  // first: the first `most` are kept, not the last
    size_t most;
    std::deque<Change>* changes;
    Places* garbage;  // of changes that were dropped, perhaps without the GIL
};
std::vector<MemoryLog*> running;  // under the lock
ForkLock memory_lock;

PyObject* memory_new(PyTypeObject* type, PyObject* args, PyObject* keywords) {
    static const char* names[] = {"with_stack", "most", nullptr};
    int stack = 0;
    unsigned long long most = ~0ull;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|pK:MemoryLog", (char**)names, &stack, &most)) return nullptr;
    MemoryLog* self = (MemoryLog*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->with_stack = stack, self->running = self->first = false, self->most = (size_t)most;
    self->changes = new std::deque<Change>, self->garbage = new Places;
    return (PyObject*)self;
}

PyObject* memory_start(PyObject* object, PyObject*) {
    MemoryLog* self = (MemoryLog*)object;
    std::lock_guard<ForkLock> guard(memory_lock);
    if (!self->running) running.push_back(self), memory_logs = (int)running.size();
    self->running = true;
    Py_RETURN_NONE;
}

PyObject* memory_stop(PyObject* object, PyObject*) {
    MemoryLog* self = (MemoryLog*)object;
    std::lock_guard<ForkLock> guard(memory_lock);
    if (self->running) running.erase(std::find(running.begin(), running.end(), self)), memory_logs = (int)running.size();
    self->running = false;
    Py_RETURN_NONE;
}

PyObject* memory_limit(PyObject* object, PyObject* most) {
    Py_ssize_t value = PyLong_AsSsize_t(most);
    if (value < 0) return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_ValueError, "limit(): expected at least 0, got %zd", value);
    std::lock_guard<ForkLock> guard(memory_lock);
    ((MemoryLog*)object)->most = (size_t)value, ((MemoryLog*)object)->first = true;
    Py_RETURN_NONE;
}

PyObject* memory_take(PyObject* object, PyObject*) {
    MemoryLog* self = (MemoryLog*)object;
    std::deque<Change> changes;
    Places garbage;
    {
        std::lock_guard<ForkLock> guard(memory_lock);
        changes.swap(*self->changes), garbage.swap(*self->garbage);
    }
    drop(garbage);
    PyObject* list = PyList_New(0);
    for (Change& change : changes) {
        PyObject* places = as_tuple(change.places.data(), change.places.size());
        drop(change.places);
        PyObject* made = list == nullptr || places == nullptr ? nullptr : Py_BuildValue("KKLkO", (unsigned long long)(uintptr_t)change.memory,
            (unsigned long long)change.size, (long long)change.time, change.thread, places);
        Py_XDECREF(places);
        if (made == nullptr || PyList_Append(list, made) < 0) Py_CLEAR(list);
        Py_XDECREF(made);
    }
    return list;
}

void memory_free(PyObject* object) {
    memory_stop(object, nullptr);
    MemoryLog* self = (MemoryLog*)object;
    for (Change& change : *self->changes) drop(change.places);
    drop(*self->garbage);
    delete self->changes, delete self->garbage;
    free_object(object);
}

PyMethodDef memory_methods[] = {
    {"start", memory_start, METH_NOARGS, "From now on."}, {"stop", memory_stop, METH_NOARGS, "Until now."},
    {"limit", memory_limit, METH_O, "limit(most)\n\nThe first so many are kept, not the last."},
    {"take", memory_take, METH_NOARGS,
     "[(address, bytes or 0 for memory given back, time, thread, places), ...] since the last call; frames where Python ran."},
    {nullptr},
};
PyType_Slot memory_slots[] = {
    {Py_tp_doc, (void*)"MemoryLog(with_stack=False, most=...)\n--\n\nThe last so many changes of the memory of arrays, in all threads."},
    {Py_tp_new, (void*)memory_new}, {Py_tp_dealloc, (void*)memory_free}, {Py_tp_methods, memory_methods}, {0, nullptr},
};
PyType_Spec memory_spec = {"flambeau._C.MemoryLog", sizeof(MemoryLog), 0, Py_TPFLAGS_DEFAULT, memory_slots};

PyMethodDef functions[] = {
    {"next_node", give_next_node, METH_NOARGS, "The number of autograd's next node."},
    {"recorded", (PyCFunction)(void*)recorded, METH_FASTCALL, "recorded(name, function, args, kwargs, kind=0, sequence=-1, seen=None)"},
    {"know_watched", know_watched, METH_O, "The same for watchers of any type."},
    {"know_module_call", know_module_call, METH_O, "The code that calls modules."},
    {nullptr},
};

}  // namespace

void enter_memory(void* memory, size_t size) {
    int64_t time = now();
    unsigned long thread = PyThread_get_thread_ident();
    std::lock_guard<ForkLock> guard(memory_lock);
    for (MemoryLog* log : running) {
        if (log->first && log->changes->size() >= log->most) continue;
        log->changes->push_back({memory, size, time, thread, {}});
        if (log->with_stack && PyGILState_Check()) add_places(log->changes->back().places);
        if (log->changes->size() <= log->most) continue;
        Places& oldest = log->changes->front().places;
        log->garbage->insert(log->garbage->end(), oldest.begin(), oldest.end());
        log->changes->pop_front();
    }
}

void add_recorder(PyObject* module) {
    recorder_type = add_type(module, recorder_spec);
    if (recorder_type == nullptr || add_type(module, memory_spec) == nullptr) return;
    pthread_atfork(nullptr, nullptr, [] { memory_logs = 0; });  // a child has nobody who reads
    PyModule_AddFunctions(module, functions);
}
