"""rlkaudit as a program: options, exit statuses, escaping, the JSON against its schema. usage: test_cli.py BIN_DIR ROOT"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

BIN, ROOT = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
TMP = tempfile.TemporaryDirectory(prefix="rlkauditcli")
DIR = pathlib.Path(TMP.name)
COUNT = 0


def tensor(name="y", fill=1, shape=(4, 8), **more):
    return {"name": name, "dtype": "bf16", "shape": list(shape), "fill": {"normal": fill}, **more}


def synth(name, events, **envelope):
    global COUNT
    COUNT += 1
    spec = DIR / f"{COUNT}.json"
    spec.write_text(json.dumps({"rlk_synth": 1, "events": events, **envelope}))
    out = DIR / f"{COUNT}-{name}.rlk"
    subprocess.run([BIN / "rlkrec", "synth", spec, "-o", out], check=True, timeout=60, stdout=subprocess.DEVNULL)
    return out


def run(*args, code=None):
    p = subprocess.run([BIN / "rlkaudit", *map(str, args)], capture_output=True, text=True, timeout=60)
    assert code is None or p.returncode == code, (args, p.returncode, p.stdout, p.stderr)
    return p


def diff(a, b, *args, code=None):
    p = run("first-diff", a, b, "--json", "-", *args, code=code)
    return json.loads(p.stdout)


def op(module="m", name="aten::mm", out=1, **more):
    return {"op": name, "module": module, "phase": "actor_train", "in": [tensor("x", 0)], "out": [tensor("y", out)], **more}


def test_usage():
    a = synth("a", [op()])
    for args in ([], ["first-diff"], ["first-diff", a], ["first-diff", a, a, a], ["first-diff", "--nonsense", a, a],
                 ["first-diff", a, DIR / "nowhere.rlk"], ["first-diff", "--phases", "xy", a], ["no-such-command"],
                 ["first-diff", "--phases", "x:y", a, a], ["first-diff", a, a, "--allow", "everything"],
                 ["first-diff", a, a, "--map", DIR / "nowhere"], ["explain", a, a, "--event", "x"],
                 ["explain", a, a, "--event", "99"], ["first-diff", a, a, "--json", DIR / "no" / "dir.json"]):
        p = run(*args, code=2)
        assert p.stderr, args
    for command in re.findall(r"^  ([a-z-]+) .*\(not built yet\)", run("--help").stdout, re.M):
        assert "not built yet" in run(command, a, code=2).stderr
    for option in re.findall(r"(--[a-z-]+) .*\(not built yet\)", run("first-diff", "--help").stdout):
        assert "not built yet" in run("first-diff", a, a, option, DIR / "f", code=2).stderr
    run("first-diff", a, a, code=0)
    assert "first-diff" in run("--help", code=0).stdout and "--bisect" in run("first-diff", "--help", code=0).stdout


def test_bisect():
    a, b = synth("a", [op()]), synth("b", [op(out=2)])
    c = synth("c", [op("other")], complete=False)
    run("first-diff", a, a, "--bisect", code=0)
    run("first-diff", a, b, "--bisect", code=1)
    run("first-diff", a, c, "--bisect", code=125)
    run("first-diff", a, DIR / "nowhere.rlk", "--bisect", code=125)
    run("first-diff", a, "--bisect", code=128)
    run("first-diff", a, b, "--bisect", "--nonsense", code=128)


def test_escapes():
    evil = "m\x1b[31m\u202e\n\t\x07"
    events = lambda fill: [op(evil, "op\x1b]0;x\x07", out=fill)]
    a, b = synth("a", events(1)), synth("b", events(2))
    report = diff(a, b, code=1)
    assert report["first"]["module"] == evil
    for args in (["first-diff", a, b], ["explain", a, b]):
        out = run(*args, code=1).stdout
        assert not set(out) & set("\x1b\x07\u202e\t"), repr(out)
        assert "\\x1b" in out.lower(), out


def test_json_file_and_text():
    a, b = synth("a", [op()]), synth("b", [op(out=2)])
    target = DIR / "report.json"
    text = run("first-diff", a, b, "--json", target, code=1).stdout
    report = json.loads(target.read_text())
    for piece in ("DIVERGED", "aten::mm", report["first"]["a"]["digest"], report["first"]["b"]["digest"], "every input is equal",
                  "coverage", "next: rlkaudit explain"):
        assert piece in text, (piece, text)
    assert len(text.splitlines()) <= 40 and "\x1b" not in text


def test_nan_is_no_distance():
    def with_nan(edit):
        out = {"name": "y", "dtype": "fp32", "shape": [4, 8], "payload": True, "fill": {"normal": 3}, "edit": edit}
        return [dict(op(), out=[out])]

    nan = {"mask": {"tail": 20}, "change": {"byte": 255}}
    one = {"mask": {"range": [0, 1]}, "change": {"ulp": 1}}
    a, b, c = synth("a", with_nan([])), synth("b", with_nan([nan])), synth("c", with_nan([nan, one]))
    for x, y in ((a, b), (b, a)):
        d = diff(x, y, code=1)["first"]["difference"]
        assert (d["changed"], d["nan"], d["max_ulp"], d["max_abs"]) == (12, 12, None, None), d
        out = run("first-diff", x, y, code=1).stdout
        assert "all NaN on a side" in out and "at most" not in out, out
    d = diff(a, c, code=1)["first"]["difference"]
    assert (d["changed"], d["nan"], d["max_ulp"]) == (13, 12, 1) and d["max_abs"] > 0, d
    assert "at most 1 ulp" in run("first-diff", a, c, code=1).stdout
    metrics = [[op(), {"metric": "loss", "value": v, "step": 0, "phase": "actor_train"}] for v in (2.5, "nan")]
    d = diff(synth("m", metrics[0]), synth("n", metrics[1]), code=1)["first"]["difference"]
    assert (d["nan"], d["max_ulp"], d["max_abs"]) == (1, None, None), d


def test_what_values_hide():
    def tensors(payload, *edit):
        out = {"name": "y", "dtype": "fp32", "shape": [8], "payload": payload, "fill": {"const": 0}, "edit": list(edit)}
        return [dict(op(), out=[out])]

    def bits(at, value):
        return {"mask": {"range": [at, at + 1]}, "change": {"from": value}}

    sources = [{"op": "aten::fill", "module": "s", "phase": "actor_train", "in": [],
                "out": [{"name": n, "dtype": "fp32", "shape": [8], "fill": {"const": {"bits": b}}}
                        for n, b in (("n1", 0x7fc00001), ("n2", 0x7fc00002), ("z", 0x80000000))]}]
    said = {}
    for payload in (True, False):
        for name, x, y in (("nan", [bits(0, "n1")], [bits(0, "n2")]), ("zero", [], [bits(1, "z")]),
                           ("both", [bits(0, "n1")], [bits(0, "n2"), bits(1, "z")]),
                           ("moved", [bits(0, "n1"), bits(1, "z")], [bits(0, "n1"), bits(2, "z")])):
            a, b = synth("a", sources + tensors(payload, *x)), synth("b", sources + tensors(payload, *y))
            m = diff(a, b, code=1)["first"]["mechanism"]
            assert m["class"] == "sign-of-zero", (name, m)
            said[name, payload] = m["evidence"][0].split("only ")[1]
    assert said["nan", True] == "the payload of NaN differs", said
    assert said["zero", True] == said["zero", False] == said["moved", True] == "the sign of zero differs", said
    assert said["both", True] == "the sign of zero and the payload of NaN differ", said
    assert said["both", False] == "the sign of zero, and maybe the payload of NaN, differs", said
    assert said["nan", False] == said["moved", False] == "the payload of NaN, or where zeros have a sign, differs", said


def test_the_next_command_runs_as_printed():
    """It names the event that was found, whichever side has it, and repeats the options."""
    common = [op(f"m{i}", out=20 + i) for i in range(4)]
    loss = {"metric": "loss", "value": 2.5, "step": 0, "phase": "actor_train"}
    many = {"ranks": 2}
    late = [dict(op("m9", out=30), ranks=[r]) for r in range(2)]
    wrong = [late[0], dict(op("m9", out=31), ranks=[1])]
    spaced = DIR / "it's spaced"
    spaced.mkdir(exist_ok=True)
    rules = spaced / "rules"
    rules.write_text("a other -> m9\n")
    for a, b, options, standing in (
            (synth("a", common), synth("b", common + [loss]), [], "alone"),
            (synth("a", common + [loss]), synth("b", common), [], "alone"),
            (synth("a", common), synth("b", common[:3] + [op("m3", out=99)]), [], "root"),
            (synth("a", common + late, **many), synth("b", common + wrong, **many), [], "root"),
            (synth("a", common + [op("other", out=30)]), synth("b", common + [op("m9", out=31)]), ["--map", rules], None)):
        p = run("first-diff", a, b, *options, code=1)
        line = [x for x in p.stdout.splitlines() if x.startswith("next: rlkaudit ")]
        assert len(line) == 1, p.stdout
        words = shlex.split(line[0])[2:]
        report = json.loads(run(*words, "--json", "-", code=1).stdout)
        if standing:
            assert report["standing"] == standing, (line, report)
        first = diff(a, b, *options, code=1)["first"]
        for side in ("a", "b"):
            if first[side]:
                assert report[side] and report[side]["event"] == first[side]["event"], (line, first, report)


def test_where():
    """Layers in A's order, cells that differ, who brought a difference into a collective; nothing of an equal pair."""
    def part(rank, fill):
        return {"op": "aten::mm", "module": "layers.1.mlp", "phase": "actor_train", "ranks": [rank],
                "in": [tensor("x", 0)], "out": [tensor(f"p{rank}", fill)]}

    def reduce(fill):
        return [{"collective": "all_reduce", "module": "layers.1.mlp", "phase": "actor_train", "group": "tp", "ranks": [r],
                 "in": [{**tensor(f"p{r}"), "fill": {"like": f"p{r}"}}], "out": [tensor("y", fill)]} for r in range(4)]

    def run(bad):
        return [op("embed"), op("layers.0.attn", out=3)] + [part(r, 50 + r + (100 if bad and r == 2 else 0)) for r in range(4)] + \
            reduce(9 if bad else 8) + [op("layers.2.mlp", out=4)]

    a, b = synth("a", run(False), ranks=4, layout="tp4"), synth("b", run(True), ranks=4, layout="tp4")
    where = diff(a, b, code=1)["where"]
    assert where["layers"] == ["embed", "layers.0", "layers.1", "layers.2"], where
    assert where["cells"] == [[0, 0, 2, 1, 1]] and where["phases"] == ["actor_train"] and where["ranks"] == [0, 1, 2, 3], where
    column = where["collectives"]
    assert len(column) == 1 and column[0]["ranks"] == "oobo" and column[0]["root"] is False, column
    where = diff(a, synth("c", run(False)[:-5] + reduce(7) + run(False)[-1:], ranks=4, layout="tp4"), code=1)["where"]
    assert [c["ranks"] for c in where["collectives"]] == ["oooo"] and where["collectives"][0]["root"] is True, where
    equal = diff(a, a, code=0)
    assert equal["where"]["cells"] == equal["where"]["collectives"] == [] and len(equal["where"]["layers"]) == 4, equal["where"]
    assert equal["runs"]["a"]["ranks"] == 4 and equal["runs"]["a"]["complete"] is True


