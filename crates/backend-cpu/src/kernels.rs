//! The kernels of one instruction set, chosen once when the device is made.

pub(crate) mod attend;
pub(crate) mod bound;
pub(crate) mod matmul;
pub(crate) mod quantise;
pub(crate) mod rows;

use crate::Isa;
use crate::lanes::plain::Plain;
#[cfg(target_arch = "x86_64")]
use crate::lanes::{avx2::Avx2, avx512::Avx512};

use attend::{Partial, Stretch};
use bound::BoundJob;
use matmul::Job;
use quantise::RowCodes;

/// `(x, weight if there is one, eps, out)`.
type NormKernel = unsafe fn(&[f32], Option<&[f32]>, f32, &mut [f32]);

/// Kernels compiled for one instruction set.
///
/// # Safety
/// They may be called only where that instruction set was detected, which is when
/// [`Kernels::of`] was given a detected [`Isa`]. Each function's own contract is in its module.
pub(crate) struct Kernels {
    pub(crate) matmul: unsafe fn(&Job<'_>),
    pub(crate) bound: unsafe fn(&BoundJob<'_>),
    pub(crate) quantise: unsafe fn(&[f32], RowCodes<'_>),
    pub(crate) norm: NormKernel,
    pub(crate) gelu_mul: unsafe fn(&[f32], &[f32], &mut [f32]),
    pub(crate) softcap: unsafe fn(&mut [f32], f32),
    pub(crate) rotate: unsafe fn(&mut [f32], &[f32], &[f32]),
    pub(crate) attend: unsafe fn(&Stretch<'_>) -> Vec<Partial>,
}

/// Instantiates every kernel below functions with the given target features.
macro_rules! kernels {
    ($module:ident, $lanes:ty $(, $features:literal)?) => {
        mod $module {
            use super::*;

            pub(super) const KERNELS: Kernels =
                Kernels { matmul, bound, quantise, norm, gelu_mul, softcap, rotate, attend };

            $(#[target_feature(enable = $features)])?
            unsafe fn matmul(job: &Job<'_>) {
                // SAFETY: passed on.
                unsafe { super::matmul::matmul::<$lanes>(job) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn bound(job: &BoundJob<'_>) {
                // SAFETY: passed on.
                unsafe { super::bound::bound::<$lanes>(job) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn quantise(x: &[f32], out: RowCodes<'_>) {
                super::quantise::quantise(x, out)
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn norm(x: &[f32], w: Option<&[f32]>, eps: f32, out: &mut [f32]) {
                // SAFETY: passed on.
                unsafe { rows::norm::<$lanes>(x, w, eps, out) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn gelu_mul(gate: &[f32], up: &[f32], out: &mut [f32]) {
                rows::gelu_mul(gate, up, out)
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn softcap(x: &mut [f32], cap: f32) {
                rows::softcap(x, cap)
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn rotate(x: &mut [f32], sin: &[f32], cos: &[f32]) {
                rows::rotate(x, sin, cos)
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn attend(stretch: &Stretch<'_>) -> Vec<Partial> {
                // SAFETY: passed on.
                unsafe { super::attend::attend::<$lanes>(stretch) }
            }
        }
    };
}

kernels!(plain, Plain);
#[cfg(target_arch = "x86_64")]
kernels!(avx2, Avx2, "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
kernels!(avx512, Avx512, "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni");

impl Kernels {
    /// The kernels of an instruction set.
    pub(crate) fn of(isa: Isa) -> &'static Self {
        match isa {
            Isa::Plain => &plain::KERNELS,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &avx2::KERNELS,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => &avx512::KERNELS,
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => unreachable!("not detected on this architecture"),
        }
    }
}
