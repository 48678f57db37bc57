//! A type for every tensor by what its errors do to the answers.
//!
//! Every tensor is stored coarsely once, all others left alone, and the divergence of the model
//! from itself is measured on a text. Small errors do harm with their square, so the harm of every
//! other type follows from how large its errors are. Then bytes are spent where a byte saves most.

mod budget;
mod variant;

use lapidary_core::{BlockType, TensorInfo};
use lapidary_format::codec;

use crate::choice::is_free;
use crate::draft::{Draft, Planned};
use crate::imatrix::Imatrix;
use crate::quantise::{is_written, quantise};
use crate::workers::Workers;
use crate::write::{Maker, pieces};
use crate::{ConvertError, Progress};

pub use budget::{Budget, Choice, spend};
pub use variant::Variant;

/// Numbers of a tensor that its errors are estimated from.
const SAMPLE: usize = 1 << 17;

/// What is known about a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensitivity {
    /// Its name.
    pub name: String,
    /// How its source stores it.
    pub stored: BlockType,
    /// The type it was tried in, and the divergence that came of it, in nats.
    pub tried: (BlockType, f64),
    /// What each type costs, and what it would do.
    pub options: Vec<Cost>,
}

/// A type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The type.
    pub block: BlockType,
    /// Bytes of the whole tensor.
    pub bytes: u64,
    /// Divergence that comes of it, in nats: measured for one type, inferred for the others.
    pub harm: f64,
}

impl Draft<'_> {
    /// Finds out about every tensor whose type is free. `measure` runs a model with one of its
    /// tensors changed and says how far it is from the model itself.
    ///
    /// # Errors
    /// What `measure` says, or a tensor that cannot be quantised.
    pub fn sensitivities<E: From<ConvertError>>(
        &self,
        importance: Option<&Imatrix>,
        workers: &Workers,
        measure: &mut dyn FnMut(&Variant<'_>) -> Result<f64, E>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Vec<Sensitivity>, E> {
        let free: Vec<_> = self.tensors.iter().filter(|t| is_free(&t.name, &t.shape)).collect();
        let mut found = Vec::new();
        for (done, tensor) in free.iter().enumerate() {
            progress(Progress {
                tensor: &tensor.name,
                done: done as u64,
                total: free.len() as u64,
            });
            let probe = Probe { draft: self, tensor, importance, workers };
            let errors = probe.errors()?;
            let tried = trial(&errors);
            let mut variant = Variant::of(self.source);
            variant.replace(&tensor.name, probe.stored_as(tried.0)?);
            let harm = measure(&variant)?.max(0.0);
            found.push(Sensitivity {
                name: tensor.name.clone(),
                stored: tensor.stored,
                tried: (tried.0, harm),
                options: options(tensor, &errors, tried.1, harm),
            });
        }
        Ok(found)
    }
}

impl Draft<'_> {
    /// Bytes of the tensors whose type is not free.
    pub fn fixed_bytes(&self) -> u64 {
        let fixed = self.tensors.iter().filter(|t| !is_free(&t.name, &t.shape));
        fixed.map(|t| TensorInfo { block: t.stored, shape: t.shape.clone() }.bytes() as u64).sum()
    }

    /// The source with tensors stored as chosen.
    ///
    /// # Errors
    /// A tensor cannot be quantised.
    pub fn variant(
        &self,
        choices: &[Choice],
        importance: Option<&Imatrix>,
        workers: &Workers,
    ) -> Result<Variant<'_>, ConvertError> {
        let mut variant = Variant::of(self.source);
        for Choice { name, block, .. } in choices {
            let tensor = self.tensors.iter().find(|tensor| tensor.name == *name);
            let Some(tensor) = tensor.filter(|tensor| tensor.stored != *block) else { continue };
            let probe = Probe { draft: self, tensor, importance, workers };
            variant.replace(name, probe.stored_as(*block)?);
        }
        Ok(variant)
    }
}

/// The type to try: coarse enough to show, fine enough that harm still goes with the square.
fn trial(errors: &[(BlockType, f64)]) -> (BlockType, f64) {
    const LIKED: [BlockType; 4] =
        [BlockType::Q3_K, BlockType::Q4_0, BlockType::Q8_0, BlockType::F16];
    let of = |block: &BlockType| errors.iter().find(|(other, _)| other == block).copied();
    LIKED.iter().find_map(of).unwrap_or(errors[0])
}

