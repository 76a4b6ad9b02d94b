"""The dispatch mode in Python tells the tap the same events as the observer in C++, where there is no compiler."""
import os
import tempfile

import rig

# No tensor here has two consumers: under any dispatch mode torch's engine adds up gradients out of place, not in place.
TRAIN = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.body = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 16))
        self.shared = nn.Linear(16, 16)
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 50, bias=False)
    def forward(self, ids):
        x = checkpoint(self.body, self.embed(ids), use_reentrant=False)
        x = self.shared(torch.tanh(self.shared(x)))
        return self.head(self.norm(x.flatten(0, 1)))
net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
for step in range(2):
    for micro in range(2):
        ids = torch.randint(0, 50, (3, 7))
        loss = nn.functional.cross_entropy(net(ids), ids.flatten())
        loss.backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    print(loss.item(), norm.item())
"""

MORE = """
import torch, rlk
torch.manual_seed(1)
x = torch.randn(4, 4, requires_grad=True)
rlk.phase("a")
y = torch.einsum("ij,kj->ik", x, x) + torch.ones(4).expand(4, 4)
z = torch.cat([y, y.t()]).split(4)
torch._foreach_add_([t.detach() for t in z], 1.0)
y.sum().backward()
g = torch.Generator().manual_seed(4)
torch.rand(3, generator=g)
torch.randn(5, dtype=torch.float64)
rlk.step()
with torch.no_grad():
    x.mul_(2)
    x[1:3].copy_(torch.zeros(2, 4))
    x.sum()
    torch.topk(x, 2)
    w = torch.view_as_complex(torch.randn(3, 2)) * 2
    torch.add(x, x, out=torch.empty(4, 4))
    print(x.sum().item(), w.abs().sum().item())
with torch.inference_mode():
    torch.nn.functional.linear(x, x).relu_().sum()
"""


def same(case, argv):
    one = case.clean(rig.record(argv))
    two = case.clean(rig.record(argv, observer="python"))
    case.assertEqual(one.out, two.out)
    case.assertIn("#meta observer c++", one.marks)
    case.assertIn("#meta observer python", two.marks)
    for a, b in zip(one.events, two.events):
        case.assertEqual(a, b)
    case.assertEqual(len(one.events), len(two.events))
    return one


class Fallback(rig.Case):
    def test_training(self):
        run = same(self, TRAIN)
        self.assertGreater(len(run.events), 500)
        self.assertEqual({e.pass_ for e in run.events}, {"fwd", "bwd", "recompute", "opt", ""})

    def test_others(self):
        same(self, MORE)

    def test_chosen_without_a_compiler(self):
        with tempfile.TemporaryDirectory() as empty:
            run = rig.record("import torch\nprint((torch.ones(3) * 2).sum().item())", env={"CXX": "/nonexistent/c++", "RLKREC_CACHE": empty})
            self.assertEqual((run.rc, run.out), (0, "6.0\n"), run.err)
            self.assertEqual(run.err.count("rlkrec:"), 2, run.err)
            self.assertIn("slowly", run.err)
            self.assertIn("#meta observer python", run.marks)
            self.assertIn("aten::sum", [e.op for e in run.events])
            self.assertFalse([f for f in os.listdir(empty) if f.startswith(".build")])


if __name__ == "__main__":
    rig.main()
