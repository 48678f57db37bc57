//! Printing that survives a reader who leaves.
//!
//! The standard `println!` panics when standard output is closed or full. This crate's own, below,
//! shadows it: the program ends with one sentence, or in silence where a pipe's reader has left.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// Prints a line to standard output, or ends the program.
macro_rules! println {
    () => { $crate::output::line(format_args!("")) };
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}

/// Writes a line; without a reader, there is nothing left to do.
pub(crate) fn line(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        if error.kind() != ErrorKind::BrokenPipe {
            eprintln!("error: standard output: {error}");
        }
        std::process::exit(1);
    }
}
