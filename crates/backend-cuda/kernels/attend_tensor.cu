// attend_tensor: stretches of softmax(q . k) . v on the tensor cores, for pairs of a row and a
// query head that share a key-value head; keys and values are half floats or codes.
//
// Grid (items, key-value heads * parts). An item is `count` rows from `first` on that see the same
// entries where they see any, and `stretches` stretches of 128 absolute positions; `per` query heads
// are taken at once; count * per <= 16 * TILES. Width a multiple of 64, at most 512; at most 256 for
// two tiles, of which the wide kernel is for more. attend_tensor_1 takes one stretch an item and
// leaves a partial result of each row for each stretch. The others take all stretches that an item's
// rows see, merge them as attend_merge does, and leave one result a row. Queries, weights and what
// codes stand for are sums of two half floats each, which keeps 22 bits of them; of their products,
// that of both lower parts is left out. Codes are scaled afterwards: scores by the scale of the key's
// block; for values, weights take in the scale of the position's block and are brought near one by a
// power of two of the pair's own, which the result gives back. Shared memory:
// TILES * (64 * width + 16 * (132 + 128 * SETS) * 4) bytes and 128 u32, SETS being 1 for half floats
// and the value's blocks for codes.
// order: scores: 16 columns at a time ascending, upper half floats, then lower; weights: a tree
// over positions; values: 16 positions at a time ascending, upper, then lower. The instruction is
// the same for one pair as for many, so a pair does not see its company; cells that none of an
// item's rows sees count as zeros, and those that some see hold finite values.
// bound: tensor cores for many rows, stored bytes for few      twin: attend_plain
#include "view.cuh"

struct Item {
    u32 first, count, stretch, stretches;
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

// Eight neighbours of a cell as half floats: upper parts and, of codes, lower parts.
struct Eight {
    uint4 upper, lower;
};

template <int CODE>
__device__ __forceinline__ Eight load_eight(const u8 *cell, const u32 *table, u32 width, u32 c) {
    Eight e;
    e.lower = make_uint4(0, 0, 0, 0);
    if (CODE == 1) {
        e.upper = *reinterpret_cast<const uint4 *>(cell + 2 * c);
        return e;
    }
    u32 code[8];
    if (CODE == 5) {
        const u32 *words = reinterpret_cast<const u32 *>(cell + c);
        const u32 a = words[0], b = words[1];
#pragma unroll
        for (int i = 0; i < 8; i++) code[i] = ((i < 4 ? a : b) >> (8 * (i % 4))) & 255;
    } else {
        const u32 nibbles = *reinterpret_cast<const u32 *>(cell + c / 2);
        const u32 fifth = CODE >= 3 ? cell[width / 2 + c / 8] : 0;
        const u32 sixth = CODE >= 4 ? cell[width / 2 + width / 8 + c / 8] : 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            code[i] = (nibbles >> (4 * i)) & 15;
            if (CODE >= 3) code[i] |= ((fifth >> i) & 1) << 4;
            if (CODE >= 4) code[i] |= ((sixth >> i) & 1) << 5;
        }
    }
    u32 upper[4], lower[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 a = table[code[2 * i]], b = table[code[2 * i + 1]];
        upper[i] = __byte_perm(a, b, 0x5410);
        lower[i] = __byte_perm(a, b, 0x7632);
    }
    e.upper = make_uint4(upper[0], upper[1], upper[2], upper[3]);
    e.lower = make_uint4(lower[0], lower[1], lower[2], lower[3]);
    return e;
}

// What codes stand for, the upper half float below the lower.
template <int CODE, int THREADS>
__device__ __forceinline__ void load_table(u32 *table, const float *levels) {
    if (CODE < 2) return;
    for (u32 i = threadIdx.x; i < levels_of(CODE); i += THREADS) {
        const float level = levels[first_level(CODE) + i];
        const u16 upper = float_to_half(level), lower = float_to_half(level - half_to_float(upper));
        table[i] = upper | (u32(lower) << 16);
    }
}

// Most blocks of a head that have a scale each.
constexpr int BLOCKS = 2;

// A power of two that brings a number near one, and the one that brings it back.
__device__ __forceinline__ float2 near_one(u32 magnitude) {
    const int exponent = magnitude ? min(max(int(magnitude >> 23) - 127, -100), 100) : 0;
    return make_float2(__uint_as_float(u32(127 - exponent) << 23),
                       __uint_as_float(u32(127 + exponent) << 23));
}

