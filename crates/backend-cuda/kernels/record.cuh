// record: the layout of quantised weights on the device, one FORMAT per compilation.
//
// A record is 32 outputs by 256 inputs (8 blocks of 32), contiguous; records are ordered
// [matrix][group of 32 outputs][segment of 256 inputs]. What lies past the last output or the
// last input is zero, which adds nothing to any sum.
//
// Codes: inputs k of a block come in words: word t < 4 holds k = 4t..4t+3 ("low") and
// k = 16+4t..16+4t+3 ("high"), input j of four in byte j: this is how the int8 tensor core
// instruction wants them. Block b is number i = b % 4 of half H = b / 4.
//   4, 5, 6 bits: piece H*4+t has 16 bytes for each output, word i = low nibbles and high nibbles
//     of word t of block 4H+i. Output r lies in slot r ^ 2t, so that reads of a warp's fragments
//     spread over all banks of shared memory.
//   5 bits: then, at 4096, 16 bytes per output for each H: byte j of word t has the fifth bit of
//     (i, low) in bit 2i and of (i, high) in bit 2i+1.
//   6 bits: then, at 4096, for each H and each pair of t, 16 bytes per output: two words for each
//     t, low and high, with the upper two bits of i in bits 2i and 2i+1 of byte j.
//   8 bits: pieces (H*4+t)*2 + i/2 of 16 bytes per output, {low, high} of blocks i and i+1; slots
//     as above.
// Signed codes of fewer than 8 bits are kept in two's complement, so that moving them to the top
// of a byte gives the code times 2^SHIFT without further work.
//
// Factors follow the codes:
//   Q4_0 Q5_0 Q8_0: 8 half floats d per output.      Q4_1 Q5_1: the same, then 8 half floats m.
//   Q4_K Q5_K: 16 bytes per output: half floats d and dmin; 8 scales and 8 minimums of 6 bits, the
//     scales and four of the minimums in the low six bits of 12 bytes, the other four minimums in
//     pairs of top bits.
//   Q6_K: 16 signed scales per output; then one half float d per output. Q3_K is kept so too.
//   Q2_K: 4 bits a code; 16 bytes per output, one for each 16 inputs, scale in the low half and
//     minimum in the high one; then half floats d and dmin per output.
//   WIDE: 8 bits a code; 8 floats d per output. IQ4_NL, IQ4_XS and MXFP4 are kept so.
#pragma once
#include "base.cuh"

#define Q4_0 0
#define Q4_1 1
#define Q5_0 2
#define Q5_1 3
#define Q8_0 4
#define Q4_K 5
#define Q5_K 6
#define Q6_K 7
#define WIDE 11
#define Q2_K 12

#if FORMAT == Q4_0 || FORMAT == Q4_1 || FORMAT == Q4_K || FORMAT == Q2_K
constexpr int BITS = 4, CODE_BYTES = 4096;
#elif FORMAT == Q5_0 || FORMAT == Q5_1 || FORMAT == Q5_K
constexpr int BITS = 5, CODE_BYTES = 5120;
#elif FORMAT == Q6_K
constexpr int BITS = 6, CODE_BYTES = 6144;
#else
constexpr int BITS = 8, CODE_BYTES = 8192;
#endif

#if FORMAT == Q4_1 || FORMAT == Q5_1 || FORMAT == WIDE
constexpr int FACTOR_BYTES = 1024;
#elif FORMAT == Q6_K
constexpr int FACTOR_BYTES = 576;
#elif FORMAT == Q2_K
constexpr int FACTOR_BYTES = 640;
#else
constexpr int FACTOR_BYTES = 512;
#endif

constexpr bool TWO_MINS = FORMAT == Q2_K;
constexpr bool HAS_MINS =
    FORMAT == Q4_1 || FORMAT == Q5_1 || FORMAT == Q4_K || FORMAT == Q5_K || TWO_MINS;
constexpr bool TWO_SCALES = FORMAT == Q6_K || FORMAT == Q2_K;
constexpr bool SIGNED_CODES = FORMAT == Q4_0 || FORMAT == Q5_0 || FORMAT == Q6_K;
constexpr int SHIFT = SIGNED_CODES ? 8 - BITS : 0;
// Undoes SHIFT: exact, a power of two.
constexpr float UNSHIFT = SHIFT == 4 ? 0.0625f : SHIFT == 3 ? 0.125f : SHIFT == 2 ? 0.25f : 1.0f;
constexpr int RECORD_BYTES = CODE_BYTES + FACTOR_BYTES;
constexpr int PIECES = BITS == 8 ? 16 : 8;

// The factors of one block of one output: w[k] = d * scale[half] * q[k] + m * min.
struct Factors {
    float d, m;
    int scale[2], min[2];
};

__device__ __forceinline__ u16 half_at(const u8 *p) { return u16(p[0] | (p[1] << 8)); }

