// norm_rope: the norm of each head times w, then rotated by the row's angles.
//
// rows x cols f32, heads of `width` columns, a multiple of 64 and at most 512; sin and cos: rows x
// width / 2. One warp per head.
// order: as norm_narrow, then as rope: the same bits      bound: memory      twin: norm, then rope
#include "base.cuh"

extern "C" __global__ void norm_rope(const float *x, const float *w, const float *sin,
                                     const float *cos, float *y, u32 rows, u32 cols, u32 width,
                                     float eps) {
    const u32 heads = cols / width, lane = threadIdx.x % 32, half = width / 2;
    const u64 group = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    if (group >= u64(rows) * heads) return;
    const u64 row = group / heads;
    x += group * width;
    y += group * width;
    sin += row * half;
    cos += row * half;
    float sum = 0.0f;
#pragma unroll 4
    for (u32 i = lane; i < width; i += 32) sum = __fmaf_rn(x[i], x[i], sum);
    for (int d = 16; d > 0; d /= 2) sum = sum + __shfl_xor_sync(~0u, sum, d);
    const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, float(width)) + eps));
#pragma unroll 4
    for (u32 j = lane; j < half; j += 32) {
        const float a = x[j] * factor * w[j], b = x[j + half] * factor * w[j + half];
        y[j] = a * cos[j] - b * sin[j];
        y[j + half] = b * cos[j] + a * sin[j];
    }
}
