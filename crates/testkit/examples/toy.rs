//! Writes the toy model to a file, for the script that computes its golden logits: `toy FILE`.

use lapidary_testkit::{GOLDEN_TOY, toy_bytes};

fn main() -> std::io::Result<()> {
    let file = std::env::args().nth(1);
    std::fs::write(file.expect("a file to write is named"), toy_bytes(GOLDEN_TOY))
}
