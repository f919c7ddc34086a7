// What the scalar operations of flambeau/core/scalar.py come to in C++, for the loops of csrc/ and for generated kernels alike: the
// same bits in a scalar and in vectors of any width (no branches, no contraction, no calls whose vectors differ), and storage types
// of the narrow floats. Free of C++ headers: parsing them would cost more than compiling the kernels.
//
// Subnormal numbers are kept, as operands and as results; NaN and infinities come out as IEEE 754 and C99 say (which NaN is
// not said). The f32 polynomials are minimax fits (Lawson-weighted least squares) on the reduced ranges that the comments name.
#pragma once
#include <stdint.h>

#define FL_INLINE static inline __attribute__((always_inline, unused))
#define FL_INF __builtin_inff()
// The compiler is to forget what it knows of x (that it is 0 or 1): its vectoriser stumbles over truth values from outside
// of a loop.
#define FL_FORGET(x) __asm__("" : "+r"(x))

extern "C" double lgamma(double) noexcept;

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
#if defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
typedef __fp16 float16;  // what this GCC calls it in C++
#else
typedef _Float16 float16;
#endif
FL_INLINE float round_to_float16(float x) { return float(float16(x)); }
FL_INLINE float round_to_bfloat16(float x) { return bits<float>(bfloat16_word(x) << 16); }

// --- arithmetic ---

// Integers wrap around: arithmetic on signed ones is that of the unsigned.
template <class T> struct Unsigned { typedef T type; };
template <> struct Unsigned<int8_t> { typedef uint8_t type; };
template <> struct Unsigned<int16_t> { typedef uint16_t type; };
template <> struct Unsigned<int32_t> { typedef uint32_t type; };
template <> struct Unsigned<int64_t> { typedef uint64_t type; };
template <class T> using U = typename Unsigned<T>::type;
template <class T> FL_INLINE T add(T x, T y) { return T(U<T>(x) + U<T>(y)); }
template <class T> FL_INLINE T sub(T x, T y) { return T(U<T>(x) - U<T>(y)); }
template <class T> FL_INLINE T mul(T x, T y) { return T(U<T>(1u * U<T>(x) * U<T>(y))); }
template <class T> FL_INLINE T neg(T x) { return T(U<T>(0) - U<T>(x)); }

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
template <class T> FL_INLINE T abs(T x) { return x < T(0) ? T(U<T>(0) - U<T>(x)) : x; }
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

// Division with the remainder of x by y given, or made. What integers give where y is 0 is 0 and 0.
template <class T> FL_INLINE bool is_minus_one(T y) { return T(-1) < T(0) && y == T(-1); }
template <class T> FL_INLINE T fmod(T x, T y) { return y == 0 || is_minus_one(y) ? T(0) : T(x % y); }
template <class T> FL_INLINE T truncdiv(T x, T y) { return y == 0 ? T(0) : is_minus_one(y) ? neg(x) : T(x / y); }
FL_INLINE float truncdiv(float x, float y) { return trunc(x / y); }
FL_INLINE double truncdiv(double x, double y) { return trunc(x / y); }
template <class T> FL_INLINE T remainder_of(T r, T y) { return r != 0 && ((r < 0) != (y < 0)) ? T(r + y) : r; }
template <class T> FL_INLINE T remainder(T x, T y) { return remainder_of(fmod(x, y), y); }
template <class T> FL_INLINE T floordiv(T x, T y) {
    T q = truncdiv(x, y);
    return y != 0 && mul(q, y) != x && ((x < 0) != (y < 0)) ? T(q - 1) : q;
}
template <class T> FL_INLINE T floordiv_of(T r, T x, T y) {  // of floats, as Python: consistent with remainder
    T q = (x - r) / y;
    q = r != 0 && ((r < 0) != (y < 0)) ? q - 1 : q;
    T down = floor(q);
    down = q - down > T(0.5) ? down + 1 : down;
    down = q == 0 ? copysign(T(0), x / y) : down;
    return y == 0 ? x / y : down;
}

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
FL_INLINE float power_of_2(int32_t n) { return bits<float>(uint32_t(n + 127) << 23); }
FL_INLINE float times_power_of_2(float y, int32_t n) { return bits<float>(bits<uint32_t>(y) + (uint32_t(n) << 23)); }
// e^x for |x| <= 87.
FL_INLINE float exp_moderate(float x) {
    Reduced a = reduce_exp(x);
    return times_power_of_2(exp_minus_1(a.r) + 1.f, a.n);
}
FL_INLINE float times_powers_of_2(float y, int32_t n) {  // in two steps, for subnormal results and those that overflow
    int32_t half = n >> 1;
    return y * power_of_2(half) * power_of_2(n - half);
}
FL_INLINE float exp(float x) {
    float c = x > 89.f ? 89.f : x;
    Reduced a = reduce_exp(c < -104.f ? -104.f : c);
    return times_powers_of_2(exp_minus_1(a.r) + 1.f, a.n);
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
    c = c < -151.f ? -151.f : c;
    float t = c + 12582912.f;
    int32_t n = bits<int32_t>(t) - 0x4B400000;
    return times_powers_of_2(exp_minus_1((c - (t - 12582912.f)) * 0.693147181f) + 1.f, n);
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
    float c = -abs(x);
    Reduced a = reduce_exp(c < -104.f ? -104.f : c);
    float p = exp_minus_1(a.r), h = p + 1.f, e = times_powers_of_2(h, a.n), lost = times_powers_of_2(p - (h - 1.f), a.n);
    float d = 1.f + e, over = 1.f / d, up = x < 0.f ? e : 1.f, y = up * over;
    return y + (__builtin_fmaf(-y, d, up) + ((x < 0.f ? lost : 0.f) - y * (((1.f - d) + e) + lost))) * over;
}

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
FL_INLINE float erf(float x) {  // |x| < 1: x + x q(x^2); else 1 - e^-p(|x|), p fitted to -log erfc on [1, 4]
    float a = __builtin_fabsf(x), z = x * x;
    float q = 7.88910911e-05f;
    q = __builtin_fmaf(q, z, -0.000802083814f);
    q = __builtin_fmaf(q, z, 0.00518953521f);
    q = __builtin_fmaf(q, z, -0.0268544443f);
    q = __builtin_fmaf(q, z, 0.112836003f);
    q = __builtin_fmaf(q, z, -0.37612626f);
    q = __builtin_fmaf(q, z, 0.128379167f);
    a = a > 4.f ? 4.f : a;
    float p = -0.000185577519f;
    p = __builtin_fmaf(p, a, 0.00293964078f);
    p = __builtin_fmaf(p, a, -0.0218054485f);
    p = __builtin_fmaf(p, a, 0.103037633f);
    p = __builtin_fmaf(p, a, 0.638225377f);
    p = __builtin_fmaf(p, a, 1.12704027f);
    p = __builtin_fmaf(p, a, 0.00035367746f);
    float large = copysign(1.f - exp_moderate(-p), x);
    return z < 1.f ? __builtin_fmaf(x, q, x) : z >= 1.f ? large : x;
}

}  // namespace fl

#include "functions.h"
#include "remote.h"
