// lanes: one segment of 256 inputs by integer dot products, a lane being an output, for a few rows.
#pragma once
#include "record.cuh"

// Most blocks a thread keeps in registers before it needs the activations.
struct Half {
    uint4 q[BITS == 8 ? 8 : 4];
    uint4 more[BITS == 6 ? 2 : 1];
};

// Loads half of a record with `load16`, which reads 16 bytes of it at an offset.
template <class Load16>
__device__ __forceinline__ void load_half(Half &h, int H, int lane, Load16 load16) {
#pragma unroll
    for (int t = 0; t < 4; t++) {
        if (BITS == 8) {
            h.q[2 * t % 8] = load16(((H * 4 + t) * 2) * 512 + (lane ^ (2 * t)) * 16);
            h.q[(2 * t + 1) % 8] =
                load16(((H * 4 + t) * 2 + 1) * 512 + (lane ^ (2 * t)) * 16);
        } else {
            h.q[t] = load16((H * 4 + t) * 512 + (lane ^ (2 * t)) * 16);
        }
    }
    if (BITS == 5) h.more[0] = load16(4096 + (H * 32 + lane) * 16);
    if (BITS == 6) {
        h.more[0] = load16(4096 + ((H * 2) * 32 + lane) * 16);
        h.more[BITS == 6] = load16(4096 + ((H * 2 + 1) * 32 + lane) * 16);
    }
}

__device__ __forceinline__ Word word_of(const Half &h, int i, int t) {
    if (BITS == 8) {
        const uint4 &v = h.q[(2 * t + (i >> 1)) % (BITS == 8 ? 8 : 4)];
        return (i & 1) ? Word{v.z, v.w} : Word{v.x, v.y};
    }
    const u32 v = part(h.q[t], i);
    if (BITS == 5) return spread5(v, part(h.more[0], t), i);
    if (BITS == 6) {
        const uint4 &m = h.more[(BITS == 6) & (t >> 1)];
        return (t & 1) ? spread6(v, m.z, m.w, i) : spread6(v, m.x, m.y, i);
    }
    return spread4(v);
}

struct Ends {
#if FORMAT == Q4_1 || FORMAT == Q5_1 || FORMAT == WIDE
    uint4 d, m;
#elif FORMAT == Q6_K
    uint4 s;
    float d;
#elif FORMAT == Q2_K
    uint4 s;
    float d, m;
#else
    uint4 d;
#endif
};

template <class Load16>
__device__ __forceinline__ Ends load_ends(const u8 *record, int lane, Load16 load16) {
    const int f = CODE_BYTES + lane * 16;
    Ends e;
#if FORMAT == Q6_K
    e.s = load16(f);
    e.d = half_to_float(*reinterpret_cast<const u16 *>(record + CODE_BYTES + 512 + lane * 2));
#elif FORMAT == Q2_K
    e.s = load16(f);
    const u32 both = *reinterpret_cast<const u32 *>(record + CODE_BYTES + 512 + lane * 4);
    e.d = half_to_float(u16(both));
    e.m = -half_to_float(u16(both >> 16));
#elif FORMAT == WIDE
    e.d = load16(f + lane * 16);
    e.m = load16(f + lane * 16 + 16);
#else
    e.d = load16(f);
#if FORMAT == Q4_1 || FORMAT == Q5_1
    e.m = load16(f + 512);
#endif
#endif
    return e;
}

// Blocks are numbered at compile time, so nothing here indexes memory.
__device__ __forceinline__ float4 end_of(const Ends &e, int b) {
    Factors f = {0.0f, 0.0f, {1, 1}, {1, 1}};
#if FORMAT == Q6_K
    const u32 two = part(e.s, b >> 1) >> (16 * (b & 1));
    f.d = e.d;
    f.scale[0] = int(two << 24) >> 24;
    f.scale[1] = int(two << 16) >> 24;
#elif FORMAT == Q2_K
    const u32 two = part(e.s, b >> 1) >> (16 * (b & 1));
    return make_float4(e.d, e.m, __uint_as_float(q2_bytes(two)), 0.0f);
#elif FORMAT == WIDE
    f.d = __uint_as_float(part(b < 4 ? e.d : e.m, b & 3));
#elif FORMAT == Q4_K || FORMAT == Q5_K
    u32 scale[2], min[2];
    six_bit_words(e.d, scale, min);
    const float d = half_to_float(u16(e.d.x)), m = -half_to_float(u16(e.d.x >> 16));
    const float exact = d * byte_to_float(scale[b >> 2], b & 3);
    return make_float4(exact, -exact * MAGIC, m * byte_to_float(min[b >> 2], b & 3), 0.0f);
#else
    f.d = half_to_float(u16(part(e.d, b >> 1) >> (16 * (b & 1))));
#if FORMAT == Q4_1 || FORMAT == Q5_1
    f.m = half_to_float(u16(part(e.m, b >> 1) >> (16 * (b & 1))));
#endif
#endif
    return ending(f);
}

// One segment of a lane's output for ROWS rows. Row r has its codes at rows + r * ROW_BYTES, its marks
// at marks + r * MARK_BYTES.
template <int ROWS, int ROW_BYTES, int MARK_BYTES>
__device__ __forceinline__ void multiply_lane(float (&segment)[ROWS], const Half (&halves)[2],
                                              const Ends &ends, const u8 *rows, const u8 *marks,
                                              u32 swap) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) segment[r] = 0.0f;
#pragma unroll
    for (int b = 0; b < 8; b++) {
        Word word[4];
#pragma unroll
        for (int t = 0; t < 4; t++) word[t] = word_of(halves[b >> 2], b & 3, t);
        const float4 end = end_of(ends, b);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const u8 *row = rows + r * ROW_BYTES;
            const u32 by = swap ? r % 8 : 0;
            const uint4 low = *reinterpret_cast<const uint4 *>(row + ((2 * b) ^ by) * 16);
            const uint4 high = *reinterpret_cast<const uint4 *>(row + ((2 * b + 1) ^ by) * 16);
            Sums i = {MAGIC_BITS, TWO_SCALES ? MAGIC_BITS : 0, MAGIC_BITS, MAGIC_BITS};
#pragma unroll
            for (int t = 0; t < 4; t++) {
                i.low = __dp4a(int(word[t].low), int(part(low, t)), i.low);
                i.high = __dp4a(int(word[t].high), int(part(high, t)), i.high);
                if (TWO_MINS) {
                    i.ones_low = __dp4a(int(ONES), int(part(low, t)), i.ones_low);
                    i.ones_high = __dp4a(int(ONES), int(part(high, t)), i.ones_high);
                }
            }
            if (!TWO_SCALES) i.low += i.high;
            const float2 x = *reinterpret_cast<const float2 *>(marks + r * MARK_BYTES + b * 8);
            segment[r] = end_block(end, i, x, segment[r]);
        }
    }
}
