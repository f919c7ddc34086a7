// GpuProgram: what one call of an operator or of a compiled graph does on a GPU, written down for one set of layouts of its
// arguments (flambeau/inductor/gpu/written.py): arrays to make, launches, results. GpuPrograms: the programs of one operator by what
// they depend on. As replay.cpp does for small tensors on the CPU, a call of a known kind runs no Python but CuPy's allocator.
#include "module.h"

#include <cstring>
#include <string>
#include <vector>

#include "arguments.h"
#include "cuda_launch.h"
#include "gpu_arrays.h"
#include "gpu_program.h"
#include "state.h"

namespace {

constexpr int max_bases = 64;   // of an operator: the arguments' arrays, then those that the program makes
constexpr int max_rank = 16;

struct Look {           // at an array's memory
    int base;
    long long offset;   // in bytes
    PyObject *shape, *strides;  // strides in bytes; null: the array as it is
};

struct Parameter {
    enum { address, constant, argument, array } from;
    int base;           // whose address, or which argument's number
    long long offset;   // in bytes
    Word word;
    PyObject* number;   // a constant
    Look look;          // an array
};

struct Step {
    PyObject* call;     // a CudaKernel; or what is called like one; or, where the grid is 0, with its parameters alone
    unsigned long grid;
    std::vector<Parameter> parameters;
    std::vector<int> results;       // the arrays that it answers with, in a list
    std::vector<int> makes, drops;  // arrays that are new here, and those that nobody needs afterwards
};

struct Made {
    PyObject *shape, *dtype, *bytes;    // null: a step answers with it
};

struct Output {
    Look look;
    PyObject *dtype, *layout;   // the tensor's; the layout may be null
    PyObject* number;           // instead of a tensor
    int argument;               // or the number at this place among the inputs, where it is not negative
    bool saved;                 // not made a tensor: another graph takes it
};

// Where a compiled graph finds an array.
struct Source {
    Py_ssize_t input = -1, kept = -1;       // which of the inputs, or of the arrays that were kept
    PyObject* tensor = nullptr;             // or a constant
    PyObject *strides = nullptr, *bytes = nullptr;  // what the tensor's have to be, in elements and in bytes
};

struct Program {
    int inputs = 0;
    std::vector<Made> made;
    std::vector<Step> steps;
    std::vector<Output> outputs;
    bool several = false;
    std::vector<PyObject*> owned;   // references
    // of compiled graphs:
    std::vector<Source> sources;
    PyObject *fit = nullptr, *device = nullptr;
    bool reads_numbers = false;     // among the inputs

    size_t bases() const { return inputs + made.size(); }
};

struct GpuProgram {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Program* program;
};

PyTypeObject *program_type, *programs_type;  // live for ever

// ---- the arguments ----

struct Operands {
    unsigned long long addresses[max_bases];
    PyObject* device = nullptr;     // the tensors'; borrowed
    int count = 0;
};

// The bytes of a program's key, mostly few.
struct Bytes {
    char few[512];
    std::string many;
    size_t used = 0;

    void add(const void* bytes, size_t n) {
        if (many.empty() && used + n <= sizeof few) return (void)(std::memcpy(few + used, bytes, n), used += n);
        if (many.empty()) many.assign(few, used);
        many.append((const char*)bytes, n);
    }

    PyObject* object() const { return many.empty() ? PyBytes_FromStringAndSize(few, used) : PyBytes_FromStringAndSize(many.data(), many.size()); }
};

// Adds a tuple of ints; false where one is something else. `total` becomes the product.
bool add_numbers(Bytes& key, PyObject* tuple, long long* total) {
    long long numbers[max_rank];
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    if (count > max_rank) return false;
    *total = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject* item = PyTuple_GET_ITEM(tuple, i);
        if (!PyLong_CheckExact(item)) return false;
        numbers[i] = PyLong_AsLongLong(item);
        *total *= numbers[i];
    }
    key.add(numbers, count * sizeof *numbers);
    return true;
}

bool add_tensor(Bytes& key, PyObject* tensor, Operands& operands) {
    PyObject* array = gpu_array(tensor);
    PyObject* layout = array != nullptr && operands.count < max_bases / 2 ? layout_of(tensor) : nullptr;
    if (layout == nullptr) return false;
    const TensorSlots& slots = known_slots();
    PyObject *dtype = read_slot(tensor, slots.dtype), *device = read_slot(tensor, slots.device), *shape = PyTuple_GET_ITEM(layout, 0);
    unsigned long long& address = operands.addresses[operands.count++];
    if (!gpu_address(array, &address)) return false;
    if (operands.device == nullptr) operands.device = device;
    else if (operands.device != device && device_number(operands.device) != device_number(device)) return false;
    char marks[2] = {(char)(2 + (address & 15 ? 1 : 0)), (char)PyTuple_GET_SIZE(shape)};
    key.add(marks, sizeof marks);
    key.add(&dtype, sizeof dtype);  // dtypes live for ever
    long long elements, ignored;
    return add_numbers(key, shape, &elements) && elements > 0 && add_numbers(key, PyTuple_GET_ITEM(layout, 1), &ignored);
}

