// Loops over large NumPy arrays that NumPy itself runs on one thread or element by element: strided copies and casts, row
// gathers and scatter-adds, sums.
#include "module.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "dtypes.h"
#include "convert.h"
#include "instruction_set.h"
#include "parallel.h"
#include "scalar_ops.h"
#include "storage.h"

namespace {

using IndexOf8 = int32_t __attribute__((vector_size(32)));
constexpr int sum_columns = 1024;

using Row = void (*)(char* to, ptrdiff_t to_stride, const char* from, ptrdiff_t from_stride, ptrdiff_t n);
using Tile = void (*)(char* to, ptrdiff_t to_row, const char* from, ptrdiff_t from_row, ptrdiff_t rows, ptrdiff_t columns);
struct Loops {
    Row convert[kind_count][kind_count];  // [to][from]
    Row copy[5];                          // by log2 of the item size
    Tile transpose[5];
    void (*sum_rows[kind_count])(const char* x, ptrdiff_t rows, ptrdiff_t row_stride, ptrdiff_t n, ptrdiff_t stride, double* total);
    void (*sum_down[kind_count])(const char* x, ptrdiff_t rows, ptrdiff_t row_stride, ptrdiff_t columns, ptrdiff_t stride, double* total);
    void (*add_row[kind_count])(char* to, const char* from, ptrdiff_t n);
    void (*add_points[kind_count])(char* table, const int64_t* at, const char* x, ptrdiff_t n);
    void (*scan_rows[2][kind_count])(const char* x, char* out, ptrdiff_t rows, ptrdiff_t n, bool reverse);  // [sum, product]
    void (*scan_down[2][kind_count])(const char* x, char* out, ptrdiff_t rows, ptrdiff_t row_size, ptrdiff_t columns, bool reverse);
    void (*best_rows[2][kind_count])(const char* x, char* out, int64_t* at, ptrdiff_t rows, ptrdiff_t n);  // [least, most]
    void (*best_down[2][kind_count])(const char* x, char* out, int64_t* at, ptrdiff_t rows, ptrdiff_t row_size, ptrdiff_t columns);
};

#define LOOPS "kernel_loops.h"
#include "by_instruction_set.h"

int log2_of(ptrdiff_t itemsize) {
    switch (itemsize) {
        case 1: return 0;
        case 2: return 1;
        case 4: return 2;
        case 8: return 3;
        case 16: return 4;
        default: return -1;
    }
}

// ---- copies ----

struct Axis {
    ptrdiff_t n, to, from;  // length and strides in bytes
};

// The axes of both arrays, outermost first by the strides of `to`, with neighbours that lie end to end merged.
int merged_axes(PyArrayObject* to, PyArrayObject* from, Axis* axes) {
    int count = 0;
    for (int i = 0; i < PyArray_NDIM(to); i++)
        if (PyArray_DIM(to, i) != 1) axes[count++] = {PyArray_DIM(to, i), PyArray_STRIDE(to, i), PyArray_STRIDE(from, i)};
    std::stable_sort(axes, axes + count, [](const Axis& a, const Axis& b) { return a.to > b.to; });
    int kept = 0;
    for (int i = 0; i < count; i++) {
        Axis& last = axes[kept ? kept - 1 : 0];
        if (kept && last.to == axes[i].to * axes[i].n && last.from == axes[i].from * axes[i].n) last = {last.n * axes[i].n, axes[i].to, axes[i].from};
        else axes[kept++] = axes[i];
    }
    if (kept == 0) axes[kept++] = {1, 0, 0};
    return kept;
}

// Calls body(to, from) for the positions [begin, end) of the product of the axes.
template <class Body>
void walk(const Axis* axes, int count, ptrdiff_t begin, ptrdiff_t end, char* to, const char* from, Body body) {
    ptrdiff_t at[NPY_MAXDIMS];
    ptrdiff_t rest = begin;
    for (int i = count - 1; i >= 0; i--) {
        at[i] = rest % axes[i].n;
        rest /= axes[i].n;
        to += at[i] * axes[i].to;
        from += at[i] * axes[i].from;
    }
    for (ptrdiff_t position = begin; position < end; position++) {
        body(to, from);
        for (int i = count - 1; i >= 0; i--) {
            to += axes[i].to;
            from += axes[i].from;
            if (++at[i] < axes[i].n) break;
            to -= axes[i].n * axes[i].to;
            from -= axes[i].n * axes[i].from;
            at[i] = 0;
        }
    }
}

ptrdiff_t product(const Axis* axes, int count) {
    ptrdiff_t total = 1;
    for (int i = 0; i < count; i++) total *= axes[i].n;
    return total;
}

// Cuts axis `which` into pieces of at most `most`; the pieces become an axis before the others. The last may be short.
struct Pieces {
    ptrdiff_t length, count;
};
Pieces cut(ptrdiff_t n, ptrdiff_t most) {
    ptrdiff_t count = (n + most - 1) / most;
    return {(n + count - 1) / std::max<ptrdiff_t>(count, 1), count};
}

void copy_rows(const Axis* axes, int count, Row row, char* to, const char* from, int threads) {
    Axis inner = axes[count - 1];
    ptrdiff_t rows = product(axes, count - 1);
    Pieces pieces = cut(inner.n, rows < 4 * threads ? std::max<ptrdiff_t>(4096, inner.n / (4 * threads) + 1) : inner.n);
    in_parallel(rows * pieces.count, threads, [&](ptrdiff_t begin, ptrdiff_t end) {
        if (pieces.count == 1)
            return walk(axes, count - 1, begin, end, to, from, [&](char* t, const char* f) { row(t, inner.to, f, inner.from, inner.n); });
        Axis with_pieces[NPY_MAXDIMS + 1];
        std::copy(axes, axes + count - 1, with_pieces);
        with_pieces[count - 1] = {pieces.count, pieces.length * inner.to, pieces.length * inner.from};
        ptrdiff_t unit = begin;
        walk(with_pieces, count, begin, end, to, from, [&](char* t, const char* f) {
            ptrdiff_t start = unit++ % pieces.count * pieces.length;
            row(t, inner.to, f, inner.from, std::min(pieces.length, inner.n - start));
        });
    });
}

// `to` is contiguous along the last axis, `from` along axes[across]: tiles that fit the first cache, both ways.
void copy_transposed(const Axis* axes, int count, int across, int size_log2, char* to, const char* from, int threads) {
    constexpr ptrdiff_t side = 64;
    Axis inner = axes[count - 1], crossing = axes[across], outer[NPY_MAXDIMS + 1];
    int outer_count = 0;
    for (int i = 0; i < count - 1; i++)
        if (i != across) outer[outer_count++] = axes[i];
    Pieces bands = cut(crossing.n, std::max(side, side * side / inner.n));
    outer[outer_count++] = {bands.count, bands.length * crossing.to, bands.length * crossing.from};
    Tile tile = loops.transpose[size_log2];
    in_parallel(product(outer, outer_count), threads, [&](ptrdiff_t begin, ptrdiff_t end) {
        ptrdiff_t unit = begin;
        walk(outer, outer_count, begin, end, to, from, [&](char* t, const char* f) {
            ptrdiff_t start = unit++ % bands.count * bands.length, rows = std::min(bands.length, crossing.n - start);
            for (ptrdiff_t j = 0; j < inner.n; j += side)
                tile(t + j * inner.to, crossing.to, f + j * inner.from, inner.from, rows, std::min(side, inner.n - j));
        });
    });
}

void copy_any(PyArrayObject* to, PyArrayObject* from, Row row, int size_log2) {
    Axis axes[NPY_MAXDIMS];
    int count = merged_axes(to, from, axes);
    ptrdiff_t total = product(axes, count), itemsize = PyArray_ITEMSIZE(to);
    if (total == 0) return;
    int threads = threads_for(total * itemsize);
    char* t = PyArray_BYTES(to);
    const char* f = PyArray_BYTES(from);
    const Axis& inner = axes[count - 1];
    if (size_log2 >= 0 && inner.to == itemsize && inner.from != itemsize)
        for (int i = 0; i < count - 1; i++)
            if (axes[i].from == itemsize && axes[i].n >= 4) return copy_transposed(axes, count, i, size_log2, t, f, threads);
    copy_rows(axes, count, row, t, f, threads);
}

// Numbers, dates and ml_dtypes' types: what NumPy itself would copy byte by byte.
bool mere_bytes(PyArrayObject* array) {
    int type = PyArray_TYPE(array);
    return type < NPY_OBJECT || type == NPY_HALF || type == NPY_DATETIME || type == NPY_TIMEDELTA || (type >= NPY_USERDEF && type < NPY_VSTRING);
}

// The loop that turns elements of `from` into elements of `to`, or null; `size_log2` is set where that is a mere copy.
Row conversion(PyArrayObject* to, PyArrayObject* from, int& size_log2) {
    size_log2 = -1;
    if (PyArray_EquivTypes(PyArray_DESCR(to), PyArray_DESCR(from))) {
        if (mere_bytes(to)) size_log2 = log2_of(PyArray_ITEMSIZE(to));
        return size_log2 < 0 ? nullptr : loops.copy[size_log2];
    }
    Kind t = kind_of(to), f = kind_of(from);
    return t == Kind::other || f == Kind::other ? nullptr : loops.convert[(int)t][(int)f];
}

bool arrays(PyObject* const* args, Py_ssize_t count, Py_ssize_t wanted, const char* signature) {
    bool right = count == wanted;
    for (Py_ssize_t i = 0; right && i < wanted; i++) right = PyArray_Check(args[i]);
    if (!right) PyErr_Format(PyExc_TypeError, "expected %s with NumPy arrays", signature);
    return right;
}

bool writeable(PyArrayObject* array) {
    if (PyArray_ISWRITEABLE(array)) return true;
    PyErr_SetString(PyExc_ValueError, "the output array is read-only");
    return false;
}

PyObject* copy_strided(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (!arrays(args, count, 2, "copy_strided(to, from)")) return nullptr;
    PyArrayObject *to = (PyArrayObject*)args[0], *from = (PyArrayObject*)args[1];
    if (!writeable(to)) return nullptr;
    if (PyArray_NDIM(to) != PyArray_NDIM(from) || !PyArray_CompareLists(PyArray_DIMS(to), PyArray_DIMS(from), PyArray_NDIM(to)))
        return PyErr_Format(PyExc_ValueError, "copy_strided: the shapes differ");
    int size_log2;
    Row row = conversion(to, from, size_log2);
    if (row == nullptr || !PyArray_ISBEHAVED_RO(from) || !PyArray_ISBEHAVED(to)) Py_RETURN_FALSE;
    Py_BEGIN_ALLOW_THREADS
    copy_any(to, from, row, size_log2);
    Py_END_ALLOW_THREADS
    Py_RETURN_TRUE;
}

// ---- rows ----

// Where `index` (i64, contiguous) leaves [0, rows): its position, or -1.
ptrdiff_t first_outside(const int64_t* index, ptrdiff_t n, ptrdiff_t rows) {
    for (ptrdiff_t i = 0; i < n; i++)
        if ((uint64_t)index[i] >= (uint64_t)rows) return i;
    return -1;
}

// Checks what take_rows and add_rows share: `table` and `list` contiguous of one dtype, one row of `list` for each index.
bool check_rows(PyArrayObject* table, PyArrayObject* index, PyArrayObject* list) {
    if (kind_of(index) != Kind::i64 || !PyArray_ISCARRAY_RO(index) || !PyArray_ISCARRAY_RO(table) || !PyArray_ISCARRAY_RO(list) ||
        PyArray_NDIM(table) < 1 || !PyArray_EquivTypes(PyArray_DESCR(table), PyArray_DESCR(list)) || !mere_bytes(table)) {
        PyErr_SetString(PyExc_ValueError, "rows: expected contiguous arrays of one dtype and a contiguous i64 index");
        return false;
    }
    ptrdiff_t rows = PyArray_DIM(table, 0), row_size = PyArray_MultiplyList(PyArray_DIMS(table) + 1, PyArray_NDIM(table) - 1);
    if (PyArray_SIZE(list) != PyArray_SIZE(index) * row_size) {
        PyErr_SetString(PyExc_ValueError, "rows: expected one row for each index");
        return false;
    }
    ptrdiff_t bad = first_outside((const int64_t*)PyArray_DATA(index), PyArray_SIZE(index), rows);
    if (bad >= 0) PyErr_Format(PyExc_IndexError, "index out of range in self: index %lld at position %zd of a table of %zd rows",
                               (long long)((const int64_t*)PyArray_DATA(index))[bad], bad, rows);
    return bad < 0;
}

PyObject* take_rows(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (!arrays(args, count, 3, "take_rows(out, table, index)")) return nullptr;
    PyArrayObject *out = (PyArrayObject*)args[0], *table = (PyArrayObject*)args[1], *index = (PyArrayObject*)args[2];
    if (!writeable(out) || !check_rows(table, index, out)) return nullptr;
    const int64_t* at = (const int64_t*)PyArray_DATA(index);
    char* to = PyArray_BYTES(out);
    const char* from = PyArray_BYTES(table);
    ptrdiff_t n = PyArray_SIZE(index), row = n ? PyArray_NBYTES(out) / n : 0;
    Py_BEGIN_ALLOW_THREADS
    in_parallel(n, threads_for(n * row), [&](ptrdiff_t begin, ptrdiff_t end) {
        for (ptrdiff_t i = begin; i < end; i++) memcpy(to + i * row, from + at[i] * row, row);
    });
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

// Each thread adds its own columns of all rows, in the order of the index: the result does not depend on the thread count.
PyObject* add_rows(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (!arrays(args, count, 3, "add_rows(table, index, rows)")) return nullptr;
    PyArrayObject *table = (PyArrayObject*)args[0], *index = (PyArrayObject*)args[1], *rows = (PyArrayObject*)args[2];
    if (!writeable(table) || !check_rows(table, index, rows)) return nullptr;
    Kind kind = kind_of(table);
    auto add_row = kind == Kind::other ? nullptr : loops.add_row[(int)kind];
    if (add_row == nullptr) Py_RETURN_FALSE;
    const int64_t* at = (const int64_t*)PyArray_DATA(index);
    char* to = PyArray_BYTES(table);
    const char* from = PyArray_BYTES(rows);
    ptrdiff_t n = PyArray_SIZE(index), itemsize = PyArray_ITEMSIZE(table), row = n ? PyArray_SIZE(rows) / n : 0;
    int threads = (int)std::min<ptrdiff_t>(threads_for(n * row * itemsize), std::max<ptrdiff_t>(1, row * itemsize / 64));
    Py_BEGIN_ALLOW_THREADS
    if (row == 1) loops.add_points[(int)kind](to, at, from, n);
    else in_parallel(row, threads, [&](ptrdiff_t begin, ptrdiff_t end) {
        for (ptrdiff_t i = 0; i < n; i++) add_row(to + (at[i] * row + begin) * itemsize, from + (i * row + begin) * itemsize, end - begin);
    });
    Py_END_ALLOW_THREADS
    Py_RETURN_TRUE;
}

// ---- sums ----

// Sums over `summed`; `kept` are the other axes in the order of memory, `to` the strides of the totals. Neighbouring results are
// made together: as rows, if their elements lie closer than they do, else as columns.
void sum_over(Axis summed, Axis* kept, int count, Kind kind, double* total, const char* x) {
    if (count == 0) kept[count++] = {1, 0, 0};
    Axis inner = kept[--count];
    ptrdiff_t outer = product(kept, count), size = outer * inner.n;
    int threads = threads_for(size * summed.n * size_of(kind));
    bool rows = inner.n == 1 || summed.from <= inner.from;
    // Parts of the summed axis, of sizes that do not depend on the number of threads, are added in order.
    ptrdiff_t most = rows && size >= 16 ? 1 : std::clamp<ptrdiff_t>(summed.n * (rows ? 1 : inner.n) / 8192, 1, 16);
    Pieces parts = cut(summed.n, (summed.n + most - 1) / most), pieces = cut(inner.n, sum_columns);
    std::unique_ptr<double[]> partial(parts.count > 1 ? new double[size * parts.count] : nullptr);
    double* sums = parts.count > 1 ? partial.get() : total;
    in_parallel(outer * pieces.count * parts.count, threads, [&](ptrdiff_t begin, ptrdiff_t end) {
        for (ptrdiff_t unit = begin; unit < end; unit++) {
            ptrdiff_t part = unit / (outer * pieces.count), start = part * parts.length, n = std::min(parts.length, summed.n - start);
            ptrdiff_t where = unit % (outer * pieces.count), column = where % pieces.count * pieces.length, rest = where / pieces.count;
            ptrdiff_t columns = std::min(pieces.length, inner.n - column);
            const char* from = x + start * summed.from + column * inner.from;
            for (int i = count - 1, r = 0; i >= 0; i--, rest = r) r = rest / kept[i].n, from += rest % kept[i].n * kept[i].from;
            double* to = sums + part * size + where / pieces.count * inner.n + column;
            if (rows) loops.sum_rows[(int)kind](from, columns, inner.from, n, summed.from, to);
            else loops.sum_down[(int)kind](from, n, summed.from, columns, inner.from, to);
        }
    });
    if (parts.count > 1)
        for (ptrdiff_t i = 0; i < size; i++) {
            double sum = 0;
            for (ptrdiff_t p = 0; p < parts.count; p++) sum += sums[p * size + i];
            total[i] = sum;
        }
}

// sum_axis(out, x, axis): x of any strides, its dimensions in the order of memory; out contiguous f64 of x's shape without `axis`.
PyObject* sum_axis(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (!arrays(args, count - 1, 2, "sum_axis(out, x, axis)")) return nullptr;
    PyArrayObject *out = (PyArrayObject*)args[0], *x = (PyArrayObject*)args[1];
    Py_ssize_t axis = PyLong_AsSsize_t(args[2]);
    if (!writeable(out) || PyErr_Occurred()) return nullptr;
    Kind kind = kind_of(x);
    if (kind == Kind::other || loops.sum_rows[(int)kind] == nullptr || !PyArray_ISBEHAVED_RO(x)) Py_RETURN_FALSE;
    Axis kept[NPY_MAXDIMS + 1];
    int rank = 0;
    bool right = axis >= 0 && axis < PyArray_NDIM(x) && PyArray_NDIM(out) == PyArray_NDIM(x) - 1 && PyArray_SIZE(x) != 0 &&
                 PyArray_ISCARRAY(out) && kind_of(out) == Kind::f64;
    for (int i = 0; right && i < PyArray_NDIM(x); i++) {
        if (i == axis) continue;
        Axis here = {PyArray_DIM(x, i), 0, PyArray_STRIDE(x, i)};
        right = here.n == PyArray_DIM(out, i - (i > axis));
        if (rank && kept[rank - 1].from == here.from * here.n) kept[rank - 1] = {kept[rank - 1].n * here.n, 0, here.from};
        else kept[rank++] = here;
    }
    if (!right) return PyErr_Format(PyExc_ValueError, "sum_axis: expected x, not empty, an axis of it, and out, contiguous f64, of its shape without");
    Py_BEGIN_ALLOW_THREADS
    sum_over({PyArray_DIM(x, axis), 0, PyArray_STRIDE(x, axis)}, kept, rank, kind, (double*)PyArray_DATA(out), PyArray_BYTES(x));
    Py_END_ALLOW_THREADS
    Py_RETURN_TRUE;
}

// ---- scans ----

// Cuts x (outer, n, inner), contiguous, for loops along n: rows(from, at, count, n) where they lie end to end, else
// down(from, at, n, inner, columns); `at` is the element of x where the piece begins.
template <class Rows, class Down>
void scan_blocks(PyArrayObject* x, Rows rows, Down down) {
    ptrdiff_t outer = PyArray_DIM(x, 0), n = PyArray_DIM(x, 1), inner = PyArray_DIM(x, 2), itemsize = PyArray_ITEMSIZE(x);
    if (PyArray_SIZE(x) == 0) return;
    const char* from = PyArray_BYTES(x);
    Pieces columns = cut(inner, sum_columns);
    Py_BEGIN_ALLOW_THREADS
    in_parallel(outer * columns.count, threads_for(outer * n * inner * itemsize), [&](ptrdiff_t begin, ptrdiff_t end) {
        if (inner == 1) return rows(from + begin * n * itemsize, begin * n, end - begin, n);
        for (ptrdiff_t unit = begin; unit < end; unit++) {
            ptrdiff_t column = unit % columns.count * columns.length, at = unit / columns.count * n * inner + column;
            down(from + at * itemsize, at, n, inner, std::min(columns.length, inner - column));
        }
    });
    Py_END_ALLOW_THREADS
}

// scan(out, x, product, reverse): x and out (outer, n, inner), contiguous; sums or products of what comes before along n, or after.
PyObject* scan(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 4 || !arrays(args, 2, 2, "scan(out, x, product, reverse)")) return nullptr;
    PyArrayObject *out = (PyArrayObject*)args[0], *x = (PyArrayObject*)args[1];
    bool product = args[2] == Py_True, reverse = args[3] == Py_True;
    if (!writeable(out)) return nullptr;
    Kind kind = kind_of(x);
    if (kind == Kind::other || loops.scan_rows[product][(int)kind] == nullptr) Py_RETURN_FALSE;
    if (PyArray_NDIM(x) != 3 || PyArray_NDIM(out) != 3 || !PyArray_CompareLists(PyArray_DIMS(x), PyArray_DIMS(out), 3) ||
        kind_of(out) != kind || !PyArray_ISCARRAY(out) || !PyArray_ISCARRAY_RO(x))
        return PyErr_Format(PyExc_ValueError, "scan: expected contiguous x and out (outer, n, inner) of one dtype");
    char* to = PyArray_BYTES(out);
    scan_blocks(x, [&](const char* from, ptrdiff_t at, ptrdiff_t rows, ptrdiff_t n) {
        loops.scan_rows[product][(int)kind](from, to + at * PyArray_ITEMSIZE(x), rows, n, reverse);
    }, [&](const char* from, ptrdiff_t at, ptrdiff_t n, ptrdiff_t inner, ptrdiff_t columns) {
        loops.scan_down[product][(int)kind](from, to + at * PyArray_ITEMSIZE(x), n, inner, columns, reverse);
    });
    Py_RETURN_TRUE;
}

// scan_best(out, places, x, largest): as `scan`, the best of what comes before and the last place where it stands.
PyObject* scan_best(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 4 || !arrays(args, 3, 3, "scan_best(out, places, x, largest)")) return nullptr;
    PyArrayObject *out = (PyArrayObject*)args[0], *places = (PyArrayObject*)args[1], *x = (PyArrayObject*)args[2];
    bool largest = args[3] == Py_True;
    if (!writeable(out) || !writeable(places)) return nullptr;
    Kind kind = kind_of(x);
    if (kind == Kind::other) Py_RETURN_FALSE;
    if (PyArray_NDIM(x) != 3 || PyArray_NDIM(out) != 3 || PyArray_NDIM(places) != 3 || !PyArray_CompareLists(PyArray_DIMS(x), PyArray_DIMS(out), 3) ||
        !PyArray_CompareLists(PyArray_DIMS(x), PyArray_DIMS(places), 3) || kind_of(out) != kind || kind_of(places) != Kind::i64 ||
        !PyArray_ISCARRAY(out) || !PyArray_ISCARRAY(places) || !PyArray_ISCARRAY_RO(x))
        return PyErr_Format(PyExc_ValueError, "scan_best: expected contiguous x and out (outer, n, inner) of one dtype and i64 places");
    char* to = PyArray_BYTES(out);
    int64_t* found = (int64_t*)PyArray_DATA(places);
    scan_blocks(x, [&](const char* from, ptrdiff_t at, ptrdiff_t rows, ptrdiff_t n) {
        loops.best_rows[largest][(int)kind](from, to + at * PyArray_ITEMSIZE(x), found + at, rows, n);
    }, [&](const char* from, ptrdiff_t at, ptrdiff_t n, ptrdiff_t inner, ptrdiff_t columns) {
        loops.best_down[largest][(int)kind](from, to + at * PyArray_ITEMSIZE(x), found + at, n, inner, columns);
    });
    Py_RETURN_TRUE;
}

