// join: y = scale * (residual + norm(branch)), and up to three norms of y with their rounded forms.
//
// A block of 1024 threads per row, three numbers each: `width` columns, at most 3072, a multiple of
// 32. The branch is `a`, or, with `b`, norm(a) + norm(b). `scale`, if there is one, has one value or,
// if `scales`, one per column. Norm i is there if its weights are.
// order: each norm as norm_wide_3, sums and products as in add_norm and scale: the same bits
// bound: latency      twin: the body of Backend::join
#include "quantise.cuh"

constexpr int THREADS = 1024, WARPS = THREADS / 32, PER = 3;

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) v = v + __shfl_xor_sync(~0u, v, d);
    return v;
}

__device__ __forceinline__ float squares(const float (&v)[PER]) {
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < PER; n++) sum = __fmaf_rn(v[n], v[n], sum);
    return warp_sum(sum);
}

__device__ __forceinline__ float factor_of(float part, u32 width, float eps) {
    return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(warp_sum(part), float(width)) + eps));
}

// Three numbers of a row, zeros past its end or without one.
__device__ __forceinline__ void load(float (&v)[PER], const float *from, u32 width) {
#pragma unroll
    for (int n = 0; n < PER; n++) {
        const u32 i = threadIdx.x + THREADS * n;
        v[n] = from && i < width ? from[i] : 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(1024)
    join(const float *a, const float *a_norm, const float *b, const float *b_norm,
         const float *residual, const float *norm, const float *scale, float *y, const float *w0,
         float *y0, u32 *codes0, float2 *marks0, const float *w1, float *y1, u32 *codes1,
         float2 *marks1, const float *w2, float *y2, u32 *codes2, float2 *marks2, u32 scales,
         u32 width, float eps) {
    __shared__ float sums[4][WARPS];
    admit_next();
    const u64 row = blockIdx.x, at = row * width;
    const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const u32 segments = (width + 255) / 256;
    float factors[PER], wa[PER], wb[PER], next[3][PER], by[PER];
    load(factors, norm, width);
    load(wa, a_norm, width);
    load(wb, b_norm, width);
    load(next[0], w0, width);
    load(next[1], w1, width);
    load(next[2], w2, width);
    load(by, scales ? scale : nullptr, width);
    const float one = scale && !scales ? scale[0] : 1.0f;
    wait_for_inputs();
    // Everything is read before anything is written: the two could be the same to the compiler.
    float v[PER], other[PER], more[PER];
    load(v, a + at, width);
    load(other, b ? b + at : nullptr, width);
    load(more, residual + at, width);
    if (b) {
        const float sum_a = squares(v), sum_b = squares(other);
        if (lane == 0) {
            sums[0][warp] = sum_a;
            sums[1][warp] = sum_b;
        }
        __syncthreads();
        const float fa = factor_of(sums[0][lane], width, eps);
        const float fb = factor_of(sums[1][lane], width, eps);
#pragma unroll
        for (int n = 0; n < PER; n++) v[n] = v[n] * fa * wa[n] + other[n] * fb * wb[n];
    }
    const float sum = squares(v);
    if (lane == 0) sums[2][warp] = sum;
    __syncthreads();
    const float factor = factor_of(sums[2][lane], width, eps);
#pragma unroll
    for (int n = 0; n < PER; n++) {
        const u32 i = thread + THREADS * n;
        v[n] = more[n] + v[n] * factor * factors[n];
        if (scale) v[n] = v[n] * (scales ? by[n] : one);
        if (i < width) y[at + i] = v[n];
    }
    if (!w0) return;
    const float sum_y = squares(v);
    if (lane == 0) sums[3][warp] = sum_y;
    __syncthreads();
    const float last = factor_of(sums[3][lane], width, eps);
    const float *weights[3] = {w0, w1, w2};
    float *outs[3] = {y0, y1, y2};
    u32 *codes[3] = {codes0, codes1, codes2};
    float2 *marks[3] = {marks0, marks1, marks2};
#pragma unroll
    for (int m = 0; m < 3; m++) {
        if (!weights[m]) break;
        float out[PER];
#pragma unroll
        for (int n = 0; n < PER; n++) {
            const u32 i = thread + THREADS * n;
            out[n] = v[n] * last * next[m][n];
            if (i < width) outs[m][at + i] = out[n];
        }
        quantise_blocks(out, codes[m], marks[m], row, segments, warp, WARPS, lane);
    }
}
