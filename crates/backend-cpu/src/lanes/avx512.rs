//! Lanes as AVX-512 registers, with VNNI.
#![expect(clippy::undocumented_unsafe_blocks, reason = "each is the trait's contract: see `Lanes`")]

use std::arch::x86_64::*;

use super::Lanes;
use super::avx2::sum8;

/// Needs `avx512f`, `avx512bw`, `avx512vl`, `avx512dq` and `avx512vnni`, and all of
/// [`Avx2`](super::avx2::Avx2).
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

impl Lanes for Avx512 {
    type F = __m512;
    type I = __m512i;
    type B = __m512i;

    const SIGNED_EXCESS: i32 = 128;
    const TILE: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::F {
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::F {
        unsafe { _mm512_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn store(p: *mut f32, x: Self::F) {
        unsafe { _mm512_storeu_ps(p, x) }
    }

    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> Self::F {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> Self::F {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn sum(x: Self::F) -> f32 {
        unsafe { sum8(_mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x))) }
    }

    #[inline(always)]
    unsafe fn splat_i(x: i32) -> Self::I {
        unsafe { _mm512_set1_epi32(x) }
    }

    #[inline(always)]
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn mul_i(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm512_mullo_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn to_f(x: Self::I) -> Self::F {
        unsafe { _mm512_cvtepi32_ps(x) }
    }

    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> Self::I {
        unsafe { _mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast())) }
    }

    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> Self::I {
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())) }
    }

    #[inline(always)]
    unsafe fn field_i<const BY: u32>(x: Self::I, mask: i32) -> Self::I {
        unsafe { _mm512_and_si512(_mm512_srli_epi32::<BY>(x), _mm512_set1_epi32(mask)) }
    }

    #[inline(always)]
    unsafe fn set_bit(x: Self::I, lanes: u16, bit: i32) -> Self::I {
        unsafe { _mm512_mask_or_epi32(x, lanes, x, _mm512_set1_epi32(bit)) }
    }

    /// Small tables are permuted from registers.
    #[inline(always)]
    unsafe fn pick(table: &'static [f32], x: Self::I) -> Self::F {
        unsafe {
            let p = table.as_ptr();
            match table.len() {
                16 => _mm512_permutexvar_ps(x, _mm512_loadu_ps(p)),
                32 => _mm512_permutex2var_ps(_mm512_loadu_ps(p), x, _mm512_loadu_ps(p.add(16))),
                64 => {
                    let (a, b) = (_mm512_loadu_ps(p), _mm512_loadu_ps(p.add(16)));
                    let (c, d) = (_mm512_loadu_ps(p.add(32)), _mm512_loadu_ps(p.add(48)));
                    let low = _mm512_permutex2var_ps(a, x, b);
                    let high = _mm512_permutex2var_ps(c, x, d);
                    let upper = _mm512_test_epi32_mask(x, _mm512_set1_epi32(32));
                    _mm512_mask_blend_ps(upper, low, high)
                }
                _ => _mm512_i32gather_ps::<4>(x, p),
            }
        }
    }

    #[inline(always)]
    unsafe fn load_b(p: *const u8) -> Self::B {
        unsafe { _mm512_loadu_si512(p.cast()) }
    }

    #[inline(always)]
    unsafe fn field<const BY: u32>(x: Self::B, mask: u8) -> Self::B {
        unsafe { _mm512_and_si512(_mm512_srli_epi16::<BY>(x), _mm512_set1_epi8(mask as i8)) }
    }

    #[inline(always)]
    unsafe fn field_up<const BY: u32, const UP: u32>(x: Self::B, mask: u8) -> Self::B {
        unsafe { _mm512_slli_epi16::<UP>(Self::field::<BY>(x, mask)) }
    }

    #[inline(always)]
    unsafe fn or(a: Self::B, b: Self::B) -> Self::B {
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn flip(x: Self::B) -> Self::B {
        unsafe { _mm512_xor_si512(x, _mm512_set1_epi8(-128)) }
    }

    #[inline(always)]
    unsafe fn look_up(x: Self::B, table: &[i8; 16]) -> Self::B {
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, x)
        }
    }

    #[inline(always)]
    unsafe fn dot(acc: Self::I, w: Self::B, a: i32) -> Self::I {
        unsafe { _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(a)) }
    }

    /// The instruction takes unsigned weights: 128 is added to each, hence the excess.
    #[inline(always)]
    unsafe fn dot_signed(acc: Self::I, w: Self::B, a: i32) -> Self::I {
        unsafe {
            let unsigned = _mm512_xor_si512(w, _mm512_set1_epi8(-128));
            _mm512_dpbusd_epi32(acc, unsigned, _mm512_set1_epi32(a))
        }
    }
}
