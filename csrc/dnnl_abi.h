// The part of oneDNN 3.2's C interface that Flambeau uses, declared by hand: its wheel brings the library and no headers.
// Every value below was read off by experiment (tests/backends/test_onednn.py checks what each one computes).
#pragma once
#include <cstddef>
#include <cstdint>

namespace dnnl {

constexpr int max_dims = 12;

struct Engine;
struct Stream;
struct MemoryDesc;
struct Memory;
struct Attr;
struct PostOps;
struct PrimitiveDesc;
struct Primitive;

struct Version {
    int major, minor, patch;
    const char* hash;
    unsigned cpu_runtime, gpu_runtime;
};

struct ExecArg {
    int arg;
    Memory* memory;
};

enum Status { success = 0, out_of_memory = 1, invalid_arguments = 2, unimplemented = 3, runtime_error = 5 };
enum EngineKind { cpu = 1 };
enum StreamFlags { in_order = 1 };
enum DataType { dtype_undef = 0, f16 = 1, bf16 = 2, f32 = 3, s32 = 4, s8 = 5, u8 = 6 };
enum FormatTag { tag_any = 1 };
enum PropKind { forward_training = 64, forward_inference = 96 };
enum ScratchpadMode { scratchpad_user = 1 };
enum Query { query_implementation = 8 };
enum QueryMd {
    query_src = 129,
    query_diff_src = 130,
    query_weights = 131,
    query_diff_weights = 132,
    query_dst = 133,
    query_diff_dst = 134,
    query_scratchpad = 136,
};
enum Arg {
    arg_src = 1,
    arg_src_1 = 2,
    arg_dst = 17,
    arg_weights = 33,
    arg_bias = 41,
    arg_scratchpad = 80,
    arg_diff_src = 129,
    arg_diff_dst = 145,
    arg_diff_weights = 161,
    arg_diff_bias = 169,
    arg_post_op_base = 32768,  // times (position of the post-op + 1), or'ed with arg_src_1
};
enum Algorithm {
    convolution_direct = 1,
    eltwise_relu = 0x20,
    eltwise_tanh = 0x21,
    eltwise_linear = 0x26,
    eltwise_logistic = 0x29,
    eltwise_gelu_tanh = 0x2b,
    eltwise_gelu_erf = 0x31,
    binary_add = 0x1fff0,
    binary_mul = 0x1fff1,
    binary_sub = 0x1fff5,
};

// X(name without "dnnl_", result, parameters): one function pointer each, filled from the library by dlsym.
#define DNNL_FUNCTIONS(X)                                                                                             \
    X(version, const Version*, ())                                                                                    \
    X(engine_create, int, (Engine**, int kind, size_t index))                                                         \
    X(stream_create, int, (Stream**, Engine*, unsigned flags))                                                        \
    X(memory_desc_create_with_strides, int, (MemoryDesc**, int ndims, const int64_t* dims, int dtype, const int64_t* strides)) \
    X(memory_desc_create_with_tag, int, (MemoryDesc**, int ndims, const int64_t* dims, int dtype, int tag))           \
    X(memory_desc_clone, int, (MemoryDesc**, const MemoryDesc*))                                                      \
    X(memory_desc_destroy, int, (MemoryDesc*))                                                                        \
    X(memory_desc_equal, int, (const MemoryDesc*, const MemoryDesc*))                                                 \
    X(memory_desc_get_size, size_t, (const MemoryDesc*))                                                              \
    X(memory_create, int, (Memory**, const MemoryDesc*, Engine*, void* data))                                         \
    X(memory_set_data_handle, int, (Memory*, void* data))                                                             \
    X(memory_destroy, int, (Memory*))                                                                                 \
    X(primitive_attr_create, int, (Attr**))                                                                           \
    X(primitive_attr_destroy, int, (Attr*))                                                                           \
    X(primitive_attr_set_scratchpad_mode, int, (Attr*, int mode))                                                     \
    X(primitive_attr_set_post_ops, int, (Attr*, const PostOps*))                                                      \
    X(post_ops_create, int, (PostOps**))                                                                              \
    X(post_ops_destroy, int, (PostOps*))                                                                              \
    X(post_ops_append_eltwise, int, (PostOps*, int algorithm, float alpha, float beta))                               \
    X(post_ops_append_binary, int, (PostOps*, int algorithm, const MemoryDesc*))                                      \
    X(matmul_primitive_desc_create, int,                                                                              \
      (PrimitiveDesc**, Engine*, const MemoryDesc* src, const MemoryDesc* weights, const MemoryDesc* bias,            \
       const MemoryDesc* dst, const Attr*))                                                                           \
    X(convolution_forward_primitive_desc_create, int,                                                                 \
      (PrimitiveDesc**, Engine*, int prop, int algorithm, const MemoryDesc* src, const MemoryDesc* weights,           \
       const MemoryDesc* bias, const MemoryDesc* dst, const int64_t* strides, const int64_t* dilates,                 \
       const int64_t* padding_left, const int64_t* padding_right, const Attr*))                                       \
    X(convolution_backward_data_primitive_desc_create, int,                                                           \
      (PrimitiveDesc**, Engine*, int algorithm, const MemoryDesc* diff_src, const MemoryDesc* weights,                \
       const MemoryDesc* diff_dst, const int64_t* strides, const int64_t* dilates, const int64_t* padding_left,       \
       const int64_t* padding_right, const PrimitiveDesc* hint, const Attr*))                                         \
    X(convolution_backward_weights_primitive_desc_create, int,                                                        \
      (PrimitiveDesc**, Engine*, int algorithm, const MemoryDesc* src, const MemoryDesc* diff_weights,                \
       const MemoryDesc* diff_bias, const MemoryDesc* diff_dst, const int64_t* strides, const int64_t* dilates,       \
       const int64_t* padding_left, const int64_t* padding_right, const PrimitiveDesc* hint, const Attr*))            \
    X(reorder_primitive_desc_create, int,                                                                             \
      (PrimitiveDesc**, const MemoryDesc* src, Engine*, const MemoryDesc* dst, Engine*, const Attr*))                 \
    X(primitive_desc_query, int, (const PrimitiveDesc*, int what, int index, void* result))                           \
    X(primitive_desc_query_md, const MemoryDesc*, (const PrimitiveDesc*, int what, int index))                        \
    X(primitive_desc_destroy, int, (PrimitiveDesc*))                                                                  \
    X(primitive_create, int, (Primitive**, const PrimitiveDesc*))                                                     \
    X(primitive_destroy, int, (Primitive*))                                                                           \
    X(primitive_execute, int, (const Primitive*, Stream*, int count, const ExecArg*))

struct Library {
#define X(name, result, parameters) result(*name) parameters;
    DNNL_FUNCTIONS(X)
#undef X
};

}  // namespace dnnl
