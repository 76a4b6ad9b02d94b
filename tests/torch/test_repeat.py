"""tests/gpu/h200/repeat_ops.py finds operators that do not repeat, forward and backward, returned and written, and no others."""
import json
import pathlib
import tempfile
import unittest

import rig

PROGRAM = r"""
import os, struct, sys, torch
lib = torch.library.Library("planted", "DEF")
lib.define("noise(Tensor x) -> (Tensor, Tensor)")
lib.define("scribble(Tensor(a!) x) -> ()")
def any_number():
    return struct.unpack("I", os.urandom(4))[0] / 1e6 if "planted" in sys.argv else 1.0
lib.impl("noise", lambda x: (x.clone(), x + any_number()), "CompositeExplicitAutograd")
def scribble(x):
    x.add_(any_number())
lib.impl("scribble", scribble, "CompositeExplicitAutograd")
class Written(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        torch.ops.planted.scribble(g)
        return g
torch.manual_seed(0)
net = torch.nn.Linear(8, 8)
y = torch.nn.functional.dropout(Written.apply(net(torch.randn(4, 8).t().contiguous().t())), 0.5)
torch.ops.planted.noise(y.detach().expand(3, 4, 8))
y.t().sum(0).sum().backward()
torch.optim.AdamW(net.parameters(), lr=.1).step()
print("done", y.sum().item())
"""


class Repeat(unittest.TestCase):
    def vary(self, *words):
        with tempfile.TemporaryDirectory() as tmp:
            program, result = pathlib.Path(tmp) / "program.py", pathlib.Path(tmp) / "result.json"
            program.write_text(PROGRAM)
            script = rig.SOURCE / "tests" / "gpu" / "h200" / "repeat_ops.py"
            done = rig.plain([script, "--json", result, program, *words], CUDA_VISIBLE_DEVICES="")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout.startswith("done "), done.stdout)
            found = json.loads(result.read_text())
            self.assertEqual(found["failed"], {})
            self.assertIn("aten::bernoulli_", found["seen"])
            self.assertIn("planted::scribble", found["seen"])  # runs below autograd
            return [(v["op"], v["index"]) for v in found["vary"]]

    def test_planted(self):
        self.assertEqual(self.vary("planted"), [("planted::noise", 1), ("planted::scribble", 0)])

    def test_clean(self):
        self.assertEqual(self.vary(), [])


if __name__ == "__main__":
    rig.main()
