"""Digests of blocks as ggml quantises them: python make.py LIBRARY > quantised.json

LIBRARY is a shared library with ggml's own quantisers, built without fused multiply-add. The
inputs are those of tests/it/known_rows.rs, made from integers so that both have the same bits.
"""

import ctypes
import hashlib
import json
import sys

import numpy as np

ROWS, COLS = 48, 768
TYPES = {
    "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12,
    "Q5_K": 13, "Q6_K": 14, "IQ4_NL": 20, "IQ4_XS": 23,
}


class Integers:
    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.state >> 40


def bell(integers):
    """About normal, a multiple of 2^-26 below 2 in magnitude."""
    return sum(integers.next() - 2**23 for _ in range(4)) * 2.0**-26 * 2


def rows():
    integers = Integers(1)
    x = np.array([[bell(integers) for _ in range(COLS)] for _ in range(ROWS)], np.float32)
    x[1] = 0                      # nothing
    x[2] = 0.25                   # constant
    x[3] = -np.abs(x[3])          # one sign
    x[4] = np.abs(x[4])           # the other
    x[5] *= np.float32(2.0**-30)  # scales below what 16 bits hold
    x[6, ::32] *= 64              # one large number per block
    x[7, :256] = 0                # a block of nothing
    x[8] = np.round(x[8])         # few values, many ties
    x[9] += 4                     # far from zero
    x[10] *= 1024                 # large
    x[11, 1:] = 0                 # a single number
    return x


def importance():
    integers = Integers(2)
    q = np.array([integers.next() * 2.0**-24 for _ in range(COLS)], np.float32)
    q[5] = 0
    q[64:96] = 0
    q[100] *= 4096
    return q


def main():
    ggml = ctypes.CDLL(sys.argv[1])
    quantize = ggml.ggml_quantize_chunk
    quantize.restype = ctypes.c_size_t
    quantize.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3
    quantize.argtypes += [ctypes.c_void_p]
    x, q = rows(), importance()
    digests = {}
    for name, number in TYPES.items():
        out = np.zeros(ROWS * COLS * 2, np.uint8)
        made = []
        for weights in (None, q.ctypes.data):
            size = quantize(number, x.ctypes.data, out.ctypes.data, 0, ROWS, COLS, weights)
            made.append(hashlib.sha256(out[:size].tobytes()).hexdigest())
        digests[name] = {"plain": made[0], "weighed": made[1]}
    print(json.dumps(digests, indent=1))


main()
