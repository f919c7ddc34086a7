// TensorSpec: what a compiled entry expects of one tensor, and check_tensors, which asks it of many in one call. A guard on a
// model's 150 parameters costs microseconds this way, because nothing but slots and array headers is read.
#include "guards.h"

#include "tensor_slots.h"

namespace {

enum class Part { none, type, dtype, device, data, rank, size, stride, requires_grad, error };

// Where a tensor first differs from a spec; `dim` for a size or stride, with the value found there.
struct Difference {
    Part part = Part::none;
    int dim = 0;
    int64_t found = 0;
};

struct TensorSpec {
    PyObject_HEAD
    PyTypeObject* type;
    PyObject *dtype, *device;
    PyObject *shape, *strides;  // as given
    int requires_grad;          // -1: either
    int rank;
    bool shapes_alone;  // of the device "meta", on which no tensor has elements
    bool dense;       // elements in row-major order without gaps, which is one look at a flag
    int64_t* sizes;   // -1: any
    int64_t* steps;   // strides in elements, -1: any; null when not compared
    vectorcallfunc vectorcall;
};

// ------------------------------------------------------------------------------------------------------------- checking
PyTypeObject* meta_type;  // of the autograd record, with the places of the two slots that matter
Py_ssize_t meta_requires_grad, meta_grad_fn;

bool know_meta(PyTypeObject* type) {
    if (type == meta_type) return true;
    Py_ssize_t flag = slot_offset(type, "requires_grad"), function = slot_offset(type, "grad_fn");
    if (flag < 0 || function < 0) return false;
    Py_INCREF(type);
    Py_XDECREF(meta_type);
    meta_type = type, meta_requires_grad = flag, meta_grad_fn = function;
    return true;
}

// 1, 0, or -1 with an error set. A view is asked itself: it may have to catch up with its base first.
int requires_grad(PyObject* tensor, const TensorSlots* slots) {
    PyObject* meta = read_slot(tensor, slots->grad);
    PyObject* view = read_slot(tensor, slots->view);
    if (view == Py_None) {
        if (meta == Py_None) return 0;
        if (meta != nullptr && know_meta(Py_TYPE(meta))) {
            PyObject *flag = read_slot(meta, meta_requires_grad), *function = read_slot(meta, meta_grad_fn);
            if (flag != nullptr && function != nullptr) return flag == Py_True || function != Py_None;
        }
    }
    return ask_requires_grad(tensor, slots);
}

// Sizes and strides of a tensor whose data is a NumPy array. Strides of dimensions with one element mean nothing.
Difference compare_array(const TensorSpec* spec, PyArrayObject* array) {
    if (PyArray_NDIM(array) != spec->rank) return {Part::rank, 0, PyArray_NDIM(array)};
    const npy_intp *sizes = PyArray_DIMS(array), *steps = PyArray_STRIDES(array);
    for (int d = 0; d < spec->rank; d++)
        if (spec->sizes[d] != sizes[d] && spec->sizes[d] >= 0) return {Part::size, d, sizes[d]};
    if (spec->dense && PyArray_IS_C_CONTIGUOUS(array)) return {};
    if (spec->steps == nullptr && !spec->dense) return {};
    npy_intp item = PyArray_ITEMSIZE(array), dense_step = 1;
    for (int d = spec->rank - 1; d >= 0; d--) {
        npy_intp expected = spec->dense ? dense_step : spec->steps[d];
        if (sizes[d] > 1 && expected >= 0 && steps[d] != expected * item) return {Part::stride, d, steps[d] / item};
        dense_step *= sizes[d];
    }
    return {};
}

// The same from a Layout tuple (shape, strides, offset), for data that is not a NumPy array.
Difference compare_layout(const TensorSpec* spec, PyObject* layout) {
    if (!PyTuple_Check(layout) || PyTuple_GET_SIZE(layout) < 2) return {Part::rank, 0, -1};
    PyObject *shape = PyTuple_GET_ITEM(layout, 0), *strides = PyTuple_GET_ITEM(layout, 1);
    if (!PyTuple_Check(shape) || !PyTuple_Check(strides) || PyTuple_GET_SIZE(shape) != PyTuple_GET_SIZE(strides))
        return {Part::rank, 0, -1};
    if (PyTuple_GET_SIZE(shape) != spec->rank) return {Part::rank, 0, PyTuple_GET_SIZE(shape)};
    auto value = [](PyObject* number) { return PyLong_Check(number) ? PyLong_AsLongLong(number) : -1; };
    int64_t dense_step = 1;
    for (int d = spec->rank - 1; d >= 0; d--) {
        int64_t size = value(PyTuple_GET_ITEM(shape, d)), step = value(PyTuple_GET_ITEM(strides, d));
        if (PyErr_Occurred()) return {Part::error};
        if (spec->sizes[d] >= 0 && size != spec->sizes[d]) return {Part::size, d, size};
        int64_t expected = spec->dense ? dense_step : spec->steps != nullptr ? spec->steps[d] : -1;
        if (size != 1 && expected >= 0 && step != expected) return {Part::stride, d, step};
        dense_step *= size;
    }
    return {};
}

Difference compare_tensor(const TensorSpec* spec, PyObject* tensor) {
    if (Py_TYPE(tensor) != spec->type) return {Part::type};
    const TensorSlots* slots = tensor_slots(tensor);
    if (slots == nullptr) return {Part::type};
    if (read_slot(tensor, slots->dtype) != spec->dtype) return {Part::dtype};
    PyObject* device = read_slot(tensor, slots->device);
    if (device != spec->device) {
        int same = device != nullptr ? PyObject_RichCompareBool(device, spec->device, Py_EQ) : 0;
        if (same <= 0) return {same < 0 ? Part::error : Part::device};
    }
    PyObject* data = read_slot(tensor, slots->data);
    if (data == nullptr || (data == Py_None && !spec->shapes_alone)) return {Part::data};  // compiled code computes with elements
    Difference layout_difference;
    if (PyArray_Check(data) && !PyArray_CheckExact(data)) return {Part::data};  // a conjugate or negative view: not what memory holds
    if (PyArray_Check(data)) {
        layout_difference = compare_array(spec, (PyArrayObject*)data);
    } else {
        PyObject* layout = PyObject_GetAttrString(tensor, "_layout");
        if (layout == nullptr) return {Part::error};
        layout_difference = compare_layout(spec, layout);
        Py_DECREF(layout);
    }
    if (layout_difference.part != Part::none || spec->requires_grad < 0) return layout_difference;
    int flag = requires_grad(tensor, slots);
    if (flag < 0) return {Part::error};
    return {flag == spec->requires_grad ? Part::none : Part::requires_grad};
}

PyObject* describe(const TensorSpec* spec, PyObject* tensor, const Difference& difference) {
    switch (difference.part) {
        case Part::none: Py_RETURN_NONE;
        case Part::error: return nullptr;
        case Part::type: return PyUnicode_FromFormat("type %s expected, got %s", spec->type->tp_name, Py_TYPE(tensor)->tp_name);
        case Part::data: return PyUnicode_FromString("a tensor with data expected, got a fake one");
        case Part::rank: return PyUnicode_FromFormat("%d dimensions expected, got %lld", spec->rank, difference.found);
        case Part::size:
            return PyUnicode_FromFormat("size %lld expected at dimension %d, got %lld", spec->sizes[difference.dim],
                                        difference.dim, difference.found);
        case Part::stride:
            if (spec->dense) return PyUnicode_FromString("contiguous strides expected");
            return PyUnicode_FromFormat("stride %lld expected at dimension %d, got %lld", spec->steps[difference.dim],
                                        difference.dim, difference.found);
        case Part::requires_grad:
            return PyUnicode_FromFormat("requires_grad=%s expected", spec->requires_grad ? "True" : "False");
        default: break;
    }
    const char* name = difference.part == Part::dtype ? "dtype" : "device";
    PyObject* found = PyObject_GetAttrString(tensor, name);
    if (found == nullptr) return nullptr;
    PyObject* text = PyUnicode_FromFormat("%s %S expected, got %S", name,
                                          difference.part == Part::dtype ? spec->dtype : spec->device, found);
    Py_DECREF(found);
    return text;
}

// ------------------------------------------------------------------------------------------------------------- the type
// Reads a tuple of non-negative ints, with None for "any", into a new array of `rank` numbers.
int64_t* read_numbers(PyObject* tuple, const char* what, int rank) {
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != rank) {
        PyErr_Format(PyExc_TypeError, "TensorSpec: %s must be a tuple of %d ints or None, got %R", what, rank, tuple);
        return nullptr;
    }
    int64_t* numbers = (int64_t*)PyMem_Malloc((rank + 1) * sizeof(int64_t));
    if (numbers == nullptr) return (int64_t*)PyErr_NoMemory();
    for (int d = 0; d < rank; d++) {
        PyObject* item = PyTuple_GET_ITEM(tuple, d);
        numbers[d] = item == Py_None ? -1 : PyLong_AsLongLong(item);
        if (item != Py_None && numbers[d] < 0) {
            if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "TensorSpec: %s has a negative number: %R", what, tuple);
            PyMem_Free(numbers);
            return nullptr;
        }
    }
    return numbers;
}

