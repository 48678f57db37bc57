//! Entry point for fuzzers: any bytes must give a picture or an error, never a panic.

use crate::{Budget, Limits, decode, patches};

/// Reads `data` as a picture within small limits and cuts it up; whether it is one.
pub fn image(data: &[u8]) -> bool {
    let limits = Limits { bytes: 1 << 20, side: 4096, pixels: 1 << 20 };
    match decode(data, &limits) {
        Ok(picture) => {
            let budget = Budget::new(Budget::LEAST).expect("the least is in range");
            let cut = patches(&picture, budget);
            assert!(cut.columns * cut.rows <= 9 * Budget::LEAST, "within the budget");
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty(), "a refusal says why");
            false
        }
    }
}
