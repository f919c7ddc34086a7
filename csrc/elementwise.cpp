// Elementwise: one scalar operation on CPU tensors, from the call to the new tensor without Python: operands of one dtype, in any
// layout and of any size, on several threads where that pays. It answers NotImplemented for the rest: other devices, fake tensors,
// operands of several dtypes, gradients wanted.
#include "module.h"

#include <algorithm>

#include "dtypes.h"
#include "eager.h"
#include "gpu_program.h"
#include "parallel.h"
#include "scalar_ops.h"
#include "state.h"
#include "tensors.h"

namespace {

constexpr npy_intp most_apart = 1 << 15;      // elements with operands in several memory orders: compiled loops go through tiles
constexpr npy_intp worth_threads = 1 << 16;   // additions
constexpr int max_rank = 16;
constexpr ptrdiff_t block = 256;

struct Elementwise {
    PyObject_HEAD
    const ScalarLoop* loops[kind_count];
    int arity;
    bool selects;  // the first operand is a condition
    PyObject* name;
    PyObject* launched;  // GpuPrograms of the primitive, once a GPU is used
    vectorcallfunc vectorcall;
};

union Number {
    double f64;
    float f32;
    int64_t i64;
    int32_t i32;
    int16_t i16;
    int8_t i8;
    uint8_t u8;
};

// `object`, a Python number, as an element of `kind`; false where that would change its value or category.
bool as_element(PyObject* object, Kind kind, Number* out) {
    if (kind == Kind::f16 || kind == Kind::bf16) kind = Kind::f32;
    bool is_float = kind == Kind::f32 || kind == Kind::f64;
    double value;
    if (PyFloat_CheckExact(object) && is_float) {
        value = PyFloat_AS_DOUBLE(object);
    } else if (PyLong_CheckExact(object)) {
        int overflow;
        long long whole = PyLong_AsLongLongAndOverflow(object, &overflow);
        if (overflow) return false;
        if (kind == Kind::i64) return out->i64 = whole, true;
        if (kind == Kind::i32) return out->i32 = (int32_t)whole, out->i32 == whole;
        if (kind == Kind::i16) return out->i16 = (int16_t)whole, out->i16 == whole;
        if (kind == Kind::i8) return out->i8 = (int8_t)whole, out->i8 == whole;
        if (kind == Kind::u8) return out->u8 = (uint8_t)whole, out->u8 == whole;
        value = (double)whole;
    } else {
        return false;
    }
    if (kind == Kind::f64) return out->f64 = value, true;
    if (kind == Kind::f32) return out->f32 = (float)value, std::isinf(out->f32) == std::isinf(value);
    return false;
}

// The operands of one call, brought to one shape.
struct Operands {
    int count = 0, rank = 0;
    PyArrayObject* arrays[3] = {};  // null for a number
    Number numbers[3];
    npy_intp sizes[max_rank];
    const char* data[3];
    npy_intp size = 1;
    bool same_shape = true;

    bool broadcast() {
        for (int k = 0; k < count; k++)
            if (arrays[k] != nullptr) rank = std::max(rank, PyArray_NDIM(arrays[k]));
        if (rank > max_rank) return false;
        for (int d = 0; d < rank; d++) sizes[d] = 1;
        PyArrayObject* first = nullptr;
        for (int k = 0; k < count; k++) {
            PyArrayObject* array = arrays[k];
            if (array == nullptr) continue;
            int offset = rank - PyArray_NDIM(array);
            if (first == nullptr) first = array;
            same_shape = same_shape && PyArray_SAMESHAPE(first, array);
            for (int d = offset; d < rank; d++) {
                npy_intp n = PyArray_DIM(array, d - offset);
                if (n == 1 || n == sizes[d]) continue;
                if (sizes[d] != 1) return false;
                sizes[d] = n;
            }
        }
        for (int d = 0; d < rank; d++) size *= sizes[d];
        return true;
    }

