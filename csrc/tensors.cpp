#include "tensors.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "dtypes.h"
#include "eager.h"
#include "gpu_arrays.h"
#include "module.h"
#include "state.h"
#include "tape.h"

namespace {

// Told by `know_tensors`.
PyTypeObject* tensor_type;
PyObject* cpu;
PyObject* dtype_of_numpy;               // from a NumPy dtype to ours, or TypeError
constexpr int fixed_types = NPY_HALF + 1;
PyObject* dtype_of_type[fixed_types];   // the same for NumPy's own numbers
Py_ssize_t store_slot = -1;
PyObject* inference;                    // stands for the storage of an inference tensor that nobody has asked for yet
PyTypeObject *layout_type, *view_type;  // subclasses of tuple

// A class with __slots__ whose instances are made here.
template <int count>
struct Record {
    PyTypeObject* type = nullptr;
    const char* names[count];
    Py_ssize_t slots[count] = {};

    bool learn(PyTypeObject* of) {
        for (int i = 0; i < count; i++)
            if ((slots[i] = slot_offset(of, names[i])) < 0) return false;
        type = (PyTypeObject*)Py_NewRef(of);
        return true;
    }

    PyObject* operator()(PyObject* const (&values)[count]) const {
        PyObject* made = type->tp_alloc(type, 0);
        for (int i = 0; made != nullptr && i < count; i++) *(PyObject**)((char*)made + slots[i]) = Py_NewRef(values[i]);
        return made;
    }
};
Record<9> meta = {nullptr, {"grad_fn", "output_nr", "requires_grad", "grad", "hooks", "retains_grad", "accumulator",
                            "post_accumulate_hooks", "generation"}};
enum { meta_grad_fn, meta_output_nr, meta_requires_grad, meta_grad, meta_accumulator = 6, meta_hooks, meta_generation };
Record<7> storage = {nullptr, {"_array", "_buffer", "device", "nbytes", "version", "inference", "uncounted"}};
enum { storage_array, storage_buffer, storage_nbytes = 3, storage_version, storage_inference };
PyObject *zero, *one_more, *unrecorded, *many;     // numbers, and origins of views

}  // namespace

PyObject* cpu_device() { return cpu; }
bool is_tensor(PyObject* object) { return tensor_type != nullptr && PyObject_TypeCheck(object, tensor_type); }
bool is_plain_tensor(PyObject* object) { return Py_IS_TYPE(object, tensor_type); }

namespace {

PyObject* dtype_of_descr(PyArray_Descr* descr) {
    int type = descr->type_num;
    if (type < fixed_types && dtype_of_type[type] != nullptr && PyArray_ISNBO(descr->byteorder)) return dtype_of_type[type];
    PyObject* found = PyObject_CallOneArg(dtype_of_numpy, (PyObject*)descr);
    Py_XDECREF(found);  // dtypes live for ever
    return found;
}

PyObject* dtype_of(PyArrayObject* array) { return dtype_of_descr(PyArray_DESCR(array)); }

bool meta_is_idle(PyObject* record) {
    if (record == Py_None || record == nullptr) return true;
    if (Py_TYPE(record) != meta.type) return false;
    return read_slot(record, meta.slots[meta_requires_grad]) == Py_False && read_slot(record, meta.slots[meta_grad_fn]) == Py_None;
}

void set_slot(PyObject* object, Py_ssize_t offset, PyObject* value) { *(PyObject**)((char*)object + offset) = Py_NewRef(value); }

PyObject* make(PyObject* array, PyObject* dtype, PyObject* device) {
    const TensorSlots& slots = known_slots();
    PyObject* made = tensor_type->tp_alloc(tensor_type, 0);
    if (made == nullptr) return Py_DECREF(array), nullptr;
    *(PyObject**)((char*)made + slots.data) = array;
    set_slot(made, slots.layout, Py_None);
    set_slot(made, store_slot, dispatch_state.inference ? inference : Py_None);
    set_slot(made, slots.grad, Py_None);
    set_slot(made, slots.view, Py_None);
    set_slot(made, slots.dtype, dtype);
    set_slot(made, slots.device, device);
    return made;
}

// The dtype of an array of NumPy or of a library that describes its arrays as NumPy does (CuPy).
PyObject* dtype_of_any(PyObject* array) {
    if (PyArray_Check(array)) return dtype_of((PyArrayObject*)array);
    PyObject* descr = is_gpu_array(array) ? gpu_dtype(array) : PyObject_GetAttrString(array, "dtype");
    if (descr == nullptr) {
        PyErr_Clear();
        return PyErr_Format(PyExc_TypeError, "expected a NumPy array, got %R", (PyObject*)Py_TYPE(array));
    }
    PyObject* found = PyArray_DescrCheck(descr) ? dtype_of_descr((PyArray_Descr*)descr) : PyObject_CallOneArg(dtype_of_numpy, descr);
    Py_DECREF(descr);
    return found;
}

PyObject* from_array(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count < 1 || count > 3) return PyErr_Format(PyExc_TypeError, "tensor_around(array, dtype=None, device=CPU) got %zd arguments", count);
    PyObject *dtype = count > 1 ? args[1] : Py_None, *device = count > 2 ? args[2] : cpu;
    if (dtype == Py_None && (dtype = dtype_of_any(args[0])) == nullptr) return nullptr;
    return make(Py_NewRef(args[0]), dtype, device);
}

