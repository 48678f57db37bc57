//! The CPU backend: ops cut into pieces for the pool, pieces computed by the kernels.

mod ceilings;
mod experts;
mod head;
mod routes;

pub use routes::Routes;

use std::ops::Range;

use lapidary_core::{
    Backend, Candidate, DeviceError, Head, LayerPlan, Matrix, Rope, TokenId, Unsupported,
};

use crate::act::{Act, Codes};
use crate::blocks::BLOCK;
use crate::disjoint::Disjoint;
use crate::kernels::Kernels;
use crate::kernels::matmul::{Inputs, Job};
use crate::kernels::quantise::RowCodes;
use crate::lanes::LANES;
use crate::pack::{Kind, Weight};
use crate::pool::Pool;
use crate::{Isa, math};

/// Values below which an element-wise op is not worth waking another thread for.
const WORTH_SHARING: usize = 16 * 1024;

/// The CPU with an instruction set and a number of threads.
pub struct Cpu {
    isa: Isa,
    pub(crate) pool: Pool,
    pub(crate) kernels: &'static Kernels,
}

/// Sines and cosines of a step's rows for one rotation, row after row.
pub struct Angles {
    pairs: usize,
    sin: Vec<f32>,
    cos: Vec<f32>,
}

impl Cpu {
    /// A device of `threads` threads, the calling one among them.
    ///
    /// # Errors
    /// The machine lacks the instruction set.
    pub fn new(isa: Isa, threads: usize) -> Result<Self, Unsupported> {
        let isa = isa.checked()?;
        Ok(Self { isa, pool: Pool::new(threads), kernels: Kernels::of(isa) })
    }

    /// Fills `out`, rows of `cols`, by calling `row` for each.
    pub(crate) fn each_row(
        &self,
        out: &mut [f32],
        cols: usize,
        row: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        let rows = out.len() / cols;
        if out.len() < WORTH_SHARING {
            out.chunks_exact_mut(cols).enumerate().for_each(|(i, out)| row(i, out));
            return;
        }
        let step = (WORTH_SHARING / 2).div_ceil(cols);
        let out = Disjoint::new(out);
        self.pool.run(rows.div_ceil(step), &|piece| {
            for i in piece * step..((piece + 1) * step).min(rows) {
                // SAFETY: pieces are disjoint ranges of rows.
                row(i, unsafe { out.part(i * cols..(i + 1) * cols) });
            }
        });
    }

    /// The rounded form of an activation.
    pub(crate) fn codes<'a>(&self, x: &'a Act) -> &'a Codes {
        x.codes(|x| self.quantise(x))
    }

    fn quantise(&self, x: &Act) -> Codes {
        let (rows, cols) = (x.rows(), x.cols());
        let blocks = cols / BLOCK;
        let mut codes = Codes {
            blocks,
            bytes: vec![0; rows * cols],
            scales: vec![0.0; rows * blocks],
            first_half: vec![0; rows * blocks],
            sums: vec![0; rows * blocks],
        };
        let bytes = Disjoint::new(&mut codes.bytes);
        let scales = Disjoint::new(&mut codes.scales);
        let first_half = Disjoint::new(&mut codes.first_half);
        let sums = Disjoint::new(&mut codes.sums);
        let row = |i: usize| {
            let places = i * blocks..(i + 1) * blocks;
            // SAFETY: each row is rounded by one call; `kernels` are those of a detected `Isa`.
            unsafe {
                let out = RowCodes {
                    bytes: bytes.part(i * cols..(i + 1) * cols),
                    scales: scales.part(places.clone()),
                    first_half: first_half.part(places.clone()),
                    sums: sums.part(places),
                };
                (self.kernels.quantise)(x.row(i), out);
            }
        };
        if rows * cols < WORTH_SHARING {
            (0..rows).for_each(row);
        } else {
            self.pool.run(rows, &row);
        }
        codes
    }

    /// What a matrix multiplies with: the rounded form if it is quantised.
    pub(crate) fn inputs<'a>(&self, x: &'a Act, w: &Weight) -> Inputs<'a> {
        assert_eq!(x.cols(), w.cols, "inputs of a matrix");
        match w.kind {
            Kind::Blocks(_) => Inputs::Codes(self.codes(x)),
            Kind::Floats(_) => Inputs::Floats { data: x.data(), cols: x.cols() },
        }
    }

    /// `out[to] = W_m · x[from]` for each `(m, [(from, to)])`.
    pub(crate) fn multiply(
        &self,
        inputs: Inputs<'_>,
        w: &Weight,
        work: &[(usize, &[(u32, u32)])],
        out: &mut Act,
    ) {
        assert_eq!(out.cols(), w.rows, "outputs of a matrix");
        let (groups, stride) = (w.groups(), w.rows);
        let step = groups_per_piece(w, groups * work.len(), self.pool.threads());
        let pieces = groups.div_ceil(step);
        let out = Disjoint::new(out.data_mut());
        self.pool.run(pieces * work.len(), &|piece| {
            let (matrix, rows) = work[piece / pieces];
            let first = piece % pieces * step;
            for g in first..(first + step).min(groups) {
                // SAFETY: a piece writes the columns of its own groups only, and a row of the
                // output belongs to one entry of `work`; `kernels` are those of a detected `Isa`.
                unsafe {
                    (self.kernels.matmul)(&Job {
                        kind: w.kind,
                        group: w.group(matrix, g),
                        apart: w.apart(matrix, g),
                        inputs,
                        rows,
                        out: out.start(),
                        stride,
                        first: g * LANES,
                        lanes: (w.rows - g * LANES).min(LANES),
                    });
                }
            }
        });
    }
}

