"""Records rlktrain in several layouts and lets rlkaudit judge: clean pairs are identical, and every planted fault is
named at its operator, as the first difference and as every root.

usage: test_record.py BIN_DIR [cuda [FAULT...]]
cuda: the faults are planted in runs on the GPU, which are compared with a clean run on the CPU in another layout.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import recorded

BIN = pathlib.Path(sys.argv[1]).resolve()
MINI = ["--model", "qwen3-mini", "--no-times"]
LAYER = "model.layers.0."

# fault, where it shows, more arguments, (pass, module, op, names) of the first difference and of all roots
FAULTS = [
    ("dx-shard", "tp4cp2", MINI, ("bwd", LAYER + "self_attn.qkv", "rlk.gemm.column", {"dx"})),
    ("wgrad-cp", "tp8cp4", MINI, ("bwd", LAYER + "self_attn.q_proj", "rlk.gemm.dw", {"dw"})),
    ("vocab-slab", "tp4cp2", MINI, ("fwd", "lm_head", "rlk.linear_logp.bitwise", {"logp", "stats"})),
    ("stale-shard", "tp4cp2", MINI, ("", "", "weights", {LAYER + "mlp.down_proj.weight"})),
    ("zigzag-map", "tp4cp2", MINI, ("fwd", LAYER + "self_attn.rotary_q", "rlk.rope", {"y"})),
    ("recompute-provider", "tp4cp2", MINI,
     ("recompute", LAYER + "mlp", "rlk.ffn.qwen3.deterministic", {"gate", "up", "act", "y"})),
    ("mode-off", "tp4cp2", MINI, ("fwd", LAYER + "self_attn", "rlk.attention.deterministic", {"lse", "o"})),
    ("ring-attention", "tp8cp4", MINI, ("fwd", LAYER + "self_attn", "rlk.attention.deterministic", {"lse", "o"})),
    ("rank-order", "tp8cp1", ["--no-times", "--samples", "4", "--steps", "1"],
     ("fwd", LAYER + "self_attn.o_proj", "rlk.gemm.row", {"y"})),
]


# What is said of the cause, against a clean run in another layout. Right or unknown, never wrong: where sums over ranks run
# inside an operator of one contract, their order is pointed to; of positions that are wrong nothing recorded tells.
CAUSE = {"dx-shard": "layout-reduction", "wgrad-cp": "layout-reduction", "vocab-slab": "layout-reduction", "ring-attention": "layout-reduction",
         "rank-order": "layout-reduction", "stale-shard": "stale-weights", "zigzag-map": "unknown",
         "recompute-provider": "kernel-differs", "mode-off": "kernel-differs"}


def record(where: pathlib.Path, name: str, layout: str, more: list) -> tuple:
    return recorded.record(BIN, where, name, "--new", "30", "--layout", layout, *more)


def first_diff(a: pathlib.Path, b: pathlib.Path) -> tuple:
    ran = subprocess.run([BIN / "rlkaudit", "first-diff", a, b, "--json", "-"], capture_output=True, text=True,
                         check=False)
    assert ran.returncode in (0, 1), f"{a.name} {b.name}: exit {ran.returncode}: {ran.stdout} {ran.stderr}"
    return ran.returncode, json.loads(ran.stdout)


def clean_pairs(where: pathlib.Path) -> dict:
    first, printed = record(where, "tp2cp2", "tp2cp2", MINI)
    one = None
    for name, layout, more in [("tp1cp1", "tp1cp1", []), ("tp2cp4", "tp2cp4", ["--rollout-layout", "tp8cp1"]),
                               ("tp8cp8", "tp8cp8", []), ("again", "tp2cp2", [])]:
        other, same = record(where, name, layout, MINI + more)
        one = other if name == "tp1cp1" else one
        code, result = first_diff(first, other)
        scope = result["scope"]
        assert code == 0 and result["verdict"] == "identical", f"tp2cp2 and {name}: {result['verdict']}"
        assert result["complete"], f"tp2cp2 and {name}: incomplete"
        assert scope["compared"] > 2000, f"tp2cp2 and {name}: only {scope['compared']} tensors compared"
        assert scope["skipped"] == 0, f"tp2cp2 and {name}: {scope}"
        assert printed == same, f"tp2cp2 and {name} print different lines"
        print(f"tp2cp2 and {name}: identical, {scope['compared']} tensors")
    # Other weights to start from are another experiment, under any layout.
    for name, layout in (("seed", "tp2cp2"), ("seed-layout", "tp1cp1")):
        other, _ = record(where, name, layout, [*MINI, "--seed", "2"])
        ran = subprocess.run([BIN / "rlkaudit", "first-diff", first, other, "--json", "-"], capture_output=True, text=True,
                             check=False)
        why = json.loads(ran.stdout)["not_comparable"]
        assert ran.returncode == 3 and (why["reason"], why["name"]) == ("source", "model.embed_tokens.weight"), why
    return {tuple(MINI): first, "one rank": one}


def bisect(clean: pathlib.Path, bad: pathlib.Path, first: dict) -> None:
    """From roll-ups alone: the module of the first difference, whatever the ranks' order."""
    ran = subprocess.run([BIN / "rlkaudit", "bisect", clean, bad, "--json", "-"], capture_output=True, text=True, check=False)
    named = json.loads(ran.stdout)["first"]
    place = [(node["step"], node["phase"], node["pass"], node["module"]) for node in (named, first)]
    assert ran.returncode == 1 and place[0] == place[1], f"{bad.name}: bisect names {place[0]}, first-diff {place[1]}"


