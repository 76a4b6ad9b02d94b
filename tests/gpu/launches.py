"""Records cuda_raw: every launch recorded or explained, results unchanged, graphs named node by node.

usage: launches.py --rlkrec PATH --program PATH [--threads 8] [--launches 1000] [--replays 1000]
Exit 77 without a device.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ap = argparse.ArgumentParser()
ap.add_argument("--rlkrec", required=True)
ap.add_argument("--program", required=True)
ap.add_argument("--threads", default="8")
ap.add_argument("--launches", default="1000")
ap.add_argument("--replays", default="1000")
a = ap.parse_args()
command = [a.program, "--threads", a.threads, "--launches", a.launches, "--replays", a.replays]


def words(text):
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)


plain = subprocess.run(command, capture_output=True, text=True)
if plain.returncode == 77 or (plain.returncode == 127 and "libcuda.so.1" in plain.stderr):
    print("skipped: no CUDA device" + ("" if plain.returncode == 77 else " and no driver"))
    sys.exit(77)
assert plain.returncode == 0, plain.stderr
with tempfile.TemporaryDirectory() as tmp:
    out = pathlib.Path(tmp) / "raw.rlk"
    run = subprocess.run([a.rlkrec, "run", "-o", str(out), "--", *command], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    print(run.stderr.strip())
    assert run.stdout == plain.stdout, f"recording changed the program: {plain.stdout!r} {run.stdout!r}"
    made = int(words(run.stdout)["launches"])
    # 4: no tensor was seen in a program without a framework, and info says so
    shown = subprocess.run([a.rlkrec, "info", "--json", "-", str(out)], capture_output=True, text=True)
    assert shown.returncode in (0, 4), shown.stderr
    info = json.loads(shown.stdout)
    meta = {}
    for env in info.get("environments", info.get("envs", [])):
        meta.update(env.get("meta", {}))
    counts = {k.split(".", 1)[1]: int(v) for k, v in meta.items() if k.startswith("launches.")}
    print("made", made, "counts", counts)
    assert counts["seen"] == sum(v for k, v in counts.items() if k != "seen")
    assert counts["recorded"] == made, (counts, made)
    assert counts["failed"] == 1 and counts["captured"] == 2 and counts["dropped"] == 0, counts
    assert info["coverage"]["launches_recorded"] == made and info["coverage"]["launches_seen"] == counts["seen"], info["coverage"]
    dump = subprocess.run([a.rlkrec, "info", "--events", str(out)], capture_output=True, text=True).stdout
    lines = dump.splitlines()
    definitions = [x for x in lines if "graph.definition" in x]
    replays = [x for x in lines if "cuGraphLaunch" in x]
    for want, grids in (("add_one", ["[1,1,1]", "[2,1,1]", "[1,1,1]"]),):
        got = [d[d.index(want):].split("]", 1)[0].split("[")[1] for d in definitions]
        assert ["[" + g + "]" for g in got] == grids, definitions # the updated one has the other grid
    print("definitions", len(definitions), "replays", len(replays))
    assert len(definitions) == 3 and len(replays) == 3 * int(a.replays), (len(definitions), len(replays))
    verify = subprocess.run([a.rlkrec, "verify", str(out)], capture_output=True, text=True)
    assert verify.returncode == 0, verify.stdout + verify.stderr
print("every launch recorded or explained")
