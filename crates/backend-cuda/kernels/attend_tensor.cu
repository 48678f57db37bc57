// attend_tensor: one stretch of softmax(q . k) . v on the tensor cores, for pairs of a row and a
// query head that share a key-value head; keys and values are half floats.
//
// Grid (items, key-value heads * parts), blocks of 256: 8 warps. An item is `count` rows from
// `first` on that see the same entries where they see any, and a stretch of 128 absolute
// positions; `per` query heads are taken at once; count * per <= 16 * TILES. Width a multiple of
// 64, at most 512. Queries and weights are sums of two half floats each, which keeps 22 bits of
// them. Shared memory: TILES * (64 * width + 16 * 128 * 8) bytes and 128 u32.
// order: scores: 16 columns at a time ascending, upper half floats, then lower; weights: a tree
// over positions; values: 16 positions at a time ascending, upper, then lower. The instruction is
// the same for one pair as for many, so a pair does not see its company; cells that none of an
// item's rows sees count as zeros, and those that some see hold finite values.
// bound: tensor cores for many rows, stored bytes for few      twin: attend_plain
#include "view.cuh"

struct Item {
    u32 first, count, stretch, unused;
};

// The positions that a row sees: they are consecutive.
struct Sight {
    u32 first, end;
};

__device__ __forceinline__ Sight sight_of(const View &v) {
    const bool tree = v.ancestors > 0;
    return {v.run_start < v.run_end ? v.run_start : v.pos + 1 - v.ancestors,
            tree ? v.pos + 1 : v.run_end};
}

