// What generated kernels stand on beside scalar.h: Philox random words, computed indices, library calls, timing.
#pragma once
#define FL_VECTORS 1
#include "scalar.h"
#include "convert.h"
#include "philox_rounds.h"

// What is printed once and called from many places; and the function that only calls: a graph of a hundred layers has thousands of
// calls, over which an optimizing compiler takes longer than over all kernels.
#define FL_SHARED __attribute__((noinline))
#define FL_CALLS __attribute__((optimize("O0")))

extern "C" int clock_gettime(int clock, void* out) noexcept;

namespace fl {

// --- random words: Philox 4x32-10, word `lane` of block `index` (see csrc/philox.cpp for who draws which) ---

FL_INLINE uint32_t philox(int64_t seed, int64_t index, int64_t lane) {
    uint32_t c0 = uint32_t(index), c1 = uint32_t(uint64_t(index) >> 32), c2 = 0, c3 = 0;
    philox_rounds(c0, c1, c2, c3, uint32_t(seed), uint32_t(uint64_t(seed) >> 32));
    uint32_t even = lane & 2 ? c2 : c0, odd = lane & 2 ? c3 : c1;
    return lane & 1 ? odd : even;
}
FL_INLINE float unit(uint32_t word) { return float(int32_t(word >> 8)) * 0x1p-24f; }

// --- indices that are computed ---

struct OutOfBounds {
    int failed;
    int64_t index, size;
};
static OutOfBounds out_of_bounds;  // the last one; threads may race for whose it is

FL_INLINE int64_t checked(int64_t index, int64_t given, int64_t size) {
    if (__builtin_expect(uint64_t(index) < uint64_t(size), 1)) return index;
    out_of_bounds = {1, given, size};
    return 0;
}
FL_INLINE int refuse(FlambeauRuntime* rt) {
    out_of_bounds.failed = 0;
    return rt->out_of_bounds(rt, out_of_bounds.index, out_of_bounds.size);
}

// --- library calls: the oneDNN bridge of the process (csrc/onednn_ops.h), found through the runtime ---

struct Library {
    int64_t (*create)(const int64_t* words, int64_t count);  // a handle; equal words give the equal one; 0: cannot
    int (*run)(int64_t op, void* const* operands);
    const char* (*last_error)();
    bool find(FlambeauRuntime* rt) {
        if (run == nullptr) {
            create = (int64_t (*)(const int64_t*, int64_t))rt->find("onednn_create");
            last_error = (const char* (*)())rt->find("onednn_last_error");
            run = (int (*)(int64_t, void* const*))rt->find("onednn_run");
        }
        return run != nullptr;
    }
    int fail(FlambeauRuntime* rt) { return rt->fail(rt, "oneDNN: %s", run ? last_error() : "it is not loaded"); }
};
static Library library;

// Random numbers by the array (csrc/philox.cpp).
FL_INLINE int draw(FlambeauRuntime* rt, const int64_t* words, const int64_t* state, void* out) {
    static void (*run)(const int64_t*, const int64_t*, void*) = nullptr;
    if (run == nullptr) run = (void (*)(const int64_t*, const int64_t*, void*))rt->find("philox_run");
    if (run == nullptr) return rt->fail(rt, "this process has no native random numbers");
    run(words, state, out);
    return 0;
}

// Attention (csrc/attention.cpp).
FL_INLINE int attention(FlambeauRuntime* rt, const int64_t* words, void* const* operands, int count) {
    static int (*run)(const int64_t*, void* const*, int, int) = nullptr;
    if (run == nullptr) run = (int (*)(const int64_t*, void* const*, int, int))rt->find("attention_run");
    if (run == nullptr || run(words, operands, count, rt->num_threads) != 0)
        return rt->fail(rt, "this graph was compiled for a processor with bf16 tiles (AMX): clear the cache or compile again");
    return 0;
}

// --- running sums and products, of what comes before along `n` or after it: out and x are (outer, n, inner), contiguous ---

constexpr int64_t running_block = 64;  // columns that are added up side by side
constexpr int64_t running_alone = 1 << 15;  // elements from which on threads share the work

template <class A, class T, class Combine>
static void run_along(FlambeauRuntime* rt, const T* x, T* out, int64_t outer, int64_t n, int64_t inner, bool reverse, A start, Combine combine) {
    const int64_t blocks = (inner + running_block - 1) / running_block, parts = outer * blocks;
#pragma omp parallel for num_threads(rt->num_threads) if (outer * n * inner >= running_alone && parts > 1)
    for (int64_t part = 0; part < parts; part++) {
        const int64_t first = part % blocks * running_block, count = inner - first < running_block ? inner - first : running_block;
        const int64_t base = part / blocks * n * inner + first;
        A so_far[running_block];
        for (int64_t c = 0; c < count; c++) so_far[c] = start;
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = base + (reverse ? n - 1 - i : i) * inner;
#pragma omp simd
            for (int64_t c = 0; c < count; c++) {
                so_far[c] = combine(so_far[c], A(x[at + c]));
                out[at + c] = T(so_far[c]);
            }
        }
    }
}

}  // namespace fl
#include "sorting.h"
namespace fl {

// --- timing, while somebody watches ---

#ifndef FL_CLOCK
#define FL_CLOCK 1  // monotonic; 3 is this thread's processor time
#endif
FL_INLINE int64_t now() {
    struct { int64_t seconds, nanoseconds; } t;
    clock_gettime(FL_CLOCK, &t);
    return t.seconds * 1000000000L + t.nanoseconds;
}
#define FL_LAP(k) if (rt->laps) rt->laps[k] = fl::now()

}  // namespace fl
