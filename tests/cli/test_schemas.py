"""Every program that writes JSON has a schema in docs/schema, and what it writes in each of its states fits it: all that is
required is there, and nothing that is not described."""
import json
import pathlib
import re
import subprocess
import sys

import rlk
import schema
from rlk import BIN, RLKAUDIT, RLKREC, SOURCE, Case

CASES = SOURCE / "tests" / "cases" / "diagnosis"
SEEN = set()


def tensor(name, fill, **more):
    return {"name": name, "dtype": "fp32", "shape": [4, 8], "fill": {"normal": fill}, "payload": True, **more}


def op(module, fill, step=0, **more):
    return {"op": "aten::mm", "module": module, "step": step, "in": [tensor("x", 1)], "out": [tensor("y", fill)], **more}


def required(found, at=()):
    """Places of objects in a document."""
    if isinstance(found, dict):
        yield at, found
        for key, one in found.items():
            yield from required(one, (*at, key))
    elif isinstance(found, list):
        for i, one in enumerate(found[:2]):
            yield from required(one, (*at, i))


class Schemas(Case):
    def fits(self, name, document, verdict=None):
        errors = schema.Validator(name, closed=True).errors(document)
        self.assertEqual(errors[:5], [], name)
        if verdict is not None:
            self.assertEqual(document.get("verdict", document.get("standing")), verdict)
        SEEN.add((name, document.get("verdict", document.get("standing"))))
        return document

    def json_of(self, program, *argv, rc):
        return json.loads(self.expect(self.cmd(program, *argv, "--json", "-"), rc).out)

    def pair(self, **more):
        a = self.synth("a", events=[op("m0", 2), op("m1", 3), op("m1", 4, 1)], **more)
        b = self.synth("b", events=[op("m0", 2), op("m1", 30), op("m1", 4, 1)], **more)
        return a, b

    def test_first_diff(self):
        a, b = self.pair()
        other = self.synth("other", events=[op("m0", 2)], ranks=2, layout="tp2")
        cut = self.synth("cut", events=[op("m0", 2), op("m1", 3), op("m1", 4, 1)], complete=False)
        self.fits("first_diff", self.json_of(RLKAUDIT, "first-diff", a, b, rc=1), "diverged")
        self.fits("first_diff", self.json_of(RLKAUDIT, "first-diff", a, a, rc=0), "identical")
        self.fits("first_diff", self.json_of(RLKAUDIT, "first-diff", a, cut, rc=4), "incomplete")
        self.fits("first_diff", json.loads(self.cmd(RLKAUDIT, "first-diff", a, other, "--json", "-").out))
        self.expect(self.cmd(RLKAUDIT, "first-diff", a, b, "--json", "d.json"), 1)
        self.expect(self.cmd(RLKAUDIT, "accept", "d.json", "--reason", "r", "--owner", "o", "--expires", "2199-01-01", "-o", "ok.json"), 0)
        self.fits("accept", json.loads((self.dir / "ok.json").read_text()))
        self.fits("first_diff", self.json_of(RLKAUDIT, "first-diff", a, b, "--accept", "ok.json", rc=5), "accepted_drift")

    def test_first_diff_of_the_cases(self):
        for folder in sorted(CASES.glob("r[1-4]*"))[::3]:
            if not (folder / "b.json").exists():
                continue
            for side in ("a", "b"):
                self.expect(self.rec("synth", folder / f"{side}.json", "-o", f"{folder.name}-{side}"), 0)
            done = self.cmd(RLKAUDIT, "first-diff", f"{folder.name}-a", f"{folder.name}-b", "--json", "-")
            self.fits("first_diff", json.loads(done.out))

    def test_explain(self):
        a, b = self.pair()
        self.fits("explain", self.json_of(RLKAUDIT, "explain", a, b, "--elements", rc=1), "root")
        self.fits("explain", self.json_of(RLKAUDIT, "explain", a, b, "--event", "0", rc=0), "equal")
        self.fits("explain", self.json_of(RLKAUDIT, "explain", a, a, rc=0), "equal")

    def test_check(self):
        for folder in sorted(CASES.glob("c_*")):
            self.expect(self.rec("synth", folder / "a.json", "-o", folder.name), 0)
            self.fits("check", json.loads(self.cmd(RLKAUDIT, "check", folder.name, "--json", "-").out))
        self.assertEqual({v for n, v in SEEN if n == "check"}, {"clean", "findings", "incomplete"})

    def test_bisect(self):
        a, b = self.pair()
        longer = self.synth("longer", events=[op("m0", 2), op("m1", 3), op("m1", 4, 1), op("m1", 4, 2)])
        self.fits("bisect", self.json_of(RLKAUDIT, "bisect", a, b, rc=1), "diverged")
        self.fits("bisect", self.json_of(RLKAUDIT, "bisect", a, a, rc=0), "identical")
        self.fits("bisect", json.loads(self.cmd(RLKAUDIT, "bisect", a, longer, "--json", "-").out))
        other = self.synth("other", events=[op("m0", 2)], ranks=2, layout="tp2")
        self.fits("bisect", self.json_of(RLKAUDIT, "bisect", a, other, rc=3), "not_comparable")
        cut = self.synth("cut", events=[op("m0", 2), op("m1", 3), op("m1", 4, 1)], complete=False)
        self.fits("bisect", self.json_of(RLKAUDIT, "bisect", a, cut, rc=4), "incomplete")

    def test_baseline(self):
        a, b = self.pair()
        self.expect(self.cmd(RLKAUDIT, "baseline", "save", a, "-o", "base.json"), 0)
        self.fits("baseline", json.loads((self.dir / "base.json").read_text()))
        self.fits("baseline_check", self.json_of(RLKAUDIT, "baseline", "check", a, "base.json", rc=0), "same")
        self.fits("baseline_check", self.json_of(RLKAUDIT, "baseline", "check", b, "base.json", rc=1), "changed")
        other = self.synth("other", events=[op("m0", 2)], ranks=2, layout="tp2")
        self.fits("baseline_check", self.json_of(RLKAUDIT, "baseline", "check", other, "base.json", rc=3), "not_comparable")

    def test_recordings(self):
        a, _ = self.pair()
        (self.dir / "rlk-recordings" / "broken.rlk").mkdir(parents=True)
        cut = self.synth("cut", events=[op("m0", 2)], complete=False)
        self.fits("ls", self.json_of(RLKREC, "ls", ".", rc=0))
        self.fits("ls", self.json_of(RLKREC, "ls", "rlk-recordings", rc=0))
        self.fits("info", self.json_of(RLKREC, "info", a, rc=0))
        self.fits("info", self.json_of(RLKREC, "info", cut, rc=4))
        self.expect(self.rec("run", "-q", "-o", "real", "--", sys.executable, "-c", "pass"), 0)
        self.fits("info", self.json_of(RLKREC, "info", "real", rc=4))
        self.expect(self.rec("seal", "-f", a), 0)
        self.fits("verify", self.json_of(RLKREC, "verify", a, rc=0), "good")
        manifest = a / "manifest.json"
        manifest.write_text(manifest.read_text().replace("tp1", "tp2"))
        self.fits("verify", self.json_of(RLKREC, "verify", a, rc=1), "tampered")
        (a / "SEAL").unlink()
        self.fits("verify", self.json_of(RLKREC, "verify", a, rc=4), "not_sealed")
        self.fits("doctor", json.loads(self.rec("doctor", "--json", "-").out))

    def test_replay(self):
        train, replay = BIN / "rlktrain", BIN / "rlkreplay"
        small = ("--model", "qwen3-mini", "--no-times", "--new", "8", "--steps", "1", "--samples", "4", "--layout", "tp2cp1")
        self.expect(self.rec("run", "-q", "-o", "t", "--", train, *small), 0)
        self.fits("replay", json.loads(self.cmd(replay, "t", "--layout", "tp1cp1", "--json", "-").out), "identical")
        self.fits("replay", json.loads(self.cmd(replay, "t", "--layout", "tp2cp1", "--plant", "mode-off", "--json", "-").out))
        empty = self.synth("none", events=[op("m0", 2)])
        refused = self.cmd(replay, empty, "--json", "-")
        if refused.out.strip():
            self.fits("replay", json.loads(refused.out), "refused")

    def test_every_command_has_one(self):
        """The words rlk.NAME/1 in the programs' source, and the options --json of their help."""
        names = set()
        for folder in ("cli", "auditor"):
            for path in (SOURCE / folder).rglob("*.[ch]"):
                names |= set(re.findall(r"rlk\.([a-z_]+)/1", path.read_text()))
        names -= {"plan", "synth"}  # a plan is text
        self.assertGreaterEqual(names, {"check", "bisect", "first_diff", "explain", "ls", "info", "verify", "doctor", "replay", "baseline", "accept"})
        self.assertEqual({n for n in names if not (schema.FOLDER / f"{n}.schema.json").exists()}, set())

    def test_the_schemas_refuse(self):
        """Each key that is required is missed, and each value of another kind: a schema that takes all is none."""
        a, b = self.pair()
        self.expect(self.cmd(RLKAUDIT, "baseline", "save", a, "-o", "base.json"), 0)
        self.expect(self.rec("synth", CASES / "c_recompute_mask" / "a.json", "-o", "c"), 0)
        documents = {"check": self.json_of(RLKAUDIT, "check", "c", rc=1), "bisect": self.json_of(RLKAUDIT, "bisect", a, b, rc=1),
                     "explain": self.json_of(RLKAUDIT, "explain", a, b, rc=1), "baseline": json.loads((self.dir / "base.json").read_text()),
                     "baseline_check": self.json_of(RLKAUDIT, "baseline", "check", b, "base.json", rc=1), "info": self.json_of(RLKREC, "info", a, rc=0),
                     "ls": self.json_of(RLKREC, "ls", ".", rc=0), "doctor": json.loads(self.rec("doctor", "--json", "-").out)}
        for name, document in documents.items():
            validator = schema.Validator(name)
            self.assertEqual(validator.errors(document), [], name)
            n = 0
            for key in schema.load(name)["required"]:
                self.assertTrue(validator.errors({k: v for k, v in document.items() if k != key}), f"{name} without {key}")
                self.assertTrue(validator.errors({**document, key: {"another": ["kind"]}}) or isinstance(document[key], dict), f"{name}: {key} of another kind")
                n += 1
            self.assertGreater(n, 1, name)

    def test_jsonschema_agrees(self):
        """Where the package is there: the schemas are valid, and it judges a document as schema.py does."""
        try:
            import jsonschema
        except ImportError:
            self.skipTest("jsonschema is not installed")
        for path in schema.FOLDER.glob("*.schema.json"):
            jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))


if __name__ == "__main__":
    rlk.main()
