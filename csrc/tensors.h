// Making tensors and asking them simple things, without Python.
#pragma once
#include "kinds.h"
#include "tensor_slots.h"

// A tensor around `array`, whose reference is taken over (also on failure). Its dtype follows from the array's; on the CPU.
PyObject* new_tensor(PyObject* array);

// The same with all that is known of it; `layout` may be null.
PyObject* new_tensor_of(PyObject* array, PyObject* dtype, PyObject* device, PyObject* layout);

// The layout of a tensor with an array (NumPy's or CuPy's), made if it was not asked for yet; borrowed. Null without an error for
// others. `told`: the array's strides were chosen, also those of dimensions of one element; else NumPy may have put anything there.
PyObject* layout_of(PyObject* tensor, bool told = false);

// The array of a tensor with elements on the CPU; borrowed. Null (no error) for anything else.
PyArrayObject* cpu_array(PyObject* object);

PyObject* cpu_device();  // borrowed

bool is_tensor(PyObject* object);
bool is_plain_tensor(PyObject* object);  // of no subclass

// The sizes of a shape, as a Size.
PyObject* shape_of(PyObject* tensor);

// Whether autograd certainly has nothing to do with `tensor`: false also where that takes Python to find out.
bool needs_no_grad(PyObject* tensor);

// The view that a primitive gives of its first argument, by the layout that `layouts` has for the same layout and other arguments; null
// without an error where it has none.
PyObject* remembered_view(PyObject* layouts, PyObject* prim, PyObject* const* args, Py_ssize_t count);

// The history of a tensor: 1 and what is its grad_fn, or the sink of its gradients (null if there is none yet), and as which output
// (borrowed); 0: it needs no gradient; -1: that takes Python to find out.
int history_of(PyObject* tensor, PyObject** node, PyObject** output);

// Enters a weak reference to the sink of a leaf; false with an error set.
bool set_sink(PyObject* leaf, PyObject* weak);

// Makes `node` the grad_fn of a fresh result, its output of this number; false with an error set.
bool attach(PyObject* tensor, PyObject* node, PyObject* output);

// A view, if the tensor is one, is one of several that one operator gave; false with an error set.
bool mark_one_of_many(PyObject* tensor);

// How often the memory of a tensor was written, borrowed; null without an error where that takes Python to find out.
PyObject* version_of_memory(PyObject* tensor);

// The same memory as a new tensor that knows nothing of autograd; they count versions together.
PyObject* alias_of(PyObject* tensor);

// Makes `gradient`, which nobody else holds, the first of a leaf; false where it is not as plain as that.
bool take_first_gradient(PyObject* leaf, PyObject* gradient);

// Overwrites the memory of `target` with `value`, a number or a tensor of its dtype and sizes, and counts the write: false, without an error,
// where autograd, a mode, another device or how they lie has a say.
bool write_plainly(PyObject* target, PyObject* value);

// Whether `tensor` is an inference tensor, which nobody may write to outside of inference mode.
bool refuses_writes(PyObject* tensor);

// An array of these sizes in row-major order; not for bfloat16.
PyObject* new_array(Kind kind, int rank, const npy_intp* sizes);
