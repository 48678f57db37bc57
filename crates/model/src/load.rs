//! From named tensors to a decoder: each tensor is named once, here, with the shape it must have.

mod assistant;
mod vision;

use std::borrow::Cow;

use lapidary_core::{
    Backend, BlockType, KvLayerSpec, LayerId, Matrix, Reach, Rope, SourceError, TensorInfo,
    TensorSource, TokenId, Unsupported,
};
use thiserror::Error;

use crate::config::{
    Config, ConfigError, ExpertsConfig, LayerConfig, RopeConfig, RopePairs, ValuesConfig,
};
use crate::gemma::{
    Attention, Experts, FeedForward, Gemma, KvSource, Layer, PerLayerBranch, PerLayerInputs, Values,
};
use crate::names::Names;

/// A model could not be made from a source.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum LoadError {
    /// The metadata does not describe a decoder of this family.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A tensor is absent or cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A tensor has another shape than the metadata promises.
    #[error("tensor `{name}` has shape {found:?}, but the metadata asks for {expected:?}")]
    Shape {
        /// Which tensor.
        name: String,
        /// Dimensions, slowest first.
        found: Vec<usize>,
        /// What they must be.
        expected: Vec<usize>,
    },
    /// The device has no kernels for a tensor, or no room.
    #[error("tensor `{name}`: {reason}")]
    Device {
        /// Which tensor.
        name: String,
        /// The device's reason.
        reason: Unsupported,
    },
}

pub use assistant::load_assistant;
pub use vision::load_vision;

/// How stored numbers are handed to the device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Precision {
    /// As stored: the device multiplies with the codes.
    AsStored,
    /// Decoded to 32-bit floats first: slow and large, the yardstick for everything else.
    F32,
}

/// Loads a decoder of the Gemma family. `progress` is told how many tensor bytes have been taken
/// in so far, out of how many.
///
/// # Errors
/// [`LoadError`], naming the tensor or key.
pub fn load<B: Backend>(
    ops: &B,
    source: &dyn TensorSource,
    precision: Precision,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Config, Gemma<B>), LoadError> {
    let mut config = Config::read(source.meta())?;
    let gemma = Loader::new(ops, source, precision, progress).gemma(&mut config)?;
    Ok((config, gemma))
}

struct Loader<'a, B: Backend> {
    ops: &'a B,
    source: &'a dyn TensorSource,
    names: Names,
    precision: Precision,
    progress: &'a mut dyn FnMut(u64, u64),
    done: u64,
    total: u64,
}

impl<'a, B: Backend> Loader<'a, B> {
    fn new(
        ops: &'a B,
        source: &'a dyn TensorSource,
        precision: Precision,
        progress: &'a mut dyn FnMut(u64, u64),
    ) -> Self {
        let names_in_order = source.names();
        let infos = names_in_order.iter().filter_map(|name| source.info(name));
        let total = infos.map(|info| info.bytes() as u64).sum();
        Self { ops, source, names: Names::of(source), precision, progress, done: 0, total }
    }

    fn gemma(&mut self, config: &mut Config) -> Result<Gemma<B>, LoadError> {
        let (embedding, head) = ("token_embd.weight", "output.weight");
        if config.vocab == 0 {
            config.vocab = self.info(embedding)?.shape.first().copied().unwrap_or(0);
        }
        let (hidden, vocab) = (config.hidden, config.vocab);
        // The largest tensor comes first: while it is taken in it is in memory twice, and all others
        // not yet.
        let table = match self.info(head) {
            Ok(_) => self.matrix(embedding, vocab, hidden)?,
            Err(_) => self.head(embedding, vocab, hidden)?,
        };
        let mut ropes = Vec::new();
        let mut layers = Vec::with_capacity(config.layers.len());
        for (i, shape) in config.layers.iter().enumerate() {
            layers.push(self.layer(config, i, shape, &mut ropes)?);
        }
        Ok(Gemma {
            hidden,
            vocab,
            eps: config.eps,
            embedding: table,
            embedding_scale: self.embedding_scale(hidden)?,
            per_layer: self.per_layer_inputs(config)?,
            ropes,
            layers,
            final_norm: self.norm("output_norm.weight", hidden, config)?,
            head: self.info(head).is_ok().then(|| self.head(head, vocab, hidden)).transpose()?,
            softcap: config.softcap,
        })
    }

    /// `√hidden`, rounded the way a bf16 checkpoint's own implementation rounds it.
    fn embedding_scale(&self, hidden: usize) -> Result<f32, LoadError> {
        let scale = (hidden as f32).sqrt();
        let published = self.names != Names::Gguf;
        let bf16 = self.info("token_embd.weight")?.block == BlockType::BF16;
        Ok(if published && bf16 { round_to_bf16(scale) } else { scale })
    }

