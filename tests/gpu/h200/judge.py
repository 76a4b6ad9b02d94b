"""Reads what h200.sh's runs left behind and says in a few lines whether it is right.

usage: judge.py STAGE WORK OUT RLKREC RLKAUDIT     STAGE: a function below
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


def err(name):
    path = OUT / f"{name}.err"
    return path.read_text() if path.exists() else ""


def events(name):
    shown = subprocess.run([RLKREC, "info", "--events", WORK / f"{name}.rlk"], capture_output=True, text=True).stdout
    (OUT / f"{name}.events").write_text(shown[:200000])
    return shown.splitlines()


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


def same_output(plain, name):
    """The recorded run printed what the unrecorded one did, and has a digest of everything."""
    check(plain and out(name) == plain, f"{name}: stdout equal to the unrecorded run's")
    facts = coverage(name)
    if facts:
        missing = sum(v for k, v in facts["coverage"]["not_digested"].items() if k not in FINE)
        check(missing <= 0.001 * facts["coverage"]["tensors"], f"{name}: {missing} tensors without a digest")
        check(facts["coverage"]["dropped"] == 0, f"{name}: {facts['coverage']['dropped']} events dropped")
    return facts


def clean(a, b):
    rc, found = diff(a, b)
    check(rc == 0, f"first-diff {a} {b}: exit {rc}, compared {found.get('scope', {}).get('compared')}, first {name_of(found.get('first'))}")
    if rc == 1:
        for d in found["roots"][:8]:
            print(f"    root {d['root']}: {name_of(d)}")


def grpo():
    plain = out("grpo.plain")
    check(bool(plain), f"unrecorded: {len(plain.splitlines())} lines")
    for name in ("grpo.a", "grpo.b", "grpo.profiled"):
        same_output(plain, name)
    clean("grpo.a", "grpo.b")
    clean("grpo.a", "grpo.profiled")
    print("  under torch.profiler: " + " ".join(err("grpo.profiled").splitlines()[-2:]))


def levels():
    plain = out("grpo.plain")
    for name in ("levels.launch", "levels.step", "levels.module", "levels.digest"):
        same_output(plain, name)


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
        kernels = [[k["kernel"] for k in (first.get(side) or {}).get("launches", [])] for side in "ab"]  # a memset goes by its entry point
        text = f"{a} {b}: losses part at {apart}, exit {rc}, {len(true)} of {len(found.get('roots', []))} roots true, downstream {found.get('downstream')}, first {name_of(first)}"
        if apart is None:
            print(f"  --   {text}")
        else:
            check(rc == 1 and len(true) > 0 and all(kernels), text)
            print(f"       {len(kernels[0])} kernels on both sides alike: {kernels[0] == kernels[1]}, {[k[:24] for k in kernels[0]]}; difference {json.dumps(first.get('difference'))[:160]}")
        roots |= {(d["op"], d["index"], d["role"]) for d in true}
    print(f"  (operator, output) of all true roots: {sorted(roots)[:12]}")
    path = OUT / "repeat.json"
    if path.exists():
        vary = {(v["op"], v["index"], "out") for v in json.loads(path.read_text())["vary"]}
        check(roots <= vary, f"a subset of those that do not repeat on their own inputs: {sorted(v[:2] for v in vary)[:12]}; not among them: {sorted(roots - vary)}")


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
    """torch.profiler's count of kernels = the launches recorded and those of ours."""
    plain = re.search(r"kernels (\d+) own (\d+)", err("profile.plain"))
    check(plain and int(plain[1]) > 0, f"torch.profiler without the recorder: {plain and plain[0]}")
    for name in ("profile", "profile.late"):
        found, facts = re.search(r"kernels (\d+) own (\d+)", err(name)), info(name)
        if not found or not facts:
            check(False, f"{name}: no count: {err(name).strip()[-300:]}")
            continue
        m = meta(facts)
        kernels, own = map(int, found.groups())
        before = 1 if name == "profile.late" else 0  # the kernel that started CUDA, and its digest
        check(kernels > 0 and kernels == int(m.get("launches.recorded", -1)) - before, f"{name}: torch.profiler {kernels} kernels, recorded {m.get('launches.recorded')}")
        check(own == int(m.get("launches.own", -1)) - before, f"{name}: torch.profiler {own} of ours, counted {m.get('launches.own')}, digest launches {m.get('gpu.launches')}")
        print(f"  {name}: {({k: v for k, v in m.items() if k.startswith('launches.')})}")


