// The transcendental functions in float64, and those of float32 that are computed through it. One meaning each: plain arithmetic
// with explicit fused multiply-adds and selections instead of branches, so that a scalar, a vector of any width and every
// instruction set come to the same bits; no calls into the C library, whose vectors differ from its scalars. Included by
// scalar.h, whose float32 functions are polynomials of their own.
//
// Accuracy: within 2 ulp in float64 and 1 in float32 (tests/ops/test_accuracy.py measures it against higher precision). The
// polynomials interpolate at Chebyshev's points of the ranges that the comments name.
#pragma once

namespace fl {

FL_INLINE float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
FL_INLINE double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }

// Polynomials, the highest coefficient first.
FL_INLINE double horner(double, double a) { return a; }
template <class... Rest> FL_INLINE double horner(double x, double a, double b, Rest... rest) { return horner(x, fma(a, x, b), rest...); }

// high + low with |low| no more than half a last place of high.
struct Pair {
    double high, low;
};
FL_INLINE Pair sum_of(double a, double b) {  // exact (Knuth)
    double s = a + b, t = s - a;
    return {s, (a - (s - t)) + (b - t)};
}
FL_INLINE Pair product_of(double a, double b) {
    double p = a * b;
    return {p, fma(a, b, -p)};
}

constexpr double MAGIC = 0x1.8p52;  // its sum with a number below 2^51 is that number rounded, in the low bits
FL_INLINE double binary_power(uint64_t n) { return bits<double>((n + 1023) << 52); }

// --- exponentials: x = n ln 2 + r, |r| <= ln 2 / 2 ---

struct Scaled {  // (1 + r + tail) 2^n
    double r, tail;
    uint64_t n, half;  // two's complement
};
FL_INLINE double exp_tail(double r) {  // e^r - 1 - r
    return r * r * horner(r, 2.0915442297780116e-09, 2.5106274733573296e-08, 2.75572718102198e-07, 2.755725283351691e-06,
                          2.4801587327007187e-05, 0.00019841269876864356, 0.0013888888888883327, 0.008333333333325544,
                          0.04166666666666667, 0.1666666666666667, 0.5);
}
FL_INLINE Scaled scale_exp(double x, double low = 0) {  // of x + low, |x| <= 2^20
    double t = x * 0x1.71547652b82fep+0 + MAGIC, n = t - MAGIC, h = n * 0.5 + MAGIC;
    double s = fma(n, -0x1.62e42fefa39efp-1, x), lost = low - n * 0x1.abc9e3b39803fp-56, r = s + lost;
    double tail = exp_tail(r);
    return {r, fma((s - r) + lost, 1 + r, tail), bits<uint64_t>(t) - bits<uint64_t>(MAGIC), bits<uint64_t>(h) - bits<uint64_t>(MAGIC)};
}
FL_INLINE double value_of(Scaled a) {  // in two steps, so that subnormal results come out and large ones overflow at the end
    return (1 + (a.r + a.tail)) * binary_power(a.half) * binary_power(a.n - a.half);
}
template <class T> FL_INLINE T between(T x, T low, T high) {  // NaN stays
    T c = x > high ? high : x;
    return c < low ? low : c;
}
FL_INLINE Pair leading(Scaled a) {  // 1 + r + tail
    double h = 1 + a.r, l = ((1 - h) + a.r) + a.tail;
    return {h + l, (h - (h + l)) + l};
}
FL_INLINE double exp(double x) { return value_of(scale_exp(between(x, -746., 710.))); }
FL_INLINE double half_exp(double x) {  // e^x / 2, which does not overflow when e^x does
    Scaled a = scale_exp(between(x, -746., 711.));
    return (1 + (a.r + a.tail)) * binary_power(a.half) * binary_power(a.n - a.half - 1);
}
FL_INLINE double exp2(double x) {
    double c = between(x, -1076., 1025.), t = c + MAGIC, n = t - MAGIC, h = n * 0.5 + MAGIC;
    Pair r = product_of(c - n, 0x1.62e42fefa39efp-1);
    double tail = exp_tail(r.high) + fma(c - n, 0x1.abc9e3b39803fp-56, r.low);
    return value_of({r.high, tail, bits<uint64_t>(t) - bits<uint64_t>(MAGIC), bits<uint64_t>(h) - bits<uint64_t>(MAGIC)});
}
FL_INLINE Pair expm1_pair(double x) {  // for -40 <= x <= 710; halved
    Scaled a = scale_exp(x);
    double scale = binary_power(a.n - 1), s = scale - 0.5, y = fma(scale, a.r, s);
    return sum_of(y, fma(scale, a.r, s - y) + scale * a.tail);
}
FL_INLINE double expm1(double x) {
    Pair y = expm1_pair(between(x, -40., 710.));
    return copysign(2 * (y.high + y.low), x);
}

