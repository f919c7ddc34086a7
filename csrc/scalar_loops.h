// One pass over strided rows for each scalar operation of flambeau/ops/scalar.py that small tensors are computed with.
// Included inside a namespace for each instruction set, after scalar_ops.h: see scalar_ops.cpp.

// The loop is written out for the strides that occur nearly always, so that the compiler vectorises it.
template <class In, class Out, class F>
inline void unary(char* out, ptrdiff_t so, const char* a, ptrdiff_t sa, ptrdiff_t n, F f) {
    if (so == sizeof(Out) && sa == sizeof(In)) {
#pragma GCC ivdep
        for (ptrdiff_t i = 0; i < n; i++) ((Out*)out)[i] = f(((const In*)a)[i]);
    } else {
        for (ptrdiff_t i = 0; i < n; i++) *(Out*)(out + i * so) = f(*(const In*)(a + i * sa));
    }
}

template <class In, class Out, class F>
inline void binary(char* out, ptrdiff_t so, const char* a, ptrdiff_t sa, const char* b, ptrdiff_t sb, ptrdiff_t n, F f) {
    constexpr ptrdiff_t one = sizeof(In);
    if (so != sizeof(Out) || (sa != one && sa != 0) || (sb != one && sb != 0)) {
        for (ptrdiff_t i = 0; i < n; i++) *(Out*)(out + i * so) = f(*(const In*)(a + i * sa), *(const In*)(b + i * sb));
    } else if (sa == one && sb == one) {
#pragma GCC ivdep
        for (ptrdiff_t i = 0; i < n; i++) ((Out*)out)[i] = f(((const In*)a)[i], ((const In*)b)[i]);
    } else if (sa == one) {
        In y = *(const In*)b;
#pragma GCC ivdep
        for (ptrdiff_t i = 0; i < n; i++) ((Out*)out)[i] = f(((const In*)a)[i], y);
    } else if (sb == one) {
        In x = *(const In*)a;
#pragma GCC ivdep
        for (ptrdiff_t i = 0; i < n; i++) ((Out*)out)[i] = f(x, ((const In*)b)[i]);
    } else {
        Out z = f(*(const In*)a, *(const In*)b);
        for (ptrdiff_t i = 0; i < n; i++) ((Out*)out)[i] = z;
    }
}

template <class T>
void where_loop(char* out, ptrdiff_t so, const char* const* in, const ptrdiff_t* s, ptrdiff_t n) {
    const char *c = in[0], *a = in[1], *b = in[2];
    if (so == sizeof(T) && s[0] == 1 && s[1] == sizeof(T) && s[2] == sizeof(T)) {
#pragma GCC ivdep
        for (ptrdiff_t i = 0; i < n; i++) ((T*)out)[i] = c[i] ? ((const T*)a)[i] : ((const T*)b)[i];
    } else if (so == sizeof(T) && s[0] == 1 && s[1] == sizeof(T) && s[2] == 0) {
        T y = *(const T*)b;
#pragma GCC ivdep
        for (ptrdiff_t i = 0; i < n; i++) ((T*)out)[i] = c[i] ? ((const T*)a)[i] : y;
    } else {
        for (ptrdiff_t i = 0; i < n; i++)
            *(T*)(out + i * so) = c[i * s[0]] ? *(const T*)(a + i * s[1]) : *(const T*)(b + i * s[2]);
    }
}

// Unlike fl::exp, which generated kernels use, with subnormal results.
inline float exp_of(float x) {
    float c = x > 88.7228f ? 88.7228f : x;
    c = c < -104.f ? -104.f : c;
    fl::Reduced a = fl::reduce_exp(c);
    int32_t half = a.n >> 1;
    float y = (fl::exp_minus_1(a.r) + 1.f) * fl::power_of_2(half) * fl::power_of_2(a.n - half);
    y = x <= 88.72283f ? y : x + FL_INF;
    return x < -104.f ? 0.f : y;
}
inline double exp_of(double x) { return fl::exp(x); }

