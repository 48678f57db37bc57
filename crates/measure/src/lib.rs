//! What a setting costs: how far its distributions are from a baseline's, how well it predicts a
//! text, how many stored answers it gives, how fast it runs next to what the machine allows.
//!
//! Knows no file, device or HTTP; texts come in as tokens.
#![forbid(unsafe_code)]

mod answers;
mod baseline;
mod bench;
mod divergence;
mod page;
mod shape;
mod trace;

pub use answers::{Answer, AnswerError, Effort, Exam, Score, read_answers};
pub use baseline::{Baseline, Distance};
pub use bench::{Ceilings, Cost, Guessing, Luck, Plan, Test, Timing, bench};
pub use divergence::{Divergence, divergence, windows};
pub use page::page;
pub use shape::{Shape, ShapeError};
pub use trace::{
    BadLayerRow, Category, Difference, LayerRow, LayerWatch, Log, Sinks, Total, Totals, Traced,
    first_difference, read_layer_rows,
};
