// rotated: keys and values as codes of few bits, in the order of operations of the CPU's `rotated`.
//
// CODE says how a side is stored: 0 f32, 1 f16, 2 to 5 codes of 4, 5, 6 and 8 bits. A cell of codes:
// with 8 bits a byte each; else the low nibbles, eight neighbours in four bytes, then a plane of one
// bit a code for each further bit; then a float scale for each block of min(width, 256) codes.
// `levels` is what codes stand for: 16, 32, 64, then 256 floats.
#pragma once
#include "base.cuh"

__device__ constexpr int bits_of(int code) { return code == 5 ? 8 : code + 2; }
__device__ constexpr int levels_of(int code) { return 1 << bits_of(code); }
__device__ constexpr int first_level(int code) {
    return code == 2 ? 0 : code == 3 ? 16 : code == 4 ? 48 : 112;
}

// The sign of value i of a block, as lapidary-core's `sign`.
__device__ __forceinline__ float sign_of(u32 i) {
    u64 z = u64(i + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    return z & 1 ? -1.0f : 1.0f;
}

// The Walsh-Hadamard transform of `block` numbers in shared memory, by one warp. `norm` is
// 1 / sqrt(block).
__device__ __forceinline__ void transform(float *x, u32 block, float norm, u32 lane) {
    __syncwarp();
    for (u32 half = 1; half < block; half *= 2) {
        for (u32 p = lane; p < block / 2; p += 32) {
            const u32 i = p / half * 2 * half + p % half;
            const float a = x[i], b = x[i + half];
            x[i] = a + b;
            x[i + half] = a - b;
        }
        __syncwarp();
    }
    for (u32 i = lane; i < block; i += 32) x[i] = x[i] * norm;
    __syncwarp();
}

// Code c of a cell.
template <int CODE>
__device__ __forceinline__ u32 code_of(const u8 *cell, u32 width, u32 c) {
    if (CODE == 5) return cell[c];
    u32 code = (cell[c / 2] >> (4 * (c % 2))) & 15;
    if (CODE >= 3) code |= ((cell[width / 2 + c / 8] >> (c % 8)) & 1) << 4;
    if (CODE >= 4) code |= ((cell[width / 2 + width / 8 + c / 8] >> (c % 8)) & 1) << 5;
    return code;
}

// The scale of a block of a cell.
template <int CODE>
__device__ __forceinline__ float scale_of(const u8 *cell, u32 width, u32 block) {
    return reinterpret_cast<const float *>(cell + width * bits_of(CODE) / 8)[block];
}
