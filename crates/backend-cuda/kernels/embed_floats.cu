// embed_floats: y[r, :] = table[token[r], :] * scale, from the layout of matmul_floats.
//
// One thread per output.
// order: one product each      bound: memory      twin: reference embed
#include "base.cuh"

#if FORMAT == 8
typedef float Element;
__device__ __forceinline__ float widen(Element v) { return v; }
#elif FORMAT == 9
typedef u16 Element;
__device__ __forceinline__ float widen(Element v) { return half_to_float(v); }
#else
typedef u16 Element;
__device__ __forceinline__ float widen(Element v) { return bfloat_to_float(v); }
#endif

extern "C" __global__ void embed_floats(const Element *table, const u32 *tokens, float *y, u32 rows,
                                        u32 cols, float scale) {
    begin();
    const u64 n = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (n >= u64(rows) * cols) return;
    const u32 token = tokens[n / cols], k = u32(n % cols);
    const u64 fours = (cols + 3) / 4;
    y[n] = widen(table[((u64(token / 32) * fours + k / 4) * 32 + token % 32) * 4 + k % 4]) * scale;
}
