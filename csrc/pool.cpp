// Maximum and average pooling over NumPy arrays (n, c, up to three spatial axes), contiguous or channels-last. What each
// output position sees comes as a table of windows, so that strided, padded, dilated and adaptive pooling are one loop.
#include "module.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "dtypes.h"
#include "instruction_set.h"
#include "parallel.h"
#include "storage.h"

namespace {

constexpr ptrdiff_t pool_channels = 256;  // done at once in channels-last order

struct PoolAxis {
    ptrdiff_t in, out, step;
    const int64_t *start, *end, *count;  // for each output position; `count` is its share of the average's divisor
};
struct Pool {
    PoolAxis axes[3];
    ptrdiff_t channels_stride;  // between neighbouring positions of a plane
    ptrdiff_t divisor;          // 0: the product of the counts
    std::atomic<bool>* outside;  // set when an index leaves its plane
};
enum PoolKind { max_forward_kind, max_backward_kind, average_forward_kind, average_backward_kind, pool_kinds };
using PoolLoop = void (*)(const Pool& p, const void* from, void* to, int64_t* where, ptrdiff_t channels);
struct PoolLoops {
    PoolLoop by_kind[pool_kinds][4];
};

#define LOOPS "pool_loops.h"
#include "by_instruction_set.h"

int column_of(Kind kind) {
    switch (kind) {
        case Kind::f16: return 0;
        case Kind::bf16: return 1;
        case Kind::f32: return 2;
        case Kind::f64: return 3;
        default: return -1;
    }
}

bool channels_last(PyArrayObject* array) {
    int n = PyArray_NDIM(array);
    ptrdiff_t stride = PyArray_ITEMSIZE(array);
    if (PyArray_DIM(array, 1) != 1 && PyArray_STRIDE(array, 1) != stride) return false;
    stride *= PyArray_DIM(array, 1);
    for (int i = n - 1; i >= 0; i--) {
        if (i == 1) continue;
        if (PyArray_DIM(array, i) != 1 && PyArray_STRIDE(array, i) != stride) return false;
        stride *= PyArray_DIM(array, i);
    }
    return true;
}

// Axes that are missing are of length 1.
void read_sizes(PyArrayObject* in, PyArrayObject* out, Pool& p) {
    static const int64_t only[] = {0, 1, 1};
    int missing = 5 - PyArray_NDIM(in);
    for (int i = 0; i < 3; i++) {
        p.axes[i] = {1, 1, 1, only, only + 1, only + 2};
        if (i >= missing) p.axes[i].in = PyArray_DIM(in, i - missing + 2), p.axes[i].out = PyArray_DIM(out, i - missing + 2);
    }
}

// The table `windows` is start, end and count of every output position, axis by axis.
bool read_windows(PyArrayObject* windows, PyObject* steps, int missing, Pool& p) {
    const int64_t* at = (const int64_t*)PyArray_DATA(windows);
    ptrdiff_t length = 0;
    for (int i = missing; i < 3; i++) {
        PoolAxis& axis = p.axes[i];
        axis.step = PyLong_AsSsize_t(PyTuple_GET_ITEM(steps, i - missing));
        if (axis.step < 1) return false;
        length += 3 * axis.out;
        if (length > PyArray_SIZE(windows)) return false;
        axis.start = at, axis.end = at + axis.out, axis.count = at + 2 * axis.out;
        at += 3 * axis.out;
        for (ptrdiff_t o = 0; o < axis.out; o++)
            if (axis.start[o] < 0 || axis.end[o] > axis.in || axis.start[o] >= axis.end[o] || axis.count[o] < 1) return false;
    }
    return length == PyArray_SIZE(windows);
}

// pool(kind, input side, output side, where, windows, steps, divisor): forward kinds read the input side and write the output
// side, backward kinds the other way round. `where`: the maxima's flat indices, None for averages. `windows`: None for the
// gradient of the maximum, which follows `where`.
PyObject* pool(PyObject*, PyObject* args) {
    int kind;
    PyArrayObject *in, *out;
    PyObject *where_object, *windows, *steps;
    Pool p;
    if (!PyArg_ParseTuple(args, "iO!O!OOO!n", &kind, &PyArray_Type, &in, &PyArray_Type, &out, &where_object, &windows,
                          &PyTuple_Type, &steps, &p.divisor))
        return nullptr;
    int ndim = PyArray_NDIM(in);
    bool forward = kind == max_forward_kind || kind == average_forward_kind;
    bool with_where = kind == max_forward_kind || kind == max_backward_kind;
    if (kind < 0 || kind >= pool_kinds || ndim < 3 || ndim > 5 || PyArray_NDIM(out) != ndim || PyTuple_GET_SIZE(steps) != ndim - 2 ||
        PyArray_TYPE(in) != PyArray_TYPE(out) || !PyArray_ISWRITEABLE(forward ? out : in) || PyArray_DIM(in, 0) != PyArray_DIM(out, 0) || PyArray_DIM(in, 1) != PyArray_DIM(out, 1))
        return PyErr_Format(PyExc_ValueError, "pool: the arrays do not fit each other");
    int column = column_of(kind_of(in));
    PoolLoop loop = column < 0 ? nullptr : loops.by_kind[kind][column];
    if (loop == nullptr) return PyErr_Format(PyExc_ValueError, "pool: no loop for this dtype");
    read_sizes(in, out, p);
    if (kind != max_backward_kind &&
        (!PyArray_Check(windows) || kind_of((PyArrayObject*)windows) != Kind::i64 || !PyArray_ISCARRAY_RO((PyArrayObject*)windows) ||
         !read_windows((PyArrayObject*)windows, steps, 5 - ndim, p)))
        return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_ValueError, "pool: the windows leave the input");
    PyArrayObject* where = nullptr;
    if (with_where) {
        where = (PyArrayObject*)where_object;
        if (!PyArray_Check(where_object) || kind_of(where) != Kind::i64 || PyArray_NDIM(where) != ndim ||
            !PyArray_CompareLists(PyArray_DIMS(where), PyArray_DIMS(out), ndim))
            return PyErr_Format(PyExc_ValueError, "pool: `where` must be i64 and of the output's shape");
    }
    bool plain = PyArray_ISCARRAY_RO(in) && PyArray_ISCARRAY_RO(out) && (!where || PyArray_ISCARRAY_RO(where));
    bool last = !plain && channels_last(in) && channels_last(out) && (!where || channels_last(where));
    if (!plain && !last) return PyErr_Format(PyExc_ValueError, "pool: the arrays must be all contiguous or all channels-last");
    ptrdiff_t n = PyArray_DIM(in, 0), channels = PyArray_DIM(in, 1), itemsize = PyArray_ITEMSIZE(in);
    ptrdiff_t in_plane = p.axes[0].in * p.axes[1].in * p.axes[2].in, out_plane = p.axes[0].out * p.axes[1].out * p.axes[2].out;
    if (in_plane > INT32_MAX) return PyErr_Format(PyExc_ValueError, "pool: planes of more than 2^31 positions");
    std::atomic<bool> outside{false};
    p.outside = &outside;
    p.channels_stride = last ? channels : 1;
    int threads = threads_for((in_plane + out_plane) * n * channels * itemsize);
    ptrdiff_t width = last ? std::min(pool_channels, std::max<ptrdiff_t>(16, (channels * n / (4 * threads) + 15) / 16 * 16)) : 1;
    ptrdiff_t blocks = (channels + width - 1) / width;
    const char* from = PyArray_BYTES(forward ? in : out);
    char* to = PyArray_BYTES(forward ? out : in);
    int64_t* places = where ? (int64_t*)PyArray_DATA(where) : nullptr;
    ptrdiff_t from_plane = forward ? in_plane : out_plane, to_plane = forward ? out_plane : in_plane;
    Py_BEGIN_ALLOW_THREADS
    in_parallel(n * blocks, threads, [&](ptrdiff_t begin, ptrdiff_t end) {
        for (ptrdiff_t unit = begin; unit < end; unit++) {
            ptrdiff_t batch = unit / blocks, c = unit % blocks * width;
            auto offset = [&](ptrdiff_t plane) { return last ? batch * plane * channels + c : (batch * channels + c) * plane; };
            loop(p, from + offset(from_plane) * itemsize, to + offset(to_plane) * itemsize, places + offset(out_plane), std::min(width, channels - c));
        }
    });
    Py_END_ALLOW_THREADS
    if (outside) return PyErr_Format(PyExc_ValueError, "pool: an index lies outside its plane");
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"pool", pool, METH_VARARGS,
     "pool(kind, input_side, output_side, where, windows, steps, divisor)\n\n"
     "kind: 0 maximum, 1 its gradient, 2 average, 3 its gradient. flambeau/backends/cpu/pool.py makes the windows."},
    {nullptr},
};

}  // namespace

void add_pool(PyObject* module) { PyModule_AddFunctions(module, methods); }
