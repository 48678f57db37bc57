//! `/v1/models`, `/health` and `/ready`.

use serde::Serialize;
use utoipa::ToSchema;

/// The models there are.
#[derive(Serialize, ToSchema)]
pub(crate) struct Models {
    /// `list`.
    pub object: &'static str,
    pub data: Vec<ModelCard>,
}

/// A model.
#[derive(Serialize, ToSchema)]
pub(crate) struct ModelCard {
    pub id: String,
    /// `model`.
    pub object: &'static str,
    /// When the server started, in seconds since 1970.
    pub created: u64,
    pub owned_by: &'static str,
    /// Other names of it.
    pub aliases: Vec<String>,
    /// Tokens that prompt and text may have together.
    pub context_length: u32,
    /// What it takes.
    pub capabilities: Capabilities,
}

/// What a model takes.
#[derive(Clone, Copy, Serialize, ToSchema)]
pub(crate) struct Capabilities {
    /// Conversations.
    pub chat: bool,
    /// Images.
    pub vision: bool,
}

/// Whether the server works.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`.
    pub status: &'static str,
}
