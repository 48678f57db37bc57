// select: y[to[i], :] = x[from[i], first .. first + cols], i itself without a list.
//
// Rows of x are `stride` apart, rows of y `cols`. One thread per number.
// order: none      bound: memory      twin: reference select, columns, replace_rows
#include "base.cuh"

extern "C" __global__ void select(const float *x, float *y, u64 n, u32 cols, u32 stride, u32 first,
                                  const u32 *from, const u32 *to) {
    begin();
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const u64 row = i / cols, k = i % cols;
    y[u64(to ? to[row] : row) * cols + k] = x[u64(from ? from[row] : row) * stride + first + k];
}
