"""Reads what h200.sh's runs left behind and says in a few lines whether it is right.

usage: judge.py STAGE WORK OUT RLKREC RLKAUDIT     STAGE: grpo train tensors capture profile times sanitize
The runs' output is OUT/NAME.out and OUT/NAME.err, their recordings WORK/NAME.rlk. Exit 0: as it should be.
"""
import itertools
import json
import pathlib
import re
import subprocess
import sys

STAGE, WORK, OUT = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
RLKREC, RLKAUDIT = sys.argv[4:6]
FINE = {"alloc", "unused-output", "alias"}  # nobody could digest these
failed = []


def check(good, text):
    print(f"  {'ok  ' if good else 'FAIL'} {text}")
    if not good:
        failed.append(text)


def out(name):
    path = OUT / f"{name}.out"
    return path.read_text() if path.exists() else ""


def info(name):
    done = subprocess.run([RLKREC, "info", "--json", "-", WORK / f"{name}.rlk"], capture_output=True, text=True)
    if done.returncode not in (0, 4):
        print(f"  info {name}: {done.stderr.strip()[:300]}")
        return None
    (OUT / f"{name}.info.json").write_text(done.stdout)
    return json.loads(done.stdout)


def meta(facts):
    both = {}
    for e in facts["environments"]:
        both.update(e["meta"])
    return both


def coverage(name):
    """One line on what was digested; the recording's facts."""
    facts = info(name)
    if not facts:
        check(False, f"{name}: no recording")
        return None
    c, m = facts["coverage"], meta(facts)
    missing = {k: v for k, v in c["not_digested"].items() if k not in FINE}
    share = 100 * (1 - sum(missing.values()) / max(1, c["tensors"]))
    faults = {k: v for k, v in m.items() if "fault" in k}
    print(f"  {name}: {c['tensors']} tensors, {c['by_reference']} by reference, {share:.3f} % digested or referred to, not: {missing}; "
          f"launches {c['launches_recorded']}/{c['launches_seen']}, own {m.get('launches.own')}, dropped {c['dropped']}, stall {c['stall_ns'] / 1e6:.0f} ms, "
          f"complete {facts['complete']}, {facts['bytes'] / 1e6:.1f} MB")
    print(f"  {name}: gpu tensors {m.get('gpu.tensors')} launches {m.get('gpu.launches')} results {m.get('gpu.results')} memory "
          f"{int(m.get('gpu.device_bytes', 0)) / 1e6:.1f}+{int(m.get('gpu.host_bytes', 0)) / 1e6:.1f} MB; faults {faults}")
    return facts


def diff(a, b):
    """Exit status and JSON of first-diff."""
    path = OUT / f"diff.{a}.{b}.json"
    done = subprocess.run([RLKAUDIT, "first-diff", WORK / f"{a}.rlk", WORK / f"{b}.rlk", "--json", path], capture_output=True, text=True)
    (OUT / f"diff.{a}.{b}.txt").write_text(done.stdout + done.stderr)
    return done.returncode, json.loads(path.read_text()) if path.exists() else {}


def name_of(d):
    return f"step {d['step']} {d['phase']} {d['pass']} {d['module']} {d['op']}@{d['occurrence']} {d['role']}{d['index']} {d['name']}" if d else None


def grpo():
    plain = out("grpo.plain")
    check(bool(plain), f"unrecorded: {len(plain.splitlines())} lines")
    for name in ("grpo.a", "grpo.b"):
        check(plain and out(name) == plain, f"{name}: stdout equal to the unrecorded run's")
        facts = coverage(name)
        if facts:
            missing = sum(v for k, v in facts["coverage"]["not_digested"].items() if k not in FINE)
            check(missing <= 0.001 * facts["coverage"]["tensors"], f"{name}: {missing} tensors without a digest")
    rc, found = diff("grpo.a", "grpo.b")
    check(rc == 0, f"first-diff of two recordings: exit {rc}, compared {found.get('scope', {}).get('compared')}, first {name_of(found.get('first'))}")
    if rc == 1:
        for d in found["roots"][:8]:
            print(f"    root {d['root']}: {name_of(d)}")


def losses(text):
    return re.findall(r"loss (\S+)", text)


