// Attention over f32 heads by products of bf16 parts (split_tiles.h), a block of query rows at a time: scores never leave the
// caches, and what a causal mask hides is not computed. The backward pass computes the scores again from the logarithms of the
// softmax's sums: Dao, Fu, Ermon, Rudra and Re, "FlashAttention", NeurIPS 2022.
#include "split_attention.h"

#include <cstring>

#include "split_gemm.h"

#if defined(__x86_64__) && defined(__linux__)

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "room.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,amx-tile,amx-bf16,prefer-vector-width=512")

#include "split_tiles.h"

namespace split_gemm {
namespace {

constexpr int products = 6, parts = 3;
constexpr int64_t rows_backward = 128;  // query rows at a time, over which gradients of keys and values are summed in tiles

int64_t up(int64_t n, int64_t to) { return divided(n, to) * to; }

struct Matrix {
    const float* data;
    int64_t row;
};

// A side of a product, packed: `lines` in panels of two tiles, `length` along k.
struct Side {
    char* room;
    int64_t lines, length;
    int64_t next() const { return divided(length, depth) * parts * tile_bytes; }
    Panel panel_at(int64_t i, int64_t from_block = 0) const {
        return {room + i * 2 * next() + from_block * parts * tile_bytes, lines - i * panel, next()};
    }
    static int64_t bytes(int64_t lines, int64_t length) { return up(lines, panel) / tile * divided(length, depth) * parts * tile_bytes; }
};

// Rows of a matrix as lines, k along them.
template <bool right>
uint32_t pack_rows(Side& side, Matrix m, int64_t lines, int64_t length) {
    side.lines = lines, side.length = length;
    return pack<right, parts>(Source{m.data, m.row, 1, lines, length}, 0, divided(lines, panel), side.room);
}

// Columns of a matrix as lines, k down the rows.
template <bool right>
uint32_t pack_columns(Side& side, Matrix m, int64_t lines, int64_t length) {
    side.lines = lines, side.length = length;
    return pack<right, parts>(Source{m.data, 1, m.row, lines, length}, 0, divided(lines, panel), side.room);
}

// Hands out stretches of one thread's room.
class Stretches {
   public:
    Side side(int64_t lines, int64_t length) { return {take(Side::bytes(lines, length)), 0, 0}; }
    float* floats(int64_t count) { return (float*)take(count * sizeof(float)); }
    explicit Stretches(char* room) : base(room) {}
    int64_t used = 0;

   private:
    char* base;
    char* take(int64_t bytes) {
        char* at = base == nullptr ? nullptr : base + used;
        used += up(bytes, 64);
        return at;
    }
};
thread_local Room attention_room{Room::huge_page};

// `Buffers` is counted once without memory, then laid out in it.
template <class Buffers>
Buffers buffers_for(const Attention& z) {
    Stretches count(nullptr);
    Buffers sized(z, count);
    Stretches real(attention_room.of(count.used));
    return Buffers(z, real);
}

// e^x for x below 88, 0 where it would be subnormal: 2^n e^r with a polynomial for |r| <= ln(2) / 2 (coefficients of Cephes' expf).
inline __m512 exponential(__m512 x) {
    const auto all = [](float c) { return _mm512_set1_ps(c); };
    x = _mm512_max_ps(all(-104.0f), x);  // NaN stays, as the second operand
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, all(1.44269504f)), 0);
    const __m512 r = _mm512_fnmadd_ps(n, all(-2.12194440e-4f), _mm512_fnmadd_ps(n, all(0.693359375f), x));
    __m512 p = _mm512_fmadd_ps(all(1.98756915e-4f), r, all(1.39819995e-3f));
    for (float c : {8.33345191e-3f, 4.16657959e-2f, 1.66666655e-1f, 5.00000012e-1f}) p = _mm512_fmadd_ps(p, r, all(c));
    return _mm512_scalef_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, all(1))), n);
}

