//! Which type each tensor gets under a mix, tensor for tensor as llama.cpp chooses.

use lapidary_core::BlockType;

use crate::Mix;

/// What the choice depends on besides a tensor's name and shape.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ModelFacts {
    /// Layers.
    pub layers: usize,
    /// Experts of a layer; zero without.
    pub experts: usize,
    /// Query heads per key-value head of the first layer.
    pub group: usize,
}

/// A tensor as the choice sees it, in the order of the file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Candidate<'a> {
    /// Its name in GGUF files.
    pub name: &'a str,
    /// Dimensions, slowest first.
    pub shape: &'a [usize],
    /// How its source stores it.
    pub stored: BlockType,
}

/// Whether a tensor's type may be chosen: matrices, apart from a few that are small and matter.
pub fn is_free(name: &str, shape: &[usize]) -> bool {
    const KEPT: [&str; 5] = [
        "_norm.weight",
        "ffn_gate_inp.weight",
        "per_layer_model_proj",
        "position_embd",
        "patch_embd",
    ];
    let matrix = shape.split_last().is_some_and(|(_, outer)| outer.iter().any(|&dim| dim > 1));
    matrix && name.ends_with("weight") && !KEPT.iter().any(|kept| name.contains(kept))
}

/// The type of every tensor. Those whose type is not free keep how they are stored.
pub fn choose(
    mix: Mix,
    facts: ModelFacts,
    has_importance: bool,
    tensors: &[Candidate<'_>],
) -> Vec<BlockType> {
    let tied = !tensors.iter().any(|tensor| tensor.name == OUTPUT);
    let is_value = |tensor: &&Candidate<'_>| role(tensor.name) == Role::Values;
    let values = tensors.iter().filter(is_value).count();
    let mut rule = Rule { mix, facts, has_importance, tied, values, value: 0, down: 0 };
    tensors.iter().map(|tensor| rule.block(tensor)).collect()
}

const OUTPUT: &str = "output.weight";

/// The parts a tensor can play in the choice.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Role {
    Output,
    Embedding,
    /// Value projections, and those that hold them.
    Values,
    Keys,
    AttentionOutput,
    Down,
    Other,
}

fn role(name: &str) -> Role {
    let has = |part: &str| name.contains(part);
    match name {
        OUTPUT => Role::Output,
        "token_embd.weight" | "per_layer_token_embd.weight" => Role::Embedding,
        _ if has("attn_qkv.weight") || has("attn_v.weight") => Role::Values,
        _ if has("attn_k.weight") => Role::Keys,
        _ if has("attn_output.weight") => Role::AttentionOutput,
        _ if has("ffn_down") => Role::Down,
        _ => Role::Other,
    }
}

/// A mix being applied, with what it has counted so far.
struct Rule {
    mix: Mix,
    facts: ModelFacts,
    has_importance: bool,
    /// Whether the embedding is the head too.
    tied: bool,
    /// Value projections in the file.
    values: usize,
    /// Those that came before.
    value: usize,
    /// Down projections that came before.
    down: usize,
}

impl Rule {
    fn block(&mut self, tensor: &Candidate<'_>) -> BlockType {
        let base = self.mix.base();
        if !is_free(tensor.name, tensor.shape) {
            return tensor.stored;
        }
        if !base.is_quantised() {
            return base;
        }
        let cols = tensor.shape.last().copied().unwrap_or(0);
        let wanted = self.wanted(tensor.name, base, cols);
        fallback(wanted, cols)
    }

    fn wanted(&mut self, name: &str, base: BlockType, cols: usize) -> BlockType {
        match role(name) {
            Role::Output => Self::head(base, cols),
            Role::Embedding if self.tied => Self::head(base, cols),
            Role::Embedding | Role::Other => base,
            Role::Keys if self.facts.experts == 8 => BlockType::Q8_0,
            Role::Keys => base,
            Role::Values => {
                let wanted = self.values(base);
                self.value += 1;
                if self.facts.experts == 8 { BlockType::Q8_0 } else { wanted }
            }
            Role::AttentionOutput => self.attention_output(base),
            Role::Down => {
                let wanted = self.down(base, self.layer(name));
                self.down += 1;
                wanted
            }
        }
    }