// --- logarithms: x = 2^e m, sqrt(1/2) <= m < sqrt(2); log m = 2 artanh s = 2s + 2s^3 p(s^2), s = (m - 1) / (m + 1) ---

struct Logarithm {  // e ln 2 + high + low
    double e, high, low;
};
FL_INLINE Logarithm split_log(double x) {
    bool tiny = x < 0x1p-1022;
    uint64_t u = bits<uint64_t>(tiny ? x * 0x1p54 : x) - 0x3FE6A09E667F3BCDull + 0x3FF0000000000000ull;
    double e = bits<double>((u >> 52) | 0x4330000000000000ull) - (0x1p52 + 1023) - (tiny ? 54. : 0.);
    double m = bits<double>((u & 0x000FFFFFFFFFFFFFull) + 0x3FE6A09E667F3BCDull);
    double f = m - 1, d = m + 1, q = f / d, lost = (fma(-q, d, f) - q * (m - (d - 1))) / d, z = q * q;
    double p = horner(z, 0.0594172619705393, 0.05843981498771078, 0.06667822920974689, 0.07692287483230453, 0.09090909297884532,
                      0.11111111109922116, 0.14285714285717704, 0.19999999999999996, 0.3333333333333333);
    return {e, 2 * q, 2 * fma(q * z, p, lost)};
}
FL_INLINE double log_edges(double x, double y) {  // log's values at 0, negative numbers, infinity and NaN
    y = x == __builtin_inf() ? x : y;
    y = x == 0 ? -__builtin_inf() : y;
    return x >= 0 ? y : __builtin_nan("");
}
FL_INLINE double natural(Logarithm a) {
    double whole = a.e * 0x1.62e42fefa3800p-1, s = whole + a.high;
    return s + (((whole - s) + a.high) + fma(a.e, 0x1.ef35793c76730p-45, a.low));
}
FL_INLINE double log(double x) { return log_edges(x, natural(split_log(x))); }
FL_INLINE double log_to_base(double x, double e_high, double e_low, double high, double low) {
    Logarithm a = split_log(x);
    Pair p = product_of(a.high, high);
    Pair s = sum_of(a.e * e_high, p.high);
    return log_edges(x, s.high + (s.low + (p.low + fma(a.high, low, fma(a.low, high, a.e * e_low)))));
}
FL_INLINE double log2(double x) { return log_to_base(x, 1, 0, 0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56); }
FL_INLINE double log10(double x) {
    return log_to_base(x, 0x1.34413509f7000p-2, 0x1.3fde623e2566bp-43, 0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57);
}
FL_INLINE double log1p(double x) {
    Pair u = sum_of(x, 1);
    Logarithm l = split_log(u.high);
    double y = natural({l.e, l.high, l.low + u.low / u.high});
    y = x == __builtin_inf() ? x : y;
    y = x == -1 ? -__builtin_inf() : y;
    y = x >= -1 ? y : __builtin_nan("");
    return abs(x) < 0x1p-54 ? x : y;
}

// --- powers ---

