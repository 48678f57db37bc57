// tensor: one segment of 256 inputs on the int8 tensor cores, for 32 outputs of one warp and 8*NT
// rows of activations.
//
// Thread 4g+t of a warp holds outputs g, g+8, g+16, g+24 and, of every eight rows, rows 2t and
// 2t+1; it feeds in row g. Integer sums start at MAGIC_BITS (see record.cuh).
#pragma once
#include "record.cuh"

// MAGIC_BITS four times, in registers of their own: the instruction wants four neighbours, and
// what the compiler knows to be equal it would gather anew for each.
struct Magic {
    int v[4];
};

__device__ __forceinline__ Magic magic() {
    Magic m;
#pragma unroll
    for (int i = 0; i < 4; i++) asm volatile("mov.b32 %0, 0x4B400000;" : "=r"(m.v[i]));
    return m;
}

__device__ __forceinline__ void mma_32(int (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1,
                                       const Magic &c) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%11,%12,%13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(c.v[0]), "r"(c.v[1]),
          "r"(c.v[2]), "r"(c.v[3]));
}

__device__ __forceinline__ void mma_16(int (&d)[4], u32 a0, u32 a1, u32 b0, const Magic &c) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%7,%8,%9,%10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(b0), "r"(c.v[0]), "r"(c.v[1]), "r"(c.v[2]), "r"(c.v[3]));
}

// What a thread holds of the codes of half a record, for its four outputs.
struct Fragment {
    uint4 q[BITS == 8 ? 8 : 4];
    u32 more[BITS == 6 ? 8 : 4];
};

// Loads a fragment with `load16`, which reads 16 bytes of the record at an offset; the further
// bits are read from `record` itself.
template <class Load16>
__device__ __forceinline__ void load_fragment(Fragment &f, const u8 *record, int H, int g, int t,
                                              Load16 load16) {
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const int row = r * 8 + g, slot = (row ^ (2 * t)) * 16;
        if (BITS == 8) {
            f.q[2 * r % 8] = load16(((H * 4 + t) * 2) * 512 + slot);
            f.q[(2 * r + 1) % 8] = load16(((H * 4 + t) * 2 + 1) * 512 + slot);
        } else {
            f.q[r] = load16((H * 4 + t) * 512 + slot);
        }
        if (BITS == 5) {
            f.more[r] =
                *reinterpret_cast<const u32 *>(record + 4096 + (H * 32 + row) * 16 + t * 4);
        }
        if (BITS == 6) {
            const uint2 v = *reinterpret_cast<const uint2 *>(
                record + 4096 + ((H * 2 + (t >> 1)) * 32 + row) * 16 + (t & 1) * 8);
            f.more[2 * r % 8] = v.x;
            f.more[(2 * r + 1) % 8] = v.y;
        }
    }
}

__device__ __forceinline__ Word word_of(const Fragment &f, int i, int r) {
    if (BITS == 8) {
        const uint4 &v = f.q[(2 * r + (i >> 1)) % (BITS == 8 ? 8 : 4)];
        return (i & 1) ? Word{v.z, v.w} : Word{v.x, v.y};
    }
    const u32 v = part(f.q[r], i);
    if (BITS == 5) return spread5(v, f.more[r], i);
    if (BITS == 6) return spread6(v, f.more[2 * r % 8], f.more[(2 * r + 1) % 8], i);
    return spread4(v);
}

// The factors of a record's output `lane`.
struct LaneFactors {
    uint4 s, more;
};

__device__ __forceinline__ LaneFactors lane_factors(const u8 *record, int lane) {
    LaneFactors f;
    f.more = make_uint4(0, 0, 0, 0);
#if FORMAT == WIDE
    f.s = *reinterpret_cast<const uint4 *>(record + CODE_BYTES + lane * 32);
    f.more = *reinterpret_cast<const uint4 *>(record + CODE_BYTES + lane * 32 + 16);
#else
    f.s = *reinterpret_cast<const uint4 *>(record + CODE_BYTES + lane * 16);
#endif
#if FORMAT == Q6_K
    f.more.x = *reinterpret_cast<const u16 *>(record + CODE_BYTES + 512 + lane * 2);
#elif FORMAT == Q2_K
    f.more.x = *reinterpret_cast<const u32 *>(record + CODE_BYTES + 512 + lane * 4);
#elif FORMAT == Q4_1 || FORMAT == Q5_1
    f.more = *reinterpret_cast<const uint4 *>(record + CODE_BYTES + 512 + lane * 16);
#endif
    return f;
}

