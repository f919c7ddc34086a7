// Splitting f32 in bf16 parts, and products of the parts on AMX tiles: for files that are compiled for them. Their pragma comes
// before this and after the standard headers, whose functions other files share.
//
// x = x1 + x2 + x3 with 8 bits in each part; of the nine products of parts, the six largest leave an error below f32's own
// rounding: Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
// Computations", ARITH 2019. One AMX tile instruction does 16 x 16 x 32 multiply-adds of bf16 and sums in f32, sixteen times
// the rate of f32 vectors, so that six of them are still more than twice as fast.
#pragma once
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace split_gemm {
namespace {

constexpr int64_t tile = 16, panel = 32, depth = 32;  // rows or columns of a tile and of a panel; k of a tile
constexpr int64_t tile_bytes = 1024;

// How many parts of each factor there are where so many of their products are summed.
constexpr int parts_of(int products) { return products == 6 ? 3 : products == 3 ? 2 : 1; }

int64_t divided(int64_t n, int64_t by) { return (n + by - 1) / by; }

struct alignas(64) TileShapes {
    uint8_t palette = 1, start = 0, unused[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
    constexpr TileShapes() {
        for (int i = 0; i < 8; i++) bytes[i] = 64, rows[i] = 16;
    }
};
constexpr TileShapes shapes;  // not a local: the intrinsic hides from the compiler that it reads all of it

constexpr unsigned flush_subnormals = 0x8040;  // of results and operands: bits of MXCSR

// Tiles, and subnormal parts counted as zero without the processor's slow assistance, for as long as this lives.
struct TileScope {
    unsigned before = _mm_getcsr();
    TileScope() {
        _tile_loadconfig(&shapes);
        _mm_setcsr(before | flush_subnormals);
    }
    ~TileScope() {
        _tile_release();
        _mm_setcsr(before);
    }
};

// ---- splitting ----

// The part of x that bf16 holds, rounded to nearest, as a float; what is left is exact. The last part of three is all of it.
template <bool rest>
inline __m512i leading(__m512& x) {
    if constexpr (rest) return _mm512_castps_si512(x);
    const __m512i half = _mm512_set1_epi32(0x8000), high = _mm512_set1_epi32((int)0xffff0000);
    __m512i part = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), half), high);
    x = _mm512_sub_ps(x, _mm512_castsi512_ps(part));
    return part;
}

// The upper halves of two vectors in one: word by word, or one after the other.
struct PairOfRows {
    __m512i operator()(__m512i even, __m512i odd) const { return _mm512_or_si512(_mm512_srli_epi32(even, 16), odd); }
};
struct SideBySide {
    __m512i operator()(__m512i first, __m512i second) const {
        return (__m512i)_mm512_cvtne2ps_pbh(_mm512_castsi512_ps(second), _mm512_castsi512_ps(first));
    }
};

// 16 x 16 words of 32 bits, in place.
inline void transpose(char* at) {
    __m512i r[16], t[16];
    for (int i = 0; i < 16; i++) r[i] = _mm512_load_si512(at + i * 64);
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 4; i++) {
        r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
    for (int i = 0; i < 16; i++) _mm512_store_si512(at + i * 64, r[i]);
}

// 16 lines of 32 values of k become three tiles. A tile of the left factor has a row for each line and k along it; one of the
// right factor has a row for each pair of k and the lines along it. `line` and `along` are the source's strides, one of them 1.
struct Source {
    const float* data;
    int64_t line, along, lines, length;  // lines and values of k there are; the rest is zero
};

inline __mmask16 first(int64_t n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1); }

inline void note(__m512i& largest, __m512 x) {
    largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)));
}

// The parts of two vectors, joined by `join`, in line i of each tile.
template <int parts, class Join>
inline void put(char* out, int64_t i, __m512 x, __m512 y, Join join) {
    constexpr bool three = parts == 3;
    auto store = [&](int part, __m512i a, __m512i b) { _mm512_store_si512(out + part * tile_bytes + i * 64, join(a, b)); };
    __m512i a = leading<false>(x), b = leading<false>(y);
    store(0, a, b);
    if constexpr (parts > 1) {
        a = leading<false>(x), b = leading<false>(y);
        store(1, a, b);
    }
    if constexpr (three) store(2, leading<true>(x), leading<true>(y));
}