    // Strides in bytes of operand k over the common shape.
    void strides(int k, npy_intp* out) const {
        PyArrayObject* array = arrays[k];
        int offset = array != nullptr ? rank - PyArray_NDIM(array) : rank;
        for (int d = 0; d < rank; d++) out[d] = d < offset || PyArray_DIM(array, d - offset) == 1 ? 0 : PyArray_STRIDE(array, d - offset);
    }
};

// What is to run: the loop over rows of the result (place 0) and its operands, the narrow floats among them by way of float32.
struct Run {
    const ScalarLoop* loop;
    int places = 1, rank = 0;
    bool wide = false;
    ConvertRow widen[4] = {}, narrow = nullptr;
    int items[4] = {};
    char* data[4] = {};
    npy_intp sizes[max_rank], strides[4][max_rank] = {};

    void row(char* const* at, const npy_intp* steps, npy_intp n) const {
        const char* in[3] = {at[1], at[2], at[3]};
        if (!wide) return loop->run(at[0], steps[0], in, steps + 1, n);
        float room[4][block];
        npy_intp wide_steps[3];
        for (npy_intp done = 0; done < n; done += block) {
            npy_intp m = std::min<npy_intp>(block, n - done);
            for (int k = 1; k < places; k++) {
                in[k - 1] = at[k] + done * steps[k], wide_steps[k - 1] = steps[k];
                if (widen[k] == nullptr) continue;
                widen[k]((char*)room[k], sizeof(float), in[k - 1], steps[k], steps[k] == 0 ? 1 : m);
                in[k - 1] = (const char*)room[k], wide_steps[k - 1] = steps[k] == 0 ? 0 : sizeof(float);
            }
            char* out = at[0] + done * steps[0];
            if (narrow == nullptr) loop->run(out, steps[0], in, wide_steps, m);
            else loop->run((char*)room[0], sizeof(float), in, wide_steps, m), narrow(out, steps[0], (const char*)room[0], sizeof(float), m);
        }
    }

    // Dimensions in the order of the result's memory, those of size 1 left out, merged where they lie end to end in every operand.
    void simplify() {
        int order[max_rank], kept = 0;
        for (int d = 0; d < rank; d++)
            if (sizes[d] != 1) order[kept++] = d;
        std::stable_sort(order, order + kept, [&](int a, int b) { return strides[0][a] > strides[0][b]; });
        npy_intp old_sizes[max_rank], old[4][max_rank];
        std::copy(sizes, sizes + rank, old_sizes);
        for (int k = 0; k < places; k++) std::copy(strides[k], strides[k] + rank, old[k]);
        rank = 0;
        for (int i = 0; i < kept; i++) {
            int d = order[i];
            bool joined = rank > 0;
            for (int k = 0; joined && k < places; k++) joined = strides[k][rank - 1] == old[k][d] * old_sizes[d];
            if (joined) sizes[rank - 1] *= old_sizes[d];
            else sizes[rank++] = old_sizes[d];
            for (int k = 0; k < places; k++) strides[k][rank - 1] = old[k][d];
        }
        if (rank == 0) {
            rank = 1, sizes[0] = 1;
            for (int k = 0; k < places; k++) strides[k][0] = items[k];
        }
    }

    bool is_apart() const {  // some operand's elements along the rows
        for (int k = 0; k < places; k++)
            if (strides[k][rank - 1] != 0 && strides[k][rank - 1] != items[k]) return true;
        return false;
    }

    void rows(npy_intp begin, npy_intp end) const {
        char* at[4] = {data[0], data[1], data[2], data[3]};
        npy_intp index[max_rank], steps[4] = {}, left = begin;
        int last = rank - 1;
        for (int d = last - 1; d >= 0; d--) {
            index[d] = left % sizes[d], left /= sizes[d];
            for (int k = 0; k < places; k++) at[k] += index[d] * strides[k][d];
        }
        for (int k = 0; k < places; k++) steps[k] = strides[k][last];
        for (npy_intp done = begin; done < end; done++) {
            row(at, steps, sizes[last]);
            for (int d = last - 1; d >= 0; d--) {
                for (int k = 0; k < places; k++) at[k] += strides[k][d];
                if (++index[d] < sizes[d]) break;
                for (int k = 0; k < places; k++) at[k] -= strides[k][d] * sizes[d];
                index[d] = 0;
            }
        }
    }

