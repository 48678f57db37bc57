//! Whole models: golden values of an independent implementation, and the row law over schedules.

use crate::common::{device, same_bits};
use lapidary_backend_cpu::{Cpu, Isa};
use lapidary_backend_cuda::Cuda;
use lapidary_cache::Extent;
use lapidary_core::{Batch, Code, KvCache, Regime, SlotId, TokenId, Want};
use lapidary_model::{NoHooks, Precision};
use lapidary_testkit::{
    Goldens, LONGEST, Loaded, PEBBLE_END, Rng, Taps, answers, largest_difference, shared,
};

/// Single-precision sums in another order: the bar of the plain float path.
const TOLERANCE: f32 = 1e-3;
const SLOT: SlotId = SlotId(0);

fn load(path: &str, precision: Precision, extent: Extent, regime: Regime) -> Option<Loaded<Cuda>> {
    let cuda = device()?;
    let source = lapidary_format::open(&shared(path)?).unwrap_or_else(|e| panic!("{e}"));
    Some(Loaded::of(cuda, &source, precision, extent, regime))
}

/// A random checkpoint of 100 positions: logits everywhere, hidden states of six rows.
fn random_checkpoint(name: &str) {
    const STORED: [usize; 6] = [0, 15, 16, 17, 47, 99];
    let extent = Extent { slots: 1, context: 256, burst: 128 };
    let path = format!("fixtures/{name}");
    let Some(mut model) = load(&path, Precision::F32, extent, Regime::F32) else { return };
    let golden = shared(&format!("{path}/golden.safetensors")).expect("it lies with the model");
    let goldens = Goldens::read(&golden);
    let tokens = goldens.tokens("ids");
    for chunk in [tokens.len(), 13] {
        let mut taps = Taps { layers: Vec::new() };
        let out = model.read(SLOT, &tokens, chunk, 0, Want::BOTH, &mut taps);
        let logits = goldens.rows("logits");
        assert_eq!(out.logits.len(), tokens.len());
        for (row, ours) in &out.logits {
            let off = largest_difference(ours, &logits[*row]);
            assert!(off <= TOLERANCE, "{name}: logits of position {row} are off by {off}");
        }
        if chunk < tokens.len() {
            continue;
        }
        let normed: Vec<f32> = out.hidden.iter().flat_map(|(_, x)| x).copied().collect();
        *taps.layers.last_mut().expect("there are layers") = normed;
        for (i, layer) in taps.layers.iter().enumerate() {
            let stored = goldens.rows(&format!("hidden_{i}"));
            for (stored, &at) in stored.iter().zip(&STORED) {
                let width = stored.len();
                let off = largest_difference(&layer[at * width..(at + 1) * width], stored);
                assert!(off <= TOLERANCE, "{name}: layer {i} at position {at} is off by {off}");
            }
        }
    }
}

#[test]
fn dense_checkpoint() {
    random_checkpoint("dense");
}

#[test]
fn per_layer_inputs_and_shared_entries() {
    random_checkpoint("ple");
}

#[test]
fn pebble() {
    let extent = Extent { slots: 1, context: 1024, burst: 256 };
    let Some(mut model) = load("pebble/hf", Precision::F32, extent, Regime::F32) else { return };
    let Some(golden) = shared("pebble/golden/golden.safetensors") else { return };
    let goldens = Goldens::read(&golden);
    for n in [1, 17, 127, 128, 129, 200, 300, 700] {
        let tokens = goldens.tokens(&format!("ids_{n}"));
        let out = model.read(SLOT, &tokens, 97, 0, Want::LOGITS, &mut NoHooks);
        let stored = goldens.rows(&format!("logits_last_{n}"));
        let ours = &out.logits[n - stored.len()..];
        for ((row, ours), stored) in ours.iter().zip(&stored) {
            let off = largest_difference(ours, stored);
            assert!(off <= TOLERANCE, "length {n}: logits of position {row} are off by {off}");
        }
    }
}

/// Every stored question, on this device and on the CPU: the same tokens, but for definitions, whose
/// close calls feel the order of additions in attention. How many of those agree is said.
#[test]
fn pebble_answers_as_on_the_cpu() {
    const DEFINITIONS: &str = "definition";
    let extent = Extent { slots: 32, context: 1024, burst: 256 };
    let Some(questions) = shared("pebble/golden/answers.jsonl") else { return };
    let gguf = "pebble/gguf/pebble-Q8_0.gguf";
    let Some(mut ours) = load(gguf, Precision::AsStored, extent, Regime::F16) else { return };
    let source = lapidary_format::open(&shared(gguf).expect("it was just there"));
    let source = source.unwrap_or_else(|e| panic!("{e}"));
    let cpu = Cpu::new(Isa::best(), 8).expect("the best instruction set is there");
    let mut theirs = Loaded::of(cpu, &source, Precision::AsStored, extent, Regime::F16);
    let questions = answers(&questions);
    let prompts: Vec<_> = questions.iter().map(|q| q.prompt.as_slice()).collect();
    let ours = ours.greedy(&prompts, LONGEST, &PEBBLE_END);
    let theirs = theirs.greedy(&prompts, LONGEST, &PEBBLE_END);
    let (mut definitions, mut alike) = (0, 0);
    for ((question, ours), theirs) in questions.iter().zip(&ours).zip(&theirs) {
        if question.category == DEFINITIONS {
            definitions += 1;
            alike += usize::from(ours == theirs);
        } else {
            assert_eq!(ours, theirs, "{}: {}", question.category, question.expected);
        }
    }
    let right = questions.iter().zip(&ours).filter(|(q, ours)| q.greedy == **ours).count();
    println!(
        "{right} of {} as the original; {alike} of {definitions} definitions as on the CPU",
        questions.len()
    );
}

