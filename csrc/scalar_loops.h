// One pass over strided rows for each scalar operation of flambeau/core/scalar.py (scalar_rows.py prints the rows).
// Included inside a namespace for each instruction set, after scalar_ops.h: see scalar_ops.cpp.

// A row whose elements do not lie next to each other goes through blocks on the stack, so that the compiler vectorises all. So does
// every row of a costly function, or of narrow integers: of these one copy of the code is enough.
constexpr ptrdiff_t block = 64;
template <class T, int cost> constexpr bool worth_copies = cost < 6 && sizeof(T) >= 4;

template <class T>
inline const T* gathered(const char* from, ptrdiff_t stride, ptrdiff_t n, T* to) {
    if (stride == sizeof(T)) return (const T*)from;
    for (ptrdiff_t i = 0; i < n; i++) to[i] = *(const T*)(from + i * stride);
    return to;
}
template <class T>
inline void scattered(char* to, ptrdiff_t stride, const T* from, ptrdiff_t n) {
    if (stride == sizeof(T)) return (void)std::memcpy(to, from, n * sizeof(T));
    for (ptrdiff_t i = 0; i < n; i++) *(T*)(to + i * stride) = from[i];
}

template <class In, class Out, int cost, class F>
inline void unary(char* out, ptrdiff_t so, const char* a, ptrdiff_t sa, ptrdiff_t n, F f) {
    if (worth_copies<In, cost> && (n == 1 || (so == sizeof(Out) && sa == sizeof(In)))) {
#pragma GCC ivdep
        for (ptrdiff_t i = 0; i < n; i++) ((Out*)out)[i] = f(((const In*)a)[i]);
        return;
    }
    In x[block];
    Out z[block];
    for (; n > 0; n -= block, a += block * sa, out += block * so) {
        ptrdiff_t m = n < block ? n : block;
        const In* p = gathered(a, sa, m, x);
#pragma GCC ivdep
        for (ptrdiff_t i = 0; i < m; i++) z[i] = f(p[i]);
        scattered(out, so, z, m);
    }
}

template <class In, class Out, int cost, class F>
inline void binary(char* out, ptrdiff_t so, const char* a, ptrdiff_t sa, const char* b, ptrdiff_t sb, ptrdiff_t n, F f) {
    constexpr ptrdiff_t one = sizeof(In);
    bool whole = worth_copies<In, cost> && so == sizeof(Out);
    if ((worth_copies<In, cost> && n == 1) || (whole && sa == one && sb == one)) {
#pragma GCC ivdep
        for (ptrdiff_t i = 0; i < n; i++) ((Out*)out)[i] = f(((const In*)a)[i], ((const In*)b)[i]);
    } else if (whole && sa == one && sb == 0) {
        In y = *(const In*)b;
#pragma GCC ivdep
        for (ptrdiff_t i = 0; i < n; i++) ((Out*)out)[i] = f(((const In*)a)[i], y);
    } else if (whole && sa == 0 && sb == one) {
        In x = *(const In*)a;
#pragma GCC ivdep
        for (ptrdiff_t i = 0; i < n; i++) ((Out*)out)[i] = f(x, ((const In*)b)[i]);
    } else {
        In x[block], y[block];
        Out z[block];
        for (; n > 0; n -= block, a += block * sa, b += block * sb, out += block * so) {
            ptrdiff_t m = n < block ? n : block;
            const In *p = gathered(a, sa, m, x), *q = gathered(b, sb, m, y);
#pragma GCC ivdep
            for (ptrdiff_t i = 0; i < m; i++) z[i] = f(p[i], q[i]);
            scattered(out, so, z, m);
        }
    }
}

template <class T, class F>
inline void ternary(char* out, ptrdiff_t so, const char* const* in, const ptrdiff_t* s, ptrdiff_t n, F f) {
    T x[block], y[block], w[block], z[block];
    for (ptrdiff_t done = 0; done < n; done += block) {
        ptrdiff_t m = n - done < block ? n - done : block;
        const T *p = gathered(in[0] + done * s[0], s[0], m, x), *q = gathered(in[1] + done * s[1], s[1], m, y), *r = gathered(in[2] + done * s[2], s[2], m, w);
        for (ptrdiff_t i = 0; i < m; i++) z[i] = f(p[i], q[i], r[i]);
        scattered(out + done * so, so, z, m);
    }
}

