//! What a device must be able to do.

use std::borrow::Cow;
use std::ops::Range;

use thiserror::Error;

use crate::{BlockType, Candidate, TokenId, likeliest};

/// Rotary parameters of one kind of layer: pair `j` is columns `j` and `j + width / 2` of a head.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Radians per unit of angle, one per pair. Zero leaves a pair as it is.
    pub freqs: Vec<f32>,
    /// Which of a row's three angles turns each pair.
    pub axis: Vec<u8>,
}

impl Rope {
    /// Width of the heads it applies to.
    pub fn width(&self) -> usize {
        2 * self.freqs.len()
    }
}

/// A stack of equally shaped matrices as stored in a file. A plain matrix is a stack of one.
#[derive(Clone, Debug)]
pub struct Matrix<'a> {
    /// How elements are stored.
    pub block: BlockType,
    /// Number of matrices, one after the other.
    pub stack: usize,
    /// Outputs of each.
    pub rows: usize,
    /// Inputs of each; a whole number of blocks.
    pub cols: usize,
    /// `stack × rows` rows of `cols / block_len` blocks.
    pub bytes: Cow<'a, [u8]>,
}

/// The device cannot hold or use a tensor.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// The device failed; nothing after the failing op is to be trusted.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("the device failed: {0}")]
pub struct DeviceError(pub String);

/// What turns hidden states into logits.
pub struct Head<'a, B: Backend> {
    /// One row per token of the vocabulary.
    pub weight: &'a B::Weight,
    /// Bound on the logits, if there is one.
    pub softcap: Option<f32>,
}

impl<B: Backend> Head<'_, B> {
    /// The logits of every token, row after row.
    pub fn logits(&self, ops: &B, x: &B::Act) -> B::Act {
        let logits = ops.linear(x, self.weight);
        match self.softcap {
            Some(cap) => ops.softcap(logits, cap),
            None => logits,
        }
    }
}

/// The end of a residual branch: see [`Backend::join`].
pub struct Join<'a, B: Backend> {
    /// The stream that the branch left.
    pub residual: &'a B::Act,
    /// What comes back.
    pub branch: Branch<'a, B>,
    /// Of the norm on the branch.
    pub norm: &'a B::Vector,
    /// On the sum: one factor, or one per column.
    pub scale: Option<&'a B::Vector>,
    /// Of the norms of the result.
    pub next: &'a [&'a B::Vector],
    /// Added to the mean square inside every norm.
    pub eps: f32,
}

/// What a residual branch brings back.
pub enum Branch<'a, B: Backend> {
    /// One activation.
    One(&'a B::Act),
    /// The sum of two norms: `rms_norm(a.0, a.1) + rms_norm(b.0, b.1)`.
    Normed([(&'a B::Act, &'a B::Vector); 2]),
}

/// Fresh projections of one input: see [`Backend::norm_heads`].
pub struct Heads<'a, B: Backend> {
    /// Queries.
    pub q: &'a B::Act,
    /// Keys.
    pub k: &'a B::Act,
    /// What the values are made of; may be the keys.
    pub v: &'a B::Act,
    /// Per-head query norm.
    pub q_norm: &'a B::Vector,
    /// Per-head key norm.
    pub k_norm: &'a B::Vector,
    /// Width of a head.
    pub width: usize,
    /// Added to the mean square inside every norm.
    pub eps: f32,
    /// Turns queries and keys.
    pub angles: &'a B::Angles,
}

