// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): the ten rounds that make four
// random words of a counter of four, in place, for CUDA's compilers too.
#ifndef FLAMBEAU_PHILOX_ROUNDS
#define FLAMBEAU_PHILOX_ROUNDS
#ifdef __CUDACC__
#define FL_PHILOX __device__ __forceinline__
#else
#define FL_PHILOX inline __attribute__((always_inline))
#endif

FL_PHILOX void philox_rounds(unsigned& c0, unsigned& c1, unsigned& c2, unsigned& c3, unsigned key0, unsigned key1) {
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
        unsigned long long product0 = 0xD2511F53ull * c0, product1 = 0xCD9E8D57ull * c2;
        c0 = (unsigned)(product1 >> 32) ^ c1 ^ key0;
        c1 = (unsigned)product1;
        c2 = (unsigned)(product0 >> 32) ^ c3 ^ key1;
        c3 = (unsigned)product0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

#endif
