//! Sixteen lanes at a time: the vocabulary in which kernels are written once.
//!
//! A lane is a different *output*: lanes never mix inside a chain of additions, so a kernel's
//! bits do not depend on how many lanes the hardware has. Every operation is exactly rounded (or
//! exact), so all implementors agree bit for bit.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod plain;

/// Number of lanes of every implementor.
pub(crate) const LANES: usize = 16;

/// Sixteen floats, sixteen integers, or sixteen groups of four bytes.
///
/// # Safety
///
/// All methods require the instructions of the implementor: they may be called only below a
/// function with its target features, which [`Isa`](crate::Isa) hands out after detection.
/// Pointers must be valid for the sixteen elements that are read or written; no alignment is
/// required.
pub(crate) trait Lanes: Copy + 'static {
    /// Sixteen `f32`.
    type F: Copy;
    /// Sixteen `i32`.
    type I: Copy;
    /// Sixteen lanes of four bytes.
    type B: Copy;

    /// What [`dot_signed`](Self::dot_signed) adds too much, as a multiple of the sum of the
    /// activation bytes.
    const SIGNED_EXCESS: i32;
    /// Most rows a matrix kernel keeps in registers.
    const TILE: usize;

    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn load(p: *const f32) -> Self::F;
    unsafe fn store(p: *mut f32, x: Self::F);
    /// Sixteen IEEE half floats.
    unsafe fn load_f16(p: *const u16) -> Self::F;
    /// Sixteen bfloat16.
    unsafe fn load_bf16(p: *const u16) -> Self::F;
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// `a · b + c`, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The sum of all lanes: lane `l` with `l + 8`, then `l + 4`, `l + 2`, `l + 1`.
    unsafe fn sum(x: Self::F) -> f32;

    unsafe fn splat_i(x: i32) -> Self::I;
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I;
    /// The low 32 bits of the product.
    unsafe fn mul_i(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn to_f(x: Self::I) -> Self::F;
    /// Sixteen bytes, sign-extended.
    unsafe fn load_i8(p: *const i8) -> Self::I;
    /// Sixteen bytes, zero-extended.
    unsafe fn load_u8(p: *const u8) -> Self::I;
    /// `(x >> by) & mask`.
    unsafe fn field_i<const BY: u32>(x: Self::I, mask: i32) -> Self::I;
    /// `x`, with `bit` set in every lane whose bit of `lanes` is set.
    unsafe fn set_bit(x: Self::I, lanes: u16, bit: i32) -> Self::I;
    /// `table[x]`; every lane below `table.len()`, which is 16, 32, 64 or 256.
    unsafe fn pick(table: &'static [f32], x: Self::I) -> Self::F;

    unsafe fn load_b(p: *const u8) -> Self::B;
    /// `(x >> by) & mask` for every byte, `by < 8`.
    unsafe fn field<const BY: u32>(x: Self::B, mask: u8) -> Self::B;
    /// `((x >> by) & mask) << up` for every byte; nothing may be shifted out.
    unsafe fn field_up<const BY: u32, const UP: u32>(x: Self::B, mask: u8) -> Self::B;
    unsafe fn or(a: Self::B, b: Self::B) -> Self::B;
    /// `x ^ 128` for every byte: from an unsigned byte to the signed one that is 128 less.
    unsafe fn flip(x: Self::B) -> Self::B;
    /// `table[x]` for every byte; all below sixteen.
    unsafe fn look_up(x: Self::B, table: &[i8; 16]) -> Self::B;
    /// `acc + Σ w[i] · a[i]` over each lane's four bytes; `w` unsigned and at most 127, `a` four
    /// signed bytes, the first in the low bits, none of them −128.
    unsafe fn dot(acc: Self::I, w: Self::B, a: i32) -> Self::I;
    /// Likewise with signed `w`, plus [`SIGNED_EXCESS`](Self::SIGNED_EXCESS) · `Σ a[i]`.
    unsafe fn dot_signed(acc: Self::I, w: Self::B, a: i32) -> Self::I;
}
