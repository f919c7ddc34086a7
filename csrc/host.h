// What generated code is given to run with (runtime.h), by the module and by packages alike.
#pragma once
#include <cstdarg>
#include <cstdio>

#include "alloc.h"
#include "runtime.h"

inline int note_failure(FlambeauRuntime* runtime, const char* format, ...) {
    va_list values;
    va_start(values, format);
    std::vsnprintf(runtime->message, sizeof runtime->message, format, values);
    va_end(values);
    return 1;
}

inline int note_index(FlambeauRuntime* runtime, int64_t index, int64_t size) {
    runtime->index_error = 1;
    return note_failure(runtime, "index %ld is out of bounds for dimension with size %ld", (long)index, (long)size);
}

// All fields but the text of the message, which is long.
inline void begin_runtime(FlambeauRuntime& runtime, int threads, void* (*find)(const char*)) {
    runtime.version = FLAMBEAU_RUNTIME_VERSION;
    runtime.num_threads = threads;
    runtime.alloc = cache_alloc;
    runtime.free = cache_free;
    runtime.find = find;
    runtime.fail = note_failure;
    runtime.out_of_bounds = note_index;
    runtime.index_error = 0;
    runtime.message[0] = 0;
    runtime.laps = nullptr;
}
