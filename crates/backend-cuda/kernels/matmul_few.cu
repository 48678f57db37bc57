// matmul_few: y[r, n] = sum over k of x[r, k] * w[n, k] for up to 8*NT rows a tile, quantised w.
//
// Grid (groups of 32 outputs of all parts, tiles); a block's warps share out the segments. Row r of the output
// reads row from[r] of the codes (r itself without `from`). Tiles of a list with no rows are left
// out. Shared memory: per warp ENDS_BYTES and 8*NT * 336 of activations, then segments * 8*NT * 36
// floats.
// order: the law; segments are added ascending      bound: weight bytes      twin: matmul_plain
#include "tensor.cuh"

constexpr int STRIDE = 36;  // of partial results: spreads a warp's writes over all banks

template <int NT>
__device__ __forceinline__ void few(const Part &p, const uint4 *codes, const float2 *marks, u32 rows,
                                    u32 segments, const u32 *from, const Tile *tiles) {
    extern __shared__ uint4 shared[];
    constexpr int SIZE = NT * 8;
    admit_next();
    if (tiles) wait_for_inputs();
    const Tile tile = tile_at(tiles, blockIdx.y, SIZE, rows);
    if (tile.count == 0) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int g = lane / 4, t = lane % 4;
    constexpr int WARP_BYTES = ENDS_BYTES + segment_bytes(SIZE);
    u8 *own = reinterpret_cast<u8 *>(shared) + warp * WARP_BYTES, *rows_here = own + ENDS_BYTES;
    float *ends = reinterpret_cast<float *>(own);
    float *partial = reinterpret_cast<float *>(reinterpret_cast<u8 *>(shared) + warps * WARP_BYTES);
    // Rows past the tile's end repeat its last one; their results are not written.
    const auto row_of = [&](u32 n) {
        const u32 r = tile.first + min(n, tile.count - 1);
        return from ? from[r] : r;
    };
    bool waited = false;
    for (u32 j = warp; j < segments; j += warps) {
        const u64 group = u64(tile.matrix) * groups_of(p.height) + p.group;
        const u8 *record = p.w + (group * segments + j) * RECORD_BYTES;
        Fragment halves[2];
#pragma unroll
        for (int H = 0; H < 2; H++) {
            load_fragment(halves[H], record, H, g, t,
                          [&](int at) { return load_once(record + at); });
        }
        const LaneFactors factors = lane_factors(record, lane);
        if (!waited) wait_for_inputs();
        waited = true;
        __syncwarp();
        fetch_rows<SIZE>(rows_here, codes, marks, segments, j, lane, 32, row_of);
        asm volatile("cp.async.commit_group;" ::: "memory");
        write_ends(ends, factors, lane);
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncwarp();
        float segment[2][NT][4];
        multiply<NT, NT>(segment, ends, rows_here, g, t, [&](int H) { return halves[H]; });
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
        const u32 out = p.group * 32 + i % 32, r = i / 32;
        if (out >= p.height) continue;
        float sum = 0.0f;
        for (u32 j = 0; j < segments; j++) sum = sum + partial[(j * SIZE + r) * STRIDE + i % 32];
        p.y[u64(tile.first + r) * p.height + out] = sum;
    }
}

// Threads: a warp for each segment of the usual widths.
#define FEW_KERNEL(NT, THREADS)                                                                   \
    extern "C" __global__ void __launch_bounds__(THREADS) matmul_few_##NT(                        \
        PARTS, const uint4 *codes, const float2 *marks, u32 rows, u32 segments, const u32 *from,  \
        const Tile *tiles) {                                                                      \
        const Part part = part_of(w0, w1, w2, y0, y1, y2, height0, height1, height2, 1);          \
        few<NT>(part, codes, marks, rows, segments, from, tiles);                                 \
    }

FEW_KERNEL(1, 352)
FEW_KERNEL(2, 352)
FEW_KERNEL(4, 352)