// What a program for these arguments depends on, hashable; null where they are not for one: tensors elsewhere than on this
// thread's GPU, or without elements. Floats count only where `looked_at` says so (a bit for each position),
// ints but where they are `varying`.
PyObject* describe(PyObject* const* args, Py_ssize_t count, unsigned long long looked_at, unsigned long long varying, Operands& operands) {
    Bytes key;
    PyObject* others[32];
    Py_ssize_t other_count = 0, position = 0;
    bool serves = !dispatch_state.fake && each_argument(args, count, [&](PyObject* argument) {
        if (is_tensor(argument)) return position++, add_tensor(key, argument, operands);
        PyTypeObject* type = Py_TYPE(argument);
        bool parameter = position < 64 && ((type == &PyFloat_Type && !(looked_at >> position & 1)) || (type == &PyLong_Type && varying >> position & 1));
        char mark = parameter;
        key.add(&mark, 1);
        position++;
        if (parameter) return true;
        key.add(&type, sizeof type);
        if (type == &PyFloat_Type) key.add(&((PyFloatObject*)argument)->ob_fval, sizeof(double));  // by its bits: -0.0 is not 0.0
        else if (other_count == 32) return false;
        else others[other_count++] = argument;
        return true;
    });
    if (!serves || operands.device == nullptr) return nullptr;
    for (Py_ssize_t i = 0; i < count; i++) {  // where lists begin and end
        if (!PyList_CheckExact(args[i]) && !PyTuple_CheckExact(args[i])) continue;
        Py_ssize_t place[2] = {i, PySequence_Fast_GET_SIZE(args[i])};
        key.add(place, sizeof place);
    }
    long gpu;
    if (!current_gpu(&gpu) || gpu != device_number(operands.device)) return nullptr;
    key.add(&gpu, sizeof gpu);
    PyObject* bytes = key.object();
    PyObject* made = bytes != nullptr ? PyTuple_New(1 + other_count) : nullptr;
    if (made == nullptr) return Py_XDECREF(bytes), nullptr;
    PyTuple_SET_ITEM(made, 0, bytes);
    for (Py_ssize_t i = 0; i < other_count; i++) PyTuple_SET_ITEM(made, i + 1, Py_NewRef(others[i]));
    return made;
}

// ---- running ----

struct Run {
    const Program& program;
    PyObject* const* args;
    unsigned long long* addresses;
    PyObject** arrays;  // references

    Run(const Program& program, PyObject* const* args, unsigned long long* addresses, PyObject** arrays)
        : program(program), args(args), addresses(addresses), arrays(arrays) {
        std::memset(arrays, 0, program.bases() * sizeof *arrays);
        std::memset(addresses + program.inputs, 0, program.made.size() * sizeof *addresses);
    }

    ~Run() {
        for (size_t base = 0; base < program.bases(); base++) Py_XDECREF(arrays[base]);
    }

    // Takes the reference over.
    bool have(int base, PyObject* array) {
        Py_XSETREF(arrays[base], array);
        return array != nullptr && gpu_address(array, &addresses[base]);
    }

    bool make(int base) {
        if (addresses[base] != 0) return true;  // given by the caller
        return have(base, new_gpu_memory(program.made[base - program.inputs].bytes));
    }

    PyObject* look(const Look& at) const {
        static const Made given = {};
        const Made& made = at.base < program.inputs ? given : program.made[at.base - program.inputs];
        PyObject* owner = arrays[at.base];
        if (at.strides != nullptr) return gpu_array_over(owner, at.offset, at.shape, made.dtype, at.strides);
        if (is_saved_array(owner)) return array_of_saved(owner);
        return made.shape == nullptr ? Py_NewRef(owner) : gpu_array_over(owner, 0, made.shape, made.dtype, nullptr);
    }

    bool read(const Parameter& p, char kind, Word* word) const {
        if (p.from == Parameter::address) return word->address = addresses[p.base] + p.offset, true;
        if (p.from == Parameter::argument) return read_word(kind, args[p.base], word);
        return *word = p.word, true;
    }

