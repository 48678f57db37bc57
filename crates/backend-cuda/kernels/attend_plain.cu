// attend_plain: softmax(q . k) . v by its definition, for heads of any width.
//
// Grid (rows, query heads), blocks of 128: a thread is a position of a stretch, then a column.
// Keys and values: [slot][head][cell], stored as FORMAT says; rotated ones stay rotated. Shared memory: (width + 2 * 128) floats.
// order: stretches of 128 absolute positions, merged ascending      bound: none
// twin: reference kv
#include "view.cuh"

extern "C" __global__ void __launch_bounds__(128)
    attend_plain(const float *q, const u8 *keys, const u8 *values, const float *levels,
                 const View *views, const u32 *lineages, float *y, u32 heads, u32 width, u32 cells) {
    begin();
    extern __shared__ float acc[];
    float *weights = acc + width, *scratch = weights + STRETCH;
    const View view = views[blockIdx.x];
    const u32 i = threadIdx.x, query_heads = gridDim.y, head = blockIdx.y / (query_heads / heads);
    const u64 base = (u64(view.slot) * heads + head) * cells;
    q += (u64(blockIdx.x) * query_heads + blockIdx.y) * width;
    y += (u64(blockIdx.x) * query_heads + blockIdx.y) * width;
    for (u32 c = i; c < width; c += 128) acc[c] = 0.0f;
    float most = __uint_as_float(0xff800000u), sum = 0.0f;
    const u32 end = max(view.run_end, view.ancestors ? view.pos + 1 : 0);
    for (u32 s = view.stretch; s * STRETCH < end; s++) {
        const u32 entry = entry_at(view, lineages, s * STRETCH + i);
        float score = __uint_as_float(0xff800000u);
        if (entry != HIDDEN) {
            const u8 *key = keys + (base + entry % cells) * cell_bytes<KEYS>(width);
            score = 0.0f;
            for (u32 c = 0; c < width; c++) {
                score = __fmaf_rn(q[c], number_of<KEYS>(key, levels, width, c), score);
            }
        }
        scratch[i] = score;
        __syncthreads();
        float next = most;
        for (u32 n = 0; n < STRETCH; n++) next = fmaxf(next, scratch[n]);
        weights[i] = entry == HIDDEN ? 0.0f : lap_exp(score - next);
        __syncthreads();
        const float shrink = lap_exp(most - next);
        sum = sum * shrink;
        for (u32 n = 0; n < STRETCH; n++) sum = sum + weights[n];
        for (u32 c = i; c < width; c += 128) {
            float a = acc[c] * shrink;
            for (u32 n = 0; n < STRETCH; n++) {
                const u32 e = entry_at(view, lineages, s * STRETCH + n);
                if (e == HIDDEN) continue;
                const u8 *value = values + (base + e % cells) * cell_bytes<VALUES>(width);
                a = __fmaf_rn(weights[n], number_of<VALUES>(value, levels, width, c), a);
            }
            acc[c] = a;
        }
        most = next;
        __syncthreads();
    }
    for (u32 c = i; c < width; c += 128) y[c] = __fdiv_rn(acc[c], sum);
}
