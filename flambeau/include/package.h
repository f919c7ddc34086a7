/* What the shared library of an ahead-of-time package and its loader (aoti.h) say to each other. Plain C, so that they may come
 * from different compilers. The library exports   const FlambeauModel* flambeau_model(void);
 */
#ifndef FLAMBEAU_PACKAGE_H
#define FLAMBEAU_PACKAGE_H
#include <stddef.h>
#include <stdint.h>

#define FLAMBEAU_PACKAGE_ABI 1 /* of these structures; a library of another one is not run */
#define FLAMBEAU_MAX_DIMS 16

/* Names as Python has them, bytes of an element. A code is the place in this list. */
#define FLAMBEAU_DTYPES(X)                                                                                                     \
    X(bool_, "bool", 1) X(uint8, "uint8", 1) X(int8, "int8", 1) X(int16, "int16", 2) X(int32, "int32", 4) X(int64, "int64", 8)  \
    X(uint16, "uint16", 2) X(uint32, "uint32", 4) X(uint64, "uint64", 8) X(float16, "float16", 2) X(bfloat16, "bfloat16", 2)    \
    X(float32, "float32", 4) X(float64, "float64", 8) X(complex64, "complex64", 8) X(complex128, "complex128", 16)              \
    X(float8_e4m3fn, "float8_e4m3fn", 1) X(float8_e5m2, "float8_e5m2", 1)

/* An input or an output. A size of -1 varies; `dims` has each as text: "8", "batch". */
typedef struct {
    const char* name;
    const char* const* dims;
    const int64_t* sizes;
    int32_t dtype, ndim;
} FlambeauPort;

/* A tensor that the caller has; strides in elements. */
typedef struct {
    void* data;
    const int64_t *sizes, *strides;
    int32_t dtype, ndim;
} FlambeauTensor;

/* A tensor that a run made. Its memory is the caller's, who gives it back by the model's `release`. */
typedef struct {
    void *memory, *data;
    int64_t sizes[FLAMBEAU_MAX_DIMS], strides[FLAMBEAU_MAX_DIMS];
    int32_t dtype, ndim;
} FlambeauResult;

/* A buffer that the program writes to: each session has its own, which begins as a copy of the one among the weights. */
typedef struct {
    int64_t offset, bytes;
} FlambeauState;

typedef struct FlambeauFrame FlambeauFrame; /* one run, as the library sees it */
typedef struct FlambeauModel FlambeauModel;

enum { FLAMBEAU_OK, FLAMBEAU_FAILED, FLAMBEAU_BAD_INPUT, FLAMBEAU_BAD_INDEX };

struct FlambeauModel {
    int32_t abi, n_inputs, n_outputs, n_states;
    const FlambeauPort *inputs, *outputs;
    const FlambeauState* states;
    uint64_t weights; /* bytes */
    int (*call)(FlambeauFrame* frame);
    /* Where oneDNN's library is, for all sessions; null: the loader's own search for libdnnl.so.3. `weights` stay where they are. */
    void (*open)(const FlambeauModel* model, const void* weights, const char* onednn);
    void (*close)(const FlambeauModel* model, const void* weights);
    void* (*new_session)(const FlambeauModel* model, const void* weights); /* null: no memory */
    void (*end_session)(void* session);
    /* One of the codes above, and a message where it is not FLAMBEAU_OK. A session runs one call at a time. */
    int (*run)(void* session, const FlambeauTensor* inputs, FlambeauResult* outputs, int32_t threads, char* message, size_t capacity);
    void (*release)(void* memory);
};

/* -- for the code that is generated: these lie in the archive that is linked into the library (csrc/package_runtime.cpp) -- */
#ifdef __cplusplus
extern "C" {
#endif
struct FlambeauRuntime;
struct FlambeauFrame {
    struct FlambeauRuntime* runtime;
    const FlambeauTensor* inputs;
    FlambeauResult* outputs;
    char* weights;
    void** states;
    const FlambeauModel* model;
    void* blocks; /* memory that this run has */
    int32_t status;
};
/* Memory until the run ends or it is dropped; null with a message where there is none. */
void* flambeau_make(FlambeauFrame* frame, int64_t bytes);
void flambeau_drop(FlambeauFrame* frame, void* memory);
/* The memory of input k with these strides (in elements): its own, or a copy. */
void* flambeau_fit(FlambeauFrame* frame, int32_t k, const int64_t* strides);
/* What an input has to keep to: FLAMBEAU_BAD_INPUT, with a text, where `holds` is 0. */
int flambeau_require(FlambeauFrame* frame, int holds, const char* text);
/* Output k: `data` with strides in elements, in memory of this run or in other memory, which is copied. */
int flambeau_give(FlambeauFrame* frame, int32_t k, void* block, void* data, const int64_t* sizes, const int64_t* strides);
/* dst[...] = src[...]; strides in elements. */
void flambeau_copy(int32_t ndim, const int64_t* sizes, int64_t itemsize, void* dst, const int64_t* to, const void* src, const int64_t* from);

void flambeau_open(const FlambeauModel* model, const void* weights, const char* onednn);
void flambeau_close(const FlambeauModel* model, const void* weights);
void* flambeau_new_session(const FlambeauModel* model, const void* weights);
void flambeau_end_session(void* session);
int flambeau_run(void* session, const FlambeauTensor* inputs, FlambeauResult* outputs, int32_t threads, char* message, size_t capacity);
void flambeau_release(void* memory);
#ifdef __cplusplus
}
#endif
#endif
