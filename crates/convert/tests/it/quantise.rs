//! Blocks of codes: the bytes of another implementation, the twin, and errors.

use lapidary_convert::quantise::{quantise, quantise_plainly};
use lapidary_core::{BlockType, TensorSource};
use lapidary_format::Folder;
use lapidary_testkit::shared;
use sha2::{Digest, Sha256};

fn block_type(name: &str) -> BlockType {
    let found = BlockType::ALL.into_iter().find(|block| block.to_string() == name);
    found.unwrap_or_else(|| panic!("{name} is a type"))
}

#[test]
fn probe() {
    let Some(path) = shared("pebble/quantize_golden.json") else { return };
    let Some(folder) = shared("pebble/hf") else { return };
    let folder = Folder::open(&folder).unwrap();
    let golden: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let names = [("attn_q.weight", "self_attn.q_proj.weight"), ("ffn_down.weight", "mlp.down_proj.weight"), ("ffn_down_exps.weight", "experts.down_proj"), ("attn_output.weight", "self_attn.o_proj.weight"), ("attn_v.weight", "self_attn.v_proj.weight")];
    let mut seen = std::collections::BTreeMap::<String, (usize, usize, usize)>::new();
    for (_, tensors) in golden["mixes"].as_object().unwrap() {
        for (name, entry) in tensors.as_object().unwrap() {
            let Some(rest) = name.strip_prefix("blk.0.") else { continue };
            let Some((_, hf)) = names.iter().find(|(n, _)| *n == rest) else { continue };
            let hf = format!("model.language_model.layers.0.{hf}");
            let block = block_type(entry[0].as_str().unwrap());
            let values = folder.floats(&hf).unwrap();
            let cols = *folder.info(&hf).unwrap().shape.last().unwrap();
            let sha = |bytes: &[u8]| format!("{:x}", Sha256::digest(bytes));
            let fast = sha(&quantise(block, cols, &values, None).unwrap()) == entry[1].as_str().unwrap();
            let plain = sha(&quantise_plainly(block, cols, &values, None).unwrap()) == entry[1].as_str().unwrap();
            let e = seen.entry(block.to_string()).or_default();
            e.0 += 1; e.1 += usize::from(fast); e.2 += usize::from(plain);
        }
    }
    println!("{seen:#?}");
}
