//! The sampler against its naive twin, against the distribution it promises, and at the edges.

use lapidary_core::TokenId;
use lapidary_core::likeliest;
use lapidary_engine::{Dry, NoChoice, Sampling, Xtc, logprobs};
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
        let count = recent.filter(|token| token.index() == id).count();
        if count > 0 {
            let frequent = count as f32 * sampling.frequency_penalty;
            *logit -= frequent + sampling.presence_penalty;
        }
    }
    if let Some(dry) = &sampling.dry {
        (0..logits.len()).for_each(|id| logits[id] -= loss(dry, tokens, TokenId(id as u32)));
    }
    for token in &sampling.suppress {
        logits[token.index()] = NEVER;
    }
    let plain = logits.clone();
    if sampling.top_n_sigma > 0.0 {
        let finite: Vec<_> =
            plain.iter().filter(|l| l.is_finite()).map(|&l| f64::from(l)).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let centre = mean(&finite);
        let squares: Vec<_> = finite.iter().map(|l| (l - centre).powi(2)).collect();
        let highest = finite.iter().copied().fold(f64::MIN, f64::max);
        let bar = highest - f64::from(sampling.top_n_sigma) * mean(&squares).sqrt();
        logits.iter_mut().filter(|l| f64::from(**l) < bar).for_each(|l| *l = NEVER);
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
    if sampling.typical_p < 1.0 {
        kept = typical(&kept, &|id| mass(id, 1.0), sampling.typical_p);
    }
    let best = mass(*kept.first()?, 1.0);
    let total: f64 = kept.iter().map(|&id| mass(id, 1.0)).sum();
    if sampling.top_p < 1.0 {
        let mut sum = 0.0;
        let enough = kept.iter().position(|&id| {
            sum += mass(id, 1.0);
            sum >= f64::from(sampling.top_p) * total
        });
        kept.truncate(enough.map_or(kept.len(), |last| last + 1));
    }
    kept.retain(|&id| mass(id, 1.0) / best >= f64::from(sampling.min_p));
    let cuts = sampling.typical_p < 1.0 || sampling.top_p < 1.0 || sampling.min_p > 0.0;
    if !cuts && sampling.top_k == 0 {
        kept = in_order;
    }
    if let Some(xtc) = sampling.xtc
        && dice(1, sampling.seed, sampling.sample, tokens.len()) < f64::from(xtc.probability)
    {
        let bar = f64::from(xtc.threshold) * kept.iter().map(|&id| mass(id, 1.0)).sum::<f64>();
        let mut obvious = kept.clone();
        obvious.retain(|&id| mass(id, 1.0) >= bar);
        obvious.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).unwrap().then(a.cmp(&b)));
        obvious.pop();
        kept.retain(|id| !obvious.contains(id));
    }
    let temperature = f64::from(sampling.temperature);
    let target = dice(0, sampling.seed, sampling.sample, tokens.len())
        * kept.iter().map(|&id| mass(id, temperature)).sum::<f64>();
    let mut sum = 0.0;
    let chosen = kept.into_iter().find(|&id| {
        sum += mass(id, temperature);
        sum > target
    });
    chosen.map(|id| TokenId(id as u32))
}

/// The paper's words: probabilities, their entropy, and who is closest to it.
fn typical(ranked: &[usize], mass: &dyn Fn(usize) -> f64, share: f32) -> Vec<usize> {
    let total: f64 = ranked.iter().map(|&id| mass(id)).sum();
    let p = |id: usize| mass(id) / total;
    let possible = || ranked.iter().copied().filter(|&id| p(id) > 0.0);
    let entropy: f64 = possible().map(|id| -p(id) * p(id).ln()).sum();
    let mut kept: Vec<_> = possible().collect();
    let distance = |id: usize| (-p(id).ln() - entropy).abs();
    kept.sort_by(|&a, &b| distance(a).total_cmp(&distance(b)));
    let mut sum = 0.0;
    let enough = kept.iter().position(|&id| {
        sum += p(id);
        sum >= f64::from(share)
    });
    kept.truncate(enough.map_or(kept.len(), |last| last + 1));
    let mut in_order = ranked.to_vec();
    in_order.retain(|id| kept.contains(id));
    in_order
}

