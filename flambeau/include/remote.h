// Functions with a rare, slow way for arguments far from zero: sin, cos, tan and fmod. A scalar branches. Generated kernels
// (FL_VECTORS) call vectors of them by the names that GCC gives to vector versions of a function (x86-64's vector ABI): all lanes go
// the fast way, and where one is far, all are done one by one. A unit that uses one of them includes vectors.h, which has these.
#pragma once

#if FL_VECTORS && defined(__AVX2__) && defined(__FMA__)
#define FL_VECTORISED 1
#define FL_VECTOR _Pragma("omp declare simd notinbranch") __attribute__((const))
#else
#define FL_VECTORISED 0
#define FL_VECTOR
#endif
extern "C" {
FL_VECTOR double fmod(double, double) noexcept;
FL_VECTOR float fmodf(float, float) noexcept;
#if FL_VECTORISED
FL_VECTOR double flambeau_sin(double) noexcept;
FL_VECTOR double flambeau_cos(double) noexcept;
FL_VECTOR double flambeau_tan(double) noexcept;
FL_VECTOR float flambeau_sinf(float) noexcept;
FL_VECTOR float flambeau_cosf(float) noexcept;
FL_VECTOR float flambeau_tanf(float) noexcept;
#endif
}

namespace fl {

template <class T> FL_INLINE bool is_far(T x) { return !(abs(x) < FAR<T>); }

// Below 2^23 (2^52) the quotient rounds to at most one too many, and what is left then is a number of T again, which an fma
// gives exactly.
FL_INLINE bool is_far(float x, float y) { return trunc(abs(x) / abs(y)) >= 0x1p23f; }
FL_INLINE bool is_far(double x, double y) { return trunc(abs(x) / abs(y)) >= 0x1p52; }
template <class T> FL_INLINE T fmod_near(T x, T y) {
    T top = abs(x), bottom = abs(y), rest = fma(-trunc(top / bottom), bottom, top);
    rest = rest < 0 ? rest + bottom : rest;
    return copysign(top < bottom ? top : rest, x);
}
FL_INLINE float fmod(float x, float y) { return ::fmodf(x, y); }
FL_INLINE double fmod(double x, double y) { return ::fmod(x, y); }
FL_INLINE float fmod_any(float x, float y) { return is_far(x, y) ? ::fmodf(x, y) : fmod_near(x, y); }
FL_INLINE double fmod_any(double x, double y) { return is_far(x, y) ? ::fmod(x, y) : fmod_near(x, y); }
template <class T> FL_INLINE T remainder_near(T x, T y) { return remainder_of(fmod_near(x, y), y); }
template <class T> FL_INLINE T remainder_any(T x, T y) { return remainder_of(fmod_any(x, y), y); }
template <class T> FL_INLINE T floordiv_near(T x, T y) { return floordiv_of(fmod_near(x, y), x, y); }
template <class T> FL_INLINE T floordiv_any(T x, T y) { return floordiv_of(fmod_any(x, y), x, y); }
FL_INLINE float remainder(float x, float y) { return remainder_of(fmod(x, y), y); }
FL_INLINE double remainder(double x, double y) { return remainder_of(fmod(x, y), y); }
FL_INLINE float floordiv(float x, float y) { return floordiv_of(fmod(x, y), x, y); }
FL_INLINE double floordiv(double x, double y) { return floordiv_of(fmod(x, y), x, y); }

#if FL_VECTORISED
#define FL_REMOTE(name)                                             \
    FL_INLINE double name(double x) { return ::flambeau_##name(x); } \
    FL_INLINE float name(float x) { return ::flambeau_##name##f(x); }
#else
#define FL_REMOTE(name)                                        \
    FL_INLINE double name(double x) { return name##_any(x); }  \
    FL_INLINE float name(float x) { return name##_any(x); }
#endif
FL_REMOTE(sin) FL_REMOTE(cos) FL_REMOTE(tan)
#undef FL_REMOTE

}  // namespace fl
