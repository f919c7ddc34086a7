// philox_bits, philox_uniform and philox_normal: fill an array with the numbers that philox.h defines, in blocks that vectorise.
#define FLAMBEAU_NATIVE_MODULE
#include "philox.h"

#include <algorithm>

#include "instruction_set.h"
#include "module.h"
#include "numpy_api.h"
#include "runtime.h"
#include "threads.h"

namespace {

using namespace flambeau::philox;

constexpr int wide = 16;
constexpr int64_t chunk_blocks = 4096;  // of work that a thread takes at a time

uint64_t join(uint32_t low, uint32_t high) { return uint64_t(low) | uint64_t(high) << 32; }

// Each fills all 4 * wide (or 2 * wide) elements of `wide` blocks that start at block `first`.
template <class T>
using Fill = void (*)(uint64_t seed, uint64_t first, T* out);
struct PhiloxLoops {
    Fill<uint32_t> bits;
    Fill<float> uniform_f32, normal_f32;
    Fill<double> uniform_f64, normal_f64;
};

#define LOOPS "philox_loops.h"
#include "by_instruction_set.h"

// Fills out[begin:end] by `fill`, where each block gives 16 / sizeof(T) elements. The last, partial step goes through a buffer.
template <class T>
void fill_range(Fill<T> fill, T* out, int64_t begin, int64_t end, uint64_t seed, uint64_t offset) {
    constexpr int64_t step = wide * (16 / sizeof(T));
    for (int64_t i = begin; i < end; i += step) {
        uint64_t first = offset + uint64_t(i) / (16 / sizeof(T));
        if (i + step <= end) {
            fill(seed, first, out + i);
        } else {
            T buffer[step];
            fill(seed, first, buffer);
            std::copy(buffer, buffer + (end - i), out + i);
        }
    }
}

template <class T>
void fill_array(Fill<T> fill, T* out, int64_t n, uint64_t seed, uint64_t offset) {
    constexpr int64_t chunk = chunk_blocks * (16 / sizeof(T));
    int64_t chunks = (n + chunk - 1) / chunk;
    int threads = (int)std::min<int64_t>(chunks, thread_count());
    if (threads <= 1) return fill_range(fill, out, 0, n, seed, offset);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t c = 0; c < chunks; c++) fill_range(fill, out, c * chunk, std::min(n, (c + 1) * chunk), seed, offset);
}

// ------------------------------------------------------------------------------------------------ the Python surface
struct Draw {
    PyArrayObject* out;
    uint64_t seed, offset;
};

bool parse_draw(PyObject* arguments, const char* format, Draw* draw) {
    PyObject *array, *seed, *offset;
    if (!PyArg_ParseTuple(arguments, format, &array, &seed, &offset)) return false;
    if (!PyArray_Check(array) || !PyArray_IS_C_CONTIGUOUS((PyArrayObject*)array) || !PyArray_ISBEHAVED((PyArrayObject*)array)) {
        PyErr_Format(PyExc_TypeError, "%s(): expected a C-contiguous, writable NumPy array, got %R", strchr(format, ':') + 1,
                     (PyObject*)Py_TYPE(array));
        return false;
    }
    draw->out = (PyArrayObject*)array;
    draw->seed = PyLong_AsUnsignedLongLongMask(seed);
    if (draw->seed == (uint64_t)-1 && PyErr_Occurred()) return false;
    draw->offset = PyLong_AsUnsignedLongLongMask(offset);
    return !(draw->offset == (uint64_t)-1 && PyErr_Occurred());
}

template <class T>
PyObject* run(Fill<T> fill, const Draw& draw) {
    Py_INCREF(draw.out);
    T* out = (T*)PyArray_DATA(draw.out);
    int64_t n = PyArray_SIZE(draw.out);
    Py_BEGIN_ALLOW_THREADS;
    fill_array<T>(fill, out, n, draw.seed, draw.offset);
    Py_END_ALLOW_THREADS;
    return (PyObject*)draw.out;
}

