// A loaded GPU function, for those who launch it without Python.
#pragma once
#include "module.h"

union Word {
    unsigned long long address;
    long long wide;
    int narrow;
    double number;
    float single;
};

constexpr int most_parameters = 96;

using Launch = int (*)(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, void* stream, void** parameters, void** extra);

struct CudaKernel {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Launch launch;
    void* function;
    PyObject* owner;  // keeps the loaded module alive
    PyObject* enter;  // makes the device's context this thread's
    unsigned block, shared;
    int count;
    char kinds[most_parameters];
};

bool is_cuda_kernel(PyObject* object);

// A parameter of a kind (p, l, i, d or f) from a Python number; false with an error set.
bool read_word(char kind, PyObject* value, Word* word);

// Queues `grid` blocks with `kernel->count` parameters; false with an error set.
bool launch_kernel(const CudaKernel* kernel, void* stream, unsigned long grid, Word* words);

void add_gpu_program(PyObject* module);
