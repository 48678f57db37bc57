// quantise: the rounded form of activations, a warp per block of 32.
//
// codes: per row and segment of 256 inputs, 16 pieces of 16 bytes, piece h*4+t = word t (see
// record.cuh) of block 2h, low and high, then of block 2h+1. marks: per row and block {scale, sum
// of codes}. Blocks past a row's end are zero. Twin: law::quantise.
#pragma once
#include "base.cuh"

constexpr u32 SMALLEST_AMAX = 27u << 23;

// Rounds input 32 * block + lane of a row; all lanes of a warp take part. `segments` is that of a
// row.
__device__ __forceinline__ void quantise_block(float v, u32 *codes, float2 *marks, u64 row,
                                               u32 segments, u32 block, u32 lane) {
    u32 most = __float_as_uint(v) & 0x7fffffffu;
#pragma unroll
    for (int d = 16; d > 0; d /= 2) most = max(most, __shfl_xor_sync(~0u, most, d));
    const float amax = __uint_as_float(most);
    float scale = 0.0f, inverse = 0.0f;
    if (most >= 0x7f800000u) {
        scale = __uint_as_float(0x7fc00000u);
    } else if (most >= SMALLEST_AMAX) {
        scale = __fdiv_rn(amax, 127.0f);
        inverse = __fdiv_rn(127.0f, amax);
    }
    const int code = inverse > 0.0f ? __float2int_rn(v * inverse) : 0;
    const int sum = __reduce_add_sync(~0u, code);
    u32 word = u32(code & 255) << (8 * (lane % 4));
    word |= __shfl_xor_sync(~0u, word, 1);
    word |= __shfl_xor_sync(~0u, word, 2);
    if (lane % 4 == 0) {
        const u32 b = block % 8, t = (lane % 16) / 4, high = lane / 16;
        const u64 piece = (row * segments + block / 8) * 16 + (b / 2) * 4 + t;
        codes[piece * 4 + (b % 2) * 2 + high] = word;
    }
    if (lane == 0) marks[row * segments * 8 + block] = make_float2(scale, float(sum));
}
