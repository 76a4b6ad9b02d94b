"""Every case of tests/cases/: synthesises its specs, runs rlkaudit first-diff, compares with expect.json.

usage: run_cases.py BIN_DIR [--set foundation] [--group NAME] [--only GLOB] [--list] [--table] [--properties]

A case is a folder: a.json, b.json, more specs (a2.json...), expect.json. Keys of expect.json, each optional:
  exit, verdict, complete, downstream, masked      compared as they are
  process_exit                                     the exit status, where it is not the `exit` of the JSON (--bisect)
  first, per_rank                                  compared as far as they go (a subset of the keys; a list by position, or
                                                   per_rank by "rank"); null must be null; "present" = anything but null
  roots                                            a number = how many; a list = exactly these, in any order, as subsets
  inserted, deleted                                how many
  contains                                         texts that the JSON holds somewhere
  notes_contain                                    texts that the notes hold, in lower case
  phases                                           X:Y: a.json alone, its phase X against its phase Y
  args, self_a, self_b                             arguments; files of the case folder as {NAME}; specs for --self-a/-b
  environment                                      differences that the environment's list holds, as subsets
  says, says_not                                   patterns found (found nowhere) in the notes and in the roots' evidence and next
  group                                            which ctest runs it
  comment
A value {"any": [..]} = one of these. Where a DIFF is expected, "mechanism" holds, each optional: class; also (exactly these);
also_only (none but these); named (each is the class or in also); never (neither); confidence (one or a list of them);
evidence, next (patterns, any case, each found in a line of it); evidence_not.

SET/pending.txt names cases that are known to fail, one a line: they do not fail the run; one that passes does, so that the
list can only shrink.
Exits 0 if all cases agree, 1 if not, 77 if the programs are not built.
"""
import argparse
import fnmatch
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def differs(want, got, path=""):
    """Sentences about where `got` is not at least `want`."""
    if want == "present" and path.endswith((".a", ".b")):
        return [] if got is not None else [f"{path}: is null"]
    if isinstance(want, dict) and set(want) == {"any"}:
        return [] if any(not differs(w, got, path) for w in want["any"]) else [f"{path}: expected one of {json.dumps(want['any'])}, got {json.dumps(got)}"]
    if isinstance(want, dict) and path.endswith("mechanism"):
        return mechanism_differs(want, got if isinstance(got, dict) else {}, path)
    if isinstance(want, dict):
        if not isinstance(got, dict):
            return [f"{path}: expected an object, got {json.dumps(got)}"]
        return [d for k, v in want.items() for d in differs(v, got.get(k, "(absent)"), f"{path}.{k}")]
    if isinstance(want, list) and path.endswith("per_rank"):
        by_rank = {r.get("rank"): r for r in got or []}
        return [d for r in want for d in differs(r, by_rank.get(r["rank"], "(absent)"), f"{path}[rank {r['rank']}]")]
    return [] if want == got else [f"{path}: expected {json.dumps(want)}, got {json.dumps(got)}"]


def unsaid(patterns, lines):
    return [p for p in patterns if not any(re.search(p, line, re.IGNORECASE) for line in lines)]


def mechanism_differs(want, got, path):
    """Sentences about where a mechanism is not the expected one."""
    unknown = set(want) - {"class", "also", "also_only", "named", "never", "confidence", "evidence", "evidence_not", "next"}
    assert not unknown, f"expect.json: {path}: {unknown}"
    name, also, lines = got.get("class"), got.get("also") or [], got.get("evidence") or []
    out = differs(want["class"], name, path + ".class") if "class" in want else []
    if "also" in want and sorted(want["also"]) != sorted(also):
        out.append(f"{path}.also: expected {want['also']}, got {also}")
    if "also_only" in want and set(also) - set(want["also_only"]):
        out.append(f"{path}.also: expected none but {want['also_only']}, got {also}")
    out += [f"{path}: {n} is neither class nor also ({name}, {also})" for n in want.get("named", []) if n not in [name, *also]]
    out += [f"{path}: {n} must not be named ({name}, {also})" for n in want.get("never", []) if n in [name, *also]]
    confidence = want.get("confidence", got.get("confidence"))
    if got.get("confidence") not in ([confidence] if isinstance(confidence, str) else confidence or [None]):
        out.append(f"{path}.confidence: expected {confidence}, got {got.get('confidence')}")
    out += [f"{path}.evidence: nothing says /{p}/ in {lines}" for p in unsaid(want.get("evidence", []), lines)]
    not_there = want.get("evidence_not", [])
    out += [f"{path}.evidence: says /{p}/" for p in set(not_there) - set(unsaid(not_there, lines))]
    return out + [f"{path}.next: does not say /{p}/: {got.get('next')}" for p in unsaid(want.get("next", []), [got.get("next") or ""])]