    void all(npy_intp size) const {
        npy_intp work = size * (loop->cost + (narrow != nullptr ? 2 : 0)), length = sizes[rank - 1];
        if (size == 0) return;
        if (work < worth_threads) return rows(0, size / length);
        Py_BEGIN_ALLOW_THREADS
        int threads = (int)std::min<npy_intp>(thread_count(), work / (worth_threads / 2));
        if (rank > 1) {
            in_parallel(size / length, threads, [&](ptrdiff_t begin, ptrdiff_t end) { rows(begin, end); });
        } else {
            in_parallel((length + block - 1) / block, threads, [&](ptrdiff_t begin, ptrdiff_t end) {
                char* at[4] = {};
                npy_intp steps[4] = {}, first = begin * block, n = std::min<npy_intp>(end * block, length) - first;
                for (int k = 0; k < places; k++) steps[k] = strides[k][0], at[k] = data[k] + first * steps[k];
                if (n > 0) row(at, steps, n);
            });
        }
        Py_END_ALLOW_THREADS
    }
};

// Whether the tensors among the operands have the same sizes.
bool are_alike(PyObject* const* args, Py_ssize_t count) {
    PyObject* first = nullptr;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject* layout = is_tensor(args[i]) ? layout_of(args[i]) : nullptr;
        if (layout == nullptr && (is_tensor(args[i]) || PyErr_Occurred())) return PyErr_Clear(), false;
        if (layout == nullptr) continue;
        if (first == nullptr) first = PyTuple_GET_ITEM(layout, 0);
        else if (PyObject_RichCompareBool(first, PyTuple_GET_ITEM(layout, 0), Py_EQ) != 1) return PyErr_Clear(), false;
    }
    return true;
}

enum class Outcome { done, declined, failed };

bool is_narrow(Kind kind) { return kind == Kind::f16 || kind == Kind::bf16; }

bool compares(const Elementwise* self) {
    const ScalarLoop* loop = self->loops[(int)Kind::f32];
    return loop != nullptr && loop->out == Kind::boolean;
}

float as_narrow(float x, Kind kind) {
    uint16_t bits;
    find_conversion(kind, Kind::f32)((char*)&bits, sizeof bits, (const char*)&x, sizeof x, 1);
    find_conversion(Kind::f32, kind)((char*)&x, sizeof x, (const char*)&bits, sizeof bits, 1);
    return x;
}

// Whether narrow floats hold what a number is, so that a GPU's, of whatever dtype, may be compared with it as it is.
bool is_held(PyObject* number) {
    if (!PyFloat_CheckExact(number)) return true;
    double x = PyFloat_AS_DOUBLE(number);
    return x != x || (as_narrow((float)x, Kind::f16) == x && as_narrow((float)x, Kind::bf16) == x);
}

// The loop for these operands, whose data it notes; null where there is none. `rounds`: a number that narrow floats are compared
// with is taken as one of them; the primitives compare it as a float32.
const ScalarLoop* find_loop(const Elementwise* self, Operands& all, PyObject* const* args, Kind kind, bool rounds, bool* narrow) {
    *narrow = is_narrow(kind) && self->loops[(int)kind] == nullptr;
    const ScalarLoop* loop = self->loops[(int)(*narrow ? Kind::f32 : kind)];
    if (loop == nullptr || (self->selects && all.arrays[0] == nullptr)) return nullptr;
    for (int k = 0; k < all.count; k++) {
        if (all.arrays[k] != nullptr) all.data[k] = PyArray_BYTES(all.arrays[k]);
        else if ((!is_narrow(kind) || *narrow) && as_element(args[k], kind, &all.numbers[k])) all.data[k] = (const char*)&all.numbers[k];
        else return nullptr;
        if (rounds && *narrow && all.arrays[k] == nullptr && loop->out == Kind::boolean) all.numbers[k].f32 = as_narrow(all.numbers[k].f32, kind);
    }
    return loop;
}