def train():
    names = [p.name[:-4] for p in sorted(WORK.glob("train.*.rlk"))]
    plain = losses(out("train.plain"))
    check(len(names) >= 2 and bool(plain), f"{len(names)} recordings, unrecorded: {len(plain)} losses")
    good = [n for n in names if losses(out(n))]
    check(all(losses(out(n))[:1] == plain[:1] for n in good), f"step-0 loss as unrecorded: {plain[:1]} {[losses(out(n))[0] for n in good]}")
    if good:
        coverage(good[0])
    roots = set()
    for a, b in itertools.combinations(good, 2):
        x, y = losses(out(a)), losses(out(b))
        apart = next((i for i, (p, q) in enumerate(zip(x, y)) if p != q), None)
        rc, found = diff(a, b)
        first = found.get("first") or {}
        true = [d for d in found.get("roots", []) if d["root"] is True]
        kernels = [[k["kernel"] for k in (first.get(side) or {}).get("launches", [])] for side in "ab"]
        text = f"{a} {b}: losses part at {apart}, exit {rc}, {len(true)} of {len(found.get('roots', []))} roots true, downstream {found.get('downstream')}, first {name_of(first)}"
        if apart is None:
            print(f"  --   {text}")
        else:
            check(rc == 1 and len(true) > 0 and all(kernels), text)
            print(f"       kernels {[k[:1] for k in kernels]} difference {json.dumps(first.get('difference'))[:160]}")
        roots |= {(d["op"], d["index"]) for d in true}
    print(f"  (operator, output) of all true roots: {sorted(roots)[:12]}")


def tensors():
    check(out("tensors.cpu") == out("tensors.gpu") != "", f"prints the same on both: {out('tensors.gpu').strip()[:60]}")
    coverage("tensors.gpu")
    rc, found = diff("tensors.cpu", "tensors.gpu")
    check(rc == 0, f"digests of the device = the host's: exit {rc}, compared {found.get('scope', {}).get('compared')}, skipped "
          f"{found.get('scope', {}).get('skipped')} {found.get('scope', {}).get('reasons')} {found.get('not_comparable')}, first {name_of(found.get('first'))}")
    for d in found.get("roots", [])[:6] if rc == 1 else []:
        print(f"    root {d['root']}: {name_of(d)}")


def capture():
    check("replays right" in out("capture"), out("capture").strip() or "no output")
    facts = coverage("capture")
    if not facts:
        return
    check(facts["coverage"]["not_digested"].get("capture", 0) > 0, f"marked: {facts['coverage']['not_digested']}")
    shown = subprocess.run([RLKREC, "info", "--events", WORK / "capture.rlk"], capture_output=True, text=True).stdout
    (OUT / "capture.events").write_text(shown)
    values = [m.group(2) for m in re.finditer(r"aten::neg@(\d+).*? out0 \S* ?fp32\[4096\] (\S+)", shown)]
    pairs = list(zip(values[0::2], values[1::2]))
    check(len(pairs) == 3 and all(x == y for x, y in pairs) and len(set(pairs)) == 3, f"digests after each replay: {pairs}")


def profile():
    found = re.search(r"kernels (\d+) own (\d+)", out("profile"))
    facts = coverage("profile")
    if not found or not facts:
        check(False, f"no count: {out('profile').strip()[:200]}")
        return
    m = meta(facts)
    kernels, own = map(int, found.groups())
    check(kernels == int(m.get("launches.recorded", -1)), f"torch.profiler: {kernels} kernels, recorded {m.get('launches.recorded')}")
    check(own == int(m.get("launches.own", -1)), f"torch.profiler: {own} of ours, counted {m.get('launches.own')}, digest launches {m.get('gpu.launches')}")
    print(f"  counts {({k: v for k, v in m.items() if k.startswith('launches.')})}")


def sanitize():
    text = out("sanitize") + (OUT / "sanitize.err").read_text() if (OUT / "sanitize.err").exists() else out("sanitize")
    summary = [line for line in text.splitlines() if "ERROR SUMMARY" in line or "Error:" in line]
    check(any("ERROR SUMMARY: 0 errors" in s for s in summary), f"memcheck: {summary[:2]}")
    facts = coverage("sanitize")
    said = [line for line in text.splitlines() if "rlkrec: launch-plane" in line]
    check(bool(said), f"says who took the place: {said[:1]}")
    if facts:
        check(any("launch-plane" in k for k in meta(facts)), "the recording is marked")


def times():
    for group in ("launch", "gpu"):
        folder = WORK / f"times.{group}"
        rows = {}
        for path in folder.glob("times.*.json") if folder.exists() else []:
            values = sorted(json.loads(path.read_text())["ms"])
            rows[path.name[6:-5]] = values[len(values) // 2]
        if "plain" not in rows:
            print(f"  {group}-bound: no times ({sorted(rows)})")
            continue
        order = ["plain", "launch", "step", "module", "op", "digest", "DebugMode"]
        print(f"  {group}-bound ms a step: " + ", ".join(f"{r} {rows[r]:.2f} ({rows[r] / rows['plain']:.3f}x)" for r in order if r in rows))
        (OUT / f"times.{group}.json").write_text(json.dumps(rows))


globals()[STAGE]()
sys.exit(1 if failed else 0)