// Whether given sizes and strides are those of a contiguous tensor, so that the flag can stand for the comparison.
bool is_dense(const TensorSpec* spec) {
    int64_t step = 1;
    for (int d = spec->rank - 1; d >= 0; d--) {
        if (spec->sizes[d] < 0) return false;
        if (spec->sizes[d] == 0) return true;
        if (spec->sizes[d] > 1 && spec->steps[d] != step) return false;
        step *= spec->sizes[d];
    }
    return true;
}

// 1, 0, or -1 with an error set.
int is_meta(PyObject* device) {
    PyObject* kind = PyObject_GetAttrString(device, "type");
    if (kind == nullptr) return -1;
    bool meta = PyUnicode_Check(kind) && PyUnicode_CompareWithASCIIString(kind, "meta") == 0;
    Py_DECREF(kind);
    return meta;
}

bool read_layout(TensorSpec* self) {
    if (!PyTuple_Check(self->shape) || PyTuple_GET_SIZE(self->shape) > 64) {
        PyErr_Format(PyExc_TypeError, "TensorSpec: shape must be a tuple, got %R", self->shape);
        return false;
    }
    self->rank = (int)PyTuple_GET_SIZE(self->shape);
    self->sizes = read_numbers(self->shape, "shape", self->rank);
    if (self->sizes == nullptr) return false;
    if (self->strides == Py_None) return true;
    if (self->strides == Py_True) return self->dense = true;
    self->steps = read_numbers(self->strides, "strides", self->rank);
    if (self->steps == nullptr) return false;
    self->dense = is_dense(self);
    return true;
}

