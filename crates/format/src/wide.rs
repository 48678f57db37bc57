//! Portable code with the widest vector instructions of the machine.

/// Runs `work`, compiled once for each instruction set that is worth it.
///
/// Only what is inlined into `work` profits: mark its functions `#[inline(always)]`. The compiler
/// never fuses or reorders additions of floats, so the bits are the same everywhere.
pub fn wide<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            return avx512(work);
        }
        if is_x86_feature_detected!("avx2") {
            return avx2(work);
        }
    }
    work()
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "the compiler cannot know what the machine has")]
fn avx512<R>(work: impl FnOnce() -> R) -> R {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn inside<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
    // SAFETY: `wide` has asked the machine for each of these features.
    unsafe { inside(work) }
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "the compiler cannot know what the machine has")]
fn avx2<R>(work: impl FnOnce() -> R) -> R {
    #[target_feature(enable = "avx2")]
    fn inside<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
    // SAFETY: `wide` has asked the machine for this feature.
    unsafe { inside(work) }
}
