//! The drafter against stored guesses of its reference implementation: three in a chain, logits and
//! hidden states, from a folder and from a GGUF file.

use lapidary_backend_cpu::{Cpu, Reference};
use lapidary_cache::Extent;
use lapidary_core::{Backend, KvCache, SlotId, TokenId, Want};
use lapidary_model::assistant::Guess;
use lapidary_model::config::{AssistantConfig, Config};
use lapidary_model::{LoadError, NoHooks, Precision, load_assistant};
use lapidary_testkit::{
    Device, Goldens, Loaded, argmax, largest_difference, repository, shared, toy,
};
use serde_json::Value;

const TOLERANCE: f32 = 1e-3;
const EXTENT: Extent = Extent { slots: 3, context: 1024, burst: 128 };
/// The slot that is drafted for; the others hold other texts.
const SLOT: SlotId = SlotId(1);

/// Cases of text alone: the tokens in the cache, the newest token, the three guesses.
fn cases() -> Option<Vec<(String, TokenId, Vec<TokenId>)>> {
    let file = std::fs::read_to_string(shared("pebble/golden/drafter.json")?).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&file).unwrap();
    let token = |value: &Value| TokenId(value.as_u64().unwrap() as u32);
    let text = cases.iter().filter(|case| case["files"].is_null());
    let read = text.map(|case| {
        let guesses = case["draft_ids"].as_array().unwrap().iter().map(token).collect();
        (case["case"].as_str().unwrap().to_owned(), token(&case["first_token"]), guesses)
    });
    Some(read.collect())
}

fn check<B: Device>(drafter: &str, chunk: usize) {
    let (Some(cases), Some(model)) = (cases(), shared("pebble/hf")) else { return };
    let goldens = Goldens::read(&shared("pebble/golden/drafter.safetensors").unwrap());
    let mut loaded = Loaded::<B>::open(&model, Precision::F32, EXTENT);
    let source = lapidary_format::open(&shared(drafter).unwrap()).unwrap();
    let assistant =
        load_assistant(&loaded.ops, &source, &loaded.config, Precision::F32, &mut |_, _| {});
    let assistant = assistant.unwrap_or_else(|e| panic!("{e}"));
    for (case, first, guesses) in cases {
        let tokens = goldens.tokens(&format!("{case}_ids"));
        let last = tokens.len() - 1;
        let read = loaded.read(SLOT, &tokens, chunk, last, Want::HIDDEN, &mut NoHooks);
        let state = &read.hidden[0].1;
        let off = largest_difference(state, &goldens.rows(&format!("{case}_h0"))[0]);
        assert!(off <= TOLERANCE, "{case}: the target's state is off by {off}");
        let mut hidden = loaded.ops.upload(state, state.len());
        let mut token = first;
        let logits = goldens.rows(&format!("{case}_draft_logits"));
        let states = goldens.rows(&format!("{case}_draft_hidden"));
        for (i, &guessed) in guesses.iter().enumerate() {
            let Loaded { ops, model, cache, .. } = &mut loaded;
            let guess = assistant.guess(ops, model, cache, &[SLOT], &[token], &hidden);
            let ours = ops.read(&guess.logits).unwrap();
            let off = largest_difference(&ours, &logits[i]);
            assert!(off <= TOLERANCE, "{case}, guess {i}: logits are off by {off}");
            let ours_hidden = ops.read(&guess.hidden).unwrap();
            let off = largest_difference(&ours_hidden, &states[i]);
            assert!(off <= TOLERANCE, "{case}, guess {i}: hidden states are off by {off}");
            token = argmax(&ours);
            assert_eq!(token, guessed, "{case}, guess {i}");
            hidden = guess.hidden;
        }
    }
}

#[test]
fn guesses_by_definition() {
    check::<Reference>("pebble/drafter_hf", 128);
}

#[test]
fn guesses_by_kernels_of_a_text_read_in_chunks() {
    check::<Cpu>("pebble/drafter_hf", 50);
}

#[test]
fn guesses_from_a_gguf_file() {
    check::<Cpu>("pebble/gguf/pebble-drafter-bf16.gguf", 128);
}

/// The row law, for guesses: company does not show.
#[test]
fn a_guess_in_company_has_the_bits_of_one_alone() {
    let Some(drafter) = shared("pebble/drafter_hf") else { return };
    let model = repository("models/pebble/pebble-Q8_0.gguf");
    let mut loaded = Loaded::<Cpu>::open(&model, Precision::AsStored, EXTENT);
    let source = lapidary_format::open(&drafter).unwrap();
    let assistant =
        load_assistant(&loaded.ops, &source, &loaded.config, Precision::AsStored, &mut |_, _| {});
    let assistant = assistant.unwrap_or_else(|e| panic!("{e}"));
    let lengths = [200_u32, 7, 40];
    let mut states = Vec::new();
    for (slot, &length) in (0..).map(SlotId).zip(&lengths) {
        let tokens: Vec<_> = (0..length).map(|i| TokenId(300 + 7 * i * (slot.0 + 1))).collect();
        let last = tokens.len() - 1;
        let read = loaded.read(slot, &tokens, 64, last, Want::HIDDEN, &mut NoHooks);
        states.push(read.hidden[0].1.clone());
    }
    let slots: Vec<_> = (0..3).map(SlotId).collect();
    let tokens = [TokenId(400), TokenId(500), TokenId(600)];
    let Loaded { ops, model, cache, .. } = &mut loaded;
    let width = states[0].len();
    let together = ops.upload(&states.concat(), width);
    let together = assistant.guess(ops, model, cache, &slots, &tokens, &together);
    let read =
        |guess: &Guess<Cpu>| (ops.read(&guess.logits).unwrap(), ops.read(&guess.hidden).unwrap());
    let (logits, hidden) = read(&together);
    for (i, &slot) in slots.iter().enumerate() {
        let alone = ops.upload(&states[i], width);
        let alone = assistant.guess(ops, model, cache, &[slot], &tokens[i..=i], &alone);
        let (own_logits, own_hidden) = read(&alone);
        assert_eq!(own_logits, logits[i * own_logits.len()..][..own_logits.len()]);
        assert_eq!(own_hidden, hidden[i * width..][..width]);
    }
    assert_eq!(cache.committed(SLOT), 7, "looking on stores nothing");
}

#[test]
fn a_drafter_for_another_target_is_refused() {
    let Some(drafter) = shared("pebble/drafter_hf") else { return };
    let source = lapidary_format::open(&drafter).unwrap();
    let target = Config::read(lapidary_core::TensorSource::meta(&toy(1))).unwrap();
    let refused = load_assistant(&Reference, &source, &target, Precision::F32, &mut |_, _| {});
    let Err(LoadError::Config(error)) = refused else { panic!("it was loaded") };
    assert!(error.to_string().contains("drafter's head width"), "{error}");
}

#[test]
fn a_decoder_is_no_drafter() {
    let toy = toy(1);
    let meta = lapidary_core::TensorSource::meta(&toy);
    assert!(!AssistantConfig::describes(meta));
    let target = Config::read(meta).unwrap();
    let error = AssistantConfig::read(meta, &target).unwrap_err();
    assert!(error.to_string().contains("drafters of the architecture"), "{error}");
}
