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

// The maxima of one plane in plain order: neighbouring output positions side by side, tap by tap, so that no branch depends on
// the data.
template <class T>
void max_forward_plane(const Pool& p, const T* __restrict x, T* __restrict out, int64_t* __restrict where) {
    using V = decltype(Element<T>::load(T{}));
    const PoolAxis &depth = p.axes[0], &height = p.axes[1], &width = p.axes[2];
    V best[pool_channels], value[pool_channels];
    int32_t at[pool_channels], place[pool_channels], start[pool_channels], end[pool_channels];
    for (ptrdiff_t first = 0; first < width.out; first += pool_channels) {
        ptrdiff_t n = width.out - first < pool_channels ? width.out - first : pool_channels;
        int32_t taps = 0, step = (int32_t)width.step;
        for (ptrdiff_t l = 0; l < n; l++) {
            start[l] = (int32_t)width.start[first + l], end[l] = (int32_t)width.end[first + l];
            int32_t count = (end[l] - start[l] + step - 1) / step;
            taps = count > taps ? count : taps;
        }
        for (ptrdiff_t d = 0; d < depth.out; d++)
            for (ptrdiff_t h = 0; h < height.out; h++) {
                int32_t top = (int32_t)((depth.start[d] * height.in + height.start[h]) * width.in);
                for (ptrdiff_t l = 0; l < n; l++) at[l] = top + start[l], best[l] = Element<T>::load(x[at[l]]);
                for (ptrdiff_t i = depth.start[d]; i < depth.end[d]; i += depth.step)
                    for (ptrdiff_t j = height.start[h]; j < height.end[h]; j += height.step) {
                        int32_t row = (int32_t)((i * height.in + j) * width.in);
                        for (int32_t t = 0; t < taps; t++) {
                            for (ptrdiff_t l = 0; l < n; l++) {  // past the end: the first tap once more
                                int32_t k = start[l] + t * step;
                                place[l] = row + (k < end[l] ? k : start[l]);
                            }
                            for (ptrdiff_t l = 0; l < n; l++) value[l] = Element<T>::load(x[place[l]]);
                            for (ptrdiff_t l = 0; l < n; l++) {
                                bool inside = place[l] - row == start[l] + t * step;
                                bool better = inside & ((value[l] > best[l]) | (value[l] != value[l]));
                                best[l] = better ? value[l] : best[l];
                                at[l] = better ? place[l] : at[l];
                            }
                        }
                    }
                ptrdiff_t o = (d * height.out + h) * width.out + first;
                for (ptrdiff_t l = 0; l < n; l++) out[o + l] = Element<T>::store(best[l]), where[o + l] = at[l];
            }
    }
}

template <class T>
void max_forward(const Pool& p, const void* from, void* to, int64_t* where, ptrdiff_t channels) {
    using V = decltype(Element<T>::load(T{}));
    const T* x = (const T*)from;
    T* out = (T*)to;
    if (p.channels_stride == 1) return max_forward_plane(p, x, out, where);
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

template <class T, class Sum>
void average_in(const Pool& p, const void* from, void* to, ptrdiff_t channels) {
    const T* x = (const T*)from;
    T* out = (T*)to;
    Sum sums[pool_channels];
    for_positions(p, [&](ptrdiff_t o, ptrdiff_t d, ptrdiff_t h, ptrdiff_t w) {
        Sum count = (Sum)divisor(p, d, h, w);
        if (channels == 1) {
            Sum sum = 0;
            for_taps(p, d, h, w, [&](ptrdiff_t i) { sum += Element<T>::load(x[i * p.channels_stride]); });
            out[o * p.channels_stride] = Element<T>::store((decltype(Element<T>::load(T{})))(sum / count));
            return;
        }
        for (ptrdiff_t c = 0; c < channels; c++) sums[c] = 0;
        for_taps(p, d, h, w, [&](ptrdiff_t i) {
            const T* __restrict row = x + i * p.channels_stride;
            for (ptrdiff_t c = 0; c < channels; c++) sums[c] += Element<T>::load(row[c]);
        });
        for (ptrdiff_t c = 0; c < channels; c++) out[o * p.channels_stride + c] = Element<T>::store((decltype(Element<T>::load(T{})))(sums[c] / count));
    });
}

// The most taps of a window along an axis.
inline ptrdiff_t widest(const PoolAxis& axis) {
    ptrdiff_t most = 0;
    for (ptrdiff_t i = 0; i < axis.out; i++) most = std::max<ptrdiff_t>(most, (axis.end[i] - axis.start[i] + axis.step - 1) / axis.step);
    return most;
}

// Sums over few elements are made in their own arithmetic, over many in double.
template <class T>
void average_forward(const Pool& p, const void* from, void* to, int64_t*, ptrdiff_t channels) {
    if (widest(p.axes[0]) * widest(p.axes[1]) * widest(p.axes[2]) > 256) average_in<T, double>(p, from, to, channels);
    else average_in<T, decltype(Element<T>::load(T{}))>(p, from, to, channels);
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
const PoolLoops loops = {{
    {max_forward<Half>, max_forward<BFloat>, max_forward<float>, max_forward<double>},
    {nullptr, nullptr, max_backward<float>, max_backward<double>},
    {average_forward<Half>, average_forward<BFloat>, average_forward<float>, average_forward<double>},
    {nullptr, nullptr, average_backward<float>, average_backward<double>},
}};