fn options(tensor: &Planned, errors: &[(BlockType, f64)], tried: f64, harm: f64) -> Vec<Cost> {
    let elements: usize = tensor.shape.iter().product();
    let bytes = |block: BlockType| (elements / block.block_len() * block.block_bytes()) as u64;
    let cost = |&(block, error): &(BlockType, f64)| Cost {
        block,
        bytes: bytes(block),
        harm: if tried > 0.0 { harm * error / tried } else { 0.0 },
    };
    let unchanged = Cost { block: tensor.stored, bytes: bytes(tensor.stored), harm: 0.0 };
    errors.iter().map(cost).chain([unchanged]).collect()
}

/// A tensor that is being tried out.
struct Probe<'a> {
    draft: &'a Draft<'a>,
    tensor: &'a Planned,
    importance: Option<&'a Imatrix>,
    workers: &'a Workers,
}

impl Probe<'_> {
    fn maker(&self, block: BlockType) -> Result<Maker<'_>, ConvertError> {
        Maker::weighed(self.draft, self.tensor, block, self.importance)
    }

    /// The whole tensor in another type.
    fn stored_as(&self, block: BlockType) -> Result<(BlockType, Vec<u8>), ConvertError> {
        let maker = self.maker(block)?;
        let bytes = maker.source_bytes(self.draft)?;
        let made = self.workers.map(&pieces(self.tensor), |r| maker.piece(&bytes, r.clone()));
        let mut all = Vec::new();
        for piece in made {
            all.extend(piece?);
        }
        Ok((block, all))
    }

    /// The squared error of every type that can hold the tensor's rows and is smaller than what
    /// it is stored as, weighed by importance, from a sample of its rows.
    fn errors(&self) -> Result<Vec<(BlockType, f64)>, ConvertError> {
        let cols = self.tensor.shape.last().copied().unwrap_or(1);
        let smaller = |block: &BlockType| {
            let fits = is_written(*block) && block.row_bytes(cols).is_some();
            let size = |block: BlockType| block.block_bytes() * 256 / block.block_len();
            fits && size(*block) < size(self.tensor.stored)
        };
        let types: Vec<_> = BlockType::ALL.into_iter().filter(smaller).collect();
        let sample = self.sample()?;
        let errors = self.workers.map(&types, |&block| {
            let errors = sample.iter().map(|part| part.error(block, cols));
            errors.sum::<Result<f64, _>>().map(|error| (block, error))
        });
        errors
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|reason| ConvertError::Numbers { name: self.tensor.name.clone(), reason })
    }

    /// Some rows of every matrix, evenly spread.
    fn sample(&self) -> Result<Vec<Part>, ConvertError> {
        let maker = self.maker(self.tensor.stored)?;
        let weighed = self.maker(BlockType::Q8_0)?;
        let bytes = maker.source_bytes(self.draft)?;
        let ranges = pieces(self.tensor);
        let cols = self.tensor.shape.last().copied().unwrap_or(1);
        let rows_each = (SAMPLE / cols / ranges.len()).max(1);
        let part = |range: &std::ops::Range<usize>| {
            let rows = range.len() / cols;
            let step = (rows / rows_each).max(1);
            let mut numbers = Vec::new();
            for row in (0..rows).step_by(step) {
                let at = range.start + row * cols;
                numbers.extend(maker.numbers(&bytes, at..at + cols)?);
            }
            Ok(Part { numbers, weights: weighed.weights_at(range.start).map(<[f32]>::to_vec) })
        };
        self.workers.map(&ranges, part).into_iter().collect()
    }
}

/// Sampled rows of one matrix.
struct Part {
    numbers: Vec<f32>,
    weights: Option<Vec<f32>>,
}

impl Part {
    fn error(&self, block: BlockType, cols: usize) -> Result<f64, crate::quantise::QuantiseError> {
        let weights = self.weights.as_deref();
        let bytes = quantise(block, cols, &self.numbers, weights)?;
        let mut found = vec![0.0; self.numbers.len()];
        codec::decode(block, &bytes, &mut found)?;
        let weight = |col: usize| weights.map_or(1.0, |weights| f64::from(weights[col]));
        let pairs = self.numbers.iter().zip(&found).enumerate();
        Ok(pairs.map(|(i, (a, b))| weight(i % cols) * f64::from(a - b).powi(2)).sum())
    }
}
