// kv_write: rows of keys or values to their cells.
//
// x: rows x (heads * width) f32. cells: [slot][head][cell][width]; writes: rows x {slot, entry}.
// BYTES is 4 or 2 per element. One thread per number.
// order: rounded to nearest even      bound: memory      twin: backend-cpu kv
#include "base.cuh"

extern "C" __global__ void kv_write(const float *x, void *cells, const uint2 *writes, u32 rows,
                                    u32 heads, u32 width, u32 count, u32 bytes) {
    const u64 n = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    const u32 cols = heads * width;
    if (n >= u64(rows) * cols) return;
    const uint2 to = writes[n / cols];
    const u32 head = u32(n % cols) / width, k = u32(n % cols) % width;
    const u64 at = ((u64(to.x) * heads + head) * count + to.y % count) * width + k;
    if (bytes == 4) {
        reinterpret_cast<float *>(cells)[at] = x[n];
    } else {
        reinterpret_cast<u16 *>(cells)[at] = float_to_half(x[n]);
    }
}
