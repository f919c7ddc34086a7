// Random variates of distributions with parameters of their own for each element. The formulas are published; in which precision
// a step is taken is what PyTorch is observed to do, for T the type of the parameters.
#pragma once
#include <cmath>
#include <cstdint>

#include "mt19937.h"

namespace flambeau::mt {

// Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26, 2000.
template <class T>
double gamma(Engine& engine, T shape) {
    double scale = 1;
    if (shape < T(1)) {
        if (shape == T(0)) return 0;
        scale = std::pow(1 - engine.unit(), T(1) / shape);
        shape += T(1);
    }
    const double d = shape - T(1.0f / 3.0f), c = 1 / std::sqrt(9 * d);
    for (;;) {
        double x, y;
        do {
            x = engine.standard_normal();
            y = 1 + c * x;
        } while (y <= 0);
        double v = y * y * y, u = 1 - engine.unit(), square = x * x;
        if (u < 1 - double(0.0331f) * square * square) return scale * d * v;
        if (std::log(u) < 0.5 * square + d * (1 - v + std::log(v))) return scale * d * v;
    }
}

// Products of uniform numbers for small rates; else PTRS of Hoermann, "The transformed rejection method for generating Poisson random
// variables", Insurance: Mathematics and Economics 12, 1993.
inline int64_t poisson(Engine& engine, double rate) {
    if (!(rate > 0)) return 0;
    if (rate < 10) {
        const double end = std::exp(-rate);
        double product = 1;
        for (int64_t count = 0;; count++) {
            product *= engine.unit();
            if (!(product > end)) return count;
        }
    }
    const double root = std::sqrt(rate), log_rate = std::log(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
    const double inverse = 1.1239 + 1.1328 / (b - 3.4), enough = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
        double u = engine.unit() - 0.5, v = engine.unit(), rest = 0.5 - std::fabs(u);
        int64_t k = (int64_t)std::floor((2 * a / rest + b) * u + rate + 0.43);
        if (rest >= 0.07 && v <= enough) return k;
        if (k < 0 || (rest < 0.013 && v > rest)) continue;
        if (std::log(v) + std::log(inverse) - std::log(a / (rest * rest) + b) <= -rate + k * log_rate - std::lgamma(double(k + 1)))
            return k;
    }
}

// log k! less Stirling's formula, all but its correction.
inline double stirling_tail(double k) {
    static const double known[] = {0.08106146679532726, 0.04134069595540929, 0.02767792568499834,  0.02079067210376509, 0.01664469118982119,
                                   0.01387612882307075, 0.01189670994589177, 0.01041126526197209, 0.009255462182712733, 0.008330563433362871};
    if (k <= 9) return known[int(k)];
    double square = (k + 1) * (k + 1);
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
}

// BTRS of Hoermann, "The generation of binomial random variates", Journal of Statistical Computation and Simulation 46, 1993.
template <class T>
T binomial_by_rejection(Engine& engine, T count, T p) {
    const T root = std::sqrt(count * p * (1 - p)), b = 1.15 + 2.53 * root, a = -0.0873 + 0.0248 * b + 0.01 * p, center = count * p + 0.5;
    const T enough = 0.92 - 4.2 / b, odds = p / (1 - p), alpha = (2.83 + 5.1 / b) * root, mode = std::floor((count + 1) * p);
    for (;;) {
        T u = engine.unit() - 0.5, v = engine.unit(), rest = 0.5 - std::fabs(u), k = std::floor((2 * a / rest + b) * u + center);
        if (k < 0 || k > count) continue;
        if (rest >= 0.07 && v <= enough) return k;
        v = std::log(v * alpha / (a / (rest * rest) + b));
        T bound = (mode + 0.5) * std::log((mode + 1) / (odds * (count - mode + 1))) +
                  (count + 1) * std::log((count - mode + 1) / (count - k + 1)) +
                  (k + 0.5) * std::log(odds * (count - k + 1) / (k + 1)) + stirling_tail(mode) + stirling_tail(count - mode) -
                  stirling_tail(k) - stirling_tail(count - k);
        if (v <= bound) return k;
    }
}

// How many geometric numbers fit into `count`.
template <class T>
T binomial_by_waiting(Engine& engine, T count, T p) {
    T sum = 0, hits = 0;
    for (;;) {
        sum += std::ceil(T(std::log(T(engine.unit())) / std::log1p(-p)));
        if (sum > count) return hits;
        hits += 1;
    }
}

template <class T>
T binomial(Engine& engine, T count, T p) {
    if (count <= 0 || p <= 0) return 0;
    if (p >= 1) return count;
    auto draw = [&](T q) { return count * q >= 10 ? binomial_by_rejection<T>(engine, count, q) : binomial_by_waiting<T>(engine, count, q); };
    return p <= T(0.5) ? draw(p) : count - draw(1 - p);
}

}  // namespace flambeau::mt