    bool launch(const Step& step, void* stream) const {
        const CudaKernel* kernel = (const CudaKernel*)step.call;
        Word words[most_parameters];
        for (int k = 0; k < kernel->count; k++)
            if (!read(step.parameters[k], kernel->kinds[k], &words[k])) return false;
        return launch_kernel(kernel, stream, step.grid, words);
    }

    PyObject* object(const Parameter& p) const {
        switch (p.from) {
            case Parameter::address: return PyLong_FromUnsignedLongLong(addresses[p.base] + p.offset);
            case Parameter::argument: return Py_NewRef(args[p.base]);
            case Parameter::array: return look(p.look);
            default: return Py_NewRef(p.number);
        }
    }

    bool call(const Step& step, void* stream) {
        PyObject* given[most_parameters + 2] = {};
        Py_ssize_t count = 0;
        if (step.grid != 0) given[count++] = PyLong_FromVoidPtr(stream), given[count++] = PyLong_FromUnsignedLong(step.grid);
        for (const Parameter& p : step.parameters) {
            given[count] = object(p);
            if (given[count++] == nullptr) break;
        }
        PyObject* answer = PyErr_Occurred() ? nullptr : PyObject_Vectorcall(step.call, given, count, nullptr);
        while (count > 0) Py_XDECREF(given[--count]);
        bool good = answer != nullptr && (step.results.empty() || take(step, answer));
        Py_XDECREF(answer);
        return good;
    }

    bool take(const Step& step, PyObject* answer) {
        if (!PyList_Check(answer) || PyList_GET_SIZE(answer) != (Py_ssize_t)step.results.size())
            return PyErr_SetString(PyExc_TypeError, "a step of a program answers with another number of arrays"), false;
        for (size_t i = 0; i < step.results.size(); i++)
            if (!have(step.results[i], Py_NewRef(PyList_GET_ITEM(answer, i)))) return false;
        return true;
    }

    bool steps() {
        void* stream;
        if (!current_stream(&stream)) return false;
        for (const Step& step : program.steps) {
            for (int base : step.makes)
                if (!make(base)) return false;
            if (!(is_cuda_kernel(step.call) ? launch(step, stream) : call(step, stream))) return false;
            for (int base : step.drops) Py_CLEAR(arrays[base]);
        }
        return true;
    }

    PyObject* result(const Output& output, PyObject* device) const {
        if (output.argument >= 0) return Py_NewRef(args[output.argument]);
        if (output.number != nullptr) return Py_NewRef(output.number);
        if (output.saved) return new_saved_array(arrays[output.look.base], output.look.offset, output.dtype, output.layout, device, output.look.strides);
        PyObject* array = look(output.look);
        return array != nullptr ? new_tensor_of(array, output.dtype, device, output.layout) : nullptr;
    }

    // Puts the results into a new tuple or list.
    template <class Set>
    PyObject* results(PyObject* all, PyObject* device, Set set) const {
        for (size_t i = 0; all != nullptr && i < program.outputs.size(); i++) {
            PyObject* one = result(program.outputs[i], device);
            if (one == nullptr) Py_CLEAR(all);
            else set(all, i, one);
        }
        return all;
    }
};

PyObject* run_program(const Program& program, PyObject* const* args, Operands& operands) {
    PyObject* arrays[max_bases];
    Run run{program, args, operands.addresses, arrays};
    if (!run.steps()) return nullptr;
    if (!program.several) return run.result(program.outputs[0], operands.device);
    return run.results(PyTuple_New(program.outputs.size()), operands.device,
                       [](PyObject* all, Py_ssize_t i, PyObject* one) { PyTuple_SET_ITEM(all, i, one); });
}

// ---- compiled graphs ----

// The array of a tensor (or what was saved) as the program expects it; new reference. Null without an error for anything else.
PyObject* fitted(const Program& program, const Source& source, PyObject* given) {
    bool saved = is_saved_array(given);
    PyObject* owner = saved ? given : gpu_array(given);
    PyObject* layout = owner == nullptr ? nullptr : saved ? ((SavedArray*)given)->layout : layout_of(given);
    unsigned long long address;
    if (layout == nullptr || !gpu_address(owner, &address)) return nullptr;
    int same = address & 15 ? 0 : PyObject_RichCompareBool(PyTuple_GET_ITEM(layout, 1), source.strides, Py_EQ);
    if (same != 0) return same < 0 ? nullptr : Py_NewRef(owner);
    PyObject* array = saved ? array_of_saved(given) : Py_NewRef(owner);
    PyObject* made = array != nullptr ? PyObject_CallFunctionObjArgs(program.fit, array, source.bytes, nullptr) : nullptr;
    Py_XDECREF(array);
    return made;
}