// ---- fill ----

PyObject* fill(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (!arrays(args, count, 2, "fill(out, value)")) return nullptr;
    PyArrayObject *out = (PyArrayObject*)args[0], *value = (PyArrayObject*)args[1];
    if (!writeable(out)) return nullptr;
    ptrdiff_t itemsize = PyArray_ITEMSIZE(out), n = PyArray_SIZE(out);
    int size_log2 = log2_of(itemsize);
    if (!PyArray_EquivTypes(PyArray_DESCR(out), PyArray_DESCR(value)) || PyArray_SIZE(value) != 1 || size_log2 < 0 || !mere_bytes(out) ||
        !PyArray_ISCARRAY(out))
        Py_RETURN_FALSE;
    // A block of copies first; then memcpy, which is as quick as stores get.
    alignas(64) char block[4096];
    for (ptrdiff_t i = 0; i < (ptrdiff_t)sizeof block; i += itemsize) memcpy(block + i, PyArray_DATA(value), itemsize);
    char* to = PyArray_BYTES(out);
    ptrdiff_t bytes = n * itemsize;
    Py_BEGIN_ALLOW_THREADS
    in_parallel((bytes + sizeof block - 1) / sizeof block, threads_for(bytes), [&](ptrdiff_t begin, ptrdiff_t end) {
        for (ptrdiff_t b = begin; b < end; b++) memcpy(to + b * sizeof block, block, std::min<ptrdiff_t>(sizeof block, bytes - b * sizeof block));
    });
    Py_END_ALLOW_THREADS
    Py_RETURN_TRUE;
}

