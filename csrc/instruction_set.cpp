// The one place that asks the processor what it has, and the environment what may be used of it. oneDNN reads the same variable, and
// generated kernels get their flags from `instruction_set` (flambeau/inductor/cpu/compile.py): `./dev test --isa` masks all three.
#include "instruction_set.h"

#include <cstdlib>
#include <strings.h>

namespace {

struct Level {
    const char* name;  // as oneDNN calls it
    InstructionSet loops;
    bool (*has)();
};

#if defined(__x86_64__)
bool bit(unsigned leaf, unsigned subleaf, char reg, int at) {
    unsigned a, b, c, d;
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaf), "c"(subleaf));
    return (reg == 'a' ? a : reg == 'b' ? b : reg == 'c' ? c : d) >> at & 1;
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
bool has_bf16() { return has_avx512() && bit(7, 1, 'a', 5); }
bool has_amx() { return has_bf16() && bit(7, 0, 'd', 24) && bit(7, 0, 'd', 22); }

const Level levels[] = {
    {"SSE41", InstructionSet::baseline, [] { return true; }}, {"AVX2", InstructionSet::avx2, has_avx2},
    {"AVX512_CORE", InstructionSet::avx512, has_avx512},      {"AVX512_CORE_BF16", InstructionSet::avx512, has_bf16},
    {"AVX512_CORE_AMX", InstructionSet::amx, has_amx},
};
#else
const Level levels[] = {{"DEFAULT", InstructionSet::baseline, [] { return true; }}};
#endif
constexpr int level_count = sizeof levels / sizeof *levels;

// oneDNN's other names, by the level of ours that they begin from.
const struct {
    const char *name, *level;
} others[] = {{"AVX", "SSE41"}, {"AVX2_VNNI", "AVX2"}, {"AVX2_VNNI_2", "AVX2"}, {"AVX512_CORE_VNNI", "AVX512_CORE"},
              {"AVX512_CORE_FP16", "AVX512_CORE_BF16"}};

int widest_of_processor() {
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    int found = 0;
    while (found + 1 < level_count && levels[found + 1].has()) found++;
    return found;
}

int find() {
    int widest = widest_of_processor();
    const char* allowed = std::getenv("ONEDNN_MAX_CPU_ISA");
    if (allowed == nullptr) return widest;
    for (const auto& other : others)
        if (strcasecmp(allowed, other.name) == 0) allowed = other.level;
    for (int i = 0; i < widest; i++)
        if (strcasecmp(allowed, levels[i].name) == 0) return i;
    return widest;
}

const Level& level() {
    static const Level& found = levels[find()];
    return found;
}

}  // namespace

InstructionSet instruction_set() { return level().loops; }
const char* instruction_set_name() { return level().name; }
int instruction_set_count() { return widest_of_processor() + 1; }
const char* instruction_set_name(int i) { return levels[i].name; }