PyObject* source_of(const Program& program, const Source& source, PyObject* inputs, PyObject* kept) {
    if (source.kept >= 0) return kept != nullptr && source.kept < PyTuple_GET_SIZE(kept) ? Py_NewRef(PyTuple_GET_ITEM(kept, source.kept)) : nullptr;
    if (source.tensor != nullptr) return fitted(program, source, source.tensor);
    return source.input < PyList_GET_SIZE(inputs) ? fitted(program, source, PyList_GET_ITEM(inputs, source.input)) : nullptr;
}

// The numbers among the inputs, kept while a run reads them.
struct Numbers {
    std::vector<PyObject*> all;

    Numbers(const Program& program, PyObject* inputs) {
        if (!program.reads_numbers) return;
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(inputs); i++) {
            PyObject* item = PyList_GET_ITEM(inputs, i);
            all.push_back(is_tensor(item) || is_saved_array(item) ? nullptr : Py_NewRef(item));
        }
    }

    ~Numbers() {
        for (PyObject* number : all) Py_XDECREF(number);
    }
};

// program(inputs[, kept]): the results of a compiled graph as a list; NotImplemented where inputs are not as they have to be.
// The list of inputs is emptied, so that each array goes after its last use.
PyObject* program_call(PyObject* object, PyObject* const* given, size_t flags, PyObject* names) {
    const Program& program = *((GpuProgram*)object)->program;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    PyObject* kept = count > 1 ? given[1] : nullptr;
    if (names != nullptr || count < 1 || count > 2 || !PyList_Check(given[0]) || (kept != nullptr && !PyTuple_Check(kept)) || program.fit == nullptr)
        return PyErr_Format(PyExc_TypeError, "a compiled graph takes the list of its inputs, and the tuple of arrays that were kept");
    std::vector<unsigned long long> addresses(program.bases());
    std::vector<PyObject*> arrays(program.bases());
    Numbers numbers(program, given[0]);
    Run run{program, numbers.all.data(), addresses.data(), arrays.data()};
    for (int base = 0; base < program.inputs; base++) {
        PyObject* array = source_of(program, program.sources[base], given[0], kept);
        if (array == nullptr && !PyErr_Occurred()) Py_RETURN_NOTIMPLEMENTED;
        if (!run.have(base, array)) return nullptr;
    }
    if (PyList_SetSlice(given[0], 0, PyList_GET_SIZE(given[0]), nullptr) < 0 || !run.steps()) return nullptr;
    return run.results(PyList_New(program.outputs.size()), program.device,
                       [](PyObject* all, Py_ssize_t i, PyObject* one) { PyList_SET_ITEM(all, i, one); });
}

// ---- writing down ----

PyObject* owned(Program& program, PyObject* object) { return program.owned.push_back(Py_NewRef(object)), object; }

bool is_base(const Program& program, int base) {
    if (base >= 0 && base < (int)program.bases()) return true;
    return PyErr_SetString(PyExc_ValueError, "a part of a program names none of its arrays"), false;
}

// (base, offset, shape, strides or None)
bool read_look(PyObject* item, Program& program, Look* out) {
    PyObject *shape, *strides;
    if (!PyArg_ParseTuple(item, "iLOO", &out->base, &out->offset, &shape, &strides) || !is_base(program, out->base)) return false;
    out->shape = owned(program, shape);
    out->strides = strides == Py_None ? nullptr : owned(program, strides);
    return true;
}

bool read_parameter(PyObject* item, Program& program, char kind, Parameter* out) {
    if (!PyTuple_Check(item)) {
        out->from = Parameter::constant, out->number = owned(program, item);
        return kind == 0 || read_word(kind, item, &out->word);
    }
    if (PyTuple_GET_SIZE(item) == 4) {
        out->from = Parameter::array;
        if (kind == 0) return read_look(item, program, &out->look);
        return PyErr_SetString(PyExc_TypeError, "a kernel takes addresses, not arrays"), false;
    }
    int is_argument;
    if (!PyArg_ParseTuple(item, "piL", &is_argument, &out->base, &out->offset)) return false;
    out->from = is_argument ? Parameter::argument : Parameter::address;
    if (is_argument) program.reads_numbers = true;
    return is_argument ? out->base >= 0 : is_base(program, out->base);
}

