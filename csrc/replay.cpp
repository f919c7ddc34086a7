// Replay: a short program of scalar operations and reductions over strided buffers, written down once for an operator and the
// layouts of its arguments (flambeau/ops/replay.py), and run in one call from then on. It is for small tensors: the steps run
// one after the other on one thread, their intermediate values stay in the cache.
#include "module.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "arguments.h"
#include "call_key.h"
#include "dtypes.h"
#include "eager.h"
#include "scalar_ops.h"
#include "state.h"
#include "tensors.h"

namespace {

constexpr int max_rank = 10;
constexpr int max_operands = 4;  // the result, then what it is made of
constexpr int max_outputs = 8, max_bases = 64;

struct Place {
    int base;  // inputs, then outputs, then the scratch memory, then the constants
    ptrdiff_t offset;
    ptrdiff_t strides[max_rank];
};

struct Step {
    RowLoop loop = nullptr;
    ConvertRow convert = nullptr;
    RowFold fold = nullptr;
    bool gathers = false, wraps = false;  // result[i] = from[i, index[i] along a dimension of `length` elements, `stride` bytes apart]
    bool scatters = false;                // result[i, index[i] along it] = from[i], or by `loop` made of what is there and from[i]
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
    int inputs = 0;  // the tensors among the arguments
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

int64_t position_of(const Step& step, const char* at) {
    int64_t index = *(const int64_t*)at;
    return step.wraps && index < 0 ? index + step.length : index;
}

bool gather(const Step& step, char* const* at, const ptrdiff_t* steps, ptrdiff_t n) {
    if (steps[2] == 0 && steps[0] == step.item && steps[1] == step.item) {  // a run of the source
        int64_t index = position_of(step, at[2]);
        if (index < 0 || index >= step.length) return false;
        std::memcpy(at[0], at[1] + index * step.stride, n * step.item);
        return true;
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        int64_t index = position_of(step, at[2] + i * steps[2]);
        if (index < 0 || index >= step.length) return false;
        std::memcpy(at[0] + i * steps[0], at[1] + i * steps[1] + index * step.stride, step.item);
    }
    return true;
}

bool scatter(const Step& step, char* const* at, const ptrdiff_t* steps, ptrdiff_t n) {
    const ptrdiff_t nothing[2] = {};
    for (ptrdiff_t i = 0; i < n; i++) {
        int64_t index = position_of(step, at[2] + i * steps[2]);
        if (index < 0 || index >= step.length) return false;
        char *to = at[0] + i * steps[0] + index * step.stride, *both[] = {to, at[1] + i * steps[1]};
        if (step.loop == nullptr) std::memcpy(to, both[1], step.item);
        else step.loop(to, 0, both, nothing, 1);
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
        if (step.gathers ? !gather(step, at, steps, n) : step.scatters && !scatter(step, at, steps, n)) return false;
        if (step.gathers || step.scatters) {
        } else if (step.fold != nullptr) step.fold(at[0], steps[0], at[1], steps[1], n);
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

// The results; null without an error where an index turns out to be out of bounds.
PyObject* run_program(const Program& program, PyObject* const* args, Py_ssize_t count) {
    char* bases[max_bases];
    int used = 0;
    bool arrays = each_argument(args, count, [&](PyObject* argument) {
        if (!is_tensor(argument)) return true;
        PyArrayObject* array = cpu_array(argument);
        if (array == nullptr || used == program.inputs) return false;
        bases[used++] = PyArray_BYTES(array);
        return true;
    });
    if (!arrays || used != program.inputs) return PyErr_Format(PyExc_TypeError, "a replay was called with other arguments than it was made for");
    PyObject* made[max_outputs];
    int outputs = (int)program.outputs.size(), ready = 0;
    for (; ready < outputs; ready++) {
        PyObject* array = new_output(program.outputs[ready]);
        if (array != nullptr) bases[used++] = PyArray_BYTES((PyArrayObject*)array);
        made[ready] = new_tensor(array);
        if (made[ready] != nullptr && !program.outputs[ready].strides.empty() && layout_of(made[ready], true) == nullptr) Py_CLEAR(made[ready]);
        if (made[ready] == nullptr) break;
    }
    bool good = ready == outputs;
    if (good) {
        if (scratch_memory.size() < program.scratch) scratch_memory.resize(program.scratch);
        bases[used++] = scratch_memory.data();
        bases[used++] = (char*)program.constants.data();
        for (const Step& step : program.steps)
            if (!run_step(step, bases)) {
                good = false;
                break;
            }
    }
    PyObject* result = good && !program.several ? Py_NewRef(made[0]) : good ? PyTuple_New(outputs) : nullptr;
    for (int i = 0; i < ready; i++) {
        if (result != nullptr && program.several) PyTuple_SET_ITEM(result, i, made[i]);
        else Py_DECREF(made[i]);
    }
    return result;
}

PyObject* call(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
    if (names != nullptr || PyVectorcall_NARGS(flags) != 1 || !PyTuple_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "a replay takes the tuple of the operator's arguments");
    return or_not_implemented(run_program(*((Replay*)self)->program, &PyTuple_GET_ITEM(args[0], 0), PyTuple_GET_SIZE(args[0])));
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

// Fewer and longer dimensions: without those of size 1, in the order of `sorted_by`'s memory (-1: as they are), merged where they lie end to end.
void simplify(Step& step, int sorted_by) {
    int order[max_rank], kept = 0;
    for (int d = 0; d < step.rank; d++)
        if (step.sizes[d] != 1) order[kept++] = d;
    if (sorted_by >= 0) {
        const ptrdiff_t* by = step.places[sorted_by].strides;
        std::stable_sort(order, order + kept, [&](int a, int b) { return by[a] > by[b]; });
    }
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
    if (std::find(step.sizes, step.sizes + step.rank, 0) != step.sizes + step.rank) return true;  // nothing to do, and nothing to read
    if (std::strcmp(name, "convert") == 0) {
        step.convert = find_conversion((Kind)out, (Kind)in);
        simplify(step, 0);
    } else if ((std::strcmp(name, "gather") == 0 || std::strcmp(name, "index") == 0) && step.operands == 3) {
        step.gathers = true, step.wraps = name[0] == 'i', step.item = size_of((Kind)out);
        simplify(step, 0);
    } else if ((std::strncmp(name, "scatter", 7) == 0 || std::strncmp(name, "put", 3) == 0) && step.operands == 3) {
        step.scatters = true, step.wraps = name[0] == 'p', step.item = size_of((Kind)out);
        const char* by = std::strchr(name, ' ');  // "scatter", or "scatter add"
        const ScalarLoop* found = by != nullptr ? find_scalar(by + 1, (Kind)in) : nullptr;
        if (found != nullptr && found->arity == 2 && found->out == (Kind)out) step.loop = found->run;
        if (by != nullptr && step.loop == nullptr) step.scatters = false;
        simplify(step, -1);  // of what goes to one place the last counts
    } else if (find_fold(name, (Kind)in) != nullptr && step.operands == 2) {
        const FoldLoop* found = find_fold(name, (Kind)in);
        if (found->total == (Kind)out) step.fold = found->run;
        simplify(step, 1);  // along rows where the input's closest elements are reduced; else whole rows are added to the total
    } else {
        const ScalarLoop* found = find_scalar(name, (Kind)in);
        if (found != nullptr && found->arity + 1 == step.operands && found->out == (Kind)out) step.loop = found->run;
        simplify(step, 0);
    }
    if (step.loop == nullptr && step.convert == nullptr && step.fold == nullptr && !step.gathers && !step.scatters)
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
    PyObject *outputs, *steps, *constants;
    Py_ssize_t scratch;
    int inputs, several;
    if (!PyArg_ParseTuple(arguments, "iO!O!Snp:Replay", &inputs, &PyTuple_Type, &outputs, &PyTuple_Type, &steps, &constants, &scratch, &several))
        return nullptr;
    if (inputs < 0 || PyTuple_GET_SIZE(outputs) > max_outputs || inputs + PyTuple_GET_SIZE(outputs) + 2 > max_bases)
        return PyErr_Format(PyExc_NotImplementedError, "too many tensors for a replay");
    Replay* self = (Replay*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->vectorcall = call;
    Program& program = *(self->program = new Program);
    program.constants.assign(PyBytes_AS_STRING(constants), PyBytes_GET_SIZE(constants));
    program.scratch = scratch, program.several = several, program.inputs = inputs;
    bool good = true;
    for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(outputs); i++) good = read_output(PyTuple_GET_ITEM(outputs, i), program);
    for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(steps); i++) good = read_step(PyTuple_GET_ITEM(steps, i), program);
    if (!good || PyErr_Occurred()) Py_CLEAR(self);
    return (PyObject*)self;
}

void dealloc(PyObject* object) {
    Program* program = ((Replay*)object)->program;
    if (program != nullptr)
        for (Output& output : program->outputs) Py_DECREF(output.descr);
    delete program;
    free_object(object);
}

// ---- programs by what they depend on ----

// Replays(make, most, kept, patient): the programs of one operator. make(args) writes one down, or answers None. They serve
// tensors of at most `most` elements on the CPU; after `kept` of them all are forgotten. A patient one waits until it sees the
// same arguments again: for operations that come to the same bits with and without a program.
struct Replays {
    PyObject_HEAD
    PyObject *make, *programs;
    Py_ssize_t most, kept;
    bool patient;
    vectorcallfunc vectorcall;
};

// What a program for these arguments depends on, hashable; null without an error where they are not for one: a tensor
// elsewhere than on the CPU, with no or too many elements, or of another dtype.
PyObject* describe(PyObject* const* args, Py_ssize_t count, npy_intp most) {
    if (dispatch_state.fake) return nullptr;
    CallKey key;
    bool serves = each_argument(args, count, [&](PyObject* argument) {
        PyArrayObject* array = cpu_array(argument);
        if (array == nullptr) {
            if (is_tensor(argument)) return false;
            PyTypeObject* type = Py_TYPE(argument);
            key.add((char)0);
            key.add(type);
            if (type != &PyFloat_Type) return key.add_object(argument);
            return key.add(((PyFloatObject*)argument)->ob_fval), true;  // by its bits: -0.0 is not 0.0
        }
        Kind kind = kind_of(array);
        npy_intp size = PyArray_SIZE(array);
        int rank = PyArray_NDIM(array);
        if (kind == Kind::other || size == 0 || size > most || rank > max_rank || !PyArray_ISBEHAVED_RO(array)) return false;
        npy_intp* sizes = PyArray_DIMS(array);  // of a dimension of one element the strides tell how a copy lies
        bool rows = PyArray_IS_C_CONTIGUOUS(array) && std::find(sizes, sizes + rank, 1) == sizes + rank;
        char marks[2] = {(char)(1 + (int)kind), (char)(rank + (rows ? 64 : 0))};
        key.add(marks);
        key.add(sizes, rank * sizeof(npy_intp));
        if (!rows) key.add(PyArray_STRIDES(array), rank * sizeof(npy_intp));
        return true;
    });
    for (Py_ssize_t i = 0; i < count; i++) {  // where lists begin and end
        if (!PyList_CheckExact(args[i]) && !PyTuple_CheckExact(args[i])) continue;
        Py_ssize_t place[2] = {i, PySequence_Fast_GET_SIZE(args[i])};
        key.add(place);
    }
    return serves ? key.made() : nullptr;
}

PyTypeObject* replays_type = nullptr;

}  // namespace

bool are_replays(PyObject* object) { return Py_IS_TYPE(object, replays_type); }

PyObject* run_replay(PyObject* object, PyObject* const* args, Py_ssize_t count) {
    Replays* self = (Replays*)object;
    PyObject* key = describe(args, count, self->most);
    if (key == nullptr) return nullptr;
    PyObject* program = PyDict_GetItemWithError(self->programs, key);
    Py_XINCREF(program);
    bool fresh = true;
    if (program == nullptr && PyErr_Occurred()) {
        Py_DECREF(key);
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return nullptr;
        PyErr_Clear();  // a list of something else among the arguments
        return nullptr;
    }
    if (program == nullptr && self->patient) {
        program = Py_NewRef(Py_False);  // seen once
    } else if (program == nullptr || program == Py_False) {
        Py_CLEAR(program);
        PyObject* all = tuple_of(args, count);
        program = all != nullptr ? PyObject_CallOneArg(self->make, all) : nullptr;
        Py_XDECREF(all);
    } else {
        fresh = false;
    }
    if (fresh && program != nullptr) {
        if (PyDict_GET_SIZE(self->programs) >= self->kept) PyDict_Clear(self->programs);
        if (PyDict_SetItem(self->programs, key, program) < 0) Py_CLEAR(program);
    }
    Py_DECREF(key);
    if (program == nullptr) return nullptr;
    PyObject* result = program == Py_None || program == Py_False ? nullptr : run_program(*((Replay*)program)->program, args, count);
    Py_DECREF(program);
    return result;
}

namespace {

PyObject* replays_call(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
    if (names != nullptr || PyVectorcall_NARGS(flags) != 1 || !PyTuple_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "Replays take the tuple of the operator's arguments");
    return or_not_implemented(run_replay(self, &PyTuple_GET_ITEM(args[0], 0), PyTuple_GET_SIZE(args[0])));
}

PyObject* replays_create(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject* make;
    Py_ssize_t most, kept;
    int patient;
    if (!PyArg_ParseTuple(arguments, "Onnp:Replays", &make, &most, &kept, &patient)) return nullptr;
    Replays* self = (Replays*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->make = Py_NewRef(make), self->programs = PyDict_New(), self->most = most, self->kept = kept, self->patient = patient;
    self->vectorcall = replays_call;
    return (PyObject*)self;
}

PyMemberDef replays_members[] = {
    {"programs", T_OBJECT_EX, offsetof(Replays, programs), READONLY, "{what it depends on: program, None, or False: seen once}"},
    vectorcall_member<Replays>,
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot replays_slots[] = {
    {Py_tp_doc, (void*)"Replays(make, most, kept, patient): the programs of one operator; call it with the tuple of arguments."},
    {Py_tp_new, (void*)replays_create}, {Py_tp_dealloc, (void*)release<Replays, &Replays::make, &Replays::programs>},
    {Py_tp_call, (void*)PyVectorcall_Call},
    {Py_tp_members, replays_members}, {0, nullptr},
};
PyType_Spec replays_spec = {"flambeau._C.Replays", sizeof(Replays), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, replays_slots};

PyType_Slot type_slots[] = {
    {Py_tp_doc, (void*)"Replay(inputs, outputs, steps, constants, scratch, several): see flambeau/ops/replay.py"},
    {Py_tp_new, (void*)create}, {Py_tp_dealloc, (void*)dealloc}, {Py_tp_call, (void*)PyVectorcall_Call},
    {Py_tp_members, vectorcall_alone<Replay>}, {0, nullptr},
};
PyType_Spec type_spec = {"flambeau._C.Replay", sizeof(Replay), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, type_slots};

}  // namespace

void add_replay(PyObject* module) {
    add_type(module, type_spec);
    replays_type = add_type(module, replays_spec);
}