// log m with twice the digits: the first two terms of the series as pairs.
FL_INLINE Pair log_pair(double x) {
    bool tiny = x < 0x1p-1022;
    uint64_t u = bits<uint64_t>(tiny ? x * 0x1p54 : x) - 0x3FE6A09E667F3BCDull + 0x3FF0000000000000ull;
    double e = bits<double>((u >> 52) | 0x4330000000000000ull) - (0x1p52 + 1023) - (tiny ? 54. : 0.);
    double m = bits<double>((u & 0x000FFFFFFFFFFFFFull) + 0x3FE6A09E667F3BCDull);
    double f = m - 1, d = m + 1, q = f / d, lost = (fma(-q, d, f) - q * (m - (d - 1))) / d;
    double z = q * q, zl = fma(q, q, -z) + 2 * q * lost;
    double c = q * z, cl = fma(q, z, -c) + fma(q, zl, lost * z);
    double p = horner(z, 0.058621635304233734, 0.05853063232281699, 0.0666740439940617, 0.0769229744350359, 0.09090909168049924,
                      0.11111111110826383, 0.14285714285714685, 0.2);
    double u3 = 0x1.5555555555555p-1 * c, u3l = fma(0x1.5555555555555p-1, c, -u3) + fma(0x1.5555555555555p-55, c, 0x1.5555555555555p-1 * cl);
    double first = 2 * q, h = first + u3, l = ((first - h) + u3) + (2 * fma(c * z, p, lost) + u3l);
    Pair s = sum_of(e * 0x1.62e42fefa3800p-1, h);
    return {s.high, s.low + fma(e, 0x1.ef35793c76730p-45, l)};
}
template <class T> FL_INLINE T pow_edges(T x, T y, T size) {  // |x|^y with the sign, and the values at the edges
    bool whole = trunc(y) == y, odd = whole & (trunc(y * T(0.5)) * 2 != y);
    T inf = T(__builtin_inf());
    size = x == 0 ? (y < 0 ? inf : T(0)) : size;
    size = abs(x) == inf ? (y < 0 ? T(0) : inf) : size;
    size = (abs(y) == inf) & (x == x) ? ((abs(x) > 1) == (y > 0) ? inf : T(0)) : size;
    T out = odd ? copysign(size, x) : size;
    out = (x < 0) & !whole & (x != -inf) ? T(__builtin_nan("")) : out;
    out = (y != y) | (x != x) ? x + y : out;
    return (y == 0) | (x == 1) | ((x == -1) & (abs(y) == inf)) ? T(1) : out;
}
FL_INLINE double pow(double x, double y) {
    Pair l = log_pair(abs(x));
    Pair p = product_of(y, l.high);
    double c = between(p.high, -746., 710.);
    return pow_edges(x, y, value_of(scale_exp(c, c == p.high ? fma(y, l.low, p.low) : 0.)));
}
FL_INLINE float pow(float x, float y) {
    double a = abs(x);
    return pow_edges(x, y, float(value_of(scale_exp(between(y * natural(split_log(a)), -746., 710.)))));
}
template <class T> FL_INLINE T pow(T x, T y) {  // integers: by squaring; a negative power is 0 but for 1 and -1
    T out = 1, base = x;
    for (T n = y; n > 0; n >>= 1, base = mul(base, base)) out = n & 1 ? mul(out, base) : out;
    return y >= 0 ? out : x == 1 ? T(1) : x == T(-1) ? (y & 1 ? T(-1) : T(1)) : T(0);
}
FL_INLINE double hypot(double x, double y) {
    double a = abs(x), b = abs(y), top = a > b ? a : b;
    double down = top > 0x1p500 ? 0x1p-600 : top < 0x1p-500 ? 0x1p600 : 1., up = top > 0x1p500 ? 0x1p600 : top < 0x1p-500 ? 0x1p-600 : 1.;
    a *= down, b *= down;
    double h = a * a, y2 = b * b, s = h + y2, lost = (a > b ? (h - s) + y2 : (y2 - s) + h) + (fma(a, a, -h) + fma(b, b, -y2));
    double r = sqrt(s + lost) * up;
    return (abs(x) == __builtin_inf()) | (abs(y) == __builtin_inf()) ? __builtin_inf() : r;
}
FL_INLINE float hypot(float x, float y) {
    double a = x, b = y;
    float r = float(sqrt(fma(a, a, b * b)));
    return (abs(x) == FL_INF) | (abs(y) == FL_INF) ? FL_INF : r;
}

// --- sine, cosine, tangent: x = n pi/2 + r, |r| <= pi/4 ---
// `near` is for arguments below the limit, and vectorises; `far`, for the others, does not. What they come to follows from
// the argument alone.

struct Angle {
    double r, low;
    uint64_t quadrant;
};
template <class T> constexpr T FAR = sizeof(T) > sizeof(float) ? 0x1p30 : 0x1p20;

