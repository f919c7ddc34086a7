// The type MT19937, the engine of a CPU generator: it fills arrays with random numbers, as mt19937.h says.
#define FLAMBEAU_NATIVE_MODULE
#include "mt19937.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>

#include "dtypes.h"
#include "instruction_set.h"
#include "module.h"
#include "numpy_api.h"
#include "storage.h"
#include "variates.h"

namespace {

using namespace flambeau::mt;

#include "elements.h"

struct Loops {
    void (*twist)(uint32_t* word);
    void (*temper)(const uint32_t* word, uint32_t* out, int n);
    void (*units_f32)(const uint32_t* bits, float* out, int n);
    void (*units_f64)(const uint32_t* bits, double* out, int n);
    void (*normals_f32)(float* data, int64_t blocks, float mean, float deviation);
};

#define LOOPS "mt19937_loops.h"
#include "by_instruction_set.h"

constexpr int chunk = 1024;            // elements that are made at a time
constexpr int64_t quick_size = 10000;  // elements for which the interpreter's lock is kept

// ---------------------------------------------------------------------------------------------------- numbers in a row
void units(Engine& engine, float* out, int n) {
    uint32_t bits[chunk];
    engine.words(bits, n);
    loops.units_f32(bits, out, n);
}

void units(Engine& engine, double* out, int n) {
    uint32_t bits[2 * chunk];
    engine.words(bits, 2 * n);
    loops.units_f64(bits, out, n);
}

// out[i] = map(a number in [0, 1) of type Unit)
template <class Unit, class T, class Map>
void map_units(Engine& engine, T* out, int64_t n, Map map) {
    Unit unit[chunk];
    for (int64_t begin = 0; begin < n; begin += chunk) {
        int m = (int)std::min<int64_t>(chunk, n - begin);
        units(engine, unit, m);
        for (int i = 0; i < m; i++) out[begin + i] = map(unit[i]);
    }
}

// A computed number as an element of type T.
template <class T, class Value>
T stored(Value value) {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat>) return Element<T>::store((float)value);
    else if constexpr (std::is_same_v<T, bool>) return value != 0;
    else if constexpr (std::is_integral_v<T>) return (T)(int64_t)value;
    else return (T)value;
}

template <class T>
struct IsFloat : std::bool_constant<!std::is_integral_v<T>> {};

// Each fills n elements; `a` and `b` are the distribution's parameters.
template <class T>
void uniform(Engine& engine, T* out, int64_t n, double a, double b) {
    using Unit = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const Unit low = (Unit)a, span = (Unit)b - low;
    auto value = [](T x) { return Element<T>::load(x); };
    const T first = stored<T>(low);
    const auto last = value(stored<T>(b));
    if constexpr (std::is_same_v<T, Unit>) {
        if (a == 0 && b == 1) {
            for (int64_t begin = 0; begin < n; begin += chunk) units(engine, out + begin, (int)std::min<int64_t>(chunk, n - begin));
            return;
        }
    }
    map_units<Unit>(engine, out, n, [=](Unit u) {
        T made = stored<T>(std::fma(u, span, low));
        return value(made) == last ? first : made;  // what rounding brought up to the end begins anew
    });
}

template <class T>
void normal_each(Engine& engine, T* out, int64_t n, double a, double b) {
    for (int64_t i = 0; i < n; i++) out[i] = stored<T>(std::fma(engine.standard_normal(), b, a));
}

void normal_blocks(float* data, int64_t n, double a, double b) { loops.normals_f32(data, n / 16, (float)a, (float)b); }

void normal_blocks(double* data, int64_t n, double a, double b) {
    for (double* end = data + n / 16 * 16; data != end; data += 16)
        for (int i = 0; i < 8; i++) {
            double radius = std::sqrt(-2.0 * std::log(1.0 - data[i])), angle = 2.0 * M_PI * data[i + 8];
            data[i] = std::fma(radius * std::cos(angle), b, a);
            data[i + 8] = std::fma(radius * std::sin(angle), b, a);
        }
}

// Blocks of sixteen. Of a number of elements that is not a multiple, the last sixteen are drawn once more, after words for all of
// them (narrow types: for the whole blocks) were used up.
template <class T>
void normal(Engine& engine, T* out, int64_t n, double a, double b) {
    if (n < 16) return normal_each(engine, out, n, a, b);
    using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
    Real data[chunk];
    const int64_t drawn = sizeof(T) < 4 ? n / 16 * 16 : n;
    for (int64_t begin = 0; begin < drawn; begin += chunk) {
        int m = (int)std::min<int64_t>(chunk, drawn - begin);
        units(engine, data, m);
        normal_blocks(data, m, a, b);
        for (int i = 0; i < m / 16 * 16; i++) out[begin + i] = stored<T>(data[i]);
    }
    if (n % 16 == 0) return;
    units(engine, data, 16);
    normal_blocks(data, 16, a, b);
    for (int i = 0; i < 16; i++) out[n - 16 + i] = stored<T>(data[i]);
}

