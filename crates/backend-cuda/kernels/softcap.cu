// softcap: x = cap * tanh(x / cap) in place, one thread per number.
// order: as math.cuh      bound: memory      twin: reference softcap
#include "math.cuh"

extern "C" __global__ void softcap(float *x, u64 n, float cap) {
    begin();
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) x[i] = cap * lap_tanh(x[i] * __fdiv_rn(1.0f, cap));
}
