// philox.h for Python: philox_draw fills an array with random numbers.
#define FLAMBEAU_NATIVE_MODULE
#include "module.h"

#include <cstring>

#include "numpy_api.h"
#include "philox.h"
#include "runtime.h"

namespace {

PyObject* draw(PyObject*, PyObject* arguments) {
    const char* name;
    PyObject *object, *numbers[2];
    if (!PyArg_ParseTuple(arguments, "sOOO:philox_draw", &name, &object, &numbers[0], &numbers[1])) return nullptr;
    PyArrayObject* array = (PyArrayObject*)object;
    if (!PyArray_Check(object) || !PyArray_IS_C_CONTIGUOUS(array) || !PyArray_ISBEHAVED(array))
        return PyErr_Format(PyExc_TypeError, "philox_draw(): expected a C-contiguous, writable NumPy array, got %R", (PyObject*)Py_TYPE(object));
    const bool bits = std::strcmp(name, "bits") == 0;
    const npy_intp size = PyArray_ITEMSIZE(array), n = PyArray_SIZE(array);
    if (!(bits ? PyArray_ISINTEGER(array) : PyArray_ISFLOAT(array)) || (size != 4 && size != 8))
        return PyErr_Format(PyExc_TypeError, "philox_draw(): expected an array of %s of 32 or 64 bits, got dtype %S",
                            bits ? "integers" : "floats", (PyObject*)PyArray_DESCR(array));
    uint64_t state[2];
    for (int i = 0; i < 2; i++) state[i] = PyLong_AsUnsignedLongLongMask(numbers[i]);
    if (PyErr_Occurred()) return nullptr;
    void* out = PyArray_DATA(array);
    Py_BEGIN_ALLOW_THREADS;
    if (bits) philox_bits((uint32_t*)out, n * (size / 4), state[0], state[1]);
    else philox_floats(std::strcmp(name, "normal") == 0, size, out, n, state[0], state[1]);
    Py_END_ALLOW_THREADS;
    return Py_NewRef(object);
}

PyMethodDef methods[] = {
    {"philox_draw", draw, METH_VARARGS, "philox_draw(name, out, seed, offset) -> out\n\nNumbers: uniform in [0, 1), normal, or bits."},
    {nullptr},
};

}  // namespace

void add_philox(PyObject* module) {
    if (PyModule_AddFunctions(module, methods) == 0) flambeau_register("philox_run", (void*)philox_run);
}
