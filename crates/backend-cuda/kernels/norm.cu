// norm: y = x / sqrt(mean(x^2) + eps), times w if there is one, over each group of `width` columns.
//
// `groups` groups of f32, contiguous. norm_narrow: a warp per group; norm_wide: a block of 256 per
// group. Which one serves a width is fixed by the host. With `residual`, y = residual + that.
// order: thread l adds the squares of elements l, l + threads, ...; then a tree over threads. A
// function of the width alone      bound: memory      twin: reference rms_norm, unit_norm, add_norm
#include "base.cuh"

__device__ __forceinline__ float warp_sum(float v) {
    for (int d = 16; d > 0; d /= 2) v = v + __shfl_xor_sync(~0u, v, d);
    return v;
}

__device__ __forceinline__ float squares(const float *x, u32 width, u32 first, u32 step) {
    float sum = 0.0f;
#pragma unroll 4
    for (u32 i = first; i < width; i += step) sum = __fmaf_rn(x[i], x[i], sum);
    return sum;
}

__device__ __forceinline__ float factor_of(float sum, u32 width, float eps) {
    return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, float(width)) + eps));
}

__device__ __forceinline__ void write(const float *x, const float *w, const float *residual,
                                      float *y, u32 width, u32 first, u32 step, float factor) {
#pragma unroll 4
    for (u32 i = first; i < width; i += step) {
        float v = x[i] * factor;
        if (w) v = v * w[i];
        y[i] = residual ? residual[i] + v : v;
    }
}

extern "C" __global__ void norm_narrow(const float *x, const float *w, const float *residual,
                                       float *y, u64 groups, u32 width, float eps) {
    const u64 group = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    if (group >= groups) return;
    const u32 lane = threadIdx.x % 32;
    const u64 at = group * width;
    const float sum = warp_sum(squares(x + at, width, lane, 32));
    write(x + at, w, residual ? residual + at : 0, y + at, width, lane, 32,
          factor_of(sum, width, eps));
}

extern "C" __global__ void __launch_bounds__(256)
    norm_wide(const float *x, const float *w, const float *residual, float *y, u64 groups, u32 width,
              float eps) {
    __shared__ float sums[8];
    const u64 at = u64(blockIdx.x) * width;
    const float own = warp_sum(squares(x + at, width, threadIdx.x, 256));
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = own;
    __syncthreads();
    const float sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
                      ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    write(x + at, w, residual ? residual + at : 0, y + at, width, threadIdx.x, 256,
          factor_of(sum, width, eps));
}
