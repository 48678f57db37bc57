//! What every backend must agree on to code keys and values in few bits: the signs of the rotation
//! and the levels of the codes.
//!
//! A block of 256 values (a whole head, if that is a smaller power of two) is multiplied with
//! fixed signs and transformed by an orthonormal Walsh-Hadamard transform. Afterwards its values
//! are close to normally distributed whatever they were, so one set of levels, optimal for a
//! normal distribution, serves all.

/// Values that are rotated together and share a scale, where heads are that wide.
pub const ROTATED_BLOCK: usize = 256;

/// The sign of value `i` of a block before the transform: the low bit of a mixed counter, so that
/// no two columns of a model line up with the transform's own patterns.
pub const fn sign(i: usize) -> f32 {
    let mut z = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    if z & 1 == 0 { 1.0 } else { -1.0 }
}

/// The levels of a code of this many bits, ascending: the Lloyd-Max quantiser of the normal
/// distribution of variance one.
///
/// # Panics
/// If there is no such code: bits are 4, 5, 6 or 8.
pub const fn levels(bits: u8) -> &'static [f32] {
    match bits {
        4 => &LEVELS_4,
        5 => &LEVELS_5,
        6 => &LEVELS_6,
        8 => &LEVELS_8,
        _ => panic!("codes have 4, 5, 6 or 8 bits"),
    }
}

/// Positive levels and their mirror images, ascending.
const fn mirrored<const HALF: usize, const ALL: usize>(positive: [f32; HALF]) -> [f32; ALL] {
    let mut all = [0.0; ALL];
    let mut i = 0;
    while i < HALF {
        all[HALF + i] = positive[i];
        all[HALF - 1 - i] = -positive[i];
        i += 1;
    }
    all
}

