// Splitting native loops over threads, and choosing the instruction set they were compiled for.
#pragma once
#include <cstddef>

#include "threads.h"

// Below this many bytes a second thread costs more than it brings.
inline int threads_for(ptrdiff_t bytes) { return bytes < (1 << 17) ? 1 : thread_count(); }

// body(begin, end) for an even share of [0, units) on each thread.
template <class Body>
void in_parallel(ptrdiff_t units, int threads, Body body) {
    if (threads == 1 || units <= 1) return body(0, units);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) body(units * t / threads, units * (t + 1) / threads);
}

enum class InstructionSet { baseline, avx2, avx512 };

inline InstructionSet instruction_set() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) return InstructionSet::avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return InstructionSet::avx2;
#endif
    return InstructionSet::baseline;
}
