//! Loads a vision tower from a folder or an mmproj file.

use std::borrow::Cow;

use lapidary_core::{Backend, BlockType, KvKernels, Matrix, Rope, TensorSource};

use super::{LoadError, Loader, Precision};
use crate::config::{ConfigError, VisionConfig};
use crate::names::{Names, TowerNames};
use crate::vision::{Bounds, Clipped, Standard, Vision, VisionLayer};

/// Devices attend to heads of whole vectors.
const LANES: usize = 16;

/// Loads the tower of a source whose [`VisionConfig`] this is. `progress` is told how many tensor
/// bytes have been taken in so far, out of how many the source has.
///
/// # Errors
/// [`LoadError`], naming the tensor or key.
pub fn load_vision<B: KvKernels>(
    ops: &B,
    source: &dyn TensorSource,
    config: &VisionConfig,
    precision: Precision,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vision<B>, LoadError> {
    let mut loader = Loader::new(ops, source, precision, progress);
    loader.names = Names::Tower(TowerNames::of(source));
    loader.tower(config)
}

/// Where the columns of a head come from; `None` is a column of zeros.
///
/// The device turns column `j` with `j + half`, and a tower keeps both partners of a turn by
/// column in the first half, of a turn by row in the second. Columns trade places to suit the
/// device, queries and keys alike, which no score notices. Heads that are no whole vectors get
/// zeros at their end, which no score notices either once the norms count them.
struct HeadPlan {
    turned: Vec<Option<usize>>,
    padded: Vec<Option<usize>>,
}

impl HeadPlan {
    fn new(width: usize) -> Self {
        let whole = width.next_multiple_of(LANES);
        let (half, quarter) = (whole / 2, width / 4);
        let turned = (0..whole).map(|column| {
            let (first, j) = (column / half * quarter, column % half);
            // The first partners by column and by row, then the second ones.
            (j < 2 * quarter).then(|| first + j % quarter + j / quarter * 2 * quarter)
        });
        let padded = (0..whole).map(|column| (column < width).then_some(column));
        Self { turned: turned.collect(), padded: padded.collect() }
    }

    fn width(&self) -> usize {
        self.padded.len()
    }

    fn rope(&self, width: usize, theta: f64) -> Rope {
        let (pairs, quarter) = (self.width() / 2, width / 4);
        let freq = |j: usize| {
            let turns = theta.powf(-((j % quarter) as f64) / quarter as f64);
            if j < 2 * quarter { turns as f32 } else { 0.0 }
        };
        Rope {
            freqs: (0..pairs).map(freq).collect(),
            axis: (0..pairs).map(|j| u8::from(j >= quarter)).collect(),
        }
    }
}

impl<B: Backend> Loader<'_, B> {
    fn tower(&mut self, config: &VisionConfig) -> Result<Vision<B>, LoadError> {
        let &VisionConfig { hidden, side, pool, heads, width, eps, .. } = config;
        let plan = HeadPlan::new(width);
        let mut layers = Vec::with_capacity(config.layers);
        for i in 0..config.layers {
            layers.push(self.tower_layer(config, &plan, i)?);
        }
        let (positions, places) = self.places(hidden)?;
        let projection = "mm.input_projection.weight";
        let output = self.info(projection)?.shape.first().copied().unwrap_or(0);
        Ok(Vision {
            side,
            pool,
            positions,
            hidden,
            output,
            heads,
            head_width: plan.width(),
            eps,
            head_eps: eps * width as f32 / plan.width() as f32,
            embedding: self.patch_embedding(hidden, side)?,
            places,
            rope: plan.rope(width, config.theta),
            layers,
            mean: self.ops.vector(&[(hidden as f32).sqrt() / (pool * pool) as f32]),
            standard: self.standard(hidden)?,
            projection: self.matrix(projection, output, hidden)?,
        })
    }

    fn tower_layer(
        &mut self,
        config: &VisionConfig,
        plan: &HeadPlan,
        i: usize,
    ) -> Result<VisionLayer<B>, LoadError> {
        let &VisionConfig { hidden, feed_forward, heads, width, .. } = config;
        let name = |module: &str| format!("v.blk.{i}.{module}");
        let weight = |module: &str| format!("v.blk.{i}.{module}.weight");
        let share = (width as f32 / plan.width() as f32).sqrt();
        let head_norm = |loader: &Self, module: &str| {
            let stored = loader.floats(&weight(module), &[width])?;
            let column = |from: &Option<usize>| from.map_or(0.0, |from| stored[from] * share);
            Ok::<_, LoadError>(
                loader.ops.vector(&plan.turned.iter().map(column).collect::<Vec<_>>()),
            )
        };
        let (q_norm, k_norm) = (head_norm(self, "attn_q_norm")?, head_norm(self, "attn_k_norm")?);
        Ok(VisionLayer {
            input_norm: self.vector(&weight("ln1"), hidden)?,
            wq: self.heads(&name("attn_q"), (heads, width, hidden), &plan.turned)?,
            wk: self.heads(&name("attn_k"), (heads, width, hidden), &plan.turned)?,
            wv: self.heads(&name("attn_v"), (heads, width, hidden), &plan.padded)?,
            q_norm,
            k_norm,
            v_norm: self.ops.vector(&vec![share; plan.width()]),
            wo: self.out_of_heads(&name("attn_out"), (heads, width, hidden), &plan.padded)?,
            post_attention_norm: self.vector(&weight("attn_post_norm"), hidden)?,
            feed_forward_norm: self.vector(&weight("ln2"), hidden)?,
            gate: self.clipped(&name("ffn_gate"), feed_forward, hidden)?,
            up: self.clipped(&name("ffn_up"), feed_forward, hidden)?,
            down: self.clipped(&name("ffn_down"), hidden, feed_forward)?,
            post_feed_forward_norm: self.vector(&weight("ffn_post_norm"), hidden)?,
        })
    }

    /// How many positions a side has, and the vectors of columns and rows, one after the other.
    fn places(&mut self, hidden: usize) -> Result<(usize, B::Weight), LoadError> {
        let name = "v.position_embd.weight";
        let positions = self.info(name)?.shape.get(1).copied().unwrap_or(0);
        let (block, bytes) = self.stored(name, &[2, positions, hidden])?;
        let (stack, rows, cols) = (1, 2 * positions, hidden);
        Ok((positions, self.hand_over(name, Matrix { block, stack, rows, cols, bytes })?))
    }

    /// From a patch's numbers, pixel by pixel. Files in GGUF's form keep them colour by colour.
    fn patch_embedding(&mut self, hidden: usize, side: usize) -> Result<B::Weight, LoadError> {
        let (name, area) = ("v.patch_embd.weight", side * side);
        if self.names != Names::Tower(TowerNames::Gguf) {
            return self.matrix(name, hidden, 3 * area);
        }
        let stored = self.floats(name, &[hidden, 3, side, side])?;
        let by_pixel = |row: &[f32]| {
            let number = |i: usize| row[i % 3 * area + i / 3].to_le_bytes();
            (0..3 * area).flat_map(number).collect::<Vec<_>>()
        };
        let bytes: Vec<u8> = stored.chunks_exact(3 * area).flat_map(by_pixel).collect();
        let (block, stack, rows, cols) = (BlockType::F32, 1, hidden, 3 * area);
        self.hand_over(name, Matrix { block, stack, rows, cols, bytes: Cow::Owned(bytes) })
    }

    fn standard(&self, hidden: usize) -> Result<Option<Standard<B>>, LoadError> {
        if self.info("v.std_scale").is_err() {
            return Ok(None);
        }
        let bias = self.floats("v.std_bias", &[hidden])?;
        let shift = bias.into_iter().map(|bias| -bias).collect();
        Ok(Some(Standard { shift, scale: self.vector("v.std_scale", hidden)? }))
    }

    fn clipped(&mut self, name: &str, rows: usize, cols: usize) -> Result<Clipped<B>, LoadError> {
        let weight = self.matrix(&format!("{name}.weight"), rows, cols)?;
        self.between_bounds(name, weight)
    }

    /// A projection to heads, whose rows come from where `columns` of a head say.
    fn heads(
        &mut self,
        name: &str,
        (heads, width, hidden): (usize, usize, usize),
        columns: &[Option<usize>],
    ) -> Result<Clipped<B>, LoadError> {
        let tensor = format!("{name}.weight");
        let (block, bytes) = self.stored(&tensor, &[heads * width, hidden])?;
        let row_bytes = bytes.len() / (heads * width);
        let mut moved = Vec::with_capacity(heads * columns.len() * row_bytes);
        for head in bytes.chunks_exact(width * row_bytes) {
            for from in columns {
                match from {
                    Some(row) => moved.extend(&head[row * row_bytes..(row + 1) * row_bytes]),
                    None => moved.resize(moved.len() + row_bytes, 0),
                }
            }
        }
        let (stack, rows, cols) = (1, heads * columns.len(), hidden);
        let matrix = Matrix { block, stack, rows, cols, bytes: Cow::Owned(moved) };
        let weight = self.hand_over(&tensor, matrix)?;
        self.between_bounds(name, weight)
    }

    /// A projection from heads. Where heads are wider than stored, its columns are too.
    fn out_of_heads(
        &mut self,
        name: &str,
        (heads, width, hidden): (usize, usize, usize),
        columns: &[Option<usize>],
    ) -> Result<Clipped<B>, LoadError> {
        if columns.len() == width {
            return self.clipped(name, hidden, heads * width);
        }
        let tensor = format!("{name}.weight");
        let stored = self.floats(&tensor, &[hidden, heads * width])?;
        let number = |head: &[f32], from: &Option<usize>| from.map_or(0.0, |from| head[from]);
        let heads_of = stored.chunks_exact(width);
        let numbers = heads_of.flat_map(|head| columns.iter().map(move |from| number(head, from)));
        let bytes = numbers.flat_map(f32::to_le_bytes).collect();
        let (block, stack, rows, cols) = (BlockType::F32, 1, hidden, heads * columns.len());
        let matrix = Matrix { block, stack, rows, cols, bytes: Cow::Owned(bytes) };
        let weight = self.hand_over(&tensor, matrix)?;
        self.between_bounds(name, weight)
    }

    fn between_bounds(&self, name: &str, weight: B::Weight) -> Result<Clipped<B>, LoadError> {
        Ok(Clipped {
            weight,
            input: self.bounds(name, "input")?,
            output: self.bounds(name, "output")?,
        })
    }

    fn bounds(&self, name: &str, of: &str) -> Result<Option<Bounds>, LoadError> {
        let (least, most) = (format!("{name}.{of}_min"), format!("{name}.{of}_max"));
        if self.info(&least).is_err() && self.info(&most).is_err() {
            return Ok(None);
        }
        let (least, most) = (self.bound(&least)?, self.bound(&most)?);
        if least <= most {
            return Ok(Some((least, most)));
        }
        Err(LoadError::Config(ConfigError::Value {
            key: self.names.translate(&format!("{name}.{of}_min")),
            found: format!("{least}, with a largest value of {most}"),
            reason: "bounds are in order",
        }))
    }

    /// A single number, stored as a vector of one or without dimensions.
    fn bound(&self, name: &str) -> Result<f32, LoadError> {
        let shape = self.info(name)?.shape.clone();
        let shape = if shape.is_empty() { shape } else { vec![1] };
        Ok(self.floats(name, &shape)?[0])
    }
}

