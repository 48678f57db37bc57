// base: names of integers, half floats without headers, and streaming loads.
//
// Everything is compiled with --fmad=false and without fast-math: an operation is what it says,
// and a fused multiply-add is written __fmaf_rn.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ float half_to_float(u16 h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

// Rounded to nearest, ties to even.
__device__ __forceinline__ u16 float_to_half(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

__device__ __forceinline__ float bfloat_to_float(u16 b) {
    return __uint_as_float(u32(b) << 16);
}

// Sixteen bytes that are read once: they do not displace what L1 holds.
__device__ __forceinline__ uint4 load_once(const void *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

__device__ __forceinline__ u32 part(const uint4 &v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Byte i of w as a float, through the bit pattern of 2^23 + byte.
__device__ __forceinline__ float byte_to_float(u32 w, int i) {
    return __uint_as_float(__byte_perm(w, 0x4B000000u, 0x7440 + i)) - 8388608.0f;
}

// Kernels are launched while the one before still runs: lets the next one do the same.
__device__ __forceinline__ void admit_next() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits for everything that was launched before. Only weights, which no kernel of a step writes,
// may be read without it, and every kernel waits, so that waiting for one is waiting for all.
__device__ __forceinline__ void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void begin() {
    admit_next();
    wait_for_inputs();
}
