//! Rows of every kind, the same as in `tests/data/make.py`.

pub(crate) const ROWS: usize = 48;
pub(crate) const COLS: usize = 768;

struct Integers(u64);

impl Integers {
    /// Of 24 bits.
    fn next(&mut self) -> i64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as i64
    }
}

/// About normal numbers with edges: nothing, constants, one sign, tiny, spikes, ties, far from
/// zero, large.
pub(crate) fn rows() -> Vec<f32> {
    let mut integers = Integers(1);
    let mut bell = || {
        let sum: i64 = (0..4).map(|_| integers.next() - (1 << 23)).sum();
        (sum as f64 * 2_f64.powi(-25)) as f32
    };
    let mut x: Vec<f32> = (0..ROWS * COLS).map(|_| bell()).collect();
    let mut row = |i: usize, change: &dyn Fn(usize, &mut f32)| {
        x[i * COLS..][..COLS].iter_mut().enumerate().for_each(|(j, x)| change(j, x));
    };
    row(1, &|_, x| *x = 0.0);
    row(2, &|_, x| *x = 0.25);
    row(3, &|_, x| *x = -x.abs());
    row(4, &|_, x| *x = x.abs());
    row(5, &|_, x| *x *= 2_f32.powi(-30));
    row(6, &|j, x| {
        if j % 32 == 0 {
            *x *= 64.0
        }
    });
    row(7, &|j, x| {
        if j < 256 {
            *x = 0.0
        }
    });
    row(8, &|_, x| *x = x.round_ties_even());
    row(9, &|_, x| *x += 4.0);
    row(10, &|_, x| *x *= 1024.0);
    row(11, &|j, x| {
        if j > 0 {
            *x = 0.0
        }
    });
    x
}

/// Weights with zeros and one that outweighs the rest.
pub(crate) fn importance() -> Vec<f32> {
    let mut integers = Integers(2);
    let mut q: Vec<f32> =
        (0..COLS).map(|_| (integers.next() as f64 * 2_f64.powi(-24)) as f32).collect();
    q[5] = 0.0;
    q[64..96].fill(0.0);
    q[100] *= 4096.0;
    q
}