// Strides of a result, by the rule of core/size.py's elementwise_strides. False: row-major.
class MemoryOrder {
public:
    MemoryOrder(const Operands& all, int item) : sizes_(all.sizes), rank_(all.rank) {
        for (int k = 0; k < all.count; k++) {
            PyArrayObject* array = all.arrays[k];
            if (array == nullptr) continue;
            int offset = rank_ - PyArray_NDIM(array), scale = PyArray_ITEMSIZE(array);
            for (int d = 0; d < rank_; d++) {
                bool repeats = d < offset || (PyArray_DIM(array, d - offset) == 1 && sizes_[d] != 1);
                told_[count_][d] = repeats ? 0 : PyArray_STRIDE(array, d - offset) / scale * item;
            }
            count_++;
        }
        for (int d = 0; d < rank_; d++) order_[d] = d;
    }

    bool strides(npy_intp item, npy_intp* out) {
        dense(item, out);
        if (everybody(out)) return false;
        if (rank_ == 4 || rank_ == 5) {
            for (int d = 1; d < rank_ - 1; d++) order_[d] = d + 1;
            order_[rank_ - 1] = 1;
            dense(item, out);
            if (everybody(out)) return true;
        }
        bool alike = true;
        for (int k = 1; k < count_; k++) alike = alike && std::equal(told_[0], told_[0] + rank_, told_[k]);
        sort();
        dense(item, out);
        if (alike && everybody(out)) std::copy(told_[0], told_[0] + rank_, out);
        return true;
    }

private:
    void dense(npy_intp item, npy_intp* out) const {
        for (int i = rank_ - 1; i >= 0; i--) out[order_[i]] = item, item *= std::max<npy_intp>(sizes_[order_[i]], 1);
    }

    bool everybody(const npy_intp* strides) const {
        for (int k = 0; k < count_; k++)
            for (int d = 0; d < rank_; d++)
                if (sizes_[d] != 1 && told_[k][d] != strides[d]) return false;
        return true;
    }

    int verdict(int inner, int outer) const {
        for (int k = 0; k < count_; k++) {
            npy_intp a = told_[k][inner], b = told_[k][outer];
            if (a == 0 || b == 0) continue;
            if (a != b) return a > b ? 1 : -1;
            if (sizes_[inner] > sizes_[outer]) return 1;
        }
        return 0;
    }

    void sort() {
        for (int d = 0; d < rank_; d++) order_[d] = rank_ - 1 - d;
        for (int start = 1; start < rank_; start++) {
            for (int i = start - 1, at = start; i >= 0; i--) {
                int told = verdict(order_[i], order_[at]);
                if (told < 0) break;
                if (told > 0) std::swap(order_[i], order_[at]), at = i;
            }
        }
        std::reverse(order_, order_ + rank_);
    }

    const npy_intp* sizes_;
    int rank_, count_ = 0, order_[max_rank];
    npy_intp told_[3][max_rank];
};

bool overlap(PyArrayObject* a, PyArrayObject* b) {
    auto bounds = [](PyArrayObject* x, char** low, char** high) {
        *low = *high = PyArray_BYTES(x);
        for (int d = 0; d < PyArray_NDIM(x); d++) (PyArray_STRIDE(x, d) < 0 ? *low : *high) += (PyArray_DIM(x, d) - 1) * PyArray_STRIDE(x, d);
        *high += PyArray_ITEMSIZE(x);
    };
    char *a_low, *a_high, *b_low, *b_high;
    bounds(a, &a_low, &a_high), bounds(b, &b_low, &b_high);
    return a_low < b_high && b_low < a_high;
}

bool same_place(PyArrayObject* a, PyArrayObject* b) {
    return PyArray_BYTES(a) == PyArray_BYTES(b) && PyArray_NDIM(a) == PyArray_NDIM(b) && PyArray_CompareLists(PyArray_DIMS(a), PyArray_DIMS(b), PyArray_NDIM(a)) &&
           PyArray_CompareLists(PyArray_STRIDES(a), PyArray_STRIDES(b), PyArray_NDIM(a));
}