bool read_step(PyObject* item, Program& program) {
    PyObject *call, *parameters, *results;
    Step step;
    if (!PyArg_ParseTuple(item, "OkO!O!", &call, &step.grid, &PyTuple_Type, &parameters, &PyTuple_Type, &results)) return false;
    const CudaKernel* kernel = is_cuda_kernel(call) ? (const CudaKernel*)call : nullptr;
    Py_ssize_t count = PyTuple_GET_SIZE(parameters);
    if (count > most_parameters || (kernel != nullptr && count != kernel->count))
        return PyErr_Format(PyExc_ValueError, "a launch has %zd parameters", count), false;
    step.call = owned(program, call);
    step.parameters.resize(count);
    for (Py_ssize_t k = 0; k < count; k++)
        if (!read_parameter(PyTuple_GET_ITEM(parameters, k), program, kernel != nullptr ? kernel->kinds[k] : '\0', &step.parameters[k])) return false;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(results); k++) {
        step.results.push_back((int)PyLong_AsLong(PyTuple_GET_ITEM(results, k)));
        if (PyErr_Occurred() || !is_base(program, step.results.back())) return false;
    }
    program.steps.push_back(step);
    return true;
}

// (look, dtype, layout or None, saved) for a tensor or what is saved, a Place for a number among the inputs, or a number.
bool read_output(PyObject* item, Program& program) {
    Output output = {};
    output.argument = -1;
    if (!PyTuple_Check(item)) {
        output.number = owned(program, item);
    } else if (PyLong_Check(PyTuple_GET_ITEM(item, 0))) {
        output.argument = (int)PyLong_AsLong(PyTuple_GET_ITEM(item, 1)), program.reads_numbers = true;
    } else {
        PyObject *look, *layout;
        int saved;
        if (!PyArg_ParseTuple(item, "O!OOp", &PyTuple_Type, &look, &output.dtype, &layout, &saved) || !read_look(look, program, &output.look)) return false;
        owned(program, output.dtype);
        output.layout = layout == Py_None ? nullptr : owned(program, layout);
        output.saved = saved && output.layout != nullptr;
    }
    program.outputs.push_back(output);
    return !PyErr_Occurred();
}

// (a position among the inputs, ~ a position among the kept arrays, or a tensor; strides in elements; strides in bytes)
bool read_source(PyObject* item, Program& program) {
    Source source;
    PyObject* where;
    if (!PyArg_ParseTuple(item, "OOO", &where, &source.strides, &source.bytes)) return false;
    owned(program, source.strides), owned(program, source.bytes);
    if (!PyLong_Check(where)) {
        source.tensor = owned(program, where);
    } else {
        Py_ssize_t position = PyLong_AsSsize_t(where);
        (position >= 0 ? source.input : source.kept) = position >= 0 ? position : ~position;
    }
    program.sources.push_back(source);
    return !PyErr_Occurred();
}

// Each array is made by the first step that names it, and let go of after the last.
void settle_lives(Program& program) {
    std::vector<int> first(program.bases(), -1), last(program.bases(), -1);
    auto use = [&](int base, int k) { first[base] < 0 ? first[base] = k : 0, last[base] = k; };
    for (size_t k = 0; k < program.steps.size(); k++) {
        for (const Parameter& p : program.steps[k].parameters)
            if (p.from == Parameter::address || p.from == Parameter::array) use(p.from == Parameter::array ? p.look.base : p.base, k);
        for (int base : program.steps[k].results) use(base, k);
    }
    for (const Output& output : program.outputs) {
        if (output.number != nullptr || output.argument >= 0) continue;
        if (first[output.look.base] < 0) first[output.look.base] = 0;
        last[output.look.base] = -1;
    }
    for (int base = 0; base < (int)program.bases(); base++) {
        bool makes = base >= program.inputs && program.made[base - program.inputs].shape != nullptr;
        if (makes && first[base] >= 0) program.steps[first[base]].makes.push_back(base);
        if (last[base] >= 0) program.steps[last[base]].drops.push_back(base);
    }
}

bool read_made(PyObject* item, Program& program) {
    Made one = {};
    if (item != Py_None) {
        long long bytes;
        if (!PyArg_ParseTuple(item, "O!OL", &PyTuple_Type, &one.shape, &one.dtype, &bytes)) return false;
        owned(program, one.shape), owned(program, one.dtype);
        one.bytes = PyLong_FromLongLong(bytes);
        if (one.bytes == nullptr) return false;
        program.owned.push_back(one.bytes);
    }
    program.made.push_back(one);
    return true;
}

template <class Read>
bool read_all(PyObject* items, Program& program, Read read) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++)
        if (!read(PyTuple_GET_ITEM(items, i), program)) return false;
    return true;
}

