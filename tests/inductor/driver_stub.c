/* A driver and a cuBLAS in the place of NVIDIA's: memory is the host's, and what is launched is written to $DRIVER_LOG, a line each. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE* out(void) {
    static FILE* file;
    if (file == NULL) file = fopen(getenv("DRIVER_LOG"), "a");
    setvbuf(file, NULL, _IOLBF, 0);
    return file;
}
static int told(const char* name) { return getenv(name) == NULL ? 0 : atoi(getenv(name)); }

int cuInit(unsigned flags) { return told("DRIVER_INIT"); }
int cuDeviceGet(int* device, int number) { return *device = number, 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { return *context = &told, 0; }
int cuCtxSetCurrent(void* context) { return 0; }
int cuDeviceGetAttribute(int* value, int what, int device) {
    int capability = told("DRIVER_CAPABILITY") ? told("DRIVER_CAPABILITY") : 90;
    return *value = what == 75 ? capability / 10 : capability % 10, 0;
}
int cuMemAlloc_v2(unsigned long long* place, size_t bytes) {
    *place = (unsigned long long)(uintptr_t)aligned_alloc(512, (bytes + 511) / 512 * 512);
    memset((void*)(uintptr_t)*place, 0, bytes);
    fprintf(out(), "alloc %llu %zu\n", *place, bytes);
    return 0;
}
int cuMemFree_v2(unsigned long long place) { return free((void*)(uintptr_t)place), 0; }
int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t bytes) { return memcpy((void*)(uintptr_t)to, from, bytes), 0; }
int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes) { return memcpy(to, (void*)(uintptr_t)from, bytes), 0; }
int cuMemsetD8_v2(unsigned long long place, unsigned char value, size_t bytes) { return memset((void*)(uintptr_t)place, value, bytes), 0; }
int cuPointerGetAttribute(void* value, int what, unsigned long long place) {
    if (getenv("DRIVER_HOLDS_INPUTS") == NULL) return 1;
    return *(unsigned*)value = 2, 0;     /* memory of the device: here the host's is */
}
int cuModuleLoadData(void** module, const void* code) {
    fprintf(out(), "load %s\n", memcmp(code, "\177ELF", 4) == 0 ? "cubin" : "something else");
    return *module = (void*)code, 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) { return *function = strdup(name), 0; }
int cuFuncSetAttribute(void* function, int what, int value) { return fprintf(out(), "shared %s %d\n", (char*)function, value), 0; }
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz, unsigned shared, void* stream,
                   void** parameters, void** extra) {
    fprintf(out(), "launch %s %u %u %u\n", (char*)function, x, threads, shared);
    if (told("DRIVER_STRAY")) {     /* as a kernel that notes an index does: its place comes after the addresses */
        int64_t* words = *(int64_t**)parameters[told("DRIVER_STRAY")];
        words[0] = 12, words[1] = 11;
    }
    return told("DRIVER_LAUNCH");
}
int cublasCreate_v2(void** handle) { return *handle = &told, 0; }
int cublasGemmStridedBatchedEx(void* handle, int ta, int tb, int m, int n, int k, const void* alpha, const void* a, int ka, int la, long long sa,
                               const void* b, int kb, int lb, long long sb, const void* beta, void* c, int kc, int lc, long long sc, int batch,
                               int computed, int algorithm) {
    fprintf(out(), "product %d %d %d %d\n", batch, m, n, k);
    for (int at = 0; at < batch; at++)
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++) {
                float sum = 0;
                for (int l = 0; l < k; l++)
                    sum += ((const float*)a)[at * sa + (ta ? l + (long)i * la : i + (long)l * la)] * ((const float*)b)[at * sb + (tb ? j + (long)l * lb : l + (long)j * lb)];
                ((float*)c)[at * sc + i + (long)j * lc] = sum;
            }
    return 0;
}