// Floats from the scores of one pair to those of the next: spreads a warp's writes over all banks.
constexpr u32 PAIR_STRIDE = STRETCH + 4;

// WHOLE says that rows are merged here.
template <int TILES, int WARPS, bool WHOLE>
__device__ __forceinline__ void attend(const float *q, const u8 *keys, const u8 *values,
                                       const float *levels, const View *views, const u32 *lineages,
                                       const Item *items, float *partials, float2 *marks, u32 heads,
                                       u32 query_heads, u32 width, u32 cells, u32 per) {
    // Tiles that a warp has of the scores, and pairs that it makes weights of.
    constexpr int OWN = TILES * 8 / WARPS, PAIRS = TILES * 16 / WARPS, THREADS = 32 * WARPS;
    __shared__ u32 key_table[KEYS < 2 ? 1 : levels_of(KEYS)];
    __shared__ u32 value_table[VALUES < 2 ? 1 : levels_of(VALUES)];
    __shared__ float key_scales[BLOCKS][STRETCH], value_scales[BLOCKS][STRETCH];
    __shared__ float back[16 * TILES][BLOCKS];
    extern __shared__ uint4 shared[];
    __shared__ View rows[16 * TILES];
    __shared__ Sight sights[16 * TILES];
    __shared__ u32 row_of[16 * TILES];
    // Of what is merged: the largest score and the sum so far, and what the merged result and the
    // next one are multiplied with.
    __shared__ float2 merged[WHOLE ? 16 * TILES : 1], factors[WHOLE ? 16 * TILES : 1];
    u32 *queries = reinterpret_cast<u32 *>(shared);
    float *scores = reinterpret_cast<float *>(queries + TILES * 16 * width);
    u32 *weights = reinterpret_cast<u32 *>(scores + TILES * 16 * PAIR_STRIDE);
    const u32 parts_of_head = (width + 255) / 256, sets = VALUES < 2 ? 1 : parts_of_head;
    u32 *cell_of = weights + sets * TILES * 16 * STRETCH;
    const u32 key_bytes = cell_bytes<KEYS>(width), value_bytes = cell_bytes<VALUES>(width);
    begin();
    load_table<KEYS, THREADS>(key_table, levels);
    load_table<VALUES, THREADS>(value_table, levels);
    const Item item = items[blockIdx.x];
    const u32 i = threadIdx.x, lane = i % 32, warp = i / 32, g = lane / 4, t = lane % 4;
    const u32 group = query_heads / heads, parts = (group + per - 1) / per;
    const u32 head = blockIdx.y / parts, first_head = head * group + blockIdx.y % parts * per;
    const u32 taken = min(per, group - blockIdx.y % parts * per), pairs = item.count * taken;
    const u32 tiles = (pairs + 15) / 16;
    if (i < item.count) rows[i] = views[item.first + i];
    if (i < 16 * TILES) row_of[i] = min(i / taken, item.count - 1);
    __syncthreads();
    if (i < 16 * TILES) {
        sights[i] = i < pairs ? sight_of(rows[row_of[i]]) : Sight{0, 0};
        if (WHOLE) merged[WHOLE ? i : 0] = make_float2(__uint_as_float(0xff800000u), 0.0f);
    }
    const u64 base = (u64(rows[0].slot) * heads + head) * cells;
    // Queries as fragments: thread 4g+t of a fragment takes columns 8t..8t+7 of each 32 from pairs
    // g and g + 8; two steps of 16 columns, upper and lower.
    for (u32 n = i; n < tiles * width; n += THREADS) {
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
    // What a warp has of the values: 64 columns of one tile.
    const u32 blocks = width / 64, column = warp % blocks * 64 + g * 8, every = WARPS / blocks;
    const u32 from = warp / blocks, set = VALUES < 2 ? 0 : warp % blocks / 4;
    const bool has_values = warp < blocks * every && from < tiles;
    const u32 *own_weights = weights + set * TILES * 16 * STRETCH;
    float whole[8][4];
#pragma unroll
    for (int m = 0; m < 32; m++) whole[m / 4][m % 4] = 0.0f;

    // Eight columns of chain e to result `at` of a pair, times `by`.
    const auto put = [&](u64 at, u32 pair, int e, const float (&acc)[8][4], float by) {
        float4 *out = reinterpret_cast<float4 *>(
            partials + (at * query_heads + first_head + pair % taken) * width +
            warp % blocks * 64 + 8 * (2 * t + e % 2));
        out[0] = make_float4(acc[0][e] * by, acc[1][e] * by, acc[2][e] * by, acc[3][e] * by);
        out[1] = make_float4(acc[4][e] * by, acc[5][e] * by, acc[6][e] * by, acc[7][e] * by);
    };

#pragma unroll 1
    for (u32 step = 0; step < (WHOLE ? item.stretches : 1); step++) {
        const u32 stretch = item.stretch + step, start = stretch * STRETCH;
        // Nobody reads what the last stretch left in shared memory any more.
        __syncthreads();
        if (i < STRETCH) {
            u32 entry = HIDDEN;
            for (u32 r = 0; r < item.count; r++) {
                if (entry == HIDDEN) entry = entry_at(rows[r], lineages, start + i);
            }
            cell_of[i] = entry == HIDDEN ? HIDDEN : entry % cells;
            for (u32 b = 0; b < parts_of_head; b++) {
                const u64 cell = base + entry % cells;
                const bool is_there = entry != HIDDEN;
                if (KEYS >= 2) {
                    const float scale = scale_of<KEYS>(keys + cell * key_bytes, width, b);
                    key_scales[b][i] = is_there ? scale : 0.0f;
                }
                if (VALUES >= 2) {
                    const float scale = scale_of<VALUES>(values + cell * value_bytes, width, b);
                    value_scales[b][i] = is_there ? scale : 0.0f;
                }
            }
        }
        __syncthreads();

        // Scores: a warp takes 16 positions and every eighth of WARPS tiles.
        {
            const u32 place = warp % 8 * 16;
            float score[OWN][2][4];
#pragma unroll
            for (int m = 0; m < OWN * 8; m++) score[m / 8][m / 4 % 2][m % 4] = 0.0f;
            const u32 cell0 = cell_of[place + g], cell1 = cell_of[place + 8 + g];
            const u8 *key0 = keys + (base + (cell0 == HIDDEN ? 0 : cell0)) * key_bytes;
            const u8 *key1 = keys + (base + (cell1 == HIDDEN ? 0 : cell1)) * key_bytes;
            const uint4 *fragments = reinterpret_cast<const uint4 *>(queries);
            const bool any = __any_sync(~0u, cell0 != HIDDEN || cell1 != HIDDEN);
            // Of codes, a block's sum, to be scaled.
            float block[KEYS < 2 ? 1 : OWN][2][4];
            for (u32 b = 0; b < (any ? parts_of_head : 0); b++) {
                if (KEYS >= 2) {
#pragma unroll
                    for (int m = 0; m < OWN * 8; m++) {
                        block[KEYS < 2 ? 0 : m / 8][m / 4 % 2][m % 4] = 0.0f;
                    }
                }
#pragma unroll 4
                for (u32 k = b * 8; k < min(b * 8 + 8, width / 32); k++) {
                    const Eight x = load_eight<KEYS>(key0, key_table, width, k * 32 + t * 8);
                    const Eight y = load_eight<KEYS>(key1, key_table, width, k * 32 + t * 8);
#pragma unroll
                    for (int m = 0; m < OWN; m++) {
                        const u32 tile = warp / 8 + m * (WARPS / 8);
                        if (tile >= tiles) continue;
                        const uint4 *f = fragments + (tile * (width / 32) + k) * 4 * 32 + lane;
                        float (&sum)[2][4] = KEYS < 2 ? score[m] : block[KEYS < 2 ? 0 : m];
#pragma unroll
                        for (int step = 0; step < 2; step++) {
                            const uint4 upper = f[step * 64], lower = f[step * 64 + 32];
                            const u32 a0 = step ? x.upper.z : x.upper.x, a1 = step ? x.upper.w : x.upper.y;
                            const u32 b0 = step ? y.upper.z : y.upper.x, b1 = step ? y.upper.w : y.upper.y;
                            mma(sum[0], upper, a0, a1);
                            mma(sum[0], lower, a0, a1);
                            mma(sum[1], upper, b0, b1);
                            mma(sum[1], lower, b0, b1);
                            if (KEYS >= 2) {
                                mma(sum[0], upper, step ? x.lower.z : x.lower.x,
                                    step ? x.lower.w : x.lower.y);
                                mma(sum[1], upper, step ? y.lower.z : y.lower.x,
                                    step ? y.lower.w : y.lower.y);
                            }
                        }
                    }
                }
                if (KEYS >= 2) {
#pragma unroll
                    for (int m = 0; m < OWN * 8; m++) {
                        const int of = KEYS < 2 ? 0 : m / 8, half = m / 4 % 2, e = m % 4;
                        const float scale = key_scales[b][place + half * 8 + 2 * t + e % 2];
                        score[m / 8][half][e] = __fmaf_rn(block[of][half][e], scale, score[m / 8][half][e]);
                    }
                }
            }
#pragma unroll
            for (int m = 0; m < OWN; m++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const u32 tile = warp / 8 + m * (WARPS / 8), pair = tile * 16 + g + e % 2 * 8;
                    const u32 n = place + e / 2 * 8 + 2 * t;
                    const Sight sight = sights[pair];
                    const float hidden = __uint_as_float(0xff800000u);
                    const float *own = score[m][e / 2] + e % 2 * 2;
                    const u32 pos = start + n;
                    const bool sees0 = pos >= sight.first && pos < sight.end;
                    const bool sees1 = pos + 1 >= sight.first && pos + 1 < sight.end;
                    *reinterpret_cast<float2 *>(scores + pair * PAIR_STRIDE + n) =
                        make_float2(sees0 ? own[0] : hidden, sees1 ? own[1] : hidden);
                }
            }
        }
        __syncthreads();

        // Weights: a warp takes some pairs, whose steps wait for each other together. Places of pairs
        // that are not there keep what they hold: it does not reach the others.
        if (warp < pairs) {
            float v[PAIRS][4], most[PAIRS], sum[PAIRS];
#pragma unroll
            for (int p = 0; p < PAIRS; p++) {
                const float *s = scores + (warp + p * WARPS) * PAIR_STRIDE + lane * 4;
                const float4 own = *reinterpret_cast<const float4 *>(s);
                v[p][0] = own.x, v[p][1] = own.y, v[p][2] = own.z, v[p][3] = own.w;
                most[p] = fmaxf(fmaxf(own.x, own.y), fmaxf(own.z, own.w));
            }
#pragma unroll
            for (int d = 16; d > 0; d /= 2) {
#pragma unroll
                for (int p = 0; p < PAIRS; p++) {
                    most[p] = fmaxf(most[p], __shfl_xor_sync(~0u, most[p], d));
                }
            }
            bool any[PAIRS];
#pragma unroll
            for (int p = 0; p < PAIRS; p++) {
                any[p] = warp + p * WARPS < pairs && most[p] != __uint_as_float(0xff800000u);
#pragma unroll
                for (int e = 0; e < 4; e++) v[p][e] = any[p] ? lap_exp(v[p][e] - most[p]) : 0.0f;
                sum[p] = (v[p][0] + v[p][1]) + (v[p][2] + v[p][3]);
            }
#pragma unroll
            for (int d = 16; d > 0; d /= 2) {
#pragma unroll
                for (int p = 0; p < PAIRS; p++) sum[p] = sum[p] + __shfl_xor_sync(~0u, sum[p], d);
            }
            __syncwarp();
#pragma unroll
            for (int p = 0; p < PAIRS; p++) {
                const u32 pair = warp + p * WARPS;
                if (pair >= pairs) continue;
                // From here on the first score of a pair says whether it sees anything.
                if (lane == 0) scores[pair * PAIR_STRIDE] = any[p] ? 1.0f : 0.0f;
                if (lane == 0 && any[p] && WHOLE) {
                    const float2 before = merged[WHOLE ? pair : 0];
                    const float next = fmaxf(before.x, most[p]);
                    const float ours = lap_exp(before.x - next), theirs = lap_exp(most[p] - next);
                    factors[WHOLE ? pair : 0] = make_float2(ours, theirs);
                    merged[WHOLE ? pair : 0] = make_float2(next, before.y * ours + sum[p] * theirs);
                } else if (lane == 0 && any[p]) {
                    const View &view = rows[row_of[pair]];
                    const u64 at = view.partial + stretch - view.stretch;
                    marks[at * query_heads + first_head + pair % taken] = make_float2(most[p], sum[p]);
                }
                for (u32 b = 0; b < sets; b++) {
                    float scaled[4] = {v[p][0], v[p][1], v[p][2], v[p][3]};
                    if (VALUES >= 2) {
                        u32 largest = 0;
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                            // What a pair does not see must not reach it, not even as zero times NaN.
                            scaled[e] =
                                v[p][e] == 0.0f ? 0.0f : v[p][e] * value_scales[b][lane * 4 + e];
                            largest = max(largest, __float_as_uint(scaled[e]) & 0x7fffffffu);
                        }
                        const float2 by = near_one(__reduce_max_sync(~0u, largest));
#pragma unroll
                        for (int e = 0; e < 4; e++) scaled[e] = scaled[e] * by.x;
                        if (lane == 0) back[pair][b] = by.y;
                    }
                    u32 *set = weights + b * TILES * 16 * STRETCH;
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        const Split s = split(scaled[2 * e], scaled[2 * e + 1]);
                        set[weight_at(pair, lane * 4 + 2 * e, 0)] = s.upper;
                        set[weight_at(pair, lane * 4 + 2 * e, 1)] = s.lower;
                    }
                }
            }
        }
        __syncthreads();

        if (!has_values) continue;
        float acc[8][4];
