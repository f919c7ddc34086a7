// NativeGraph: a compiled kernel library that is called with tensors, arrays and numbers. runtime.h is what the library sees.
#define FLAMBEAU_NATIVE_MODULE
#include "module.h"

#include <dlfcn.h>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <vector>

#include "alloc.h"
#include "host.h"
#include "state.h"
#include "tensor_slots.h"
#include "threads.h"

namespace {

// ----------------------------------------------------------------------------------------------- what libraries may call
struct Registered {
    const char* name;
    void* function;
} registered[64];
int registered_count = 0;

void* find_registered(const char* name) {
    for (int i = 0; i < registered_count; i++)
        if (std::strcmp(registered[i].name, name) == 0) return registered[i].function;
    return nullptr;
}

// ------------------------------------------------------------------------------------------------------------ the type
struct NativeGraph {
    PyObject_HEAD
    void* library;
    FlambeauRun run;
    PyObject* path;
    PyObject* symbol;
    Py_ssize_t n_args;
    PyObject* kernels;  // what watchers are told it is; null: nothing
    Py_ssize_t n_kernels;
    vectorcallfunc vectorcall;
};

// What one call passes on. Holds the arrays, because another thread may give their tensors new ones meanwhile.
struct Call {
    static constexpr Py_ssize_t small = 64;
    void* small_pointers[small];
    PyObject* small_held[small];
    int64_t small_scalars[small];
    void** pointers = small_pointers;
    PyObject** held = small_held;
    int64_t* scalars = small_scalars;
    Py_ssize_t count = 0;

    bool reserve(Py_ssize_t n_args, Py_ssize_t n_scalars) {
        if (n_args > small) {
            pointers = (void**)PyMem_Malloc(n_args * sizeof(void*));
            held = (PyObject**)PyMem_Malloc(n_args * sizeof(PyObject*));
        }
        if (n_scalars > small) scalars = (int64_t*)PyMem_Malloc(n_scalars * sizeof(int64_t));
        if (pointers != nullptr && held != nullptr && scalars != nullptr) return true;
        PyErr_NoMemory();
        return false;
    }

    ~Call() {
        for (Py_ssize_t i = 0; i < count; i++) Py_XDECREF(held[i]);
        if (pointers != small_pointers) PyMem_Free(pointers);
        if (held != small_held) PyMem_Free(held);
        if (scalars != small_scalars) PyMem_Free(scalars);
    }