// ---- reductions ----

// total[i] = total[i] op x[i], or with one total for all *total = *total op x[0] op x[1] ...
template <class T, class Total, class F>
inline void fold(char* total, ptrdiff_t total_step, const char* x, ptrdiff_t step, ptrdiff_t n, F f) {
    if (total_step != 0) {
        if (total_step == sizeof(Total) && step == sizeof(T)) {
            Total* __restrict to = (Total*)total;
            const T* __restrict from = (const T*)x;
            for (ptrdiff_t i = 0; i < n; i++) to[i] = f(to[i], Total(from[i]));
        } else {
            for (ptrdiff_t i = 0; i < n; i++, total += total_step, x += step) *(Total*)total = f(*(Total*)total, Total(*(const T*)x));
        }
        return;
    }
    constexpr int lanes = 16;
    Total all = *(Total*)total;
    if (step == sizeof(T)) {
        for (constexpr ptrdiff_t block = 512; n >= lanes; x += block * step, n -= block) {  // in T as long as a row is short
            T part[lanes];
            ptrdiff_t i = lanes, end = n < block ? n : block;
            for (int l = 0; l < lanes; l++) part[l] = ((const T*)x)[l];
            for (; i + lanes <= end; i += lanes)
                for (int l = 0; l < lanes; l++) part[l] = f(part[l], ((const T*)x)[i + l]);
            for (int l = 0; i < end; i++, l++) part[l] = f(part[l], ((const T*)x)[i]);
            for (int width = lanes / 2; width > 0; width /= 2)
                for (int l = 0; l < width; l++) part[l] = f(part[l], part[l + width]);
            all = f(all, Total(part[0]));
        }
    }
    for (ptrdiff_t i = 0; i < n; i++) all = f(all, Total(*(const T*)(x + i * step)));
    *(Total*)total = all;
}

#define FL_UNARY(name, In, Out, expression)                                                                       \
    {#name, kind_as<In>, [](char* out, ptrdiff_t so, const char* const* in, const ptrdiff_t* s, ptrdiff_t n) {     \
         unary<In, Out>(out, so, in[0], s[0], n, [](In x) -> Out { return expression; });                         \
     }, kind_as<Out>, 1},
#define FL_BINARY(name, In, Out, expression)                                                                      \
    {#name, kind_as<In>, [](char* out, ptrdiff_t so, const char* const* in, const ptrdiff_t* s, ptrdiff_t n) {     \
         binary<In, Out>(out, so, in[0], s[0], in[1], s[1], n, [](In x, In y) -> Out { return expression; });     \
     }, kind_as<Out>, 2},
#define FL_FOLD(name, T, Total, expression)                                                                       \
    {#name, kind_as<T>, kind_as<Total>, [](char* total, ptrdiff_t total_step, const char* x, ptrdiff_t step, ptrdiff_t n) { \
         fold<T, Total>(total, total_step, x, step, n, [](auto x, auto y) { return decltype(x)(expression); });   \
     }},

#define FL_COMPARISONS(T)                                                                                         \
    FL_BINARY(eq, T, bool, x == y) FL_BINARY(ne, T, bool, x != y) FL_BINARY(lt, T, bool, x < y)                   \
    FL_BINARY(le, T, bool, x <= y) FL_BINARY(gt, T, bool, x > y) FL_BINARY(ge, T, bool, x >= y)
#define FL_NUMBERS(T)                                                                                             \
    FL_BINARY(add, T, T, x + y) FL_BINARY(sub, T, T, x - y) FL_BINARY(mul, T, T, x * y)                           \
    FL_BINARY(minimum, T, T, fl::minimum(x, y)) FL_BINARY(maximum, T, T, fl::maximum(x, y))                       \
    FL_UNARY(neg, T, T, -x) FL_UNARY(abs, T, T, fl::abs(x)) FL_UNARY(relu, T, T, fl::relu(x))                     \
    FL_UNARY(sign, T, T, fl::sign(x)) FL_COMPARISONS(T)
