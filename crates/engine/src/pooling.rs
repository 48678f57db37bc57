//! Making one vector of a text's hidden states.

use crate::Pooling;

/// What a text's rows have come to so far.
#[derive(Default)]
pub(crate) struct Pool {
    /// Sums in order of position, so that it does not show how the text was cut into steps.
    sums: Vec<f64>,
    rows: u32,
}

impl Pool {
    /// Takes in the next row that `pooling` wants.
    pub(crate) fn add(&mut self, state: &[f32]) {
        self.sums.resize(state.len(), 0.0);
        for (sum, &value) in self.sums.iter_mut().zip(state) {
            *sum += f64::from(value);
        }
        self.rows += 1;
    }

    /// The rows' mean, scaled to length one; zeros stay zeros.
    pub(crate) fn finish(&self) -> Vec<f32> {
        let rows = f64::from(self.rows.max(1));
        let mean = || self.sums.iter().map(|sum| sum / rows);
        let length = mean().map(|x| x * x).sum::<f64>().sqrt();
        let scale = if length > 0.0 { 1.0 / length } else { 1.0 };
        mean().map(|x| (x * scale) as f32).collect()
    }
}

impl Pooling {
    /// Whether it wants the row that `left` more rows of the text follow.
    pub(crate) fn wants(self, left: usize) -> bool {
        self == Self::Mean || left == 0
    }
}
