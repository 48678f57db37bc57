// matmul_floats: y[r, n] = sum over k of x[r, k] * w[n, k], for w of plain numbers (ELEMENT bytes:
// F32, F16 or BF16).
//
// w: [group of 32 outputs][k / 4][output][k % 4], zeros past the ends. Grid (groups, sets of ROWS
// rows); a block's warps share out the segments of 256 inputs, a lane is an output. Row r reads
// row from[r] of x and matrix of[r] with lists (ROWS is 1 then). Shared memory: 256 * ROWS floats
// per warp, then segments * ROWS * 32 floats. Products past a row's end are of zeros, which add
// nothing.
// matmul_floats_split_N: for matrices of few outputs: a block has one segment and N rows, shared out
// among its warps (1 or 4), grid (segments * groups, blocks of rows); whichever warp comes last of a
// group and its rows adds up, in order, what all left in `partials` (segments * 32 floats a row).
// tickets: a zero for each group and warp's rows, zero again afterwards. Shared memory: N rows of 1024
// bytes, then 2048 fours.
// order: one ascending fma chain per segment, segments added ascending      bound: weight bytes
// twin: law::dot_floats
#include "base.cuh"

#if FORMAT == 8
typedef float4 Four;
__device__ __forceinline__ float4 widen(Four v) { return v; }
#else
typedef uint2 Four;
__device__ __forceinline__ float widen_one(u32 bits) {
#if FORMAT == 9
    return half_to_float(u16(bits));
#else
    return bfloat_to_float(u16(bits));
#endif
}
__device__ __forceinline__ float4 widen(Four v) {
    return make_float4(widen_one(v.x & 0xffff), widen_one(v.x >> 16), widen_one(v.y & 0xffff),
                       widen_one(v.y >> 16));
}
#endif

// The rows of a set, from row `first` on, into shared memory: one segment.
template <int ROWS>
__device__ __forceinline__ void fetch_rows(float4 *own, const float *x, u32 first, u32 rows, u32 cols,
                                           u32 j, u32 lane, const u32 *from) {
    // Everything is under way before anything is put down.
    float v[ROWS][8];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const u32 n = min(first + r, rows - 1);
        const float *row = x + u64(from ? from[n] : n) * cols + j * 256 + lane;
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            v[r][k] = j * 256 + lane + k * 32 < cols ? row[k * 32] : 0.0f;
        }
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float *to = reinterpret_cast<float *>(own + r * 64) + lane;
#pragma unroll
        for (u32 k = 0; k < 8; k++) to[k * 32] = v[r][k];
    }
    __syncwarp();
}

// One segment of a lane's output for ROWS rows. Calls `ready` once, before the rows are read.
template <int ROWS, class Ready>
__device__ __forceinline__ void one_segment(float (&segment)[ROWS], const Four *w, const float4 *own,
                                            u32 start, u32 count, Ready ready) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) segment[r] = 0.0f;
    // Weights of a batch are under way together.
    constexpr int BATCH = ROWS == 1 ? 32 : 16;
    for (u32 i = 0; i < count; i += BATCH) {
        Four batch[BATCH];
#pragma unroll
        for (int n = 0; n < BATCH; n++) batch[n] = w[u64(start + min(i + n, count - 1)) * 32];
        if (i == 0) ready();
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            if (i + n >= count) break;
            const float4 v = widen(batch[n]);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const float4 p = own[r * 64 + i + n];
                segment[r] = __fmaf_rn(v.x, p.x, segment[r]);
                segment[r] = __fmaf_rn(v.y, p.y, segment[r]);
                segment[r] = __fmaf_rn(v.z, p.z, segment[r]);
                segment[r] = __fmaf_rn(v.w, p.w, segment[r]);
            }
        }
    }
}

// Adds up what the segments left and writes it, by `threads` threads.
template <int ROWS>
__device__ __forceinline__ void add_up(const float *partial, float *y, u32 group, u32 first, u32 rows,
                                       u32 height, u32 segments, u32 threads) {
#pragma unroll 4
    for (u32 i = threadIdx.x % threads; i < ROWS * 32; i += threads) {
        const u32 out = group * 32 + i % 32, r = first + i / 32;
        if (out >= height || r >= rows) continue;
        float sum = 0.0f;
        // What is added is under way together.
        constexpr u32 BATCH = 12;
        for (u32 j = 0; j < segments; j += BATCH) {
            float terms[BATCH];
#pragma unroll
            for (u32 n = 0; n < BATCH; n++) {
                terms[n] = partial[min(j + n, segments - 1) * ROWS * 32 + i];
            }
#pragma unroll
            for (u32 n = 0; n < BATCH; n++) {
                if (j + n < segments) sum = sum + terms[n];
            }
        }
        y[u64(r) * height + out] = sum;
    }
}