PyObject* know_tensors(PyObject*, PyObject* args) {
    PyTypeObject *type, *meta_type, *storage_type, *layout, *view;
    PyObject *device, *function, *mark;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!OOO", &PyType_Type, &type, &PyType_Type, &meta_type, &PyType_Type, &storage_type,
                          &PyType_Type, &layout, &PyType_Type, &view, &device, &function, &mark))
        return nullptr;
    store_slot = slot_offset(type, "_store");
    if (store_slot < 0 || !meta.learn(meta_type) || !storage.learn(storage_type) || !learn_slots(type) ||
        !PyType_IsSubtype(layout, &PyTuple_Type) || !PyType_IsSubtype(view, &PyTuple_Type))
        return PyErr_Format(PyExc_TypeError, "these classes do not have the slots of a tensor");
    zero = PyLong_FromLong(0), one_more = PyLong_FromLong(1), unrecorded = PyUnicode_InternFromString("no_grad"), many = PyUnicode_InternFromString("many");
    tensor_type = (PyTypeObject*)Py_NewRef(type);
    layout_type = (PyTypeObject*)Py_NewRef(layout), view_type = (PyTypeObject*)Py_NewRef(view);
    cpu = Py_NewRef(device), dtype_of_numpy = Py_NewRef(function), inference = Py_NewRef(mark);
    for (int number : {NPY_BOOL, NPY_UBYTE, NPY_BYTE, NPY_SHORT, NPY_INT, NPY_LONG, NPY_LONGLONG, NPY_HALF, NPY_FLOAT, NPY_DOUBLE,
                       NPY_CFLOAT, NPY_CDOUBLE}) {
        PyObject* descr = (PyObject*)PyArray_DescrFromType(number);
        dtype_of_type[number] = PyObject_CallOneArg(dtype_of_numpy, descr);
        Py_XDECREF(descr);
        if (dtype_of_type[number] == nullptr) return nullptr;
    }
    Py_RETURN_NONE;
}

// ---- views ----

// A named tuple, of three parts or four.
PyObject* new_tuple(PyTypeObject* type, PyObject* a, PyObject* b, PyObject* c, PyObject* d = nullptr) {
    PyObject* made = type->tp_alloc(type, d == nullptr ? 3 : 4);
    if (made == nullptr) return nullptr;
    PyTuple_SET_ITEM(made, 0, Py_NewRef(a));
    PyTuple_SET_ITEM(made, 1, Py_NewRef(b));
    PyTuple_SET_ITEM(made, 2, Py_NewRef(c));
    if (d != nullptr) PyTuple_SET_ITEM(made, 3, Py_NewRef(d));
    return made;
}

// The array of a tensor, NumPy's or CuPy's; borrowed. Null (no error) for a fake tensor.
PyObject* array_in(PyObject* tensor) {
    PyArrayObject* array = cpu_array(tensor);
    return array != nullptr ? (PyObject*)array : gpu_array(tensor);
}

bool is_dense(PyObject* array) {
    if (is_gpu_array(array)) return is_dense_gpu_array(array);
    return PyArray_IS_C_CONTIGUOUS((PyArrayObject*)array) || PyArray_IS_F_CONTIGUOUS((PyArrayObject*)array);
}

// The storage of a tensor with an array, made if there is none yet; borrowed. Null without an error for others.
PyObject* storage_of(PyObject* tensor) {
    PyObject* found = read_slot(tensor, store_slot);
    if (found != Py_None && found != inference) return found;
    PyObject* array = array_in(tensor);
    if (array == nullptr || !is_dense(array)) return nullptr;
    PyObject* nbytes = !is_gpu_array(array) ? PyLong_FromSsize_t(PyArray_NBYTES((PyArrayObject*)array)) : gpu_nbytes(array);
    if (nbytes == nullptr) return nullptr;
    PyObject* made = storage({array, Py_None, read_slot(tensor, known_slots().device), nbytes, zero, found == inference ? Py_True : Py_False, zero});
    Py_DECREF(nbytes);
    if (made == nullptr) return nullptr;
    Py_SETREF(*(PyObject**)((char*)tensor + store_slot), made);
    return made;
}

PyObject* tensor_storage(PyObject*, PyObject* tensor) {
    PyObject* found = PyObject_TypeCheck(tensor, tensor_type) ? storage_of(tensor) : nullptr;
    if (found != nullptr) return Py_NewRef(found);
    if (PyErr_Occurred()) return nullptr;
    Py_RETURN_NOTIMPLEMENTED;
}

// The sizes in a tuple of Python ints, times `factor`; false where one is something else or does not fit.
bool read_sizes(PyObject* tuple, npy_intp* out, npy_intp factor) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject* item = PyTuple_GET_ITEM(tuple, i);
        if (!PyLong_CheckExact(item) || __builtin_mul_overflow(PyLong_AsSsize_t(item), factor, &out[i])) return false;
    }
    return !PyErr_Occurred();
}