def test_first_tensors():
    def event(fill):
        return [dict(op("m"), **{"in": [tensor("x", 0), tensor("w", 1)], "out": [tensor("y", fill), tensor("z", 7)]})]

    tensors = diff(synth("a", event(2)), synth("b", event(3)), code=1)["first"]["tensors"]
    assert [(t["role"], t["name"], t["status"]) for t in tensors] == [
        ("in", "x", "equal"), ("in", "w", "equal"), ("out", "y", "unequal"), ("out", "z", "equal")], tensors


def test_phases():
    events = [op(out=3, sample="s1", **{}), op(out=3, sample="s1")]
    events[0]["phase"], events[1]["phase"] = "rollout-prefill", "log_probs"
    same = synth("p", events)
    events[1]["out"][0]["fill"] = {"normal": 4}
    other = synth("q", events)
    report = json.loads(run("first-diff", "--phases", "rollout-prefill:log_probs", same, "--json", "-", code=0).stdout)
    assert report["scope"]["compared"] and report["mode"] == "phases"
    report = json.loads(run("first-diff", "--phases", "rollout-prefill:log_probs", other, "--json", "-", code=1).stdout)
    assert report["first"]["module"] == "m" and report["first"]["root"] is True
    run("first-diff", "--phases", "rollout-prefill:nothing", same, code=3)


