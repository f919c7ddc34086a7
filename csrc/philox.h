// Random numbers by the array, of a generator's state; philox.cpp says which.
#pragma once
#include <cstdint>

void philox_bits(uint32_t* out, int64_t n, uint64_t seed, uint64_t offset);
// Numbers of `size` bytes: uniform in [0, 1) or normal.
void philox_floats(bool normal, int64_t size, void* out, int64_t n, uint64_t seed, uint64_t offset);

// For generated code: words are (0 uniform, 1 normal; bytes of an element; elements; blocks used up before), state is
// (seed, offset).
extern "C" void philox_run(const int64_t* words, const int64_t* state, void* out);
