// The scalar operations of flambeau/core/scalar.py as loops over strided rows.
#pragma once
#include <cstddef>

#include "kinds.h"

// out[i] = op(in[0][i], in[1][i], ...) for i < n; strides in bytes. `out` may be one of the inputs.
using RowLoop = void (*)(char* out, ptrdiff_t out_stride, const char* const* in, const ptrdiff_t* strides, ptrdiff_t n);
// total[i] = total[i] op x[i]; if all totals are one (stride 0), *total = *total op x[0] op x[1] ...
using RowFold = void (*)(char* total, ptrdiff_t total_stride, const char* x, ptrdiff_t stride, ptrdiff_t n);

struct ScalarLoop {
    const char* name;
    Kind in;  // of all operands; of the second and third for `where`
    RowLoop run;
    Kind out;
    int arity;
    int cost;  // of an element, relative to an addition
    bool selects = false;  // the first operand is a condition
};
struct FoldLoop {
    const char* name;
    Kind kind, total;
    RowFold run;
};

const ScalarLoop* find_scalar(const char* name, Kind in);  // null where there is none
const FoldLoop* find_fold(const char* name, Kind kind);

// kernels.cpp: conversion of a row; null for kinds that have none.
using ConvertRow = void (*)(char* to, ptrdiff_t to_stride, const char* from, ptrdiff_t from_stride, ptrdiff_t n);
ConvertRow find_conversion(Kind to, Kind from);

inline int size_of(Kind kind) {
    constexpr int sizes[] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 0};
    return sizes[(int)kind];
}
