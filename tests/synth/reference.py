"""Fills, masks, changes and element types of docs/synth.md, written again from the text with exact arithmetic.

Standard library only; slow; shares nothing with the C code. element bytes in, element bytes out.
"""
from fractions import Fraction
import math
import struct

# name: (bytes, exponent bits, mantissa bits, has Inf)
FLOATS = {"fp8_e4m3": (1, 4, 3, False), "fp8_e5m2": (1, 5, 2, True), "fp16": (2, 5, 10, True),
          "bf16": (2, 8, 7, True), "fp32": (4, 8, 23, True), "fp64": (8, 11, 52, True)}
# name: (bytes, signed)
INTS = {"uint8": (1, False), "int8": (1, True), "int16": (2, True), "int32": (4, True), "int64": (8, True)}
DTYPES = ["bool", *INTS, *FLOATS, "complex64"]
NAN = {"fp8_e4m3": 0x7F, "fp8_e5m2": 0x7F, "fp16": 0x7E00, "bf16": 0x7FC0, "fp32": 0x7FC00000,
       "fp64": 0x7FF8000000000000}


def size(dtype):
    return 8 if dtype == "complex64" else 1 if dtype == "bool" else (FLOATS.get(dtype) or INTS[dtype])[0]


def philox(key0, key1, counter):
    c = list(counter)
    k = [key0, key1]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


