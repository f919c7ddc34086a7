#include "module.h"
void add_replay(PyObject*) {}