def roots_differ(want, got):
    if isinstance(want, dict) or isinstance(want, int):
        return differs(want, len(got), "roots")
    left, out = list(got), []
    for w in want:
        hit = next((g for g in left if not differs(w, g)), None)
        if hit is None:
            out.append(f"roots: none is {json.dumps(w)}")
        else:
            left.remove(hit)
    return out + [f"roots: unexpected {brief(g)}" for g in left]


def brief(diff):
    if not diff:
        return "-"
    keys = ("rank", "step", "pass", "module", "op", "role", "index", "name", "root")
    return " ".join(f"{k}={diff.get(k)}" for k in keys)


def judge(expect, code, report):
    """Sentences about how the run disagrees with expect.json; [] = it agrees."""
    out = []
    status = expect.get("process_exit", expect.get("exit", code))
    if code != status:
        out.append(f"exit: expected {status}, got {code}")
    if report is None:
        return out + ["no JSON"]
    if "exit" in expect and report.get("exit") != expect["exit"]:
        out.append(f"json exit: expected {expect['exit']}, got {report.get('exit')}")
    for key in ("verdict", "complete", "downstream", "masked", "first", "per_rank"):
        if key in expect:
            out += differs(expect[key], report.get(key), key)
    if expect.get("roots") is not None:
        out += roots_differ(expect["roots"], report.get("roots") or [])
    for key in ("inserted", "deleted"):
        n = len((report.get("alignment") or {}).get(key) or [])
        if key in expect and n != expect[key]:
            out.append(f"{key}: expected {expect[key]}, got {n}")
    text, notes = json.dumps(report), json.dumps(report.get("notes")).lower()
    out += [f"nowhere: {t}" for t in expect.get("contains", []) if t not in text]
    said = list(map(str, report.get("notes") or []))
    for r in report.get("roots") or []:
        m = r.get("mechanism") or {}
        said += [*(m.get("evidence") or []), m.get("next") or ""]
    out += [f"nothing says /{p}/ in {said}" for p in unsaid(expect.get("says", []), said)]
    out += [f"says /{p}/" for p in expect.get("says_not", []) if not unsaid([p], said)]
    for want in expect.get("environment", []):
        if all(differs(want, e) for e in report.get("environment") or []):
            out.append(f"environment: nothing is {json.dumps(want)}")
    out += [f"not in the notes: {t}" for t in expect.get("notes_contain", []) if t not in notes]
    return out


def run_case(folder, bin_dir, tmp):
    expect = json.loads((folder / "expect.json").read_text())
    for spec in sorted(folder.glob("*.json")):
        if spec.name != "expect.json" and '"rlk_synth"' in spec.read_text():
            p = subprocess.run([bin_dir / "rlkrec", "synth", spec, "-o", tmp / f"{spec.stem}.rlk"], capture_output=True,
                               text=True, timeout=120)
            if p.returncode:
                return expect, None, [f"rlkrec synth {spec.name}: exit {p.returncode}: {p.stderr.strip()}"]
    args = [a.replace("{", f"{folder}/").replace("}", "") for a in expect.get("args", [])]
    for option in ("self_a", "self_b"):
        for stem in expect.get(option, []):
            args += ["--" + option.replace("_", "-"), str(tmp / f"{stem}.rlk")]
    pair = [tmp / "a.rlk", "--phases", expect["phases"]] if "phases" in expect else [tmp / "a.rlk", tmp / "b.rlk"]
    p = subprocess.run([bin_dir / "rlkaudit", "first-diff", *pair, "--json", "-", *args], capture_output=True, text=True,
                       timeout=120)
    try:
        report = json.loads(p.stdout)
    except ValueError:
        return expect, None, [f"exit {p.returncode}, no JSON: {(p.stdout + p.stderr).strip()[:300]}"]
    return expect, report, judge(expect, p.returncode, report)


def first_diff(bin_dir, a, b):
    p = subprocess.run([bin_dir / "rlkaudit", "first-diff", a, b, "--json", "-"], capture_output=True, text=True, timeout=120)
    try:
        return p.returncode, json.loads(p.stdout)
    except ValueError:
        return p.returncode, None


def properties(folder, bin_dir, tmp):
    """What holds of every pair: a recording equals itself, and swapping the sides changes neither status nor roots."""
    expect = json.loads((folder / "expect.json").read_text())
    out = []
    for spec in sorted(folder.glob("*.json")):
        if spec.name == "expect.json" or '"rlk_synth"' not in spec.read_text():
            continue
        rec = tmp / f"{spec.stem}.rlk"
        subprocess.run([bin_dir / "rlkrec", "synth", spec, "-o", rec], check=True, capture_output=True, timeout=120)
        code, report = first_diff(bin_dir, rec, rec)
        if code not in (0, 4) or not report or report["first"] is not None or report["roots"]:
            out.append(f"{spec.name} against itself: exit {code}, first {brief((report or {}).get('first'))}")
    if (tmp / "b.rlk").exists():
        (code, ab), (back, ba) = (first_diff(bin_dir, tmp / x, tmp / y) for x, y in (("a.rlk", "b.rlk"), ("b.rlk", "a.rlk")))
        if code != back or not ab or not ba:
            out.append(f"swapped: exit {code} became {back}")
        else:
            sides = [sorted((r["module"], r["name"], r["role"], str(r["root"])) for r in x["roots"]) for x in (ab, ba)]
            if sides[0] != sides[1]:
                out.append(f"swapped: roots {sides[0]} became {sides[1]}")
    return expect, None, out


