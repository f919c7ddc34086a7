// Replay: a short program of scalar operations and reductions over strided buffers, written down once for an operator and the
// layouts of its arguments (flambeau/ops/replay.py), and run in one call from then on. It is for small tensors: the steps run
// one after the other on one thread, their intermediate values stay in the cache.
#include "module.h"

#include <structmember.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "dtypes.h"
#include "scalar_ops.h"
#include "state.h"
#include "tensors.h"

namespace {

constexpr int max_rank = 16;
constexpr int max_operands = 4;  // the result, then what it is made of

struct Place {
    int base;  // inputs, then outputs, then the scratch memory, then the constants
    ptrdiff_t offset;
    ptrdiff_t strides[max_rank];
};

struct Step {
    RowLoop loop = nullptr;
    ConvertRow convert = nullptr;
    RowFold fold = nullptr;
    bool gathers = false;  // result[i] = from[i, index[i] along a dimension of `length` elements, `stride` bytes apart]
    ptrdiff_t length = 0, stride = 0;
    int item = 0;
    int rank = 0, operands = 0;
    ptrdiff_t sizes[max_rank];
    Place places[max_operands];
};

struct Output {
    PyArray_Descr* descr;
    std::vector<npy_intp> shape, strides;  // no strides: row-major
};

struct Program {
    std::vector<int> inputs;  // positions among the arguments
    std::vector<Output> outputs;
    std::vector<Step> steps;
    std::string constants;
    size_t scratch = 0;
    bool several = false;
};

struct Replay {
    PyObject_HEAD
    Program* program;
    vectorcallfunc vectorcall;
};

// One for all programs: they run with the GIL held.
std::vector<char> scratch_memory;

// ---- running ----

bool gather(const Step& step, char* const* at, const ptrdiff_t* steps, ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < n; i++) {
        int64_t index = *(const int64_t*)(at[2] + i * steps[2]);
        if (index < 0 || index >= step.length) return false;
        std::memcpy(at[0] + i * steps[0], at[1] + i * steps[1] + index * step.stride, step.item);
    }
    return true;
}

// False where an index is out of bounds.
bool run_step(const Step& step, char* const* bases) {
    char* at[max_operands];
    for (int k = 0; k < step.operands; k++) at[k] = bases[step.places[k].base] + step.places[k].offset;
    int last = step.rank - 1;
    ptrdiff_t n = step.sizes[last], steps[max_operands], index[max_rank] = {};
    for (int k = 0; k < step.operands; k++) steps[k] = step.places[k].strides[last];
    ptrdiff_t rows = 1;
    for (int d = 0; d < last; d++) rows *= step.sizes[d];
    for (ptrdiff_t row = 0; row < rows; row++) {
        if (step.gathers && !gather(step, at, steps, n)) return false;
        else if (step.fold != nullptr) step.fold(at[0], at[1], steps[1], n);
        else if (step.convert != nullptr) step.convert(at[0], steps[0], at[1], steps[1], n);
        else if (step.loop != nullptr) step.loop(at[0], steps[0], at + 1, steps + 1, n);
        for (int d = last - 1; d >= 0; d--) {
            for (int k = 0; k < step.operands; k++) at[k] += step.places[k].strides[d];
            if (++index[d] < step.sizes[d]) break;
            for (int k = 0; k < step.operands; k++) at[k] -= step.places[k].strides[d] * step.sizes[d];
            index[d] = 0;
        }
    }
    return true;
}

PyObject* new_output(const Output& output) {
    Py_INCREF(output.descr);
    return PyArray_NewFromDescr(&PyArray_Type, output.descr, (int)output.shape.size(), (npy_intp*)output.shape.data(),
                                output.strides.empty() ? nullptr : (npy_intp*)output.strides.data(), nullptr, 0, nullptr);
}

