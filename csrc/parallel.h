// Splitting native loops over threads.
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
