"""Runs the Python program of docs/digest.md, as it stands there, against its vectors and against the C digest.

usage: digest_doc.py DIGEST.md DIGEST_TOOL VENV_DIR

numpy and xxhash come from the interpreter, else from VENV_DIR, which is made with the Python package registry once.
Exit 77: neither can be had (no network).
"""
import os
import pathlib
import random
import re
import subprocess
import sys

PACKAGES = ["numpy", "xxhash"]


def importable(python):
    return subprocess.run([python, "-c", "import numpy, xxhash"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def interpreter(venv: pathlib.Path):
    """A Python with both packages, or None and the reason."""
    python = str(venv / "bin" / "python")
    if importable(sys.executable):
        return sys.executable, ""
    if os.path.exists(python) and importable(python):
        return python, ""
    for command in ([sys.executable, "-m", "venv", "--clear", str(venv)],
                    [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1",
                     "--timeout", "20", "--only-binary", ":all:", *PACKAGES]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        except (OSError, subprocess.TimeoutExpired) as why:
            return None, str(why)
        if done.returncode:
            return None, (done.stderr or done.stdout).strip().splitlines()[-1][:300]
    return (python, "") if importable(python) else (None, "installed, but not importable")


def vectors(text):
    """Rows of the table in the document: (dtype, shape, fill, edit, unit, printed, positional, value, multiset)."""
    for row in re.findall(r"^\| (\w+ \[.*)\|$", text, re.M):
        cells = [c.strip() for c in row.split("|")]
        what, unit, printed, positional, value, multiset = cells
        dtype, shape, fill = re.match(r"(\w+) \[([\d,]*)\](?: (\{.*?\}))?", what).groups()
        value = positional if value == "=" else value
        yield (dtype, [int(d) for d in shape.split(",") if d], fill, "byte 255" in what, int(unit), printed,
               int(positional, 16), int(value, 16), int(multiset, 16))


def check_vectors(text, env):
    np = env["np"]
    codes = {"bf16": (4, 16), "fp32": (2, 32), "fp16": (2, 16), "int64": (0, 64)}
    seen = 0
    for dtype, shape, fill, edit, unit, printed, positional, value, multiset in vectors(text):
        n = int(np.prod(shape, dtype=np.int64))
        kind, argument = (re.match(r'\{"(\w+)":\s*(.*)\}', fill).groups() if fill else ("none", "0"))
        if kind == "normal":
            bits = env["bf16"](env["normal"](int(argument), n))
        elif kind == "uniform":
            bits = env["uniform"](int(argument), n).astype("<f4").view("<u4")
        elif kind == "int":
            bits = env["integers"](*eval(argument), n).astype("<i8").view("<u8")
        else:
            bits = np.full(n, float(argument), "<f4" if dtype == "fp32" else "<f2").view("<u4" if dtype == "fp32" else "<u2")
        canonical = bits.copy()
        if edit:
            bits = bits.reshape(shape)
            bits[1] = 0xFFFF
            canonical = env["canonical"](bits, 0x8000, 0x7C00, 0x7E00)
        width = shape[-1] if shape else 1
        rows = n // width if width else 0
        u = env["unit_length"](shape, dtype == "int64", bits.itemsize)
        got = env["sums"](bits.reshape(rows, width), canonical.reshape(rows, width), u)
        assert (u, *got) == (unit, positional, value, multiset), (dtype, shape, u, got)
        assert env["printed"](got[0], *codes[dtype], shape) == printed, (dtype, shape)
        seen += 1
    assert seen == 7, f"{seen} vectors found in the document, 7 expected"
    return seen


# name, lanes of unsigned bits, integer, code, bits, arguments of canonical()
F16, F32, F64 = (0x8000, 0x7C00, 0x7E00), (1 << 31, 0x7F800000, 0x7FC00000), (1 << 63, 0x7FF << 52, 0xFFF << 51 & ~(1 << 63))
TYPES = [
    ("bool", "<u1", True, 6, 8, None), ("uint8", "<u1", True, 1, 8, None), ("int8", "<u1", True, 0, 8, None),
    ("uint16", "<u2", True, 1, 16, None), ("int16", "<u2", True, 0, 16, None), ("uint32", "<u4", True, 1, 32, None),
    ("int32", "<u4", True, 0, 32, None), ("uint64", "<u8", True, 1, 64, None), ("int64", "<u8", True, 0, 64, None),
    ("fp8_e4m3", "<u1", False, 10, 8, (0x80, 0x7E, 0x7F)), ("fp8_e5m2", "<u1", False, 12, 8, (0x80, 0x7C, 0x7F)),
    ("fp16", "<u2", False, 2, 16, F16), ("bf16", "<u2", False, 4, 16, (0x8000, 0x7F80, 0x7FC0)),
    ("fp32", "<u4", False, 2, 32, F32), ("fp64", "<u8", False, 2, 64, F64),
    ("complex32", "<u2", False, 5, 32, F16), ("complex64", "<u4", False, 5, 64, F32),
    ("complex128", "<u8", False, 5, 128, F64), ("fp8_e4m3fnuz", "<u1", False, 11, 8, None),
    ("fp8_e5m2fnuz", "<u1", False, 13, 8, None), ("fp8_e8m0", "<u1", False, 14, 8, None),
]


def random_bits(np, rng, lane, n, canonical):
    bits = np.frombuffer(rng.randbytes(n * np.dtype(lane).itemsize), lane).copy()
    if canonical and n and rng.random() < 0.6:
        sign, largest, nan = canonical
        special = np.array([sign, 0, largest, largest | sign, nan, nan | sign, largest + 1], np.uint64).astype(lane)
        where = np.array([rng.random() < 0.1 for _ in range(n)])
        bits[where] = np.array([rng.choice(special) for _ in range(int(where.sum()))], lane)
    return bits


def check_against_c(tool, env, rounds=12):
    np, rng = env["np"], random.Random(20)
    lines, wanted = [], []
    for _ in range(rounds):
        for name, lane, integer, code, width_bits, canonical in TYPES:
            pair = name.startswith("complex")
            shape = [rng.choice([0, 1, 2, 3, 5]) if rng.random() < 0.3 else rng.choice([1, 2, 3, 4])
                     for _ in range(rng.randrange(4))]
            if shape:
                shape[-1] = rng.choice([0, 1, 7, 8, 16, 24, 31, 40, 64, 127, 128, 129, 144, 150, 256, 257])
            n = int(np.prod(shape, dtype=np.int64)) * (2 if pair else 1)
            bits = random_bits(np, rng, lane, n, canonical)
            lines.append(f"{name} {len(shape)} {' '.join(map(str, shape))} {bits.tobytes().hex() or '-'}")
            D = shape[-1] if shape else 1
            form = (n // D // (2 if pair else 1) if D else 0, D) + ((2,) if pair else ())
            equal = env["canonical"](bits, *canonical) if canonical else bits
            u = env["unit_length"](shape, integer, width_bits // 8)
            got = env["sums"](bits.reshape(form), equal.reshape(form), u)
            wanted.append((lines[-1], f"{env['printed'](got[0], code, width_bits, shape)} {got[0]:032x} {got[1]:032x} {got[2]:016x}"))
    out = subprocess.run([tool], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True).stdout
    answers = out.splitlines()
    assert len(answers) == len(wanted)
    for answer, (line, want) in zip(answers, wanted):
        assert answer.startswith(want + " "), f"{line[:100]}\n C      {answer}\n Python {want}"
    # the comparison can fail: one flipped bit is seen
    line, want = next(w for w in wanted if not w[0].endswith("-"))
    head, word = line.rsplit(" ", 1)
    flipped = f"{head} {int(word[:2], 16) ^ 1:02x}{word[2:]}"
    other = subprocess.run([tool], input=flipped + "\n", capture_output=True, text=True, check=True).stdout
    assert other and not other.startswith(want[:32])
    return len(answers)


def main(document, tool, venv):
    if os.environ.get("RLK_DIGEST_DOC_CHILD") != "1":
        python, reason = interpreter(pathlib.Path(venv))
        if not python:
            print(f"skipped: numpy and xxhash are neither importable nor installable here: {reason}")
            return 77
        return subprocess.run([python, *sys.argv], env={**os.environ, "RLK_DIGEST_DOC_CHILD": "1"}).returncode
    text = pathlib.Path(document).read_text()
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
    env = {}
    exec(compile(program, document, "exec"), env)
    print(f"{check_vectors(text, env)} vectors, {check_against_c(tool, env)} random tensors: "
          "the document's program and the C digest agree")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
