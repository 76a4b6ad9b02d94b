"""What --save writes is what was printed: the file parses by the safetensors layout, and json and hashlib alone
reproduce the digest of the weight version from it. Two layouts save the same bytes.

usage: test_save.py BIN_DIR
"""
import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()


def train(folder: pathlib.Path, layout: str) -> list:
    ran = subprocess.run([BIN / "rlktrain", "--model", "qwen3-mini", "--new", "8", "--steps", "1", "--layout", layout,
                          "--save", folder], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def tensors(path: pathlib.Path) -> dict:
    raw = path.read_bytes()
    (n,) = struct.unpack("<Q", raw[:8])
    head = json.loads(raw[8:8 + n])
    assert n % 8 == 0 and head.pop("__metadata__") == {"format": "pt"}
    end = 0
    found = {}
    for name, t in sorted(head.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = t["data_offsets"]
        count = 1
        for d in t["shape"]:
            count *= d
        assert t["dtype"] == "BF16" and first == end and last - first == 2 * count, name
        found[name] = {"sha256": hashlib.sha256(raw[8 + n + first:8 + n + last]).hexdigest(), "shape": t["shape"],
                       "dtype": "BF16"}
        end = last
    assert 8 + n + end == len(raw)
    return found


with tempfile.TemporaryDirectory() as where:
    a, b = pathlib.Path(where, "a"), pathlib.Path(where, "b")
    lines = train(a, "tp1cp1")
    train(b, "tp4cp2")
    assert (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes(), "layouts save other bytes"
    found = tensors(a / "model.safetensors")
    digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
    printed = [line["sha256"] for line in lines if line["event"] == "weights"]
    assert len(found) == 25 and printed[-1] == digest, (printed, digest)
    assert printed[0] != digest, "the step changed nothing"
    config = json.loads((a / "config.json").read_text())
    assert config["model_type"] == "qwen3" and config["hidden_size"] == 64 and config["rope_theta"] == 1e6
    bad = subprocess.run([BIN / "rlktrain", "--model", "qwen3-mini", "--steps", "0", "--save", a / "no" / "such"],
                         capture_output=True, text=True, check=False)
    assert bad.returncode == 2 and "No such file" in bad.stderr, bad.stderr
print("saved, parsed, digested")
