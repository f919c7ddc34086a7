#include "scalar_ops.h"

#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "instruction_set.h"
#pragma GCC diagnostic ignored "-Wunused-variable"
#include "scalar.h"

namespace {

struct Scalars {
    const ScalarLoop* elementwise;
    size_t elementwise_count;
    const FoldLoop* folds;
    size_t fold_count;
};

template <class T> constexpr Kind kind_as = Kind::other;
template <> constexpr Kind kind_as<bool> = Kind::boolean;
template <> constexpr Kind kind_as<uint8_t> = Kind::u8;
template <> constexpr Kind kind_as<int8_t> = Kind::i8;
template <> constexpr Kind kind_as<int16_t> = Kind::i16;
template <> constexpr Kind kind_as<int32_t> = Kind::i32;
template <> constexpr Kind kind_as<int64_t> = Kind::i64;
template <> constexpr Kind kind_as<float> = Kind::f32;
template <> constexpr Kind kind_as<double> = Kind::f64;

namespace baseline {
#include "scalar_loops.h"
}
#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
namespace avx2 {
#include "scalar_loops.h"
}
#pragma GCC pop_options
const Scalars& scalars = instruction_set() == InstructionSet::baseline ? baseline::scalars : avx2::scalars;
#else
const Scalars& scalars = baseline::scalars;
#endif

}  // namespace

const ScalarLoop* find_scalar(const char* name, Kind in) {
    for (size_t i = 0; i < scalars.elementwise_count; i++)
        if (scalars.elementwise[i].in == in && std::strcmp(scalars.elementwise[i].name, name) == 0) return &scalars.elementwise[i];
    return nullptr;
}

const FoldLoop* find_fold(const char* name, Kind kind) {
    for (size_t i = 0; i < scalars.fold_count; i++)
        if (scalars.folds[i].kind == kind && std::strcmp(scalars.folds[i].name, name) == 0) return &scalars.folds[i];
    return nullptr;
}
