// A caching allocator for array memory.
//
// glibc gives large blocks back to the kernel when they are freed, so an expression that makes a fresh 12 MB result each time
// pays thousands of page faults for it, which cost several times the arithmetic. Here freed blocks are kept in lists by size
// class and handed out again with their pages in place; large ones ask for huge pages. Blocks are 64-byte aligned.
//
// Where blocks come from depends on their size. Small ones are cut from spans of one class, which count those in use; medium ones
// from chunks, which do so too; a large one is a mapping of its own. All of these begin at granules of 2 MB that a bitmap of the
// address space marks as ours. So a pointer tells by itself whether it is, and NumPy's default handler can be replaced in place, for all threads
// and contexts: arrays that NumPy made before go back to malloc. (PyDataMem_SetHandler sets a context variable: other threads, and
// later notebook cells, would not see it.) No address space is reserved: a limit on it (RLIMIT_AS) may come at any time.
//
// What is kept is given back to the system: beyond `cache_limit` at once; when a fresh block would make the process larger than its
// blocks have been at one time; when nothing was asked of the allocator for a second, or
// not of a block for ten, by a thread that lives only while there is something to give back; and at gc.collect(). More than the
// system has is refused, though it would promise it.
#include "alloc.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "memory.h"
#include "module.h"
#include "numpy_api.h"
#include "recorder.h"

