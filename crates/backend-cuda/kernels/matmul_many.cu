// matmul_many: y[r, n] = sum over k of x[r, k] * w[n, k] for tiles of 8*NT rows, quantised w.
//
// Grid (blocks of outputs of all parts, tiles); each warp has 32 outputs and all segments, the tile's
// rows are shared by the block's 4 warps, or 2. Two stages of shared memory: while one segment is
// multiplied, the next is copied. Rows, `from` and `tiles` as in matmul_few. Shared memory: per stage
// a record per warp, 8*NT * 336 bytes of activations; then ENDS_BYTES per warp.
//
// Rows are the tall side of the instruction: thread 4g+t holds rows g and g+8 of every sixteen and,
// of every eight outputs, 2t and 2t+1. What all threads of a g read, the scales of rows, are 8 bytes
// each and cost shared memory one access a warp.
// order: the law; segments are added ascending      bound: issue slots that end blocks
// twin: matmul_plain
#include "tensor.cuh"

// Blocks whose endings are held together: what is held longer leaves fewer registers for the rest.
constexpr int TOGETHER = BITS == 8 && !TWO_SCALES ? 2 : 1;

// The endings of two neighbouring outputs.
__device__ __forceinline__ void two_ends(float4 (&to)[2], const float *ends, int at) {
    if (END_FLOATS == 4) {
        to[0] = reinterpret_cast<const float4 *>(ends)[at];
        to[1] = reinterpret_cast<const float4 *>(ends)[at + 1];
        return;
    }
    float4 v;
    if (END_FLOATS == 2) {
        v = *reinterpret_cast<const float4 *>(ends + 2 * at);
    } else {
        const float2 x = *reinterpret_cast<const float2 *>(ends + at);
        v = make_float4(x.x, 0.0f, x.y, 0.0f);
    }
    to[0] = make_float4(v.x, FORMAT == WIDE ? 0.0f : -v.x * MAGIC, v.y, 0.0f);
    to[1] = make_float4(v.z, FORMAT == WIDE ? 0.0f : -v.z * MAGIC, v.w, 0.0f);
}

// One segment for the first 16 * USED of 16 * MT rows in shared memory.
template <int USED, int MT>
__device__ __forceinline__ void multiply_rows(float (&segment)[MT][4][4], const float *ends,
                                              const u8 *record, const u8 *rows, int g, int t) {
    const Magic start = magic();
    // What this lane names for load_matrices: of a block, its low half of rows 0 to 7 and 8 to 15 of
    // sixteen, then its high half.
    const int lane = 4 * g + t, row = lane % 16, high = lane / 16;
    const u8 *own = rows + row * 256, *scales = rows + MT * 16 * 256 + g * MARK_STRIDE;
#pragma unroll
    for (int H = 0; H < 2; H++) {
        Fragment f;
        load_fragment(f, record, H, g, t, [&](int at) {
            return *reinterpret_cast<const uint4 *>(record + at);
        });
#pragma unroll
        for (int n = 0; n < 4; n += TOGETHER) {
            Word words[TOGETHER][4];
            float4 end[TOGETHER][4][2];
#pragma unroll
            for (int bb = 0; bb < TOGETHER; bb++) {
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    words[bb][r] = word_of(f, n + bb, r);
                    two_ends(end[bb][r], ends, (4 * H + n + bb) * 32 + r * 8 + 2 * t);
                }
            }
#pragma unroll
            for (int mt = 0; mt < USED; mt++) {
#pragma unroll
                for (int bb = 0; bb < TOGETHER; bb++) {
                    const int b = 4 * H + n + bb, piece = ((2 * b + high) ^ (row & 7)) * 16;
                    const uint4 a = load_matrices(own + mt * 4096 + piece);
                    const u8 *at = scales + mt * 16 * MARK_STRIDE + b * 8;
                    const float2 x0 = *reinterpret_cast<const float2 *>(at);
                    const float2 x1 = *reinterpret_cast<const float2 *>(at + 8 * MARK_STRIDE);
                    // Every column of the result is the sums of the activations.
                    int ones_low[4] = {0, 0, 0, 0}, ones_high[4] = {0, 0, 0, 0};
                    if (TWO_MINS) {
                        mma_16(ones_low, a.x, a.y, ONES, start);
                        mma_16(ones_high, a.z, a.w, ONES, start);
                    }
#pragma unroll
                    for (int r = 0; r < 4; r++) {
                        const Word &w = words[bb][r];
                        int low[4], high[4] = {0, 0, 0, 0};
                        if (TWO_SCALES) {
                            mma_16(low, a.x, a.y, w.low, start);
                            mma_16(high, a.z, a.w, w.high, start);
                        } else {
                            mma_32(low, a.x, a.y, a.z, a.w, w.low, w.high, start);
                        }
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                            const Sums sums = {low[e], high[e], ones_low[e], ones_high[e]};
                            const float before = b == 0 ? 0.0f : segment[mt][r][e];
                            segment[mt][r][e] =
                                end_block(end[bb][r][e % 2], sums, e / 2 ? x1 : x0, before);
                        }
                    }
                }
            }
        }
    }
}

// Copies pieces part, part + EVERY, ... of one row's segment.
template <int EVERY>
__device__ __forceinline__ void fetch_row(u8 *codes_to, u8 *marks_to, const u8 *codes,
                                          const u8 *marks, u32 part, u32 swap) {
#pragma unroll
    for (u32 p = 0; p < 16; p += EVERY) copy_16(codes_to + ((p + part) ^ swap) * 16, codes + p * 16);
#pragma unroll
    for (u32 p = 0; p < 4; p += EVERY) {
        if (p + part < 4) copy_16(marks_to + p * 16, marks + p * 16);
    }
}

