// route: the best k of each row's logits, their softmax among themselves, times per_expert.
//
// A warp per row; `experts` and `weights`: rows x k, experts ascending. Shared memory: 8 bytes per
// expert. Among equal logits the lower index wins.
// order: shares are added in ascending order of experts      bound: latency      twin: Routes::of
#include "math.cuh"

// A number whose order as an integer is the total order of floats.
__device__ __forceinline__ u32 ordered(float f) {
    const u32 bits = __float_as_uint(f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

extern "C" __global__ void route(const float *logits, const float *per_expert, u32 *experts,
                                 float *weights, u32 count, u32 k) {
    extern __shared__ u64 keys[];
    const u32 lane = threadIdx.x;
    const u64 row = blockIdx.x;
    logits += row * count;
    experts += row * k;
    weights += row * k;
    for (u32 e = lane; e < count; e += 32) keys[e] = (u64(ordered(logits[e])) << 32) | (~e);
    __syncwarp();
    float most = 0.0f;
    for (u32 i = 0; i < k; i++) {
        u64 best = 0;
        for (u32 e = lane; e < count; e += 32) best = max(best, keys[e]);
        for (int d = 16; d > 0; d /= 2) best = max(best, __shfl_xor_sync(~0u, best, d));
        const u32 e = ~u32(best);
        if (i == 0) most = logits[e];
        __syncwarp();
        // A taken expert is marked by a key below all others; its index stays.
        if (lane == 0) keys[e] = 0;
        __syncwarp();
    }
    if (lane != 0) return;
    float sum = 0.0f;
    for (u32 e = 0, i = 0; e < count && i < k; e++) {
        if (keys[e] != 0) continue;
        const float share = lap_exp(logits[e] - most);
        experts[i] = e;
        weights[i] = share;
        sum = sum + share;
        i++;
    }
    for (u32 i = 0; i < k; i++) {
        weights[i] = __fdiv_rn(weights[i], sum) * per_expert[experts[i]];
    }
}