FL_INLINE Angle reduce_angle(double x) {
    double t = x * 0x1.45f306dc9c883p-1 + MAGIC, n = t - MAGIC;
    double a = fma(-n, 0x1.921fb54442d18p+0, x);  // exact
    Pair w = product_of(n, 0x1.1a62633145c07p-54);
    double r = a - w.high;
    return {r, fma(n, 0x1.f1976b7ed8fbcp-110, ((a - r) - w.high) - w.low), bits<uint64_t>(t)};
}
FL_INLINE Pair sin_of(double r, double low) {
    double z = r * r;
    double p = horner(z, -7.586576588171073e-13, 1.6058529572267877e-10, -2.5052106219521895e-08, 2.755731921930192e-06,
                      -0.00019841269841265017, 0.008333333333333331, -0.16666666666666666);
    double rest = fma(r * z, p, low * fma(-0.5, z, 1.)), s = r + rest;
    return {s, (r - s) + rest};
}
FL_INLINE Pair cos_of(double r, double low) {
    double z = r * r, half = 0.5 * z, w = 1 - half;
    double p = horner(z, 4.745804889760674e-14, -1.1470459749675607e-11, 2.087675578389404e-09, -2.7557319221382114e-07,
                      2.4801587301584618e-05, -0.0013888888888888887, 0.041666666666666664);
    double rest = ((1 - w) - half) + fma(z * z, p, -r * low), c = w + rest;
    return {c, (w - c) + rest};
}
FL_INLINE double turned(double x, uint64_t sign) { return bits<double>(bits<uint64_t>(x) ^ (sign << 63)); }
FL_INLINE double sin_at(Angle a) {
    double s = sin_of(a.r, a.low).high, c = cos_of(a.r, a.low).high;
    return turned(a.quadrant & 1 ? c : s, (a.quadrant >> 1) & 1);
}
FL_INLINE double cos_at(Angle a) {
    double s = sin_of(a.r, a.low).high, c = cos_of(a.r, a.low).high;
    return turned(a.quadrant & 1 ? s : c, ((a.quadrant + 1) >> 1) & 1);
}
FL_INLINE double tan_at(Angle a) {
    Pair s = sin_of(a.r, a.low), c = cos_of(a.r, a.low);
    bool odd = a.quadrant & 1;
    double up = odd ? -c.high : s.high, lost = odd ? -c.low : s.low, down = odd ? s.high : c.high, q = up / down;
    return q + (fma(-q, down, up) + (lost - q * (odd ? s.low : c.low))) / down;
}
FL_INLINE double sin_near(double x) { return x == 0 ? x : sin_at(reduce_angle(x)); }
FL_INLINE double cos_near(double x) { return cos_at(reduce_angle(x)); }
FL_INLINE double tan_near(double x) { return x == 0 ? x : tan_at(reduce_angle(x)); }

struct NarrowAngle {
    float r, low;
    int32_t quadrant;
};
FL_INLINE NarrowAngle reduce_angle(float x) {
    float t = x * 0.636619772f + 12582912.f, n = t - 12582912.f;
    float a = fma(-n, 1.57079637f, x), w = n * -4.37113883e-8f, wl = fma(n, -4.37113883e-8f, -w), r = a - w;
    return {r, fma(n, 1.71512451e-15f, ((a - r) - w) - wl), bits<int32_t>(t)};
}
FL_INLINE float sin_of(float r, float low) {
    float z = r * r;
    return r + fma(r * z, fma(fma(fma(2.7249314e-6f, z, -0.00019840082f), z, 0.0083333319f), z, -0.16666667f), low);
}
FL_INLINE float cos_of(float r, float low) {
    float z = r * r, half = 0.5f * z, w = 1.f - half;
    float p = fma(fma(fma(-2.7300449e-7f, z, 2.4800596e-5f), z, -0.0013888888f), z, 0.041666667f);
    return w + (((1.f - w) - half) + fma(z * z, p, -r * low));
}
FL_INLINE float turned(float x, int32_t sign) { return bits<float>(bits<uint32_t>(x) ^ (uint32_t(sign) << 31)); }
FL_INLINE float sin_near(float x) {
    NarrowAngle a = reduce_angle(x);
    float y = turned(a.quadrant & 1 ? cos_of(a.r, a.low) : sin_of(a.r, a.low), (a.quadrant >> 1) & 1);
    return x == 0.f ? x : y;
}
FL_INLINE float cos_near(float x) {
    NarrowAngle a = reduce_angle(x);
    return turned(a.quadrant & 1 ? sin_of(a.r, a.low) : cos_of(a.r, a.low), ((a.quadrant + 1) >> 1) & 1);
}
FL_INLINE float tan_near(float x) {
    double d = x, n = __builtin_rint(d * 0x1.45f306dc9c883p-1), r = fma(-n, 0x1.1a62633145c07p-54, fma(-n, 0x1.921fb54442d18p+0, d)), z = r * r;
    double s = fma(r * z, horner(z, 2.7249314054698804e-06, -0.00019840082012765537, 0.008333331865959415, -0.16666666663832763), r);
    double c = fma(z * z, horner(z, -2.7300448619488353e-07, 2.4800596435621998e-05, -0.0013888887664713619, 0.0416666666643024), fma(z, -0.5, 1.));
    float y = float(int32_t(n) & 1 ? -c / s : s / c);
    return x == 0.f ? x : y;
}

// After Payne and Hanek: x 2/pi modulo 4 from those bits of 2/pi that count, in integers.
static const uint64_t two_over_pi[] = {
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c,
    0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08,
    0x56033046fc7b6bab, 0xf0cfbc209af4361d};