PyObject* spec_call(PyObject* object, PyObject* const* arguments, size_t flags, PyObject* names) {
    if (PyVectorcall_NARGS(flags) != 1 || names != nullptr) {
        PyErr_SetString(PyExc_TypeError, "a TensorSpec is called with one tensor");
        return nullptr;
    }
    Difference difference = compare_tensor((TensorSpec*)object, arguments[0]);
    if (difference.part == Part::error) return nullptr;
    return PyBool_FromLong(difference.part == Part::none);
}

PyObject* spec_difference(PyObject* object, PyObject* tensor) {
    TensorSpec* self = (TensorSpec*)object;
    return describe(self, tensor, compare_tensor(self, tensor));
}

PyObject* spec_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
    static const char* names[] = {"type", "dtype", "device", "shape", "strides", "requires_grad", nullptr};
    PyObject *tensor_type, *dtype, *device, *shape, *strides = Py_None, *grad = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!OOO|OO:TensorSpec", (char**)names, &PyType_Type, &tensor_type,
                                     &dtype, &device, &shape, &strides, &grad))
        return nullptr;
    TensorSpec* self = (TensorSpec*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->type = (PyTypeObject*)Py_NewRef(tensor_type);
    self->dtype = Py_NewRef(dtype);
    self->device = Py_NewRef(device);
    self->shape = Py_NewRef(shape);
    self->strides = Py_NewRef(strides);
    self->requires_grad = grad == Py_None ? -1 : PyObject_IsTrue(grad);
    self->shapes_alone = is_meta(device) == 1;
    self->vectorcall = spec_call;
    if (PyErr_Occurred() || !read_layout(self)) Py_CLEAR(self);
    return (PyObject*)self;
}

using HeldTensorSpec = Held<TensorSpec, &TensorSpec::type, &TensorSpec::dtype, &TensorSpec::device, &TensorSpec::shape, &TensorSpec::strides>;

void spec_dealloc(PyObject* object) {
    TensorSpec* self = (TensorSpec*)object;
    PyObject_GC_UnTrack(object);
    HeldTensorSpec::clear(object);
    PyMem_Free(self->sizes);
    PyMem_Free(self->steps);
    free_object(object);
}

PyObject* requires_grad_object(const TensorSpec* spec) {
    return spec->requires_grad < 0 ? Py_None : spec->requires_grad ? Py_True : Py_False;
}