PyObject* create(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject *made, *steps, *outputs, *sources = nullptr, *fit = nullptr, *device = nullptr;
    int inputs, several;
    if (!PyArg_ParseTuple(arguments, "iO!O!O!p|O!OO:GpuProgram", &inputs, &PyTuple_Type, &made, &PyTuple_Type, &steps, &PyTuple_Type, &outputs, &several,
                          &PyTuple_Type, &sources, &fit, &device))
        return nullptr;
    bool few = sources != nullptr ? device != nullptr && PyTuple_GET_SIZE(sources) == inputs : inputs + PyTuple_GET_SIZE(made) <= max_bases;
    if (inputs < 0 || !few || PyTuple_GET_SIZE(steps) == 0 || PyTuple_GET_SIZE(outputs) == 0)
        return PyErr_Format(PyExc_ValueError, "a program needs a launch, a result and, of an operator, at most %d arrays", max_bases);
    GpuProgram* self = (GpuProgram*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    Program& program = *(self->program = new Program);
    self->vectorcall = program_call;
    program.inputs = inputs, program.several = several;
    if (sources != nullptr) program.fit = owned(program, fit), program.device = owned(program, device);
    bool good = (sources == nullptr || read_all(sources, program, read_source)) && read_all(made, program, read_made) &&
                read_all(steps, program, read_step) && read_all(outputs, program, read_output);
    if (!good) Py_CLEAR(self);
    else settle_lives(program);
    return (PyObject*)self;
}

void dealloc(PyObject* object) {
    Program* program = ((GpuProgram*)object)->program;
    if (program != nullptr)
        for (PyObject* reference : program->owned) Py_DECREF(reference);
    delete program;
    free_object(object);
}

// ---- programs by what they depend on ----

struct GpuPrograms {
    PyObject_HEAD
    PyObject *make, *programs;
    Py_ssize_t kept;
    unsigned long long looked_at, varying;
    vectorcallfunc vectorcall;
};

// The program for these arguments, new reference; None where there is none, null without an error where they are not for one.
PyObject* find(GpuPrograms* self, PyObject* const* args, Py_ssize_t count, Operands& operands) {
    PyObject* key = describe(args, count, self->looked_at, self->varying, operands);
    if (key == nullptr) return nullptr;
    PyObject* program = PyDict_GetItemWithError(self->programs, key);
    if (program != nullptr || PyErr_Occurred()) {
        Py_DECREF(key);
        if (program == nullptr && PyErr_ExceptionMatches(PyExc_TypeError)) PyErr_Clear();  // a list among the arguments
        return Py_XNewRef(program);
    }
    Py_DECREF(key);
    PyObject* all = tuple_of(args, count);
    program = all != nullptr ? PyObject_CallOneArg(self->make, all) : nullptr;
    Py_XDECREF(all);
    if (program == nullptr) return nullptr;
    Operands again;
    key = describe(args, count, self->looked_at, self->varying, again);  // it may depend on more by now
    if (PyDict_GET_SIZE(self->programs) >= self->kept) PyDict_Clear(self->programs);
    if (key == nullptr || PyDict_SetItem(self->programs, key, program) < 0) Py_CLEAR(program);
    Py_XDECREF(key);
    return program;
}

// The results; null without an error where there is no program for these arguments.
PyObject* run_found(GpuPrograms* self, PyObject* const* args, Py_ssize_t count) {
    Operands operands;
    PyObject* program = find(self, args, count, operands);
    PyObject* result = program != nullptr && Py_IS_TYPE(program, program_type) ? run_program(*((GpuProgram*)program)->program, args, operands) : nullptr;
    Py_XDECREF(program);
    return result;
}

PyObject* programs_call(PyObject* object, PyObject* const* given, size_t flags, PyObject* names) {
    if (names != nullptr || PyVectorcall_NARGS(flags) != 1 || !PyTuple_Check(given[0]))
        return PyErr_Format(PyExc_TypeError, "GpuPrograms take the tuple of the operator's arguments");
    return or_not_implemented(run_found((GpuPrograms*)object, &PyTuple_GET_ITEM(given[0], 0), PyTuple_GET_SIZE(given[0])));
}

// Whether [a, a + m) and [b, b + n) have a byte in common.
bool overlap(unsigned long long a, unsigned long long m, unsigned long long b, unsigned long long n) { return a < b + n && b < a + m; }

// Bytes from a tensor's first element to behind its last.
unsigned long long extent(PyObject* tensor, long long item) {
    PyObject* layout = layout_of(tensor);
    unsigned long long last = 0;
    for (Py_ssize_t d = 0; d < PyTuple_GET_SIZE(PyTuple_GET_ITEM(layout, 0)); d++)
        last += (PyLong_AsLongLong(PyTuple_GET_ITEM(PyTuple_GET_ITEM(layout, 0), d)) - 1) *
                PyLong_AsLongLong(PyTuple_GET_ITEM(PyTuple_GET_ITEM(layout, 1), d));
    return (last + 1) * item;
}

// Whether a pointwise program may write its result over the first operand: it is laid out like that, and every other operand,
// which has its shape and dtype, lies exactly there or elsewhere.
bool may_overwrite(const Program& program, PyObject* const* args, Py_ssize_t count, const Operands& operands) {
    const TensorSlots& slots = known_slots();
    const Output& output = program.outputs[0];
    PyObject* target = layout_of(args[0]);
    if (program.several || program.steps.size() != 1 || program.made.size() != 1 || !is_cuda_kernel(program.steps[0].call) || output.look.strides != nullptr)
        return false;
    if (read_slot(args[0], slots.dtype) != output.dtype || PyObject_RichCompareBool(PyTuple_GET_ITEM(target, 1), PyTuple_GET_ITEM(output.layout, 1), Py_EQ) != 1)
        return false;
    PyObject* size = PyObject_GetAttrString(output.dtype, "itemsize");
    long long item = size != nullptr ? PyLong_AsLongLong(size) : 0;
    Py_XDECREF(size);
    unsigned long long bytes = item > 0 ? extent(args[0], item) : 0;
    int which = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!is_tensor(args[i])) continue;
        unsigned long long address = operands.addresses[which++];
        bool same = address == operands.addresses[0] &&
                    PyObject_RichCompareBool(PyTuple_GET_ITEM(target, 1), PyTuple_GET_ITEM(layout_of(args[i]), 1), Py_EQ) == 1;
        if (!same && overlap(operands.addresses[0], bytes, address, extent(args[i], item))) return false;
    }
    return bytes > 0 && !PyErr_Occurred();
}

