// matmul_plain: y[r, n] = sum over k of x[r, k] * w[n, k], for quantised w; the twin of the fast
// kernels.
//
// One thread per output. Row r reads row from[r] of the codes (r itself without `from`) and
// multiplies with matrix of[r] of the stack (the first without `of`).
// order: the law of backend-cpu reference::law      bound: none      twin: law::dot
#include "record.cuh"

extern "C" __global__ void matmul_plain(const u8 *w, const u8 *codes, const float2 *marks, float *y,
                                        u32 rows, u32 height, u32 segments, const u32 *from,
                                        const u32 *of) {
    begin();
    const u64 n = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (n >= u64(rows) * height) return;
    const u32 r = u32(n / height), out = u32(n % height);
    const u64 source = from ? from[r] : r, matrix = of ? of[r] : 0;
    const u64 groups = (height + 31) / 32;
    float sum = 0.0f;
    for (u32 j = 0; j < segments; j++) {
        const u8 *record = w + ((matrix * groups + out / 32) * segments + j) * RECORD_BYTES;
        const signed char *a =
            reinterpret_cast<const signed char *>(codes + (source * segments + j) * 256);
        float segment = 0.0f;
        for (int b = 0; b < 8; b++) {
            const Factors f = factors_at(record, int(out % 32), b);
            int total = 0, mins = 0;
            for (int k = 0; k < 32; k++) {
                const int at = b * 32 + k;
                total += f.scale[k / 16] * code_at(record, int(out % 32), b, k) * int(a[at]);
                mins += f.min[k / 16] * int(a[at]);
            }
            float u = f.d * float(total);
            if (HAS_MINS) u = __fmaf_rn(f.m, float(mins), u);
            segment = __fmaf_rn(marks[(source * segments + j) * 8 + b].x, u, segment);
        }
        sum = sum + segment;
    }
    y[u64(r) * height + out] = sum;
}
