//! How many soft tokens a picture may become, and the size that this gives it.

use thiserror::Error;

/// Pixels of a side of a patch.
pub(crate) const PATCH: usize = 16;
/// Patches of a side of the square that becomes one soft token.
const POOL: usize = 3;
/// Pixels of a side of that square.
const UNIT: usize = PATCH * POOL;

/// The most soft tokens that a picture becomes. Every picture is scaled, up or down, to fill it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Budget(usize);

/// Nobody trained a model for so many or so few.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error(
    "{0} soft tokens an image are out of range: choose {least} to {most}, best 70, 140, 280, 560 or 1120",
    least = Budget::LEAST,
    most = Budget::MOST
)]
pub struct BadBudget(pub usize);

impl Budget {
    /// The smallest budget.
    pub const LEAST: usize = 70;
    /// The largest.
    pub const MOST: usize = 1120;

    /// A budget of `tokens`.
    ///
    /// # Errors
    /// [`BadBudget`] if it is not in 70 to 1,120.
    pub fn new(tokens: usize) -> Result<Self, BadBudget> {
        let fits = (Self::LEAST..=Self::MOST).contains(&tokens);
        if fits { Ok(Self(tokens)) } else { Err(BadBudget(tokens)) }
    }

    /// The most soft tokens of a picture.
    pub fn tokens(self) -> usize {
        self.0
    }

    /// The size that a picture of this size is brought to: both sides whole numbers of soft tokens,
    /// as many as fit the budget with the aspect as it is. A side too short for one gets one, and
    /// the other follows the aspect.
    pub fn size(self, width: usize, height: usize) -> (usize, usize) {
        let (w, h) = (width as f64, height as f64);
        let factor = ((self.0 * UNIT * UNIT) as f64 / (w * h)).sqrt();
        let units = |side: f64| (factor * side / UNIT as f64).floor() as usize;
        let (across, down) = match (units(w), units(h)) {
            (0, _) => (1, (height / width).min(self.0)),
            (_, 0) => ((width / height).min(self.0), 1),
            both => both,
        };
        (across * UNIT, down * UNIT)
    }
}

impl Default for Budget {
    /// That of the published models.
    fn default() -> Self {
        Self(280)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(tokens: usize, width: usize, height: usize) -> (usize, usize) {
        Budget::new(tokens).expect("a budget in range").size(width, height)
    }

    #[test]
    fn pictures_fill_their_budget_and_keep_their_aspect() {
        assert_eq!(size(70, 384, 384), (384, 384));
        assert_eq!(size(70, 320, 240), (432, 336));
        assert_eq!(size(280, 1, 1), (768, 768));
        assert_eq!(size(1120, 4000, 3000), (1824, 1344));
    }

    #[test]
    fn a_thin_line_gets_one_row_of_tokens() {
        assert_eq!(size(70, 30_000, 1), (70 * 48, 48));
        assert_eq!(size(280, 1, 300), (48, 280 * 48));
        assert_eq!(size(70, 1, 75), (48, 70 * 48));
    }

    #[test]
    fn no_picture_exceeds_its_budget() {
        for tokens in [70, 140, 280, 560, 1120] {
            for width in (1..400).chain([1 << 15]) {
                for height in [1, 2, 3, 47, 48, 100, 333, 1 << 15] {
                    let (w, h) = size(tokens, width, height);
                    assert!(w > 0 && h > 0 && w * h <= tokens * UNIT * UNIT, "{width} × {height}");
                }
            }
        }
    }
}
