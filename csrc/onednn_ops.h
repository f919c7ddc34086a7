// oneDNN operations as integer handles: described once by a row of 64-bit words, built once, then run with pointers only.
// Nothing here needs Python or the interpreter lock; generated C++ calls `run`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace onednn {

enum Kind : int64_t { matmul, conv_forward, conv_input_grad, conv_weight_grad, kind_count };

// given: the caller's strides. free: oneDNN chooses, and the operation reorders from or to the caller's strides itself. constant: as
// free, of an operand whose memory keeps its contents, so that it is reordered at its first run and kept so.
enum Layout : int64_t { given, free_choice, constant };

struct Tensor {
    int64_t dtype = 0, layout = given, ndim = 0;
    int64_t dims[8] = {}, strides[8] = {};
};

struct PostOp {
    int64_t algorithm;
    float alpha, beta;
    bool has_tensor;
    Tensor tensor;
};

struct Window {
    int64_t stride, dilation, pad_left, pad_right;
};

// Operands by kind:  matmul a, b, out [, bias];  conv_forward x, w, out [, bias];  conv_input_grad g, w, out;
// conv_weight_grad x, g, out [, bias gradient].  Then one operand for each post-op that has a tensor, in order.
struct Spec {
    int64_t kind = 0, groups = 1;
    std::vector<Tensor> operands;
    std::vector<Window> windows;
    std::vector<PostOp> post;
};

// A spec as words: kind, groups, operand count, operands..., window count, (stride, dilation, pad_left, pad_right)...,
// post-op count, (algorithm, alpha, beta, has_tensor [, tensor])... with floats as the bits of a float32; a tensor is
// dtype, layout, ndim, dims..., strides....
struct Words {
    static constexpr int capacity = 512;
    int64_t data[capacity];
    int size = 0;
    void push(int64_t word);
    void push(const Tensor& tensor);
};

struct Op;

// What oneDNN cannot do on this machine.
struct Unsupported : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// All of these raise: std::invalid_argument for what makes no sense, Unsupported for what oneDNN cannot do, std::runtime_error else.
std::string load(const char* path);  // dlopen; the version
void set_path(const char* path);      // what to load when the first operation is created before that
bool loaded();

int64_t create(const int64_t* words, int64_t count);  // a handle for good; equal words give the equal handle
std::shared_ptr<Op> cached(const Words& words);        // for eager: not a handle, dropped when many have been made
bool valid(int64_t op);
const Spec& spec(int64_t op);
bool writes(int64_t kind, int operand);
const char* implementation(int64_t op);

// How f32 products are computed on processors with bf16 tiles (split_gemm.h): from 6, 3 or 1 products of parts, or 0, by oneDNN
// in f32. Returns what was set before; always 0 without such tiles.
int set_split_products(int products);
int split_products_set();

void run(Op* op, void* const* operands);

// What is called when a constant operand has been reordered: its memory is not looked at again. And: constants that lie within these
// bytes are gone, and with them what was made of them.
void when_packed(void (*told)(const void* data, size_t bytes));
void forget_packed(const char* data, size_t bytes);

}  // namespace onednn

// The same for generated code: 0 when it ran, else the message is in onednn_last_error() of this thread.
extern "C" int onednn_run(int64_t op, void* const* operands);
extern "C" int64_t onednn_create(const int64_t* words, int64_t count);  // 0 when it cannot
extern "C" const char* onednn_last_error();
