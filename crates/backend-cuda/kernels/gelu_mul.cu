// gelu_mul: y = gelu(gate) * up, and its rounded form if there is room for one.
//
// Rows of `cols`, `stride` apart in gate and up. A thread per number, a warp per block of 32; with
// codes, cols is a multiple of 32 and rows are padded to `padded`, whole segments.
// order: as math.cuh, quantise.cuh      bound: memory      twin: reference gelu_mul
#include "math.cuh"
#include "quantise.cuh"

extern "C" __global__ void gelu_mul(const float *gate, const float *up, float *y, u32 *codes,
                                    float2 *marks, u32 rows, u32 cols, u32 padded, u32 stride) {
    begin();
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= u64(rows) * padded) return;
    const u64 row = i / padded;
    const u32 k = u32(i % padded);
    float v = 0.0f;
    if (k < cols) {
        v = lap_gelu(gate[row * stride + k]) * up[row * stride + k];
        y[row * cols + k] = v;
    }
    if (codes) quantise_block(v, codes, marks, row, padded / 256, k / 32, k % 32);
}
