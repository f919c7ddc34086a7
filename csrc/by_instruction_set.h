// The loops of the file LOOPS, compiled for each instruction set; `loops` are those of this processor. No include guard: it is
// meant to be included inside a namespace, once a file, after <algorithm> and instruction_set.h.
namespace baseline {
#include LOOPS
}
#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
namespace avx2 {
#include LOOPS
}
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
namespace avx512 {
#include LOOPS
}
#pragma GCC pop_options
decltype(baseline::loops)* const compiled[] = {&baseline::loops, &avx2::loops, &avx512::loops};
#else
decltype(baseline::loops)* const compiled[] = {&baseline::loops};
#endif
const auto& loops = *compiled[std::min<int>((int)instruction_set(), sizeof compiled / sizeof *compiled - 1)];
