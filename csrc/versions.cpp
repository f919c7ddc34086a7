// Versions of dicts where CPython has none (from 3.14 on). There it tells whoever watches a dict of each write to come: one that was asked
// about has a number until it is written to or dies, and gets a new one, and is watched, when it is next asked about.
#include "module.h"
#include "versions.h"

#include <unordered_map>

#if PY_VERSION_HEX >= 0x030E0000
namespace {

// Never destroyed: dicts die after the destructors of this library have run.
std::unordered_map<PyObject*, uint64_t>& versions = *new std::unordered_map<PyObject*, uint64_t>;
uint64_t latest = 0;
int watcher = -1;

int written(PyDict_WatchEvent event, PyObject* dict, PyObject*, PyObject*) {
    versions.erase(dict);
    return event == PyDict_EVENT_DEALLOCATED ? 0 : PyDict_Unwatch(watcher, dict);
}

}  // namespace

uint64_t version_of(PyObject* dict) {
    auto [place, is_new] = versions.try_emplace(dict, latest + 1);
    if (!is_new) return place->second;
    if (PyDict_Watch(watcher, dict) < 0) {  // no dict: one that cannot be watched never has the same version twice
        PyErr_Clear();
        versions.erase(place);
    }
    return ++latest;
}

void add_versions(PyObject*) { watcher = PyDict_AddWatcher(written); }
#else
void add_versions(PyObject*) {}
#endif
