// The thread count, and what keeps OpenMP usable in forked DataLoader workers.
#include "threads.h"

#include <omp.h>
#include <pthread.h>

#include "fork_lock.h"
#include "module.h"

std::atomic<unsigned> forks{0};

namespace {

int threads = 1;

// libgomp's pool does not survive a fork: a parallel region of several threads in the child would wait for ever.
void single_threaded_child() {
    forks++;
    threads = 1;
    omp_set_num_threads(1);
}

PyObject* set_num_threads(PyObject*, PyObject* number) {
    long wanted = PyLong_AsLong(number);
    if (wanted == -1 && PyErr_Occurred()) return nullptr;
    if (wanted < 1 || wanted > 1024) return PyErr_Format(PyExc_RuntimeError, "set_num_threads expects a positive integer, got %ld", wanted);
    threads = (int)wanted;
    omp_set_num_threads(threads);
    Py_RETURN_NONE;
}

PyObject* get_num_threads(PyObject*, PyObject*) { return PyLong_FromLong(threads); }

PyMethodDef methods[] = {
    {"set_num_threads", set_num_threads, METH_O, "set_num_threads(n)\n\nThreads that native loops use in this process."},
    {"get_num_threads", get_num_threads, METH_NOARGS, "get_num_threads() -> int (1 in a forked child)"},
    {nullptr},
};

}  // namespace

int thread_count() { return threads; }

void add_threads(PyObject* module) {
    threads = omp_get_max_threads();
    pthread_atfork(nullptr, nullptr, single_threaded_child);
    PyModule_AddFunctions(module, methods);
}
