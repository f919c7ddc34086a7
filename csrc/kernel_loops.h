// The inner loops of kernels.cpp, compiled once for each instruction set: this file is included several times, inside a
// namespace and a `#pragma GCC target`. Plain functions without OpenMP; strides are in bytes.

#include "elements.h"

template <class To, class From>
inline To converted(From x) {
    auto value = Element<From>::load(x);
    if constexpr (std::is_same_v<To, bool>) return value != decltype(value)(0);
    else if constexpr (std::is_floating_point_v<decltype(value)> && std::is_integral_v<To>) return fl::integer<To>(value);
    else return Element<To>::store((decltype(Element<To>::load(To{})))value);
}

template <class To, class From>
void convert_row(char* to, ptrdiff_t to_stride, const char* from, ptrdiff_t from_stride, ptrdiff_t n) {
    if (to_stride == sizeof(To) && from_stride == sizeof(From)) {
        To* __restrict t = (To*)to;
        const From* __restrict f = (const From*)from;
        ptrdiff_t i = 0;
#ifdef __F16C__
        if constexpr (std::is_same_v<To, float> && std::is_same_v<From, Half>)
            for (; i + 8 <= n; i += 8) _mm256_storeu_ps(t + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(f + i))));
        if constexpr (std::is_same_v<To, Half> && std::is_same_v<From, float>)
            for (; i + 8 <= n; i += 8) _mm_storeu_si128((__m128i*)(t + i), _mm256_cvtps_ph(_mm256_loadu_ps(f + i), 0));
#endif
        for (; i < n; i++) t[i] = converted<To>(f[i]);
        return;
    }
    for (ptrdiff_t i = 0; i < n; i++) *(To*)(to + i * to_stride) = converted<To>(*(const From*)(from + i * from_stride));
}

template <class T>
void copy_row(char* to, ptrdiff_t to_stride, const char* from, ptrdiff_t from_stride, ptrdiff_t n) {
    if (to_stride == sizeof(T) && from_stride == sizeof(T)) memcpy(to, from, n * sizeof(T));
    else
        for (ptrdiff_t i = 0; i < n; i++) *(T*)(to + i * to_stride) = *(const T*)(from + i * from_stride);
}

// to[i, j] = from[j, i] for i < rows, j < columns: rows of `to` and of `from` are contiguous, `rows` and `columns` small.
template <class T>
void transpose_tile(char* to, ptrdiff_t to_row, const char* from, ptrdiff_t from_row, ptrdiff_t rows, ptrdiff_t columns) {
    ptrdiff_t i = 0;
    if constexpr (sizeof(T) == 4) {
        for (; i + 8 <= rows; i += 8) {
            ptrdiff_t j = 0;
            for (; j + 8 <= columns; j += 8) {
                using V = float __attribute__((vector_size(32), aligned(4), may_alias));
                V r[8], s[8];
                for (int k = 0; k < 8; k++) r[k] = *(const V*)(from + (j + k) * from_row + i * 4);
                for (int k = 0; k < 8; k += 2) {
                    s[k] = __builtin_shuffle(r[k], r[k + 1], IndexOf8{0, 8, 2, 10, 4, 12, 6, 14});
                    s[k + 1] = __builtin_shuffle(r[k], r[k + 1], IndexOf8{1, 9, 3, 11, 5, 13, 7, 15});
                }
                for (int k = 0; k < 8; k += 4)
                    for (int l = 0; l < 2; l++) {
                        r[k + l] = __builtin_shuffle(s[k + l], s[k + l + 2], IndexOf8{0, 1, 8, 9, 4, 5, 12, 13});
                        r[k + l + 2] = __builtin_shuffle(s[k + l], s[k + l + 2], IndexOf8{2, 3, 10, 11, 6, 7, 14, 15});
                    }
                for (int k = 0; k < 4; k++) {
                    *(V*)(to + (i + k) * to_row + j * 4) = __builtin_shuffle(r[k], r[k + 4], IndexOf8{0, 1, 2, 3, 8, 9, 10, 11});
                    *(V*)(to + (i + k + 4) * to_row + j * 4) = __builtin_shuffle(r[k], r[k + 4], IndexOf8{4, 5, 6, 7, 12, 13, 14, 15});
                }
            }
            for (; j < columns; j++)
                for (int k = 0; k < 8; k++) *(T*)(to + (i + k) * to_row + j * 4) = *(const T*)(from + j * from_row + (i + k) * 4);
        }
    }
    for (; i < rows; i++) {
        T* row = (T*)(to + i * to_row);
        const char* column = from + i * sizeof(T);
        for (ptrdiff_t j = 0; j < columns; j++) row[j] = *(const T*)(column + j * from_row);
    }
}

