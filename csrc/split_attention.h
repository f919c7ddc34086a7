// Attention over f32 heads by products of bf16 parts: split_attention.cpp.
#pragma once
#include <cstdint>

namespace split_gemm {

// (batch, heads, rows, e) with the last dimension contiguous; strides in elements.
struct Heads {
    float* data;
    int64_t batch, head, row;
    float* at(int64_t b, int64_t h) const { return data + b * batch + h * head; }
};

// `columns` counts keys; query heads share key heads in groups. A causal mask lets row i see the keys up to i.
struct Attention {
    int64_t batch, heads, key_heads, rows, columns, e;
    bool causal;
    float scale;
    int64_t visible(int64_t row) const { return !causal || row + 1 > columns ? columns : row + 1; }
};

struct Gradients {
    Heads q, k, v;
};

// out = softmax(scale * q k^T) v and the logarithms of the softmax's sums (batch, heads, rows), or the gradients. They need
// available() of split_gemm.h.
void attention_forward(const Attention& z, const Heads& q, const Heads& k, const Heads& v, const Heads& out, float* lse, int threads);
void attention_backward(const Attention& z, const Heads& g, const Heads& q, const Heads& k, const Heads& v, const Heads& out,
                        const float* lse, const Gradients& to, int threads);

}  // namespace split_gemm

// For generated code. words: batch, heads, key heads, rows, columns, e, is_causal, the bits of a float: scale, then strides (batch,
// head, row) of each operand but lse. operands: q, k, v, out, lse [, g, gq, gk, gv]. 0, or 1 where the processor has no tiles.
extern "C" int attention_run(const int64_t* words, void* const* operands, int count, int threads);