PyObject* wrong_type(const char* name, const char* expected, const Draw& draw) {
    return PyErr_Format(PyExc_TypeError, "%s(): expected an array of %s, got dtype %S", name, expected,
                        (PyObject*)PyArray_DESCR(draw.out));
}

PyObject* philox_uniform(PyObject*, PyObject* arguments) {
    Draw draw;
    if (!parse_draw(arguments, "OOO:philox_uniform", &draw)) return nullptr;
    switch (PyArray_TYPE(draw.out)) {
        case NPY_FLOAT32: return run<float>(loops.uniform_f32, draw);
        case NPY_FLOAT64: return run<double>(loops.uniform_f64, draw);
        default: return wrong_type("philox_uniform", "float32 or float64", draw);
    }
}

PyObject* philox_normal(PyObject*, PyObject* arguments) {
    Draw draw;
    if (!parse_draw(arguments, "OOO:philox_normal", &draw)) return nullptr;
    switch (PyArray_TYPE(draw.out)) {
        case NPY_FLOAT32: return run<float>(loops.normal_f32, draw);
        case NPY_FLOAT64: return run<double>(loops.normal_f64, draw);
        default: return wrong_type("philox_normal", "float32 or float64", draw);
    }
}

// A 64-bit draw is the 32-bit draw of twice as many elements, seen as pairs (low word first).
PyObject* philox_bits(PyObject*, PyObject* arguments) {
    Draw draw;
    if (!parse_draw(arguments, "OOO:philox_bits", &draw)) return nullptr;
    npy_intp size = PyArray_ITEMSIZE(draw.out);
    if (!PyArray_ISINTEGER(draw.out) || (size != 4 && size != 8))
        return wrong_type("philox_bits", "32-bit or 64-bit integers", draw);
    uint32_t* out = (uint32_t*)PyArray_DATA(draw.out);
    int64_t words = PyArray_SIZE(draw.out) * (size / 4);
    Py_BEGIN_ALLOW_THREADS;
    fill_array<uint32_t>(loops.bits, out, words, draw.seed, draw.offset);
    Py_END_ALLOW_THREADS;
    return Py_NewRef((PyObject*)draw.out);
}

PyObject* philox_block(PyObject*, PyObject* arguments) {
    unsigned c0, c1, c2, c3, k0, k1;
    if (!PyArg_ParseTuple(arguments, "(IIII)(II):philox_block", &c0, &c1, &c2, &c3, &k0, &k1)) return nullptr;
    Block b = philox4x32({{c0, c1, c2, c3}}, k0, k1);
    return Py_BuildValue("IIII", b.word[0], b.word[1], b.word[2], b.word[3]);
}

PyMethodDef methods[] = {
    {"philox_uniform", philox_uniform, METH_VARARGS, "philox_uniform(out, seed, offset) -> out\n\nUniform in [0, 1)."},
    {"philox_normal", philox_normal, METH_VARARGS, "philox_normal(out, seed, offset) -> out\n\nStandard normal (Box-Muller)."},
    {"philox_bits", philox_bits, METH_VARARGS, "philox_bits(out, seed, offset) -> out\n\nAll bits random, 32 or 64 of them."},
    {"philox_block", philox_block, METH_VARARGS, "philox_block((c0, c1, c2, c3), (k0, k1)) -> four words of Philox4x32-10"},
    {nullptr},
};

}  // namespace

// For generated code: words are (0 uniform, 1 normal; bytes of an element; elements; blocks used up before), state is
// (seed, offset).
extern "C" void philox_run(const int64_t* words, const int64_t* state, void* out) {
    uint64_t seed = (uint64_t)state[0], offset = (uint64_t)(state[1] + words[3]);
    if (words[1] == 4) fill_array(words[0] ? loops.normal_f32 : loops.uniform_f32, (float*)out, words[2], seed, offset);
    else fill_array(words[0] ? loops.normal_f64 : loops.uniform_f64, (double*)out, words[2], seed, offset);
}

void add_philox(PyObject* module) {
    if (PyModule_AddFunctions(module, methods) == 0) flambeau_register("philox_run", (void*)philox_run);
}