// Calls put(b, ending) for each of a record's 8 blocks.
template <class Put>
__device__ __forceinline__ void each_ending(const LaneFactors &own, Put put) {
    const uint4 s = own.s, more = own.more;
#if FORMAT == Q4_K || FORMAT == Q5_K
    u32 scale[2], min[2];
    six_bit_words(s, scale, min);
    const float d = half_to_float(u16(s.x)), m = -half_to_float(u16(s.x >> 16));
#pragma unroll
    for (int b = 0; b < 8; b++) {
        const float exact = d * byte_to_float(scale[b >> 2], b & 3);
        put(b, make_float4(exact, -exact * MAGIC, m * byte_to_float(min[b >> 2], b & 3), 0.0f));
    }
#elif FORMAT == Q2_K
    const float d = half_to_float(u16(more.x)), m = -half_to_float(u16(more.x >> 16));
#pragma unroll
    for (int b = 0; b < 8; b++) {
        const u32 two = part(s, b >> 1) >> (16 * (b & 1));
        put(b, make_float4(d, m, __uint_as_float(q2_bytes(two)), 0.0f));
    }
#else
    Factors f = {0.0f, 0.0f, {1, 1}, {1, 1}};
#pragma unroll
    for (int b = 0; b < 8; b++) {
        const u32 two = part(s, b >> 1) >> (16 * (b & 1));
        if (FORMAT == Q6_K) {
            f.d = half_to_float(u16(more.x));
            f.scale[0] = int(two << 24) >> 24;
            f.scale[1] = int(two << 16) >> 24;
        } else if (FORMAT == WIDE) {
            f.d = __uint_as_float(part(b < 4 ? s : more, b & 3));
        } else {
            f.d = half_to_float(u16(two));
            if (HAS_MINS) f.m = half_to_float(u16(part(more, b >> 1) >> (16 * (b & 1))));
        }
        put(b, ending(f));
    }
#endif
}

// Floats that are kept of a block's ending, and bytes of a record's endings.
constexpr int END_FLOATS = TWO_SCALES ? 4 : HAS_MINS ? 2 : 1;
constexpr int ENDS_BYTES = 256 * 4 * END_FLOATS;

__device__ __forceinline__ void put_end(float *ends, int at, const float4 &e) {
    if (END_FLOATS == 4) {
        reinterpret_cast<float4 *>(ends)[at] = e;
    } else if (END_FLOATS == 2) {
        reinterpret_cast<float2 *>(ends)[at] = make_float2(e.x, e.z);
    } else {
        ends[at] = e.x;
    }
}

__device__ __forceinline__ float4 end_at(const float *ends, int at) {
    if (END_FLOATS == 4) return reinterpret_cast<const float4 *>(ends)[at];
    float2 v = make_float2(0.0f, 0.0f);
    if (END_FLOATS == 2) {
        v = reinterpret_cast<const float2 *>(ends)[at];
    } else {
        v.x = ends[at];
    }
    return make_float4(v.x, FORMAT == WIDE ? 0.0f : -v.x * MAGIC, v.y, 0.0f);
}

// Writes the endings of a record's 8 blocks, lane by lane: number b * 32 + output.
__device__ __forceinline__ void write_ends(float *ends, const LaneFactors &own, int lane) {
    each_ending(own, [&](int b, const float4 &e) { put_end(ends, b * 32 + lane, e); });
}

// {scale, sum} of blocks 2h and 2h+1 of two rows.
struct Marks {
    float4 first, second;
};

// Blocks 2h and 2h+1 of the record for 8 rows of activations: `a` holds their codes.
template <int NT>
__device__ __forceinline__ void end_pair(float (&segment)[2][NT][4], int nt, int h,
                                         const Word (&w)[2][4], const float4 (&ends)[2][4], uint4 a,
                                         const Marks &x, const Magic &magic) {
#pragma unroll
    for (int bb = 0; bb < 2; bb++) {
        const u32 a_low = bb ? a.z : a.x, a_high = bb ? a.w : a.y;
        const float2 x0 = bb ? make_float2(x.first.z, x.first.w) : make_float2(x.first.x, x.first.y);
        const float2 x1 =
            bb ? make_float2(x.second.z, x.second.w) : make_float2(x.second.x, x.second.y);
        // Every row of the result is the sums of the activations.
        int ones_low[4] = {0, 0, 0, 0}, ones_high[4] = {0, 0, 0, 0};
        if (TWO_MINS) {
            mma_16(ones_low, ONES, ONES, a_low, magic);
            mma_16(ones_high, ONES, ONES, a_high, magic);
        }
#pragma unroll
        for (int mt = 0; mt < 2; mt++) {
            const Word &p = w[bb][2 * mt], &q = w[bb][2 * mt + 1];
            int low[4], high[4] = {0, 0, 0, 0};
            if (TWO_SCALES) {
                mma_16(low, p.low, q.low, a_low, magic);
                mma_16(high, p.high, q.high, a_high, magic);
            } else {
                mma_32(low, p.low, q.low, p.high, q.high, a_low, a_high, magic);
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float before = h == 0 && bb == 0 ? 0.0f : segment[mt][nt][e];
                const Sums sums = {low[e], high[e], ones_low[e], ones_high[e]};
                segment[mt][nt][e] =
                    end_block(ends[bb][2 * mt + e / 2], sums, e % 2 ? x1 : x0, before);
            }
        }
    }
}

