#include "gpu_arrays.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "tensors.h"

namespace {

// Told by `know_gpu_arrays`.
PyTypeObject* array_type;
PyObject *device_function, *stream_function, *alloc_function;
PyTypeObject* saved_type;

PyObject *name_data, *name_ptr, *name_shape, *name_strides, *name_itemsize, *name_c_contiguous, *name_f_contiguous, *name_dtype, *name_nbytes, *name_numpy;

PyObject* know_gpu_arrays(PyObject*, PyObject* args) {
    PyTypeObject* type;
    PyObject *device, *stream, *alloc;
    if (!PyArg_ParseTuple(args, "O!OOO", &PyType_Type, &type, &device, &stream, &alloc)) return nullptr;
    struct {
        PyObject** name;
        const char* text;
    } names[] = {{&name_data, "data"}, {&name_ptr, "ptr"}, {&name_shape, "shape"}, {&name_strides, "strides"}, {&name_itemsize, "itemsize"},
                 {&name_c_contiguous, "_c_contiguous"}, {&name_f_contiguous, "_f_contiguous"},
                 {&name_dtype, "dtype"}, {&name_nbytes, "nbytes"}, {&name_numpy, "numpy"}};
    for (auto& each : names)
        if (*each.name == nullptr && (*each.name = PyUnicode_InternFromString(each.text)) == nullptr) return nullptr;
    Py_XSETREF(device_function, Py_NewRef(device));
    Py_XSETREF(stream_function, Py_NewRef(stream));
    Py_XSETREF(alloc_function, Py_NewRef(alloc));
    array_type = (PyTypeObject*)Py_NewRef(type);
    Py_RETURN_NONE;
}

bool is_true(PyObject* array, PyObject* name) {
    PyObject* flag = PyObject_GetAttr(array, name);
    int answer = flag != nullptr ? PyObject_IsTrue(flag) : -1;
    Py_XDECREF(flag);
    if (answer < 0) PyErr_Clear();
    return answer == 1;
}

// CuPy's pointer to the memory; new reference.
PyObject* memory_of(PyObject* owner) {
    if (is_saved_array(owner)) return Py_NewRef(((SavedArray*)owner)->memory);
    return is_gpu_array(owner) ? PyObject_GetAttr(owner, name_data) : Py_NewRef(owner);
}

PyObject* memory_at(PyObject* owner, long long offset) {
    PyObject* memory = memory_of(owner);
    if (memory == nullptr || offset == 0) return memory;
    PyObject* by = PyLong_FromLongLong(offset);
    Py_SETREF(memory, by != nullptr ? PyNumber_Add(memory, by) : nullptr);
    Py_XDECREF(by);
    return memory;
}

// ---- saved arrays ----

PyObject* saved_shape(PyObject* object, void*) { return Py_NewRef(PyTuple_GET_ITEM(((SavedArray*)object)->layout, 0)); }

PyObject* saved_data(PyObject* object, void*) { return array_of_saved(object); }

PyObject* saved_tensor(PyObject* object, PyObject*) {
    SavedArray* self = (SavedArray*)object;
    PyObject* array = array_of_saved(object);
    return array != nullptr ? new_tensor_of(array, self->dtype, self->device, self->layout) : nullptr;
}

PyGetSetDef saved_attributes[] = {
    {"shape", saved_shape, nullptr, "The sizes.", nullptr},
    {"_data", saved_data, nullptr, "A new array over the memory.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMemberDef saved_members[] = {
    {"dtype", T_OBJECT_EX, offsetof(SavedArray, dtype), READONLY, "The dtype of `tensor()`."},
    {nullptr, 0, 0, 0, nullptr},
};
PyMethodDef saved_methods[] = {
    {"tensor", saved_tensor, METH_NOARGS, "tensor()\n\nA tensor over the memory."},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot saved_slots[] = {
    {Py_tp_doc, (void*)"What a compiled graph on a GPU saves for its backward: memory of which no array was made yet."},
    {Py_tp_dealloc, (void*)release<SavedArray, &SavedArray::memory, &SavedArray::dtype, &SavedArray::layout, &SavedArray::device,
                                   &SavedArray::strides>},
    {Py_tp_getset, saved_attributes}, {Py_tp_members, saved_members}, {Py_tp_methods, saved_methods},
    {0, nullptr},
};
PyType_Spec saved_spec = {"flambeau._C.SavedArray", sizeof(SavedArray), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, saved_slots};

// ---- tables of many tensors ----

// Whether a layout's elements lie without gaps, in whichever order of the dimensions; how many they are.
bool is_dense(PyObject* layout, long long* count) {
    std::vector<std::pair<long long, long long>> dims;     // strides and sizes
    PyObject *shape = PyTuple_GET_ITEM(layout, 0), *strides = PyTuple_GET_ITEM(layout, 1);
    *count = 1;
    for (Py_ssize_t d = 0; d < PyTuple_GET_SIZE(shape); d++) {
        long long size = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d));
        if (size != 1) dims.push_back({PyLong_AsLongLong(PyTuple_GET_ITEM(strides, d)), size});
        *count *= size;
    }
    std::sort(dims.begin(), dims.end());
    long long expected = 1;
    for (auto& [stride, size] : dims) {
        if (stride != expected && *count != 0) return false;
        expected *= size;
    }
    return true;
}

// Whether two layouts are the same; strides of single elements mean nothing.
bool alike(PyObject* a, PyObject* b) {
    PyObject *shape = PyTuple_GET_ITEM(a, 0), *strides = PyTuple_GET_ITEM(a, 1), *others = PyTuple_GET_ITEM(b, 1);
    if (PyObject_RichCompareBool(shape, PyTuple_GET_ITEM(b, 0), Py_EQ) != 1) return false;
    for (Py_ssize_t d = 0; d < PyTuple_GET_SIZE(shape); d++)
        if (PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d)) != 1 &&
            PyLong_AsLongLong(PyTuple_GET_ITEM(strides, d)) != PyLong_AsLongLong(PyTuple_GET_ITEM(others, d)))
            return false;
    return true;
}

