"""Inputs by reference: what was overwritten, in part or unseen, is never taken for what an operator once wrote.

The fake recorder keeps the bytes of each storage's last recorded write and says STALE where a reference would be wrong.
Each case runs under a phase of its own name, all in one process.
"""
import re

import rig

PROGRAM = r"""
import ctypes, gc, torch, rlk
import numpy as np
torch.manual_seed(0)
cases = {}
def case(f):
    cases[f.__name__] = f
    return f

@case
def plain():
    x = torch.ones(4) * 2
    (x + 1).sum()

@case
def slice_copy():
    x = torch.zeros(4, 4) + 1
    x[1:3].copy_(torch.full((2, 4), 7.))
    x.sum()                       # covers more than was written last

@case
def index_put():
    x = torch.zeros(8) + 1
    x.index_put_((torch.tensor([1, 3]),), torch.tensor([5., 6.]))
    x[torch.tensor([2])] = 9.
    x.sum()

@case
def kv_append():
    cache = torch.zeros(2, 8, 4)
    for t in range(3):
        cache[:, t:t + 1].copy_(torch.full((2, 1, 4), float(t)))
        cache[:, :t + 1].sum()
    cache.narrow(1, 2, 1).sum()   # exactly what was written last

@case
def recycled_storage():
    for i in range(50):
        x = torch.full((256,), float(i))
        x.sum()
        del x
        y = torch.from_numpy(np.full(256, -float(i), dtype=np.float32))
        y.sum()
        del y

@case
def recycled_address():           # the same memory again, under a new storage that no recorded operator wrote
    for i in range(20):
        x = torch.ones(1 << 16) * i
        x.sum()
        del x
        y = torch.empty(1 << 16)
        ctypes.memset(y.data_ptr(), i, y.numel() * 4)
        y.sum()
        del y

@case
def from_numpy():
    a = np.arange(4, dtype=np.float32)
    x = torch.from_numpy(a)
    x.sum()
    a[0] = 7
    x.sum()

@case
def empty_filled_below():
    x = torch.empty(4)
    ctypes.memset(x.data_ptr(), 7, 16)  # not what fresh memory holds: a write that changes nothing leaves no trace
    x.sum()
    ctypes.memset(x.data_ptr(), 1, 16)
    x.sum()

@case
def data_and_detach():
    w = torch.nn.Parameter(torch.ones(4) * 3)
    w.data.add_(1)
    (w * 2).sum()
    w.detach().mul_(5)
    (w * 2).sum()
    w.data = torch.zeros(4) + 9
    (w * 2).sum()

@case
def version_bumped_below():       # a kernel of an extension that says so
    x = torch.ones(4) * 2
    x.sum()
    ctypes.memset(x.data_ptr(), 0, 16)
    torch.autograd.graph.increment_version(x)
    x.sum()

@case
def resized():
    x = torch.ones(4) * 2
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(16)
    ctypes.memset(x.data_ptr(), 0, 16)
    x.sum()
    y = torch.ones(4) * 2
    y.resize_(2, 8).zero_()
    y.sum()

@case
def out_variants():
    o = torch.ones(4) * 2
    torch.add(torch.ones(4), torch.ones(4), out=o)
    o.sum()
    torch.add(torch.ones(2), torch.ones(2), out=o[:2])
    o.sum()

@case
def foreach():
    flat = torch.zeros(8) + 1
    xs = [flat[:4], flat[4:]]
    torch._foreach_add_(xs, 1.0)
    flat.sum()                    # two outputs of one event cover it
    xs[0].sum(); xs[1].sum()
    torch._foreach_copy_(xs, [torch.ones(4), torch.zeros(4)])
    torch._foreach_zero_(xs[:1])
    flat.sum()

@case
def overlapping():
    x = torch.arange(6.)
    x.unfold(0, 3, 1).sum()
    x.expand(3, 6).sum()
    x.as_strided((3, 3), (1, 1)).sum()
    x.flip(0).sum()
    torch.ones(1).expand(1000, 1000).sum()

@case
def inference():
    with torch.inference_mode():
        x = torch.ones(4) * 2
        x.add_(1)
        x[1:].mul_(3)
        x.sum()

@case
def storage_copy():
    x, y = torch.ones(4) * 2, torch.zeros(4) + 5
    x.untyped_storage().copy_(y.untyped_storage())
    x.sum()

@case
def swapped():
    x, y = torch.ones(4) * 2, torch.zeros(4) + 5
    x.set_(y.untyped_storage(), 0, (4,))
    x.sum()
    torch.utils.swap_tensors(x, y)
    x.sum()

@case
def autograd_accumulates():
    w = torch.nn.Parameter(torch.ones(4))
    for _ in range(3):
        (w * torch.arange(4.)).sum().backward()
        w.grad.sum()

@case
def in_threads():
    import threading
    x = torch.ones(1024) * 2
    def work():
        for i in range(30):
            y = x * i
            y.add_(1)
            y.sum()
    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]

for name, f in cases.items():
    with rlk.phase(name):
        f()
    gc.collect()
"""

