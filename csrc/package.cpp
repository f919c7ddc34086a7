// Ahead-of-time packages for Python: the loader of C++ programs (flambeau/aoti.h) over arrays.
#include "module.h"

#include "aoti.h"
#include "numpy_api.h"

namespace {

using flambeau::Package;
using flambeau::Session;
using flambeau::Tensor;

// Runs `body` and turns C++ exceptions into Python's.
template <class Body>
PyObject* guarded(Body body) {
    try {
        return body();
    } catch (const flambeau::InputError& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
    } catch (const flambeau::IndexError& error) {
        PyErr_SetString(PyExc_IndexError, error.what());
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}

struct PackageSession {
    PyObject_HEAD
    Package* package;
    Session* session;
    bool running;
};

PyObject* session_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
    static const char* names[] = {"source", "onednn", "threads", nullptr};
    PyObject* source;
    const char* onednn;
    int threads;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "Osi:PackageSession", (char**)names, &source, &onednn, &threads)) return nullptr;
    PackageSession* self = (PackageSession*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    PyObject* path = nullptr;
    PyObject* made = guarded([&]() -> PyObject* {
        if (Py_TYPE(source) == type) {
            self->package = new Package(*((PackageSession*)source)->package);
        } else {
            if (!PyUnicode_FSConverter(source, &path)) return nullptr;
            self->package = new Package(PyBytes_AS_STRING(path), {onednn, true});
        }
        self->session = new Session(*self->package, threads);
        return Py_NewRef((PyObject*)self);
    });
    Py_XDECREF(path);
    Py_DECREF(self);
    return made;
}

void session_dealloc(PyObject* object) {
    PackageSession* self = (PackageSession*)object;
    delete self->session;
    delete self->package;
    free_object(object);
}

PyObject* integers(const std::vector<int64_t>& values) {
    PyObject* made = PyTuple_New((Py_ssize_t)values.size());
    for (size_t i = 0; made != nullptr && i < values.size(); i++) PyTuple_SET_ITEM(made, i, PyLong_FromLongLong(values[i]));
    return made;
}

// ((name, dtype, sizes, dims), ...)
PyObject* ports(const std::vector<flambeau::Port>& all) {
    PyObject* made = PyTuple_New((Py_ssize_t)all.size());
    for (size_t i = 0; made != nullptr && i < all.size(); i++) {
        PyObject* dims = PyTuple_New((Py_ssize_t)all[i].dims.size());
        for (size_t d = 0; dims != nullptr && d < all[i].dims.size(); d++) PyTuple_SET_ITEM(dims, d, PyUnicode_FromString(all[i].dims[d].c_str()));
        PyObject* port = Py_BuildValue("(ssNN)", all[i].name.c_str(), name_of(all[i].dtype), integers(all[i].sizes), dims);
        if (port == nullptr) return Py_DECREF(made), nullptr;
        PyTuple_SET_ITEM(made, i, port);
    }
    return made;
}

PyObject* get_inputs(PyObject* self, void*) { return ports(((PackageSession*)self)->package->inputs()); }
PyObject* get_outputs(PyObject* self, void*) { return ports(((PackageSession*)self)->package->outputs()); }

PyObject* get_facts(PyObject* self, void*) {
    PyObject* made = PyDict_New();
    for (const auto& [name, fact] : ((PackageSession*)self)->package->facts()) {
        PyObject* text = PyUnicode_FromString(fact.c_str());
        if (made == nullptr || text == nullptr || PyDict_SetItemString(made, name.c_str(), text) < 0) return Py_XDECREF(text), Py_XDECREF(made), nullptr;
        Py_DECREF(text);
    }
    return made;
}

bool take(PyObject* object, PyObject* code, Tensor& tensor) {
    PyArrayObject* array = (PyArrayObject*)object;
    if (!PyArray_Check(object)) return PyErr_Format(PyExc_TypeError, "PackageSession.run takes arrays, got %R", (PyObject*)Py_TYPE(object)), false;
    const int64_t size = PyArray_ITEMSIZE(array);
    tensor.dtype = (flambeau::DType)PyLong_AsLong(code);
    if (PyErr_Occurred()) return false;
    tensor.data = PyArray_DATA(array);
    for (int i = 0; i < PyArray_NDIM(array); i++) {
        tensor.sizes.push_back(PyArray_DIM(array, i));
        tensor.strides.push_back(PyArray_STRIDE(array, i) / size);
    }
    return true;
}

void drop_tensor(PyObject* capsule) { delete (Tensor*)PyCapsule_GetPointer(capsule, nullptr); }

