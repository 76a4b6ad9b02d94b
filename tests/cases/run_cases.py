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
  accept                                           {"from": [A, B], "bound", "expired"}: an accept file made from A and B, for --accept
  tamper                                           {"recording", "find", "replace"}: bytes (hex) exchanged before the comparison
  json: false, says_stderr                         no JSON is expected; patterns that stderr holds
  text_is_inert                                    the text output holds no control characters
  check: true                                      rlkaudit check a.json: exit, verdict, complete, says, and
  findings, examined                               as roots; {check: at least so many comparisons}
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
import subprocess
import sys
import tempfile

from judge import brief, judge, self_test, unsaid

HERE = pathlib.Path(__file__).resolve().parent


def run_case(folder, bin_dir, tmp):
    expect = json.loads((folder / "expect.json").read_text())
    for spec in sorted(folder.glob("*.json")):
        if spec.name != "expect.json" and '"rlk_synth"' in spec.read_text():
            p = subprocess.run([bin_dir / "rlkrec", "synth", spec, "-o", tmp / f"{spec.stem}.rlk"], capture_output=True,
                               text=True, timeout=120)
            if p.returncode:
                return expect, None, [f"rlkrec synth {spec.name}: exit {p.returncode}: {p.stderr.strip()}"]
    if "tamper" in expect:
        tamper(tmp, **expect["tamper"])
    args = [a.replace("{", f"{folder}/").replace("}", "") for a in expect.get("args", [])]
    for option in ("self_a", "self_b"):
        for stem in expect.get(option, []):
            args += ["--" + option.replace("_", "-"), str(tmp / f"{stem}.rlk")]
    command = "check" if expect.get("check") else "first-diff"
    pair = [tmp / "a.rlk"] if command == "check" else [tmp / "a.rlk", tmp / "b.rlk"]
    if "phases" in expect:
        pair = [tmp / "a.rlk", "--phases", expect["phases"]]
    if "accept" in expect:
        problem = accept(bin_dir, tmp, **expect["accept"])
        if problem:
            return expect, None, [problem]
        args += ["--accept", str(tmp / "accepted")]
    problems = text_is_inert(bin_dir, pair) if expect.get("text_is_inert") else []
    p = subprocess.run([bin_dir / "rlkaudit", command, *pair, "--json", "-", *args], capture_output=True, text=True,
                       timeout=120)
    if expect.get("json") is False:
        problems += [f"exit: expected {expect['exit']}, got {p.returncode}"] if p.returncode != expect["exit"] else []
        return expect, None, problems + [f"stderr does not say /{t}/: {p.stderr}" for t in unsaid(expect["says_stderr"], [p.stderr])]
    try:
        report = json.loads(p.stdout)
    except ValueError:
        return expect, None, [f"exit {p.returncode}, no JSON: {(p.stdout + p.stderr).strip()[:300]}"]
    return expect, report, problems + judge(expect, p.returncode, report)


def tamper(tmp, recording, find, replace):
    """Exchanges bytes of a recording for as many others, wherever they stand in its environments."""
    found = 0
    for path in (tmp / f"{recording}.rlk").rglob("data.mdb"):
        data = path.read_bytes()
        found += data.count(bytes.fromhex(find))
        path.write_bytes(data.replace(bytes.fromhex(find), bytes.fromhex(replace)))
    assert found and len(find) == len(replace), "the bytes to exchange are not there"


def accept(bin_dir, tmp, bound, expired=False, **pair):
    """Writes tmp/accepted from the comparison of two recordings, dated back if `expired`; a sentence where that fails."""
    a, b = (tmp / f"{x}.rlk" for x in pair["from"])
    subprocess.run([bin_dir / "rlkaudit", "first-diff", a, b, "--json", tmp / "diff"], capture_output=True, timeout=120)
    p = subprocess.run([bin_dir / "rlkaudit", "accept", tmp / "diff", "--reason", "known", "--owner", "numerics", "--expires", "2099-12-31",
                        "--bound", bound, "-o", tmp / "accepted"], capture_output=True, text=True, timeout=120)
    if expired and not p.returncode:
        text = (tmp / "accepted").read_text()
        assert "2099-12-31" in text
        (tmp / "accepted").write_text(text.replace("2099-12-31", "2020-01-01"))
    return f"rlkaudit accept: exit {p.returncode}: {p.stderr.strip()}" if p.returncode else None


def text_is_inert(bin_dir, pair):
    """Nothing of a recording steers a terminal: no control character but line ends, no bidirectional override."""
    p = subprocess.run([bin_dir / "rlkaudit", "first-diff", *pair], capture_output=True, timeout=120)
    text = (p.stdout + p.stderr).decode("utf-8", "replace")
    bad = {hex(ord(c)) for c in text if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or 0x202a <= ord(c) <= 0x202e or ord(c) in (0xfffd, 0x2028, 0x2029))}
    return [f"the text holds {sorted(bad)}"] if bad else []


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


def table_row(name, expect, report, verdict):
    """case, expected, got: one line."""
    def short(e):
        first = e.get("first") or {}
        first = first if isinstance(first, dict) else {}
        m = first.get("mechanism") or {}
        found = e.get("findings")
        if isinstance(found, list) and found:
            m = found[0].get("mechanism") or {}
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
        known = folder.name in pending
        verdict = ("pending" if known else "FAIL") if problems else "PASSES" if known and not args.properties else "ok"
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
