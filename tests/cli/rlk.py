"""What the command-line tests share: a scratch directory a test, the programs under test, and plain assertions.

usage of a test file: python3 test_x.py BUILD_DIR [unittest arguments]
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "build/release").resolve()
BIN = BUILD / "bin"
SOURCE = pathlib.Path(__file__).resolve().parents[2]
RLKREC = str(BIN / "rlkrec")
RLKAUDIT = str(BIN / "rlkaudit")
TRAIN = str(BUILD / "workloads" / "train")
LIMIT = 120  # seconds; a hang is a failure


def clean_env(**more):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("RLK", "SLURM", "TORCHELASTIC", "OMPI", "PMIX")) and k not in ("NO_COLOR", "PYTHONPATH")}
    env.update(more)
    return env


class Case(unittest.TestCase):
    """A test in its own directory; self.rec(...) runs rlkrec, self.cmd(...) anything."""
    maxDiff = 4000

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="rlk test "))  # with a space, on purpose
        self.addCleanup(self._remove)

    def _remove(self):
        subprocess.run(["chmod", "-R", "u+rwx", str(self.dir)], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)

    def cmd(self, *argv, env=None, stdin=b"", cwd=None):
        done = subprocess.run([str(a) for a in argv], cwd=cwd or self.dir, env=env or clean_env(), input=stdin,
                              capture_output=True, timeout=LIMIT, check=False)
        done.out = done.stdout.decode(errors="replace")
        done.err = done.stderr.decode(errors="replace")
        return done

    def rec(self, *argv, **kw):
        return self.cmd(RLKREC, *argv, **kw)

    def expect(self, done, rc, out=None, err=None):
        """Exit status, and texts that stdout or stderr must hold."""
        self.assertEqual(done.returncode, rc, f"\nstdout: {done.out}\nstderr: {done.err}")
        for text in [out] if isinstance(out, str) else out or []:
            self.assertIn(text, done.out, f"stderr: {done.err}")
        for text in [err] if isinstance(err, str) else err or []:
            self.assertIn(text, done.err)
        return done

    def manifest(self, path):
        return json.loads((self.dir / path / "manifest.json").read_text())

    def synth(self, name, **spec):
        """A small synthetic recording NAME.rlk."""
        tensor = {"name": "y", "dtype": "fp32", "shape": [4, 8], "fill": {"normal": 1}}
        full = {"rlk_synth": 1, "ranks": 1, "layout": "tp1", "capture": "op",
                "events": [{"op": "aten::mm", "module": "layers.0", "step": s, "out": [tensor]} for s in range(2)]}
        full.update(spec)
        (self.dir / f"{name}.json").write_text(json.dumps(full))
        self.expect(self.rec("synth", f"{name}.json", "-o", f"{name}.rlk"), 0)
        return self.dir / f"{name}.rlk"


def main():
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:], verbosity=2)