template <class T>
void bernoulli(Engine& engine, T* out, int64_t n, double p, double) {
    map_units<double>(engine, out, n, [=](double u) { return stored<T>(int(u < p)); });
}
template <class T>
void exponential(Engine& engine, T* out, int64_t n, double rate, double) {
    map_units<double>(engine, out, n, [=](double u) { return stored<T>(-1.0 / rate * std::log1p(-u)); });
}
template <class T>
void geometric(Engine& engine, T* out, int64_t n, double p, double) {
    const double failure = std::log1p(-p);
    map_units<double>(engine, out, n, [=](double u) { return stored<T>(std::ceil(std::log(u) / failure)); });
}
template <class T>
void cauchy(Engine& engine, T* out, int64_t n, double median, double sigma) {
    map_units<double>(engine, out, n, [=](double u) { return stored<T>(std::fma(sigma, std::tan(M_PI * (u - 0.5)), median)); });
}
template <class T>
void log_normal(Engine& engine, T* out, int64_t n, double mean, double deviation) {
    for (int64_t i = 0; i < n; i++) out[i] = stored<T>(std::exp(std::fma(engine.standard_normal(), deviation, mean)));
}

// low + an integer below `range` (0: any), of 32 random bits or of 64.
template <class T>
void integers(Engine& engine, T* out, int64_t n, uint64_t low, uint64_t range, bool is_short) {
    uint32_t bits[2 * chunk];
    const uint64_t reciprocal = is_short ? ~uint64_t(0) / range + 1 : 0;  // Lemire, Kaser and Kurz, "Faster remainder by direct computation", 2019
    for (int64_t begin = 0; begin < n; begin += chunk) {
        int m = (int)std::min<int64_t>(chunk, n - begin);
        engine.words(bits, is_short ? m : 2 * m);
        for (int i = 0; i < m; i++) {
            uint64_t rest;
            if (is_short) {
                rest = uint64_t((unsigned __int128)(reciprocal * bits[i]) * range >> 64);
            } else {
                rest = uint64_t(bits[2 * i]) << 32 | bits[2 * i + 1];
                if (range) rest %= range;
            }
            int64_t value = int64_t(low + rest);
            out[begin + i] = stored<T>(value);
        }
    }
}

// ------------------------------------------------------------------------------------------------------ a table by dtype
using Fill = void (*)(Engine& engine, void* out, int64_t n, double a, double b);
template <class T>
using FillOf = void (*)(Engine& engine, T* out, int64_t n, double a, double b);

template <class T, FillOf<T> fill>
void untyped(Engine& engine, void* out, int64_t n, double a, double b) {
    fill(engine, (T*)out, n, a, b);
}

struct Row {
    const char* name;
    Fill by_kind[kind_count];  // null: the dtype is not one of the distribution's
};
#define FLOATS(f) untyped<Half, f<Half>>, untyped<BFloat, f<BFloat>>, untyped<float, f<float>>, untyped<double, f<double>>
#define NUMBERS(f) untyped<bool, f<bool>>, untyped<uint8_t, f<uint8_t>>, untyped<int8_t, f<int8_t>>, untyped<int16_t, f<int16_t>>, \
                   untyped<int32_t, f<int32_t>>, untyped<int64_t, f<int64_t>>, FLOATS(f)
#define FLOATS_ALONE(f) nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, FLOATS(f)
const Row rows[] = {
    {"uniform", {FLOATS_ALONE(uniform)}},         {"normal", {FLOATS_ALONE(normal)}},   {"normal_each", {FLOATS_ALONE(normal_each)}},
    {"exponential", {FLOATS_ALONE(exponential)}}, {"cauchy", {FLOATS_ALONE(cauchy)}},   {"log_normal", {FLOATS_ALONE(log_normal)}},
    {"bernoulli", {NUMBERS(bernoulli)}},          {"geometric", {NUMBERS(geometric)}},
};

