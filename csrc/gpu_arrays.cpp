#include "gpu_arrays.h"

#include <algorithm>

#include "tensors.h"

namespace {

// Told by `know_gpu_arrays`.
PyTypeObject* array_type;
PyObject *device_function, *stream_function;

PyObject *name_data, *name_ptr, *name_shape, *name_strides, *name_itemsize, *name_c_contiguous, *name_f_contiguous, *name_dtype, *name_nbytes;

PyObject* know_gpu_arrays(PyObject*, PyObject* args) {
    PyTypeObject* type;
    PyObject *device, *stream;
    if (!PyArg_ParseTuple(args, "O!OO", &PyType_Type, &type, &device, &stream)) return nullptr;
    struct {
        PyObject** name;
        const char* text;
    } names[] = {{&name_data, "data"}, {&name_ptr, "ptr"}, {&name_shape, "shape"}, {&name_strides, "strides"}, {&name_itemsize, "itemsize"},
                 {&name_c_contiguous, "_c_contiguous"}, {&name_f_contiguous, "_f_contiguous"},
                 {&name_dtype, "dtype"}, {&name_nbytes, "nbytes"}};
    for (auto& each : names)
        if (*each.name == nullptr && (*each.name = PyUnicode_InternFromString(each.text)) == nullptr) return nullptr;
    Py_XSETREF(device_function, Py_NewRef(device));
    Py_XSETREF(stream_function, Py_NewRef(stream));
    array_type = (PyTypeObject*)Py_NewRef(type);
    Py_RETURN_NONE;
}

bool is_true(PyObject* array, PyObject* name) {
    PyObject* flag = PyObject_GetAttr(array, name);
    int answer = flag != nullptr ? PyObject_IsTrue(flag) : -1;
    Py_XDECREF(flag);
    if (answer < 0) PyErr_Clear();
    return answer == 1;
}

PyMethodDef methods[] = {
    {"know_gpu_arrays", know_gpu_arrays, METH_VARARGS,
     "know_gpu_arrays(ndarray, current_device, current_stream)\n\nCuPy's class of arrays, and functions that give the number of the\n"
     "current GPU and the handle of the current stream."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool is_gpu_array(PyObject* object) { return array_type != nullptr && Py_IS_TYPE(object, array_type); }

PyObject* gpu_array(PyObject* tensor) {
    if (array_type == nullptr || !is_tensor(tensor)) return nullptr;
    PyObject* data = read_slot(tensor, known_slots().data);
    return data != nullptr && Py_IS_TYPE(data, array_type) ? data : nullptr;
}

bool gpu_address(PyObject* array, unsigned long long* out) {
    PyObject* memory = PyObject_GetAttr(array, name_data);
    PyObject* address = memory != nullptr ? PyObject_GetAttr(memory, name_ptr) : nullptr;
    if (address != nullptr) *out = PyLong_AsUnsignedLongLong(address);
    Py_XDECREF(memory);
    Py_XDECREF(address);
    return address != nullptr && !PyErr_Occurred();
}

PyObject* new_gpu_array(PyObject* shape, PyObject* dtype) {
    PyObject* args[] = {nullptr, shape, dtype};
    return PyObject_Vectorcall((PyObject*)array_type, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
}

PyObject* gpu_array_over(PyObject* owner, long long offset, PyObject* shape, PyObject* dtype, PyObject* strides) {
    if (dtype == nullptr) {
        PyObject* own = gpu_dtype(owner);
        PyObject* made = own != nullptr ? gpu_array_over(owner, offset, shape, own, strides) : nullptr;
        Py_XDECREF(own);
        return made;
    }
    PyObject* memory = PyObject_GetAttr(owner, name_data);
    if (memory != nullptr && offset != 0) {
        PyObject* by = PyLong_FromLongLong(offset);
        Py_SETREF(memory, by != nullptr ? PyNumber_Add(memory, by) : nullptr);
        Py_XDECREF(by);
    }
    if (memory == nullptr) return nullptr;
    PyObject* args[] = {nullptr, shape, dtype, memory, strides};
    PyObject* made = PyObject_Vectorcall((PyObject*)array_type, args + 1, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    Py_DECREF(memory);
    return made;
}

bool current_gpu(long* out) {
    PyObject* number = PyObject_CallNoArgs(device_function);
    if (number != nullptr) *out = PyLong_AsLong(number);
    Py_XDECREF(number);
    return number != nullptr && !PyErr_Occurred();
}

bool current_stream(void** out) {
    PyObject* handle = PyObject_CallNoArgs(stream_function);
    if (handle != nullptr) *out = PyLong_AsVoidPtr(handle);
    Py_XDECREF(handle);
    return handle != nullptr && !PyErr_Occurred();
}

bool gpu_layout(PyObject* array, PyObject** shape, PyObject** strides) {
    PyObject* size = PyObject_GetAttr(array, name_itemsize);
    long long item = size != nullptr ? std::max<long long>(PyLong_AsLongLong(size), 1) : 1, step = 1;
    Py_XDECREF(size);
    *shape = PyErr_Occurred() ? nullptr : PyObject_GetAttr(array, name_shape);
    PyObject* bytes = *shape != nullptr ? PyObject_GetAttr(array, name_strides) : nullptr;
    *strides = bytes != nullptr ? PyTuple_New(PyTuple_GET_SIZE(bytes)) : nullptr;
    bool dense = *strides != nullptr && is_true(array, name_c_contiguous);  // then a dimension of size 0 counts as 1, as in torch
    for (Py_ssize_t d = *strides != nullptr ? PyTuple_GET_SIZE(bytes) - 1 : -1; d >= 0; d--) {
        long long own = PyLong_AsLongLong(PyTuple_GET_ITEM(bytes, d)) / item;
        PyTuple_SET_ITEM(*strides, d, PyLong_FromLongLong(dense ? step : own));
        step *= std::max<long long>(PyLong_AsLongLong(PyTuple_GET_ITEM(*shape, d)), 1);
    }
    Py_XDECREF(bytes);
    if (!PyErr_Occurred()) return true;
    Py_CLEAR(*shape);
    Py_CLEAR(*strides);
    return false;
}

PyObject* gpu_dtype(PyObject* array) { return PyObject_GetAttr(array, name_dtype); }

PyObject* gpu_nbytes(PyObject* array) { return PyObject_GetAttr(array, name_nbytes); }

bool is_dense_gpu_array(PyObject* array) { return is_true(array, name_c_contiguous) || is_true(array, name_f_contiguous); }

void add_gpu_arrays(PyObject* module) { PyModule_AddFunctions(module, methods); }