PyObject* call(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
    const Program& program = *((Replay*)self)->program;
    if (names != nullptr || PyVectorcall_NARGS(flags) != 1 || !PyTuple_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "a replay takes the tuple of the operator's arguments");
    std::vector<char*> bases;
    bases.reserve(program.inputs.size() + program.outputs.size() + 2);
    for (int position : program.inputs) {
        PyArrayObject* array = position < PyTuple_GET_SIZE(args[0]) ? cpu_array(PyTuple_GET_ITEM(args[0], position)) : nullptr;
        if (array == nullptr) return PyErr_Format(PyExc_TypeError, "argument %d of a replay is not a tensor on the CPU", position);
        bases.push_back(PyArray_BYTES(array));
    }
    PyObject* result = PyTuple_New(program.outputs.size());
    for (size_t i = 0; result != nullptr && i < program.outputs.size(); i++) {
        PyObject* array = new_output(program.outputs[i]);
        if (array != nullptr) bases.push_back(PyArray_BYTES((PyArrayObject*)array));
        PyObject* tensor = new_tensor(array);
        if (tensor == nullptr) Py_CLEAR(result);
        else PyTuple_SET_ITEM(result, i, tensor);
    }
    if (result == nullptr) return nullptr;
    if (scratch_memory.size() < program.scratch) scratch_memory.resize(program.scratch);
    bases.push_back(scratch_memory.data());
    bases.push_back((char*)program.constants.data());
    for (const Step& step : program.steps)
        if (!run_step(step, bases.data())) return Py_DECREF(result), Py_NewRef(Py_NotImplemented);
    if (program.several) return result;
    PyObject* only = Py_NewRef(PyTuple_GET_ITEM(result, 0));
    Py_DECREF(result);
    return only;
}

// ---- writing down ----

bool read_numbers(PyObject* tuple, std::vector<npy_intp>& out) {
    if (!PyTuple_Check(tuple)) return PyErr_SetString(PyExc_TypeError, "expected a tuple of ints"), false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) out.push_back(PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i)));
    return !PyErr_Occurred();
}

bool mergeable(const Step& step, int d) {  // dimension d with d + 1
    for (int k = 0; k < step.operands; k++)
        if (step.places[k].strides[d] != step.places[k].strides[d + 1] * step.sizes[d + 1]) return false;
    return true;
}

// Fewer and longer dimensions: without those of size 1, in the order of `sorted_by`'s memory, merged where they lie end to end.
void simplify(Step& step, int sorted_by) {
    int order[max_rank], kept = 0;
    for (int d = 0; d < step.rank; d++)
        if (step.sizes[d] != 1) order[kept++] = d;
    const ptrdiff_t* by = step.places[sorted_by].strides;
    std::stable_sort(order, order + kept, [&](int a, int b) { return by[a] > by[b]; });
    Step old = step;
    step.rank = kept;
    for (int d = 0; d < kept; d++) {
        step.sizes[d] = old.sizes[order[d]];
        for (int k = 0; k < step.operands; k++) step.places[k].strides[d] = old.places[k].strides[order[d]];
    }
    for (int d = step.rank - 2; d >= 0; d--) {
        if (!mergeable(step, d)) continue;
        step.sizes[d] *= step.sizes[d + 1];
        for (int k = 0; k < step.operands; k++) step.places[k].strides[d] = step.places[k].strides[d + 1];
        for (int e = d + 1; e < step.rank - 1; e++) {
            step.sizes[e] = step.sizes[e + 1];
            for (int k = 0; k < step.operands; k++) step.places[k].strides[e] = step.places[k].strides[e + 1];
        }
        step.rank--;
    }
    if (step.rank == 0) {
        step.rank = 1, step.sizes[0] = 1;
        for (int k = 0; k < step.operands; k++) step.places[k].strides[0] = 0;
    }
}

// A reduction runs along rows where the input's closest elements are reduced; else it adds whole rows to the total.
void settle_fold(Step& step, const char* name, Kind kind) {
    simplify(step, 1);
    int last = step.rank - 1;
    if (step.places[0].strides[last] == 0) {
        step.fold = find_fold(name, kind)->run;
        return;
    }
    const char* binary = std::strcmp(name, "sum") == 0 ? "add" : std::strcmp(name, "prod") == 0 ? "mul" : std::strcmp(name, "max") == 0 ? "maximum"
                         : std::strcmp(name, "min") == 0 ? "minimum" : std::strcmp(name, "any") == 0 ? "logical_or" : "logical_and";
    step.loop = find_scalar(binary, kind)->run;
    step.operands = 3;
    step.places[2] = step.places[1];
    step.places[1] = step.places[0];
}

