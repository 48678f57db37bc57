// embed: y[r, :] = table[token[r], :] * scale, from records.
//
// One thread per output; the table is one matrix of `height` rows and `cols` inputs.
// order: d * scale is exact, then each product is rounded, then the minimum's sum, then the scale
// bound: memory      twin: pack::decode of the CPU
#include "record.cuh"

extern "C" __global__ void embed(const u8 *table, const u32 *tokens, float *y, u32 rows, u32 cols,
                                 float scale) {
    begin();
    const u64 n = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (n >= u64(rows) * cols) return;
    const u32 token = tokens[n / cols], k = u32(n % cols), segments = (cols + 255) / 256;
    const u8 *record = table + (u64(token / 32) * segments + k / 256) * RECORD_BYTES;
    const int b = int(k % 256 / 32), half = int(k % 32 / 16);
    const Factors f = factors_at(record, int(token % 32), b);
    const float code = float(code_at(record, int(token % 32), b, int(k % 32)));
    float v = f.d * float(f.scale[half]) * code;
    if (HAS_MINS) v = v + f.m * float(f.min[half]);
    y[n] = v * scale;
}
