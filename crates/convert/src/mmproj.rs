//! A folder's vision tower in GGUF's words: the file that goes beside a decoder's.

use lapidary_core::{BlockType, TensorInfo, TensorSource, Value};
use lapidary_format::Folder;
use lapidary_format::gguf::{GgufArray, GgufValue};
use lapidary_model::names;

use crate::ConvertError;
use crate::draft::{Origin, Planned, push_sampling};
use crate::metadata::{self, Keys, Values, text};

/// The metadata and tensors of a folder's vision tower.
pub(crate) fn draft(folder: &Folder, name: &str) -> Result<(Values, Vec<Planned>), ConvertError> {
    let origin = folder.origin().to_owned();
    let unspeakable = |reason: &str| ConvertError::Unspeakable {
        origin: origin.clone(),
        reason: reason.to_owned(),
    };
    let config = folder.meta().get("vision_config");
    let config = config.ok_or_else(|| unspeakable("it has no vision tower"))?;
    if config.get("model_type").and_then(Value::as_str) != Some("gemma4_vision") {
        return Err(unspeakable("its vision tower is of a kind that is not known here"));
    }
    let mut tensors = Vec::new();
    for from in folder.names() {
        let Some(info) = folder.info(from) else { continue };
        if let Some(planned) = planned(from, info)? {
            tensors.push(planned);
        } else if from.contains("vision_tower.") {
            return Err(ConvertError::UnknownTensor { name: from.to_owned(), origin });
        }
    }
    let projection = tensors.iter().find(|tensor| tensor.name == PROJECTION);
    let width = projection.map(|tensor| tensor.shape[0]);
    let width = width.ok_or_else(|| unspeakable("its vision tower has no projection"))?;
    let mut keys = Keys::new("clip", "mmproj");
    push_sampling(folder, &mut keys)?;
    keys.general("name", text(name));
    let shapes = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.shape.as_slice()));
    keys.general("size_label", text(&metadata::size_label(shapes)));
    push_keys(&mut keys, config, width, &origin)?;
    Ok((keys.into_values(), tensors))
}

const PROJECTION: &str = "mm.input_projection.weight";

fn push_keys(
    keys: &mut Keys,
    config: &Value,
    projection: usize,
    origin: &str,
) -> Result<(), ConvertError> {
    keys.put("has_vision_encoder", GgufValue::Bool(true));
    keys.count("vision.projection_dim", projection);
    // Readers insist on a size, and the tower takes any.
    keys.count("vision.image_size", 224);
    let counts = [
        ("patch_size", "patch_size"),
        ("embedding_length", "hidden_size"),
        ("feed_forward_length", "intermediate_size"),
        ("block_count", "num_hidden_layers"),
        ("attention.head_count", "num_attention_heads"),
    ];
    for (to, from) in counts {
        let count = config.get(from).and_then(Value::as_usize).ok_or_else(|| {
            ConvertError::Unspeakable {
                origin: origin.to_owned(),
                reason: format!("`vision_config.{from}` is no count"),
            }
        })?;
        keys.count(&format!("vision.{to}"), count);
    }
    let floats = |x: f32| GgufValue::Array(GgufArray::F32(vec![x; 3]));
    keys.put("vision.image_mean", floats(0.0));
    keys.put("vision.image_std", floats(1.0));
    keys.put("vision.projector_type", text("gemma4v"));
    let eps = config.get("layer_norm_eps").and_then(Value::as_f64).unwrap_or(1e-6);
    keys.float("vision.attention.layer_norm_epsilon", eps);
    Ok(())
}

/// A tensor of the tower or its projection; `None` for any other.
fn planned(from: &str, info: &TensorInfo) -> Result<Option<Planned>, ConvertError> {
    let Some(name) = names::tower_to_gguf(from) else { return Ok(None) };
    let mut planned = Planned::same(name, from, info);
    if planned.name == "v.position_embd.weight" {
        planned.stored = BlockType::F32;
    }
    if planned.name == "v.patch_embd.weight" {
        let [rows, cols] = info.shape[..] else { return Ok(None) };
        let side = (cols as f64 / 3.0).sqrt() as usize;
        planned.shape = vec![rows, 3, side, side];
        planned.origin =
            Origin::Reordered { name: from.to_owned(), from: channels_first(rows, side) };
    }
    Ok(Some(planned))
}

/// Where numbers of `[rows, 3, side, side]` lie in `[rows, side, side, 3]`.
fn channels_first(rows: usize, side: usize) -> Vec<usize> {
    let area = side * side;
    (0..rows * 3 * area)
        .map(|i| {
            let (row, channel, pixel) = (i / (3 * area), i / area % 3, i % area);
            row * 3 * area + pixel * 3 + channel
        })
        .collect()
}