// Whether the result may be written over the first operand.
bool fits_first(const Operands& all, Kind kind, const ScalarLoop* loop, bool narrow) {
    PyArrayObject* target = all.arrays[0];
    if (target == nullptr || (narrow ? loop->out != Kind::f32 : loop->out != kind) || !PyArray_ISWRITEABLE(target) || PyArray_NDIM(target) != all.rank) return false;
    for (int d = 0; d < all.rank; d++)
        if (PyArray_DIM(target, d) != all.sizes[d] || (PyArray_STRIDE(target, d) == 0 && all.sizes[d] > 1)) return false;
    for (int k = 1; k < all.count; k++)
        if (all.arrays[k] != nullptr && !same_place(target, all.arrays[k]) && overlap(target, all.arrays[k])) return false;
    return true;
}

PyObject* new_result(const Operands& all, Kind kind, npy_intp* strides) {
    if (strides == nullptr && kind != Kind::bf16) return new_array(kind, all.rank, all.sizes);
    PyArray_Descr* descr = kind == Kind::boolean ? PyArray_DescrFromType(NPY_BOOL) : nullptr;
    for (int k = 0; descr == nullptr; k++)
        if (all.arrays[k] != nullptr && kind_of(all.arrays[k]) == kind) descr = (PyArray_Descr*)Py_NewRef((PyObject*)PyArray_DESCR(all.arrays[k]));
    return PyArray_NewFromDescr(&PyArray_Type, descr, all.rank, (npy_intp*)all.sizes, strides, nullptr, 0, nullptr);
}

// Runs the loop over operands that were found to fit it. `out`: a new array, or `into` itself; null and no error where a compiled
// loop would do better (`unless_apart`).
PyObject* run(Operands& all, const ScalarLoop* loop, Kind kind, bool narrow, PyArrayObject* into, bool unless_apart) {
    Run r;
    r.loop = loop, r.places = 1 + all.count, r.wide = narrow;
    Kind out_kind = narrow && loop->out == Kind::f32 ? kind : loop->out;
    r.items[0] = size_of(out_kind);
    bool selects = loop->selects;
    bool plain = all.same_shape;
    for (int k = 0; k < all.count; k++) {
        bool condition = selects && k == 0;
        r.items[k + 1] = all.arrays[k] == nullptr ? 0 : condition ? 1 : size_of(kind);
        r.data[k + 1] = (char*)all.data[k];
        if (narrow && all.arrays[k] != nullptr) r.widen[k + 1] = find_conversion(Kind::f32, kind);
        plain = plain && (all.arrays[k] == nullptr || PyArray_IS_C_CONTIGUOUS(all.arrays[k]));
    }
    plain = plain && (into == nullptr || PyArray_IS_C_CONTIGUOUS(into));
    if (narrow && loop->out == Kind::f32) r.narrow = find_conversion(kind, Kind::f32);
    npy_intp strides[max_rank];
    bool ordered = !plain && into == nullptr && MemoryOrder(all, r.items[0]).strides(r.items[0], strides);
    if (plain) {
        r.rank = 1, r.sizes[0] = all.size;
        for (int k = 0; k < r.places; k++) r.strides[k][0] = r.items[k];
    } else {
        r.rank = all.rank;
        std::copy(all.sizes, all.sizes + all.rank, r.sizes);
        npy_intp step = r.items[0];
        for (int d = all.rank - 1; d >= 0; d--) {
            r.strides[0][d] = into != nullptr ? PyArray_STRIDE(into, d) : ordered ? strides[d] : step;
            step *= all.sizes[d];
        }
        for (int k = 0; k < all.count; k++) all.strides(k, r.strides[k + 1]);
        r.simplify();
        if (unless_apart && all.size > most_apart && r.is_apart()) return nullptr;
    }
    PyObject* out = into != nullptr ? Py_NewRef((PyObject*)into)
                                    : new_result(all, out_kind, ordered ? strides : nullptr);
    if (out == nullptr) return nullptr;
    r.data[0] = PyArray_BYTES((PyArrayObject*)out);
    r.all(all.size);
    return out;
}

