"""Compares what rlkaudit says with expect.json (its keys: run_cases.py). Empty lists of sentences = it agrees."""
import json
import re

KEYS = {"comment", "group", "exit", "verdict", "complete", "downstream", "masked", "process_exit", "first", "per_rank", "roots", "inserted",
        "deleted", "contains", "notes_contain", "phases", "args", "self_a", "self_b", "environment", "says", "says_not", "accept", "tamper",
        "json", "says_stderr", "text_is_inert", "check", "findings", "examined"}


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


def roots_differ(want, got, what="roots"):
    if isinstance(want, dict) or isinstance(want, int):
        return differs(want, len(got), what)
    left, out = list(got), []
    for w in want:
        hit = next((g for g in left if not differs(w, g)), None)
        if hit is None:
            out.append(f"{what}: none is {json.dumps(w)}")
        else:
            left.remove(hit)
    return out + [f"{what}: unexpected {brief(g)}" for g in left]


def brief(diff):
    if not diff:
        return "-"
    keys = ("rank", "step", "pass", "module", "op", "role", "index", "name", "root")
    return " ".join(f"{k}={diff.get(k)}" for k in keys)


def judge(expect, code, report):
    """Sentences about how the run disagrees with expect.json; [] = it agrees."""
    out = [f"expect.json: unknown key {k}" for k in set(expect) - KEYS]
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
    if expect.get("findings") is not None:
        out += roots_differ(expect["findings"], report.get("findings") or [], "findings")
    for name, n in expect.get("examined", {}).items():
        seen = next((c["examined"] for c in report.get("checks", []) if c["check"] == name), -1)
        out += [f"examined: expected {name} at least {n}, got {seen}"] if seen < n else []
    for key in ("inserted", "deleted"):
        n = len((report.get("alignment") or {}).get(key) or [])
        if key in expect and n != expect[key]:
            out.append(f"{key}: expected {expect[key]}, got {n}")
    text, notes = json.dumps(report), json.dumps(report.get("notes")).lower()
    out += [f"nowhere: {t}" for t in expect.get("contains", []) if t not in text]
    said = list(map(str, report.get("notes") or []))
    for r in (report.get("roots") or []) + (report.get("findings") or []):
        m = r.get("mechanism") or {}
        said += [*(m.get("evidence") or []), m.get("next") or ""]
    out += [f"nothing says /{p}/ in {said}" for p in unsaid(expect.get("says", []), said)]
    out += [f"says /{p}/" for p in expect.get("says_not", []) if not unsaid([p], said)]
    for want in expect.get("environment", []):
        if all(differs(want, e) for e in report.get("environment") or []):
            out.append(f"environment: nothing is {json.dumps(want)}")
    out += [f"not in the notes: {t}" for t in expect.get("notes_contain", []) if t not in notes]
    return out


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
    cause = {"class": "race", "also": ["dtype"], "confidence": "low", "evidence": ["Read old data"], "next": "run again"}
    seen = dict(report, first=dict(report["first"], mechanism=cause), environment=[{"key": "k", "a": "1"}],
                roots=[{"op": "x", "mechanism": cause}])
    agrees = {"class": {"any": ["race", "rng"]}, "also": ["dtype"], "also_only": ["dtype"], "named": ["race", "dtype"], "never": ["rng"],
              "confidence": ["low", "high"], "evidence": ["old"], "evidence_not": ["new"], "next": ["again"]}
    assert judge({"first": {"mechanism": agrees}, "says": ["old data", "seen", "again"], "says_not": ["zigzag"], "environment": [{"key": "k"}]}, 1, seen) == []
    for key, wrong in {"class": {"any": ["rng"]}, "also": [], "also_only": [], "named": ["rng"], "never": ["dtype"], "confidence": "high",
                       "evidence": ["new"], "evidence_not": ["old"], "next": ["never"]}.items():
        assert judge({"first": {"mechanism": {key: wrong}}}, 1, seen), key
    for key, wrong in {"says": ["zigzag"], "says_not": ["old"], "environment": [{"key": "k", "a": "2"}], "roots": {"any": [0, 2]}}.items():
        assert judge({key: wrong}, 1, seen), key
    assert judge({"first": {"mechanism": {"class": "race"}}}, 1, report)
    checked = {"exit": 1, "findings": [{"check": "x"}], "checks": [{"check": "x", "examined": 3}]}
    assert judge({"findings": [{"check": "x"}], "examined": {"x": 3}}, 1, checked) == []
    assert judge({"findings": []}, 1, checked) and judge({"findings": [{"check": "y"}]}, 1, checked)
    assert judge({"examined": {"x": 4}}, 1, checked) and judge({"examined": {"y": 0}}, 1, checked)
