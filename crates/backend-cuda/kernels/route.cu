// route: the best k of each row's logits, their softmax among themselves, times per_expert.
//
// A warp per row; at most 32 of at most 1024 experts; `experts` and `weights`: rows x k, experts
// ascending. Among equal logits the lower index wins.
// order: shares are added in ascending order of experts      bound: latency      twin: Routes::of
#include "math.cuh"

constexpr int PER = 32;

// A number whose order as an integer is the total order of floats.
__device__ __forceinline__ u32 ordered(float f) {
    const u32 bits = __float_as_uint(f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Lane l has the logits of experts l, l + 32, ...; LANE_LOGITS of them at most.
template <int LANE_LOGITS>
__device__ __forceinline__ void choose(const float *logits, const float *per_expert, u32 *experts,
                                       float *weights, u32 count, u32 k, u32 lane) {
    u64 keys[LANE_LOGITS];
#pragma unroll
    for (int n = 0; n < LANE_LOGITS; n++) {
        const u32 e = lane + 32 * n;
        keys[n] = e < count ? (u64(ordered(logits[e])) << 32) | (~e) : 0;
    }
    u32 own = ~0u;
    float most = 0.0f;
    for (u32 i = 0; i < k; i++) {
        u64 best = 0;
#pragma unroll
        for (int n = 0; n < LANE_LOGITS; n++) best = max(best, keys[n]);
#pragma unroll
        for (int d = 16; d > 0; d /= 2) best = max(best, __shfl_xor_sync(~0u, best, d));
        const u32 e = ~u32(best);
        if (i == 0) most = logits[e];
        if (lane == i) own = e;
#pragma unroll
        for (int n = 0; n < LANE_LOGITS; n++) keys[n] = keys[n] == best ? 0 : keys[n];
    }
    // Lane i has the i-th best; its place is the number of chosen experts before it.
    u32 place = 0;
    for (u32 i = 0; i < k; i++) place += __shfl_sync(~0u, own, i) < own;
    const float share = lane < k ? lap_exp(logits[own] - most) : 0.0f;
    float sum = 0.0f;
    for (u32 p = 0; p < k; p++) {
        const u32 from = __ffs(__ballot_sync(~0u, lane < k && place == p)) - 1;
        sum = sum + __shfl_sync(~0u, share, from);
    }
    if (lane < k) {
        experts[place] = own;
        weights[place] = __fdiv_rn(share, sum) * per_expert[own];
    }
}

extern "C" __global__ void route(const float *logits, const float *per_expert, u32 *experts,
                                 float *weights, u32 count, u32 k) {
    begin();
    const u64 row = blockIdx.x;
    logits += row * count;
    experts += row * k;
    weights += row * k;
    if (count <= 128) {
        choose<4>(logits, per_expert, experts, weights, count, k, threadIdx.x);
    } else {
        choose<PER>(logits, per_expert, experts, weights, count, k, threadIdx.x);
    }
}
