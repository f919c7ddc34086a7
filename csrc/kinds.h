// The dtypes that native loops know.
#pragma once

enum class Kind { boolean, u8, i8, i16, i32, i64, f16, bf16, f32, f64, other };
constexpr int kind_count = (int)Kind::other;