class References(rig.Case):
    def test_cases(self):
        run = self.no_stale(rig.record(PROGRAM))
        self.assertEqual({e.phase for e in run.events if e.phase}, set(re.findall(r"@case\ndef (\w+)", PROGRAM)))

        def how(phase, op="aten::sum"):
            return [e.inputs[0].how for e in run.ops(phase=phase, op=op)]

        self.assertEqual(how("plain"), ["ref"])
        self.assertEqual(how("slice_copy"), ["new"])
        self.assertEqual(how("index_put"), ["ref"])  # index_put_ returns all of self: that is what was written
        self.assertEqual(how("kv_append"), ["ref", "new", "new", "ref"])
        self.assertEqual(set(how("recycled_storage")[0::2]), {"ref"})
        self.assertEqual(set(how("recycled_storage")[1::2]), {"new"})
        again = how("recycled_address")[1::2]
        self.assertEqual(set(again[1:]), {"new"})
        self.assertIn(again[0], ("new", ""))  # zeros written over zeros: nothing shows that somebody wrote
        self.assertEqual(how("from_numpy"), ["new", "new"])
        self.assertEqual(how("empty_filled_below"), ["new", "new"])
        self.assertEqual(how("version_bumped_below"), ["ref", "new"])
        self.assertEqual(how("resized"), ["new", "ref"])
        self.assertEqual(how("out_variants"), ["ref", "new"])
        self.assertEqual(how("foreach"), ["ref", "ref", "ref", "new"])
        self.assertEqual(set(how("overlapping")), {"ref"})
        self.assertEqual(how("inference"), ["new"])
        self.assertEqual(how("storage_copy"), ["ref"])
        self.assertEqual(how("data_and_detach", "aten::mul")[-1], "ref")

    def test_inputs_of_overwriting_calls(self):
        run = self.clean(rig.record("""
import torch
x = torch.ones(4) * 2
x.copy_(torch.zeros(4)); x.fill_(1); x.zero_(); x.normal_(); x.uniform_()
torch.add(torch.ones(4), torch.ones(4), out=x)
x.add_(1); x.relu_()
torch._foreach_add_([x], 1.0)
"""))
        seen = {e.op: ([t.name for t in e.inputs], [t.name for t in e.outputs]) for e in run.ops()}
        self.assertEqual(seen["aten::copy_"], (["src"], ["self"]))
        for name in ("fill_", "zero_", "normal_", "uniform_"):
            self.assertEqual(seen["aten::" + name], ([], ["self"]), name)
        self.assertEqual(seen["aten::add"], (["self", "other"], ["out"]))
        self.assertEqual(seen["aten::add_"], (["self"], ["self"]))
        self.assertEqual(seen["aten::relu_"], (["self"], ["self"]))
        self.assertEqual(seen["aten::_foreach_add_"], (["self.0"], ["self.0"]))

    def test_no_tensor_is_kept(self):
        run = self.clean(rig.record("""
import torch, weakref, sys, gc
x = torch.ones(1000)
r = weakref.ref(x)
y = x * 2
assert sys.getrefcount(x) == 2, sys.getrefcount(x)
s = x.untyped_storage()._weak_ref() if hasattr(torch.UntypedStorage, "_weak_ref") else None
del x
assert r() is None
assert s is None or torch.UntypedStorage._expired(s)
w = torch.nn.Parameter(torch.ones(4))
(w * 2).sum().backward()
g = w.grad.data_ptr()
a = torch.ones(1 << 20); p = a.data_ptr(); del a
print("fine")
"""))
        self.assertEqual(run.out, "fine\n")


if __name__ == "__main__":
    rig.main()