static inline __attribute__((unused)) Angle reduce_far(double x) {  // 2^30 <= |x| < infinity
    typedef unsigned __int128 Wide;
    uint64_t u = bits<uint64_t>(x), mantissa = (u & 0x000FFFFFFFFFFFFFull) | 0x0010000000000000ull;
    int exponent = int(u >> 52 & 0x7FF) - 1075, skip = exponent > 2 ? exponent - 2 : 0;  // bits that make multiples of 4
    uint64_t w[4];
    for (int k = 0, word = skip / 64, shift = skip % 64; k < 4; k++)
        w[k] = shift ? two_over_pi[word + k] << shift | two_over_pi[word + k + 1] >> (64 - shift) : two_over_pi[word + k];
    Wide c = (Wide)mantissa * w[2] + (uint64_t)((Wide)mantissa * w[3] >> 64), b = (Wide)mantissa * w[1] + (uint64_t)(c >> 64);
    Wide a = (Wide)mantissa * w[0] + (uint64_t)(b >> 64), fraction = a << 64 | (uint64_t)b;
    uint64_t quadrant = uint64_t(a >> 64);
    int up = exponent - skip;  // -22 to 2
    if (up > 0) quadrant = quadrant << up | uint64_t(fraction >> (128 - up)), fraction <<= up;
    if (up < 0) fraction = fraction >> -up | (Wide)quadrant << (128 + up), quadrant >>= -up;
    bool back = uint64_t(fraction >> 127);  // to the nearest
    if (back) quadrant++, fraction = -fraction;
    int zeros = uint64_t(fraction >> 64) ? __builtin_clzll(uint64_t(fraction >> 64)) : 63;
    fraction <<= zeros;
    double unit = binary_power(uint64_t(int64_t(-53 - zeros)));
    double high = double(int64_t(fraction >> 75)) * unit, low = double(int64_t(fraction << 53 >> 75)) * unit * 0x1p-53;
    Pair r = product_of(high, 0x1.921fb54442d18p+0);
    double lost = r.low + fma(high, 0x1.1a62633145c07p-54, low * 0x1.921fb54442d18p+0), sum = r.high + lost;
    double left = (r.high - sum) + lost;
    bool minus = back != (x < 0);
    return {minus ? -sum : sum, minus ? -left : left, x < 0 ? 0 - quadrant : quadrant};
}
#define FL_FAR(name)                                                                                                        \
    static __attribute__((noinline, unused)) double name##_far(double x) {                                                  \
        return abs(x) < __builtin_inf() ? name##_at(reduce_far(x)) : __builtin_nan("");                                     \
    }                                                                                                                       \
    FL_INLINE double name##_any(double x) { return abs(x) < FAR<double> ? name##_near(x) : name##_far(x); }                 \
    static __attribute__((noinline, unused)) float name##_far(float x) { return float(name##_any(double(x))); }             \
    FL_INLINE float name##_any(float x) { return abs(x) < FAR<float> ? name##_near(x) : name##_far(x); }
FL_FAR(sin) FL_FAR(cos) FL_FAR(tan)
#undef FL_FAR

// --- inverse trigonometric functions ---

