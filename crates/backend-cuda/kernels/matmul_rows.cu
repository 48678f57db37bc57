// matmul_rows: y[r, n] = sum over k of x[r, k] * w[n, k] for a few rows, quantised w.
//
// Grid (groups of 32 outputs of all parts, row sets); a block's warps share out the segments, a lane
// is an output. A row set is ROWS rows of the same matrix: rows ROWS*set.. of the codes. With `of`, a
// set is one row: it reads row set / share of the codes and multiplies with matrix of[set].
// Shared memory: per warp ROWS * 320 bytes of activations, then segments * ROWS * 32 floats.
// order: the law; segments are added ascending      bound: weight bytes      twin: matmul_plain
#include "lanes.cuh"

template <int ROWS>
__device__ __forceinline__ void rows_kernel(const Part &p, const uint4 *codes, const float2 *marks,
                                            u32 rows, u32 segments, const u32 *of, u32 share) {
    extern __shared__ uint4 shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    uint4 *a = shared + warp * ROWS * 20;
    float2 *scales = reinterpret_cast<float2 *>(a + ROWS * 16);
    float *partial = reinterpret_cast<float *>(shared + warps * ROWS * 20);
    admit_next();
    if (of) wait_for_inputs();
    const u32 first = of ? blockIdx.y / share : blockIdx.y * ROWS;
    const u64 matrix = of ? of[blockIdx.y] : 0;
    const u32 last = of ? first : rows - 1;

    bool waited = false;
    for (u32 j = warp; j < segments; j += warps) {
        const u8 *record =
            p.w + ((matrix * groups_of(p.height) + p.group) * segments + j) * RECORD_BYTES;
        const auto load16 = [&](int at) { return load_once(record + at); };
        Half halves[2];
        load_half(halves[0], 0, lane, load16);
        load_half(halves[1], 1, lane, load16);
        const Ends ends = load_ends(record, lane, load16);
        if (!waited) wait_for_inputs();
        waited = true;
        // Everything is under way before anything is put down.
        uint4 own[(ROWS + 1) / 2];
        float2 mark[(ROWS + 3) / 4];
#pragma unroll
        for (int n = 0; n < (ROWS + 1) / 2; n++) {
            const u64 row = min(first + (lane + n * 32) / 16, last);
            own[n] = codes[(row * segments + j) * 16 + lane % 16];
        }
#pragma unroll
        for (int n = 0; n < (ROWS + 3) / 4; n++) {
            const u64 row = min(first + (lane + n * 32) / 8, last);
            mark[n] = marks[(row * segments + j) * 8 + lane % 8];
        }
        __syncwarp();
#pragma unroll
        for (int n = 0; n < (ROWS + 1) / 2; n++) {
            if (lane + n * 32 < ROWS * 16) a[lane + n * 32] = own[n];
        }
#pragma unroll
        for (int n = 0; n < (ROWS + 3) / 4; n++) {
            if (lane + n * 32 < ROWS * 8) scales[lane + n * 32] = mark[n];
        }
        __syncwarp();
        float segment[ROWS];
        multiply_lane<ROWS, 256, 64>(segment, halves, ends, reinterpret_cast<const u8 *>(a),
                                     reinterpret_cast<const u8 *>(scales), 0);
#pragma unroll
        for (int r = 0; r < ROWS; r++) partial[(j * ROWS + r) * 32 + lane] = segment[r];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < ROWS * 32; i += blockDim.x) {
        const u32 out = p.group * 32 + i % 32, row = blockIdx.y * ROWS + i / 32;
        if (out >= p.height || row >= rows) continue;
        float sum = 0.0f;
        for (u32 j = 0; j < segments; j++) sum = sum + partial[j * ROWS * 32 + i];
        p.y[u64(row) * p.height + out] = sum;
    }
}

#define ROWS_KERNEL(ROWS)                                                                         \
    extern "C" __global__ void __launch_bounds__(512) matmul_rows_##ROWS(                         \
        PARTS, const uint4 *codes, const float2 *marks, u32 rows, u32 segments, const u32 *of,    \
        u32 share) {                                                                              \
        const Part part = part_of(w0, w1, w2, y0, y1, y2, height0, height1, height2, 1);          \
        rows_kernel<ROWS>(part, codes, marks, rows, segments, of, share);                         \
    }

ROWS_KERNEL(1)
ROWS_KERNEL(2)
ROWS_KERNEL(3)
ROWS_KERNEL(4)
