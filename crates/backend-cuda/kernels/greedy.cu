// greedy: the largest number of each part of a row, and its index, the lowest among equals.
//
// Grid (parts, rows), blocks of 256: block p of a row takes numbers 256p + thread, and so on. parts:
// rows x parts keys, the number in an order of integers above the complement of its index.
// order: none; NaN counts as largest, as in the total order      bound: memory
// twin: argmax over floats in total order
#include "base.cuh"

extern "C" __global__ void __launch_bounds__(256) greedy(const float *x, u64 *parts, u32 cols) {
    __shared__ u64 bests[8];
    begin();
    x += u64(blockIdx.y) * cols;
    u64 best = 0;
#pragma unroll 8
    for (u32 i = blockIdx.x * 256 + threadIdx.x; i < cols; i += gridDim.x * 256) {
        const u32 bits = __float_as_uint(x[i]);
        const u32 key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
        best = max(best, (u64(key) << 32) | (~i));
    }
    for (int d = 16; d > 0; d /= 2) best = max(best, __shfl_xor_sync(~0u, best, d));
    if (threadIdx.x % 32 == 0) bests[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int n = 1; n < 8; n++) best = max(best, bests[n]);
    parts[blockIdx.y * gridDim.x + blockIdx.x] = best;
}