// The angle of a point in the first quadrant, as pi/4 k + atan t with |t| <= tan(pi/8).
template <bool exact = true> FL_INLINE Pair first_quadrant(double y, double x) {
    bool flat = (y < 0.41421356237309503 * x) | (y == 0), middle = y < 2.414213562373095 * x;
    double up = flat ? y : middle ? y - x : -x, down = flat ? x : middle ? y + x : y;
    double base = flat ? 0 : middle ? 0x1.921fb54442d18p-1 : 0x1.921fb54442d18p+0;
    double lost = flat ? 0 : middle ? 0x1.1a62633145c07p-55 : 0x1.1a62633145c07p-54;
    double t = up / down, rest = exact ? fma(-t, down, up) / down : 0;
    t = (y == 0) & (x == 0) ? 0 : t;
    rest = abs(rest) < 1 ? rest : 0;  // not of infinities
    double z = t * t, h = base + t;
    double p = horner(z, 0.016258132064979208, -0.034545610104858494, 0.045506220391755364, -0.052302411507894, 0.05878900032342983,
                      -0.06666422364033206, 0.07692296234491514, -0.09090908748635232, 0.1111111110505757, -0.14285714285658824,
                      0.199999999999998, -0.3333333333333333);
    return {h, ((base - h) + t) + (fma(t * z, p, lost) + rest)};
}
FL_INLINE double across(Pair angle, bool left) {  // the angle, or that of the point mirrored at the axis
    Pair s = sum_of(left ? 0x1.921fb54442d18p+1 : 0., left ? -angle.high : angle.high);
    return s.high + (s.low + (left ? 0x1.1a62633145c07p-53 - angle.low : angle.low));
}
template <bool exact> FL_INLINE double atan2_by(double y, double x) {
    double a = abs(y), b = abs(x), inf = __builtin_inf();
    bool both = (a == inf) & (b == inf);
    double scale = (a > 0x1p1000) | (b > 0x1p1000) ? 0.5 : 1.;
    double out = copysign(across(first_quadrant<exact>(both ? 1 : a * scale, both ? 1 : b * scale), signbit(x)), y);
    return (x != x) | (y != y) ? x + y : out;
}
FL_INLINE double atan2(double y, double x) { return atan2_by<true>(y, x); }
FL_INLINE float atan2(float y, float x) { return float(atan2_by<false>(y, x)); }
FL_INLINE double atan(double x) { return copysign(across(first_quadrant(abs(x), 1), false), x); }
FL_INLINE Pair other_side(double x) {  // sqrt(1 - x^2)
    Pair square = product_of(x, x);
    double left = 1 - square.high, b = sqrt(left), lost = (fma(-b, b, left) + (((1 - left) - square.high) - square.low)) / (2 * b);
    return {b, b > 0 ? lost : 0};
}
FL_INLINE double asin(double x) {
    double a = abs(x);
    Pair b = other_side(x), angle = first_quadrant(a, b.high);
    return copysign(across({angle.high, fma(-a, b.low, angle.low)}, false), x);
}
FL_INLINE double acos(double x) {
    double a = abs(x);
    Pair b = other_side(x), angle = first_quadrant(b.high, a);
    return across({angle.high, fma(a, b.low, angle.low)}, x < 0);
}

FL_INLINE float atan(float x) { return float(copysign(across(first_quadrant<false>(abs(double(x)), 1), false), double(x))); }
FL_INLINE float asin(float x) {
    double d = x, a = abs(d);
    return float(copysign(across(first_quadrant<false>(a, sqrt(fma(-d, d, 1.))), false), d));
}
FL_INLINE float acos(float x) {
    double d = x, a = abs(d);
    return float(across(first_quadrant<false>(sqrt(fma(-d, d, 1.)), a), d < 0));
}

// --- hyperbolic functions and their inverses ---

FL_INLINE double tanh(double x) {  // e / (e + 2), e = expm1(2|x|)
    Pair e = expm1_pair(between(2 * abs(x), 0., 44.)), d = sum_of(1, e.high);
    double over = 1 / d.high, q = e.high * over;
    return copysign(q + (fma(-q, d.high, e.high) + (e.low - q * (d.low + e.low))) * over, x);
}
FL_INLINE double sinh(double x) {  // (e + e / (e + 1)) / 2, e = expm1(|x|)
    double a = abs(x);
    Pair e = expm1_pair(between(a, 0., 40.));
    double q = e.high / (1 + 2 * e.high), h = e.high + q, near = h + (((e.high - h) + q) + e.low);
    return copysign(a < 30 ? near : half_exp(a), x);
}
FL_INLINE double cosh(double x) {
    double e = half_exp(abs(x));
    return e + 0.25 / e;
}
FL_INLINE double log1p_of(double v, bool large, double lost = 0) {  // log(1 + v + lost), or log(2v) for large v
    Pair u = sum_of(v, large ? 0 : 1);
    Logarithm l = split_log(u.high);
    return natural({l.e + (large ? 1 : 0), l.high, l.low + (large ? 0 : u.low + lost) / u.high});
}
FL_INLINE double asinh(double x) {
    double a = abs(x);
    bool large = a > 0x1p28;
    double y = log1p_of(large ? a : a + a * a / (1 + sqrt(fma(a, a, 1.))), large);
    y = a == __builtin_inf() ? a : y;
    y = x == x ? y : x;
    return copysign(a < 0x1p-28 ? a : y, x);
}
FL_INLINE double acosh(double x) {
    bool large = x > 0x1p28;
    double t = x - 1;
    Pair w = product_of(t, x + 1);
    double s = sqrt(w.high), lost = (fma(-s, s, w.high) + fma(t, 1 - ((x + 1) - x), w.low)) / (2 * s);
    Pair v = sum_of(t, s);
    double y = log1p_of(large ? x : v.high, large, s > 0 ? v.low + lost : 0);
    y = x == __builtin_inf() ? x : y;
    return x >= 1 ? y : __builtin_nan("");
}
FL_INLINE double atanh(double x) {
    double a = abs(x), y = 0.5 * log1p_of(2 * a / (1 - a), false);
    y = a == 1 ? __builtin_inf() : y;
    y = a <= 1 ? y : __builtin_nan("");
    return copysign(a < 0x1p-28 ? a : y, x);
}
FL_INLINE double sigmoid(double x) {
    Scaled a = scale_exp(between(-abs(x), -746., 0.));
    Pair p = leading(a);
    double first = binary_power(a.half), second = binary_power(a.n - a.half), e = p.high * first * second, lost = p.low * first * second;
    double d = 1 + e, over = 1 / d, up = x < 0 ? e : 1., y = up * over;
    return y + (fma(-y, d, up) + ((x < 0 ? lost : 0.) - y * (((1 - d) + e) + lost))) * over;
}

