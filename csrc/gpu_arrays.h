// CuPy's arrays, as native paths see them: by the attributes that they share with NumPy's, and by `array.data.ptr`.
#pragma once
#include "module.h"

bool is_gpu_array(PyObject* object);

// The array of a tensor on a GPU; borrowed. Null (no error) for anything else.
PyObject* gpu_array(PyObject* tensor);

// What keeps memory on a GPU alive here: an array, CuPy's pointer to memory (`.ptr`), or a saved array.

// Where its first element lies; false with an error set.
bool gpu_address(PyObject* owner, unsigned long long* out);

// A pointer to so many new bytes of CuPy's current pool; `bytes` is an int.
PyObject* new_gpu_memory(PyObject* bytes);

// An array over the memory of `owner`, `offset` bytes behind its beginning; `strides` in bytes, null: row-major. Without a dtype
// it is the owner's.
PyObject* gpu_array_over(PyObject* owner, long long offset, PyObject* shape, PyObject* dtype, PyObject* strides);

// What a compiled graph saves for another one: memory whose use the two know, of which an array is made where somebody asks.
struct SavedArray {
    PyObject_HEAD
    PyObject* memory;       // CuPy's pointer, to the first element
    unsigned long long address;
    PyObject *dtype, *layout, *device;  // as a tensor's
    PyObject* strides;      // in bytes, or null: row-major
};

bool is_saved_array(PyObject* object);

// Over the memory of `owner`, `offset` bytes behind its beginning.
PyObject* new_saved_array(PyObject* owner, long long offset, PyObject* dtype, PyObject* layout, PyObject* device, PyObject* strides);

// It as an array.
PyObject* array_of_saved(PyObject* saved);

// The number of the GPU that this thread works on, and the handle of its current stream; false with an error set.
bool current_gpu(long* out);
bool current_stream(void** out);

// The number of a tensor's device.
long device_number(PyObject* device);

// (sizes, strides in elements) of an array as new tuples; false with an error set.
bool gpu_layout(PyObject* array, PyObject** shape, PyObject** strides);

// The array's NumPy dtype, and how many bytes its elements are; new references.
PyObject* gpu_dtype(PyObject* array);
PyObject* gpu_nbytes(PyObject* array);

// Whether the elements lie without gaps in row-major (or column-major) order.
bool is_dense_gpu_array(PyObject* array);

void add_gpu_arrays(PyObject* module);
