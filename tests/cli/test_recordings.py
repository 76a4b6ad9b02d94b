"""ls, info, verify, seal, rm, synth on recordings, good and bad. All recordings are synthetic."""
import json
import os
import shutil
import subprocess

import rlk
from rlk import RLKREC, Case, clean_env


class Looking(Case):
    def test_ls(self):
        self.expect(self.rec("ls"), 0, out="no recordings\n")
        self.expect(self.rec("ls", "nowhere"), 2)
        os.mkdir(self.dir / "rlk-recordings")
        for name in ("a", "b"):
            self.synth(f"rlk-recordings/{name}")
            os.utime(self.dir / f"rlk-recordings/{name}.rlk/manifest.json", (1e9 + ord(name),) * 2)
        self.synth("rlk-recordings/c", complete=False)
        os.mkdir(self.dir / "rlk-recordings/d.rlk")  # no manifest: not a recording
        (self.dir / "rlk-recordings/e.rlk").mkdir()
        (self.dir / "rlk-recordings/e.rlk/manifest.json").write_text("{")
        done = self.expect(self.rec("ls"), 0)
        lines = done.out.splitlines()
        self.assertEqual(len(lines), 5, done.out)
        self.assertEqual(sum("unreadable" in line for line in lines), 1)
        self.assertEqual(sum("complete, sealed" in line for line in lines), 2)
        self.assertEqual(sum("incomplete" in line for line in lines), 1)
        rows = json.loads(self.expect(self.rec("ls", "--json", "-"), 0).out)
        self.assertEqual(rows["schema"], "rlk.ls/1")
        byname = {row["name"]: row for row in rows["recordings"]}
        self.assertEqual(set(byname), {"a.rlk", "b.rlk", "c.rlk", "e.rlk"})
        self.assertEqual(byname["a.rlk"]["events"], 2)
        self.assertEqual(byname["a.rlk"]["steps"], 2)
        self.assertTrue(byname["a.rlk"]["sealed"])
        self.assertFalse(byname["c.rlk"]["complete"])
        self.assertIn("error", byname["e.rlk"])

    def test_info(self):
        self.synth("x", ranks=2, layout="tp2", argv=["train.py", "--lr", "1"])
        done = self.expect(self.rec("info", "x"), 0, out=["complete", "train.py --lr 1", "4 in 2 steps", "processes   2"])
        self.assertEqual(done.err, "")
        info = json.loads(self.expect(self.rec("info", "x.rlk", "--json", "-"), 0).out)
        self.assertEqual(info["schema"], "rlk.info/1")
        self.assertEqual((info["events"], info["steps"], info["complete"], info["sealed"]), (4, 2, True, True))
        self.assertEqual([e["ranks"] for e in info["environments"]], [[0], [1]])
        self.expect(self.rec("info", "x", "--json", "out.json"), 0)
        self.assertEqual(json.loads((self.dir / "out.json").read_text()), info)

    def test_incomplete(self):
        self.synth("no_end", complete=False)
        self.expect(self.rec("info", "no_end"), 4, out="INCOMPLETE")
        self.synth("empty", events=[])
        self.expect(self.rec("info", "empty"), 4, out="INCOMPLETE")
        self.synth("missing", ranks=3, layout="dp3", missing_ranks=[1])
        self.expect(self.rec("info", "missing"), 4, out="INCOMPLETE")
        self.synth("dropped", dropped=7)
        self.expect(self.rec("info", "dropped"), 4, out="7 events dropped")

    def test_events(self):
        y = {"name": "y", "dtype": "fp32", "shape": [2, 3], "fill": {"const": 1}, "alloc": 1}
        self.synth("x", events=[{"op": "aten::mm", "module": "m\x1b[31m", "out": [y]},
                                {"op": "aten::relu", "step": 1, "in": [dict(y, fill={"like": "y"})], "out": [dict(y, alloc=2)]},
                                {"collective": "all_reduce", "group": "tp", "step": 2, "in": [y], "out": [y]}])
        lines = self.expect(self.rec("info", "x", "--events"), 0).out.splitlines()
        self.assertEqual(len(lines), 3)
        self.assertIn("m\\x1b[31m", lines[0])
        self.assertNotIn("\x1b", "".join(lines))
        self.assertRegex(lines[0], r"^#0 r0 s0 - w0 fwd \S+@0 op aten::mm@0 \| out0 y fp32\[2,3\] [0-9a-f]{32}$")
        self.assertRegex(lines[1], r"\| in0 y fp32\[2,3\] =#0.out0 \| out0")
        self.assertIn("collective all_reduce", lines[2])
        self.assertIn("group=tp", lines[2])
        self.assertEqual(self.rec("info", "x", "--events", "-n", "1").out.splitlines(), lines[:1])
        self.assertEqual(self.rec("info", "x", "--events", "--steps", "1:2").out.splitlines(), lines[1:2])
        self.assertEqual(self.rec("info", "x", "--events", "--rank", "3").out, "")
        self.expect(self.rec("info", "x", "--events", "--rank", "x"), 2)
        self.synth("again", events=json.loads((self.dir / "x.json").read_text())["events"])
        self.assertEqual(self.rec("info", "again", "--events").out.splitlines(), lines)

    def test_output_that_fails(self):
        self.synth("x")
        self.expect(self.rec("info", "x", "--json", "no/such/dir/f"), 2)
        for what in (["info", "x"], ["ls", "."], ["info", "x", "--events"], ["info", "x", "--json", "-"], ["--help"],
                     ["run", "--help"]):
            with open("/dev/full", "w", encoding="ascii") as full:
                done = subprocess.run([RLKREC, *what], cwd=self.dir, env=clean_env(), stdout=full, stderr=subprocess.PIPE,
                                      timeout=60, check=False)
            self.assertEqual(done.returncode, 2, what)
            self.assertIn(b"No space left", done.stderr)


