// scale: x = x * s in place; s has `len` values, one or one per column. One thread per number.
// order: one product each      bound: memory      twin: reference scale
#include "base.cuh"

extern "C" __global__ void scale(float *x, const float *s, u64 n, u32 len) {
    begin();
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * s[len == 1 ? 0 : i % len];
}