#[cfg(test)]
mod tests {
    use super::HeadPlan;

    #[test]
    fn partners_of_a_turn_stand_half_a_head_apart() {
        let plan = HeadPlan::new(64);
        for j in 0..16 {
            assert_eq!((plan.turned[j], plan.turned[j + 32]), (Some(j), Some(j + 16)), "column");
            let row = j + 16;
            assert_eq!((plan.turned[row], plan.turned[row + 32]), (Some(j + 32), Some(j + 48)));
        }
        let rope = plan.rope(64, 100.0);
        assert_eq!((rope.axis[15], rope.axis[16]), (0, 1));
        assert_eq!(rope.freqs[..16], rope.freqs[16..]);
        assert_eq!(rope.freqs[8], 0.1);
    }

    #[test]
    fn a_head_that_is_no_whole_vector_gets_columns_of_zeros() {
        let plan = HeadPlan::new(72);
        let mut seen: Vec<_> = plan.turned.iter().flatten().copied().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..72).collect::<Vec<_>>());
        assert_eq!((plan.width(), plan.turned[36], plan.turned[79]), (80, None, None));
        assert_eq!((plan.turned[0], plan.turned[40]), (Some(0), Some(18)));
        assert_eq!((plan.turned[18], plan.turned[58]), (Some(36), Some(54)));
        assert_eq!(plan.rope(72, 100.0).freqs[36..], [0.0; 4]);
    }
}