def graph():
    """Nodes recorded = replays x nodes of the graph, which the driver was asked for."""
    for name in ("graph", "graph.launch"):
        found, facts = re.search(r"graphs (\[.*\])", err(name)), info(name)
        if not found or not facts:
            check(False, f"{name}: {err(name).strip()[-300:]}")
            continue
        want = json.loads(found[1])
        lines = events(name)
        definitions = [x for x in lines if "graph.definition" in x]
        replays = sum("cuGraphLaunch" in x for x in lines)
        nodes = [len(re.findall(r" graph=", d)) for d in definitions]
        check(nodes == [n for n, _ in want], f"{name}: nodes of the definitions {nodes}, of the graphs {want}")
        check(replays == sum(r for _, r in want) > 0, f"{name}: {replays} replays recorded")
        m = meta(facts)
        total = {k: int(v) for k, v in m.items() if k.startswith("launches.")}
        check(total["launches.seen"] == sum(v for k, v in total.items() if k != "launches.seen"), f"{name}: {total}")


OUTPUT = re.compile(r"^#\d+ (r\d+ s\S+ .*?)( \| .*)$")


def outputs(name, steps):
    """{(who, output): digest} of the operators' outputs of some steps, with payload marks; the steps there are."""
    found, seen = {}, set()
    for line in events(name):
        m = OUTPUT.match(line)
        if not m:
            continue
        step = int(m[1].split()[1][1:])
        seen.add(step)
        for part in m[2].split(" | "):
            if part.startswith("out") and step in steps:
                who = (m[1], part.split(" ")[0])
                found.setdefault(who, []).append(part)
    return found, seen


def options():
    whole, steps = outputs("options.all", range(100))
    check(len(steps) >= 6, f"all: steps {sorted(steps)}")
    for name, want in (("options.every", {0, 2, 4, 6}), ("options.last", set(sorted(steps)[-2:]))):
        got, seen = outputs(name, range(100))
        mine = {k: v for k, v in whole.items() if int(k[0].split()[1][1:]) in seen}
        check(seen == want & steps, f"{name}: steps {sorted(seen)}")
        check(len(got) > 100 and got == mine, f"{name}: {len(got)} outputs, {sum(got.get(k) != v for k, v in mine.items())} otherwise than in the whole recording")
    facts = info("options.size")
    if facts:
        m = meta(facts)
        size = [e["bytes"] for e in facts["environments"]]
        check(max(size) <= 2 * 250 * 1024 and any("size" in v or "size" in k for k, v in m.items() if "fault" in k), f"options.size: {size} bytes, {[k for k in m if 'fault' in k]}, complete {facts['complete']}")
        got, _ = outputs("options.size", range(100))
        check(0 < len(got) < len(whole) and all(whole.get(k) == v for k, v in got.items()), f"options.size: {len(got)} outputs of {len(whole)}, as in the whole recording")


def payload():
    check(out("payload.a") == out("payload.b") != "", "prints the same")
    kept = [x for x in events("payload.a") if " payload" in x]
    check(len(kept) >= 5, f"{len(kept)} events with bytes")
    rc, _ = diff("payload.a", "payload.b")
    check(rc == 0, f"two clean ones: exit {rc}")
    rc, found = diff("payload.a", "payload.c")
    d = (found.get("roots") or [{}])[0]
    difference = d.get("difference") or {}
    check(rc == 1 and len(found["roots"]) == 1 and d["root"] is True and d["op"] == "planted::scale", f"planted: exit {rc}, {name_of(d) if d else None}")
    want = {"elements": 6144, "changed": 3, "max_ulp": 1, "first_index": [40, 5]}
    check({k: difference.get(k) for k in want} == want, f"planted: {({k: difference.get(k) for k in [*want, 'pattern']})}")


