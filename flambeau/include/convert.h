// Conversion of a float to an integer, defined for every float: towards zero; what does not fit, and NaN, is the least number of 32
// bits (64 for int64_t), of which narrower integers keep the low bits. It is what x86 does, and PyTorch on it.
#pragma once
#include <stdint.h>

namespace fl {

template <class Float> static inline __attribute__((always_inline, unused)) int32_t to_int32(Float x) {
    return x >= Float(-0x1p31) && x < Float(0x1p31) ? int32_t(x) : INT32_MIN;
}
template <class Float> static inline __attribute__((always_inline, unused)) int64_t to_int64(Float x) {
    return x >= Float(-0x1p63) && x < Float(0x1p63) ? int64_t(x) : INT64_MIN;
}
template <class To, class Float> struct ToInteger {
    static inline __attribute__((always_inline)) To of(Float x) { return To(to_int32(x)); }
};
template <class Float> struct ToInteger<int64_t, Float> {
    static inline __attribute__((always_inline)) int64_t of(Float x) { return to_int64(x); }
};
template <class Float> struct ToInteger<uint32_t, Float> {
    static inline __attribute__((always_inline)) uint32_t of(Float x) { return uint32_t(to_int64(x)); }
};
template <class Float> struct ToInteger<uint64_t, Float> {
    static inline __attribute__((always_inline)) uint64_t of(Float x) {
        return x >= Float(0x1p63) ? uint64_t(to_int64(x - Float(0x1p63))) ^ uint64_t(1) << 63 : uint64_t(to_int64(x));
    }
};
template <class To, class Float> static inline __attribute__((always_inline, unused)) To integer(Float x) { return ToInteger<To, Float>::of(x); }

// A float made of an integer that was made of a float: GCC takes both steps for trunc, which leaves -0 of what lies above -1.
template <class Float> static inline __attribute__((always_inline, unused)) Float whole(Float x) { return x + Float(0); }

}  // namespace fl