// x = exp(scale * x - its largest), 0 from `visible` to `seen`; returns the logarithm of the sum, and 1 / sum in `inverse`.
inline float softmax_weights(float* x, float scale, int64_t visible, int64_t seen, float& inverse) {
    const int64_t vectors = up(visible, 16);  // loops over whole vectors have no slow rest
    const float lowest = scale < 0 ? INFINITY : -INFINITY;
    if (scale == 0) std::fill(x, x + visible, 0.0f), scale = 1;  // so that what is hidden stays hidden
    std::fill(x + visible, x + vectors, lowest);
    const __m512 factor = _mm512_set1_ps(scale);
    __m512 tops = _mm512_set1_ps(-INFINITY), sums = _mm512_setzero_ps();
    for (int64_t j = 0; j < vectors; j += 16) {
        const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x + j), factor);
        _mm512_storeu_ps(x + j, scaled);
        tops = _mm512_max_ps(tops, scaled);
    }
    const float top = _mm512_reduce_max_ps(tops);
    for (int64_t j = 0; j < vectors; j += 16) {
        const __m512 e = exponential(_mm512_sub_ps(_mm512_loadu_ps(x + j), _mm512_set1_ps(top)));
        _mm512_storeu_ps(x + j, e);
        sums = _mm512_add_ps(sums, e);
    }
    const float sum = _mm512_reduce_add_ps(sums);
    std::fill(x + vectors, x + seen, 0.0f);
    inverse = 1 / sum;
    return top + std::log(sum);
}

inline float dot(const float* x, const float* y, int64_t n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) sum += x[j] * y[j];
    return sum;
}

// Scores of the 32 rows of `left` with all keys that the last of them sees; `seen` is a multiple of 32.
void scores_of(const Panel& left, const Side& keys, int64_t seen, float* scores, int64_t row) {
    for (int64_t c = 0; c < seen / panel; c++)
        multiply<products>(left, keys.panel_at(c), divided(keys.length, depth), scores + c * panel, row, true);
}

// ---- heads with values that do not split, in plain f32 ----

// What one query head reads and writes; forward, `out` is written.
struct Query {
    Matrix q, k, v;
    float* out;
    int64_t out_row;
    float* lse;
    Matrix g{};
    float* gq = nullptr;
    int64_t gq_row = 0;
};

inline void add_times(float* sum, float factor, const float* x, int64_t n) {
    for (int64_t j = 0; j < n; j++) sum[j] += factor * x[j];
}

void plain_forward(const Attention& z, const Query& head, float* p, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
        const int64_t visible = z.visible(i);
        float top = -INFINITY, sum = 0, *out = head.out + i * head.out_row;
        for (int64_t c = 0; c < visible; c++) {
            p[c] = z.scale * dot(head.q.data + i * head.q.row, head.k.data + c * head.k.row, z.e);
            top = std::max(top, p[c]);
        }
        for (int64_t c = 0; c < visible; c++) sum += p[c] = std::exp(p[c] - top);
        std::fill(out, out + z.e, 0.0f);
        for (int64_t c = 0; c < visible; c++) add_times(out, p[c] / sum, head.v.data + c * head.v.row, z.e);
        head.lse[i] = top + std::log(sum);
    }
}

void plain_backward(const Attention& z, const Query& head, float* gk, float* gv, int64_t step) {
    for (int64_t i = 0; i < z.rows; i++) {
        const float *q = head.q.data + i * head.q.row, *g = head.g.data + i * head.g.row;
        float* gq = head.gq + i * head.gq_row;
        const float delta = dot(g, head.out + i * head.out_row, z.e);
        std::fill(gq, gq + z.e, 0.0f);
        for (int64_t c = 0; c < z.visible(i); c++) {
            const float *k = head.k.data + c * head.k.row, *v = head.v.data + c * head.v.row;
            const float p = std::exp(z.scale * dot(q, k, z.e) - head.lse[i]);
            const float gs = z.scale * p * (dot(g, v, z.e) - delta);
            add_times(gq, gs, k, z.e), add_times(gk + c * step, gs, q, z.e), add_times(gv + c * step, p, g, z.e);
        }
    }
}