#pragma unroll
        for (int m = 0; m < 32; m++) acc[m / 4][m % 4] = 0.0f;
#pragma unroll 2
        for (u32 k = 0; k < STRETCH / 16; k++) {
            Eight v[4];
            bool any = false;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const u32 cell = cell_of[k * 16 + n / 2 * 8 + 2 * t + n % 2];
                v[n].upper = v[n].lower = make_uint4(0, 0, 0, 0);
                if (cell != HIDDEN) {
                    v[n] = load_eight<VALUES>(values + (base + cell) * value_bytes, value_table, width,
                                              column);
                    any = true;
                }
            }
            // Sixteen positions of zeros add nothing.
            if (!__any_sync(~0u, any)) continue;
            const uint4 *f = reinterpret_cast<const uint4 *>(own_weights) +
                             (from * (STRETCH / 16) + k) * 64 + lane;
            const uint4 upper = f[0], lower = f[32];
#pragma unroll
            for (int c = 0; c < 8; c++) {
                const u32 pick = c % 2 ? 0x7632 : 0x5410;
                const auto both = [&](const uint4 &a, const uint4 &b) {
                    return __byte_perm(part(a, c / 2), part(b, c / 2), pick);
                };
                const u32 b0 = both(v[0].upper, v[1].upper), b1 = both(v[2].upper, v[3].upper);
                mma(acc[c], upper, b0, b1);
                mma(acc[c], lower, b0, b1);
                if (VALUES >= 2) {
                    mma(acc[c], upper, both(v[0].lower, v[1].lower), both(v[2].lower, v[3].lower));
                }
            }
        }
        // Number e of chain c: pair g + 8 (e / 2), column 64 * block + 8 * (2t + e % 2) + c.
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const u32 pair = from * 16 + g + e / 2 * 8;
            if (pair >= pairs || scores[pair * PAIR_STRIDE] == 0.0f) continue;
            const float by = VALUES < 2 ? 1.0f : back[pair][set];
            if (WHOLE) {
                const float2 factor = factors[WHOLE ? pair : 0];
#pragma unroll
                for (int c = 0; c < 8; c++) {
                    whole[c][e] = whole[c][e] * factor.x + acc[c][e] * by * factor.y;
                }
                continue;
            }
            const View &view = rows[row_of[pair]];
            put(view.partial + stretch - view.stretch, pair, e, acc, by);
        }
    }
    if (!WHOLE) return;
    if (i < pairs) {
        const u64 at = item.first + row_of[i];
        marks[at * query_heads + first_head + i % taken] = merged[WHOLE ? i : 0];
    }
    if (!has_values) return;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const u32 pair = from * 16 + g + e / 2 * 8;
        if (pair < pairs) put(item.first + row_of[pair], pair, e, whole, 1.0f);
    }
}

#define ATTEND_KERNEL(NAME, TILES, WARPS, WHOLE, BLOCKS)                                          \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS) NAME(                        \
        const float *q, const u8 *keys, const u8 *values, const float *levels, const View *views, \
        const u32 *lineages, const Item *items, float *partials, float2 *marks, u32 heads,        \
        u32 query_heads, u32 width, u32 cells, u32 per) {                                         \
        attend<TILES, WARPS, WHOLE>(q, keys, values, levels, views, lineages, items, partials,    \
                                    marks, heads, query_heads, width, cells, per);                \
    }

ATTEND_KERNEL(attend_tensor_1, 1, 8, false, 2)
ATTEND_KERNEL(attend_tensor_2, 2, 8, true, 2)
ATTEND_KERNEL(attend_tensor_wide_2, 2, 16, true, 1)
