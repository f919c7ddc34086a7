// Storage types that C++ has no names for.
#pragma once
#include <cstdint>

struct Half {
    uint16_t bits;
};
struct BFloat {
    uint16_t bits;
};
struct Wide {
    uint64_t low, high;
};
