//! Lanes as pairs of AVX2 registers, with FMA and F16C.
#![expect(clippy::undocumented_unsafe_blocks, reason = "each is the trait's contract: see `Lanes`")]

use std::arch::x86_64::*;

use super::Lanes;

/// Needs `avx2`, `fma` and `f16c`.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// Four unsigned bytes times four signed bytes, added up per 32-bit lane. Exact as long as `w` is
/// at most 128: the 16-bit sums of two products cannot saturate.
#[inline(always)]
unsafe fn dot_half(acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
    unsafe {
        let pairs = _mm256_maddubs_epi16(w, a);
        _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
    }
}

/// Eight bfloat16.
#[inline(always)]
unsafe fn bf16_half(p: *const u16) -> __m256 {
    unsafe {
        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
    }
}

/// `x`, with `bit` set in every lane whose bit of `lanes`, below 256, is set.
#[inline(always)]
unsafe fn set_bit_half(x: __m256i, lanes: u16, bit: i32) -> __m256i {
    unsafe {
        let own = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        let all = _mm256_set1_epi32(i32::from(lanes));
        let set = _mm256_cmpeq_epi32(_mm256_and_si256(all, own), own);
        _mm256_or_si256(x, _mm256_and_si256(set, _mm256_set1_epi32(bit)))
    }
}

impl Lanes for Avx2 {
    type F = [__m256; 2];
    type I = [__m256i; 2];
    type B = [__m256i; 2];

    const SIGNED_EXCESS: i32 = 0;
    const TILE: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::F {
        unsafe { [_mm256_set1_ps(x); 2] }
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::F {
        unsafe { [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))] }
    }

    #[inline(always)]
    unsafe fn store(p: *mut f32, x: Self::F) {
        unsafe {
            _mm256_storeu_ps(p, x[0]);
            _mm256_storeu_ps(p.add(8), x[1]);
        }
    }

    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> Self::F {
        unsafe {
            [
                _mm256_cvtph_ps(_mm_loadu_si128(p.cast())),
                _mm256_cvtph_ps(_mm_loadu_si128(p.add(8).cast())),
            ]
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> Self::F {
        unsafe { [bf16_half(p), bf16_half(p.add(8))] }
    }

    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }

    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }

    #[inline(always)]
    unsafe fn sum(x: Self::F) -> f32 {
        unsafe { sum8(_mm256_add_ps(x[0], x[1])) }
    }

    #[inline(always)]
    unsafe fn splat_i(x: i32) -> Self::I {
        unsafe { [_mm256_set1_epi32(x); 2] }
    }

    #[inline(always)]
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I {
        unsafe { [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])] }
    }

    #[inline(always)]
    unsafe fn mul_i(a: Self::I, b: Self::I) -> Self::I {
        unsafe { [_mm256_mullo_epi32(a[0], b[0]), _mm256_mullo_epi32(a[1], b[1])] }
    }

    #[inline(always)]
    unsafe fn to_f(x: Self::I) -> Self::F {
        unsafe { [_mm256_cvtepi32_ps(x[0]), _mm256_cvtepi32_ps(x[1])] }
    }

    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> Self::I {
        unsafe {
            let bytes = _mm_loadu_si128(p.cast());
            [_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes))]
        }
    }

    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> Self::I {
        unsafe {
            let bytes = _mm_loadu_si128(p.cast());
            [_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes))]
        }
    }

    #[inline(always)]
    unsafe fn field_i<const BY: u32>(x: Self::I, mask: i32) -> Self::I {
        unsafe {
            let (mask, by) = (_mm256_set1_epi32(mask), _mm_cvtsi32_si128(BY as i32));
            [
                _mm256_and_si256(_mm256_srl_epi32(x[0], by), mask),
                _mm256_and_si256(_mm256_srl_epi32(x[1], by), mask),
            ]
        }
    }

    #[inline(always)]
    unsafe fn set_bit(x: Self::I, lanes: u16, bit: i32) -> Self::I {
        unsafe { [set_bit_half(x[0], lanes & 0xff, bit), set_bit_half(x[1], lanes >> 8, bit)] }
    }

    #[inline(always)]
    unsafe fn pick(table: &'static [f32], x: Self::I) -> Self::F {
        unsafe {
            let p = table.as_ptr();
            [_mm256_i32gather_ps::<4>(p, x[0]), _mm256_i32gather_ps::<4>(p, x[1])]
        }
    }

    #[inline(always)]
    unsafe fn load_b(p: *const u8) -> Self::B {
        unsafe { [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(32).cast())] }
    }

    #[inline(always)]
    unsafe fn field<const BY: u32>(x: Self::B, mask: u8) -> Self::B {
        unsafe {
            let mask = _mm256_set1_epi8(mask as i8);
            let by = _mm_cvtsi32_si128(BY as i32);
            [
                _mm256_and_si256(_mm256_srl_epi16(x[0], by), mask),
                _mm256_and_si256(_mm256_srl_epi16(x[1], by), mask),
            ]
        }
    }

    #[inline(always)]
    unsafe fn field_up<const BY: u32, const UP: u32>(x: Self::B, mask: u8) -> Self::B {
        unsafe {
            let x = Self::field::<BY>(x, mask);
            let up = _mm_cvtsi32_si128(UP as i32);
            [_mm256_sll_epi16(x[0], up), _mm256_sll_epi16(x[1], up)]
        }
    }

    #[inline(always)]
    unsafe fn or(a: Self::B, b: Self::B) -> Self::B {
        unsafe { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
    }

    #[inline(always)]
    unsafe fn flip(x: Self::B) -> Self::B {
        unsafe {
            let high = _mm256_set1_epi8(-128);
            [_mm256_xor_si256(x[0], high), _mm256_xor_si256(x[1], high)]
        }
    }

    #[inline(always)]
    unsafe fn look_up(x: Self::B, table: &[i8; 16]) -> Self::B {
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            [_mm256_shuffle_epi8(table, x[0]), _mm256_shuffle_epi8(table, x[1])]
        }
    }

    #[inline(always)]
    unsafe fn dot(acc: Self::I, w: Self::B, a: i32) -> Self::I {
        unsafe {
            let a = _mm256_set1_epi32(a);
            [dot_half(acc[0], w[0], a), dot_half(acc[1], w[1], a)]
        }
    }

    #[inline(always)]
    unsafe fn dot_signed(acc: Self::I, w: Self::B, a: i32) -> Self::I {
        unsafe {
            let a = _mm256_set1_epi32(a);
            [
                dot_half(acc[0], _mm256_abs_epi8(w[0]), _mm256_sign_epi8(a, w[0])),
                dot_half(acc[1], _mm256_abs_epi8(w[1]), _mm256_sign_epi8(a, w[1])),
            ]
        }
    }
}

/// Lane `l` with `l + 4`, then `l + 2`, then `l + 1`.
#[inline(always)]
pub(super) unsafe fn sum8(x: __m256) -> f32 {
    unsafe {
        let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps::<1>(x, x)))
    }
}
