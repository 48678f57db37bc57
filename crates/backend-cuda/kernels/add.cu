// add: y = a + b, n numbers, one thread each.
// order: one sum each      bound: memory      twin: reference add
#include "base.cuh"

extern "C" __global__ void add(const float *a, const float *b, float *y, u64 n) {
    begin();
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a[i] + b[i];
}
