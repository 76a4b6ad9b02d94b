"""torch.compile: regions whose kernels the dispatcher does not see. Slow, since it compiles."""
import rig

COMPILED = """
import torch
torch.manual_seed(0)
w1, w2 = torch.nn.Parameter(torch.randn(64, 64)), torch.nn.Parameter(torch.randn(64, 64))
cache = torch.zeros(4, 64)
def f(x, t):
    h = torch.relu(x @ w1) + 1
    cache.index_copy_(0, t, h[:1].detach())
    return torch.sin(h) @ w2
g = torch.compile(f, fullgraph=True)
x = torch.randn(64, 64)
for t in range(3):
    y = g(x, torch.tensor([t]))
    y.sum().backward()
    (cache.sum() + y.sum()).item()
    with torch.no_grad():
        for w in (w1, w2):
            w -= 0.01 * w.grad
            w.grad = None
print(float(y.sum()))
"""



class Compile(rig.Case):
    def test_compiled_regions(self):
        want = rig.plain(COMPILED)
        self.assertEqual(want.returncode, 0, want.stderr)
        run = self.no_stale(rig.record(COMPILED))
        self.assertEqual(run.out, want.stdout)
        self.assertTrue(run.ops(op="aten::mm"))

    def test_the_dispatch_mode_refuses(self):
        run = rig.record(COMPILED, observer="python")
        self.assertEqual(run.out, rig.plain(COMPILED).stdout, run.err)
        self.assertEqual(run.err.count("rlkrec:"), 1, run.err)
        self.assertIn("torch.compile", run.err)


if __name__ == "__main__":
    rig.main()
