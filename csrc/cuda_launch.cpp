// CudaKernel: a loaded GPU function that Python launches with a few hundred nanoseconds of its own. PreparedCall: a C function
// of numbers and addresses most of which are known beforehand (cuBLAS' products). The libraries' functions are handed over as
// addresses, so that nothing of CUDA is needed to build this.
#include "cuda_launch.h"

#include <cstring>

namespace {

constexpr int NO_CONTEXT = 201;  // CUDA_ERROR_INVALID_CONTEXT: the thread has not used the GPU yet

PyTypeObject* kernel_type;

}  // namespace

bool is_cuda_kernel(PyObject* object) { return kernel_type != nullptr && Py_IS_TYPE(object, kernel_type); }

bool read_word(char kind, PyObject* value, Word* word) {
    switch (kind) {
        case 'd': word->number = PyFloat_AsDouble(value); break;
        case 'f': word->single = (float)PyFloat_AsDouble(value); break;
        case 'i': word->narrow = (int)PyLong_AsLong(value); break;
        default: word->address = PyLong_AsUnsignedLongLongMask(value); break;
    }
    return !PyErr_Occurred();
}

bool launch_kernel(const CudaKernel* self, void* stream, unsigned long grid, Word* words) {
    void* parameters[most_parameters + 2];
    Word scratch = {0};  // Triton's two scratch spaces, unused
    for (int k = 0; k < self->count; k++) parameters[k] = &words[k];
    parameters[self->count] = parameters[self->count + 1] = &scratch;
    if (grid == 0) return true;
    int status = self->launch(self->function, (unsigned)grid, 1, 1, self->block, 1, 1, self->shared, stream, parameters, nullptr);
    if (status == NO_CONTEXT) {
        PyObject* entered = PyObject_CallNoArgs(self->enter);
        if (entered == nullptr) return false;
        Py_DECREF(entered);
        status = self->launch(self->function, (unsigned)grid, 1, 1, self->block, 1, 1, self->shared, stream, parameters, nullptr);
    }
    if (status == 0) return true;
    PyErr_Format(PyExc_RuntimeError, "CUDA error: cuLaunchKernel failed with %d (grid %lu)", status, grid);
    return false;
}

namespace {

// kernel(stream, grid, *parameters)
PyObject* kernel_call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names) {
    CudaKernel* self = (CudaKernel*)object;
    const Py_ssize_t given = PyVectorcall_NARGS(nargsf);
    if (names != nullptr || given != self->count + 2)
        return PyErr_Format(PyExc_TypeError, "the kernel takes a stream, a grid and %d parameters, got %zd arguments",
                            self->count, given);
    Word words[most_parameters];
    for (int k = 0; k < self->count; k++)
        if (!read_word(self->kinds[k], args[k + 2], &words[k])) return nullptr;
    void* stream = PyLong_AsVoidPtr(args[0]);
    const unsigned long grid = PyLong_AsUnsignedLong(args[1]);
    if (PyErr_Occurred() || !launch_kernel(self, stream, grid, words)) return nullptr;
    Py_RETURN_NONE;
}

PyObject* kernel_new(PyTypeObject* type, PyObject* args, PyObject* keywords) {
    static const char* names[] = {"launch", "function", "kinds", "block", "shared", "owner", "enter", nullptr};
    unsigned long long launch = 0, function = 0;
    const char* kinds = nullptr;
    unsigned block = 0, shared = 0;
    PyObject *owner = nullptr, *enter = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "KKsIIOO", (char**)names, &launch, &function, &kinds, &block, &shared, &owner, &enter))
        return nullptr;
    const size_t count = strlen(kinds);
    if (count > (size_t)most_parameters || launch == 0 || function == 0 || strspn(kinds, "plidf") != count)
        return PyErr_Format(PyExc_ValueError, "a kernel takes at most %d parameters of kinds p, l, i, d and f, got '%s'", most_parameters, kinds);
    CudaKernel* self = (CudaKernel*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->vectorcall = kernel_call;
    self->launch = (Launch)(uintptr_t)launch;
    self->function = (void*)(uintptr_t)function;
    Py_INCREF(owner);
    self->owner = owner;
    Py_INCREF(enter);
    self->enter = enter;
    self->block = block;
    self->shared = shared;
    self->count = (int)count;
    memcpy(self->kinds, kinds, count);
    return (PyObject*)self;
}

