// greedy: the index of each row's largest number, the lowest among equals.
//
// A block of 1024 per row; NaN counts as largest, as in the total order.
// order: none      bound: memory      twin: argmax over floats in total order
#include "base.cuh"

extern "C" __global__ void __launch_bounds__(1024) greedy(const float *x, u32 *picks, u32 cols) {
    __shared__ u64 bests[32];
    begin();
    x += u64(blockIdx.x) * cols;
    u64 best = 0;
#pragma unroll 8
    for (u32 i = threadIdx.x; i < cols; i += 1024) {
        const u32 bits = __float_as_uint(x[i]);
        const u32 key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
        best = max(best, (u64(key) << 32) | (~i));
    }
    for (int d = 16; d > 0; d /= 2) best = max(best, __shfl_xor_sync(~0u, best, d));
    if (threadIdx.x % 32 == 0) bests[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    best = bests[threadIdx.x];
    for (int d = 16; d > 0; d /= 2) best = max(best, __shfl_xor_sync(~0u, best, d));
    if (threadIdx.x == 0) picks[blockIdx.x] = ~u32(best);
}
