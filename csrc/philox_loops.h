// The loops of philox.cpp, compiled once for each instruction set (as kernel_loops.h is), and written so that the compiler
// vectorises them over `wide` blocks.

struct Lanes {
    uint32_t word[4][wide];
};

__attribute__((always_inline)) inline void wide_blocks(uint64_t seed, uint64_t first, Lanes& out) {
    for (int k = 0; k < wide; k++) {
        uint64_t index = first + k;
        uint32_t c[4] = {uint32_t(index), uint32_t(index >> 32), 0, 0};
        philox_rounds(c[0], c[1], c[2], c[3], uint32_t(seed), uint32_t(seed >> 32));
        for (int lane = 0; lane < 4; lane++) out.word[lane][k] = c[lane];
    }
}

void fill_bits(uint64_t seed, uint64_t first, uint32_t* out) {
    Lanes lanes;
    wide_blocks(seed, first, lanes);
    for (int k = 0; k < wide; k++)
        for (int lane = 0; lane < 4; lane++) out[4 * k + lane] = lanes.word[lane][k];
}

void fill_uniform_f32(uint64_t seed, uint64_t first, float* out) {
    Lanes lanes;
    wide_blocks(seed, first, lanes);
    for (int k = 0; k < wide; k++)
        for (int lane = 0; lane < 4; lane++) out[4 * k + lane] = unit(lanes.word[lane][k]);
}

// Of f32, by polynomials of their own: by scalar.h's functions a number takes 1.8 ns rather than 1.65, and 2 pi v loses digits.
// log(x) for x in [2^-33, 1], to about 2 ulp of the larger of |log x| and 2^-24. x = 2^e * m with m in [sqrt(1/2), sqrt(2));
// log m = 2 artanh(s) with s = (m - 1) / (m + 1).
__attribute__((always_inline)) inline float log_f32(float x) {
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
__attribute__((always_inline)) inline void turn_f32(float v, float* cosine, float* sine) {
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

__attribute__((always_inline)) inline void normal_pair_f32(uint32_t a, uint32_t b, float* even, float* odd) {
    // Two halves of 16 bits convert exactly; their sum rounds once.
    float u = float(int32_t(a >> 16)) * 0x1p-16f + (float(int32_t(a & 0xFFFFu)) + 0.5f) * 0x1p-32f;
    float squared = -2.0f * log_f32(u);
    float r = std::sqrt(squared > 0.0f ? squared : 0.0f);
    float c, s;
    turn_f32(unit(b), &c, &s);
    *even = r * c;
    *odd = r * s;
}

void fill_normal_f32(uint64_t seed, uint64_t first, float* out) {
    Lanes lanes;
    wide_blocks(seed, first, lanes);
    float value[4][wide];
    for (int k = 0; k < wide; k++)
        for (int i = 0; i < 4; i += 2) normal_pair_f32(lanes.word[i][k], lanes.word[i + 1][k], &value[i][k], &value[i + 1][k]);
    for (int k = 0; k < wide; k++)
        for (int lane = 0; lane < 4; lane++) out[4 * k + lane] = value[lane][k];
}

void fill_uniform_f64(uint64_t seed, uint64_t first, double* out) {
    Lanes lanes;
    wide_blocks(seed, first, lanes);
    for (int k = 0; k < wide; k++) {
        out[2 * k] = unit(join(lanes.word[0][k], lanes.word[1][k]));
        out[2 * k + 1] = unit(join(lanes.word[2][k], lanes.word[3][k]));
    }
}

void fill_normal_f64(uint64_t seed, uint64_t first, double* out) {
    Lanes lanes;
    wide_blocks(seed, first, lanes);
    for (int k = 0; k < wide; k++) {
        double u = unit(join(lanes.word[0][k], lanes.word[1][k])) + 0x1p-54, v = unit(join(lanes.word[2][k], lanes.word[3][k]));
        double r = fl::sqrt(-2 * fl::log(u)), t = 6.283185307179586476925 * v;
        out[2 * k] = r * fl::cos_near(t);
        out[2 * k + 1] = r * fl::sin_near(t);
    }
}

const PhiloxLoops loops = {fill_bits, fill_uniform_f32, fill_normal_f32, fill_uniform_f64, fill_normal_f64};
