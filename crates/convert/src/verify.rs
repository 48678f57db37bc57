//! Whether a file holds what it was made from, tensor by tensor.

use std::borrow::Cow;
use std::ops::Range;

use lapidary_core::{BlockType, TensorSource};
use lapidary_format::{Gguf, codec};

use crate::ConvertError;
use crate::draft::{Draft, Origin, Planned};
use crate::quantise::quantise;
use crate::workers::Workers;
use crate::write::{Progress, elements, pieces, stored};

/// How a tensor of a file compares with its source.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Its name.
    pub name: String,
    /// What was found.
    pub finding: Finding,
}

/// What was found about a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// The bytes are those that its numbers have in that type.
    Exact(BlockType),
    /// Codes, off by this part of the numbers' size (root mean square).
    Near(BlockType, f64),
    /// Off by more than its type explains.
    Far(BlockType, f64),
    /// The source has it, the file does not.
    Missing,
    /// The file has it, the source does not.
    Unknown,
    /// It has another shape: the source's, then the file's, slowest first.
    Shape(Vec<usize>, Vec<usize>),
}

impl Finding {
    /// Whether the tensor is what it should be.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Exact(_) | Self::Near(..))
    }
}

/// Compares every tensor of a file with what it was made from.
///
/// # Errors
/// The source cannot be read.
pub fn verify(
    file: &Gguf,
    source: &Draft<'_>,
    workers: &Workers,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Compared>, ConvertError> {
    let total = source.tensors.iter().map(|tensor| elements(tensor) as u64).sum();
    let (mut done, mut all) = (0, Vec::new());
    for tensor in &source.tensors {
        let finding = compare(file, source, workers, tensor)?;
        all.push(Compared { name: tensor.name.clone(), finding });
        done += elements(tensor) as u64;
        progress(Progress { tensor: &tensor.name, done, total });
    }
    let known = |name: &&str| source.tensors.iter().any(|tensor| tensor.name == **name);
    let unknown = file.names().into_iter().filter(|name| !known(name));
    all.extend(unknown.map(|name| Compared { name: name.to_owned(), finding: Finding::Unknown }));
    Ok(all)
}

fn compare(
    file: &Gguf,
    source: &Draft<'_>,
    workers: &Workers,
    tensor: &Planned,
) -> Result<Finding, ConvertError> {
    let Some(info) = file.info(&tensor.name) else { return Ok(Finding::Missing) };
    if info.shape != tensor.shape {
        return Ok(Finding::Shape(tensor.shape.clone(), info.shape.clone()));
    }
    let (from, theirs) = match &tensor.origin {
        Origin::Tensor { name, .. } | Origin::Reordered { name, .. } => {
            let block = source.source.info(name).map_or(BlockType::F32, |info| info.block);
            (block, source.source.bytes(name)?)
        }
        Origin::Made(_) => (BlockType::F32, Cow::Borrowed(&[][..])),
    };
    let ours = file.bytes(&tensor.name)?;
    let piece = Piece { tensor, from, block: info.block, theirs: &theirs, ours: &ours };
    let mut sum = Sum { exact: true, off: 0.0, size: 0.0 };
    for batch in pieces(tensor).chunks(workers.batch()) {
        workers.map(batch, |range| piece.sum(range)).iter().for_each(|part| sum.add(part));
    }
    Ok(sum.finding(info.block))
}

/// A tensor's bytes on both sides.
struct Piece<'a> {
    tensor: &'a Planned,
    from: BlockType,
    block: BlockType,
    theirs: &'a [u8],
    ours: &'a [u8],
}

/// Differences of a tensor or a part of it.
struct Sum {
    exact: bool,
    off: f64,
    size: f64,
}

impl Piece<'_> {
    fn sum(&self, range: &Range<usize>) -> Sum {
        let numbers = self.tensor.origin.numbers(self.from, self.theirs, range.clone());
        let bytes = stored(self.block, self.ours, range);
        let cols = self.tensor.shape.last().copied().unwrap_or(1);
        let exact = has_one_form(self.block)
            && quantise(self.block, cols, &numbers, None).is_ok_and(|made| made == bytes);
        let mut found = vec![0.0; numbers.len()];
        codec::decode(self.block, bytes, &mut found).expect("the file promises whole blocks");
        let square = |x: f32| f64::from(x) * f64::from(x);
        let off = numbers.iter().zip(&found).map(|(a, b)| square(a - b)).sum();
        Sum { exact, off, size: numbers.iter().map(|&x| square(x)).sum() }
    }
}

impl Sum {
    fn add(&mut self, other: &Self) {
        self.exact &= other.exact;
        self.off += other.off;
        self.size += other.size;
    }

    fn finding(&self, block: BlockType) -> Finding {
        let error = if self.off == 0.0 { 0.0 } else { (self.off / self.size).sqrt() };
        if self.exact {
            return Finding::Exact(block);
        }
        // A NaN is not below the bound.
        if error <= bound(block) { Finding::Near(block, error) } else { Finding::Far(block, error) }
    }
}

/// Types that leave nothing to choose: numbers have one form in them.
fn has_one_form(block: BlockType) -> bool {
    !block.is_quantised() || block == BlockType::Q8_0
}

/// The largest error that a type explains, relative to the numbers: twice that of normal numbers,
/// because real rows have longer tails. Two unrelated tensors are 1.4 apart.
fn bound(block: BlockType) -> f64 {
    match block {
        BlockType::F32 | BlockType::F16 | BlockType::BF16 | BlockType::Q8_0 => 0.0,
        BlockType::Q6_K => 0.04,
        BlockType::Q5_0 | BlockType::Q5_1 | BlockType::Q5_K => 0.1,
        BlockType::Q3_K => 0.4,
        BlockType::Q2_K => 0.75,
        _ => 0.2,
    }
}