struct Rows {
    PyObject* dtype;
    std::vector<Py_ssize_t> positions;
    std::vector<long long> words;   // the number of elements, then an address of each part
};

// Adds the tensors at one position of all parts; false without an error where they are not laid out alike.
bool add_row(std::vector<Rows>& groups, PyObject* parts, Py_ssize_t position, long device) {
    PyObject *dtype = nullptr, *layout = nullptr;
    std::vector<long long> words(1);
    for (Py_ssize_t p = 0; p < PyTuple_GET_SIZE(parts); p++) {
        PyObject* tensor = PySequence_Fast_GET_ITEM(PyTuple_GET_ITEM(parts, p), position);
        PyObject* array = gpu_array(tensor);
        PyObject* own = array != nullptr ? layout_of(tensor) : nullptr;
        unsigned long long address;
        if (own == nullptr || device_number(read_slot(tensor, known_slots().device)) != device || !gpu_address(array, &address)) return false;
        if (p == 0) dtype = read_slot(tensor, known_slots().dtype), layout = own;
        if (read_slot(tensor, known_slots().dtype) != dtype || !(p == 0 ? is_dense(own, &words[0]) : alike(own, layout))) return false;
        words.push_back((long long)address);
    }
    if (words[0] == 0) return true;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Rows& rows) { return rows.dtype == dtype; });
    if (group == groups.end()) group = groups.insert(group, Rows{dtype, {}, {}});
    group->positions.push_back(position);
    group->words.insert(group->words.end(), words.begin(), words.end());
    return true;
}

PyObject* as_list(const std::vector<Rows>& groups, Py_ssize_t width) {
    PyObject* all = PyList_New(0);
    for (const Rows& rows : groups) {
        npy_intp sizes[] = {(npy_intp)rows.positions.size(), (npy_intp)width};
        PyObject* words = PyArray_SimpleNew(2, sizes, NPY_INT64);
        PyObject* positions = PyList_New(rows.positions.size());
        if (words != nullptr) std::copy(rows.words.begin(), rows.words.end(), (long long*)PyArray_DATA((PyArrayObject*)words));
        for (size_t i = 0; positions != nullptr && i < rows.positions.size(); i++) PyList_SET_ITEM(positions, i, PyLong_FromSsize_t(rows.positions[i]));
        PyObject* item = words != nullptr && positions != nullptr && all != nullptr ? PyTuple_Pack(3, rows.dtype, positions, words) : nullptr;
        if (item == nullptr || PyList_Append(all, item) < 0) Py_CLEAR(all);
        Py_XDECREF(words), Py_XDECREF(positions), Py_XDECREF(item);
    }
    return all;
}

