// onednn_ops.h for Python: handles for compiled graphs, and the two calls eager makes, matmul and convolution over arrays.
#define FLAMBEAU_NATIVE_MODULE
#include "module.h"
#include "runtime.h"

#include <algorithm>
#include <cstring>

#include "dnnl_abi.h"
#include "dtypes.h"
#include "onednn_ops.h"
#include "post_rows.inc"

namespace {

using onednn::Op;
using onednn::Tensor;
using onednn::Words;

// Runs `body` and turns C++ exceptions into Python's.
template <class Body>
PyObject* guarded(Body body) {
    try {
        return body();
    } catch (const onednn::Unsupported& e) {
        PyErr_SetString(PyExc_NotImplementedError, e.what());
    } catch (const std::invalid_argument& e) {
        PyErr_SetString(PyExc_ValueError, e.what());
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
    }
    return nullptr;
}

void run_unlocked(Op* op, void* const* pointers) {
    PyThreadState* state = PyEval_SaveThread();
    try {
        onednn::run(op, pointers);
    } catch (...) {
        PyEval_RestoreThread(state);
        throw;
    }
    PyEval_RestoreThread(state);
}

int64_t dtype_of(PyArrayObject* array) {
    switch (kind_of(array)) {
        case Kind::f32: return dnnl::f32;
        case Kind::f16: return dnnl::f16;
        case Kind::bf16: return dnnl::bf16;
        default: return 0;
    }
}

// Whether elements lie in the same place, other than by repetition along an axis (windows over a line, say).
bool overlaps(const Tensor& t) {
    int order[8], n = 0;
    for (int i = 0; i < t.ndim; i++)
        if (t.dims[i] != 1 && t.strides[i] != 0) order[n++] = i;
    std::sort(order, order + n, [&](int a, int b) { return t.strides[a] < t.strides[b]; });
    for (int64_t i = 0, span = 1; i < n; i++) {
        if (t.strides[order[i]] < span) return true;
        span = t.strides[order[i]] * (t.dims[order[i]] - 1) + span;
    }
    return false;
}

// False for what oneDNN does not compute with: other dtypes, empty arrays, strides that are no whole elements, overlaps.
bool describe(PyArrayObject* array, Tensor& t) {
    t.dtype = dtype_of(array);
    t.ndim = PyArray_NDIM(array);
    if (t.dtype == 0 || t.ndim > 7 || !PyArray_ISBEHAVED_RO(array)) return false;
    int64_t itemsize = PyArray_ITEMSIZE(array);
    for (int i = 0; i < t.ndim; i++) {
        t.dims[i] = PyArray_DIM(array, i);
        t.strides[i] = PyArray_STRIDE(array, i) / itemsize;
        if (t.dims[i] == 0 || t.strides[i] < 0 || PyArray_STRIDE(array, i) % itemsize) return false;
    }
    return !overlaps(t);
}

bool words_from(PyObject* sequence, Words& words) {
    PyObject* items = PySequence_Fast(sequence, "expected a sequence of integers");
    if (items == nullptr) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); i++) {
        if (i == Words::capacity) PyErr_SetString(PyExc_ValueError, "the description of an operation is too long");
        else words.data[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(items, i));
        if (PyErr_Occurred()) break;
        words.size++;
    }
    Py_DECREF(items);
    return !PyErr_Occurred();
}

bool handle_from(PyObject* object, int64_t& op) {
    op = PyLong_AsLongLong(object);
    if (op == -1 && PyErr_Occurred()) return false;
    if (onednn::valid(op)) return true;
    PyErr_Format(PyExc_ValueError, "%R is not a oneDNN operation", object);
    return false;
}

// ---- handles ----

PyObject* load(PyObject*, PyObject* path) {
    const char* text = PyUnicode_AsUTF8(path);
    if (text == nullptr) return nullptr;
    return guarded([&] { return PyUnicode_FromString(onednn::load(text).c_str()); });
}

PyObject* set_path(PyObject*, PyObject* path) {
    const char* text = PyUnicode_AsUTF8(path);
    if (text == nullptr) return nullptr;
    onednn::set_path(text);
    Py_RETURN_NONE;
}

PyObject* create(PyObject*, PyObject* description) {
    Words words;
    if (!words_from(description, words)) return nullptr;
    return guarded([&] { return PyLong_FromLongLong(onednn::create(words.data, words.size)); });
}

// Whether `array` is what operand `expected` promised.
bool matches(PyArrayObject* array, const Tensor& expected) {
    Tensor t;
    if (!describe(array, t) || t.dtype != expected.dtype || t.ndim != expected.ndim) return false;
    for (int i = 0; i < t.ndim; i++)
        if (t.dims[i] != expected.dims[i] || (t.dims[i] != 1 && t.strides[i] != expected.strides[i])) return false;
    return true;
}

