"""How the launch plane begins, on a stand-in for CUPTI: which copy it takes, who holds the place, and what it says.

usage: test_injection.py BUILD FOLDER     FOLDER: the stand-ins, in 13/, 12/ (a program of CUDA 12) and bare/ (that without CUPTI)
"""
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD, FOLDER = map(pathlib.Path, sys.argv[1:3])
RLKREC = BUILD / "bin" / "rlkrec"
PROGRAM = """
import ctypes, os, sys
for name in sys.argv[1:]:
    ctypes.CDLL(name)
recorder = ctypes.CDLL(os.environ["RLKREC_LIBRARY"])
print("injected", recorder.InitializeInjection(), recorder.InitializeInjection())
cupti = [name for name in sys.argv[1:] if "cupti" in name or os.path.dirname(name).endswith(("13", "12"))]
for name in cupti:
    folder = os.path.dirname(name)
    for so in os.listdir(folder):
        if so.startswith("libcupti.so.1"):
            print("heard", ctypes.CDLL(os.path.join(folder, so)).fake_launch())
"""


class Injection(unittest.TestCase):
    def start(self, *libraries, cupti=""):
        """Output, what the recorder said, and the recording's facts, of a program with these libraries."""
        with tempfile.TemporaryDirectory() as tmp:
            out = pathlib.Path(tmp) / "r.rlk"
            env = {k: v for k, v in os.environ.items() if not k.startswith("RLKREC_") and k not in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")}
            done = subprocess.run([RLKREC, "run", "-q", "--level", "launch", "-o", out, "--", sys.executable, "-c", PROGRAM, *map(str, libraries)],
                                  capture_output=True, text=True, env={**env, "FAKE_CUPTI": cupti}, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            facts = json.loads(subprocess.run([RLKREC, "info", "--json", "-", out], capture_output=True, text=True, timeout=60).stdout)
            said = [line for line in done.stderr.splitlines() if "launch-plane" in line]
            meta = {}
            for e in facts["environments"]:
                meta.update(e["meta"])
            self.assertTrue(done.stdout.startswith("injected 1 1\n"), done.stdout)
            return done.stdout, said, meta

    def test_launches(self):
        out, said, meta = self.start(FOLDER / "13" / "libcudart.so.13")
        self.assertEqual((out, said), ("injected 1 1\nheard 1\n", []))
        self.assertEqual(meta["lib.cupti"], f"130001 from {FOLDER / '13' / 'libcupti.so.13'}")
        self.assertEqual((meta["launches.seen"], meta["launches.recorded"]), ("1", "1"))

    def test_cuda_12(self):
        """Its own CUPTI, never the other's: callbacks have other numbers there."""
        out, said, meta = self.start(FOLDER / "12" / "libcudart.so.12")
        self.assertEqual((out, said), ("injected 1 1\nheard 1\n", []))
        self.assertEqual(meta["lib.cupti"], f"26 from {FOLDER / '12' / 'libcupti.so.12'}")
        self.assertEqual(meta["launches.recorded"], "1")

    def test_cuda_12_without_cupti(self):
        try:
            ctypes.CDLL("libcupti.so.12")
        except OSError:
            pass
        else:
            self.skipTest("this machine has a libcupti.so.12")
        _, said, _ = self.start(FOLDER / "bare" / "libcudart.so.12")
        self.assertEqual(said, ["rlkrec: launch-plane: no libcupti.so.12 was found: launches are not recorded"])

    def test_taken(self):
        for cupti, who in (("held nsys", "nsys"), ("held", "Nsight, compute-sanitizer or cuda-gdb")):
            out, said, _ = self.start(FOLDER / "13" / "libcudart.so.13", cupti=cupti)
            self.assertEqual(said, [f"rlkrec: launch-plane: another profiler holds CUPTI ({who}): launches are not recorded"])
            self.assertIn("heard 0", out)

    def test_refused(self):
        _, said, _ = self.start(FOLDER / "13" / "libcudart.so.13", cupti="refused")
        self.assertEqual(said, ["rlkrec: launch-plane: CUPTI refuses (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES): launches are not recorded"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
