//! Gemma 3 270M from its real Q4_K_M file, against float32 values over the same weights.

use std::path::{Path, PathBuf};

use lapidary_backend_cpu::Cpu;
use lapidary_cache::Extent;
use lapidary_core::{Batch, Regime, SlotId, TokenId, Want};
use lapidary_model::{NoHooks, Precision};
use lapidary_testkit::{Device, Loaded, argmax, fetched, shared};
use serde_json::Value;

const FILE: &str = "gemma-3-270m-q4_k_m.gguf";
const SLOT: SlotId = SlotId(0);
/// Rows whose logits are held at a time.
const CHUNK: usize = 64;

struct Case {
    ids: Vec<TokenId>,
    greedy: Vec<TokenId>,
    top: Vec<(TokenId, f64)>,
    mean_nll: f64,
}

fn cases() -> Option<(PathBuf, Vec<Case>)> {
    let (file, stored) = (fetched(FILE)?, shared("fixtures/gemma3-270m/gemma3-270m-q4_k_m.json")?);
    let text = std::fs::read_to_string(stored).expect("readable");
    let list: Vec<Value> = serde_json::from_str(&text).expect("a list");
    let ids = |value: &Value| -> Vec<TokenId> {
        let list = value.as_array().expect("a list").iter();
        list.map(|id| TokenId(id.as_u64().expect("an id") as u32)).collect()
    };
    let case = |value: &Value| {
        let probs = value["top10_logprobs"].as_array().expect("a list").iter();
        let probs = probs.map(|p| p.as_f64().expect("a number"));
        Case {
            ids: ids(&value["ids"]),
            greedy: ids(&value["greedy_ids"]),
            top: ids(&value["top10_ids"]).into_iter().zip(probs).collect(),
            mean_nll: value["mean_nll"].as_f64().expect("a number"),
        }
    };
    Some((file, list.iter().map(case).collect()))
}

fn open(file: &Path, precision: Precision) -> Loaded<Cpu> {
    let source = lapidary_format::open(file).unwrap_or_else(|e| panic!("{e}"));
    let extent = Extent { slots: 1, context: 2048, burst: 256 };
    Loaded::of(Cpu::device(), &source, precision, extent, Regime::F32)
}

/// Log of the sum of exponentials.
fn log_sum(logits: &[f32]) -> f64 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|l| f64::from(l - most).exp()).sum();
    f64::from(most) + sum.ln()
}

/// Reads `tokens`, handing every row's logits to `see`.
fn read_all(loaded: &mut Loaded<Cpu>, tokens: &[TokenId], mut see: impl FnMut(usize, &[f32])) {
    for (i, chunk) in tokens.chunks(CHUNK).enumerate() {
        let base = i * CHUNK;
        if base == 0 {
            loaded.read(SLOT, &[], 1, 0, Want::NOTHING, &mut NoHooks);
        }
        let batch = Batch::builder().chain(SLOT, base as u32, chunk, |_| Want::LOGITS);
        let out = loaded.run(&batch.expect("chunks are not empty").build());
        loaded.commit(SLOT, chunk.len());
        out.logits.iter().for_each(|(row, logits)| see(base + row, logits));
    }
}

#[test]
fn floats_over_the_files_weights_agree_with_the_reference() {
    let Some((file, cases)) = cases() else { return };
    let mut loaded = open(&file, Precision::F32);
    for case in &cases {
        let (mut nll, mut last) = (0.0, Vec::new());
        read_all(&mut loaded, &case.ids, |row, logits| {
            if let Some(next) = case.ids.get(row + 1) {
                nll += log_sum(logits) - f64::from(logits[next.index()]);
            } else {
                last = logits.to_vec();
            }
        });
        let mean = nll / (case.ids.len() - 1) as f64;
        assert!((mean - case.mean_nll).abs() < 0.003, "mean NLL {mean}, not {}", case.mean_nll);
        let total = log_sum(&last);
        for &(token, stored) in &case.top {
            let ours = f64::from(last[token.index()]) - total;
            assert!((ours - stored).abs() < 0.02, "token {}: {ours}, not {stored}", token.0);
        }
        if !case.greedy.is_empty() {
            let ours = loaded.greedy(&[&case.ids], case.greedy.len(), &[]).remove(0);
            assert_eq!(ours, case.greedy);
        }
    }
}

#[test]
fn quantised_weights_choose_as_the_reference_does() {
    let Some((file, cases)) = cases() else { return };
    let mut loaded = open(&file, Precision::AsStored);
    let (mut equal, mut all) = (0, 0);
    for case in cases.iter().filter(|case| !case.greedy.is_empty()) {
        let text = [case.ids.as_slice(), &case.greedy].concat();
        read_all(&mut loaded, &text, |row, logits| {
            if row + 1 >= case.ids.len() && row + 1 < text.len() {
                all += 1;
                equal += usize::from(argmax(logits) == text[row + 1]);
            }
        });
    }
    println!("{equal} of {all} teacher-forced choices are equal");
    assert_eq!(all, 192);
    assert!(equal >= 180, "{equal} of {all} choices are equal, 180 were asked for");
}