template <bool right, int parts>
void pack_block(const Source& s, int64_t line, int64_t k, char* out, __m512i& largest) {
    const int64_t lines = std::min(tile, s.lines - line), length = std::min(depth, s.length - k);
    const float* data = s.data + line * s.line + k * s.along;
    const bool along = s.along == 1, whole = lines == tile && length == depth;
    const __mmask16 here = first(lines), low = first(length), high = first(length - 16);
    for (int64_t i = 0; i < 16; i++) {
        __m512 x, y;
        if (along) {
            const float* row = data + i * s.line;
            const float* next = row + tile * s.line;  // of the tile that comes after this one
            _mm_prefetch((const char*)next, _MM_HINT_T0), _mm_prefetch((const char*)(next + 16), _MM_HINT_T0);
            x = whole ? _mm512_loadu_ps(row) : _mm512_maskz_loadu_ps(i < lines ? low : 0, row);
            y = whole ? _mm512_loadu_ps(row + 16) : _mm512_maskz_loadu_ps(i < lines ? high : 0, row + 16);
        } else {
            const float* row = data + 2 * i * s.along;
            const float* next = row + 2 * tile;
            _mm_prefetch((const char*)next, _MM_HINT_T0), _mm_prefetch((const char*)(next + s.along), _MM_HINT_T0);
            x = whole ? _mm512_loadu_ps(row) : _mm512_maskz_loadu_ps(2 * i < length ? here : 0, row);
            y = whole ? _mm512_loadu_ps(row + s.along) : _mm512_maskz_loadu_ps(2 * i + 1 < length ? here : 0, row + s.along);
        }
        note(largest, x), note(largest, y);
        along ? put<parts>(out, i, x, y, SideBySide()) : put<parts>(out, i, x, y, PairOfRows());
    }
    if (right == along)
        for (int p = 0; p < parts; p++) transpose(out + p * tile_bytes);
}

// Beyond these a part would overflow, or all of a matrix would lose its low parts to underflow.
constexpr uint32_t too_large = 254u << 23, too_small = 27u << 23;

// Packs the panels [from, to); the largest magnitude, as the bits of a float. Goes through the source in the order of its memory.
template <bool right, int parts>
uint32_t pack(const Source& s, int64_t from, int64_t to, char* out) {
    __m512i largest = _mm512_setzero_si512();
    const int64_t blocks = divided(s.length, depth), tiles = divided(std::min(to * panel, s.lines) - from * panel, tile);
    const auto one = [&](int64_t t, int64_t k) {
        pack_block<right, parts>(s, from * panel + t * tile, k * depth, out + (t * blocks + k) * parts * tile_bytes, largest);
    };
    if (s.along == 1)
        for (int64_t t = 0; t < tiles; t++)
            for (int64_t k = 0; k < blocks; k++) one(t, k);
    else
        for (int64_t k = 0; k < blocks; k++)
            for (int64_t t = 0; t < tiles; t++) one(t, k);
    return _mm512_reduce_max_epu32(largest);
}

// ---- multiplying ----

// These intrinsics are statements of assembler, which take register numbers written out.
#define FL_LEFT(part)                                 \
    _tile_loadd(4, a + (part) * tile_bytes, 64);      \
    if constexpr (rows > 1) _tile_loadd(5, a2 + (part) * tile_bytes, 64)
#define FL_RIGHT(part)                                \
    _tile_loadd(6, b + (part) * tile_bytes, 64);      \
    if constexpr (columns > 1) _tile_loadd(7, b2 + (part) * tile_bytes, 64)
