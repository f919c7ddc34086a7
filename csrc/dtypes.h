// Which of the dtypes that native loops know an array has.
#pragma once
#include <cstring>

#include "kinds.h"
#include "numpy_api.h"

// ml_dtypes registers bfloat16 at run time; its number is learned from the first array of it.
inline bool is_bfloat16(PyArrayObject* array) {
    static int known = -1;
    int type = PyArray_TYPE(array);
    if (type == known) return true;
    if (type < NPY_USERDEF || known != -1) return false;
    const char* name = std::strrchr(PyArray_DESCR(array)->typeobj->tp_name, '.');
    name = name ? name + 1 : PyArray_DESCR(array)->typeobj->tp_name;
    if (std::strcmp(name, "bfloat16") != 0) return false;
    known = type;
    return true;
}

inline Kind kind_of(PyArrayObject* array) {
    switch (PyArray_TYPE(array)) {
        case NPY_BOOL: return Kind::boolean;
        case NPY_UBYTE: return Kind::u8;
        case NPY_BYTE: return Kind::i8;
        case NPY_SHORT: return Kind::i16;
        case NPY_INT: return Kind::i32;
        case NPY_LONG:
        case NPY_LONGLONG: return PyArray_ITEMSIZE(array) == 8 ? Kind::i64 : Kind::i32;
        case NPY_HALF: return Kind::f16;
        case NPY_FLOAT: return Kind::f32;
        case NPY_DOUBLE: return Kind::f64;
        default: return is_bfloat16(array) ? Kind::bf16 : Kind::other;
    }
}
