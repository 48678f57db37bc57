"""A GGUF file with random weights in the shapes of shapes/*.json, for engines that need a file.

    python3 shape_gguf.py shapes/moe-mini.json /tmp/moe-mini.gguf

It has no vocabulary: nothing can be tokenised with it. Needs numpy for the random bytes.
"""

import json
import struct
import sys

import numpy

ALIGNMENT = 32
# Type: number in the file, elements of a block, bytes of a block, and where half-float factors lie.
TYPES = {
    "F32": (0, 1, 4, []),
    "Q5_0": (6, 32, 22, [0]),
    "Q4_K": (12, 256, 144, [0, 2]),
    "Q5_K": (13, 256, 176, [0, 2]),
    "Q6_K": (14, 256, 210, [208]),
    "Q8_0": (8, 32, 34, [0]),
}
FACTOR = 1e-4


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(v):
    """A typed metadata value."""
    if isinstance(v, bool):
        return struct.pack("<IB", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + string(v)
    items = [value(item) for item in v]
    kind = items[0][:4]
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(v)) + b"".join(i[4:] for i in items)


def metadata(config):
    layers = config["layers"]
    is_global = [(i + 1) % 6 == 0 for i in range(layers)]
    kv = [config["global_kv_heads"] if g else config["kv_heads"] for g in is_global]
    own = {
        "block_count": layers,
        "context_length": config["context"],
        "embedding_length": config["hidden"],
        "embedding_length_per_layer_input": 0,
        "feed_forward_length": config["intermediate"],
        "attention.head_count": config["heads"],
        "attention.head_count_kv": kv,
        "attention.key_length": config["global_head_dim"],
        "attention.value_length": config["global_head_dim"],
        "attention.key_length_swa": config["head_dim"],
        "attention.value_length_swa": config["head_dim"],
        "attention.sliding_window": config["window"],
        "attention.sliding_window_pattern": [not g for g in is_global],
        "attention.shared_kv_layers": 0,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
        "rope.freq_base_swa": 1e4,
        "rope.dimension_count": config["global_head_dim"],
        "rope.dimension_count_swa": config["head_dim"],
        "vocab_size": config["vocab"],
        "expert_count": config.get("experts", 0),
        "expert_used_count": config.get("top_k", 0),
        "expert_feed_forward_length": config.get("expert_intermediate", 0),
    }
    keys = {"general.architecture": "gemma4", "tokenizer.ggml.model": "none"}
    return keys | {f"gemma4.{key}": v for key, v in own.items()}


def weights(random, shape, kind):
    """Random codes under small factors; ones for vectors, small numbers for float matrices."""
    _, elements, size, factors = TYPES[kind]
    count = int(numpy.prod(shape))
    if kind == "F32":
        ones = len(shape) == 1
        floats = numpy.ones(count) if ones else random.uniform(-0.02, 0.02, count)
        return floats.astype("<f4").tobytes()
    blocks = random.integers(0, 256, (count // elements, size), dtype=numpy.uint8)
    for at in factors:
        factor = numpy.array([FACTOR], dtype="<f2").view(numpy.uint8)
        blocks[:, at : at + 2] = factor
    return blocks.tobytes()


def padding(length):
    return b"\0" * (-length % ALIGNMENT)


def main():
    source, target = sys.argv[1:]
    shape = json.load(open(source))
    tensors = shape["tensors"]
    keys = metadata(shape["config"])
    head = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(keys))
    for key, v in keys.items():
        head += string(key) + value(v)
    offset = 0
    for name, (dims, kind) in tensors.items():
        number, elements, size, _ = TYPES[kind]
        head += string(name) + struct.pack("<I", len(dims))
        head += b"".join(struct.pack("<Q", d) for d in reversed(dims))
        head += struct.pack("<IQ", number, offset)
        length = int(numpy.prod(dims)) // elements * size
        offset += length + len(padding(length))
    random = numpy.random.default_rng(0)
    with open(target, "wb") as file:
        file.write(head + padding(len(head)))
        for dims, kind in tensors.values():
            data = weights(random, dims, kind)
            file.write(data + padding(len(data)))


if __name__ == "__main__":
    main()
