"""A recorder that meets trouble: the command goes on, with the same output and status, and the recording says so.

The watched program is tests/workloads/train.c.
"""
import os
import pathlib
import shlex
import signal
import subprocess
import time

import rlk
from rlk import RLKREC, TRAIN, Case, clean_env


class Faults(Case):
    def plain(self, *argv):
        return self.expect(self.cmd(TRAIN, *argv), 0).out

    def test_output_is_the_same(self):
        plain = self.plain("--steps", "3")
        self.assertGreater(len(plain), 20)
        for level in ("step", "module", "op"):
            for inputs in ("reference", "digest"):
                done = self.rec("run", "-o", f"{level}-{inputs}", "--level", level, "--inputs", inputs, "--", TRAIN, "--steps", "3")
                self.expect(done, 0, err="complete, sealed")
                self.assertEqual(done.out, plain)
                self.expect(self.rec("verify", f"{level}-{inputs}"), 0)

    def test_closing_lines(self):
        done = self.expect(self.rec("run", "--", TRAIN), 0)
        lines = done.err.splitlines()
        self.assertEqual(len(lines), 3, done.err)
        self.assertRegex(lines[0], r"^rlkrec: rlk-recordings/\d{8}-\d{6}-train\.rlk: [\d.]+ [kM]B, 1 process, complete, sealed$")
        self.assertRegex(lines[1], r"^rlkrec: [\d,]+ events, [\d,]+ tensors \([\d,]+ by reference\) in \d+ steps; ")
        self.assertIn("next: ", lines[2])
        done = self.expect(self.rec("run", "--", TRAIN), 0, err="next: rlkaudit first-diff @2 @1")
        self.assertEqual(self.expect(self.rec("run", "-q", "--", TRAIN), 0).err, "")

    def test_same_lines_twice(self):
        for name in "ab":
            self.expect(self.rec("run", "-o", name, "--", TRAIN, "--threads", "1"), 0)
        a, b = (self.expect(self.rec("info", name, "--events"), 0).out for name in "ab")
        self.assertGreater(len(a.splitlines()), 50)
        self.assertEqual(a, b)

    def test_kill_9_of_the_command(self):
        p = subprocess.Popen([RLKREC, "run", "-o", "out", "--", TRAIN, "--steps", "100000"], cwd=self.dir, env=clean_env(),
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(2.5)
        child = int(pathlib.Path(f"/proc/{p.pid}/task/{p.pid}/children").read_text().split()[0])
        os.kill(child, signal.SIGKILL)
        err = p.communicate(timeout=60)[1].decode()
        self.assertEqual(p.returncode, 128 + signal.SIGKILL)
        self.assertIn("INCOMPLETE", err)
        self.assertEqual(self.manifest("out.rlk")["exit"], {"signal": 9})
        done = self.expect(self.rec("info", "out"), 4, out="no END")
        self.assertNotIn("events      0 ", done.out)
        lines = self.expect(self.rec("info", "out", "--events"), 0).out.splitlines()
        self.assertGreater(len(lines), 100)

    def test_while_it_records(self):
        """A process that the command leaves behind: no seal, and it is neither sealed nor removed by mistake."""
        code = f"{shlex.quote(TRAIN)} --steps 1000000 >/dev/null 2>&1 & echo $!; sleep 1.5"
        done = self.expect(self.rec("run", "-o", "out", "--", "sh", "-c", code), 0)
        pid = int(done.out)
        try:
            self.assertIn(f"not sealed (process {pid} still records)", done.err)
            self.expect(self.rec("info", "out"), 4, out="still recording")
            self.expect(self.rec("ls", "."), 0, out="recording")
            self.expect(self.rec("seal", "out"), 2, err="still records")
            for force in ([], ["-f"]):
                self.expect(self.rec("rm", *force, "out"), 2, err=f"process {pid} still records")
            manifest = (self.dir / "out.rlk/manifest.json").read_text()
            data = next((self.dir / "out.rlk").glob("rank-*/data.mdb"))
            data.rename(self.dir / "kept")  # one that cannot be opened is no less in use
            data.write_bytes(b"x" * 100)
            self.expect(self.rec("rm", "-f", "out"), 2, err=f"process {pid} still records")
            (self.dir / "kept").rename(data)
            self.assertEqual((self.dir / "out.rlk/manifest.json").read_text(), manifest)
        finally:
            os.kill(pid, signal.SIGKILL)
        for _ in range(100):
            done = self.rec("info", "out")
            if "still recording" not in done.out:
                break
            time.sleep(0.05)
        self.expect(done, 4, out="no END")
        self.expect(self.rec("seal", "out"), 0)
        self.expect(self.rec("verify", "out"), 0)
        self.expect(self.rec("rm", "-f", "out"), 0)

    def test_before_it_records(self):
        """The command runs and no process records yet: in use all the same, until the command has ended."""
        code = f'{shlex.quote(RLKREC)} rm -f out; echo "status $?"'
        done = self.expect(self.rec("run", "-o", "out", "--", "sh", "-c", code), 0, out="status 2\n")
        self.assertRegex(done.err, r"refused: process \d+ still records")
        self.expect(self.rec("rm", "-f", "out"), 0, out="removed")

    def test_disk_full_in_mid_run(self):
        os.mkdir(self.dir / "disk")
        argv = [TRAIN, "--steps", "40"]
        inside = (f"mount -t tmpfs -o size=640k none disk && {{ {shlex.quote(RLKREC)} run --payload 'step=0:' -o disk/r -- "
                  f"{shlex.join(argv)}; echo status $?; cp -r disk/r.rlk kept.rlk; }}")
        user = [] if os.getuid() == 0 else ["-r"]
        if self.cmd("unshare", "-m", *user, "mount", "-t", "tmpfs", "none", "disk").returncode:
            self.skipTest("no mount namespaces here")
        done = self.expect(self.cmd("unshare", "-m", *user, "sh", "-c", inside), 0)
        self.assertEqual(done.out, self.plain("--steps", "40") + "status 0\n")
        self.assertIn("INCOMPLETE", done.err + "INCOMPLETE" * ("could not be completed" in done.err))
        self.assertRegex(done.err, "disk is full|No space left")
        self.expect(self.rec("info", "kept"), 4, out="INCOMPLETE")

    def test_any_file_size_limit(self):
        """RLIMIT_FSIZE of any size: the limit kills with SIGXFSZ, and must not reach the command through our writes."""
        for kib in (2, 8, 12, 16, 20, 28, 60):
            code = f"ulimit -f {kib}; exec {shlex.quote(TRAIN)} --steps 8"
            done = self.rec("run", "-o", f"limit{kib}", "--", "bash", "-c", code)
            self.expect(done, 0)
            shown = self.rec("info", f"limit{kib}.rlk")
            self.expect(shown, 4)

    def test_max_size(self):
        done = self.rec("run", "--max-size", "300K", "--payload", "step=0:", "-o", "r", "--", TRAIN, "--steps", "40")
        self.expect(done, 0, err="INCOMPLETE")
        self.assertEqual(done.out, self.plain("--steps", "40"))
        self.expect(self.rec("info", "r"), 4)

    def test_directory_goes_away(self):
        code = f"rm -rf out.rlk; exec {shlex.quote(TRAIN)}"
        done = self.expect(self.rec("run", "-o", "out", "--", "sh", "-c", code), 0, out=self.plain())
        self.assertIn("could not be completed", done.err)

    def test_steps(self):
        self.expect(self.rec("run", "-o", "s", "--steps", "1:3", "--", TRAIN), 0)
        steps = {line.split()[2] for line in self.rec("info", "s", "--events").out.splitlines()}
        self.assertEqual(steps, {"s1", "s2"})
        self.expect(self.rec("run", "-o", "e", "--every", "2", "--", TRAIN), 0)
        steps = {line.split()[2] for line in self.rec("info", "e", "--events").out.splitlines()}
        self.assertEqual(steps, {"s0", "s2"})
        self.expect(self.rec("run", "-o", "k", "--keep-last", "1", "--", TRAIN), 0, err="seen, those of 1 step kept;")
        steps = {line.split()[2] for line in self.rec("info", "k", "--events").out.splitlines()}
        self.assertEqual(steps, {"s3"})
        self.expect(self.rec("info", "k"), 0, out="seen, those of 1 step kept (--keep-last")
        self.assertIn(" in 2 steps\n", self.rec("info", "e").out)
        self.expect(self.rec("run", "-o", "none", "--steps", "90:", "--", TRAIN), 0, err="no step was inside --steps")

    def test_secrets_of_the_environment(self):
        secret = "S3cr3tValue"
        self.expect(self.rec("run", "-o", "r", "--", TRAIN, env=clean_env(HF_TOKEN=secret, MY_PASSWORD=secret)), 0)
        for path in (self.dir / "r.rlk").rglob("*"):
            if path.is_file():
                self.assertNotIn(secret.encode(), path.read_bytes(), path)


if __name__ == "__main__":
    rlk.main()
