//! From a draft to a file: piece by piece through all threads, under another name until the last
//! byte is on the disk.

use std::borrow::Cow;
use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::Path;

use lapidary_core::{BlockType, TensorInfo};
use lapidary_format::codec;
use lapidary_format::gguf::{GgufValue, Writer};

use crate::ConvertError;
use crate::draft::{Draft, Origin, Planned};
use crate::imatrix::Imatrix;
use crate::quantise::quantise;
use crate::unfinished::Unfinished;
use crate::workers::Workers;

/// Numbers that one thread takes on at a time: a few megabytes with all that belongs to them.
const PIECE: usize = 1 << 18;

/// How far a file is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress<'a> {
    /// The tensor that is being written.
    pub tensor: &'a str,
    /// Numbers written so far.
    pub done: u64,
    /// Numbers of the whole file.
    pub total: u64,
}

/// What became of a tensor.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Written {
    /// Its name.
    pub name: String,
    /// Dimensions, slowest first.
    pub shape: Vec<usize>,
    /// How its source stores it.
    pub from: BlockType,
    /// How the file stores it.
    pub to: BlockType,
    /// Whether importance weighed its errors.
    pub weighed: bool,
}

impl Written {
    /// Bytes in the file.
    pub fn bytes(&self) -> u64 {
        TensorInfo { block: self.to, shape: self.shape.clone() }.bytes() as u64
    }
}

/// Writes a draft with the given type for each tensor.
pub(crate) fn write(
    draft: &Draft<'_>,
    types: &[BlockType],
    importance: Option<&Imatrix>,
    to: &Path,
    workers: &Workers,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Written>, ConvertError> {
    let tensors: Vec<_> = draft.tensors.iter().zip(types).collect();
    for (tensor, block) in &tensors {
        let cols = tensor.shape.last().copied().unwrap_or(0);
        if block.row_bytes(cols).is_none() {
            let name = tensor.name.clone();
            return Err(ConvertError::Ragged { name, cols, block: **block });
        }
    }
    let announced: Vec<_> = tensors
        .iter()
        .map(|(tensor, block)| {
            (tensor.name.clone(), TensorInfo { block: **block, shape: tensor.shape.clone() })
        })
        .collect();
    let file = Unfinished::create(to)?;
    let total = tensors.iter().map(|(tensor, _)| elements(tensor) as u64).sum();
    let mut out = Output::start(&file, &draft.values, &announced)?;
    let (mut done, mut written) = (0, Vec::new());
    for (tensor, &block) in tensors {
        let maker = Maker::weighed(draft, tensor, block, importance)?;
        write_tensor(draft, &maker, workers, &mut out, &mut |elements| {
            done += elements as u64;
            progress(Progress { tensor: &tensor.name, done, total });
        })?;
        let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
        let weighed = maker.weights.is_some();
        written.push(Written { name, shape, from: tensor.stored, to: block, weighed });
    }
    out.finish()?;
    file.keep()?;
    Ok(written)
}

pub(crate) fn elements(tensor: &Planned) -> usize {
    tensor.shape.iter().product()
}

/// The importance of a tensor's columns, one run of columns per matrix of a stack.
fn importance_of(
    tensor: &Planned,
    block: BlockType,
    importance: Option<&Imatrix>,
) -> Result<Option<Vec<f32>>, ConvertError> {
    let chosen = block.is_quantised() && block != tensor.stored;
    let Some(importance) = importance.filter(|_| chosen) else { return Ok(None) };
    let Some(weights) = importance.weights(&tensor.name) else { return Ok(None) };
    let cols = tensor.shape.last().copied().unwrap_or(0);
    let stack = if tensor.shape.len() == 3 { tensor.shape[0] } else { 1 };
    if weights.len() != cols * stack {
        return Err(ConvertError::NoImportance { name: tensor.name.clone(), cols });
    }
    Ok(Some(weights))
}

/// Puts one tensor into the file.
fn write_tensor(
    draft: &Draft<'_>,
    maker: &Maker<'_>,
    workers: &Workers,
    out: &mut Output<'_>,
    done: &mut dyn FnMut(usize),
) -> Result<(), ConvertError> {
    let tensor = maker.tensor;
    let bytes = maker.source_bytes(draft)?;
    for batch in pieces(tensor).chunks(workers.batch()) {
        for piece in workers.map(batch, |range| maker.piece(&bytes, range.clone())) {
            out.piece(&tensor.name, &piece?)?;
        }
        let (first, last) = (batch[0].start, batch[batch.len() - 1].end);
        if let Origin::Tensor { name, .. } = &tensor.origin {
            let at = |element: usize| element / maker.from.block_len() * maker.from.block_bytes();
            draft.source.release(name, at(first)..at(last));
        }
        done(last - first);
    }
    Ok(())
}

/// Ranges of numbers that are whole rows, and of one matrix each.
pub(crate) fn pieces(tensor: &Planned) -> Vec<Range<usize>> {
    let cols = tensor.shape.last().copied().unwrap_or(1);
    let matrix = match tensor.shape[..] {
        [_, rows, cols] => rows * cols,
        _ => elements(tensor),
    };
    let piece = (PIECE / cols).max(1) * cols;
    (0..elements(tensor))
        .step_by(matrix)
        .flat_map(|start| {
            let end = start + matrix;
            (start..end).step_by(piece).map(move |at| at..(at + piece).min(end))
        })
        .collect()
}

/// Makes a tensor's bytes, piece by piece, on any thread.
pub(crate) struct Maker<'a> {
    tensor: &'a Planned,
    /// How the source stores it.
    from: BlockType,
    /// How the file stores it.
    block: BlockType,
    /// What errors count, `cols` weights per matrix.
    weights: Option<Vec<f32>>,
    /// What the source is called.
    source: &'a str,
}