// Functions with a slow way for arguments far from zero: a block that has none takes the fast one.
template <class T, class Near, class Far, class Any>
inline void far_unary(char* out, ptrdiff_t so, const char* a, ptrdiff_t sa, ptrdiff_t n, Near near, Far is_far, Any any) {
    T x[block], z[block];
    for (; n > 0; n -= block, a += block * sa, out += block * so) {
        ptrdiff_t m = n < block ? n : block;
        const T* p = gathered(a, sa, m, x);
        if (m == 1) {
            *(T*)out = any(*p);
            return;
        }
        ptrdiff_t far = 0;
        for (ptrdiff_t i = 0; i < m; i++) {
            z[i] = near(p[i]);
            far += is_far(p[i]) ? 1 : 0;
        }
        if (__builtin_expect(far != 0, 0))
            for (ptrdiff_t i = 0; i < m; i++) z[i] = any(p[i]);
        scattered(out, so, z, m);
    }
}

template <class T, class Near, class Far, class Any>
inline void far_binary(char* out, ptrdiff_t so, const char* a, ptrdiff_t sa, const char* b, ptrdiff_t sb, ptrdiff_t n, Near near, Far is_far, Any any) {
    T x[block], y[block], z[block];
    for (; n > 0; n -= block, a += block * sa, b += block * sb, out += block * so) {
        ptrdiff_t m = n < block ? n : block;
        const T *p = gathered(a, sa, m, x), *q = gathered(b, sb, m, y);
        ptrdiff_t far = 0;
        for (ptrdiff_t i = 0; i < m; i++) {
            z[i] = near(p[i], q[i]);
            far += is_far(p[i], q[i]) ? 1 : 0;
        }
        if (__builtin_expect(far != 0, 0))
            for (ptrdiff_t i = 0; i < m; i++) z[i] = any(p[i], q[i]);
        scattered(out, so, z, m);
    }
}

template <class T>
void where_loop(char* out, ptrdiff_t so, const char* const* in, const ptrdiff_t* s, ptrdiff_t n) {
    const char *c = in[0], *a = in[1], *b = in[2];
    if (so == sizeof(T) && s[0] == 1 && s[1] == sizeof(T) && s[2] == sizeof(T)) {
#pragma GCC ivdep
        for (ptrdiff_t i = 0; i < n; i++) ((T*)out)[i] = c[i] ? ((const T*)a)[i] : ((const T*)b)[i];
    } else if (so == sizeof(T) && s[0] == 1 && s[1] == sizeof(T) && s[2] == 0) {
        T y = *(const T*)b;
#pragma GCC ivdep
        for (ptrdiff_t i = 0; i < n; i++) ((T*)out)[i] = c[i] ? ((const T*)a)[i] : y;
    } else {
        for (ptrdiff_t i = 0; i < n; i++)
            *(T*)(out + i * so) = c[i * s[0]] ? *(const T*)(a + i * s[1]) : *(const T*)(b + i * s[2]);
    }
}

// ---- reductions ----

// total[i] = total[i] op x[i], or with one total for all *total = *total op x[0] op x[1] ...
template <class T, class Total, class F>
inline void fold(char* total, ptrdiff_t total_step, const char* x, ptrdiff_t step, ptrdiff_t n, F f) {
    if (total_step != 0) {
        if (total_step == sizeof(Total) && step == sizeof(T)) {
            Total* __restrict to = (Total*)total;
            const T* __restrict from = (const T*)x;
            for (ptrdiff_t i = 0; i < n; i++) to[i] = f(to[i], Total(from[i]));
        } else {
            for (ptrdiff_t i = 0; i < n; i++, total += total_step, x += step) *(Total*)total = f(*(Total*)total, Total(*(const T*)x));
        }
        return;
    }
    constexpr int lanes = 16;
    Total all = *(Total*)total;
    if (step == sizeof(T)) {
        for (constexpr ptrdiff_t block = 512; n >= lanes; x += block * step, n -= block) {  // in T as long as a row is short
            T part[lanes];
            ptrdiff_t i = lanes, end = n < block ? n : block;
            for (int l = 0; l < lanes; l++) part[l] = ((const T*)x)[l];
            for (; i + lanes <= end; i += lanes)
                for (int l = 0; l < lanes; l++) part[l] = f(part[l], ((const T*)x)[i + l]);
            for (int l = 0; i < end; i++, l++) part[l] = f(part[l], ((const T*)x)[i]);
            for (int width = lanes / 2; width > 0; width /= 2)
                for (int l = 0; l < width; l++) part[l] = f(part[l], part[l + width]);
            all = f(all, Total(part[0]));
        }
    }
    for (ptrdiff_t i = 0; i < n; i++) all = f(all, Total(*(const T*)(x + i * step)));
    *(Total*)total = all;
}

