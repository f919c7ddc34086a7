// The loops of philox.cpp, compiled once for each instruction set (as kernel_loops.h is), and written so that the compiler
// vectorises them over `wide` blocks.

struct Lanes {
    uint32_t word[4][wide];
};

__attribute__((always_inline)) inline void wide_blocks(uint64_t seed, uint64_t first, Lanes& out) {
    for (int k = 0; k < wide; k++) {
        Block b = block(seed, first + k);
        out.word[0][k] = b.word[0];
        out.word[1][k] = b.word[1];
        out.word[2][k] = b.word[2];
        out.word[3][k] = b.word[3];
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
        for (int lane = 0; lane < 4; lane++) out[4 * k + lane] = unit_f32(lanes.word[lane][k]);
}

void fill_normal_f32(uint64_t seed, uint64_t first, float* out) {
    Lanes lanes;
    wide_blocks(seed, first, lanes);
    float value[4][wide];
    for (int k = 0; k < wide; k++) {
        normal_pair_f32(lanes.word[0][k], lanes.word[1][k], &value[0][k], &value[1][k]);
        normal_pair_f32(lanes.word[2][k], lanes.word[3][k], &value[2][k], &value[3][k]);
    }
    for (int k = 0; k < wide; k++)
        for (int lane = 0; lane < 4; lane++) out[4 * k + lane] = value[lane][k];
}

void fill_uniform_f64(uint64_t seed, uint64_t first, double* out) {
    Lanes lanes;
    wide_blocks(seed, first, lanes);
    for (int k = 0; k < wide; k++) {
        out[2 * k] = unit_f64(join(lanes.word[0][k], lanes.word[1][k]));
        out[2 * k + 1] = unit_f64(join(lanes.word[2][k], lanes.word[3][k]));
    }
}

void fill_normal_f64(uint64_t seed, uint64_t first, double* out) {
    Lanes lanes;
    wide_blocks(seed, first, lanes);
    for (int k = 0; k < wide; k++)
        normal_pair_f64(join(lanes.word[0][k], lanes.word[1][k]), join(lanes.word[2][k], lanes.word[3][k]), &out[2 * k],
                        &out[2 * k + 1]);
}

const PhiloxLoops loops = {fill_bits, fill_uniform_f32, fill_normal_f32, fill_uniform_f64, fill_normal_f64};
