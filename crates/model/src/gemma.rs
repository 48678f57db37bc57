//! The Gemma decoder: one forward over rows for every variant of the family.
//!
//! ```text
//! r  = h + N(attention(N(h)))
//! h' = s ⊙ (r + N(feed_forward(r)) + per_layer(…))
//! ```
//!
//! `N` is an RMS norm with its own weight at each site and `s` a learned scale of the whole
//! stream, residual included. Attention is unscaled: the query and key norms carry the
//! temperature. Dense and expert layers, sliding and global ones, layers with keys of their own
//! and layers that share an earlier layer's differ in data, not in code.

use lapidary_core::{
    Backend, Branch, Candidate, DeviceError, Head, Heads, Input, Join, KvCache, KvLayerSpec,
    KvPlan, LayerId, Qkv, Rope, TokenId,
};

use crate::{Hooks, Model, Step};

/// A decoder with its weights.
pub struct Gemma<B: Backend> {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Entries of the vocabulary.
    pub vocab: usize,
    /// Added to the mean square inside every norm.
    pub eps: f32,
    /// Token embeddings, `[vocab, hidden]`.
    pub embedding: B::Weight,
    /// Factor on token embeddings: `√hidden`, as precise as the checkpoint keeps it.
    pub embedding_scale: f32,
    /// Per-layer inputs, if the variant has them.
    pub per_layer: Option<PerLayerInputs<B>>,
    /// The distinct rotations of the layers.
    pub ropes: Vec<Rope>,
    /// Bottom to top.
    pub layers: Vec<Layer<B>>,
    /// Before the head.
    pub final_norm: B::Vector,
    /// The head, if it is not the embedding.
    pub head: Option<B::Weight>,
    /// Bound on the logits, if there is one.
    pub softcap: Option<f32>,
}

/// One decoder layer.
pub struct Layer<B: Backend> {
    /// Own index.
    pub id: LayerId,
    /// Before attention.
    pub input_norm: B::Vector,
    /// See [`Attention`].
    pub attention: Attention<B>,
    /// On the attention branch.
    pub post_attention_norm: B::Vector,
    /// See [`FeedForward`].
    pub feed_forward: FeedForward<B>,
    /// On the feed-forward branch.
    pub post_feed_forward_norm: B::Vector,
    /// The branch that reads the layer's own input, if the variant has one.
    pub per_layer: Option<PerLayerBranch<B>>,
    /// `s`: one value, or one per column, if the variant has it.
    pub scale: Option<B::Vector>,
}

/// Grouped-query attention with normed queries and keys.
pub struct Attention<B: Backend> {
    /// Heads, width and reach of the keys and values.
    pub spec: KvLayerSpec,
    /// Index into [`Gemma::ropes`].
    pub rope: usize,
    /// Query projection.
    pub wq: B::Weight,
    /// Per-head query norm.
    pub q_norm: B::Vector,
    /// Where keys and values come from.
    pub source: KvSource<B>,
    /// Output projection.
    pub wo: B::Weight,
}

/// Where a layer's keys and values come from.
pub enum KvSource<B: Backend> {
    /// Its own projections.
    Own {
        /// Key projection.
        wk: B::Weight,
        /// What the values are.
        values: Values<B>,
        /// Per-head key norm.
        k_norm: B::Vector,
    },
    /// An earlier layer's entries.
    Shared(LayerId),
}

/// What a layer stores as values.
pub enum Values<B: Backend> {
    /// A projection of its own, normed per head without a weight.
    Normed(B::Weight),
    /// A projection of its own, as it is.
    Plain(B::Weight),
    /// The *raw* key projection, normed per head without a weight: taken before the key norm and
    /// the rotation.
    RawKeys,
}

/// A dense branch, and on expert layers a routed one beside it. Both read the residual.
pub struct FeedForward<B: Backend> {
    /// Before the dense branch.
    pub norm: B::Vector,
    /// Dense gate projection.
    pub gate: B::Weight,
    /// Dense up projection.
    pub up: B::Weight,
    /// Dense down projection.
    pub down: B::Weight,
    /// The routed branch.
    pub experts: Option<Experts<B>>,
}

