//! Lanes without special instructions.
#![expect(clippy::undocumented_unsafe_blocks, reason = "each is the trait's contract: see `Lanes`")]

use half::{bf16, f16};

use super::{LANES, Lanes};

/// Arrays of numbers; runs anywhere.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

impl Lanes for Plain {
    type F = [f32; LANES];
    type I = [i32; LANES];
    type B = [[u8; 4]; LANES];

    const SIGNED_EXCESS: i32 = 0;
    const TILE: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::F {
        [x; LANES]
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::F {
        unsafe { p.cast::<Self::F>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(p: *mut f32, x: Self::F) {
        unsafe { p.cast::<Self::F>().write_unaligned(x) }
    }

    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> Self::F {
        let bits = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
        bits.map(|b| f16::from_bits(b).to_f32_const())
    }

    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> Self::F {
        let bits = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
        bits.map(|b| bf16::from_bits(b).to_f32())
    }

    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        std::array::from_fn(|l| a[l] + b[l])
    }

    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        std::array::from_fn(|l| a[l] * b[l])
    }

    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        std::array::from_fn(|l| a[l].mul_add(b[l], c[l]))
    }

    #[inline(always)]
    unsafe fn sum(mut x: Self::F) -> f32 {
        let mut half = LANES / 2;
        while half > 0 {
            for l in 0..half {
                x[l] += x[l + half];
            }
            half /= 2;
        }
        x[0]
    }

    #[inline(always)]
    unsafe fn splat_i(x: i32) -> Self::I {
        [x; LANES]
    }

    #[inline(always)]
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|l| a[l].wrapping_add(b[l]))
    }

    #[inline(always)]
    unsafe fn mul_i(a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|l| a[l].wrapping_mul(b[l]))
    }

    #[inline(always)]
    unsafe fn to_f(x: Self::I) -> Self::F {
        x.map(|i| i as f32)
    }

    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> Self::I {
        unsafe { p.cast::<[i8; LANES]>().read_unaligned() }.map(i32::from)
    }

    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> Self::I {
        unsafe { p.cast::<[u8; LANES]>().read_unaligned() }.map(i32::from)
    }

    #[inline(always)]
    unsafe fn field_i<const BY: u32>(x: Self::I, mask: i32) -> Self::I {
        x.map(|x| (x >> BY) & mask)
    }

    #[inline(always)]
    unsafe fn set_bit(x: Self::I, lanes: u16, bit: i32) -> Self::I {
        std::array::from_fn(|l| if (lanes >> l) & 1 == 1 { x[l] | bit } else { x[l] })
    }

    #[inline(always)]
    unsafe fn pick(table: &'static [f32], x: Self::I) -> Self::F {
        x.map(|x| table[x as usize])
    }

    #[inline(always)]
    unsafe fn load_b(p: *const u8) -> Self::B {
        unsafe { p.cast::<Self::B>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn field<const BY: u32>(x: Self::B, mask: u8) -> Self::B {
        x.map(|lane| lane.map(|b| (b >> BY) & mask))
    }

    #[inline(always)]
    unsafe fn field_up<const BY: u32, const UP: u32>(x: Self::B, mask: u8) -> Self::B {
        x.map(|lane| lane.map(|b| ((b >> BY) & mask) << UP))
    }

    #[inline(always)]
    unsafe fn or(a: Self::B, b: Self::B) -> Self::B {
        std::array::from_fn(|l| std::array::from_fn(|i| a[l][i] | b[l][i]))
    }

    #[inline(always)]
    unsafe fn flip(x: Self::B) -> Self::B {
        x.map(|lane| lane.map(|b| b ^ 128))
    }

    #[inline(always)]
    unsafe fn look_up(x: Self::B, table: &[i8; 16]) -> Self::B {
        x.map(|lane| lane.map(|b| table[usize::from(b & 15)] as u8))
    }

    #[inline(always)]
    unsafe fn dot(acc: Self::I, w: Self::B, a: i32) -> Self::I {
        let a = a.to_le_bytes().map(|b| i32::from(b as i8));
        std::array::from_fn(|l| {
            (0..4).fold(acc[l], |sum, i| sum.wrapping_add(i32::from(w[l][i]) * a[i]))
        })
    }

    #[inline(always)]
    unsafe fn dot_signed(acc: Self::I, w: Self::B, a: i32) -> Self::I {
        let a = a.to_le_bytes().map(|b| i32::from(b as i8));
        std::array::from_fn(|l| {
            (0..4).fold(acc[l], |sum, i| sum.wrapping_add(i32::from(w[l][i] as i8) * a[i]))
        })
    }
}
