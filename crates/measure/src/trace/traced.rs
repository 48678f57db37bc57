//! A backend that forwards every operation to another and notes how long it took.

use std::fmt;
use std::ops::Range;

use lapidary_core::{
    Backend, Branch, Candidate, DeviceError, Head, Heads, Join, KvKernels, KvLayerSpec, LayerPlan,
    Matrix, Regime, Rope, SlotId, TokenId, Transport, Unsupported,
};

use super::Log;

/// What kind of work an operation is.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Category {
    /// Products with weights, experts included.
    Matmul,
    /// Writing to the cache and reading from it.
    Attention,
    /// Norms and rotations.
    Norm,
    /// Everything else on rows.
    Elementwise,
    /// Between host and device.
    Transfer,
}

impl Category {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Matmul, Self::Attention, Self::Norm, Self::Elementwise, Self::Transfer];
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Matmul => "matmul",
            Self::Attention => "attention",
            Self::Norm => "norm",
            Self::Elementwise => "elementwise",
            Self::Transfer => "transfer",
        })
    }
}

/// `B`, watched. Every operation waits until the device is done, so that its time is its own; the
/// results are those of `B`, bit for bit.
pub struct Traced<B> {
    inner: B,
    log: Log,
}

impl<B: Backend> Traced<B> {
    /// Watches `inner` for `log`.
    pub fn new(inner: B, log: Log) -> Self {
        Self { inner, log }
    }

    /// Runs an operation and notes its time. A fault stays with the device and surfaces where the
    /// contract says.
    fn timed<T>(&self, category: Category, op: &'static str, run: impl FnOnce(&B) -> T) -> T {
        let began = self.log.now();
        let done = run(&self.inner);
        let _ = self.inner.finish();
        self.log.op(category, op, began);
        done
    }

    /// Like [`timed`](Self::timed), and looks at the rows that come out if the log guards.
    fn rows(&self, category: Category, op: &'static str, run: impl FnOnce(&B) -> B::Act) -> B::Act {
        let rows = self.timed(category, op, run);
        self.look(op, [&rows]);
        rows
    }

    /// Looks at results of `op` if the log guards.
    fn look<'a>(&self, op: &'static str, results: impl IntoIterator<Item = &'a B::Act>)
    where
        B::Act: 'a,
    {
        if !self.log.guards() {
            return;
        }
        for rows in results {
            // A device that has failed says so at the end of the step.
            if let Ok(values) = self.inner.read(rows) {
                self.log.look(op, &values);
            }
        }
    }

    /// What the guard found joins what the device reports.
    fn unless_astray<T>(&self, done: Result<T, DeviceError>) -> Result<T, DeviceError> {
        match self.log.fault() {
            Some(fault) => Err(DeviceError(fault)),
            None => done,
        }
    }
}

/// Methods that return rows: forwarded, timed under their own name.
macro_rules! rows {
    ($($category:ident $name:ident($($arg:ident: $kind:ty),*);)*) => {$(
        fn $name(&self, $($arg: $kind),*) -> Self::Act {
            self.rows(Category::$category, stringify!($name), |inner| inner.$name($($arg),*))
        }
    )*};
}

/// Methods that return something else: likewise.
macro_rules! timed {
    ($($category:ident $name:ident($($arg:ident: $kind:ty),*) -> $out:ty;)*) => {$(
        fn $name(&self, $($arg: $kind),*) -> $out {
            self.timed(Category::$category, stringify!($name), |inner| inner.$name($($arg),*))
        }
    )*};
}

impl<B: Backend> Backend for Traced<B> {
    type Act = B::Act;
    type Weight = B::Weight;
    type Vector = B::Vector;
    type Routes = B::Routes;
    type Angles = B::Angles;
    type Plan = B::Plan;

    fn name(&self) -> String {
        format!("{}, traced", self.inner.name())
    }

    fn finish(&self) -> Result<(), DeviceError> {
        self.unless_astray(self.inner.finish())
    }

    fn read(&self, x: &Self::Act) -> Result<Vec<f32>, DeviceError> {
        let values = self.timed(Category::Transfer, "read", |inner| inner.read(x));
        self.unless_astray(values)
    }

    fn top(
        &self,
        logits: &Self::Act,
        rows: usize,
        k: usize,
    ) -> Result<Vec<Vec<Candidate>>, DeviceError> {
        let found = self.timed(Category::Transfer, "top", |inner| inner.top(logits, rows, k));
        self.unless_astray(found)
    }

