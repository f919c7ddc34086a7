// The functions that GCC calls for fmod of a vector, which libmvec does not have. A unit includes this where it needs it, for it
// takes as long to compile as all of kernel.h.
#pragma once
#include "kernel.h"

#if FL_MVEC && defined(__FMA__)
extern "C" {
FL_VECTOR __attribute__((const)) double fmod(double, double) noexcept;
FL_VECTOR __attribute__((const)) float fmodf(float, float) noexcept;
}

namespace fl {
FL_INLINE float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
FL_INLINE double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }

// Below 2^23 (2^52) the quotient rounds to at most one too many, and what is left then is a number of T again, which an fma
// gives exactly. Where a lane's is larger the C library takes them all.
template <class V, class T> FL_INLINE V fmod_lanes(V x, V y) {
    constexpr int n = sizeof(V) / sizeof(T);
    constexpr T most = sizeof(T) == 4 ? 0x1p23 : 0x1p52;
    T a[n], b[n], r[n];
    __builtin_memcpy(a, &x, sizeof x);
    __builtin_memcpy(b, &y, sizeof y);
    int far = 0;
    for (int l = 0; l < n; l++) {
        T top = abs(a[l]), bottom = abs(b[l]), quotient = trunc(top / bottom), rest = fma(-quotient, bottom, top);
        rest = rest < 0 ? rest + bottom : rest;
        r[l] = copysign(top < bottom ? top : rest, a[l]);
        far |= quotient >= most;
    }
    if (__builtin_expect(far, 0))
        for (int l = 0; l < n; l++) {
            FL_FORGET(l);  // one by one, lest GCC call this very function
            r[l] = fmod(a[l], b[l]);
        }
    __builtin_memcpy(&x, r, sizeof x);
    return x;
}
}  // namespace fl

#define FL_FMOD(name, T, bytes)                                                                                \
    typedef T name##_lanes __attribute__((vector_size(bytes)));                                                \
    extern "C" __attribute__((weak, visibility("hidden"))) name##_lanes name(name##_lanes x, name##_lanes y) noexcept { \
        return fl::fmod_lanes<name##_lanes, T>(x, y);                                                          \
    }
FL_FMOD(_ZGVbN4vv_fmodf, float, 16) FL_FMOD(_ZGVbN2vv_fmod, double, 16)
FL_FMOD(_ZGVdN8vv_fmodf, float, 32) FL_FMOD(_ZGVdN4vv_fmod, double, 32)
#ifdef __AVX512F__
FL_FMOD(_ZGVeN16vv_fmodf, float, 64) FL_FMOD(_ZGVeN8vv_fmod, double, 64)
#endif
#undef FL_FMOD
#endif
