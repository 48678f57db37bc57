//! Pictures against values of an independent implementation: pixels, soft tokens, logits.

use std::ops::Range;

use lapidary_backend_cpu::{Cpu, Reference};
use lapidary_cache::Extent;
use lapidary_core::{Batch, Input, Patches, RowSpec, SlotId, SoftId, SpanSpec, TokenId, Want};
use lapidary_model::vision::{Tower, Unseen};
use lapidary_model::{NoHooks, Precision, run_with};
use lapidary_testkit::{
    Device, Goldens, Loaded, PictureCase, largest_difference, picture_cases, repository, shared,
    tower,
};

/// Where Pebble's soft tokens may differ: sums in another order, through four layers and norms.
const SOFT: f32 = 1e-3;
/// The same through the decoder.
const LOGITS: f32 = 2e-3;
/// The token that stands for a soft one.
const PLACEHOLDER: TokenId = TokenId(18);

fn goldens() -> Option<Goldens> {
    Some(Goldens::read(&shared("pebble/golden/images.safetensors")?))
}

fn cases_with_tensors() -> impl Iterator<Item = PictureCase> {
    picture_cases().into_iter().filter(|case| case.has_tensors)
}

#[test]
fn pixels_are_those_of_the_original() {
    let Some(goldens) = goldens() else { return };
    for case in cases_with_tensors() {
        for (i, picture) in case.pictures().iter().enumerate() {
            let stored = goldens.bytes(&format!("pixels_u8_{:02}_{i}", case.index));
            assert_eq!(picture.values.len(), stored.len(), "picture {} {i}", case.index);
            let pairs = picture.values.iter().zip(&stored);
            let off = pairs.map(|(a, b)| a.abs_diff(*b)).max();
            assert_eq!(off, Some(0), "picture {} {i}", case.index);
        }
    }
}

/// Every stored picture's soft tokens; the tower from `from`, within `most` of the stored ones.
fn soft_tokens<B: Device>(from: &str, most: f32, only: impl Fn(&PictureCase) -> bool) {
    let (Some(goldens), Some(path)) = (goldens(), shared(from)) else { return };
    let ops = B::device();
    let tower = tower(&ops, &path);
    let mut worst = 0.0_f32;
    for case in cases_with_tensors().filter(only) {
        for (i, picture) in case.pictures().iter().enumerate() {
            let soft = tower.look(&ops, picture).unwrap_or_else(|e| panic!("{e}"));
            let ours = ops.read(&soft).expect("the device works");
            let stored = goldens.rows(&format!("soft_{:02}_{i}", case.index)).concat();
            assert_eq!(tower.count(picture), Ok(case.soft_tokens[i]), "picture {}", case.index);
            let off = largest_difference(&ours, &stored);
            assert!(off <= most, "soft tokens of picture {} {i} are off by {off}", case.index);
            worst = worst.max(off);
        }
    }
    eprintln!("soft tokens of {from} are off by {worst:e} at most");
}

#[test]
fn soft_tokens_of_a_folder_by_definition() {
    soft_tokens::<Reference>("pebble/hf", SOFT, |case| case.index == 7);
}

#[test]
fn soft_tokens_of_a_folder_by_kernels() {
    soft_tokens::<Cpu>("pebble/hf", SOFT, |_| true);
}

/// The file keeps the weights in 16-bit floats of fewer binades than the folder's.
#[test]
fn soft_tokens_of_an_mmproj_file_by_kernels() {
    soft_tokens::<Cpu>("pebble/gguf/pebble-mmproj-f16.gguf", SOFT, |_| true);
}

/// Where the pictures' placeholders stand.
fn blocks(tokens: &[TokenId]) -> Vec<Range<usize>> {
    let mut blocks: Vec<Range<usize>> = Vec::new();
    for i in (0..tokens.len()).filter(|&i| tokens[i] == PLACEHOLDER) {
        match blocks.last_mut() {
            Some(block) if block.end == i => block.end += 1,
            _ => blocks.push(i..i + 1),
        }
    }
    blocks
}