// Whether two tensors with arrays have the same dtype and shape.
bool is_like(PyObject* a, PyObject* b) {
    Py_ssize_t dtype = known_slots().dtype;
    PyObject *of_a = layout_of(a), *of_b = layout_of(b);
    return of_a != nullptr && of_b != nullptr && read_slot(a, dtype) == read_slot(b, dtype) &&
           PyObject_RichCompareBool(PyTuple_GET_ITEM(of_a, 0), PyTuple_GET_ITEM(of_b, 0), Py_EQ) == 1;
}

enum { INT = 1, FLOAT = 2 };  // as in flambeau/core/dtypes.py

long category_of(PyObject* dtype) {
    PyObject* number = PyObject_GetAttrString(dtype, "category");
    long category = number != nullptr ? PyLong_AsLong(number) : -1;
    Py_XDECREF(number);
    return category;
}

// The arguments of a pointwise operation, whose numbers are brought to the tensors' kind.
struct Plain {
    static constexpr Py_ssize_t most = 8;
    PyObject *all[most], *numbers[most] = {};

    ~Plain() {
        for (PyObject* number : numbers) Py_XDECREF(number);
    }

    bool read(PyObject* const* args, Py_ssize_t count, bool below, bool over_first) {
        if (count == 0 || count > most || dispatch_state.fake || (!below && dispatch_state.word != 0)) return false;
        PyObject* like = nullptr;
        for (Py_ssize_t i = 0; like == nullptr && i < (over_first ? 1 : count); i++)
            if (gpu_array(args[i]) != nullptr) like = args[i];
        if (like == nullptr) return false;
        long category = category_of(read_slot(like, known_slots().dtype));
        bool grads = !below && dispatch_state.grad_enabled;
        for (Py_ssize_t i = 0; i < count; i++) {
            all[i] = args[i];
            if (is_tensor(args[i])) {
                if ((category != FLOAT && i > 0) || !is_like(args[i], like) || (grads && !needs_no_grad(args[i]))) return false;
            } else if (!(category == FLOAT ? as_float(i) : over_first && category == INT && is_small(args[i]))) {
                return false;
            }
        }
        return category == FLOAT || over_first;
    }

    bool as_float(Py_ssize_t i) {
        if (PyFloat_CheckExact(all[i])) return true;
        double value = PyLong_CheckExact(all[i]) ? PyLong_AsDouble(all[i]) : -1;
        if (PyErr_Occurred()) return PyErr_Clear(), false;
        return PyLong_CheckExact(all[i]) && (all[i] = numbers[i] = PyFloat_FromDouble(value)) != nullptr;
    }