/// Enough pieces to share evenly, but none smaller than some kilobytes of weights.
fn groups_per_piece(w: &Weight, all: usize, threads: usize) -> usize {
    const SMALLEST: usize = 64 * 1024;
    let even = all.div_ceil(8 * threads);
    even.max(SMALLEST.div_ceil(w.group_bytes())).clamp(1, w.groups())
}

impl Backend for Cpu {
    type Act = Act;
    type Weight = Weight;
    type Vector = Vec<f32>;
    type Routes = Routes;
    type Angles = Angles;
    type Plan = LayerPlan;

    fn name(&self) -> String {
        let threads = self.pool.threads();
        format!("cpu ({}, {threads} thread{})", self.isa, if threads == 1 { "" } else { "s" })
    }

    fn matrix(&self, stored: Matrix<'_>) -> Result<Weight, Unsupported> {
        Weight::pack(&stored, &self.pool)
    }

    fn vector(&self, values: &[f32]) -> Vec<f32> {
        values.to_vec()
    }

    fn upload(&self, values: &[f32], cols: usize) -> Act {
        Act::new(cols, values.to_vec())
    }

    fn angles(&self, rope: &Rope, rows: &[[u32; 3]]) -> Angles {
        let pairs = rope.freqs.len();
        let mut angles = Angles { pairs, sin: Vec::new(), cos: Vec::new() };
        for row in rows {
            for (&freq, &axis) in rope.freqs.iter().zip(&rope.axis) {
                // The published model computes the angle in single precision.
                let angle = row[usize::from(axis)] as f32 * freq;
                let (sin, cos) = math::sin_cos(f64::from(angle));
                angles.sin.push(sin as f32);
                angles.cos.push(cos as f32);
            }
        }
        angles
    }

    fn embed(&self, table: &Weight, tokens: &[TokenId], scale: f32) -> Act {
        let mut out = Act::zeros(tokens.len(), table.cols);
        self.each_row(out.data_mut(), table.cols, |i, out| {
            table.decode_row(tokens[i].index(), out);
            out.iter_mut().for_each(|x| *x *= scale);
        });
        out
    }

    fn replace_rows(&self, mut x: Act, source: &Act, pairs: &[(usize, usize)]) -> Act {
        let cols = x.cols();
        assert_eq!(cols, source.cols(), "width of the replacing rows");
        let data = x.data_mut();
        for &(to, from) in pairs {
            data[to * cols..(to + 1) * cols].copy_from_slice(source.row(from));
        }
        x
    }

    fn linear(&self, x: &Act, w: &Weight) -> Act {
        let rows: Vec<_> = (0..x.rows() as u32).map(|i| (i, i)).collect();
        let mut out = Act::zeros(x.rows(), w.rows);
        self.multiply(self.inputs(x, w), w, &[(0, &rows)], &mut out);
        out
    }

    /// A large matrix of Q8_0 is kept in two planes.
    fn head(&self, stored: Matrix<'_>) -> Result<Weight, Unsupported> {
        if Weight::splits(&stored) {
            return Ok(Weight::pack_planes(&stored, &self.pool));
        }
        self.matrix(stored)
    }