/// The routed branch.
pub struct Experts<B: Backend> {
    /// Before the router: its scale times `hidden^-½`.
    pub router_norm: B::Vector,
    /// `[experts, hidden]`.
    pub router: B::Weight,
    /// Factor on each expert's routing weight.
    pub per_expert: B::Vector,
    /// Experts per row.
    pub top_k: usize,
    /// Before the experts.
    pub norm: B::Vector,
    /// A stack of `[2 × width, hidden]`, gate half first.
    pub gate_up: B::Weight,
    /// A stack of `[hidden, width]`.
    pub down: B::Weight,
    /// On the dense branch, when there is a routed one.
    pub post_dense_norm: B::Vector,
    /// On the routed branch.
    pub post_routed_norm: B::Vector,
}

/// Inputs of their own for every layer, made from the token and from its embedding.
pub struct PerLayerInputs<B: Backend> {
    /// Width of one layer's input.
    pub width: usize,
    /// `[vocab, layers × width]`.
    pub embedding: B::Weight,
    /// Factor on the table's rows: `√width`.
    pub embedding_scale: f32,
    /// From the residual stream: `[layers × width, hidden]`.
    pub projection: B::Weight,
    /// `hidden^-½`.
    pub projection_scale: B::Vector,
    /// On the projection, per layer.
    pub norm: B::Vector,
    /// `½^½`, on the sum of the two.
    pub mix: B::Vector,
    /// Stands for soft rows, which have no token.
    pub padding: TokenId,
}

/// How a layer takes in its own input.
pub struct PerLayerBranch<B: Backend> {
    /// Width of the layer's own input.
    pub width: usize,
    /// `[width, hidden]`.
    pub gate: B::Weight,
    /// `[hidden, width]`.
    pub projection: B::Weight,
    /// On the branch.
    pub norm: B::Vector,
}

/// What every layer of a step reads besides the residual stream.
pub(crate) struct Context<'a, B: Backend> {
    kv: &'a KvPlan<B>,
    angles: Vec<B::Angles>,
    /// All layers' own inputs side by side.
    per_layer: Option<B::Act>,
    eps: f32,
}

impl<'a, B: Backend> Context<'a, B> {
    /// `angles` has one entry per row.
    pub(crate) fn new(
        ops: &B,
        kv: &'a KvPlan<B>,
        angles: impl Iterator<Item = [u32; 3]>,
        ropes: &[Rope],
        per_layer: Option<B::Act>,
        eps: f32,
    ) -> Self {
        let angles: Vec<_> = angles.collect();
        let angles = ropes.iter().map(|rope| ops.angles(rope, &angles)).collect();
        Self { kv, angles, per_layer, eps }
    }
}

impl<B: Backend> Model<B> for Gemma<B> {
    fn kv_specs(&self) -> Vec<KvLayerSpec> {
        self.layers.iter().map(|layer| layer.attention.spec).collect()
    }

    fn owns_entries(&self, layer: LayerId) -> bool {
        matches!(self.layers[layer.index()].attention.source, KvSource::Own { .. })
    }

    fn hidden(&self) -> usize {
        self.hidden
    }

    fn vocab(&self) -> usize {
        self.vocab
    }

    fn embed(&self, ops: &B, tokens: &[TokenId]) -> B::Act {
        ops.embed(&self.embedding, tokens, self.embedding_scale)
    }

    fn forward(
        &self,
        ops: &B,
        cache: &mut dyn KvCache<B>,
        step: &Step<'_, B>,
        hooks: &mut dyn Hooks<B>,
    ) -> B::Act {
        let mut h = hooks.embedded(ops, self.inputs(ops, step));
        let inputs = self.per_layer.as_ref();
        let per_layer = inputs.map(|inputs| inputs.forward(ops, step, &h, self.eps));
        let angles = step.batch.rows().iter().map(|row| row.angle);
        let context = Context::new(ops, &step.kv, angles, &self.ropes, per_layer, self.eps);
        let mut x = ops.rms_norm(&h, self.norm_before(0), self.eps);
        for (i, layer) in self.layers.iter().enumerate() {
            let next = self.norm_before(i + 1);
            (h, x) = layer.forward(ops, cache, &context, (&h, &x), next);
            if let Some(changed) = hooks.after_layer(ops, layer.id, &h) {
                x = ops.rms_norm(&changed, next, self.eps);
                h = changed;
            }
        }
        x
    }

