//! The trace event format that Chrome's and Perfetto's viewers read: complete events (`"ph":"X"`)
//! with microseconds since the log began.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::json;

use super::Category;

/// One operation, when and for how long.
pub(super) struct Slice {
    pub(super) op: &'static str,
    pub(super) category: Category,
    pub(super) layer: Option<u32>,
    pub(super) step: u64,
    pub(super) began: Duration,
    pub(super) time: Duration,
}

/// Writes events as they come; [`close`](Self::close) makes the file whole. Viewers also read a
/// file that was never closed.
pub(super) struct ChromeTrace {
    out: Box<dyn Write + Send>,
    any: bool,
}

impl ChromeTrace {
    pub(super) fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out, any: false }
    }

    pub(super) fn slice(&mut self, slice: &Slice) -> io::Result<()> {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let event = json!({
            "name": slice.op,
            "cat": slice.category.to_string(),
            "ph": "X",
            "pid": 0,
            "tid": 0,
            "ts": micros(slice.began),
            "dur": micros(slice.time),
            "args": { "layer": slice.layer, "step": slice.step },
        });
        let before = if self.any { ",\n" } else { "[\n" };
        self.any = true;
        write!(self.out, "{before}{event}")
    }

    pub(super) fn close(&mut self) -> io::Result<()> {
        let before = if self.any { "" } else { "[" };
        writeln!(self.out, "{before}\n]")?;
        self.out.flush()
    }
}