template <int NT>
__device__ __forceinline__ void many(const Part &p, const uint4 *codes, const float2 *marks, u32 rows,
                                     u32 segments, const u32 *from, const Tile *tiles) {
    constexpr int SIZE = NT * 8, MT = NT / 2;
    begin();
    extern __shared__ uint4 shared[];
    const Tile tile = tile_at(tiles, blockIdx.y, SIZE, rows);
    if (tile.count == 0) return;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int g = lane / 4, t = lane % 4;
    const u32 groups = groups_of(p.height), group = p.group + warp;
    const bool works = group < groups;
    const u32 stage_bytes = warps * RECORD_BYTES + segment_bytes(SIZE);
    u8 *stages = reinterpret_cast<u8 *>(shared);
    float *ends = reinterpret_cast<float *>(stages + 2 * stage_bytes + warp * ENDS_BYTES);

    // Rows past the tile's end repeat its last one; their results are not written.
    const u32 every = blockDim.x / SIZE, own_row = threadIdx.x / every, part = threadIdx.x % every;
    const u32 place = tile.first + min(own_row, tile.count - 1), source = from ? from[place] : place;
    const u8 *row_codes = reinterpret_cast<const u8 *>(codes + u64(source) * segments * 16 + part);
    const u8 *row_marks = reinterpret_cast<const u8 *>(marks + u64(source) * segments * 8 + part * 2);
    const u64 first = u64(tile.matrix) * groups + min(group, groups - 1);
    const u8 *weights = p.w + first * segments * RECORD_BYTES + lane * 16;
    const auto fetch = [&](u32 j) {
        u8 *stage = stages + (j & 1) * stage_bytes, *rows_to = stage + warps * RECORD_BYTES;
        u8 *record_to = stage + warp * RECORD_BYTES + lane * 16;
        const u8 *record = weights + u64(j) * RECORD_BYTES;
#pragma unroll
        for (u32 i = 0; i < RECORD_BYTES; i += 512) {
            if (i + lane * 16 < RECORD_BYTES) copy_16(record_to + i, record + i);
        }
        if (own_row >= SIZE) return;
        u8 *codes_to = rows_to + own_row * 256;
        u8 *marks_to = rows_to + SIZE * 256 + own_row * MARK_STRIDE + part * 16;
        const u8 *codes_from = row_codes + u64(j) * 256, *marks_from = row_marks + u64(j) * 64;
        const u32 swap = own_row & 7;
        switch (every) {
        case 1: fetch_row<1>(codes_to, marks_to, codes_from, marks_from, part, swap); break;
        case 2: fetch_row<2>(codes_to, marks_to, codes_from, marks_from, part, swap); break;
        default: fetch_row<4>(codes_to, marks_to, codes_from, marks_from, part, swap);
        }
    };

    float total[MT][4][4];
#pragma unroll
    for (int i = 0; i < MT * 16; i++) total[i / 16][i / 4 % 4][i % 4] = 0.0f;
    fetch(0);
    asm volatile("cp.async.commit_group;" ::: "memory");
#pragma unroll 1
    for (u32 j = 0; j < segments; j++) {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        if (j + 1 < segments) fetch(j + 1);
        asm volatile("cp.async.commit_group;" ::: "memory");
        if (!works) continue;
        const u8 *stage = stages + (j & 1) * stage_bytes;
        const u8 *record = stage + warp * RECORD_BYTES, *here = stage + warps * RECORD_BYTES;
        write_ends(ends, lane_factors(record, lane), lane);
        __syncwarp();
        float segment[MT][4][4];
        const bool whole = tile.count > MT / 2 * 16;
        if (whole) {
            multiply_rows<MT, MT>(segment, ends, record, here, g, t);
        } else {
            multiply_rows<MT / 2, MT>(segment, ends, record, here, g, t);
        }
#pragma unroll
        for (int mt = 0; mt < MT; mt++) {
            if (mt >= MT / 2 && !whole) continue;
#pragma unroll
            for (int i = 0; i < 16; i++) {
                total[mt][i / 4][i % 4] = total[mt][i / 4][i % 4] + segment[mt][i / 4][i % 4];
            }
        }
        __syncwarp();
    }
    if (!works) return;
#pragma unroll
    for (int mt = 0; mt < MT; mt++) {
#pragma unroll
        for (int r = 0; r < 4; r++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const u32 row = mt * 16 + e / 2 * 8 + g, out = group * 32 + r * 8 + 2 * t + e % 2;
                if (row < tile.count && out < p.height) {
                    p.y[u64(tile.first + row) * p.height + out] = total[mt][r][e];
                }
            }
        }
    }
}

#define MANY_KERNEL(NT)                                                                           \
    extern "C" __global__ void __launch_bounds__(128, 2) matmul_many_##NT(                        \
        PARTS, const uint4 *codes, const float2 *marks, u32 rows, u32 segments, const u32 *from,  \
        const Tile *tiles) {                                                                      \
        const u32 warps = blockDim.x / 32;                                                        \
        const Part part = part_of(w0, w1, w2, y0, y1, y2, height0, height1, height2, warps);      \
        many<NT>(part, codes, marks, rows, segments, from, tiles);                                \
    }

MANY_KERNEL(4)
MANY_KERNEL(6)
MANY_KERNEL(8)
