// norm_rope: the norm of each head times w, then rotated by the row's angles.
//
// rows x cols f32, heads of `width` columns, a multiple of 64 and at most 512; sin and cos: rows x
// width / 2. One warp per head. norm_heads: of a row's query heads, then its key heads, with weights
// of their own; then the norms of its value heads, without weights and not rotated.
// order: as norm_narrow, then as rope: the same bits      bound: memory      twin: norm, then rope
#include "base.cuh"

// The numbers of one head that a lane takes, and what they are multiplied with.
struct Lane {
    float v[16], factors[16];
};

__device__ __forceinline__ void load_factors(Lane &l, const float *w, u32 width, u32 lane) {
#pragma unroll
    for (int n = 0; n < 16; n++) l.factors[n] = w && lane + 32 * n < width ? w[lane + 32 * n] : 1.0f;
}

__device__ __forceinline__ void norm(Lane &l, const float *x, u32 width, u32 lane, float eps) {
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < 16; n++) l.v[n] = lane + 32 * n < width ? x[lane + 32 * n] : 0.0f;
#pragma unroll
    for (int n = 0; n < 16; n++) sum = __fmaf_rn(l.v[n], l.v[n], sum);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum = sum + __shfl_xor_sync(~0u, sum, d);
    const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, float(width)) + eps));
#pragma unroll
    for (int n = 0; n < 16; n++) l.v[n] = l.v[n] * factor * l.factors[n];
}

__device__ __forceinline__ void turn_and_put(const Lane &l, const float *sin, const float *cos,
                                             float *y, u32 width, u32 lane) {
    const u32 half = width / 2;
    float s[8], c[8];
    // Everything is read before anything is written: the two could be the same to the compiler.
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const u32 j = lane + 32 * n;
        s[n] = j < half ? sin[j] : 0.0f;
        c[n] = j < half ? cos[j] : 0.0f;
    }
    // The partner of a lane's number is the lane's own, half a head further on.
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const u32 j = lane + 32 * n;
        if (j >= half) continue;
        float b = 0.0f;
#pragma unroll
        for (int h = 1; h <= 8; h++) b = half == 32 * h ? l.v[(n + h) % 16] : b;
        const float a = l.v[n];
        y[j] = a * c[n] - b * s[n];
        y[j + half] = b * c[n] + a * s[n];
    }
}

extern "C" __global__ void norm_rope(const float *x, const float *w, const float *sin,
                                     const float *cos, float *y, u32 rows, u32 cols, u32 width,
                                     float eps) {
    admit_next();
    const u32 heads = cols / width, lane = threadIdx.x % 32, half = width / 2;
    const u64 group = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    Lane l;
    load_factors(l, w, width, lane);
    wait_for_inputs();
    if (group >= u64(rows) * heads) return;
    const u64 row = group / heads;
    norm(l, x + group * width, width, lane, eps);
    turn_and_put(l, sin + row * half, cos + row * half, y + group * width, width, lane);
}

extern "C" __global__ void norm_heads(const float *q, const float *k, const float *v,
                                      const float *q_norm, const float *k_norm, const float *sin,
                                      const float *cos, float *q_out, float *k_out, float *v_out,
                                      u32 rows, u32 query_heads, u32 heads, u32 width, float eps) {
    admit_next();
    const u32 all = query_heads + 2 * heads, lane = threadIdx.x % 32, half = width / 2;
    const u64 group = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const u64 row = group / all;
    const u32 of = u32(group % all);
    const bool is_q = of < query_heads, is_k = !is_q && of < query_heads + heads;
    Lane l;
    load_factors(l, is_q ? q_norm : is_k ? k_norm : nullptr, width, lane);
    wait_for_inputs();
    if (row >= rows) return;
    const u64 at = is_q ? row * query_heads + of : row * heads + (of - query_heads) % heads;
    norm(l, (is_q ? q : is_k ? k : v) + at * width, width, lane, eps);
    if (is_q || is_k) {
        float *out = (is_q ? q_out : k_out) + at * width;
        turn_and_put(l, sin + row * half, cos + row * half, out, width, lane);
        return;
    }
#pragma unroll
    for (int n = 0; n < 16; n++) {
        if (lane + 32 * n < width) v_out[at * width + lane + 32 * n] = l.v[n];
    }
}