// ---- sums: short ones in the elements' own arithmetic, which are added up in double ----

// Of at most a block: many partial sums, so that errors grow with the block's length over their number.
template <class T, int lanes>
double sum_block(const char* x, ptrdiff_t stride, ptrdiff_t n) {
    decltype(Element<T>::load(T{})) partial[lanes] = {};
    ptrdiff_t i = 0;
    if (stride == sizeof(T)) {
        const T* from = (const T*)x;
        for (; i + lanes <= n; i += lanes)
            for (int l = 0; l < lanes; l++) partial[l] += Element<T>::load(from[i + l]);
    } else {
        for (; i + lanes <= n; i += lanes)
            for (int l = 0; l < lanes; l++) partial[l] += Element<T>::load(*(const T*)(x + (i + l) * stride));
    }
    for (int l = 0; i < n; i++, l++) partial[l] += Element<T>::load(*(const T*)(x + i * stride));
    for (int width = lanes / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++) partial[l] += partial[l + width];
    return partial[0];
}

// total[r] = sum of row r of x.
template <class T>
void sum_rows(const char* x, ptrdiff_t rows, ptrdiff_t row_stride, ptrdiff_t n, ptrdiff_t stride, double* total) {
    constexpr ptrdiff_t block = 2048;
    for (ptrdiff_t r = 0; r < rows; r++, x += row_stride) {
        if (n < 8) {
            double sum = 0;
            for (ptrdiff_t i = 0; i < n; i++) sum += Element<T>::load(*(const T*)(x + i * stride));
            total[r] = sum;
        } else if (n <= 512) {
            total[r] = sum_block<T, 16>(x, stride, n);
        } else {
            double sum = 0;
            for (ptrdiff_t i = 0; i < n; i += block) sum += sum_block<T, 64>(x + i * stride, stride, n - i < block ? n - i : block);
            total[r] = sum;
        }
    }
}

// total[c] = sum over r of x[r, c], at most `sum_columns` columns at a time.
template <class T>
void sum_down(const char* x, ptrdiff_t rows, ptrdiff_t row_stride, ptrdiff_t columns, ptrdiff_t stride, double* __restrict total) {
    constexpr ptrdiff_t block = 32;
    decltype(Element<T>::load(T{})) few[sum_columns];
    for (ptrdiff_t c = 0; c < columns; c++) total[c] = few[c] = 0;
    for (ptrdiff_t r = 0; r < rows; r++) {
        const char* row = x + r * row_stride;
        if (stride == sizeof(T)) {
            const T* __restrict from = (const T*)row;
            for (ptrdiff_t c = 0; c < columns; c++) few[c] += Element<T>::load(from[c]);
        } else {
            for (ptrdiff_t c = 0; c < columns; c++) few[c] += Element<T>::load(*(const T*)(row + c * stride));
        }
        if (r % block == block - 1 || r == rows - 1)
            for (ptrdiff_t c = 0; c < columns; c++) total[c] += few[c], few[c] = 0;
    }
}

template <class T>
void add_row(char* to, const char* from, ptrdiff_t n) {
    T* __restrict t = (T*)to;
    const T* __restrict f = (const T*)from;
    for (ptrdiff_t i = 0; i < n; i++) t[i] = Element<T>::store(Element<T>::load(t[i]) + Element<T>::load(f[i]));
}

