//! The sampler against its naive twin, against the distribution it promises, and at the edges.

use lapidary_core::TokenId;
use lapidary_engine::{NoChoice, Sampling, logprobs};
use proptest::prelude::*;

use crate::common::{Rng, mix};

const NEVER: f32 = f32::NEG_INFINITY;

fn pick(sampling: &Sampling, logits: &[f32]) -> Option<u32> {
    sampling.pick(&[], logits).ok().map(|token| token.0)
}

/// Every token that comes up at the first 4,000 positions.
fn reachable(sampling: &Sampling, logits: &[f32]) -> Vec<u32> {
    let tokens = vec![TokenId(0); 4_000];
    let picks = (0..4_000).map(|n| sampling.pick(&tokens[..n], logits).unwrap().0);
    let mut picks: Vec<_> = picks.collect();
    picks.sort_unstable();
    picks.dedup();
    picks
}

fn drawing() -> Sampling {
    Sampling { temperature: 1.0, ..Sampling::default() }
}

/// The chain as its description reads: sort everything, cut, walk.
fn twin(sampling: &Sampling, tokens: &[TokenId], logits: &[f32]) -> Option<TokenId> {
    let mut logits = logits.to_vec();
    for &(token, bias) in &sampling.bias {
        logits[token.index()] += bias;
    }
    for (id, logit) in logits.iter_mut().enumerate() {
        let recent = tokens.iter().rev().take(sampling.repeat_last);
        if recent.clone().any(|token| token.index() == id) {
            let penalty = sampling.repeat_penalty;
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
    }
    for token in &sampling.suppress {
        logits[token.index()] = NEVER;
    }
    let mut ranked: Vec<_> = (0..logits.len()).filter(|&id| logits[id] > NEVER).collect();
    let in_order = ranked.clone();
    ranked.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).unwrap().then(a.cmp(&b)));
    let top = logits[*ranked.first()?];
    if sampling.temperature == 0.0 {
        return Some(TokenId(ranked[0] as u32));
    }
    let mass = |id: usize, temperature: f64| {
        let difference = f64::from(logits[id]) - f64::from(top);
        (difference / temperature).exp()
    };
    let mut kept = ranked;
    if sampling.top_k > 0 {
        kept.truncate(sampling.top_k);
    }
    let total: f64 = kept.iter().map(|&id| mass(id, 1.0)).sum();
    if sampling.top_p < 1.0 {
        let mut sum = 0.0;
        let enough = kept.iter().position(|&id| {
            sum += mass(id, 1.0);
            sum >= f64::from(sampling.top_p) * total
        });
        kept.truncate(enough.map_or(kept.len(), |last| last + 1));
    }
    kept.retain(|&id| mass(id, 1.0) >= f64::from(sampling.min_p));
    let cuts = sampling.top_p < 1.0 || sampling.min_p > 0.0;
    if !cuts && (sampling.top_k == 0 || sampling.top_k >= logits.len()) {
        kept = in_order;
    }
    let temperature = f64::from(sampling.temperature);
    let target = dice(sampling.seed, sampling.sample, tokens.len())
        * kept.iter().map(|&id| mass(id, temperature)).sum::<f64>();
    let mut sum = 0.0;
    let chosen = kept.into_iter().find(|&id| {
        sum += mass(id, temperature);
        sum > target
    });
    chosen.map(|id| TokenId(id as u32))
}

/// The splitmix64 sequence of the seed's hash, entry by entry.
fn dice(seed: u64, sample: u32, position: usize) -> f64 {
    const STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;
    let count = (u64::from(sample) << 32) + position as u64;
    let bits = mix(mix(seed.wrapping_add(STRIDE)).wrapping_add(STRIDE.wrapping_mul(count)));
    (bits >> 11) as f64 / 2.0_f64.powi(53)
}

