//! Gemma 4's vision tower: patches of a picture in, soft tokens out.
//!
//! ```text
//! h  = W(2p − 1) + column[x] + row[y]
//! r  = h + N(attention(N(h)))
//! h' = r + N(feed_forward(N(r)))
//! soft = P(unit((mean of 3 × 3 · √width − bias) ⊙ scale))
//! ```
//!
//! Every patch sees every other. That is attention over a cache of one step, so the device's own
//! attention serves, unmasked. Half of a head turns with the patch's column and half with its row.
//! A picture is read alone: its soft tokens depend on nothing else.

use lapidary_core::{
    Backend, Branch, Join, KvKernels, KvLayerSpec, LayerPlan, Patches, Reach, Regime, Rope, SlotId,
    TokenId, Unsupported, View,
};
use thiserror::Error;

/// Turns pictures into soft tokens.
pub trait Tower<B: Backend> {
    /// Width of a soft token.
    fn width(&self) -> usize;

    /// How many soft tokens come of a picture.
    ///
    /// # Errors
    /// [`Unseen`] if the tower cannot read it.
    fn count(&self, picture: &Patches) -> Result<usize, Unseen>;

    /// The soft tokens of a picture, one row each, in reading order.
    ///
    /// # Errors
    /// [`Unseen`] if the tower cannot read it.
    fn look(&self, ops: &B, picture: &Patches) -> Result<B::Act, Unseen>;
}

/// A picture that a tower cannot read.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum Unseen {
    /// Its patches are not squares of the size that the tower reads.
    #[error(
        "the picture is cut into patches of {found} × {found} pixels, and this tower reads {side} × {side}"
    )]
    Side {
        /// Pixels of a side of a patch.
        found: usize,
        /// What the tower reads.
        side: usize,
    },
    /// Its grid is no whole number of soft tokens.
    #[error("the picture has {columns} × {rows} patches, and sides must be multiples of {pool}")]
    Grid {
        /// Patches in a row.
        columns: usize,
        /// Rows of patches.
        rows: usize,
        /// Patches of a side of a soft token.
        pool: usize,
    },
    /// A side is longer than the tower has positions.
    #[error(
        "the picture is {columns} × {rows} patches and this model's tower has {most} positions a side: cut the picture, or give it fewer tokens"
    )]
    Long {
        /// Patches in a row.
        columns: usize,
        /// Rows of patches.
        rows: usize,
        /// Positions along a side.
        most: usize,
    },
    /// The device has no attention of this shape, or no room.
    #[error("the device cannot hold the picture's patches: {0}")]
    Device(Unsupported),
}

/// A tower with its weights.
pub struct Vision<B: Backend> {
    /// Pixels of a side of a patch.
    pub side: usize,
    /// Patches of a side of the square that becomes one soft token.
    pub pool: usize,
    /// Positions along a side.
    pub positions: usize,
    /// Width of the tower's own stream.
    pub hidden: usize,
    /// Width of a soft token.
    pub output: usize,
    /// Heads of a layer.
    pub heads: usize,
    /// Width of a head as it is computed: whole vectors of the device.
    pub head_width: usize,
    /// Added to the mean square inside norms of the stream.
    pub eps: f32,
    /// The same for heads, whose width may have been rounded up.
    pub head_eps: f32,
    /// From a patch's numbers, pixel by pixel, to the stream.
    pub embedding: B::Weight,
    /// The columns' vectors, and after them the rows'.
    pub places: B::Weight,
    /// Turns queries and keys by column and row.
    pub rope: Rope,
    /// Bottom to top.
    pub layers: Vec<VisionLayer<B>>,
    /// `√width / pool²`, on the sum of a soft token's patches.
    pub mean: B::Vector,
    /// Makes soft tokens standard, if the checkpoint does.
    pub standard: Option<Standard<B>>,
    /// From the tower's stream to the decoder's.
    pub projection: B::Weight,
}

