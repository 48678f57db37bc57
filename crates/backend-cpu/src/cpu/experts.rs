//! The routed feed-forward: rows sorted by expert, so that each expert's weights are read once.

use crate::act::Act;
use crate::cpu::{Cpu, Routes};
use crate::pack::Weight;

/// A pair is one row's visit to one expert; pairs are numbered expert by expert.
struct Pairs {
    /// For each expert that is visited: `(expert, first pair, one past its last)`.
    visits: Vec<(usize, usize, usize)>,
    /// `(row, pair)`, in the order of pairs.
    rows: Vec<(u32, u32)>,
    /// The pair of each choice, in the order of [`Routes`].
    of_choice: Vec<u32>,
}

impl Pairs {
    fn of(routes: &Routes) -> Self {
        let mut order: Vec<u32> = (0..routes.choices.len() as u32).collect();
        let expert = |&choice: &u32| routes.choices[choice as usize].0;
        order.sort_by_key(expert);
        let mut pairs =
            Self { visits: Vec::new(), rows: Vec::new(), of_choice: vec![0; order.len()] };
        for chunk in order.chunk_by(|a, b| expert(a) == expert(b)) {
            let first = pairs.rows.len();
            for &choice in chunk {
                let pair = pairs.rows.len() as u32;
                pairs.of_choice[choice as usize] = pair;
                pairs.rows.push((choice / routes.k as u32, pair));
            }
            pairs.visits.push((expert(&chunk[0]) as usize, first, pairs.rows.len()));
        }
        pairs
    }

    fn work<'a>(&self, rows: &'a [(u32, u32)]) -> Vec<(usize, &'a [(u32, u32)])> {
        self.visits.iter().map(|&(expert, first, end)| (expert, &rows[first..end])).collect()
    }
}

pub(super) fn experts(cpu: &Cpu, x: &Act, routes: &Routes, gate_up: &Weight, down: &Weight) -> Act {
    let pairs = Pairs::of(routes);
    let count = pairs.rows.len();

    let mut both = Act::zeros(count, gate_up.rows);
    cpu.multiply(cpu.inputs(x, gate_up), gate_up, &pairs.work(&pairs.rows), &mut both);

    let mut mid = Act::zeros(count, down.cols);
    cpu.each_row(mid.data_mut(), down.cols, |i, out| {
        let (gate, up) = both.row(i).split_at(down.cols);
        // SAFETY: `kernels` are those of a detected `Isa`.
        unsafe { (cpu.kernels.gelu_mul)(gate, up, out) }
    });

    let rows: Vec<_> = (0..count as u32).map(|pair| (pair, pair)).collect();
    let mut terms = Act::zeros(count, down.rows);
    cpu.multiply(cpu.inputs(&mid, down), down, &pairs.work(&rows), &mut terms);

    let mut out = Act::zeros(x.rows(), down.rows);
    cpu.each_row(out.data_mut(), down.rows, |i, out| {
        let choices = routes.row(i).iter().zip(&pairs.of_choice[i * routes.k..]);
        for (&(_, weight), &pair) in choices {
            let term = terms.row(pair as usize);
            out.iter_mut().zip(term).for_each(|(out, term)| *out += weight * term);
        }
    });
    out
}