// The scales and minimums of Q4_K and Q5_K, four to a word.
__device__ __forceinline__ void six_bit_words(const uint4 &s, u32 (&scale)[2], u32 (&min)[2]) {
    scale[0] = s.y & 0x3f3f3f3fu;
    scale[1] = s.z & 0x3f3f3f3fu;
    min[0] = s.w & 0x3f3f3f3fu;
    min[1] = ((s.y >> 6) & 0x03030303u) | ((s.z >> 4) & 0x0c0c0c0cu) | ((s.w >> 2) & 0x30303030u);
}

// Two bytes of a scale and a minimum each, as the bytes of both scales, then both minimums.
__device__ __forceinline__ u32 q2_bytes(u32 two) {
    const u32 scales = two & 0x0f0fu, mins = (two >> 4) & 0x0f0fu;
    return scales | (mins << 16);
}

// Reads the factors of block b of output `row` of a record.
__device__ __forceinline__ Factors factors_at(const u8 *record, int row, int b) {
    const u8 *f = record + CODE_BYTES + row * 16;
    Factors out = {0.0f, 0.0f, {1, 1}, {1, 1}};
#if FORMAT == Q4_K || FORMAT == Q5_K
    const uint4 s = *reinterpret_cast<const uint4 *>(f);
    u32 scale[2], min[2];
    six_bit_words(s, scale, min);
    out.d = half_to_float(u16(s.x));
    out.m = -half_to_float(u16(s.x >> 16));
    out.scale[0] = out.scale[1] = int((scale[b >> 2] >> (8 * (b & 3))) & 255);
    out.min[0] = out.min[1] = int((min[b >> 2] >> (8 * (b & 3))) & 255);
#elif FORMAT == Q6_K
    out.d = half_to_float(*reinterpret_cast<const u16 *>(record + CODE_BYTES + 512 + row * 2));
    out.scale[0] = int(reinterpret_cast<const signed char *>(f)[2 * b]);
    out.scale[1] = int(reinterpret_cast<const signed char *>(f)[2 * b + 1]);
#elif FORMAT == Q2_K
    const u8 *both = record + CODE_BYTES + 512 + row * 4;
    out.d = half_to_float(half_at(both));
    out.m = -half_to_float(half_at(both + 2));
    for (int h = 0; h < 2; h++) {
        out.scale[h] = f[2 * b + h] & 15;
        out.min[h] = f[2 * b + h] >> 4;
    }
#elif FORMAT == WIDE
    out.d = reinterpret_cast<const float *>(record + CODE_BYTES + row * 32)[b];
#else
    out.d = half_to_float(*reinterpret_cast<const u16 *>(f + 2 * b));
    if (HAS_MINS) out.m = half_to_float(*reinterpret_cast<const u16 *>(f + 512 + 2 * b));
#endif
    return out;
}

// The code of input k of block b of output `row`.
__device__ __forceinline__ int code_at(const u8 *record, int row, int b, int k) {
    const int H = b >> 2, i = b & 3, high = k >> 4, t = (k & 15) >> 2, j = k & 3;
    if (BITS == 8) {
        const u8 *piece = record + ((H * 4 + t) * 2 + (i >> 1)) * 512 + (row ^ (2 * t)) * 16;
        return int(reinterpret_cast<const signed char *>(piece)[((i & 1) * 2 + high) * 4 + j]);
    }
    const u8 *piece = record + (H * 4 + t) * 512 + (row ^ (2 * t)) * 16;
    int code = (piece[i * 4 + j] >> (4 * high)) & 15;
    if (BITS == 5) {
        const u8 *fifth = record + 4096 + (H * 32 + row) * 16 + t * 4;
        code |= ((fifth[j] >> (2 * i + high)) & 1) << 4;
    }
    if (BITS == 6) {
        const u8 *upper =
            record + 4096 + ((H * 2 + (t >> 1)) * 32 + row) * 16 + (t & 1) * 8 + high * 4;
        code |= ((upper[j] >> (2 * i)) & 3) << 4;
    }
    // Two's complement of BITS bits.
    if (SIGNED_CODES && code >= 1 << (BITS - 1)) code -= 1 << BITS;
    return code;
}

// Bytes of codes in int8 form, times 2^SHIFT, for block i of a half: from the word of nibbles and
// the words of further bits.
struct Word {
    u32 low, high;
};

__device__ __forceinline__ Word spread4(u32 v) {
    if (SIGNED_CODES) return {(v << 4) & 0xf0f0f0f0u, v & 0xf0f0f0f0u};
    return {v & 0x0f0f0f0fu, (v >> 4) & 0x0f0f0f0fu};
}

__device__ __forceinline__ Word spread5(u32 v, u32 fifth, int i) {
    const u32 low = fifth >> (2 * i), high = fifth >> (2 * i + 1);
    if (SIGNED_CODES) {
        return {((v << 3) & 0x78787878u) | ((low << 7) & 0x80808080u),
                ((v >> 1) & 0x78787878u) | ((high << 7) & 0x80808080u)};
    }
    return {(v & 0x0f0f0f0fu) | ((low << 4) & 0x10101010u),
            ((v >> 4) & 0x0f0f0f0fu) | ((high << 4) & 0x10101010u)};
}

