// The random numbers of a generator, by Philox 4x32-10 (philox_rounds.h).
//
// Flambeau's mapping: a generator's state is (seed, offset), both 64-bit. Element i of a draw depends on these and i alone.
//
//   32-bit draws (bits32, uniform f32, normal f32):  block = offset + i / 4,  lane = i % 4
//   64-bit draws (bits64, uniform f64, normal f64):  block = offset + i / 2,  lanes = 2 * (i % 2) (low half), + 1 (high half)
//   counter = (block low word, block high word, 0, 0),  key = (seed low word, seed high word)
//
// A draw of n elements uses up ceil(n / 4) or ceil(n / 2) blocks: the next one starts at that much larger an offset.
//
//   uniform f32 = (bits >> 8) * 2^-24        uniform f64 = (bits >> 11) * 2^-53        both in [0, 1)
//   normal (Box-Muller): elements 2k and 2k + 1 are r cos(t) and r sin(t) with r = sqrt(-2 log u), t = 2 pi v, where u and v
//   come from the bits a and b of these two elements:
//     f32: u = (a + 0.5) * 2^-32 (rounded to f32),  v = (b >> 8) * 2^-24
//     f64: u = ((a >> 11) + 0.5) * 2^-53,           v = (b >> 11) * 2^-53
// f32 normals use the polynomials below, not libm: they vectorise and give the same numbers with every C library.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "philox_rounds.h"

namespace flambeau::philox {

struct Block {
    uint32_t word[4];
};

inline Block philox4x32(Block counter, uint32_t key0, uint32_t key1) {
    uint32_t c0 = counter.word[0], c1 = counter.word[1], c2 = counter.word[2], c3 = counter.word[3];
    philox_rounds(c0, c1, c2, c3, key0, key1);
    return {{c0, c1, c2, c3}};
}

inline Block block(uint64_t seed, uint64_t index) {
    return philox4x32({{uint32_t(index), uint32_t(index >> 32), 0, 0}}, uint32_t(seed), uint32_t(seed >> 32));
}

inline uint32_t bits32(uint64_t seed, uint64_t offset, uint64_t i) { return block(seed, offset + i / 4).word[i % 4]; }

inline uint64_t bits64(uint64_t seed, uint64_t offset, uint64_t i) {
    Block b = block(seed, offset + i / 2);
    return uint64_t(b.word[2 * (i % 2)]) | uint64_t(b.word[2 * (i % 2) + 1]) << 32;
}

inline float unit_f32(uint32_t bits) { return float(int32_t(bits >> 8)) * 0x1p-24f; }
inline double unit_f64(uint64_t bits) { return double(int64_t(bits >> 11)) * 0x1p-53; }

// log(x) for x in [2^-33, 1], to about 2 ulp of the larger of |log x| and 2^-24. x = 2^e * m with m in [sqrt(1/2), sqrt(2));
// log m = 2 artanh(s) with s = (m - 1) / (m + 1).
inline float log_f32(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    bits -= 0x3F3504F3u;  // sqrt(1/2)
    float exponent = float(int32_t(bits) >> 23);
    bits = (bits & 0x007FFFFFu) + 0x3F3504F3u;
    float m;
    std::memcpy(&m, &bits, 4);
    float s = (m - 1.0f) / (m + 1.0f);
    float z = s * s;
    float tail = z * (0.66666667f + z * (0.4f + z * (0.2857143f + z * 0.2222222f)));
    return exponent * 0.69313812f + (s * (2.0f + tail) + exponent * 9.0580f * 1e-6f);
}

// (cos, sin) of 2 pi v for v in [0, 1), v a multiple of 2^-24: the quadrant and the rest are exact.
inline void turn_f32(float v, float* cosine, float* sine) {
    int quadrant = int(v * 4.0f + 0.5f);
    float x = (v - float(quadrant) * 0.25f) * 6.28318531f;  // in [-pi/4, pi/4]
    float z = x * x;
    float s = x + x * z * (-1.6666667e-1f + z * (8.3333310e-3f + z * (-1.9840874e-4f + z * 2.7525562e-6f)));
    float c = 1.0f + z * (-0.5f + z * (4.1666667e-2f + z * (-1.3888889e-3f + z * (2.4801587e-5f + z * -2.7557319e-7f))));
    bool swapped = quadrant & 1;
    float c_abs = swapped ? s : c, s_abs = swapped ? c : s;
    *cosine = (quadrant + 1) & 2 ? -c_abs : c_abs;
    *sine = quadrant & 2 ? -s_abs : s_abs;
}

inline void normal_pair_f32(uint32_t a, uint32_t b, float* even, float* odd) {
    // Two halves of 16 bits convert exactly; their sum rounds once.
    float u = float(int32_t(a >> 16)) * 0x1p-16f + (float(int32_t(a & 0xFFFFu)) + 0.5f) * 0x1p-32f;
    float squared = -2.0f * log_f32(u);
    float r = std::sqrt(squared > 0.0f ? squared : 0.0f);
    float c, s;
    turn_f32(unit_f32(b), &c, &s);
    *even = r * c;
    *odd = r * s;
}

inline void normal_pair_f64(uint64_t a, uint64_t b, double* even, double* odd) {
    double r = std::sqrt(-2.0 * std::log((double(int64_t(a >> 11)) + 0.5) * 0x1p-53));
    double t = 6.283185307179586476925 * unit_f64(b);
    *even = r * std::cos(t);
    *odd = r * std::sin(t);
}

inline float uniform_f32(uint64_t seed, uint64_t offset, uint64_t i) { return unit_f32(bits32(seed, offset, i)); }
inline double uniform_f64(uint64_t seed, uint64_t offset, uint64_t i) { return unit_f64(bits64(seed, offset, i)); }

inline float normal_f32(uint64_t seed, uint64_t offset, uint64_t i) {
    Block b = block(seed, offset + i / 4);
    uint64_t pair = i % 4 / 2 * 2;
    float value[2];
    normal_pair_f32(b.word[pair], b.word[pair + 1], &value[0], &value[1]);
    return value[i % 2];
}

inline double normal_f64(uint64_t seed, uint64_t offset, uint64_t i) {
    double value[2];
    uint64_t pair = i / 2 * 2;
    normal_pair_f64(bits64(seed, offset, pair), bits64(seed, offset, pair + 1), &value[0], &value[1]);
    return value[i % 2];
}

}  // namespace flambeau::philox
