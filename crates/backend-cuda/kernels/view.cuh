// view: what a row sees of its slot, and stored elements.
#pragma once
#include "math.cuh"

constexpr u32 STRETCH = 128;  // positions of one partial result
constexpr u32 HIDDEN = ~0u;

// Positions run_start..run_end are entries of the same number; then `ancestors` entries at
// positions pos + 1 - ancestors ..= pos, listed from `lineage` on. Stretches are counted from
// `stretch`, and their partial results from `partial`.
struct View {
    u32 slot, pos, run_start, run_end, lineage, ancestors, stretch, partial;
};

// The entry at a position, or HIDDEN.
__device__ __forceinline__ u32 entry_at(const View &v, const u32 *lineages, u32 pos) {
    if (pos >= v.run_start && pos < v.run_end) return pos;
    const u32 first = v.pos + 1 - v.ancestors;
    if (pos >= first && pos <= v.pos) return lineages[v.lineage + pos - first];
    return HIDDEN;
}

#if FORMAT == 8
typedef float Element;
__device__ __forceinline__ float widen(Element e) { return e; }
#else
typedef u16 Element;
__device__ __forceinline__ float widen(Element e) { return half_to_float(e); }
#endif

// Eight stored elements as floats.
struct Eight {
    float v[8];
};

__device__ __forceinline__ Eight load_eight(const float *p) {
    const float4 a = reinterpret_cast<const float4 *>(p)[0];
    const float4 b = reinterpret_cast<const float4 *>(p)[1];
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

__device__ __forceinline__ Eight load_eight(const u16 *p) {
    const uint4 a = *reinterpret_cast<const uint4 *>(p);
    Eight e;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        e.v[2 * i] = half_to_float(u16(part(a, i)));
        e.v[2 * i + 1] = half_to_float(u16(part(a, i) >> 16));
    }
    return e;
}
