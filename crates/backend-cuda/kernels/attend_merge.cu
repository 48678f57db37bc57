// attend_merge: a row's partial results to its output.
//
// Grid (rows, query heads), a thread per column, at most 512. Row r has counts[r] partial results.
// order: ascending positions      bound: latency      twin: attend_plain
#include "view.cuh"

extern "C" __global__ void attend_merge(const float *partials, const float2 *marks,
                                        const View *views, const u32 *counts, float *y, u32 width) {
    const u32 heads = gridDim.y, head = blockIdx.y, c = threadIdx.x;
    const u64 first = views[blockIdx.x].partial;
    float most = __uint_as_float(0xff800000u), sum = 0.0f, acc = 0.0f;
#pragma unroll 4
    for (u32 n = 0; n < counts[blockIdx.x]; n++) {
        const u64 at = (first + n) * heads + head;
        const float2 mark = marks[at];
        const float next = fmaxf(most, mark.x);
        const float ours = lap_exp(most - next), theirs = lap_exp(mark.x - next);
        sum = sum * ours + mark.y * theirs;
        acc = acc * ours + partials[at * width + c] * theirs;
        most = next;
    }
    y[(u64(blockIdx.x) * heads + head) * width + c] = __fdiv_rn(acc, sum);
}