/// What a token loses for going on with a repetition: every earlier place is tried.
fn loss(dry: &Dry, tokens: &[TokenId], token: TokenId) -> f32 {
    let recent = &tokens[tokens.len().saturating_sub(dry.range)..];
    if dry.breakers.contains(&token) {
        return 0.0;
    }
    let repeats = |at: usize, length: usize| {
        let tail = &recent[recent.len() - length..];
        let unbroken = tail.iter().all(|token| !dry.breakers.contains(token));
        recent[at] == token && unbroken && recent[at - length..at] == *tail
    };
    let lengths =
        (0..recent.len()).flat_map(|at| (dry.allowed..=at).filter(move |&n| repeats(at, n)));
    let power = |length: usize| f64::from(dry.base).powi((length - dry.allowed) as i32);
    lengths.max().map_or(0.0, |length| (f64::from(dry.multiplier) * power(length)) as f32)
}

/// The splitmix64 sequence of the seed's hash, entry by entry; `which` more times hashed.
fn dice(which: usize, seed: u64, sample: u32, position: usize) -> f64 {
    const STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;
    let count = (u64::from(sample) << 32) + position as u64;
    let start = (0..=which).fold(seed.wrapping_add(STRIDE), |start, _| mix(start));
    let bits = mix(start.wrapping_add(STRIDE.wrapping_mul(count)));
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
    fn any_shares()(
        typical_p in prop_oneof![2 => Just(1.0_f32), 1 => 0.01_f32..1.0],
        top_p in prop_oneof![Just(1.0_f32), Just(0.0), 0.01_f32..1.0],
    ) -> (f32, f32) {
        (typical_p, top_p)
    }
}

prop_compose! {
    fn any_sampling()(
        seed: u64,
        sample in 0_u32..3,
        temperature in prop_oneof![Just(0.0_f32), Just(1.0), 0.05_f32..3.0],
        top_k in prop_oneof![Just(0_usize), 1_usize..80, Just(usize::MAX)],
        (typical_p, top_p) in any_shares(),
        min_p in prop_oneof![Just(0.0_f32), Just(1.0), 0.0001_f32..0.9],
        repeat_penalty in prop_oneof![Just(1.0_f32), 0.5_f32..2.0],
        repeat_last in 0_usize..9,
        presence_penalty in prop_oneof![Just(0.0_f32), -2.0_f32..2.0],
        frequency_penalty in prop_oneof![Just(0.0_f32), -2.0_f32..2.0],
        dry in prop::option::of(any_dry()),
        top_n_sigma in prop_oneof![4 => Just(0.0_f32), 1 => 0.1_f32..3.0],
        xtc in prop::option::of((0.0_f32..1.0, 0.0_f32..0.5)),
    ) -> Sampling {
        let xtc = xtc.map(|(probability, threshold)| Xtc { probability, threshold });
        let neutral = Sampling::default();
        Sampling {
            seed, sample, temperature, top_k, typical_p, top_p, min_p, repeat_penalty, repeat_last,
            presence_penalty, frequency_penalty, dry, top_n_sigma, xtc, ..neutral
        }
    }
}

prop_compose! {
    /// Breakers are drawn among the first few tokens.
    fn any_dry()(
        multiplier in 0.1_f32..3.0,
        base in prop_oneof![Just(1.0_f32), Just(1.5), Just(2.0)],
        allowed in 1_usize..4,
        range in 0_usize..40,
        breakers in prop::collection::vec(0_u32..3, 0..2),
    ) -> Dry {
        let breakers = breakers.into_iter().map(TokenId).collect();
        Dry { multiplier, base, allowed, range, breakers }
    }
}