def explain(clean: pathlib.Path, bad: pathlib.Path, name: str) -> None:
    """Across layouts it compares what first-diff compared: the inputs of a root are equal, though no rank's parts are."""
    ran = subprocess.run([BIN / "rlkaudit", "explain", clean, bad, "--json", "-"], capture_output=True, text=True, check=False)
    result = json.loads(ran.stdout)
    status = {role: {t["status"] for t in result["tensors"] if t["role"] == role} for role in ("in", "out")}
    assert ran.returncode == 1 and result["standing"] == "root", f"{name}: {result['standing']}: {result['why']}"
    assert status["in"] <= {"equal"} and "unequal" in status["out"], f"{name}: explain: {status}"


def fault(clean: pathlib.Path, bad: pathlib.Path, name: str, expected: tuple, how: str) -> None:
    code, result = first_diff(clean, bad)
    first = result["first"]
    passes = {expected[0]} | ({"recompute"} if expected[0] == "fwd" else set()) | (
        {"bwd"} if name == "mode-off" else set())
    assert code == 1 and result["verdict"] == "diverged", f"{name}: {result['verdict']}"
    got = (first["pass"], first["module"], first["op"], first["name"])
    assert got[:3] == expected[:3] and got[3] in expected[3], f"{name}: first is {got}, not {expected}"
    cause = CAUSE[name]
    if how == "the same layout":
        bisect(clean, bad, first)
        cause = "unknown" if cause == "layout-reduction" else cause
    else:
        explain(clean, bad, name)
    got_cause = first["mechanism"]["class"]
    assert got_cause == cause, f"{name}, {how}: cause {got_cause}, not {cause}: {first['mechanism']}"
    for root in result["roots"]:
        assert root["pass"] in passes and (root["module"], root["op"]) == expected[1:3], f"{name}: root {root}"
    print(f"{name}, {how}: {got_cause}, step {first['step']} {first['phase']} {got}, {len(result['roots'])} roots")


def on_a_gpu(names: list) -> None:
    clean = {}
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        for name, layout, more, expected in FAULTS:
            key = tuple(more)
            if names and name not in names:
                continue
            if key not in clean:
                clean[key] = record(where, f"clean-{name}", "tp2cp2", more)[0]
            good, _ = record(where, f"good-{name}", layout, [*more, "--device", "cuda"])
            code, result = first_diff(clean[key], good)
            assert code == 0 and result["verdict"] == "identical", f"no fault, {layout}: {result['verdict']}"
            bad, _ = record(where, name, layout, [*more, "--device", "cuda", "--plant", name])
            fault(clean[key], bad, name, expected, "on the GPU, against the CPU in another layout")


def main() -> None:
    if sys.argv[2:3] == ["cuda"]:
        on_a_gpu(sys.argv[3:])
        return
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        clean = clean_pairs(where)
        for name, layout, more, expected in FAULTS:
            key = tuple(more)
            if key not in clean:
                clean[key] = record(where, f"clean-{name}", "tp2cp2", more)[0]
            bad, _ = record(where, name, layout, [*more, "--plant", name])
            fault(clean[key], bad, name, expected, "another layout")
            if more == MINI:
                fault(clean["one rank"], bad, name, expected, "against one rank")
            # Under one layout rank by rank: an operator that combines ranks has the inputs of all of them.
            if (key, layout) not in clean:
                clean[key, layout] = record(where, f"same-{name}", layout, more)[0]
            fault(clean[key, layout], bad, name, expected, "the same layout")


main()