// (operation, kind of the operands, kind of the result, shape, ((base, offset, strides in bytes), ...) with the result first,
// length and stride of the dimension that a gather's index goes along)
bool read_step(PyObject* item, Program& program) {
    const char* name;
    int in, out;
    PyObject *shape, *operands;
    Step step;
    if (!PyArg_ParseTuple(item, "siiO!O!nn", &name, &in, &out, &PyTuple_Type, &shape, &PyTuple_Type, &operands, &step.length, &step.stride))
        return false;
    step.rank = (int)PyTuple_GET_SIZE(shape);
    step.operands = (int)PyTuple_GET_SIZE(operands);
    if (step.rank > max_rank || step.operands > max_operands || step.operands < 2 || in < 0 || in >= kind_count || out < 0 || out >= kind_count)
        return PyErr_SetString(PyExc_ValueError, "too many dimensions or operands for a replay"), false;
    for (int d = 0; d < step.rank; d++) step.sizes[d] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, d));
    for (int k = 0; k < step.operands; k++) {
        Place& place = step.places[k];
        PyObject* strides;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(operands, k), "inO!", &place.base, &place.offset, &PyTuple_Type, &strides)) return false;
        if (PyTuple_GET_SIZE(strides) != step.rank) return PyErr_SetString(PyExc_ValueError, "a stride for each dimension is needed"), false;
        for (int d = 0; d < step.rank; d++) place.strides[d] = PyLong_AsSsize_t(PyTuple_GET_ITEM(strides, d));
    }
    if (PyErr_Occurred()) return false;
    if (std::strcmp(name, "convert") == 0) {
        step.convert = find_conversion((Kind)out, (Kind)in);
        simplify(step, 0);
    } else if (std::strcmp(name, "gather") == 0 && step.operands == 3) {
        step.gathers = true, step.item = size_of((Kind)out);
        simplify(step, 0);
    } else if (find_fold(name, (Kind)in) != nullptr && step.operands == 2) {
        settle_fold(step, name, (Kind)in);
    } else {
        const ScalarLoop* found = find_scalar(name, (Kind)in);
        if (found != nullptr && found->arity + 1 == step.operands && found->out == (Kind)out) step.loop = found->run;
        simplify(step, 0);
    }
    if (step.loop == nullptr && step.convert == nullptr && step.fold == nullptr && !step.gathers)
        return PyErr_Format(PyExc_NotImplementedError, "a replay has no operation '%s' of kind %d", name, in), false;
    program.steps.push_back(step);
    return true;
}

bool read_output(PyObject* item, Program& program) {
    Output output;
    PyObject *shape, *strides;
    if (!PyArg_ParseTuple(item, "O!OO", &PyArrayDescr_Type, &output.descr, &shape, &strides)) return false;
    if (!read_numbers(shape, output.shape) || (strides != Py_None && !read_numbers(strides, output.strides))) return false;
    Py_INCREF(output.descr);
    program.outputs.push_back(output);
    return true;
}

PyObject* create(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject *inputs, *outputs, *steps, *constants;
    Py_ssize_t scratch;
    int several;
    if (!PyArg_ParseTuple(arguments, "O!O!O!Snp:Replay", &PyTuple_Type, &inputs, &PyTuple_Type, &outputs, &PyTuple_Type, &steps, &constants,
                          &scratch, &several))
        return nullptr;
    Replay* self = (Replay*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->vectorcall = call;
    Program& program = *(self->program = new Program);
    program.constants.assign(PyBytes_AS_STRING(constants), PyBytes_GET_SIZE(constants));
    program.scratch = scratch, program.several = several;
    bool good = true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); i++) program.inputs.push_back((int)PyLong_AsLong(PyTuple_GET_ITEM(inputs, i)));
    for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(outputs); i++) good = read_output(PyTuple_GET_ITEM(outputs, i), program);
    for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(steps); i++) good = read_step(PyTuple_GET_ITEM(steps, i), program);
    if (!good || PyErr_Occurred()) Py_CLEAR(self);
    return (PyObject*)self;
}

