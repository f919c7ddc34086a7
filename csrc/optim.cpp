// Optimizer steps over lists of tensors in one pass over memory: all threads share all tensors' elements evenly.
// The formulas are those of flambeau/ops/nn/steps.py, which defines them; the tests compare the two.
#include "module.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "instruction_set.h"
#include "tensor_slots.h"
#include "threads.h"

namespace {

constexpr int most_arrays = 5;

struct Adam {
    double lr, beta1, beta2, eps, weight_decay;
    int decoupled, maximize;
};
struct Sgd {
    double lr, momentum, dampening, weight_decay;
    int nesterov, maximize;
};

// Over elements [begin, begin + n) of one item's arrays.
struct OptimLoops {
    void (*adam[2])(void* const* data, int64_t begin, int64_t n, const Adam& o, double correction1, double correction2);
    void (*sgd[2])(void* const* data, int64_t begin, int64_t n, const Sgd& o, bool fresh);
    double (*sum_of_squares[2])(const void* data, int64_t begin, int64_t n);
    void (*scale_by[2])(void* data, int64_t begin, int64_t n, double factor);
};

#define LOOPS "optim_loops.h"
#include "by_instruction_set.h"

// One parameter with its gradient and state: arrays of one dtype and layout, seen as flat runs of memory.
struct Item {
    void* data[most_arrays];
    int64_t size;
    double number[2];
};

// The lists of one call; holds the arrays while the GIL is away.
struct Lists {
    std::vector<Item> items;
    std::vector<PyArrayObject*> held;
    int type = -1;
    bool supported = true;

    ~Lists() {
        for (PyArrayObject* array : held) Py_DECREF(array);
    }

    bool same_layout(PyArrayObject* a, PyArrayObject* b) {
        if (PyArray_NDIM(a) != PyArray_NDIM(b) || PyArray_TYPE(a) != PyArray_TYPE(b)) return false;
        bool plain = PyArray_IS_C_CONTIGUOUS(a) && PyArray_IS_C_CONTIGUOUS(b);
        for (int d = 0; d < PyArray_NDIM(a); d++) {
            if (PyArray_DIM(a, d) != PyArray_DIM(b, d)) return false;
            if (!plain && PyArray_STRIDE(a, d) != PyArray_STRIDE(b, d)) return false;
        }
        return true;
    }

    // No gaps and no overlaps: the strides, sorted, are the running products of the sizes.
    bool dense(PyArrayObject* a) {
        if (PyArray_IS_C_CONTIGUOUS(a)) return true;
        std::vector<std::pair<npy_intp, npy_intp>> dims;
        for (int d = 0; d < PyArray_NDIM(a); d++)
            if (PyArray_DIM(a, d) != 1) dims.push_back({PyArray_STRIDE(a, d), PyArray_DIM(a, d)});
        std::sort(dims.begin(), dims.end());
        npy_intp step = PyArray_ITEMSIZE(a);
        for (auto& [stride, size] : dims) {
            if (stride != step) return false;
            step *= size;
        }
        return true;
    }

    // Takes column `which` from a list of tensors; None leaves it null. False with an error set only for a wrong argument.
    bool add(PyObject* list, int which) {
        if (list == Py_None) return true;
        PyObject* fast = PySequence_Fast(list, "an optimizer step takes lists of tensors");
        if (fast == nullptr) return false;
        Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
        if (which == 0) items.resize(count);
        bool good = count == (Py_ssize_t)items.size();
        if (!good) PyErr_SetString(PyExc_ValueError, "an optimizer step takes lists of one length");
        for (Py_ssize_t i = 0; good && i < count; i++) good = add_array(PySequence_Fast_GET_ITEM(fast, i), i, which);
        Py_DECREF(fast);
        return good;
    }

