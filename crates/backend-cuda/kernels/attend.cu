// attend: one stretch of softmax(q . k) . v for up to 8 pairs of a row and a query head that share
// a key-value head; keys and values are floats.
//
// Grid (items, key-value heads * parts), blocks of 256. An item is `count` rows from `first` on
// that see the same entries where they see any, and a stretch of 128 absolute positions; `per`
// query heads are taken at once. Width a multiple of 64, at most 512. A row's partial result:
// width values not yet divided, {largest score, sum of weights}. Shared memory: 8 * width + 8 * 128
// + 2048 floats and 128 u32.
// order: scores: 8 lanes take every eighth group of 8 columns ascending, then a tree; weights: a
// tree over positions; values: position p adds to chain p % (2048 / width), chains are added
// ascending. A function of the positions a row sees      bound: stored bytes      twin: attend_plain
#include "view.cuh"

constexpr int PAIRS = 8;

// Eight numbers.
struct Eight {
    float v[8];
};

__device__ __forceinline__ Eight load_eight(const float *p) {
    const float4 a = reinterpret_cast<const float4 *>(p)[0];
    const float4 b = reinterpret_cast<const float4 *>(p)[1];
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

struct Item {
    u32 first, count, stretch, unused;
};

__device__ __forceinline__ bool sees(const View &v, u32 pos) {
    return (pos >= v.run_start && pos < v.run_end) ||
           (v.ancestors > 0 && pos + v.ancestors >= v.pos + 1 && pos <= v.pos);
}

extern "C" __global__ void __launch_bounds__(256)
    attend(const float *q, const float *keys, const float *values, const View *views,
           const u32 *lineages, const Item *items, float *partials, float2 *marks, u32 heads,
           u32 query_heads, u32 width, u32 cells, u32 per) {
    begin();
    extern __shared__ float4 shared[];
    float *queries = reinterpret_cast<float *>(shared);
    float *weights = queries + PAIRS * width, *chains = weights + PAIRS * STRETCH;
    u32 *cell_of = reinterpret_cast<u32 *>(chains + 2048);
    __shared__ View rows[PAIRS];
    const Item item = items[blockIdx.x];
    const u32 i = threadIdx.x, lane = i % 32, warp = i / 32;
    const u32 group = query_heads / heads, parts = (group + per - 1) / per;
    const u32 head = blockIdx.y / parts, first_head = head * group + blockIdx.y % parts * per;
    const u32 taken = min(per, group - blockIdx.y % parts * per), pairs = item.count * taken;
    if (i < item.count) rows[i] = views[item.first + i];
    __syncthreads();
    const u64 base = (u64(rows[0].slot) * heads + head) * cells;

    // Positions that any row sees; only rows without ancestors share an item.
    if (i < STRETCH) {
        const u32 pos = item.stretch * STRETCH + i;
        u32 entry = HIDDEN;
        for (u32 r = 0; r < item.count; r++) {
            if (entry == HIDDEN) entry = entry_at(rows[r], lineages, pos);
        }
        cell_of[i] = entry == HIDDEN ? HIDDEN : entry % cells;
    }
    for (u32 n = i; n < pairs * width; n += 256) {
        const u32 p = n / width, row = item.first + p / taken;
        queries[n] = q[(u64(row) * query_heads + first_head + p % taken) * width + n % width];
    }
    __syncthreads();

    for (u32 n = i / 8; n < STRETCH; n += 32) {
        const u32 cell = cell_of[n], l = i % 8;
        float score[PAIRS];
#pragma unroll
        for (int p = 0; p < PAIRS; p++) score[p] = 0.0f;
        if (cell != HIDDEN) {
            const float *key = keys + (base + cell) * width;
            for (u32 c = l * 8; c < width; c += 64) {
                const Eight k = load_eight(key + c);
#pragma unroll
                for (int p = 0; p < PAIRS; p++) {
                    if (p < pairs) {
                        const Eight v = load_eight(queries + p * width + c);
#pragma unroll
                        for (int e = 0; e < 8; e++) score[p] = __fmaf_rn(v.v[e], k.v[e], score[p]);
                    }
                }
            }
        }
#pragma unroll
        for (int p = 0; p < PAIRS; p++) {
            for (int d = 4; d > 0; d /= 2) score[p] = score[p] + __shfl_xor_sync(~0u, score[p], d);
        }
        if (l < pairs) {
            float own = score[0];
#pragma unroll
            for (int p = 1; p < PAIRS; p++) own = l == p ? score[p] : own;
            const bool seen = cell != HIDDEN && sees(rows[l / taken], item.stretch * STRETCH + n);
            weights[l * STRETCH + n] = seen ? own : __uint_as_float(0xff800000u);
        }
    }
    __syncthreads();

    if (warp < pairs) {
        float *w = weights + warp * STRETCH;
        float v[4], most, sum;
        for (int n = 0; n < 4; n++) v[n] = w[lane + 32 * n];
        most = fmaxf(fmaxf(v[0], v[1]), fmaxf(v[2], v[3]));
        for (int d = 16; d > 0; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
        const bool any = most > __uint_as_float(0xff800000u) || most != most;
        for (int n = 0; n < 4; n++) {
            v[n] = any ? lap_exp(v[n] - most) : 0.0f;
            w[lane + 32 * n] = v[n];
        }
        sum = (v[0] + v[1]) + (v[2] + v[3]);
        for (int d = 16; d > 0; d /= 2) sum = sum + __shfl_xor_sync(~0u, sum, d);
        const View &view = rows[warp / taken];
        if (lane == 0 && any) {
            const u64 at = view.partial + item.stretch - view.stretch;
            marks[at * query_heads + first_head + warp % taken] = make_float2(most, sum);
        }
        if (lane == 0) chains[warp] = any ? 1.0f : 0.0f;
    }
    __syncthreads();
    bool writes[PAIRS];
#pragma unroll
    for (int p = 0; p < PAIRS; p++) writes[p] = p < pairs && chains[p] != 0.0f;

    const u32 threads = width / 8, lanes = 256 / threads, column = i % threads * 8;
    float acc[PAIRS][8];
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
#pragma unroll
        for (int e = 0; e < 8; e++) acc[p][e] = 0.0f;
    }
    if (i < threads * lanes) {
#pragma unroll 4
        for (u32 n = i / threads; n < STRETCH; n += lanes) {
            if (cell_of[n] == HIDDEN) continue;
            const Eight v = load_eight(values + (base + cell_of[n]) * width + column);
#pragma unroll
            for (int p = 0; p < PAIRS; p++) {
                const float w = p < pairs ? weights[p * STRETCH + n] : 0.0f;
                // What a row does not see must not reach it, not even as zero times infinity.
                if (w != 0.0f) {
#pragma unroll
                    for (int e = 0; e < 8; e++) acc[p][e] = __fmaf_rn(w, v.v[e], acc[p][e]);
                }
            }
        }
    }
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        __syncthreads();
        if (i < threads * lanes) {
#pragma unroll
            for (int e = 0; e < 8; e++) chains[i / threads * width + column + e] = acc[p][e];
        }
        __syncthreads();
        if (!writes[p]) continue;
        const View &view = rows[p / taken];
        const u64 at = view.partial + item.stretch - view.stretch;
        float *out = partials + (at * query_heads + first_head + p % taken) * width;
        for (u32 c = i; c < width; c += 256) {
            float sum = 0.0f;
            for (u32 n = 0; n < lanes; n++) sum = sum + chains[n * width + c];
            out[c] = sum;
        }
    }
}