    // A tensor or array: its memory. None: null. An int: the address that it is (of packed weights, say).
    bool add(PyObject* object) {
        PyObject* owner = nullptr;
        void* pointer = nullptr;
        if (PyLong_CheckExact(object)) {
            pointer = PyLong_AsVoidPtr(object);
            if (pointer == nullptr && PyErr_Occurred()) return false;
        } else if (object != Py_None) {
            PyArrayObject* array = array_of(object);
            if (array == nullptr) return false;
            pointer = PyArray_DATA(array);
            owner = Py_NewRef((PyObject*)array);
        }
        pointers[count] = pointer;
        held[count++] = owner;
        return true;
    }
};

bool read_scalar(PyObject* object, int64_t* out) {
    if (PyFloat_Check(object)) {
        double value = PyFloat_AS_DOUBLE(object);
        std::memcpy(out, &value, sizeof value);
        return true;
    }
    PyObject* index = PyNumber_Index(object);
    if (index == nullptr) return false;
    *out = PyLong_AsLongLong(index);
    Py_DECREF(index);
    return *out != -1 || !PyErr_Occurred();
}

// Runs without the GIL. A C++ exception must not cross into Python's frames.
int run_library(FlambeauRun run, Call& call, FlambeauRuntime* runtime) {
    try {
        return run(call.pointers, call.scalars, runtime);
    } catch (const std::exception& error) {
        return note_failure(runtime, "%s", error.what());
    } catch (...) {
        return note_failure(runtime, "unknown C++ exception");
    }
}

int64_t now() {  // as time.perf_counter_ns() and fl::lap
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

// watcher.ran(kernels, start, times): what ran, when it began, and when each of its kernels ended, as int64. False: an error is set.
bool tell_watchers(PyObject* kernels, int64_t start, const std::vector<int64_t>& laps) {
    PyObject* watchers = dispatch_state.watchers;
    if (watchers == nullptr) return true;
    Py_INCREF(watchers);
    bool good = true;
    for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(watchers); i++) {
        PyObject* answer = PyObject_CallMethod(PyTuple_GET_ITEM(watchers, i), "ran", "OLy#", kernels, (long long)start,
                                               (const char*)laps.data(), (Py_ssize_t)(laps.size() * sizeof(int64_t)));
        good = answer != nullptr;
        Py_XDECREF(answer);
    }
    Py_DECREF(watchers);
    return good;
}

PyObject* run_graph(NativeGraph* self, Call& call) {
    FlambeauRuntime runtime;
    begin_runtime(runtime, thread_count(), find_registered);
    std::vector<int64_t> laps;
    bool watched = dispatch_state.watchers != nullptr && self->kernels != nullptr;
    if (watched) laps.resize(self->n_kernels);
    runtime.laps = watched ? laps.data() : nullptr;
    PyObject* kernels = watched ? Py_NewRef(self->kernels) : nullptr;
    int64_t start = watched ? now() : 0;
    int status;
    Py_BEGIN_ALLOW_THREADS;
    status = run_library(self->run, call, &runtime);
    Py_END_ALLOW_THREADS;
    bool told = status != 0 || !watched || tell_watchers(kernels, start, laps);
    Py_XDECREF(kernels);
    if (!told) return nullptr;
    if (status == 0) Py_RETURN_NONE;
    runtime.message[sizeof runtime.message - 1] = 0;
    if (runtime.message[0] == 0) note_failure(&runtime, "status %d, no message", status);
    if (runtime.index_error) return PyErr_SetString(PyExc_IndexError, runtime.message), nullptr;
    return PyErr_Format(PyExc_RuntimeError, "%U() of %U failed: %s", self->symbol, self->path, runtime.message);
}

PyObject* graph_call(PyObject* callable, PyObject* const* arguments, size_t flags, PyObject* names) {
    NativeGraph* self = (NativeGraph*)callable;
    Py_ssize_t given = PyVectorcall_NARGS(flags);
    if (names != nullptr || given < 1 || given > 2)
        return PyErr_Format(PyExc_TypeError, "NativeGraph takes (args) or (args, scalars), got %zd arguments", given);
    PyObject* args = PySequence_Fast(arguments[0], "NativeGraph: args must be a sequence");
    if (args == nullptr) return nullptr;
    PyObject* scalars = nullptr;
    if (given == 2) {
        scalars = PySequence_Fast(arguments[1], "NativeGraph: scalars must be a sequence");
        if (scalars == nullptr) return Py_DECREF(args), nullptr;
    }
    Call call;
    Py_ssize_t n_args = PySequence_Fast_GET_SIZE(args);
    Py_ssize_t n_scalars = scalars != nullptr ? PySequence_Fast_GET_SIZE(scalars) : 0;
    bool ready = false;
    if (n_args != self->n_args)
        PyErr_Format(PyExc_TypeError, "%U() of %U takes %zd arrays, got %zd", self->symbol, self->path, self->n_args, n_args);
    else
        ready = call.reserve(n_args, n_scalars);
    // Reading an index can run Python that changes a list under us, so lengths are asked anew.
    for (Py_ssize_t i = 0; ready && i < n_scalars; i++)
        ready = i < PySequence_Fast_GET_SIZE(scalars) && read_scalar(PySequence_Fast_GET_ITEM(scalars, i), &call.scalars[i]);
    for (Py_ssize_t i = 0; ready && i < n_args; i++)
        ready = i < PySequence_Fast_GET_SIZE(args) && call.add(PySequence_Fast_GET_ITEM(args, i));
    PyObject* result = ready ? run_graph(self, call) : nullptr;
    if (result == nullptr && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "NativeGraph: a list of arguments changed during the call");
    Py_XDECREF(scalars);
    Py_DECREF(args);
    return result;
}

PyObject* graph_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
    static const char* names[] = {"library_path", "symbol", "n_args", nullptr};
    PyObject *path = nullptr, *symbol;
    Py_ssize_t n_args;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O&Un:NativeGraph", (char**)names, PyUnicode_FSDecoder, &path,
                                     &symbol, &n_args))
        return nullptr;
    NativeGraph* self = (NativeGraph*)type->tp_alloc(type, 0);
    if (self == nullptr) return Py_DECREF(path), nullptr;
    self->path = path;
    self->symbol = Py_NewRef(symbol);
    self->n_args = n_args;
    self->vectorcall = graph_call;
    PyObject* encoded = PyUnicode_EncodeFSDefault(path);
    const char* name = PyUnicode_AsUTF8(symbol);
    if (encoded != nullptr && name != nullptr) {
        self->library = dlopen(PyBytes_AS_STRING(encoded), RTLD_NOW | RTLD_LOCAL);
        if (self->library == nullptr) {
            const char* reason = dlerror();
            PyErr_Format(PyExc_OSError, "cannot load the kernel library %U: %s", path, reason ? reason : "unknown reason");
        } else {
            self->run = (FlambeauRun)dlsym(self->library, name);
            if (self->run == nullptr) PyErr_Format(PyExc_OSError, "the kernel library %U has no function %U", path, symbol);
        }
    }
    Py_XDECREF(encoded);
    if (PyErr_Occurred()) Py_CLEAR(self);
    return (PyObject*)self;
}