// Fills in `out` (a new array, or the target's own).
Outcome compute(const Elementwise* self, PyObject* const* args, Py_ssize_t count, Asked asked, bool into_first, PyObject** out) {
    const DispatchState& state = dispatch_state;
    if (state.fake || (asked != Asked::below && state.word != 0) || count != self->arity) return Outcome::declined;
    bool grads = asked == Asked::plainly && state.grad_enabled;
    Operands all;
    all.count = (int)count;
    Kind kind = Kind::other;
    bool first = true;
    for (int k = 0; k < count; k++) {
        PyArrayObject* array = cpu_array(args[k]);
        if (array == nullptr) continue;
        if (!PyArray_ISBEHAVED_RO(array) || (grads && !needs_no_grad(args[k]))) return Outcome::declined;
        Kind own = kind_of(array);
        all.arrays[k] = array;
        if (self->selects && k == 0) {
            if (own != Kind::boolean) return Outcome::declined;
        } else {
            if (own == Kind::other || (!first && own != kind)) return Outcome::declined;
            kind = own, first = false;
        }
    }
    if (kind == Kind::other) return Outcome::declined;
    bool narrow;
    const ScalarLoop* loop = find_loop(self, all, args, kind, asked != Asked::below, &narrow);
    if (loop == nullptr || !all.broadcast() || (asked == Asked::to_record && !all.same_shape)) return Outcome::declined;
    if (into_first) {
        if (all.arrays[0] == nullptr || refuses_writes(args[0]) || !fits_first(all, kind, loop, narrow)) return Outcome::declined;
        PyObject* written = run(all, loop, kind, narrow, all.arrays[0], true);
        if (written == nullptr) return PyErr_Occurred() ? Outcome::failed : Outcome::declined;
        Py_DECREF(written);
        *out = args[0];
        return Outcome::done;
    }
    *out = run(all, loop, kind, narrow, nullptr, true);
    return *out != nullptr ? Outcome::done : PyErr_Occurred() ? Outcome::failed : Outcome::declined;
}

// The same on arrays and numbers of NumPy: an array, or NotImplemented.
PyObject* arrays(PyObject* object, PyObject* const* args, Py_ssize_t count) {
    const Elementwise* self = (const Elementwise*)object;
    if (count != self->arity) return PyErr_Format(PyExc_TypeError, "%U takes %d operands, not %zd", self->name, self->arity, count);
    Operands all;
    all.count = (int)count;
    PyObject* held[3] = {};
    Kind kind = Kind::other;
    bool first = true, good = true;
    for (int k = 0; k < count && good; k++) {
        if (PyArray_Check(args[k])) held[k] = Py_NewRef(args[k]);
        else if (PyArray_CheckScalar(args[k])) held[k] = PyArray_FromScalar(args[k], nullptr);
        else continue;
        PyArrayObject* array = (PyArrayObject*)held[k];
        Kind own = held[k] != nullptr && PyArray_ISBEHAVED_RO(array) ? kind_of(array) : Kind::other;
        all.arrays[k] = array;
        if (self->selects && k == 0) good = own == Kind::boolean;
        else good = own != Kind::other && (first || own == kind), kind = own, first = false;
    }
    bool narrow;
    const ScalarLoop* loop = good && kind != Kind::other ? find_loop(self, all, args, kind, false, &narrow) : nullptr;
    PyObject* result = loop != nullptr && all.broadcast() ? run(all, loop, kind, narrow, nullptr, false) : nullptr;
    for (PyObject* one : held) Py_XDECREF(one);
    return result != nullptr || PyErr_Occurred() ? result : Py_NewRef(Py_NotImplemented);
}

PyObject* answer(PyObject* self, PyObject* const* args, Py_ssize_t count, Asked asked) {
    PyObject* made = run_scalar(self, args, count, asked);
    return made != nullptr || PyErr_Occurred() ? made : Py_NewRef(Py_NotImplemented);
}

PyObject* call(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
    if (names != nullptr) Py_RETURN_NOTIMPLEMENTED;
    return answer(self, args, PyVectorcall_NARGS(flags), Asked::plainly);
}

