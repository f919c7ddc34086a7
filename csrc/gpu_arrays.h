// CuPy's arrays, as native paths see them: by the attributes that they share with NumPy's, and by `array.data.ptr`.
#pragma once
#include "module.h"

bool is_gpu_array(PyObject* object);

// The array of a tensor on a GPU; borrowed. Null (no error) for anything else.
PyObject* gpu_array(PyObject* tensor);

// Where the array's first element lies; false with an error set.
bool gpu_address(PyObject* array, unsigned long long* out);

// A new array in memory of CuPy's current pool. `shape` and `dtype` as Python has them.
PyObject* new_gpu_array(PyObject* shape, PyObject* dtype);

// An array over the memory of `owner`, `offset` bytes behind its beginning; `strides` in bytes. Without a dtype it
// is the owner's.
PyObject* gpu_array_over(PyObject* owner, long long offset, PyObject* shape, PyObject* dtype, PyObject* strides);

// The number of the GPU that this thread works on, and the handle of its current stream; false with an error set.
bool current_gpu(long* out);
bool current_stream(void** out);

// (sizes, strides in elements) of an array as new tuples; false with an error set.
bool gpu_layout(PyObject* array, PyObject** shape, PyObject** strides);

// The array's NumPy dtype, and how many bytes its elements are; new references.
PyObject* gpu_dtype(PyObject* array);
PyObject* gpu_nbytes(PyObject* array);

// Whether the elements lie without gaps in row-major (or column-major) order.
bool is_dense_gpu_array(PyObject* array);

void add_gpu_arrays(PyObject* module);