    // Whether a number is what it is in every integer dtype, and no divisor that must be looked at.
    static bool is_small(PyObject* number) {
        int overflow = 1;
        long value = PyLong_CheckExact(number) ? PyLong_AsLongAndOverflow(number, &overflow) : 0;
        return !overflow && value > 0 && value < 128;
    }
};

PyObject* programs_look_at(PyObject* object, PyObject* position) {
    long bit = PyLong_AsLong(position);
    if (bit < 0 || bit >= 64) return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_ValueError, "there is no argument %ld", bit);
    ((GpuPrograms*)object)->looked_at |= 1ull << bit;
    Py_RETURN_NONE;
}

PyObject* programs_create(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject* make;
    Py_ssize_t kept;
    unsigned long long varying = 0;
    if (!PyArg_ParseTuple(arguments, "On|K:GpuPrograms", &make, &kept, &varying)) return nullptr;
    GpuPrograms* self = (GpuPrograms*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->make = Py_NewRef(make), self->programs = PyDict_New(), self->kept = kept, self->varying = varying;
    self->vectorcall = programs_call;
    return (PyObject*)self;
}

PyMethodDef programs_methods[] = {
    {"look_at", programs_look_at, METH_O, "look_at(position)\n\nFrom now on programs depend on the float at this position."},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef programs_members[] = {
    {"programs", T_OBJECT_EX, offsetof(GpuPrograms, programs), READONLY, "{what it depends on: program or None}"},
    vectorcall_member<GpuPrograms>,
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot programs_slots[] = {
    {Py_tp_doc, (void*)"GpuPrograms(make, kept, varying=0): the programs of one operator on GPUs; call it with the tuple of arguments.\n\n"
                       "make(args) writes one down, or answers None; after `kept` of them all are forgotten. `varying`: a bit for each position whose int "
                       "is a parameter of programs, as floats are."},
    {Py_tp_new, (void*)programs_create}, {Py_tp_dealloc, (void*)release<GpuPrograms, &GpuPrograms::make, &GpuPrograms::programs>},
    {Py_tp_call, (void*)PyVectorcall_Call},
    {Py_tp_methods, programs_methods}, {Py_tp_members, programs_members}, {0, nullptr},
};
PyType_Spec programs_spec = {"flambeau._C.GpuPrograms", sizeof(GpuPrograms), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, programs_slots};

PyType_Slot type_slots[] = {
    {Py_tp_doc, (void*)"GpuProgram(inputs, made, steps, outputs, several[, sources, fit, device]): see flambeau/inductor/gpu/written.py"},
    {Py_tp_new, (void*)create}, {Py_tp_dealloc, (void*)dealloc}, {Py_tp_call, (void*)PyVectorcall_Call}, {Py_tp_members, vectorcall_alone<GpuProgram>}, {0, nullptr},
};
PyType_Spec type_spec = {"flambeau._C.GpuProgram", sizeof(GpuProgram), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, type_slots};

}  // namespace

bool are_gpu_programs(PyObject* object) { return programs_type != nullptr && Py_IS_TYPE(object, programs_type); }

PyObject* run_on_gpu(PyObject* programs, PyObject* const* args, Py_ssize_t count) { return run_found((GpuPrograms*)programs, args, count); }

PyObject* quick_on_gpu(PyObject* programs, PyObject* const* args, Py_ssize_t count, bool below) {
    Plain plain;
    return plain.read(args, count, below, false) ? run_found((GpuPrograms*)programs, plain.all, count) : nullptr;
}

bool into_on_gpu(PyObject* programs, PyObject* const* args, Py_ssize_t count) {
    Plain plain;
    if (!plain.read(args, count, false, true) || refuses_writes(args[0])) return false;
    Operands operands;
    PyObject* program = find((GpuPrograms*)programs, plain.all, count, operands);
    bool done = false;
    if (program != nullptr && Py_IS_TYPE(program, program_type)) {
        const Program& found = *((GpuProgram*)program)->program;
        if (may_overwrite(found, plain.all, count, operands)) {
            PyObject* arrays[max_bases];
            Run run{found, plain.all, operands.addresses, arrays};
            operands.addresses[found.inputs] = operands.addresses[0];
            done = run.steps();
        }
    }
    Py_XDECREF(program);
    return done;
}

void add_gpu_program(PyObject* module) {
    program_type = add_type(module, type_spec);
    programs_type = add_type(module, programs_spec);
    add_gpu_arrays(module);
}