prop_compose! {
    /// Logits with ties, NaN and minus infinity among them; some hundreds, to outgrow the first
    /// look.
    fn any_logits()(
        len in 1_usize..700,
        step in prop_oneof![Just(0.5_f32), Just(0.001)],
        spread in 1_u32..40,
        holes in 0_u32..4,
        seed: u64,
    ) -> Vec<f32> {
        let mut rng = Rng(seed);
        let mut logit = |_| match rng.below(0..40) as u32 {
            0 if holes > 0 => f32::NAN,
            n if n <= 4 * holes => NEVER,
            _ => (rng.below(0..(spread as f32 / step) as usize + 1) as f32 * step) - spread as f32 / 2.0,
        };
        (0..len).map(&mut logit).collect()
    }
}

prop_compose! {
    fn any_sampling()(
        seed: u64,
        sample in 0_u32..3,
        temperature in prop_oneof![Just(0.0_f32), Just(1.0), 0.05_f32..3.0],
        top_k in prop_oneof![Just(0_usize), 1_usize..80, Just(usize::MAX)],
        top_p in prop_oneof![Just(1.0_f32), Just(0.0), 0.01_f32..1.0],
        min_p in prop_oneof![Just(0.0_f32), Just(1.0), 0.0001_f32..0.9],
        repeat_penalty in prop_oneof![Just(1.0_f32), 0.5_f32..2.0],
        repeat_last in 0_usize..9,
    ) -> Sampling {
        let neutral = Sampling::default();
        Sampling {
            seed, sample, temperature, top_k, top_p, min_p, repeat_penalty, repeat_last, ..neutral
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_sampler_agrees_with_its_twin(
        logits in any_logits(),
        sampling in any_sampling(),
        text in prop::collection::vec(0_usize..700, 0..12),
        suppress in prop::collection::vec(0_usize..700, 0..3),
        bias in prop::collection::vec((0_usize..700, -3.0_f32..3.0), 0..3),
    ) {
        let token = |i: usize| TokenId((i % logits.len()) as u32);
        let tokens: Vec<_> = text.into_iter().map(token).collect();
        let sampling = Sampling {
            suppress: suppress.into_iter().map(token).collect(),
            bias: bias.into_iter().map(|(i, bias)| (token(i), bias)).collect(),
            ..sampling
        };
        prop_assert_eq!(sampling.check(), Ok(()));
        let chosen = sampling.pick(&tokens, &logits).ok();
        prop_assert_eq!(chosen, twin(&sampling, &tokens, &logits));
    }
}

#[test]
fn ties_go_to_the_lower_id() {
    let logits = [0.0, 2.0, -1.0, 2.0, 2.0];
    assert_eq!(pick(&Sampling::default(), &logits), Some(1));
    assert_eq!(pick(&Sampling { top_k: 1, ..drawing() }, &logits), Some(1));
    assert_eq!(reachable(&Sampling { top_k: 2, ..drawing() }, &logits), [1, 3]);
    assert_eq!(pick(&Sampling::default(), &[0.0, -0.0]), Some(0));
    assert_eq!(pick(&Sampling::default(), &[-0.0, 0.0]), Some(0));
    let many: Vec<f32> = (0..1_000).map(|i| if i % 3 == 2 { 1.0 } else { 0.5 }).collect();
    assert_eq!(reachable(&Sampling { top_k: 4, ..drawing() }, &many), [2, 5, 8, 11]);
}

#[test]
fn nan_and_minus_infinity_are_never_chosen() {
    let logits = [f32::NAN, NEVER, -40.0, f32::NAN, -41.0];
    assert_eq!(pick(&Sampling::default(), &logits), Some(2));
    assert_eq!(reachable(&drawing(), &logits), [2, 4]);
    assert_eq!(reachable(&Sampling { top_p: 0.99, ..drawing() }, &logits), [2, 4]);
    for sampling in [Sampling::default(), drawing(), Sampling { top_k: 3, ..drawing() }] {
        for logits in [&[f32::NAN, NEVER][..], &[NEVER; 70], &[]] {
            assert_eq!(sampling.pick(&[], logits), Err(NoChoice));
        }
    }
    assert_eq!(pick(&drawing(), &[0.0, f32::INFINITY, 3.0]), Some(1));
}

#[test]
fn truncation_keeps_what_it_says() {
    // Probabilities 0.4, 0.3, 0.2, 0.1, in another order.
    let logits = [0.2_f32.ln(), 0.4_f32.ln(), 0.1_f32.ln(), 0.3_f32.ln()];
    let with_p = |top_p| reachable(&Sampling { top_p, ..drawing() }, &logits);
    assert_eq!(with_p(0.0), [1]);
    assert_eq!(with_p(0.39), [1]);
    assert_eq!(with_p(0.41), [1, 3]);
    assert_eq!(with_p(0.71), [0, 1, 3]);
    assert_eq!(with_p(0.91), [0, 1, 2, 3]);
    let with_min = |min_p| reachable(&Sampling { min_p, ..drawing() }, &logits);
    assert_eq!(with_min(1.0), [1]);
    assert_eq!(with_min(0.7), [1, 3]);
    assert_eq!(with_min(0.3), [0, 1, 3]);
    assert_eq!(with_min(0.2), [0, 1, 2, 3]);
    // Of the two that top_k keeps, the first has 4/7.
    let both = |top_p| reachable(&Sampling { top_k: 2, top_p, ..drawing() }, &logits);
    assert_eq!(both(0.57), [1]);
    assert_eq!(both(0.58), [1, 3]);
}

#[test]
fn temperature_does_not_move_the_truncation() {
    let logits = [0.0, -1.0, -2.0, -3.0];
    let wild = Sampling { temperature: 50.0, min_p: 0.2, ..drawing() };
    assert_eq!(reachable(&wild, &logits), [0, 1]);
    let cold = Sampling { temperature: 1e-30, ..drawing() };
    assert_eq!(reachable(&cold, &logits), [0]);
}

#[test]
fn a_penalty_weakens_either_sign_once_within_its_reach() {
    let tokens = [TokenId(0), TokenId(1), TokenId(1)];
    let sampling =
        |repeat_last| Sampling { repeat_penalty: 2.0, repeat_last, ..Sampling::default() };
    let choice =
        |repeat_last, logits: &[f32]| sampling(repeat_last).pick(&tokens, logits).unwrap().0;
    assert_eq!(choice(9, &[1.1, 3.9, 2.0]), 2, "3.9 is halved");
    assert_eq!(choice(9, &[-9.0, 4.1, 2.0]), 1, "and only once");
    assert_eq!(choice(9, &[-9.0, -1.0, -1.9]), 2, "-1 is doubled");
    assert_eq!(choice(2, &[3.0, 3.9, 2.0]), 0, "token 0 is out of reach");
    assert_eq!(choice(0, &[1.1, 3.9, 2.0]), 1, "nothing is recent");
}

#[test]
fn bias_and_suppression_change_the_choice() {
    let logits = [1.0, 2.0, 3.0];
    let bias = |bias| Sampling { bias, ..Sampling::default() };
    assert_eq!(pick(&bias(vec![(TokenId(0), 2.5)]), &logits), Some(0));
    assert_eq!(pick(&bias(vec![(TokenId(2), NEVER), (TokenId(99), 9.0)]), &logits), Some(1));
    let suppress = vec![TokenId(2), TokenId(1), TokenId(99)];
    let suppressed = Sampling { suppress, bias: vec![(TokenId(2), 90.0)], ..drawing() };
    assert_eq!(reachable(&suppressed, &logits), [0]);
}

/// Draws follow the promised distribution: Pearson's statistic stays below its 99.99 % quantile.
#[test]
fn draws_follow_the_distribution() {
    const DRAWS: usize = 60_000;
    let logits: Vec<f32> = (0..12).map(|i| (i as f32 * 0.7).sin() * 2.0).collect();
    let tokens = vec![TokenId(0); DRAWS];
    for (temperature, top_k) in [(1.0, 0), (0.7, 0), (1.5, 8)] {
        let sampling = Sampling { temperature, top_k, seed: 5, ..drawing() };
        let mut counts = [0_u32; 12];
        for n in 0..DRAWS {
            counts[sampling.pick(&tokens[..n], &logits).unwrap().index()] += 1;
        }
        let mut ranked: Vec<usize> = (0..12).collect();
        ranked.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        ranked.truncate(if top_k == 0 { 12 } else { top_k });
        let mass = |id: usize| (f64::from(logits[id]) / f64::from(temperature)).exp();
        let total: f64 = ranked.iter().map(|&id| mass(id)).sum();
        let term = |&id: &usize| {
            let expected = DRAWS as f64 * mass(id) / total;
            (f64::from(counts[id]) - expected).powi(2) / expected
        };
        let chi_square: f64 = ranked.iter().map(term).sum();
        assert!(chi_square < 37.4, "temperature {temperature}: {chi_square}");
        let drawn: u32 = ranked.iter().map(|&id| counts[id]).sum();
        assert_eq!(drawn as usize, DRAWS, "nothing outside top_k");
    }
}

#[test]
fn seed_sample_and_position_each_give_another_text() {
    let logits = [0.0; 50];
    let tokens = vec![TokenId(0); 64];
    let text = |seed, sample| -> Vec<u32> {
        let sampling = Sampling { seed, sample, ..drawing() };
        (0..64).map(|n| sampling.pick(&tokens[..n], &logits).unwrap().0).collect()
    };
    assert_eq!(text(1, 0), text(1, 0));
    let agree = |a: Vec<u32>, b: Vec<u32>| a.iter().zip(b).filter(|(a, b)| **a == *b).count();
    assert!(agree(text(1, 0), text(2, 0)) < 10);
    assert!(agree(text(1, 0), text(1, 1)) < 10);
    assert!(text(1, 0).windows(2).filter(|pair| pair[0] == pair[1]).count() < 10);
}

/// The same on every platform, for good: a stored seed keeps its text.
#[test]
fn choices_are_these() {
    let logits: Vec<f32> = (0..100).map(|i| ((i * 37 % 100) as f32) * 0.05).collect();
    let tokens: Vec<_> = (0..10).map(TokenId).collect();
    let text = |sampling: &Sampling| -> Vec<u32> {
        (0..10).map(|n| sampling.pick(&tokens[..n], &logits).unwrap().0).collect()
    };
    let seeded = Sampling { seed: 42, ..drawing() };
    assert_eq!(text(&seeded), [69, 34, 95, 48, 8, 67, 8, 21, 72, 12]);
    let model = Sampling { seed: 42, top_k: 64, top_p: 0.95, ..drawing() };
    assert_eq!(text(&model), [67, 16, 34, 24, 54, 40, 54, 8, 21, 81]);
}

#[test]
fn log_probabilities_are_those_of_the_model() {
    let logits = [1.0, f32::NAN, 3.0, 3.0, NEVER, -2.0];
    let reference = |x: f64| x - (1.0_f64.exp() + 2.0 * 3.0_f64.exp() + (-2.0_f64).exp()).ln();
    let close = |a: f64, b: f64| (a - b).abs() < 1e-14;
    let of = logprobs(&logits, TokenId(0), 3);
    assert!(close(of.token, reference(1.0)), "{of:?}");
    let ids: Vec<_> = of.top.iter().map(|(token, _)| token.0).collect();
    assert_eq!(ids, [2, 3, 0]);
    assert!(close(of.top[1].1, reference(3.0)) && of.top[2].1 == of.token);
    for missing in [1, 4, 77] {
        assert_eq!(logprobs(&logits, TokenId(missing), 0).token, f64::NEG_INFINITY);
    }
    assert_eq!(logprobs(&logits, TokenId(5), 0).top, []);
    assert_eq!(logprobs(&[f32::NAN], TokenId(0), 2).top, []);
    let all = logprobs(&logits, TokenId(0), 9).top;
    assert!(close(all.iter().map(|(_, logprob)| logprob.exp()).sum(), 1.0));
}
