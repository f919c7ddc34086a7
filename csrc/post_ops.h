// What oneDNN, and the products of split_gemm.cpp, do to a result x before they store it:
// X(name, oneDNN's algorithm, unary or binary, parameters, expression over them and the numbers alpha and beta).
#pragma once

#define FL_POST_OPS(X)                                                                                                                \
    X(relu, eltwise_relu, unary, (float x), x < 0 ? alpha * x : x)                                                                    \
    X(tanh, eltwise_tanh, unary, (float x), fl::tanh(x))                                                                              \
    X(elu, eltwise_elu, unary, (float x), x > 0 ? x : alpha * fl::expm1(x))                                                           \
    X(square, eltwise_square, unary, (float x), x * x)                                                                                \
    X(abs, eltwise_abs, unary, (float x), fl::abs(x))                                                                                 \
    X(sqrt, eltwise_sqrt, unary, (float x), fl::sqrt(x))                                                                              \
    X(linear, eltwise_linear, unary, (float x), alpha * x + beta)                                                                     \
    X(sigmoid, eltwise_logistic, unary, (float x), 1.0f / (1.0f + fl::exp(-x)))                                                       \
    X(exp, eltwise_exp, unary, (float x), fl::exp(x))                                                                                 \
    X(swish, eltwise_swish, unary, (float x), x / (1.0f + fl::exp(-alpha * x)))                                                       \
    X(gelu_erf, eltwise_gelu_erf, unary, (float x), 0.5f * x * (1.0f + fl::erf(x * 0.70710678f)))                                     \
    X(gelu_tanh, eltwise_gelu_tanh, unary, (float x), 0.5f * x * (1.0f + fl::tanh(0.79788456f * (x + 0.044715f * x * x * x))))        \
    X(add, binary_add, binary, (float x, float y), x + y)                                                                             \
    X(sub, binary_sub, binary, (float x, float y), x - y)                                                                             \
    X(mul, binary_mul, binary, (float x, float y), x * y)                                                                             \
    X(div, binary_div, binary, (float x, float y), x / y)                                                                             \
    X(max, binary_max, binary, (float x, float y), fl::maximum(x, y))                                                                 \
    X(min, binary_min, binary, (float x, float y), fl::minimum(x, y))
