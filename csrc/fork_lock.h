// A mutex that is open in a forked child, whose parent's threads, and what they hold, are gone.
#pragma once
#include <atomic>
#include <mutex>
#include <new>

// How many forks lie between this process and the first that loaded the module (threads.cpp counts).
extern std::atomic<unsigned> forks;

class ForkLock {
    static constexpr unsigned opening = ~0u;
    std::mutex mutex;
    std::atomic<unsigned> process{forks.load()};

public:
    void lock() {
        for (unsigned now = forks.load(); process.load() != now;) {
            unsigned was = process.load();
            if (was == opening || was == now || !process.compare_exchange_strong(was, opening)) continue;
            new (&mutex) std::mutex;
            process.store(now);
        }
        mutex.lock();
    }
    void unlock() { mutex.unlock(); }
};
