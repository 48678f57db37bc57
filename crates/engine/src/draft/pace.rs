//! How many guesses are worth running, from how many came true and what a row costs.

use std::time::Duration;

/// How much is guessed at most.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Drafting {
    /// The most guesses in a row; zero turns guessing off.
    pub most: usize,
    /// Whether fewer are run where they do not pay.
    pub adaptive: bool,
}

/// After so many tokens without a guess, one is tried again.
const PROBE: u32 = 16;
/// How fast old guesses are forgotten: half of them after about 22 tries.
const MEMORY: f64 = 0.97;
/// What a text is taken to be before anything is known of it.
const PRIOR: f64 = 0.6;

/// How a text's guesses have fared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    tries: f64,
    hits: f64,
    /// Tokens since the last guess.
    rest: u32,
}

impl Pace {
    /// `depth` guesses in a row were run and the first `accepted` of them came true.
    pub fn note(&mut self, depth: usize, accepted: usize) {
        if depth == 0 {
            self.rest = self.rest.saturating_add(1);
            return;
        }
        // The guess after the first wrong one was never tried.
        let tried = accepted + usize::from(accepted < depth);
        self.tries = self.tries * MEMORY + tried as f64;
        self.hits = self.hits * MEMORY + accepted as f64;
        self.rest = 0;
    }

    /// How likely the next guess is right if those before it were.
    pub fn rate(&self) -> f64 {
        (self.hits + PRIOR) / (self.tries + 1.0)
    }

    /// The number of guesses, up to `most`, that yields the most tokens for the time: `n` guesses
    /// yield `1 + a + … + aⁿ` tokens at rate `a`, and take the time of `1 + n · row_cost` steps.
    /// Zero, most of the time, if none pays.
    pub fn depth(&self, drafting: Drafting, row_cost: f64) -> usize {
        if !drafting.adaptive {
            return drafting.most;
        }
        let rate = self.rate().min(1.0);
        let (mut tokens, mut power) = (1.0, 1.0);
        let (mut best, mut most_per_time) = (0, 1.0);
        for n in 1..=drafting.most {
            power *= rate;
            tokens += power;
            let per_time = tokens / (1.0 + n as f64 * row_cost);
            if per_time > most_per_time {
                (best, most_per_time) = (n, per_time);
            }
        }
        if best == 0 && self.rest >= PROBE { drafting.most.min(1) } else { best }
    }
}

/// What a row adds to a step, learnt from steps of known size: a line fitted to times over rows, old
/// steps fading.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepCost {
    weight: f64,
    rows: f64,
    time: f64,
    rows_rows: f64,
    rows_time: f64,
}

impl StepCost {
    /// Taken until steps of different sizes have been seen.
    const UNKNOWN: f64 = 0.1;
    /// Noise can make a row look free, or dearer than a step.
    const SANE: (f64, f64) = (0.01, 1.0);
    const FADE: f64 = 0.98;

    /// A step of `rows` rows took so long.
    pub(crate) fn note(&mut self, rows: usize, time: Duration) {
        let (rows, time) = (rows as f64, time.as_secs_f64());
        let fade = |sum: &mut f64, value: f64| *sum = *sum * Self::FADE + value;
        fade(&mut self.weight, 1.0);
        fade(&mut self.rows, rows);
        fade(&mut self.time, time);
        fade(&mut self.rows_rows, rows * rows);
        fade(&mut self.rows_time, rows * time);
    }

    /// The time that one more row takes, as a part of a step of `rows`.
    pub(crate) fn of_a_row(&self, rows: usize) -> f64 {
        let spread = self.weight * self.rows_rows - self.rows * self.rows;
        // Less than a quarter of a row around the mean says nothing about the slope.
        if spread < 0.0625 * self.weight * self.weight || self.weight < 4.0 {
            return Self::UNKNOWN;
        }
        let slope = (self.weight * self.rows_time - self.rows * self.time) / spread;
        let base = (self.time - slope * self.rows) / self.weight;
        let cost = slope / (base + slope * rows as f64);
        if cost.is_finite() { cost.clamp(Self::SANE.0, Self::SANE.1) } else { Self::UNKNOWN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIX: Drafting = Drafting { most: 6, adaptive: true };

    fn after(outcomes: &[(usize, usize)]) -> Pace {
        let mut pace = Pace::default();
        outcomes.iter().for_each(|&(depth, accepted)| pace.note(depth, accepted));
        pace
    }

    #[test]
    fn good_guesses_make_longer_drafts_and_bad_ones_none() {
        assert_eq!(after(&[(6, 6); 10]).depth(SIX, 0.1), 6);
        assert_eq!(after(&[(6, 0); 30]).depth(SIX, 0.1), 0);
        let mixed = after(&[(3, 3), (3, 1), (3, 0), (3, 2)].repeat(5)).depth(SIX, 0.1);
        assert!((1..6).contains(&mixed), "{mixed}");
    }

    #[test]
    fn dear_rows_make_shorter_drafts() {
        let pace = after(&[(4, 3); 10]);
        let depths = [0.02, 0.2, 0.5, 1.0].map(|cost| pace.depth(SIX, cost));
        assert!(depths.is_sorted_by(|a, b| a >= b) && depths[0] > depths[3], "{depths:?}");
    }

    #[test]
    fn what_did_not_pay_is_tried_again_later() {
        let mut pace = after(&[(6, 0); 30]);
        (0..PROBE).for_each(|_| pace.note(0, 0));
        assert_eq!(pace.depth(SIX, 0.1), 1);
    }

    #[test]
    fn a_fixed_pace_does_not_learn() {
        let fixed = Drafting { adaptive: false, ..SIX };
        assert_eq!(after(&[(6, 0); 30]).depth(fixed, 0.1), 6);
    }

    #[test]
    fn the_cost_of_a_row_is_the_slope_of_time_over_rows() {
        let mut cost = StepCost::default();
        assert_eq!(cost.of_a_row(1), StepCost::UNKNOWN);
        for i in 0..40 {
            let rows = 1 + i % 5;
            cost.note(rows, Duration::from_micros(900 + 100 * rows as u64));
        }
        assert!((cost.of_a_row(1) - 0.1).abs() < 1e-6, "{}", cost.of_a_row(1));
    }
}