// The array over the memory of `store` with this layout, of `like`'s library and dtype; null without an error where Python has
// to do it.
PyObject* view_array(PyObject* store, PyObject* like, PyObject* shape, PyObject* strides, PyObject* offset) {
    PyObject* owner = read_slot(store, storage.slots[storage_array]);
    if (owner == Py_None) owner = read_slot(store, storage.slots[storage_buffer]);
    if (Py_TYPE(owner) != Py_TYPE(like) || !(is_gpu_array(owner) || PyArray_Check(owner)) || !PyTuple_Check(shape) || !PyTuple_Check(strides) || !PyLong_CheckExact(offset)) return nullptr;
    PyObject* descr = !is_gpu_array(like) ? Py_NewRef((PyObject*)PyArray_DESCR((PyArrayObject*)like)) : gpu_dtype(like);
    if (descr == nullptr || !PyArray_DescrCheck(descr)) return Py_XDECREF(descr), nullptr;
    npy_intp sizes[NPY_MAXDIMS], steps[NPY_MAXDIMS], item = PyDataType_ELSIZE((PyArray_Descr*)descr), at, last, span;
    Py_ssize_t rank = PyTuple_GET_SIZE(shape);
    bool good = rank <= NPY_MAXDIMS && PyTuple_GET_SIZE(strides) == rank && read_sizes(shape, sizes, 1) && read_sizes(strides, steps, item);
    good = good && !__builtin_mul_overflow(PyLong_AsSsize_t(offset), item, &at) && at >= 0 && !__builtin_add_overflow(at, item, &last);
    for (int d = 0; good && d < rank; d++)
        good = sizes[d] > 0 && steps[d] >= 0 && !__builtin_mul_overflow(sizes[d] - 1, steps[d], &span) && !__builtin_add_overflow(last, span, &last);
    if (!good || last > PyLong_AsSsize_t(read_slot(store, storage.slots[storage_nbytes]))) return Py_DECREF(descr), nullptr;
    if (is_gpu_array(owner)) {
        PyObject* bytes = PyTuple_New(rank);
        for (int d = 0; bytes != nullptr && d < rank; d++) PyTuple_SET_ITEM(bytes, d, PyLong_FromSsize_t(steps[d]));
        PyObject* made = bytes != nullptr ? gpu_array_over(owner, at, shape, descr, bytes) : nullptr;
        Py_XDECREF(bytes);
        Py_DECREF(descr);
        return made;
    }
    char* data = PyArray_BYTES((PyArrayObject*)owner) + at;
    int flags = PyArray_FLAGS((PyArrayObject*)owner) & NPY_ARRAY_WRITEABLE;
    PyObject* made = PyArray_NewFromDescr(&PyArray_Type, (PyArray_Descr*)descr, (int)rank, sizes, steps, data, flags, nullptr);
    if (made == nullptr) return nullptr;
    if (PyArray_SetBaseObject((PyArrayObject*)made, Py_NewRef(owner)) < 0) return Py_DECREF(made), nullptr;
    return made;
}

// ViewPath(root, (*chain, *steps), generation of the root's history, origin); a step is (primitive, its arguments but the first).
PyObject* view_record(PyObject* source, PyObject* steps) {
    const TensorSlots& slots = known_slots();
    PyObject *root = source, *chain = Py_NewRef(steps), *origin = dispatch_state.grad_enabled ? Py_None : unrecorded;
    PyObject* of = read_slot(source, slots.view);
    if (of != Py_None) {
        if (PyTuple_GET_ITEM(of, 3) != Py_None) origin = PyTuple_GET_ITEM(of, 3);
        root = PyTuple_GET_ITEM(of, 0);
        Py_SETREF(chain, PySequence_Concat(PyTuple_GET_ITEM(of, 1), steps));
    }
    PyObject* record = read_slot(root, slots.grad);
    PyObject* generation = Py_TYPE(record) == meta.type ? read_slot(record, meta.slots[meta_generation]) : zero;
    PyObject* made = chain != nullptr ? new_tuple(view_type, root, chain, generation, origin) : nullptr;
    Py_XDECREF(chain);
    return made;
}

// `source` seen with another layout, reached by `steps`; null without an error where Python has to do it.
PyObject* new_view(PyObject* source, PyObject* steps, PyObject* shape, PyObject* strides, PyObject* offset, PyObject* layout = nullptr) {
    const TensorSlots& slots = known_slots();
    PyObject* array = array_in(source);
    PyObject* store = array != nullptr && !dispatch_state.fake ? storage_of(source) : nullptr;
    PyObject* made = store != nullptr ? view_array(store, array, shape, strides, offset) : nullptr;
    PyObject* tensor = made != nullptr ? make(made, read_slot(source, slots.dtype), read_slot(source, slots.device)) : nullptr;
    layout = tensor == nullptr ? nullptr : layout != nullptr ? Py_NewRef(layout) : new_tuple(layout_type, shape, strides, offset);
    PyObject* view = layout != nullptr ? view_record(source, steps) : nullptr;
    if (view == nullptr) {
        Py_XDECREF(layout);
        Py_XDECREF(tensor);
        return nullptr;
    }
    Py_SETREF(*(PyObject**)((char*)tensor + slots.layout), layout);
    Py_SETREF(*(PyObject**)((char*)tensor + slots.view), view);
    Py_SETREF(*(PyObject**)((char*)tensor + store_slot), Py_NewRef(store));
    return tensor;
}

// The same with a layout as it was made before.
PyObject* view_as(PyObject* source, PyObject* steps, PyObject* layout) {
    return new_view(source, steps, PyTuple_GET_ITEM(layout, 0), PyTuple_GET_ITEM(layout, 1), PyTuple_GET_ITEM(layout, 2), layout);
}

// Whether an argument of a view is a constant: None, an int, or a tuple of such. A slice becomes a tuple. New reference, or
// null (without an error: for a tensor, say, which is an int that may change).
PyObject* as_key(PyObject* argument) {
    if (PyLong_CheckExact(argument) || argument == Py_None || argument == Py_Ellipsis) return Py_NewRef(argument);
    if (PySlice_Check(argument)) {
        PySliceObject* slice = (PySliceObject*)argument;
        for (PyObject* part : {slice->start, slice->stop, slice->step})
            if (!PyLong_CheckExact(part) && part != Py_None) return nullptr;
        return PyTuple_Pack(4, (PyObject*)&PySlice_Type, slice->start, slice->stop, slice->step);
    }
    if (!PyTuple_Check(argument)) return nullptr;
    PyObject* made = PyTuple_New(PyTuple_GET_SIZE(argument));
    for (Py_ssize_t i = 0; made != nullptr && i < PyTuple_GET_SIZE(argument); i++) {
        PyObject* part = as_key(PyTuple_GET_ITEM(argument, i));
        if (part == nullptr) Py_CLEAR(made);
        else PyTuple_SET_ITEM(made, i, part);
    }
    return made;
}

