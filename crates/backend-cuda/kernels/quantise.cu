// quantise: rows of floats to 8-bit codes, one scale per 32.
//
// rows x cols f32, cols a multiple of 32. codes: per row and segment of 256, 16 pieces of 16
// bytes, piece h*4+t = word t (see record.cuh) of block 2h, low and high, then of block 2h+1.
// marks: per row and block {scale, sum of codes}. Blocks past the row's end are zero. One warp
// per block.
// order: row-local, no additions of floats      bound: memory      twin: law::quantise
#include "base.cuh"

constexpr u32 SMALLEST_AMAX = 27u << 23;

extern "C" __global__ void quantise(const float *x, u32 *codes, float2 *marks, u32 rows, u32 cols) {
    const u32 segments = (cols + 255) / 256, places = segments * 8;
    const u64 n = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const u32 lane = threadIdx.x % 32;
    if (n >= u64(rows) * places) return;
    const u64 row = n / places;
    const u32 block = u32(n % places), k = block * 32 + lane;
    const float v = k < cols ? x[row * cols + k] : 0.0f;

    u32 most = __float_as_uint(v) & 0x7fffffffu;
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

    int sum = code;
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    u32 word = u32(code & 255) << (8 * (lane % 4));
    word |= __shfl_xor_sync(~0u, word, 1);
    word |= __shfl_xor_sync(~0u, word, 2);
    if (lane % 4 == 0) {
        const u32 b = block % 8, t = (lane % 16) / 4, high = lane / 16;
        const u64 piece = (row * segments + block / 8) * 16 + (b / 2) * 4 + t;
        codes[piece * 4 + (b % 2) * 2 + high] = word;
    }
    if (lane == 0) marks[row * places + block] = make_float2(scale, float(sum));
}