PyObject* run(PyObject*, PyObject* const* args, Py_ssize_t count) {
    int64_t op;
    if (count < 1) return PyErr_Format(PyExc_TypeError, "onednn_run(op, *arrays)");
    if (!handle_from(args[0], op)) return nullptr;
    const onednn::Spec& spec = onednn::spec(op);
    std::vector<const Tensor*> expected;
    for (const Tensor& t : spec.operands) expected.push_back(&t);
    for (const onednn::PostOp& p : spec.post)
        if (p.has_tensor) expected.push_back(&p.tensor);
    size_t wanted = expected.size();
    if ((size_t)count - 1 != wanted) return PyErr_Format(PyExc_TypeError, "this oneDNN operation takes %zu arrays, got %zd", wanted, count - 1);
    void* pointers[24];
    for (size_t i = 0; i < wanted; i++) {
        PyArrayObject* array = (PyArrayObject*)args[i + 1];
        if (!PyArray_Check(args[i + 1])) return PyErr_Format(PyExc_TypeError, "operand %zu is no array", i);
        if (onednn::writes(spec.kind, (int)i) && !PyArray_ISWRITEABLE(array)) return PyErr_Format(PyExc_ValueError, "operand %zu is read-only", i);
        if (!matches(array, *expected[i]))
            return PyErr_Format(PyExc_ValueError, "operand %zu has not the dtype, shape and strides that this operation was made for", i);
        pointers[i] = PyArray_DATA(array);
    }
    return guarded([&] {
        run_unlocked((Op*)op, pointers);
        return Py_NewRef(Py_None);
    });
}

PyObject* implementation(PyObject*, PyObject* handle) {
    int64_t op;
    if (!handle_from(handle, op)) return nullptr;
    return PyUnicode_FromString(onednn::implementation(op));
}

// ---- eager ----

PyObject* no() { return Py_NewRef(Py_False); }

// What eager hands over: arrays by position, the bias possibly None. Stops at the first that oneDNN cannot take.
struct Arrays {
    void* pointers[4];
    Tensor tensors[4];
    int count = 0;
    bool take(PyObject* object) {
        if (!PyArray_Check(object) || !describe((PyArrayObject*)object, tensors[count])) return false;
        pointers[count++] = PyArray_DATA((PyArrayObject*)object);
        return true;
    }
    bool take_all(PyObject* const* objects, int least, PyObject* optional) {
        for (int i = 0; i < least; i++)
            if (!take(objects[i])) return false;
        return optional == Py_None || take(optional);
    }
};

PyObject* build_and_run(const Words& words, const Arrays& arrays) {
    return guarded([&]() -> PyObject* {
        try {
            std::shared_ptr<Op> op = onednn::cached(words);
            if (!strncmp(onednn::implementation((int64_t)op.get()), "ref", 3)) return no();  // NumPy beats reference loops
            run_unlocked(op.get(), arrays.pointers);
        } catch (const onednn::Unsupported&) {
            return no();
        }
        return Py_NewRef(Py_True);
    });
}

PyObject* mm(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 4) return PyErr_Format(PyExc_TypeError, "onednn_mm(a, b, out, bias or None)");
    Arrays arrays;
    if (!onednn::loaded() || !arrays.take_all(args, 3, args[3])) return no();
    Words words;
    for (int64_t word : {(int64_t)onednn::matmul, (int64_t)1, (int64_t)arrays.count}) words.push(word);
    for (int i = 0; i < arrays.count; i++) words.push(arrays.tensors[i]);
    words.push((int64_t)0), words.push((int64_t)0);
    return build_and_run(words, arrays);
}

// (int, ...) of `n` entries into every window's `member`.
bool window_entries(PyObject* tuple, int n, const char* name, int64_t (*windows)[4], int member) {
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != n) {
        PyErr_Format(PyExc_RuntimeError, "expected %s to be a tuple of %d integers, got %R", name, n, tuple);
        return false;
    }
    for (int i = 0; i < n; i++) windows[i][member] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    return !PyErr_Occurred();
}

