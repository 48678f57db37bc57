"""Makes `logits.bin` beside it: `python3 forward.py TOY.gguf`.

The decoder written once more, in double precision, one position at a time, from the published
formulas. It knows neither the engine's code nor its order of additions. `TOY.gguf` comes from
`cargo run --release -p lapidary-testkit --example toy -- TOY.gguf`. The output is the sum of the
file's bytes (u64), the number of tokens (u32), and for each its logits (f32), little-endian.
"""

import math
import pathlib
import struct
import sys
from operator import mul

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "numerics"))
import make  # noqa: E402  (block readers written from the formats' definitions)

TOKENS = [(7 * i * i + 3 * i) % 50 for i in range(30)]
TYPES = {0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 10: "q2_k",
         11: "q3_k", 12: "q4_k", 13: "q5_k", 14: "q6_k", 20: "iq4_nl", 23: "iq4_xs", 30: "bf16",
         39: "mxfp4"}
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Reader:
    """Reads a GGUF file from its beginning."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, kind):
        value = struct.unpack_from("<" + kind, self.data, self.at)[0]
        self.at += struct.calcsize("<" + kind)
        return value

    def string(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            inner = self.number("I")
            return [self.value(inner) for _ in range(self.number("Q"))]
        return self.number(SCALARS[kind])


def read(data):
    """Metadata, and tensors as flat lists of numbers with their shapes, slowest first."""
    reader = Reader(data)
    assert data[:4] == b"GGUF"
    reader.at = 8
    tensors, values = reader.number("Q"), reader.number("Q")
    meta = {}
    for _ in range(values):
        key = reader.string()
        meta[key] = reader.value(reader.number("I"))
    infos = []
    for _ in range(tensors):
        name = reader.string()
        shape = [reader.number("Q") for _ in range(reader.number("I"))][::-1]
        infos.append((name, shape, TYPES[reader.number("I")], reader.number("Q")))
    start = -(-reader.at // 32) * 32
    return meta, {n: (decode(t, data[start + at:], math.prod(s)), s) for n, s, t, at in infos}


def decode(kind, data, count):
    if kind == "f32":
        return list(struct.unpack_from(f"<{count}f", data))
    if kind == "f16":
        return list(struct.unpack_from(f"<{count}e", data))
    if kind == "bf16":
        wide = b"".join(b"\0\0" + data[2 * i:2 * i + 2] for i in range(count))
        return list(struct.unpack(f"<{count}f", wide))
    reader, elements, size, _ = make.FORMATS[kind]
    numbers = []
    for b in range(count // 32):
        at = b * 32 // elements * size
        q, scale, minimum, d, m = reader(data[at:at + size], b % (elements // 32))
        for k in range(32):
            numbers.append(d * scale[k // 16] * q[k] + (m or 0.0) * minimum[k // 16])
    return numbers


def rms(x, w=None):
    factor = (sum(map(mul, x, x)) / len(x) + 1e-6) ** -0.5
    return [v * factor * g for v, g in zip(x, w)] if w else [v * factor for v in x]


def gelu(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def softmax(x):
    most = max(x)
    shares = [math.exp(v - most) for v in x]
    return [s / sum(shares) for s in shares]


def add(a, b):
    return [x + y for x, y in zip(a, b)]


class Model:
    def __init__(self, data):
        self.meta, self.tensors = read(data)
        self.hidden = self.key("embedding_length")
        self.layers = self.key("block_count")
        self.sliding = self.key("attention.sliding_window_pattern")
        self.own = self.layers - self.key("attention.shared_kv_layers")
        self.stored = [[] for _ in range(self.layers)]

    def key(self, name):
        return self.meta["gemma4." + name]

    def vector(self, name):
        return self.tensors[name][0]

    def times(self, name, x, matrix=0):
        values, shape = self.tensors[name]
        rows, cols = shape[-2:]
        first = matrix * rows * cols
        rows = (values[first + i * cols:first + (i + 1) * cols] for i in range(rows))
        return [sum(map(mul, row, x)) for row in rows]

    def row(self, name, i):
        values, (_, cols) = self.tensors[name]
        return values[i * cols:(i + 1) * cols]

    def heads(self, x, width):
        return [x[i:i + width] for i in range(0, len(x), width)]

    def rope(self, x, layer, pos):
        width, half = len(x), len(x) // 2
        local = self.sliding[layer]
        theta = self.key("rope.freq_base_swa" if local else "rope.freq_base")
        out = list(x)
        for j in range(half):
            slow = 1.0 if local else self.vector("rope_freqs.weight")[j]
            angle = pos * theta ** (-2 * j / width) / slow
            out[j] = x[j] * math.cos(angle) - x[j + half] * math.sin(angle)
            out[j + half] = x[j + half] * math.cos(angle) + x[j] * math.sin(angle)
        return out

    def attention(self, layer, x, pos):
        name = f"blk.{layer}.attn_".__add__
        local = self.sliding[layer]
        width = self.key("attention.key_length_swa" if local else "attention.key_length")
        norm = self.vector(name("q_norm.weight"))
        q = [self.rope(rms(h, norm), layer, pos) for h in
             self.heads(self.times(name("q.weight"), x), width)]
        source = layer
        if layer < self.own:
            raw = self.times(name("k.weight"), x)
            has_v = name("v.weight") in self.tensors
            v = self.times(name("v.weight"), x) if has_v else raw
            norm = self.vector(name("k_norm.weight"))
            keys = [self.rope(rms(h, norm), layer, pos) for h in self.heads(raw, width)]
            self.stored[layer].append((keys, [rms(h) for h in self.heads(v, width)]))
        else:
            source = max(i for i in range(self.own) if self.sliding[i] == local)
        seen = self.stored[source][:pos + 1]
        if local:
            seen = seen[-self.key("attention.sliding_window"):]
        group = len(q) // len(seen[0][0])
        out = []
        for g, head in enumerate(q):
            shares = softmax([sum(map(mul, head, keys[g // group])) for keys, _ in seen])
            values = [values[g // group] for _, values in seen]
            out += [sum(s * v[c] for s, v in zip(shares, values)) for c in range(width)]
        return self.times(name("output.weight"), out)

    def dense(self, layer, x):
        name = f"blk.{layer}.ffn_".__add__
        gate, up = self.times(name("gate.weight"), x), self.times(name("up.weight"), x)
        return self.times(name("down.weight"), [gelu(g) * u for g, u in zip(gate, up)])

    def routed(self, layer, residual):
        name = f"blk.{layer}.".__add__
        scale = self.vector(name("ffn_gate_inp.scale"))
        r = [v * s * self.hidden ** -0.5 for v, s in zip(rms(residual), scale)]
        shares = softmax(self.times(name("ffn_gate_inp.weight"), r))
        best = sorted(range(len(shares)), key=lambda e: (-shares[e], e))
        best = best[:self.key("expert_used_count")]
        total = sum(shares[e] for e in best)
        x = rms(residual, self.vector(name("pre_ffw_norm_2.weight")))
        out = [0.0] * self.hidden
        for e in best:
            both = self.times(name("ffn_gate_up_exps.weight"), x, e)
            half = len(both) // 2
            mid = [gelu(g) * u for g, u in zip(both[:half], both[half:])]
            weight = shares[e] / total * self.vector(name("ffn_down_exps.scale"))[e]
            term = self.times(name("ffn_down_exps.weight"), mid, e)
            out = [o + weight * t for o, t in zip(out, term)]
        return out

    def layer(self, i, x, own_input, pos):
        norm = lambda n: self.vector(f"blk.{i}.{n}.weight")  # noqa: E731
        a = self.attention(i, rms(x, norm("attn_norm")), pos)
        x = add(x, rms(a, norm("post_attention_norm")))
        f1 = rms(self.dense(i, rms(x, norm("ffn_norm"))), norm("post_ffw_norm_1"))
        f2 = rms(self.routed(i, x), norm("post_ffw_norm_2"))
        x = add(x, rms(add(f1, f2), norm("post_ffw_norm")))
        gate = self.times(f"blk.{i}.inp_gate.weight", x)
        z = self.times(f"blk.{i}.proj.weight", [gelu(g) * p for g, p in zip(gate, own_input)])
        x = add(x, rms(z, norm("post_norm")))
        scale = norm("layer_output_scale")
        return [v * scale[k % len(scale)] for k, v in enumerate(x)]

    def logits(self, token, pos):
        x = [v * math.sqrt(self.hidden) for v in self.row("token_embd.weight", token)]
        width = self.key("embedding_length_per_layer_input")
        own = [v * math.sqrt(width) for v in self.row("per_layer_token_embd.weight", token)]
        projected = [v * self.hidden ** -0.5 for v in self.times("per_layer_model_proj.weight", x)]
        norm = self.vector("per_layer_proj_norm.weight")
        for i in range(self.layers):
            part = slice(i * width, (i + 1) * width)
            mixed = [(a + b) * 2 ** -0.5 for a, b in zip(rms(projected[part], norm), own[part])]
            x = self.layer(i, x, mixed, pos)
        z = self.times("output.weight", rms(x, self.vector("output_norm.weight")))
        cap = self.key("final_logit_softcapping")
        return [cap * math.tanh(v / cap) for v in z]


if __name__ == "__main__":
    data = pathlib.Path(sys.argv[1]).read_bytes()
    model = Model(data)
    out = struct.pack("<QI", sum(data), len(TOKENS))
    for pos, token in enumerate(TOKENS):
        logits = model.logits(token, pos)
        out += struct.pack(f"<{len(logits)}f", *logits)
    (pathlib.Path(__file__).parent / "logits.bin").write_bytes(out)
