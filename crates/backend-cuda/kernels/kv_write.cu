// kv_write: rows of keys and values to their cells.
//
// k, v: rows x (heads * width) f32. Cells: [slot][head][cell][width]; writes: rows x {slot, entry}.
// One thread per number; FORMAT says how numbers are stored. A side without cells is left out.
// order: rounded to nearest even      bound: memory      twin: backend-cpu kv
#include "view.cuh"

#if FORMAT == 0
typedef float Element;
#else
typedef u16 Element;
#endif

__device__ __forceinline__ void put(float *to, float v) { *to = v; }
__device__ __forceinline__ void put(u16 *to, float v) { *to = float_to_half(v); }

extern "C" __global__ void kv_write(const float *k, const float *v, Element *keys, Element *values,
                                    const uint2 *writes, u32 rows, u32 heads, u32 width,
                                    u32 count) {
    begin();
    const u64 n = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    const u32 cols = heads * width;
    if (n >= u64(rows) * cols) return;
    const uint2 to = writes[n / cols];
    const u32 head = u32(n % cols) / width, c = u32(n % cols) % width;
    const u64 at = ((u64(to.x) * heads + head) * count + to.y % count) * width + c;
    if (keys) put(keys + at, k[n]);
    if (values) put(values + at, v[n]);
}
