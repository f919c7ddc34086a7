// Which instructions native loops may use: what the processor has, or less where ONEDNN_MAX_CPU_ISA says so.
#pragma once

enum class InstructionSet { baseline, avx2, avx512, amx };  // each has all of those before it; amx: tiles of bf16, and avx512bf16

InstructionSet instruction_set();

// oneDNN's names: of what may be used, and of the sets that this processor has, the narrowest first.
const char* instruction_set_name();
int instruction_set_count();
const char* instruction_set_name(int i);
