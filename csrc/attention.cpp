// split_attention.h for Python, over arrays.
#define FLAMBEAU_NATIVE_MODULE
#include "module.h"

#include "runtime.h"

#include <algorithm>
#include <cstring>

#include "numpy_api.h"
#include "split_attention.h"
#include "split_gemm.h"
#include "threads.h"

namespace {

using namespace split_gemm;

// A (batch, heads, rows, e) array of f32 whose last dimension is contiguous.
bool take(PyObject* object, const char* name, Heads& to, npy_intp* shape) {
    PyArrayObject* array = (PyArrayObject*)object;
    if (!PyArray_Check(object) || PyArray_TYPE(array) != NPY_FLOAT || PyArray_NDIM(array) != 4 || !PyArray_ISBEHAVED_RO(array) ||
        PyArray_STRIDE(array, 3) != sizeof(float)) {
        PyErr_Format(PyExc_ValueError, "attention: %s must be a float32 array (batch, heads, rows, e) with contiguous e", name);
        return false;
    }
    std::copy_n(PyArray_DIMS(array), 4, shape);
    auto stride = [&](int i) { return (int64_t)(PyArray_STRIDE(array, i) / (npy_intp)sizeof(float)); };
    to = {(float*)PyArray_DATA(array), stride(0), stride(1), stride(2)};
    return true;
}

struct Arguments {
    Attention shape{};
    Heads q{}, k{}, v{}, out{}, g{};
    Gradients to{};
    float* lse = nullptr;

    // (q, k, v, out, lse, is_causal, scale [, g, gq, gk, gv])
    bool take_all(PyObject* const* args, Py_ssize_t count) {
        const bool backwards = count == 11;
        if (count != 7 && !backwards) {
            PyErr_Format(PyExc_TypeError, "attention takes 7 arguments forward and 11 backward, got %zd", count);
            return false;
        }
        npy_intp of_q[4], of_k[4], of_v[4], other[4];
        if (!take(args[0], "q", q, of_q) || !take(args[1], "k", k, of_k) || !take(args[2], "v", v, of_v) ||
            !take(args[3], "out", out, other) || !same(of_q, other, "out") || !same(of_k, of_v, "v"))
            return false;
        PyArrayObject* sums = (PyArrayObject*)args[4];
        if (!PyArray_Check(args[4]) || PyArray_TYPE(sums) != NPY_FLOAT || !PyArray_IS_C_CONTIGUOUS(sums) ||
            PyArray_SIZE(sums) != of_q[0] * of_q[1] * of_q[2] || of_k[0] != of_q[0] || of_k[3] != of_q[3] || of_k[1] < 1 || of_q[1] % of_k[1]) {
            PyErr_SetString(PyExc_ValueError, "attention: lse, batches, heads or e do not fit together");
            return false;
        }
        lse = (float*)PyArray_DATA(sums);
        const int causal = PyObject_IsTrue(args[5]);
        const double scale = PyFloat_AsDouble(args[6]);
        if (PyErr_Occurred()) return false;
        shape = {of_q[0], of_q[1], of_k[1], of_q[2], of_k[2], of_q[3], causal == 1, (float)scale};
        if (!backwards) return true;
        const struct { Heads* to; npy_intp* like; const char* name; } rest[] = {{&g, of_q, "g"}, {&to.q, of_q, "gq"}, {&to.k, of_k, "gk"}, {&to.v, of_k, "gv"}};
        for (int i = 0; i < 4; i++)
            if (!take(args[7 + i], rest[i].name, *rest[i].to, other) || !same(rest[i].like, other, rest[i].name)) return false;
        return true;
    }

   private:
    static bool same(const npy_intp* a, const npy_intp* b, const char* name) {
        if (std::equal(a, a + 4, b)) return true;
        PyErr_Format(PyExc_ValueError, "attention: %s has another shape than expected", name);
        return false;
    }
};

PyObject* attention(PyObject*, PyObject* const* args, Py_ssize_t count) {
    Arguments a;
    if (!a.take_all(args, count)) return nullptr;
    if (!available()) return PyErr_Format(PyExc_NotImplementedError, "attention needs a processor with bf16 tiles (AMX)");
    Py_BEGIN_ALLOW_THREADS
    if (a.to.q.data != nullptr) attention_backward(a.shape, a.g, a.q, a.k, a.v, a.out, a.lse, a.to, thread_count());
    else attention_forward(a.shape, a.q, a.k, a.v, a.out, a.lse, thread_count());
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"attention", (PyCFunction)(void*)attention, METH_FASTCALL,
     "attention(q, k, v, out, lse, is_causal, scale [, g, gq, gk, gv])\n\nFills in out and lse, or with four more arrays the gradients."},
    {nullptr},
};

}  // namespace

void add_attention(PyObject* module) {
    if (PyModule_AddFunctions(module, methods) == 0) flambeau_register("attention_run", (void*)attention_run);
}
