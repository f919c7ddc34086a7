// The loops of optim.cpp, compiled once for each instruction set (as kernel_loops.h is).

template <class T>
void adam(void* const* data, int64_t begin, int64_t n, const Adam& o, double correction1, double correction2) {
    T* __restrict p = (T*)data[0] + begin;
    const T* __restrict g = (const T*)data[1] + begin;
    T* __restrict m = (T*)data[2] + begin;
    T* __restrict v = (T*)data[3] + begin;
    T* __restrict top = data[4] != nullptr ? (T*)data[4] + begin : nullptr;
    const T sign = o.maximize ? -1 : 1, keep = T(1 - o.lr * o.weight_decay), coupled = T(o.weight_decay);
    const T b1 = T(1 - o.beta1), b2 = T(o.beta2), c2 = T(1 - o.beta2), eps = T(o.eps);
    const T step = T(o.lr / correction1), root = T(1 / __builtin_sqrt(correction2));
    const bool decoupled = o.decoupled, plain = o.decoupled || o.weight_decay == 0;  // 0 times infinity is NaN
    for (int64_t i = 0; i < n; i++) {
        T x = decoupled ? p[i] * keep : p[i];
        T d = plain ? sign * g[i] : sign * g[i] + coupled * x;
        T mean = m[i] + (d - m[i]) * b1;
        T square = v[i] * b2 + d * d * c2;
        m[i] = mean;
        v[i] = square;
        if (top != nullptr) top[i] = square = square > top[i] ? square : top[i];
        T deviation = sizeof(T) == 4 ? __builtin_sqrtf(square) : __builtin_sqrt(square);
        p[i] = x - step * (mean / (deviation * root + eps));
    }
}

template <class T>
void sgd(void* const* data, int64_t begin, int64_t n, const Sgd& o, bool fresh) {
    T* __restrict p = (T*)data[0] + begin;
    const T* __restrict g = (const T*)data[1] + begin;
    const T sign = o.maximize ? -1 : 1, decay = T(o.weight_decay), lr = T(o.lr);
    const T keep = T(o.momentum), take = T(1 - o.dampening), momentum = T(o.momentum);
    const bool nesterov = o.nesterov, plain = o.weight_decay == 0;  // 0 times infinity is NaN
    if (data[2] == nullptr) {
        for (int64_t i = 0; i < n; i++) p[i] = p[i] - lr * (plain ? sign * g[i] : sign * g[i] + decay * p[i]);
        return;
    }
    T* __restrict b = (T*)data[2] + begin;
    for (int64_t i = 0; i < n; i++) {
        T d = plain ? sign * g[i] : sign * g[i] + decay * p[i];
        T moved = fresh ? d : keep * b[i] + take * d;
        b[i] = moved;
        p[i] = p[i] - lr * (nesterov ? d + momentum * moved : moved);
    }
}

template <class T>
double sum_of_squares(const void* data, int64_t low, int64_t n) {
    const T* x = (const T*)data + low;
    double total = 0;
    for (int64_t begin = 0; begin < n; begin += 4096) {  // short runs in eight lanes of T, the runs added up in double
        int64_t end = begin + 4096 < n ? begin + 4096 : n;
        T lanes[8] = {};
        int64_t i = begin;
        for (; i + 8 <= end; i += 8)
            for (int k = 0; k < 8; k++) lanes[k] += x[i + k] * x[i + k];
        for (; i < end; i++) lanes[0] += x[i] * x[i];
        for (T lane : lanes) total += lane;
    }
    return total;
}

template <class T>
void scale_by(void* data, int64_t begin, int64_t n, double factor) {
    T* x = (T*)data + begin;
    for (int64_t i = 0; i < n; i++) x[i] *= (T)factor;
}

// For f32, f64.
const OptimLoops loops = {{adam<float>, adam<double>}, {sgd<float>, sgd<double>}, {sum_of_squares<float>, sum_of_squares<double>}, {scale_by<float>, scale_by<double>}};