PyObject* below(PyObject* self, PyObject* const* args, Py_ssize_t count) { return answer(self, args, count, Asked::below); }

PyObject* into(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    PyObject* target;
    bool done = compute((Elementwise*)self, args, count, Asked::plainly, true, &target) == Outcome::done;
    PyObject* launched = ((Elementwise*)self)->launched;
    if (!done && compares((Elementwise*)self) && !std::all_of(args, args + count, is_held)) Py_RETURN_FALSE;
    if (!done && launched != nullptr && count == ((Elementwise*)self)->arity) done = into_on_gpu(launched, args, count);
    return PyErr_Occurred() ? nullptr : Py_NewRef(done ? Py_True : Py_False);
}

PyObject* create(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
    static const char* keys[] = {"name", nullptr};
    PyObject* name;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "U:Elementwise", (char**)keys, &name)) return nullptr;
    const char* text = PyUnicode_AsUTF8(name);
    Elementwise* self = text != nullptr ? (Elementwise*)type->tp_alloc(type, 0) : nullptr;
    if (self == nullptr) return nullptr;
    for (int kind = 0; kind < kind_count; kind++) {
        self->loops[kind] = find_scalar(text, (Kind)kind);
        if (self->loops[kind] != nullptr) self->arity = self->loops[kind]->arity, self->selects = self->loops[kind]->selects;
    }
    self->name = Py_NewRef(name);
    self->vectorcall = call;
    if (self->arity == 0) {
        PyErr_Format(PyExc_ValueError, "there is no native loop for the scalar operation %R", name);
        Py_CLEAR(self);
    }
    return (PyObject*)self;
}

PyMethodDef type_methods[] = {
    {"below", (PyCFunction)(void*)below, METH_FASTCALL, "The same below autograd and the modes."},
    {"arrays", (PyCFunction)(void*)arrays, METH_FASTCALL, "arrays(*operands)\n\nThe same on arrays and numbers of NumPy: an array, or NotImplemented."},
    {"into", (PyCFunction)(void*)into, METH_FASTCALL, "into(target, ...) -> bool\n\nWrite the result over the first operand, if that can be done here."},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef type_members[] = {
    {"name", T_OBJECT_EX, offsetof(Elementwise, name), READONLY, nullptr},
    vectorcall_member<Elementwise>,
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot type_slots[] = {
    {Py_tp_doc, (void*)"Elementwise(name)\n--\n\nOne scalar operation on CPU tensors and numbers: a new tensor, or NotImplemented."},
    {Py_tp_new, (void*)create}, {Py_tp_dealloc, (void*)release<Elementwise, &Elementwise::name, &Elementwise::launched>},
    {Py_tp_call, (void*)PyVectorcall_Call},
    {Py_tp_methods, type_methods}, {Py_tp_members, type_members}, {0, nullptr},
};
PyType_Spec type_spec = {"flambeau._C.Elementwise", sizeof(Elementwise), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, type_slots};

PyTypeObject* elementwise_type = nullptr;

}  // namespace

bool is_scalar(PyObject* object) { return Py_IS_TYPE(object, elementwise_type); }

void launch_scalar(PyObject* elementwise, PyObject* programs) { Py_XSETREF(((Elementwise*)elementwise)->launched, Py_NewRef(programs)); }

PyObject* run_scalar(PyObject* object, PyObject* const* args, Py_ssize_t count, Asked asked) {
    const Elementwise* self = (const Elementwise*)object;
    PyObject* made;
    switch (compute(self, args, count, asked, false, &made)) {
        case Outcome::done: return new_tensor(made);
        case Outcome::failed: return nullptr;
        default: break;
    }
    if (self->launched == nullptr || count != self->arity) return nullptr;
    if (asked != Asked::below && compares(self) && !std::all_of(args, args + count, is_held)) return nullptr;
    if (asked == Asked::to_record && (dispatch_state.word != 0 || !are_alike(args, count))) return nullptr;
    return quick_on_gpu(self->launched, args, count, asked != Asked::plainly);
}

void add_elementwise(PyObject* module) { elementwise_type = add_type(module, type_spec); }
