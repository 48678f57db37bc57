// norm: y = x / sqrt(mean(x^2) + eps), times w if there is one, over each group of `width` columns.
//
// f32, contiguous. norm_narrow: a warp per group, up to 512 wide. norm_wide_N: a block of 1024
// threads per row of one group, N numbers each, up to 1024 * N wide; with codes, its rounded form too (width a multiple of
// 32). With `residual`, y = residual + that.
// order: thread l adds the squares of elements l, l + threads, ...; then a tree over threads. A
// function of the width alone      bound: memory      twin: reference rms_norm, unit_norm, add_norm
#include "quantise.cuh"

constexpr int THREADS = 1024;  // of norm_wide

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) v = v + __shfl_xor_sync(~0u, v, d);
    return v;
}

__device__ __forceinline__ float factor_of(float sum, u32 width, float eps) {
    return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, float(width)) + eps));
}

extern "C" __global__ void norm_narrow(const float *x, const float *w, const float *residual,
                                       float *y, u64 groups, u32 width, float eps) {
    admit_next();
    const u64 group = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const u32 lane = threadIdx.x % 32;
    const u64 at = group * width;
    float v[16], factors[16], more[16], sum = 0.0f;
#pragma unroll
    for (int n = 0; n < 16; n++) factors[n] = w && lane + 32 * n < width ? w[lane + 32 * n] : 1.0f;
    wait_for_inputs();
    if (group >= groups) return;
#pragma unroll
    for (int n = 0; n < 16; n++) {
        const u32 i = lane + 32 * n;
        v[n] = i < width ? x[at + i] : 0.0f;
        more[n] = residual && i < width ? residual[at + i] : 0.0f;
    }
#pragma unroll
    for (int n = 0; n < 16; n++) sum = __fmaf_rn(v[n], v[n], sum);
    const float factor = factor_of(warp_sum(sum), width, eps);
#pragma unroll
    for (int n = 0; n < 16; n++) {
        const u32 i = lane + 32 * n;
        if (i >= width) continue;
        const float out = v[n] * factor * factors[n];
        y[at + i] = residual ? more[n] + out : out;
    }
}

template <int PER>
__device__ __forceinline__ void wide(const float *x, const float *w, const float *residual, float *y,
                                     u32 *codes, float2 *marks, u32 width, float eps) {
    __shared__ float sums[THREADS / 32];
    admit_next();
    const u64 row = blockIdx.x, at = row * width;
    const u32 thread = threadIdx.x, segments = (width + 255) / 256;
    float v[PER], factors[PER], more[PER], sum = 0.0f;
#pragma unroll
    for (int n = 0; n < PER; n++) {
        const u32 i = thread + THREADS * n;
        factors[n] = w && i < width ? w[i] : 1.0f;
    }
    wait_for_inputs();
    // Everything is read before anything is written: the two could be the same to the compiler.
#pragma unroll
    for (int n = 0; n < PER; n++) {
        const u32 i = thread + THREADS * n;
        v[n] = i < width ? x[at + i] : 0.0f;
        more[n] = residual && i < width ? residual[at + i] : 0.0f;
    }
#pragma unroll
    for (int n = 0; n < PER; n++) sum = __fmaf_rn(v[n], v[n], sum);
    sum = warp_sum(sum);
    if (thread % 32 == 0) sums[thread / 32] = sum;
    __syncthreads();
    sum = thread % 32 < THREADS / 32 ? sums[thread % 32] : 0.0f;
    const float factor = factor_of(warp_sum(sum), width, eps);
#pragma unroll
    for (int n = 0; n < PER; n++) {
        const u32 i = thread + THREADS * n;
        v[n] = v[n] * factor * factors[n];
        if (residual) v[n] = more[n] + v[n];
        if (i < width) y[at + i] = v[n];
    }
    // Numbers past the row's end are zero.
    if (codes) {
        quantise_blocks(v, codes, marks, row, segments, thread / 32, THREADS / 32, thread % 32);
    }
}

extern "C" __global__ void __launch_bounds__(1024)
    norm_wide_3(const float *x, const float *w, const float *residual, float *y, u32 *codes,
                float2 *marks, u32 width, float eps) {
    wide<3>(x, w, residual, y, codes, marks, width, eps);
}

extern "C" __global__ void __launch_bounds__(1024)
    norm_wide_12(const float *x, const float *w, const float *residual, float *y, u32 *codes,
                 float2 *marks, u32 width, float eps) {
    wide<12>(x, w, residual, y, codes, marks, width, eps);
}