    fn logits(&self, ops: &B, hidden: &B::Act) -> B::Act {
        self.head().logits(ops, hidden)
    }

    fn likeliest(
        &self,
        ops: &B,
        hidden: &B::Act,
        rows: usize,
        k: usize,
    ) -> Result<Vec<Vec<Candidate>>, DeviceError> {
        ops.likeliest(hidden, rows, &self.head(), k)
    }
}

impl<B: Backend> Gemma<B> {
    fn head(&self) -> Head<'_, B> {
        let weight = self.head.as_ref().unwrap_or(&self.embedding);
        Head { weight, softcap: self.softcap }
    }

    /// The norm on what layer `i` reads, or the head, after the last.
    fn norm_before(&self, i: usize) -> &B::Vector {
        self.layers.get(i).map_or(&self.final_norm, |layer| &layer.input_norm)
    }

    /// What the first layer gets: embeddings, and soft rows as they are.
    fn inputs(&self, ops: &B, step: &Step<'_, B>) -> B::Act {
        let mut h = self.embed(ops, &tokens_or(step, TokenId(0)));
        for (id, matrix) in step.soft.iter().enumerate() {
            let from = |row: &Input| match row {
                Input::Soft { source, row } if source.index() == id => Some(*row as usize),
                _ => None,
            };
            let rows = step.batch.rows().iter().enumerate();
            let pairs: Vec<_> =
                rows.filter_map(|(to, row)| Some((to, from(&row.input)?))).collect();
            h = ops.replace_rows(h, matrix, &pairs);
        }
        h
    }
}

/// The rows' tokens, with `absent` where a row has none.
fn tokens_or<B: Backend>(step: &Step<'_, B>, absent: TokenId) -> Vec<TokenId> {
    let token = |input: &Input| match input {
        Input::Token(token) => *token,
        Input::Soft { .. } => absent,
    };
    step.batch.rows().iter().map(|row| token(&row.input)).collect()
}

impl<B: Backend> PerLayerInputs<B> {
    fn forward(&self, ops: &B, step: &Step<'_, B>, h: &B::Act, eps: f32) -> B::Act {
        let tokens = tokens_or(step, self.padding);
        let own = ops.embed(&self.embedding, &tokens, self.embedding_scale);
        let projected = ops.scale(ops.linear(h, &self.projection), &self.projection_scale);
        ops.scale(ops.add_norm(&own, &projected, &self.norm, eps), &self.mix)
    }
}

impl<B: Backend> Layer<B> {
    /// The stream after the layer, and its norm by `next`; `x` is the stream's norm by the layer's
    /// own input norm.
    pub(crate) fn forward(
        &self,
        ops: &B,
        cache: &mut dyn KvCache<B>,
        context: &Context<'_, B>,
        (h, x): (&B::Act, &B::Act),
        next: &B::Vector,
    ) -> (B::Act, B::Act) {
        let eps = context.eps;
        let a = self.attention.forward(ops, cache, context, self.id, x);
        let (r, normed) = ops.join(&Join {
            residual: h,
            branch: Branch::One(&a),
            norm: &self.post_attention_norm,
            scale: None,
            next: &self.feed_forward.norms(),
            eps,
        });
        let norm = &self.post_feed_forward_norm;
        if let (Some(branch), Some(inputs)) = (&self.per_layer, &context.per_layer) {
            let end = End { residual: &r, norm, scale: None, next: &[], eps };
            let (y, _) = self.feed_forward.forward(ops, &normed, &end);
            let y = branch.forward(ops, &y, inputs, self.id, eps);
            let y = match &self.scale {
                Some(scale) => ops.scale(y, scale),
                None => y,
            };
            let x = ops.rms_norm(&y, next, eps);
            return (y, x);
        }
        let scale = self.scale.as_ref();
        let end = End { residual: &r, norm, scale, next: &[next], eps };
        let (y, mut normed) = self.feed_forward.forward(ops, &normed, &end);
        (y, normed.pop().expect("a norm for each of `next`"))
    }
}

/// A [`Join`] without its branch.
struct End<'a, B: Backend> {
    residual: &'a B::Act,
    norm: &'a B::Vector,
    scale: Option<&'a B::Vector>,
    next: &'a [&'a B::Vector],
    eps: f32,
}

