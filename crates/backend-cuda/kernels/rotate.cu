// rotate: signs, then the Walsh-Hadamard transform, of every block of `block` columns; or, with
// `back`, the inverse.
//
// rows x cols f32; a warp per block, `blocks` in all; block a power of two, 32 to 256.
// order: as the CPU's `rotated`: the same bits      bound: latency      twin: rotated of the CPU
#include "rotated.cuh"

extern "C" __global__ void __launch_bounds__(256)
    rotate(const float *x, float *y, u64 blocks, u32 block, u32 back, float norm) {
    __shared__ float all[8][256];
    begin();
    const u64 n = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const u32 lane = threadIdx.x % 32;
    float *own = all[threadIdx.x / 32];
    if (n >= blocks) return;
    for (u32 i = lane; i < block; i += 32) {
        const float v = x[n * block + i];
        own[i] = back ? v : v * sign_of(i);
    }
    transform(own, block, norm, lane);
    for (u32 i = lane; i < block; i += 32) y[n * block + i] = back ? own[i] * sign_of(i) : own[i];
}
