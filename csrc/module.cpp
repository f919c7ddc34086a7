// The native module flambeau._C: mechanism only. It uses the plain C API, because its callers sit on hot paths where the
// argument handling of a binding library would be most of the cost.
#include "module.h"

#define NPY_IMPORT_ARRAY_HERE
#include "numpy_api.h"


namespace {

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "flambeau._C", "Native mechanism of Flambeau.", -1, nullptr, nullptr, nullptr, nullptr, nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__C(void) {
    if (PyArray_ImportNumPyAPI() < 0) return nullptr;
    PyObject* module = PyModule_Create(&definition);
    if (module == nullptr) return nullptr;
    for (auto add : {
#define FL_ADD(name) add_##name,
             FL_PARTS(FL_ADD)
         }) {
        add(module);
        if (PyErr_Occurred()) {
            Py_DECREF(module);
            return nullptr;
        }
    }
    return module;
}