// onednn_conv(kind, first, second, out, bias, stride, dilation, padding, end_padding, groups, free): operands by kind as in
// onednn_ops.h; bit i of `free` lets oneDNN choose the layout of operand i and reorder.
PyObject* conv(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 11) return PyErr_Format(PyExc_TypeError, "onednn_conv takes 11 arguments, got %zd", count);
    Arrays arrays;
    if (!onednn::loaded() || !arrays.take_all(args + 1, 3, args[4])) return no();
    long kind = PyLong_AsLong(args[0]), groups = PyLong_AsLong(args[9]), released = PyLong_AsLong(args[10]);
    if (PyErr_Occurred()) return nullptr;
    int spatial = (int)arrays.tensors[0].ndim - 2;
    int64_t windows[8][4];
    if (spatial < 1 || spatial > 3) return no();
    if (!window_entries(args[5], spatial, "stride", windows, 0) || !window_entries(args[6], spatial, "dilation", windows, 1) ||
        !window_entries(args[7], spatial, "padding", windows, 2) || !window_entries(args[8], spatial, "end padding", windows, 3))
        return nullptr;
    Words words;
    words.push(kind), words.push(groups), words.push((int64_t)arrays.count);
    for (int i = 0; i < arrays.count; i++) {
        if (released >> i & 1) arrays.tensors[i].layout = onednn::free_choice;
        words.push(arrays.tensors[i]);
    }
    words.push((int64_t)spatial);
    for (int i = 0; i < spatial; i++)
        for (int64_t word : windows[i]) words.push(word);
    words.push((int64_t)0);
    return build_and_run(words, arrays);
}

PyObject* split_products(PyObject*, PyObject* number) {
    long products = PyLong_AsLong(number);
    if (products == -1 && PyErr_Occurred()) return nullptr;
    return guarded([&] { return PyLong_FromLong(onednn::set_split_products((int)products)); });
}

PyObject* forget(PyObject*, PyObject* args) {
    Py_ssize_t address = 0, bytes = 0;
    if (!PyArg_ParseTuple(args, "nn", &address, &bytes)) return nullptr;
    return guarded([&] {
        onednn::forget_packed((const char*)address, (size_t)bytes);
        Py_RETURN_NONE;
    });
}

PyObject* split_products_set(PyObject*, PyObject*) { return PyLong_FromLong(onednn::split_products_set()); }

PyMethodDef methods[] = {
    {"onednn_forget", forget, METH_VARARGS,
     "onednn_forget(address, bytes) -> None\n\nLet go of what was made of constants that lie there: their memory is about to be something else."},
    {"onednn_split_products_set", split_products_set, METH_NOARGS, "onednn_split_products_set() -> int"},
    {"onednn_split_products", split_products, METH_O,
     "onednn_split_products(n) -> int\n\nHow many products of bf16 parts make an f32 product where the processor has bf16 tiles: 6 (the accuracy\n"
     "of f32), 3, 1, or 0 for oneDNN in f32. Returns the number before; 0 where there are no such tiles."},
    {"onednn_load", load, METH_O, "onednn_load(path) -> version\n\nOpens the library; RuntimeError when it is not oneDNN 3."},
    {"onednn_set_path", set_path, METH_O, "onednn_set_path(path)\n\nThe library to open when an operation is created before onednn_load."},
    {"onednn_create", create, METH_O, "onednn_create(words) -> handle\n\nThe operation that `words` describe (layout: csrc/onednn_ops.h)."},
    {"onednn_run", (PyCFunction)(void*)run, METH_FASTCALL, "onednn_run(op, *arrays)"},
    {"onednn_implementation", implementation, METH_O, "onednn_implementation(op) -> str\n\noneDNN's name of the kernel; 'ref...' are slow reference loops."},
    {"onednn_mm", (PyCFunction)(void*)mm, METH_FASTCALL,
     "onednn_mm(a, b, out, bias) -> bool\n\nout = a @ b + bias over arrays of equal rank; False when oneDNN does not take these."},
    {"onednn_conv", (PyCFunction)(void*)conv, METH_FASTCALL,
     "onednn_conv(kind, first, second, out, bias, stride, dilation, padding, end_padding, groups, free) -> bool"},
    {nullptr},
};

void set_number(PyObject* dictionary, const char* name, long number) {
    PyObject* value = PyLong_FromLong(number);
    if (dictionary != nullptr && value != nullptr) PyDict_SetItemString(dictionary, name, value);
    Py_XDECREF(value);
}

}  // namespace

void add_onednn(PyObject* module) {
    if (PyModule_AddFunctions(module, methods) < 0) return;
    using namespace dnnl;
    PyObject* post_ops = PyDict_New();
#define FL_NAMED(name, algorithm, ...) set_number(post_ops, #name, algorithm);
    FL_POST_OPS(FL_NAMED)
#undef FL_NAMED
    if (post_ops == nullptr || PyErr_Occurred() || PyModule_AddObject(module, "onednn_post_ops", post_ops) < 0) return;
    // For generated code, under the names and types of onednn_ops.h.
    flambeau_register("onednn_run", (void*)onednn_run);
    flambeau_register("onednn_create", (void*)onednn_create);
    flambeau_register("onednn_last_error", (void*)onednn_last_error);
}
