"""torch.profiler beside the recorder: its subscription to CUPTI is answered by us (recorder/cupti/guest.h)."""
import os
import pathlib
import tempfile
import unittest

import rig

# what the profiler does first on a machine with a GPU; here there is none and it would not begin
PROGRAM = """
import ctypes, pathlib, torch
ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")).libkineto_init(False, True)
print("done", torch.ones(3).sum().item())
"""
BORDER = rig.BUILD / "lib" / "librlkrec_cupti.so"


class Profiler(unittest.TestCase):
    def test_subscribes_with_us(self):
        import torch

        if not BORDER.exists() or not torch.version.cuda:
            self.skipTest("built without the CUDA toolkit, or a torch without CUDA")
        with tempfile.TemporaryDirectory() as tmp:
            library = pathlib.Path(tmp) / "librlkrec.so"
            library.symlink_to(os.environ["RLK_FAKE_RECORDER"])
            alone = rig.record(PROGRAM, env={"RLKREC_LIBRARY": str(library), "KINETO_LOG_LEVEL": "0"})
            self.assertIn("CUPTI initialization failed", alone.err)  # without the border: as it was
            (pathlib.Path(tmp) / "librlkrec_cupti.so").symlink_to(BORDER)
            run = rig.record(PROGRAM, env={"RLKREC_LIBRARY": str(library), "KINETO_LOG_LEVEL": "0"})
        self.assertEqual(run.out, "done 3.0\n")
        self.assertNotIn("CUPTI initialization failed", run.err)
        marks = [m for m in run.marks if m.startswith("#guest")]
        self.assertEqual(marks[0], "#guest subscribes")
        self.assertTrue(len(marks) == 2 and marks[1].startswith("#guest enables 1: 3 "), marks)  # a callback of the resource domain


if __name__ == "__main__":
    rig.main()
