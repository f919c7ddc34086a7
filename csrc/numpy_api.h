// NumPy's C API with one import table for the whole module: module.cpp defines it, everyone else refers to it.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define PY_ARRAY_UNIQUE_SYMBOL flambeau_numpy_api
#ifndef NPY_IMPORT_ARRAY_HERE
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
