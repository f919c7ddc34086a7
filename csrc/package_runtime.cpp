// What the shared library of an ahead-of-time package stands on, in the place of the Python module: memory, threads, the functions
// that generated code finds, and a run (flambeau/include/package.h). Linked into each such library, with the oneDNN bridge.
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "alloc.h"
#include "fork_lock.h"
#include "host.h"
#include "onednn_ops.h"
#include "package.h"
#include "philox.h"
#include "split_attention.h"
#include "threads.h"

std::atomic<unsigned> forks{0};

namespace {

const int forks_counted = pthread_atfork(nullptr, nullptr, [] { forks++; });

thread_local int threads = 1;  // of the run that this thread is in

// ---- memory: freed blocks are kept by their size, but never so many that there is more than has been in use at one time ----

constexpr size_t alignment = 64;  // before each block stands its size

struct Blocks {
    std::mutex mutex;
    std::multimap<size_t, void*> free;
    size_t live = 0, cached = 0, peak = 0;
};
Blocks& blocks = *new Blocks;  // never destroyed: results may outlive everything

size_t rounded(size_t size) {  // to one of eight sizes between powers of two
    size_t step = alignment;
    while (step * 16 < size) step *= 2;
    return (std::max<size_t>(size, 1) + step - 1) / step * step;
}

size_t& size_of(void* memory) { return *(size_t*)((char*)memory - alignment); }

}  // namespace

void* cache_alloc(size_t size) {
    size = rounded(size);
    std::lock_guard<std::mutex> guard(blocks.mutex);
    auto found = blocks.free.find(size);
    if (found != blocks.free.end()) {
        void* memory = found->second;
        blocks.free.erase(found);
        blocks.cached -= size, blocks.live += size;
        return memory;
    }
    if (blocks.live + blocks.cached + size > blocks.peak) {
        for (auto& [bytes, memory] : blocks.free) std::free((char*)memory - alignment);
        blocks.free.clear();
        blocks.cached = 0;
    }
    void* start = nullptr;
    if (posix_memalign(&start, alignment, size + alignment) != 0) return nullptr;
    blocks.live += size;
    blocks.peak = std::max(blocks.peak, blocks.live);
    void* memory = (char*)start + alignment;
    size_of(memory) = size;
    return memory;
}

void cache_free(void* memory) {
    if (memory == nullptr) return;
    std::lock_guard<std::mutex> guard(blocks.mutex);
    size_t size = size_of(memory);
    blocks.live -= size, blocks.cached += size;
    blocks.free.emplace(size, memory);
}

int thread_count() { return threads; }

