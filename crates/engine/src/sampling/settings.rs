//! How tokens are chosen: the settings, and which of them make sense.

use lapidary_core::TokenId;
use thiserror::Error;

/// How tokens are chosen. The default is greedy.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Same seed, same text.
    pub seed: u64,
    /// Tells apart several texts for one prompt and seed.
    pub sample: u32,
    /// 0 takes the likeliest token, 1 draws from the model's own distribution.
    pub temperature: f32,
    /// How many tokens to keep; 0 keeps all.
    pub top_k: usize,
    /// How much probability to keep of the tokens about as surprising as one is on average, in
    /// `0..=1`; 1 keeps all, and one token is always kept.
    pub typical_p: f32,
    /// How much probability to keep, in `0..=1`; 1 keeps all, and one token is always kept.
    pub top_p: f32,
    /// The least probability to keep, relative to the likeliest token, in `0..=1`; 0 keeps all.
    pub min_p: f32,
    /// Divides positive logits of recent tokens and multiplies negative ones, once however often
    /// the token occurs; 1 changes nothing.
    pub repeat_penalty: f32,
    /// How many of the sequence's last tokens, prompt included, are recent.
    pub repeat_last: usize,
    /// Taken from the logits of recent tokens once; 0 changes nothing, less than 0 encourages.
    pub presence_penalty: f32,
    /// Taken from the logits of recent tokens as often as they occur.
    pub frequency_penalty: f32,
    /// Weakens what would go on with a repetition.
    pub dry: Option<Dry>,
    /// Keep what is within this many standard deviations of the highest logit; 0 keeps all.
    pub top_n_sigma: f32,
    /// Now and then excludes the obvious.
    pub xtc: Option<Xtc>,
    /// Tokens that are never chosen.
    pub suppress: Vec<TokenId>,
    /// Added to the tokens' logits. Minus infinity forbids.
    pub bias: Vec<(TokenId, f32)>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            seed: 0,
            sample: 0,
            temperature: 0.0,
            top_k: 0,
            typical_p: 1.0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            repeat_last: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            dry: None,
            top_n_sigma: 0.0,
            xtc: None,
            suppress: Vec::new(),
            bias: Vec::new(),
        }
    }
}

/// "Don't repeat yourself": a token that would make a repetition longer loses
/// `multiplier · base^(length − allowed)`, `length` being how many tokens are repeated already.
#[derive(Clone, Debug, PartialEq)]
pub struct Dry {
    /// The loss of a token that makes a repetition longer than allowed.
    pub multiplier: f32,
    /// How it grows with each further token; at least 1.
    pub base: f32,
    /// Repetitions shorter than this are ignored; at least 1.
    pub allowed: usize,
    /// How many of the sequence's last tokens, prompt included, are looked at.
    pub range: usize,
    /// Tokens that no repetition goes across.
    pub breakers: Vec<TokenId>,
}

/// "Exclude top choices": of the tokens that are at least as likely as `threshold`, all but the
/// least likely are dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xtc {
    /// How often, in `0..=1`.
    pub probability: f32,
    /// From which probability on, among the tokens left, in `0..=1`; above a half there are never
    /// two such tokens.
    pub threshold: f32,
}

/// Settings that make no sense.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum BadSampling {
    /// A setting is outside its range.
    #[error("{name} is {value}: give a number {range}")]
    OutOfRange {
        /// Which setting.
        name: &'static str,
        /// What was given.
        value: f32,
        /// What may be given, in words.
        range: &'static str,
    },
    /// A bias would forbid all others, or means nothing.
    #[error("the bias of token {} is {value}: give a finite number or minus infinity", token.0)]
    Bias {
        /// Whose bias.
        token: TokenId,
        /// What was given.
        value: f32,
    },
}

impl Sampling {
    /// Refuses settings outside their ranges.
    ///
    /// # Errors
    /// The first such setting.
    pub fn check(&self) -> Result<(), BadSampling> {
        let Self { temperature, typical_p, top_p, min_p, top_n_sigma, .. } = *self;
        let warm = temperature == 0.0 || is_positive(temperature);
        within(warm, "temperature", temperature, "from 0 up")?;
        within(is_share(typical_p), "typical_p", typical_p, "from 0 to 1")?;
        within(is_share(top_p), "top_p", top_p, "from 0 to 1")?;
        within(is_share(min_p), "min_p", min_p, "from 0 to 1")?;
        let bounded = top_n_sigma == 0.0 || is_positive(top_n_sigma);
        within(bounded, "top_n_sigma", top_n_sigma, "from 0 up")?;
        self.check_penalties()?;
        if let Some(Xtc { probability, threshold }) = self.xtc {
            within(is_share(probability), "xtc_probability", probability, "from 0 to 1")?;
            within(is_share(threshold), "xtc_threshold", threshold, "from 0 to 1")?;
        }
        let means_nothing =
            |&&(_, value): &&(TokenId, f32)| value.is_nan() || value == f32::INFINITY;
        match self.bias.iter().find(means_nothing) {
            Some(&(token, value)) => Err(BadSampling::Bias { token, value }),
            None => Ok(()),
        }
    }

    fn check_penalties(&self) -> Result<(), BadSampling> {
        let Self { repeat_penalty, presence_penalty, frequency_penalty, .. } = *self;
        within(is_positive(repeat_penalty), "repeat_penalty", repeat_penalty, "above 0")?;
        let mild = |x: f32| x.abs() <= MOST_PENALTY;
        let range = "from -100 to 100";
        within(mild(presence_penalty), "presence_penalty", presence_penalty, range)?;
        within(mild(frequency_penalty), "frequency_penalty", frequency_penalty, range)?;
        let Some(Dry { multiplier, base, allowed, .. }) = self.dry.clone() else { return Ok(()) };
        within(
            mild(multiplier) && multiplier >= 0.0,
            "dry_multiplier",
            multiplier,
            "from 0 to 100",
        )?;
        within((1.0..=MOST_PENALTY).contains(&base), "dry_base", base, "from 1 to 100")?;
        within(allowed > 0, "dry_allowed_length", 0.0, "from 1 up")
    }
}

/// Beyond this a penalty is a mistake: logits of the family lie within ±30.
const MOST_PENALTY: f32 = 100.0;

fn within(
    ok: bool,
    name: &'static str,
    value: f32,
    range: &'static str,
) -> Result<(), BadSampling> {
    if ok { Ok(()) } else { Err(BadSampling::OutOfRange { name, value, range }) }
}

fn is_positive(x: f32) -> bool {
    x.is_finite() && x > 0.0
}

fn is_share(x: f32) -> bool {
    (0.0..=1.0).contains(&x)
}
