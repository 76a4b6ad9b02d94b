"""Joins by sample over another packing, on recordings of rlktrain with per-sample sums (--by-sample): other micro-batches,
another order of samples, another layout as well, and two phases of one recording that pack differently. Where nothing
depends on the batch the comparison is silent; sums over a batch, the weight gradients, are named as what they are; and an
operator that computes otherwise in large batches is named where batches differ.

usage: test_packing.py BIN_DIR
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import recorded

BIN = pathlib.Path(sys.argv[1]).resolve()
SAMPLES = 8


def record(where: pathlib.Path, name: str, layout: str, *more: str) -> pathlib.Path:
    return recorded.record(BIN, where, name, "--model", "qwen3-mini", "--new", "20", "--steps", "1", "--by-sample", "--layout", layout, *more)[0]


def first_diff(*args) -> dict:
    ran = subprocess.run([BIN / "rlkaudit", "first-diff", *args, "--json", "-"], capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1), f"exit {ran.returncode}: {ran.stderr}"
    return json.loads(ran.stdout)


def joined(result: dict, name: str) -> None:
    assert any("joined by sample" in n for n in result["notes"]) or name.startswith("tp4cp2"), f"{name}: {result['notes']}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        said = [subprocess.run([BIN / "rlktrain", "--model", "qwen3-mini", "--new", "20", "--no-times", *more],
                               capture_output=True, text=True, check=True).stdout
                for more in ([], ["--score-batches", "4"], ["--score-batches", "1", "--by-sample"])]
        assert said[0] and said[0] == said[1] == said[2], "log-probabilities depend on the micro-batches they are made in"
        plain = record(where, "plain", "tp2cp2")
        # log_probs in four micro-batches, training in two as before.
        for name, layout in (("scoring", "tp2cp2"), ("tp4cp2-scoring", "tp4cp2")):
            other = record(where, name, layout, "--score-batches", "4")
            result = first_diff(plain, other)
            joined(result, name)
            assert result["verdict"] == "identical" and result["scope"]["compared"] > 3000, (name, result["scope"])
            print(f"{name}: identical, {result['scope']['compared']} compared")
        for phases in ("log_probs:actor_train", "ref_log_probs:actor_train"):
            result = first_diff("--phases", phases, other)
            assert result["verdict"] == "identical", f"{phases}: {result['roots'][:1]}"
            # every output of the forward, sample by sample, and nothing of it in other batches
            assert result["scope"]["compared"] >= SAMPLES * 40, f"{phases}: {result['scope']}"
            print(f"{phases} over another packing: silent, {result['scope']['compared']} compared")
        for name, more in (("micro-batches", ["--micro-batches", "4"]), ("order", ["--reverse"])):
            result = first_diff(plain, record(where, name, "tp2cp2", *more))
            joined(result, name)
            roots = {(r["phase"], r["pass"], r["name"]) for r in result["roots"]}
            sums = {"dw", "dw_gate", "dw_up", "dw_down", "dgamma", "dtable"}
            assert roots and all(p == "actor_train" and b == "bwd" and n in sums for p, b, n in roots), f"{name}: {roots}"
            print(f"{name}: only sums over the batch differ, {len(result['roots'])} roots")
        bad = record(where, "bad", "tp4cp2", "--plant", "vocab-batch", "--score-batches", "4")
        found = [("phases", first_diff("--phases", "log_probs:actor_train", bad)),
                 ("micro-batches", first_diff(record(where, "small", "tp4cp2", "--plant", "vocab-batch", "--score-batches", "8",
                                                     "--micro-batches", "2"),
                                              record(where, "large", "tp4cp2", "--plant", "vocab-batch", "--score-batches",
                                                     "2", "--micro-batches", "2")))]
        for name, result in found:
            first = result["first"]
            assert result["verdict"] == "diverged" and (first["module"], first["op"]) == ("lm_head",
                                                                                         "rlk.linear_logp.bitwise"), first
            assert first["pass"] == "fwd" and first["name"] in ("logp", "stats") and first["sample"].startswith("s"), first
            assert all((r["module"], r["op"]) == ("lm_head", "rlk.linear_logp.bitwise") for r in result["roots"]), name
            print(f"vocab-batch, {name}: {first['name']} of {sorted({r['sample'] for r in result['roots']})}")


main()
