// A caching allocator for array memory.
//
// glibc gives large blocks back to the kernel when they are freed, so an expression that makes a fresh 12 MB result each time
// pays thousands of page faults for it, which cost several times the arithmetic. Here freed blocks are kept in lists by size
// class and handed out again with their pages in place; large ones ask for huge pages. Blocks are 64-byte aligned.
//
// Blocks are cut from one reserved stretch of address space. So a pointer tells by itself whether it is ours, and NumPy's
// default handler can be replaced in place, for all threads and contexts: arrays that NumPy made before go back to malloc.
// (PyDataMem_SetHandler sets a context variable: other threads, and later notebook cells, would not see it.)
//
// What is kept is bounded by `cache_limit`: beyond it the blocks that lay unused longest lose their pages, not their addresses.
#include "alloc.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "module.h"
#include "numpy_api.h"

namespace {

constexpr size_t alignment = 64;
constexpr size_t page = 4096;
constexpr size_t huge_page = size_t(2) << 20;
constexpr size_t smallest = 1024;            // NumPy has a cache of its own for smaller ones
constexpr size_t largest = size_t(64) << 30;
constexpr size_t evictable = 16 * page;      // smaller blocks keep their pages
constexpr size_t reserved = size_t(1) << 40;
constexpr int steps = 4;                     // size classes to a power of two
constexpr int classes = 27 * steps;          // 1 KB ... 64 GB, see class_of

// Stands in the 64 bytes before the memory that is handed out.
struct Block {
    Block *newer, *older;  // all cached blocks by time of release
    Block *above, *below;  // cached blocks of this class, last released on top
    uint32_t size_class;
    bool clean;  // its inner pages are known to be zero
};
static_assert(sizeof(Block) <= alignment);

// ./dev test --sanitize: what nobody may touch of a block, its unused end and all of it once it is free, is poisoned. One alignment
// more is asked for, so that there always is an unused end.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t redzone = alignment;
void poison(const void* begin, size_t size) { __asan_poison_memory_region(begin, size); }
void unpoison(const void* begin, size_t size) { __asan_unpoison_memory_region(begin, size); }
#else
constexpr size_t redzone = 0;
void poison(const void*, size_t) {}
void unpoison(const void*, size_t) {}
#endif

struct Stats {
    size_t live, peak, cached, requests, reused, fresh, evicted;
};

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
char *region, *region_end, *frontier;
Block* newest;
Block* oldest;
Block* top[classes];   // cached, pages in place
Block* cold[classes];  // evicted, linked by `below`
Stats stats;
size_t cache_limit;

struct Locked {
    Locked() { pthread_mutex_lock(&mutex); }
    ~Locked() { pthread_mutex_unlock(&mutex); }
};

// Class sizes are 4, 5, 6 and 7 quarters of each power of two from 1 KB on: at most a fifth of a block is unused.
size_t class_size(int c) { return (smallest / steps * (steps + c % steps)) << (c / steps); }

int class_of(size_t size) {
    if (size <= smallest) return 0;
    int power = 63 - __builtin_clzll((size - 1) / smallest);  // smallest << power < size <= smallest << (power + 1)
    size_t step = (smallest / steps) << power;
    return int(power * steps + (size - (smallest << power) + step - 1) / step);
}

void* memory_of(Block* block) { return (char*)block + alignment; }
Block* block_of(void* memory) { return (Block*)((char*)memory - alignment); }
bool is_ours(const void* memory) { return (char*)memory >= region && (char*)memory < region_end; }

void unlink(Block* block) {
    (block->newer ? block->newer->older : newest) = block->older;
    (block->older ? block->older->newer : oldest) = block->newer;
    (block->above ? block->above->below : top[block->size_class]) = block->below;
    if (block->below) block->below->above = block->above;
}

void link(Block* block) {
    block->newer = nullptr;
    block->older = newest;
    (newest ? newest->newer : oldest) = block;
    newest = block;
    block->above = nullptr;
    block->below = top[block->size_class];
    if (block->below) block->below->above = block;
    top[block->size_class] = block;
}

// The whole pages of a block past its header: what can be given back to the kernel without touching anything else.
struct Inner {
    char *begin, *end;
    explicit Inner(Block* block) {
        begin = (char*)(((uintptr_t)block + sizeof(Block) + page - 1) / page * page);
        end = (char*)(((uintptr_t)memory_of(block) + class_size(block->size_class)) / page * page);
    }
};

// Takes the pages from a cached block. It is used again only when its class has no warm one.
void evict(Block* block) {
    unlink(block);
    Inner inner(block);
    block->clean = madvise(inner.begin, inner.end - inner.begin, MADV_DONTNEED) == 0;
    block->below = cold[block->size_class];
    cold[block->size_class] = block;
    stats.cached -= class_size(block->size_class);
    stats.evicted++;
}

void shrink_cache(size_t limit) {
    Block* block = oldest;
    while (block != nullptr && stats.cached > limit) {
        Block* next = block->newer;
        if (class_size(block->size_class) >= evictable) evict(block);
        block = next;
    }
}

Block* take_cached(int size_class) {
    // A block of the next class up beats untouched memory.
    for (int c = size_class; c < std::min(size_class + 2, classes); c++) {
        if (Block* block = top[c]) {
            unlink(block);
            block->clean = false;
            stats.cached -= class_size(c);
            stats.reused++;
            return block;
        }
    }
    if (Block* block = cold[size_class]) {
        cold[size_class] = block->below;
        return block;
    }
    return nullptr;
}

Block* make_fresh(int size_class) {
    size_t size = class_size(size_class) + alignment;
    if (size >= huge_page) frontier = (char*)(((uintptr_t)frontier + huge_page - 1) / huge_page * huge_page);
    if (frontier > region_end || size > size_t(region_end - frontier)) return nullptr;
    char* begin = frontier;
    if (size >= huge_page) madvise(begin, size / huge_page * huge_page, MADV_HUGEPAGE);
    frontier += size;
    Block* block = (Block*)begin;
    block->size_class = size_class;
    stats.fresh++;
    return block;
}

void fill_with_zeros(Block* block, size_t size) {
    char *memory = (char*)memory_of(block), *end = memory + size;
    if (!block->clean) {
        std::memset(memory, 0, size);
        return;
    }
    Inner inner(block);
    if (inner.begin > memory) std::memset(memory, 0, std::min(inner.begin, end) - memory);
    if (inner.end < end) std::memset(inner.end, 0, end - inner.end);
}

void limit_to(Block* block, size_t size) {
    unpoison(memory_of(block), size);
    poison((char*)memory_of(block) + size, class_size(block->size_class) - size);
}

// Memory of at least `size` bytes; null if it is not for this allocator.
void* allocate(size_t size, bool zeroed) {
    if (region == nullptr || size > largest - redzone) return nullptr;
    int size_class = class_of(size + redzone);
    Block* block;
    bool used_before;
    {
        Locked lock;
        block = take_cached(size_class);
        used_before = block != nullptr;
        if (block == nullptr) block = make_fresh(size_class);
        if (block == nullptr) return nullptr;
        stats.requests++;
        stats.live += class_size(block->size_class);
        stats.peak = std::max(stats.peak, stats.live);
    }
    limit_to(block, size);
    if (zeroed && used_before) fill_with_zeros(block, size);
    return memory_of(block);
}

void release(void* memory) {
    Block* block = block_of(memory);
    size_t size = class_size(block->size_class);
    poison(memory, size);
    Locked lock;
    stats.live -= size;
    stats.cached += size;
    link(block);
    if (stats.cached > cache_limit) shrink_cache(cache_limit);
}

void before_fork() { pthread_mutex_lock(&mutex); }
void after_fork() { pthread_mutex_unlock(&mutex); }

// The memory of the machine, or of the container if that has less.
size_t memory_of_machine() {
    size_t bytes = (size_t)sysconf(_SC_PHYS_PAGES) * page;
    if (FILE* file = std::fopen("/sys/fs/cgroup/memory.max", "re")) {
        size_t limit;
        if (std::fscanf(file, "%zu", &limit) == 1) bytes = std::min(bytes, limit);
        std::fclose(file);
    }
    return bytes;
}

void reserve_region() {
    void* memory = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;  // under a limit on address space: malloc does the work
    region = frontier = (char*)memory;
    region_end = region + reserved;
    cache_limit = memory_of_machine() / 4;
    pthread_atfork(before_fork, after_fork, after_fork);
}

// ------------------------------------------------------------------------------------------------- NumPy's handler
PyDataMem_Handler* numpy_handler;    // what NumPy came with
PyDataMemAllocator numpy_allocator;  // its functions

void* numpy_malloc(void*, size_t size) {
    if (size >= smallest)
        if (void* memory = allocate(size, false)) return memory;
    return numpy_allocator.malloc(numpy_allocator.ctx, size);
}

void* numpy_calloc(void*, size_t count, size_t size) {
    size_t total;
    if (!__builtin_mul_overflow(count, size, &total) && total >= smallest)
        if (void* memory = allocate(total, true)) return memory;
    return numpy_allocator.calloc(numpy_allocator.ctx, count, size);
}

void numpy_free(void*, void* memory, size_t size) {
    if (is_ours(memory)) return release(memory);
    numpy_allocator.free(numpy_allocator.ctx, memory, size);
}

void* numpy_realloc(void*, void* memory, size_t size) {
    if (memory == nullptr) return numpy_malloc(nullptr, size);
    if (!is_ours(memory)) return numpy_allocator.realloc(numpy_allocator.ctx, memory, size);
    size_t usable = class_size(block_of(memory)->size_class);
    if (size + redzone <= usable) return limit_to(block_of(memory), size), memory;
    void* moved = numpy_malloc(nullptr, size);
    if (moved == nullptr) return nullptr;
    unpoison(memory, usable);
    std::memcpy(moved, memory, usable);
    release(memory);
    return moved;
}

PyDataMem_Handler caching_handler = {
    "flambeau_caching_allocator", 1, {nullptr, numpy_malloc, numpy_calloc, numpy_realloc, numpy_free},
};

bool replace_numpy_handler() {
    numpy_handler = (PyDataMem_Handler*)PyCapsule_GetPointer(PyDataMem_DefaultHandler, "mem_handler");
    if (numpy_handler == nullptr) return false;
    if (numpy_handler->version != 1) return true;  // a NumPy to come: leave it alone
    numpy_allocator = numpy_handler->allocator;
    return PyCapsule_SetPointer(PyDataMem_DefaultHandler, &caching_handler) == 0;
}

// ------------------------------------------------------------------------------------------------ the Python surface
PyObject* memory_stats(PyObject*, PyObject*) {
    Stats now;
    {
        Locked lock;
        now = stats;
    }
    return Py_BuildValue("{sn sn sn sn sn sn sn sn}", "live", now.live, "peak", now.peak, "cached", now.cached, "requests",
                         now.requests, "reused", now.reused, "fresh", now.fresh, "evicted", now.evicted, "limit",
                         cache_limit);
}

PyObject* empty_cache(PyObject*, PyObject*) {
    Py_BEGIN_ALLOW_THREADS;
    {
        Locked lock;
        shrink_cache(0);
    }
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

PyObject* set_cache_limit(PyObject*, PyObject* bytes) {
    Py_ssize_t limit = PyLong_AsSsize_t(bytes);
    if (limit == -1 && PyErr_Occurred()) return nullptr;
    if (limit < 0) return PyErr_Format(PyExc_ValueError, "set_cache_limit(): expected bytes >= 0, got %zd", limit);
    Locked lock;
    cache_limit = (size_t)limit;
    shrink_cache(cache_limit);
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"memory_stats", memory_stats, METH_NOARGS,
     "memory_stats() -> dict\n\nBytes live, at peak, cached, and the limit of the cache; counts of requests, of those served "
     "from the cache, of fresh blocks and of evictions. Arrays under 1 KB are not counted."},
    {"empty_cache", empty_cache, METH_NOARGS, "empty_cache()\n\nGive the memory of cached blocks back to the system."},
    {"set_cache_limit", set_cache_limit, METH_O, "set_cache_limit(bytes)\n\nKeep at most this much freed memory."},
    {nullptr},
};

}  // namespace

void* cache_alloc(size_t size) {
    if (void* memory = allocate(size, false)) return memory;
    void* memory = nullptr;
    return posix_memalign(&memory, alignment, size) == 0 ? memory : nullptr;
}

void cache_free(void* memory) {
    if (is_ours(memory)) return release(memory);
    std::free(memory);
}

void add_alloc(PyObject* module) {
    if (region == nullptr) {
        reserve_region();
        if (region != nullptr && !replace_numpy_handler()) return;
    }
    PyModule_AddFunctions(module, methods);
}
