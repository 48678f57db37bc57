// matmul_few: y[r, n] = sum over k of x[r, k] * w[n, k] for up to 8*NT rows a tile, quantised w.
//
// Grid (groups of 32 outputs, tiles); a block's warps share out the segments. Row r of the output
// reads row from[r] of the codes (r itself without `from`). Tiles of a list with no rows are left
// out. Shared memory: 4096 bytes per warp, then segments * 8*NT * 36 floats.
// order: the law; segments are added ascending      bound: weight bytes      twin: matmul_plain
#include "tensor.cuh"

constexpr int STRIDE = 36;  // of partial results: spreads a warp's writes over all banks

template <int NT>
__device__ __forceinline__ void few(const u8 *w, const uint4 *codes, const float2 *marks, float *y,
                                    u32 rows, u32 height, u32 segments, const u32 *from,
                                    const Tile *tiles) {
    extern __shared__ uint4 shared[];
    constexpr int SIZE = NT * 8;
    admit_next();
    if (tiles) wait_for_inputs();
    const Tile tile = tile_at(tiles, blockIdx.y, SIZE, rows);
    if (tile.count == 0) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int g = lane / 4, t = lane % 4;
    float4 *ends = reinterpret_cast<float4 *>(shared) + warp * 256;
    float *partial = reinterpret_cast<float *>(shared + warps * 256);
    // Rows past the tile's end repeat its last one; their results are not written.
    u32 feeds[NT], first[NT], second[NT];
#pragma unroll
    for (int nt = 0; nt < NT; nt++) {
        const u32 last = tile.count - 1;
        const u32 r0 = tile.first + min(u32(nt * 8 + g), last);
        const u32 r1 = tile.first + min(u32(nt * 8 + 2 * t), last);
        const u32 r2 = tile.first + min(u32(nt * 8 + 2 * t + 1), last);
        feeds[nt] = from ? from[r0] : r0;
        first[nt] = from ? from[r1] : r1;
        second[nt] = from ? from[r2] : r2;
    }
    bool waited = false;
    for (u32 j = warp; j < segments; j += warps) {
        const u8 *record =
            w + ((u64(tile.matrix) * gridDim.x + blockIdx.x) * segments + j) * RECORD_BYTES;
        Fragment halves[2];
#pragma unroll
        for (int H = 0; H < 2; H++) {
            load_fragment(halves[H], record, H, g, t,
                          [&](int at) { return load_once(record + at); });
        }
        if (!waited) wait_for_inputs();
        waited = true;
        __syncwarp();
        write_ends(ends, record, lane);
        __syncwarp();
        float segment[2][NT][4];
#pragma unroll
        for (int h = 0; h < 4; h++) {
            Word words[2][4];
            float4 end[2][4];
#pragma unroll
            for (int bb = 0; bb < 2; bb++) {
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    words[bb][r] = word_of(halves[h / 2], (h % 2) * 2 + bb, r);
                    end[bb][r] = ends[(2 * h + bb) * 32 + r * 8 + g];
                }
            }
#pragma unroll
            for (int nt = 0; nt < NT; nt++) {
                const uint4 a = codes[(u64(feeds[nt]) * segments + j) * 16 + h * 4 + t];
                const float4 *m = reinterpret_cast<const float4 *>(marks);
                const Marks x = {m[(u64(first[nt]) * segments + j) * 4 + h],
                                 m[(u64(second[nt]) * segments + j) * 4 + h]};
                end_pair<NT>(segment, nt, h, words, end, a, x, MAGIC_BITS);
            }
        }
#pragma unroll
        for (int mt = 0; mt < 2; mt++) {
#pragma unroll
            for (int nt = 0; nt < NT; nt++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    partial[(j * SIZE + nt * 8 + 2 * t + e % 2) * STRIDE + mt * 16 + e / 2 * 8 + g] =
                        segment[mt][nt][e];
                }
            }
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < tile.count * 32; i += blockDim.x) {
        const u32 out = blockIdx.x * 32 + i % 32, r = i / 32;
        if (out >= height) continue;
        float sum = 0.0f;
        for (u32 j = 0; j < segments; j++) sum = sum + partial[(j * SIZE + r) * STRIDE + i % 32];
        y[u64(tile.first + r) * height + out] = sum;
    }
}

// Threads: what leaves enough registers for all loads of a record to be under way at once.
#define FEW_KERNEL(NT, THREADS)                                                               \
    extern "C" __global__ void __launch_bounds__(THREADS) matmul_few_##NT(                        \
        const u8 *w, const uint4 *codes, const float2 *marks, float *y, u32 rows, u32 height,     \
        u32 segments, const u32 *from, const Tile *tiles) {                                       \
        few<NT>(w, codes, marks, y, rows, height, segments, from, tiles);                         \
    }

FEW_KERNEL(1, 352)
FEW_KERNEL(2, 352)
FEW_KERNEL(4, 256)