// What a view operator's answer on these arguments (the tensor first) depends on; null where it is not known.
PyObject* view_key(PyObject* const* args, Py_ssize_t count) {
    if (!is_tensor(args[0]) || array_in(args[0]) == nullptr || dispatch_state.word != 0) return nullptr;
    PyObject* layout = layout_of(args[0]);
    PyObject* key = layout != nullptr ? PyTuple_New(count) : nullptr;
    if (key == nullptr) return nullptr;
    PyTuple_SET_ITEM(key, 0, Py_NewRef(layout));
    for (Py_ssize_t i = 1; i < count; i++) {
        PyObject* part = as_key(args[i]);
        if (part == nullptr) return Py_DECREF(key), nullptr;
        PyTuple_SET_ITEM(key, i, part);
    }
    return key;
}

constexpr Py_ssize_t most_remembered = 4096;

// Enters the layout of a view where its primitive remembers such; false with an error set.
bool remember_layout(PyObject* prim, PyObject* args, PyObject* made) {
    PyObject* eager = PyObject_GetAttrString(prim, "eager");
    PyObject* layouts = eager != nullptr ? layouts_of(eager) : nullptr;
    PyObject* key = layouts != nullptr ? view_key(&PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args)) : nullptr;
    if (key != nullptr && PyDict_GET_SIZE(layouts) >= most_remembered) PyDict_Clear(layouts);
    bool good = eager != nullptr && (key == nullptr || PyDict_SetItem(layouts, key, read_slot(made, known_slots().layout)) == 0);
    Py_XDECREF(key);
    Py_XDECREF(eager);
    return good && !PyErr_Occurred();
}

// tensor_view(prim, args, spec): args[0] seen with the layout of `spec` (shape, dtype, strides, offset).
PyObject* tensor_view(PyObject*, PyObject* const* given, Py_ssize_t count) {
    if (count != 3 || !PyTuple_Check(given[1]) || PyTuple_GET_SIZE(given[1]) < 1 || !PyTuple_Check(given[2]) || PyTuple_GET_SIZE(given[2]) != 4)
        return PyErr_Format(PyExc_TypeError, "expected tensor_view(prim, args, spec)");
    PyObject *source = PyTuple_GET_ITEM(given[1], 0), *spec = given[2];
    if (!is_tensor(source) || read_slot(source, known_slots().dtype) != PyTuple_GET_ITEM(spec, 1)) Py_RETURN_NOTIMPLEMENTED;
    PyObject* attrs = PyTuple_GetSlice(given[1], 1, PyTuple_GET_SIZE(given[1]));
    PyObject* steps = attrs != nullptr ? Py_BuildValue("((OO))", given[0], attrs) : nullptr;
    PyObject* made = steps != nullptr ? new_view(source, steps, PyTuple_GET_ITEM(spec, 0), PyTuple_GET_ITEM(spec, 2), PyTuple_GET_ITEM(spec, 3)) : nullptr;
    Py_XDECREF(attrs);
    Py_XDECREF(steps);
    if (made != nullptr && !remember_layout(given[0], given[1], made)) Py_CLEAR(made);
    return or_not_implemented(made);
}

}  // namespace

PyObject* layout_of(PyObject* tensor, bool told) {
    Py_ssize_t slot = known_slots().layout;
    PyObject* found = read_slot(tensor, slot);
    if (found != Py_None) return found;
    PyArrayObject* array = cpu_array(tensor);
    PyObject *shape = nullptr, *strides = nullptr;
    if (array == nullptr) {
        PyObject* elsewhere = gpu_array(tensor);
        if (elsewhere == nullptr || !gpu_layout(elsewhere, &shape, &strides)) return nullptr;
    } else {
        int rank = PyArray_NDIM(array);
        shape = PyTuple_New(rank), strides = PyTuple_New(rank);
        npy_intp step = 1, item = std::max<npy_intp>(PyArray_ITEMSIZE(array), 1);
        bool dense = !told && PyArray_IS_C_CONTIGUOUS(array);  // then a dimension of size 0 counts as 1, as in torch
        for (int d = rank - 1; shape != nullptr && strides != nullptr && d >= 0; d--) {
            npy_intp n = PyArray_DIM(array, d);
            PyTuple_SET_ITEM(shape, d, PyLong_FromSsize_t(n));
            PyTuple_SET_ITEM(strides, d, PyLong_FromSsize_t(dense ? step : PyArray_STRIDE(array, d) / item));
            step *= std::max<npy_intp>(n, 1);
        }
    }
    PyObject* made = shape != nullptr && strides != nullptr ? new_tuple(layout_type, shape, strides, zero) : nullptr;
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    if (made != nullptr) Py_SETREF(*(PyObject**)((char*)tensor + slot), made);
    return made;
}