static LEVELS_4: [f32; 16] = mirrored([
    0.128_395_04,
    0.388_048_3,
    0.656_759_14,
    0.942_340_43,
    1.256_231_2,
    1.618_046_4,
    2.069_017_2,
    2.732_589_5,
]);
static LEVELS_5: [f32; 32] = mirrored([
    0.065_889_66,
    0.198_051_83,
    0.331_378_3,
    0.466_699_5,
    0.604_933_6,
    0.747_135_7,
    0.894_565_1,
    1.048_783_3,
    1.211_804_4,
    1.386_340_4,
    1.576_228,
    1.787_233_2,
    2.028_728_5,
    2.317_739_5,
    2.691_119_7,
    3.260_732_4,
]);
static LEVELS_6: [f32; 64] = mirrored([
    0.033_409_506,
    0.100_278_29,
    0.167_296_9,
    0.234_566_99,
    0.302_192_84,
    0.370_282_65,
    0.438_949_67,
    0.508_313_8,
    0.578_503,
    0.649_655_6,
    0.721_921_9,
    0.795_467_7,
    0.870_476_6,
    0.947_154_94,
    1.025_736_3,
    1.106_488_2,
    1.189_720_2,
    1.275_794_5,
    1.365_141,
    1.458_276_4,
    1.555_831_2,
    1.658_588_9,
    1.767_541_9,
    1.883_977_3,
    2.009_611_1,
    2.146_810_3,
    2.298_981_2,
    2.471_305,
    2.672_273_9,
    2.917_406_8,
    3.240_437,
    3.744_101_3,
]);
static LEVELS_8: [f32; 256] = mirrored([
    0.008_446_193,
    0.025_339_384,
    0.042_234_983,
    0.059_134_603,
    0.076_039_86,
    0.092_952_356,
    0.109_873_72,
    0.126_805_59,
    0.143_749_56,
    0.160_707_32,
    0.177_680_49,
    0.194_670_75,
    0.211_679_76,
    0.228_709_2,
    0.245_760_78,
    0.262_836_22,
    0.279_937_24,
    0.297_065_6,
    0.314_223_05,
    0.331_411_4,
    0.348_632_43,
    0.365_888,
    0.383_179_96,
    0.400_510_22,
    0.417_880_65,
    0.435_293_2,
    0.452_749_88,
    0.470_252_66,
    0.487_803_6,
    0.505_404_8,
    0.523_058_3,
    0.540_766_3,
    0.558_531_05,
    0.576_354_7,
    0.594_239_6,
    0.612_188_1,
    0.630_202_6,
    0.648_285_5,
    0.666_439_4,
    0.684_666_75,
    0.702_970_27,
    0.721_352_64,
    0.739_816_6,
    0.758_365_04,
    0.777_000_8,
    0.795_727,
    0.814_546_7,
    0.833_463,
    0.852_479_3,
    0.871_598_9,
    0.890_825_3,
    0.910_162_03,
    0.929_612_93,
    0.949_181_8,
    0.968_872_6,
    0.988_689_36,
    1.008_636_5,
    1.028_718_2,
    1.048_939_2,
    1.069_304_2,
    1.089_818_1,
    1.110_486,
    1.131_313_2,
    1.152_305_4,
    1.173_468_2,
    1.194_807_6,
    1.216_329_9,
    1.238_041_8,
    1.259_949_9,
    1.282_061_5,
    1.304_384,
    1.326_925_3,
    1.349_693_7,
    1.372_697_6,
    1.395_946_4,
    1.419_449_3,
    1.443_216_6,
    1.467_258_7,
    1.491_587,
    1.516_213_2,
    1.541_149_6,
    1.566_409_8,
    1.592_007_5,
    1.617_957_8,
    1.644_276_5,
    1.670_980_3,
    1.698_087_5,
    1.725_616_9,
    1.753_589_4,
    1.782_026_9,
    1.810_953_1,
    1.840_393_3,
    1.870_375_2,
    1.900_928,
    1.932_084_2,
    1.963_878_4,
    1.996_348_5,
    2.029_535_8,
    2.063_485_1,
    2.098_246_6,
    2.133_874_2,
    2.170_428_3,
    2.207_975_4,
    2.246_59,
    2.286_354_5,
    2.327_361_8,
    2.369_717_1,
    2.413_538_7,
    2.458_962_2,
    2.506_142_6,
    2.555_259_5,
    2.606_521_4,
    2.660_174,
    2.716_507_7,
    2.775_870_6,
    2.838_685_8,
    2.905_473,
    2.976_882_2,
    3.053_742,
    3.137_132_6,
    3.228_500_1,
    3.329_848_5,
    3.444_071_8,
    3.575_588,
    3.731_666_3,
    3.925_637_7,
    4.186_595_4,
    4.603_535_7,
]);

#[cfg(test)]
mod tests {
    use super::*;

    /// The normal density and the chance of exceeding `x`, integrated by Simpson's rule.
    fn density(x: f64) -> f64 {
        (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
    }

    fn mass(from: f64, to: f64) -> f64 {
        let steps = 2_000;
        let h = (to - from) / f64::from(steps);
        let weight = |i| {
            if i == 0 || i == steps {
                1.0
            } else if i % 2 == 1 {
                4.0
            } else {
                2.0
            }
        };
        let terms = (0..=steps).map(|i| weight(i) * density(from + h * f64::from(i)));
        terms.sum::<f64>() * h / 3.0
    }

    #[test]
    fn every_level_is_the_mean_of_what_it_stands_for() {
        for bits in [4, 5, 6, 8] {
            let levels: Vec<f64> = levels(bits).iter().map(|&l| f64::from(l)).collect();
            assert_eq!(levels.len(), 1 << bits);
            for (i, &level) in levels.iter().enumerate() {
                let middle = |a: usize, b: usize| (levels[a] + levels[b]) / 2.0;
                let from = if i == 0 { -12.0 } else { middle(i - 1, i) };
                let to = if i + 1 == levels.len() { 12.0 } else { middle(i, i + 1) };
                let mean = (density(from) - density(to)) / mass(from, to);
                assert!((mean - level).abs() < 2e-5, "{bits} bits, level {i}: {level}, not {mean}");
            }
        }
    }

    #[test]
    fn signs_are_balanced() {
        let sum: f32 = (0..ROTATED_BLOCK).map(sign).sum();
        assert!(sum.abs() < 48.0, "{sum}");
    }
}
