"""A tiny random vision tower with its soft tokens, from the published formulas in double precision.

Clipped projections, heads of 72 columns (no whole vectors), soft tokens that are not standardised.
Needs numpy and safetensors: python make.py, in this folder.
"""
import json

import numpy as np
from safetensors.numpy import save_file

rng = np.random.RandomState(7)
HIDDEN, HEADS, WIDTH, FF, LAYERS, SIDE, POSITIONS, OUT = 48, 2, 72, 32, 2, 4, 16, 24
COLUMNS, ROWS, EPS, THETA = 9, 6, 1e-6, 100.0
weights, w64 = {}, {}


def weight(name, shape, size, around=0.0):
    """A random tensor, kept as the file keeps it: rounded to 16 bits."""
    stored = (around + size * rng.randn(*shape)).astype(np.float16)
    weights[name], w64[name] = stored, stored.astype(np.float64)


def clipped(name, outputs, inputs):
    weight(name + ".linear.weight", (outputs, inputs), inputs**-0.5)
    for bound, value in (("input_min", -1.25), ("input_max", 1.5), ("output_min", -1.0), ("output_max", 0.75)):
        weights[f"{name}.{bound}"] = np.array(value, dtype=np.float32)
        w64[f"{name}.{bound}"] = float(value)


tower = "model.vision_tower."
weight(tower + "patch_embedder.input_proj.weight", (HIDDEN, 3 * SIDE * SIDE), 0.2)
weight(tower + "patch_embedder.position_embedding_table", (2, POSITIONS, HIDDEN), 0.5)
for i in range(LAYERS):
    layer = f"{tower}encoder.layers.{i}."
    for norm in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"):
        weight(f"{layer}{norm}.weight", (HIDDEN,), 0.3, 1.0)
    for head in ("q_norm", "k_norm"):
        weight(f"{layer}self_attn.{head}.weight", (WIDTH,), 0.1, 0.5)
    for projection in ("q_proj", "k_proj", "v_proj"):
        clipped(f"{layer}self_attn.{projection}", HEADS * WIDTH, HIDDEN)
    clipped(f"{layer}self_attn.o_proj", HIDDEN, HEADS * WIDTH)
    clipped(f"{layer}mlp.gate_proj", FF, HIDDEN)
    clipped(f"{layer}mlp.up_proj", FF, HIDDEN)
    clipped(f"{layer}mlp.down_proj", HIDDEN, FF)
weight("model.embed_vision.embedding_projection.weight", (OUT, HIDDEN), HIDDEN**-0.5)


def rms(x, w=1.0):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def linear(name, x):
    bound = lambda which: w64[f"{name}.{which}"]
    y = np.clip(x, bound("input_min"), bound("input_max")) @ w64[name + ".linear.weight"].T
    return np.clip(y, bound("output_min"), bound("output_max"))


def turned(x, places):
    """Half of a head by column, half by row; within a half, column j with its partner j + quarter."""
    half, quarter = WIDTH // 2, WIDTH // 4
    freqs = THETA ** (-np.arange(quarter) / quarter)
    halves = []
    for axis in (0, 1):
        part = x[..., axis * half : (axis + 1) * half]
        angle = places[:, axis, None] * freqs
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = part[..., :quarter], part[..., quarter:]
        halves += [a * cos - b * sin, b * cos + a * sin]
    return np.concatenate(halves, -1)


pixels = rng.randint(0, 256, (COLUMNS * ROWS, 3 * SIDE * SIDE)).astype(np.uint8)
places = np.array([(i % COLUMNS, i // COLUMNS) for i in range(COLUMNS * ROWS)])
table = w64[tower + "patch_embedder.position_embedding_table"]
h = (2 * (pixels / 255.0 - 0.5)) @ w64[tower + "patch_embedder.input_proj.weight"].T
h = h + table[0][places[:, 0]] + table[1][places[:, 1]]
for i in range(LAYERS):
    layer = f"{tower}encoder.layers.{i}."
    norm = lambda name: w64[f"{layer}{name}.weight"]
    heads = lambda name, x: linear(f"{layer}self_attn.{name}", x).reshape(-1, HEADS, WIDTH)
    x = rms(h, norm("input_layernorm"))
    q = turned(rms(heads("q_proj", x), norm("self_attn.q_norm")), places)
    k = turned(rms(heads("k_proj", x), norm("self_attn.k_norm")), places)
    v = rms(heads("v_proj", x))
    scores = np.einsum("qhd,khd->hqk", q, k)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    seen = np.einsum("hqk,khd->qhd", scores, v).reshape(len(h), -1)
    h = h + rms(linear(f"{layer}self_attn.o_proj", seen), norm("post_attention_layernorm"))
    x = rms(h, norm("pre_feedforward_layernorm"))
    inner = gelu(linear(f"{layer}mlp.gate_proj", x)) * linear(f"{layer}mlp.up_proj", x)
    h = h + rms(linear(f"{layer}mlp.down_proj", inner), norm("post_feedforward_layernorm"))
pooled = h.reshape(ROWS // 3, 3, COLUMNS // 3, 3, HIDDEN).mean((1, 3)).reshape(-1, HIDDEN) * np.sqrt(HIDDEN)
soft = rms(pooled) @ w64["model.embed_vision.embedding_projection.weight"].T

save_file(weights, "model.safetensors")
save_file({"pixels": pixels, "soft": soft.astype(np.float32)}, "golden.safetensors")
config = {
    "model_type": "gemma4",
    "vision_config": {
        "model_type": "gemma4_vision", "hidden_size": HIDDEN, "intermediate_size": FF,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
        "head_dim": WIDTH, "patch_size": SIDE, "pooling_kernel_size": 3, "rms_norm_eps": EPS,
        "rope_parameters": {"rope_type": "axial", "rope_theta": THETA},
    },
}
with open("config.json", "w") as file:
    json.dump(config, file, indent=1)
print(np.abs(soft).max(), soft[0, :4])
