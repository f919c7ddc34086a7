#include "tensors.h"

#include <initializer_list>

#include "dtypes.h"
#include "module.h"

namespace {

// Told by `know_tensors`.
PyTypeObject* tensor_type;
PyObject* cpu;
PyObject* dtype_of_numpy;               // from a NumPy dtype to ours, or TypeError
constexpr int fixed_types = NPY_HALF + 1;
PyObject* dtype_of_type[fixed_types];   // the same for NumPy's own numbers
Py_ssize_t store_slot = -1;
PyTypeObject* meta_type;
Py_ssize_t meta_requires_grad, meta_grad_fn;

PyObject* dtype_of(PyArrayObject* array) {
    int type = PyArray_TYPE(array);
    if (type < fixed_types && dtype_of_type[type] != nullptr && PyArray_ISNBO(PyArray_DESCR(array)->byteorder)) return dtype_of_type[type];
    PyObject* found = PyObject_CallOneArg(dtype_of_numpy, (PyObject*)PyArray_DESCR(array));
    Py_XDECREF(found);  // dtypes live for ever
    return found;
}

bool meta_is_idle(PyObject* meta) {
    if (meta == Py_None || meta == nullptr) return true;
    if (Py_TYPE(meta) != meta_type) return false;
    return read_slot(meta, meta_requires_grad) == Py_False && read_slot(meta, meta_grad_fn) == Py_None;
}

void set_slot(PyObject* object, Py_ssize_t offset, PyObject* value) { *(PyObject**)((char*)object + offset) = Py_NewRef(value); }

PyObject* make(PyObject* array, PyObject* dtype, PyObject* device) {
    const TensorSlots& slots = known_slots();
    PyObject* made = tensor_type->tp_alloc(tensor_type, 0);
    if (made == nullptr) return Py_DECREF(array), nullptr;
    *(PyObject**)((char*)made + slots.data) = array;
    set_slot(made, slots.layout, Py_None);
    set_slot(made, store_slot, Py_None);
    set_slot(made, slots.grad, Py_None);
    set_slot(made, slots.view, Py_None);
    set_slot(made, slots.dtype, dtype);
    set_slot(made, slots.device, device);
    return made;
}

PyObject* from_array(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count < 1 || count > 3) return PyErr_Format(PyExc_TypeError, "tensor_around(array, dtype=None, device=CPU) got %zd arguments", count);
    PyObject *dtype = count > 1 ? args[1] : Py_None, *device = count > 2 ? args[2] : cpu;
    if (dtype == Py_None) {
        if (!PyArray_Check(args[0])) return PyErr_Format(PyExc_TypeError, "expected a NumPy array, got %R", (PyObject*)Py_TYPE(args[0]));
        if ((dtype = dtype_of((PyArrayObject*)args[0])) == nullptr) return nullptr;
    }
    return make(Py_NewRef(args[0]), dtype, device);
}

PyObject* know_tensors(PyObject*, PyObject* args) {
    PyTypeObject *type, *meta;
    PyObject *device, *function;
    if (!PyArg_ParseTuple(args, "O!O!OO", &PyType_Type, &type, &PyType_Type, &meta, &device, &function)) return nullptr;
    store_slot = slot_offset(type, "_store");
    meta_requires_grad = slot_offset(meta, "requires_grad"), meta_grad_fn = slot_offset(meta, "grad_fn");
    if (store_slot < 0 || meta_requires_grad < 0 || meta_grad_fn < 0 || !learn_slots(type))
        return PyErr_Format(PyExc_TypeError, "these classes do not have the slots of a tensor");
    tensor_type = (PyTypeObject*)Py_NewRef(type), meta_type = (PyTypeObject*)Py_NewRef(meta);
    cpu = Py_NewRef(device), dtype_of_numpy = Py_NewRef(function);
    for (int number : {NPY_BOOL, NPY_UBYTE, NPY_BYTE, NPY_SHORT, NPY_INT, NPY_LONG, NPY_LONGLONG, NPY_HALF, NPY_FLOAT, NPY_DOUBLE,
                       NPY_CFLOAT, NPY_CDOUBLE}) {
        PyObject* descr = (PyObject*)PyArray_DescrFromType(number);
        dtype_of_type[number] = PyObject_CallOneArg(dtype_of_numpy, descr);
        Py_XDECREF(descr);
        if (dtype_of_type[number] == nullptr) return nullptr;
    }
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"know_tensors", know_tensors, METH_VARARGS, "know_tensors(Tensor, AutogradMeta, CPU, dtype_of_numpy)\n\nOnce, before any tensor is made."},
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

PyArrayObject* cpu_array(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    if (tensor_type == nullptr || (type != tensor_type && !PyType_IsSubtype(type, tensor_type))) return nullptr;
    PyObject* data = read_slot(object, known_slots().data);
    return data != nullptr && Py_IS_TYPE(data, &PyArray_Type) ? (PyArrayObject*)data : nullptr;
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

PyObject* new_array(Kind kind, int rank, const npy_intp* sizes) {
    constexpr int types[] = {NPY_BOOL, NPY_UINT8, NPY_INT8, NPY_INT16, NPY_INT32, NPY_INT64, NPY_HALF, -1, NPY_FLOAT, NPY_DOUBLE, -1};
    return PyArray_New(&PyArray_Type, rank, (npy_intp*)sizes, types[(int)kind], nullptr, nullptr, 0, 0, nullptr);
}

void add_tensors(PyObject* module) { PyModule_AddFunctions(module, methods); }
