//! Spends bytes where they save most.

use lapidary_core::BlockType;

use super::{Cost, Sensitivity};

/// What a file may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// At most so many bytes for all tensors whose type is free.
    Bytes(u64),
    /// At most so much inferred divergence, in nats.
    Harm(f64),
}

/// What was chosen for a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Its name.
    pub name: String,
    /// The type.
    pub block: BlockType,
    /// Its bytes.
    pub bytes: u64,
    /// The divergence that comes of it, in nats.
    pub harm: f64,
    /// The next finer type that is worth its size, and what each byte of it would save, in nats.
    pub next: Option<(BlockType, f64)>,
}

/// Chooses a type for every tensor. Starts from the smallest types, then takes the step that saves
/// most divergence per byte, again and again, as long as the budget asks for more or allows it.
pub fn spend(tensors: &[Sensitivity], budget: Budget) -> Vec<Choice> {
    let ladders: Vec<Vec<Cost>> = tensors.iter().map(|tensor| ladder(&tensor.options)).collect();
    let mut steps: Vec<(usize, usize, f64)> = Vec::new();
    for (tensor, ladder) in ladders.iter().enumerate() {
        let gains = ladder.windows(2).enumerate();
        steps.extend(gains.map(|(rung, pair)| (tensor, rung, gain(&pair[0], &pair[1]))));
    }
    // Stable, so that the rungs of a ladder keep their order among equals.
    steps.sort_by(|a, b| b.2.total_cmp(&a.2));
    let mut at = vec![0; tensors.len()];
    let (mut bytes, mut harm) = (0, 0.0);
    for ladder in &ladders {
        bytes += ladder[0].bytes;
        harm += ladder[0].harm;
    }
    for (tensor, rung, _) in steps {
        let (from, to) = (&ladders[tensor][rung], &ladders[tensor][rung + 1]);
        let larger = bytes + (to.bytes - from.bytes);
        let allowed = match budget {
            Budget::Bytes(most) => larger <= most,
            Budget::Harm(most) => harm > most,
        };
        // A ladder is climbed rung by rung: what was left out below is not jumped over.
        if allowed && at[tensor] == rung {
            at[tensor] = rung + 1;
            bytes = larger;
            harm += to.harm - from.harm;
        }
    }
    tensors.iter().zip(ladders).zip(at).map(|((t, l), at)| choice(t, &l, at)).collect()
}

fn choice(tensor: &Sensitivity, ladder: &[Cost], at: usize) -> Choice {
    let Cost { block, bytes, harm } = ladder[at];
    let next = ladder.get(at + 1).map(|next| (next.block, gain(&ladder[at], next)));
    Choice { name: tensor.name.clone(), block, bytes, harm, next }
}

/// Divergence that each byte saves.
fn gain(from: &Cost, to: &Cost) -> f64 {
    (from.harm - to.harm) / (to.bytes - from.bytes) as f64
}

/// The options that are worth taking, from small to large: each saves less per byte than the one
/// before it.
fn ladder(options: &[Cost]) -> Vec<Cost> {
    let mut sorted = options.to_vec();
    sorted.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(a.harm.total_cmp(&b.harm)));
    let mut ladder: Vec<Cost> = Vec::new();
    for option in sorted {
        if ladder.last().is_some_and(|last| option.bytes == last.bytes || option.harm >= last.harm)
        {
            continue;
        }
        while let [.., before, last] = ladder[..] {
            if gain(&before, &last) > gain(&last, &option) {
                break;
            }
            ladder.pop();
        }
        ladder.push(option);
    }
    ladder
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, costs: &[(BlockType, u64, f64)]) -> Sensitivity {
        let options = costs.iter().map(|&(block, bytes, harm)| Cost { block, bytes, harm });
        Sensitivity {
            name: name.into(),
            stored: BlockType::BF16,
            tried: (BlockType::Q3_K, 0.0),
            options: options.collect(),
        }
    }

    fn two() -> [Sensitivity; 2] {
        use BlockType::{BF16, Q2_K, Q4_0, Q4_K, Q8_0};
        [
            tensor("touchy", &[(Q2_K, 10, 8.0), (Q4_K, 20, 2.0), (Q8_0, 40, 0.1), (BF16, 80, 0.0)]),
            // Q4_0 is as large as Q4_K and worse.
            tensor("tough", &[(Q2_K, 10, 0.8), (Q4_0, 20, 0.3), (Q4_K, 20, 0.2), (BF16, 80, 0.0)]),
        ]
    }

    fn types(choices: &[Choice]) -> Vec<BlockType> {
        choices.iter().map(|choice| choice.block).collect()
    }

    #[test]
    fn bytes_go_where_they_save_most() {
        use BlockType::{BF16, Q2_K, Q4_K, Q8_0};
        let chosen = |most| types(&spend(&two(), Budget::Bytes(most)));
        assert_eq!(chosen(0), [Q2_K, Q2_K]);
        assert_eq!(chosen(30), [Q4_K, Q2_K]);
        assert_eq!(chosen(50), [Q8_0, Q2_K]);
        assert_eq!(chosen(60), [Q8_0, Q4_K]);
        assert_eq!(chosen(160), [BF16, BF16]);
    }

    #[test]
    fn no_more_bytes_than_the_divergence_asks_for() {
        use BlockType::{Q2_K, Q4_K};
        let chosen = |most| types(&spend(&two(), Budget::Harm(most)));
        assert_eq!(chosen(10.0), [Q2_K, Q2_K]);
        assert_eq!(chosen(3.0), [Q4_K, Q2_K]);
    }

    #[test]
    fn a_larger_budget_never_harms() {
        let harm = |most| spend(&two(), Budget::Bytes(most)).iter().map(|c| c.harm).sum::<f64>();
        let harms: Vec<_> = (20..=160).map(harm).collect();
        assert!(harms.windows(2).all(|pair| pair[1] <= pair[0]));
    }
}
