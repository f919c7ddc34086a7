// The caching allocator behind NumPy arrays and generated kernels. Callable with or without the GIL.
#pragma once
#include <cstddef>
#include <new>

// 64-byte aligned memory of at least `size` bytes, or null. Its contents are arbitrary.
void* cache_alloc(size_t size);
// Gives back what cache_alloc returned; null is allowed.
void cache_free(void* memory);

// Such memory for as long as a scope lasts. Throws std::bad_alloc.
struct CachedMemory {
    explicit CachedMemory(size_t size) : data(size ? (char*)cache_alloc(size) : nullptr) {
        if (size != 0 && data == nullptr) throw std::bad_alloc();
    }
    ~CachedMemory() {
        if (data != nullptr) cache_free(data);
    }
    CachedMemory(const CachedMemory&) = delete;
    CachedMemory& operator=(const CachedMemory&) = delete;
    char* const data;
};
