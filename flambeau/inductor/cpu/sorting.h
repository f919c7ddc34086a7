// Sorting, selection, counting and products of groups in generated code: what loops over independent elements are not.
#pragma once

namespace fl {

// --- order: by keys, unsigned integers that are in the order of the numbers. NaN is the largest, and zeros are equal ---

FL_INLINE uint32_t key_of(float x) {
    const uint32_t word = bits<uint32_t>(x + 0.0f);
    return x != x ? ~0u : word >> 31 ? ~word : word | 1u << 31;
}
FL_INLINE uint64_t key_of(double x) {
    const uint64_t word = bits<uint64_t>(x + 0.0);
    return x != x ? ~0ul : word >> 63 ? ~word : word | 1ul << 63;
}
FL_INLINE uint32_t key_of(float16 x) { return key_of(float(x)); }
FL_INLINE uint32_t key_of(bfloat16 x) { return key_of(float(x)); }
FL_INLINE uint32_t key_of(uint8_t x) { return x; }
FL_INLINE uint32_t key_of(uint32_t x) { return x; }
FL_INLINE uint64_t key_of(uint64_t x) { return x; }
FL_INLINE uint32_t key_of(int8_t x) { return uint32_t(x) ^ 1u << 31; }
FL_INLINE uint32_t key_of(int16_t x) { return uint32_t(x) ^ 1u << 31; }
FL_INLINE uint32_t key_of(int32_t x) { return uint32_t(x) ^ 1u << 31; }
FL_INLINE uint64_t key_of(int64_t x) { return uint64_t(x) ^ 1ul << 63; }

template <class K> struct Placed {
    K key;
    int64_t at;
};

// Whether `a` comes before `b`; of equal ones the first comes first.
template <class K> FL_INLINE bool comes_before(const Placed<K>& a, const Placed<K>& b) {
    return a.key != b.key ? a.key < b.key : a.at < b.at;
}

constexpr int64_t inserted = 64;  // elements up to which insertion is faster

// x in order, byte by byte from the last one; the result lies in `x` or in `other`, of which the answer tells.
template <class K> static Placed<K>* ordered(Placed<K>* x, Placed<K>* other, int64_t n) {
    if (n <= inserted) {
        for (int64_t i = 1; i < n; i++) {
            const Placed<K> one = x[i];
            int64_t j = i;
            for (; j > 0 && one.key < x[j - 1].key; j--) x[j] = x[j - 1];
            x[j] = one;
        }
        return x;
    }
    for (int shift = 0; shift < int(8 * sizeof(K)); shift += 8) {
        int64_t places[256] = {};
        for (int64_t i = 0; i < n; i++) places[x[i].key >> shift & 255]++;
        if (places[x[0].key >> shift & 255] == n) continue;
        int64_t before = 0;
        for (int64_t& place : places) {
            const int64_t count = place;
            place = before;
            before += count;
        }
        for (int64_t i = 0; i < n; i++) other[places[x[i].key >> shift & 255]++] = x[i];
        Placed<K>* const kept = x;
        x = other;
        other = kept;
    }
    return x;
}

// Puts one of a heap, whose root comes last, in its place below.
template <class K> static void sift(Placed<K>* heap, int64_t k, int64_t size) {
    const Placed<K> one = heap[k];
    for (int64_t child; (child = 2 * k + 1) < size; k = child) {
        if (child + 1 < size && comes_before(heap[child], heap[child + 1])) child++;
        if (!comes_before(one, heap[child])) break;
        heap[k] = heap[child];
    }
    heap[k] = one;
}

// The first k of n in order, by a heap of those that are the first so far.
template <class K, class At> FL_INLINE void first_of(Placed<K>* heap, int64_t n, int64_t k, At at) {
    for (int64_t i = 0; i < k; i++) heap[i] = at(i);
    for (int64_t j = k / 2; j-- > 0;) sift(heap, j, k);
    for (int64_t i = k; i < n && k > 0; i++) {
        const Placed<K> one = at(i);
        if (one.key >= heap[0].key) continue;
        heap[0] = one;
        sift(heap, 0, k);
    }
    for (int64_t size = k - 1; size > 0; size--) {
        const Placed<K> last = heap[0];
        heap[0] = heap[size];
        heap[size] = last;
        sift(heap, 0, size);
    }
}

constexpr int64_t sorted_alone = 1 << 13;  // elements from which on threads share the work

// The first k along n, in order, of x (outer, n, inner), contiguous; values and places are (outer, k, inner).
template <class T> static int order_along(FlambeauRuntime* rt, const T* x, T* values, int64_t* places, int64_t outer, int64_t n,
                                          int64_t inner, int64_t k, bool descending) {
    typedef decltype(key_of(T())) K;
    const int64_t rows = outer * inner;
    const bool few = k * 8 < n;
    const K turned = descending ? ~K(0) : K(0);
    int failed = 0;
#pragma omp parallel num_threads(rt->num_threads) if (rows > 1 && rows * n >= sorted_alone) reduction(| : failed)
    {
        auto* const memory = (Placed<K>*)rt->alloc(sizeof(Placed<K>) * (few ? k + 1 : 2 * n + 1));
        failed = memory == nullptr;
#pragma omp for
        for (int64_t row = 0; row < rows; row++) {
            if (memory == nullptr) continue;
            const T* const from = x + row / inner * n * inner + row % inner;
            const int64_t out = row / inner * k * inner + row % inner;
            const auto at = [=](int64_t i) { return Placed<K>{K(key_of(from[i * inner]) ^ turned), i}; };
            const Placed<K>* first = memory;
            if (few) {
                first_of(memory, n, k, at);
            } else {
                for (int64_t i = 0; i < n; i++) memory[i] = at(i);
                first = ordered(memory, memory + n, n);
            }
            for (int64_t i = 0; i < k; i++) {
                values[out + i * inner] = from[first[i].at * inner];
                places[out + i * inner] = first[i].at;
            }
        }
        if (memory != nullptr) rt->free(memory);
    }
    return failed ? rt->fail(rt, "out of memory: sorting %lld elements", (long long)n) : 0;
}

// --- counting ---

// How many of x are in each of `bins` equal intervals of [low, high]; of x's own range where both are equal. K is what is computed with.
template <class K, class T, class Wide>
static int counted(FlambeauRuntime* rt, const T* x, T* out, int64_t n, int64_t bins, Wide low, Wide high, Wide shrink) {
    K start = K(low * shrink), end = K(high * shrink);
    const K first = start, last = end;
    if (start == end) { start -= K(1); end += K(1); }
    int64_t* const counts = (int64_t*)rt->alloc(sizeof(int64_t) * (bins + 1));
    if (counts == nullptr) return rt->fail(rt, "out of memory: counting in %lld bins", (long long)bins);
    for (int64_t b = 0; b < bins; b++) counts[b] = 0;
    for (int64_t i = 0; i < n; i++) {
        const K one = K(K(x[i]) * K(shrink));
        if (!(one >= first && one <= last)) continue;
        const K place = start < end ? (one - start) * K(bins) / (end - start) : K(bins) / K(2);
        counts[place < K(bins - 1) ? int64_t(place) : bins - 1]++;
    }
    for (int64_t b = 0; b < bins; b++) out[b] = T(counts[b]);
    rt->free(counts);
    return 0;
}

template <class T> static int count_in_bins(FlambeauRuntime* rt, const T* x, T* out, int64_t n, int64_t bins, double low, double high) {
    constexpr bool narrow = sizeof(T) <= 4;
    if (low == high && n > 0) {
        low = high = double(x[0]);
        for (int64_t i = 0; i < n; i++) {
            const double one = narrow ? double(float(x[i])) : double(x[i]);
            low = one < low || one != one ? one : low;
            high = one > high || one != one ? one : high;
        }
    }
    if (!(low - low == 0 && high - high == 0)) return rt->fail(rt, "range of [%g, %g] is not finite", low, high);
    if ((high - low) * double(bins) > (narrow ? double(__FLT_MAX__) : __DBL_MAX__))
        return counted<double>(rt, x, out, n, bins, low, high, 0x1p-64);
    return narrow ? counted<float>(rt, x, out, n, bins, low, high, 1.0) : counted<double>(rt, x, out, n, bins, low, high, 1.0);
}

}  // namespace fl
