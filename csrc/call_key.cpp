#include "call_key.h"

#include <algorithm>

#include "gpu_arrays.h"
#include "state.h"
#include "tensors.h"

namespace {

// Told by `know_constants` and `know_plain`: tuples of classes.
PyObject *constant_types, *plain_types;

constexpr npy_intp most_elements = 1 << 16;
constexpr int deepest = 4;

bool is_one_of(PyObject* types, PyObject* value) {
    for (Py_ssize_t i = 0; types != nullptr && i < PyTuple_GET_SIZE(types); i++)
        if (Py_IS_TYPE(value, (PyTypeObject*)PyTuple_GET_ITEM(types, i))) return true;
    return false;
}

bool tell_layout(CallKey& key, PyObject* tensor, PyArrayObject* array) {
    PyObject* layout = read_slot(tensor, known_slots().layout);
    int rank = PyArray_NDIM(array);
    key.add((char)(rank * 2 + (layout != Py_None)));
    key.add(PyArray_DIMS(array), rank * sizeof(npy_intp));
    if (layout == Py_None) return key.add(PyArray_STRIDES(array), rank * sizeof(npy_intp)), true;
    PyObject* strides = PyTuple_GET_ITEM(layout, 1);
    for (int d = 0; d <= rank; d++) {
        PyObject* number = d < rank ? PyTuple_GET_ITEM(strides, d) : PyTuple_GET_ITEM(layout, 2);
        if (!PyLong_CheckExact(number)) return false;
        key.add(PyLong_AsSsize_t(number));
    }
    return true;
}

// Elements on the CPU, of which there are few: their dtype, and how they lie.
bool tell_array(CallKey& key, PyObject* tensor, PyArrayObject* array) {
    if (PyArray_SIZE(array) > most_elements || !PyArray_ISBEHAVED_RO(array)) return false;
    key.add('T'), key.add(PyArray_TYPE(array));
    return tell_layout(key, tensor, array);
}

bool tell_numbers(CallKey& key, PyObject* tuple) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        if (!PyLong_CheckExact(PyTuple_GET_ITEM(tuple, i))) return false;
        key.add(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)));
    }
    return true;
}

// Elements on a GPU, however many: there a call's time in Python is waited for at any size.
bool tell_gpu_array(CallKey& key, PyObject* tensor) {
    PyObject* layout = layout_of(tensor);
    if (layout == nullptr) return false;
    key.add('G'), key.add(read_slot(tensor, known_slots().dtype)), key.add(device_number(read_slot(tensor, known_slots().device)));
    key.add((char)PyTuple_GET_SIZE(PyTuple_GET_ITEM(layout, 0)));
    return tell_numbers(key, PyTuple_GET_ITEM(layout, 0)) && tell_numbers(key, PyTuple_GET_ITEM(layout, 1)) &&
           PyLong_CheckExact(PyTuple_GET_ITEM(layout, 2)) && (key.add(PyLong_AsLongLong(PyTuple_GET_ITEM(layout, 2))), true);
}

bool tell_tensor(CallKey& key, PyObject* tensor, std::vector<PyObject*>* tensors) {
    if (!is_plain_tensor(tensor) && !is_one_of(plain_types, tensor)) return false;
    PyArrayObject* array = cpu_array(tensor);
    bool on_gpu = array == nullptr && tensors != nullptr && gpu_array(tensor) != nullptr;
    if (array != nullptr ? !tell_array(key, tensor, array) : !on_gpu || !tell_gpu_array(key, tensor)) return false;
    if (tensors == nullptr) return true;
    key.add(dispatch_state.grad_enabled && !needs_no_grad(tensor)), key.add(std::find(tensors->begin(), tensors->end(), tensor) - tensors->begin());
    return tensors->push_back(tensor), true;
}

}  // namespace

bool tell(CallKey& key, PyObject* value, std::vector<PyObject*>* tensors, int depth) {
    if (is_tensor(value)) return tell_tensor(key, value, tensors);
    if (value == Py_None) return key.add('n'), true;
    if (PyBool_Check(value)) return key.add(value == Py_True ? 't' : 'f'), true;
    if (PyFloat_CheckExact(value)) return key.add('d'), key.add(PyFloat_AS_DOUBLE(value)), true;
    if (PyLong_CheckExact(value)) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        return overflow == 0 && (key.add('i'), key.add(number), true);
    }
    if (PyTuple_Check(value) || PyList_CheckExact(value)) {
        Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
        key.add('s'), key.add(Py_TYPE(value)), key.add(count);
        for (Py_ssize_t i = 0; i < count; i++)
            if (depth == deepest || !tell(key, PySequence_Fast_GET_ITEM(value, i), tensors, depth + 1)) return false;
        return true;
    }
    if (value == Py_Ellipsis) return key.add('e'), true;
    if (PySlice_Check(value)) {
        PySliceObject* slice = (PySliceObject*)value;
        key.add('l');
        return tell(key, slice->start, tensors, depth + 1) && tell(key, slice->stop, tensors, depth + 1) && tell(key, slice->step, tensors, depth + 1);
    }
    if (!PyUnicode_CheckExact(value) && !is_one_of(constant_types, value)) return false;
    return key.add('o'), key.add(Py_TYPE(value)), key.add_object(value);
}

namespace {

PyObject* know_constants(PyObject*, PyObject* types) {
    Py_XSETREF(constant_types, Py_NewRef(types));
    Py_RETURN_NONE;
}

PyObject* know_plain(PyObject*, PyObject* types) {
    Py_XSETREF(plain_types, Py_NewRef(types));
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"know_constants", know_constants, METH_VARARGS, "know_constants(*classes)\n\nThe classes of further arguments whose instances do not change."},
    {"know_plain", know_plain, METH_VARARGS, "know_plain(*classes)\n\nThe subclasses of Tensor that operators take for plain tensors."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_call_key(PyObject* module) { PyModule_AddFunctions(module, methods); }
