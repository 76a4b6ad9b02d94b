"""rlkaudit bisect and baseline: the planted step, pass and module, from roll-ups only."""
import json

import rlk
from rlk import RLKAUDIT, SOURCE, Case


def tensor(name, fill):
    return {"name": name, "dtype": "fp32", "shape": [4, 8], "fill": {"normal": fill}}


def training(steps=3, layers=4, ranks=None, plant=None, works=2, carried=False):
    """A training: layers with a block inside, its own operators before and after the block, forward and backward, an
    optimizer. `plant` = (step, pass, module, rank or None): what follows differs, in its micro-batch, then through the
    parameters; `carried`: the next micro-batch too (running statistics, a cache)."""
    events, ranks = [], ranks or [0]
    for rank in ranks:
        bad = False
        def op(step, what, module, name, work=0):
            nonlocal bad
            bad = bad or bool(plant and plant[:3] == (step, what, module) and plant[3] in (None, rank))
            events.append({"op": name, "module": module, "step": step, "pass": what, "phase": "actor_train", "work": work,
                           "ranks": [rank], "out": [tensor("y", 1000 + len(module) + 5000 * bad)]})
        for step in range(steps):
            changed = bad
            for work in range(works):
                bad = changed or (carried and bad)
                op(step, "fwd", "", "embedding", work)
                for i in range(layers):
                    op(step, "fwd", f"layers.{i}", "norm", work)
                    op(step, "fwd", f"layers.{i}.mlp", "mm", work)
                    op(step, "fwd", f"layers.{i}", "add", work)
                op(step, "fwd", "", "loss", work)
                for i in reversed(range(layers)):
                    op(step, "bwd", f"layers.{i}", "add_backward", work)
                    op(step, "bwd", f"layers.{i}.mlp", "mm_backward", work)
                    op(step, "bwd", f"layers.{i}", "norm_backward", work)
            bad = changed or bool(plant and plant[0] == step and plant[1] != "opt" and plant[3] in (None, rank))
            for i in range(layers):
                op(step, "opt", f"layers.{i}.mlp", "adam")
    return events


