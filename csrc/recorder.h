// What profilers are told: operators (recorder.cpp), and memory that is taken and given back.
#pragma once
#include <atomic>
#include <cstddef>

// How many logs of memory are open.
extern std::atomic<int> memory_logs;
// Enters `size` bytes at `memory` into them; 0: they are given back. Callable with or without the GIL.
void enter_memory(void* memory, size_t size);

// The number of autograd's next node; null with an error set.
struct _object* next_node();

inline void* taken(void* memory, size_t size) {
    if (memory != nullptr && memory_logs.load(std::memory_order_relaxed) != 0) enter_memory(memory, size);
    return memory;
}
inline void given_back(void* memory) {
    if (memory != nullptr && memory_logs.load(std::memory_order_relaxed) != 0) enter_memory(memory, 0);
}
