"""A planned capture across layouts: tensors that are spread over ranks are put together and measured by first-diff. The
same is done here from the bytes alone, by other code, and must give the same numbers.

usage: test_spread.py BIN_DIR DUMP_BYTES
"""
import itertools
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import recorded

BIN, DUMP = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
MINI = ["--model", "qwen3-mini", "--no-times", "--new", "30", "--steps", "1"]
BITS = {"bf16": ("H", 2), "fp32": ("I", 4)}


def first_diff(*argv) -> tuple:
    ran = subprocess.run([BIN / "rlkaudit", "first-diff", *argv, "--json", "-"], capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1, 5), f"exit {ran.returncode}: {ran.stderr}"
    return ran.returncode, json.loads(ran.stdout)


def dumped(rec: pathlib.Path) -> list:
    ran = subprocess.run([DUMP, rec], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def join(parts: list) -> tuple:
    """Logical shape and the bits of each element; the lowest rank's of replicas."""
    whole = {}
    shape = parts[0]["logical"] or parts[0]["shape"]
    for part in sorted(parts, key=lambda p: p["rank"]):
        code, size = BITS[part["dtype"]]
        raw = bytes.fromhex(part["bytes"])
        values = struct.unpack(f"<{len(raw) // size}{code}", raw)
        runs = part["runs"] or [[[0, extent]] for extent in part["shape"]]
        axes = [[i for start, extent in dim for i in range(start, start + extent)] for dim in runs]
        for index, value in zip(itertools.product(*axes), values, strict=True):
            whole.setdefault(index, value)
    assert len(whole) == len(list(itertools.product(*(range(n) for n in shape)))), "not all of it is there"
    return shape, whole


def ordered(bits: int, size: int) -> int:
    sign = 1 << (8 * size - 1)
    return -(bits & (sign - 1)) if bits & sign else bits


def number(bits: int, dtype: str) -> float:
    return struct.unpack("<f", struct.pack("<I", bits << 16 if dtype == "bf16" else bits))[0]


def measure(a: dict, b: dict, dtype: str) -> dict:
    size = BITS[dtype][1]
    changed = sorted(i for i in a if a[i] != b[i])
    far = {i: abs(ordered(a[i], size) - ordered(b[i], size)) for i in changed}
    counts = [0] * (max(far.values()).bit_length() + 1)
    for distance in far.values():
        counts[distance.bit_length()] += 1
    return {"elements": len(a), "changed": len(changed), "max_ulp": max(far.values()),
            "max_abs": max(abs(number(a[i], dtype) - number(b[i], dtype)) for i in changed),
            "first_index": list(changed[0]), "nan": 0, "counts": counts, "all": changed}


def check(name: str, recs: tuple, result: dict, root: dict) -> None:
    sides = []
    for rec, side in zip(recs, ("a", "b"), strict=True):
        parts = [p for p in dumped(rec) if p["module"] == root["module"] and p["name"] == root["name"] and p["pass"] == root["pass"]
                 and p["work"] == root["work"] and p["step"] == root["step"] and p["phase"] == root["phase"] and not p["partial"]
                 and p["version"] == root[side].get("version", "") and p["side"] in ("", "rollout")]
        assert parts, f"{name}: no bytes of {root['name']} in {side}"
        assert len(parts) == root["difference"]["parts"][side], f"{name}: {len(parts)} parts, {root['difference']['parts']}"
        sides.append(join(parts))
    (shape, a), (other, b) = sides
    assert shape == other == root["a"]["logical_shape"], f"{name}: {shape} {other}"
    want, got = measure(a, b, root["a"]["dtype"]), root["difference"]
    for key in ("elements", "changed", "max_ulp", "max_abs", "first_index", "nan"):
        assert got[key] == want[key], f"{name}: {key}: {got[key]}, computed {want[key]}"
    assert got["histogram"]["counts"] == want["counts"], f"{name}: {got['histogram']} {want['counts']}"
    for example in got["examples"]:
        index = tuple(example["index"])
        width = 2 * BITS[root["a"]["dtype"]][1]
        assert (example["bits_a"], example["bits_b"]) == (f"{a[index]:0{width}x}", f"{b[index]:0{width}x}"), f"{name}: {example}"
    rows, cols = got["map"]["shape"]
    lines = got["map"]["changed"]
    drawn = {(i, k) for i, line in enumerate(lines) for k, c in enumerate(line) if c != "."}
    flat = [(sum(n * stride for n, stride in zip(i[:-1], strides(shape[:-1]), strict=True)), i[-1]) for i in want["all"]]
    assert drawn == {(r * len(lines) // rows, c * len(lines[0]) // cols) for r, c in flat}, f"{name}: the map is another's"
    print(f"{name}: {root['module']} {root['name']} {shape}: {got['changed']} of {got['elements']}, {got['max_ulp']} ulp, {got['pattern']}, "
          f"parts {got['parts']}, cut at {got['map'].get('borders')}")


def strides(shape: list) -> list:
    out = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        out[d] = out[d + 1] * shape[d + 1]
    return out


def planned(where: pathlib.Path, name: str, layouts: tuple, plant: str, more: tuple = ()) -> None:
    def both(tag: str, *run) -> tuple:
        return tuple(recorded.record(BIN, where, f"{name}-{tag}-{side}", *MINI, *more, "--layout", layout, *faults, run=run)[0]
                     for side, layout, faults in (("a", layouts[0], []), ("b", layouts[1], ["--plant", plant])))

    recs = both("plain")
    plan = where / f"{name}.plan"
    code, result = first_diff(*recs, "--plan", plan)
    assert code == 1 and result["first"]["difference"]["changed"] is None, f"{name}: {code}"
    assert "were not kept" in result["first"]["difference"]["unmeasured"], result["first"]["difference"]
    kept = both("planned", "--plan", plan)
    code, result = first_diff(*kept)
    assert code == 1
    measured = 0
    for root in result["roots"]:
        assert "unmeasured" not in root["difference"], f"{name}: {root['name']}: {root['difference']['unmeasured']}"
        check(name, kept, result, root)
        measured += 1
    assert measured >= 1
    accept(where, name, kept, result)


def accept(where: pathlib.Path, name: str, kept: tuple, result: dict) -> None:
    """What was measured can be accepted with a bound; the same pair is then drift that is known."""
    saved, known = where / f"{name}.json", where / f"{name}.accept"
    saved.write_text(json.dumps(result))
    ran = subprocess.run([BIN / "rlkaudit", "accept", saved, "--reason", "r", "--owner", "o", "--expires", "2199-12-31", "-o", known],
                         capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    code, again = first_diff(*kept, "--accept", known)
    assert code == 5, f"{name}: {again['acceptance']}"
    entry = json.loads(known.read_text())
    for one in entry["accepted"]:
        one["bound"]["max_ulp"] = 0
    known.write_text(json.dumps(entry))
    assert first_diff(*kept, "--accept", known)[0] == 1, f"{name}: grown past the bound"


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        where = pathlib.Path(name)
        planned(where, "dx", ("tp4cp2", "tp2cp4"), "dx-shard")
        planned(where, "logp", ("tp8cp1", "tp2cp4"), "vocab-slab")
        planned(where, "dw", ("tp2cp4", "tp4cp2"), "wgrad-cp")
        planned(where, "weights", ("tp4cp2", "tp2cp4"), "stale-shard", ("--steps", "2"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
