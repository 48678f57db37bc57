// join: y = scale * (residual + norm(branch)), and up to three norms of y with their rounded forms.
//
// A block per row: `width` columns, at most 3072, a multiple of 32. As in norm_wide_3, 1024 chains
// have three numbers each; a thread has one chain (join, for few rows: the shortest way) or four
// (join_many: several rows share a processor). The branch is `a`, or, with `b`, norm(a) + norm(b). `scale`, if there is one, has one value or,
// if `scales`, one per column. Norm i is there if its weights are.
// order: each norm as norm_wide_3, sums and products as in add_norm and scale: the same bits
// bound: latency      twin: the body of Backend::join
#include "quantise.cuh"

constexpr int CHAINS = 1024, PER = 3;

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) v = v + __shfl_xor_sync(~0u, v, d);
    return v;
}

__device__ __forceinline__ float factor_of(float part, u32 width, float eps) {
    return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(warp_sum(part), float(width)) + eps));
}

// What a thread has of a row: EACH chains of numbers, `step` apart.
template <int EACH>
struct Numbers {
    float v[EACH][PER];

    // Calls visit(number, column).
    template <class Visit>
    __device__ __forceinline__ void each(Visit visit) {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
#pragma unroll
            for (int n = 0; n < PER; n++) visit(v[j][n], threadIdx.x + CHAINS / EACH * j + CHAINS * n);
        }
    }

    // Zeros past the row's end or without one.
    __device__ __forceinline__ void load(const float *from, u32 width) {
        each([&](float &x, u32 i) { x = from && i < width ? from[i] : 0.0f; });
    }

    // Leaves the sums of squares of whole warps of chains.
    __device__ __forceinline__ void put_squares(float *sums) const {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            float sum = 0.0f;
#pragma unroll
            for (int n = 0; n < PER; n++) sum = __fmaf_rn(v[j][n], v[j][n], sum);
            sum = warp_sum(sum);
            if (threadIdx.x % 32 == 0) sums[(threadIdx.x + CHAINS / EACH * j) / 32] = sum;
        }
    }
};

// Calls visit(j, n) for each number that a thread has.
template <int EACH, class Visit>
__device__ __forceinline__ void each_place(Visit visit) {
#pragma unroll
    for (int j = 0; j < EACH; j++) {
#pragma unroll
        for (int n = 0; n < PER; n++) visit(j, n);
    }
}

#define JOIN                                                                                       \
    const float *a, const float *a_norm, const float *b, const float *b_norm,                      \
        const float *residual, const float *norm, const float *scale, float *y, const float *w0,   \
        float *y0, u32 *codes0, float2 *marks0, const float *w1, float *y1, u32 *codes1,           \
        float2 *marks1, const float *w2, float *y2, u32 *codes2, float2 *marks2, u32 scales,       \
        u32 width, float eps

template <int EACH>
__device__ __forceinline__ void join_rows(JOIN) {
    __shared__ float sums[4][CHAINS / 32];
    admit_next();
    const u64 row = blockIdx.x, at = row * width;
    const u32 thread = threadIdx.x, lane = thread % 32;
    const u32 segments = (width + 255) / 256;
    // A lone row's weights are under way before its inputs are there.
    constexpr int EARLY = EACH == 1 ? 1 : 0;
    Numbers<EACH> factors, wa, wb, next[3], by;
    const float *weights[3] = {w0, w1, w2};
    const auto load_weights = [&] {
        factors.load(norm, width);
        wa.load(a_norm, width);
        wb.load(b_norm, width);
        by.load(scales ? scale : nullptr, width);
    };
    if (EARLY) {
        load_weights();
#pragma unroll
        for (int m = 0; m < 3; m++) next[m].load(weights[m], width);
    }
    const float one = scale && !scales ? scale[0] : 1.0f;
    wait_for_inputs();
    // Everything is read before anything is written: the two could be the same to the compiler.
    Numbers<EACH> own, other, more;
    own.load(a + at, width);
    other.load(b ? b + at : nullptr, width);
    more.load(residual + at, width);
    if (!EARLY) load_weights();
    if (b) {
        own.put_squares(sums[0]);
        other.put_squares(sums[1]);
        __syncthreads();
        const float fa = factor_of(sums[0][lane], width, eps);
        const float fb = factor_of(sums[1][lane], width, eps);
        each_place<EACH>([&](int j, int n) {
            own.v[j][n] = own.v[j][n] * fa * wa.v[j][n] + other.v[j][n] * fb * wb.v[j][n];
        });
    }
    own.put_squares(sums[2]);
    __syncthreads();
    const float factor = factor_of(sums[2][lane], width, eps);
    each_place<EACH>([&](int j, int n) {
        float v = more.v[j][n] + own.v[j][n] * factor * factors.v[j][n];
        if (scale) v = v * (scales ? by.v[j][n] : one);
        own.v[j][n] = v;
    });
    own.each([&](float &x, u32 i) {
        if (i < width) y[at + i] = x;
    });
    if (!w0) return;
    own.put_squares(sums[3]);
    __syncthreads();
    const float last = factor_of(sums[3][lane], width, eps);
    float *outs[3] = {y0, y1, y2};
    u32 *codes[3] = {codes0, codes1, codes2};
    float2 *marks[3] = {marks0, marks1, marks2};
#pragma unroll
    for (int m = 0; m < 3; m++) {
        if (!weights[m]) break;
        if (!EARLY) next[m].load(weights[m], width);
        Numbers<EACH> out;
        each_place<EACH>(
            [&](int j, int n) { out.v[j][n] = own.v[j][n] * last * next[m].v[j][n]; });
        out.each([&](float &x, u32 i) {
            if (i < width) outs[m][at + i] = x;
        });
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const u32 warp = (thread + CHAINS / EACH * j) / 32;
            quantise_blocks(out.v[j], codes[m], marks[m], row, segments, warp, CHAINS / 32, lane);
        }
    }
}

#define JOIN_KERNEL(NAME, EACH, BLOCKS)                                                           \
    extern "C" __global__ void __launch_bounds__(CHAINS / EACH, BLOCKS) NAME(JOIN) {              \
        join_rows<EACH>(a, a_norm, b, b_norm, residual, norm, scale, y, w0, y0, codes0, marks0,   \
                        w1, y1, codes1, marks1, w2, y2, codes2, marks2, scales, width, eps);      \
    }

JOIN_KERNEL(join, 1, 1)
JOIN_KERNEL(join_many, 4, 2)