    fn layer(
        &mut self,
        config: &Config,
        i: usize,
        shape: &LayerConfig,
        ropes: &mut Vec<Rope>,
    ) -> Result<Layer<B>, LoadError> {
        let hidden = config.hidden;
        let name = |tensor: &str| format!("blk.{i}.{tensor}");
        Ok(Layer {
            id: LayerId(i as u32),
            input_norm: self.norm(&name("attn_norm.weight"), hidden, config)?,
            attention: self.attention(config, i, shape, ropes)?,
            post_attention_norm: self.norm(&name("post_attention_norm.weight"), hidden, config)?,
            feed_forward: self.feed_forward(config, i, shape)?,
            post_feed_forward_norm: self.norm(&name("post_ffw_norm.weight"), hidden, config)?,
            per_layer: self.per_layer_branch(config, i)?,
            scale: match config.layer_scales {
                true => Some(self.scalar_or_vector(&name("layer_output_scale.weight"), hidden)?),
                false => None,
            },
        })
    }

    fn attention(
        &mut self,
        config: &Config,
        i: usize,
        shape: &LayerConfig,
        ropes: &mut Vec<Rope>,
    ) -> Result<Attention<B>, LoadError> {
        let name = |tensor: &str| format!("blk.{i}.{tensor}");
        let &LayerConfig { heads, kv_heads, width, reach, .. } = shape;
        let two_way = config.two_way_images && matches!(reach, Reach::Window(_));
        let rope = self.rope(&shape.rope, width)?;
        let rope = ropes.iter().position(|r| *r == rope).unwrap_or_else(|| {
            ropes.push(rope);
            ropes.len() - 1
        });
        Ok(Attention {
            spec: KvLayerSpec { heads: kv_heads, width, reach, two_way },
            rope,
            wq: self.matrix(&name("attn_q.weight"), heads * width, config.hidden)?,
            q_norm: self.query_norm(&name("attn_q_norm.weight"), width, config)?,
            source: match shape.shares {
                Some(owner) => KvSource::Shared(owner),
                None => self.own_entries(config, i, shape)?,
            },
            wo: self.matrix(&name("attn_output.weight"), config.hidden, heads * width)?,
        })
    }

    fn own_entries(
        &mut self,
        config: &Config,
        i: usize,
        shape: &LayerConfig,
    ) -> Result<KvSource<B>, LoadError> {
        let name = |tensor: &str| format!("blk.{i}.{tensor}");
        let (rows, wv) = (shape.kv_heads * shape.width, name("attn_v.weight"));
        let raw = match shape.values {
            ValuesConfig::Projected | ValuesConfig::Unnormed => false,
            ValuesConfig::RawKeys => true,
            ValuesConfig::ByTensor => self.info(&wv).is_err(),
        };
        Ok(KvSource::Own {
            wk: self.matrix(&name("attn_k.weight"), rows, config.hidden)?,
            values: if raw {
                Values::RawKeys
            } else {
                let wv = self.matrix(&wv, rows, config.hidden)?;
                match shape.values {
                    ValuesConfig::Unnormed => Values::Plain(wv),
                    _ => Values::Normed(wv),
                }
            },
            k_norm: self.norm(&name("attn_k_norm.weight"), shape.width, config)?,
        })
    }

    fn rope(&self, config: &RopeConfig, width: usize) -> Result<Rope, LoadError> {
        let pairs = width / 2;
        let turning = match config.pairs {
            RopePairs::First(part) => (part * pairs as f64).floor() as usize,
            RopePairs::All | RopePairs::Factors => pairs,
        };
        let factors = match config.pairs {
            RopePairs::Factors => self.floats("rope_freqs.weight", &[pairs])?,
            RopePairs::All | RopePairs::First(_) => vec![1.0; pairs],
        };
        let freq = |(j, &factor): (usize, &f32)| {
            let exponent = 2.0 * j as f64 / width as f64;
            let freq = config.theta.powf(-exponent) / config.factor / f64::from(factor);
            if j < turning { freq as f32 } else { 0.0 }
        };
        let freqs = factors.iter().enumerate().map(freq).collect();
        Ok(Rope { freqs, axis: vec![0; pairs] })
    }

