"""The adapter's road for tensors on a device, without one: an observer that takes the CPU's tensors for a device's, a recorder
and a driver that are stand-ins (tests/gpu/fake). What it records must be what the plain road records, to the last digest.

usage: RLK_BUILD=... RLK_SOURCE=... test_device.py"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["RLK_SOURCE"])
BUILD = pathlib.Path(os.environ["RLK_BUILD"])
ADAPTER = SOURCE / "recorder" / "torch" / "python"
FAKE = BUILD / "tests" / "gpu" / "fake"
RLKREC, RLKAUDIT = BUILD / "bin" / "rlkrec", BUILD / "bin" / "rlkaudit"

PROGRAM = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.LayerNorm(48), torch.nn.GELU(), torch.nn.Linear(48, 10)).to(torch.bfloat16)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
x = torch.randn(33, 64, dtype=torch.bfloat16)
for step in range(3):
    y = net(x)
    loss = y.float().logsumexp(1).mean() + y.t().contiguous().float().pow(2).mean() + x.expand(2, 33, 64).sum().float() * 1e-3
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    print(f"step {step} loss {loss.item():.17g}")
    x.add_(0.125)
    z = torch.zeros(0, 4) + 1, torch.arange(24).view(2, 3, 4).transpose(0, 2)[1:].clone(), torch.randn(6, 2, dtype=torch.complex64) * 2
    a = torch.empty(8, 8).copy_(torch.ones(8, 8), non_blocking=True)
"""


FLAGS = "-DRLKT_HOST_AS_CUDA"


def clean():
    return {k: v for k, v in os.environ.items() if not k.startswith("RLKREC_") or k == "RLKREC_CACHE"}


def record(out, options, fake):
    """Runs PROGRAM; its stdout and stderr."""
    change = ["env", f"RLKREC_LIBRARY={FAKE / 'libfake_gpu_recorder.so'}", f"RLKREC_CXXFLAGS={FLAGS}", f"LD_PRELOAD={FAKE / 'libcuda.so.1'}",
              "FAKE_CUDA=inline"] if fake else []
    done = subprocess.run([RLKREC, "run", "-q", "-o", out, *options, "--", *change, sys.executable, "-c", PROGRAM], capture_output=True, text=True,
                          env={**clean(), "OMP_NUM_THREADS": "1"}, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def info(path):
    done = subprocess.run([RLKREC, "info", "--json", "-", path], capture_output=True, text=True)
    assert done.returncode in (0, 4), done.stderr
    return json.loads(done.stdout)


class Device(unittest.TestCase):
    maxDiff = None

    def same(self, *options):
        with tempfile.TemporaryDirectory() as tmp:
            host, device = pathlib.Path(tmp) / "host.rlk", pathlib.Path(tmp) / "device.rlk"
            plain = record(host, options, False)
            fake = record(device, options, True)
            self.assertEqual(plain, fake)
            self.assertEqual(fake[1], "")
            facts = info(device)
            meta = {}
            for e in facts.get("environments", facts.get("envs", [])):
                meta.update(e.get("meta", {}))
            self.assertGreater(int(meta["gpu.tensors"]), 20)
            self.assertEqual(meta["gpu.tensors"], meta["gpu.results"])
            # a launch for the outputs of an operator, one for its inputs: not one a tensor
            self.assertLessEqual(int(meta["gpu.device_bytes"]) + int(meta["gpu.host_bytes"]), 64 << 20)
            ours, theirs = facts["coverage"], info(host)["coverage"]
            self.assertEqual(ours["tensors"], theirs["tensors"])
            done = subprocess.run([RLKAUDIT, "first-diff", host, device], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return ours, theirs

    def test_op_level(self):
        ours, theirs = self.same()
        self.assertEqual(ours["by_reference"], theirs["by_reference"])

    def test_inputs_by_digest(self):
        self.same("--inputs", "digest")

    def test_module_level(self):
        self.same("--level", "module")

    def test_step_level(self):
        self.same("--level", "step")


def main():
    try:
        import torch  # noqa: F401
    except ImportError as e:
        print(f"skipped: {e}")
        sys.exit(77)
    subprocess.run([sys.executable, "-m", "rlkrec_torch.build"], check=True, capture_output=True,
                   env={**clean(), "PYTHONPATH": str(ADAPTER), "RLKREC_CXXFLAGS": FLAGS})
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