PyMethodDef methods[] = {
    {"copy_strided", (PyCFunction)(void*)copy_strided, METH_FASTCALL,
     "copy_strided(to, from) -> bool\n\nCopies and casts between arrays of one shape; False for dtypes that it does not know."},
    {"fill", (PyCFunction)(void*)fill, METH_FASTCALL, "fill(out, value) -> bool\n\nA one-element array of out's dtype into all of contiguous `out`."},
    {"take_rows", (PyCFunction)(void*)take_rows, METH_FASTCALL, "take_rows(out, table, index)\n\nout[i] = table[index[i]]; IndexError outside [0, rows)."},
    {"add_rows", (PyCFunction)(void*)add_rows, METH_FASTCALL, "add_rows(table, index, rows) -> bool\n\ntable[index[i]] += rows[i], in order."},
    {"scan", (PyCFunction)(void*)scan, METH_FASTCALL,
     "scan(out, x, product, reverse) -> bool\n\nout (outer, n, inner) = running sums or products of x along n, or from its end."},
    {"scan_best", (PyCFunction)(void*)scan_best, METH_FASTCALL,
     "scan_best(out, places, x, largest) -> bool\n\nRunning maxima or minima of x (outer, n, inner) along n, NaN above all, and the last place where each stands."},
    {"sum_axis", (PyCFunction)(void*)sum_axis, METH_FASTCALL, "sum_axis(out, x, axis) -> bool\n\nout (f64, contiguous) = x summed over one axis; False for dtypes that it does not know."},
    {nullptr},
};

}  // namespace

ConvertRow find_conversion(Kind to, Kind from) {
    if (to != from) return loops.convert[(int)to][(int)from];
    return loops.copy[log2_of(size_of(to))];
}

void add_kernels(PyObject* module) { PyModule_AddFunctions(module, methods); }
