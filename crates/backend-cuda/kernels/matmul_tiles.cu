// matmul_tiles_N: y[r, n] = sum over k of x[r, k] * w[n, k] for a list of tiles of up to N rows, each
// with a matrix of its own, quantised w.
//
// Grid (blocks of outputs, tiles), 2 warps for 4 rows, 4 for 8; a warp has `per` groups of 32 outputs one after the other,
// whose records are one run of memory that flows through STAGES places of shared memory. The tile's
// activations are read once. Rows, `from` and `tiles` as in matmul_few. Shared memory: per warp STAGES
// records and ENDS_BYTES; then segments * segment_bytes(N).
// One or two rows take fewer instructions as dot products than on tensor cores, with the same bits.
// order: the law; segments are added ascending      bound: weight bytes      twin: matmul_plain
#include "lanes.cuh"
#include "tensor.cuh"

constexpr u32 STAGES = 2;

// Up to ROWS of SIZE rows, by integer dot products: a lane is an output.
template <int ROWS, int SIZE>
struct ByLanes {
    float total[ROWS];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int r = 0; r < ROWS; r++) total[r] = 0.0f;
    }

    __device__ __forceinline__ void add(const u8 *record, const u8 *rows, float *, int lane) {
        const auto load16 = [&](int at) { return *reinterpret_cast<const uint4 *>(record + at); };
        Half halves[2];
        load_half(halves[0], 0, lane, load16);
        load_half(halves[1], 1, lane, load16);
        float segment[ROWS];
        multiply_lane<ROWS, 256, MARK_STRIDE>(segment, halves, load_ends(record, lane, load16), rows,
                                              rows + SIZE * 256, 1);
#pragma unroll
        for (int r = 0; r < ROWS; r++) total[r] = total[r] + segment[r];
    }

    template <class Put>
    __device__ __forceinline__ void each(int lane, Put put) const {
#pragma unroll
        for (int r = 0; r < ROWS; r++) put(u32(r), u32(lane), total[r]);
    }
};

// Up to SIZE rows, at most 8, on tensor cores.
template <int SIZE>
struct ByTensor {
    float total[2][1][4];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < 8; i++) total[i / 4][0][i % 4] = 0.0f;
    }

    __device__ __forceinline__ void add(const u8 *record, const u8 *rows, float *ends, int lane) {
        const int g = lane / 4, t = lane % 4;
        write_ends(ends, lane_factors(record, lane), lane);
        __syncwarp();
        float segment[2][1][4];
        multiply<1, 1, SIZE>(segment, ends, rows, g, t, [&](int H) {
            Fragment f;
            load_fragment(f, record, H, g, t, [&](int at) {
                return *reinterpret_cast<const uint4 *>(record + at);
            });
            return f;
        });
#pragma unroll
        for (int i = 0; i < 8; i++) {
            total[i / 4][0][i % 4] = total[i / 4][0][i % 4] + segment[i / 4][0][i % 4];
        }
    }

    template <class Put>
    __device__ __forceinline__ void each(int lane, Put put) const {
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            put(u32(2 * t + i % 2), u32(i / 4 * 16 + i % 4 / 2 * 8 + g), total[i / 4][0][i % 4]);
        }
    }
};

// A warp's records as they flow by: `count` of them, `segments` to a group of outputs.
template <class Way, int SIZE, class Fetch>
__device__ __forceinline__ void stream(const Tile &tile, const u8 *ring, const u8 *rows, float *ends,
                                       u32 group, u32 count, u32 segments, float *y, u32 height,
                                       int lane, Fetch fetch) {
    Way way;
    way.clear();
    u32 j = 0;
#pragma unroll 1
    for (u32 n = 0; n < count; n++) {
        fetch(n + STAGES - 1);
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
        __syncwarp();
        way.add(ring + n % STAGES * RECORD_BYTES, rows + j * segment_bytes(SIZE), ends, lane);
        __syncwarp();
        if (++j < segments) continue;
        j = 0;
        const u32 first = (group + n / segments) * 32;
        way.each(lane, [&](u32 row, u32 out, float v) {
            if (row < tile.count && first + out < height) {
                y[u64(tile.first + row) * height + first + out] = v;
            }
        });
        way.clear();
    }
}

template <int SIZE, u32 WARPS>
__device__ __forceinline__ void multiply_tiles(const u8 *w, const uint4 *codes, const float2 *marks,
                                               float *y, u32 height, u32 segments, const u32 *from,
                                               const Tile *tiles, u32 per) {
    extern __shared__ uint4 shared[];
    begin();
    const Tile tile = tiles[blockIdx.y];
    if (tile.count == 0) return;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, groups = groups_of(height);
    const u32 group = (blockIdx.x * WARPS + warp) * per;
    const u32 count = group < groups ? min(per, groups - group) * segments : 0;
    u8 *ring = reinterpret_cast<u8 *>(shared) + warp * STAGES * RECORD_BYTES;
    float *ends = reinterpret_cast<float *>(reinterpret_cast<u8 *>(shared) +
                                            WARPS * STAGES * RECORD_BYTES + warp * ENDS_BYTES);
    u8 *rows = reinterpret_cast<u8 *>(shared) + WARPS * (STAGES * RECORD_BYTES + ENDS_BYTES);
    const u8 *weights =
        w + (u64(tile.matrix) * groups + group) * segments * RECORD_BYTES + lane * 16;
    const auto fetch = [&](u32 n) {
        u8 *to = ring + n % STAGES * RECORD_BYTES + lane * 16;
        const u8 *record = weights + u64(n) * RECORD_BYTES;
#pragma unroll
        for (u32 i = 0; i < RECORD_BYTES; i += 512) {
            if (n < count && i + lane * 16 < RECORD_BYTES) copy_16(to + i, record + i);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    // Weights first: rows have to be looked up.
    for (u32 n = 0; n + 1 < STAGES; n++) fetch(n);
    // What lies in the places of rows past the tile's end does not reach the others.
    const auto row_of = [&](u32 n) { return from ? from[tile.first + n] : tile.first + n; };
    for (u32 j = warp; j < segments; j += WARPS) {
        fetch_rows<SIZE>(rows + j * segment_bytes(SIZE), codes, marks, segments, j, lane, 32, row_of,
                         tile.count);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    if (tile.count == 1) {
        stream<ByLanes<1, SIZE>, SIZE>(tile, ring, rows, ends, group, count, segments, y, height, lane,
                                       fetch);
    } else if (tile.count == 2) {
        stream<ByLanes<2, SIZE>, SIZE>(tile, ring, rows, ends, group, count, segments, y, height, lane,
                                       fetch);
    } else {
        stream<ByTensor<SIZE>, SIZE>(tile, ring, rows, ends, group, count, segments, y, height, lane,
                                     fetch);
    }
}

#define TILES_KERNEL(SIZE, WARPS, BLOCKS)                                                         \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS) matmul_tiles_##SIZE(         \
        const u8 *w, const uint4 *codes, const float2 *marks, float *y, u32 height, u32 segments, \
        const u32 *from, const Tile *tiles, u32 per) {                                            \
        multiply_tiles<SIZE, WARPS>(w, codes, marks, y, height, segments, from, tiles, per);      \
    }

TILES_KERNEL(4, 2, 6)
TILES_KERNEL(8, 4, 3)
