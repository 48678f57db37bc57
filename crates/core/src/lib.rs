//! The contracts between the parts of the engine: what a batch is, what a device must do, what a
//! cache promises, and how named tensors are found.
//!
//! Read in this order: [`batch`](Batch), [`backend`](Backend), [`kv`](KvCache), then
//! [`tensor`](TensorSource). Nothing here knows a file, a device, a clock or a model's name.
#![forbid(unsafe_code)]

mod backend;
mod batch;
mod block;
mod constraint;
mod ids;
mod kv;
mod meta;
mod patches;
mod rank;
mod rotation;
mod section;
mod tensor;

pub use backend::{
    Backend, Branch, DeviceError, Head, Heads, Join, Matrix, Rope, Unsupported, join_apart,
};
pub use batch::{Batch, BatchBuilder, BatchError, Input, Row, RowSpec, Span, SpanSpec, Want};
pub use block::BlockType;
pub use constraint::{Constraint, Next, Stuck, TokenSet};
pub use ids::{LayerId, SlotId, SoftId, TokenId};
pub use kv::{
    CacheFull, Code, KvCache, KvKernels, KvLayerSpec, KvPlan, LayerPlan, Qkv, Reach, Regime, View,
};
pub use meta::{Strings, Value};
pub use patches::Patches;
pub use rank::{Candidate, best, candidates, likeliest};
pub use rotation::{ROTATED_BLOCK, levels, sign};
pub use section::{Kept, Section, Transport};
pub use tensor::{SourceError, TensorInfo, TensorSource};