impl<B: Backend> Attention<B> {
    fn forward(
        &self,
        ops: &B,
        cache: &mut dyn KvCache<B>,
        context: &Context<'_, B>,
        layer: LayerId,
        x: &B::Act,
    ) -> B::Act {
        let (plan, eps) = (context.kv, context.eps);
        let angles = &context.angles[self.rope];
        let o = match &self.source {
            KvSource::Own { wk, values, k_norm } => {
                let qkv = self.project(ops, x, (wk, values, k_norm), angles, eps);
                cache.attend(ops, plan, layer, qkv)
            }
            KvSource::Shared(owner) => {
                let q = ops.norm_rope(&ops.linear(x, &self.wq), &self.q_norm, eps, angles);
                cache.attend_shared(ops, plan, *owner, q)
            }
        };
        ops.linear(&o, &self.wo)
    }

    /// Queries, and keys and values of the layer's own.
    fn project(
        &self,
        ops: &B,
        x: &B::Act,
        (wk, values, k_norm): (&B::Weight, &Values<B>, &B::Vector),
        angles: &B::Angles,
        eps: f32,
    ) -> Qkv<B> {
        let (wq, q_norm, width) = (&self.wq, &self.q_norm, self.spec.width);
        let normed = |q: &B::Act, k: &B::Act, v: &B::Act| {
            let [q, k, v] = ops.norm_heads(&Heads { q, k, v, q_norm, k_norm, width, eps, angles });
            Qkv { q, k, v }
        };
        match values {
            Values::Normed(wv) => {
                let all = ops.linear_many(x, &[wq, wk, wv]);
                normed(&all[0], &all[1], &all[2])
            }
            Values::RawKeys => {
                let both = ops.linear_many(x, &[wq, wk]);
                normed(&both[0], &both[1], &both[1])
            }
            Values::Plain(wv) => {
                let both = ops.linear_many(x, &[wq, wk]);
                let q = ops.norm_rope(&both[0], q_norm, eps, angles);
                Qkv { q, k: ops.norm_rope(&both[1], k_norm, eps, angles), v: ops.linear(x, wv) }
            }
        }
    }
}

impl<B: Backend> FeedForward<B> {
    /// What the branches read: norms of the residual, for the dense one, the router, the experts.
    fn norms(&self) -> Vec<&B::Vector> {
        let routed = self.experts.as_ref().map(|experts| [&experts.router_norm, &experts.norm]);
        std::iter::once(&self.norm).chain(routed.into_iter().flatten()).collect()
    }

    /// The branches' sum, joined with the residual, whose [`norms`](Self::norms) are `normed`.
    fn forward(&self, ops: &B, normed: &[B::Act], end: &End<'_, B>) -> (B::Act, Vec<B::Act>) {
        let both = ops.linear_many(&normed[0], &[&self.gate, &self.up]);
        let dense = ops.linear(&ops.gelu_mul(&both[0], &both[1]), &self.down);
        let routed = self
            .experts
            .as_ref()
            .map(|experts| (experts, experts.forward(ops, &normed[1], &normed[2])));
        let branch = match &routed {
            None => Branch::One(&dense),
            Some((experts, routed)) => Branch::Normed([
                (&dense, &experts.post_dense_norm),
                (routed, &experts.post_routed_norm),
            ]),
        };
        let &End { residual, norm, scale, next, eps } = end;
        ops.join(&Join { residual, branch, norm, scale, next, eps })
    }
}

impl<B: Backend> Experts<B> {
    /// Both inputs are norms of the residual: the router's and the experts' own.
    fn forward(&self, ops: &B, for_router: &B::Act, x: &B::Act) -> B::Act {
        let logits = ops.linear(for_router, &self.router);
        let routes = ops.route(&logits, &self.per_expert, self.top_k);
        ops.experts(x, &routes, &self.gate_up, &self.down)
    }
}

impl<B: Backend> PerLayerBranch<B> {
    fn forward(&self, ops: &B, y: &B::Act, inputs: &B::Act, layer: LayerId, eps: f32) -> B::Act {
        let first = layer.index() * self.width;
        let own = ops.columns(inputs, first..first + self.width);
        let gated = ops.gelu_mul(&ops.linear(y, &self.gate), &own);
        let z = ops.linear(&gated, &self.projection);
        ops.add_norm(y, &z, &self.norm, eps)
    }
}
