// norm_rope: the norm of each head times w, then rotated by the row's angles.
//
// rows x cols f32, heads of `width` columns, a multiple of 64 and at most 512; sin and cos: rows x
// width / 2. One warp per head.
// order: as norm_narrow, then as rope: the same bits      bound: memory      twin: norm, then rope
#include "base.cuh"

extern "C" __global__ void norm_rope(const float *x, const float *w, const float *sin,
                                     const float *cos, float *y, u32 rows, u32 cols, u32 width,
                                     float eps) {
    admit_next();
    const u32 heads = cols / width, lane = threadIdx.x % 32, half = width / 2;
    const u64 group = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    float v[16], factors[16], s[8], c[8], sum = 0.0f;
#pragma unroll
    for (int n = 0; n < 16; n++) factors[n] = lane + 32 * n < width ? w[lane + 32 * n] : 0.0f;
    wait_for_inputs();
    if (group >= u64(rows) * heads) return;
    const u64 row = group / heads;
    x += group * width;
    y += group * width;
    // Everything is read before anything is written: the two could be the same to the compiler.
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const u32 j = lane + 32 * n;
        s[n] = j < half ? sin[row * half + j] : 0.0f;
        c[n] = j < half ? cos[row * half + j] : 0.0f;
    }
#pragma unroll
    for (int n = 0; n < 16; n++) v[n] = lane + 32 * n < width ? x[lane + 32 * n] : 0.0f;
#pragma unroll
    for (int n = 0; n < 16; n++) sum = __fmaf_rn(v[n], v[n], sum);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum = sum + __shfl_xor_sync(~0u, sum, d);
    const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, float(width)) + eps));
#pragma unroll
    for (int n = 0; n < 16; n++) v[n] = v[n] * factor * factors[n];
    // The partner of a lane's number is the lane's own, half a head further on.
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const u32 j = lane + 32 * n;
        if (j >= half) continue;
        float b = 0.0f;
#pragma unroll
        for (int h = 1; h <= 8; h++) b = half == 32 * h ? v[(n + h) % 16] : b;
        const float a = v[n];
        y[j] = a * c[n] - b * s[n];
        y[j + half] = b * c[n] + a * s[n];
    }
}