namespace {

// ---- what generated kernels find ----

void* find(const char* name) {
    const struct {
        const char* name;
        void* function;
    } known[] = {{"onednn_run", (void*)onednn_run},
                 {"onednn_create", (void*)onednn_create},
                 {"onednn_last_error", (void*)onednn_last_error},
                 {"philox_run", (void*)philox_run},
                 {"attention_run", (void*)attention_run}};
    for (const auto& entry : known)
        if (std::strcmp(entry.name, name) == 0) return entry.function;
    return nullptr;
}

// ---- runs ----

using Held = std::vector<void*>;

struct Session {
    const FlambeauModel* model;
    char* weights;
    std::vector<void*> states;
};

constexpr const char* dtype_names[] = {
#define FL_NAME(code, name, bytes) name,
    FLAMBEAU_DTYPES(FL_NAME)
#undef FL_NAME
};
constexpr int64_t dtype_bytes[] = {
#define FL_BYTES(code, name, bytes) bytes,
    FLAMBEAU_DTYPES(FL_BYTES)
#undef FL_BYTES
};

std::string text_of(int32_t ndim, const int64_t* sizes) {
    std::string text = "[";
    for (int i = 0; i < ndim; i++) text += (i ? ", " : "") + std::to_string(sizes[i]);
    return text + "]";
}

std::string wanted_by(const FlambeauPort& port) {
    std::string text = "[";
    for (int i = 0; i < port.ndim; i++) text += std::string(i ? ", " : "") + port.dims[i];
    return text + "] of " + dtype_names[port.dtype];
}

bool fits(const FlambeauPort& port, const FlambeauTensor& tensor) {
    if (tensor.dtype != port.dtype || tensor.ndim != port.ndim) return false;
    for (int i = 0; i < port.ndim; i++)
        if (port.sizes[i] >= 0 ? tensor.sizes[i] != port.sizes[i] : tensor.sizes[i] < 0) return false;
    return true;
}

int check_inputs(FlambeauFrame& frame) {
    for (int i = 0; i < frame.model->n_inputs; i++) {
        const FlambeauPort& port = frame.model->inputs[i];
        const FlambeauTensor& tensor = frame.inputs[i];
        if (fits(port, tensor)) continue;
        bool known = tensor.dtype >= 0 && tensor.dtype < (int)std::size(dtype_names);
        note_failure(frame.runtime, "input %d, %s, is a tensor of shape %s, got one of %s of %s", i, port.name, wanted_by(port).c_str(),
             text_of(tensor.ndim, tensor.sizes).c_str(), known ? dtype_names[tensor.dtype] : "an unknown dtype");
        return frame.status = FLAMBEAU_BAD_INPUT;
    }
    return 0;
}

int guarded(FlambeauFrame& frame) {
    try {
        if (check_inputs(frame)) return frame.status;
        if (frame.model->call(&frame) == 0) return FLAMBEAU_OK;
    } catch (const std::exception& error) {
        note_failure(frame.runtime, "%s", error.what());
    }
    if (frame.status != FLAMBEAU_OK) return frame.status;
    return frame.runtime->index_error ? FLAMBEAU_BAD_INDEX : FLAMBEAU_FAILED;
}

// Weights are mapped from their file. Pages whose contents oneDNN has packed need not stay, nor what the system mapped around them;
// others come again by themselves.
struct Range {
    const char *start, *end;
    void drop() const {
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        uintptr_t first = ((uintptr_t)start + page - 1) / page * page, last = (uintptr_t)end / page * page;
        if (first < last) madvise((void*)first, last - first, MADV_DONTNEED);
    }
};
std::mutex& mapped_mutex = *new std::mutex;
std::vector<Range>& mapped = *new std::vector<Range>;
std::atomic<bool> packed_some{false};

void let_go(const void* data, size_t bytes) {
    Range part{(const char*)data, (const char*)data + bytes};
    std::lock_guard<std::mutex> guard(mapped_mutex);
    for (const Range& all : mapped)
        if (all.start <= part.start && part.end <= all.end) part.drop();
    packed_some = true;
}

void let_go_around() {
    if (!packed_some.exchange(false)) return;
    std::lock_guard<std::mutex> guard(mapped_mutex);
    for (const Range& all : mapped) all.drop();
}

}  // namespace

void flambeau_open(const FlambeauModel* model, const void* weights, const char* onednn) {
    onednn::set_path(onednn != nullptr ? onednn : "libdnnl.so.3");
    onednn::when_packed(let_go);
    std::lock_guard<std::mutex> guard(mapped_mutex);
    mapped.push_back({(const char*)weights, (const char*)weights + model->weights});
}

void flambeau_close(const FlambeauModel* model, const void* weights) {
    onednn::forget_packed((const char*)weights, model->weights);
    std::lock_guard<std::mutex> guard(mapped_mutex);
    mapped.erase(std::find_if(mapped.begin(), mapped.end(), [&](const Range& all) { return all.start == weights; }));
}

void* flambeau_new_session(const FlambeauModel* model, const void* weights) {
    Session* session = new (std::nothrow) Session{model, (char*)weights, {}};
    if (session == nullptr) return nullptr;
    for (int i = 0; i < model->n_states; i++) {
        session->states.push_back(cache_alloc((size_t)model->states[i].bytes));
        if (session->states.back() == nullptr) return flambeau_end_session(session), nullptr;
        std::memcpy(session->states.back(), (const char*)weights + model->states[i].offset, (size_t)model->states[i].bytes);
    }
    return session;
}

void flambeau_end_session(void* given) {
    Session* session = (Session*)given;
    for (void* state : session->states) cache_free(state);
    delete session;
}

int flambeau_run(void* given, const FlambeauTensor* inputs, FlambeauResult* outputs, int32_t count, char* message, size_t capacity) {
    Session& session = *(Session*)given;
    threads = std::max(1, count);
    FlambeauRuntime runtime;
    begin_runtime(runtime, threads, find);
    Held held;
    for (int i = 0; i < session.model->n_outputs; i++) outputs[i].memory = nullptr;
    FlambeauFrame frame{&runtime, inputs, outputs, session.weights, session.states.data(), session.model, &held, 0};
    int status = guarded(frame);
    for (void* block : held) cache_free(block);
    let_go_around();
    if (status == FLAMBEAU_OK) return status;
    for (int i = 0; i < session.model->n_outputs; i++) cache_free(outputs[i].memory);
    std::snprintf(message, capacity, "%s", runtime.message[0] ? runtime.message : "a run failed without saying why");
    return status;
}

