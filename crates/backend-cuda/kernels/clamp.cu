// clamp: y = x brought between least and most, n numbers, one thread each; NaN stays.
// order: none      bound: memory      twin: reference clamp
#include "base.cuh"

extern "C" __global__ void clamp(const float *x, float *y, u64 n, float least, float most) {
    begin();
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float v = x[i];
    y[i] = v < least ? least : v > most ? most : v;
}
