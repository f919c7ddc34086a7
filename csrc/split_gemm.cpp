// x = x1 + x2 + x3 with 8 bits in each part; of the nine products of parts, the six largest leave an error below f32's own
// rounding: Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
// Computations", ARITH 2019. One AMX tile instruction does 16 x 16 x 32 multiply-adds of bf16 and sums in f32, sixteen times
// the rate of f32 vectors, so that six of them are still more than twice as fast.
#include "split_gemm.h"

#if defined(__x86_64__) && defined(__linux__)

#include <immintrin.h>
#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,amx-tile,amx-bf16,prefer-vector-width=512")

#include "runtime.h"

#include "kernel.h"

namespace split_gemm {
namespace {

constexpr int64_t tile = 16, panel = 32, depth = 32;  // rows or columns of a tile and of a panel; k of a tile
constexpr int64_t tile_bytes = 1024;
constexpr int64_t most_depth = 512;                   // k of a chunk: panels of both operands stay in the caches
constexpr int64_t most_side = 4096;                   // rows and columns packed at a time: bounds the room
constexpr int64_t second_level = 640 << 10;           // bytes of packed a that a core goes over again and again

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

struct Room {
    char* data = nullptr;
    size_t size = 0;
    ~Room() { free(data); }
    char* of(size_t bytes) {
        if (bytes > size) {
            free(data);
            data = (char*)aligned_alloc(64, bytes);
            size = data ? bytes : 0;
            if (data == nullptr) throw std::bad_alloc();
        }
        return data;
    }
};
thread_local Room common_room, group_room;

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

inline __m512i pair_of_rows(__m512i even, __m512i odd) { return _mm512_or_si512(_mm512_srli_epi32(even, 16), odd); }

inline __m512i side_by_side(__m512i first, __m512i second) {
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_castsi512_ps(second), _mm512_castsi512_ps(first));
}

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
            x = whole ? _mm512_loadu_ps(row) : _mm512_maskz_loadu_ps(i < lines ? low : 0, row);
            y = whole ? _mm512_loadu_ps(row + 16) : _mm512_maskz_loadu_ps(i < lines ? high : 0, row + 16);
        } else {
            const float* row = data + 2 * i * s.along;
            x = whole ? _mm512_loadu_ps(row) : _mm512_maskz_loadu_ps(2 * i < length ? here : 0, row);
            y = whole ? _mm512_loadu_ps(row + s.along) : _mm512_maskz_loadu_ps(2 * i + 1 < length ? here : 0, row + s.along);
        }
        note(largest, x), note(largest, y);
        along ? put<parts>(out, i, x, y, side_by_side) : put<parts>(out, i, x, y, pair_of_rows);
    }
    if (right == along)
        for (int p = 0; p < parts; p++) transpose(out + p * tile_bytes);
}

// Beyond these a part would overflow, or all of a matrix would lose its low parts to underflow.
constexpr uint32_t too_large = 254u << 23, too_small = 27u << 23;

