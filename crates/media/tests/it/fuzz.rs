//! The fuzz target over the stored pictures and their mutations.

use lapidary_media::fuzz;

use crate::{all_stored, stored};

/// A sequence without pattern, the same every time.
struct Noise(u64);

impl Noise {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

#[test]
fn pictures_never_panic() {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for name in all_stored() {
        let whole = stored(&name);
        assert!(fuzz::image(&whole), "{name} is a picture");
        for _ in 0..100 {
            let mut bytes = whole.clone();
            for _ in 0..=noise.below(4) {
                let at = noise.below(bytes.len());
                bytes[at] = noise.below(256) as u8;
            }
            fuzz::image(&bytes);
        }
    }
}