template <class T>
void integers_untyped(Engine& engine, void* out, int64_t n, uint64_t low, uint64_t range, bool is_short) {
    integers(engine, (T*)out, n, low, range, is_short);
}
void (*const integers_by_kind[kind_count])(Engine&, void*, int64_t, uint64_t, uint64_t, bool) = {
    integers_untyped<bool>, integers_untyped<uint8_t>, integers_untyped<int8_t>, integers_untyped<int16_t>, integers_untyped<int32_t>,
    integers_untyped<int64_t>, integers_untyped<Half>, integers_untyped<BFloat>, integers_untyped<float>, integers_untyped<double>};

// --------------------------------------------------------------------------------------------------- the Python surface
struct Object {
    PyObject_HEAD;
    Engine engine;
};

Engine& engine_of(PyObject* self) { return ((Object*)self)->engine; }

// Runs `work` with the engine locked, and without the interpreter's lock where there is much to do.
template <class Work>
void locked(Engine& engine, int64_t n, Work work) {
    if (n < quick_size && engine.mutex.try_lock()) {
        work();
        engine.mutex.unlock();
        return;
    }
    Py_BEGIN_ALLOW_THREADS;
    engine.mutex.lock();
    work();
    engine.mutex.unlock();
    Py_END_ALLOW_THREADS;
}

bool is_plain(PyObject* array, bool written = true) {
    if (PyArray_Check(array) && (written ? PyArray_ISCARRAY((PyArrayObject*)array) : PyArray_ISCARRAY_RO((PyArrayObject*)array))) return true;
    PyErr_Format(PyExc_TypeError, "MT19937: expected a C-contiguous, writable NumPy array, got %R", (PyObject*)Py_TYPE(array));
    return false;
}

PyObject* wrong_dtype(const char* name, PyArrayObject* out) {
    return PyErr_Format(PyExc_TypeError, "MT19937: no draw '%s' of dtype %S", name, (PyObject*)PyArray_DESCR(out));
}

PyObject* fill(PyObject* self, PyObject* arguments) {
    const char* name;
    PyObject* array;
    double a = 0, b = 1;
    if (!PyArg_ParseTuple(arguments, "sO|dd:fill", &name, &array, &a, &b) || !is_plain(array)) return nullptr;
    PyArrayObject* out = (PyArrayObject*)array;
    Kind kind = kind_of(out);
    for (const Row& row : rows)
        if (std::strcmp(row.name, name) == 0) {
            Fill fill = kind == Kind::other ? nullptr : row.by_kind[(int)kind];
            if (fill == nullptr) return wrong_dtype(name, out);
            Engine& engine = engine_of(self);
            void* data = PyArray_DATA(out);
            int64_t n = PyArray_SIZE(out);
            locked(engine, n, [&] { fill(engine, data, n, a, b); });
            return Py_NewRef(array);
        }
    return PyErr_Format(PyExc_ValueError, "MT19937: no draw '%s'", name);
}

PyObject* integers(PyObject* self, PyObject* arguments) {
    PyObject *array, *low, *range;
    int is_short;
    if (!PyArg_ParseTuple(arguments, "OOOp:integers", &array, &low, &range, &is_short) || !is_plain(array)) return nullptr;
    uint64_t first = PyLong_AsUnsignedLongLongMask(low), count = PyLong_AsUnsignedLongLongMask(range);
    if (PyErr_Occurred()) return nullptr;
    if (is_short && (count == 0 || count >> 32)) return PyErr_Format(PyExc_ValueError, "MT19937: 32 bits do not fill the range %R", range);
    PyArrayObject* out = (PyArrayObject*)array;
    Kind kind = kind_of(out);
    if (kind == Kind::other) return wrong_dtype("integers", out);
    Engine& engine = engine_of(self);
    void* data = PyArray_DATA(out);
    int64_t n = PyArray_SIZE(out);
    locked(engine, n, [&] { integers_by_kind[(int)kind](engine, data, n, first, count, is_short != 0); });
    return Py_NewRef(array);
}