    fn feed_forward(
        &mut self,
        config: &Config,
        i: usize,
        shape: &LayerConfig,
    ) -> Result<FeedForward<B>, LoadError> {
        let name = |tensor: &str| format!("blk.{i}.{tensor}");
        let (hidden, width) = (config.hidden, shape.feed_forward);
        let experts = config.experts.as_ref();
        Ok(FeedForward {
            norm: self.norm(&name("ffn_norm.weight"), hidden, config)?,
            gate: self.matrix(&name("ffn_gate.weight"), width, hidden)?,
            up: self.matrix(&name("ffn_up.weight"), width, hidden)?,
            down: self.matrix(&name("ffn_down.weight"), hidden, width)?,
            experts: experts.map(|experts| self.experts(config, i, experts)).transpose()?,
        })
    }

    fn experts(
        &mut self,
        config: &Config,
        i: usize,
        &ExpertsConfig { count, top_k, width }: &ExpertsConfig,
    ) -> Result<Experts<B>, LoadError> {
        let hidden = config.hidden;
        let name = |tensor: &str| format!("blk.{i}.{tensor}");
        let scale = self.floats(&name("ffn_gate_inp.scale"), &[hidden])?;
        let shrink = (hidden as f32).sqrt().recip();
        let router_norm: Vec<f32> = scale.iter().map(|s| s * shrink).collect();
        Ok(Experts {
            router_norm: self.ops.vector(&router_norm),
            router: self.matrix(&name("ffn_gate_inp.weight"), count, hidden)?,
            per_expert: self.vector(&name("ffn_down_exps.scale"), count)?,
            top_k,
            norm: self.norm(&name("pre_ffw_norm_2.weight"), hidden, config)?,
            gate_up: self.gate_up(i, count, width, hidden)?,
            down: self.stack(&name("ffn_down_exps.weight"), [count, hidden, width])?,
            post_dense_norm: self.norm(&name("post_ffw_norm_1.weight"), hidden, config)?,
            post_routed_norm: self.norm(&name("post_ffw_norm_2.weight"), hidden, config)?,
        })
    }

    /// The experts' gate and up projections, which some files keep apart.
    fn gate_up(
        &mut self,
        i: usize,
        count: usize,
        width: usize,
        hidden: usize,
    ) -> Result<B::Weight, LoadError> {
        let fused = format!("blk.{i}.ffn_gate_up_exps.weight");
        let gate = format!("blk.{i}.ffn_gate_exps.weight");
        if self.info(&fused).is_ok() || self.info(&gate).is_err() {
            return self.stack(&fused, [count, 2 * width, hidden]);
        }
        let up = format!("blk.{i}.ffn_up_exps.weight");
        let (block, gate_bytes) = self.stored(&gate, &[count, width, hidden])?;
        let (up_block, up_bytes) = self.stored(&up, &[count, width, hidden])?;
        if block != up_block {
            let reason = format!("stored as {up_block}, but its gate as {block}");
            return Err(LoadError::Device { name: up, reason: Unsupported(reason) });
        }
        let one = gate_bytes.len() / count;
        let halves = gate_bytes.chunks_exact(one).zip(up_bytes.chunks_exact(one));
        let bytes = halves.flat_map(|(gate, up)| [gate, up]).flatten().copied().collect();
        let bytes = Cow::<[u8]>::Owned(bytes);
        let (stack, rows, cols) = (count, 2 * width, hidden);
        let made = self.ops.matrix(Matrix { block, stack, rows, cols, bytes });
        self.source.release(&self.names.translate(&up), 0..up_bytes.len());
        self.made(&gate, made)
    }

    fn per_layer_inputs(
        &mut self,
        config: &Config,
    ) -> Result<Option<PerLayerInputs<B>>, LoadError> {
        let Some(width) = config.per_layer else { return Ok(None) };
        let (all, hidden) = (config.layers.len() * width, config.hidden);
        let table = "per_layer_token_embd.weight";
        let vocab = self.info(table)?.shape.first().copied().unwrap_or(0);
        Ok(Some(PerLayerInputs {
            width,
            embedding: self.matrix(table, vocab, all)?,
            embedding_scale: (width as f32).sqrt(),
            projection: self.matrix("per_layer_model_proj.weight", all, hidden)?,
            projection_scale: self.ops.vector(&[(hidden as f32).sqrt().recip()]),
            norm: self.vector("per_layer_proj_norm.weight", width)?,
            mix: self.ops.vector(&[std::f32::consts::FRAC_1_SQRT_2]),
            padding: TokenId(config.padding),
        }))
    }

    fn per_layer_branch(
        &mut self,
        config: &Config,
        i: usize,
    ) -> Result<Option<PerLayerBranch<B>>, LoadError> {
        let Some(width) = config.per_layer else { return Ok(None) };
        let name = |tensor: &str| format!("blk.{i}.{tensor}");
        Ok(Some(PerLayerBranch {
            width,
            gate: self.matrix(&name("inp_gate.weight"), width, config.hidden)?,
            projection: self.matrix(&name("proj.weight"), config.hidden, width)?,
            norm: self.vector(&name("post_norm.weight"), config.hidden)?,
        }))
    }

    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<B::Weight, LoadError> {
        let (block, bytes) = self.stored(name, &[rows, cols])?;
        self.hand_over(name, Matrix { block, stack: 1, rows, cols, bytes })
    }