__device__ __forceinline__ Word spread6(u32 v, u32 low, u32 high, int i) {
    return {((v << 2) & 0x3c3c3c3cu) | (((low >> (2 * i)) << 6) & 0xc0c0c0c0u),
            ((v >> 2) & 0x3c3c3c3cu) | (((high >> (2 * i)) << 6) & 0xc0c0c0c0u)};
}

// Integer sums start at this pattern: their bits read as a float are 1.5 * 2^23 plus the integer,
// for integers below 2^22 in magnitude, which those of a block are.
#define MAGIC_BITS 0x4B400000
#define MAGIC 12582912.0f

// The factors of a block in the form that ends a block's sum with few operations.
//   one scale:  x = d * scale / 2^SHIFT and z = m * min, both exact (17 bits at most);
//               fl(d * I) = fma(x, MAGIC + I, y) with y = -x * MAGIC, exact as well
//   WIDE:       x = d, which times MAGIC may be too large: fl(d * I) = x * ((MAGIC + I) - MAGIC)
//   two scales: x = d / 2^SHIFT, y and z the scales, w = -y * MAGIC
//   two minimums as well: x = d, y = m, z the bytes of both scales and both minimums
__device__ __forceinline__ float4 ending(const Factors &f) {
    if (TWO_MINS) {
        const u32 bytes =
            f.scale[0] | (f.scale[1] << 8) | (f.min[0] << 16) | (u32(f.min[1]) << 24);
        return make_float4(f.d, f.m, __uint_as_float(bytes), 0.0f);
    }
    if (TWO_SCALES) {
        const float y = float(f.scale[0]);
        return make_float4(f.d * UNSHIFT, y, float(f.scale[1]), -y * MAGIC);
    }
    if (FORMAT == WIDE) return make_float4(f.d, 0.0f, 0.0f, 0.0f);
    const float d = f.d * float(f.scale[0]) * UNSHIFT;
    return make_float4(d, -d * MAGIC, f.m * float(f.min[0]), 0.0f);
}

// Integers that belong to a block: sums of products from MAGIC_BITS, `low` and `high` of its two
// halves, for one scale `low` of the whole block; and, for two minimums, sums of the activations of
// its halves, from MAGIC_BITS too.
struct Sums {
    int low, high, ones_low, ones_high;
};

__device__ __forceinline__ float counted(int from_magic) { return __int_as_float(from_magic) - MAGIC; }

// `segment` plus one block's term. `x` is {scale, sum} of the activations.
__device__ __forceinline__ float end_block(const float4 &e, const Sums &i, float2 x, float segment) {
    float u;
    if (TWO_MINS) {
        const u32 bytes = __float_as_uint(e.z);
        const float sum = __fmaf_rn(byte_to_float(bytes, 1), counted(i.high),
                                    byte_to_float(bytes, 0) * counted(i.low));
        const float mins = __fmaf_rn(byte_to_float(bytes, 3), counted(i.ones_high),
                                     byte_to_float(bytes, 2) * counted(i.ones_low));
        u = __fmaf_rn(e.y, mins, e.x * sum);
    } else if (TWO_SCALES) {
        const float first = __fmaf_rn(e.y, __int_as_float(i.low), e.w);
        u = e.x * __fmaf_rn(e.z, counted(i.high), first);
    } else if (FORMAT == WIDE) {
        u = e.x * counted(i.low);
    } else {
        u = __fmaf_rn(e.x, __int_as_float(i.low), e.y);
        if (HAS_MINS) u = __fmaf_rn(e.z, x.y, u);
    }
    return __fmaf_rn(x.x, u, segment);
}

constexpr u32 ONES = 0x01010101u;  // four activations' factors in their plain sum

// Up to three matrices of the same inputs, side by side: what their kernels take, and the one that
// a block of `unit` groups belongs to, with the first group of its own.
#define PARTS                                                                                      \
    const u8 *w0, const u8 *w1, const u8 *w2, float *y0, float *y1, float *y2, u32 height0,        \
        u32 height1, u32 height2

struct Part {
    const u8 *w;
    float *y;
    u32 height, group;
};

__device__ __forceinline__ u32 groups_of(u32 height) { return (height + 31) / 32; }

__device__ __forceinline__ Part part_of(PARTS, u32 unit) {
    const u32 first = (groups_of(height0) + unit - 1) / unit;
    const u32 second = (groups_of(height1) + unit - 1) / unit;
    const u32 block = blockIdx.x;
    if (block < first) return {w0, y0, height0, block * unit};
    if (block < first + second) return {w1, y1, height1, (block - first) * unit};
    return {w2, y2, height2, (block - first - second) * unit};
}