// Fisher and Yates' shuffle from the front (Durstenfeld, "Algorithm 235: Random permutation", 1964).
PyObject* permutation(PyObject* self, PyObject* array) {
    if (!is_plain(array)) return nullptr;
    if (kind_of((PyArrayObject*)array) != Kind::i64) return wrong_dtype("permutation", (PyArrayObject*)array);
    int64_t *out = (int64_t*)PyArray_DATA((PyArrayObject*)array), n = PyArray_SIZE((PyArrayObject*)array);
    Engine& engine = engine_of(self);
    const bool is_short = n < int64_t(std::numeric_limits<uint32_t>::max() / 20);
    locked(engine, n, [&] {
        for (int64_t i = 0; i < n; i++) out[i] = i;
        uint32_t bits[chunk];
        for (int64_t begin = 0; begin < n - 1; begin += chunk) {
            int m = (int)std::min<int64_t>(chunk, n - 1 - begin);
            if (is_short) engine.words(bits, m);
            for (int i = 0; i < m; i++) {
                int64_t at = begin + i;
                std::swap(out[at], out[at + (is_short ? int64_t(bits[i] % uint32_t(n - at)) : int64_t(engine.bits64() % uint64_t(n - at)))]);
            }
        }
    });
    return Py_NewRef(array);
}

// Draws with a parameter for each element: arrays of float32 or float64, all of one dtype and size.
enum class Variate { bernoulli, gamma, poisson, binomial };

template <class T>
void variates(Engine& engine, Variate which, const T* p, const T* q, T* out, int64_t n) {
    switch (which) {
        case Variate::bernoulli: {
            T unit[chunk];
            for (int64_t begin = 0; begin < n; begin += chunk) {
                int m = (int)std::min<int64_t>(chunk, n - begin);
                units(engine, unit, m);
                for (int i = 0; i < m; i++) out[begin + i] = unit[i] < p[begin + i];
            }
            return;
        }
        case Variate::gamma:
            for (int64_t i = 0; i < n; i++) out[i] = std::max(std::numeric_limits<T>::min(), (T)gamma<T>(engine, p[i]));
            return;
        case Variate::poisson:
            for (int64_t i = 0; i < n; i++) out[i] = (T)poisson(engine, p[i]);
            return;
        case Variate::binomial:
            for (int64_t i = 0; i < n; i++) out[i] = binomial<T>(engine, p[i], q[i]);
            return;
    }
}

PyObject* variate(PyObject* self, PyObject* arguments) {
    const char* name;
    PyObject *out, *p, *q = nullptr;
    if (!PyArg_ParseTuple(arguments, "sOO|O:variate", &name, &out, &p, &q) || !is_plain(out) || !is_plain(p, false) ||
        (q && !is_plain(q, false)))
        return nullptr;
    static const char* const names[] = {"bernoulli", "gamma", "poisson", "binomial"};
    int which = 0;
    while (which < 4 && std::strcmp(names[which], name) != 0) which++;
    if (which == 4 || (which == 3) != (q != nullptr)) return PyErr_Format(PyExc_ValueError, "MT19937: no variate '%s' of these", name);
    PyArrayObject* made = (PyArrayObject*)out;
    Kind kind = kind_of(made);
    int64_t n = PyArray_SIZE(made);
    for (PyObject* given : {p, q ? q : p})
        if (kind_of((PyArrayObject*)given) != kind || PyArray_SIZE((PyArrayObject*)given) != n)
            return PyErr_Format(PyExc_TypeError, "MT19937: the parameters of '%s' must be as the result", name);
    if (kind != Kind::f32 && kind != Kind::f64) return wrong_dtype(name, made);
    Engine& engine = engine_of(self);
    void *to = PyArray_DATA(made), *first = PyArray_DATA((PyArrayObject*)p), *second = PyArray_DATA((PyArrayObject*)(q ? q : p));
    locked(engine, n, [&] {
        if (kind == Kind::f32) variates(engine, (Variate)which, (float*)first, (float*)second, (float*)to, n);
        else variates(engine, (Variate)which, (double*)first, (double*)second, (double*)to, n);
    });
    return Py_NewRef(out);
}

PyObject* bits64(PyObject* self, PyObject*) {
    Engine& engine = engine_of(self);
    uint64_t out = 0;
    locked(engine, 1, [&] { out = engine.bits64(); });
    return PyLong_FromUnsignedLongLong(out);
}

PyObject* seed(PyObject* self, PyObject* value) {
    uint64_t number = PyLong_AsUnsignedLongLongMask(value);
    if (number == (uint64_t)-1 && PyErr_Occurred()) return nullptr;
    Engine& engine = engine_of(self);
    locked(engine, 1, [&] { engine.seed(number); });
    Py_RETURN_NONE;
}

PyObject* initial_seed(PyObject* self, PyObject*) { return PyLong_FromUnsignedLongLong(engine_of(self).initial); }

// A state as torch.get_rng_state() lays it out.
struct State {
    uint64_t seed;
    int32_t left, seeded;
    uint64_t next, word[period];
    double unused_x, normal, unused_rho;
    int32_t has_normal, unused;
    float normal_f32;
    bool has_normal_f32;
};
static_assert(sizeof(State) == 5056);

