//! The naive twins: every op as its definition says, one row at a time, in plain floats.
//!
//! [`Reference`] holds weights as `f32` and knows no codes: it is the yardstick for everything
//! that rounds. [`law`] is the naive form of the quantised matmul.

mod kv;
pub mod law;

use std::ops::Range;

use half::{bf16, f16};
use lapidary_core::{
    Backend, BlockType, DeviceError, LayerPlan, Matrix, Rope, TokenId, Unsupported,
};

pub use kv::Store;

/// The device that computes by definition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

/// Rows of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Width of a row.
    pub cols: usize,
    /// Row after row.
    pub data: Vec<f32>,
}

impl Rows {
    /// One row.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.data[i * self.cols..(i + 1) * self.cols]
    }

    /// All rows.
    pub fn iter(&self) -> std::slice::ChunksExact<'_, f32> {
        self.data.chunks_exact(self.cols)
    }
}

/// A stack of matrices, inputs outermost: `values[m][k][n]`.
#[derive(Clone, Debug)]
pub struct Table {
    rows: usize,
    cols: usize,
    values: Vec<f32>,
}

impl Table {
    /// `y[n] = Σ_k w[n, k] · x[k]`, adding in ascending order of `k`.
    fn times(&self, matrix: usize, x: &[f32]) -> Vec<f32> {
        assert_eq!(x.len(), self.cols, "inputs of a matrix");
        let size = self.rows * self.cols;
        let mut y = vec![0.0; self.rows];
        let inputs = self.values[matrix * size..(matrix + 1) * size].chunks_exact(self.rows);
        for (column, x) in inputs.zip(x) {
            y.iter_mut().zip(column).for_each(|(y, w)| *y += w * x);
        }
        y
    }
}

/// Sines and cosines, row after row.
#[derive(Clone, Debug)]
pub struct Turns {
    pairs: usize,
    sin_cos: Vec<(f32, f32)>,
}