/// `(z − bias) ⊙ scale`.
pub struct Standard<B: Backend> {
    /// `−bias`.
    pub shift: Vec<f32>,
    /// One factor per column.
    pub scale: B::Vector,
}

/// One layer of the tower.
pub struct VisionLayer<B: Backend> {
    /// Before attention.
    pub input_norm: B::Vector,
    /// Query projection.
    pub wq: Clipped<B>,
    /// Key projection.
    pub wk: Clipped<B>,
    /// Value projection.
    pub wv: Clipped<B>,
    /// Per-head query norm.
    pub q_norm: B::Vector,
    /// Per-head key norm.
    pub k_norm: B::Vector,
    /// Per-head value norm: the same number throughout.
    pub v_norm: B::Vector,
    /// Output projection.
    pub wo: Clipped<B>,
    /// On the attention branch.
    pub post_attention_norm: B::Vector,
    /// Before the feed-forward.
    pub feed_forward_norm: B::Vector,
    /// Gate projection.
    pub gate: Clipped<B>,
    /// Up projection.
    pub up: Clipped<B>,
    /// Down projection.
    pub down: Clipped<B>,
    /// On the feed-forward branch.
    pub post_feed_forward_norm: B::Vector,
}

/// A projection between bounds, if the checkpoint has them: it was trained to be quantised.
pub struct Clipped<B: Backend> {
    /// The projection.
    pub weight: B::Weight,
    /// Bounds of what goes in.
    pub input: Option<Bounds>,
    /// Bounds of what comes out.
    pub output: Option<Bounds>,
}

/// The least and the largest value.
pub type Bounds = (f32, f32);

impl<B: KvKernels> Tower<B> for Vision<B> {
    fn width(&self) -> usize {
        self.output
    }

    fn count(&self, picture: &Patches) -> Result<usize, Unseen> {
        let &Patches { columns, rows, side: found, .. } = picture;
        let &Self { side, pool, positions: most, .. } = self;
        if found != side {
            return Err(Unseen::Side { found, side });
        }
        let whole = columns.is_multiple_of(pool) && rows.is_multiple_of(pool);
        if !whole || columns == 0 || rows == 0 {
            return Err(Unseen::Grid { columns, rows, pool });
        }
        if columns > most || rows > most {
            return Err(Unseen::Long { columns, rows, most });
        }
        Ok(columns * rows / (pool * pool))
    }

    fn look(&self, ops: &B, picture: &Patches) -> Result<B::Act, Unseen> {
        let count = self.count(picture)?;
        let spec = KvLayerSpec {
            heads: self.heads,
            width: self.head_width,
            reach: Reach::All,
            two_way: false,
        };
        let store = ops.reserve(Regime::F32, spec, 1, picture.count());
        let mut sight = Sight {
            store: store.map_err(Unseen::Device)?,
            plan: ops.upload_plan(all_see_all(picture.count() as u32)),
            angles: ops.angles(&self.rope, &places(picture).collect::<Vec<_>>()),
        };
        let mut h = self.embed(ops, picture);
        for layer in &self.layers {
            h = layer.forward(ops, self, &mut sight, &h);
        }
        Ok(self.project(ops, self.pooled(ops, &h, picture), count))
    }
}

/// What every layer reads besides the stream.
struct Sight<B: KvKernels> {
    /// Keys and values of the layer that runs.
    store: B::Store,
    plan: B::Plan,
    angles: B::Angles,
}

fn all_see_all(count: u32) -> LayerPlan {
    let slot = SlotId(0);
    let view = |pos| View { slot, pos, run: 0..count, lineage: Vec::new() };
    LayerPlan {
        writes: (0..count).map(|entry| (slot, entry)).collect(),
        views: (0..count).map(view).collect(),
    }
}

/// Column and row of every patch.
fn places(picture: &Patches) -> impl Iterator<Item = [u32; 3]> {
    let columns = picture.columns;
    (0..picture.count()).map(move |i| [(i % columns) as u32, (i / columns) as u32, 0])
}

