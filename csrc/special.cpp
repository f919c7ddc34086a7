// Special functions over contiguous float32 and float64 arrays: what NumPy lacks. Computed in double precision, rounded once.
#include <cmath>
#include <limits>

#include "module.h"
#include "numpy_api.h"

namespace {

constexpr double PI = 3.14159265358979323846;
constexpr double INF = std::numeric_limits<double>::infinity();
constexpr double NOT_A_NUMBER = std::numeric_limits<double>::quiet_NaN();

double expit(double x) {
    if (x >= 0) return 1 / (1 + std::exp(-x));
    double e = std::exp(x);
    return e / (1 + e);
}

// Recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.18); reflection for negative arguments.
double digamma(double x) {
    if (x == 0) return std::copysign(INF, -x);
    if (x < 0) {
        double whole = std::round(x);  // the nearest: what is just below 0 keeps its digits
        if (x == whole) return NOT_A_NUMBER;
        return digamma(1 - x) - PI / std::tan(PI * (x - whole));
    }
    double shift = 0;
    while (x < 10) {
        shift -= 1 / x;
        x += 1;
    }
    double y = 1 / (x * x);
    double series = y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y * (1.0 / 132 - y * (691.0 / 32760 - y / 12))))));
    return shift + std::log(x) - 0.5 / x - series;
}

// The root of erf(x) = y by Newton's method, from Winitzki's approximation; near 1 through erfc, which keeps the digits.
double erfinv(double y) {
    if (!(y >= -1 && y <= 1)) return NOT_A_NUMBER;
    if (y == 1 || y == -1) return y * INF;
    double sign = y < 0 ? -1 : 1, a = std::fabs(y);
    double tail = std::log1p(-a * a), c = 2 / (PI * 0.147) + tail / 2;
    double x = std::sqrt(std::sqrt(c * c - tail / 0.147) - c);
    for (int k = 0; k < 3; k++) {
        double error = a > 0.5 ? (1 - a) - std::erfc(x) : std::erf(x) - a;
        x -= error / (2 / std::sqrt(PI) * std::exp(-x * x));
    }
    return sign * x;
}

double lgamma_of(double x) {
    int sign;
    return lgamma_r(x, &sign);
}

double erf_of(double x) { return std::erf(x); }
double erfc_of(double x) { return std::erfc(x); }

using Function = double (*)(double);

template <typename T>
void apply(Function f, const T* in, T* out, npy_intp n) {
    for (npy_intp i = 0; i < n; i++) out[i] = T(f(double(in[i])));
}

template <Function F>
PyObject* over_array(PyObject*, PyObject* argument) {
    int kind = PyArray_Check(argument) ? PyArray_TYPE((PyArrayObject*)argument) : NPY_DOUBLE;
    if (kind != NPY_FLOAT) kind = NPY_DOUBLE;
    PyObject* in = PyArray_FROM_OTF(argument, kind, NPY_ARRAY_CARRAY_RO);
    if (in == nullptr) return nullptr;
    PyArrayObject* source = (PyArrayObject*)in;
    PyObject* out = PyArray_SimpleNew(PyArray_NDIM(source), PyArray_DIMS(source), kind);
    if (out != nullptr) {
        npy_intp n = PyArray_SIZE(source);
        void* target = PyArray_DATA((PyArrayObject*)out);
        Py_BEGIN_ALLOW_THREADS
        if (kind == NPY_FLOAT) apply(F, (const float*)PyArray_DATA(source), (float*)target, n);
        else apply(F, (const double*)PyArray_DATA(source), (double*)target, n);
        Py_END_ALLOW_THREADS
    }
    Py_DECREF(in);
    return out;
}

PyMethodDef methods[] = {
    {"special_erf", over_array<erf_of>, METH_O, "special_erf(array) -> array\n\nThe error function."},
    {"special_erfc", over_array<erfc_of>, METH_O, "special_erfc(array) -> array\n\n1 - erf(x), without cancellation."},
    {"special_erfinv", over_array<erfinv>, METH_O, "special_erfinv(array) -> array\n\nThe inverse of erf."},
    {"special_lgamma", over_array<lgamma_of>, METH_O, "special_lgamma(array) -> array\n\nlog |gamma(x)|."},
    {"special_digamma", over_array<digamma>, METH_O, "special_digamma(array) -> array\n\nThe derivative of lgamma."},
    {"special_expit", over_array<expit>, METH_O, "special_expit(array) -> array\n\n1 / (1 + exp(-x))."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_special(PyObject* module) { PyModule_AddFunctions(module, methods); }