/// A device, seen as a small set of operations on rows.
///
/// # The row law
///
/// Output row `i` of every op depends on input row `i` alone, down to the last bit. How many
/// other rows came along, and where `i` stood among them, must not show.
///
/// # Errors
///
/// Ops do not fail: a wrong shape is a bug and panics, and a device fault is sticky and surfaces
/// at [`finish`](Backend::finish). Memory for activations is reserved when the engine starts, so
/// running out is not a step-time event.
///
/// # Fused ops
///
/// A method with a body is *defined* by that body. A backend may replace it by a fused kernel;
/// the conformance suite compares the two.
pub trait Backend: Sized + 'static {
    /// Rows of `f32` on the device. Dropping one returns it to the device's pool.
    type Act;
    /// A stack of matrices in the device's own layout.
    type Weight;
    /// A weight vector.
    type Vector;
    /// For each row: which experts, how much of each.
    type Routes;
    /// Sines and cosines of a step's rows, for one [`Rope`].
    type Angles;
    /// The reads and writes of a step's rows, for all layers of one reach.
    type Plan;

    /// What to call the device in reports, e.g. `cpu (avx512-vnni, 2 threads)`.
    fn name(&self) -> String;

    /// Brings a stack of matrices onto the device.
    ///
    /// # Errors
    /// The block type has no kernels here, or the device is full.
    fn matrix(&self, stored: Matrix<'_>) -> Result<Self::Weight, Unsupported>;
    /// Brings a vector onto the device.
    fn vector(&self, values: &[f32]) -> Self::Vector;
    /// Brings rows of `cols` values onto the device.
    fn upload(&self, values: &[f32], cols: usize) -> Self::Act;
    /// Prepares rotation by each row's angles.
    fn angles(&self, rope: &Rope, rows: &[[u32; 3]]) -> Self::Angles;

    /// `table[token] * scale`, one row per token.
    fn embed(&self, table: &Self::Weight, tokens: &[TokenId], scale: f32) -> Self::Act;
    /// `x`, with row `to` replaced by row `from` of `source` for each `(to, from)`.
    fn replace_rows(&self, x: Self::Act, source: &Self::Act, pairs: &[(usize, usize)])
    -> Self::Act;
    /// `x · Wᵀ`.
    fn linear(&self, x: &Self::Act, w: &Self::Weight) -> Self::Act;
    /// `x / √(mean(x²) + eps) * w` over each group of `w.len()` columns.
    fn rms_norm(&self, x: &Self::Act, w: &Self::Vector, eps: f32) -> Self::Act;
    /// `x / √(mean(x²) + eps)` over each group of `width` columns.
    fn unit_norm(&self, x: &Self::Act, width: usize, eps: f32) -> Self::Act;
    /// Rotates each head of row `i` by the row's angles.
    fn rope(&self, x: Self::Act, angles: &Self::Angles) -> Self::Act;
    /// `a + b`.
    fn add(&self, a: &Self::Act, b: &Self::Act) -> Self::Act;
    /// `x ⊙ s`, where `s` has one value or one per column.
    fn scale(&self, x: Self::Act, s: &Self::Vector) -> Self::Act;
    /// `gelu_tanh(gate) ⊙ up`.
    fn gelu_mul(&self, gate: &Self::Act, up: &Self::Act) -> Self::Act;
    /// Every value brought between `least` and `most`. What is no number stays so.
    fn clamp(&self, x: &Self::Act, least: f32, most: f32) -> Self::Act;
    /// `cap · tanh(x / cap)`.
    fn softcap(&self, x: Self::Act, cap: f32) -> Self::Act;
    /// Softmax over all experts, the best `k` (the lower index among equals), renormalised to sum
    /// one, each times its entry of `per_expert`.
    fn route(&self, logits: &Self::Act, per_expert: &Self::Vector, k: usize) -> Self::Routes;
    /// `Σⱼ weightⱼ · down[eⱼ](gelu_mul(gate_up[eⱼ](x)))` over each row's experts; the first half
    /// of `gate_up`'s outputs is the gate. Terms are added in ascending order of expert index.
    fn experts(
        &self,
        x: &Self::Act,
        routes: &Self::Routes,
        gate_up: &Self::Weight,
        down: &Self::Weight,
    ) -> Self::Act;
    /// The chosen rows, in the given order.
    fn select(&self, x: &Self::Act, rows: &[usize]) -> Self::Act;
    /// The chosen columns of every row.
    fn columns(&self, x: &Self::Act, columns: Range<usize>) -> Self::Act;
    /// Waits for everything issued so far and reports the first fault.
    ///
    /// # Errors
    /// The device failed at or before this point.
    fn finish(&self) -> Result<(), DeviceError>;
    /// Copies to the host, row after row. Implies [`finish`](Backend::finish).
    ///
    /// # Errors
    /// The device failed at or before this point.
    fn read(&self, x: &Self::Act) -> Result<Vec<f32>, DeviceError>;

    /// The [`likeliest`] `k` candidates of each of `rows` rows of logits: a few hundred bytes
    /// instead of a vocabulary. `k` and `rows` are at least one. Implies
    /// [`finish`](Backend::finish).
    ///
    /// # Errors
    /// The device failed at or before this point.
    fn top(
        &self,
        logits: &Self::Act,
        rows: usize,
        k: usize,
    ) -> Result<Vec<Vec<Candidate>>, DeviceError> {
        let flat = self.read(logits)?;
        Ok(flat.chunks_exact(flat.len() / rows).map(|row| likeliest(row, k)).collect())
    }

    /// Like [`matrix`](Backend::matrix), for a matrix that is a [`Head`]'s, and that a device may
    /// therefore lay out in a way that serves [`likeliest`](Backend::likeliest).
    ///
    /// # Errors
    /// The block type has no kernels here, or the device is full.
    fn head(&self, stored: Matrix<'_>) -> Result<Self::Weight, Unsupported> {
        self.matrix(stored)
    }

    /// The [`top`](Backend::top) `k` of the logits of `rows` hidden states. `k` and `rows` are at
    /// least one. Implies [`finish`](Backend::finish).
    ///
    /// # Errors
    /// The device failed at or before this point.
    fn likeliest(
        &self,
        x: &Self::Act,
        rows: usize,
        head: &Head<'_, Self>,
        k: usize,
    ) -> Result<Vec<Vec<Candidate>>, DeviceError> {
        self.top(&head.logits(self, x), rows, k)
    }

    /// `residual + rms_norm(branch, w)`.
    fn add_norm(
        &self,
        residual: &Self::Act,
        branch: &Self::Act,
        w: &Self::Vector,
        eps: f32,
    ) -> Self::Act {
        self.add(residual, &self.rms_norm(branch, w, eps))
    }

    /// `rope(rms_norm(x, w))`, per head.
    fn norm_rope(
        &self,
        x: &Self::Act,
        w: &Self::Vector,
        eps: f32,
        angles: &Self::Angles,
    ) -> Self::Act {
        self.rope(self.rms_norm(x, w, eps), angles)
    }

    /// `x · Wᵀ` for each of several matrices.
    fn linear_many(&self, x: &Self::Act, ws: &[&Self::Weight]) -> Vec<Self::Act> {
        ws.iter().map(|w| self.linear(x, w)).collect()
    }

    /// Normed and rotated queries and keys, and values normed without a weight.
    fn norm_heads(&self, heads: &Heads<'_, Self>) -> [Self::Act; 3] {
        let &Heads { q, k, v, q_norm, k_norm, width, eps, angles } = heads;
        let q = self.norm_rope(q, q_norm, eps, angles);
        [q, self.norm_rope(k, k_norm, eps, angles), self.unit_norm(v, width, eps)]
    }

    /// `y = scale ⊙ (residual + rms_norm(branch, norm))`, and `rms_norm(y, w)` for each `w` of
    /// `next`.
    fn join(&self, join: &Join<'_, Self>) -> (Self::Act, Vec<Self::Act>) {
        join_apart(self, join)
    }
}

/// [`Backend::join`] by its definition, for devices whose own form does not serve every width.
pub fn join_apart<B: Backend>(ops: &B, join: &Join<'_, B>) -> (B::Act, Vec<B::Act>) {
    let &Join { residual, ref branch, norm, scale, next, eps } = join;
    let y = match *branch {
        Branch::One(x) => ops.add_norm(residual, x, norm, eps),
        Branch::Normed([(a, a_norm), (b, b_norm)]) => {
            let a = ops.rms_norm(a, a_norm, eps);
            ops.add_norm(residual, &ops.add_norm(&a, b, b_norm, eps), norm, eps)
        }
    };
    let y = match scale {
        Some(scale) => ops.scale(y, scale),
        None => y,
    };
    let next = next.iter().map(|w| ops.rms_norm(&y, w, eps)).collect();
    (y, next)
}
