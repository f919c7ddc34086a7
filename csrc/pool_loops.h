// The loops of pool.cpp, compiled once for each instruction set (as kernel_loops.h is). One call does some planes.
#include "elements.h"

// Visits the taps of output position (d, h, w): body(flat index of the tap in the input plane).
template <class Body>
inline void for_taps(const Pool& p, ptrdiff_t d, ptrdiff_t h, ptrdiff_t w, Body body) {
    for (ptrdiff_t i = p.axes[0].start[d]; i < p.axes[0].end[d]; i += p.axes[0].step)
        for (ptrdiff_t j = p.axes[1].start[h]; j < p.axes[1].end[h]; j += p.axes[1].step)
            for (ptrdiff_t k = p.axes[2].start[w]; k < p.axes[2].end[w]; k += p.axes[2].step)
                body((i * p.axes[1].in + j) * p.axes[2].in + k);
}

// Visits the output positions of a plane: body(flat index, d, h, w).
template <class Body>
inline void for_positions(const Pool& p, Body body) {
    ptrdiff_t o = 0;
    for (ptrdiff_t d = 0; d < p.axes[0].out; d++)
        for (ptrdiff_t h = 0; h < p.axes[1].out; h++)
            for (ptrdiff_t w = 0; w < p.axes[2].out; w++) body(o++, d, h, w);
}

inline ptrdiff_t divisor(const Pool& p, ptrdiff_t d, ptrdiff_t h, ptrdiff_t w) {
    return p.divisor ? p.divisor : p.axes[0].count[d] * p.axes[1].count[h] * p.axes[2].count[w];
}

// The functions below get pointers to the first element of their planes. `channels` is how many channels they do at once:
// in channels-last order neighbours in memory, `p.channels` apart from position to position; else 1.

template <class T>
void max_forward(const Pool& p, const void* from, void* to, int64_t* where, ptrdiff_t channels) {
    using V = decltype(Element<T>::load(T{}));
    const T* x = (const T*)from;
    T* out = (T*)to;
    if (channels == 1 && p.channels_stride == 1)
        return for_positions(p, [&](ptrdiff_t o, ptrdiff_t d, ptrdiff_t h, ptrdiff_t w) {
            ptrdiff_t at = (p.axes[0].start[d] * p.axes[1].in + p.axes[1].start[h]) * p.axes[2].in + p.axes[2].start[w];
            V best = Element<T>::load(x[at]);
            for_taps(p, d, h, w, [&](ptrdiff_t i) {
                V value = Element<T>::load(x[i]);
                ptrdiff_t better = -(ptrdiff_t)((value > best) | (value != value));  // a branch here would be a coin toss
                best = better ? value : best;
                at ^= (at ^ i) & better;
            });
            out[o] = Element<T>::store(best);
            where[o] = at;
        });
    V best[pool_channels];
    int32_t at[pool_channels];
    for_positions(p, [&](ptrdiff_t o, ptrdiff_t d, ptrdiff_t h, ptrdiff_t w) {
        bool first = true;
        for_taps(p, d, h, w, [&](ptrdiff_t i) {
            const T* __restrict row = x + i * p.channels_stride;
            int32_t tap = (int32_t)i;
            if (first) {
                for (ptrdiff_t c = 0; c < channels; c++) best[c] = Element<T>::load(row[c]), at[c] = tap;
                first = false;
                return;
            }
            for (ptrdiff_t c = 0; c < channels; c++) {
                V value = Element<T>::load(row[c]);
                bool better = (value > best[c]) | (value != value);
                best[c] = better ? value : best[c];
                at[c] = better ? tap : at[c];
            }
        });
        for (ptrdiff_t c = 0; c < channels; c++) out[o * p.channels_stride + c] = Element<T>::store(best[c]);
        for (ptrdiff_t c = 0; c < channels; c++) where[o * p.channels_stride + c] = at[c];
    });
}