impl<B: Backend> Vision<B> {
    fn embed(&self, ops: &B, picture: &Patches) -> B::Act {
        let numbers: Vec<f32> =
            picture.values.iter().map(|&byte| 2.0 * (f32::from(byte) / 255.0 - 0.5)).collect();
        let patches = ops.upload(&numbers, 3 * self.side * self.side);
        let h = ops.linear(&patches, &self.embedding);
        let rows_from = self.positions as u32;
        let columns: Vec<_> = places(picture).map(|[x, _, _]| TokenId(x)).collect();
        let rows: Vec<_> = places(picture).map(|[_, y, _]| TokenId(rows_from + y)).collect();
        let h = ops.add(&h, &ops.embed(&self.places, &columns, 1.0));
        ops.add(&h, &ops.embed(&self.places, &rows, 1.0))
    }

    /// The mean of each square of patches, times `√width`.
    fn pooled(&self, ops: &B, h: &B::Act, picture: &Patches) -> B::Act {
        let (pool, columns) = (self.pool, picture.columns);
        let (across, down) = (columns / pool, picture.rows / pool);
        let member = |dx: usize, dy: usize| {
            let patch = |i: usize| (i / across * pool + dy) * columns + i % across * pool + dx;
            ops.select(h, &(0..across * down).map(patch).collect::<Vec<_>>())
        };
        let others = (1..pool * pool).map(|i| member(i % pool, i / pool));
        let sum = others.fold(member(0, 0), |sum, other| ops.add(&sum, &other));
        ops.scale(sum, &self.mean)
    }

    /// `count` pooled rows in the decoder's stream.
    fn project(&self, ops: &B, pooled: B::Act, count: usize) -> B::Act {
        let z = match &self.standard {
            Some(Standard { shift, scale }) => {
                let shifts = ops.upload(&shift.repeat(count), shift.len());
                ops.scale(ops.add(&pooled, &shifts), scale)
            }
            None => pooled,
        };
        ops.linear(&ops.unit_norm(&z, self.hidden, self.eps), &self.projection)
    }
}

impl<B: KvKernels> VisionLayer<B> {
    fn forward(&self, ops: &B, tower: &Vision<B>, sight: &mut Sight<B>, h: &B::Act) -> B::Act {
        let a = self.attention(ops, tower, sight, &ops.rms_norm(h, &self.input_norm, tower.eps));
        let (r, mut normed) = ops.join(&Join {
            residual: h,
            branch: Branch::One(&a),
            norm: &self.post_attention_norm,
            scale: None,
            next: &[&self.feed_forward_norm],
            eps: tower.eps,
        });
        let x = normed.pop().expect("a norm for each of `next`");
        let inner = ops.gelu_mul(&self.gate.of(ops, &x), &self.up.of(ops, &x));
        let branch = self.down.of(ops, &inner);
        ops.add_norm(&r, &branch, &self.post_feed_forward_norm, tower.eps)
    }

    fn attention(&self, ops: &B, tower: &Vision<B>, sight: &mut Sight<B>, x: &B::Act) -> B::Act {
        let Sight { store, plan, angles } = sight;
        let eps = tower.head_eps;
        let q = ops.norm_rope(&self.wq.of(ops, x), &self.q_norm, eps, angles);
        let k = ops.norm_rope(&self.wk.of(ops, x), &self.k_norm, eps, angles);
        let v = ops.rms_norm(&self.wv.of(ops, x), &self.v_norm, eps);
        ops.write(store, plan, &k, &v);
        self.wo.of(ops, &ops.attend(store, plan, &q))
    }
}

impl<B: Backend> Clipped<B> {
    fn of(&self, ops: &B, x: &B::Act) -> B::Act {
        let y = match self.input {
            Some((least, most)) => ops.linear(&ops.clamp(x, least, most), &self.weight),
            None => ops.linear(x, &self.weight),
        };
        match self.output {
            Some((least, most)) => ops.clamp(&y, least, most),
            None => y,
        }
    }
}
