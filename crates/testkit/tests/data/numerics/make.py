"""Makes the golden vectors beside it: `python3 make.py`.

Follows docs/numerics.md with exact arithmetic and knows no kernel: numbers are fractions, rounded
to 32-bit floats where the law says so. Every fused multiply-add is also asked of the C library and
the two must agree. The block formats are read here once more, from their definition.

A file is a list of arrays, each preceded by its length in bytes (u32). Everything is little-endian:

    matrices   dims (u32: inputs, outputs, rows), x (f32), weights (as stored), y (f32)
    row ops    dims (u32: columns), a (f32), b (f32), y (f32)
"""

import ctypes
import ctypes.util
import math
import pathlib
import random
import struct
from fractions import Fraction

HERE = pathlib.Path(__file__).parent
LIBM = ctypes.CDLL(ctypes.util.find_library("m"))
LIBM.fmaf.restype = ctypes.c_float
LIBM.fmaf.argtypes = [ctypes.c_float] * 3

BLOCK = 32
SEGMENT_BLOCKS = 8
SMALLEST_AMAX = struct.unpack("<f", struct.pack("<I", 27 << 23))[0]

# ---- 32-bit floats ------------------------------------------------------------------------------


def f32(x):
    """The nearest float to a double or a fraction, ties to even; signs of zero are kept."""
    if isinstance(x, Fraction):
        return round_fraction(x)
    if math.isnan(x) or math.isinf(x):
        return x
    return math.copysign(round_fraction(Fraction(x)), x)


def round_fraction(x):
    if x == 0:
        return 0.0
    magnitude = abs(x)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, -126) - 23)
    units = magnitude / unit
    whole = units.numerator // units.denominator
    rest = units - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1):
        whole += 1
    value = float(whole * unit)
    assert value <= 3.4028234663852886e38, "the vectors stay finite"
    return value if x > 0 else -value


def exact_fma(a, b, c):
    """a · b + c, rounded once, by fractions."""
    if any(math.isnan(x) for x in (a, b, c)):
        return math.nan
    total = Fraction(a) * Fraction(b) + Fraction(c)
    if total != 0:
        return round_fraction(total)
    product_sign = math.copysign(1, a) * math.copysign(1, b)
    both = product_sign < 0 and math.copysign(1, c) < 0
    return -0.0 if both and Fraction(a) * Fraction(b) == 0 else 0.0


def fma(a, b, c):
    ours, theirs = exact_fma(a, b, c), LIBM.fmaf(a, b, c)
    assert bits(ours) == bits(theirs) or (math.isnan(ours) and math.isnan(theirs)), (a, b, c)
    return ours


# One operation on doubles that are floats, rounded to a double and then to a float, is the same
# as rounded once: a double has more than twice the bits.
def mul(a, b):
    return f32(a * b)


def add(a, b):
    return f32(a + b)


def div(a, b):
    return f32(a / b)


def bits(x):
    return struct.pack("<f", x)


def half(data, at):
    return struct.unpack_from("<e", data, at)[0]


# ---- Stored blocks: 32 integers, integer factors of both halves, two floats -----------------------

NONLINEAR = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
MX_HALVES = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]


def nibbles(data):
    return [byte & 15 for byte in data[:16]] + [byte >> 4 for byte in data[:16]]


def plain(q, d):
    return q, [1, 1], [0, 0], d, None


def q8_0(data, _):
    return plain(list(struct.unpack_from("<32b", data, 2)), half(data, 0))


def q4_0(data, _):
    return plain([q - 8 for q in nibbles(data[2:])], half(data, 0))


def q4_1(data, _):
    return nibbles(data[4:]), [1, 1], [1, 1], half(data, 0), half(data, 2)


def with_fifth(low, word):
    return [q | ((word >> k & 1) << 4) for k, q in enumerate(low)]


def q5_0(data, _):
    word = struct.unpack_from("<I", data, 2)[0]
    return plain([q - 16 for q in with_fifth(nibbles(data[6:]), word)], half(data, 0))


def q5_1(data, _):
    word = struct.unpack_from("<I", data, 4)[0]
    return with_fifth(nibbles(data[8:]), word), [1, 1], [1, 1], half(data, 0), half(data, 2)


