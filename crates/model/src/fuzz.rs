//! Entry point for fuzzers: any metadata must give a model's shape or an error that names a key.

use lapidary_core::Value;

use crate::config::Config;

/// Reads a model's shape; whether there is one.
pub fn config(meta: &Value) -> bool {
    match Config::read(meta) {
        Ok(config) => {
            assert!(!config.layers.is_empty() && config.hidden > 0, "a shape is never empty");
            true
        }
        Err(error) => {
            assert!(error.to_string().contains('`'), "no key is named: {error}");
            false
        }
    }
}