    fn likeliest(
        &self,
        x: &Act,
        rows: usize,
        head: &Head<'_, Self>,
        k: usize,
    ) -> Result<Vec<Vec<Candidate>>, DeviceError> {
        match &head.weight.planes {
            Some(planes) if k <= head::FEW => Ok(head::likeliest(self, x, head, planes, k)),
            _ => self.top(&head.logits(self, x), rows, k),
        }
    }

    fn rms_norm(&self, x: &Act, w: &Vec<f32>, eps: f32) -> Act {
        self.norm_groups(x, w.len(), Some(w), eps)
    }

    fn unit_norm(&self, x: &Act, width: usize, eps: f32) -> Act {
        self.norm_groups(x, width, None, eps)
    }

    fn rope(&self, mut x: Act, angles: &Angles) -> Act {
        let (cols, pairs) = (x.cols(), angles.pairs);
        assert!(cols.is_multiple_of(2 * pairs), "{cols} columns are no heads of {}", 2 * pairs);
        self.each_row(x.data_mut(), cols, |i, row| {
            let place = i * pairs..(i + 1) * pairs;
            // SAFETY: `kernels` are those of a detected `Isa`.
            unsafe { (self.kernels.rotate)(row, &angles.sin[place.clone()], &angles.cos[place]) }
        });
        x
    }

    fn add(&self, a: &Act, b: &Act) -> Act {
        let sum = a.data().iter().zip(b.data()).map(|(a, b)| a + b);
        Act::new(a.cols(), sum.collect())
    }

    fn scale(&self, mut x: Act, s: &Vec<f32>) -> Act {
        let cols = x.cols();
        match s.as_slice() {
            [s] => x.data_mut().iter_mut().for_each(|x| *x *= s),
            s => {
                assert_eq!(s.len(), cols, "one factor per column");
                for row in x.data_mut().chunks_exact_mut(cols) {
                    row.iter_mut().zip(s).for_each(|(x, s)| *x *= s);
                }
            }
        }
        x
    }

    fn gelu_mul(&self, gate: &Act, up: &Act) -> Act {
        assert_eq!((gate.rows(), gate.cols()), (up.rows(), up.cols()), "shapes of gate and up");
        let mut out = Act::zeros(gate.rows(), gate.cols());
        self.each_row(out.data_mut(), gate.cols(), |i, out| {
            // SAFETY: `kernels` are those of a detected `Isa`.
            unsafe { (self.kernels.gelu_mul)(gate.row(i), up.row(i), out) }
        });
        out
    }

    fn clamp(&self, x: &Act, least: f32, most: f32) -> Act {
        Act::new(x.cols(), x.data().iter().map(|x| x.clamp(least, most)).collect())
    }

    fn softcap(&self, mut x: Act, cap: f32) -> Act {
        let cols = x.cols();
        self.each_row(x.data_mut(), cols, |_, row| {
            // SAFETY: `kernels` are those of a detected `Isa`.
            unsafe { (self.kernels.softcap)(row, cap) }
        });
        x
    }

    fn route(&self, logits: &Act, per_expert: &Vec<f32>, k: usize) -> Routes {
        Routes::of(logits, per_expert, k)
    }

    fn experts(&self, x: &Act, routes: &Routes, gate_up: &Weight, down: &Weight) -> Act {
        experts::experts(self, x, routes, gate_up, down)
    }

    fn select(&self, x: &Act, rows: &[usize]) -> Act {
        Act::new(x.cols(), rows.iter().flat_map(|&i| x.row(i)).copied().collect())
    }

    fn columns(&self, x: &Act, columns: Range<usize>) -> Act {
        let rows = (0..x.rows()).flat_map(|i| &x.row(i)[columns.clone()]);
        Act::new(columns.len(), rows.copied().collect())
    }

    fn finish(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn read(&self, x: &Act) -> Result<Vec<f32>, DeviceError> {
        Ok(x.data().to_vec())
    }
}

impl Cpu {
    fn norm_groups(&self, x: &Act, width: usize, w: Option<&Vec<f32>>, eps: f32) -> Act {
        let cols = x.cols();
        assert!(cols.is_multiple_of(width), "{cols} columns are no groups of {width}");
        let mut out = Act::zeros(x.rows(), cols);
        self.each_row(out.data_mut(), cols, |i, out| {
            let groups = x.row(i).chunks_exact(width).zip(out.chunks_exact_mut(width));
            for (x, out) in groups {
                // SAFETY: `kernels` are those of a detected `Isa`.
                unsafe { (self.kernels.norm)(x, w.map(Vec::as_slice), eps, out) }
            }
        });
        out
    }
}
