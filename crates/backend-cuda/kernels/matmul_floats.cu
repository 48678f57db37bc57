// matmul_floats: y[r, n] = sum over k of x[r, k] * w[n, k], for w of plain numbers (ELEMENT bytes:
// F32, F16 or BF16).
//
// w: [group of 32 outputs][k / 4][output][k % 4], zeros past the ends. Grid (groups, sets of ROWS
// rows); a block's warps share out the segments of 256 inputs, a lane is an output. Row r reads
// row from[r] of x and matrix of[r] with lists (ROWS is 1 then). Shared memory: 256 * ROWS floats
// per warp, then segments * ROWS * 32 floats. Products past a row's end are of zeros, which add
// nothing.
// order: one ascending fma chain per segment, segments added ascending      bound: weight bytes
// twin: law::dot_floats
#include "base.cuh"

#if FORMAT == 8
typedef float4 Four;
__device__ __forceinline__ float4 widen(Four v) { return v; }
#else
typedef uint2 Four;
__device__ __forceinline__ float widen_one(u32 bits) {
#if FORMAT == 9
    return half_to_float(u16(bits));
#else
    return bfloat_to_float(u16(bits));
#endif
}
__device__ __forceinline__ float4 widen(Four v) {
    return make_float4(widen_one(v.x & 0xffff), widen_one(v.x >> 16), widen_one(v.y & 0xffff),
                       widen_one(v.y >> 16));
}
#endif

template <int ROWS>
__device__ __forceinline__ void floats(const Four *w, const float *x, float *y, u32 rows, u32 height,
                                       u32 cols, const u32 *from, const u32 *of) {
    extern __shared__ float4 shared[];
    admit_next();
    if (from || of) wait_for_inputs();
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const u32 segments = (cols + 255) / 256, fours = (cols + 3) / 4, first = blockIdx.y * ROWS;
    const u64 matrix = of ? of[first] : 0;
    float4 *own = shared + warp * ROWS * 64;
    float *partial = reinterpret_cast<float *>(shared + warps * ROWS * 64);
    w += (matrix * gridDim.x + blockIdx.x) * fours * 32 + lane;
    bool waited = false;
    for (u32 j = warp; j < segments; j += warps) {
        const u32 start = j * 64, count = min(64u, fours - start);
        float segment[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) segment[r] = 0.0f;
        // Weights of a batch are under way together.
        constexpr int BATCH = ROWS == 1 ? 32 : 16;
        for (u32 i = 0; i < count; i += BATCH) {
            Four batch[BATCH];
#pragma unroll
            for (int n = 0; n < BATCH; n++) {
                batch[n] = w[u64(start + min(i + n, count - 1)) * 32];
            }
            if (!waited) wait_for_inputs();
            waited = true;
            if (i == 0) {
                __syncwarp();
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const u32 n = min(first + r, rows - 1);
                    const float *row = x + u64(from ? from[n] : n) * cols + j * 256;
                    float *to = reinterpret_cast<float *>(own + r * 64);
#pragma unroll
                    for (u32 k = lane; k < 256; k += 32) to[k] = j * 256 + k < cols ? row[k] : 0.0f;
                }
                __syncwarp();
            }
#pragma unroll
            for (int n = 0; n < BATCH; n++) {
                if (i + n >= count) break;
                const float4 v = widen(batch[n]);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const float4 p = own[r * 64 + i + n];
                    segment[r] = __fmaf_rn(v.x, p.x, segment[r]);
                    segment[r] = __fmaf_rn(v.y, p.y, segment[r]);
                    segment[r] = __fmaf_rn(v.z, p.z, segment[r]);
                    segment[r] = __fmaf_rn(v.w, p.w, segment[r]);
                }
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) partial[(j * ROWS + r) * 32 + lane] = segment[r];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < ROWS * 32; i += blockDim.x) {
        const u32 out = blockIdx.x * 32 + i % 32, r = first + i / 32;
        if (out >= height || r >= rows) continue;
        float sum = 0.0f;
        for (u32 j = 0; j < segments; j++) sum = sum + partial[j * ROWS * 32 + i];
        y[u64(r) * height + out] = sum;
    }
}

#define FLOATS_KERNEL(ROWS)                                                                       \
    extern "C" __global__ void __launch_bounds__(352) matmul_floats_##ROWS(                       \
        const Four *w, const float *x, float *y, u32 rows, u32 height, u32 cols, const u32 *from, \
        const u32 *of) {                                                                          \
        floats<ROWS>(w, x, y, rows, height, cols, from, of);                                      \
    }

FLOATS_KERNEL(1)
FLOATS_KERNEL(8)
