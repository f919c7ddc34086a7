// Fills arrays with random numbers by Philox 4x32-10 (philox_rounds.h), in blocks that vectorise.
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
#include "philox.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "instruction_set.h"
#include "philox_rounds.h"
#include "threads.h"
#pragma GCC diagnostic ignored "-Wunused-variable"
#include "scalar.h"

namespace {

constexpr int wide = 16;
constexpr int64_t chunk_blocks = 4096;  // of work that a thread takes at a time

uint64_t join(uint32_t low, uint32_t high) { return uint64_t(low) | uint64_t(high) << 32; }
float unit(uint32_t bits) { return float(int32_t(bits >> 8)) * 0x1p-24f; }
double unit(uint64_t bits) { return double(int64_t(bits >> 11)) * 0x1p-53; }

// Each fills all 4 * wide (or 2 * wide) elements of `wide` blocks that start at block `first`.
template <class T>
using Fill = void (*)(uint64_t seed, uint64_t first, T* out);
struct PhiloxLoops {
    Fill<uint32_t> bits;
    Fill<float> uniform_f32, normal_f32;
    Fill<double> uniform_f64, normal_f64;
};

#define LOOPS "philox_loops.h"
#include "by_instruction_set.h"

// Fills out[begin:end] by `fill`, where each block gives 16 / sizeof(T) elements. The last, partial step goes through a buffer.
template <class T>
void fill_range(Fill<T> fill, T* out, int64_t begin, int64_t end, uint64_t seed, uint64_t offset) {
    constexpr int64_t step = wide * (16 / sizeof(T));
    for (int64_t i = begin; i < end; i += step) {
        uint64_t first = offset + uint64_t(i) / (16 / sizeof(T));
        if (i + step <= end) {
            fill(seed, first, out + i);
        } else {
            T buffer[step];
            fill(seed, first, buffer);
            std::copy(buffer, buffer + (end - i), out + i);
        }
    }
}

template <class T>
void fill_array(Fill<T> fill, T* out, int64_t n, uint64_t seed, uint64_t offset) {
    constexpr int64_t chunk = chunk_blocks * (16 / sizeof(T));
    int64_t chunks = (n + chunk - 1) / chunk;
    int threads = (int)std::min<int64_t>(chunks, thread_count());
    if (threads <= 1) return fill_range(fill, out, 0, n, seed, offset);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t c = 0; c < chunks; c++) fill_range(fill, out, c * chunk, std::min(n, (c + 1) * chunk), seed, offset);
}

}  // namespace

// 64 bits are the 32 bits of twice as many elements, seen as pairs (low word first).
void philox_bits(uint32_t* out, int64_t n, uint64_t seed, uint64_t offset) { fill_array(loops.bits, out, n, seed, offset); }

void philox_floats(bool normal, int64_t size, void* out, int64_t n, uint64_t seed, uint64_t offset) {
    if (size == 4) fill_array(normal ? loops.normal_f32 : loops.uniform_f32, (float*)out, n, seed, offset);
    else fill_array(normal ? loops.normal_f64 : loops.uniform_f64, (double*)out, n, seed, offset);
}

extern "C" void philox_run(const int64_t* words, const int64_t* state, void* out) {
    philox_floats(words[0] != 0, words[1], out, words[2], (uint64_t)state[0], (uint64_t)(state[1] + words[3]));
}