namespace {

PyObject* tensor_layout(PyObject*, PyObject* tensor) {
    PyObject* found = is_tensor(tensor) ? layout_of(tensor) : nullptr;
    return or_not_implemented(Py_XNewRef(found));
}

// The arguments of a step, (primitive, its arguments but the first), from `source` on.
PyObject* arguments_of(PyObject* step, PyObject* source) {
    PyObject* first = PyTuple_Pack(1, source);
    PyObject* args = first != nullptr ? PySequence_Concat(first, PyTuple_GET_ITEM(step, 1)) : nullptr;
    Py_XDECREF(first);
    return args;
}

// Puts a view on the tape that is one step.
bool hang_view(PyObject* source, PyObject* step, PyObject* made) {
    PyObject* args = arguments_of(step, source);
    bool good = args != nullptr && hang(PyTuple_GET_ITEM(step, 0), args, made);
    Py_XDECREF(args);
    return good;
}

// Views recorded step by step.
PyObject* step_by_step(PyObject* tensor, PyObject* steps) {
    PyObject* at = Py_NewRef(tensor);
    for (Py_ssize_t i = 0; at != nullptr && i < PyTuple_GET_SIZE(steps); i++) {
        PyObject *step = PyTuple_GET_ITEM(steps, i), *args = arguments_of(step, at);
        Py_SETREF(at, args != nullptr ? PyObject_CallObject(PyTuple_GET_ITEM(step, 0), args) : nullptr);
        Py_XDECREF(args);
    }
    return at;
}

// Remembered(body): a view operator that looks only once at the same layout with the same arguments.
struct Remembered {
    PyObject_HEAD
    PyObject *memo, *body;  // memo: {key: (steps, layout)}
    vectorcallfunc vectorcall;
};

// Enter how `tensor` has turned out under `key`, if it is a view. False: an error is set.
bool remember(PyObject* memo, PyObject* key, PyObject* tensor, PyObject* made) {
    if (!is_tensor(made)) return true;
    PyObject *of = read_slot(made, known_slots().view), *before = read_slot(tensor, known_slots().view);
    if (of == Py_None || read_slot(tensor, known_slots().dtype) != read_slot(made, known_slots().dtype)) return true;
    PyObject *root = before == Py_None ? tensor : PyTuple_GET_ITEM(before, 0), *chain = PyTuple_GET_ITEM(of, 1);
    Py_ssize_t had = before == Py_None ? 0 : PyTuple_GET_SIZE(PyTuple_GET_ITEM(before, 1));
    if (PyTuple_GET_ITEM(of, 0) != root || PyTuple_GET_SIZE(chain) <= had) return true;
    PyObject* steps = PyTuple_GetSlice(chain, had, PyTuple_GET_SIZE(chain));
    PyObject* value = steps != nullptr ? PyTuple_Pack(2, steps, read_slot(made, known_slots().layout)) : nullptr;
    if (PyDict_GET_SIZE(memo) >= most_remembered) PyDict_Clear(memo);
    bool good = value != nullptr && PyDict_SetItem(memo, key, value) == 0;
    Py_XDECREF(steps);
    Py_XDECREF(value);
    return good;
}

PyObject* remembered_call(PyObject* object, PyObject* const* args, size_t flags, PyObject* names) {
    Remembered* self = (Remembered*)object;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    PyObject* key = names == nullptr && count > 0 ? view_key(args, count) : nullptr;
    if (key == nullptr) return PyErr_Occurred() ? nullptr : PyObject_Vectorcall(self->body, args, flags, names);
    PyObject *made = nullptr, *found = PyDict_GetItemWithError(self->memo, key);
    if (found != nullptr) {
        Py_INCREF(found);
        PyObject *steps = PyTuple_GET_ITEM(found, 0), *layout = PyTuple_GET_ITEM(found, 1);
        bool recorded = dispatch_state.grad_enabled && !needs_no_grad(args[0]);
        made = recorded && PyTuple_GET_SIZE(steps) != 1
            ? step_by_step(args[0], steps)
            : view_as(args[0], steps, layout);
        if (recorded && made != nullptr && PyTuple_GET_SIZE(steps) == 1 && !hang_view(args[0], PyTuple_GET_ITEM(steps, 0), made)) Py_CLEAR(made);
        Py_DECREF(found);
    }
    if (made == nullptr && !PyErr_Occurred()) {
        made = PyObject_Vectorcall(self->body, args, flags, names);
        if (made != nullptr && !remember(self->memo, key, args[0], made)) Py_CLEAR(made);
    }
    Py_DECREF(key);
    return made;
}

PyObject* remembered_create(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject* body;
    if (!PyArg_ParseTuple(arguments, "O:Remembered", &body)) return nullptr;
    Remembered* self = (Remembered*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->memo = PyDict_New(), self->body = Py_NewRef(body), self->vectorcall = remembered_call;
    return self->memo != nullptr ? (PyObject*)self : (Py_DECREF(self), nullptr);
}

PyType_Slot remembered_slots[] = {
    {Py_tp_doc, (void*)"Remembered(body)\n--\n\nCalls a view operator's `body`, but once for the same layout and arguments."},
    {Py_tp_new, (void*)remembered_create}, {Py_tp_dealloc, (void*)release<Remembered, &Remembered::memo, &Remembered::body>},
    {Py_tp_call, (void*)PyVectorcall_Call}, {Py_tp_members, vectorcall_alone<Remembered>}, {0, nullptr},
};
PyType_Spec remembered_spec = {"flambeau._C.Remembered", sizeof(Remembered), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, remembered_slots};

// ---- shapes ----

// A tuple whose slices are of its own class.
PyObject* size_item(PyObject* self, PyObject* key) {
    PyObject* found = PyTuple_Type.tp_as_mapping->mp_subscript(self, key);
    if (found == nullptr || !PySlice_Check(key) || Py_TYPE(found) == Py_TYPE(self)) return found;
    PyObject* made = PyObject_CallOneArg((PyObject*)Py_TYPE(self), found);
    Py_DECREF(found);
    return made;
}

PyType_Slot size_slots[] = {
    {Py_tp_doc, (void*)"A tuple whose slices are of its own class."},
    {Py_mp_subscript, (void*)size_item},
    {0, nullptr},
};
PyType_Spec size_spec = {"flambeau._C.SizeTuple", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, size_slots};

PyTypeObject* size_type;

PyObject* know_sizes(PyObject*, PyObject* type) {
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject*)type, &PyTuple_Type)) return PyErr_Format(PyExc_TypeError, "expected a subclass of tuple");
    size_type = (PyTypeObject*)Py_NewRef(type);
    Py_RETURN_NONE;
}

