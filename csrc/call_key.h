// What is remembered of a call: bytes for what tensors and numbers are, and objects that are compared.
#pragma once
#include <cstring>
#include <string>
#include <vector>

#include "module.h"

class CallKey {
    static constexpr Py_ssize_t most_objects = 32;
    char small[512];
    std::string large;
    size_t used = 0;
    PyObject* objects[most_objects];  // borrowed
    Py_ssize_t count = 0;

public:
    void add(const void* bytes, size_t n) {
        if (n == 0) return;
        if (large.empty() && used + n <= sizeof small) return (void)(std::memcpy(small + used, bytes, n), used += n);
        if (large.empty()) large.assign(small, used);
        large.append((const char*)bytes, n);
    }
    template <class T>
    void add(const T& value) { add(&value, sizeof value); }

    // False where there are too many.
    bool add_object(PyObject* object) {
        if (count == most_objects) return false;
        objects[count++] = object;
        return true;
    }

    // A new reference: hashable if the objects are.
    PyObject* made() const {
        PyObject* bytes = large.empty() ? PyBytes_FromStringAndSize(small, used) : PyBytes_FromStringAndSize(large.data(), large.size());
        if (bytes == nullptr || count == 0) return bytes;
        PyObject* all = PyTuple_New(1 + count);
        if (all == nullptr) return Py_DECREF(bytes), nullptr;
        PyTuple_SET_ITEM(all, 0, bytes);
        for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(all, i + 1, Py_NewRef(objects[i]));
        return all;
    }
};

// Adds what an argument is: of tensors with few elements, or on a GPU, the dtype and layout; numbers and other constants as they are. False,
// without an error, where there is something else. `tensors`: those so far, in whose number and need of a gradient calls differ too; without
// it tensors are on the CPU.
bool tell(CallKey& key, PyObject* value, std::vector<PyObject*>* tensors = nullptr, int depth = 0);