// table[at[i]] += x[i], one after another.
template <class T>
void add_points(char* table, const int64_t* at, const char* x, ptrdiff_t n) {
    T* t = (T*)table;
    const T* from = (const T*)x;
    for (ptrdiff_t i = 0; i < n; i++) t[at[i]] = Element<T>::store(Element<T>::load(t[at[i]]) + Element<T>::load(from[i]));
}

// ---- scans ----

template <class T, class Sum, bool product>
inline void scan_step(Sum& total, const T& from, T& to) {
    if constexpr (product) total *= Element<T>::load(from);
    else total += Element<T>::load(from);
    to = Element<T>::store((decltype(Element<T>::load(T{})))total);
}

// Rows of n elements that lie end to end, four at a time: each is a chain in which every step waits for the one before.
template <class T, class Sum, bool product>
void scan_rows(const char* x, char* out, ptrdiff_t rows, ptrdiff_t n, bool reverse) {
    ptrdiff_t step = reverse ? -1 : 1, r = 0;
    const T* __restrict from = (const T*)x + (reverse ? n - 1 : 0);
    T* __restrict to = (T*)out + (reverse ? n - 1 : 0);
    for (; r + 4 <= rows; r += 4, from += 4 * n, to += 4 * n) {
        Sum a = product, b = product, c = product, d = product;
        for (ptrdiff_t i = 0, at = 0; i < n; i++, at += step) {
            scan_step<T, Sum, product>(a, from[at], to[at]);
            scan_step<T, Sum, product>(b, from[at + n], to[at + n]);
            scan_step<T, Sum, product>(c, from[at + 2 * n], to[at + 2 * n]);
            scan_step<T, Sum, product>(d, from[at + 3 * n], to[at + 3 * n]);
        }
    }
    for (; r < rows; r++, from += n, to += n) {
        Sum total = product;
        for (ptrdiff_t i = 0, at = 0; i < n; i++, at += step) scan_step<T, Sum, product>(total, from[at], to[at]);
    }
}

// Down at most `sum_columns` neighbouring columns.
template <class T, class Sum, bool product>
void scan_down(const char* x, char* out, ptrdiff_t rows, ptrdiff_t row_size, ptrdiff_t columns, bool reverse) {
    Sum total[sum_columns];
    for (ptrdiff_t c = 0; c < columns; c++) total[c] = product;
    for (ptrdiff_t r = 0; r < rows; r++) {
        ptrdiff_t at = (reverse ? rows - 1 - r : r) * row_size;
        const T* __restrict from = (const T*)x + at;
        T* __restrict to = (T*)out + at;
        for (ptrdiff_t c = 0; c < columns; c++) scan_step<T, Sum, product>(total[c], from[c], to[c]);
    }
}

// The best so far, NaN above all, and the last place where it stands.
template <class T, bool largest>
struct Best {
    using Value = decltype(Element<T>::load(T{}));
    Value value;
    int64_t place = 0;

    void step(const T& from, int64_t i, T& to, int64_t& at) {
        Value x = Element<T>::load(from);
        bool better = (largest ? x >= value : x <= value) | (x != x);
        value = better ? x : value;
        place = better ? i : place;
        to = Element<T>::store(value);
        at = place;
    }
};

// Of `width` rows of n elements that lie end to end, at the same time.
template <class T, bool largest, int width>
inline void best_of_rows(const T* __restrict from, T* __restrict to, int64_t* __restrict at, ptrdiff_t n) {
    Best<T, largest> best[width];
    for (int k = 0; k < width; k++) best[k].value = Element<T>::load(from[k * n]);
    for (ptrdiff_t i = 0; i < n; i++)
        for (int k = 0; k < width; k++) best[k].step(from[k * n + i], i, to[k * n + i], at[k * n + i]);
}

template <class T, bool largest>
void best_rows(const char* x, char* out, int64_t* at, ptrdiff_t rows, ptrdiff_t n) {
    const T* from = (const T*)x;
    T* to = (T*)out;
    ptrdiff_t r = 0;
    for (; r + 8 <= rows; r += 8) best_of_rows<T, largest, 8>(from + r * n, to + r * n, at + r * n, n);
    for (; r < rows; r++) best_of_rows<T, largest, 1>(from + r * n, to + r * n, at + r * n, n);
}