prop_compose! {
    /// Settings whose choice the likeliest tokens may decide.
    fn narrow_sampling()(
        any in any_sampling(),
        top_k in prop_oneof![Just(0_usize), 1_usize..80, Just(1020), Just(usize::MAX)],
    ) -> Sampling {
        let penalties = Sampling { repeat_penalty: 1.0, dry: None, ..any };
        Sampling { top_k, presence_penalty: 0.0, frequency_penalty: 0.0, top_n_sigma: 0.0, ..penalties }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A row that stayed on the device yields the same token.
    #[test]
    fn the_likeliest_tokens_decide_as_the_whole_row_does(
        logits in any_logits(),
        sampling in narrow_sampling(),
        position in 0_usize..50,
        suppress in prop::collection::vec(0_u32..700, 0..5),
        spare in 0_usize..3,
    ) {
        let suppress = suppress.into_iter().map(TokenId).collect();
        let sampling = Sampling { suppress, ..sampling };
        let Some(reach) = sampling.reach() else { return Ok(()) };
        let tokens = vec![TokenId(0); position];
        let few = likeliest(&logits, reach + spare);
        prop_assert_eq!(sampling.pick_among(&tokens, &few), sampling.pick(&tokens, &logits));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_sampler_agrees_with_its_twin(
        logits in any_logits(),
        sampling in any_sampling(),
        text in prop_oneof![
            prop::collection::vec(0_usize..700, 0..12),
            prop::collection::vec(0_usize..3, 0..60),
        ],
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
fn a_row_stays_where_it_is_unless_it_decides() {
    let reach = |sampling: Sampling| sampling.reach();
    let greedy = Sampling::default;
    assert_eq!(reach(greedy()), Some(1));
    assert_eq!(reach(Sampling { top_k: 40, top_p: 0.9, min_p: 0.1, ..greedy() }), Some(1));
    assert_eq!(reach(Sampling { suppress: vec![TokenId(1), TokenId(2)], ..greedy() }), Some(3));
    assert_eq!(reach(Sampling { top_k: 64, top_p: 0.95, ..drawing() }), Some(64));
    assert_eq!(reach(Sampling { top_k: 1024, ..drawing() }), Some(1024));
    let whole = [
        drawing(),
        Sampling { top_k: 1025, ..drawing() },
        Sampling { top_p: 0.9, ..drawing() },
        Sampling { top_k: 9, top_n_sigma: 1.0, ..drawing() },
        Sampling { repeat_penalty: 1.1, ..greedy() },
        Sampling { presence_penalty: -0.5, ..greedy() },
        Sampling { frequency_penalty: 0.5, ..greedy() },
        Sampling { bias: vec![(TokenId(1), 1.0)], ..greedy() },
        Sampling { suppress: vec![TokenId(1); 1024], ..greedy() },
    ];
    for sampling in whole {
        assert_eq!(sampling.reach(), None, "{sampling:?}");
    }
}

#[test]
fn presence_counts_once_and_frequency_each_time() {
    let tokens = [0, 1, 1, 1].map(TokenId);
    let choice = |sampling: Sampling| sampling.pick(&tokens, &[2.0, 2.9, 1.5]).unwrap().0;
    let presence = |presence_penalty| Sampling { presence_penalty, ..Sampling::default() };
    assert_eq!(choice(presence(1.0)), 1, "2.9 - 1 is above 1.5");
    assert_eq!(choice(presence(1.5)), 2, "2.9 - 1.5 and 2 - 1.5 are below 1.5");
    let frequency = |frequency_penalty| Sampling { frequency_penalty, ..Sampling::default() };
    assert_eq!(choice(frequency(0.46)), 0, "2.9 - 3 × 0.46 is below 2 - 0.46");
    assert_eq!(choice(Sampling { repeat_last: 1, ..frequency(0.46) }), 1, "only one is recent");
    let encouraged = Sampling { presence_penalty: -1.0, ..Sampling::default() };
    assert_eq!(encouraged.pick(&[TokenId(2)], &[2.0, 2.9, 2.0]), Ok(TokenId(2)));
}

#[test]
fn a_repetition_is_dropped_before_it_gets_long() {
    let dry = |allowed, breakers| {
        let dry = Dry { multiplier: 1.0, base: 2.0, allowed, range: 99, breakers };
        Sampling { dry: Some(dry), ..Sampling::default() }
    };
    // `0 1 2` has come before, then `0 1`: 2 would go on with a repetition of two.
    let tokens = [0, 1, 2, 3, 0, 1].map(TokenId);
    let choice =
        |sampling: Sampling, lead: f32| sampling.pick(&tokens, &[0.0, 0.0, lead, 0.0]).unwrap().0;
    assert_eq!(choice(dry(2, vec![]), 0.9), 0, "2 loses 1");
    assert_eq!(choice(dry(2, vec![]), 1.1), 2);
    assert_eq!(choice(dry(1, vec![]), 1.9), 0, "2 loses 2");
    assert_eq!(choice(dry(3, vec![]), 0.1), 2, "two are not enough");
    assert_eq!(choice(dry(2, vec![TokenId(0)]), 0.1), 2, "the repetition begins after 0");
    assert_eq!(choice(dry(1, vec![TokenId(2)]), 0.1), 2, "2 breaks repetitions");
    // However long, it is a penalty and no ban.
    let long = vec![TokenId(0); 5_000];
    assert_eq!(dry(1, vec![]).pick(&long, &[1.0, NEVER]), Ok(TokenId(0)));
}

#[test]
fn the_obvious_is_excluded_but_for_the_least_of_it() {
    // Probabilities 0.4, 0.3, 0.2, 0.1, in another order.
    let logits = [0.2_f32.ln(), 0.4_f32.ln(), 0.1_f32.ln(), 0.3_f32.ln()];
    let xtc = |probability, threshold| Sampling {
        xtc: Some(Xtc { probability, threshold }),
        ..drawing()
    };
    let kept = |sampling: Sampling| reachable(&sampling, &logits);
    assert_eq!(kept(xtc(1.0, 0.15)), [0, 2]);
    assert_eq!(kept(xtc(1.0, 0.25)), [0, 2, 3]);
    assert_eq!(kept(xtc(1.0, 0.35)), [0, 1, 2, 3], "one obvious token stays");
    assert_eq!(kept(xtc(1.0, 0.0)), [2]);
    assert_eq!(kept(xtc(0.0, 0.0)), [0, 1, 2, 3]);
    let tokens = vec![TokenId(0); 4_000];
    let first = |n: usize| xtc(0.5, 0.25).pick(&tokens[..n], &logits).unwrap() == TokenId(1);
    let times = (0..4_000).filter(|&n| first(n)).count();
    assert!((700..900).contains(&times), "0.4 half of the time: {times}");
}

#[test]
fn the_typical_is_neither_the_obvious_nor_the_odd() {
    // Probabilities 0.5, 0.2, 0.2, 0.1 are 0.69, 1.61, 1.61 and 2.30 surprising, 1.22 on average.
    let logits: Vec<f32> = [0.5_f32, 0.2, 0.2, 0.1].into_iter().map(f32::ln).collect();
    let typical = |typical_p| reachable(&Sampling { typical_p, ..drawing() }, &logits);
    assert_eq!(typical(0.0), [1], "closest, and of two such the lower id");
    assert_eq!(typical(0.3), [1, 2]);
    assert_eq!(typical(0.6), [0, 1, 2]);
    assert_eq!(typical(1.0), [0, 1, 2, 3]);
}

#[test]
fn what_is_far_below_the_best_is_dropped() {
    // Mean 0, standard deviation 2.
    let logits = [2.0, -2.0, 2.0, -2.0, 2.1];
    let kept = |top_n_sigma| reachable(&Sampling { top_n_sigma, ..drawing() }, &logits);
    assert_eq!(kept(0.0), [0, 1, 2, 3, 4]);
    assert_eq!(kept(0.01), [4]);
    assert_eq!(kept(1.0), [0, 2, 4]);
    assert_eq!(kept(3.0), [0, 1, 2, 3, 4]);
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