def iq4_nl(data, _):
    return plain([NONLINEAR[code] for code in nibbles(data[2:])], half(data, 0))


def mxfp4(data, _):
    return plain([MX_HALVES[code] for code in nibbles(data[1:])], 2.0 ** (data[0] - 128))


def two_bits(data, part):
    quarter, shift = data[part // 4 * 32:], 2 * (part % 4)
    return [quarter[k] >> shift & 3 for k in range(32)]


def q2_k(data, part):
    first, second = data[2 * part], data[2 * part + 1]
    scales, mins = [first & 15, second & 15], [first >> 4, second >> 4]
    return two_bits(data[16:80], part), scales, mins, half(data, 80), -half(data, 82)


def q3_k(data, part):
    high, packed = data[:32], data[96:108]
    low = two_bits(data[32:96], part)
    q = [low[k] - (0 if high[k] >> part & 1 else 4) for k in range(32)]
    scales = []
    for j in (2 * part, 2 * part + 1):
        four = packed[j] & 15 if j < 8 else packed[j - 8] >> 4
        two = packed[8 + j % 4] >> 2 * (j // 4) & 3
        scales.append((four | two << 4) - 32)
    return q, scales, [0, 0], half(data, 108), None


def six_bit_pair(packed, j):
    if j < 4:
        return packed[j] & 63, packed[j + 4] & 63
    scale = packed[j + 4] & 15 | packed[j - 4] >> 6 << 4
    minimum = packed[j + 4] >> 4 | packed[j] >> 6 << 4
    return scale, minimum


def with_shared_mins(data, part, q):
    scale, minimum = six_bit_pair(data[4:16], part)
    return q, [scale] * 2, [minimum] * 2, half(data, 0), -half(data, 2)


def k_nibbles(data, part):
    pair, shift = data[part // 2 * 32:], 4 * (part % 2)
    return [pair[k] >> shift & 15 for k in range(32)]


def q4_k(data, part):
    return with_shared_mins(data, part, k_nibbles(data[16:], part))


def q5_k(data, part):
    low = k_nibbles(data[48:], part)
    q = [low[k] + 16 * (data[16 + k] >> part & 1) for k in range(32)]
    return with_shared_mins(data, part, q)


def q6_k(data, part):
    side, quarter = divmod(part, 4)
    low, high = data[64 * side:], data[128 + 32 * side:]
    q = []
    for k in range(32):
        byte = low[k + 32 * (quarter % 2)]
        four = byte & 15 if quarter < 2 else byte >> 4
        q.append((four | (high[k] >> 2 * quarter & 3) << 4) - 32)
    return q, list(struct.unpack_from("<2b", data, 192 + 2 * part)), [0, 0], half(data, 208), None


def iq4_xs(data, part):
    high = struct.unpack_from("<H", data, 2)[0]
    low = data[4 + part // 2] >> 4 * (part % 2) & 15
    scale = (low | (high >> 2 * part & 3) << 4) - 32
    q = [NONLINEAR[code] for code in nibbles(data[8 + 16 * part:])]
    return q, [scale] * 2, [0, 0], half(data, 0), None


# name: (reader, elements of a block, bytes of a block, where half-float factors lie, their size)
FORMATS = {
    "q8_0": (q8_0, 32, 34, [(0, 1 / 74)]),
    "q4_0": (q4_0, 32, 18, [(0, 1 / 4.6)]),
    "q4_1": (q4_1, 32, 20, [(0, 1 / 4.6), (2, -7.5 / 4.6)]),
    "q5_0": (q5_0, 32, 22, [(0, 1 / 9.2)]),
    "q5_1": (q5_1, 32, 24, [(0, 1 / 9.2), (2, -15.5 / 9.2)]),
    "iq4_nl": (iq4_nl, 32, 18, [(0, 1 / 70)]),
    "mxfp4": (mxfp4, 32, 17, []),
    "q2_k": (q2_k, 256, 84, [(80, 1 / 16), (82, 1.5 / 16)]),
    "q3_k": (q3_k, 256, 110, [(108, 1 / 42)]),
    "q4_k": (q4_k, 256, 144, [(0, 1 / 320), (2, 7.5 / 320)]),
    "q5_k": (q5_k, 256, 176, [(0, 1 / 650), (2, 15.5 / 650)]),
    "q6_k": (q6_k, 256, 210, [(208, 1 / 1370)]),
    "iq4_xs": (iq4_xs, 256, 136, [(0, 1 / 1290)]),
}

# ---- The law --------------------------------------------------------------------------------------


def quantise(x):
    """Codes and scales of a row of activations."""
    codes, scales = [], []
    for first in range(0, len(x), BLOCK):
        block = x[first:first + BLOCK]
        amax = max(abs(v) for v in block)
        if any(not math.isfinite(v) for v in block):
            codes += [0] * BLOCK
            scales.append(math.nan)
        elif amax < SMALLEST_AMAX:
            codes += [0] * BLOCK
            scales.append(0.0)
        else:
            inverse = div(127.0, amax)
            # `round` takes ties to even.
            codes += [round(mul(v, inverse)) for v in block]
            scales.append(div(amax, 127.0))
    assert all(-127 <= code <= 127 for code in codes)
    return codes, scales


def product(fmt, stored, codes, scales):
    """One output of a quantised matrix."""
    read, elements, size, _ = FORMATS[fmt]
    y = 0.0
    for first in range(0, len(scales), SEGMENT_BLOCKS):
        segment = 0.0
        for b in range(first, min(first + SEGMENT_BLOCKS, len(scales))):
            at = b * BLOCK // elements * size
            q, scale, minimum, d, m = read(stored[at:at + size], b % (elements // BLOCK))
            total = lows = 0
            for side in (0, 1):
                places = range(16 * side, 16 * side + 16)
                total += scale[side] * sum(q[k] * codes[b * BLOCK + k] for k in places)
                lows += minimum[side] * sum(codes[b * BLOCK + k] for k in places)
            assert abs(total) <= 1 << 24 and abs(lows) < 1 << 24, "a float holds it exactly"
            term = mul(d, float(total))
            if m is not None:
                term = fma(m, float(lows), term)
            segment = fma(scales[b], term, segment)
        y = y + segment if math.isnan(segment) else add(y, segment)
    return y


def float_product(w, x):
    """One output of a matrix of plain floats."""
    y = 0.0
    for first in range(0, len(w), SEGMENT_BLOCKS * BLOCK):
        segment = 0.0
        for k in range(first, min(first + SEGMENT_BLOCKS * BLOCK, len(w))):
            segment = fma(w[k], x[k], segment)
        y = add(y, segment)
    return y


def exp(x):
    if x < f32(-87.3):
        return 0.0
    shift = 12582912.0
    shifted = fma(min(x, 88.0), f32(math.log2(math.e)), shift)
    n = add(shifted, -shift)
    r = fma(n, -f32(0.6933594), min(x, 88.0))
    r = fma(n, f32(2.1219444e-4), r)
    p = fma(r, f32(1 / 5040), f32(1 / 720))
    for c in (f32(1 / 120), f32(1 / 24), f32(1 / 6), 0.5, 1.0, 1.0):
        p = fma(r, p, c)
    return mul(p, 2.0 ** int(n))


def tanh(x):
    e = exp(mul(2.0, max(-20.0, min(20.0, x))))
    return add(1.0, -div(2.0, add(e, 1.0)))


def gelu(x):
    inner = mul(mul(f32(0.7978846), x), fma(mul(x, x), f32(0.044715), 1.0))
    return mul(mul(0.5, x), add(1.0, tanh(inner)))


def softcap(x, cap):
    return mul(cap, tanh(mul(x, div(1.0, cap))))


def rms_norm(x, w, eps):
    lanes = [0.0] * 16
    for k, v in enumerate(x):
        lanes[k % 16] = fma(v, v, lanes[k % 16])
    apart = 8
    while apart:
        lanes = [add(lanes[l], lanes[l + apart]) for l in range(apart)]
        apart //= 2
    mean = div(lanes[0], float(len(x)))
    factor = div(1.0, f32(math.sqrt(add(mean, eps))))
    return [mul(mul(v, factor), w) for v, w in zip(x, w)]


# ---- Inputs ---------------------------------------------------------------------------------------


def signed(rng):
    return f32(2 * rng.random() - 1)


def activations(rng, cols):
    """Rows: ordinary; with zero, tiny and edge blocks; with ties and large numbers; poisoned."""
    rows = [[signed(rng) for _ in range(cols)] for _ in range(5)]
    below = struct.unpack("<f", struct.pack("<I", (27 << 23) - 1))[0]
    rows[1][0:32] = [0.0] * 31 + [-0.0]
    rows[1][32:64] = [below] * 32
    rows[1][64:96] = [SMALLEST_AMAX] * 32
    rows[2][32:64] = [k - 15.5 for k in range(31)] + [127.0]
    rows[2][64:96] = [f32(v * 1e30) for v in rows[2][64:96]]
    rows[3][cols - 1] = math.nan
    rows[4][40] = -math.inf
    return rows


def weights(rng, fmt, rows, cols):
    _, elements, size, factors = FORMATS[fmt]
    deviation = 1 / math.sqrt(cols)
    stored = bytearray()
    for i in range(rows * cols // elements):
        block = bytearray(rng.getrandbits(8) for _ in range(size))
        for at, unit in factors:
            value = deviation * unit * (0.75 + rng.random() / 2) * (-1 if i % 13 == 12 else 1)
            struct.pack_into("<e", block, at, 0.0 if i % 17 == 16 else value)
        if fmt == "mxfp4":
            block[0] = 0 if i % 17 == 16 else 119 + rng.getrandbits(2)
        stored += block
    return bytes(stored)


# ---- Files ----------------------------------------------------------------------------------------


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def save(name, *arrays):
    data = b"".join(struct.pack("<I", len(a)) + a for a in arrays)
    (HERE / f"{name}.bin").write_bytes(data)


def quantised_matrix(fmt):
    rng = random.Random(fmt)
    cols, rows = 352 if FORMATS[fmt][1] == 32 else 512, 17
    x, stored = activations(rng, cols), weights(rng, fmt, rows, cols)
    size = len(stored) // rows
    y = []
    for row in x:
        codes, scales = quantise(row)
        y += [product(fmt, stored[n * size:][:size], codes, scales) for n in range(rows)]
    dims = struct.pack("<3I", cols, rows, len(x))
    save(fmt, dims, floats(sum(x, [])), stored, floats(y))


def float_matrix(fmt):
    rng = random.Random(fmt)
    cols, rows = 300, 17
    x = [[signed(rng) for _ in range(cols)] for _ in range(3)]
    values = [f32(signed(rng) / 16) for _ in range(rows * cols)]
    if fmt == "f32":
        stored = floats(values)
    elif fmt == "f16":
        stored = struct.pack(f"<{len(values)}e", *values)
        values = list(struct.unpack(f"<{len(values)}e", stored))
    else:
        stored = b"".join(bits(v)[2:] for v in values)
        values = [struct.unpack("<f", b"\0\0" + stored[2 * i:][:2])[0] for i in range(len(values))]
    y = [float_product(values[n * cols:][:cols], row) for row in x for n in range(rows)]
    save(fmt, struct.pack("<3I", cols, rows, len(x)), floats(sum(x, [])), stored, floats(y))


def row_ops():
    rng = random.Random("rows")
    edges = [0.0, -0.0, 1e-30, -1e-30, 1e30, -1e30, 3.4e38, 20.0, -20.0, 87.3, 1e-3]
    a = [f32(v) for v in edges] + [f32(12 * signed(rng)) for _ in range(300 - len(edges))]
    b = [signed(rng) for _ in a]
    dims = struct.pack("<I", 100)
    save("softcap", dims, floats(a), floats([30.0]), floats([softcap(v, 30.0) for v in a]))
    a = [v if abs(v) < 1e10 else f32(v / 1e28) for v in a]
    save("gelu_mul", dims, floats(a), floats(b), floats([mul(gelu(x), u) for x, u in zip(a, b)]))
    w = b[:100]
    y = sum((rms_norm(a[i:i + 100], w, f32(1e-6)) for i in (0, 100, 200)), [])
    save("rms_norm", dims, floats(a), floats(w), floats(y))


if __name__ == "__main__":
    for fmt in FORMATS:
        quantised_matrix(fmt)
    for fmt in ("f32", "f16", "bf16"):
        float_matrix(fmt)
    row_ops()