class Bisect(Case):
    def audit(self, *argv):
        return self.cmd(RLKAUDIT, *argv)

    def bisect(self, good, bad, rc):
        return json.loads(self.expect(self.audit("bisect", good, bad, "--json", "-"), rc).out)

    def test_clean(self):
        a, b = self.synth("a", events=training()), self.synth("b", events=training())
        result = self.bisect(a, b, 0)
        self.assertEqual((result["verdict"], result["first"], result["step"]), ("identical", None, None))
        self.assertEqual(result["read"], {"totals": 6, "nodes": 0, "events": 0})  # three steps of each side, no node
        self.expect(self.audit("bisect", a, b), 0, out=["identical", "0 events"])

    def test_plants(self):
        """Also where every layer's backward differs because of it, and where the module around it has operators before."""
        a = self.synth("a", events=training())
        for n, (step, what, module) in enumerate([(1, "fwd", "layers.2.mlp"), (0, "fwd", "layers.0.mlp"), (2, "bwd", "layers.1.mlp"),
                                                  (1, "opt", "layers.3.mlp"), (0, "bwd", "layers.3.mlp")]):
            b = self.synth(f"b{n}", events=training(plant=(step, what, module, None)))
            result = self.bisect(a, b, 1)
            first = result["first"]
            self.assertEqual((result["step"], first["step"], first["pass"], first["module"]), (step, step, what, module))
            self.assertEqual((first["what"], first["ranks"]), (["outputs"], [0]))
            self.assertEqual(result["steps"]["differing"], 3 - step)
            self.assertEqual(result["read"]["events"], 0)
            text = self.expect(self.audit("bisect", a, b), 1, out=[f"step {step}", f"pass {what}", f"module {module}", "next: rlkaudit first-diff"]).out
            self.assertLessEqual(len(text.splitlines()), 24)
            # what the whole comparison finds first is in the module named, or in one that is left open
            whole = json.loads(self.expect(self.audit("first-diff", a, b, "--json", "-"), 1).out)["first"]
            self.assertEqual((whole["step"], whole["pass"], whole["module"]), (step, what, module))

    def test_the_module_around_is_left_open(self):
        a = self.synth("a", events=training())
        b = self.synth("b", events=training(plant=(1, "fwd", "layers.2", None)))
        result = self.bisect(a, b, 1)
        named = [(n["pass"], n["module"]) for n in [result["first"], *result["also"]]]
        self.assertIn(("fwd", "layers.2"), named)
        self.assertNotIn(("fwd", "layers.1"), named)

    def test_what_is_carried_on_is_left_open(self):
        """Then the first module of the next micro-batch differs too, and nodes do not tell micro-batches apart."""
        a = self.synth("a", events=training())
        b = self.synth("b", events=training(plant=(1, "fwd", "layers.2.mlp", None), carried=True))
        result = self.bisect(a, b, 1)
        self.assertIn(("fwd", "layers.2.mlp"), [(n["pass"], n["module"]) for n in [result["first"], *result["also"]]])

    def test_ranks(self):
        ranks = [0, 1, 2]
        a = self.synth("a", ranks=3, layout="tp1", events=training(ranks=ranks, steps=2))
        b = self.synth("b", ranks=3, layout="tp1", events=training(ranks=ranks, steps=2, plant=(1, "fwd", "layers.1.mlp", 2)))
        first = self.bisect(a, b, 1)["first"]
        self.assertEqual((first["rank"], first["ranks"], first["module"]), (2, [2], "layers.1.mlp"))
        c = self.synth("c", ranks=3, layout="tp1", events=training(ranks=ranks, steps=2, plant=(1, "fwd", "layers.1.mlp", None)))
        self.assertEqual(self.bisect(a, c, 1)["first"]["ranks"], [0, 1, 2])

    def test_ranks_are_ordered_by_what_they_come_to(self):
        """A rank that has fewer modules counts its places otherwise than the others: the first difference is the one that
        both come to first, and what another rank names is left open."""
        def two(bad):
            events = []
            def op(rank, what, module, fill, phase="actor_train"):
                events.append({"op": "mm", "module": module, "phase": phase, "pass": what, "ranks": [rank], "out": [tensor("y", fill)]})
            for rank in (0, 1):
                for i in range(3 if rank == 0 else 0):
                    op(rank, "fwd", f"embed.{i}", i, "ref_log_probs")
                op(rank, "fwd", "lm_head", 10 + (bad and rank == 0), "ref_log_probs")
                op(rank, "bwd", "qkv", 20 + (bad and rank == 0))
                op(rank, "bwd", "norm", 30 + bad)
            return events
        a, b = (self.synth(name, ranks=2, layout="tp1", events=two(bad)) for name, bad in (("a", 0), ("b", 1)))
        result = self.bisect(a, b, 1)
        self.assertEqual((result["first"]["module"], result["first"]["ranks"], result["also"]), ("lm_head", [0], []))
        # in one phase, the order of two ranks is not known
        same = [[{**e, "phase": "train"} for e in two(bad)] for bad in (0, 1)]
        a, b = (self.synth(f"s{i}", ranks=2, layout="tp1", events=e) for i, e in enumerate(same))
        result = self.bisect(a, b, 1)
        self.assertEqual((result["first"]["module"], [(n["module"], n["rank"]) for n in result["also"]], result["also_total"]),
                         ("lm_head", [("norm", 1)], 1))
        self.assertIn("uncertain: or in", self.audit("bisect", a, b).out)
        self.expect(self.audit("baseline", "save", a, "-o", "base.json"), 0)
        self.assertEqual(json.loads(self.audit("baseline", "check", b, "base.json", "--json", "-").out)["first"]["module"], "lm_head")

    def test_added_and_missing(self):
        events = training(steps=1)
        extra = [*events[:5], {**events[5], "module": "hook", "op": "print"}, *events[5:]]
        a, b = self.synth("a", events=events), self.synth("b", events=extra)
        first = self.bisect(a, b, 1)["first"]
        self.assertEqual((first["module"], first["what"], first["good"]), ("hook", ["only-in-bad"], None))
        self.assertEqual(self.bisect(b, a, 1)["first"]["what"], ["only-in-good"])
        longer = self.synth("longer", events=training(steps=2))
        result = self.bisect(a, longer, 1)
        self.assertEqual((result["step"], result["first"], result["lone_step"]), (1, None, True))

    def test_not_comparable_and_incomplete(self):
        a = self.synth("a", events=training(steps=1))
        other = self.synth("other", ranks=2, layout="tp2", events=training(steps=1))
        self.assertIn("layouts", self.bisect(a, other, 3)["not_comparable"]["reason"])
        self.assertIn("level", self.bisect(a, self.synth("level", capture="module", events=training(steps=1)), 3)["not_comparable"]["reason"])
        cut = self.synth("cut", complete=False, events=training(steps=2, plant=(1, "fwd", "", None)))
        result = self.bisect(self.synth("whole", events=training(steps=2)), cut, 4)  # its last step may lack events
        self.assertGreater(result["read"]["events"], 0)
        self.assertIn("made from its events", " ".join(result["notes"]))
        cut = self.synth("cut1", complete=False, events=training(steps=2, plant=(0, "fwd", "", None)))
        self.assertEqual(self.bisect(self.dir / "whole.rlk", cut, 1)["complete"], False)
        empty = self.synth("empty", events=[])
        self.bisect(empty, empty, 4)

    def test_bad_input(self):
        a = self.synth("a", events=training(steps=1))
        for argv in (["bisect"], ["bisect", a], ["bisect", a, a, a], ["bisect", a, "nowhere"], ["bisect", a, a, "--nope"],
                     ["bisect", a, a, "--json", "no/dir"], ["bisect", a, SOURCE]):
            done = self.expect(self.audit(*argv), 2)
            self.assertTrue(done.err)

    def test_names_are_escaped(self):
        evil = "m\x1b[31m\u202e\n"
        events = lambda fill: [{"op": "x", "module": evil, "out": [tensor("y", fill)]}]
        a, b = self.synth("a", events=events(1)), self.synth("b", events=events(2))
        self.assertFalse(set(self.expect(self.audit("bisect", a, b), 1).out) & set("\x1b\u202e"))
        self.assertEqual(self.bisect(a, b, 1)["first"]["module"], evil)