def self_test():
    """The comparison can fail, key by key, and is silent on what agrees."""
    report = {"exit": 1, "verdict": "diverged", "complete": True, "downstream": 2, "masked": 0,
              "first": {"op": "x", "root": True, "a": None}, "roots": [{"op": "x"}, {"op": "y"}],
              "per_rank": [{"rank": 0, "first": None}], "alignment": {"inserted": [{}], "deleted": []}, "notes": ["Seen"]}
    good = {"exit": 1, "verdict": "diverged", "first": {"op": "x", "a": None}, "roots": [{"op": "y"}, {"op": "x"}],
            "per_rank": [{"rank": 0, "first": None}], "inserted": 1, "deleted": 0, "contains": ["diverged"],
            "notes_contain": ["seen"], "downstream": 2}
    assert judge(good, 1, report) == []
    assert judge({"roots": 2}, 1, report) == []
    for key, wrong in {"exit": 0, "verdict": "identical", "first": {"op": "y"}, "roots": [{"op": "x"}], "inserted": 0,
                       "deleted": 1, "contains": ["nothing"], "notes_contain": ["nothing"], "downstream": 1,
                       "per_rank": [{"rank": 1, "first": None}]}.items():
        assert judge({key: wrong}, 1, report), key
    assert judge({"first": None}, 1, report) and judge({"first": {"a": "present"}}, 1, report)
    assert judge({"roots": 3}, 1, report) and judge({"exit": 1}, 0, report) and judge({"process_exit": 125}, 1, report)


def table_row(name, expect, report, verdict):
    """case, expected, got: one line."""
    def short(e):
        first = e.get("first") or {}
        first = first if isinstance(first, dict) else {}
        m = first.get("mechanism") or {}
        klass = m.get("class", "-")
        klass = "|".join(klass["any"]) if isinstance(klass, dict) else klass
        return f"{e.get('exit', '?')} {klass}"
    got = short(report) + (f" {((report.get('first') or {}).get('mechanism') or {}).get('confidence', '')}") if report else "-"
    return f"{verdict:7} {name:44} {short(expect):40} {got}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--set", default="foundation")
    parser.add_argument("--group", help="only cases of this group")
    parser.add_argument("--only", default="*")
    parser.add_argument("--properties", action="store_true", help="check what holds of every pair, not expect.json")
    parser.add_argument("--list", action="store_true", help="show agreeing cases too")
    parser.add_argument("--table", action="store_true", help="a line a case: expected and got")
    args = parser.parse_args()
    self_test()
    if not all((args.bin_dir / name).exists() for name in ("rlkrec", "rlkaudit")):
        print("rlkrec or rlkaudit is not built")
        return 77
    folders = [f.parent for f in sorted((HERE / args.set).glob("*/expect.json")) if fnmatch.fnmatch(f.parent.name, args.only)]
    if args.group:
        folders = [f for f in folders if json.loads((f / "expect.json").read_text()).get("group") == args.group]
    pending = pending_names(HERE / args.set)
    failed = waiting = 0
    for folder in folders:
        with tempfile.TemporaryDirectory(prefix="rlkcase") as tmp:
            expect, report, problems = (properties if args.properties else run_case)(folder, args.bin_dir, pathlib.Path(tmp))
        known = folder.name in pending and not args.properties
        verdict = ("pending" if problems else "PASSES") if known else ("FAIL" if problems else "ok")
        waiting += verdict == "pending"
        failed += verdict in ("FAIL", "PASSES")
        if args.table:
            print(table_row(folder.name, expect, report, verdict))
        if verdict == "PASSES":
            print(f"PASSES {folder.name}: take it out of pending.txt")
        elif verdict == "FAIL" or args.list:
            got = f"exit {report.get('exit')} {report.get('verdict')} first {brief(report.get('first'))}" if report else "-"
            want = f"exit {expect.get('exit')} {expect.get('verdict', '')} first {brief(expect.get('first'))}"
            print(f"{verdict} {folder.name}\n     expected {want}\n     got      {got}")
            for p in problems:
                print(f"       {p}")
    print(f"{len(folders) - failed - waiting} of {len(folders)} cases agree" + (f", {waiting} pending" if waiting else ""))
    return int(failed > 0 or not folders)


def pending_names(folder):
    """The cases that are known to fail; a name without a case is an error."""
    path = folder / "pending.txt"
    names = {n for n in path.read_text().split("\n") if n and not n.startswith("#")} if path.exists() else set()
    for n in names:
        if not (folder / n / "expect.json").exists():
            sys.exit(f"{path.name}: there is no case {n}")
    return names


if __name__ == "__main__":
    sys.exit(main())