// gx, zero before, gets g at the places of the maxima.
template <class T>
void max_backward(const Pool& p, const void* from, void* to, int64_t* where, ptrdiff_t channels) {
    const T* g = (const T*)from;
    T* gx = (T*)to;
    ptrdiff_t positions = p.axes[0].out * p.axes[1].out * p.axes[2].out, places = p.axes[0].in * p.axes[1].in * p.axes[2].in;
    for (ptrdiff_t o = 0; o < positions; o++)
        for (ptrdiff_t c = 0; c < channels; c++) {
            ptrdiff_t i = o * p.channels_stride + c;
            if ((uint64_t)where[i] >= (uint64_t)places) {
                p.outside->store(true, std::memory_order_relaxed);
                continue;
            }
            T& target = gx[where[i] * p.channels_stride + c];
            target = Element<T>::store(Element<T>::load(target) + Element<T>::load(g[i]));
        }
}

template <class T>
void average_forward(const Pool& p, const void* from, void* to, int64_t*, ptrdiff_t channels) {
    using V = decltype(Element<T>::load(T{}));
    const T* x = (const T*)from;
    T* out = (T*)to;
    V sums[pool_channels];
    for_positions(p, [&](ptrdiff_t o, ptrdiff_t d, ptrdiff_t h, ptrdiff_t w) {
        V count = (V)divisor(p, d, h, w);
        if (channels == 1) {
            V sum = 0;
            for_taps(p, d, h, w, [&](ptrdiff_t i) { sum += Element<T>::load(x[i * p.channels_stride]); });
            out[o * p.channels_stride] = Element<T>::store(sum / count);
            return;
        }
        for (ptrdiff_t c = 0; c < channels; c++) sums[c] = 0;
        for_taps(p, d, h, w, [&](ptrdiff_t i) {
            const T* __restrict row = x + i * p.channels_stride;
            for (ptrdiff_t c = 0; c < channels; c++) sums[c] += Element<T>::load(row[c]);
        });
        for (ptrdiff_t c = 0; c < channels; c++) out[o * p.channels_stride + c] = Element<T>::store(sums[c] / count);
    });
}

// gx, zero before, gets a share of g at each tap.
template <class T>
void average_backward(const Pool& p, const void* from, void* to, int64_t*, ptrdiff_t channels) {
    using V = decltype(Element<T>::load(T{}));
    const T* g = (const T*)from;
    T* gx = (T*)to;
    V share[pool_channels];
    for_positions(p, [&](ptrdiff_t o, ptrdiff_t d, ptrdiff_t h, ptrdiff_t w) {
        V count = (V)divisor(p, d, h, w);
        if (channels == 1) {
            V part = Element<T>::load(g[o * p.channels_stride]) / count;
            for_taps(p, d, h, w, [&](ptrdiff_t i) {
                T& target = gx[i * p.channels_stride];
                target = Element<T>::store(Element<T>::load(target) + part);
            });
            return;
        }
        for (ptrdiff_t c = 0; c < channels; c++) share[c] = Element<T>::load(g[o * p.channels_stride + c]) / count;
        for_taps(p, d, h, w, [&](ptrdiff_t i) {
            T* __restrict row = gx + i * p.channels_stride;
            for (ptrdiff_t c = 0; c < channels; c++) row[c] = Element<T>::store(Element<T>::load(row[c]) + share[c]);
        });
    });
}

// By PoolKind, for f16, bf16, f32, f64. Gradients add up, so they are not for the narrow types.
const PoolLoops pool_loops = {{
    {max_forward<Half>, max_forward<BFloat>, max_forward<float>, max_forward<double>},
    {nullptr, nullptr, max_backward<float>, max_backward<double>},
    {average_forward<Half>, average_forward<BFloat>, average_forward<float>, average_forward<double>},
    {nullptr, nullptr, average_backward<float>, average_backward<double>},
}};
