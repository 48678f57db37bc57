//! Entry points for fuzzing: any bytes may come in, and none may cause a panic. Each tells whether it
//! took what came in.

use lapidary_format::Gguf;

use crate::imatrix::Imatrix;

/// Reads the bytes as a file of importance and, if that succeeds, asks everything that it knows.
pub fn imatrix(data: &[u8]) -> bool {
    let Ok(gguf) = Gguf::from_bytes("fuzz", data.to_vec()) else { return false };
    let Ok(imatrix) = Imatrix::of(&gguf) else { return false };
    for name in imatrix.names() {
        let weights = imatrix.weights(name).expect("it has just been named");
        let coverage = imatrix.coverage(name).expect("it has just been named");
        assert_eq!(weights.len() % coverage.stack, 0, "every matrix of a stack has its columns");
        assert!(coverage.seen <= coverage.stack, "no more is seen than there is");
    }
    true
}

/// Reads the bytes as a SentencePiece vocabulary.
pub fn sentencepiece(data: &[u8]) -> bool {
    crate::sentencepiece::pieces(data).is_some()
}
