"""The event stream of ordinary programs: what is recorded, and who is said to have done it."""
import rig

TRAIN = rig.WORKLOADS / "train_cpu.py"

MLP = """
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.shared = nn.Linear(8, 8)
        self.out = nn.Sequential(nn.ReLU(), nn.Linear(8, 2))
    def forward(self, x):
        x = torch.tanh(self.a(x))
        x = torch.sin(self.shared(x))
        x = torch.cos(self.shared(x))
        return self.out(x)
net = Net()
%s
"""


class Stream(rig.Case):
    def test_output_is_the_same_at_every_level(self):
        arguments = ["--checkpoint", "--micro", "2"]
        want = rig.plain([TRAIN, *arguments])
        self.assertEqual(want.returncode, 0, want.stderr)
        self.assertIn("step 2 loss", want.stdout)
        for level in ("launch", "step", "module", "op"):
            got = rig.record([TRAIN, *arguments], level=level)
            self.assertEqual(got.out, want.stdout, level)
            self.assertEqual(got.err, want.stderr, level)
            self.assertEqual(bool(got.events), level != "launch")

    def test_two_runs_tell_the_same(self):
        one, two = (self.clean(rig.record([TRAIN])) for _ in range(2))
        self.assertEqual(one.events, two.events)
        self.assertGreater(len(one.events), 500)

    def test_a_planted_order_shows_at_its_operator(self):
        one = two = self.clean(rig.record([TRAIN, "--plant", "1", "--steps", "2"]))
        for _ in range(6):
            if two.out != one.out:
                break
            two = self.clean(rig.record([TRAIN, "--plant", "1", "--steps", "2"]))
        self.assertNotEqual(one.out, two.out, "no two runs differ: nothing is planted")
        first = next(a for a, b in zip(one.events, two.events) if a != b)
        self.assertEqual((first.step, first.pass_, first.module), (1, "fwd", "layers.1.attn"))
        self.assertEqual(first.op, "aten::add_")

    def test_modules_and_passes(self):
        run = self.clean(rig.record(MLP % "loss = net(torch.ones(4, 8)).sum()\nloss.backward()\nprint(loss.item())"))
        forward = [(e.module, e.call, e.op) for e in run.ops(pass_="fwd") if "mm" in e.op or e.op in ("aten::tanh", "aten::sin", "aten::cos")]
        self.assertEqual(forward, [("a", 0, "aten::addmm"), ("", 0, "aten::tanh"), ("shared", 0, "aten::addmm"), ("", 0, "aten::sin"),
                                   ("shared", 1, "aten::addmm"), ("", 0, "aten::cos"), ("out.1", 0, "aten::addmm")])
        backward = {(e.module, e.call) for e in run.ops(pass_="bwd") if e.op == "aten::mm"}
        self.assertEqual(backward, {("a", 0), ("shared", 0), ("shared", 1), ("out.1", 0)})
        self.assertEqual([e.module for e in run.ops(pass_="bwd") if e.op == "aten::threshold_backward"], ["out.0"])
        self.assertTrue(any(e.kind == "metric" for e in run.events))

    def test_views_and_composites_are_transparent(self):
        run = self.clean(rig.record("import torch\nx = torch.ones(4, 6)\ny = torch.matmul(x.t()[None], x[None]).reshape(36).view(6, 6)[2:]\nprint(y.sum())"))
        names = [e.op for e in run.ops()]
        self.assertIn("aten::bmm", names)
        self.assertFalse({"aten::matmul", "aten::t", "aten::view", "aten::_unsafe_view", "aten::reshape", "aten::slice"} & set(names))
        total = next(e for e in run.ops() if e.op == "aten::sum")
        self.assertEqual((total.inputs[0].shape, total.inputs[0].how), ("4x6", "ref"))

    def test_recompute_does_not_shift_forward(self):
        for reentrant in (True, False):
            call = f"checkpoint(net.out, h, use_reentrant={reentrant})"
            body = ("from torch.utils.checkpoint import checkpoint\nh = net.a(torch.ones(4, 8))\ny = %s\n(y.sum()).backward()\nprint(net.a.weight.grad.sum())")
            with_, without = (self.clean(rig.record(MLP % (body % c))) for c in (call, "net.out(h)"))
            self.assertEqual(with_.out, without.out)
            again = [(e.module, e.call, e.op) for e in with_.ops(pass_="recompute")]
            self.assertIn(("out.0", 0, "aten::relu"), again)
            self.assertFalse(without.ops(pass_="recompute"))
            key = lambda r: [(e.module, e.call, e.op) for e in r.ops(pass_="fwd") if e.module]
            self.assertEqual(key(with_), key(without))
            if not reentrant:
                self.assertTrue([e for e in with_.ops(pass_="bwd") if e.module == "out.1" and e.op == "aten::mm"])

    def test_steps_weights_gradients(self):
        run = self.clean(rig.record([TRAIN, "--optimizer", "sgd", "--micro", "2"]))
        weights = [(e.step, e.op) for e in run.events if e.kind == "weights"]
        self.assertEqual(weights, [(0, "v0"), (1, "v1"), (2, "v2"), (3, "v3")])
        first = next(e for e in run.events if e.kind == "weights")
        self.assertEqual(first.outputs[0].name, "embed.weight")
        self.assertIn("layers.1.attn.qkv.bias", [t.name for t in first.outputs])
        grads = run.ops(op="gradients")
        self.assertEqual([(e.step, e.pass_) for e in grads], [(0, "bwd"), (1, "bwd"), (2, "bwd")])
        self.assertEqual([t.name for t in grads[0].inputs], [t.name + ".grad" for t in first.outputs])
        state = run.ops(op="optimizer_state")
        self.assertEqual(state[0].inputs[0].name, "embed.weight.momentum_buffer")
        self.assertTrue(all(e.pass_ == "opt" for e in run.ops() if e.op == "aten::add_" and e.step > 0 and "lr" in e.attrs))
        self.assertEqual(sorted({(e.step, e.work) for e in run.ops(pass_="fwd") if e.module.startswith("layers")}),
                         [(s, w) for s in range(3) for w in range(2)])

    def test_the_largest_optimizer_counts(self):
        run = self.clean(rig.record("""
import torch
big, small = torch.nn.Linear(64, 64), torch.nn.Linear(2, 2)
opts = [torch.optim.SGD(small.parameters(), lr=.1), torch.optim.SGD(big.parameters(), lr=.1)]
for _ in range(2):
    for opt, net, n in zip(opts, (small, big), (2, 64)):
        net(torch.ones(1, n)).sum().backward()
        opt.step()
"""))
        self.assertEqual([(e.step, e.outputs[0].shape) for e in run.events if e.kind == "weights"], [(0, "64x64"), (1, "64x64"), (2, "64x64")])

    def test_of_equal_optimizers_the_first_counts(self):
        run = self.clean(rig.record("""
import torch
nets = [torch.nn.Linear(4, 4) for _ in range(8)]
opts = []
for i, n in enumerate(nets):
    n.register_parameter(f"mark{i}", torch.nn.Parameter(torch.ones(1)))
    # Addresses in an order that is not that of creation.
    spare = [torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]) for _ in range(5)]
    opts.append(torch.optim.SGD(n.parameters(), lr=.1))
    del spare[i % 5]
for n, opt in reversed(list(zip(nets, opts))):
    n(torch.ones(1, 4)).sum().backward()
    opt.step()
"""))
        self.assertEqual([(e.step, e.outputs[-1].name) for e in run.events if e.kind == "weights"], [(0, "mark0"), (1, "mark0")])

    def test_wrappers_have_no_path(self):
        run = self.clean(rig.record(MLP % """
class Wrapper(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
    def forward(self, x):
        return self.module(x)
Wrapper(Wrapper(net))(torch.ones(1, 8))
nn.MSELoss()(torch.ones(2), torch.zeros(2))
"""))
        self.assertEqual([(e.module, e.call) for e in run.ops(op="aten::addmm")], [("a", 0), ("shared", 0), ("shared", 1), ("out.1", 0)])
        self.assertEqual({e.module for e in run.ops(op="aten::mse_loss")}, {"MSELoss"})

    def test_spans_by_hand(self):
        run = self.clean(rig.record("""
import torch, rlk
assert rlk.recording()
x = torch.ones(2)
with rlk.phase("rollout-decode"):
    x.sin()
    with rlk.phase("inner"):
        x.cos()
    x.tan()
x.exp()
rlk.step(); x.log()
rlk.step(7); x.sqrt()
rlk.metric("reward", 0.5)
"""))
        at = {e.op: (e.phase, e.step) for e in run.ops()}
        self.assertEqual([at["aten::" + n] for n in ("sin", "cos", "tan", "exp", "log", "sqrt")],
                         [("rollout-decode", 0), ("inner", 0), ("rollout-decode", 0), ("", 0), ("", 1), ("", 7)])
        self.assertEqual([(e.op, e.attrs["value"]) for e in run.events if e.kind == "metric"], [("reward", "0.5")])

    def test_spans_without_a_recorder(self):
        done = rig.plain("import rlk\nrlk.step(); rlk.sample('a')\nwith rlk.phase('x'): print(rlk.recording())", PYTHONPATH=str(rig.ADAPTER))
        self.assertEqual((done.returncode, done.stdout), (0, "False\n"), done.stderr)

    def test_random_numbers(self):
        run = self.clean(rig.record("import torch\ntorch.manual_seed(3)\ntorch.rand(2); torch.rand(2)\ng = torch.Generator().manual_seed(5)\ntorch.randn(2, generator=g)"))
        rng = [e for e in run.events if e.kind == "rng"]
        self.assertEqual([e.attrs["seed"] for e in rng], ["3", "3", "5"])
        self.assertEqual(len({e.attrs["offset"] for e in rng}), 3)


if __name__ == "__main__":
    rig.main()