// ---- forward ----

struct ForwardBuffers {
    Side keys, values, queries, weights;
    float *scores, *out;
    ForwardBuffers(const Attention& z, Stretches& s)
        : keys(s.side(z.columns, z.e)), values(s.side(z.e, z.columns)), queries(s.side(panel, z.e)), weights(s.side(panel, z.columns)),
          scores(s.floats(panel * up(z.columns, panel))), out(s.floats(panel * up(z.e, panel))) {}
};

// Rows [from, to) of one head; false where values do not split.
bool forward_rows(const Attention& z, ForwardBuffers& f, const Query& head, int64_t from, int64_t to) {
    const int64_t width = up(z.columns, panel), e_width = up(z.e, panel);
    float inverse[panel];
    for (int64_t i = from; i < to; i += panel) {
        const int64_t rows = std::min(panel, to - i), seen = up(z.visible(i + rows - 1), panel);
        if (!splits(pack_rows<false>(f.queries, {head.q.data + i * head.q.row, head.q.row}, rows, z.e))) return false;
        scores_of(f.queries.panel_at(0), f.keys, seen, f.scores, width);
        for (int64_t r = 0; r < rows; r++) {
            head.lse[i + r] = softmax_weights(f.scores + r * width, z.scale, z.visible(i + r), seen, inverse[r]);
        }
        pack_rows<false>(f.weights, {f.scores, width}, rows, seen);
        for (int64_t c = 0; c < e_width / panel; c++)
            multiply<products>(f.weights.panel_at(0), f.values.panel_at(c), seen / depth, f.out + c * panel, e_width, true);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < z.e; j++) head.out[(i + r) * head.out_row + j] = f.out[r * e_width + j] * inverse[r];
    }
    return true;
}

}  // namespace

void attention_forward(const Attention& z, const Heads& q, const Heads& k, const Heads& v, const Heads& out, float* lse, int threads) {
    const int64_t heads = z.batch * z.heads, cuts = heads >= threads ? 1 : std::min(divided(threads, heads), divided(z.rows, panel));
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < heads * cuts; task++) {
        const int64_t b = task / cuts / z.heads, h = task / cuts % z.heads, cut = task % cuts, kh = h / (z.heads / z.key_heads);
        TileScope scope;
        auto f = buffers_for<ForwardBuffers>(z);
        const Query head{{q.at(b, h), q.row}, {k.at(b, kh), k.row}, {v.at(b, kh), v.row}, out.at(b, h), out.row,
                         lse + (b * z.heads + h) * z.rows};
        const int64_t blocks = divided(z.rows, panel), from = blocks * cut / cuts * panel, to = std::min(z.rows, blocks * (cut + 1) / cuts * panel);
        if (!splits(pack_rows<true>(f.keys, head.k, z.columns, z.e)) || !splits(pack_columns<true>(f.values, head.v, z.e, z.columns)) ||
            !forward_rows(z, f, head, from, to))
            plain_forward(z, head, f.scores, from, to);
    }
}

// ---- backward ----