PyObject* spec_repr(PyObject* object) {
    TensorSpec* self = (TensorSpec*)object;
    return PyUnicode_FromFormat("TensorSpec(%s, %S, %S, shape=%R, strides=%R, requires_grad=%R)", self->type->tp_name,
                                self->dtype, self->device, self->shape, self->strides, requires_grad_object(self));
}

PyObject* spec_reduce(PyObject* object, PyObject*) {
    TensorSpec* self = (TensorSpec*)object;
    return Py_BuildValue("O(OOOOOO)", Py_TYPE(object), self->type, self->dtype, self->device, self->shape, self->strides,
                         requires_grad_object(self));
}

PyMethodDef spec_methods[] = {
    {"difference", spec_difference, METH_O, "difference(tensor) -> str | None\n\nThe first thing that differs, in words."},
    {"__reduce__", spec_reduce, METH_NOARGS, nullptr},
    {nullptr},
};

PyMemberDef spec_members[] = {
    {"type", T_OBJECT_EX, offsetof(TensorSpec, type), READONLY, nullptr},
    {"dtype", T_OBJECT_EX, offsetof(TensorSpec, dtype), READONLY, nullptr},
    {"device", T_OBJECT_EX, offsetof(TensorSpec, device), READONLY, nullptr},
    {"shape", T_OBJECT_EX, offsetof(TensorSpec, shape), READONLY, nullptr},
    {"strides", T_OBJECT_EX, offsetof(TensorSpec, strides), READONLY, nullptr},
    vectorcall_member<TensorSpec>,
    {nullptr},
};

const char spec_doc[] =
    "TensorSpec(type, dtype, device, shape, strides=None, requires_grad=None)\n--\n\n"
    "What is expected of a tensor; `spec(tensor)` tells whether it holds. `type` is compared exactly, `dtype` by identity,\n"
    "`device` by value. In `shape` None stands for any size. `strides`: None, not compared; True, contiguous; or a tuple in\n"
    "elements, None for any. The stride of a dimension with one element is never compared.";

PyType_Slot spec_slots[] = {
    {Py_tp_doc, (void*)spec_doc},           {Py_tp_new, (void*)spec_new},
    {Py_tp_dealloc, (void*)spec_dealloc},   {Py_tp_traverse, (void*)HeldTensorSpec::traverse},
    {Py_tp_clear, (void*)HeldTensorSpec::clear},       {Py_tp_call, (void*)PyVectorcall_Call},
    {Py_tp_repr, (void*)spec_repr},         {Py_tp_methods, spec_methods},
    {Py_tp_members, spec_members},          {0, nullptr},
};

PyType_Spec spec_spec = {
    "flambeau._C.TensorSpec", sizeof(TensorSpec), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, spec_slots,
};

PyTypeObject* spec_type;

PyObject* check_tensors(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2 || !PyTuple_Check(arguments[0]) || !PyTuple_Check(arguments[1]) ||
        PyTuple_GET_SIZE(arguments[0]) != PyTuple_GET_SIZE(arguments[1]))
        return PyErr_SetString(PyExc_TypeError, "check_tensors(tensors, specs) takes two tuples of one length"), nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments[0]); i++) {
        PyObject* spec = PyTuple_GET_ITEM(arguments[1], i);
        if (!is_tensor_spec(spec))
            return PyErr_Format(PyExc_TypeError, "check_tensors(): expected a TensorSpec, got %R", spec);
        int fits = tensor_fits(spec, PyTuple_GET_ITEM(arguments[0], i));
        if (fits < 0) return nullptr;
        if (!fits) Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

PyMethodDef methods[] = {
    {"check_tensors", (PyCFunction)(void (*)(void))check_tensors, METH_FASTCALL,
     "check_tensors(tensors, specs) -> bool\n\nWhether each tensor of the tuple is as its TensorSpec says."},
    {nullptr},
};

}  // namespace

bool is_tensor_spec(PyObject* object) { return Py_IS_TYPE(object, spec_type); }

int tensor_fits(PyObject* spec, PyObject* tensor) {
    Part part = compare_tensor((TensorSpec*)spec, tensor).part;
    return part == Part::error ? -1 : part == Part::none;
}

void add_guards(PyObject* module) {
    spec_type = add_type(module, spec_spec);
    PyModule_AddFunctions(module, methods);
}
