// kv_move: entries first.. of a slot to a packed list, or from there to their cells; kv_fork: entries
// of a slot to the same places of another. One side, keys or values, at a time.
//
// One thread per four bytes; `words` is the number of four bytes in a cell, `count` that of cells in
// a region. In the list an entry has `entry_words`, `head_words` for each head, of which this side's
// begin at `offset`.
// order: none      bound: memory      twin: Transport of the CPU
#include "base.cuh"

struct Word {
    u64 entry;
    u32 head, at;
};

__device__ __forceinline__ Word word_of(u64 n, u32 heads, u32 words) {
    return {n / (heads * words), u32(n / words % heads), u32(n % words)};
}

__device__ __forceinline__ u64 place_of(const Word &w, u32 slot, u32 first, u32 heads, u32 words,
                                        u32 count) {
    return ((u64(slot) * heads + w.head) * count + (first + w.entry) % count) * words + w.at;
}

extern "C" __global__ void kv_move(u32 *cells, u32 *list, u32 slot, u32 first, u32 entries, u32 heads,
                                   u32 words, u32 count, u32 entry_words, u32 head_words, u32 offset,
                                   u32 is_import) {
    begin();
    const u64 n = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    const Word w = word_of(n, heads, words);
    if (w.entry >= entries) return;
    u32 &cell = cells[place_of(w, slot, first, heads, words, count)];
    u32 &packed = list[w.entry * entry_words + w.head * head_words + offset + w.at];
    if (is_import) {
        cell = packed;
    } else {
        packed = cell;
    }
}

extern "C" __global__ void kv_fork(u32 *cells, u32 from, u32 to, u32 first, u32 entries, u32 heads,
                                   u32 words, u32 count) {
    begin();
    const u64 n = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    const Word w = word_of(n, heads, words);
    if (w.entry >= entries) return;
    cells[place_of(w, to, first, heads, words, count)] =
        cells[place_of(w, from, first, heads, words, count)];
}