#define FL_MULTIPLY()                                 \
    _tile_dpbf16ps(0, 4, 6);                          \
    if constexpr (columns > 1) _tile_dpbf16ps(1, 4, 7);   \
    if constexpr (rows > 1) _tile_dpbf16ps(2, 5, 6);  \
    if constexpr (rows > 1 && columns > 1) _tile_dpbf16ps(3, 5, 7)

// What to bring nearer meanwhile, a little in each step: the lines of c, and a stretch of the panel that comes next.
struct Ahead {
    const char *at, *end;
    int64_t bytes;  // in each step
    void step() {
        const char* to = at + bytes < end ? at + bytes : end;
        for (; at < to; at += 64) _mm_prefetch(at, _MM_HINT_T1);
    }
};

// A block of rows x columns tiles (one or two each), over `blocks` times 32 values of k. Small products first, and each step keeps
// the tiles of one side.
template <int products, int rows, int columns>
void multiply_tiles(const char* a, const char* a2, const char* b, const char* b2, int64_t blocks, float* c, int64_t row, bool begin,
                    Ahead ahead) {
    constexpr int64_t block_bytes = parts_of(products) * tile_bytes;
    __asm__ volatile("" ::: "memory");  // the intrinsics do not say that they read and write memory
    _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
    if (!begin) {
        _tile_loadd(0, c, row * 4);
        if constexpr (columns > 1) _tile_loadd(1, c + 16, row * 4);
        if constexpr (rows > 1) _tile_loadd(2, c + 16 * row, row * 4);
        if constexpr (rows > 1 && columns > 1) _tile_loadd(3, c + 16 * row + 16, row * 4);
    }
    for (int64_t k = 0; k < blocks; k++) {
        FL_LEFT(0);
        if constexpr (products == 6) {
            FL_RIGHT(2); FL_MULTIPLY();
            FL_RIGHT(1); FL_MULTIPLY();
            FL_LEFT(1); FL_MULTIPLY();
            FL_RIGHT(0); FL_MULTIPLY();
            FL_LEFT(2); FL_MULTIPLY();
            FL_LEFT(0); FL_MULTIPLY();
        } else if constexpr (products == 3) {
            FL_RIGHT(1); FL_MULTIPLY();
            FL_RIGHT(0); FL_MULTIPLY();
            FL_LEFT(1); FL_MULTIPLY();
        } else {
            FL_RIGHT(0); FL_MULTIPLY();
        }
        a += block_bytes, a2 += block_bytes, b += block_bytes, b2 += block_bytes;
        ahead.step();
    }
    _tile_stored(0, c, row * 4);
    if constexpr (columns > 1) _tile_stored(1, c + 16, row * 4);
    if constexpr (rows > 1) _tile_stored(2, c + 16 * row, row * 4);
    if constexpr (rows > 1 && columns > 1) _tile_stored(3, c + 16 * row + 16, row * 4);
    __asm__ volatile("" ::: "memory");
}

#undef FL_LEFT
#undef FL_RIGHT
#undef FL_MULTIPLY

// A panel: up to two tiles of lines, each a row of blocks of k.
struct Panel {
    const char* data;
    int64_t lines, next;  // bytes from tile to tile
};

// c = a b over `blocks` blocks of k, or added to c. Writes whole tiles.
template <int products>
void multiply(const Panel& a, const Panel& b, int64_t blocks, float* c, int64_t row, bool begin, Ahead ahead = {}) {
    const bool tall = a.lines > tile, wide = b.lines > tile;
    const auto run = tall ? wide ? multiply_tiles<products, 2, 2> : multiply_tiles<products, 2, 1>
                          : wide ? multiply_tiles<products, 1, 2> : multiply_tiles<products, 1, 1>;
    run(a.data, a.data + a.next, b.data, b.data + b.next, blocks, c, row, begin, ahead);
}

// Whether the parts hold values up to `largest`: not where some are infinite, NaN or about to overflow, nor where all are minute.
inline bool splits(uint32_t largest) { return largest < too_large && (largest == 0 || largest >= too_small); }

}  // namespace
}  // namespace split_gemm
