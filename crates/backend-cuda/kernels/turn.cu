// turn: sines and cosines of each row's rotary angles.
//
// angles: rows x 3 u32; freqs: pairs f32; axes: pairs u32 below 3. sin and cos: rows x pairs. One
// thread per pair of a row. Angles may be some millions of radians.
// order: double precision, operation by operation as the CPU's `math`: the same bits
// bound: double precision units      twin: math::sin_cos of the CPU
#include "base.cuh"

extern "C" __global__ void turn(const u32 *angles, const float *freqs, const u32 *axes, float *sin,
                                float *cos, u32 rows, u32 pairs) {
    begin();
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= u64(rows) * pairs) return;
    const u64 row = i / pairs;
    const u32 j = u32(i % pairs);
    // The published model computes the angle in single precision.
    const double x = double(float(angles[row * 3 + axes[j]]) * freqs[j]);
    // Half a turn's half in two parts: n times the first is exact for |n| below 2^20.
    const double HIGH = 1.5707963267341256, LOW = 6.077100506506192e-11;
    const double TWO_OVER_PI = 0.63661977236758134308;
    const double n = rint(x * TWO_OVER_PI);
    const double r = __fma_rn(n, -LOW, __fma_rn(n, -HIGH, x)), square = r * r;
    double s = 1.0, c = 1.0;
#pragma unroll
    for (int m = 7; m >= 1; m--) {
        const double k = m;
        s = 1.0 - __ddiv_rn(s * square, (2.0 * k) * (2.0 * k + 1.0));
        c = 1.0 - __ddiv_rn(c * square, (2.0 * k - 1.0) * (2.0 * k));
    }
    s = s * r;
    const int quarter = int((long long)(n) & 3);
    const double out_s = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
    const double out_c = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
    sin[i] = float(out_s);
    cos[i] = float(out_c);
}
