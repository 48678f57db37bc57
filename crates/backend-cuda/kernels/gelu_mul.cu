// gelu_mul: y = gelu(gate) * up; rows of `cols`, `stride` apart in gate and up. One thread each.
// order: as math.cuh      bound: memory      twin: reference gelu_mul
#include "math.cuh"

extern "C" __global__ void gelu_mul(const float *gate, const float *up, float *y, u64 n, u32 cols,
                                    u32 stride) {
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const u64 at = i / cols * stride + i % cols;
    y[i] = lap_gelu(gate[at]) * up[at];
}