// In float32, by their formulas in float64, which lose no digits that count.
FL_INLINE float sinh(float x) {
    double d = x, e = exp(abs(d)), far = 0.5 * (e - 1 / e);
    return float(abs(d) < 1e-3 ? fma(d * d, d * (1. / 6), d) : copysign(far, d));
}
FL_INLINE float cosh(float x) {
    double e = exp(abs(double(x)));
    return float(0.5 * (e + 1 / e));
}
FL_INLINE float asinh(float x) {
    double d = x, a = abs(d), far = log(a + sqrt(fma(a, a, 1.)));
    return float(copysign(a < 1e-3 ? fma(a * a, a * (-1. / 6), a) : far, d));
}
FL_INLINE float acosh(float x) {
    double d = x;
    return float(log(d >= 1 ? d + sqrt((d - 1) * (d + 1)) : -1));
}
FL_INLINE float atanh(float x) {
    double d = x, a = abs(d), far = 0.5 * log((1 + a) / (1 - a));
    return float(a < 1e-3 ? fma(d * d, d * (1. / 3), d) : copysign(far, d));
}

// --- error function: x + x p(x^2) up to 1, then through erfc = e^-x^2 q((x - 3) / (x + 3)) / (1 + 2x) ---

FL_INLINE double erf_part(double z) {  // erf(x) / x - 1 at z = x^2 <= 1
    return horner(z, 5.954471583153482e-11, -1.1371291831047954e-09, 1.4659383821340068e-08, -1.6350256278696497e-07,
                  1.6460995338195411e-06, -1.4925594957596026e-05, 0.00012055331099279798, -0.0008548326980509413,
                  0.005223977624812638, -0.02686617064507627, 0.11283791670954876, -0.3761263890318375, 0.1283791670955126);
}
FL_INLINE double erfc_series(double t) {  // q without its last term
    return horner(t, -1.9984451718566617e-08, 3.183236028641564e-08, 1.1598054883750891e-07, -1.3883134853336661e-07,
                  -6.281714216884258e-07, 3.5889532935725554e-07, 3.477540871762923e-06, -7.334788830602882e-07,
                  -2.0101954785672118e-05, 4.950229049369708e-06, 0.00012509959139017125, -0.00010515995721422134,
                  -0.0007798322989866091, 0.0018886903786038737, 0.002529391818060587, -0.02377051491997329, 0.06830802734388376,
                  -0.1192736634152644, 0.12964515870276305, -0.0475622943534513, -0.1356211061245812);
}
FL_INLINE double erfc_part(double x) {  // erfc for 3/4 <= x
    double a = between(x, 0.75, 28.), t = (a - 3) / (a + 3), q = erfc_series(t);
    double high = fma(t, q, 1.2530080582697296), low = fma(t, q, 1.2530080582697296 - high);
    double d = fma(2., a, 1.), g = high / d, lost = (fma(-g, d, high) + (low - g * (1 - (d - 2 * a)))) / d;
    Pair square = product_of(a, a);
    Scaled e = scale_exp(-square.high, -square.low);
    Pair f = leading(e);
    return fma(f.high, g, fma(f.high, lost, f.low * g)) * binary_power(e.half) * binary_power(e.n - e.half);
}
FL_INLINE double erf(double x) {
    double a = abs(x), near = fma(x, erf_part(between(a * a, 0., 1.)), x);
    return a < 1 ? near : copysign(1 - erfc_part(a), x);
}
FL_INLINE double erfc(double x) {
    double a = abs(x), far = erfc_part(a);
    Pair s = sum_of(1, -x);
    double near = s.high + fma(-x, erf_part(between(a * a, 0., 1.)), s.low);
    return a < 0.75 ? near : x < 0 ? 2 - far : far;
}
FL_INLINE float erfc(float x) {
    double d = x, a = abs(d), c = between(a, 0.75, 28.), t = (c - 3) / (c + 3);
    double far = exp(-c * c) * (fma(t, erfc_series(t), 1.2530080582697296) / fma(2., c, 1.));
    double near = 1 - fma(d, erf_part(between(a * a, 0., 1.)), d);
    return float(a < 0.75 ? near : d < 0 ? 2 - far : far);
}
// The root y of erf(y) = x to 8 digits, from w = -log(1 - x^2): x times a polynomial, or one of sqrt(w); t = 1 - |x|.
FL_INLINE double erfinv_guess(double x, double t) {
    double w = -log(t * (1 + abs(x))), u = w - 3, s = sqrt(w), v = s - 3.32474, far_v = s - 5.15;
    double near = x * horner(u, 1.2732868700624292e-12, -1.4563269630773788e-11, -1.48666180578682e-11, 1.0684025387667025e-09, -5.5654659371024445e-09, -2.3407992568788055e-08, 4.502891203278818e-07, -1.7489187809627485e-06, -1.2716873090583234e-05, 0.00019506272533632716, -0.0008361815249746705, -0.005738136016107892, 0.24163040414304734, 1.6235420065379758);
    double middle = horner(v, -1.2141145350409742e-07, 3.7254773339747583e-06, -1.1179524366214106e-05, 1.0496134991150784e-05, 3.13484018877245e-05, -0.00020971950368609845, 0.0007752573956372301, -0.002202128149672028, 0.004131970463921061, 1.0061611127018315, 3.1590221791837823);
    double far = horner(far_v, -3.096317086674198e-08, 1.6332381188348087e-07, -7.509154531149508e-07, 3.591131637961439e-06, -1.603373897390284e-05, 6.265318059698294e-05, -0.00017357113142660026, -0.00022585584319744455, 1.0102453127080366, 5.001447661258449);
    return w < 6 ? near : copysign(s < 4.15 ? middle : far, x);
}
FL_INLINE double erfinv_edges(double x, double y) {
    double a = abs(x);
    y = a == 1 ? copysign(__builtin_inf(), x) : y;
    y = a <= 1 ? y : __builtin_nan("");
    return a < 1e-10 ? x * 0.88622692545275801 : y;
}
FL_INLINE double erfinv(double x) {  // and a step of Halley's
    double a = abs(x), t = 1 - a, y = erfinv_guess(a, t);
    double f = (a < 0.5 ? a - erf(y) : erfc(y) - t) * 0.88622692545275801 * exp(y * y);
    return erfinv_edges(x, copysign(y + f / (1 - y * f), x));
}
FL_INLINE float erfinv(float x) { return float(erfinv_edges(x, erfinv_guess(x, 1 - abs(double(x))))); }