void dealloc(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    Program* program = ((Replay*)object)->program;
    if (program != nullptr)
        for (Output& output : program->outputs) Py_DECREF(output.descr);
    delete program;
    type->tp_free(object);
    Py_DECREF(type);
}

// describe_small(args, most): what a replay of an operator on these arguments depends on, hashable; None where it is not for
// them: a tensor elsewhere than on the CPU, with no or more than `most` elements, or of another dtype.
PyObject* describe_small(PyObject*, PyObject* const* given, Py_ssize_t count) {
    if (count != 2 || !PyTuple_Check(given[0])) return PyErr_Format(PyExc_TypeError, "expected describe_small(args, most)");
    if (dispatch_state.fake) Py_RETURN_NONE;
    npy_intp most = PyLong_AsSsize_t(given[1]);
    std::string key;
    PyObject* others[32];
    Py_ssize_t other_count = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given[0]); i++) {
        PyObject* argument = PyTuple_GET_ITEM(given[0], i);
        PyArrayObject* array = cpu_array(argument);
        if (array != nullptr) {
            Kind kind = kind_of(array);
            npy_intp size = PyArray_SIZE(array);
            int rank = PyArray_NDIM(array);
            if (kind == Kind::other || size == 0 || size > most || rank > max_rank || !PyArray_ISBEHAVED_RO(array)) Py_RETURN_NONE;
            key.push_back((char)(1 + (int)kind));
            key.push_back((char)(rank + (PyArray_IS_C_CONTIGUOUS(array) ? 64 : 0)));
            key.append((const char*)PyArray_DIMS(array), rank * sizeof(npy_intp));
            if (!PyArray_IS_C_CONTIGUOUS(array)) key.append((const char*)PyArray_STRIDES(array), rank * sizeof(npy_intp));
        } else if (is_tensor(argument) || other_count == 32) {
            Py_RETURN_NONE;
        } else {
            PyTypeObject* type = Py_TYPE(argument);
            key.push_back(0);
            key.append((const char*)&type, sizeof type);
            others[other_count++] = argument;
        }
    }
    PyObject* made = PyTuple_New(1 + other_count);
    PyObject* bytes = made != nullptr ? PyBytes_FromStringAndSize(key.data(), key.size()) : nullptr;
    if (bytes == nullptr) return Py_XDECREF(made), nullptr;
    PyTuple_SET_ITEM(made, 0, bytes);
    for (Py_ssize_t i = 0; i < other_count; i++) PyTuple_SET_ITEM(made, i + 1, Py_NewRef(others[i]));
    return made;
}

PyMethodDef functions[] = {
    {"describe_small", (PyCFunction)(void*)describe_small, METH_FASTCALL,
     "describe_small(args, most)\n\nWhat a replay on these arguments depends on; None where they are not for one."},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef type_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Replay, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot type_slots[] = {
    {Py_tp_doc, (void*)"Replay(inputs, outputs, steps, constants, scratch, several): see flambeau/ops/replay.py"},
    {Py_tp_new, (void*)create}, {Py_tp_dealloc, (void*)dealloc}, {Py_tp_call, (void*)PyVectorcall_Call},
    {Py_tp_members, type_members}, {0, nullptr},
};
PyType_Spec type_spec = {"flambeau._C.Replay", sizeof(Replay), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, type_slots};

}  // namespace

void add_replay(PyObject* module) {
    PyModule_AddFunctions(module, functions);
    PyTypeObject* type = (PyTypeObject*)PyType_FromSpec(&type_spec);
    if (type != nullptr) add_type(module, type);
    Py_XDECREF(type);
}
