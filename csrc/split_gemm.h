// f32 matrix products on matrix tiles that only multiply bf16: each factor is split in three bf16 parts.
#pragma once
#include <cstdint>

#include "post_rows.inc"

namespace split_gemm {

// What is done to the product before it is stored, with numbers or a tensor.
#define FL_POST(name, ...) name,
enum class Post { FL_POST_OPS(FL_POST) };
#undef FL_POST

struct PostOp {
    Post kind;
    float alpha = 0, beta = 0;
    const float* data = nullptr;        // of the binary operations
    int64_t row = 0, column = 0;        // its strides; 0 repeats it
};

// c (m, n) = posts(a (m, k) times b (k, n)), strides in elements; c's columns lie side by side.
struct Product {
    const float* a;
    const float* b;
    float* c;
    int64_t a_row, a_column, b_row, b_column, c_row;
    const PostOp* posts = nullptr;
};

struct Sizes {
    int64_t m, n, k;
    int posts = 0;
    int products = 6;  // of parts: 6 for the accuracy of f32, 3 for 16 bits, 1 for bf16
};

constexpr int most_posts = 6;

// Whether this processor has such tiles, and the kernel lets this process use them.
bool available();

// One product by all threads, or many of one size with the threads sharing them out. `product(context, i)` describes the i-th.
void run(const Sizes& sizes, int64_t count, Product (*product)(void* context, int64_t i, PostOp* posts), void* context, int threads);

}  // namespace split_gemm