/// A prompt whose placeholders are the rows of soft tokens; its last two rows want logits.
fn prompt(tokens: &[TokenId]) -> Batch {
    let blocks = blocks(tokens);
    let row = |(i, &token): (usize, &TokenId)| {
        let soft = blocks.iter().position(|block| block.contains(&i));
        let input = match soft {
            Some(block) => {
                Input::Soft { source: SoftId(block as u32), row: (i - blocks[block].start) as u32 }
            }
            None => Input::Token(token),
        };
        let want = if i + 2 < tokens.len() { Want::NOTHING } else { Want::LOGITS };
        RowSpec { input, angle: [i as u32; 3], want }
    };
    let rows = tokens.iter().enumerate().map(row).collect();
    let span = SpanSpec { rows, parents: Vec::new(), blocks: blocks.clone() };
    Batch::builder().span(SlotId(0), 0, span).expect("blocks lie in the prompt").build()
}

fn logits<B: Device>(only: impl Fn(&PictureCase) -> bool) {
    let (Some(goldens), Some(folder)) = (goldens(), shared("pebble/hf")) else { return };
    let extent = Extent { slots: 1, context: 512, burst: 512 };
    let mut loaded = Loaded::<B>::open(&folder, Precision::F32, extent);
    let tower = tower(&loaded.ops, &folder);
    let mut worst = 0.0_f32;
    for case in cases_with_tensors().filter(only) {
        let Loaded { ops, model, cache, .. } = &mut loaded;
        let look = |picture| tower.look(ops, picture).unwrap_or_else(|e| panic!("{e}"));
        let soft: Vec<_> = case.pictures().iter().map(look).collect();
        let batch = prompt(&case.turns[0].tokens);
        lapidary_core::KvCache::clear(cache, SlotId(0));
        let out = run_with(ops, model, cache, &batch, &soft, &mut NoHooks);
        let out = out.unwrap_or_else(|e| panic!("{e}"));
        let stored = goldens.rows(&format!("logits_last_{:02}", case.index));
        for ((row, ours), stored) in out.logits.iter().zip(&stored) {
            let off = largest_difference(ours, stored);
            assert!(off <= LOGITS, "case {}: logits of row {row} are off by {off}", case.index);
            worst = worst.max(off);
        }
        assert_eq!(out.logits.len(), stored.len());
    }
    eprintln!("logits are off by {worst:e} at most");
}

#[test]
fn logits_after_pictures_by_kernels() {
    logits::<Cpu>(|_| true);
}

#[test]
fn logits_after_two_pictures_by_definition() {
    logits::<Reference>(|case| case.index == 9);
}

/// A random tower that has what Pebble's lacks: bounds around projections, heads of 72 columns, soft
/// tokens that are not standardised. Its numbers come from `data/tower/make.py`.
fn small_tower<B: Device>() {
    let folder = repository("crates/testkit/tests/data/tower");
    let goldens = Goldens::read(&folder.join("golden.safetensors"));
    let ops = B::device();
    let tower = tower(&ops, &folder);
    let picture = Patches { columns: 9, rows: 6, side: 4, values: goldens.bytes("pixels") };
    let soft = tower.look(&ops, &picture).unwrap_or_else(|e| panic!("{e}"));
    let off = largest_difference(
        &ops.read(&soft).expect("the device works"),
        &goldens.rows("soft").concat(),
    );
    assert!(off <= 1e-4, "{}: soft tokens are off by {off}", ops.name());
    eprintln!("{}: soft tokens are off by {off:e}", ops.name());
}

#[test]
fn bounds_and_odd_heads_by_definition() {
    small_tower::<Reference>();
}

#[test]
fn bounds_and_odd_heads_by_kernels() {
    small_tower::<Cpu>();
}

#[test]
fn pictures_that_a_tower_cannot_read_are_refused() {
    let ops = Cpu::device();
    let tower = tower(&ops, &repository("crates/testkit/tests/data/tower"));
    let picture = |columns: usize, rows: usize, side: usize| {
        let values = vec![0; columns * rows * 3 * side * side];
        Patches { columns, rows, side, values }
    };
    assert_eq!(tower.count(&picture(15, 3, 4)), Ok(5));
    let refused = |picture| tower.look(&ops, &picture).err();
    assert_eq!(refused(picture(9, 6, 16)), Some(Unseen::Side { found: 16, side: 4 }));
    assert_eq!(refused(picture(9, 5, 4)), Some(Unseen::Grid { columns: 9, rows: 5, pool: 3 }));
    assert_eq!(refused(picture(0, 3, 4)), Some(Unseen::Grid { columns: 0, rows: 3, pool: 3 }));
    assert_eq!(refused(picture(18, 3, 4)), Some(Unseen::Long { columns: 18, rows: 3, most: 16 }));
}
