// view: what a row sees of its slot, and stored elements.
#pragma once
#include "math.cuh"
#include "rotated.cuh"

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

// FORMAT says how both sides are stored: six times the CODE of the keys (see rotated.cuh), plus that
// of the values.
constexpr int KEYS = FORMAT / 6, VALUES = FORMAT % 6;

// Bytes of a cell.
template <int CODE>
__device__ __forceinline__ u32 cell_bytes(u32 width) {
    if (CODE < 2) return width * (CODE == 0 ? 4 : 2);
    return width * bits_of(CODE) / 8 + (width + 255) / 256 * 4;
}

// Number c of a cell.
template <int CODE>
__device__ __forceinline__ float number_of(const u8 *cell, const float *levels, u32 width, u32 c) {
    if (CODE == 0) return reinterpret_cast<const float *>(cell)[c];
    if (CODE == 1) return half_to_float(reinterpret_cast<const u16 *>(cell)[c]);
    const float level = levels[first_level(CODE) + code_of<CODE>(cell, width, c)];
    return level * scale_of<CODE>(cell, width, c / 256);
}
