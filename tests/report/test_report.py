"""rlkaudit report on recordings of rlktrain: the shape and the equalities of the reference report, parameter hashes that
json and hashlib reproduce from the exported file, and planted faults, each of which makes exactly its rows false.

usage: test_report.py BIN_DIR SOURCE_DIR
"""
import hashlib
import json
import math
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "replayer"))
import recorded  # noqa: E402

BIN, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
REFERENCE = json.loads((ROOT / "tests/report/reference.json").read_text())
ROWS = ["cudagraph", "runtime_readbacks", "runtime_scalar_logprob", "train_rollout_logprob", "updates"]


def record(where: pathlib.Path, name: str, layout: str, *more: str) -> pathlib.Path:
    return recorded.record(BIN, where, name, "--model", "qwen3-mini", "--new", "30", "--layout", layout, *more)[0]


def report(a: pathlib.Path, b: pathlib.Path) -> tuple:
    ran = subprocess.run([BIN / "rlkaudit", "report", a, b, "--json", "-"], capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1), f"exit {ran.returncode}: {ran.stderr}"
    return ran.returncode, json.loads(ran.stdout)


def shape(value, at: str = "") -> set:
    """The key paths of a report; names of steps, frameworks, modules and list places do not matter."""
    if isinstance(value, dict):
        if at.endswith((".frameworks", ".modules", ".steps", ".performance", ".tokens")):
            return set().union(*(shape(v, at + ".*") for v in value.values()))
        return {f"{at}.{k}" for k in value}.union(*(shape(v, f"{at}.{k}") for k, v in value.items()))
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return set().union(*(shape(v, at + "[]") for v in value))
    return set()