    /// A guarded log sees the logits themselves, and what comes out is the same.
    fn likeliest(
        &self,
        x: &Self::Act,
        rows: usize,
        head: &Head<'_, Self>,
        k: usize,
    ) -> Result<Vec<Vec<Candidate>>, DeviceError> {
        if self.log.guards() {
            return self.top(&head.logits(self, x), rows, k);
        }
        let &Head { weight, softcap } = head;
        let head = Head { weight, softcap };
        let run = |inner: &B| inner.likeliest(x, rows, &head, k);
        self.unless_astray(self.timed(Category::Matmul, "likeliest", run))
    }

    fn linear_many(&self, x: &Self::Act, ws: &[&Self::Weight]) -> Vec<Self::Act> {
        let run = |inner: &B| inner.linear_many(x, ws);
        let products = self.timed(Category::Matmul, "linear_many", run);
        self.look("linear_many", &products);
        products
    }

    fn norm_heads(&self, heads: &Heads<'_, Self>) -> [Self::Act; 3] {
        let &Heads { q, k, v, q_norm, k_norm, width, eps, angles } = heads;
        let heads = Heads { q, k, v, q_norm, k_norm, width, eps, angles };
        let normed = self.timed(Category::Norm, "norm_heads", |inner| inner.norm_heads(&heads));
        self.look("norm_heads", &normed);
        normed
    }

    fn join(&self, join: &Join<'_, Self>) -> (Self::Act, Vec<Self::Act>) {
        let &Join { residual, ref branch, norm, scale, next, eps } = join;
        let branch = match *branch {
            Branch::One(x) => Branch::One(x),
            Branch::Normed(pair) => Branch::Normed(pair),
        };
        let join = Join { residual, branch, norm, scale, next, eps };
        let (sum, next) = self.timed(Category::Norm, "join", |inner| inner.join(&join));
        self.look("join", std::iter::once(&sum).chain(&next));
        (sum, next)
    }

    timed! {
        Transfer matrix(stored: Matrix<'_>) -> Result<Self::Weight, Unsupported>;
        Transfer head(stored: Matrix<'_>) -> Result<Self::Weight, Unsupported>;
        Transfer vector(values: &[f32]) -> Self::Vector;
        Transfer angles(rope: &Rope, rows: &[[u32; 3]]) -> Self::Angles;
        Elementwise route(
            logits: &Self::Act, per_expert: &Self::Vector, k: usize
        ) -> Self::Routes;
    }

    rows! {
        Transfer upload(values: &[f32], cols: usize);
        Elementwise embed(table: &Self::Weight, tokens: &[TokenId], scale: f32);
        Elementwise replace_rows(x: Self::Act, source: &Self::Act, pairs: &[(usize, usize)]);
        Matmul linear(x: &Self::Act, w: &Self::Weight);
        Norm rms_norm(x: &Self::Act, w: &Self::Vector, eps: f32);
        Norm unit_norm(x: &Self::Act, width: usize, eps: f32);
        Norm rope(x: Self::Act, angles: &Self::Angles);
        Elementwise add(a: &Self::Act, b: &Self::Act);
        Elementwise scale(x: Self::Act, s: &Self::Vector);
        Elementwise gelu_mul(gate: &Self::Act, up: &Self::Act);
        Elementwise clamp(x: &Self::Act, least: f32, most: f32);
        Elementwise softcap(x: Self::Act, cap: f32);
        Matmul experts(
            x: &Self::Act, routes: &Self::Routes, gate_up: &Self::Weight, down: &Self::Weight
        );
        Elementwise select(x: &Self::Act, rows: &[usize]);
        Elementwise columns(x: &Self::Act, columns: Range<usize>);
        Norm add_norm(residual: &Self::Act, branch: &Self::Act, w: &Self::Vector, eps: f32);
        Norm norm_rope(x: &Self::Act, w: &Self::Vector, eps: f32, angles: &Self::Angles);
    }
}

impl<B: KvKernels> KvKernels for Traced<B> {
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
        self.timed(Category::Transfer, "upload_plan", |inner| inner.upload_plan(plan))
    }

    fn write(&self, store: &mut Self::Store, plan: &Self::Plan, k: &Self::Act, v: &Self::Act) {
        self.timed(Category::Attention, "write", |inner| inner.write(store, plan, k, v));
    }

    fn attend(&self, store: &Self::Store, plan: &Self::Plan, q: &Self::Act) -> Self::Act {
        self.rows(Category::Attention, "attend", |inner| inner.attend(store, plan, q))
    }

    fn copy(&self, store: &mut Self::Store, slot: SlotId, from: u32, to: u32) {
        self.timed(Category::Attention, "copy", |inner| inner.copy(store, slot, from, to));
    }
    fn transport(&self) -> Option<&dyn Transport<Self::Store>> {
        self.inner.transport()
    }
}