// gpu_rows(parts): see below.
PyObject* gpu_rows(PyObject*, PyObject* parts) {
    if (!PyTuple_Check(parts) || PyTuple_GET_SIZE(parts) == 0) return PyErr_Format(PyExc_TypeError, "gpu_rows takes a tuple of lists of tensors");
    for (Py_ssize_t p = 0; p < PyTuple_GET_SIZE(parts); p++) {
        PyObject* part = PyTuple_GET_ITEM(parts, p);
        if ((!PyList_Check(part) && !PyTuple_Check(part)) || PySequence_Fast_GET_SIZE(part) != PySequence_Fast_GET_SIZE(PyTuple_GET_ITEM(parts, 0)))
            return PyErr_Format(PyExc_TypeError, "gpu_rows takes lists of the same length");
    }
    std::vector<Rows> groups;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(PyTuple_GET_ITEM(parts, 0));
    PyObject* first = count > 0 ? PySequence_Fast_GET_ITEM(PyTuple_GET_ITEM(parts, 0), 0) : nullptr;
    long device = first != nullptr && gpu_array(first) != nullptr ? device_number(read_slot(first, known_slots().device)) : -1;
    for (Py_ssize_t k = 0; k < count; k++) {
        if (add_row(groups, parts, k, device)) continue;
        if (PyErr_Occurred()) return nullptr;
        Py_RETURN_NONE;
    }
    return as_list(groups, 1 + PyTuple_GET_SIZE(parts));
}

