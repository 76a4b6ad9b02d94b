"""The adapter's cost on a CPU training step: recorded minus plain, over what one thread needs to digest the same bytes.

usage: bench_adapter.py BUILD_DIR TRAIN.py PYTHON [ROUNDS]
Plain and recorded runs alternate; a run counts with its fastest step, the first two left out; the middle run of each kind.
Times are processor time, one computing thread and the recorder's writer included, so that a busy machine tells the same.
"""
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

STEPS = 8
MODEL = ["--hidden", "256", "--layers", "3", "--batch", "4", "--seq", "64", "--vocab", "1024", "--threads", "1", "--steps", str(STEPS),
         "--time"]


def steps(text):
    found = [float(t) for t in re.findall(r"cpu ([0-9.]+)", text)]
    assert len(found) == STEPS, text
    return min(found[2:])


def main(build, train, python, rounds=3):
    build = pathlib.Path(build).resolve()
    program = next(build.rglob("bench.adapter"))
    plain, recorded = [], []
    with tempfile.TemporaryDirectory() as tmp:
        for i in range(int(rounds) + 1):
            for record in (False, True):
                run = [build / "bin" / "rlkrec", "run", "-o", f"{tmp}/r{i}", "--"] if record else []
                done = subprocess.run([*run, python, train, *MODEL], capture_output=True, text=True, check=True)
                if i:  # the first builds the observer and warms the caches
                    (recorded if record else plain).append(steps(done.stdout))
        env = next(pathlib.Path(f"{tmp}/r{rounds}.rlk").glob("rank-*"))
        seconds, size, tensors = subprocess.run([program, env, "4"], capture_output=True, text=True, check=True).stdout.split()
    a, b, digest = statistics.median(plain), statistics.median(recorded), float(seconds)
    print(f"step {a * 1e3:.1f} ms plain, {b * 1e3:.1f} ms recorded at level op ({b / a:.2f}x); {int(tensors)} tensors, {int(size) / 1e6:.0f} MB digested a step")
    print(f"one thread, plain loop of xxHash calls: {digest * 1e3:.1f} ms; added time is {(b - a) / digest:.2f} times that")


if __name__ == "__main__":
    main(*sys.argv[1:])