#define FL_LOOP [](char* out, ptrdiff_t so, const char* const* in, const ptrdiff_t* s, ptrdiff_t n)
#define FL_ROW1(name, In, Out, expression, cost) \
    {#name, kind_as<In>, FL_LOOP { unary<In, Out, cost>(out, so, in[0], s[0], n, [](In x) -> Out { return expression; }); }, kind_as<Out>, 1, cost},
#define FL_ROW2(name, In, Out, expression, cost) \
    {#name, kind_as<In>, FL_LOOP { binary<In, Out, cost>(out, so, in[0], s[0], in[1], s[1], n, [](In x, In y) -> Out { return expression; }); }, kind_as<Out>, 2, cost},
#define FL_ROW3(name, In, Out, expression, cost) \
    {#name, kind_as<In>, FL_LOOP { ternary<In>(out, so, in, s, n, [](In x, In y, In z) -> Out { return expression; }); }, kind_as<Out>, 3, cost},
#define FL_FAR_ROW1(name, T, cost)                                                                                          \
    {#name, kind_as<T>, FL_LOOP {                                                                                           \
         far_unary<T>(out, so, in[0], s[0], n, [](T x) { return fl::name##_near(x); }, [](T x) { return fl::is_far(x); },   \
                      [](T x) { return fl::name##_any(x); });                                                               \
     }, kind_as<T>, 1, cost},
#define FL_FAR_ROW2(name, T, cost)                                                                                          \
    {#name, kind_as<T>, FL_LOOP {                                                                                           \
         far_binary<T>(out, so, in[0], s[0], in[1], s[1], n, [](T x, T y) { return fl::name##_near(x, y); },                \
                       [](T x, T y) { return fl::is_far(x, y); }, [](T x, T y) { return fl::name##_any(x, y); });           \
     }, kind_as<T>, 2, cost},
#define FL_FOLD(name, T, Total, expression)                                                                       \
    {#name, kind_as<T>, kind_as<Total>, [](char* total, ptrdiff_t total_step, const char* x, ptrdiff_t step, ptrdiff_t n) { \
         fold<T, Total>(total, total_step, x, step, n, [](auto x, auto y) { return decltype(x)(expression); });   \
     }},

const ScalarLoop elementwise[] = {
#include "scalar_rows.inc"
    {"where", Kind::boolean, where_loop<uint8_t>, Kind::boolean, 3, 1, true},
    {"where", Kind::u8, where_loop<uint8_t>, Kind::u8, 3, 1, true},
    {"where", Kind::i8, where_loop<uint8_t>, Kind::i8, 3, 1, true},
    {"where", Kind::i16, where_loop<uint16_t>, Kind::i16, 3, 1, true},
    {"where", Kind::f16, where_loop<uint16_t>, Kind::f16, 3, 1, true},
    {"where", Kind::bf16, where_loop<uint16_t>, Kind::bf16, 3, 1, true},
    {"where", Kind::i32, where_loop<uint32_t>, Kind::i32, 3, 1, true},
    {"where", Kind::i64, where_loop<uint64_t>, Kind::i64, 3, 1, true},
    {"where", Kind::f32, where_loop<uint32_t>, Kind::f32, 3, 1, true},
    {"where", Kind::f64, where_loop<uint64_t>, Kind::f64, 3, 1, true},
};
const FoldLoop folds[] = {
#include "fold_rows.inc"
};
const Scalars scalars = {elementwise, sizeof elementwise / sizeof *elementwise, folds, sizeof folds / sizeof *folds};
#undef FL_LOOP
#undef FL_ROW1
#undef FL_ROW2
#undef FL_ROW3
#undef FL_FAR_ROW1
#undef FL_FAR_ROW2
#undef FL_FOLD
