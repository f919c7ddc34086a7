// Elementwise: one scalar operation on small CPU tensors, from the call to the new tensor without Python. It takes the plain
// cases, which are nearly all, and answers NotImplemented for the others: other devices, fake tensors, operands in other
// memory orders or of several dtypes, large tensors (generated kernels and threads do better), gradients wanted.
#include "module.h"

#include <algorithm>

#include "dtypes.h"
#include "gpu_program.h"
#include "scalar_ops.h"
#include "state.h"
#include "tensors.h"

namespace {

constexpr npy_intp most = 1 << 15;         // elements
constexpr npy_intp most_costly = 1 << 10;  // of a function that is not vectorised here
constexpr int max_rank = 16;

struct Elementwise {
    PyObject_HEAD
    const ScalarLoop* loops[kind_count];
    int arity;
    bool costly;
    PyObject* name;
    PyObject* launched;  // GpuPrograms of the primitive, once a GPU is used
    vectorcallfunc vectorcall;
};

union Number {
    double f64;
    float f32;
    int64_t i64;
    int32_t i32;
    bool boolean;
};

// `object`, a Python number, as an element of `kind`; false where that would change its value or category.
bool as_element(PyObject* object, Kind kind, Number* out) {
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
        value = (double)whole;
    } else {
        return false;
    }
    if (kind == Kind::f64) return out->f64 = value, true;
    if (kind == Kind::f32) return out->f32 = (float)value, true;
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

    // Strides in bytes of operand k over the common shape; operands are in row-major order.
    void strides(int k, int item, npy_intp* out) const {
        npy_intp step = item;
        PyArrayObject* array = arrays[k];
        for (int d = rank - 1; d >= 0; d--) {
            int own = array != nullptr ? d - (rank - PyArray_NDIM(array)) : -1;
            npy_intp n = own >= 0 ? PyArray_DIM(array, own) : 1;
            out[d] = n == 1 ? 0 : step;
            step *= n;
        }
    }
};

void run_loop(const ScalarLoop* loop, const Operands& all, const int* items, char* out, int out_item) {
    const char* in[3] = {all.data[0], all.data[1], all.data[2]};
    if (all.same_shape) {
        npy_intp steps[3];
        for (int k = 0; k < all.count; k++) steps[k] = all.arrays[k] != nullptr ? items[k] : 0;
        return loop->run(out, out_item, in, steps, all.size);
    }
    if (all.size == 0) return;
    npy_intp strides[3][max_rank], at[max_rank] = {}, inner = 1;
    for (int k = 0; k < all.count; k++) all.strides(k, items[k], strides[k]);
    int last = all.rank - 1;
    npy_intp steps[3] = {strides[0][last], strides[1][last], strides[2][last]};
    inner = all.sizes[last];
    while (last > 0) {  // merge dimensions that lie end to end in every operand
        bool joined = true;
        for (int k = 0; k < all.count; k++) joined = joined && strides[k][last - 1] == steps[k] * inner;
        if (!joined) break;
        inner *= all.sizes[--last];
    }
    for (npy_intp done = 0; done < all.size; done += inner, out += inner * out_item) {
        loop->run(out, out_item, in, steps, inner);
        for (int d = last - 1; d >= 0; d--) {
            for (int k = 0; k < all.count; k++) in[k] += strides[k][d];
            if (++at[d] < all.sizes[d]) break;
            for (int k = 0; k < all.count; k++) in[k] -= strides[k][d] * all.sizes[d];
            at[d] = 0;
        }
    }
}

// Whether two arrays in row-major order share some memory without being the same elements.
bool overlaps_partly(PyArrayObject* a, PyArrayObject* b) {
    if (PyArray_BYTES(a) == PyArray_BYTES(b) && PyArray_SAMESHAPE(a, b)) return false;
    return PyArray_BYTES(b) < PyArray_BYTES(a) + PyArray_NBYTES(a) && PyArray_BYTES(a) < PyArray_BYTES(b) + PyArray_NBYTES(b);
}

enum class Outcome { done, declined, failed };