def tools():
    """Where another tool holds CUPTI: named, the recording marked, tensors digested."""
    for path in sorted(WORK.glob("tools.*.rlk")):
        name = path.name[:-4]
        text, facts = out(name) + err(name), info(name)
        said = [x for x in text.splitlines() if "rlkrec" in x and ("launch" in x or "CUPTI" in x)]
        check("sum " in text, f"{name}: the program ran: {[x for x in text.splitlines() if x.startswith('sum ')]}")
        check(bool(said), f"{name}: says {said[:1]}")
        if facts:
            check(any("launch-plane" in k for k in meta(facts)), f"{name}: the recording is marked")
            check(facts["coverage"]["tensors"] > 5 and not {k: v for k, v in facts["coverage"]["not_digested"].items() if k not in FINE}, f"{name}: {facts['coverage']['tensors']} tensors digested")


def sticky():
    """The program's own CUDA error reaches it as it would have; the recording says what it lost."""
    plain = out("sticky.plain")
    check("assert" in plain and out("sticky") == plain, f"told the same: {out('sticky').splitlines()} {'' if out('sticky') == plain else plain}")
    facts = info("sticky")
    if facts:
        print(f"  sticky: {facts['coverage']['tensors']} tensors, not digested {facts['coverage']['not_digested']}, {[v[:90] for k, v in meta(facts).items() if 'fault' in k]}")


def fresh():
    check(out("fresh.a") == out("fresh.b") != "", f"prints the same: {out('fresh.a').strip()}")
    rc, found = diff("fresh.a", "fresh.b")
    roots = [(d["root"], d["op"], d["role"], d["index"]) for d in found.get("roots", [])]
    # what fills the memory with other bytes is an operator of its own, with another argument: a root indeed
    roots = [r for r in roots if r[1] != "aten::full"]
    check(rc == 1 and roots and not any(r[0] is True for r in roots), f"no root is called true: exit {rc}, {roots}")
    marked = [x for x in events("fresh.a") if "undefined(uninitialized)" in x]
    check(len(marked) == 2, f"{len(marked)} inputs undefined: {[re.sub(' .*? op ', ' op ', m)[:100] for m in marked]}")


def repeat():
    path = OUT / "repeat.json"
    if not path.exists():
        return check(False, err("repeat")[-300:])
    found = json.loads(path.read_text())
    check(not found["failed"], f"not repeated: {found['failed']}")
    check(any("backward" in op for op in found["seen"]), "sees operators of the backward pass")
    print(f"  {found['calls']} calls of {found['operators']} operators, {found['runs']} runs on clones (at most {found['times']} of a call), {found['late']} calls too late; bits vary: {[(v['op'], v['index'], v['calls']) for v in found['vary']]}")


def doctor():
    print("\n".join("  " + x for x in out("doctor").splitlines()))
    check("fail" not in [x.split()[0] for x in out("doctor").splitlines() if x], "no check fails")


def simply(name):
    rc = OUT / f"{name}.rc"
    check(rc.exists() and rc.read_text().strip() == "0", f"{name}: {(out(name) + err(name)).strip().splitlines()[-1:]}")


def digest():
    simply("digest")


def launches():
    simply("launches")


def plan():
    print("  plan:", (OUT / "plan.txt").read_text().splitlines()[1:4] if (OUT / "plan.txt").exists() else None)
    path = OUT / "planned.json"
    if not path.exists():
        return check(False, "no result of the planned recordings")
    found = json.loads(path.read_text())
    d = found.get("first") or {}
    difference = d.get("difference") or {}
    print(f"  planned: {found['verdict']}, {name_of(d) if d else None}, root {d.get('root')}, {d.get('mechanism', {}).get('class')} ({d.get('mechanism', {}).get('confidence')})")
    check(difference.get("changed") is not None, f"measured from bytes: {({k: v for k, v in difference.items() if k in ('elements', 'changed', 'max_ulp', 'max_abs', 'first_index', 'pattern')})}")
    repeats = OUT / "plan.repeats.json"
    if repeats.exists():
        d = json.loads(repeats.read_text()).get("first") or {}
        print(f"  with repeats: {name_of(d) if d else None}, {d.get('mechanism', {}).get('class')} ({d.get('mechanism', {}).get('confidence')}), {d.get('mechanism', {}).get('evidence')}")


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