// (bytes from the first element on, dtype's code, sizes, strides in elements)
PyObject* give(const Tensor& tensor) {
    int64_t last = 0;
    bool empty = false;
    for (size_t i = 0; i < tensor.sizes.size(); i++) empty |= tensor.sizes[i] == 0, last += (tensor.sizes[i] - 1) * tensor.strides[i];
    npy_intp shape[] = {empty ? 0 : (npy_intp)((last + 1) * itemsize(tensor.dtype))};
    PyObject* array = PyArray_SimpleNewFromData(1, shape, NPY_UINT8, tensor.data);
    PyObject* owner = array == nullptr ? nullptr : PyCapsule_New(new Tensor(tensor), nullptr, drop_tensor);
    if (owner == nullptr || PyArray_SetBaseObject((PyArrayObject*)array, owner) < 0) return Py_XDECREF(array), nullptr;
    return Py_BuildValue("(NiNN)", array, (int)tensor.dtype, integers(tensor.sizes), integers(tensor.strides));
}

PyObject* run(PyObject* object, PyObject* arguments) {
    PackageSession* self = (PackageSession*)object;
    PyObject *arrays, *codes;
    if (!PyArg_ParseTuple(arguments, "O!O!:run", &PyTuple_Type, &arrays, &PyTuple_Type, &codes)) return nullptr;
    if (PyTuple_GET_SIZE(arrays) != PyTuple_GET_SIZE(codes)) return PyErr_Format(PyExc_TypeError, "a code for each array");
    if (self->running) return PyErr_Format(PyExc_RuntimeError, "this session is in a call on another thread: make one session for each");
    std::vector<Tensor> given((size_t)PyTuple_GET_SIZE(arrays)), made;
    for (size_t i = 0; i < given.size(); i++)
        if (!take(PyTuple_GET_ITEM(arrays, i), PyTuple_GET_ITEM(codes, i), given[i])) return nullptr;
    self->running = true;
    PyObject* done = guarded([&]() -> PyObject* {
        PyThreadState* state = PyEval_SaveThread();
        try {
            made = self->session->run(given);
        } catch (...) {
            PyEval_RestoreThread(state);
            throw;
        }
        PyEval_RestoreThread(state);
        return Py_NewRef(Py_None);
    });
    self->running = false;
    if (done == nullptr) return nullptr;
    Py_DECREF(done);
    PyObject* results = PyTuple_New((Py_ssize_t)made.size());
    for (size_t i = 0; results != nullptr && i < made.size(); i++) {
        PyObject* result = give(made[i]);
        if (result == nullptr) return Py_DECREF(results), nullptr;
        PyTuple_SET_ITEM(results, i, result);
    }
    return results;
}

PyObject* set_threads(PyObject* self, PyObject* number) {
    long threads = PyLong_AsLong(number);
    if (threads == -1 && PyErr_Occurred()) return nullptr;
    ((PackageSession*)self)->session->set_threads((int)threads);
    Py_RETURN_NONE;
}

PyMethodDef session_methods[] = {
    {"run", run, METH_VARARGS, "run(arrays, codes) -> tuple\n\nOf each output its bytes, dtype's code, sizes and strides in elements."},
    {"set_threads", set_threads, METH_O, "set_threads(n)\n\nHow many threads a call computes on; 0: as many as there are processors."},
    {nullptr},
};

PyGetSetDef session_fields[] = {
    {"inputs", get_inputs, nullptr, "((name, dtype, sizes, dims), ...); sizes of -1 vary.", nullptr},
    {"outputs", get_outputs, nullptr, "As inputs.", nullptr},
    {"facts", get_facts, nullptr, "What the manifest says, by its words.", nullptr},
    {nullptr},
};

PyType_Slot session_slots[] = {
    {Py_tp_doc, (void*)"PackageSession(source, onednn, threads)\n--\n\nRuns an ahead-of-time package: a path, or that of another session."},
    {Py_tp_new, (void*)session_new}, {Py_tp_dealloc, (void*)session_dealloc}, {Py_tp_methods, session_methods},
    {Py_tp_getset, session_fields}, {0, nullptr},
};

PyType_Spec session_spec = {"flambeau._C.PackageSession", sizeof(PackageSession), 0, Py_TPFLAGS_DEFAULT, session_slots};

}  // namespace

void add_package(PyObject* module) {
    add_type(module, session_spec);
#define FL_NAME(code, name, bytes) name,
    const char* const all[] = {FLAMBEAU_DTYPES(FL_NAME)};
#undef FL_NAME
    PyObject* names = PyTuple_New((Py_ssize_t)std::size(all));
    for (size_t i = 0; names != nullptr && i < std::size(all); i++) PyTuple_SET_ITEM(names, i, PyUnicode_FromString(all[i]));
    if (names == nullptr || PyModule_AddObject(module, "package_dtypes", names) < 0) return;
    PyModule_AddIntConstant(module, "package_abi", FLAMBEAU_PACKAGE_ABI);
}