class Sealing(Case):
    def test_seal_and_verify(self):
        self.synth("x")
        self.expect(self.rec("verify", "x"), 0, out="good")
        self.expect(self.rec("seal", "x"), 0, err="sealed already")
        os.unlink(self.dir / "x.rlk/SEAL")
        self.expect(self.rec("verify", "x"), 4, out="not sealed")
        self.expect(self.rec("seal", "x"), 0, out="sealed")
        self.expect(self.rec("verify", "x"), 0, out="good")

    def test_changed(self):
        original = self.synth("x")
        (data,) = original.glob("rank-*/data.mdb")
        size = data.stat().st_size
        for at in (0, 100, 4096 + 17, size // 2, size - 5):
            shutil.copytree(original, self.dir / "y.rlk")
            with open(self.dir / "y.rlk" / data.relative_to(original), "r+b") as f:
                f.seek(at)
                byte = f.read(1)
                f.seek(at)
                f.write(bytes([byte[0] ^ 1]))
            done = self.expect(self.rec("verify", "y", "--json", "v.json"), 1, out="TAMPERED")
            self.assertGreaterEqual(len(done.out.splitlines()), 2, "the place is named")
            verdict = json.loads((self.dir / "v.json").read_text())
            self.assertEqual(verdict["verdict"], "tampered")
            self.assertTrue(verdict["places"])
            self.expect(self.rec("seal", "y"), 1, err="changed since")
            shutil.rmtree(self.dir / "y.rlk")

    def test_changed_manifest_and_missing_parts(self):
        original = self.synth("x", ranks=2, layout="tp2")

        def manifest(d):
            m = d / "manifest.json"
            m.write_text(m.read_text().replace('"op"', '"no"', 1))

        def environment(d):
            shutil.rmtree(next(d.glob("rank-00001*")))

        def extra(d):
            shutil.copytree(next(d.glob("rank-00001*")), d / "rank-00007.pid-7")

        def cut(d):
            data = next(d.glob("rank-*/data.mdb"))
            os.truncate(data, data.stat().st_size // 2)

        def seal(d):
            s = d / "SEAL"
            raw = bytearray(s.read_bytes())
            raw[len(raw) // 2] ^= 1
            s.write_bytes(raw)
        for change in (manifest, environment, extra, cut, seal):
            shutil.copytree(original, self.dir / "y.rlk")
            change(self.dir / "y.rlk")
            done = self.rec("verify", "y")
            self.assertEqual(done.returncode, 1, f"{change.__name__}: {done.out}{done.err}")
            shutil.rmtree(self.dir / "y.rlk")


class Removing(Case):
    def test_asks(self):
        self.synth("x")
        self.expect(self.rec("rm", "x"), 2, err="nobody to ask")
        self.assertTrue((self.dir / "x.rlk").exists())
        self.expect(self.rec("rm", "-f", "x"), 0, out="removed")
        self.assertFalse((self.dir / "x.rlk").exists())

    def test_refuses_what_is_none(self):
        x = self.synth("x")
        (self.dir / "plain").mkdir()
        (self.dir / "plain/manifest.json").write_text('{"name": "an app"}')
        (x / "notes.txt").write_text("mine")
        (self.dir / "file").write_text("mine")
        for target in ("plain", "x.rlk", "file", ".", "/", "nothing", ""):
            self.assertEqual(self.rec("rm", "-f", target).returncode, 2, target)
        self.assertEqual((x / "notes.txt").read_text(), "mine")
        self.assertTrue((x / "manifest.json").exists())
        os.unlink(x / "notes.txt")
        (x / "rank-00000.pid-9").symlink_to(self.dir / "plain")
        self.expect(self.rec("rm", "-f", "x"), 2, err="not part of a recording")
        os.unlink(x / "rank-00000.pid-9")
        (next(x.glob("rank-*")) / "core").write_text("mine")
        self.expect(self.rec("rm", "-f", "x"), 2, err="not part of a recording")
        self.assertTrue((self.dir / "plain/manifest.json").exists())

    def test_damaged_can_go(self):
        x = self.synth("x")
        os.truncate(next(x.glob("rank-*/data.mdb")), 100)
        self.expect(self.rec("info", "x"), 2)
        self.expect(self.rec("rm", "-f", "x"), 0)

    def test_latest_moves_on(self):
        for name in ("a", "b"):
            self.expect(self.rec("run", "-q", "-o", f"rlk-recordings/{name}", "--", "true"), 0)
            os.utime(self.dir / f"rlk-recordings/{name}.rlk/manifest.json", (2e9 + ord(name),) * 2)
        latest = self.dir / "rlk-recordings/latest"
        self.assertEqual(os.readlink(latest), "b.rlk")
        self.expect(self.rec("rm", "-f", "rlk-recordings/latest"), 0)
        self.assertEqual(os.readlink(latest), "a.rlk")
        self.expect(self.rec("rm", "-f", "@1"), 0)
        self.assertFalse(latest.is_symlink())


class Bad(Case):
    """Recordings truncated, of a newer format, empty, not there."""

    def test_not_there(self):
        for what in (["info", "nothing"], ["verify", "nothing"], ["seal", "nothing"], ["info"], ["info", "@3"], ["info", "@x"]):
            done = self.expect(self.rec(*what), 2)
            self.assertEqual(done.out, "")
            self.assertEqual(done.err.count("\n"), 1, done.err)
        self.assertEqual(done.err, "rlkrec: @x: @1 is the newest recording, @2 the one before\n")
        for what in (["info", "nothing"], ["rm", "-f", "nothing"]):
            self.assertEqual(self.rec(*what).err, "rlkrec: nothing: there is no such recording\n")

    def test_truncated(self):
        x = self.synth("x")
        (data,) = x.glob("rank-*/data.mdb")
        whole = data.read_bytes()
        for size in (0, 1, 4095, 4096, 8192, 12288, len(whole) // 2, len(whole) - 4096, len(whole) - 1):
            data.write_bytes(whole[:size])
            for what in (["info", "x"], ["info", "x", "--events"], ["info", "x", "--json", "-"]):
                done = self.rec(*what)
                self.assertIn(done.returncode, (0, 2, 4), f"{size} {what} {done.err}")
                if done.returncode == 2:
                    self.assertEqual(done.err.count("\n"), 1, done.err)
            self.expect(self.rec("verify", "x"), 1)

    def test_newer_format(self):
        x = self.synth("x")
        path = x / "manifest.json"
        manifest = json.loads(path.read_text())
        manifest["format"] = {"major": 99, "minor": 0}
        path.write_text(json.dumps(manifest))
        self.expect(self.rec("info", "x"), 2, err="newer")

    def test_manifest_of_all_kinds(self):
        x = self.synth("x")
        for text in ("", "{", "[]", "null", '"x"', "{}", '{"rlk_recording": 2}', '{"rlk_recording": "1", "format": 3}',
                     '{"rlk_recording": 1, "format": {"major": 1, "minor": 0}, "argv": {"a": 1}, "env": [], "faults": 3, '
                     '"libraries": [1], "exit": "x", "hosts": [[]], "created": 3, "seconds": "x"}', "\0" * 100, "[" * 5000):
            (x / "manifest.json").write_text(text)
            for what in (["info", "x"], ["ls", "."], ["verify", "x"], ["info", "x", "--json", "-"]):
                self.assertIn(self.rec(*what).returncode, (0, 1, 2, 4), (what, text[:60]))


class Synth(Case):
    def test_wrong_specs(self):
        (self.dir / "there.rlk").mkdir()
        (self.dir / "ok.json").write_text('{"rlk_synth": 1, "ranks": 1, "layout": "tp1", "events": []}')
        for text, place in (("", ""), ("{", ""), ('{"rlk_synth": 1, "norml": 1}', "norml"), ('{"rlk_synth": 9}', "rlk_synth"),
                            ('{"rlk_synth": 1, "ranks": 1, "layout": "tp1", "events": [{"op": "x", "in": [{"name": 3}]}]}',
                             "events[0].in[0]")):
            (self.dir / "bad.json").write_text(text)
            done = self.expect(self.rec("synth", "bad.json", "-o", "bad"), 2, err=place)
            self.assertEqual(done.err.count("\n"), 1, done.err)
            self.assertFalse((self.dir / "bad.rlk").exists())
        self.assertRegex(done.err, r'^rlkrec: bad.json: events\[0\].in\[0\].name: [^:]*\n$')
        done = self.expect(self.rec("synth", "ok.json", "-o", "there"), 2, err="rlkrec: there.rlk: it exists already")
        self.assertNotIn("File exists", done.err)
        done = self.rec("synth", "none.json", "-o", "y")
        self.assertEqual(done.err, "rlkrec: none.json: No such file or directory\n")
        self.expect(self.rec("synth", "ok.json"), 2, err="--output")
        self.expect(self.rec("synth", "none.json", "-o", "y"), 2)
        self.expect(self.rec("synth", "ok.json", "-o", "/proc/x/y"), 2)


if __name__ == "__main__":
    rlk.main()
