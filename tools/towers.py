"""Golden values of towers and of Qwen3-VL: tiny random checkpoints and what the Hugging Face
implementation makes of them.

    pip install torch transformers numpy
    python tools/towers.py crates/testkit/tests/data/towers

Writes one folder per model (config.json, model.safetensors, golden.safetensors). Weights are rounded
to bfloat16 so that files stay small; the values are of float32 arithmetic over them.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import (
    Gemma4AudioConfig,
    Gemma4Config,
    Gemma4ForConditionalGeneration,
    Gemma4TextConfig,
    Gemma4UnifiedForConditionalGeneration,
    Gemma4VisionConfig,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLMoeConfig,
    Qwen3VLMoeForConditionalGeneration,
)
from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor
from transformers.models.gemma4_unified import configuration_gemma4_unified as unified

SLIDING, FULL = "sliding_attention", "full_attention"
TOKENS = dict(
    boi_token_id=17, eoi_token_id=18, image_token_id=19, boa_token_id=20, eoa_token_index=21,
    audio_token_id=22, video_token_id=23,
)
TEXT = dict(
    vocab_size=32, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
    layer_types=[SLIDING, FULL], num_attention_heads=2, num_key_value_heads=1, head_dim=64,
    global_head_dim=64, num_global_key_value_heads=1, sliding_window=16, attention_k_eq_v=True,
    max_position_embeddings=256, hidden_size_per_layer_input=0, vocab_size_per_layer_input=32,
    num_kv_shared_layers=0, pad_token_id=0, eos_token_id=1, bos_token_id=2,
    rope_parameters={
        SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
        FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
    },
)


def randomise(model, seed):
    """Weights that keep activations near one, and norms that are not one."""
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in list(model.named_parameters()) + list(model.named_buffers()):
            if not p.is_floating_point() or "inv_freq" in name or "inv_timescales" in name:
                continue
            if name.endswith(("input_min", "output_min")):
                p.fill_(-2.0)
            elif name.endswith(("input_max", "output_max")):
                p.fill_(1.5)
            elif "norm" in name or name.endswith(("std_scale", "layer_scalar")):
                p.copy_(0.5 + torch.rand(p.shape, generator=chance))
            elif name.endswith(("bias", "per_dim_scale", "std_bias")) or "pos_emb" in name:
                p.copy_(0.2 * torch.randn(p.shape, generator=chance))
            elif p.dim() > 0 and name in {n for n, _ in model.named_parameters()}:
                inputs = p[0].numel() if p.dim() > 1 else p.numel()
                p.copy_(torch.randn(p.shape, generator=chance) * inputs**-0.5)
            if p.dim() > 0:
                p.copy_(p.to(torch.bfloat16).to(p.dtype))
    model.tie_weights()
    return model.eval()


def rows_of(features):
    """Soft tokens of one input, a row each."""
    found = features.pooler_output
    found = torch.cat(list(found)) if isinstance(found, (list, tuple)) else found
    return found.reshape(-1, found.shape[-1]).numpy()


def keep(folder, model, golden, parts):
    """The tensors whose names begin with one of the parts, the configuration and the golden values."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name.startswith(parts) and not (name == "lm_head.weight")
    }
    save_file(tensors, folder / "model.safetensors")
    config = json.loads(model.config.to_json_string(use_diff=False))
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    values = {name: torch.as_tensor(np.array(value)).contiguous() for name, value in golden.items()}
    save_file(values, folder / "golden.safetensors")


def gemma4(folder):
    """A tower for pictures with clipped products, and one for sound."""
    vision = Gemma4VisionConfig(
        hidden_size=128, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=64, position_embedding_size=16, use_clipped_linears=True,
        standardize=True,
    )
    audio = Gemma4AudioConfig(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=2, output_proj_dims=96,
    )
    config = Gemma4Config(
        text_config=Gemma4TextConfig(**TEXT), vision_config=vision, audio_config=audio, **TOKENS
    )
    model = randomise(Gemma4ForConditionalGeneration(config), 5)
    chance = np.random.RandomState(1)
    golden = {}
    columns, rows = 9, 6
    pixels = chance.rand(columns * rows, 768).astype(np.float32)
    places = np.array([(x, y) for y in range(rows) for x in range(columns)])
    with torch.no_grad():
        out = model.model.get_image_features(torch.tensor(pixels[None]), torch.tensor(places[None]))
    golden["picture"] = pixels
    golden["picture_soft"] = rows_of(out)
    for length in (1, 5, 163):
        mel = chance.randn(length, 128).astype(np.float32)
        with torch.no_grad():
            mask = torch.ones(1, length, dtype=torch.bool)
            out = model.model.get_audio_features(torch.tensor(mel[None]), mask)
        golden[f"mel_{length}"] = mel
        golden[f"sound_soft_{length}"] = rows_of(out)
    extract = Gemma4AudioFeatureExtractor()
    for length in (320, 641, 5000):
        wave = (0.1 * chance.randn(length)).astype(np.float32)
        out = extract([wave], return_tensors="np")
        valid = int(out["input_features_mask"][0].sum())
        golden[f"wave_{length}"] = wave
        golden[f"wave_mel_{length}"] = out["input_features"][0][:valid].astype(np.float32)
    parts = ("model.vision_tower", "model.audio_tower", "model.embed_vision", "model.embed_audio")
    keep(folder, model, golden, parts)