    bool add_array(PyObject* object, Py_ssize_t i, int which) {
        PyArrayObject* array = array_of(object);
        if (array == nullptr) return false;
        Py_INCREF(array);
        held.push_back(array);
        if (which == 0) {
            int found = PyArray_TYPE(array);
            if (type == -1) type = found;
            supported = supported && found == type && (found == NPY_FLOAT || found == NPY_DOUBLE) && dense(array);
            items[i] = Item{};
            items[i].size = PyArray_SIZE(array);
        } else if (!same_layout(held[i], array)) {
            supported = false;
        }
        supported = supported && (which == 1 || PyArray_ISWRITEABLE(array));
        items[i].data[which] = PyArray_DATA(array);
        return true;
    }
};

// Calls body(item, begin, end) so that each thread gets an equal share of all elements, in runs of whole cache lines.
template <class Body>
void share(const std::vector<Item>& items, const Body& body) {
    int64_t total = 0;
    for (const Item& item : items) total += item.size;
    int threads = total < (1 << 14) ? 1 : thread_count();
#pragma omp parallel num_threads(threads)
    {
        int64_t each = (total + omp_get_num_threads() - 1) / omp_get_num_threads();
        each = (each + 15) / 16 * 16;
        int64_t begin = each * omp_get_thread_num(), end = begin + each, start = 0;
        for (const Item& item : items) {
            int64_t low = std::max(begin - start, int64_t(0)), high = std::min(end - start, item.size);
            if (low < high) body(item, low, high);
            start += item.size;
        }
    }
}

// ------------------------------------------------------------------------------------------------------------------ adam
void run_adam(const Lists& lists, const Adam& o) {
    auto loop = loops.adam[lists.type == NPY_DOUBLE];
    share(lists.items, [&](const Item& item, int64_t low, int64_t high) {
        double step = item.number[0], c1 = 1 - std::pow(o.beta1, step), c2 = 1 - std::pow(o.beta2, step);
        loop(item.data, low, high - low, o, c1, c2);
    });
}

// Fills item.number[column] from a list of Python numbers.
bool add_numbers(Lists& lists, PyObject* list, int column) {
    PyObject* fast = PySequence_Fast(list, "an optimizer step takes a list of numbers");
    if (fast == nullptr) return false;
    bool good = PySequence_Fast_GET_SIZE(fast) == (Py_ssize_t)lists.items.size();
    if (!good) PyErr_SetString(PyExc_ValueError, "an optimizer step takes lists of one length");
    for (size_t i = 0; good && i < lists.items.size(); i++) {
        lists.items[i].number[column] = PyFloat_AsDouble(PySequence_Fast_GET_ITEM(fast, i));
        good = !PyErr_Occurred();
    }
    Py_DECREF(fast);
    return good;
}

PyObject* adam_step(PyObject*, PyObject* arguments) {
    PyObject *params, *grads, *means, *squares, *tops, *steps;
    Adam o;
    if (!PyArg_ParseTuple(arguments, "OOOOOOdddddpp", &params, &grads, &means, &squares, &tops, &steps, &o.lr, &o.beta1, &o.beta2,
                          &o.eps, &o.weight_decay, &o.decoupled, &o.maximize))
        return nullptr;
    Lists lists;
    if (!lists.add(params, 0) || !lists.add(grads, 1) || !lists.add(means, 2) || !lists.add(squares, 3) || !lists.add(tops, 4) ||
        !add_numbers(lists, steps, 0))
        return nullptr;
    if (!lists.supported) Py_RETURN_FALSE;
    Py_BEGIN_ALLOW_THREADS;
    run_adam(lists, o);
    Py_END_ALLOW_THREADS;
    Py_RETURN_TRUE;
}

// ------------------------------------------------------------------------------------------------------------------- sgd
void run_sgd(const Lists& lists, const Sgd& o) {
    auto loop = loops.sgd[lists.type == NPY_DOUBLE];
    share(lists.items, [&](const Item& item, int64_t low, int64_t high) { loop(item.data, low, high - low, o, item.number[0] != 0); });
}

PyObject* sgd_step(PyObject*, PyObject* arguments) {
    PyObject *params, *grads, *buffers, *fresh;
    Sgd o;
    if (!PyArg_ParseTuple(arguments, "OOOOddddpp", &params, &grads, &buffers, &fresh, &o.lr, &o.momentum, &o.dampening,
                          &o.weight_decay, &o.nesterov, &o.maximize))
        return nullptr;
    Lists lists;
    if (!lists.add(params, 0) || !lists.add(grads, 1) || !lists.add(buffers, 2) || !add_numbers(lists, fresh, 0)) return nullptr;
    if (!lists.supported) Py_RETURN_FALSE;
    Py_BEGIN_ALLOW_THREADS;
    run_sgd(lists, o);
    Py_END_ALLOW_THREADS;
    Py_RETURN_TRUE;
}

// ---------------------------------------------------------------------------------------------------- norms and scaling
PyObject* total_norm(PyObject*, PyObject* tensors) {
    Lists lists;
    if (!lists.add(tensors, 0)) return nullptr;
    if (!lists.supported) Py_RETURN_NONE;
    std::vector<double> parts(lists.items.size() * 1024, 0.0);
    double total = 0;
    Py_BEGIN_ALLOW_THREADS;
    share(lists.items, [&](const Item& item, int64_t low, int64_t high) {
        size_t slot = (&item - lists.items.data()) * 1024 + omp_get_thread_num();
        parts[slot] = loops.sum_of_squares[lists.type == NPY_DOUBLE](item.data[0], low, high - low);
    });
    for (double part : parts) total += part;
    Py_END_ALLOW_THREADS;
    return PyFloat_FromDouble(std::sqrt(total));
}

PyObject* scale(PyObject*, PyObject* arguments) {
    PyObject* tensors;
    double factor;
    if (!PyArg_ParseTuple(arguments, "Od", &tensors, &factor)) return nullptr;
    Lists lists;
    if (!lists.add(tensors, 0)) return nullptr;
    if (!lists.supported) Py_RETURN_FALSE;
    Py_BEGIN_ALLOW_THREADS;
    auto loop = loops.scale_by[lists.type == NPY_DOUBLE];
    share(lists.items, [&](const Item& item, int64_t low, int64_t high) { loop(item.data[0], low, high - low, factor); });
    Py_END_ALLOW_THREADS;
    Py_RETURN_TRUE;
}

PyMethodDef methods[] = {
    {"adam_step", adam_step, METH_VARARGS,
     "adam_step(params, grads, means, squares, max_squares or None, steps, lr, beta1, beta2, eps, weight_decay, decoupled, maximize)\n\n"
     "One Adam (decoupled: AdamW) step in place over lists of tensors; False, with nothing touched, if it cannot take them."},
    {"sgd_step", sgd_step, METH_VARARGS,
     "sgd_step(params, grads, buffers or None, fresh, lr, momentum, dampening, weight_decay, nesterov, maximize)\n\n"
     "One SGD step in place over lists of tensors; False, with nothing touched, if it cannot take them."},
    {"total_norm", total_norm, METH_O,
     "total_norm(tensors) -> the 2-norm of all elements together, or None if it cannot take these tensors."},
    {"scale_all", scale, METH_VARARGS, "scale_all(tensors, factor): multiply in place; False if it cannot take these tensors."},
    {nullptr},
};

}  // namespace

void add_optim(PyObject* module) { PyModule_AddFunctions(module, methods); }
