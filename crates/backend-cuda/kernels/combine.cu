// combine: y[r, :] = sum over j < k of weights[r, j] * terms[place[r, j], :], j itself without
// places. One thread per output.
// order: j ascending, a product and a sum each      bound: memory      twin: reference experts
#include "base.cuh"

extern "C" __global__ void combine(const float *terms, const float *weights, const u32 *place,
                                   float *y, u32 rows, u32 cols, u32 k) {
    begin();
    const u64 n = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (n >= u64(rows) * cols) return;
    const u64 row = n / cols, col = n % cols;
    float sum = 0.0f;
    for (u32 j = 0; j < k; j++) {
        const u64 choice = row * k + j;
        sum = sum + weights[choice] * terms[u64(place ? place[choice] : choice) * cols + col];
    }
    y[n] = sum;
}
