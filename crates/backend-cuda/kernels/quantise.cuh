// quantise: the rounded form of activations, a warp per block of 32.
//
// codes: per row and segment of 256 inputs, a byte for each, in order. marks: per row and block
// {scale, sum of codes}. Blocks past a row's end are zero. Twin: law::quantise.
#pragma once
#include "base.cuh"

constexpr u32 SMALLEST_AMAX = 27u << 23;

// The scale of a block and what turns its numbers into codes, from the bits of its largest
// magnitude.
__device__ __forceinline__ float2 scale_and_inverse(u32 most) {
    if (most >= 0x7f800000u) return make_float2(__uint_as_float(0x7fc00000u), 0.0f);
    if (most < SMALLEST_AMAX) return make_float2(0.0f, 0.0f);
    const float amax = __uint_as_float(most);
    return make_float2(__fdiv_rn(amax, 127.0f), __fdiv_rn(127.0f, amax));
}

// Writes block `block` of a row, of which this lane has number `lane`.
__device__ __forceinline__ void put_block(float v, float2 factors, u32 *codes, float2 *marks,
                                          u64 row, u32 segments, u32 block, u32 lane) {
    const int code = factors.y > 0.0f ? __float2int_rn(v * factors.y) : 0;
    const int sum = __reduce_add_sync(~0u, code);
    u32 word = u32(code & 255) << (8 * (lane % 4));
    word |= __shfl_xor_sync(~0u, word, 1);
    word |= __shfl_xor_sync(~0u, word, 2);
    if (lane % 4 == 0) codes[(row * segments * 8 + block) * 8 + lane / 4] = word;
    if (lane == 0) marks[row * segments * 8 + block] = make_float2(factors.x, float(sum));
}

// Rounds one block; all lanes of a warp take part. `segments` is that of a row.
__device__ __forceinline__ void quantise_block(float v, u32 *codes, float2 *marks, u64 row,
                                               u32 segments, u32 block, u32 lane) {
    const u32 most = __reduce_max_sync(~0u, __float_as_uint(v) & 0x7fffffffu);
    put_block(v, scale_and_inverse(most), codes, marks, row, segments, block, lane);
}

// Rounds blocks first, first + step, ... of a row, as far as the row's segments go. Lane n does
// the divisions of block n.
template <int COUNT>
__device__ __forceinline__ void quantise_blocks(const float (&v)[COUNT], u32 *codes, float2 *marks,
                                                u64 row, u32 segments, u32 first, u32 step,
                                                u32 lane) {
    u32 own = 0;
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        const u32 most = __reduce_max_sync(~0u, __float_as_uint(v[n]) & 0x7fffffffu);
        if (lane == n) own = most;
    }
    const float2 factors = scale_and_inverse(own);
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        const u32 block = first + step * n;
        const float2 f = make_float2(__shfl_sync(~0u, factors.x, n), __shfl_sync(~0u, factors.y, n));
        if (block < segments * 8) put_block(v[n], f, codes, marks, row, segments, block, lane);
    }
}

// Rounds four blocks of a warp; eight lanes have a block each, and this one the four numbers from
// 4 * `part` on.
__device__ __forceinline__ void quantise_fours(const float4 &v, u32 *codes, float2 *marks, u64 row,
                                               u32 segments, u32 block, u32 part) {
    const auto magnitude = [](float x) { return __float_as_uint(x) & 0x7fffffffu; };
    u32 most = max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w)));
#pragma unroll
    for (int d = 4; d > 0; d /= 2) most = max(most, __shfl_xor_sync(~0u, most, d));
    const float2 factors = scale_and_inverse(most);
    const auto code = [&](float x) { return factors.y > 0.0f ? __float2int_rn(x * factors.y) : 0; };
    const int c[4] = {code(v.x), code(v.y), code(v.z), code(v.w)};
    int sum = (c[0] + c[1]) + (c[2] + c[3]);
#pragma unroll
    for (int d = 4; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    codes[(row * segments * 8 + block) * 8 + part] =
        u32(c[0] & 255) | (u32(c[1] & 255) << 8) | (u32(c[2] & 255) << 16) | (u32(c[3]) << 24);
    if (part == 0) marks[row * segments * 8 + block] = make_float2(factors.x, float(sum));
}
