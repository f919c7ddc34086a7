#include "split_gemm.h"

#if defined(__x86_64__) && defined(__linux__)

#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "instruction_set.h"
#include "room.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,amx-tile,amx-bf16,prefer-vector-width=512")

#include "runtime.h"

#include "kernel.h"
#include "split_tiles.h"

namespace split_gemm {
namespace {

constexpr int64_t most_depth = 512;          // k of a chunk: panels of both operands stay in the caches
constexpr int64_t most_side = 4096;          // rows and columns packed at a time: bounds the room
constexpr int64_t second_level = 900 << 10;  // bytes of packed panels that a core goes over again and again
thread_local Room common_room{Room::huge_page}, group_room{Room::huge_page};  // tiles jump from page to page

// ---- finishing ----

// Rows of a block are as long as a panel but at the edge: loops of known length are all vectors.
template <class Function>
inline void each(float* x, int64_t count, Function f) {
    for (int64_t i = 0; i < count / panel; i++)
        for (int64_t j = 0; j < panel; j++) x[i * panel + j] = f(x[i * panel + j]);
    for (int64_t j = count / panel * panel; j < count; j++) x[j] = f(x[j]);
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
        if (rows.step == rows.columns) return each(rows.x, rows.count * rows.columns, f);
        for (int64_t r = 0; r < rows.count; r++) each(rows.x + r * rows.step, rows.columns, f);
    };
    const auto binary = [&](auto f) {
        const float* y = p.data + i * p.row + j * p.column;
        for (int64_t r = 0; r < rows.count; r++) with(rows.x + r * rows.step, rows.columns, y + r * p.row, p.column, f);
    };
    switch (p.kind) {
#define FL_CASE(name, algorithm, operands, parameters, expression) \
    case Post::name: return operands([=] parameters { return expression; });
        FL_POST_OPS(FL_CASE)
#undef FL_CASE
    }
}

// ---- dividing the work ----

// A part of one product that is multiplied at a time: all of the columns and rows, or most_side of them, and a chunk of k.
struct Slab {
    int64_t row, rows, column, columns, k, length;
    bool begin, end;  // of the sums over k
};

int64_t chunk_of(int64_t k) { return std::min(k, divided(divided(k, divided(k, most_depth)), depth) * depth); }

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
    const int64_t blocks = divided(s.length, depth);
    const int64_t next = blocks * parts_of(products) * tile_bytes;
    const Panel left{a, rows, next}, right{b, columns, next};
    float* c = p.c + i * p.c_row + j;
    fetch_for_writing(c, p.c_row, rows, columns);
    if (rows % tile == 0 && columns % tile == 0 && (!s.end || z.posts == 0)) return multiply<products>(left, right, blocks, c, p.c_row, s.begin, ahead);
    alignas(64) float copy[panel * panel];
    if (!s.begin) copy_rows(copy, panel, c, p.c_row, rows, columns);
    multiply<products>(left, right, blocks, copy, panel, s.begin, ahead);
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
    if (threads == 1) {
        TileScope scope;
        const bool fine = splits(run.pack_common(common, 0, 1));
        return run.share(common, fine, 0, 1);
    }
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
    return instruction_set() == InstructionSet::amx && syscall(SYS_arch_prctl, request, tile_data) == 0;
}

}  // namespace

bool available() {
    static const bool usable = permitted();
    return usable;
}

void run(const Sizes& z, int64_t count, Product (*product)(void*, int64_t, PostOp*), void* context, int threads) {
    const auto one = z.products == 6 ? together<6> : z.products == 3 ? together<3> : together<1>;
    const auto all = [&](int64_t i, int its_threads) {
        PostOp posts[most_posts];
        one(z, product(context, i, posts), its_threads);
    };
    // Never one parallel region within another, be it of one thread: libgomp would start a thread anew for each inner one.
    if (threads == 1 || count < threads) {
        for (int64_t i = 0; i < count; i++) all(i, threads);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; i++) all(i, 1);
}

}  // namespace split_gemm

#pragma GCC pop_options

#else

namespace split_gemm {
bool available() { return false; }
void run(const Sizes&, int64_t, Product (*)(void*, int64_t, PostOp*), void*, int) {}
}  // namespace split_gemm

#endif
