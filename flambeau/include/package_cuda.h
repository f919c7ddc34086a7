/* What the shared library of a package for NVIDIA GPUs has beside package.h: memory, copies, kernels and products by the driver's own
 * functions and cuBLAS', which are opened when the first session runs. Included once, in generated code; nothing of CUDA builds it.
 *
 * Everything is queued on the context's first stream, in order, so that memory may be used again as soon as it is let go of.
 */
#pragma once
#include <dlfcn.h>
#include <stdint.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "package.h"
#include "runtime.h"

namespace flambeau_cuda {

/* A kernel: where its cubin lies among the weights, its name, a letter for each parameter (p: address, l: int64, i: int32). */
struct Kernel {
    int64_t offset;
    const char *name, *kinds;
    unsigned threads, shared;
};

using Address = unsigned long long;

#define FLAMBEAU_DRIVER(X)                                                                                                          \
    X(cuInit, unsigned) X(cuDeviceGet, int*, int) X(cuDevicePrimaryCtxRetain, void**, int) X(cuCtxSetCurrent, void*)                \
    X(cuDeviceGetAttribute, int*, int, int) X(cuMemAlloc_v2, Address*, size_t) X(cuMemFree_v2, Address)                             \
    X(cuMemcpyHtoD_v2, Address, const void*, size_t) X(cuMemcpyDtoH_v2, void*, Address, size_t) X(cuMemsetD8_v2, Address, unsigned char, size_t) \
    X(cuPointerGetAttribute, void*, int, Address) X(cuModuleLoadData, void**, const void*) X(cuModuleGetFunction, void**, void*, const char*) \
    X(cuFuncSetAttribute, void*, int, int)                                                                                          \
    X(cuLaunchKernel, void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**)
#define FLAMBEAU_CUBLAS(X)                                                                                                          \
    X(cublasCreate_v2, void**)                                                                                                      \
    X(cublasGemmStridedBatchedEx, void*, int, int, int, int, int, const void*, const void*, int, int, long long, const void*, int, int, \
      long long, const void*, void*, int, int, long long, int, int, int)

constexpr int memory_type = 2, on_device = 2, most_dynamic_shared = 8, capability_major = 75, capability_minor = 76;
constexpr unsigned static_shared = 48 * 1024;
constexpr int most_parameters = 128;

struct Gpu {
    std::mutex mutex, blas_mutex;
    std::string failure;
    void* context = nullptr;
    void* blas = nullptr;
    char* weights = nullptr;
    std::vector<void*> functions;
    std::multimap<size_t, Address> free;
    std::map<Address, size_t> sizes;
#define FLAMBEAU_DECLARE(name, ...) int (*name)(__VA_ARGS__) = nullptr;
    FLAMBEAU_DRIVER(FLAMBEAU_DECLARE)
    FLAMBEAU_CUBLAS(FLAMBEAU_DECLARE)
#undef FLAMBEAU_DECLARE

    bool no(const char* what, int status) { return status != 0 && (failure = std::string("CUDA error ") + std::to_string(status) + " from " + what, true); }

    /* The driver, the context of the first GPU, the weights and the kernels there; false with `failure`. */
    bool begin(const FlambeauModel* model, const char* bytes, const Kernel* kernels, int count, int capability) {
        std::lock_guard<std::mutex> guard(mutex);
        if (context == nullptr && !opened(model, bytes, kernels, count, capability)) return context = nullptr, false;
        return !no("cuCtxSetCurrent", cuCtxSetCurrent(context));
    }

