// top: the k largest numbers of each row, likeliest first, as {index, number}.
//
// Blocks of 256 take parts of 8,192 numbers and keep k of each, 1 <= k <= 1024: top_first of rows of
// `cols` numbers, top_next of what blocks before it kept, until one part is left of each row, which
// top_last sorts. Grids (parts, rows). Lists: rows x parts x k keys; a key is a number in an order
// of integers above the complement of its index, zero for none.
// order: none; zeros are equal, the lower index first among equals; NaN and minus infinity are left
// out      bound: memory, then latency      twin: likeliest of lapidary-core
#include "base.cuh"

constexpr u32 THREADS = 256, PER = 32, PART = THREADS * PER, MOST = 1024;

__device__ __forceinline__ u64 key_of(float x, u32 index) {
    if (!(x > __uint_as_float(0xff800000u))) return 0;
    const u32 bits = x == 0.0f ? 0 : __float_as_uint(x);
    return (u64(bits & 0x80000000u ? ~bits : bits | 0x80000000u) << 32) | (~index);
}

struct Scratch {
    u32 counts[2][THREADS / 32];
    u64 most[THREADS / 32];
    u32 taken;
};

// The number above which exactly min(k, keys) of the block's keys lie, itself included; keys differ.
__device__ __forceinline__ u64 bar_of(const u64 (&keys)[PER], u32 k, Scratch &s) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (k == 1) {
        u64 most = 0;
#pragma unroll
        for (int n = 0; n < PER; n++) most = max(most, keys[n]);
        for (int d = 16; d > 0; d /= 2) most = max(most, __shfl_xor_sync(~0u, most, d));
        if (lane == 0) s.most[warp] = most;
        __syncthreads();
        for (u32 w = 0; w < THREADS / 32; w++) most = max(most, s.most[w]);
        return most;
    }
    u64 bar = 0;
    for (int bit = 63; bit >= 0; bit--) {
        const u64 next = bar | (u64(1) << bit);
        u32 count = 0;
#pragma unroll
        for (int n = 0; n < PER; n++) count += keys[n] >= next;
        count = __reduce_add_sync(~0u, count);
        if (lane == 0) s.counts[bit % 2][warp] = count;
        __syncthreads();
        count = 0;
        for (u32 w = 0; w < THREADS / 32; w++) count += s.counts[bit % 2][w];
        if (count >= k) bar = next;
        if (count == k) break;
    }
    return bar;
}

// Puts the block's k largest keys into `to`, in any order, zeros after the last.
__device__ __forceinline__ void keep(const u64 (&keys)[PER], u64 *to, u32 k, Scratch &s) {
    if (threadIdx.x == 0) s.taken = 0;
    const u64 bar = max(bar_of(keys, k, s), u64(1));
    __syncthreads();
#pragma unroll
    for (int n = 0; n < PER; n++) {
        if (keys[n] >= bar) to[atomicAdd(&s.taken, 1)] = keys[n];
    }
    __syncthreads();
    for (u32 i = s.taken + threadIdx.x; i < k; i += THREADS) to[i] = 0;
}

__device__ __forceinline__ void load_keys(u64 (&keys)[PER], const u64 *from, u32 count) {
#pragma unroll
    for (int n = 0; n < PER; n++) {
        const u32 i = blockIdx.x * PART + n * THREADS + threadIdx.x;
        keys[n] = i < count ? from[u64(blockIdx.y) * count + i] : 0;
    }
}

extern "C" __global__ void __launch_bounds__(256) top_first(const float *x, u64 *to, u32 cols, u32 k) {
    __shared__ Scratch s;
    begin();
    u64 keys[PER];
#pragma unroll
    for (int n = 0; n < PER; n++) {
        const u32 i = blockIdx.x * PART + n * THREADS + threadIdx.x;
        keys[n] = i < cols ? key_of(x[u64(blockIdx.y) * cols + i], i) : 0;
    }
    keep(keys, to + (u64(blockIdx.y) * gridDim.x + blockIdx.x) * k, k, s);
}

extern "C" __global__ void __launch_bounds__(256) top_next(const u64 *from, u64 *to, u32 count, u32 k) {
    __shared__ Scratch s;
    begin();
    u64 keys[PER];
    load_keys(keys, from, count);
    keep(keys, to + (u64(blockIdx.y) * gridDim.x + blockIdx.x) * k, k, s);
}

extern "C" __global__ void __launch_bounds__(256)
    top_last(const u64 *from, const float *x, uint2 *to, u32 count, u32 cols, u32 k) {
    __shared__ Scratch s;
    __shared__ u64 best[MOST];
    begin();
    u64 keys[PER];
    load_keys(keys, from, count);
    keep(keys, best, k, s);
    u32 size = 1;
    while (size < k) size *= 2;
    for (u32 i = k + threadIdx.x; i < size; i += THREADS) best[i] = 0;
    // Bitonic: runs of `run` become runs of twice that.
    for (u32 run = 2; run <= size; run *= 2) {
        for (u32 d = run / 2; d > 0; d /= 2) {
            __syncthreads();
            for (u32 i = threadIdx.x; i < size; i += THREADS) {
                const u32 j = i ^ d;
                if (j < i) continue;
                const u64 a = best[i], b = best[j];
                if ((a < b) == ((i & run) == 0)) {
                    best[i] = b;
                    best[j] = a;
                }
            }
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < k; i += THREADS) {
        const u32 index = ~u32(best[i]);
        const u32 bits = best[i] ? __float_as_uint(x[u64(blockIdx.y) * cols + index]) : 0;
        to[u64(blockIdx.y) * k + i] = make_uint2(best[i] ? index : ~0u, bits);
    }
}