const char kernel_doc[] =
    "CudaKernel(launch, function, kinds, block, shared, owner, enter)\n--\n\n"
    "A GPU function, called as kernel(stream, grid, *parameters): `grid` blocks of `block` threads, queued on `stream` (its handle).\n\n"
    "launch: the address of the driver's cuLaunchKernel; function: the CUfunction; kinds: a letter for each parameter, p (address),\n"
    "l (int64), i (int32), d (double) or f (float); owner: what has to live as long; enter(): makes the device's context current in\n"
    "a thread that has none. Two null pointers follow the parameters, as Triton's kernels want.\n"
    "RuntimeError with the driver's code when it refuses.";

PyType_Slot kernel_slots[] = {
    {Py_tp_doc, (void*)kernel_doc}, {Py_tp_new, (void*)kernel_new},
    {Py_tp_dealloc, (void*)release<CudaKernel, &CudaKernel::owner, &CudaKernel::enter>},
    {Py_tp_call, (void*)PyVectorcall_Call}, {Py_tp_members, vectorcall_alone<CudaKernel>}, {0, nullptr},
};

PyType_Spec kernel_spec = {
    "flambeau._C.CudaKernel", sizeof(CudaKernel), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, kernel_slots,
};

constexpr int MOST_WORDS = 24;
using Word64 = unsigned long long;
using Function = int (*)(Word64, Word64, Word64, Word64, Word64, Word64, Word64, Word64, Word64, Word64, Word64, Word64, Word64, Word64,
                         Word64, Word64, Word64, Word64, Word64, Word64, Word64, Word64, Word64, Word64);

struct PreparedCall {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Function function;
    PyObject* owner;
    int slots;
    int slot[MOST_WORDS];
    Word64 words[MOST_WORDS];
};

// Integers narrower than 64 bits travel in whole registers and stack slots, and a callee ignores arguments that it has not.
PyObject* prepared_call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names) {
    PreparedCall* self = (PreparedCall*)object;
    const Py_ssize_t given = PyVectorcall_NARGS(nargsf);
    if (names != nullptr || given != self->slots)
        return PyErr_Format(PyExc_TypeError, "the prepared call takes %d arguments, got %zd", self->slots, given);
    Word64 w[MOST_WORDS];
    memcpy(w, self->words, sizeof w);
    for (int k = 0; k < self->slots; k++) w[self->slot[k]] = PyLong_AsUnsignedLongLongMask(args[k]);
    if (PyErr_Occurred()) return nullptr;
    return PyLong_FromLong(self->function(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14],
                                          w[15], w[16], w[17], w[18], w[19], w[20], w[21], w[22], w[23]));
}

PyObject* prepared_new(PyTypeObject* type, PyObject* args, PyObject* keywords) {
    static const char* names[] = {"function", "words", "owner", nullptr};
    Word64 function = 0;
    PyObject *words = nullptr, *owner = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "KO!O", (char**)names, &function, &PyTuple_Type, &words, &owner)) return nullptr;
    const Py_ssize_t count = PyTuple_GET_SIZE(words);
    if (count > MOST_WORDS || function == 0)
        return PyErr_Format(PyExc_ValueError, "a prepared call takes at most %d words and a function, got %zd", MOST_WORDS, count);
    PreparedCall* self = (PreparedCall*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->vectorcall = prepared_call;
    self->function = (Function)(uintptr_t)function;
    Py_INCREF(owner);
    self->owner = owner;
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject* word = PyTuple_GET_ITEM(words, k);
        if (word == Py_None)
            self->slot[self->slots++] = (int)k;
        else
            self->words[k] = PyLong_AsUnsignedLongLongMask(word);
    }
    if (PyErr_Occurred()) Py_CLEAR(self);
    return (PyObject*)self;
}

const char prepared_doc[] =
    "PreparedCall(function, words, owner)\n--\n\n"
    "A C function by its address, whose arguments are integers and addresses: `words`, with None for those that a call gives.\n"
    "Returns the function's int. `owner`: what has to live as long.";

PyType_Slot prepared_slots[] = {
    {Py_tp_doc, (void*)prepared_doc}, {Py_tp_new, (void*)prepared_new}, {Py_tp_dealloc, (void*)release<PreparedCall, &PreparedCall::owner>},
    {Py_tp_call, (void*)PyVectorcall_Call}, {Py_tp_members, vectorcall_alone<PreparedCall>}, {0, nullptr},
};

PyType_Spec prepared_spec = {
    "flambeau._C.PreparedCall", sizeof(PreparedCall), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, prepared_slots,
};

}  // namespace

void add_cuda_launch(PyObject* module) {
    kernel_type = add_type(module, kernel_spec);
    add_type(module, prepared_spec);
    add_gpu_program(module);
}