// Fills in `out` (a new array, or the target's own).
Outcome compute(const Elementwise* self, PyObject* const* args, Py_ssize_t count, bool below, bool into_first, PyObject** out) {
    const DispatchState& state = dispatch_state;
    if (state.fake || (!below && state.word != 0) || count != self->arity) return Outcome::declined;
    bool grads = !below && state.grad_enabled;
    Operands all;
    all.count = (int)count;
    Kind kind = Kind::other;
    bool selects = self->arity == 3;
    for (int k = 0; k < count; k++) {
        PyArrayObject* array = cpu_array(args[k]);
        if (array == nullptr) continue;
        if (!PyArray_ISCARRAY_RO(array) || (grads && !needs_no_grad(args[k]))) return Outcome::declined;
        Kind own = kind_of(array);
        if (selects && k == 0) {
            if (own != Kind::boolean) return Outcome::declined;
        } else {
            if (own == Kind::other || (kind != Kind::other && own != kind)) return Outcome::declined;
            kind = own;
        }
        all.arrays[k] = array;
    }
    if (kind == Kind::other || (selects && all.arrays[0] == nullptr)) return Outcome::declined;
    const ScalarLoop* loop = self->loops[(int)kind];
    if (loop == nullptr) return Outcome::declined;
    int items[3];
    for (int k = 0; k < count; k++) {
        items[k] = selects && k == 0 ? 1 : size_of(kind);
        if (all.arrays[k] != nullptr) all.data[k] = PyArray_BYTES(all.arrays[k]);
        else if (as_element(args[k], kind, &all.numbers[k])) all.data[k] = (const char*)&all.numbers[k];
        else return Outcome::declined;
    }
    if (!all.broadcast() || all.size > most || (self->costly && kind == Kind::f64 && all.size > most_costly)) return Outcome::declined;
    char* to;
    if (into_first) {
        PyArrayObject* target = all.arrays[0];
        if (target == nullptr || refuses_writes(args[0]) || loop->out != kind || !PyArray_ISWRITEABLE(target) || PyArray_SIZE(target) != all.size || PyArray_NDIM(target) != all.rank)
            return Outcome::declined;
        for (int k = 1; k < count; k++)
            if (all.arrays[k] != nullptr && overlaps_partly(target, all.arrays[k])) return Outcome::declined;
        to = PyArray_BYTES(target);
        *out = args[0];
    } else {
        *out = new_array(loop->out, all.rank, all.sizes);
        if (*out == nullptr) return Outcome::failed;
        to = PyArray_BYTES((PyArrayObject*)*out);
    }
    run_loop(loop, all, items, to, size_of(loop->out));
    return Outcome::done;
}

PyObject* answer(PyObject* self, PyObject* const* args, Py_ssize_t count, bool below) {
    PyObject* made;
    switch (compute((Elementwise*)self, args, count, below, false, &made)) {
        case Outcome::done: return new_tensor(made);
        case Outcome::failed: return nullptr;
        default: break;
    }
    PyObject* launched = ((Elementwise*)self)->launched;
    made = launched != nullptr && count == ((Elementwise*)self)->arity ? quick_on_gpu(launched, args, count, below) : nullptr;
    if (made != nullptr || PyErr_Occurred()) return made;
    Py_RETURN_NOTIMPLEMENTED;
}

PyObject* get_launched(PyObject* self, void*) {
    PyObject* launched = ((Elementwise*)self)->launched;
    return Py_NewRef(launched != nullptr ? launched : Py_None);
}

int set_launched(PyObject* self, PyObject* value, void*) {
    if (value == nullptr || !are_gpu_programs(value)) return PyErr_SetString(PyExc_TypeError, "expected GpuPrograms"), -1;
    Py_XSETREF(((Elementwise*)self)->launched, Py_NewRef(value));
    return 0;
}

PyObject* call(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
    if (names != nullptr) Py_RETURN_NOTIMPLEMENTED;
    return answer(self, args, PyVectorcall_NARGS(flags), false);
}

PyObject* below(PyObject* self, PyObject* const* args, Py_ssize_t count) { return answer(self, args, count, true); }

PyObject* into(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    PyObject* target;
    bool done = compute((Elementwise*)self, args, count, false, true, &target) == Outcome::done;
    PyObject* launched = ((Elementwise*)self)->launched;
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
        if (self->loops[kind] != nullptr) self->arity = self->loops[kind]->arity;
    }
    self->costly = is_costly(text);
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
    {"into", (PyCFunction)(void*)into, METH_FASTCALL, "into(target, ...) -> bool\n\nWrite the result over the first operand, if that can be done here."},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef type_members[] = {
    {"name", T_OBJECT_EX, offsetof(Elementwise, name), READONLY, nullptr},
    vectorcall_member<Elementwise>,
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef type_getters[] = {
    {"launched", get_launched, set_launched, "The primitive's GpuPrograms, which take what is on a GPU; or None.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot type_slots[] = {
    {Py_tp_doc, (void*)"Elementwise(name)\n--\n\nOne scalar operation on small CPU tensors and numbers: a new tensor, or NotImplemented."},
    {Py_tp_new, (void*)create}, {Py_tp_dealloc, (void*)release<Elementwise, &Elementwise::name, &Elementwise::launched>},
    {Py_tp_call, (void*)PyVectorcall_Call},
    {Py_tp_methods, type_methods}, {Py_tp_members, type_members}, {Py_tp_getset, type_getters}, {0, nullptr},
};
PyType_Spec type_spec = {"flambeau._C.Elementwise", sizeof(Elementwise), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, type_slots};

}  // namespace

void add_elementwise(PyObject* module) { add_type(module, type_spec); }
