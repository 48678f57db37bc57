// pack: stored blocks to records (see record.cuh).
//
// `rows` rows of `row_bytes` bytes at `from`, which are rows first_row.. of a stack of matrices of
// `height` rows each, to their places in `to`. One thread per row and segment.
// order: none, every byte has one writer      bound: memory      twin: backend-cpu blocks::block32
#include "record.cuh"

#if FORMAT == Q4_K || FORMAT == Q5_K || FORMAT == Q6_K
constexpr int BLOCK_LEN = 256;
#else
constexpr int BLOCK_LEN = 32;
#endif
#if FORMAT == Q4_0
constexpr int BLOCK_BYTES = 18;
#elif FORMAT == Q4_1
constexpr int BLOCK_BYTES = 20;
#elif FORMAT == Q5_0
constexpr int BLOCK_BYTES = 22;
#elif FORMAT == Q5_1
constexpr int BLOCK_BYTES = 24;
#elif FORMAT == Q8_0
constexpr int BLOCK_BYTES = 34;
#elif FORMAT == Q4_K
constexpr int BLOCK_BYTES = 144;
#elif FORMAT == Q5_K
constexpr int BLOCK_BYTES = 176;
#else
constexpr int BLOCK_BYTES = 210;
#endif

// The code of input k of 32-block b, as BITS bits: two's complement for signed types.
__device__ __forceinline__ u32 stored_code(const u8 *p, int b, int k) {
    const int high = k >> 4, n = k & 15;
#if FORMAT == Q4_0
    return ((p[2 + n] >> (4 * high)) & 15) ^ 8;
#elif FORMAT == Q4_1
    return (p[4 + n] >> (4 * high)) & 15;
#elif FORMAT == Q5_0
    return (((p[6 + n] >> (4 * high)) & 15) | (((p[2 + k / 8] >> (k % 8)) & 1) << 4)) ^ 16;
#elif FORMAT == Q5_1
    return ((p[8 + n] >> (4 * high)) & 15) | (((p[4 + k / 8] >> (k % 8)) & 1) << 4);
#elif FORMAT == Q8_0
    return p[2 + k];
#elif FORMAT == Q4_K
    return (p[16 + (b >> 1) * 32 + k] >> (4 * (b & 1))) & 15;
#elif FORMAT == Q5_K
    return ((p[48 + (b >> 1) * 32 + k] >> (4 * (b & 1))) & 15) | (((p[16 + k] >> b) & 1) << 4);
#else
    const int half = b >> 2, quarter = b & 3;
    const u32 low = (p[64 * half + 32 * (quarter & 1) + k] >> (4 * (quarter >> 1))) & 15;
    return (low | (((p[128 + 32 * half + k] >> (2 * quarter)) & 3) << 4)) ^ 32;
#endif
}

__device__ void pack_codes(const u8 *p, int b, int row, u8 *record) {
    const int H = b >> 2, i = b & 3;
    for (int k = 0; k < 32; k++) {
        const u32 code = stored_code(p, b, k);
        const int high = k >> 4, t = (k & 15) >> 2, j = k & 3;
        if (BITS == 8) {
            record[((H * 4 + t) * 2 + (i >> 1)) * 512 + (row ^ (2 * t)) * 16 +
                   ((i & 1) * 2 + high) * 4 + j] = u8(code);
            continue;
        }
        record[(H * 4 + t) * 512 + (row ^ (2 * t)) * 16 + i * 4 + j] |= u8((code & 15) << (4 * high));
        if (BITS == 5) {
            record[4096 + (H * 32 + row) * 16 + t * 4 + j] |= u8((code >> 4) << (2 * i + high));
        }
        if (BITS == 6) {
            record[4096 + ((H * 2 + (t >> 1)) * 32 + row) * 16 + (t & 1) * 8 + high * 4 + j] |=
                u8((code >> 4) << (2 * i));
        }
    }
}

// Scale and minimum of 32-block b from the twelve bytes that Q4_K and Q5_K share.
__device__ __forceinline__ void six_bits(const u8 *s, int b, u32 &scale, u32 &min) {
    if (b < 4) {
        scale = s[b] & 63;
        min = s[b + 4] & 63;
    } else {
        scale = (s[b + 4] & 15) | ((s[b - 4] >> 6) << 4);
        min = (s[b + 4] >> 4) | ((s[b] >> 6) << 4);
    }
}

__device__ void pack_factors(const u8 *p, int b, int row, u8 *record) {
    u8 *f = record + CODE_BYTES + row * 16;
#if FORMAT == Q4_K || FORMAT == Q5_K
    for (int n = 0; n < 4; n++) f[n] = p[n];
    u32 scale, min;
    six_bits(p + 4, b, scale, min);
    f[4 + b] |= u8(scale);
    if (b < 4) {
        f[12 + b] |= u8(min);
    } else {
        f[4 + b - 4] |= u8((min & 3) << 6);
        f[8 + b - 4] |= u8(((min >> 2) & 3) << 6);
        f[12 + b - 4] |= u8((min >> 4) << 6);
    }
#elif FORMAT == Q6_K
    f[2 * b] = p[192 + 2 * b];
    f[2 * b + 1] = p[193 + 2 * b];
    record[CODE_BYTES + 512 + row * 2] = p[208];
    record[CODE_BYTES + 512 + row * 2 + 1] = p[209];
#else
    f[2 * b] = p[0];
    f[2 * b + 1] = p[1];
    if (HAS_MINS) {
        f[512 + 2 * b] = p[2];
        f[512 + 2 * b + 1] = p[3];
    }
#endif
}

// `to` starts as zeros.
extern "C" __global__ void pack(const u8 *from, u8 *to, u64 first_row, u64 rows, u64 row_bytes,
                                u32 height, u32 blocks) {
    begin();
    const u32 segments = (blocks + 7) / 8, groups = (height + 31) / 32;
    const u64 n = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (n >= rows * segments) return;
    const u64 r = n / segments, absolute = first_row + r;
    const u32 j = u32(n % segments);
    const u64 matrix = absolute / height, row = absolute % height;
    u8 *record = to + ((matrix * groups + row / 32) * segments + j) * RECORD_BYTES;
    for (int b = 0; b < 8 && j * 8 + b < blocks; b++) {
        const u64 at = BLOCK_LEN == 256 ? u64(j) : u64(j) * 8 + b;
        const u8 *p = from + r * row_bytes + at * BLOCK_BYTES;
        pack_codes(p, b, int(row % 32), record);
        pack_factors(p, b, int(row % 32), record);
    }
}
