// What generated kernels stand on: scalar functions that compilers vectorise (no branches, no calls but to libmvec), storage
// types of the narrow floats, and Philox random words. Free of C++ headers: parsing them would cost more than compiling
// the kernels.
//
// Accuracy: every function is within 4 ulp of the exact result where that is a normal number (tests/inductor/
// test_kernel_math.py measures it); NaN and infinities come out as IEEE 754 and C99 say. The f32 polynomials are minimax fits (Lawson-weighted least squares) on the
// reduced ranges that the comments name.
#pragma once
#include <stdint.h>

#define FL_INLINE static inline __attribute__((always_inline, unused))
#define FL_INF __builtin_inff()
// The compiler is to forget what it knows of x (that it is 0 or 1): its vectoriser stumbles over truth values from outside
// of a loop.
#define FL_FORGET(x) __asm__("" : "+r"(x))

// Vector versions of the C library's functions live in libmvec (glibc 2.35 has all of these; FL_MVEC says it is there).
#if FL_MVEC
#define FL_VECTOR _Pragma("omp declare simd notinbranch")
#else
#define FL_VECTOR
#endif
#define FL_LIBRARY1(name) \
    FL_VECTOR double name(double) noexcept; \
    FL_VECTOR float name##f(float) noexcept;
#define FL_LIBRARY2(name) \
    FL_VECTOR double name(double, double) noexcept; \
    FL_VECTOR float name##f(float, float) noexcept;
extern "C" {
FL_LIBRARY1(sin) FL_LIBRARY1(cos) FL_LIBRARY1(tan) FL_LIBRARY1(asin) FL_LIBRARY1(acos) FL_LIBRARY1(atan)
FL_LIBRARY1(sinh) FL_LIBRARY1(cosh) FL_LIBRARY1(tanh) FL_LIBRARY1(asinh) FL_LIBRARY1(acosh) FL_LIBRARY1(atanh)
FL_LIBRARY1(exp) FL_LIBRARY1(exp2) FL_LIBRARY1(expm1) FL_LIBRARY1(log) FL_LIBRARY1(log2) FL_LIBRARY1(log10)
FL_LIBRARY1(log1p) FL_LIBRARY1(erf) FL_LIBRARY1(erfc) FL_LIBRARY2(pow) FL_LIBRARY2(atan2) FL_LIBRARY2(hypot)
double fmod(double, double) noexcept;
float fmodf(float, float) noexcept;
double lgamma(double) noexcept;
float lgammaf(float) noexcept;
double nextafter(double, double) noexcept;
float nextafterf(float, float) noexcept;
int clock_gettime(int clock, void* out) noexcept;
}

