#include "memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace {

// The number in a file that holds nothing else; SIZE_MAX if there is none ("max", or no file).
size_t number_in(const std::string& path) {
    size_t number = SIZE_MAX;
    if (FILE* file = std::fopen(path.c_str(), "re")) {
        if (std::fscanf(file, "%zu", &number) != 1) number = SIZE_MAX;
        std::fclose(file);
    }
    return number;
}

// The number after `name` in a file of lines "name number"; 0 if there is none.
size_t field_of(const std::string& path, const char* name) {
    size_t number = 0;
    if (FILE* file = std::fopen(path.c_str(), "re")) {
        char word[64];
        size_t value;
        while (std::fscanf(file, "%63s %zu%*[^\n]", word, &value) == 2)
            if (std::strcmp(word, name) == 0) {
                number = value;
                break;
            }
        std::fclose(file);
    }
    return number;
}

// Where a hierarchy of control groups is mounted, and how its files are called.
struct Hierarchy {
    const char *mount, *controller, *limit, *usage, *droppable;
};
constexpr Hierarchy hierarchies[] = {
    {"/sys/fs/cgroup", "", "memory.max", "memory.current", "inactive_file"},
    {"/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
};

// The path of this process's group in a hierarchy; the root where it cannot be told.
std::string group_in(const Hierarchy& hierarchy) {
    std::string path;
    if (FILE* file = std::fopen("/proc/self/cgroup", "re")) {
        char line[4096];
        while (path.empty() && std::fgets(line, sizeof line, file)) {
            char* controllers = std::strchr(line, ':');
            char* group = controllers ? std::strchr(controllers + 1, ':') : nullptr;
            if (group == nullptr) continue;
            if (std::string(controllers + 1, group) == hierarchy.controller) path.assign(group + 1, std::strcspn(group + 1, "\n"));
        }
        std::fclose(file);
    }
    return path == "/" ? "" : path;
}

void apply_groups(SystemMemory& memory) {
    for (const Hierarchy& hierarchy : hierarchies) {
        std::string group = group_in(hierarchy);
        while (true) {  // each group's limit holds for those below it
            std::string folder = hierarchy.mount + group + "/";
            size_t limit = number_in(folder + hierarchy.limit);
            if (limit < memory.total) memory.total = limit;
            size_t usage = limit == SIZE_MAX ? SIZE_MAX : number_in(folder + hierarchy.usage);
            if (usage != SIZE_MAX) {
                size_t used = usage - std::min(usage, field_of(folder + "memory.stat", hierarchy.droppable));
                memory.free = std::min(memory.free, limit - std::min(limit, used));
            }
            if (group.empty()) break;
            group.resize(group.rfind('/'));
        }
    }
}

void apply_own_limits(SystemMemory& memory) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = 0, data = 0;
    if (FILE* file = std::fopen("/proc/self/statm", "re")) {
        if (std::fscanf(file, "%zu %*u %*u %*u %*u %zu", &pages, &data) != 2) pages = data = 0;
        std::fclose(file);
    }
    const struct {
        int resource;
        size_t used;
    } limits[] = {{RLIMIT_AS, pages * page}, {RLIMIT_DATA, data * page}};
    for (auto& [resource, used] : limits) {
        rlimit limit;
        if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
        memory.free = std::min(memory.free, limit.rlim_cur - std::min<size_t>(limit.rlim_cur, used));
    }
}

}  // namespace

SystemMemory system_memory() {
    const char* info = "/proc/meminfo";
    size_t swap = field_of(info, "SwapFree:") * 1024;
    SystemMemory memory{field_of(info, "MemTotal:") * 1024 + swap, field_of(info, "MemAvailable:") * 1024 + swap};
    if (memory.total == swap) memory = {(size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE), SIZE_MAX};
    apply_groups(memory);
    memory.free = std::min(memory.free, memory.total);
    apply_own_limits(memory);
    return memory;
}