    bool opened(const FlambeauModel* model, const char* bytes, const Kernel* kernels, int count, int capability) {
        void* driver = dlopen("libcuda.so.1", RTLD_NOW);
        if (driver == nullptr) return failure = "the package is for NVIDIA GPUs, and there is no driver (libcuda.so.1)", false;
#define FLAMBEAU_FIND(name, ...)                          \
    *(void**)&name = dlsym(driver, #name);                \
    if (name == nullptr) return failure = "NVIDIA's driver has no " #name, false;
        FLAMBEAU_DRIVER(FLAMBEAU_FIND)
#undef FLAMBEAU_FIND
        int device = 0, major = 0, minor = 0;
        if (no("cuInit", cuInit(0)) || no("cuDeviceGet", cuDeviceGet(&device, 0))) return false;
        if (no("cuDeviceGetAttribute", cuDeviceGetAttribute(&major, capability_major, device)) ||
            no("cuDeviceGetAttribute", cuDeviceGetAttribute(&minor, capability_minor, device)))
            return false;
        if (major != capability / 10 || minor < capability % 10)
            return failure = "the package is for GPUs of compute capability " + std::to_string(capability) + ", this one has " +
                             std::to_string(major * 10 + minor), false;
        if (no("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, device)) || no("cuCtxSetCurrent", cuCtxSetCurrent(context))) return false;
        Address place = 0;
        if (no("cuMemAlloc", cuMemAlloc_v2(&place, std::max<size_t>(model->weights, 1)))) return false;
        if (model->weights > 0 && no("cuMemcpyHtoD", cuMemcpyHtoD_v2(place, bytes, model->weights))) return false;
        weights = (char*)place;
        for (int k = 0; k < count; k++) {
            void *module = nullptr, *function = nullptr;
            if (no("cuModuleLoadData", cuModuleLoadData(&module, bytes + kernels[k].offset)) ||
                no("cuModuleGetFunction", cuModuleGetFunction(&function, module, kernels[k].name)))
                return false;
            if (kernels[k].shared > static_shared && no("cuFuncSetAttribute", cuFuncSetAttribute(function, most_dynamic_shared, (int)kernels[k].shared)))
                return false;
            functions.push_back(function);
        }
        return true;
    }

    Address make(size_t bytes) {
        bytes = (std::max<size_t>(bytes, 1) + 511) / 512 * 512;
        std::lock_guard<std::mutex> guard(mutex);
        auto found = free.lower_bound(bytes);
        if (found != free.end() && found->first < 2 * bytes) {
            Address memory = found->second;
            free.erase(found);
            return memory;
        }
        Address memory = 0;
        if (cuMemAlloc_v2(&memory, bytes) != 0) {   // what is kept is given back, and asked for once more
            for (auto& [size, kept] : free) cuMemFree_v2(kept), sizes.erase(kept);
            free.clear();
            if (no("cuMemAlloc", cuMemAlloc_v2(&memory, bytes))) return 0;
        }
        sizes[memory] = bytes;
        return memory;
    }
    void drop(Address memory) {
        std::lock_guard<std::mutex> guard(mutex);
        free.emplace(sizes[memory], memory);
    }

    bool has_blas() {
        std::lock_guard<std::mutex> guard(mutex);
        if (blas != nullptr) return true;
        void* library = nullptr;
        for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"})
            if (library == nullptr) library = dlopen(name, RTLD_NOW);
        if (library == nullptr) return failure = "the package computes products, and there is no cuBLAS (libcublas.so.12)", false;
#define FLAMBEAU_FIND(name, ...)                           \
    *(void**)&name = dlsym(library, #name);                \
    if (name == nullptr) return failure = "cuBLAS has no " #name, false;
        FLAMBEAU_CUBLAS(FLAMBEAU_FIND)
#undef FLAMBEAU_FIND
        return !no("cublasCreate", cublasCreate_v2(&blas));
    }
};

/* Of this library alone: what is static in a function that is not, all packages of a process would share. */
static Gpu& gpu() {
    static Gpu& one = *new Gpu; /* never destroyed: the driver may be gone before it */
    return one;
}

/* One run: what it has made, and where kernels note indices that are out of bounds. */
struct Run {
    FlambeauFrame* frame;
    std::vector<Address> made;
    Address strays = 0;

    explicit Run(FlambeauFrame* given) : frame(given) {}
    ~Run() {
        for (Address memory : made) gpu().drop(memory);
    }
    int fail() { return frame->runtime->fail(frame->runtime, "%s", gpu().failure.c_str()); }

    /* Memory of the GPU until the run ends or it is dropped; null where there is none. */
    void* make(int64_t bytes) {
        Address memory = gpu().make((size_t)bytes);
        if (memory != 0) made.push_back(memory);
        else fail();
        return (void*)memory;
    }
    void drop(void* memory) {
        auto found = std::find(made.begin(), made.end(), (Address)memory);
        if (found == made.end()) return;
        made.erase(found);
        gpu().drop((Address)memory);
    }

    /* What lies in the host's memory, on the GPU. */
    void* sent(const void* host, int64_t bytes) {
        void* memory = make(bytes);
        if (memory != nullptr && bytes > 0 && gpu().no("cuMemcpyHtoD", gpu().cuMemcpyHtoD_v2((Address)memory, host, (size_t)bytes))) return fail(), nullptr;
        return memory;
    }

    bool is_here(const void* data) {
        unsigned kind = 0;
        return gpu().cuPointerGetAttribute(&kind, memory_type, (Address)data) == 0 && kind == on_device;
    }

    /* Input k with these strides, in elements: sent, unless it lies on the GPU already. */
    void* input(int32_t k, const int64_t* strides, int64_t itemsize) {
        const FlambeauTensor& tensor = frame->inputs[k];
        bool same = true;
        int64_t last = 1;
        for (int i = 0; i < tensor.ndim; i++) {
            if (tensor.sizes[i] == 0) return make(1);
            same &= tensor.sizes[i] == 1 || tensor.strides[i] == strides[i];
            last += (tensor.sizes[i] - 1) * strides[i];
        }
        if (is_here(tensor.data)) {
            if (same && (uintptr_t)tensor.data % 16 == 0) return tensor.data;
            flambeau_require(frame, 0, "the strides that the package was made for, and addresses that are multiples of 16, on the GPU");
            return nullptr;
        }
        void* fitted = flambeau_fit(frame, k, strides);
        return fitted == nullptr ? nullptr : sent(fitted, last * itemsize);
    }

    /* Where kernels note an index, and the size that it exceeds plus one. */
    void* noted() {
        if (strays == 0) {
            strays = (Address)make(16);
            if (strays != 0) gpu().cuMemsetD8_v2(strays, 0, 16);
        }
        return (void*)strays;
    }
    int checked() {
        int64_t words[2] = {0, 0};
        if (strays == 0) return 0;
        if (gpu().no("cuMemcpyDtoH", gpu().cuMemcpyDtoH_v2(words, strays, sizeof words))) return fail();
        return words[1] == 0 ? 0 : frame->runtime->out_of_bounds(frame->runtime, words[0], words[1] - 1);
    }

    /* `grid` blocks of kernel k; each word holds an address or a number. Two null pointers follow, as Triton's kernels want. */
    int launch(const Kernel& kernel, int k, int64_t grid, int64_t* words) {
        void* parameters[most_parameters + 2];
        int64_t scratch = 0;
        int count = (int)std::char_traits<char>::length(kernel.kinds);
        for (int i = 0; i < count; i++) parameters[i] = &words[i];
        parameters[count] = parameters[count + 1] = &scratch;
        if (grid == 0) return 0;
        return gpu().no("cuLaunchKernel", gpu().cuLaunchKernel(gpu().functions[(size_t)k], (unsigned)grid, 1, 1, kernel.threads, 1, 1, kernel.shared,
                                                              nullptr, parameters, nullptr)) ? fail() : 0;
    }

    /* A matrix, or a batch of them: sizes and strides in elements. */
    struct Matrix {
        void* data;
        int64_t batch, rows, columns, over, down, across;
        int64_t leading() const { return across == 1 ? std::max(down, columns) : std::max(across, rows); }
        bool is_plain() const { return columns <= 1 || across == 1 || rows <= 1 || down == 1; }
        bool by_rows() const { return across == 1 || columns <= 1; }
    };

    /* out = a b. cuBLAS counts by columns, so it is told of b' a' = out'. `kind` and `computed`: its numbers for dtypes. */
    int product(const Matrix& a, const Matrix& b, const Matrix& out, int kind, int computed, bool wide) {
        if (out.batch * out.rows * out.columns == 0) return 0;
        if (!a.is_plain() || !b.is_plain() || !out.by_rows()) return frame->runtime->fail(frame->runtime, "cuBLAS takes no product of matrices that lie so");
        if (!gpu().has_blas()) return fail();
        const double one_wide = 1, zero_wide = 0;
        const float one = 1, zero = 0;
        const void *alpha = wide ? (const void*)&one_wide : &one, *beta = wide ? (const void*)&zero_wide : &zero;
        std::lock_guard<std::mutex> guard(gpu().blas_mutex);     // a handle is one call's at a time
        return gpu().no("cublasGemmStridedBatchedEx", gpu().cublasGemmStridedBatchedEx(
            gpu().blas, b.by_rows() ? 0 : 1, a.by_rows() ? 0 : 1, (int)out.columns, (int)out.rows, (int)a.columns, alpha, b.data, kind, (int)b.leading(),
            b.over, a.data, kind, (int)a.leading(), a.over, beta, out.data, kind, (int)out.leading(), out.over, (int)out.batch, computed, -1)) ? fail() : 0;
    }

    /* What lies on the GPU, in the host's memory. */
    void* fetched(const void* data, int32_t ndim, const int64_t* sizes, const int64_t* strides, int64_t itemsize) {
        int64_t last = 1;
        for (int i = 0; i < ndim; i++) {
            if (sizes[i] == 0) return flambeau_make(frame, 1);
            last += (sizes[i] - 1) * strides[i];
        }
        void* host = flambeau_make(frame, last * itemsize);
        if (host != nullptr && gpu().no("cuMemcpyDtoH", gpu().cuMemcpyDtoH_v2(host, (Address)data, (size_t)(last * itemsize)))) return fail(), nullptr;
        return host;
    }

    /* Input k gets new elements, which lie in the host's memory with these strides. What lies between its own stays. */
    int written(int32_t k, const void* host, const int64_t* strides, int64_t itemsize) {
        const FlambeauTensor& to = frame->inputs[k];
        int64_t last = 1;
        for (int i = 0; i < to.ndim; i++) {
            if (to.sizes[i] == 0) return 0;
            last += (to.sizes[i] - 1) * to.strides[i];
        }
        bool here = is_here(to.data);
        void* image = here ? fetched(to.data, to.ndim, to.sizes, to.strides, itemsize) : to.data;
        if (image == nullptr) return 1;
        flambeau_copy(to.ndim, to.sizes, itemsize, image, to.strides, host, strides);
        return here && gpu().no("cuMemcpyHtoD", gpu().cuMemcpyHtoD_v2((Address)to.data, image, (size_t)(last * itemsize))) ? fail() : 0;
    }
};

}  // namespace flambeau_cuda
