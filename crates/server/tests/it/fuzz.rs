//! The fuzz target over its kept inputs and their mutations.

use lapidary_server::fuzz;
use lapidary_testkit::Rng;

const CORPUS: [&str; 4] = [
    include_str!("../corpus/request/chat.json"),
    include_str!("../corpus/request/messages.json"),
    include_str!("../corpus/request/responses.json"),
    include_str!("../corpus/request/completions.json"),
];

#[test]
fn requests_never_panic() {
    let mut rng = Rng(1);
    for seed in CORPUS {
        fuzz::request(seed.as_bytes());
        for _ in 0..2000 {
            let mut data = seed.as_bytes().to_vec();
            for _ in 0..=rng.below(3) {
                let at = rng.below(data.len());
                let end = (at + rng.below(16)).min(data.len());
                match rng.below(4) {
                    0 => drop(data.drain(at..end)),
                    1 => data[at] = b"{}[]\",:01-ntf"[rng.below(13)],
                    2 => {
                        let piece = data[at..end].to_vec();
                        let to = rng.below(data.len());
                        data.splice(to..to, piece);
                    }
                    _ => data.truncate(at),
                }
                if data.is_empty() {
                    break;
                }
            }
            fuzz::request(&data);
        }
    }
}
