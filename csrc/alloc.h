// The caching allocator behind NumPy arrays and generated kernels. Callable with or without the GIL.
#pragma once
#include <cstddef>

// 64-byte aligned memory of at least `size` bytes, or null. Its contents are arbitrary.
void* cache_alloc(size_t size);
// Gives back what cache_alloc returned; null is allowed.
void cache_free(void* memory);
