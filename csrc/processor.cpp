// instruction_set.h for Python.
#include "module.h"

#include "instruction_set.h"

namespace {

PyObject* name_of_level(PyObject*, PyObject*) { return PyUnicode_FromString(instruction_set_name()); }

PyObject* names_of_levels(PyObject*, PyObject*) {
    int count = instruction_set_count();
    PyObject* made = PyTuple_New(count);
    for (int i = 0; made != nullptr && i < count; i++) PyTuple_SET_ITEM(made, i, PyUnicode_FromString(instruction_set_name(i)));
    return made;
}

PyMethodDef methods[] = {
    {"instruction_set", name_of_level, METH_NOARGS, "instruction_set() -> str\n\nWhat native code may use, by oneDNN's name for it."},
    {"instruction_sets", names_of_levels, METH_NOARGS, "instruction_sets() -> tuple of str\n\nWhat this processor has, the narrowest first."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_processor(PyObject* module) { PyModule_AddFunctions(module, methods); }
