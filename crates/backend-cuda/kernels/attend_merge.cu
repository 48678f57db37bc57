// attend_merge: a row's partial results to its output, and the output's rounded form.
//
// Grid (rows, query heads), a thread per column, at most 512. Row r has counts[r] partial results;
// without `counts` it has one, number r, which is merged already.
// With `block`, values were rotated in blocks of so many columns and the output is rotated back;
// norm is 1 / sqrt(block). The width is a multiple of 32; a row has `segments` segments of codes, and
// the last head clears what lies past its end.
// What partial results are multiplied with depends on their marks alone: threads make it side by
// side, and one chain of sums remains.
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

// The largest of `most` and the numbers of threads 0 to c.
__device__ __forceinline__ float largest_so_far(float v, float most, u32 c) {
    __shared__ float of_warps[16];
    v = fmaxf(most, v);
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const float other = __shfl_up_sync(~0u, v, d);
        if (c % 32 >= d) v = fmaxf(other, v);
    }
    if (c % 32 == 31) of_warps[c / 32] = v;
    __syncthreads();
    for (u32 w = 0; w < c / 32; w++) v = fmaxf(of_warps[w], v);
    return v;
}

extern "C" __global__ void __launch_bounds__(512) attend_merge(const float *partials, const float2 *marks,
                                        const View *views, const u32 *counts, float *y, u32 *codes,
                                        float2 *code_marks, u32 width, u32 segments,
                                        u32 block, float norm) {
    begin();
    const u32 heads = gridDim.y, head = blockIdx.y, c = threadIdx.x;
    const u64 row = blockIdx.x, first = counts ? views[row].partial : row;
    float most = __uint_as_float(0xff800000u), sum = 0.0f, acc = 0.0f;
    if (!counts) {
        sum = marks[row * heads + head].y;
        acc = partials[(row * heads + head) * width + c];
    }
    const u32 count = counts ? counts[row] : 0;
    for (u32 from = 0; from < count; from += width) {
        const u32 here = min(width, count - from);
        const bool is_there = c < here;
        const float2 mark = is_there ? marks[(first + from + c) * heads + head]
                                     : make_float2(__uint_as_float(0xff800000u), 0.0f);
        const float next = largest_so_far(mark.x, most, c);
        __shared__ float largest[512];
        __shared__ float4 steps[512];
        largest[c] = next;
        __syncthreads();
        const float before = c == 0 ? most : largest[c - 1];
        if (is_there) {
            steps[c] = make_float4(lap_exp(before - next), lap_exp(mark.x - next), mark.y, 0.0f);
        }
        most = largest[here - 1];
        __syncthreads();
        const float *partial = partials + ((first + from) * heads + head) * width + c;
#pragma unroll 8
        for (u32 n = 0; n < here; n++) {
            const float4 step = steps[n];
            sum = sum * step.x + step.z * step.y;
            acc = acc * step.x + partial[u64(n) * heads * width] * step.y;
        }
    }
    float v = __fdiv_rn(acc, sum);
    if (block) v = turn_back(v, c, block, norm);
    y[(row * heads + head) * width + c] = v;
    quantise_block(v, codes, code_marks, row, segments, (head * width + c) / 32, c % 32);
    for (u32 k = heads * width + c; head + 1 == heads && k < segments * 256; k += width) {
        quantise_block(0.0f, codes, code_marks, row, segments, k / 32, k % 32);
    }
}
