//! A device that watches what each matrix is multiplied with.
//!
//! [`Observed`] is a device around a device: every operation is the inner one's, and products
//! leave the squares of their inputs behind. So the forward pass is the one that everybody runs,
//! and nothing is paid where nobody watches.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use lapidary_core::{
    Backend, BlockType, Candidate, DeviceError, KvKernels, KvLayerSpec, LayerPlan, Matrix, Regime,
    Rope, SlotId, TokenId, Unsupported,
};

/// A device whose products are watched.
pub struct Observed<B: Backend> {
    inner: B,
    /// What was seen since it was last asked for.
    seen: RefCell<HashMap<usize, Sums>>,
    /// Matrices made so far.
    made: RefCell<usize>,
    /// For each size of stack, a stack of matrices that change nothing.
    units: RefCell<HashMap<(usize, usize), B::Weight>>,
    /// The first fault of a product's inputs on their way to the host.
    fault: RefCell<Option<DeviceError>>,
}

/// Rows and squares of the inputs of one matrix or stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sums {
    /// Rows, one count per matrix.
    pub(crate) counts: Vec<u32>,
    /// Sums of squares, one per column of each matrix.
    pub(crate) squares: Vec<f64>,
}

impl Sums {
    fn new(stack: usize, cols: usize) -> Self {
        Self { counts: vec![0; stack], squares: vec![0.0; stack * cols] }
    }

    /// Takes in one row of the inputs of matrix `which`.
    fn add(&mut self, which: usize, row: &[f32]) {
        self.counts[which] += 1;
        let squares = &mut self.squares[which * row.len()..][..row.len()];
        for (sum, x) in squares.iter_mut().zip(row) {
            *sum += f64::from(*x) * f64::from(*x);
        }
    }
}

/// A matrix that is watched.
pub struct Watched<B: Backend> {
    pub(crate) id: usize,
    stack: usize,
    cols: usize,
    inner: B::Weight,
}

/// Routes with the logits they were made from, row after row.
pub struct Routes<B: Backend> {
    inner: B::Routes,
    logits: Vec<f32>,
    k: usize,
}

impl<B: Backend> Routes<B> {
    /// `(row, expert)` for every choice.
    fn pairs(&self, experts: usize) -> Vec<(usize, usize)> {
        let rows = self.logits.chunks_exact(experts).enumerate();
        let own = |(row, logits)| largest(logits, self.k).into_iter().map(move |e| (row, e));
        rows.flat_map(own).collect()
    }
}

impl<B: Backend> Observed<B> {
    /// Watches a device.
    pub fn new(inner: B) -> Self {
        Self {
            inner,
            seen: RefCell::default(),
            made: RefCell::default(),
            units: RefCell::default(),
            fault: RefCell::default(),
        }
    }

    /// What was seen since the last call, by the matrices' numbers.
    pub(crate) fn take(&self) -> HashMap<usize, Sums> {
        self.seen.take()
    }

    /// Squares of the inputs of a matrix since they were last taken, `cols` sums per matrix of a
    /// stack.
    pub fn squares(&self, w: &Watched<B>) -> Vec<f64> {
        self.seen.borrow().get(&w.id).map(|sums| sums.squares.clone()).unwrap_or_default()
    }

    /// Brings activations to the host. A fault is kept for [`Backend::finish`].
    fn fetch(&self, x: &B::Act) -> Vec<f32> {
        self.inner.read(x).unwrap_or_else(|fault| {
            self.fault.borrow_mut().get_or_insert(fault);
            Vec::new()
        })
    }

    /// Takes in the inputs of a matrix: `which[i]` of the stack is multiplied with row `i`.
    fn see(&self, w: &Watched<B>, x: &B::Act, which: impl Fn(usize) -> usize) {
        let rows = self.fetch(x);
        let mut seen = self.seen.borrow_mut();
        let sums = seen.entry(w.id).or_insert_with(|| Sums::new(w.stack, w.cols));
        for (i, row) in rows.chunks_exact(w.cols).enumerate() {
            sums.add(which(i), row);
        }
    }