// Down at most `sum_columns` neighbouring columns.
template <class T, bool largest>
void best_down(const char* x, char* out, int64_t* at, ptrdiff_t rows, ptrdiff_t row_size, ptrdiff_t columns) {
    Best<T, largest> best[sum_columns];
    for (ptrdiff_t c = 0; c < columns; c++) best[c].value = Element<T>::load(((const T*)x)[c]);
    for (ptrdiff_t r = 0; r < rows; r++) {
        const T* __restrict from = (const T*)x + r * row_size;
        T* __restrict to = (T*)out + r * row_size;
        int64_t* __restrict places = at + r * row_size;
        for (ptrdiff_t c = 0; c < columns; c++) best[c].step(from[c], r, to[c], places[c]);
    }
}

#define FLAMBEAU_FROM(To)                                                                                                      \
    {convert_row<To, bool>, convert_row<To, uint8_t>, convert_row<To, int8_t>, convert_row<To, int16_t>, convert_row<To, int32_t>, \
     convert_row<To, int64_t>, convert_row<To, Half>, convert_row<To, BFloat>, convert_row<To, float>, convert_row<To, double>}
#define FLAMBEAU_SCANS(scan, product)                                                                                     \
    {nullptr, nullptr, nullptr, nullptr, nullptr, scan<int64_t, int64_t, product>, scan<Half, double, product>,            \
     scan<BFloat, double, product>, scan<float, double, product>, scan<double, double, product>}
#define FLAMBEAU_BEST(best, largest)                                                                                      \
    {best<bool, largest>, best<uint8_t, largest>, best<int8_t, largest>, best<int16_t, largest>, best<int32_t, largest>,  \
     best<int64_t, largest>, best<Half, largest>, best<BFloat, largest>, best<float, largest>, best<double, largest>}
const Loops loops = {
    {FLAMBEAU_FROM(bool), FLAMBEAU_FROM(uint8_t), FLAMBEAU_FROM(int8_t), FLAMBEAU_FROM(int16_t), FLAMBEAU_FROM(int32_t),
     FLAMBEAU_FROM(int64_t), FLAMBEAU_FROM(Half), FLAMBEAU_FROM(BFloat), FLAMBEAU_FROM(float), FLAMBEAU_FROM(double)},
    {copy_row<uint8_t>, copy_row<uint16_t>, copy_row<uint32_t>, copy_row<uint64_t>, copy_row<Wide>},
    {transpose_tile<uint8_t>, transpose_tile<uint16_t>, transpose_tile<uint32_t>, transpose_tile<uint64_t>, transpose_tile<Wide>},
    {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, sum_rows<Half>, sum_rows<BFloat>, sum_rows<float>, sum_rows<double>},
    {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, sum_down<Half>, sum_down<BFloat>, sum_down<float>, sum_down<double>},
    {nullptr, add_row<uint8_t>, add_row<int8_t>, add_row<int16_t>, add_row<int32_t>, add_row<int64_t>, add_row<Half>, add_row<BFloat>, add_row<float>, add_row<double>},
    {nullptr, add_points<uint8_t>, add_points<int8_t>, add_points<int16_t>, add_points<int32_t>, add_points<int64_t>, add_points<Half>, add_points<BFloat>, add_points<float>, add_points<double>},
    {FLAMBEAU_SCANS(scan_rows, false), FLAMBEAU_SCANS(scan_rows, true)},
    {FLAMBEAU_SCANS(scan_down, false), FLAMBEAU_SCANS(scan_down, true)},
    {FLAMBEAU_BEST(best_rows, false), FLAMBEAU_BEST(best_rows, true)},
    {FLAMBEAU_BEST(best_down, false), FLAMBEAU_BEST(best_down, true)},
};
#undef FLAMBEAU_BEST
#undef FLAMBEAU_SCANS
#undef FLAMBEAU_FROM