/// Rows at the end of a text whose logits are compared.
const COMPARED: usize = 3;
/// Most rows that a step brings to one slot.
const BURST: usize = 256;

/// What is wanted for row `i` of a text.
fn want(text: &[TokenId], i: usize) -> Want {
    if i + COMPARED >= text.len() { Want::LOGITS } else { Want::NOTHING }
}

/// Reads texts into several slots in random pieces, many or few rows at a time, and asserts that
/// every row has the logits that it has when its text is read alone.
fn schedules(path: &str, regime: Regime, rounds: usize) {
    let extent = Extent { slots: 6, context: 512, burst: BURST as u32 };
    let Some(mut model) = load(path, Precision::AsStored, extent, regime) else { return };
    let mut rng = Rng(7);
    for round in 0..rounds {
        let texts: Vec<_> = (0..1 + rng.below(6)).map(|_| text(&mut rng)).collect();
        let alone: Vec<_> = texts
            .iter()
            .map(|text| {
                let chunk = if round % 2 == 0 { BURST } else { 1 + rng.below(64) };
                let first = text.len().saturating_sub(COMPARED);
                model.read(SLOT, text, chunk, first, Want::LOGITS, &mut NoHooks).logits
            })
            .collect();
        (0..texts.len() as u32)
            .for_each(|slot| KvCache::<Cuda>::clear(&mut model.cache, SlotId(slot)));
        let mut done = vec![0; texts.len()];
        while done.iter().zip(&texts).any(|(done, text)| *done < text.len()) {
            let batch = random_step(&mut rng, &texts, &done);
            if batch.rows().is_empty() {
                continue;
            }
            for (row, logits) in model.run(&batch).logits {
                let (slot, pos) = (batch.rows()[row].slot.index(), batch.rows()[row].pos as usize);
                let same = alone[slot].iter().find(|(row, _)| *row == pos);
                let (_, theirs) = same.expect("the row was read alone too");
                same_bits(&logits, theirs, &format!("round {round}, slot {slot}, row {pos}"));
            }
            for span in batch.spans() {
                model.commit(span.slot, span.len);
                done[span.slot.index()] += span.len;
            }
        }
    }
}

fn text(rng: &mut Rng) -> Vec<TokenId> {
    (0..1 + rng.below(300)).map(|_| TokenId(20 + rng.below(4000) as u32)).collect()
}

/// The next rows of some of the texts, of which `done` have been read, in any order of slots.
fn random_step(rng: &mut Rng, texts: &[Vec<TokenId>], done: &[usize]) -> Batch {
    let mut order: Vec<usize> = (0..texts.len()).collect();
    rng.shuffle(&mut order);
    let mut batch = Batch::builder();
    for slot in order {
        let (text, base) = (&texts[slot], done[slot]);
        let most = if rng.below(2) == 0 { 4 } else { BURST };
        let take = rng.below(most + 1).min(text.len() - base);
        if take > 0 {
            let piece = &text[base..base + take];
            let chain =
                batch.chain(SlotId(slot as u32), base as u32, piece, |i| want(text, base + i));
            batch = chain.expect("slots are distinct");
        }
    }
    batch.build()
}

#[test]
fn rows_keep_their_bits_under_codes() {
    let sides = |keys, values| Regime { keys, values };
    let (four, five, six, eight) =
        (Code::Rotated(4), Code::Rotated(5), Code::Rotated(6), Code::Rotated(8));
    for regime in [sides(eight, eight), sides(six, five), sides(four, four), sides(Code::F16, five)]
    {
        schedules("pebble/gguf/pebble-Q8_0.gguf", regime, 5);
    }
}

#[test]
fn rows_of_q8_0_keep_their_bits_in_any_schedule() {
    schedules("pebble/gguf/pebble-Q8_0.gguf", Regime::F16, 25);
    schedules("pebble/gguf/pebble-Q8_0.gguf", Regime::F32, 5);
}

#[test]
fn rows_of_q4_k_m_keep_their_bits_in_any_schedule() {
    schedules("pebble/gguf/pebble-Q4_K_M.gguf", Regime::F16, 25);
}
