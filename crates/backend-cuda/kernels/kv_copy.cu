// kv_copy: one entry of a slot over another, all heads, as stored.
//
// One thread per four bytes; `words` is the number of four bytes in a cell.
// order: none      bound: latency      twin: backend-cpu kv
#include "base.cuh"

extern "C" __global__ void kv_copy(u32 *cells, u32 slot, u32 from, u32 to, u32 heads, u32 words,
                                   u32 count) {
    begin();
    const u32 n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= heads * words) return;
    const u64 base = (u64(slot) * heads + n / words) * count;
    cells[(base + to % count) * words + n % words] = cells[(base + from % count) * words + n % words];
}
