// attend_merge: a row's partial results to its output, and the output's rounded form.
//
// Grid (rows, query heads), a thread per column, at most 512. Row r has counts[r] partial results.
// With `block`, values were rotated in blocks of so many columns and the output is rotated back;
// norm is 1 / sqrt(block). The width is a multiple of 32; a row has `segments` segments of codes, and
// the last head clears what lies past its end.
// order: ascending positions      bound: latency      twin: attend_plain
#include "quantise.cuh"
#include "view.cuh"

// The inverse rotation, a number per thread.
__device__ __forceinline__ float turn_back(float v, u32 c, u32 block, float norm) {
    __shared__ float all[512];
    for (u32 half = 1; half < block; half *= 2) {
        float other;
        if (half < 32) {
            other = __shfl_xor_sync(~0u, v, half);
        } else {
            __syncthreads();
            all[c] = v;
            __syncthreads();
            other = all[c ^ half];
        }
        v = c & half ? other - v : v + other;
    }
    return v * norm * sign_of(c % block);
}

extern "C" __global__ void attend_merge(const float *partials, const float2 *marks,
                                        const View *views, const u32 *counts, float *y, u32 *codes,
                                        float2 *code_marks, u32 width, u32 segments,
                                        u32 block, float norm) {
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
    float v = __fdiv_rn(acc, sum);
    if (block) v = turn_back(v, c, block, norm);
    y[(row * heads + head) * width + c] = v;
    quantise_block(v, codes, code_marks, row, segments, (head * width + c) / 32, c % 32);
    for (u32 k = heads * width + c; head + 1 == heads && k < segments * 256; k += width) {
        quantise_block(0.0f, codes, code_marks, row, segments, k / 32, k % 32);
    }
}