// Packs the panels [from, to); the largest magnitude, as the bits of a float.
template <bool right, int parts>
uint32_t pack(const Source& s, int64_t from, int64_t to, char* out) {
    __m512i largest = _mm512_setzero_si512();
    const int64_t blocks = divided(s.length, depth), end = std::min(to * panel, s.lines);
    for (int64_t line = from * panel; line < end; line += tile)
        for (int64_t k = 0; k < blocks; k++, out += parts * tile_bytes) pack_block<right, parts>(s, line, k * depth, out, largest);
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
void multiply(const char* a, const char* b, int64_t blocks, float* c, int64_t row, bool begin, Ahead ahead) {
    constexpr int64_t block_bytes = parts_of(products) * tile_bytes;
    const char *a2 = a + blocks * block_bytes, *b2 = b + blocks * block_bytes;
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

// ---- finishing ----

// Functions over rows of a block; whole rows of a panel have a loop of known length, which is all vectors.
template <class Function>
inline void each(float* x, int64_t columns, Function f) {
    if (columns == panel)
        for (int64_t j = 0; j < panel; j++) x[j] = f(x[j]);
    else
        for (int64_t j = 0; j < columns; j++) x[j] = f(x[j]);
}

template <class Function>
inline void with(float* __restrict__ x, int64_t columns, const float* __restrict__ y, int64_t step, Function f) {
    if (step == 1 && columns == panel)
        for (int64_t j = 0; j < panel; j++) x[j] = f(x[j], y[j]);
    else if (step == 1)
        for (int64_t j = 0; j < columns; j++) x[j] = f(x[j], y[j]);
    else
        for (int64_t j = 0; j < columns; j++) x[j] = f(x[j], y[j * step]);
}

struct Rows {
    float* x;
    int64_t step, count, columns;  // `step` from row to row
};

// Applies one operation to rows that begin at (i, j) of the product.
void finish(const Rows& rows, const PostOp& p, int64_t i, int64_t j) {
    const float alpha = p.alpha, beta = p.beta;
    const auto unary = [&](auto f) {
        for (int64_t r = 0; r < rows.count; r++) each(rows.x + r * rows.step, rows.columns, f);
    };
    const auto binary = [&](auto f) {
        const float* y = p.data + i * p.row + j * p.column;
        for (int64_t r = 0; r < rows.count; r++) with(rows.x + r * rows.step, rows.columns, y + r * p.row, p.column, f);
    };
    switch (p.kind) {
        case Post::add: return binary([](float a, float b) { return a + b; });
        case Post::sub: return binary([](float a, float b) { return a - b; });
        case Post::mul: return binary([](float a, float b) { return a * b; });
        case Post::div: return binary([](float a, float b) { return a / b; });
        case Post::max: return binary([](float a, float b) { return a > b || a != a ? a : b; });
        case Post::min: return binary([](float a, float b) { return a < b || a != a ? a : b; });
        case Post::relu: return unary([=](float a) { return a < 0 ? alpha * a : a; });
        case Post::linear: return unary([=](float a) { return alpha * a + beta; });
        case Post::tanh: return unary([](float a) { return fl::tanh(a); });
        case Post::sigmoid: return unary([](float a) { return 1.0f / (1.0f + fl::exp(-a)); });
        case Post::gelu_erf: return unary([](float a) { return 0.5f * a * (1.0f + fl::erf(a * 0.70710678f)); });
        case Post::gelu_tanh:
            return unary([](float a) { return 0.5f * a * (1.0f + fl::tanh(0.79788456f * (a + 0.044715f * a * a * a))); });
    }
}

// ---- dividing the work ----

// A part of one product that is multiplied at a time: all of the columns and rows, or most_side of them, and a chunk of k.
struct Slab {
    int64_t row, rows, column, columns, k, length;
    bool begin, end;  // of the sums over k
};

int64_t chunk_of(int64_t k) { return std::min(k, divided(divided(k, divided(k, most_depth)), depth) * depth); }

// Whether the parts hold values up to `largest`: not where some are infinite, NaN or about to overflow, nor where all are minute.
bool splits(uint32_t largest) { return largest < too_large && (largest == 0 || largest >= too_small); }

void finish_all(const Rows& rows, const Product& p, const Sizes& z, int64_t i, int64_t j) {
    for (int q = 0; q < z.posts; q++) finish(rows, p.posts[q], i, j);
}

inline void copy_rows(float* to, int64_t to_step, const float* from, int64_t from_step, int64_t rows, int64_t columns) {
    if (columns == panel)
        for (int64_t r = 0; r < rows; r++) memcpy(to + r * to_step, from + r * from_step, panel * sizeof *to);
    else
        for (int64_t r = 0; r < rows; r++) memcpy(to + r * to_step, from + r * from_step, columns * sizeof *to);
}

// A row's lines of cache, before they are written.
inline void fetch_for_writing(const float* x, int64_t row, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j += 16) __builtin_prefetch(x + i * row + j, 1);
}

// The block at (i, j) of the product; through a copy where it is cut off by the edge or finished.
template <int products>
void multiply_block(const Product& p, const Sizes& z, const Slab& s, const char* a, const char* b, int64_t i, int64_t j, Ahead ahead) {
    const int64_t rows = std::min(panel, s.row + s.rows - i), columns = std::min(panel, s.column + s.columns - j);
    const bool tall = rows > tile, wide = columns > tile;
    const auto run = tall ? wide ? multiply<products, 2, 2> : multiply<products, 2, 1>
                          : wide ? multiply<products, 1, 2> : multiply<products, 1, 1>;
    const int64_t blocks = divided(s.length, depth);
    float* c = p.c + i * p.c_row + j;
    fetch_for_writing(c, p.c_row, rows, columns);
    if (rows % tile == 0 && columns % tile == 0 && (!s.end || z.posts == 0)) return run(a, b, blocks, c, p.c_row, s.begin, ahead);
    alignas(64) float copy[panel * panel];
    if (!s.begin) copy_rows(copy, panel, c, p.c_row, rows, columns);
    run(a, b, blocks, copy, panel, s.begin, ahead);
    if (s.end) finish_all({copy, panel, rows, columns}, p, z, i, j);
    copy_rows(c, p.c_row, copy, panel, rows, columns);
}

// A part of a slab in plain f32, subnormal numbers and all, for values that do not split.
void multiply_plainly(const Product& p, const Sizes& z, const Slab& s) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before & ~flush_subnormals);
    for (int64_t i = s.row; i < s.row + s.rows; i++) {
        float* c = p.c + i * p.c_row + s.column;
        if (s.begin) std::fill(c, c + s.columns, 0.0f);
        for (int64_t k = s.k; k < s.k + s.length; k++) {
            const float x = p.a[i * p.a_row + k * p.a_column];
            with(c, s.columns, p.b + k * p.b_row + s.column * p.b_column, p.b_column, [=](float sum, float y) { return sum + x * y; });
        }
        if (s.end) finish_all({c, 0, 1, s.columns}, p, z, i, s.column);
    }
    _mm_setcsr(before);
}

