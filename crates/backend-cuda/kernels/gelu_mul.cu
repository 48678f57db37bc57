// gelu_mul: y = gelu(gate) * up, and its rounded form.
//
// Rows of `cols`, `stride` apart in gate and up. gelu_mul: a thread per number. gelu_mul_rounded: a
// thread per four numbers, eight threads per block of 32; cols is a multiple of 32, stride of 4, and
// rows are padded to `padded`, whole segments; without `y` the rounded form alone.
// order: as math.cuh, quantise.cuh      bound: memory      twin: reference gelu_mul
#include "math.cuh"
#include "quantise.cuh"

extern "C" __global__ void gelu_mul(const float *gate, const float *up, float *y, u32 rows, u32 cols,
                                    u32 stride) {
    begin();
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= u64(rows) * cols) return;
    const u64 row = i / cols;
    const u32 k = u32(i % cols);
    y[i] = lap_gelu(gate[row * stride + k]) * up[row * stride + k];
}

extern "C" __global__ void gelu_mul_rounded(const float *gate, const float *up, float *y, u32 *codes,
                                            float2 *marks, u32 rows, u32 cols, u32 padded,
                                            u32 stride) {
    begin();
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    const u32 fours = padded / 4;
    if (i >= u64(rows) * fours) return;
    const u64 row = i / fours;
    const u32 k = u32(i % fours) * 4;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (k < cols) {
        const float4 g = *reinterpret_cast<const float4 *>(gate + row * stride + k);
        const float4 u = *reinterpret_cast<const float4 *>(up + row * stride + k);
        v = make_float4(lap_gelu(g.x) * u.x, lap_gelu(g.y) * u.y, lap_gelu(g.z) * u.z,
                        lap_gelu(g.w) * u.w);
        if (y) *reinterpret_cast<float4 *>(y + row * cols + k) = v;
    }
    quantise_fours(v, codes, marks, row, padded / 256, k / 32, threadIdx.x % 8);
}
