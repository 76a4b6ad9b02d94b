"""rlkaudit accept and first-diff --accept: known drift, up to a bound, until a day."""
import datetime
import json

import rlk
from rlk import RLKAUDIT, Case

FAR = "2199-12-31"


def tensor(name, fill, ulp=0, payload=True, **more):
    edit = [{"mask": {"sparse": 3, "seed": 1}, "change": {"ulp": ulp}}] if ulp else []
    return {"name": name, "dtype": "fp32", "shape": [4, 8], "fill": {"normal": fill}, "edit": edit, "payload": payload, **more}


class Accept(Case):
    def audit(self, *argv):
        return self.cmd(RLKAUDIT, *argv)

    def run_of(self, name, ulp=0, other=0, ranks=1, rank_ulp=None, **more):
        """Two operators; the first differs by `ulp`, the second, which does not read it, by `other`."""
        events = []
        for rank in range(ranks):
            mine = ulp if rank_ulp is None or rank == 0 else rank_ulp
            events += [{"op": "aten::mm", "module": "layers.0.mlp", "ranks": [rank], "in": [tensor("x", 1)], "out": [tensor("y", 2, mine, **more), tensor("z", 3, **more)]},
                       {"op": "aten::mul", "module": "layers.1", "ranks": [rank], "in": [tensor("v", 4)], "out": [tensor("w", 5, other, **more)]}]
        return self.synth(name, ranks=ranks, events=events)

    def diff(self, a, b, rc, *argv):
        return json.loads(self.expect(self.audit("first-diff", a, b, "--json", "-", *argv), rc).out)

    def accept(self, a, b, *argv, rc=0, output="ok.json", err=None):
        self.expect(self.audit("first-diff", a, b, "--json", "diff.json"), 1)
        argv = argv if "--expires" in argv else ("--expires", FAR, *argv)
        return self.expect(self.audit("accept", "diff.json", "--reason", "split-k", "--owner", "kernels@example.org", *argv, "-o", output), rc, err=err)

    def edit(self, **keys):
        path = self.dir / "ok.json"
        data = json.loads(path.read_text())
        data["accepted"][0].update(keys)
        path.write_text(json.dumps(data))

    def test_accepted_grown_expired(self):
        a, b, grown = self.run_of("a"), self.run_of("b", ulp=4), self.run_of("grown", ulp=40)
        self.accept(a, b)
        entry = json.loads((self.dir / "ok.json").read_text())["accepted"][0]
        self.assertEqual((entry["bound"], entry["expires"], entry["owner"]), ({"max_ulp": 4}, FAR, "kernels@example.org"))
        result = self.diff(a, b, 5, "--accept", "ok.json")
        self.assertEqual((result["verdict"], result["acceptance"]["accepted"]), ("accepted_drift", 1))
        self.assertEqual(result["first"]["acceptance"]["ruling"], "accepted")
        self.assertEqual(result["first"]["difference"]["grade"], "within-bound")
        self.expect(self.audit("first-diff", a, b, "--accept", "ok.json"), 5, out=["ACCEPTED DRIFT", "accepted   1 of 1 roots"])
        self.expect(self.audit("first-diff", a, b, "--accept", "ok.json", "--bisect"), 0)
        result = self.diff(a, grown, 1, "--accept", "ok.json")
        self.assertEqual((result["verdict"], result["first"]["acceptance"]["ruling"]), ("diverged", "grown"))
        self.assertEqual(result["first"]["acceptance"]["max_ulp"], 40)
        self.assertIn("grew: 40 ulp, the bound is 4", " ".join(result["notes"]))
        self.edit(expires="2026-01-01")
        result = self.diff(a, b, 1, "--accept", "ok.json")
        self.assertEqual(result["first"]["acceptance"]["ruling"], "expired")
        self.assertIn("expired on 2026-01-01", " ".join(result["notes"]))
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        self.edit(expires=max(today, datetime.datetime.now(datetime.timezone.utc).date().isoformat()))
        self.diff(a, b, 5, "--accept", "ok.json")  # the last day counts

    def test_clean_pair_stays_identical(self):
        a, b = self.run_of("a"), self.run_of("b", ulp=4)
        self.accept(a, b)
        self.assertEqual(self.diff(a, a, 0, "--accept", "ok.json")["verdict"], "identical")

    def test_another_root_diverges(self):
        a, b = self.run_of("a"), self.run_of("b", ulp=4)
        both = self.run_of("both", ulp=4, other=1)
        self.accept(a, b)
        result = self.diff(a, both, 1, "--accept", "ok.json")
        self.assertEqual((result["acceptance"]["accepted"], result["acceptance"]["unknown"]), (1, 1))
        self.accept(a, both, "--module", "layers.1")  # added to the file
        self.assertEqual(len(json.loads((self.dir / "ok.json").read_text())["accepted"]), 2)
        self.diff(a, both, 5, "--accept", "ok.json")
        self.accept(a, both)  # the same scopes: replaced
        self.assertEqual(len(json.loads((self.dir / "ok.json").read_text())["accepted"]), 2)
        self.accept(a, both, "--module", "nowhere", rc=2, err="no root is in a module")

    def test_every_rank_counts(self):
        a, b = self.run_of("a", ranks=2), self.run_of("b", ulp=4, ranks=2)
        worse = self.run_of("worse", ulp=4, rank_ulp=40, ranks=2)  # the lowest rank is within the bound
        self.accept(a, b)
        self.diff(a, b, 5, "--accept", "ok.json")
        self.assertEqual(self.diff(a, worse, 1, "--accept", "ok.json")["first"]["acceptance"]["max_ulp"], 40)

    def test_every_output_and_nan_count(self):
        a, b = self.run_of("a"), self.run_of("b", ulp=4)
        self.accept(a, b)
        events = json.loads((self.dir / "b.json").read_text())["events"]
        events[0]["out"][1] = tensor("z", 3, ulp=900)
        self.diff(a, self.synth("second", events=events), 1, "--accept", "ok.json")
        events[0]["out"][1] = tensor("z", 3)
        events[0]["out"][0]["edit"].append({"mask": {"range": [0, 1]}, "change": {"byte": 255}})
        result = self.diff(a, self.synth("nan", events=events), 1, "--accept", "ok.json")
        self.assertEqual((result["first"]["acceptance"]["ruling"], result["first"]["acceptance"]["nan"]), ("grown", 1))

    def test_without_bytes(self):
        """What cannot be measured is not within a bound, and cannot be accepted without one."""
        a, b = self.run_of("a", payload=False), self.run_of("b", ulp=4, payload=False)
        self.accept(a, b, rc=2, err=["--plan", "--bound"])
        self.assertFalse((self.dir / "ok.json").exists())
        self.accept(a, b, "--bound", "4")
        self.assertEqual(self.diff(a, b, 1, "--accept", "ok.json")["first"]["acceptance"]["ruling"], "unmeasured")
        self.accept(a, b, "--bound", "any")
        result = self.diff(a, b, 5, "--accept", "ok.json")
        self.assertNotEqual(result["first"]["difference"]["grade"], "within-bound")

    def test_bound_and_scope(self):
        a, b, grown = self.run_of("a"), self.run_of("b", ulp=4), self.run_of("grown", ulp=40)
        self.accept(a, b, "--bound", "40")
        self.diff(a, grown, 5, "--accept", "ok.json")
        self.edit(scope={"op": "aten::mm", "module": "layers.*.mlp"})
        self.diff(a, grown, 5, "--accept", "ok.json")
        for scope in ({"op": "aten::mm", "module": "layers.*"}, {"op": "aten::mm", "step": 1}, {"op": "aten::mm", "pass": "bwd"},
                      {"op": "aten::mm", "role": "in"}, {"op": "aten::bmm"}, {"op": "aten::mm", "phase": "x"}):
            self.edit(scope=scope)
            self.assertEqual(self.diff(a, grown, 1, "--accept", "ok.json")["acceptance"]["unknown"], 1, scope)

    def test_incomplete_stays_incomplete(self):
        a = self.run_of("a")
        self.accept(a, self.run_of("b", ulp=4))
        events = json.loads((self.dir / "b.json").read_text())["events"]
        cut = self.synth("cut", complete=False, events=events)
        self.diff(a, cut, 4, "--accept", "ok.json")

    def test_hostile_files(self):
        a, b = self.run_of("a"), self.run_of("b", ulp=4)
        self.accept(a, b)
        good = json.loads((self.dir / "ok.json").read_text())
        entry = good["accepted"][0]
        def file(**keys):
            return json.dumps({**good, **keys})
        def changed(**keys):
            return file(accepted=[{**entry, **keys}])
        bad = ["", "{", "[]", "1", '{"schema": "rlk.first_diff/1"}', '{"schema": "rlk.accept/1"}', file(accepted={}), file(accepted=[1]), file(extra=1),
               '{"schema": "rlk.accept/1", "schema": "rlk.accept/1", "accepted": []}',
               changed(reason=""), changed(reason="a\nb"), changed(owner=7), changed(owner="x\x1b[31m"), changed(expires="tomorrow"),
               changed(expires="2026-02-30"), changed(expires="2026-1-01"), changed(expires=5), changed(bound={}), changed(bound={"max_ulp": -1}),
               changed(bound={"max_ulp": 1.5}), changed(bound={"max_ulp": 1, "any": True}), changed(bound={"any": False}), changed(bound=4),
               changed(scope=[]), changed(scope={}), changed(scope={"op": 3}), changed(scope={"op": "x", "modul": "y"}), changed(scope={"op": "x", "role": "both"}),
               changed(scope={"op": "x", "step": "1"}), changed(extra=1), file(accepted=[entry] * 10001), "[" * 5000, '{"schema": "' + "x" * 5_000_000 + '"}']
        for text in bad:
            (self.dir / "bad.json").write_text(text)
            done = self.expect(self.audit("first-diff", a, b, "--accept", "bad.json"), 2)
            self.assertIn("bad.json", done.err)
            self.assertEqual((done.err.count("\n"), done.out), (1, ""), text[:80])
            self.assertNotIn("\x1b", done.err)
        (self.dir / "bad.json").write_bytes(b"\xff\xfe{}")
        self.expect(self.audit("first-diff", a, b, "--accept", "bad.json"), 2)
        self.expect(self.audit("first-diff", a, b, "--accept", "."), 2, err="directory")
        self.expect(self.audit("first-diff", a, b, "--accept", "nowhere"), 2)

    def test_usage(self):
        a, b = self.run_of("a"), self.run_of("b", ulp=4)
        self.expect(self.audit("first-diff", a, b, "--json", "diff.json"), 1)
        full = ["accept", "diff.json", "--reason", "r", "--owner", "o", "--expires", FAR, "-o", "ok.json"]
        for i in range(2, len(full), 2):
            self.expect(self.audit(*full[:i], *full[i + 2:]), 2, err="needed")
        for more in (["--bound", "x"], ["--bound", "-1"], ["--reason", "a\nb"], ["--expires", "2020-01-01"], ["--expires", "soon"], ["--owner", "\udcff"]):
            self.expect(self.audit(*full, *more), 2)
            self.assertFalse((self.dir / "ok.json").exists())
        self.expect(self.audit("accept", "nowhere.json", *full[2:]), 2)
        self.expect(self.audit("first-diff", a, a, "--json", "same.json"), 0)
        self.expect(self.audit("accept", "same.json", *full[2:]), 2, err="nothing to accept")
        (self.dir / "ok.json").write_text("not ours")
        self.expect(self.audit(*full), 2)  # it is not overwritten
        self.assertEqual((self.dir / "ok.json").read_text(), "not ours")


if __name__ == "__main__":
    rlk.main()