// One slab. The side with fewer panels is packed by all threads together; each thread then takes its share of the other side's
// panels, a group at a time that stays in its cache, and goes over the common side with it.
template <int products, bool by_rows>
struct SlabRun {
    static constexpr int parts = parts_of(products);
    const Sizes& z;
    const Product& p;
    const Slab& s;
    Source own, common;
    int64_t panel_bytes, group;

    SlabRun(const Sizes& z, const Product& p, const Slab& s) : z(z), p(p), s(s) {
        Source rows{p.a + s.row * p.a_row + s.k * p.a_column, p.a_row, p.a_column, s.rows, s.length};
        Source columns{p.b + s.k * p.b_row + s.column * p.b_column, p.b_column, p.b_row, s.columns, s.length};
        own = by_rows ? rows : columns, common = by_rows ? columns : rows;
        panel_bytes = divided(s.length, depth) * 2 * parts * tile_bytes;
        group = std::max<int64_t>(1, std::min(second_level / panel_bytes, divided(own.lines, panel)));
    }

    int64_t common_panels() const { return divided(common.lines, panel); }

    uint32_t pack_common(char* room, int thread, int threads) const {
        const int64_t from = common_panels() * thread / threads, to = common_panels() * (thread + 1) / threads;
        return pack<by_rows, parts>(common, from, to, room + from * panel_bytes);
    }

    void share(const char* common_room, bool common_splits, int thread, int threads) const {
        const int64_t panels = divided(own.lines, panel), end = panels * (thread + 1) / threads;
        for (int64_t at = panels * thread / threads; at < end; at += group) {
            const int64_t to = std::min(at + group, end);
            char* own_room = group_room.of(group * panel_bytes);
            if (common_splits && splits(pack<!by_rows, parts>(own, at, to, own_room))) multiply_group(own_room, common_room, at, to);
            else plain_group(at, to);
        }
    }

