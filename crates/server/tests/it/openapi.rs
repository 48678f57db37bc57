//! The OpenAPI document that is checked in.

/// Run with `INSTA_UPDATE=always` to bring it up to date.
#[test]
fn the_document_is_that_of_the_types() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../../../../docs");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("openapi", lapidary_server::openapi()));
}