assert philox(0, 0, (0, 0, 0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # published known answer


def half_even(x):
    """Fraction -> nearest integer, ties to even."""
    whole = x.numerator // x.denominator
    rest = x - whole
    return whole + (1 if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2) else 0)


def encode_float(dtype, v):
    """Number (int, float, Fraction) -> bits, one rounding to nearest even."""
    nbytes, ebits, mbits, has_inf = FLOATS[dtype]
    signbit = 1 << (8 * nbytes - 1)
    top = (1 << ebits) - 1
    overflow = top << mbits if has_inf else NAN[dtype]
    if isinstance(v, float):
        if math.isnan(v):
            return NAN[dtype]
        negative = math.copysign(1.0, v) < 0
        if math.isinf(v):
            return overflow | (signbit if negative else 0)
    else:
        negative = v < 0
    x = abs(Fraction(v))
    sign = signbit if negative else 0
    if x == 0:
        return sign
    bias = (1 << (ebits - 1)) - 1
    e = max(math.floor(math.log2(x)) if x.denominator == 1 and x < 2 ** 60 else 0, 1 - bias)
    while x >= Fraction(2) ** (e + 1):
        e += 1
    while e > 1 - bias and x < Fraction(2) ** e:
        e -= 1
    steps = half_even(x / Fraction(2) ** (e - mbits))  # in units of the last place
    if steps >= 2 << mbits:
        e, steps = e + 1, steps >> 1
    bits = steps if steps < 1 << mbits else ((e + bias) << mbits) + (steps - (1 << mbits))
    if has_inf:
        return sign | min(bits, top << mbits)
    return sign | (bits if bits < 0x7F else 0x7F)  # e4m3: the last pattern is NaN


def decode_float(dtype, bits):
    """bits -> Fraction, or float for NaN, Inf and -0."""
    nbytes, ebits, mbits, has_inf = FLOATS[dtype]
    negative = bits >> (8 * nbytes - 1)
    e = bits >> mbits & ((1 << ebits) - 1)
    m = bits & ((1 << mbits) - 1)
    if e == (1 << ebits) - 1 and (has_inf or m == 7):
        if has_inf and m == 0:
            return -math.inf if negative else math.inf
        return math.nan
    if e == 0 and m == 0:
        return -0.0 if negative else Fraction(0)
    bias = (1 << (ebits - 1)) - 1
    x = Fraction(m, 1 << mbits) * Fraction(2) ** (1 - bias) if e == 0 else (1 + Fraction(m, 1 << mbits)) * Fraction(2) ** (e - bias)
    return -x if negative else x


def encode(dtype, v):
    """One real number -> the bits of an element (complex64: v + 0i)."""
    if dtype == "complex64":
        return encode_float("fp32", v)
    if dtype == "bool":
        return int(not math.isfinite(v) or half_even(Fraction(v)) != 0)
    if dtype in FLOATS:
        return encode_float(dtype, v)
    if isinstance(v, float) and not math.isfinite(v):
        return 0
    return half_even(Fraction(v)) % (1 << 8 * size(dtype))


def decode(dtype, bits):
    if dtype == "bool":
        return Fraction(bits)  # the byte; 0 or 1 unless garbage was written
    if dtype in FLOATS:
        return decode_float(dtype, bits)
    n = 8 * size(dtype)
    return Fraction(bits - (1 << n) if INTS[dtype][1] and bits >> (n - 1) else bits)


def to_fp64(v):
    return v if isinstance(v, float) else struct.unpack("<d", struct.pack("<Q", encode_float("fp64", v)))[0]


def component(dtype):
    return "fp32" if dtype == "complex64" else dtype


def fill(spec, dtype, numel, names):
    (kind, arg), = spec.items()
    if kind == "like":
        return list(names[arg][1])
    if kind == "cast_of":
        src, bits = names[arg]
        return [cast_element(b, src, dtype) for b in bits]
    return [fill_element(kind, arg, dtype, k) for k in range(numel)]


def fill_element(kind, arg, dtype, k):
    if kind == "const":
        if isinstance(arg, dict):
            return int(arg["bits"], 16) if isinstance(arg["bits"], str) else arg["bits"]
        return encode(dtype, float(arg) if isinstance(arg, str) else arg)
    if kind == "arange":
        v = arg + k
        if isinstance(arg, int):
            v = (v + (1 << 63)) % (1 << 64) - (1 << 63)
        return encode(dtype, v)
    seed = arg[2] if kind == "int" else arg
    w = philox(seed, 0, (k, 0, 0, 0))
    if kind == "uniform":
        return encode(dtype, Fraction(w[0] >> 8, 1 << 24))
    if kind == "normal":
        total = sum((x & 0xFFFF) + (x >> 16) for x in w) - 262140
        return encode(dtype, total / 65536.0 * 1.2247449)
    assert kind == "int"
    return encode(dtype, arg[0] + w[0] % (arg[1] - arg[0]))


def cast(v, bits, src, dst):
    return bits if src == dst else encode(dst, v)


def cast_element(bits, src, dst):
    if src == dst:
        return bits
    a, b = component(src), component(dst)
    low = bits & 0xFFFFFFFF if src == "complex64" else bits
    out = cast(decode(a, low), low, a, b)
    if src == dst == "complex64":
        return bits
    return out


def mask(spec, shape, numel, rank=0):
    rows = shape[0] if shape else 1
    row = numel // rows if rows else 0
    if "all" in spec:
        return [True] * numel
    if "uniform" in spec:
        return [(philox(spec["seed"], 1, (k, 0, 0, 0))[0] >> 8) < Fraction(spec["uniform"]) * (1 << 24)
                for k in range(numel)]
    if "rows" in spec:
        return [k // row in spec["rows"] for k in range(numel)]
    if "tail" in spec:
        return [k >= spec["tail"] for k in range(numel)]
    if "range" in spec:
        return [spec["range"][0] <= k < spec["range"][1] for k in range(numel)]
    if "shard" in spec:
        return [rank == spec["shard"]] * numel
    chosen, counter = [], 0
    while len(chosen) < spec["sparse"]:
        k = philox(spec["seed"], 1, (counter, 0, 0, 0))[0] % numel
        if k not in chosen:
            chosen.append(k)
        counter += 1
    return [k in chosen for k in range(numel)]


def ordered(dtype, bits):
    sign = 1 << (8 * size(dtype) - 1)
    return -(bits & (sign - 1)) if bits & sign else bits


def ulp(dtype, bits, n):
    width = 8 * size(dtype)
    if dtype == "bool":
        return (bits + n) % 2
    if dtype in INTS:
        return (bits + n) % (1 << width)
    v = decode(dtype, bits)
    if isinstance(v, float) and math.isnan(v):
        return bits
    o = ordered(dtype, bits) + n
    _, ebits, mbits, has_inf = FLOATS[dtype]
    limit = ((1 << ebits) - 1) << mbits if has_inf else 0x7E
    if abs(o) > limit:
        raise OverflowError
    return o if o >= 0 else -o | 1 << (width - 1)


def add(dtype, bits, x):
    v = decode(dtype, bits)
    if dtype in FLOATS:
        return encode(dtype, to_fp64(v) + float(x))
    total = half_even(v + Fraction(x))
    return int(total % (1 << 64) != 0) if dtype == "bool" else total % (1 << 8 * size(dtype))


def rel(dtype, bits, x):
    return encode(dtype, to_fp64(decode(dtype, bits)) * (1.0 + x))


def parts(dtype, bits, f, both):
    """Applies f to the real component, or to both, of a complex element; to the element of any other type."""
    if dtype != "complex64":
        return f(dtype, bits)
    re, im = bits & 0xFFFFFFFF, bits >> 32
    return f("fp32", re) | (f("fp32", im) if both else im) << 32


def through(dtype, bits, other):
    there = cast(decode(dtype, bits), bits, dtype, other)
    return cast(decode(other, there), there, other, dtype)


def change(spec, dtype, shape, bits, masked, names):
    (kind, arg), = spec.items()
    old = list(bits)
    rows = shape[0] if shape else 1
    row = len(bits) // rows if rows else 0
    out = list(bits)
    for k, yes in enumerate(masked):
        if not yes:
            continue
        b = bits[k]
        if kind == "ulp":
            out[k] = parts(dtype, b, lambda d, x: ulp(d, x, arg), False)
        elif kind == "rel":
            out[k] = parts(dtype, b, lambda d, x: rel(d, x, arg), True)
        elif kind == "add":
            out[k] = parts(dtype, b, lambda d, x: add(d, x, arg), False)
        elif kind == "add_rows":
            out[k] = parts(dtype, b, lambda d, x: add(d, x, arg[k // row]), False)
        elif kind == "zero":
            out[k] = 0
        elif kind == "byte":
            out[k] = int.from_bytes(bytes([arg]) * size(dtype), "little")
        elif kind == "garbage":
            w = philox(arg, 0, (k, 0, 0, 0))
            out[k] = (w[0] | w[1] << 32) % (1 << 8 * size(dtype))
        elif kind == "cast":
            out[k] = parts(dtype, b, lambda d, x: through(d, x, component(arg)), True)
        elif kind == "permute":
            out[k] = old[arg[k // row] * row + k % row]
        elif kind == "from":
            out[k] = names[arg][1][k]
        else:
            raise ValueError(kind)
    return out


def tensor(spec, names, rank=0):
    """TENSOR -> its element bits; also becomes the latest of its name in `names`."""
    numel = math.prod(spec["shape"])
    bits = fill(spec.get("fill", {"const": 0}), spec["dtype"], numel, names)
    for edit in spec.get("edit", []):
        masked = mask(edit["mask"], spec["shape"], numel, rank)
        bits = change(edit["change"], spec["dtype"], spec["shape"], bits, masked, names)
    names[spec["name"]] = (spec["dtype"], bits)
    return bits


def to_bytes(dtype, bits):
    n = size(dtype)
    return b"".join(int(b).to_bytes(n, "little") for b in bits)