   private:
    void multiply_group(const char* own_room, const char* common_room, int64_t at, int64_t to) const {
        const int64_t stretch = panel_bytes / (to - at), step = stretch / divided(s.length, depth);
        for (int64_t q = 0; q < common_panels(); q++)
            for (int64_t o = at; o < to; o++) {
                const char* next = common_room + (q + 1) * panel_bytes + (o - at) * stretch;
                const Ahead ahead{next, q + 1 < common_panels() ? next + stretch : next, step};
                const char *mine = own_room + (o - at) * panel_bytes, *theirs = common_room + q * panel_bytes;
                const int64_t row = s.row + (by_rows ? o : q) * panel, column = s.column + (by_rows ? q : o) * panel;
                multiply_block<products>(p, z, s, by_rows ? mine : theirs, by_rows ? theirs : mine, row, column, ahead);
            }
    }

    void plain_group(int64_t at, int64_t to) const {
        Slab part = s;
        const int64_t from = at * panel, lines = std::min(to * panel, own.lines) - from;
        (by_rows ? part.row : part.column) += from;
        (by_rows ? part.rows : part.columns) = lines;
        multiply_plainly(p, z, part);
    }
};

template <int products, bool by_rows>
void run_slab(const Sizes& z, const Product& p, const Slab& s, int threads) {
    const SlabRun<products, by_rows> run(z, p, s);
    char* common = common_room.of(run.common_panels() * run.panel_bytes);
    std::atomic<bool> common_splits{true};
#pragma omp parallel num_threads(threads)
    {
        TileScope scope;
        const int thread = omp_get_thread_num(), team = omp_get_num_threads();
        if (!splits(run.pack_common(common, thread, team))) common_splits = false;
#pragma omp barrier
        run.share(common, common_splits, thread, team);
    }
}

template <int products>
void together(const Sizes& z, const Product& p, int threads) {
    const int64_t chunk = chunk_of(z.k);
    for (int64_t row = 0; row < z.m; row += most_side)
        for (int64_t column = 0; column < z.n; column += most_side)
            for (int64_t k = 0; k < z.k; k += chunk) {
                const Slab s{row, std::min(most_side, z.m - row), column, std::min(most_side, z.n - column), k,
                             std::min(chunk, z.k - k), k == 0, k + chunk >= z.k};
                s.rows >= s.columns ? run_slab<products, true>(z, p, s, threads) : run_slab<products, false>(z, p, s, threads);
            }
}

bool permitted() {
    constexpr int request = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA of Linux
    unsigned a, b, c, d;
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
    const bool tiles = (d >> 24 & 1) && (d >> 22 & 1);
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(1));
    const bool pairs = a >> 5 & 1;
    return tiles && pairs && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && syscall(SYS_arch_prctl, request, tile_data) == 0;
}

}  // namespace

bool available() {
    static const bool usable = permitted();
    return usable;
}

void run(const Sizes& z, int64_t count, Product (*product)(void*, int64_t, PostOp*), void* context, int threads) {
    const auto one = z.products == 6 ? together<6> : z.products == 3 ? together<3> : together<1>;
    const bool share_out = count >= threads && threads > 1;
#pragma omp parallel for num_threads(threads) schedule(static) if (share_out)
    for (int64_t i = 0; i < count; i++) {
        PostOp posts[most_posts];
        one(z, product(context, i, posts), share_out ? 1 : threads);
    }
}

}  // namespace split_gemm

#pragma GCC pop_options

#else

namespace split_gemm {
bool available() { return false; }
void run(const Sizes&, int64_t, Product (*)(void*, int64_t, PostOp*), void*, int) {}
}  // namespace split_gemm

#endif
