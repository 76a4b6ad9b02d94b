"""Every edit in the specs of tests/cases/ changes at least one element on some rank: a planted fault that plants nothing
would make a case pass for the wrong reason. Evaluated by reference.py. usage: test_cases.py ROOT"""
import functools
import json
import math
import pathlib
import sys

import reference as ref

EXEMPT = {"every_key"}  # there for its grammar


@functools.lru_cache(maxsize=None)
def generated(fill, dtype, numel):
    return ref.fill(json.loads(fill), dtype, numel, {})


def evaluate(t, names, rank, changed, where):
    """The tensor's bits on this rank; adds the edits that changed something to `changed`."""
    fill, numel = t.get("fill", {"const": 0}), math.prod(t["shape"])
    if "like" in fill or "cast_of" in fill:
        bits = ref.fill(fill, t["dtype"], numel, names)
    else:
        bits = generated(json.dumps(fill), t["dtype"], numel)
    for i, e in enumerate(t.get("edit", [])):
        before = bits
        bits = ref.change(e["change"], t["dtype"], t["shape"], bits, ref.mask(e["mask"], t["shape"], numel, rank), names)
        changed.setdefault(where + (i,), False)
        changed[where + (i,)] |= bits != before
    names[t["name"]] = (t["dtype"], bits)


def idle_edits(spec):
    changed = {}
    for rank in range(spec.get("ranks", 1)):
        names = {}
        for n, e in enumerate(spec["events"]):
            if rank not in e.get("ranks", [rank]):
                continue
            for key in ("in", "out", "tensors"):
                for i, t in enumerate(e.get(key, [])):
                    evaluate(t, names, rank, changed, (n, key, i))
    return [f"events[{n}].{key}[{i}].edit[{j}]" for (n, key, i, j), yes in changed.items() if not yes], len(changed)


def main():
    root = pathlib.Path(sys.argv[1])
    idle = {"rlk_synth": 1, "events": [{"op": "a", "out": [{"name": "x", "dtype": "fp32", "shape": [4], "edit": [
        {"mask": {"range": [0, 0]}, "change": {"ulp": 1}}, {"mask": {"all": True}, "change": {"ulp": 1}}]}]}]}
    assert idle_edits(idle) == (["events[0].out[0].edit[0]"], 2), "the check can fail"
    found = total = 0
    for path in sorted((root / "tests/cases").rglob("*.json")):
        spec = json.loads(path.read_text())
        if not isinstance(spec, dict) or "rlk_synth" not in spec or path.parent.name in EXEMPT:
            continue
        idle, n = idle_edits(spec)
        total += n
        for place in idle:
            found += 1
            print(f"{path.parent.name}/{path.name}: {place} changes nothing")
    print(f"{total} edits, {found} of them idle")
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
