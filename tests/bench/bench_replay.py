"""The reference workload: what recording adds, what a replay on 8 virtual ranks costs against a step on one, how long
first-diff of two layouts takes, and weight export beside training. Processor time of the program with all its children
(user and system), medians over rounds that run every side in turn; first-diff by the wall. Prints, asserts no time.

usage: bench_replay.py BIN_DIR [ROUNDS, default 5] [rlktrain options, default --steps 2]
"""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BIN = pathlib.Path(sys.argv[1]).resolve()
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
OPTIONS = sys.argv[3:] or ["--steps", "2"]
RECORDED = ("tp1cp1", "tp2cp4", "tp4cp2", "tp8cp1")


def run(*argv, want=0):
    """Wall seconds, processor seconds, standard output."""
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        p = subprocess.Popen([str(a) for a in argv], stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(p.pid, 0)
        wall = time.perf_counter() - start
        p.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode()
    assert p.returncode == want, f"{argv}: exit {p.returncode}"
    return wall, usage.ru_utime + usage.ru_stime, text


def parts(text):
    """Sums over the steps of one run of what rlktrain says of its times."""
    total = {}
    for line in text.splitlines():
        for name, value in json.loads(line).items():
            if name.startswith("perf/"):
                total[name] = total.get(name, 0.0) + value
    return total


def main():
    alone, recorded, replayed, whole, walls, export = {}, {}, {}, [], [], []
    with tempfile.TemporaryDirectory(prefix="rlkbench") as folder:
        where = pathlib.Path(folder)
        for _ in range(ROUNDS):
            for layout in RECORDED:
                alone.setdefault(layout, []).append(run(BIN / "rlktrain", "--layout", layout, *OPTIONS)[1])
                out = where / f"{layout}.rlk"
                shutil.rmtree(out, ignore_errors=True)
                _, cpu, text = run(BIN / "rlkrec", "run", "-q", "-o", out, "--", BIN / "rlktrain", "--layout", layout, *OPTIONS)
                recorded.setdefault(layout, []).append(cpu)
                if layout == "tp1cp1":
                    p = parts(text)
                    export.append([p["perf/weight_export_time"], p["perf/weight_hash_time"], p["perf/train_time"], p["perf/step_time"]])
                # one replay, as the child of rlkreplay does it, unrecorded like the step that it is held against
                replayed.setdefault(layout, []).append(run(BIN / "rlkreplay", "--run", "--as-recorded", "--layout", layout,
                                                           "--rollout-layout", layout.split("cp")[0] + "cp1", where / "tp1cp1.rlk")[1])
            walls.append(run(BIN / "rlkaudit", "first-diff", where / "tp4cp2.rlk", where / "tp2cp4.rlk")[0])
            whole.append(run(BIN / "rlkreplay", where / "tp4cp2.rlk", "--layout", "tp2cp4")[1])
    one = statistics.median(alone["tp1cp1"])
    print(f"rlktrain {' '.join(OPTIONS)}, {ROUNDS} rounds, processor seconds")
    for layout in RECORDED:
        a, r, p = (statistics.median(side[layout]) for side in (alone, recorded, replayed))
        print(f"  {layout}: alone {a:.2f}, recorded {r:.2f} ({r / a - 1:+.0%}; goal at most +20%), replayed from the recording of tp1cp1 "
              f"{p:.2f} ({p / one:.2f} of the run at tp1cp1; goal at most 1.5)")
    print(f"  rlkreplay tp4cp2 at tp2cp4, self check and replay, both recorded, both compared: {statistics.median(whole):.2f}")
    print(f"  first-diff of tp4cp2 and tp2cp4: {statistics.median(walls):.3f} s wall (goal under 1)")
    out, digest, train, step = (statistics.median(column) for column in zip(*export))
    print(f"  weight export {out * 1e3:.1f} ms and its hashes {digest * 1e3:.1f} ms beside {train:.2f} s of training ({(out + digest) / step:.1%} of the steps)")


main()