    /// Takes in the inputs of the experts: the rows themselves for the first product, and for the
    /// second what lies between the two, had through experts whose second matrix changes nothing.
    fn see_experts(&self, x: &B::Act, routes: &Routes<B>, gate_up: &Watched<B>, down: &Watched<B>) {
        let pairs = routes.pairs(gate_up.stack);
        if pairs.is_empty() {
            return;
        }
        let rows: Vec<_> = pairs.iter().map(|&(row, _)| row).collect();
        let inputs = self.inner.select(x, &rows);
        self.see(gate_up, &inputs, |i| pairs[i].1);
        let only = self.only(pairs.iter().map(|&(_, expert)| expert), gate_up.stack);
        let mut units = self.units.borrow_mut();
        let unit = units.entry((down.stack, down.cols)).or_insert_with(|| {
            let made = self.inner.matrix(unit(down.stack, down.cols));
            made.expect("every device has matrices of BF16, and room for a small stack")
        });
        let between = self.inner.experts(&inputs, &only, &gate_up.inner, unit);
        self.see(down, &between, |i| pairs[i].1);
    }

    /// Routes of one expert per row, with weight one.
    fn only(&self, chosen: impl Iterator<Item = usize>, experts: usize) -> B::Routes {
        let mut logits = Vec::new();
        for expert in chosen {
            let own = (0..experts).map(|other| if other == expert { 0.0 } else { -1e30 });
            logits.extend(own);
        }
        let ones = self.inner.vector(&vec![1.0; experts]);
        self.inner.route(&self.inner.upload(&logits, experts), &ones, 1)
    }
}

/// A stack of matrices that change nothing.
fn unit(stack: usize, width: usize) -> Matrix<'static> {
    const ONE: [u8; 2] = [0x80, 0x3F];
    let mut one = vec![0_u8; 2 * width * width];
    for i in 0..width {
        one[2 * (i * width + i)..][..2].copy_from_slice(&ONE);
    }
    let bytes = one.repeat(stack).into();
    Matrix { block: BlockType::BF16, stack, rows: width, cols: width, bytes }
}

/// The `k` largest, the first of equals.
fn largest(logits: &[f32], k: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    order.truncate(k);
    order
}

impl<B: Backend> Backend for Observed<B> {
    type Act = B::Act;
    type Weight = Watched<B>;
    type Vector = B::Vector;
    type Routes = Routes<B>;
    type Angles = B::Angles;
    type Plan = B::Plan;

    fn name(&self) -> String {
        self.inner.name()
    }

    fn matrix(&self, stored: Matrix<'_>) -> Result<Self::Weight, Unsupported> {
        let (stack, cols) = (stored.stack, stored.cols);
        let inner = self.inner.matrix(stored)?;
        let mut made = self.made.borrow_mut();
        *made += 1;
        Ok(Watched { id: *made, stack, cols, inner })
    }

    fn vector(&self, values: &[f32]) -> Self::Vector {
        self.inner.vector(values)
    }

    fn upload(&self, values: &[f32], cols: usize) -> Self::Act {
        self.inner.upload(values, cols)
    }

    fn angles(&self, rope: &Rope, rows: &[[u32; 3]]) -> Self::Angles {
        self.inner.angles(rope, rows)
    }

    fn embed(&self, table: &Self::Weight, tokens: &[TokenId], scale: f32) -> Self::Act {
        self.inner.embed(&table.inner, tokens, scale)
    }

    fn replace_rows(
        &self,
        x: Self::Act,
        source: &Self::Act,
        pairs: &[(usize, usize)],
    ) -> Self::Act {
        self.inner.replace_rows(x, source, pairs)
    }

    fn linear(&self, x: &Self::Act, w: &Self::Weight) -> Self::Act {
        self.see(w, x, |_| 0);
        self.inner.linear(x, &w.inner)
    }

    fn rms_norm(&self, x: &Self::Act, w: &Self::Vector, eps: f32) -> Self::Act {
        self.inner.rms_norm(x, w, eps)
    }

