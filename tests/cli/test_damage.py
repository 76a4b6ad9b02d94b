"""A recording whose bytes changed is no recording: no verdict comes of it, and nothing is made of it, whichever command reads
which part of it."""
import json
import os
import shutil
import subprocess
import unittest

import rlk
from rlk import RLKAUDIT, RLKREC, Case


def events(steps=3):
    tensor = lambda fill: {"name": "y", "dtype": "fp32", "shape": [4, 8], "fill": {"normal": fill}}
    return [{"op": "mm", "module": f"layers.{i}", "step": step, "pass": what, "out": [tensor(100 * step + i)], "phase": "actor_train"}
            for step in range(steps) for what in ("fwd", "bwd") for i in range(40)]


class Damage(Case):
    def setUp(self):
        super().setUp()
        self.a = self.synth("a", events=events())
        self.data = next(self.a.glob("rank-*/data.mdb"))
        self.expect(self.cmd(RLKAUDIT, "baseline", "save", self.a, "-o", "base.json"), 0)

    def copy(self, sealed):
        shutil.rmtree(self.dir / "b.rlk", ignore_errors=True)
        shutil.copytree(self.a, self.dir / "b.rlk")
        (self.dir / "b.rlk" / "SEAL").unlink(missing_ok=True)
        if sealed:
            self.expect(self.rec("seal", "b.rlk"), 0)
        return self.dir / "b.rlk" / self.data.relative_to(self.a)

    def calls(self):
        for argv in (["first-diff", "a.rlk", "b.rlk"], ["first-diff", "b.rlk", "a.rlk"], ["first-diff", "a.rlk", "a.rlk", "--self-b", "b.rlk"],
                     ["bisect", "a.rlk", "b.rlk"], ["bisect", "b.rlk", "a.rlk"], ["explain", "a.rlk", "b.rlk"], ["check", "b.rlk"],
                     ["baseline", "save", "b.rlk", "-o", "new.json"], ["baseline", "check", "b.rlk", "base.json"]):
            yield [RLKAUDIT, *argv]
        for argv in (["pack", "b.rlk", "-o", "new.pack"], ["pack", "b.rlk", "-o", "new.pack", "--redact", "names"], ["info", "b.rlk"]):
            yield [RLKREC, *argv]

    def refused(self, why):
        for argv in [*self.calls(), [RLKAUDIT, "report", "a.rlk", "b.rlk"], [RLKAUDIT, "report", "b.rlk", "a.rlk"]]:
            done = self.cmd(*argv)
            self.assertEqual(done.returncode, 2, f"{why}: {argv[1:]}: {done.out} {done.err}")
            self.assertFalse((self.dir / "new.json").exists() or (self.dir / "new.pack").exists(), f"{why}: {argv[1:]}")
            self.assertNotIn("dentical", done.out)

    def test_whole_ones_pass(self):
        for sealed in (True, False):
            self.copy(sealed)
            for argv in self.calls():
                done = self.cmd(*argv)
                self.assertEqual(done.returncode, 0, f"sealed {sealed}: {argv[1:]}: {done.out} {done.err}")
                for made in ("new.json", "new.pack"):
                    (self.dir / made).unlink(missing_ok=True)
            result = json.loads(self.cmd(RLKAUDIT, "bisect", "a.rlk", "b.rlk", "--json", "-").out)
            self.assertEqual(result["intact"]["bad"], "seal" if sealed else "checksums")
            (self.dir / "b.rlk" / "notes.txt").write_text("mine")  # what others put there is not the recording
            self.expect(self.cmd(RLKAUDIT, "bisect", "a.rlk", "b.rlk"), 0)

    def test_any_page_of_a_sealed_one(self):
        size = self.data.stat().st_size
        for page in range(0, size // 4096, max(1, size // 4096 // 6)):  # some read, some not, some not even used
            path = self.copy(True)
            with open(path, "r+b") as f:
                f.seek(page * 4096 + 3000)
                old = f.read(4)
                f.seek(page * 4096 + 3000)
                f.write(bytes(255 - b for b in old))
            self.refused(f"page {page}")
            self.expect(self.rec("seal", "b.rlk"), 1)

    def test_a_process_that_was_added(self):
        path = self.copy(True)
        shutil.copytree(path.parent, path.parent.with_name("rank-00001.pid-1"))
        self.refused("added")

    def test_explain_of_what_one_side_lacks(self):
        self.copy(False)
        for rank in ("7", "4294967296"):
            self.expect(self.cmd(RLKAUDIT, "explain", "a.rlk", "b.rlk", "--rank", rank), 2, err="rank " + rank)
        os.truncate(next((self.dir / "b.rlk").glob("rank-*/data.mdb")), 0)
        done = self.cmd(RLKAUDIT, "explain", "a.rlk", "b.rlk", "--event", "1")
        self.assertNotEqual(done.returncode, 0, done.out)

    def test_any_value_of_one_without_seal(self):
        """Each value has a checksum; free space between them is nobody's."""
        data = self.data.read_bytes()
        hits = 0
        for at in range(8192, len(data), 331):
            if not any(data[at:at + 4]) or hits >= 6:
                continue
            path = self.copy(False)
            with open(path, "r+b") as f:
                f.seek(at)
                f.write(bytes(b ^ 0x5A for b in data[at:at + 4]))
            if self.cmd(RLKAUDIT, "bisect", "a.rlk", "b.rlk").returncode == 0:
                continue  # a page that a newer one has replaced
            hits += 1
            self.refused(f"byte {at}")
            self.expect(self.rec("seal", "b.rlk"), 2)
        self.assertGreaterEqual(hits, 3)

    def test_cut_off_emptied_and_renamed(self):
        size = self.data.stat().st_size
        for cut in (size - 4096, size // 2, 5000, 100, 0):
            path = self.copy(True)
            os.truncate(path, cut)
            self.refused(f"cut at {cut}")
        for cut in (size // 2, 5000, 100):
            path = self.copy(False)
            os.truncate(path, cut)
            self.refused(f"cut at {cut}, no seal")
        self.copy(True)
        (self.dir / "b.rlk" / "manifest.json").write_text((self.dir / "b.rlk" / "manifest.json").read_text().replace("tp1", "tp2"))
        self.refused("another manifest")
        self.copy(True)
        seal = (self.dir / "b.rlk" / "SEAL").read_bytes()
        (self.dir / "b.rlk" / "SEAL").write_bytes(seal[:-1] + bytes([seal[-1] ^ 1]))
        self.refused("another seal")

    @unittest.skipUnless(shutil.which("zstd"), "no zstd program")
    def test_a_pack_that_holds_a_damaged_one(self):
        """Made by hand: pack refuses to."""
        path = self.copy(True)
        self.expect(self.rec("pack", "b.rlk", "-o", "new.pack"), 0)
        raw = subprocess.run(["zstd", "-dc", "new.pack"], cwd=self.dir, capture_output=True, check=True).stdout
        body = path.read_bytes()
        at = raw.index(body[:4096]) + len(body) - 4096 + 2000
        raw = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1:]
        packed = subprocess.run(["zstd", "-c", "--check"], cwd=self.dir, input=raw, capture_output=True, check=True).stdout
        (self.dir / "bad.pack").write_bytes(packed)
        (self.dir / "there").mkdir()
        self.expect(self.rec("unpack", "bad.pack", "-o", "there"), 2, out="there/b.rlk", err="damaged")
        self.expect(self.rec("verify", "there/b.rlk"), 1)

    def test_what_is_made_is_said(self):
        """What is replaced, what exists already, and what is not what it should be: each in a sentence that names it."""
        self.copy(True)
        (self.dir / "garbage.json").write_bytes(b"\xff\xfe\x00 no JSON")
        (self.dir / "empty.plan").write_text("# rlk.plan/1\n\n  # nothing\n")
        for what in ([RLKREC, "pack", "b.rlk", "-o", "new.pack"], [RLKAUDIT, "baseline", "save", "b.rlk", "-o", "new.json"]):
            self.assertNotIn("replaced", self.expect(self.cmd(*what), 0, out=what[-1]).out)
            self.expect(self.cmd(*what), 0, out="; replaced")
        self.expect(self.rec("unpack", "new.pack", "-o", "."), 2, err="b.rlk: it exists already")
        self.expect(self.rec("unpack", "new.pack", "-o", "."), 2)
        shutil.rmtree(self.dir / "b.rlk")
        self.expect(self.rec("unpack", "new.pack", "-o", "."), 0, out="b.rlk")
        self.expect(self.rec("unpack", "new.pack", "-o", "no/where"), 2, err="rlkrec: unpack: no/where/b.rlk: No such file")
        self.expect(self.rec("unpack", "garbage.json"), 2, err="garbage.json: no pack")
        for schema, argv in (("rlk.accept/1", ["first-diff", "a.rlk", "b.rlk", "--accept", "garbage.json"]),
                             ("rlk.baseline/1", ["baseline", "check", "b.rlk", "garbage.json"]),
                             ("result", ["show", "garbage.json"]), ("rlk.first_diff/1", ["accept", "garbage.json", "--reason", "r", "--owner", "o",
                                                                                         "--expires", "2999-01-01", "-o", "acc.json"])):
            self.expect(self.cmd(RLKAUDIT, *argv), 2, err=["garbage.json: no " + schema, "no JSON"])
        self.expect(self.rec("synth", "garbage.json", "-o", "s"), 2, err="no JSON")
        self.expect(self.rec("run", "-o", "planned", "--plan", "empty.plan", "--", "true"), 125, err="asks for anything")
        self.assertFalse((self.dir / "planned.rlk").exists())

    def test_a_process_without_data(self):
        """It died while it made its file: incomplete, and no other layout."""
        for name in ("a", "b"):
            shutil.rmtree(self.dir / f"{name}.rlk", ignore_errors=True)
        for ranks, gone in ((1, 0), (2, 1), (2, 0)):
            for unlink in (False, True):
                self.without_data(ranks, gone, unlink)

    def without_data(self, ranks, gone, unlink):
        shutil.rmtree(self.a, ignore_errors=True)
        self.a = self.synth("a", ranks=ranks, layout="tp1", events=[{**e, "ranks": [r]} for r in range(ranks) for e in events()])
        manifest = self.manifest("a.rlk")
        for key in ("layout", "ranks"):  # a framework that says nothing
            manifest.pop(key, None)
        (self.a / "manifest.json").write_text(json.dumps(manifest))
        self.data = next(self.a.glob(f"rank-{gone:05}*/data.mdb"))
        (self.a / "SEAL").unlink(missing_ok=True)
        self.expect(self.cmd(RLKAUDIT, "baseline", "save", self.a, "-o", "base.json"), 0)
        path = self.copy(False)
        path.unlink() if unlink else os.truncate(path, 0)
        for argv in (["first-diff", "a.rlk", "b.rlk"], ["bisect", "a.rlk", "b.rlk"], ["bisect", "b.rlk", "a.rlk"], ["check", "b.rlk"],
                     ["baseline", "save", "b.rlk", "-o", "new.json"], ["baseline", "check", "b.rlk", "base.json"]):
            done = self.cmd(RLKAUDIT, *argv)
            self.assertEqual(done.returncode, 4, f"{ranks} {gone} {unlink} {argv}: {done.out} {done.err}")
            self.assertNotIn("layout", done.out)
        self.expect(self.rec("info", "b.rlk"), 4)


if __name__ == "__main__":
    rlk.main()
