// matmul_many: y[r, n] = sum over k of x[r, k] * w[n, k] for tiles of 8*NT rows, quantised w.
//
// Grid (blocks of outputs, tiles); each warp has 32 outputs and all segments, the tile's rows are
// shared by the block's warps. Two stages of shared memory: while one segment is multiplied, the next is
// copied. Rows, `from` and `tiles` as in matmul_few. Shared memory: per stage a record per warp,
// 8*NT * 336 bytes of activations; then 4096 bytes per warp.
// order: the law; segments are added ascending      bound: issue slots that end blocks
// twin: matmul_plain
#include "tensor.cuh"

// Copies segment j of everything a block needs into a stage.
template <int SIZE>
__device__ __forceinline__ void fetch(u8 *stage, const u8 *weights, u32 weight_stride, u32 warps,
                                      const uint4 *codes, const float2 *marks, u32 segments, u32 j,
                                      const u32 *row_of) {
    for (u32 v = 0; v < warps; v++) {
        const u8 *record = weights + u64(v) * weight_stride;
        for (u32 i = threadIdx.x; i < RECORD_BYTES / 16; i += blockDim.x) {
            copy_16(stage + v * RECORD_BYTES + i * 16, record + i * 16);
        }
    }
    fetch_rows<SIZE>(stage + (blockDim.x / 32) * RECORD_BYTES, codes, marks, segments, j,
                     threadIdx.x, blockDim.x, [&](u32 n) { return row_of[n]; });
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int NT>
__device__ __forceinline__ void many(const u8 *w, const uint4 *codes, const float2 *marks, float *y,
                                     u32 rows, u32 height, u32 segments, const u32 *from,
                                     const Tile *tiles) {
    constexpr int SIZE = NT * 8;
    begin();
    extern __shared__ uint4 shared[];
    __shared__ u32 row_of[SIZE];
    const Tile tile = tile_at(tiles, blockIdx.y, SIZE, rows);
    if (tile.count == 0) return;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int g = lane / 4, t = lane % 4;
    const u32 groups = (height + 31) / 32, group = blockIdx.x * warps + warp;
    const u32 here = min(warps, groups - blockIdx.x * warps);
    const u32 stage_bytes = warps * RECORD_BYTES + segment_bytes(SIZE);
    u8 *stages = reinterpret_cast<u8 *>(shared);
    float4 *ends = reinterpret_cast<float4 *>(stages + 2 * stage_bytes) + warp * 256;
    if (threadIdx.x < SIZE) {
        const u32 r = tile.first + min(threadIdx.x, tile.count - 1);
        row_of[threadIdx.x] = from ? from[r] : r;
    }
    __syncthreads();

    const u8 *weights =
        w + (u64(tile.matrix) * groups + blockIdx.x * warps) * segments * RECORD_BYTES;
    const u32 stride = segments * RECORD_BYTES;
    float total[2][NT][4];
#pragma unroll
    for (int i = 0; i < 2 * NT * 4; i++) total[i / (NT * 4)][i / 4 % NT][i % 4] = 0.0f;
    fetch<SIZE>(stages, weights, stride, here, codes, marks, segments, 0, row_of);
#pragma unroll 1
    for (u32 j = 0; j < segments; j++) {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        if (j + 1 < segments) {
            fetch<SIZE>(stages + ((j + 1) & 1) * stage_bytes, weights + (j + 1) * RECORD_BYTES, stride,
                  here, codes, marks, segments, j + 1, row_of);
        }
        if (warp >= here) continue;
        const u8 *stage = stages + (j & 1) * stage_bytes;
        const u8 *record = stage + warp * RECORD_BYTES;
        const u8 *a = stage + warps * RECORD_BYTES;
        write_ends(ends, lane_factors(record, lane), lane);
        __syncwarp();
        float segment[2][NT][4];
        const auto fragment = [&](int H) {
            Fragment f;
            load_fragment(f, record, H, g, t, [&](int at) {
                return *reinterpret_cast<const uint4 *>(record + at);
            });
            return f;
        };
        if (tile.count > SIZE / 2) {
            multiply<NT, NT>(segment, ends, a, g, t, fragment);
        } else {
            multiply<NT / 2, NT>(segment, ends, a, g, t, fragment);
        }
#pragma unroll
        for (int mt = 0; mt < 2; mt++) {
#pragma unroll
            for (int nt = 0; nt < NT; nt++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    if (nt >= NT / 2 && tile.count <= SIZE / 2) continue;
                    total[mt][nt][e] = total[mt][nt][e] + segment[mt][nt][e];
                }
            }
        }
        __syncwarp();
    }
    if (warp >= here) return;
#pragma unroll
    for (int mt = 0; mt < 2; mt++) {
#pragma unroll
        for (int nt = 0; nt < NT; nt++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const u32 r = nt * 8 + 2 * t + e % 2, out = group * 32 + mt * 16 + e / 2 * 8 + g;
                if (r < tile.count && out < height) {
                    y[u64(tile.first + r) * height + out] = total[mt][nt][e];
                }
            }
        }
    }
}

#define MANY_KERNEL(NT)                                                                           \
    extern "C" __global__ void __launch_bounds__(256, 1) matmul_many_##NT(                        \
        const u8 *w, const uint4 *codes, const float2 *marks, float *y, u32 rows, u32 height,     \
        u32 segments, const u32 *from, const Tile *tiles) {                                       \
        many<NT>(w, codes, marks, y, rows, height, segments, from, tiles);                        \
    }

MANY_KERNEL(4)
MANY_KERNEL(8)
