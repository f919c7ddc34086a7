// MT19937 (Matsumoto and Nishimura, "Mersenne Twister: a 623-dimensionally equidistributed uniform pseudo-random number generator",
// ACM TOMACS 8, 1998), the stream of the CPU's generators, and what is made of its words there. The mappings are those that
// PyTorch 2.13 is observed to use (docs/random.md), so that a seed gives the same numbers in both.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>

namespace flambeau::mt {

constexpr int period = 624, middle = 397;

struct Engine {
    uint32_t word[period];
    int left;          // words until the next twist, and one
    int next;          // the word that is read next
    uint64_t initial;  // the seed
    double normal;     // the second of a pair of normal numbers, kept for the next draw of one
    bool has_normal;
    float normal_f32;  // kept for torch, which has room for it in its state
    bool has_normal_f32;
    std::mutex mutex;

    void seed(uint64_t value) {
        initial = value;
        word[0] = uint32_t(value);
        for (int i = 1; i < period; i++) word[i] = 1812433253u * (word[i - 1] ^ (word[i - 1] >> 30)) + uint32_t(i);
        left = 1;
        next = 0;
        normal = normal_f32 = 0;
        has_normal = has_normal_f32 = false;
    }
    void words(uint32_t* out, int64_t n);
    uint32_t bits32() {
        uint32_t out;
        words(&out, 1);
        return out;
    }
    uint64_t bits64() {
        uint32_t out[2];
        words(out, 2);
        return uint64_t(out[0]) << 32 | out[1];
    }
    double unit() { return double(bits64() & ((uint64_t(1) << 53) - 1)) * 0x1p-53; }

    // Box and Muller (1958), one number at a time.
    double standard_normal() {
        if (has_normal) {
            has_normal = false;
            return normal;
        }
        double u = unit(), v = unit();
        double radius = std::sqrt(-2.0 * std::log1p(-v)), angle = 2.0 * M_PI * u;
        normal = radius * std::sin(angle);
        has_normal = true;
        return radius * std::cos(angle);
    }
};

}  // namespace flambeau::mt