def test_map():
    a = synth("a", [op("decoder.layers.0.mlp"), op("decoder.layers.1.mlp", out=5), op("head", out=6)])
    b = synth("b", [op("model.layers.0.ffn"), op("model.layers.1.ffn", out=7), op("head", out=6)])
    rules = DIR / "rules"
    rules.write_text("# Megatron to HF\na decoder.layers.*.mlp -> model.layers.{1}.ffn\n")
    report = diff(a, b, code=3)  # one of three in common
    report = diff(a, b, "--map", rules, code=1)
    assert report["first"]["module"] == "model.layers.1.ffn" and len(report["roots"]) == 1
    rules.write_text("a decoder.layers.*.mlp => x\n")
    assert "rules:1" in run("first-diff", a, b, "--map", rules, code=2).stderr


def test_dims():
    """Two local halves with their bytes, and the whole: placed by a dims file they compose."""
    whole = [op("up", out=1)]
    whole[0]["out"] = [{"name": "y", "dtype": "bf16", "shape": [4, 32], "fill": {"arange": 0}}]
    parts = [dict(op("up"), ranks=[r]) for r in range(2)]
    for r, part in enumerate(parts):
        part["out"] = [{"name": "y", "dtype": "bf16", "shape": [4, 16], "payload": True,
                        "fill": {"const": 0}, "edit": [{"mask": {"rows": [i]}, "change": {"add": 0}} for i in range(4)]}]
    zero = [dict(op("up"), out=[{"name": "y", "dtype": "bf16", "shape": [4, 32], "fill": {"const": 0}}])]
    rules = DIR / "dims"
    rules.write_text("b up#y  t h(tp)\n**  t d\n")
    a, z = synth("a", whole, layout="tp1"), synth("z", zero, layout="tp1")
    b = synth("b", parts, ranks=2, layout="tp2")
    report = diff(z, b)
    assert report["scope"]["reasons"].get("local")
    report = diff(z, b, "--dims", rules, code=0)
    assert report["scope"]["compared"] >= 1 and not report["scope"]["reasons"].get("local"), report["scope"]
    report = diff(a, b, "--dims", rules, code=1)
    assert report["first"]["name"] == "y" and report["first"]["b"]["holders"] == [0, 1]


