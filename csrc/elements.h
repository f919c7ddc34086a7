// Storage types of the narrow floats as what they compute as. Included inside a namespace for each instruction set, after
// storage.h: see kernels.cpp.

inline float from_half(uint16_t h) {
    uint32_t sign = uint32_t(h & 0x8000) << 16, magnitude = h & 0x7fff, word;
    if (magnitude >= 0x7c00) word = 0x7f800000 | (magnitude & 0x3ff) << 13;
    else if (magnitude >= 0x400) word = (magnitude << 13) + 0x38000000;
    else {
        float small = (float)magnitude * 0x1p-24f;
        memcpy(&word, &small, 4);
    }
    word |= sign;
    float value;
    memcpy(&value, &word, 4);
    return value;
}

// Rounds to nearest even. For subnormal results the addition of 0.5, whose last bit is worth 2^-24, does the rounding.
inline uint16_t to_half(float x) {
    uint32_t word;
    memcpy(&word, &x, 4);
    uint32_t sign = word >> 16 & 0x8000, magnitude = word & 0x7fffffff;
    if (magnitude > 0x7f800000) return sign | 0x7e00 | (magnitude >> 13 & 0x1ff);
    if (magnitude >= 0x477ff000) return sign | 0x7c00;
    if (magnitude < 0x38800000) {
        float sum, part;
        memcpy(&part, &magnitude, 4);
        sum = part + 0.5f;
        memcpy(&word, &sum, 4);
        return sign | (uint16_t)(word - 0x3f000000);
    }
    return sign | (uint16_t)((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13);
}

inline float from_bfloat(uint16_t b) {
    uint32_t word = uint32_t(b) << 16;
    float value;
    memcpy(&value, &word, 4);
    return value;
}

inline uint16_t to_bfloat(float x) {
    uint32_t word;
    memcpy(&word, &x, 4);
    uint32_t rounded = (word + 0x7fff + (word >> 16 & 1)) >> 16;
    return x != x ? (word >> 16 | 0x40) : rounded;
}

// What an element of storage type T computes as, and back.
template <class T> struct Element {
    static T load(T x) { return x; }
    static T store(T x) { return x; }
};
template <> struct Element<Half> {
    static float load(Half x) { return from_half(x.bits); }
    static Half store(float x) { return {to_half(x)}; }
};
template <> struct Element<BFloat> {
    static float load(BFloat x) { return from_bfloat(x.bits); }
    static BFloat store(float x) { return {to_bfloat(x)}; }
};