__device__ __forceinline__ void mma(float (&d)[4], const uint4 &a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// Two numbers as two half floats each: the upper ones, and what they leave.
struct Split {
    u32 upper, lower;
};

__device__ __forceinline__ Split split(float a, float b) {
    const u16 ua = float_to_half(a), ub = float_to_half(b);
    const u16 la = float_to_half(a - half_to_float(ua)), lb = float_to_half(b - half_to_float(ub));
    return {u32(ua) | (u32(ub) << 16), u32(la) | (u32(lb) << 16)};
}

// Where a pair's positions n and n + 1 (n even) lie among the fragments of the weights, in u32:
// thread 4g+t takes positions 2t, 2t+1, 2t+8 and 2t+9 of each 16.
__device__ __forceinline__ u32 weight_at(u32 pair, u32 n, u32 lower) {
    const u32 tile = pair / 16, row = pair % 16, lane = (row % 8) * 4 + (n % 8) / 2;
    return (((tile * (STRETCH / 16) + n / 16) * 2 + lower) * 32 + lane) * 4 + (n % 16) / 8 * 2 +
           row / 8;
}

template <int TILES>
__device__ __forceinline__ void attend(const float *q, const u16 *keys, const u16 *values,
                                       const View *views, const u32 *lineages, const Item *items,
                                       float *partials, float2 *marks, u32 heads, u32 query_heads,
                                       u32 width, u32 cells, u32 per) {
    extern __shared__ uint4 shared[];
    __shared__ View rows[16 * TILES];
    __shared__ Sight sights[16 * TILES];
    __shared__ u32 row_of[16 * TILES];
    u32 *queries = reinterpret_cast<u32 *>(shared);
    float *scores = reinterpret_cast<float *>(queries + TILES * 16 * width);
    u32 *weights = reinterpret_cast<u32 *>(scores + TILES * 16 * STRETCH);
    u32 *cell_of = weights + TILES * 16 * STRETCH;
    begin();
    const Item item = items[blockIdx.x];
    const u32 i = threadIdx.x, lane = i % 32, warp = i / 32, g = lane / 4, t = lane % 4;
    const u32 group = query_heads / heads, parts = (group + per - 1) / per;
    const u32 head = blockIdx.y / parts, first_head = head * group + blockIdx.y % parts * per;
    const u32 taken = min(per, group - blockIdx.y % parts * per), pairs = item.count * taken;
    const u32 start = item.stretch * STRETCH, tiles = (pairs + 15) / 16;
    if (i < item.count) rows[i] = views[item.first + i];
    if (i < 16 * TILES) row_of[i] = min(i / taken, item.count - 1);
    __syncthreads();
    if (i < 16 * TILES) sights[i] = i < pairs ? sight_of(rows[row_of[i]]) : Sight{0, 0};
    const u64 base = (u64(rows[0].slot) * heads + head) * cells;
    if (i < STRETCH) {
        u32 entry = HIDDEN;
        for (u32 r = 0; r < item.count; r++) {
            if (entry == HIDDEN) entry = entry_at(rows[r], lineages, start + i);
        }
        cell_of[i] = entry == HIDDEN ? HIDDEN : entry % cells;
    }
    // Queries as fragments: thread 4g+t of a fragment takes columns 8t..8t+7 of each 32 from pairs
    // g and g + 8; two steps of 16 columns, upper and lower.
    for (u32 n = i; n < tiles * width; n += 256) {
        const u32 f = n / 32, l = n % 32, tile = f / (width / 32);
        const u32 c = f % (width / 32) * 32 + l % 4 * 8;
        float4 v[2][2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const u32 pair = tile * 16 + r * 8 + l / 4;
            const u64 row = item.first + row_of[pair];
            const float4 *from = reinterpret_cast<const float4 *>(
                q + (row * query_heads + first_head + pair % taken) * width + c);
            v[r][0] = pair < pairs ? from[0] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            v[r][1] = pair < pairs ? from[1] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
        uint4 *to = reinterpret_cast<uint4 *>(queries) + f * 128 + l;
#pragma unroll
        for (int step = 0; step < 2; step++) {
            const Split a0 = split(v[0][step].x, v[0][step].y), a1 = split(v[1][step].x, v[1][step].y);
            const Split a2 = split(v[0][step].z, v[0][step].w), a3 = split(v[1][step].z, v[1][step].w);
            to[step * 64] = make_uint4(a0.upper, a1.upper, a2.upper, a3.upper);
            to[step * 64 + 32] = make_uint4(a0.lower, a1.lower, a2.lower, a3.lower);
        }
    }
    __syncthreads();

    // Scores: a warp takes 16 positions.
    {
        float score[TILES][2][4];
#pragma unroll
        for (int m = 0; m < TILES * 8; m++) score[m / 8][m / 4 % 2][m % 4] = 0.0f;
        const u32 cell0 = cell_of[warp * 16 + g], cell1 = cell_of[warp * 16 + 8 + g];
        const u16 *key0 = keys + (base + (cell0 == HIDDEN ? 0 : cell0)) * width + t * 8;
        const u16 *key1 = keys + (base + (cell1 == HIDDEN ? 0 : cell1)) * width + t * 8;
        const uint4 *fragments = reinterpret_cast<const uint4 *>(queries);
        const bool any = __any_sync(~0u, cell0 != HIDDEN || cell1 != HIDDEN);
#pragma unroll 4
        for (u32 k = 0; k < (any ? width / 32 : 0); k++) {
            const uint4 a = *reinterpret_cast<const uint4 *>(key0 + k * 32);
            const uint4 b = *reinterpret_cast<const uint4 *>(key1 + k * 32);
#pragma unroll
            for (int m = 0; m < TILES; m++) {
                if (m >= tiles) continue;
                const uint4 *f = fragments + (m * (width / 32) + k) * 4 * 32 + lane;
#pragma unroll
                for (int step = 0; step < 2; step++) {
                    const uint4 upper = f[step * 64], lower = f[step * 64 + 32];
                    const u32 a0 = step ? a.z : a.x, a1 = step ? a.w : a.y;
                    const u32 b0 = step ? b.z : b.x, b1 = step ? b.w : b.y;
                    mma(score[m][0], upper, a0, a1);
                    mma(score[m][0], lower, a0, a1);
                    mma(score[m][1], upper, b0, b1);
                    mma(score[m][1], lower, b0, b1);
                }
            }
        }
#pragma unroll
        for (int m = 0; m < TILES; m++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const u32 pair = m * 16 + g + e % 2 * 8, n = warp * 16 + e / 2 * 8 + 2 * t;
                const Sight sight = sights[pair];
                const float hidden = __uint_as_float(0xff800000u);
                const float *own = score[m][e / 2] + e % 2 * 2;
                const u32 pos = start + n;
                const bool sees0 = pos >= sight.first && pos < sight.end;
                const bool sees1 = pos + 1 >= sight.first && pos + 1 < sight.end;
                *reinterpret_cast<float2 *>(scores + pair * STRETCH + n) =
                    make_float2(sees0 ? own[0] : hidden, sees1 ? own[1] : hidden);
            }
        }
    }
    __syncthreads();

    // Weights: a warp takes every eighth pair.
    for (u32 pair = warp; pair < tiles * 16; pair += 8) {
        float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        bool any = false;
        if (pair < pairs) {
            float *s = scores + pair * STRETCH + lane * 4;
            const float4 own = *reinterpret_cast<const float4 *>(s);
            float most = fmaxf(fmaxf(own.x, own.y), fmaxf(own.z, own.w));
#pragma unroll
            for (int d = 16; d > 0; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
            any = most != __uint_as_float(0xff800000u);
            if (any) {
                v[0] = lap_exp(own.x - most);
                v[1] = lap_exp(own.y - most);
                v[2] = lap_exp(own.z - most);
                v[3] = lap_exp(own.w - most);
            }
            float sum = (v[0] + v[1]) + (v[2] + v[3]);
#pragma unroll
            for (int d = 16; d > 0; d /= 2) sum = sum + __shfl_xor_sync(~0u, sum, d);
            const View &view = rows[row_of[pair]];
            if (lane == 0 && any) {
                const u64 at = view.partial + item.stretch - view.stretch;
                marks[at * query_heads + first_head + pair % taken] = make_float2(most, sum);
            }
        }
        __syncwarp();
        // From here on the first score of a pair says whether it sees anything.
        if (lane == 0) scores[pair * STRETCH] = any ? 1.0f : 0.0f;
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const Split s = split(v[2 * e], v[2 * e + 1]);
            weights[weight_at(pair, lane * 4 + 2 * e, 0)] = s.upper;
            weights[weight_at(pair, lane * 4 + 2 * e, 1)] = s.lower;
        }
    }
    __syncthreads();

    // Values: a warp takes 64 columns of some tiles.
    const u32 blocks = width / 64, column = warp % blocks * 64 + g * 8, every = 8 / blocks;
    if (warp >= blocks * every) return;
    float acc[TILES][8][4];
#pragma unroll
    for (int m = 0; m < TILES * 32; m++) acc[m / 32][m / 4 % 8][m % 4] = 0.0f;
    const u32 from = warp / blocks;
    if (from >= tiles) return;
#pragma unroll 2
    for (u32 k = 0; k < STRETCH / 16; k++) {
        uint4 v[4];
        bool any = false;
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const u32 cell = cell_of[k * 16 + n / 2 * 8 + 2 * t + n % 2];
            v[n] = make_uint4(0, 0, 0, 0);
            if (cell != HIDDEN) {
                v[n] = *reinterpret_cast<const uint4 *>(values + (base + cell) * width + column);
                any = true;
            }
        }
        // Sixteen positions of zeros add nothing.
        if (!__any_sync(~0u, any)) continue;
#pragma unroll
        for (int m = 0; m < TILES; m++) {
            const u32 tile = from + m * every;
            if (tile >= tiles) continue;
            const uint4 *f =
                reinterpret_cast<const uint4 *>(weights) + (tile * (STRETCH / 16) + k) * 64 + lane;
            const uint4 upper = f[0], lower = f[32];
#pragma unroll
            for (int c = 0; c < 8; c++) {
                const u32 pick = c % 2 ? 0x7632 : 0x5410;
                const u32 b0 = __byte_perm(part(v[0], c / 2), part(v[1], c / 2), pick);
                const u32 b1 = __byte_perm(part(v[2], c / 2), part(v[3], c / 2), pick);
                mma(acc[m][c], upper, b0, b1);
                mma(acc[m][c], lower, b0, b1);
            }
        }
    }
    // Number e of chain c: pair g + 8 (e / 2), column 64 * block + 8 * (2t + e % 2) + c.
#pragma unroll
    for (int m = 0; m < TILES; m++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const u32 pair = (from + m * every) * 16 + g + e / 2 * 8;
            if (pair >= pairs || scores[pair * STRETCH] == 0.0f) continue;
            const View &view = rows[row_of[pair]];
            const u64 at = view.partial + item.stretch - view.stretch;
            float4 *out = reinterpret_cast<float4 *>(
                partials + (at * query_heads + first_head + pair % taken) * width +
                warp % blocks * 64 + 8 * (2 * t + e % 2));
            out[0] = make_float4(acc[m][0][e], acc[m][1][e], acc[m][2][e], acc[m][3][e]);
            out[1] = make_float4(acc[m][4][e], acc[m][5][e], acc[m][6][e], acc[m][7][e]);
        }
    }
}

#define ATTEND_KERNEL(TILES)                                                                       \
    extern "C" __global__ void __launch_bounds__(256) attend_tensor_##TILES(                      \
        const float *q, const u16 *keys, const u16 *values, const View *views,                    \
        const u32 *lineages, const Item *items, float *partials, float2 *marks, u32 heads,        \
        u32 query_heads, u32 width, u32 cells, u32 per) {                                         \
        attend<TILES>(q, keys, values, views, lineages, items, partials, marks, heads,            \
                      query_heads, width, cells, per);                                            \
    }

ATTEND_KERNEL(1)
ATTEND_KERNEL(2)