namespace {

constexpr size_t alignment = 64;
constexpr size_t page = 4096;
constexpr size_t granule = size_t(2) << 20;  // also the size of a huge page
constexpr size_t smallest = 1024;            // NumPy has a cache of its own for smaller ones
constexpr size_t largest = size_t(1) << 46;
constexpr size_t span_size = 256 << 10, chunk_size = 16 * granule;
constexpr size_t at_once = size_t(64) << 20;  // given back while others wait
constexpr size_t checked = size_t(64) << 20;  // fresh blocks from here on are compared with what the system has
constexpr int steps = 4;                      // size classes to a power of two
constexpr int small_classes = 5 * steps + 1;  // 1 KB ... 32 KB
constexpr int medium_classes = 11 * steps;    // ... below 2 MB
constexpr int classes = 36 * steps + 1;       // ... 64 TB, see class_of

// Stands in the 64 bytes before the memory that is handed out.
struct Block {
    Block *newer, *older;  // all cached blocks by time of release, the small ones excepted
    Block *above, *below;  // cached blocks of this class, last released on top
    uint32_t size_class;
    uint32_t released;  // when, in ticks
    bool clean;         // its inner pages are known to be zero
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
// Blocks of one small class, one after the other; stands at their beginning, at a multiple of its size.
struct Span {
    Span *newer, *older;  // those without a block in use, by time of the last release
    uint32_t size_class, cut, live, released;
};
static_assert(sizeof(Span) <= alignment);

// Medium blocks, one after the other; stands at their beginning, at a multiple of its size.
struct Chunk {
    Chunk* older;    // in the list of free ones
    char* end;       // of what was cut
    uint32_t warm;   // blocks that are in use or cached with their pages
    bool dirty;      // it was used before, and the system did not take its pages
};
static_assert(sizeof(Chunk) <= alignment);

struct Stats {
    size_t live, peak, cached, requests, reused, fresh, evicted;
};

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Chunk *open_chunk, *free_chunks;               // blocks are cut from the one; the others are without pages
char *span_frontier, *span_end;                // of the last granule that spans are cut from
Block *newest, *oldest;
Span *newest_idle, *oldest_idle, *free_spans;  // free ones: without pages, linked by `older`
Span* open_span[small_classes];                // blocks are cut from these
Block* top[classes];                           // cached, pages in place
Block* cold[classes];                          // evicted medium ones
size_t cold_blocks;                            // of which the page with the header is left
Stats stats;
size_t cache_limit;
uint32_t now;  // in ticks of the keeper
uint64_t ours[(size_t(1) << 48) / granule / 64];  // a bit for each granule that blocks begin in

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
Span* span_of(Block* block) { return (Span*)((uintptr_t)block / span_size * span_size); }
Chunk* chunk_of(Block* block) { return (Chunk*)((uintptr_t)block / chunk_size * chunk_size); }
bool is_small(const Block* block) { return block->size_class < small_classes; }
bool is_large(const Block* block) { return block->size_class >= medium_classes; }

bool is_ours(const void* memory) {
    uintptr_t at = (uintptr_t)memory / granule;
    return at / 64 < std::size(ours) && (__atomic_load_n(&ours[at / 64], __ATOMIC_RELAXED) >> at % 64 & 1);
}

void mark(char* begin, size_t size, bool flag) {
    for (uintptr_t at = (uintptr_t)begin / granule; at < ((uintptr_t)begin + size) / granule; at++) {
        uint64_t bit = uint64_t(1) << at % 64;
        if (flag) __atomic_fetch_or(&ours[at / 64], bit, __ATOMIC_RELAXED);
        else __atomic_fetch_and(&ours[at / 64], ~bit, __ATOMIC_RELAXED);
    }
}

// ----------------------------------------------------------------------------------------------------- the system's memory
// Fresh zeroed pages at a multiple of `multiple`; null where the system has none.
char* map(size_t size, size_t multiple = granule) {
    size_t spare = size + multiple - page;
    char* memory = (char*)mmap(nullptr, spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    char* begin = (char*)(((uintptr_t)memory + multiple - 1) / multiple * multiple);
    char* end = begin + size;
    if (begin > memory) munmap(memory, begin - memory);
    if (end < memory + spare) munmap(end, memory + spare - end);
    return begin;
}

// Chunks and granules for spans stay ours for good.
char* map_marked(size_t size) {
    char* begin = map(size, size);
    if (begin != nullptr) mark(begin, size, true);
    return begin;
}

size_t bytes_of_large(int size_class) { return (class_size(size_class) + alignment + page - 1) / page * page; }

// ------------------------------------------------------------------------------------------------------------ cached blocks
void link_class(Block* block, Block** first = top) {
    block->above = nullptr;
    block->below = first[block->size_class];
    if (block->below) block->below->above = block;
    first[block->size_class] = block;
}

void unlink_class(Block* block, Block** first = top) {
    (block->above ? block->above->below : first[block->size_class]) = block->below;
    if (block->below) block->below->above = block->above;
}

// At the young end of the list of blocks, or of spans, by time of release.
template <class Item>
void link_time(Item* item, Item*& newest, Item*& oldest) {
    item->newer = nullptr;
    item->older = newest;
    (newest ? newest->newer : oldest) = item;
    newest = item;
    item->released = now;
}

template <class Item>
void unlink_time(Item* item, Item*& newest, Item*& oldest) {
    (item->newer ? item->newer->older : newest) = item->older;
    (item->older ? item->older->newer : oldest) = item->newer;
}

void link(Block* block) {
    link_class(block);
    if (!is_small(block)) return link_time(block, newest, oldest);
    Span* span = span_of(block);
    if (--span->live == 0) link_time(span, newest_idle, oldest_idle);
}

void unlink(Block* block) {
    unlink_class(block);
    if (!is_small(block)) return unlink_time(block, newest, oldest);
    Span* span = span_of(block);
    if (span->live++ == 0) unlink_time(span, newest_idle, oldest_idle);
}

// The whole pages of a block past its header: what can be given back to the kernel without touching anything else.
struct Inner {
    char *begin, *end;
    explicit Inner(Block* block) {
        begin = (char*)(((uintptr_t)block + sizeof(Block) + page - 1) / page * page);
        end = (char*)(((uintptr_t)memory_of(block) + class_size(block->size_class)) / page * page);
    }
};

// Takes what is left from a chunk whose blocks are all cold: the pages that their headers are in.
void empty(Chunk* chunk) {
    char* at = (char*)chunk + alignment;
    while (at < chunk->end) {
        Block* block = (Block*)at;
        at += class_size(block->size_class) + alignment;
        unlink_class(block, cold);
        cold_blocks--;
    }
    unpoison(chunk, chunk_size);
    chunk->dirty = madvise((char*)chunk + page, chunk_size - page, MADV_DONTNEED) != 0;
    chunk->end = (char*)chunk + alignment;
    if (chunk == open_chunk) return;
    chunk->older = free_chunks;
    free_chunks = chunk;
}

// Takes the pages from a cached block. A medium one is used again when its class has no warm one.
void evict(Block* block) {
    unlink(block);
    stats.cached -= class_size(block->size_class);
    stats.evicted++;
    if (is_large(block)) {
        mark((char*)block, granule, false);
        unpoison(block, bytes_of_large(block->size_class));
        munmap(block, bytes_of_large(block->size_class));
        return;
    }
    Inner inner(block);
    block->clean = madvise(inner.begin, inner.end - inner.begin, MADV_DONTNEED) == 0;
    link_class(block, cold);
    cold_blocks++;
    if (--chunk_of(block)->warm == 0) empty(chunk_of(block));
}

Block* block_in(Span* span, int i) { return (Block*)((char*)span + alignment + i * (class_size(span->size_class) + alignment)); }

// Takes the pages from a span whose blocks are all cached.
void evict(Span* span) {
    unlink_time(span, newest_idle, oldest_idle);
    for (uint32_t i = 0; i < span->cut; i++) unlink_class(block_in(span, i));
    stats.cached -= span->cut * class_size(span->size_class);
    stats.evicted += span->cut;
    if (open_span[span->size_class] == span) open_span[span->size_class] = nullptr;
    madvise((char*)span + page, span_size - page, MADV_DONTNEED);
    unpoison(span, span_size);
    span->older = free_spans;
    free_spans = span;
}

// Gives back what was not used for `idle` ticks while more than `limit` is kept, or until `most` bytes are given back.
void shrink_cache(size_t limit, uint32_t idle = 0, size_t most = SIZE_MAX) {
    size_t target = most < stats.cached ? std::max(limit, stats.cached - most) : limit;
    while (oldest != nullptr && stats.cached > target && now - oldest->released >= idle) evict(oldest);
    while (oldest_idle != nullptr && stats.cached > target && now - oldest_idle->released >= idle) evict(oldest_idle);
}

// ------------------------------------------------------------------------------------------------------------- taking blocks
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
        unlink_class(block, cold);
        cold_blocks--;
        chunk_of(block)->warm++;
        return block;
    }
    return nullptr;
}

Span* make_span(int size_class) {
    Span* span = free_spans;
    if (span != nullptr) {
        free_spans = span->older;
    } else {
        if (span_frontier == span_end) {
            span_frontier = map_marked(granule);
            span_end = span_frontier ? span_frontier + granule : nullptr;
            if (span_frontier == nullptr) return nullptr;
        }
        span = (Span*)span_frontier;
        span_frontier += span_size;
    }
    span->size_class = size_class;
    span->cut = span->live = 0;
    return open_span[size_class] = span;
}

Block* cut_small(int size_class) {
    Span* span = open_span[size_class];
    size_t step = class_size(size_class) + alignment;
    if (span == nullptr || alignment + (span->cut + 1) * step > span_size) span = make_span(size_class);
    if (span == nullptr) return nullptr;
    if (span->live == 0 && span->cut > 0) unlink_time(span, newest_idle, oldest_idle);
    span->live++;
    return block_in(span, span->cut++);
}

Chunk* make_chunk() {
    Chunk* chunk = free_chunks;
    if (chunk != nullptr) {
        free_chunks = chunk->older;
    } else {
        chunk = (Chunk*)map_marked(chunk_size);
        if (chunk == nullptr) return nullptr;
        chunk->end = (char*)chunk + alignment;
    }
    return open_chunk = chunk;
}

Block* cut_medium(int size_class) {
    size_t size = class_size(size_class) + alignment;
    Chunk* chunk = open_chunk;
    if (chunk == nullptr || chunk->end + size > (char*)chunk + chunk_size) chunk = make_chunk();
    if (chunk == nullptr) return nullptr;
    Block* block = (Block*)chunk->end;
    chunk->end += size;
    chunk->warm++;
    block->clean = !chunk->dirty;
    return block;
}

// Whether the system has `size` bytes more. What is untouched yet was promised all the same.
bool has_room(size_t size) {
    if (size < checked) return true;
    SystemMemory memory = system_memory();
    return size <= memory.free && size <= memory.total - std::min(memory.total, stats.live);
}

Block* map_large(int size_class) {
    size_t size = bytes_of_large(size_class);
    char* begin = has_room(size) ? map(size) : nullptr;
    if (begin == nullptr && (oldest != nullptr || oldest_idle != nullptr)) {
        shrink_cache(0);
        begin = has_room(size) ? map(size) : nullptr;
    }
    if (begin == nullptr) return nullptr;
    mark(begin, granule, true);  // where its memory begins
    madvise(begin, size / granule * granule, MADV_HUGEPAGE);
    return (Block*)begin;
}

Block* make_fresh(int size_class) {
    Block* block = size_class < small_classes    ? cut_small(size_class)
                   : size_class < medium_classes ? cut_medium(size_class)
                                                 : map_large(size_class);
    if (block == nullptr) return nullptr;
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

// Before a fresh block is made: what is kept must not make the process larger than its blocks have been at one time.
void make_room(size_t size) {
    size_t most = std::max(stats.peak, stats.live + size) + at_once;
    if (stats.live + stats.cached + size > most) shrink_cache(most - stats.live - size);
}

// Memory of at least `size` bytes; null where there is none.
void* allocate(size_t size, bool zeroed) {
    if (size > largest - redzone) return nullptr;
    int size_class = class_of(size + redzone);
    Block* block;
    bool used_before;
    {
        Locked lock;
        block = take_cached(size_class);
        used_before = block != nullptr;
        if (block == nullptr) make_room(class_size(size_class)), block = make_fresh(size_class);
        if (block == nullptr) return nullptr;
        if (!used_before && is_small(block)) block->clean = false;  // in a span that was, perhaps
        used_before |= !is_large(block);
        stats.requests++;
        stats.live += class_size(block->size_class);
        stats.peak = std::max(stats.peak, stats.live);
    }
    limit_to(block, size);
    if (zeroed && used_before) fill_with_zeros(block, size);
    return memory_of(block);
}

// -------------------------------------------------------------------------------------------------------------- giving back
constexpr size_t kept_idle = size_t(32) << 20;  // not worth giving back
constexpr long tick = 250'000'000;              // nanoseconds
constexpr uint32_t idle_ticks = 4, old_ticks = 40;

pthread_t keeper;
pthread_cond_t keeper_wakes;
bool keeper_runs, keeper_to_join, keeper_must_stop;

void wait_a_tick() {
    timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += tick;
    if (until.tv_nsec >= 1'000'000'000) until.tv_sec++, until.tv_nsec -= 1'000'000'000;
    pthread_cond_timedwait(&keeper_wakes, &mutex, &until);
    now++;
}

// What glibc keeps of freed memory goes back too, if that is much.
void trim_malloc() {
    if (mallinfo2().fordblks > kept_idle) malloc_trim(0);
}

void* keep(void*) {
    size_t seen = 0;
    uint32_t quiet = 0;
    pthread_mutex_lock(&mutex);
    while (!keeper_must_stop && stats.cached > kept_idle) {
        wait_a_tick();
        quiet = stats.requests == seen ? quiet + 1 : 0;
        seen = stats.requests;
        for (size_t before = 0; before != stats.cached && !keeper_must_stop;) {
            before = stats.cached;
            shrink_cache(kept_idle, quiet >= idle_ticks ? 0 : old_ticks, at_once);
            pthread_mutex_unlock(&mutex);  // let the others in
            sched_yield();
            pthread_mutex_lock(&mutex);
        }
        if (quiet == idle_ticks) {
            pthread_mutex_unlock(&mutex);
            trim_malloc();
            pthread_mutex_lock(&mutex);
        }
        if (oldest == nullptr && oldest_idle == nullptr) break;  // the rest is in spans that are in use
    }
    keeper_runs = false;
    pthread_mutex_unlock(&mutex);
    return nullptr;
}

void join_keeper() {
    if (keeper_to_join) pthread_join(keeper, nullptr);
    keeper_to_join = false;
}

void start_keeper() {
    join_keeper();  // it has left its last locked section
    sigset_t all, before;
    sigfillset(&all);  // signals are for Python's threads
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    keeper_must_stop = false;
    keeper_runs = keeper_to_join = pthread_create(&keeper, &attributes, keep, nullptr) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!keeper_runs) shrink_cache(kept_idle);
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
    if (stats.cached > kept_idle && !keeper_runs) start_keeper();
}

// A child has none of the threads; so that none is lost in the middle of something, there is none at a fork.
void before_fork() {
    pthread_mutex_lock(&mutex);
    keeper_must_stop = true;
    pthread_cond_signal(&keeper_wakes);
    while (keeper_runs) {
        pthread_mutex_unlock(&mutex);
        sched_yield();
        pthread_mutex_lock(&mutex);
    }
    join_keeper();
}
void after_fork_in_child() { pthread_mutex_unlock(&mutex); }
void after_fork() {
    if (stats.cached > kept_idle) start_keeper();
    pthread_mutex_unlock(&mutex);
}

void prepare() {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&keeper_wakes, &attributes);
    pthread_condattr_destroy(&attributes);
    cache_limit = system_memory().total / 4;
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

// ------------------------------------------------------------------------------------------------- NumPy's handler
PyDataMem_Handler* numpy_handler;    // what NumPy came with
PyDataMemAllocator numpy_allocator;  // its functions

// Where the system gives no pages, malloc may still have some; a large block that was refused is refused for good.
void* or_malloc(void* memory, size_t size, bool zeroed) {
    if (memory != nullptr || size > class_size(medium_classes - 1)) return memory;
    return zeroed ? numpy_allocator.calloc(numpy_allocator.ctx, 1, size) : numpy_allocator.malloc(numpy_allocator.ctx, size);
}

void* numpy_malloc(void*, size_t size) {
    if (size >= smallest) return taken(or_malloc(allocate(size, false), size, false), size);
    return taken(numpy_allocator.malloc(numpy_allocator.ctx, size), size);
}

void* numpy_calloc(void*, size_t count, size_t size) {
    size_t total;
    if (!__builtin_mul_overflow(count, size, &total) && total >= smallest)
        return taken(or_malloc(allocate(total, true), total, true), total);
    return taken(numpy_allocator.calloc(numpy_allocator.ctx, count, size), count * size);
}

void numpy_free(void*, void* memory, size_t size) {
    given_back(memory);
    if (is_ours(memory)) return release(memory);
    numpy_allocator.free(numpy_allocator.ctx, memory, size);
}

void* numpy_realloc(void*, void* memory, size_t size) {
    if (memory == nullptr) return numpy_malloc(nullptr, size);
    if (!is_ours(memory)) {
        given_back(memory);
        return taken(numpy_allocator.realloc(numpy_allocator.ctx, memory, size), size);
    }
    size_t usable = class_size(block_of(memory)->size_class);
    if (size + redzone <= usable) return limit_to(block_of(memory), size), memory;
    void* moved = numpy_malloc(nullptr, size);
    if (moved == nullptr) return nullptr;
    unpoison(memory, usable);
    std::memcpy(moved, memory, usable);
    given_back(memory);
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
    trim_malloc();
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

// Called by the garbage collector: collected(phase, info). After a full collection nothing is kept for programs to come.
PyObject* collected(PyObject*, PyObject* args) {
    PyObject *phase, *info;
    if (!PyArg_ParseTuple(args, "UO!", &phase, &PyDict_Type, &info)) return nullptr;
    PyObject* generation = PyDict_GetItemString(info, "generation");
    if (generation == nullptr || PyLong_AsLong(generation) != 2 || PyUnicode_CompareWithASCIIString(phase, "stop") != 0) Py_RETURN_NONE;
    if (stats.cached + cold_blocks * page > kept_idle) return empty_cache(nullptr, nullptr);
    trim_malloc();
    Py_RETURN_NONE;
}

// An array over an open file's first bytes, which every process that maps it sees. The mapping ends with the array.
PyObject* map_shared(PyObject*, PyObject* args) {
    int file;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "in", &file, &size)) return nullptr;
    if (size < 1) return PyErr_Format(PyExc_ValueError, "map_shared(): expected a size of at least 1, got %zd", size);
    void* memory = mmap(nullptr, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) return PyErr_SetFromErrno(PyExc_OSError);
    PyObject* owner = PyCapsule_New(memory, nullptr, [](PyObject* capsule) {
        munmap(PyCapsule_GetPointer(capsule, nullptr), (size_t)PyCapsule_GetContext(capsule));
    });
    if (owner == nullptr) return munmap(memory, (size_t)size), nullptr;
    PyCapsule_SetContext(owner, (void*)size);
    npy_intp shape[] = {size};
    PyObject* array = PyArray_SimpleNewFromData(1, shape, NPY_UINT8, memory);
    if (array == nullptr || PyArray_SetBaseObject((PyArrayObject*)array, owner) < 0) return Py_XDECREF(array), nullptr;
    return array;
}

PyObject* free_memory(PyObject*, PyObject*) {
    SystemMemory memory = system_memory();
    size_t promised;
    {
        Locked lock;
        promised = stats.live, memory.free += stats.cached;
    }
    return PyLong_FromSize_t(std::min(memory.free, memory.total - std::min(memory.total, promised)));
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
    {"collected", collected, METH_VARARGS, "collected(phase, info)\n\nFor gc.callbacks: empty_cache() after a full collection."},
    {"free_memory", free_memory, METH_NOARGS, "free_memory() -> int\n\nHow many bytes the largest array could have now."},
    {"map_shared", map_shared, METH_VARARGS,
     "map_shared(file, size) -> uint8 array\n\nOver an open file's first bytes, shared with all that map it."},
    {"set_cache_limit", set_cache_limit, METH_O, "set_cache_limit(bytes)\n\nKeep at most this much freed memory."},
    {nullptr},
};

}  // namespace

void* cache_alloc(size_t size) {
    void* memory = allocate(size, false);
    if (memory == nullptr && size <= class_size(medium_classes - 1) && posix_memalign(&memory, alignment, size) != 0) return nullptr;
    return taken(memory, size);
}

void cache_free(void* memory) {
    given_back(memory);
    if (is_ours(memory)) return release(memory);
    std::free(memory);
}

void add_alloc(PyObject* module) {
    if (cache_limit == 0) {
        prepare();
        if (!replace_numpy_handler()) return;
    }
    PyModule_AddFunctions(module, methods);
}