void graph_dealloc(PyObject* object) {
    NativeGraph* self = (NativeGraph*)object;
    if (self->library != nullptr) dlclose(self->library);
    Py_XDECREF(self->path);
    Py_XDECREF(self->symbol);
    Py_XDECREF(self->kernels);
    free_object(object);
}

PyObject* graph_repr(PyObject* object) {
    NativeGraph* self = (NativeGraph*)object;
    return PyUnicode_FromFormat("NativeGraph(%R, %R, %zd)", self->path, self->symbol, self->n_args);
}

// Loading it again is how another process (or a copy) gets the same graph.
PyObject* graph_reduce(PyObject* object, PyObject*) {
    NativeGraph* self = (NativeGraph*)object;
    return Py_BuildValue("O(OOn)", Py_TYPE(object), self->path, self->symbol, self->n_args);
}

PyObject* graph_describe(PyObject* object, PyObject* arguments) {
    NativeGraph* self = (NativeGraph*)object;
    PyObject* kernels;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(arguments, "On:describe", &kernels, &count)) return nullptr;
    if (count < 0) return PyErr_SetString(PyExc_ValueError, "describe: the number of kernels is negative"), nullptr;
    Py_XSETREF(self->kernels, Py_NewRef(kernels));
    self->n_kernels = count;
    Py_RETURN_NONE;
}

PyMethodDef graph_methods[] = {
    {"describe", graph_describe, METH_VARARGS, "describe(kernels, count): while somebody watches, tell them of a call as `kernels`, "
     "with the times at which its `count` kernels ended."},
    {"__reduce__", graph_reduce, METH_NOARGS, nullptr}, {nullptr},
};

PyMemberDef graph_members[] = {
    {"path", T_OBJECT_EX, offsetof(NativeGraph, path), READONLY, "The library's file."},
    {"symbol", T_OBJECT_EX, offsetof(NativeGraph, symbol), READONLY, "The function that a call runs."},
    {"n_args", T_PYSSIZET, offsetof(NativeGraph, n_args), READONLY, "How many arrays it takes."},
    vectorcall_member<NativeGraph>,
    {nullptr},
};

const char graph_doc[] =
    "NativeGraph(library_path, symbol, n_args)\n--\n\n"
    "A function of a kernel library, called as graph(args) or graph(args, scalars), without the GIL.\n\n"
    "args: n_args tensors, NumPy arrays, None (a null pointer) or ints (addresses); only their memory is passed, shapes and\n"
    "dtypes are the caller's business. scalars: ints (int64) or floats (the bits of a double). Returns None; raises\n"
    "RuntimeError with the library's message when it reports a failure (IndexError for an index out of bounds), OSError\n"
    "when the library cannot be loaded.";

PyType_Slot graph_slots[] = {
    {Py_tp_doc, (void*)graph_doc},         {Py_tp_new, (void*)graph_new},
    {Py_tp_dealloc, (void*)graph_dealloc}, {Py_tp_call, (void*)PyVectorcall_Call},
    {Py_tp_repr, (void*)graph_repr},       {Py_tp_methods, graph_methods},
    {Py_tp_members, graph_members},        {0, nullptr},
};

PyType_Spec graph_spec = {
    "flambeau._C.NativeGraph", sizeof(NativeGraph), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, graph_slots,
};

}  // namespace

extern "C" void flambeau_register(const char* name, void* function) {
    constexpr int space = sizeof registered / sizeof *registered;
    if (find_registered(name) != nullptr || registered_count == space)
        PyErr_Format(PyExc_SystemError, "cannot register native function '%s': %s", name,
                     registered_count == space ? "no space left" : "the name is taken");
    else
        registered[registered_count++] = {name, function};
}

void add_cuda_launch(PyObject* module);  // cuda_launch.cpp

void add_launch(PyObject* module) {
    add_type(module, graph_spec);
    add_cuda_launch(module);
}
