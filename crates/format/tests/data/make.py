"""Makes the known bytes of the codecs: pip install gguf==0.19.0 numpy; python make.py

NAME.bin is a number of random blocks, then their elements as f32, decoded by the gguf package.
q8_0_encode.bin is f32 elements, then the blocks that the gguf package encodes them to.
"""

import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize, quantize

HERE = pathlib.Path(__file__).parent
rng = np.random.default_rng(20)

# Type, and where its 16-bit float scales are in a block.
TYPES = {
    T.F32: [], T.F16: [0], T.BF16: [],
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
    T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
    T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: [],
}


def finite_halves(n):
    bits = rng.integers(0, 1 << 16, n, dtype=np.uint16)
    bits[(bits & 0x7C00) == 0x7C00] ^= 0x4000
    return bits.view(np.uint8).reshape(n, 2)


for t, scales in TYPES.items():
    length, size = GGML_QUANT_SIZES[t]
    n = 8 if length == 256 else 40
    blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for at in scales:
        blocks[:, at : at + 2] = finite_halves(n)
    if t == T.BF16:  # random bytes with an exponent that is not all ones
        blocks[(blocks[:, 1] & 0x7F) == 0x7F, 1] ^= 0x40
    if t == T.F32:
        blocks[(blocks[:, 3] & 0x7F) == 0x7F, 3] ^= 0x40
    if t == T.MXFP4:  # both subnormal scales and the largest that stays finite
        blocks[:4, 0] = [0, 1, 2, 251]
        blocks[4:, 0] %= 252
    floats = dequantize(blocks, t)
    assert np.isfinite(floats).all(), t
    (HERE / f"{t.name}.bin").write_bytes(blocks.tobytes() + floats.astype("<f4").tobytes())

values = rng.standard_normal((24, 32)).astype(np.float32)
values[1] = 0
values[2] = np.arange(32) - 15.5  # with 127 below, the scale is one and every code is a tie
values[2, 0] = 127
values[3] *= np.float32(1e-6)  # a scale that is subnormal
values[4] *= np.float32(1e4)
values[5] *= np.float32(1e-30)  # a scale that rounds to zero
blocks = quantize(values, T.Q8_0)
(HERE / "q8_0_encode.bin").write_bytes(values.tobytes() + blocks.tobytes())