constexpr int MARK_STRIDE = 80;  // bytes of a row's marks in shared memory: spreads reads

// Bytes of shared memory for one segment of `rows` rows of activations.
__device__ constexpr int segment_bytes(int rows) { return rows * (256 + MARK_STRIDE); }

__device__ __forceinline__ void copy_16(void *to, const void *from) {
    const u32 at = u32(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}

// Four registers from shared memory for tensor cores: lane l names 16 bytes; thread 4g+t gets word t
// of what lanes g, g+8, g+16 and g+24 name.
__device__ __forceinline__ uint4 load_matrices(const u8 *named) {
    uint4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(u32(__cvta_generic_to_shared(named)))
                 : "memory");
    return v;
}

// Copies segment j of SIZE rows of activations to shared memory, by `threads` threads: 16 pieces of 16
// bytes a row, piece p of row n in place p ^ (n % 8), so that the same piece of eight rows lies in
// different banks. Only the first `used` rows are copied.
template <int SIZE, class RowOf>
__device__ __forceinline__ void fetch_rows(u8 *to, const uint4 *codes, const float2 *marks,
                                           u32 segments, u32 j, u32 thread, u32 threads,
                                           RowOf row_of, u32 used = SIZE) {
    for (u32 i = thread; i < used * 16; i += threads) {
        const u32 n = i / 16, p = i % 16;
        copy_16(to + n * 256 + (p ^ (n & 7)) * 16,
                codes + (u64(row_of(n)) * segments + j) * 16 + p);
    }
    for (u32 i = thread; i < used * 4; i += threads) {
        const u32 n = i / 4, p = i % 4;
        copy_16(to + SIZE * 256 + n * MARK_STRIDE + p * 16,
                marks + (u64(row_of(n)) * segments + j) * 8 + p * 2);
    }
}

// One segment for the first 8 * USED of 8 * NT rows; the results of others are left as they are.
// Shared memory holds SIZE rows; rows past them repeat them. `fragment(H)` is half a record.
template <int USED, int NT, int SIZE = NT * 8, class FragmentOf>
__device__ __forceinline__ void multiply(float (&segment)[2][NT][4], const float *ends,
                                         const u8 *rows, int g, int t, FragmentOf fragment) {
    const Magic start = magic();
#pragma unroll
    for (int H = 0; H < 2; H++) {
        const Fragment f = fragment(H);
#pragma unroll
        for (int hh = 0; hh < 2; hh++) {
            const int h = 2 * H + hh;
            Word words[2][4];
            float4 end[2][4];
#pragma unroll
            for (int bb = 0; bb < 2; bb++) {
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    words[bb][r] = word_of(f, hh * 2 + bb, r);
                    end[bb][r] = end_at(ends, (2 * h + bb) * 32 + r * 8 + g);
                }
            }
#pragma unroll
            for (int nt = 0; nt < USED; nt++) {
                // Low and high half of block 2h, then of block 2h+1.
                const int lane = 4 * g + t, row = lane % 8 % SIZE;
                const uint4 v =
                    load_matrices(rows + (nt * 8 + row) * 256 + ((4 * h + lane / 8) ^ row) * 16);
                const int first = (nt * 8 + 2 * t) % SIZE;
                const u8 *at = rows + SIZE * 256 + first * MARK_STRIDE + h * 16;
                const Marks x = {*reinterpret_cast<const float4 *>(at),
                                 *reinterpret_cast<const float4 *>(at + MARK_STRIDE)};
                end_pair<NT>(segment, nt, h, words, end, v, x, start);
            }
        }
    }
}

// A tile of rows that multiply with one matrix: rows first.. of the output, `count` of them.
struct Tile {
    u32 matrix, first, count, unused;
};

// Tile `index` of a list, or of all `rows` rows cut into tiles of `size`.
__device__ __forceinline__ Tile tile_at(const Tile *tiles, u32 index, u32 size, u32 rows) {
    if (tiles) return tiles[index];
    const u32 first = index * size;
    return {0, first, min(size, rows - first), 0};
}
