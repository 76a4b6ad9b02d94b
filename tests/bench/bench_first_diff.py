"""first-diff of two generated recordings that differ in one late tensor: time and memory. Fails past the goals.

usage: bench_first_diff.py BIN_DIR GEN_RECORDING [EVENTS]      goals: under 1 s and 200 MB at 10,000,000 events,
under 5 s with 1,024 processes; a page under 2 MB
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time


def generate(gen, out, events, steps, ranks, change, each=False):
    args = [gen, out, "-n", str(events), "-m", str(steps), "-r", str(ranks)] + (["-c", str(change)] if change else []) + (
        ["-e", "1"] if each else [])
    subprocess.run(args, check=True)


def measure(bin_dir, a, b, code, tmp):
    with open(f"{tmp}/report.json", "w") as out:
        start = time.monotonic()
        p = subprocess.Popen([bin_dir / "rlkaudit", "first-diff", a, b, "--json", "-"], stdout=out)
        _, status, usage = os.wait4(p.pid, 0)
        seconds = time.monotonic() - start
    p.returncode = os.waitstatus_to_exitcode(status)
    assert p.returncode == code, p.returncode
    return seconds, usage.ru_utime, usage.ru_maxrss / 1000, json.loads(pathlib.Path(out.name).read_text())


def page(bin_dir, tmp, n, name):
    """The page of the result just measured; true if it is past the goal."""
    start = time.monotonic()
    subprocess.run([bin_dir / "rlkaudit", "show", f"{tmp}/report.json", "--html", f"{tmp}/report.html"], check=False)
    seconds, size = time.monotonic() - start, os.path.getsize(f"{tmp}/report.html")
    ok = seconds < 1 and size < 2_000_000
    print(f"{n:>10} events, {name:<20} {'its page':<16} {seconds:7.3f} s wall, {size / 1000:.0f} kB{'' if ok else '   OVER THE GOAL'}")
    return not ok


def main():
    bin_dir, gen = pathlib.Path(sys.argv[1]), sys.argv[2]
    events = int(sys.argv[3]) if len(sys.argv) > 3 else 10_000_000
    failed = False
    with tempfile.TemporaryDirectory(prefix="rlkbench") as tmp:
        for name, steps, ranks in (("100 steps", 100, 1), ("one step", 1, 1), ("64 ranks, 10 steps", 10, 64)):
            n = events if ranks == 1 and steps > 1 else events // 5
            late = n * 99 // 100
            a, b = f"{tmp}/a{steps}.{ranks}.rlk", f"{tmp}/b{steps}.{ranks}.rlk"
            generate(gen, a, n, steps, ranks, 0)
            generate(gen, b, n, steps, ranks, late)
            for what, x, y, code in (("one late tensor", a, b, 1), ("equal", a, a, 0)):
                seconds, user, peak, report = measure(bin_dir, x, y, code, tmp)
                ok = seconds < 1 and peak < 200
                failed |= not ok
                print(f"{n:>10} events, {name:<20} {what:<16} {seconds:7.3f} s wall {user:7.3f} s user, peak {peak:6.1f} MB"
                      f"{'' if ok else '   OVER THE GOAL'}")
                if code:
                    assert report["first"]["a"]["event"] == late and len(report["roots"]) == 1, report["first"]
                    failed |= page(bin_dir, tmp, n, name)
    if events >= 10_000_000:  # one process a rank: 1,024 environments; 102,400,000 events are the goal's
        n = events // 4096 * 4096
        with tempfile.TemporaryDirectory(prefix="rlkbench") as tmp:
            a, b, late = f"{tmp}/a.rlk", f"{tmp}/b.rlk", n * 99 // 100 // 1024 * 1024
            generate(gen, a, n, 4, 1024, 0, each=True)
            generate(gen, b, n, 4, 1024, late, each=True)
            seconds, user, peak, report = measure(bin_dir, a, b, 1, tmp)
            failed |= seconds >= 5
            print(f"{n:>10} events, 1024 processes, 4 steps one late tensor  {seconds:7.3f} s wall {user:7.3f} s user, peak {peak:6.1f} MB"
                  f"{'' if seconds < 5 else '   OVER THE GOAL'}")
            failed |= page(bin_dir, tmp, n, "1024 processes")
            assert len(report["roots"]) == 1 and report["first"]["rank"] == 0, report["first"]
    return int(failed)


sys.exit(main())