    fn unit_norm(&self, x: &Self::Act, width: usize, eps: f32) -> Self::Act {
        self.inner.unit_norm(x, width, eps)
    }

    fn rope(&self, x: Self::Act, angles: &Self::Angles) -> Self::Act {
        self.inner.rope(x, angles)
    }

    fn add(&self, a: &Self::Act, b: &Self::Act) -> Self::Act {
        self.inner.add(a, b)
    }

    fn scale(&self, x: Self::Act, s: &Self::Vector) -> Self::Act {
        self.inner.scale(x, s)
    }

    fn gelu_mul(&self, gate: &Self::Act, up: &Self::Act) -> Self::Act {
        self.inner.gelu_mul(gate, up)
    }

    fn clamp(&self, x: &Self::Act, least: f32, most: f32) -> Self::Act {
        self.inner.clamp(x, least, most)
    }

    fn softcap(&self, x: Self::Act, cap: f32) -> Self::Act {
        self.inner.softcap(x, cap)
    }

    fn route(&self, logits: &Self::Act, per_expert: &Self::Vector, k: usize) -> Self::Routes {
        let inner = self.inner.route(logits, per_expert, k);
        Routes { inner, logits: self.fetch(logits), k }
    }

    fn experts(
        &self,
        x: &Self::Act,
        routes: &Self::Routes,
        gate_up: &Self::Weight,
        down: &Self::Weight,
    ) -> Self::Act {
        self.see_experts(x, routes, gate_up, down);
        self.inner.experts(x, &routes.inner, &gate_up.inner, &down.inner)
    }

    fn select(&self, x: &Self::Act, rows: &[usize]) -> Self::Act {
        self.inner.select(x, rows)
    }

    fn columns(&self, x: &Self::Act, columns: Range<usize>) -> Self::Act {
        self.inner.columns(x, columns)
    }

    fn finish(&self) -> Result<(), DeviceError> {
        match self.fault.borrow_mut().take() {
            Some(fault) => Err(fault),
            None => self.inner.finish(),
        }
    }

    fn read(&self, x: &Self::Act) -> Result<Vec<f32>, DeviceError> {
        self.inner.read(x)
    }

    fn top(
        &self,
        logits: &Self::Act,
        rows: usize,
        k: usize,
    ) -> Result<Vec<Vec<Candidate>>, DeviceError> {
        self.inner.top(logits, rows, k)
    }

    fn add_norm(
        &self,
        residual: &Self::Act,
        branch: &Self::Act,
        w: &Self::Vector,
        eps: f32,
    ) -> Self::Act {
        self.inner.add_norm(residual, branch, w, eps)
    }

    fn norm_rope(
        &self,
        x: &Self::Act,
        w: &Self::Vector,
        eps: f32,
        angles: &Self::Angles,
    ) -> Self::Act {
        self.inner.norm_rope(x, w, eps, angles)
    }
}

impl<B: KvKernels> KvKernels for Observed<B> {
    type Store = B::Store;

    fn reserve(
        &self,
        regime: Regime,
        spec: KvLayerSpec,
        slots: usize,
        cells: usize,
    ) -> Result<Self::Store, Unsupported> {
        self.inner.reserve(regime, spec, slots, cells)
    }

    fn store_bytes(&self, store: &Self::Store) -> usize {
        self.inner.store_bytes(store)
    }

    fn upload_plan(&self, plan: LayerPlan) -> Self::Plan {
        self.inner.upload_plan(plan)
    }

    fn write(&self, store: &mut Self::Store, plan: &Self::Plan, k: &Self::Act, v: &Self::Act) {
        self.inner.write(store, plan, k, v);
    }

    fn attend(&self, store: &Self::Store, plan: &Self::Plan, q: &Self::Act) -> Self::Act {
        self.inner.attend(store, plan, q)
    }

    fn copy(&self, store: &mut Self::Store, slot: SlotId, from: u32, to: u32) {
        self.inner.copy(store, slot, from, to);
    }
}
