/* What a generated kernel library may use of the process that runs it. Plain C: generated code includes this text.
 *
 * A library exports   extern "C" int run(void** args, const int64_t* scalars, void* runtime);
 *   args     data pointers of the arrays, in the order that its caller agreed on with the code generator
 *   scalars  sizes and other integers; a Python float arrives as the bits of a double
 *   runtime  a FlambeauRuntime, valid for this call only
 *   returns  0, or anything else after runtime->fail(runtime, "what went wrong")
 */
#ifndef FLAMBEAU_RUNTIME_H
#define FLAMBEAU_RUNTIME_H
#include <stddef.h>
#include <stdint.h>

#define FLAMBEAU_RUNTIME_VERSION 3

typedef struct FlambeauRuntime FlambeauRuntime;

struct FlambeauRuntime {
    int32_t version;     /* FLAMBEAU_RUNTIME_VERSION */
    int32_t num_threads; /* for `#pragma omp parallel num_threads(...)` */
    /* 64-byte aligned memory with arbitrary contents, from the allocator that arrays use; null when there is none. */
    void* (*alloc)(size_t bytes);
    void (*free)(void* memory);
    /* A function that another part of Flambeau has registered (the oneDNN bridge: see its header), or null. */
    void* (*find)(const char* name);
    /* Notes a message (printf's format) and returns 1, for `return runtime->fail(runtime, ...)`. */
    int (*fail)(FlambeauRuntime* runtime, const char* format, ...);
    /* Notes an index that is out of bounds of a dimension, which becomes an IndexError, and returns 1. */
    int (*out_of_bounds)(FlambeauRuntime* runtime, int64_t index, int64_t size);
    int32_t index_error; /* whether the message is of that kind */
    char message[512];
    int64_t* laps;       /* while somebody watches: where the time after each kernel and library call goes, in order; else null */
};

typedef int (*FlambeauRun)(void** args, const int64_t* scalars, void* runtime);

#ifdef FLAMBEAU_NATIVE_MODULE
/* Makes `function` known to generated code as `name` (a string constant). For the add_xxx functions of csrc/. */
#ifdef __cplusplus
extern "C"
#endif
void flambeau_register(const char* name, void* function);
#endif
#endif
