// group: choices of experts sorted by expert and cut into tiles.
//
// One block of 1024. choices: n experts below `count` (at most 1024), `k` per row. Place p of the
// sorted list comes from row from[p]; place[c] is where choice c went. tiles: `most` of them, those
// that are not needed have no rows. Shared memory: 3 * count u32.
// order: places within an expert come as they fall; rows do not see their company
// bound: latency      twin: Pairs::of of the CPU
#include "base.cuh"

struct Tile {
    u32 matrix, first, count, unused;
};

extern "C" __global__ void __launch_bounds__(1024)
    group(const u32 *choices, u32 *from, u32 *place, Tile *tiles, u32 n, u32 k, u32 count, u32 size,
          u32 most) {
    begin();
    extern __shared__ u32 shared[];
    u32 *rows = shared, *starts = shared + count, *cursor = shared + 2 * count;
    __shared__ u32 sums[2][1024];
    const u32 i = threadIdx.x;
    if (i < count) rows[i] = cursor[i] = 0;
    __syncthreads();
    for (u32 c = i; c < n; c += 1024) atomicAdd(&rows[choices[c]], 1);
    __syncthreads();
    // Inclusive sums of rows and of tiles, by doubling.
    u32 own_rows = i < count ? rows[i] : 0, own_tiles = (own_rows + size - 1) / size;
    u32 all_rows = own_rows, all_tiles = own_tiles;
    for (u32 d = 1; d < 1024; d *= 2) {
        sums[0][i] = all_rows;
        sums[1][i] = all_tiles;
        __syncthreads();
        if (i >= d) {
            all_rows += sums[0][i - d];
            all_tiles += sums[1][i - d];
        }
        __syncthreads();
    }
    if (i < count) {
        starts[i] = all_rows - own_rows;
        for (u32 t = 0; t < own_tiles; t++) {
            const u32 first = t * size;
            tiles[all_tiles - own_tiles + t] = {i, starts[i] + first, min(size, own_rows - first), 0};
        }
    }
    sums[0][i] = all_tiles;
    __syncthreads();
    for (u32 t = sums[0][1023] + i; t < most; t += 1024) tiles[t] = {0, 0, 0, 0};
    for (u32 c = i; c < n; c += 1024) {
        const u32 e = choices[c], p = starts[e] + atomicAdd(&cursor[e], 1);
        from[p] = c / k;
        place[c] = p;
    }
}
