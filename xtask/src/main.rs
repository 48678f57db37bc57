//! Tasks that are more than one cargo command.
fn main() {}
