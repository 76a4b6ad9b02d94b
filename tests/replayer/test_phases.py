"""Rollout against training inside one recording of rlktrain: `first-diff --phases rollout-decode:actor_train` joins keys,
values and log-probabilities by sample. A clean run is silent at any layout; a fault of one side is named.

usage: test_phases.py BIN_DIR
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import recorded

BIN = pathlib.Path(sys.argv[1]).resolve()
LAYERS, SAMPLES, STEPS = 2, 8, 2

# fault, layout, (module, name) of the first difference, and steps where roots stand
FAULTS = [
    ("vocab-slab", "tp4cp2", ("logprobs", "logp"), {0, 1}),
    ("zigzag-map", "tp2cp4", ("model.layers.1.self_attn.kv", "k"), {0, 1}),
    ("stale-shard", "tp4cp2", ("model.layers.1.self_attn.kv", "k"), {1}),  # weights of step 0 are not stale yet
]


def record(where: pathlib.Path, name: str, layout: str, *more: str) -> pathlib.Path:
    return recorded.record(BIN, where, name, "--model", "qwen3-mini", "--new", "30", "--layout", layout, *more)[0]


def phases(rec: pathlib.Path) -> tuple:
    ran = subprocess.run([BIN / "rlkaudit", "first-diff", "--phases", "rollout-decode:actor_train", rec, "--json", "-"],
                         capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1), f"{rec.name}: exit {ran.returncode}: {ran.stderr}"
    return ran.returncode, json.loads(ran.stdout)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        for layout, more in (("tp1cp1", []), ("tp2cp4", ["--rollout-layout", "tp8cp1"]), ("tp4cp2", ["--micro-batches", "3"])):
            code, result = phases(record(where, layout, layout, *more))
            assert code == 0 and result["verdict"] == "identical", f"{layout}: {result['verdict']}: {result['roots'][:2]}"
            # of each step and sample: its log-probabilities, and keys and values of every layer
            assert result["scope"]["compared"] == STEPS * SAMPLES * (1 + 2 * LAYERS), (layout, result["scope"])
            print(f"{layout}: silent, {result['scope']['compared']} compared")
        for name, layout, expected, steps in FAULTS:
            code, result = phases(record(where, name, layout, "--plant", name))
            first, roots = result["first"], result["roots"]
            assert code == 1 and result["verdict"] == "diverged", f"{name}: {result['verdict']}"
            assert (first["module"], first["name"]) == expected and first["sample"].startswith("s"), f"{name}: {first}"
            assert {r["step"] for r in roots} == steps, f"{name}: roots in steps {({r['step'] for r in roots})}"
            assert all(r["module"] == expected[0] for r in roots), f"{name}: {[r['module'] for r in roots]}"
            print(f"{name}: step {first['step']} {expected} of {sorted({r['sample'] for r in roots})}")


main()