namespace fl {

template <class To, class From>
FL_INLINE To bits(From x) { return __builtin_bit_cast(To, x); }

// --- storage types of the narrow floats: computed with as float ---

FL_INLINE uint32_t bfloat16_word(float x) {
    uint32_t u = bits<uint32_t>(x);
    return x != x ? 0x7FC0u : (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
}
// Numbers are assigned, and rounded by `round_to_bfloat16`, without a temporary of this type: GCC would not vectorise.
struct bfloat16 {
    uint16_t word;
    bfloat16() = default;
    __attribute__((always_inline)) bfloat16(float x) : word(uint16_t(bfloat16_word(x))) {}
    __attribute__((always_inline)) void operator=(float x) { word = uint16_t(bfloat16_word(x)); }
    __attribute__((always_inline)) operator float() const { return bits<float>(uint32_t(word) << 16); }
};
typedef _Float16 float16;
FL_INLINE float round_to_float16(float x) { return float(float16(x)); }
FL_INLINE float round_to_bfloat16(float x) { return bits<float>(bfloat16_word(x) << 16); }

// --- arithmetic ---

// Two selections, not one with an "or": the first is one instruction, and GCC vectorises it in more places.
template <class T> FL_INLINE T maximum(T a, T b) {
    T larger = a > b ? a : b;
    return a != a ? a : larger;
}
template <class T> FL_INLINE T minimum(T a, T b) {
    T smaller = a < b ? a : b;
    return a != a ? a : smaller;
}
template <class T> FL_INLINE T fmax(T a, T b) { return (a >= b) | (b != b) ? a : b; }
template <class T> FL_INLINE T fmin(T a, T b) { return (a <= b) | (b != b) ? a : b; }
template <class T> FL_INLINE T relu(T x) { return x < T(0) ? T(0) : x; }
template <class T> FL_INLINE T abs(T x) { return x < T(0) ? T(-x) : x; }
FL_INLINE float abs(float x) { return __builtin_fabsf(x); }
FL_INLINE double abs(double x) { return __builtin_fabs(x); }
template <class T> FL_INLINE T sign(T x) { return T(x > T(0)) - T(x < T(0)); }
template <class T> FL_INLINE bool isnan(T x) { return x != x; }
FL_INLINE bool isinf(float x) { return __builtin_fabsf(x) == FL_INF; }
FL_INLINE bool isinf(double x) { return __builtin_fabs(x) == __builtin_inf(); }
template <class T> FL_INLINE bool isinf(T) { return false; }
FL_INLINE bool signbit(float x) { return bits<int32_t>(x) < 0; }
FL_INLINE bool signbit(double x) { return bits<int64_t>(x) < 0; }
template <class T> FL_INLINE bool signbit(T x) { return x < 0; }
FL_INLINE float copysign(float x, float y) { return __builtin_copysignf(x, y); }
FL_INLINE double copysign(double x, double y) { return __builtin_copysign(x, y); }
// The neighbour of x towards y: one more or less in its bits, which count away from zero.
template <class T, class Bits> FL_INLINE T nextafter_bits(T x, T y) {
    Bits u = bits<Bits>(x);
    T stepped = bits<T>(Bits(u + ((x < y) == (x > T(0)) ? 1 : -1)));
    T first = bits<T>(Bits(1)), moved = x == T(0) ? __builtin_copysign(first, y) : stepped;
    return x != x ? x : (y != y) | (x == y) ? y : moved;
}
FL_INLINE float nextafter(float x, float y) { return nextafter_bits<float, int32_t>(x, y); }
FL_INLINE double nextafter(double x, double y) { return nextafter_bits<double, int64_t>(x, y); }
template <class T> FL_INLINE T bitwise_not(T x) { return T(~x); }
FL_INLINE bool bitwise_not(bool x) { return !x; }
template <class T, class S> FL_INLINE T shl(T x, S n) {
    return uint64_t(n) < sizeof(T) * 8 ? T(uint64_t(x) << n) : T(0);
}
template <class T, class S> FL_INLINE T shr(T x, S n) {
    return uint64_t(n) < sizeof(T) * 8 ? T(x >> n) : x < T(0) ? T(-1) : T(0);
}

// condition ? x : y where the condition does not vary in the loop at hand: by bits, for a branch would keep GCC from vectorising.
FL_INLINE uint32_t select_bits(int32_t c, uint32_t x, uint32_t y) { return (x & uint32_t(-c)) | (y & ~uint32_t(-c)); }
FL_INLINE uint64_t select_bits(int32_t c, uint64_t x, uint64_t y) {
    return (x & uint64_t(-int64_t(c))) | (y & ~uint64_t(-int64_t(c)));
}
FL_INLINE float select(int32_t c, float x, float y) { return bits<float>(select_bits(c, bits<uint32_t>(x), bits<uint32_t>(y))); }
FL_INLINE double select(int32_t c, double x, double y) { return bits<double>(select_bits(c, bits<uint64_t>(x), bits<uint64_t>(y))); }
template <class T> FL_INLINE T select(int32_t c, T x, T y) { return T(select_bits(c, uint64_t(x), uint64_t(y))); }

FL_INLINE float floor(float x) { return __builtin_floorf(x); }
FL_INLINE double floor(double x) { return __builtin_floor(x); }
FL_INLINE float ceil(float x) { return __builtin_ceilf(x); }
FL_INLINE double ceil(double x) { return __builtin_ceil(x); }
FL_INLINE float trunc(float x) { return __builtin_truncf(x); }
FL_INLINE double trunc(double x) { return __builtin_trunc(x); }
FL_INLINE float round(float x) { return __builtin_rintf(x); }
FL_INLINE double round(double x) { return __builtin_rint(x); }
template <class T> FL_INLINE T floor(T x) { return x; }
template <class T> FL_INLINE T ceil(T x) { return x; }
template <class T> FL_INLINE T trunc(T x) { return x; }
template <class T> FL_INLINE T round(T x) { return x; }
FL_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
FL_INLINE double sqrt(double x) { return __builtin_sqrt(x); }
template <class T> FL_INLINE T rsqrt(T x) { return T(1) / sqrt(x); }
FL_INLINE float fmod(float x, float y) { return ::fmodf(x, y); }
FL_INLINE double fmod(double x, double y) { return ::fmod(x, y); }
template <class T> FL_INLINE T fmod(T x, T y) { return y == 0 || (T(-1) < T(0) && y == T(-1)) ? T(0) : T(x % y); }
template <class T> FL_INLINE T remainder(T x, T y) {
    T r = fmod(x, y);
    return r != 0 && ((r < 0) != (y < 0)) ? T(r + y) : r;
}
template <class T> FL_INLINE T truncdiv(T x, T y) { return y == 0 ? T(0) : T(-1) < T(0) && y == T(-1) ? T(0 - x) : T(x / y); }
FL_INLINE float truncdiv(float x, float y) { return trunc(x / y); }
FL_INLINE double truncdiv(double x, double y) { return trunc(x / y); }
template <class T> FL_INLINE T floordiv(T x, T y) {
    T q = truncdiv(x, y);
    return y != 0 && T(q * y) != x && ((x < 0) != (y < 0)) ? T(q - 1) : q;
}
template <class T> FL_INLINE T floordiv_float(T x, T y) {  // as Python: consistent with remainder
    T r = fmod(x, y);
    T q = (x - r) / y;
    q = r != 0 && ((r < 0) != (y < 0)) ? q - 1 : q;
    T down = floor(q);
    down = q - down > T(0.5) ? down + 1 : down;
    down = q == 0 ? copysign(T(0), x / y) : down;
    return y == 0 ? x / y : down;
}
FL_INLINE float floordiv(float x, float y) { return floordiv_float(x, y); }
FL_INLINE double floordiv(double x, double y) { return floordiv_float(x, y); }

// --- f32 functions by polynomials ---

// x = n ln 2 + r, |r| <= ln 2 / 2; n from the low bits of x / ln 2 + 1.5 * 2^23.
struct Reduced {
    float r;
    int32_t n;
};
FL_INLINE Reduced reduce_exp(float x) {
    float t = x * 1.44269504f + 12582912.f;
    int32_t n = bits<int32_t>(t) - 0x4B400000;
    t -= 12582912.f;
    return {__builtin_fmaf(t, -1.42860677e-6f, __builtin_fmaf(t, -0.693145752f, x)), n};
}
FL_INLINE float exp_minus_1(float r) {  // |r| <= ln 2 / 2
    float q = 0.00139504706f;
    q = __builtin_fmaf(q, r, 0.00836888328f);
    q = __builtin_fmaf(q, r, 0.041666206f);
    q = __builtin_fmaf(q, r, 0.166665182f);
    q = __builtin_fmaf(q, r, 0.5f);
    return __builtin_fmaf(q, r * r, r);
}
FL_INLINE float power_of_2(int32_t n) { return bits<float>((n + 127) << 23); }
FL_INLINE float times_power_of_2(float y, int32_t n) { return bits<float>(bits<int32_t>(y) + (n << 23)); }
// e^x for |x| <= 87.
FL_INLINE float exp_moderate(float x) {
    Reduced a = reduce_exp(x);
    return times_power_of_2(exp_minus_1(a.r) + 1.f, a.n);
}
// Results below the smallest normal float are 0: arithmetic on subnormals is a hundred times slower, and a masked softmax is
// full of them.
FL_INLINE float exp(float x) {
    float c = x > 88.7228f ? 88.7228f : x;
    c = c < -87.3365f ? -87.3365f : c;
    float y = exp_moderate(c);
    y = x <= 88.72283f ? y : x + FL_INF;
    return x < -87.3365f ? 0.f : y;
}
FL_INLINE float expm1(float x) {
    float c = x > 89.f ? 89.f : x;
    c = c < -20.f ? -20.f : c;
    Reduced a = reduce_exp(c);
    float scale = power_of_2(a.n - 1);
    float y = 2.f * __builtin_fmaf(scale, exp_minus_1(a.r), scale - 0.5f);
    return copysign(__builtin_fabsf(x) < 1e-4f ? __builtin_fmaf(0.5f * x, x, x) : y, x);
}
FL_INLINE float exp2(float x) {
    float c = x > 129.f ? 129.f : x;
    c = c < -126.f ? -126.f : c;
    float t = c + 12582912.f;
    int32_t n = bits<int32_t>(t) - 0x4B400000, half = n >> 1;
    float r = (c - (t - 12582912.f)) * 0.693147181f;
    float y = (exp_minus_1(r) + 1.f) * power_of_2(half) * power_of_2(n - half);
    return x < -126.f ? 0.f : y;
}

// x = 2^e m, sqrt(1/2) <= m < sqrt(2); log m = f - f^2/2 + f^3 q(f), f = m - 1.
struct Split {
    float e, f, tail;
};
FL_INLINE Split split_log(float x) {
    bool tiny = x < 1.17549435e-38f;
    int32_t u = bits<int32_t>(tiny ? x * 8388608.f : x) - 0x3F3504F3;
    float e = float((u >> 23) - (tiny ? 23 : 0));
    float f = bits<float>((u & 0x007FFFFF) + 0x3F3504F3) - 1.f;
    float q = 0.0691518337f;
    q = __builtin_fmaf(q, f, -0.117897138f);
    q = __builtin_fmaf(q, f, 0.118730098f);
    q = __builtin_fmaf(q, f, -0.12384367f);
    q = __builtin_fmaf(q, f, 0.142186552f);
    q = __builtin_fmaf(q, f, -0.166692495f);
    q = __builtin_fmaf(q, f, 0.200022265f);
    q = __builtin_fmaf(q, f, -0.249999866f);
    q = __builtin_fmaf(q, f, 0.333333105f);
    return {e, f, f * f * __builtin_fmaf(q, f, -0.5f)};
}
FL_INLINE float log_edges(float x, float y) {  // log's values at 0, negative numbers, infinity and NaN
    y = x == FL_INF ? FL_INF : y;
    y = x == 0.f ? -FL_INF : y;
    return x >= 0.f ? y : __builtin_nanf("");
}
FL_INLINE float log(float x) {
    Split s = split_log(x);
    return log_edges(x, __builtin_fmaf(s.e, 0.693359375f, s.f + __builtin_fmaf(s.e, -2.12194440e-4f, s.tail)));
}
FL_INLINE float log2(float x) {
    Split s = split_log(x);
    float m = s.f + s.tail, low = (s.f - m) + s.tail;
    return log_edges(x, s.e + __builtin_fmaf(m, 1.44269504f, __builtin_fmaf(m, 1.92596299e-8f, low * 1.44269504f)));
}
FL_INLINE float log10(float x) {
    Split s = split_log(x);
    float m = s.f + s.tail;
    return log_edges(x, __builtin_fmaf(s.e, 0.301025391f, __builtin_fmaf(s.e, 4.60503907e-6f, m * 0.434294482f)));
}
FL_INLINE float log1p(float x) {
    float u = 1.f + x;
    float lost = u > 2.f ? 1.f - (u - x) : x - (u - 1.f);
    float y = log(u) + lost / u;
    y = u == FL_INF ? FL_INF : y;
    y = u == 0.f ? -FL_INF : y;
    return u == 1.f ? x : y;
}

FL_INLINE float sigmoid(float x) {
    float c = x > 87.f ? 87.f : x;
    c = c < -87.f ? -87.f : c;
    float y = 1.f / (1.f + exp_moderate(-c));
    y = x >= -87.f ? y : 0.f;
    return x != x ? x : y;
}
FL_INLINE double sigmoid(double x) { return 1. / (1. + ::exp(-x)); }

FL_INLINE float tanh(float x) {  // |x| < 0.65: x + x^3 q(x^2); else 1 - 2 / (e^2|x| + 1)
    float a = __builtin_fabsf(x), z = x * x;
    float q = -0.00552859716f;
    q = __builtin_fmaf(q, z, 0.0204832777f);
    q = __builtin_fmaf(q, z, -0.0536929555f);
    q = __builtin_fmaf(q, z, 0.133308992f);
    q = __builtin_fmaf(q, z, -0.333332628f);
    float small = __builtin_fmaf(x * z, q, x);
    float large = copysign(1.f - 2.f / (exp_moderate(2.f * (a > 10.f ? 10.f : a)) + 1.f), x);
    return copysign(a < 0.65f ? small : a >= 0.65f ? large : x, x);
}
FL_INLINE float erf(float x) {  // |x| < 1: x q(x^2); else 1 - e^-p(|x|), p fitted to -log erfc on [1, 4]
    float a = __builtin_fabsf(x), z = x * x;
    float q = 7.88910911e-05f;
    q = __builtin_fmaf(q, z, -0.000802083814f);
    q = __builtin_fmaf(q, z, 0.00518953521f);
    q = __builtin_fmaf(q, z, -0.0268544443f);
    q = __builtin_fmaf(q, z, 0.112836003f);
    q = __builtin_fmaf(q, z, -0.37612626f);
    q = __builtin_fmaf(q, z, 1.12837911f);
    a = a > 4.f ? 4.f : a;
    float p = -0.000185577519f;
    p = __builtin_fmaf(p, a, 0.00293964078f);
    p = __builtin_fmaf(p, a, -0.0218054485f);
    p = __builtin_fmaf(p, a, 0.103037633f);
    p = __builtin_fmaf(p, a, 0.638225377f);
    p = __builtin_fmaf(p, a, 1.12704027f);
    p = __builtin_fmaf(p, a, 0.00035367746f);
    float large = copysign(1.f - exp_moderate(-p), x);
    return z < 1.f ? x * q : z >= 1.f ? large : x;
}

// --- the rest through the C library ---

#define FL_CALL1(name) \
    FL_INLINE float name(float x) { return ::name##f(x); } \
    FL_INLINE double name(double x) { return ::name(x); }
#define FL_CALL1_DOUBLE(name) \
    FL_INLINE double name(double x) { return ::name(x); }
FL_CALL1(sin) FL_CALL1(cos) FL_CALL1(tan) FL_CALL1(asin) FL_CALL1(acos) FL_CALL1(atan) FL_CALL1(sinh) FL_CALL1(cosh)
FL_CALL1(asinh) FL_CALL1(acosh) FL_CALL1(atanh) FL_CALL1(erfc)
FL_INLINE double lgamma(double x) { return ::lgamma(x); }
FL_INLINE float lgamma(float value) {  // Stirling's series from 8 on, by the recurrence up to there, by reflection below 1/2
    double x = value, z = x < 0.5 ? 1 - x : x, w = z < 8 ? z + 8 : z, u = 1 / (w * w);
    double up = z < 8 ? z * (z + 1) * (z + 2) * (z + 3) * (z + 4) * (z + 5) * (z + 6) * (z + 7) : 1.;
    double y = (w - 0.5) * ::log(w) - w + 0.91893853320467274 + (1. / 12 - u * (1. / 360 - u * (1. / 1260 - u / 1680))) / w;
    double back = ::log(3.14159265358979323846 / abs(::sin(3.14159265358979323846 * (x - round(x)))));
    y -= ::log(up);
    return float(isinf(x) ? __builtin_inf() : x < 0.5 ? back - y : y);
}
FL_CALL1_DOUBLE(exp) FL_CALL1_DOUBLE(exp2) FL_CALL1_DOUBLE(expm1) FL_CALL1_DOUBLE(log) FL_CALL1_DOUBLE(log2)
FL_CALL1_DOUBLE(log10) FL_CALL1_DOUBLE(log1p) FL_CALL1_DOUBLE(tanh) FL_CALL1_DOUBLE(erf)
FL_INLINE float atan2(float y, float x) { return ::atan2f(y, x); }
FL_INLINE double atan2(double y, double x) { return ::atan2(y, x); }
FL_INLINE float hypot(float x, float y) { return ::hypotf(x, y); }
FL_INLINE double hypot(double x, double y) { return ::hypot(x, y); }
FL_INLINE float pow(float x, float y) { return ::powf(x, y); }
FL_INLINE double pow(double x, double y) { return ::pow(x, y); }
template <class T> FL_INLINE T pow(T x, T y) {  // integers: by squaring; a negative power is 0 but for 1 and -1
    T out = 1, base = x;
    for (T n = y; n > 0; n >>= 1, base *= base) out *= n & 1 ? base : T(1);
    return y >= 0 ? out : x == 1 ? T(1) : x == T(-1) ? (y & 1 ? T(-1) : T(1)) : T(0);
}
FL_INLINE double erfinv(double x) {  // Winitzki's guess, then Halley steps on erfc(|y|) = 1 - |x|
    double a = x < 0 ? -x : x, t = 1 - a;
    double l = ::log(t * (1 + a)), h = 4.3307467508 + 0.5 * l;
    double y = sqrt(sqrt(h * h - l / 0.147) - h);
#pragma GCC unroll 3
    for (int step = 0; step < 3; step++) {
        double f = (a < 0.5 ? a - ::erf(y) : ::erfc(y) - t) * 0.88622692545275801 * ::exp(y * y);
        y = y + f / (1 + y * f);
    }
    y = a == 1 ? __builtin_inf() : a > 1 ? __builtin_nan("") : a == 0 ? 0 : y;
    return copysign(y, x);
}
FL_INLINE float erfinv(float x) {  // the series near 0, else Winitzki's guess, then Halley steps
    float a = __builtin_fabsf(x), t = 1.f - a, s = a * a;
    float l = log(t * (1.f + a)), h = 4.33074675f + 0.5f * l;
    float far = sqrt(sqrt(h * h - l * 6.80272109f) - h);
    float near = a * __builtin_fmaf(s, __builtin_fmaf(s, 0.127556240f, 0.232013665f), 0.886226925f);
    float y = a < 0.25f ? near : far;
#pragma GCC unroll 2
    for (int step = 0; step < 2; step++) {
        float f = (a < 0.5f ? a - erf(y) : erfc(y) - t) * 0.886226925f * exp(y * y);
        y = y + f / (1.f + y * f);
    }
    y = a == 1.f ? FL_INF : a > 1.f ? __builtin_nanf("") : a < 1e-4f ? near : y;
    return copysign(y, x);
}
FL_INLINE double digamma(double x) {  // recurrence up to 10, then the asymptotic series; reflection below 0
    if (x == 0) return copysign(__builtin_inf(), -x);
    double extra = 0;
    if (x < 0) {
        if (x == floor(x)) return __builtin_nan("");
        extra = -3.14159265358979323846 / ::tan(3.14159265358979323846 * (x - floor(x)));
        x = 1 - x;
    }
    for (; x < 10; x += 1) extra -= 1 / x;
    double z = 1 / (x * x);
    double tail = z * (1. / 12 - z * (1. / 120 - z * (1. / 252 - z * (1. / 240 - z * (1. / 132 - z * 691. / 32760)))));
    return extra + ::log(x) - 0.5 / x - tail;
}
FL_INLINE float digamma(float x) { return float(digamma(double(x))); }

// --- random words: Philox 4x32-10, word `lane` of block `index` (see csrc/philox.h for who draws which) ---

FL_INLINE uint32_t philox(int64_t seed, int64_t index, int64_t lane) {
    uint32_t c0 = uint32_t(index), c1 = uint32_t(uint64_t(index) >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(uint64_t(seed) >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = uint64_t(0xD2511F53u) * c0, p1 = uint64_t(0xCD9E8D57u) * c2;
        c0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
        c1 = uint32_t(p1);
        c2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
        c3 = uint32_t(p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    uint32_t even = lane & 2 ? c2 : c0, odd = lane & 2 ? c3 : c1;
    return lane & 1 ? odd : even;
}
FL_INLINE float unit(uint32_t word) { return float(int32_t(word >> 8)) * 0x1p-24f; }

// --- indices that are computed ---

struct OutOfBounds {
    int failed;
    int64_t index, size;
};
static OutOfBounds out_of_bounds;  // the last one; threads may race for whose it is

FL_INLINE int64_t checked(int64_t index, int64_t given, int64_t size) {
    if (__builtin_expect(uint64_t(index) < uint64_t(size), 1)) return index;
    out_of_bounds = {1, given, size};
    return 0;
}
FL_INLINE int refuse(FlambeauRuntime* rt) {
    out_of_bounds.failed = 0;
    return rt->fail(rt, "index %ld is out of bounds for dimension with size %ld", out_of_bounds.index, out_of_bounds.size);
}

// --- library calls: the oneDNN bridge of the process (csrc/onednn_ops.h), found through the runtime ---

struct Library {
    int64_t (*create)(const int64_t* words, int64_t count);  // a handle; equal words give the equal one; 0: cannot
    int (*run)(int64_t op, void* const* operands);
    const char* (*last_error)();
    bool find(FlambeauRuntime* rt) {
        if (run == nullptr) {
            create = (int64_t (*)(const int64_t*, int64_t))rt->find("onednn_create");
            last_error = (const char* (*)())rt->find("onednn_last_error");
            run = (int (*)(int64_t, void* const*))rt->find("onednn_run");
        }
        return run != nullptr;
    }
    int fail(FlambeauRuntime* rt) { return rt->fail(rt, "oneDNN: %s", run ? last_error() : "it is not loaded"); }
};
static Library library;

// Random numbers by the array (csrc/philox.cpp).
FL_INLINE int draw(FlambeauRuntime* rt, const int64_t* words, const int64_t* state, void* out) {
    static void (*run)(const int64_t*, const int64_t*, void*) = nullptr;
    if (run == nullptr) run = (void (*)(const int64_t*, const int64_t*, void*))rt->find("philox_run");
    if (run == nullptr) return rt->fail(rt, "this process has no native random numbers");
    run(words, state, out);
    return 0;
}

// Attention (csrc/attention.cpp).
FL_INLINE int attention(FlambeauRuntime* rt, const int64_t* words, void* const* operands, int count) {
    static int (*run)(const int64_t*, void* const*, int, int) = nullptr;
    if (run == nullptr) run = (int (*)(const int64_t*, void* const*, int, int))rt->find("attention_run");
    if (run == nullptr || run(words, operands, count, rt->num_threads) != 0)
        return rt->fail(rt, "this graph was compiled for a processor with bf16 tiles (AMX): clear the cache or compile again");
    return 0;
}

// --- timing, where it was asked for ---

#ifndef FL_CLOCK
#define FL_CLOCK 1  // monotonic; 3 is this thread's processor time
#endif
FL_INLINE double now() {
    struct { int64_t seconds, nanoseconds; } t;
    clock_gettime(FL_CLOCK, &t);
    return double(t.seconds) + 1e-9 * double(t.nanoseconds);
}
FL_INLINE void lap(double& total, double& clock) {
    double t = now();
    total += t - clock;
    clock = t;
}

}  // namespace fl
