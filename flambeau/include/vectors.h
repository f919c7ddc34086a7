// The vector versions that remote.h declares, of the functions that a unit says it uses (FL_USES_SIN and so on): they take longer to
// compile than all the rest.
#pragma once
#include "scalar.h"

#if FL_VECTORISED
#define FL_WEAK extern "C" __attribute__((weak, visibility("hidden")))

namespace fl {

template <class V, class T> FL_INLINE V fmod_lanes(V x, V y) {
    constexpr int n = sizeof(V) / sizeof(T);
    T a[n], b[n], r[n];
    __builtin_memcpy(a, &x, sizeof x);
    __builtin_memcpy(b, &y, sizeof y);
    int far = 0;
    for (int l = 0; l < n; l++) {
        r[l] = fmod_near(a[l], b[l]);
        far |= is_far(a[l], b[l]);
    }
    if (__builtin_expect(far, 0))
        for (int l = 0; l < n; l++) {
            FL_FORGET(l);  // one by one, lest GCC call this very function
            r[l] = fmod(a[l], b[l]);
        }
    __builtin_memcpy(&x, r, sizeof x);
    return x;
}
template <class V, class T, class Bits, class Near, class Any> FL_INLINE V lanes(V x, Near near, Any any) {
    constexpr int n = sizeof(V) / sizeof(T);
    alignas(sizeof(V)) T a[n], r[n];
    __builtin_memcpy(a, &x, sizeof x);
    Bits far = 0;  // as wide as T, or GCC would take narrower vectors
    int count = n;
    FL_FORGET(count);  // a loop whose length GCC knew would be unrolled before it could be vectorised
#pragma omp simd reduction(| : far)
    for (int l = 0; l < (count & -n); l++) {
        r[l] = near(a[l]);
        far |= is_far(a[l]) ? 1 : 0;
    }
    if (__builtin_expect(far, 0))
        for (int l = 0; l < n; l++) {
            FL_FORGET(l);
            r[l] = any(a[l]);
        }
    __builtin_memcpy(&x, r, sizeof x);
    return x;
}

}  // namespace fl

typedef int32_t float_bits;
typedef int64_t double_bits;
#define FL_TYPE(T, bytes) typedef T T##bytes __attribute__((vector_size(bytes)));
FL_TYPE(float, 16) FL_TYPE(float, 32) FL_TYPE(float, 64) FL_TYPE(double, 16) FL_TYPE(double, 32) FL_TYPE(double, 64)
#define FL_FMOD(name, T, bytes) \
    FL_WEAK T##bytes name(T##bytes x, T##bytes y) noexcept { return fl::fmod_lanes<T##bytes, T>(x, y); }
#define FL_LANES(prefix, f, suffix, T, bytes)                                                                           \
    FL_WEAK T##bytes prefix##flambeau_##f##suffix(T##bytes x) noexcept {                                                \
        return fl::lanes<T##bytes, T, T##_bits>(x, [](T y) __attribute__((always_inline)) { return fl::f##_near(y); }, [](T y) { return fl::f##_any(y); }); \
    }
// The scalars, under names by which GCC does not know that it could make vectors of them by itself.
#define FL_SCALAR(f, suffix, T)                                                                  \
    FL_WEAK T flambeau_scalar_##f##suffix(T x) noexcept __asm__("flambeau_" #f #suffix);         \
    FL_WEAK T flambeau_scalar_##f##suffix(T x) noexcept { return fl::f##_any(x); }
#define FL_ALL(name, wide)                                                                          \
    FL_SCALAR(name, f, float) FL_SCALAR(name, , double)                                                \
    FL_LANES(_ZGVbN4v_, name, f, float, 16) FL_LANES(_ZGVbN2v_, name, , double, 16)                    \
    FL_LANES(_ZGVdN8v_, name, f, float, 32) FL_LANES(_ZGVdN4v_, name, , double, 32) wide
#ifdef __AVX512F__
#define FL_WIDE(name) FL_LANES(_ZGVeN16v_, name, f, float, 64) FL_LANES(_ZGVeN8v_, name, , double, 64)
#else
#define FL_WIDE(name)
#endif
#ifdef FL_USES_SIN
FL_ALL(sin, FL_WIDE(sin))
#endif
#ifdef FL_USES_COS
FL_ALL(cos, FL_WIDE(cos))
#endif
#ifdef FL_USES_TAN
FL_ALL(tan, FL_WIDE(tan))
#endif
#ifdef FL_USES_FMOD
FL_FMOD(_ZGVbN4vv_fmodf, float, 16) FL_FMOD(_ZGVbN2vv_fmod, double, 16)
FL_FMOD(_ZGVdN8vv_fmodf, float, 32) FL_FMOD(_ZGVdN4vv_fmod, double, 32)
#ifdef __AVX512F__
FL_FMOD(_ZGVeN16vv_fmodf, float, 64) FL_FMOD(_ZGVeN8vv_fmod, double, 64)
#endif
#endif
#undef FL_FMOD
#undef FL_LANES
#undef FL_SCALAR
#undef FL_ALL
#undef FL_WIDE
#undef FL_TYPE
#undef FL_WEAK
#endif