PyObject* size_of_tuple(PyObject* tuple) {
    Py_ssize_t rank = PyTuple_GET_SIZE(tuple);
    PyObject* made = size_type->tp_alloc(size_type, rank);
    for (Py_ssize_t d = 0; made != nullptr && d < rank; d++) PyTuple_SET_ITEM(made, d, Py_NewRef(PyTuple_GET_ITEM(tuple, d)));
    return made;
}

PyObject* tensor_shape(PyObject*, PyObject* tensor) {
    if (!is_tensor(tensor)) return PyErr_Format(PyExc_TypeError, "expected a Tensor, got %R", (PyObject*)Py_TYPE(tensor));
    return shape_of(tensor);
}

}  // namespace

PyObject* shape_of(PyObject* tensor) {
    PyArrayObject* array = cpu_array(tensor);
    if (array == nullptr) {
        PyObject* layout = layout_of(tensor);
        return layout != nullptr ? size_of_tuple(PyTuple_GET_ITEM(layout, 0)) : nullptr;
    }
    PyObject* made = size_type->tp_alloc(size_type, PyArray_NDIM(array));
    for (int d = 0; made != nullptr && d < PyArray_NDIM(array); d++) PyTuple_SET_ITEM(made, d, PyLong_FromSsize_t(PyArray_DIM(array, d)));
    return made;
}

// ---- autograd's part ----

PyObject* alias_of(PyObject* tensor) {
    if (storage_of(tensor) == nullptr && (PyErr_Occurred() || read_slot(tensor, known_slots().data) != Py_None)) {
        if (PyErr_Occurred()) return nullptr;
        PyObject* made = PyObject_GetAttrString(tensor, "_storage");  // both must count versions together
        if (made == nullptr) return nullptr;
        Py_DECREF(made);
    }
    const TensorSlots& slots = known_slots();
    PyObject* made = make(Py_NewRef(read_slot(tensor, slots.data)), read_slot(tensor, slots.dtype), read_slot(tensor, slots.device));
    if (made == nullptr) return nullptr;
    Py_SETREF(*(PyObject**)((char*)made + slots.layout), Py_NewRef(read_slot(tensor, slots.layout)));
    Py_SETREF(*(PyObject**)((char*)made + store_slot), Py_NewRef(read_slot(tensor, store_slot)));
    return made;
}

int history_of(PyObject* tensor, PyObject** node, PyObject** output) {
    PyObject *view = read_slot(tensor, known_slots().view), *record = read_slot(tensor, known_slots().grad);
    if (view != Py_None) {  // is what it knows of its base's history still so?
        if (tensor == dispatch_state.overwriting) return -1;    // how it looks into its base may change too
        PyObject* base = PyTuple_GET_ITEM(view, 0);
        if (!is_tensor(base) || read_slot(base, known_slots().view) != Py_None) return -1;
        PyObject* of_base = read_slot(base, known_slots().grad);
        PyObject* generation = of_base == Py_None ? zero : Py_TYPE(of_base) == meta.type ? read_slot(of_base, meta.slots[meta_generation]) : nullptr;
        if (generation != PyTuple_GET_ITEM(view, 2)) return -1;     // small numbers are one object each
    }
    if (record == Py_None) return 0;
    if (Py_TYPE(record) != meta.type) return -1;
    if ((*node = read_slot(record, meta.slots[meta_grad_fn])) != Py_None) return *output = read_slot(record, meta.slots[meta_output_nr]), 1;
    if (read_slot(record, meta.slots[meta_requires_grad]) != Py_True) return 0;
    PyObject* sink = read_slot(record, meta.slots[meta_accumulator]);
    *node = PyWeakref_Check(sink) ? PyWeakref_GET_OBJECT(sink) : nullptr;
    if (*node == Py_None) *node = nullptr;
    return *output = zero, 1;
}

bool set_sink(PyObject* leaf, PyObject* weak) {
    PyObject* record = read_slot(leaf, known_slots().grad);
    if (Py_TYPE(record) != meta.type) return PyErr_SetString(PyExc_TypeError, "a tensor without a record of autograd has no sink"), false;
    Py_SETREF(*(PyObject**)((char*)record + meta.slots[meta_accumulator]), Py_NewRef(weak));
    return true;
}

bool attach(PyObject* tensor, PyObject* node, PyObject* output) {
    PyObject* made = meta({node, output, Py_False, Py_None, Py_None, Py_False, Py_None, Py_None, zero});
    if (made != nullptr) Py_SETREF(*(PyObject**)((char*)tensor + known_slots().grad), made);
    return made != nullptr;
}

bool mark_one_of_many(PyObject* tensor) {
    PyObject* view = read_slot(tensor, known_slots().view);
    if (view == Py_None) return true;
    PyObject* made = new_tuple(view_type, PyTuple_GET_ITEM(view, 0), PyTuple_GET_ITEM(view, 1), PyTuple_GET_ITEM(view, 2), many);
    if (made != nullptr) Py_SETREF(*(PyObject**)((char*)tensor + known_slots().view), made);
    return made != nullptr;
}

PyObject* version_of_memory(PyObject* tensor) {
    PyObject* store = read_slot(tensor, store_slot);
    if (store == Py_None) return zero;
    if (Py_TYPE(store) != storage.type || read_slot(store, storage.slots[storage_inference]) != Py_False) return nullptr;
    return read_slot(store, storage.slots[storage_version]);
}