#define FL_FLOATS(T)                                                                                              \
    FL_NUMBERS(T)                                                                                                 \
    FL_BINARY(truediv, T, T, x / y)                                                                               \
    FL_UNARY(reciprocal, T, T, 1 / x) FL_UNARY(sqrt, T, T, fl::sqrt(x)) FL_UNARY(rsqrt, T, T, fl::rsqrt(x))       \
    FL_UNARY(floor, T, T, fl::floor(x)) FL_UNARY(ceil, T, T, fl::ceil(x)) FL_UNARY(trunc, T, T, fl::trunc(x))     \
    FL_UNARY(round, T, T, fl::round(x))                                                                           \
    FL_UNARY(isnan, T, bool, x != x) FL_UNARY(isinf, T, bool, fl::isinf(x))                                       \
    FL_UNARY(exp, T, T, exp_of(x)) FL_UNARY(expm1, T, T, fl::expm1(x)) FL_UNARY(log, T, T, fl::log(x))            \
    FL_UNARY(log1p, T, T, fl::log1p(x)) FL_UNARY(tanh, T, T, fl::tanh(x)) FL_UNARY(sigmoid, T, T, fl::sigmoid(x)) \
    FL_UNARY(erf, T, T, fl::erf(x))
#define FL_INTEGERS(T)                                                                                            \
    FL_NUMBERS(T)                                                                                                 \
    FL_BINARY(bitwise_and, T, T, x & y) FL_BINARY(bitwise_or, T, T, x | y) FL_BINARY(bitwise_xor, T, T, x ^ y)    \
    FL_UNARY(bitwise_not, T, T, ~x)

const ScalarLoop elementwise[] = {
    FL_FLOATS(float) FL_FLOATS(double) FL_INTEGERS(int32_t) FL_INTEGERS(int64_t) FL_COMPARISONS(bool)
    FL_BINARY(logical_and, bool, bool, x & y) FL_BINARY(logical_or, bool, bool, x | y)
    FL_BINARY(logical_xor, bool, bool, x != y) FL_UNARY(logical_not, bool, bool, !x)
    {"where", Kind::boolean, where_loop<uint8_t>, Kind::boolean, 3},
    {"where", Kind::i32, where_loop<uint32_t>, Kind::i32, 3},
    {"where", Kind::i64, where_loop<uint64_t>, Kind::i64, 3},
    {"where", Kind::f32, where_loop<uint32_t>, Kind::f32, 3},
    {"where", Kind::f64, where_loop<uint64_t>, Kind::f64, 3},
};
#define FL_FOLDS(T)                                                                                               \
    FL_FOLD(prod, T, T, x * y) FL_FOLD(max, T, T, fl::maximum(x, y)) FL_FOLD(min, T, T, fl::minimum(x, y))
const FoldLoop folds[] = {
    FL_FOLD(sum, float, double, x + y) FL_FOLD(sum, double, double, x + y) FL_FOLD(sum, int32_t, int32_t, x + y)
    FL_FOLD(sum, int64_t, int64_t, x + y) FL_FOLDS(float) FL_FOLDS(double) FL_FOLDS(int32_t) FL_FOLDS(int64_t)
    FL_FOLD(any, bool, bool, x | y) FL_FOLD(all, bool, bool, x & y)
};
const Scalars scalars = {elementwise, sizeof elementwise / sizeof *elementwise, folds, sizeof folds / sizeof *folds};
#undef FL_UNARY
#undef FL_BINARY
#undef FL_FOLD
#undef FL_COMPARISONS
#undef FL_NUMBERS
#undef FL_FLOATS
#undef FL_INTEGERS
#undef FL_FOLDS
