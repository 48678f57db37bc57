// pack: stored blocks to records (see record.cuh).
//
// `rows` rows of `row_bytes` bytes at `from`, which are rows first_row.. of a stack of matrices of
// `height` rows each, to their places in `to`. One thread per row and segment.
// order: none, every byte has one writer      bound: memory      twin: backend-cpu blocks::block32
// FORMAT is the stored type; types without a record of their own are kept in that of another.
#define Q3_K 13
#define IQ4_NL 14
#define IQ4_XS 15
#define MXFP4 16
#if FORMAT == Q3_K
#define KEPT 7
#elif FORMAT >= IQ4_NL
#define KEPT 11
#endif
constexpr int stored = FORMAT;
#ifdef KEPT
#undef FORMAT
#define FORMAT KEPT
#endif
#include "record.cuh"

constexpr int BLOCK_LEN =
    stored == Q2_K || stored == Q3_K || stored == IQ4_XS || (stored >= Q4_K && stored <= Q6_K) ? 256
                                                                                               : 32;
constexpr int BLOCK_BYTES = stored == Q4_0     ? 18
                            : stored == Q4_1   ? 20
                            : stored == Q5_0   ? 22
                            : stored == Q5_1   ? 24
                            : stored == Q8_0   ? 34
                            : stored == Q4_K   ? 144
                            : stored == Q5_K   ? 176
                            : stored == Q6_K   ? 210
                            : stored == Q2_K   ? 84
                            : stored == Q3_K   ? 110
                            : stored == IQ4_NL ? 18
                            : stored == IQ4_XS ? 136
                                               : 17;

// What the codes of IQ4_NL and IQ4_XS stand for, and those of MXFP4, in halves.
__device__ const signed char NL_TABLE[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                             1,    13,   25,  38,  53,  69,  89,  113};
__device__ const signed char MX_TABLE[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

__device__ __forceinline__ u32 two_bits(const u8 *p, int b, int k) {
    return (p[b / 4 * 32 + k] >> (2 * (b % 4))) & 3;
}

// The code of input k of 32-block b, as BITS bits: two's complement for signed types.
__device__ __forceinline__ u32 stored_code(const u8 *p, int b, int k) {
    const int high = k >> 4, n = k & 15;
    switch (stored) {
    case Q4_0: return ((p[2 + n] >> (4 * high)) & 15) ^ 8;
    case Q4_1: return (p[4 + n] >> (4 * high)) & 15;
    case Q5_0: return (((p[6 + n] >> (4 * high)) & 15) | (((p[2 + k / 8] >> (k % 8)) & 1) << 4)) ^ 16;
    case Q5_1: return ((p[8 + n] >> (4 * high)) & 15) | (((p[4 + k / 8] >> (k % 8)) & 1) << 4);
    case Q8_0: return p[2 + k];
    case Q4_K: return (p[16 + (b >> 1) * 32 + k] >> (4 * (b & 1))) & 15;
    case Q5_K:
        return ((p[48 + (b >> 1) * 32 + k] >> (4 * (b & 1))) & 15) | (((p[16 + k] >> b) & 1) << 4);
    case Q6_K: {
        const int half = b >> 2, quarter = b & 3;
        const u32 low = (p[64 * half + 32 * (quarter & 1) + k] >> (4 * (quarter >> 1))) & 15;
        return (low | (((p[128 + 32 * half + k] >> (2 * quarter)) & 3) << 4)) ^ 32;
    }
    case Q2_K: return two_bits(p + 16, b, k);
    case Q3_K: return u32(int(two_bits(p + 32, b, k)) + 4 * ((p[k] >> b) & 1) - 4) & 63;
    case IQ4_NL: return u8(NL_TABLE[(p[2 + n] >> (4 * high)) & 15]);
    case IQ4_XS: return u8(NL_TABLE[(p[8 + 16 * b + n] >> (4 * high)) & 15]);
    default: return u8(MX_TABLE[(p[1 + n] >> (4 * high)) & 15]);
    }
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

// The signed scale of sixteen inputs of Q3_K.
__device__ __forceinline__ u8 q3_scale(const u8 *s, int j) {
    const u32 low = j < 8 ? s[j] & 15 : s[j - 8] >> 4, high = (s[8 + j % 4] >> (2 * (j / 4))) & 3;
    return u8(int(low | (high << 4)) - 32);
}

// The factor of a block that is kept as WIDE.
__device__ __forceinline__ float wide_factor(const u8 *p, int b) {
    if (stored == MXFP4) {
        const u32 exponent = p[0];
        return __uint_as_float(exponent < 2 ? 0x200000u << exponent : (exponent - 1) << 23);
    }
    const float d = half_to_float(half_at(p));
    if (stored == IQ4_NL) return d;
    const u32 low = (p[4 + b / 2] >> (4 * (b % 2))) & 15, high = (half_at(p + 2) >> (2 * b)) & 3;
    return d * float(int(low | (high << 4)) - 32);
}

__device__ void pack_factors(const u8 *p, int b, int row, u8 *record) {
    u8 *f = record + CODE_BYTES + row * 16;
    if (stored == Q4_K || stored == Q5_K) {
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
    } else if (stored == Q6_K || stored == Q3_K) {
        u8 *d = record + CODE_BYTES + 512 + row * 2;
        const u8 *from = p + (stored == Q6_K ? 208 : 108);
        for (int h = 0; h < 2; h++) {
            f[2 * b + h] = stored == Q6_K ? p[192 + 2 * b + h] : q3_scale(p + 96, 2 * b + h);
            d[h] = from[h];
        }
    } else if (stored == Q2_K) {
        f[2 * b] = p[2 * b];
        f[2 * b + 1] = p[2 * b + 1];
        for (int n = 0; n < 4; n++) record[CODE_BYTES + 512 + row * 4 + n] = p[80 + n];
    } else if (stored >= IQ4_NL) {
        reinterpret_cast<float *>(record + CODE_BYTES + row * 32)[b] = wide_factor(p, b);
    } else {
        f[2 * b] = p[0];
        f[2 * b + 1] = p[1];
        if (HAS_MINS) {
            f[512 + 2 * b] = p[2];
            f[512 + 2 * b + 1] = p[3];
        }
    }
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