namespace {

struct BackwardBuffers {
    Side keys, key_columns, values, queries, query_columns, gradients, gradient_columns, turned, weights;
    float *p, *gs, *gq, *gk, *gv;
    BackwardBuffers(const Attention& z, Stretches& s)
        : keys(s.side(z.columns, z.e)), key_columns(s.side(z.e, z.columns)), values(s.side(z.columns, z.e)),
          queries(s.side(rows_backward, z.e)), query_columns(s.side(z.e, rows_backward)), gradients(s.side(rows_backward, z.e)),
          gradient_columns(s.side(z.e, rows_backward)), turned(s.side(panel, rows_backward)), weights(s.side(panel, z.columns)),
          p(s.floats(rows_backward * up(z.columns, panel))), gs(s.floats(rows_backward * up(z.columns, panel))),
          gq(s.floats(panel * up(z.e, panel))), gk(s.floats(up(z.columns, panel) * up(z.e, panel))),
          gv(s.floats(up(z.columns, panel) * up(z.e, panel))) {}
};

// p = exp(scale * scores - lse) and gs = scale * p * (gp - delta), for 32 rows from row i of the head.
void weights_and_gradients(const Attention& z, const Query& head, float* p, float* gs, int64_t i, int64_t rows, int64_t seen, int64_t width) {
    for (int64_t r = 0; r < rows; r++) {
        float *x = p + r * width, *y = gs + r * width;
        const float delta = dot(head.g.data + (i + r) * head.g.row, head.out + (i + r) * head.out_row, z.e), lse = head.lse[i + r];
        const int64_t visible = z.visible(i + r);
        const __m512 scale = _mm512_set1_ps(z.scale);
        for (int64_t j = 0; j < visible; j += 16) {
            const __m512 e = exponential(_mm512_fmsub_ps(_mm512_loadu_ps(x + j), scale, _mm512_set1_ps(lse)));
            _mm512_storeu_ps(x + j, e);
            _mm512_storeu_ps(y + j, _mm512_mul_ps(_mm512_mul_ps(scale, e), _mm512_sub_ps(_mm512_loadu_ps(y + j), _mm512_set1_ps(delta))));
        }
        std::fill(x + visible, x + seen, 0.0f), std::fill(y + visible, y + seen, 0.0f);
    }
}

// Adds weights^T side, summed over `rows` rows from row i of the head, to the gradient of each key or value that they see.
void add_turned(const Attention& z, BackwardBuffers& f, const float* weights, const Side& side, int64_t i, int64_t rows, int64_t seen, float* sums) {
    const int64_t width = up(z.columns, panel), e_width = up(z.e, panel);
    for (int64_t c = 0; c < seen; c += panel) {
        const int64_t skipped = z.causal ? std::max<int64_t>(0, c - i) / panel : 0;  // blocks of rows that do not see this far
        if (skipped * panel >= rows) break;
        pack_columns<false>(f.turned, {weights + skipped * panel * width + c, width}, panel, rows - skipped * panel);
        for (int64_t j = 0; j < e_width / panel; j++)
            multiply<products>(f.turned.panel_at(0), side.panel_at(j, skipped), divided(f.turned.length, depth), sums + c * e_width + j * panel, e_width, false);
    }
}

bool backward_head(const Attention& z, BackwardBuffers& f, const Query& head) {
    const int64_t width = up(z.columns, panel), e_width = up(z.e, panel);
    for (int64_t i = 0; i < z.rows; i += rows_backward) {
        const int64_t rows = std::min(rows_backward, z.rows - i);
        const Matrix q{head.q.data + i * head.q.row, head.q.row}, g{head.g.data + i * head.g.row, head.g.row};
        if (!splits(pack_rows<false>(f.queries, q, rows, z.e)) || !splits(pack_rows<false>(f.gradients, g, rows, z.e))) return false;
        pack_columns<true>(f.query_columns, q, z.e, rows), pack_columns<true>(f.gradient_columns, g, z.e, rows);
        int64_t seen = 0;
        for (int64_t r = 0; r < rows; r += panel) {
            const int64_t here = std::min(panel, rows - r);
            float *p = f.p + r * width, *gs = f.gs + r * width;
            seen = up(z.visible(i + r + here - 1), panel);
            scores_of(f.queries.panel_at(r / panel), f.keys, seen, p, width);
            scores_of(f.gradients.panel_at(r / panel), f.values, seen, gs, width);
            weights_and_gradients(z, head, p, gs, i + r, here, seen, width);
            pack_rows<false>(f.weights, {gs, width}, here, seen);
            for (int64_t j = 0; j < e_width / panel; j++)
                multiply<products>(f.weights.panel_at(0), f.key_columns.panel_at(j), seen / depth, f.gq + j * panel, e_width, true);
            for (int64_t t = 0; t < here; t++) memcpy(head.gq + (i + r + t) * head.gq_row, f.gq + t * e_width, z.e * sizeof(float));
        }
        add_turned(z, f, f.p, f.gradient_columns, i, rows, seen, f.gv);
        add_turned(z, f, f.gs, f.query_columns, i, rows, seen, f.gk);
    }
    return true;
}

}  // namespace

