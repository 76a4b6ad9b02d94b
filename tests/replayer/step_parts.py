"""What the parts of a step take: the median of all steps but the first, ms. usage: step_parts.py FILE... (what rlktrain printed)"""
import json
import pathlib
import statistics
import sys

for path in sys.argv[1:]:
    lines = [json.loads(x) for x in pathlib.Path(path).read_text().splitlines() if x.startswith("{")]
    steps = [x for x in lines if x["event"] == "step"][1:]
    hashes = [x["perf/hash_time"] for x in lines if x["event"] == "weights" and "perf/hash_time" in x][1:]
    if not steps:
        continue
    print(pathlib.Path(path).stem)
    for key in steps[0]:
        if key.startswith("perf/") and key.endswith("_time"):
            print(f"  {key[5:-5]:20} {1e3 * statistics.median(s[key] for s in steps):10.1f}")
    if hashes:
        print(f"  {'hash, printed':20} {1e3 * statistics.median(hashes):10.1f}")
