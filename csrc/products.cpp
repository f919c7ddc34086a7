// Products of small matrices, where the way through Python costs more than the arithmetic: by the inner loops of np.matmul, which call
// NumPy's BLAS and, unlike np.matmul, have nothing to say of infinities and NaNs.
#include "numpy_api.h"

#include <numpy/ufuncobject.h>

#include <cstring>

#include "dtypes.h"
#include "eager.h"
#include "tensors.h"

namespace {

constexpr npy_intp most = 1 << 16;  // multiply-adds; beyond, flambeau/backends/cpu/blas.py chooses

struct Loop {
    PyUFuncGenericFunction function = nullptr;
    void* data = nullptr;
};
Loop loops[2];  // of float32 and float64

// (batch, n, k) times (batch, k, m).
struct Product {
    npy_intp batch = 1, n, k, m;
    npy_intp of_batch[3] = {}, a[2], b[2];  // strides in bytes

    bool is_small() const {
        npy_intp work;
        return n > 0 && k > 0 && m > 0 && !__builtin_mul_overflow(n * batch, k, &work) && !__builtin_mul_overflow(work, m, &work) && work < most;
    }

    // `out` is contiguous.
    void run(PyArrayObject* left, PyArrayObject* right, PyObject* out) const {
        npy_intp item = PyArray_ITEMSIZE(left);
        const Loop& loop = loops[PyArray_TYPE(left) == NPY_DOUBLE];
        char* data[] = {PyArray_BYTES(left), PyArray_BYTES(right), PyArray_BYTES((PyArrayObject*)out)};
        npy_intp sizes[] = {batch, n, k, m};
        npy_intp steps[] = {of_batch[0], of_batch[1], n * m * item, a[0], a[1], b[0], b[1], m * item, item};
        loop.function(data, sizes, steps, loop.data);
    }
};

// The array of a tensor of float32 or float64 with elements; null without an error for others.
PyArrayObject* floats(PyObject* tensor) {
    PyArrayObject* array = cpu_array(tensor);
    int type = array != nullptr ? PyArray_TYPE(array) : NPY_BOOL;
    bool fits = (type == NPY_FLOAT || type == NPY_DOUBLE) && PyArray_ISBEHAVED_RO(array) && PyArray_SIZE(array) > 0;
    return fits && loops[type == NPY_DOUBLE].function != nullptr ? array : nullptr;
}

// The two operands of a product of matrices of this rank, and what there is to do; false where that is not small.
bool read(PyObject* const* args, Py_ssize_t count, int rank, PyArrayObject** left, PyArrayObject** right, Product* product) {
    if (count != 2 || (*left = floats(args[0])) == nullptr || (*right = floats(args[1])) == nullptr) return false;
    PyArrayObject *a = *left, *b = *right;
    if (PyArray_NDIM(a) != rank || PyArray_NDIM(b) != rank || PyArray_TYPE(a) != PyArray_TYPE(b)) return false;
    const npy_intp *sizes = PyArray_DIMS(a) + rank - 2, *others = PyArray_DIMS(b) + rank - 2;
    const npy_intp *steps = PyArray_STRIDES(a) + rank - 2, *other_steps = PyArray_STRIDES(b) + rank - 2;
    if (sizes[1] != others[0] || (rank == 3 && PyArray_DIM(a, 0) != PyArray_DIM(b, 0))) return false;
    *product = {1, sizes[0], sizes[1], others[1], {}, {steps[0], steps[1]}, {other_steps[0], other_steps[1]}};
    if (rank == 3) product->batch = PyArray_DIM(a, 0), product->of_batch[0] = PyArray_STRIDE(a, 0), product->of_batch[1] = PyArray_STRIDE(b, 0);
    return product->is_small();
}

template <int rank>
PyObject* multiply(PyObject* const* args, Py_ssize_t count) {
    PyArrayObject *a, *b;
    Product product;
    if (!read(args, count, rank, &a, &b, &product)) return nullptr;
    npy_intp sizes[] = {product.batch, product.n, product.m};
    PyObject* made = new_array(kind_of(a), rank, sizes + 3 - rank);
    if (made != nullptr) product.run(a, b, made);
    return new_tensor(made);
}

template <class T>
void add_to_rows(PyObject* rows, npy_intp n, npy_intp m, PyArrayObject* bias) {
    npy_intp step = PyArray_STRIDE(bias, 0);
    T* out = (T*)PyArray_DATA((PyArrayObject*)rows);
    for (npy_intp i = 0; i < n; i++)
        for (npy_intp j = 0; j < m; j++) out[i * m + j] += *(const T*)(PyArray_BYTES(bias) + j * step);
}

// linear(x, weight, bias): x (..., k), weight (m, k), bias (m,) or None -> (..., m)
PyObject* linear(PyObject* const* args, Py_ssize_t count) {
    PyArrayObject *x = count == 3 ? floats(args[0]) : nullptr, *weight = x != nullptr ? floats(args[1]) : nullptr, *bias = nullptr;
    if (weight == nullptr || (args[2] != Py_None && (bias = floats(args[2])) == nullptr)) return nullptr;
    int rank = PyArray_NDIM(x), type = PyArray_TYPE(x);
    if (PyArray_NDIM(weight) != 2 || PyArray_TYPE(weight) != type || rank < 2 || (rank > 2 && !PyArray_IS_C_CONTIGUOUS(x))) return nullptr;
    npy_intp m = PyArray_DIM(weight, 0), k = PyArray_DIM(weight, 1), n = PyArray_SIZE(x) / k, sizes[NPY_MAXDIMS];
    if (PyArray_DIM(x, rank - 1) != k) return nullptr;
    if (bias != nullptr && (PyArray_NDIM(bias) != 1 || PyArray_DIM(bias, 0) != m || PyArray_TYPE(bias) != type)) return nullptr;
    Product product{1, n, k, m, {}, {PyArray_STRIDE(x, rank - 2), PyArray_STRIDE(x, rank - 1)}, {PyArray_STRIDE(weight, 1), PyArray_STRIDE(weight, 0)}};
    if (!product.is_small()) return nullptr;
    if (rank > 2) product.a[0] = k * PyArray_ITEMSIZE(x);
    std::memcpy(sizes, PyArray_DIMS(x), rank * sizeof(npy_intp));
    sizes[rank - 1] = m;
    PyObject* made = new_array(kind_of(x), rank, sizes);
    if (made == nullptr) return nullptr;
    product.run(x, weight, made);
    if (bias != nullptr) type == NPY_FLOAT ? add_to_rows<float>(made, n, m, bias) : add_to_rows<double>(made, n, m, bias);
    return new_tensor(made);
}

const struct {
    const char* name;
    Small function;
} all[] = {{"mm", multiply<2>}, {"bmm", multiply<3>}, {"linear", linear}};

}  // namespace

Small find_small(const char* name) {
    for (const auto& row : all)
        if (std::strcmp(row.name, name) == 0) return row.function;
    return nullptr;
}

void add_products(PyObject*) {
    PyObject* numpy = PyImport_ImportModule("numpy");
    PyUFuncObject* matmul = (PyUFuncObject*)(numpy != nullptr ? PyObject_GetAttrString(numpy, "matmul") : nullptr);
    Py_XDECREF(numpy);
    if (matmul == nullptr) return;  // with the error
    for (int i = 0; i < matmul->ntypes; i++) {
        const char* types = matmul->types + i * matmul->nargs;
        if (types[0] != types[1] || types[0] != types[2] || (types[0] != NPY_FLOAT && types[0] != NPY_DOUBLE)) continue;
        loops[types[0] == NPY_DOUBLE] = {matmul->functions[i], matmul->data != nullptr ? (void*)matmul->data[i] : nullptr};
    }
}
