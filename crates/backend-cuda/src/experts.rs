//! The routed feed-forward: each row's experts, and the products with them.

use crate::act::Act;
use crate::cuda::{Cuda, Gate, Vector, args};
use crate::device::Shape;
use crate::kernels::{ANY, Kernel};
use crate::matmul::{Method, Work};
use crate::pool::Buffer;
use crate::weight::Weight;

/// Most rows whose experts are visited one by one, without sorting.
const MOST_DIRECT: usize = 4;
/// Most experts that kernels/route.cu and group.cu serve.
const MOST_EXPERTS: usize = 1024;

/// For each row, `k` experts in ascending order and how much of each.
pub struct Routes {
    rows: usize,
    k: usize,
    experts: Buffer,
    weights: Buffer,
}

/// Choices sorted by expert.
struct Groups {
    /// The row of the inputs at each place of the sorted list.
    from: Buffer,
    /// The place of each choice.
    place: Buffer,
    tiles: Buffer,
    most: u32,
    method: Method,
}

impl Routes {
    pub(crate) fn choose(cuda: &Cuda, logits: &Act, per_expert: &Vector, k: usize) -> Self {
        let (rows, count) = (logits.rows(), logits.cols());
        assert_eq!(count, per_expert.len, "one logit per expert");
        assert!(k > 0 && k <= count && k <= 32, "{k} of {count} experts; 32 at most");
        assert!(count <= MOST_EXPERTS, "{count} experts are more than {MOST_EXPERTS}");
        let words = || cuda.pool.get(rows * k * 4);
        let routes = Self { rows, k, experts: words(), weights: words() };
        let shape = Shape { grid: (rows as u32, 1), block: 32, shared: 0 };
        let (count, k) = (count as u32, k as u32);
        let args = args![logits.data, per_expert.data, routes.experts, routes.weights, count, k];
        // SAFETY: a warp per row; both lists have `k` places per row.
        unsafe { cuda.launch(Kernel::Route, ANY, shape, &args) };
        routes
    }

    pub(crate) fn experts(&self, cuda: &Cuda, x: &Act, gate_up: &Weight, down: &Weight) -> Act {
        assert_eq!(x.rows(), self.rows, "rows of the routes");
        let pairs = self.rows * self.k;
        let direct =
            self.rows <= MOST_DIRECT || gate_up.format.is_float() || down.format.is_float();
        let groups = (!direct).then(|| self.group(cuda, gate_up.stack));

        let both = cuda.blank(pairs, gate_up.rows);
        let pairwise = |share| Work::Pairs { of: &self.experts, share };
        let first =
            groups.as_ref().map_or_else(|| pairwise(self.k as u32), |g| g.work(Some(&g.from)));
        cuda.multiply(x, gate_up, &both, first);

        let place = Gate { cols: down.cols, stride: gate_up.rows, up: down.cols };
        let mid = if down.format.is_float() {
            cuda.gelu_rows(&both, &both, place)
        } else {
            cuda.gelu_codes(&both, place)
        };
        let terms = cuda.blank(pairs, down.rows);
        let second = groups.as_ref().map_or_else(|| pairwise(1), |g| g.work(None));
        cuda.multiply(&mid, down, &terms, second);

        self.combine(cuda, &terms, groups.as_ref().map(|g| &g.place))
    }

    /// Sorts the choices by expert and cuts each expert's rows into tiles.
    fn group(&self, cuda: &Cuda, count: usize) -> Groups {
        let pairs = self.rows * self.k;
        let method = match pairs.div_ceil(count) {
            0..=2 => Method::Few(4),
            3..=8 => Method::Few(8),
            9..=16 => Method::Few(16),
            17..=40 => Method::Many(32),
            _ => Method::Many(64),
        };
        let size = method.tile();
        let most = pairs.min(count + pairs / size as usize);
        let words = |n: usize| cuda.pool.get(n * 4);
        let groups = Groups {
            from: words(pairs),
            place: words(pairs),
            tiles: words(4 * most),
            most: most as u32,
            method,
        };
        let shape = Shape { grid: (1, 1), block: 1024, shared: 12 * count as u32 };
        let (n, k, count) = (pairs as u32, self.k as u32, count as u32);
        let Groups { from, place, tiles, most, .. } = &groups;
        let args = args![self.experts, from, place, tiles, n, k, count, size, *most];
        // SAFETY: lists are as long as the kernel's contract says; an expert with `r` rows needs
        // `⌈r / size⌉` tiles, which is at most `r` and at most one more than `r / size`.
        unsafe { cuda.launch(Kernel::Group, ANY, shape, &args) };
        groups
    }

    fn combine(&self, cuda: &Cuda, terms: &Act, place: Option<&Buffer>) -> Act {
        let out = cuda.blank(self.rows, terms.cols());
        let (rows, cols, k) = (self.rows as u32, terms.cols() as u32, self.k as u32);
        let args = args![terms.data, self.weights, place, out.data, rows, cols, k];
        // SAFETY: one thread per output; `k` terms and weights per row.
        unsafe { cuda.launch(Kernel::Combine, ANY, Shape::each(out.len()), &args) };
        out
    }
}

impl Groups {
    fn work<'a>(&'a self, from: Option<&'a Buffer>) -> Work<'a> {
        Work::Tiles { from, tiles: &self.tiles, most: self.most, method: self.method }
    }
}