def test_samples_join_whatever_the_batch_order():
    one, two, order = [["s1", 0, 2], ["s2", 2, 4]], [["s2", 0, 4], ["s1", 4, 2]], [2, 3, 4, 5, 0, 1]

    def batch(samples, permute, fault=None):
        edit = ([{"mask": {"all": True}, "change": {"permute": order}}] if permute else []) + ([fault] if fault else [])
        ids = {"name": "ids", "dtype": "int64", "shape": [6], "fill": {"int": [0, 99, 1]}, "samples": samples, "edit": edit[:permute]}
        x = {"name": "x", "dtype": "bf16", "shape": [6, 8], "fill": {"normal": 1}, "samples": samples, "edit": edit[:permute]}
        y = {"name": "y", "dtype": "bf16", "shape": [6, 8], "fill": {"normal": 2}, "samples": samples, "edit": edit}
        return [{"op": "aten::embedding", "module": "emb", "in": [ids], "out": [x]},
                {"op": "aten::mm", "module": "fc", "in": [{**x, "fill": {"like": "x"}, "edit": []}], "out": [y]}]

    a, b = synth("a", batch(one, False)), synth("b", batch(two, True))
    c = synth("c", batch(two, True, {"mask": {"rows": [4]}, "change": {"ulp": 1}}))
    diff(a, b, code=0)
    report = diff(a, c, code=1)
    assert report["first"]["module"] == "fc" and "1 of 2 samples differ: s1" in json.dumps(report)


