// Serves ResNet-18 and a GPT's decoding from packages that models.py made, without Python.
//
//     g++ -std=c++17 -O2 -I$(python -c "import flambeau; print(flambeau.__path__[0])")/include main.cpp -o serve -ldl -pthread
//     FLAMBEAU_ONEDNN=$(python -c "from flambeau.backends.cpu.onednn import library_path as p; print(p())") ./serve FOLDER [THREADS] [CALLS]
//
// Prints, for each package, the milliseconds to load it, of the first call, and of the median call, and this process's memory.
#include <aoti.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>

using Clock = std::chrono::steady_clock;
static double since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

static double resident_mb() {
    std::ifstream file("/proc/self/statm");
    long total = 0, resident = 0;
    file >> total >> resident;
    return resident * (sysconf(_SC_PAGESIZE) / 1024.0) / 1024.0;
}

static double file_mb(const std::string& path) { return std::ifstream(path, std::ios::ate | std::ios::binary).tellg() / 1024.0 / 1024.0; }

struct Times {
    double load, first, median;
};

static void tell(const char* name, const Times& t, double weights, const std::string& result) {
    std::printf("%s: load %.1f ms, first call %.1f ms, median %.3f ms, resident %.1f MB (package %.1f MB), %s\n", name, t.load, t.first, t.median,
                resident_mb(), weights, result.c_str());
}

template <class Call>
static void time_calls(Times& times, int calls, Call call) {
    auto start = Clock::now();
    call(0);
    times.first = since(start);
    std::vector<double> taken;
    for (int i = 1; i <= calls; i++) {
        start = Clock::now();
        call(i);
        taken.push_back(since(start));
    }
    std::nth_element(taken.begin(), taken.begin() + taken.size() / 2, taken.end());
    times.median = taken[taken.size() / 2];
}

static int64_t largest(const flambeau::Tensor& scores) {
    const float* data = scores.as<float>();
    return std::max_element(data, data + scores.numel()) - data;
}

static void serve_images(const std::string& path, int threads, int calls) {
    Times times;
    auto start = Clock::now();
    flambeau::Package package(path);
    flambeau::Session session(package, threads);
    times.load = since(start);
    std::vector<int64_t> shape = package.inputs()[0].sizes;
    shape[0] = 1;
    flambeau::Tensor image = flambeau::Tensor::empty(flambeau::DType::float32, shape);
    for (int64_t i = 0; i < image.numel(); i++) image.as<float>()[i] = (float)(i % 255) / 255 - 0.5f;
    int64_t best = 0;
    time_calls(times, calls, [&](int) { best = largest(session.run({image})[0]); });
    tell("resnet18", times, file_mb(path), "class " + std::to_string(best));
}

// Decodes greedily: each step is given the token before it, and what is remembered of all before that.
static void serve_text(const std::string& path, int threads, int calls) {
    Times times;
    auto start = Clock::now();
    flambeau::Package package(path);
    flambeau::Session session(package, threads);
    times.load = since(start);
    const std::vector<int64_t> memory = package.inputs()[2].sizes;   // layers, heads, length, width of a head
    flambeau::Tensor keys = flambeau::Tensor::empty(flambeau::DType::float32, memory), values = flambeau::Tensor::empty(flambeau::DType::float32, memory);
    std::fill_n(keys.as<float>(), keys.numel(), 0.0f), std::fill_n(values.as<float>(), values.numel(), 0.0f);
    int64_t token = 0, position = 0, length = memory[2], width = memory[3];
    std::string text;
    time_calls(times, calls, [&](int) {
        std::vector<flambeau::Tensor> out = session.run({flambeau::Tensor::of(&token, {}), flambeau::Tensor::of(&position, {}), keys, values});
        token = largest(out[0]);
        if (text.size() < 40) text += " " + std::to_string(token);
        for (int64_t i = 0; i < memory[0] * memory[1]; i++) {
            std::copy_n(out[1].as<float>() + i * width, width, keys.as<float>() + (i * length + position) * width);
            std::copy_n(out[2].as<float>() + i * width, width, values.as<float>() + (i * length + position) * width);
        }
        position = (position + 1) % length;
    });
    tell("gpt", times, file_mb(path), "tokens" + text);
}

int main(int count, char** words) {
    if (count < 2) return std::fprintf(stderr, "usage: serve FOLDER [THREADS] [CALLS] [resnet18|gpt]\n"), 2;
    const std::string folder = words[1], only = count > 4 ? words[4] : "";
    const int threads = count > 2 ? std::atoi(words[2]) : 0, calls = count > 3 ? std::atoi(words[3]) : 50;
    try {
        if (only != "gpt") serve_images(folder + "/resnet18.pt2", threads, calls);
        if (only != "resnet18") serve_text(folder + "/gpt.pt2", threads, calls);
    } catch (const flambeau::Error& error) {
        return std::cerr << error.what() << "\n", 1;
    }
}
