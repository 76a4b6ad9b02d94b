"""A result of first-diff that holds something of everything, for the tests of its text and page."""
import copy

LAUNCH = {"kernel": "flash_bwd_dq_dk_dv_loop_seqk_parallel", "image": "a1b2c3", "grid": [64, 1, 32], "block": [128, 1, 1],
          "smem": 98304, "stream": 7, "graph": None, "node": None, "config": ""}


def event(**more):
    return {"event": 12, "rank": 0, "step": 1, "phase": "actor_train", "work": 0, "pass": "fwd",
            "module": "model.layers.17.attn", "call": 0, "op": "aten::mul", "occurrence": 0, **more}


def tensor(role, index, name, status="equal"):
    a = "0123456789abcdef0123456789abcdef"
    return {"role": role, "index": index, "name": name, "status": status, "dtype": "bf16", "shape": [8192, 32, 128],
            "a": a, "b": a if status == "equal" else a[::-1], **({"producer": event()} if role == "in" else {})}


def difference():
    lines = ["." * 96 if i % 4 else "..1234567899" * 8 for i in range(64)]
    return {"elements": 33554432, "changed": 612004, "max_ulp": 5, "max_abs": 0.0009765625, "first_index": [0, 3, 17], "nan": 2,
            "pattern": "rows", "grade": "different", "histogram": {"unit": "ulp", "counts": [3, 600000, 11000, 999], "nan": 2},
            "map": {"shape": [262144, 128], "changed": lines, "far": [line.translate({ord(c): "z" for c in "56789"}) for line in lines],
                    "borders": {"a": {"rows": [65536], "cols": [32, 64, 96]}, "b": {"rows": [], "cols": [64]}}}, "parts": {"a": 8, "b": 2},
            "examples": [{"index": [0, 3, 17], "a": "0.125", "b": "0.1259765625", "bits_a": "3e00", "bits_b": "3e01", "distance": 1},
                         {"index": [1, 0, 0], "a": "nan", "b": "1", "bits_a": "7fc0", "bits_b": "3f80", "distance": None}]}


def diff(**more):
    return {"rank": 3, "ranks": [3, 4, 5, 9], "step": 1, "phase": "actor_train", "work": 0, "sample": "", "pass": "bwd",
            "module": "model.layers.17.attn.core", "call": 0, "op": "flash_attn_bwd", "occurrence": 0, "role": "out", "index": 0,
            "name": "dQ", "kind": "op", "root": True,
            "a": {"event": 20417, "dtype": "bf16", "logical_shape": [8192, 32, 128], "digest": "0123456789abcdef0123456789abcdef",
                  "launches": [LAUNCH]},
            "b": {"event": 20417, "dtype": "bf16", "logical_shape": [8192, 32, 128], "digest": "fedcba9876543210fedcba9876543210",
                  "launches": [{**LAUNCH, "grid": [32, 1, 32]}, {**LAUNCH, "kernel": "reduce_kernel"}]},
            "difference": difference(),
            "mechanism": {"class": "atomic-order", "also": ["race"], "confidence": "medium",
                          "evidence": ["the same kernel and the same inputs give another output",
                                       "relaunched 4 times on rank 3: 4 distinct outputs"],
                          "excluded": [{"class": "dtype", "why": "bf16 on both sides"},
                                       {"class": "rng", "why": "no generator was used before it on this thread"}],
                          "next": "set FLASH_ATTENTION_DETERMINISTIC=1, or deterministic=True"}, **more}


def cover(**more):
    return {"launches_seen": 900, "launches_recorded": 899, "tensors": 48970, "by_reference": 30000,
            "not_digested": {"device": 700, "sparse": 59}, "local_placement": 0, "dropped": 0, "stall_ns": 1500000,
            "planes": ["launch", "tensor"], "events": 20900, **more}


def run(**more):
    return {"ranks": 16, "events": 20900, "tensors": 48970, "complete": True, "sealed": True,
            "created": "2026-11-30T22:19:06.302911Z", "tool": "rlkrec 0.1.0", "argv": ["python", "train.py", "--lr", "1e-6"],
            "layout": "tp4dp4", "level": "op", "exit": {"code": 0}, "seconds": 12.5, **more}


def result():
    first = diff(tensors=[tensor("in", 0, "q"), tensor("in", 1, "k"), tensor("in", 2, "v"), tensor("out", 0, "dQ", "unequal"),
                          tensor("out", 1, "dK")])
    other = diff(module="model.layers.3.mlp", op="aten::mm", step=2, ranks=[0], rank=0, root="unknown", root_reason="not digested",
                 difference=None, b=None,
                 acceptance={"ruling": "expired", "reason": "known since May", "owner": "ops", "expires": "2026-06-01", "bound": {"any": True},
                             "max_ulp": None, "nan": 0})
    return copy.deepcopy({
        "schema": "rlk.first_diff/1", "verdict": "diverged", "exit": 1, "complete": True,
        "scope": {"compared": 48211, "skipped": 759, "reasons": {"not-digested": 759}},
        "first": first, "roots": [first, other], "downstream": 115, "masked": 4,
        "per_rank": [{"rank": r, "first": first if r in (3, 4, 5, 9) else other if r == 0 else None} for r in range(16)],
        "alignment": {"inserted": [event(op="extra")], "deleted": [], "moved": [{"a": event(), "b": event(event=13)}],
                      "inserted_total": 1, "deleted_total": 0, "moved_total": 1},
        "environment": [{"key": "env.OMP_NUM_THREADS", "a": "2", "b": "4"}, {"key": "gpus", "a": ["H200"], "b": None}],
        "notes": ["B has no seal", "1 events only in B, 0 only in A: not differences by themselves"],
        "coverage": {"a": cover(), "b": cover(dropped=3)},
        "recordings": {"a": "run12.rlk", "b": "run13.rlk"}, "mode": "same",
        "runs": {"a": run(), "b": run(sealed=False, complete=False, why="rank 3 has no END")},
        "where": {"steps": [0, 1, 2, 3], "steps_total": 4, "phases": ["actor_train", "update_weights"],
                  "layers": ["model.embed"] + [f"model.layers.{i}" for i in range(28)] + ["lm_head"], "layers_total": 30,
                  "cells": [[1, 0, 18, 1, 2], [1, 0, 19, 0, 40], [2, 0, 4, 1, 5], [2, 1, 29, 0, 64]], "cells_total": 4,
                  "ranks": list(range(16)),
                  "collectives": [{"step": 1, "phase": "actor_train", "module": "model.layers.17", "op": "all_reduce", "root": False,
                                   "ranks": "ooobbbooo=......"},
                                  {"step": 2, "phase": "actor_train", "module": "model.layers.18", "op": "all_gather", "root": True,
                                   "ranks": "oooo============"}], "collectives_total": 2}})


def every_string(value, change):
    """The same result with each string passed through `change`, but for the words that steer what is drawn."""
    if isinstance(value, dict):
        keep = ("schema", "verdict", "status", "ranks", "role", "class", "confidence", "unit", "mode")
        lines = ("changed", "far")
        return {k: (v if k in keep and isinstance(v, str) or k in lines else every_string(v, change)) for k, v in value.items()}
    if isinstance(value, list):
        return [every_string(v, change) for v in value]
    return change(value) if isinstance(value, str) else value