def test_samples_dealt_out_to_other_batches():
    def part(samples, rows, value, work=0):
        y = {"name": "y", "dtype": "bf16", "shape": [rows, 8], "fill": {"const": value}, "samples": samples}
        return {"op": "aten::mm", "module": "fc", "work": work, "in": [], "out": [y]}

    a = synth("a", [part([["s1", 0, 2], ["s2", 2, 2]], 4, 1)])
    b = synth("b", [part([["s2", 0, 2]], 2, 1), part([["s1", 0, 2]], 2, 1, work=1)])
    c = synth("c", [part([["s2", 0, 2]], 2, 1), part([["s1", 0, 2]], 2, 2, work=1)])
    assert diff(a, b, code=0)["scope"]["compared"] == 2
    assert diff(a, c, code=1)["first"]["sample"] == "s1"


def test_missing_step_across_layouts():
    steps = [dict(op("m"), step=s) for s in range(2)] + [{"metric": "loss", "value": 0.5, "step": s} for s in range(2)]
    for e in steps[:2]:
        e["out"] = [dict(tensor("y", 1), logical={"shape": [4, 8]})]
    a = synth("a", steps, layout="tp1")
    b = synth("b", [steps[0], steps[2]], ranks=2, layout="tp2")
    report = diff(a, b, code=1)
    assert report["first"]["op"] == "loss" and report["first"]["mechanism"]["class"] == "extra-or-missing", report["first"]
    diff(a, synth("c", steps, ranks=2, layout="tp2"), code=0)


def test_phases_lack_nothing():
    events = [op(out=3), op(out=3), dict(op("m.w", out=4), **{"out": [tensor("m.weight.grad", 9)]})]
    events[0]["phase"], events[1]["phase"], events[2]["phase"] = "log_probs", "actor_train", "actor_train"
    run("first-diff", "--phases", "log_probs:actor_train", synth("p", events), code=0)


def test_explain():
    a = synth("a", [op("m0"), op("m1", out=2)])
    b = synth("b", [op("m0"), op("m1", out=3)])
    report = json.loads(run("explain", a, b, "--json", "-", code=1).stdout)
    assert report["standing"] == "root" and report["a"]["module"] == "m1"
    assert [t["status"] for t in report["tensors"]] == ["equal", "unequal"]
    report = json.loads(run("explain", a, b, "--event", "0", "--json", "-", code=0).stdout)
    assert report["standing"] == "equal"
    assert json.loads(run("explain", a, a, "--json", "-", code=0).stdout)["standing"] == "equal"


def test_schema():
    try:
        import jsonschema
    except ImportError:
        return
    schema = json.loads((ROOT / "docs/schema/first_diff.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    n = 0
    for folder in sorted((ROOT / "tests/cases/foundation").iterdir()):
        if not (folder / "b.json").exists():
            continue
        recs = []
        for stem in ("a", "b"):
            out = DIR / f"{folder.name}-{stem}.rlk"
            subprocess.run([BIN / "rlkrec", "synth", folder / f"{stem}.json", "-o", out], check=True, timeout=60, stdout=subprocess.DEVNULL)
            recs.append(out)
        report = diff(*recs)
        errors = [f"{e.json_path}: {e.message[:200]}" for e in validator.iter_errors(report)]
        assert not errors, (folder.name, errors)
        broken = dict(report)
        del broken["scope"]
        assert list(validator.iter_errors(broken))
        n += 1
    assert n > 40, n


def main():
    if not all((BIN / name).exists() for name in ("rlkrec", "rlkaudit")):
        print("rlkrec or rlkaudit is not built")
        return 77
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name)
    return 0


sys.exit(main())
