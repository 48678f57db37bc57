//! How much is worth guessing, from how many guesses came true and what a row costs.

use std::time::Duration;

/// How much is guessed at most.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Drafting {
    /// The most guesses in a row; zero turns guessing off.
    pub most: usize,
    /// The most guesses at each depth, at least one. Only some drafters branch.
    pub width: usize,
    /// Whether less is run where it does not pay.
    pub adaptive: bool,
}

/// How much is guessed for one text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DraftShape {
    /// Guesses in a row.
    pub depth: usize,
    /// Guesses at each depth, at least one.
    pub width: usize,
}

/// After so many tokens without a guess, one is tried again.
const PROBE: u32 = 16;
/// How fast old guesses are forgotten: half of them after about 22 tries.
const MEMORY: f64 = 0.97;
/// What a text is taken to be before anything is known of it: so many of the best guesses come
/// true, and as many of the next where those before it do not.
const PRIOR: f64 = 0.6;
/// Guesses of one depth that are told apart. Those after them are taken to be as good as the last.
const RANKS: usize = 16;

/// How a text's guesses have fared: of those at one depth, the best, the second best and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    ranks: [Fared; RANKS],
    /// Tokens since the last guess.
    rest: u32,
}

/// How guesses of one rank have fared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Fared {
    tries: f64,
    hits: f64,
}

impl Pace {
    /// A draft was run with so many guesses at each depth, and of its first depths the guesses of
    /// these ranks came true, one after the other.
    pub fn note(&mut self, widths: &[usize], came_true: &[usize]) {
        if widths.is_empty() {
            self.rest = self.rest.saturating_add(1);
            return;
        }
        // What was not tried fades too, and with it the reason not to try it.
        for fared in &mut self.ranks {
            fared.tries *= MEMORY;
            fared.hits *= MEMORY;
        }
        // Guesses after the first depth of which none came true were never tried.
        for (depth, &width) in widths.iter().enumerate().take(came_true.len() + 1) {
            self.ranks.iter_mut().take(width).for_each(|fared| fared.tries += 1.0);
            let hit = came_true.get(depth).and_then(|&rank| self.ranks.get_mut(rank));
            hit.into_iter().for_each(|fared| fared.hits += 1.0);
        }
        self.rest = 0;
    }

    /// How likely one of the next `width` guesses is right if the text before them was foreseen.
    pub fn rate(&self, width: usize) -> f64 {
        let (mut rate, mut prior) = (0.0, PRIOR);
        for rank in 0..width {
            let Fared { tries, hits } = self.ranks[rank.min(RANKS - 1)];
            rate += (hits + prior) / (tries + 1.0);
            prior *= 1.0 - PRIOR;
        }
        rate.min(1.0)
    }

    /// The shape that yields the most tokens for the time: `n` guesses in a row, `w` at each depth,
    /// yield `1 + a + … + aⁿ` tokens at the rate `a` of `w`, and take the time of
    /// `1 + n · w · row_cost` steps. Depth zero, most of the time, if none pays.
    pub fn shape(&self, drafting: Drafting, row_cost: f64) -> DraftShape {
        let Drafting { most, width, adaptive } = drafting;
        if !adaptive {
            return DraftShape { depth: most, width };
        }
        let mut best = DraftShape { depth: 0, width: 1 };
        let mut most_per_time = 1.0;
        for width in 1..=width {
            let rate = self.rate(width);
            let (mut tokens, mut power) = (1.0, 1.0);
            for depth in 1..=most {
                power *= rate;
                tokens += power;
                let per_time = tokens / (1.0 + (depth * width) as f64 * row_cost);
                if per_time > most_per_time {
                    best = DraftShape { depth, width };
                    most_per_time = per_time;
                }
            }
        }
        if best.depth == 0 && self.rest >= PROBE {
            best.depth = most.min(1);
        }
        best
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

    const SIX: Drafting = Drafting { most: 6, width: 1, adaptive: true };
    const BUSHY: Drafting = Drafting { most: 4, width: 4, adaptive: true };

    /// After chains of so many guesses, of which so many came true.
    fn after(outcomes: &[(usize, usize)]) -> Pace {
        let mut pace = Pace::default();
        for &(depth, accepted) in outcomes {
            pace.note(&vec![1; depth], &vec![0; accepted]);
        }
        pace
    }

    #[test]
    fn good_guesses_make_longer_drafts_and_bad_ones_none() {
        assert_eq!(after(&[(6, 6); 10]).shape(SIX, 0.1).depth, 6);
        assert_eq!(after(&[(6, 0); 30]).shape(SIX, 0.1).depth, 0);
        let mixed = after(&[(3, 3), (3, 1), (3, 0), (3, 2)].repeat(5)).shape(SIX, 0.1).depth;
        assert!((1..6).contains(&mixed), "{mixed}");
    }

    #[test]
    fn dear_rows_make_shorter_drafts() {
        let pace = after(&[(4, 3); 10]);
        let depths = [0.02, 0.2, 0.5, 1.0].map(|cost| pace.shape(SIX, cost).depth);
        assert!(depths.is_sorted_by(|a, b| a >= b) && depths[0] > depths[3], "{depths:?}");
    }

    #[test]
    fn what_did_not_pay_is_tried_again_later() {
        let mut pace = after(&[(6, 0); 30]);
        (0..PROBE).for_each(|_| pace.note(&[], &[]));
        assert_eq!(pace.shape(SIX, 0.1).depth, 1);
    }

    #[test]
    fn a_fixed_pace_does_not_learn() {
        let fixed = Drafting { adaptive: false, ..SIX };
        assert_eq!(after(&[(6, 0); 30]).shape(fixed, 0.1).depth, 6);
    }

    #[test]
    fn branches_are_as_many_as_come_true() {
        let after = |ranks: &[usize]| {
            let mut pace = Pace::default();
            ranks.iter().for_each(|&rank| pace.note(&[4, 4], &[rank, rank]));
            pace
        };
        let best = after(&[0; 40]).shape(BUSHY, 0.05);
        assert_eq!(best, DraftShape { depth: 4, width: 1 }, "the first guess is always right");
        let second = after(&[0, 1].repeat(20)).shape(BUSHY, 0.05);
        assert_eq!(second.width, 2, "one of the first two always is: {second:?}");
        let dear = after(&[0, 1].repeat(20)).shape(BUSHY, 1.0);
        assert!(dear.depth * dear.width < 2, "rows as dear as steps do not pay: {dear:?}");
    }

    #[test]
    fn branches_that_were_given_up_are_tried_again() {
        let mut pace = Pace::default();
        (0..40).for_each(|_| pace.note(&[4], &[0]));
        let width = |pace: &Pace| pace.shape(BUSHY, 0.05).width;
        assert_eq!(width(&pace), 1);
        // The best guess fails now and then, and what is known of the others grows old.
        let tried = (0..300).find(|i| {
            pace.note(&[1], if i % 2 == 0 { &[0] } else { &[] });
            width(&pace) > 1
        });
        assert!(tried.is_some(), "{pace:?}");
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
