// How much memory the system would still give this process.
#pragma once
#include <cstddef>

struct SystemMemory {
    size_t total;  // of the machine and its swap, or of the control group if that has less
    size_t free;   // of that, what can be had now; what the system can drop at once (file caches) counts
};

// Reads /proc and the control groups' files: tens of microseconds. Limits of the process itself (RLIMIT_AS, RLIMIT_DATA) count.
SystemMemory system_memory();
