// kv_code: rows of keys or values to their cells, as codes (see rotated.cuh; FORMAT is the CODE).
//
// x: rows x (heads * width) f32. Cells: [slot][head][cell] of cell_bytes; writes: rows x {slot, entry}.
// A warp per block of min(width, 256) numbers.
// order: as the CPU's `rotated`, sums ascending: the same codes and scales      bound: latency
// twin: rotated of the CPU
#include "rotated.cuh"

constexpr int BITS = bits_of(FORMAT), LEVELS = levels_of(FORMAT);
constexpr u32 WARPS = 4;

// The level nearest to z; the lower of two equally near.
__device__ __forceinline__ u32 nearest(const float *levels, float z) {
    u32 low = 0, high = LEVELS - 1;
    while (low < high) {
        const u32 middle = (low + high) / 2;
        if ((levels[middle] + levels[middle + 1]) * 0.5f < z) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// Eight codes to their places in the planes of a cell.
__device__ __forceinline__ void put_eight(u8 *cell, const u8 *codes, u32 width, u32 c) {
    if (BITS == 8) {
        for (u32 i = 0; i < 8; i++) cell[c + i] = codes[i];
        return;
    }
    u32 nibbles = 0, fifth = 0, sixth = 0;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        nibbles |= (codes[i] & 15u) << (4 * i);
        fifth |= ((codes[i] >> 4) & 1u) << i;
        sixth |= ((codes[i] >> 5) & 1u) << i;
    }
    *reinterpret_cast<u32 *>(cell + c / 2) = nibbles;
    if (BITS >= 5) cell[width / 2 + c / 8] = u8(fifth);
    if (BITS >= 6) cell[width / 2 + width / 8 + c / 8] = u8(sixth);
}

extern "C" __global__ void __launch_bounds__(128)
    kv_code(const float *x, u8 *cells, const uint2 *writes, const float *levels, u32 rows, u32 heads,
            u32 width, u32 count, u32 cell_bytes, float norm) {
    __shared__ float numbers[WARPS][256], chosen[WARPS][256], table[LEVELS];
    __shared__ u8 code_table[WARPS][256];
    begin();
    for (u32 i = threadIdx.x; i < LEVELS; i += 128) table[i] = levels[first_level(FORMAT) + i];
    __syncthreads();
    const u32 block = min(width, 256u), blocks = width / block, lane = threadIdx.x % 32;
    const u32 warp = threadIdx.x / 32;
    const u64 n = u64(blockIdx.x) * WARPS + warp;
    if (n >= u64(rows) * heads * blocks) return;
    float *own = numbers[warp], *level = chosen[warp];
    u8 *codes = code_table[warp];
    for (u32 i = lane; i < block; i += 32) own[i] = x[n * block + i] * sign_of(i);
    transform(own, block, norm, lane);
    float sum = 0.0f;
    for (u32 i = 0; i < block; i++) sum = sum + own[i] * own[i];
    const float rms = __fsqrt_rn(__fdiv_rn(sum, float(block)));
    const bool finite = rms < __uint_as_float(0x7f800000u);
    float scale = finite ? 0.0f : __uint_as_float(0x7fc00000u);
    if (finite && rms > 1.17549435e-38f) {
        const float inverse = __fdiv_rn(1.0f, rms);
        for (u32 i = lane; i < block; i += 32) {
            codes[i] = u8(nearest(table, own[i] * inverse));
            level[i] = table[codes[i]];
        }
        __syncwarp();
        float dot = 0.0f, square = 0.0f;
        for (u32 i = 0; i < block; i++) {
            dot = dot + level[i] * own[i];
            square = square + level[i] * level[i];
        }
        scale = __fdiv_rn(dot, square);
    } else {
        // Zeros, or numbers that no scale can hold: a NaN must not turn into a plausible value.
        for (u32 i = lane; i < block; i += 32) codes[i] = LEVELS / 2;
    }
    __syncwarp();
    const u64 head = n / blocks, row = head / heads;
    const u32 part = u32(n % blocks);
    const uint2 to = writes[row];
    u8 *cell = cells + ((u64(to.x) * heads + head % heads) * count + to.y % count) * cell_bytes;
    for (u32 c = lane * 8; c < block; c += 256) put_eight(cell, codes + c, width, part * block + c);
    if (lane == 0) reinterpret_cast<float *>(cell + width * BITS / 8)[part] = scale;
}
