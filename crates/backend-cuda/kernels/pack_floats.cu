// pack_floats: a stored stack of plain numbers to the layout of matmul_floats.
//
// One thread per element of `rows` rows at `from`, which are rows first_row.. of the stack.
// order: none, every element has one writer      bound: memory      twin: pack::pack_floats of the CPU
#include "base.cuh"

#if FORMAT == 8
typedef u32 Element;
#else
typedef u16 Element;
#endif

// `to` starts as zeros. `from` is aligned to elements.
extern "C" __global__ void pack_floats(const Element *from, Element *to, u64 first_row, u64 rows,
                                       u32 height, u32 cols) {
    begin();
    const u64 n = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (n >= rows * cols) return;
    const u64 absolute = first_row + n / cols, matrix = absolute / height, row = absolute % height;
    const u64 k = n % cols, groups = (height + 31) / 32, fours = (cols + 3) / 4;
    to[(((matrix * groups + row / 32) * fours + k / 4) * 32 + row % 32) * 4 + k % 4] = from[n];
}
