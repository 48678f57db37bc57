// matmul_rows: y[r, n] = sum over k of x[r, k] * w[n, k] for a few rows, quantised w.
//
// Grid (groups of 32 outputs of all parts, row sets); a block's warps share out the segments, a lane
// is an output. A row set is ROWS rows of the same matrix: rows ROWS*set.. of the codes. With `of`, a
// set is one row: it reads row set / share of the codes and multiplies with matrix of[set].
// Shared memory: per warp ROWS * 320 bytes of activations, then segments * ROWS * 32 floats.
// order: the law; segments are added ascending      bound: weight bytes      twin: matmul_plain
#include "record.cuh"

// Most blocks a thread keeps in registers before it needs the activations.
struct Half {
    uint4 q[BITS == 8 ? 8 : 4];
    uint4 more[BITS == 6 ? 2 : 1];
};

__device__ __forceinline__ void load_half(Half &h, const u8 *record, int H, int lane) {
#pragma unroll
    for (int t = 0; t < 4; t++) {
        if (BITS == 8) {
            h.q[2 * t % 8] = load_once(record + ((H * 4 + t) * 2) * 512 + (lane ^ (2 * t)) * 16);
            h.q[(2 * t + 1) % 8] =
                load_once(record + ((H * 4 + t) * 2 + 1) * 512 + (lane ^ (2 * t)) * 16);
        } else {
            h.q[t] = load_once(record + (H * 4 + t) * 512 + (lane ^ (2 * t)) * 16);
        }
    }
    if (BITS == 5) h.more[0] = load_once(record + 4096 + (H * 32 + lane) * 16);
    if (BITS == 6) {
        h.more[0] = load_once(record + 4096 + ((H * 2) * 32 + lane) * 16);
        h.more[BITS == 6] = load_once(record + 4096 + ((H * 2 + 1) * 32 + lane) * 16);
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

__device__ __forceinline__ Ends load_ends(const u8 *record, int lane) {
    const u8 *f = record + CODE_BYTES + lane * 16;
    Ends e;
#if FORMAT == Q6_K
    e.s = load_once(f);
    e.d = half_to_float(*reinterpret_cast<const u16 *>(record + CODE_BYTES + 512 + lane * 2));
#elif FORMAT == Q2_K
    e.s = load_once(f);
    const u32 both = *reinterpret_cast<const u32 *>(record + CODE_BYTES + 512 + lane * 4);
    e.d = half_to_float(u16(both));
    e.m = -half_to_float(u16(both >> 16));
#elif FORMAT == WIDE
    e.d = load_once(f + lane * 16);
    e.m = load_once(f + lane * 16 + 16);
#else
    e.d = load_once(f);
#if FORMAT == Q4_1 || FORMAT == Q5_1
    e.m = load_once(f + 512);
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

template <int ROWS>
__device__ __forceinline__ void rows_kernel(const Part &p, const uint4 *codes, const float2 *marks,
                                            u32 rows, u32 segments, const u32 *of, u32 share) {
    extern __shared__ uint4 shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    uint4 *a = shared + warp * ROWS * 20;
    float2 *scales = reinterpret_cast<float2 *>(a + ROWS * 16);
    float *partial = reinterpret_cast<float *>(shared + warps * ROWS * 20);
    admit_next();
    if (of) wait_for_inputs();
    const u32 first = of ? blockIdx.y / share : blockIdx.y * ROWS;
    const u64 matrix = of ? of[blockIdx.y] : 0;
    const u32 last = of ? first : rows - 1;

    bool waited = false;
    for (u32 j = warp; j < segments; j += warps) {
        const u8 *record =
            p.w + ((matrix * groups_of(p.height) + p.group) * segments + j) * RECORD_BYTES;
        Half halves[2];
        load_half(halves[0], record, 0, lane);
        load_half(halves[1], record, 1, lane);
        const Ends ends = load_ends(record, lane);
        if (!waited) wait_for_inputs();
        waited = true;
        __syncwarp();
#pragma unroll
        for (int i = lane; i < ROWS * 16; i += 32) {
            const u64 row = min(first + i / 16, last);
            a[i] = codes[(row * segments + j) * 16 + i % 16];
        }
#pragma unroll
        for (int i = lane; i < ROWS * 8; i += 32) {
            const u64 row = min(first + i / 8, last);
            scales[i] = marks[(row * segments + j) * 8 + i % 8];
        }
        __syncwarp();
        float segment[ROWS];
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
                Sums i = {MAGIC_BITS, TWO_SCALES ? MAGIC_BITS : 0, MAGIC_BITS, MAGIC_BITS};
#pragma unroll
                for (int t = 0; t < 4; t++) {
                    const uint2 v =
                        reinterpret_cast<const uint2 *>(a + r * 16 + (b / 2) * 4 + t)[b % 2];
                    i.low = __dp4a(int(word[t].low), int(v.x), i.low);
                    i.high = __dp4a(int(word[t].high), int(v.y), i.high);
                    if (TWO_MINS) {
                        i.ones_low = __dp4a(int(ONES), int(v.x), i.ones_low);
                        i.ones_high = __dp4a(int(ONES), int(v.y), i.ones_high);
                    }
                }
                if (!TWO_SCALES) i.low += i.high;
                segment[r] = end_block(end, i, scales[r * 8 + b], segment[r]);
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) partial[(j * ROWS + r) * 32 + lane] = segment[r];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < ROWS * 32; i += blockDim.x) {
        const u32 out = p.group * 32 + i % 32, row = blockIdx.y * ROWS + i / 32;
        if (out >= p.height || row >= rows) continue;
        float sum = 0.0f;
        for (u32 j = 0; j < segments; j++) sum = sum + partial[j * ROWS * 32 + i];
        p.y[u64(row) * p.height + out] = sum;
    }
}

#define ROWS_KERNEL(ROWS)                                                                         \
    extern "C" __global__ void __launch_bounds__(512) matmul_rows_##ROWS(                         \
        PARTS, const uint4 *codes, const float2 *marks, u32 rows, u32 segments, const u32 *of,    \
        u32 share) {                                                                              \
        const Part part = part_of(w0, w1, w2, y0, y1, y2, height0, height1, height2, 1);          \
        rows_kernel<ROWS>(part, codes, marks, rows, segments, of, share);                         \
    }

ROWS_KERNEL(1)
ROWS_KERNEL(2)
ROWS_KERNEL(3)
ROWS_KERNEL(4)
