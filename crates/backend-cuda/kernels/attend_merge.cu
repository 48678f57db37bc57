// attend_merge: a row's partial results to its output, and the output's rounded form.
//
// Grid (rows, query heads), a thread per column, at most 512. Row r has counts[r] partial results.
// With codes, the width is a multiple of 32; a row has `segments` segments, and the last head
// clears what lies past its end.
// order: ascending positions      bound: latency      twin: attend_plain
#include "quantise.cuh"
#include "view.cuh"

extern "C" __global__ void attend_merge(const float *partials, const float2 *marks,
                                        const View *views, const u32 *counts, float *y, u32 *codes,
                                        float2 *code_marks, u32 width, u32 segments) {
    begin();
    const u32 heads = gridDim.y, head = blockIdx.y, c = threadIdx.x;
    const u64 row = blockIdx.x, first = views[row].partial;
    float most = __uint_as_float(0xff800000u), sum = 0.0f, acc = 0.0f;
#pragma unroll 4
    for (u32 n = 0; n < counts[row]; n++) {
        const u64 at = (first + n) * heads + head;
        const float2 mark = marks[at];
        const float next = fmaxf(most, mark.x);
        const float ours = lap_exp(most - next), theirs = lap_exp(mark.x - next);
        sum = sum * ours + mark.y * theirs;
        acc = acc * ours + partials[at * width + c] * theirs;
        most = next;
    }
    const float v = __fdiv_rn(acc, sum);
    y[(row * heads + head) * width + c] = v;
    if (!codes) return;
    quantise_block(v, codes, code_marks, row, segments, (head * width + c) / 32, c % 32);
    for (u32 k = heads * width + c; head + 1 == heads && k < segments * 256; k += width) {
        quantise_block(0.0f, codes, code_marks, row, segments, k / 32, k % 32);
    }
}
