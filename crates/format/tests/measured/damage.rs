//! Files with a few pieces changed, removed, doubled or moved.

/// A sequence without pattern, the same for the same seed.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((self.next() >> 33) as usize) % n.max(1)
    }
}

/// What readers of text trip over.
const WORDS: [&str; 20] = [
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "18446744073709551616",
    "9223372036854775807",
    "4294967295",
    "0.5",
    "{",
    "}",
    "[",
    "]",
    "\"",
    ",",
    ":",
    "\\u0000",
    "{{",
    "%}",
    "\u{fdd0}",
];

/// `seed` with one to four damages.
pub(crate) fn damaged(seed: &[u8], noise: &mut Noise) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..=noise.below(4) {
        damage(&mut data, noise);
    }
    data
}

fn damage(data: &mut Vec<u8>, noise: &mut Noise) {
    let at = noise.below(data.len() + 1);
    let end = (at + noise.below(24)).min(data.len());
    match noise.below(9) {
        0 => data.iter_mut().skip(at).take(1).for_each(|byte| *byte = noise.next() as u8),
        1 => data.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << noise.below(8)),
        2 => overwrite(data, at, &telling(noise).to_le_bytes()),
        3 => overwrite(data, at, &(telling(noise) as u32).to_le_bytes()),
        4 => data.truncate(at),
        5 => drop(data.drain(at..end)),
        6 => {
            let (piece, to) = (data[at..end].to_vec(), noise.below(data.len() + 1));
            data.splice(to..to, piece);
        }
        7 => drop(data.splice(at..at, WORDS[noise.below(WORDS.len())].bytes())),
        _ => drop(data.splice(at..end, WORDS[noise.below(WORDS.len())].bytes())),
    }
}

/// A number that is likely to be a boundary of something.
fn telling(noise: &mut Noise) -> u64 {
    match noise.below(4) {
        0 => noise.below(20) as u64,
        1 => u64::MAX - noise.below(3) as u64,
        2 => 1 << noise.below(64),
        _ => noise.next(),
    }
}

fn overwrite(data: &mut [u8], at: usize, bytes: &[u8]) {
    data.iter_mut().skip(at).zip(bytes).for_each(|(byte, new)| *byte = *new);
}
