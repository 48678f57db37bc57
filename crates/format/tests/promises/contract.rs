//! The laws of `TensorSource`, checked on any source.

use std::borrow::Cow;
use std::collections::HashSet;

use lapidary_core::{SourceError, TensorSource, Value};

/// Checks every tensor of a source.
pub(crate) fn check(source: &(impl TensorSource + Send + Sync)) {
    assert!(matches!(source.meta(), Value::Map(_)));
    let names = source.names();
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "a name appears twice");
    for name in names {
        let info = source.info(name).unwrap();
        let rows = info.elements() / info.shape.last().copied().unwrap_or(1);
        let row = info.block.row_bytes(info.elements() / rows).unwrap();
        let bytes = source.bytes(name).unwrap();
        assert!(matches!(bytes, Cow::Borrowed(_)), "{name} was copied");
        assert_eq!((bytes.len(), bytes.len()), (info.bytes(), rows * row), "{name}");
        assert_eq!(source.floats(name).unwrap().len(), info.elements(), "{name}");
    }
    check_missing(source);
}

fn check_missing(source: &impl TensorSource) {
    let missing =
        SourceError::Missing { name: "no such".into(), origin: source.origin().to_owned() };
    assert_eq!(source.info("no such"), None);
    assert_eq!(source.bytes("no such").unwrap_err(), missing);
    assert_eq!(source.floats("no such").unwrap_err(), missing);
}