impl<'a> Maker<'a> {
    /// With what `importance` knows about the tensor.
    pub(crate) fn weighed(
        draft: &'a Draft<'_>,
        tensor: &'a Planned,
        block: BlockType,
        importance: Option<&Imatrix>,
    ) -> Result<Self, ConvertError> {
        let weights = importance_of(tensor, block, importance)?;
        let from = match &tensor.origin {
            Origin::Tensor { name, .. } | Origin::Reordered { name, .. } => draft.source.info(name),
            Origin::Made(_) => None,
        };
        let from = from.map_or(BlockType::F32, |info| info.block);
        Ok(Self { tensor, from, block, weights, source: draft.source.origin() })
    }

    /// What the tensor is made of, as its source stores it.
    pub(crate) fn source_bytes<'b>(
        &self,
        draft: &'b Draft<'_>,
    ) -> Result<Cow<'b, [u8]>, ConvertError> {
        match &self.tensor.origin {
            Origin::Tensor { name, .. } | Origin::Reordered { name, .. } => {
                Ok(draft.source.bytes(name)?)
            }
            Origin::Made(_) => Ok(Cow::Borrowed(&[])),
        }
    }

    /// The weights of the matrix that holds a number.
    pub(crate) fn weights_at(&self, element: usize) -> Option<&[f32]> {
        let weights = self.weights.as_ref()?;
        let cols = self.tensor.shape.last().copied().unwrap_or(1);
        let matrix = elements(self.tensor) / (weights.len() / cols);
        Some(&weights[element / matrix * cols..][..cols])
    }

    pub(crate) fn piece(&self, bytes: &[u8], range: Range<usize>) -> Result<Vec<u8>, ConvertError> {
        let same = self.from == self.block
            && matches!(self.tensor.origin, Origin::Tensor { add, .. } if add == 0.0);
        if same && self.from.is_quantised() {
            return Ok(stored(self.from, bytes, &range).to_vec());
        }
        let numbers = self.numbers(bytes, range.clone())?;
        if same {
            return Ok(stored(self.from, bytes, &range).to_vec());
        }
        let cols = self.tensor.shape.last().copied().unwrap_or(1);
        quantise(self.block, cols, &numbers, self.weights_at(range.start))
            .map_err(|reason| ConvertError::Numbers { name: self.tensor.name.clone(), reason })
    }

    /// Some of the numbers, all of them finite.
    pub(crate) fn numbers(
        &self,
        bytes: &[u8],
        range: Range<usize>,
    ) -> Result<Vec<f32>, ConvertError> {
        let start = range.start;
        let numbers = self.tensor.origin.numbers(self.from, bytes, range);
        match numbers.iter().position(|x| !x.is_finite()) {
            None => Ok(numbers),
            Some(i) => Err(ConvertError::NotFinite {
                name: self.tensor.name.clone(),
                origin: self.source.to_owned(),
                index: start + i,
                value: numbers[i],
            }),
        }
    }
}

impl Origin {
    /// Some of a tensor's numbers, out of the bytes that its source stores as `from`.
    pub(crate) fn numbers(&self, from: BlockType, bytes: &[u8], range: Range<usize>) -> Vec<f32> {
        match self {
            Self::Made(numbers) => numbers[range].to_vec(),
            Self::Tensor { add, .. } => {
                let mut numbers = decode(from, stored(from, bytes, &range), range.len());
                if *add != 0.0 {
                    numbers.iter_mut().for_each(|x| *x += add);
                }
                numbers
            }
            Self::Reordered { from: places, .. } => {
                let one = |i: usize| decode(from, stored(from, bytes, &(i..i + 1)), 1)[0];
                places[range].iter().map(|&place| one(place)).collect()
            }
        }
    }
}

/// The bytes of a range of numbers that begins and ends with a block.
pub(crate) fn stored<'a>(block: BlockType, bytes: &'a [u8], range: &Range<usize>) -> &'a [u8] {
    let at = |element: usize| element / block.block_len() * block.block_bytes();
    &bytes[at(range.start)..at(range.end)]
}

/// The numbers of whole blocks. What most sources hold is read in a loop of its own.
fn decode(block: BlockType, bytes: &[u8], elements: usize) -> Vec<f32> {
    if block == BlockType::BF16 {
        let (numbers, _) = bytes.as_chunks::<2>();
        return numbers.iter().map(|&x| widen(u16::from_le_bytes(x))).collect();
    }
    let mut out = vec![0.0; elements];
    codec::decode(block, bytes, &mut out).expect("the source promises whole blocks");
    out
}

/// A BF16 is the upper half of an F32.
fn widen(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The file being written, with errors that name it.
struct Output<'a> {
    writer: Writer<BufWriter<&'a File>>,
    file: &'a Unfinished,
}

impl<'a> Output<'a> {
    fn start(
        file: &'a Unfinished,
        values: &[(String, GgufValue)],
        tensors: &[(String, TensorInfo)],
    ) -> Result<Self, ConvertError> {
        let writer = Writer::new(BufWriter::new(file.file()), values, tensors);
        let writer = writer.map_err(|source| ConvertError::Write { path: file.shown(), source })?;
        Ok(Self { writer, file })
    }

    fn piece(&mut self, name: &str, bytes: &[u8]) -> Result<(), ConvertError> {
        let file = self.file;
        let written = self.writer.piece(name, bytes);
        written.map_err(|source| ConvertError::Write { path: file.shown(), source })
    }

    fn finish(self) -> Result<(), ConvertError> {
        let file = self.file;
        let finished = self.writer.finish();
        finished.map_err(|source| ConvertError::Write { path: file.shown(), source }).map(|_| ())
    }
}