    /// The head decides every token.
    fn head(base: BlockType, cols: usize) -> BlockType {
        let whole = cols.is_multiple_of(base.block_len());
        if !whole || base == BlockType::Q8_0 { BlockType::Q8_0 } else { BlockType::Q6_K }
    }

    /// Values are few and errors in them reach the output unchanged.
    fn values(&self, base: BlockType) -> BlockType {
        let shared = self.facts.group >= 4;
        match self.mix {
            Mix::Q2_K if shared => BlockType::Q4_K,
            Mix::Q2_K => BlockType::Q3_K,
            Mix::Q2_K_S if shared => BlockType::Q4_K,
            Mix::Q3_K_M if self.value < 2 => BlockType::Q5_K,
            Mix::Q3_K_M => BlockType::Q4_K,
            Mix::Q3_K_L => BlockType::Q5_K,
            Mix::IQ4_NL | Mix::IQ4_XS if shared => BlockType::Q5_K,
            Mix::Q4_K_M | Mix::Q5_K_M if gets_more(self.value, self.values) => BlockType::Q6_K,
            Mix::Q4_K_S if self.value < 4 => BlockType::Q5_K,
            _ => base,
        }
    }

    fn attention_output(&self, base: BlockType) -> BlockType {
        let raised = matches!(
            self.mix,
            Mix::Q2_K
                | Mix::Q3_K_S
                | Mix::Q3_K_M
                | Mix::IQ4_NL
                | Mix::IQ4_XS
                | Mix::Q4_K_S
                | Mix::Q4_K_M
        );
        match self.mix {
            _ if self.facts.experts == 8 && raised => BlockType::Q5_K,
            _ if self.facts.experts == 8 => base,
            Mix::Q2_K => BlockType::Q3_K,
            Mix::Q3_K_M => BlockType::Q4_K,
            Mix::Q3_K_L => BlockType::Q5_K,
            _ => base,
        }
    }

    fn down(&self, base: BlockType, layer: usize) -> BlockType {
        let layers = self.facts.layers;
        let first = layer < layers / 8;
        match self.mix {
            Mix::Q2_K => BlockType::Q3_K,
            Mix::Q2_K_S if first => BlockType::Q4_K,
            Mix::Q3_K_M if layer < layers / 16 => BlockType::Q5_K,
            Mix::Q3_K_M => BlockType::Q4_K,
            Mix::Q3_K_L => BlockType::Q5_K,
            Mix::Q4_K_M | Mix::Q5_K_M if gets_more(layer, layers) => BlockType::Q6_K,
            Mix::IQ4_NL | Mix::IQ4_XS if first && !self.has_importance => BlockType::Q5_K,
            Mix::Q4_K_S if first => BlockType::Q5_K,
            Mix::Q4_0 if first && self.has_importance => BlockType::Q4_1,
            Mix::Q5_0 if first && self.has_importance => BlockType::Q5_1,
            _ => base,
        }
    }

    /// The layer of a down projection: by its name where experts double their number, else by
    /// counting.
    fn layer(&self, name: &str) -> usize {
        if self.facts.experts <= 1 {
            return self.down;
        }
        let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next());
        layer.and_then(|layer| layer.parse().ok()).unwrap_or(self.down)
    }
}

/// The first and last eighth, and every third layer between.
fn gets_more(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

/// What a type is replaced by where rows are no whole number of its blocks.
pub(crate) fn fallback(block: BlockType, cols: usize) -> BlockType {
    let fits = |block: BlockType| block.row_bytes(cols).is_some();
    if fits(block) {
        return block;
    }
    let smaller = match block {
        BlockType::IQ4_XS => BlockType::IQ4_NL,
        BlockType::Q2_K | BlockType::Q3_K => BlockType::Q4_0,
        BlockType::Q4_K => BlockType::Q5_0,
        BlockType::Q5_K => BlockType::Q5_1,
        BlockType::Q6_K => BlockType::Q8_0,
        other => other,
    };
    if fits(smaller) { smaller } else { BlockType::F16 }
}