def version_digest(path: pathlib.Path) -> str:
    """The published recipe, from an exported file: hashlib and json alone."""
    raw = path.read_bytes()
    (n,) = struct.unpack("<Q", raw[:8])
    head = json.loads(raw[8:8 + n])
    head.pop("__metadata__", None)
    found = {}
    for name, t in head.items():
        first, last = (8 + n + at for at in t["data_offsets"])
        found[name] = {"sha256": hashlib.sha256(raw[first:last]).hexdigest(), "shape": t["shape"], "dtype": t["dtype"]}
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def validate(result: dict) -> None:
    try:
        import jsonschema
    except ImportError:
        print("jsonschema is not installed: the schema is not tried")
        return
    schema = json.loads((ROOT / "docs/schema/cross_layout_report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    v = jsonschema.Draft202012Validator(schema)
    for name, value in (("reference", REFERENCE), ("ours", result)):
        for e in v.iter_errors(value):
            raise AssertionError(f"{name}: {e.json_path}: {e.message[:300]}")
    for path in (("tokens_equal",), ("runs", 0, "validation", "cudagraph", "checks", "not_eager"), ("runs", 1, "tokens"),
                 ("all_parameter_hash_comparisons", 0, "sha256")):
        broken = json.loads(json.dumps(result))
        at = broken
        for key in path[:-1]:
            at = at[key]
        del at[path[-1]]
        assert not v.is_valid(broken), f"the schema takes a report without {path}"
    claims = json.loads(json.dumps(result))
    claims["runs"][0]["validation"]["cudagraph"]["passed"] = True
    assert not v.is_valid(claims), "the schema takes a row that is not applicable and passed"


def clean(result: dict) -> None:
    missing = {p for p in shape(REFERENCE) - shape(result)}
    assert not missing, f"the reference has, ours has not: {sorted(missing)[:10]}"
    assert result["passed"] and result["tokens_equal"] and result["errors"] == []
    versions = result["all_parameter_hash_comparisons"]
    assert [v["version"] for v in versions] == [f"weight_v{n:06}" for n in (1, 2, 3)]
    assert all(v["bitwise_equal"] and v["sha256"][0] == v["sha256"][1] and v["tensor_count"] == 25 for v in versions)
    assert len({v["sha256"][0] for v in versions}) == 3, "two versions have one digest"
    for norm in result["gradient_norm_comparisons"]:
        assert norm["exactly_equal"] and norm["norms"][0] > 0 and norm["relative_difference_percent"] == 0.0, norm
    assert [n["step"] for n in result["gradient_norm_comparisons"]] == [0, 1]
    for run in result["runs"]:
        v = run["validation"]
        assert v["passed"] and v["not_applicable"] == ["cudagraph"] and v["cudagraph"]["passed"] is None
        assert v["runtime_readbacks"]["launches"]["passed"] is None
        logp, scalar = v["train_rollout_logprob"], v["runtime_scalar_logprob"]
        assert logp["passed"] and logp["bitwise_equal"] and logp["sample_count"] == 16 and logp["mismatch_count"] == 0
        assert logp["element_count"] == scalar["total_active_token_exposure"] > 100 and scalar["bitwise_zero"]
        assert not any(re.match("/|[A-Za-z]:", a) for a in logp["artifacts"]) and logp["artifacts"]
        for framework in v["runtime_readbacks"]["frameworks"].values():
            for name, m in framework["modules"].items():
                assert m["call_count"] == m["observed_call_count"] > 0, (name, m)
                assert set(m["backend_ids"]) <= set(m["observed_backend_ids"]), (name, m)
        for step, m in run["steps"].items():
            assert set(REFERENCE["runs"][0]["steps"]["0"]) <= set(m) and m["train/step"] == int(step)
            assert m["train/entropy_loss"] > 0 and m["train/lr-pg_0"] > 0 and m["train/ois"] == 1.0
        for step, p in run["performance"].items():
            assert set(REFERENCE["runs"][0]["performance"]["0"]) <= set(p)
            assert math.isclose(p["perf/step_time"], p["perf/train_wait_time"] + p["perf/train_time"])
            tokens = p["perf/actor_train_tok_per_s"] * p["perf/actor_train_time"]
            assert math.isclose(tokens, run["tokens"][step]["token_count"])


def rows(result: dict) -> set:
    """What is false, by name; of the runs, B's."""
    v = result["runs"][1]["validation"]
    wrong = {r for r in ROWS if v[r]["passed"] is False}
    wrong |= {h["version"] for h in result["all_parameter_hash_comparisons"] if not h["bitwise_equal"]}
    wrong |= {f"norm {n['step']}" for n in result["gradient_norm_comparisons"] if not n["exactly_equal"]}
    return wrong | (set() if result["tokens_equal"] else {"tokens"})


# One step each. What follows from a fault is false, too: another gradient makes other weights, unless the
# difference is lost in bf16.
FAULTS = [
    ("stale-shard", {"weight_v000002"}),
    ("dx-shard", {"norm 0", "weight_v000002"}),
    ("wgrad-cp", {"norm 0"}),
    ("vocab-slab", {"train_rollout_logprob", "runtime_scalar_logprob"}),
    ("recompute-provider", {"runtime_readbacks"}),
]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        a = record(where, "a", "tp4cp2", "--save", str(where / "v3"))
        b = record(where, "b", "tp2cp4", "--rollout-layout", "tp8cp1")
        code, result = report(a, b)
        assert code == 0, result["errors"]
        validate(result)
        clean(result)
        recipe = version_digest(where / "v3" / "model.safetensors")
        assert result["all_parameter_hash_comparisons"][2]["sha256"] == [recipe] * 2, "the recipe gives another hash"
        print("a clean pair: every row")
        # A recording and its replay under another layout: the same report, times apart.
        again = where / "again.rlk"
        ran = subprocess.run([BIN / "rlkreplay", a, "--layout", "tp2cp4", "-o", again], capture_output=True, text=True,
                             check=False)
        assert ran.returncode == 0, f"replay: exit {ran.returncode}: {ran.stdout} {ran.stderr}"
        code, result = report(a, again)
        assert code == 0 and result["passed"] and rows(result) == set() and len(result["metric_comparisons"]) == 2, result
        print("a recording and its replay: every row that applies")
        one = record(where, "one", "tp2cp2", "--steps", "1")
        for name, expected in FAULTS:
            bad = record(where, name, "tp8cp4" if name == "wgrad-cp" else "tp4cp2", "--steps", "1", "--plant", name)
            code, result = report(one, bad)
            got = rows(result)
            if name == "recompute-provider":  # what the provider makes of it is not under contract
                got -= {"norm 0", "weight_v000002"}
            assert code == 1 and got == expected, f"{name}: exit {code}, {got} and not {expected}"
            if name == "stale-shard":
                unequal = result["all_parameter_hash_comparisons"][1]["unequal_parameter_tensors"]
                assert unequal == ["model.layers.0.mlp.down_proj.weight"], unequal
            print(f"{name}: {sorted(expected)}")
        other = record(where, "seed", "tp2cp2", "--steps", "1", "--seed", "2")
        _, result = report(one, other)
        assert rows(result) == {"tokens", "norm 0", "weight_v000001", "weight_v000002"}, rows(result)
        coarse = record(where, "coarse", "tp2cp2", "--steps", "1", "--samples", "4", "--temperature", "0.5")
        code, result = report(coarse, one)
        assert code == 1 and "tokens" in rows(result)


main()
