//! The OpenAPI document, made from the types that are read and written.

use axum::response::Response;
use utoipa::OpenApi;

use crate::info::json;

#[derive(OpenApi)]
#[openapi(
    info(title = "Lapidary", description = "An OpenAI-compatible server for Gemma models"),
    paths(
        crate::chat::chat,
        crate::completions::completions,
        crate::responses::responses,
        crate::messages::messages,
        crate::messages::count_tokens,
        crate::embeddings::embeddings,
        crate::info::models,
        crate::info::model,
        crate::info::props,
        crate::info::metrics,
        crate::info::health,
        crate::info::ready,
        crate::tokens::tokenize,
        crate::tokens::detokenize,
        crate::tokens::apply_template,
    )
)]
struct Document;

/// The document, as text.
pub fn openapi() -> String {
    Document::openapi().to_pretty_json().expect("the document has text keys")
}

/// The document.
pub(crate) async fn document() -> Response {
    json(&Document::openapi())
}
