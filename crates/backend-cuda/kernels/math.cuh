// math: the functions of the CPU's `math`, operation by operation, so that both give the same
// bits.
#pragma once
#include "base.cuh"

// e^x: 0 below -87.3, saturating above 88.
__device__ __forceinline__ float lap_exp(float x) {
    const float LOWEST = -87.3f, SHIFT = 12582912.0f;
    const float LN2_HIGH = 0.6933594f, LN2_LOW = -2.1219444e-4f;
    float clamped = x < LOWEST ? LOWEST : x;
    clamped = clamped > 88.0f ? 88.0f : clamped;
    float shifted = __fmaf_rn(clamped, 1.44269504088896340736f, SHIFT);
    float n = shifted - SHIFT;
    float r = __fmaf_rn(n, -LN2_LOW, __fmaf_rn(n, -LN2_HIGH, clamped));
    float p = __fmaf_rn(r, float(1.0f / 5040.0f), float(1.0f / 720.0f));
    p = __fmaf_rn(r, p, float(1.0f / 120.0f));
    p = __fmaf_rn(r, p, float(1.0f / 24.0f));
    p = __fmaf_rn(r, p, float(1.0f / 6.0f));
    p = __fmaf_rn(r, p, 0.5f);
    p = __fmaf_rn(r, p, 1.0f);
    p = __fmaf_rn(r, p, 1.0f);
    u32 power = (__float_as_uint(shifted) - __float_as_uint(SHIFT) + 127u) << 23;
    return x < LOWEST ? 0.0f : p * __uint_as_float(power);
}

__device__ __forceinline__ float lap_tanh(float x) {
    float clamped = x < -20.0f ? -20.0f : x;
    clamped = clamped > 20.0f ? 20.0f : clamped;
    return 1.0f - __fdiv_rn(2.0f, lap_exp(2.0f * clamped) + 1.0f);
}

__device__ __forceinline__ float lap_gelu(float x) {
    float inner = 0.7978846f * x * __fmaf_rn(x * x, 0.044715f, 1.0f);
    return 0.5f * x * (1.0f + lap_tanh(inner));
}
