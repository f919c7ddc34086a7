// The native module flambeau._C: mechanism only. It uses the plain C API, because its callers sit on hot paths where the
// argument handling of a binding library would be most of the cost.
#include "module.h"

#define NPY_IMPORT_ARRAY_HERE
#include "numpy_api.h"

namespace {

struct Part {
    const char* name;
    void (*add)(PyObject* module);
};

// One line for each file of csrc/ that adds functions or types. An `add` reports failure through the Python error state.
const Part parts[] = {
#ifdef FLAMBEAU_WITH_ALLOC
    {"alloc", add_alloc},
#endif
#ifdef FLAMBEAU_WITH_ATTENTION
    {"attention", add_attention},
#endif
#ifdef FLAMBEAU_WITH_EAGER
    {"eager", add_eager},
#endif
#ifdef FLAMBEAU_WITH_ELEMENTWISE
    {"elementwise", add_elementwise},
#endif
#ifdef FLAMBEAU_WITH_FRAME_HOOK
    {"frame_hook", add_frame_hook},
#endif
#ifdef FLAMBEAU_WITH_GUARDS
    {"guards", add_guards},
#endif
#ifdef FLAMBEAU_WITH_INSTRUCTION_SET
    {"instruction_set", add_instruction_set},
#endif
#ifdef FLAMBEAU_WITH_KERNELS
    {"kernels", add_kernels},
#endif
#ifdef FLAMBEAU_WITH_LAUNCH
    {"launch", add_launch},
#endif
#ifdef FLAMBEAU_WITH_PHILOX
    {"philox", add_philox},
#endif
#ifdef FLAMBEAU_WITH_MT19937
    {"mt19937", add_mt19937},
#endif
#ifdef FLAMBEAU_WITH_ONEDNN
    {"onednn", add_onednn},
#endif
#ifdef FLAMBEAU_WITH_OPTIM
    {"optim", add_optim},
#endif
#ifdef FLAMBEAU_WITH_POOL
    {"pool", add_pool},
#endif
#ifdef FLAMBEAU_WITH_REPLAY
    {"replay", add_replay},
#endif
#ifdef FLAMBEAU_WITH_SPECIAL
    {"special", add_special},
#endif
#ifdef FLAMBEAU_WITH_STATE
    {"state", add_state},
#endif
#ifdef FLAMBEAU_WITH_SURROUNDINGS
    {"surroundings", add_surroundings},
#endif
#ifdef FLAMBEAU_WITH_TENSORS
    {"tensors", add_tensors},
#endif
#ifdef FLAMBEAU_WITH_THREADS
    {"threads", add_threads},
#endif
#ifdef FLAMBEAU_WITH_UNCHANGED
    {"unchanged", add_unchanged},
#endif
    {nullptr, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "flambeau._C", "Native mechanism of Flambeau.", -1, nullptr, nullptr, nullptr, nullptr, nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__C(void) {
    if (PyArray_ImportNumPyAPI() < 0) return nullptr;
    PyObject* module = PyModule_Create(&definition);
    if (module == nullptr) return nullptr;
    PyObject* built = PyList_New(0);
    for (const Part* part = parts; part->name != nullptr; part++) {
        part->add(module);
        if (PyErr_Occurred()) {
            Py_DECREF(built);
            Py_DECREF(module);
            return nullptr;
        }
        PyObject* name = PyUnicode_FromString(part->name);
        PyList_Append(built, name);
        Py_DECREF(name);
    }
    PyModule_AddObject(module, "parts", PyList_AsTuple(built));
    Py_DECREF(built);
    return module;
}
