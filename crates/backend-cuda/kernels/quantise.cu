// quantise: rows of floats to 8-bit codes, one scale per 32 (see quantise.cuh).
//
// rows x cols f32, cols a multiple of 32. One warp per block.
// order: row-local, no additions of floats      bound: memory      twin: law::quantise
#include "quantise.cuh"

extern "C" __global__ void quantise(const float *x, u32 *codes, float2 *marks, u32 rows, u32 cols) {
    begin();
    const u32 segments = (cols + 255) / 256, places = segments * 8;
    const u64 n = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const u32 lane = threadIdx.x % 32;
    if (n >= u64(rows) * places) return;
    const u64 row = n / places;
    const u32 block = u32(n % places), k = block * 32 + lane;
    const float v = k < cols ? x[row * cols + k] : 0.0f;
    quantise_block(v, codes, marks, row, segments, block, lane);
}