template <int ROWS>
__device__ __forceinline__ void floats(const Four *w, const float *x, float *y, u32 rows, u32 height,
                                       u32 cols, const u32 *from, const u32 *of) {
    extern __shared__ float4 shared[];
    admit_next();
    if (from || of) wait_for_inputs();
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const u32 segments = (cols + 255) / 256, fours = (cols + 3) / 4, first = blockIdx.y * ROWS;
    const u64 matrix = of ? of[first] : 0;
    float4 *own = shared + warp * ROWS * 64;
    float *partial = reinterpret_cast<float *>(shared + warps * ROWS * 64);
    w += (matrix * gridDim.x + blockIdx.x) * fours * 32 + lane;
    for (u32 j = warp; j < segments; j += warps) {
        const u32 start = j * 64, count = min(64u, fours - start);
        float segment[ROWS];
        one_segment<ROWS>(segment, w, own, start, count, [&] {
            wait_for_inputs();
            fetch_rows<ROWS>(own, x, first, rows, cols, j, lane, from);
        });
#pragma unroll
        for (int r = 0; r < ROWS; r++) partial[(j * ROWS + r) * 32 + lane] = segment[r];
    }
    __syncthreads();
    add_up<ROWS>(partial, y, blockIdx.x, first, rows, height, segments, blockDim.x);
}

__device__ __forceinline__ void copy_four(Four *to, const Four *from) {
    const u32 at = u32(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(sizeof(Four))
                 : "memory");
}

// `weights` has room for a segment, `own` for the rows of one warp.
template <int ROWS>
__device__ __forceinline__ void split(const Four *w, const float *x, float *y, float *partials,
                                      u32 *tickets, u32 rows, u32 height, u32 cols, u32 set,
                                      Four *weights, float4 *own) {
    admit_next();
    const u32 lane = threadIdx.x % 32, segments = (cols + 255) / 256, fours = (cols + 3) / 4;
    const u32 group = blockIdx.x / segments, j = blockIdx.x % segments, first = set * ROWS;
    const u32 place = set * (gridDim.x / segments) + group;
    const u32 start = j * 64, count = min(64u, fours - start);
    float *partial = partials + u64(place) * segments * ROWS * 32;
    w += (u64(group) * fours + start) * 32;
    // A lone warp runs short loops: long ones would wait for their instructions.
#pragma unroll 4
    for (u32 i = threadIdx.x; i < count * 32; i += blockDim.x) copy_four(weights + i, w + i);
    asm volatile("cp.async.commit_group;" ::: "memory");
    wait_for_inputs();
    const bool works = first < rows;
    if (works) fetch_rows<ROWS>(own, x, first, rows, cols, j, lane, nullptr);
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    if (!works) return;
    float segment[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) segment[r] = 0.0f;
#pragma unroll 2
    for (u32 i = 0; i < count; i++) {
        const float4 v = widen(weights[i * 32 + lane]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float4 p = own[r * 64 + i];
            segment[r] = __fmaf_rn(v.x, p.x, segment[r]);
            segment[r] = __fmaf_rn(v.y, p.y, segment[r]);
            segment[r] = __fmaf_rn(v.z, p.z, segment[r]);
            segment[r] = __fmaf_rn(v.w, p.w, segment[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) partial[(j * ROWS + r) * 32 + lane] = segment[r];
    __threadfence();
    __syncwarp();
    u32 before = 0;
    if (lane == 0) before = atomicAdd(&tickets[place], 1);
    if (__shfl_sync(~0u, before, 0) + 1 < segments) return;
    __threadfence();
    add_up<ROWS>(partial, y, group, first, rows, height, segments, 32);
    if (lane == 0) tickets[place] = 0;
}

#define FLOATS_KERNEL(ROWS)                                                                       \
    extern "C" __global__ void __launch_bounds__(352) matmul_floats_##ROWS(                       \
        const Four *w, const float *x, float *y, u32 rows, u32 height, u32 cols, const u32 *from, \
        const u32 *of) {                                                                          \
        floats<ROWS>(w, x, y, rows, height, cols, from, of);                                      \
    }

FLOATS_KERNEL(1)
FLOATS_KERNEL(8)

#define SPLIT_KERNEL(NAME, ROWS, WARPS)                                                           \
    extern "C" __global__ void __launch_bounds__(32 * WARPS) NAME(                                \
        const Four *w, const float *x, float *y, float *partials, u32 *tickets, u32 rows,         \
        u32 height, u32 cols) {                                                                   \
        extern __shared__ float4 shared[];                                                        \
        const u32 warp = threadIdx.x / 32;                                                        \
        split<ROWS>(w, x, y, partials, tickets, rows, height, cols, blockIdx.y * WARPS + warp,    \
                    reinterpret_cast<Four *>(shared + WARPS * ROWS * 64),                         \
                    shared + warp * ROWS * 64);                                                   \
    }

SPLIT_KERNEL(matmul_floats_split_1, 1, 1)
SPLIT_KERNEL(matmul_floats_split_8, 2, 4)
SPLIT_KERNEL(matmul_floats_split_32, 8, 4)