PyObject* get_state(PyObject* self, PyObject*) {
    npy_intp size = sizeof(State);
    PyObject* out = PyArray_ZEROS(1, &size, NPY_UBYTE, 0);
    if (out == nullptr) return nullptr;
    State& state = *(State*)PyArray_DATA((PyArrayObject*)out);
    Engine& engine = engine_of(self);
    locked(engine, 1, [&] {
        state.seed = engine.initial;
        state.left = engine.left;
        state.seeded = 1;
        state.next = (uint64_t)engine.next;
        std::copy(engine.word, engine.word + period, state.word);
        state.has_normal = engine.has_normal;
        state.normal = engine.has_normal ? engine.normal : 0;
        state.has_normal_f32 = engine.has_normal_f32;
        state.normal_f32 = engine.normal_f32;
    });
    return out;
}

PyObject* set_state(PyObject* self, PyObject* array) {
    if (!is_plain(array, false)) return nullptr;
    if (PyArray_NBYTES((PyArrayObject*)array) != sizeof(State))
        return PyErr_Format(PyExc_RuntimeError, "Expected a CPUGeneratorImplState of size %zu but found the input RNG state size to be %zd",
                            sizeof(State), (Py_ssize_t)PyArray_NBYTES((PyArrayObject*)array));
    State state;
    std::memcpy((void*)&state, PyArray_DATA((PyArrayObject*)array), sizeof(State));
    if (state.left < 1 || state.left > period || state.next > (uint64_t)period || !state.seeded ||
        (state.left > 1 && state.left + state.next != period + 1)) {
        PyErr_SetString(PyExc_RuntimeError, "Invalid mt19937 state");
        return nullptr;
    }
    Engine& engine = engine_of(self);
    locked(engine, 1, [&] {
        engine.initial = state.seed;
        engine.left = state.left;
        engine.next = (int)state.next;
        for (int i = 0; i < period; i++) engine.word[i] = (uint32_t)state.word[i];
        engine.has_normal = state.has_normal != 0;
        engine.normal = state.normal;
        engine.has_normal_f32 = state.has_normal_f32;
        engine.normal_f32 = state.normal_f32;
    });
    Py_RETURN_NONE;
}

PyObject* make(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* self = type->tp_alloc(type, 0);
    if (self != nullptr) (new (&engine_of(self)) Engine)->seed(67280421310721);
    return self;
}

void dealloc(PyObject* self) {
    engine_of(self).~Engine();
    free_object(self);
}

PyMethodDef methods[] = {
    {"seed", seed, METH_O, "seed(number)\n\nStart the stream of a seed from its beginning."},
    {"initial_seed", initial_seed, METH_NOARGS, "initial_seed() -> the seed of the stream"},
    {"bits64", bits64, METH_NOARGS, "bits64() -> 64 random bits"},
    {"fill", fill, METH_VARARGS, "fill(name, out, a=0, b=1) -> out\n\nNumbers of a distribution of two parameters or fewer."},
    {"integers", integers, METH_VARARGS, "integers(out, low, range, short) -> out\n\nIntegers from low on, `range` of them (0: 2**64), of 32 random bits each or of 64."},
    {"permutation", permutation, METH_O, "permutation(out) -> out\n\nThe integers from 0 on in random order."},
    {"variate", variate, METH_VARARGS, "variate(name, out, p[, q]) -> out\n\nNumbers with parameters of their own for each element."},
    {"get_state", get_state, METH_NOARGS, "get_state() -> 5056 bytes"},
    {"set_state", set_state, METH_O, "set_state(bytes)"},
    {nullptr},
};
PyType_Slot slots[] = {{Py_tp_new, (void*)make}, {Py_tp_dealloc, (void*)dealloc}, {Py_tp_methods, methods},
                       {Py_tp_doc, (void*)"A Mersenne Twister (MT19937): the engine of a CPU generator."}, {}};
PyType_Spec spec = {"flambeau._C.MT19937", sizeof(Object), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

void flambeau::mt::Engine::words(uint32_t* out, int64_t n) {
    while (n > 0) {
        if (left == 1) {
            loops.twist(word);
            left = period + 1;
            next = 0;
        }
        int count = (int)std::min<int64_t>(n, left - 1);
        loops.temper(word + next, out, count);
        left -= count;
        next += count;
        out += count;
        n -= count;
    }
}

void add_mt19937(PyObject* module) { add_type(module, spec); }
