// The loops of mt19937.cpp, compiled once for each instruction set (as philox_loops.h is), and written so that they vectorise.

inline uint32_t twisted(uint32_t first, uint32_t second) {
    uint32_t joined = (first & 0x80000000u) | (second & 0x7fffffffu);
    return (joined >> 1) ^ (-(joined & 1u) & 0x9908b0dfu);
}

void twist(uint32_t* __restrict word) {
    for (int i = 0; i < period - middle; i++) word[i] = word[i + middle] ^ twisted(word[i], word[i + 1]);
    for (int i = period - middle; i < period - 1; i++) word[i] = word[i + middle - period] ^ twisted(word[i], word[i + 1]);
    word[period - 1] = word[middle - 1] ^ twisted(word[period - 1], word[0]);
}

void temper(const uint32_t* __restrict word, uint32_t* __restrict out, int n) {
    for (int i = 0; i < n; i++) {
        uint32_t y = word[i];
        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c5680u;
        y ^= y << 15 & 0xefc60000u;
        out[i] = y ^ y >> 18;
    }
}

// 24 bits of a word; 53 bits of two, the first of which is the high one.
void units_f32(const uint32_t* __restrict bits, float* __restrict out, int n) {
    for (int i = 0; i < n; i++) out[i] = float(int32_t(bits[i] & 0xffffffu)) * 0x1p-24f;
}

void units_f64(const uint32_t* __restrict bits, double* __restrict out, int n) {
    for (int i = 0; i < n; i++) {
        double high = double(int32_t(bits[2 * i] & 0x1fffffu)), low = double(int32_t(bits[2 * i + 1] ^ 0x80000000u)) + 0x1p31;
        out[i] = (high * 0x1p32 + low) * 0x1p-53;
    }
}

// log, and sine and cosine, of floats: Moshier's logf, sinf and cosf ("Methods and Programs for Mathematical Functions", 1989; the
// Cephes library) with multiply-adds. Their last bits are part of what a seed means.
__attribute__((always_inline)) inline float log_f32(float x) {
    uint32_t word;
    std::memcpy(&word, &x, 4);
    float exponent = float(int32_t(word >> 23) - 126);
    word = (word & 0x7fffffu) | 0x3f000000u;
    float m;
    std::memcpy(&m, &word, 4);  // in [1/2, 1)
    bool small = m < 0.70710678f;
    exponent = small ? exponent - 1.0f : exponent;
    m = small ? (m - 1.0f) + m : m - 1.0f;
    float z = m * m, y = 7.0376836292e-2f;
    y = __builtin_fmaf(y, m, -1.1514610310e-1f);
    y = __builtin_fmaf(y, m, 1.1676998740e-1f);
    y = __builtin_fmaf(y, m, -1.2420140846e-1f);
    y = __builtin_fmaf(y, m, 1.4249322787e-1f);
    y = __builtin_fmaf(y, m, -1.6668057665e-1f);
    y = __builtin_fmaf(y, m, 2.0000714765e-1f);
    y = __builtin_fmaf(y, m, -2.4999993993e-1f);
    y = __builtin_fmaf(y, m, 3.3333331174e-1f);
    y = __builtin_fmaf(y * m, z, exponent * -2.12194440e-4f);
    y = __builtin_fmaf(z, -0.5f, y);
    return __builtin_fmaf(exponent, 0.693359375f, m + y);
}

__attribute__((always_inline)) inline void sine_cosine_f32(float x, float* sine, float* cosine) {  // of x >= 0
    int32_t octant = (int32_t(x * 1.27323954f) + 1) & ~1;
    float turns = float(octant);
    x = __builtin_fmaf(turns, -0.78515625f, x);  // pi / 4 in three parts
    x = __builtin_fmaf(turns, -2.4187564849853515625e-4f, x);
    x = __builtin_fmaf(turns, -3.77489497744594108e-8f, x);
    float z = x * x;
    float c = __builtin_fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f);
    c = __builtin_fmaf(c, z, 4.166664568298827e-2f) * z;
    c = __builtin_fmaf(c, z, -0.5f * z) + 1.0f;
    float s = __builtin_fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f);
    s = __builtin_fmaf(s, z, -1.6666654611e-1f) * z;
    s = __builtin_fmaf(s, x, x);
    bool swapped = octant & 2;
    float a = swapped ? c : s, b = swapped ? s : c;
    *sine = octant & 4 ? -a : a;
    *cosine = (octant + 2) & 4 ? -b : b;
}

// Sixteen units become sixteen normal numbers: the first and second half are the two numbers that Box and Muller's method takes, and
// the two that it makes.
void normals_f32(float* data, int64_t blocks, float mean, float deviation) {
    constexpr int most = 16;    // blocks at a time
    float u[8 * most] = {}, v[8 * most] = {};
    for (; blocks > 0; blocks -= most, data += 16 * most) {
        int count = (int)std::min<int64_t>(blocks, most);
        for (int b = 0; b < count; b++) {
            std::memcpy(u + 8 * b, data + 16 * b, sizeof(float) * 8);
            std::memcpy(v + 8 * b, data + 16 * b + 8, sizeof(float) * 8);
        }
        for (int i = 0; i < 8 * most; i++) {
            float radius = __builtin_sqrtf(-2.0f * log_f32(1.0f - u[i])), sine, cosine;
            sine_cosine_f32(6.2831853071795864769f * v[i], &sine, &cosine);
            u[i] = __builtin_fmaf(radius * cosine, deviation, mean);
            v[i] = __builtin_fmaf(radius * sine, deviation, mean);
        }
        for (int b = 0; b < count; b++) {
            std::memcpy(data + 16 * b, u + 8 * b, sizeof(float) * 8);
            std::memcpy(data + 16 * b + 8, v + 8 * b, sizeof(float) * 8);
        }
    }
}

const Loops loops = {twist, temper, units_f32, units_f64, normals_f32};
