// rope: rotates each head of row r, in place, by the row's angles.
//
// rows x cols f32, heads of 2 * pairs columns; sin and cos: rows x pairs. One thread per pair.
// order: two products and one sum per number      bound: memory      twin: reference rope
#include "base.cuh"

extern "C" __global__ void rope(float *x, const float *sin, const float *cos, u32 rows, u32 cols,
                                u32 pairs) {
    begin();
    const u64 n = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    const u32 per_row = cols / 2;
    if (n >= u64(rows) * per_row) return;
    const u64 row = n / per_row;
    const u32 head = u32(n % per_row) / pairs, j = u32(n % per_row) % pairs;
    float *p = x + row * cols + head * 2 * pairs + j;
    const float a = p[0], b = p[pairs], s = sin[row * pairs + j], c = cos[row * pairs + j];
    p[0] = a * c - b * s;
    p[pairs] = b * c + a * s;
}