bool take_first_gradient(PyObject* leaf, PyObject* gradient) {
    const TensorSlots& slots = known_slots();
    if (Py_REFCNT(gradient) != 1 || !is_plain_tensor(gradient) || read_slot(gradient, slots.view) != Py_None ||
        read_slot(gradient, slots.grad) != Py_None || read_slot(gradient, store_slot) != Py_None)
        return false;
    PyArrayObject *lies = cpu_array(gradient), *leaf_lies = cpu_array(leaf);
    if (lies == nullptr || leaf_lies == nullptr || !PyArray_IS_C_CONTIGUOUS(lies) || !PyArray_IS_C_CONTIGUOUS(leaf_lies)) return false;
    PyObject* record = read_slot(leaf, slots.grad);
    if (Py_TYPE(record) != meta.type || read_slot(record, meta.slots[meta_requires_grad]) != Py_True ||
        read_slot(record, meta.slots[meta_grad]) != Py_None || read_slot(record, meta.slots[meta_hooks]) != Py_None)
        return false;
    Py_SETREF(*(PyObject**)((char*)record + meta.slots[meta_grad]), Py_NewRef(gradient));
    return true;
}

namespace {

PyObject* tensor_alias(PyObject*, PyObject* tensor) {
    return is_tensor(tensor) ? alias_of(tensor) : PyErr_Format(PyExc_TypeError, "expected a Tensor, got %R", (PyObject*)Py_TYPE(tensor));
}

PyObject* attached(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 3 || !is_tensor(args[0])) return PyErr_Format(PyExc_TypeError, "expected attach(tensor, node, output_nr)");
    return attach(args[0], args[1], args[2]) ? Py_NewRef(Py_None) : nullptr;
}

// 1, 0, or -1 with an error set: whether autograd has to see an argument, a tensor or a list of them.
int wants_grad(PyObject* value, bool within_list) {
    if (PyObject_TypeCheck(value, tensor_type)) {
        if (needs_no_grad(value)) return 0;
        PyObject* record = read_slot(value, known_slots().grad);
        if (record != Py_None && !meta_is_idle(record)) return 1;
        return ask_requires_grad(value, &known_slots());  // a view catches up with its base
    }
    if (within_list || !(PyList_CheckExact(value) || PyTuple_CheckExact(value))) return 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); i++) {
        int answer = wants_grad(PySequence_Fast_GET_ITEM(value, i), true);
        if (answer != 0) return answer;
    }
    return 0;
}

PyObject* any_wants_grad(PyObject*, PyObject* const* given, Py_ssize_t count) {
    if (count != 2 || !PyTuple_Check(given[0]) || !PyTuple_Check(given[1]))
        return PyErr_Format(PyExc_TypeError, "expected any_wants_grad(args, positions)");
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(given[1]); k++) {
        Py_ssize_t i = PyLong_AsSsize_t(PyTuple_GET_ITEM(given[1], k));
        if (i < 0 || i >= PyTuple_GET_SIZE(given[0])) return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_IndexError, "there is no argument %zd", i);
        int answer = wants_grad(PyTuple_GET_ITEM(given[0], i), false);
        if (answer != 0) return answer < 0 ? nullptr : Py_NewRef(Py_True);
    }
    Py_RETURN_FALSE;
}

PyObject* holds_none(PyObject*, PyObject* args) {
    if (!PyTuple_Check(args)) return PyErr_Format(PyExc_TypeError, "expected holds_none(args)");
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(args); k++)
        if (PyTuple_GET_ITEM(args, k) == Py_None) Py_RETURN_TRUE;
    Py_RETURN_FALSE;
}

PyObject* any_refuses_writes(PyObject*, PyObject* const* lists, Py_ssize_t count) {
    for (Py_ssize_t k = 0; k < count; k++) {
        if (!PyList_Check(lists[k]) && !PyTuple_Check(lists[k])) continue;
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(lists[k]); i++) {
            PyObject* item = PySequence_Fast_GET_ITEM(lists[k], i);
            if (is_tensor(item) && refuses_writes(item)) Py_RETURN_TRUE;
        }
    }
    Py_RETURN_FALSE;
}

PyObject* written_plainly(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 2 || !is_tensor(args[0])) return PyErr_Format(PyExc_TypeError, "expected write_plainly(tensor, value)");
    bool written = write_plainly(args[0], args[1]);
    return PyErr_Occurred() ? nullptr : PyBool_FromLong(written);
}