void attention_backward(const Attention& z, const Heads& g, const Heads& q, const Heads& k, const Heads& v, const Heads& out,
                        const float* lse, const Gradients& to, int threads) {
    const int64_t group = z.heads / z.key_heads, e_width = up(z.e, panel), sums = up(z.columns, panel) * e_width;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < z.batch * z.key_heads; task++) {
        const int64_t b = task / z.key_heads, kh = task % z.key_heads;
        TileScope scope;
        auto f = buffers_for<BackwardBuffers>(z);
        const Matrix keys{k.at(b, kh), k.row}, values{v.at(b, kh), v.row};
        const auto head = [&](int64_t h) {
            return Query{{q.at(b, h), q.row}, keys, values, out.at(b, h), out.row, (float*)lse + (b * z.heads + h) * z.rows,
                         {g.at(b, h), g.row}, to.q.at(b, h), to.q.row};
        };
        const auto clear = [&] { std::fill(f.gk, f.gk + sums, 0.0f), std::fill(f.gv, f.gv + sums, 0.0f); };
        bool usable = splits(pack_rows<true>(f.keys, keys, z.columns, z.e)) && splits(pack_rows<true>(f.values, values, z.columns, z.e));
        pack_columns<true>(f.key_columns, keys, z.e, z.columns);
        clear();
        for (int64_t h = kh * group; h < (kh + 1) * group && usable; h++) usable = backward_head(z, f, head(h));
        if (!usable) {
            clear();
            for (int64_t h = kh * group; h < (kh + 1) * group; h++) plain_backward(z, head(h), f.gk, f.gv, e_width);
        }
        for (int64_t c = 0; c < z.columns; c++) {
            memcpy(to.k.at(b, kh) + c * to.k.row, f.gk + c * e_width, z.e * sizeof(float));
            memcpy(to.v.at(b, kh) + c * to.v.row, f.gv + c * e_width, z.e * sizeof(float));
        }
    }
}

}  // namespace split_gemm

#pragma GCC pop_options

#else

namespace split_gemm {
void attention_forward(const Attention&, const Heads&, const Heads&, const Heads&, const Heads&, float*, int) {}
void attention_backward(const Attention&, const Heads&, const Heads&, const Heads&, const Heads&, const Heads&, const float*,
                        const Gradients&, int) {}
}  // namespace split_gemm

#endif

extern "C" int attention_run(const int64_t* words, void* const* operands, int count, int threads) {
    using namespace split_gemm;
    if (!available()) return 1;
    Attention shape{words[0], words[1], words[2], words[3], words[4], words[5], words[6] != 0, 0};
    memcpy(&shape.scale, &words[7], sizeof shape.scale);
    Heads q{}, k{}, v{}, out{}, g{};
    Gradients to{};
    Heads* const heads[] = {&q, &k, &v, &out, nullptr, &g, &to.q, &to.k, &to.v};
    const int64_t* strides = words + 8;
    for (int i = 0; i < count; i++) {
        if (heads[i] == nullptr) continue;
        *heads[i] = {(float*)operands[i], strides[0], strides[1], strides[2]};
        strides += 3;
    }
    float* lse = (float*)operands[4];
    if (count > 5) attention_backward(shape, g, q, k, v, out, lse, to, threads);
    else attention_forward(shape, q, k, v, out, lse, threads);
    return 0;
}