class Baseline(Case):
    def audit(self, *argv):
        return self.cmd(RLKAUDIT, "baseline", *argv)

    def check(self, rec, rc, file="base.json"):
        return json.loads(self.expect(self.audit("check", rec, file, "--json", "-"), rc).out)

    def save(self, rec, *argv):
        self.expect(self.audit("save", rec, "-o", "base.json", *argv), 0)
        return json.loads((self.dir / "base.json").read_text())

    def test_repeat_and_plants(self):
        self.save(self.synth("a", events=training()))
        self.assertLess((self.dir / "base.json").stat().st_size, 4096)
        repeat = self.synth("repeat", events=training())
        self.assertEqual(self.check(repeat, 0)["verdict"], "same")
        self.expect(self.audit("check", repeat, "base.json"), 0, out="same")
        for n, (step, what, module) in enumerate([(1, "fwd", "layers.2.mlp"), (0, "fwd", "layers.0.mlp"), (2, "bwd", "layers.1.mlp"), (1, "opt", "layers.3.mlp")]):
            b = self.synth(f"b{n}", events=training(plant=(step, what, module, None)))
            result = self.check(b, 1)
            first = result["first"]
            self.assertEqual((result["step"], first["pass"], first["module"]), (step, what, module))
            self.expect(self.audit("check", b, "base.json"), 1, out=[f"step {step}", f"module {module}"])

    def test_ranks(self):
        ranks = [0, 1, 2]
        a = self.synth("a", ranks=3, layout="tp1", events=training(ranks=ranks, steps=2))
        self.save(a)
        b = self.synth("b", ranks=3, layout="tp1", events=training(ranks=ranks, steps=2, plant=(1, "fwd", "layers.1.mlp", 2)))
        self.assertEqual(self.check(b, 1)["first"]["module"], "layers.1.mlp")
        swapped = training(steps=1, ranks=[0], plant=(0, "fwd", "layers.1.mlp", 0)) + training(steps=1, ranks=[1])
        other = training(steps=1, ranks=[0]) + training(steps=1, ranks=[1], plant=(0, "fwd", "layers.1.mlp", 1))
        self.save(self.synth("c", ranks=2, layout="tp1", events=swapped))
        self.check(self.synth("d", ranks=2, layout="tp1", events=other), 1)  # ranks do not stand for each other

    def test_many_steps_stay_small(self):
        """Steps are put together, modules cut short: what is named is coarser, what is found is not."""
        events = [{"op": "x", "module": f"layers.{i}.mlp.up", "step": s, "out": [tensor("y", i)]} for s in range(251) for i in range(40)]
        base = self.save(self.synth("a", events=events), "--max-size", "512")
        self.assertLess((self.dir / "base.json").stat().st_size, 5000)
        self.assertLess(base["depth"], 4)
        self.check(self.synth("again", events=events), 0)
        events[39]["out"] = [tensor("y", 999)]
        result = self.check(self.synth("b", events=events), 1)
        self.assertEqual(result["step"], 0)
        events[39]["out"] = [tensor("y", 39)]
        events[-1]["out"] = [tensor("y", 999)]
        result = self.check(self.synth("c", events=events), 1)
        self.assertEqual(result["step"], 249)
        self.assertIn("in one of the steps", " ".join(result["notes"]))

    def test_other_steps(self):
        self.save(self.synth("a", events=training(steps=2)))
        self.assertEqual(self.check(self.synth("longer", events=training(steps=3)), 1)["step"], 2)
        self.assertEqual(self.check(self.synth("shorter", events=training(steps=1)), 1)["step"], 1)

    def test_not_comparable_and_incomplete(self):
        self.save(self.synth("a", events=training(steps=2)))
        self.assertIn("ranks", self.check(self.synth("r", ranks=2, events=training(steps=2)), 3)["not_comparable"]["reason"])
        self.assertIn("level", self.check(self.synth("l", capture="module", events=training(steps=2)), 3)["not_comparable"]["reason"])
        cut = self.synth("cut", complete=False, events=training(steps=2))
        self.check(cut, 4)
        self.expect(self.audit("save", cut, "-o", "no.json"), 4, err="incomplete")
        self.assertFalse((self.dir / "no.json").exists())
        cut = self.synth("cut0", complete=False, events=training(steps=2, plant=(0, "fwd", "layers.0.mlp", None)))
        self.check(cut, 1)
        self.expect(self.audit("save", self.synth("empty", events=[]), "-o", "no.json"), 4)

    def test_hostile_files(self):
        a = self.synth("a", events=training(steps=1))
        good = self.save(a)
        hexes = good["modules"]["0"]
        for bad in ["", "[]", "{}", '{"schema": "rlk.accept/1"}', json.dumps({"schema": "rlk.baseline/1"}), {"extra": 1}, {"facts": 3}, {"steps": {}},
                    {"steps": [1]}, {"steps": ["0"]}, {"steps": ["0 xyz"]}, {"steps": ["0 " + "f" * 17]}, {"steps": ["1 " + "0" * 16, "0 " + "0" * 16]},
                    {"steps": ["5..1 " + "0" * 16]}, {"depth": -1}, {"depth": 65}, {"depth": "1"}, {"modules": []}, {"modules": {"0": 1}}, {"modules": {"0": "f" * 15}},
                    {"modules": {"0": "g" * 16}}, {"modules": {"0": hexes[16:32] + hexes[:16]}}, {"modules": {"0": hexes[:16] * 2}}]:
            (self.dir / "bad.json").write_text(bad if isinstance(bad, str) else json.dumps({**good, **bad}))
            done = self.expect(self.audit("check", a, "bad.json"), 2, err="bad.json")
            self.assertEqual((done.out, done.err.count("\n")), ("", 1))
        (self.dir / "bad.json").write_text(json.dumps({**good, "facts": {}}))
        self.check(a, 3, "bad.json")

    def test_usage(self):
        a = self.synth("a", events=training(steps=1))
        for argv in ([], ["save"], ["save", a], ["check", a], ["check"], ["keep", a], ["save", a, "b", "-o", "x"], ["check", a, "f", "-o", "x"],
                     ["check", a, "nowhere"], ["check", "nowhere", "base.json"], ["save", a, "-o", "no/dir"], ["save", a, "-o", "x", "--max-size", "2M"]):
            self.expect(self.audit(*argv), 2)


if __name__ == "__main__":
    rlk.main()