PyMethodDef methods[] = {
    {"write_plainly", (PyCFunction)(void*)written_plainly, METH_FASTCALL,
     "write_plainly(target, value) -> bool\n\nOverwrites a tensor with a number or one of its dtype and sizes, where nothing but memory is concerned."},
    {"any_refuses_writes", (PyCFunction)(void*)any_refuses_writes, METH_FASTCALL,
     "any_refuses_writes(*lists) -> bool\n\nWhether one of the tensors in these lists (or None) may not be written to: inference tensors elsewhere."},
    {"any_wants_grad", (PyCFunction)(void*)any_wants_grad, METH_FASTCALL,
     "any_wants_grad(args, positions) -> bool\n\nWhether gradients flow to or through one of the arguments at `positions`."},
    {"holds_none", holds_none, METH_O, "holds_none(args) -> bool\n\nWhether one of a tuple's items is None; nothing is compared."},
    {"tensor_storage", tensor_storage, METH_O, "The storage of a tensor, made where there is none yet; NotImplemented where Python has to."},
    {"tensor_view", (PyCFunction)(void*)tensor_view, METH_FASTCALL,
     "tensor_view(prim, args, spec)\n\nargs[0] seen with the layout of `spec`, as the result of the view primitive; or NotImplemented."},
    {"know_sizes", know_sizes, METH_O, "know_sizes(Size)\n\nThe class of shapes, a subclass of SizeTuple."},
    {"tensor_shape", tensor_shape, METH_O, "The sizes of a tensor, as a Size."},
    {"tensor_layout", tensor_layout, METH_O, "The Layout of a tensor with a NumPy array; NotImplemented for others."},
    {"tensor_alias", tensor_alias, METH_O, "The same memory as a new tensor that knows nothing of autograd (shares the version counter)."},
    {"attach", (PyCFunction)(void*)attached, METH_FASTCALL, "attach(tensor, node, output_nr)\n\nMake `node` the grad_fn of a fresh result."},

    {"know_tensors", know_tensors, METH_VARARGS, "know_tensors(Tensor, AutogradMeta, Storage, Layout, ViewPath, CPU, dtype_of_numpy, INFERENCE)\n\nOnce, before any tensor is made."},
    {"tensor_around", (PyCFunction)(void*)from_array, METH_FASTCALL,
     "tensor_around(array, dtype=None, device=CPU)\n\nA tensor around a fresh backend array."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyObject* new_tensor(PyObject* array) {
    if (array == nullptr) return nullptr;
    PyObject* dtype = dtype_of((PyArrayObject*)array);
    if (dtype == nullptr) return Py_DECREF(array), nullptr;
    return make(array, dtype, cpu);
}

PyObject* new_tensor_of(PyObject* array, PyObject* dtype, PyObject* device, PyObject* layout) {
    PyObject* made = make(array, dtype, device);
    if (made != nullptr && layout != nullptr) Py_SETREF(*(PyObject**)((char*)made + known_slots().layout), Py_NewRef(layout));
    return made;
}

PyArrayObject* cpu_array(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    if (tensor_type == nullptr || (type != tensor_type && !PyType_IsSubtype(type, tensor_type))) return nullptr;
    PyObject* data = read_slot(object, known_slots().data);
    return data != nullptr && Py_IS_TYPE(data, &PyArray_Type) ? (PyArrayObject*)data : nullptr;
}

PyObject* remembered_view(PyObject* layouts, PyObject* prim, PyObject* const* args, Py_ssize_t count) {
    PyObject* key = count > 0 && !dispatch_state.fake && PyDict_GET_SIZE(layouts) > 0 ? view_key(args, count) : nullptr;
    PyObject* layout = key != nullptr ? Py_XNewRef(PyDict_GetItemWithError(layouts, key)) : nullptr;
    PyObject* attrs = layout != nullptr ? tuple_of(args + 1, count - 1) : nullptr;
    PyObject* steps = attrs != nullptr ? Py_BuildValue("((OO))", prim, attrs) : nullptr;
    PyObject* made = steps != nullptr ? view_as(args[0], steps, layout) : nullptr;
    Py_XDECREF(key);
    Py_XDECREF(layout);
    Py_XDECREF(attrs);
    Py_XDECREF(steps);
    return made;
}

bool needs_no_grad(PyObject* tensor) {
    const TensorSlots& slots = known_slots();
    if (!meta_is_idle(read_slot(tensor, slots.grad))) return false;
    PyObject* view = read_slot(tensor, slots.view);
    if (view == Py_None) return true;
    // A view's history may be out of date if its base has one.
    PyObject* base = PyTuple_Check(view) && PyTuple_GET_SIZE(view) > 0 ? PyTuple_GET_ITEM(view, 0) : nullptr;
    return base != nullptr && PyType_IsSubtype(Py_TYPE(base), tensor_type) && read_slot(base, slots.grad) == Py_None;
}

bool refuses_writes(PyObject* tensor) {
    if (dispatch_state.inference) return false;
    PyObject* store = read_slot(tensor, store_slot);
    if (store == Py_None) return false;
    return store == inference || (Py_TYPE(store) == storage.type && read_slot(store, storage.slots[storage_inference]) == Py_True);
}

// The array of a tensor whose memory can be taken as a whole; null without an error for others.
static PyArrayObject* whole_array(PyObject* tensor) {
    PyArrayObject* array = needs_no_grad(tensor) ? cpu_array(tensor) : nullptr;
    return array != nullptr && PyArray_IS_C_CONTIGUOUS(array) && PyArray_ISBEHAVED_RO(array) ? array : nullptr;
}

bool write_plainly(PyObject* target, PyObject* value) {
    if (dispatch_state.word != 0 || !is_plain_tensor(target) || refuses_writes(target)) return false;
    PyArrayObject* to = whole_array(target);
    if (to == nullptr || !PyArray_ISWRITEABLE(to)) return false;
    bool number = PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyBool_Check(value);
    PyArrayObject* from = !number && is_plain_tensor(value) ? whole_array(value) : nullptr;
    if (!number && (from == nullptr || !PyArray_EquivTypes(PyArray_DESCR(from), PyArray_DESCR(to)) || !PyArray_SAMESHAPE(from, to))) return false;
    PyObject* store = storage_of(target);
    if (store == nullptr || Py_TYPE(store) != storage.type) return false;
    if (from != nullptr) std::memmove(PyArray_DATA(to), PyArray_DATA(from), (size_t)PyArray_NBYTES(to));
    else if (PyArray_FillWithScalar(to, value) < 0) return PyErr_Clear(), false;  // Python says what does not fit
    PyObject* version = PyNumber_Add(read_slot(store, storage.slots[storage_version]), one_more);
    if (version == nullptr) return false;
    Py_SETREF(*(PyObject**)((char*)store + storage.slots[storage_version]), version);
    return true;
}

PyObject* new_array(Kind kind, int rank, const npy_intp* sizes) {
    constexpr int types[] = {NPY_BOOL, NPY_UINT8, NPY_INT8, NPY_INT16, NPY_INT32, NPY_INT64, NPY_HALF, -1, NPY_FLOAT, NPY_DOUBLE, -1};
    return PyArray_New(&PyArray_Type, rank, (npy_intp*)sizes, types[(int)kind], nullptr, nullptr, 0, 0, nullptr);
}

void add_tensors(PyObject* module) {
    PyModule_AddFunctions(module, methods);
    add_type(module, size_spec, (PyObject*)&PyTuple_Type);
    add_type(module, remembered_spec);
}