fn gelu(x: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

fn norm(x: &[f32], eps: f32) -> impl Iterator<Item = f32> {
    let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    let factor = 1.0 / (mean + eps).sqrt();
    x.iter().map(move |x| x * factor)
}

impl Backend for Reference {
    type Act = Rows;
    type Weight = Table;
    type Vector = Vec<f32>;
    type Routes = Vec<Vec<(usize, f32)>>;
    type Angles = Turns;
    type Plan = LayerPlan;

    fn name(&self) -> String {
        "reference".into()
    }

    fn matrix(&self, stored: Matrix<'_>) -> Result<Table, Unsupported> {
        let Matrix { block, stack, rows, cols, bytes } = stored;
        let numbers: Vec<f32> = match block {
            BlockType::F32 => bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
            BlockType::F16 => {
                bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect()
            }
            BlockType::BF16 => {
                bytes.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect()
            }
            _ => return Err(Unsupported(format!("decode {block} to floats first"))),
        };
        assert_eq!(numbers.len(), stack * rows * cols, "numbers of a stored stack");
        let mut values = vec![0.0; numbers.len()];
        for (m, matrix) in numbers.chunks_exact(rows * cols).enumerate() {
            for (n, row) in matrix.chunks_exact(cols).enumerate() {
                for (k, w) in row.iter().enumerate() {
                    values[m * rows * cols + k * rows + n] = *w;
                }
            }
        }
        Ok(Table { rows, cols, values })
    }

    fn vector(&self, values: &[f32]) -> Vec<f32> {
        values.to_vec()
    }

    fn upload(&self, values: &[f32], cols: usize) -> Rows {
        Rows { cols, data: values.to_vec() }
    }

    fn angles(&self, rope: &Rope, rows: &[[u32; 3]]) -> Turns {
        let pairs = rope.freqs.len();
        let turn = |row: &[u32; 3], j: usize| {
            let angle = row[usize::from(rope.axis[j])] as f32 * rope.freqs[j];
            (angle.sin(), angle.cos())
        };
        let all = rows.iter().flat_map(|row| (0..pairs).map(move |j| turn(row, j)));
        Turns { pairs, sin_cos: all.collect() }
    }

    fn embed(&self, table: &Table, tokens: &[TokenId], scale: f32) -> Rows {
        let row = |t: &TokenId| {
            let t = t.index();
            (0..table.cols).map(move |k| table.values[k * table.rows + t] * scale)
        };
        Rows { cols: table.cols, data: tokens.iter().flat_map(row).collect() }
    }

    fn replace_rows(&self, mut x: Rows, source: &Rows, pairs: &[(usize, usize)]) -> Rows {
        let cols = x.cols;
        for &(to, from) in pairs {
            x.data[to * cols..(to + 1) * cols].copy_from_slice(source.row(from));
        }
        x
    }

    fn linear(&self, x: &Rows, w: &Table) -> Rows {
        Rows { cols: w.rows, data: x.iter().flat_map(|row| w.times(0, row)).collect() }
    }

    fn rms_norm(&self, x: &Rows, w: &Vec<f32>, eps: f32) -> Rows {
        let group = |x| norm(x, eps).zip(w).map(|(x, w)| x * w);
        Rows { cols: x.cols, data: x.data.chunks_exact(w.len()).flat_map(group).collect() }
    }

    fn unit_norm(&self, x: &Rows, width: usize, eps: f32) -> Rows {
        let group = |x| norm(x, eps);
        Rows { cols: x.cols, data: x.data.chunks_exact(width).flat_map(group).collect() }
    }

    fn rope(&self, mut x: Rows, angles: &Turns) -> Rows {
        let pairs = angles.pairs;
        let rows = x.data.chunks_exact_mut(x.cols).zip(angles.sin_cos.chunks_exact(pairs));
        for (row, turns) in rows {
            for head in row.chunks_exact_mut(2 * pairs) {
                for (j, (sin, cos)) in turns.iter().enumerate() {
                    let (a, b) = (head[j], head[j + pairs]);
                    head[j] = a * cos - b * sin;
                    head[j + pairs] = b * cos + a * sin;
                }
            }
        }
        x
    }

    fn add(&self, a: &Rows, b: &Rows) -> Rows {
        Rows { cols: a.cols, data: a.data.iter().zip(&b.data).map(|(a, b)| a + b).collect() }
    }

    fn scale(&self, mut x: Rows, s: &Vec<f32>) -> Rows {
        for row in x.data.chunks_exact_mut(x.cols) {
            row.iter_mut().zip(s.iter().cycle()).for_each(|(x, s)| *x *= s);
        }
        x
    }

    fn gelu_mul(&self, gate: &Rows, up: &Rows) -> Rows {
        let product = |(gate, up): (&f32, &f32)| gelu(*gate) * up;
        Rows { cols: gate.cols, data: gate.data.iter().zip(&up.data).map(product).collect() }
    }

    fn clamp(&self, x: &Rows, least: f32, most: f32) -> Rows {
        Rows { cols: x.cols, data: x.data.iter().map(|x| x.clamp(least, most)).collect() }
    }

    fn softcap(&self, x: Rows, cap: f32) -> Rows {
        let data = x.data.iter().map(|x| cap * (x / cap).tanh()).collect();
        Rows { cols: x.cols, data }
    }

    fn route(&self, logits: &Rows, per_expert: &Vec<f32>, k: usize) -> Self::Routes {
        let choose = |row: &[f32]| {
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let all: f32 = row.iter().map(|l| (l - most).exp()).sum();
            let mut shares: Vec<_> =
                row.iter().map(|l| (l - most).exp() / all).enumerate().collect();
            shares.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            shares.truncate(k);
            let sum: f32 = shares.iter().map(|(_, share)| share).sum();
            shares.sort_by_key(|(e, _)| *e);
            shares.into_iter().map(|(e, share)| (e, share / sum * per_expert[e])).collect()
        };
        logits.iter().map(choose).collect()
    }

    fn experts(&self, x: &Rows, routes: &Self::Routes, gate_up: &Table, down: &Table) -> Rows {
        let mut data = Vec::new();
        for (row, routes) in x.iter().zip(routes) {
            let mut sum = vec![0.0; down.rows];
            for &(expert, weight) in routes {
                let both = gate_up.times(expert, row);
                let (gate, up) = both.split_at(both.len() / 2);
                let mid: Vec<_> = gate.iter().zip(up).map(|(g, u)| gelu(*g) * u).collect();
                let term = down.times(expert, &mid);
                sum.iter_mut().zip(term).for_each(|(sum, term)| *sum += weight * term);
            }
            data.extend(sum);
        }
        Rows { cols: down.rows, data }
    }

    fn select(&self, x: &Rows, rows: &[usize]) -> Rows {
        Rows { cols: x.cols, data: rows.iter().flat_map(|&i| x.row(i)).copied().collect() }
    }

    fn columns(&self, x: &Rows, columns: Range<usize>) -> Rows {
        let data = x.iter().flat_map(|row| &row[columns.clone()]).copied().collect();
        Rows { cols: columns.len(), data }
    }

    fn finish(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn read(&self, x: &Rows) -> Result<Vec<f32>, DeviceError> {
        Ok(x.data.clone())
    }
}
