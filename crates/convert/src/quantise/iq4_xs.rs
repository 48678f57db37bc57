//! IQ4_XS: 256 codes that stand for sixteen levels, in groups of 32 whose scales are codes too.

use super::groups::{Groups, Search, across, nearest, nearest_level};
use super::k::LEN;
use super::{mean_square, put};

const GROUP: usize = 32;
const GROUPS: usize = LEN / GROUP;

/// One block. Codes fit the scales' codes times the scale before it is stored in 16 bits.
#[inline(always)]
pub(super) fn iq4_xs<S: Search>(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    let mut groups = Groups::<GROUP, GROUPS>::of(x);
    match importance {
        None => groups.weigh(|_, x| x * x),
        Some(importance) => {
            let spread = 2.0 * mean_square(x);
            groups.w = across(importance);
            for (w, x) in groups.w.iter_mut().zip(&groups.x) {
                for n in 0..GROUPS {
                    w[n] *= (spread + x[n] * x[n]).sqrt();
                }
            }
        }
    }
    let fit = S::levels(&groups);
    let furthest = fit
        .scale
        .iter()
        .fold(0.0_f32, |far, &scale| if scale.abs() > far.abs() { scale } else { far });
    let unit = -furthest / 32.0;
    let inverse = if unit == 0.0 { 0.0 } else { 1.0 / unit };
    let scales = fit.scale.map(|scale| nearest(inverse * scale).clamp(-32, 31));
    put(unit, out);
    put_scales(&scales, out);
    for (x, &scale) in x.chunks_exact(GROUP).zip(&scales) {
        let scale = unit * scale as f32;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let mut packed = [0_u8; GROUP / 2];
        for (i, x) in x.iter().enumerate() {
            packed[i % (GROUP / 2)] |= nearest_level(inverse * x) << (4 * (i / (GROUP / 2)));
        }
        out.extend_from_slice(&packed);
    }
}

/// The upper two bits of all scales, then their lower four.
fn put_scales(scales: &[i32; GROUPS], out: &mut Vec<u8>) {
    let (mut upper, mut lower) = (0_u16, [0_u8; GROUPS / 2]);
    for (n, scale) in scales.iter().enumerate() {
        let code = (scale + 32) as u8;
        upper |= u16::from(code >> 4) << (2 * n);
        lower[n / 2] |= (code & 0x0F) << (4 * (n % 2));
    }
    out.extend_from_slice(&upper.to_le_bytes());
    out.extend_from_slice(&lower);
}