void flambeau_release(void* memory) { cache_free(memory); }

// ---- for generated code ----

void* flambeau_make(FlambeauFrame* frame, int64_t bytes) {
    void* memory = cache_alloc((size_t)bytes);
    if (memory == nullptr) note_failure(frame->runtime, "there is no memory of %ld bytes", (long)bytes);
    else ((Held*)frame->blocks)->push_back(memory);
    return memory;
}

void flambeau_drop(FlambeauFrame* frame, void* memory) {
    Held& held = *(Held*)frame->blocks;
    auto found = std::find(held.begin(), held.end(), memory);
    if (found == held.end()) return;
    held.erase(found);
    cache_free(memory);
}

int flambeau_require(FlambeauFrame* frame, int holds, const char* text) {
    if (holds) return 0;
    std::string seen;
    for (int i = 0; i < frame->model->n_inputs; i++)
        seen += std::string(i ? ", " : "") + frame->model->inputs[i].name + " " + text_of(frame->inputs[i].ndim, frame->inputs[i].sizes);
    note_failure(frame->runtime, "the inputs have to keep to %s; got %s", text, seen.c_str());
    return frame->status = FLAMBEAU_BAD_INPUT;
}

void flambeau_copy(int32_t ndim, const int64_t* sizes, int64_t itemsize, void* dst, const int64_t* to, const void* src, const int64_t* from) {
    if (ndim == 0) {
        std::memcpy(dst, src, (size_t)itemsize);
        return;
    }
    bool line = ndim == 1 && (sizes[0] == 1 || (to[0] == 1 && from[0] == 1));
    if (line) {
        std::memcpy(dst, src, (size_t)(sizes[0] * itemsize));
        return;
    }
    for (int64_t i = 0; i < sizes[0]; i++)
        flambeau_copy(ndim - 1, sizes + 1, itemsize, (char*)dst + i * to[0] * itemsize, to + 1, (const char*)src + i * from[0] * itemsize,
                      from + 1);
}

void* flambeau_fit(FlambeauFrame* frame, int32_t k, const int64_t* strides) {
    const FlambeauTensor& tensor = frame->inputs[k];
    bool same = true, empty = false;
    int64_t last = 0;
    for (int i = 0; i < tensor.ndim; i++) {
        empty |= tensor.sizes[i] == 0;
        same &= tensor.sizes[i] == 1 || tensor.strides[i] == strides[i];
        last += (tensor.sizes[i] - 1) * strides[i];
    }
    int64_t itemsize = dtype_bytes[tensor.dtype];
    if (empty) return flambeau_make(frame, 1);
    if (same && (uintptr_t)tensor.data % (uintptr_t)itemsize == 0) return tensor.data;
    void* copy = flambeau_make(frame, (last + 1) * itemsize);
    if (copy != nullptr) flambeau_copy(tensor.ndim, tensor.sizes, itemsize, copy, strides, tensor.data, tensor.strides);
    return copy;
}

int flambeau_give(FlambeauFrame* frame, int32_t k, void* block, void* data, const int64_t* sizes, const int64_t* strides) {
    FlambeauResult& out = frame->outputs[k];
    const FlambeauPort& port = frame->model->outputs[k];
    out.dtype = port.dtype, out.ndim = port.ndim;
    std::copy_n(sizes, port.ndim, out.sizes);
    Held& held = *(Held*)frame->blocks;
    auto own = std::find(held.begin(), held.end(), block);
    if (own != held.end()) {
        held.erase(own);
        out.memory = block, out.data = data;
        std::copy_n(strides, port.ndim, out.strides);
        return 0;
    }
    int64_t count = 1;
    for (int i = port.ndim - 1; i >= 0; i--) out.strides[i] = count, count *= sizes[i];
    out.memory = out.data = cache_alloc((size_t)(count * dtype_bytes[port.dtype]));
    if (out.memory == nullptr) return note_failure(frame->runtime, "there is no memory for output %d, %s", k, port.name);
    if (count > 0) flambeau_copy(port.ndim, sizes, dtype_bytes[port.dtype], out.data, out.strides, data, strides);
    return 0;
}