PyMethodDef methods[] = {
    {"know_gpu_arrays", know_gpu_arrays, METH_VARARGS,
     "know_gpu_arrays(ndarray, current_device, current_stream, alloc)\n\nCuPy's class of arrays, and functions that give the number of the\n"
     "current GPU, the handle of the current stream, and a pointer to so many bytes of new memory."},
    {"gpu_rows", gpu_rows, METH_O,
     "gpu_rows(parts)\n\n`parts` are lists of tensors on one GPU; those at one position are laid out alike, without gaps. For each dtype a\n"
     "tuple (dtype, positions, words): an int64 row for each position with the number of elements and the addresses. Tensors without\n"
     "elements are left out. None where something else is among them."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool is_gpu_array(PyObject* object) { return array_type != nullptr && Py_IS_TYPE(object, array_type); }

PyObject* gpu_array(PyObject* tensor) {
    if (array_type == nullptr || !is_tensor(tensor)) return nullptr;
    PyObject* data = read_slot(tensor, known_slots().data);
    return data != nullptr && Py_IS_TYPE(data, array_type) ? data : nullptr;
}

bool gpu_address(PyObject* owner, unsigned long long* out) {
    if (is_saved_array(owner)) return *out = ((SavedArray*)owner)->address, true;
    PyObject* memory = memory_of(owner);
    PyObject* address = memory != nullptr ? PyObject_GetAttr(memory, name_ptr) : nullptr;
    if (address != nullptr) *out = PyLong_AsUnsignedLongLong(address);
    Py_XDECREF(memory);
    Py_XDECREF(address);
    return address != nullptr && !PyErr_Occurred();
}

PyObject* new_gpu_memory(PyObject* bytes) { return PyObject_CallOneArg(alloc_function, bytes); }

PyObject* gpu_array_over(PyObject* owner, long long offset, PyObject* shape, PyObject* dtype, PyObject* strides) {
    PyObject* kind = dtype != nullptr ? Py_NewRef(dtype) : gpu_dtype(owner);
    PyObject* memory = kind != nullptr ? memory_at(owner, offset) : nullptr;
    PyObject* args[] = {nullptr, shape, kind, memory, strides};
    PyObject* made = memory != nullptr ? PyObject_Vectorcall((PyObject*)array_type, args + 1, (strides != nullptr ? 4 : 3) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr) : nullptr;
    Py_XDECREF(kind);
    Py_XDECREF(memory);
    return made;
}

bool is_saved_array(PyObject* object) { return saved_type != nullptr && Py_IS_TYPE(object, saved_type); }

PyObject* new_saved_array(PyObject* owner, long long offset, PyObject* dtype, PyObject* layout, PyObject* device, PyObject* strides) {
    SavedArray* made = (SavedArray*)saved_type->tp_alloc(saved_type, 0);
    if (made == nullptr) return nullptr;
    made->dtype = Py_NewRef(dtype), made->layout = Py_NewRef(layout), made->device = Py_NewRef(device), made->strides = Py_XNewRef(strides);
    made->memory = memory_at(owner, offset);
    if (!gpu_address(owner, &made->address)) Py_CLEAR(made);
    else if ((made->address += offset, made->memory == nullptr)) Py_CLEAR(made);
    return (PyObject*)made;
}

PyObject* array_of_saved(PyObject* object) {
    SavedArray* saved = (SavedArray*)object;
    PyObject* kind = gpu_dtype(object);
    PyObject* made = kind != nullptr ? gpu_array_over(saved->memory, 0, PyTuple_GET_ITEM(saved->layout, 0), kind, saved->strides) : nullptr;
    Py_XDECREF(kind);
    return made;
}

long device_number(PyObject* device) {
    static PyObject* last = nullptr;    // kept alive, so that its address stays its own
    static long number = -1;
    if (device == last) return number;
    PyObject* index = PyObject_GetAttrString(device, "index");
    long found = index == nullptr ? -1 : index == Py_None ? 0 : PyLong_AsLong(index);
    Py_XDECREF(index);
    if (PyErr_Occurred()) return PyErr_Clear(), -1;
    Py_XSETREF(last, Py_NewRef(device));
    return number = found;
}

bool current_gpu(long* out) {
    PyObject* number = PyObject_CallNoArgs(device_function);
    if (number != nullptr) *out = PyLong_AsLong(number);
    Py_XDECREF(number);
    return number != nullptr && !PyErr_Occurred();
}

bool current_stream(void** out) {
    PyObject* handle = PyObject_CallNoArgs(stream_function);
    if (handle != nullptr) *out = PyLong_AsVoidPtr(handle);
    Py_XDECREF(handle);
    return handle != nullptr && !PyErr_Occurred();
}

bool gpu_layout(PyObject* array, PyObject** shape, PyObject** strides) {
    PyObject* size = PyObject_GetAttr(array, name_itemsize);
    long long item = size != nullptr ? std::max<long long>(PyLong_AsLongLong(size), 1) : 1, step = 1;
    Py_XDECREF(size);
    *shape = PyErr_Occurred() ? nullptr : PyObject_GetAttr(array, name_shape);
    PyObject* bytes = *shape != nullptr ? PyObject_GetAttr(array, name_strides) : nullptr;
    *strides = bytes != nullptr ? PyTuple_New(PyTuple_GET_SIZE(bytes)) : nullptr;
    bool dense = *strides != nullptr && is_true(array, name_c_contiguous);  // then a dimension of size 0 counts as 1, as in torch
    for (Py_ssize_t d = *strides != nullptr ? PyTuple_GET_SIZE(bytes) - 1 : -1; d >= 0; d--) {
        long long own = PyLong_AsLongLong(PyTuple_GET_ITEM(bytes, d)) / item;
        PyTuple_SET_ITEM(*strides, d, PyLong_FromLongLong(dense ? step : own));
        step *= std::max<long long>(PyLong_AsLongLong(PyTuple_GET_ITEM(*shape, d)), 1);
    }
    Py_XDECREF(bytes);
    if (!PyErr_Occurred()) return true;
    Py_CLEAR(*shape);
    Py_CLEAR(*strides);
    return false;
}

PyObject* gpu_dtype(PyObject* array) { return is_saved_array(array) ? PyObject_GetAttr(((SavedArray*)array)->dtype, name_numpy) : PyObject_GetAttr(array, name_dtype); }

PyObject* gpu_nbytes(PyObject* array) { return PyObject_GetAttr(array, name_nbytes); }

bool is_dense_gpu_array(PyObject* array) { return is_true(array, name_c_contiguous) || is_true(array, name_f_contiguous); }

void add_gpu_arrays(PyObject* module) {
    saved_type = add_type(module, saved_spec);
    PyModule_AddFunctions(module, methods);
}
