"""Memory of a device that no operator wrote is undefined to who reads it, where every launch is seen; else it is digested.
Here tensors of the CPU pass for a device's."""
import rig

PROGRAM = """
import os, torch, rlk
lib = torch.library.Library("planted", "DEF")
lib.define("fills(Tensor x) -> Tensor")  # and writes x, which it does not say
lib.impl("fills", lambda x: x.data.fill_(4).clone(), "CompositeExplicitAutograd")
one = torch.ones(1, 2, 2)
rlk.phase("never")
torch.baddbmm(torch.empty(1, 2, 2), one, one, beta=0)
e = torch.empty(3); e.scatter_(0, torch.arange(3), 1.0); e.sum()
torch.empty(2, 3).t().clone()
rlk.phase("partly")
cache = torch.empty(8, 4)
cache[:2].copy_(torch.ones(2, 4))
cache[:2].sum()
cache[1:2].expand(5, 4).sum()
cache.sum()
rlk.phase("filled")
halves = torch.empty(4, 8)
halves[:, :4] = 1
halves[:, 4:] = 2
halves.sum()
flat = torch.empty(6)
for i in range(3):
    flat[2 * i : 2 * i + 2].copy_(torch.ones(2))
flat.sum()
rlk.phase("unseen")
e = torch.empty(3)
os.environ["FAKE_LAUNCHES"] = "8"
e.sum()
e = torch.empty(3); torch.ops.planted.fills(e); e.sum()
e = torch.empty(3); e.numpy(); torch.ones(3).mul_(2); e.data.sum()
rlk.phase("nobody counts")
del os.environ["FAKE_LAUNCHES"]
e = torch.empty(3); e.sum()
"""


class Fresh(rig.unittest.TestCase):
    def test_fresh(self):
        run = rig.record(PROGRAM, observer="c++", env={"FAKE_LAUNCHES": "7", "RLKREC_CXXFLAGS": "-DRLKT_HOST_AS_CUDA"})
        self.assertEqual(run.rc, 0, run.err)
        undefined = [(e.phase, e.op, t.name) for e in run.ops() for t in e.inputs if t.hash == "!uninitialized"]
        self.assertEqual(undefined, [("never", "aten::baddbmm", "self"), ("never", "aten::scatter_", "self"), ("never", "aten::clone", "self"),
                                     ("partly", "aten::sum", "self"), ("unseen", "planted::fills", "x"), ("unseen", "aten::sum", "self")])
        partly = [t.hash == "!uninitialized" for e in run.ops(phase="partly", op="aten::sum") for t in e.inputs]
        self.assertEqual(partly, [False, False, True])
        unseen = [t.hash == "!uninitialized" for e in run.ops(phase="unseen", op="aten::sum") for t in e.inputs]
        self.assertEqual(unseen, [False, False, True])


if __name__ == "__main__":
    rig.main()