// --- the gamma function's ---

FL_INLINE double lgamma(double x) { return ::lgamma(x); }  // the C library's, which nothing vectorises
FL_INLINE float lgamma(float value) {  // Stirling's series from 8 on, by the recurrence up to there, by reflection below 1/2
    double x = value, z = x < 0.5 ? 1 - x : x, w = z < 8 ? z + 8 : z, u = 1 / (w * w);
    double up = z < 8 ? z * (z + 1) * (z + 2) * (z + 3) * (z + 4) * (z + 5) * (z + 6) * (z + 7) : 1.;
    double y = (w - 0.5) * log(w) - w + 0.91893853320467274 + horner(u, 1. / 156, -691. / 360360, 1. / 1188, -1. / 1680, 1. / 1260, -1. / 360, 1. / 12) / w;
    double back = log(3.14159265358979323846 / abs(sin_near(3.14159265358979323846 * (x - round(x)))));
    y -= log(up);
    y = x == 1 || x == 2 ? 0. : y;  // exactly
    return float(isinf(x) ? __builtin_inf() : x < 0.5 ? back - y : y);
}
FL_INLINE double digamma(double x) {  // recurrence up to 10, then the asymptotic series; reflection below 0
    if (x == 0) return copysign(__builtin_inf(), -x);
    double extra = 0;
    if (x < 0) {
        if (x == floor(x)) return __builtin_nan("");
        extra = -3.14159265358979323846 / tan_near(3.14159265358979323846 * (x - round(x)));  // the nearest: just below 0 all digits count
        x = 1 - x;
    }
    for (; x < 10; x += 1) extra -= 1 / x;
    double z = 1 / (x * x);
    double tail = z * (1. / 12 - z * (1. / 120 - z * (1. / 252 - z * (1. / 240 - z * (1. / 132 - z * (691. / 32760 - z / 12))))));
    return extra + log(x) - 0.5 / x - tail;
}
FL_INLINE float digamma(float x) { return float(digamma(double(x))); }

}  // namespace fl