def gemma4_unified(folder):
    """Pictures and sound without a tower."""
    config = unified.Gemma4UnifiedConfig(
        text_config=unified.Gemma4UnifiedTextConfig(**TEXT),
        vision_config=unified.Gemma4UnifiedVisionConfig(
            mm_embed_dim=64, output_proj_dims=64, mm_posemb_size=16
        ),
        audio_config=unified.Gemma4UnifiedAudioConfig(),
        **TOKENS,
    )
    model = randomise(Gemma4UnifiedForConditionalGeneration(config), 6)
    chance = np.random.RandomState(2)
    columns, rows = 3, 2
    pixels = chance.rand(columns * rows, 6912).astype(np.float32)
    places = np.array([(x, y) for y in range(rows) for x in range(columns)])
    frames = (0.1 * chance.randn(7, 640)).astype(np.float32)
    with torch.no_grad():
        out = model.model.get_image_features(torch.tensor(pixels[None]), torch.tensor(places[None]))
        mask = torch.ones(1, 7, dtype=torch.bool)
        heard = model.model.get_audio_features(torch.tensor(frames[None]), mask)
    golden = {
        "picture": pixels,
        "picture_soft": rows_of(out),
        "frames": frames,
        "frames_soft": rows_of(heard),
    }
    keep(folder, model, golden, ("model.vision_embedder", "model.embed_vision", "model.embed_audio"))


def qwen3vl(folder, experts):
    """Text and tower, dense or with experts; one picture, and two of different shapes."""
    text = dict(
        vocab_size=96, hidden_size=128, intermediate_size=192, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, head_dim=64, max_position_embeddings=512,
        rope_theta=5e6, rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters={
            "rope_type": "default", "rope_theta": 5e6, "mrope_section": [12, 10, 10],
            "mrope_interleaved": True,
        },
    )
    if experts:
        text |= dict(
            num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64, decoder_sparse_step=1,
            norm_topk_prob=True, mlp_only_layers=[],
        )
    vision = dict(
        depth=3, hidden_size=64, intermediate_size=96, num_heads=2, patch_size=16,
        spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=128,
        num_position_embeddings=64, deepstack_visual_indexes=[0, 1],
    )
    kind, made = (
        (Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration)
        if experts
        else (Qwen3VLConfig, Qwen3VLForConditionalGeneration)
    )
    config = kind(
        text_config=text, vision_config=vision, image_token_id=90, video_token_id=91,
        vision_start_token_id=92, vision_end_token_id=93, tie_word_embeddings=False,
    )
    config._attn_implementation = "eager"
    model = randomise(made(config), 7 + experts)
    chance = np.random.RandomState(3)
    golden = {}
    for name, grids in {"one": [(6, 4)], "two": [(2, 2), (4, 6)], "none": []}.items():
        ids = list(chance.randint(3, 80, size=5))
        for rows, columns in grids:
            ids += [92] + [90] * (rows * columns // 4) + [93] + list(chance.randint(3, 80, size=3))
        patches = sum(rows * columns for rows, columns in grids)
        pixels = chance.randn(patches, 3 * 2 * 16 * 16).astype(np.float32)
        given = {"input_ids": torch.tensor([ids])}
        if grids:
            grid = torch.tensor([(1, rows, columns) for rows, columns in grids])
            given |= {"pixel_values": torch.tensor(pixels), "image_grid_thw": grid}
            given["mm_token_type_ids"] = (given["input_ids"] == 90).int()
            golden[f"{name}_grid"] = grid.numpy()
            golden[f"{name}_pixels"] = pixels
            with torch.no_grad():
                seen = model.model.visual(given["pixel_values"], grid_thw=grid)
            golden[f"{name}_soft"] = rows_of(seen)
            for i, tap in enumerate(seen.deepstack_features):
                golden[f"{name}_tap_{i}"] = tap.numpy()
        with torch.no_grad():
            out = model(**given)
        golden[f"{name}_ids"] = np.array(ids)
        golden[f"{name}_logits"] = out.logits[0].numpy()
    keep(folder, model, golden, ("",))


if __name__ == "__main__":
    to = Path(sys.argv[1])
    torch.manual_seed(0)
    gemma4(to / "gemma4")
    gemma4_unified(to / "gemma4_unified")
    qwen3vl(to / "qwen3vl", False)
    qwen3vl(to / "qwen3vl_moe", True)
