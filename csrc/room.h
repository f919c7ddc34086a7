// Memory that one thread works in: a block that grows and is kept.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>

struct Room {
    static constexpr size_t huge_page = 2 << 20;
    explicit Room(size_t boundary = 64) : boundary(boundary) {}
    ~Room() { free(data); }
    // At least `bytes`, with arbitrary contents. Throws std::bad_alloc.
    char* of(size_t bytes) {
        if (bytes <= size) return data;
        free(data);
        bytes = (bytes + boundary - 1) / boundary * boundary;
        data = (char*)aligned_alloc(boundary, bytes);
        size = data ? bytes : 0;
        if (data == nullptr) throw std::bad_alloc();
        if (boundary >= huge_page) madvise(data, size, MADV_HUGEPAGE);
        return data;
    }

   private:
    const size_t boundary;  // of its address and size
    char* data = nullptr;
    size_t size = 0;
};