    fn head(&mut self, name: &str, rows: usize, cols: usize) -> Result<B::Weight, LoadError> {
        let (block, bytes) = self.stored(name, &[rows, cols])?;
        let made = self.ops.head(Matrix { block, stack: 1, rows, cols, bytes });
        self.made(name, made)
    }

    fn stack(&mut self, name: &str, shape: [usize; 3]) -> Result<B::Weight, LoadError> {
        let (block, bytes) = self.stored(name, &shape)?;
        let [stack, rows, cols] = shape;
        self.hand_over(name, Matrix { block, stack, rows, cols, bytes })
    }

    fn hand_over(&mut self, name: &str, matrix: Matrix<'_>) -> Result<B::Weight, LoadError> {
        let made = self.ops.matrix(matrix);
        self.made(name, made)
    }

    /// What the device made of a tensor. The device has the bytes now, so that the source need not
    /// keep them in memory as well.
    fn made(
        &self,
        name: &str,
        made: Result<B::Weight, Unsupported>,
    ) -> Result<B::Weight, LoadError> {
        let name = self.names.translate(name);
        if let Some(info) = self.source.info(&name) {
            self.source.release(&name, 0..info.bytes());
        }
        made.map_err(|reason| LoadError::Device { name, reason })
    }

    fn vector(&self, name: &str, len: usize) -> Result<B::Vector, LoadError> {
        Ok(self.ops.vector(&self.floats(name, &[len])?))
    }

    /// A norm's weight, which some checkpoints store as its distance from one.
    fn norm(&self, name: &str, len: usize, config: &Config) -> Result<B::Vector, LoadError> {
        self.scaled_norm(name, len, config, 1.0)
    }

    /// The query norm carries the scale of attention.
    fn query_norm(&self, name: &str, len: usize, config: &Config) -> Result<B::Vector, LoadError> {
        self.scaled_norm(name, len, config, config.attention_scale as f32)
    }

    fn scaled_norm(
        &self,
        name: &str,
        len: usize,
        config: &Config,
        scale: f32,
    ) -> Result<B::Vector, LoadError> {
        let weights = self.floats(name, &[len])?.into_iter();
        let weights: Vec<_> = weights.map(|w| (w + config.norm_offset) * scale).collect();
        Ok(self.ops.vector(&weights))
    }

    /// One value for the whole stream, or one per column.
    fn scalar_or_vector(&mut self, name: &str, len: usize) -> Result<B::Vector, LoadError> {
        let len = if self.info(name)?.elements() == 1 { 1 } else { len };
        self.vector(name, len)
    }

    /// The bytes to hand to the device, and how they are stored.
    fn stored(
        &mut self,
        name: &str,
        shape: &[usize],
    ) -> Result<(BlockType, Cow<'a, [u8]>), LoadError> {
        let info = self.checked(name, shape)?;
        let (block, bytes) = (info.block, info.bytes() as u64);
        self.done += bytes;
        (self.progress)(self.done, self.total);
        let name = self.names.translate(name);
        match self.precision {
            Precision::AsStored => Ok((block, self.source.bytes(&name)?)),
            Precision::F32 => {
                let floats = self.source.floats(&name)?;
                let bytes = floats.into_iter().flat_map(f32::to_le_bytes).collect();
                Ok((BlockType::F32, Cow::Owned(bytes)))
            }
        }
    }

    fn floats(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        self.checked(name, shape)?;
        Ok(self.source.floats(&self.names.translate(name))?)
    }

    fn checked(&self, name: &str, shape: &[usize]) -> Result<&TensorInfo, LoadError> {
        let info = self.info(name)?;
        if info.shape != shape {
            let (found, expected) = (info.shape.clone(), shape.to_vec());
            return Err(LoadError::Shape { name: self.names.translate(name), found, expected });
        }
        Ok(info)
    }

    fn info(&self, name: &str) -> Result<&TensorInfo, LoadError> {
        let name = self.names.translate(name);
        let info = self.source.info(&name);
        let origin = || self.source.origin().to_owned();
        Ok(info.ok_or_else(|| SourceError::Missing { name, origin: origin() })?)
    }
}

fn round_to_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    let half = 0x7fff + ((bits >> 16) & 1);
    f32::from_bits((bits + half) & 0xffff_0000)
}
