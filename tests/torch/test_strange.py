"""Tensors that are not plain and programs that are not tidy: nothing changes, nothing dies, and the record says why not."""
import rig

PROGRAM = r"""
import sys, threading, warnings, torch, rlk
from torch.utils._python_dispatch import TorchDispatchMode
from torch._subclasses import FakeTensorMode
warnings.simplefilter("ignore")
torch.manual_seed(0)
def show(name, *values):
    print(name, *[v.tolist() if isinstance(v, torch.Tensor) else v for v in values])

rlk.phase("sparse")
s = torch.eye(3).to_sparse()
show("sparse", (s @ torch.ones(3, 2)), (s + s).to_dense(), torch.eye(3).to_sparse_csr().values())
rlk.phase("quantized")
q = torch.quantize_per_tensor(torch.arange(4.), 0.5, 1, torch.quint8)
show("quantized", q.int_repr(), q.dequantize())
rlk.phase("nested")
n = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)])
show("nested", (n * 2).to_padded_tensor(0.).sum())
j = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged)
show("jagged", (j * 2).values().sum())
rlk.phase("meta")
m = torch.ones(3, device="meta") * 2
show("meta", m.shape)
rlk.phase("fake")
with FakeTensorMode() as mode:
    f = torch.ones(3) * torch.randn(3)
    show("fake", f.shape)
show("fake", (mode.from_tensor(torch.ones(3)) + 1).shape)
rlk.phase("functorch")
show("vmap", torch.vmap(lambda a: a.sin().sum())(torch.ones(3, 4)))
show("grad", torch.func.grad(lambda a: (a * a).sum())(torch.ones(3)))
show("jvp", torch.func.jvp(torch.sin, (torch.ones(2),), (torch.ones(2),)))
show("functionalize", torch.func.functionalize(lambda a: a.clone().add_(1))(torch.ones(2)))
rlk.phase("subclass")
class Sub(torch.Tensor):
    pass
show("subclass", (torch.ones(2).as_subclass(Sub) * 2).sum())
class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, t):
        return torch.Tensor._make_wrapper_subclass(cls, t.shape, dtype=t.dtype)
    def __init__(self, t):
        self.t = t
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args = [a.t if isinstance(a, Wrapper) else a for a in args]
        return Wrapper(func(*args, **(kwargs or {})))
show("wrapper", (Wrapper(torch.ones(2)) * 3).t)
rlk.phase("mode")
seen = []
class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen.append(str(func))
        return func(*args, **(kwargs or {}))
with Mode():
    show("mode", torch.nn.functional.linear(torch.ones(2, 3), torch.ones(2, 3)))
show("mode", seen)
rlk.phase("complex")
c = torch.view_as_complex(torch.randn(3, 2))
show("complex", (c.conj() * 2j).abs().sum(), c.conj().imag.neg().sum(), torch.real(c.conj()).sum())
rlk.phase("zero")
z = torch._efficientzerotensor((3,))
show("zero", z + torch.ones(3))
rlk.phase("shapes")
show("shapes", torch.tensor(3.) * 2, torch.empty(0, 4).sum(), torch.ones(1).expand(5, 7).sum(), torch.ones(2, 0, 3).reshape(0))
x = torch.arange(24.).view(2, 3, 4)
show("shapes", x.transpose(0, 2)[::2, 1:].flip(0).sum(), x[..., -1].t().sum(), torch.ones((1,) * 40).sum())
rlk.phase("dtypes")
for d in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16, torch.float64, torch.complex64,
          torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2):
    show("dtype", torch.ones(3).to(d).clone().to(torch.float32))
rlk.phase("autocast")
with torch.autocast("cpu", dtype=torch.bfloat16):
    a = torch.ones(4, 4) @ torch.ones(4, 4)
    show("autocast", a.dtype, a.sum())
rlk.phase("raise")
try:
    torch.ones(2, 3) @ torch.ones(2, 3)
except RuntimeError as e:
    show("raise", type(e).__name__)
class Bad(torch.nn.Module):
    def forward(self, x):
        raise ValueError("no")
class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bad, self.good = Bad(), torch.nn.Linear(2, 2)
    def forward(self, x):
        try:
            self.bad(x)
        except ValueError:
            pass
        return self.good(x)
show("raise", Outer()(torch.ones(1, 2)).shape)
rlk.phase("after")
torch.ones(2).exp()
rlk.phase("double backward")
p = torch.ones(3, requires_grad=True)
g, = torch.autograd.grad((p ** 3).sum(), p, create_graph=True)
g.sum().backward()
show("double", p.grad)
class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()
    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].cos()
class Custom(torch.nn.Module):
    def forward(self, x):
        return Fn.apply(x)
rlk.phase("custom function")
p = torch.ones(3, requires_grad=True)
torch.nn.Sequential(Custom()).append(torch.nn.Identity())(p).sum().backward()
show("custom", p.grad)
rlk.phase("custom op")
@torch.library.custom_op("rlktest::scale", mutates_args=("out",))
def scale(x: torch.Tensor, by: float, out: torch.Tensor) -> None:
    out.copy_(x * by)
o = torch.empty(3)
scale(torch.ones(3), 2.5, o)
show("custom op", o, (o + 1).sum())
rlk.phase("hooks")
lin = torch.nn.Linear(2, 2)
lin.weight.data.fill_(1); lin.bias.data.fill_(0)
lin.register_full_backward_hook(lambda m, gi, go: None)
lin.register_forward_hook(lambda m, i, o: o * 2)
show("hooks", lin(torch.ones(1, 2, requires_grad=True)).sum())
rlk.phase("script")
show("script", torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))(torch.zeros(1, 2)).shape)
rlk.phase("lstm")
show("lstm", torch.nn.LSTM(3, 4, batch_first=True)(torch.ones(1, 2, 3))[0].shape)
rlk.phase("deepcopy")
import copy, pickle
show("copy", pickle.loads(pickle.dumps(copy.deepcopy(torch.nn.Sequential(torch.nn.Linear(2, 2)))))(torch.ones(1, 2)).shape)
rlk.phase("")
print("end")
"""


class Strange(rig.Case):
    def test_a_slice_of_a_list_of_modules(self):
        """It registers its members anew at each call: their paths stay, and are not learnt again."""
        run = rig.record("""
import sys, torch
paths = sys.modules["rlkrec_torch"].current().paths
learn, n = paths._learn, []
paths._learn = lambda root: (n.append(1), learn(root))[1]
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3))
    def forward(self, x):
        for layer in self.layers[:2]:
            x = layer(x)
        return x
net = Net()
for _ in range(3):
    y = net(torch.ones(1, 2))
print(len(n))
net.layers[1] = net.layers[0]  # moved: its path is another one
net.layers[0] = torch.nn.Linear(2, 2)
y = net(torch.ones(1, 2))
""")
        self.assertEqual((run.rc, run.out), (0, "1\n"), run.err)
        self.assertEqual([e.module for e in run.ops(op="aten::addmm")], ["layers.0", "layers.1"] * 4)

    def test_program(self):
        want = rig.plain(PROGRAM.replace("rlk.phase(", "(lambda x: None)(").replace(", rlk\n", "\n"))
        self.assertEqual(want.returncode, 0, want.stderr)
        run = self.no_stale(rig.record(PROGRAM))
        self.assertEqual(run.out, want.stdout)
        self.assertEqual(run.err, want.stderr)
        self.assertTrue(run.out.endswith("end\n"))

        def ops(phase):
            return [e.op for e in run.ops(phase=phase)]

        def tensors(phase):
            return [t for e in run.ops(phase=phase) for t in e.inputs + e.outputs]

        self.assertIn("!layout", {t.hash for t in tensors("sparse")})
        self.assertIn("!subclass", {t.hash for t in tensors("nested")})
        self.assertIn(2, {t.dtype for t in tensors("quantized") if not t.hash.startswith("!")})
        self.assertEqual(ops("meta"), [])
        self.assertFalse({"aten::mul", "aten::randn"} & set(ops("fake")))
        self.assertIn("aten::mul", ops("subclass"))
        self.assertEqual(ops("subclass").count("aten::mul"), 2)
        self.assertEqual(ops("mode").count("aten::mm"), 1)
        self.assertEqual(ops("autocast").count("aten::mm"), 1)
        self.assertEqual([t.dtype for e in run.ops(phase="autocast", op="aten::mm") for t in e.inputs], [13, 13])
        self.assertNotIn("aten::mm", ops("raise"))
        self.assertEqual([e.module for e in run.ops(phase="raise") if e.op == "aten::addmm"], ["good"])
        self.assertEqual([e.module for e in run.ops(phase="after")], ["", ""])
        self.assertEqual([e.pass_ for e in run.ops(phase="double backward", op="aten::pow")], ["fwd", "bwd", "bwd"])
        self.assertEqual({e.module for e in run.ops(phase="custom function", pass_="bwd", op="aten::cos")}, {"0"})
        scale = run.ops(phase="custom op", op="rlktest::scale")
        self.assertEqual([(t.name, t.hash[0] != "!") for t in scale[0].outputs], [("out.0", True)])
        self.assertEqual(run.ops(phase="custom op", op="aten::add")[0].inputs[0].how, "ref")
        self.assertNotIn("aten::copy_", ops("custom op"))

    def test_set_writes_nothing(self):
        program = """
import torch
a = torch.arange(4.) * 2
b = torch.empty(0)
b.set_(a.untyped_storage(), 0, (4,))
(b + 1).sum(); a.sin()
"""
        for observer in ("", "python"):
            run = self.no_stale(rig.record(program, observer=observer))
            self.assertEqual([t.hash for t in run.ops(op="aten::set_")[0].outputs], ["!alias"])
            self.assertEqual([run.ops(op=op)[0].inputs[0].how for op in ("aten::add", "aten::sin")], ["new", "new"])

    def test_batch_norm_writes_its_statistics(self):
        program = """
import torch
bn = torch.nn.BatchNorm1d(4)
x = torch.arange(32.).view(8, 4)
bn(x); bn(x)
bn.eval()(x)
(bn.running_mean + 1).sum()
"""
        for observer in ("", "python"):
            run = self.no_stale(rig.record(program, observer=observer))
            norms = run.ops(op="aten::native_batch_norm")
            written = [{t.name: t.hash for t in e.outputs if t.name.startswith("running")} for e in norms]
            self.assertEqual([set(w) for w in written], [{"running_mean.0", "running_var.0"}] * 2 + [set()])
            self.assertNotEqual(written[0], written[1])
            last = {t.name: (t.hash, t.how) for t in norms[2].inputs}
            self.assertEqual(last["running_mean"], (written[1]["running_mean.0"], "ref"))

    def test_what_nobody_wrote(self):
        program = """
import torch, rlk, numpy as np
x = torch.ones(1, 2, 2)
rlk.phase("never")
torch.baddbmm(torch.empty(1, 2, 2), x, x, beta=0)
e = torch.empty(3); e.scatter_(0, torch.arange(3), 1.0); e.sum()
torch.empty(3).masked_fill_(torch.ones(3, dtype=torch.bool), 2.)
rlk.phase("somebody")
a = torch.empty(64); a.numpy()[:] = 3; a.sum()
b = torch.empty(4); b[:2].fill_(1); b[:2].sum()
torch.empty(0, 4).sum(); torch.ones(3).resize_(2).sum(); torch.FloatTensor([1., 2.]).sum()
torch.ones(1).set_(torch.ones(4).untyped_storage(), 0, (4,)).sum()
"""
        for observer in ("", "python"):
            run = self.no_stale(rig.record(program, observer=observer))
            found = [(e.op, t.name, t.hash) for e in run.ops(phase="never") for t in e.inputs if t.hash.startswith("!")]
            self.assertEqual(found, [(op, "self", "!uninitialized") for op in ("aten::baddbmm", "aten::scatter_", "aten::masked_fill_")])
            self.assertEqual(run.ops(phase="never", op="aten::sum")[0].inputs[0].how, "ref")
            sums = run.ops(phase="somebody", op="aten::sum")
            self.assertEqual(len(sums), 6)
            self.assertFalse([t for e in sums for t in e.inputs if t.hash.startswith("!")])

    def test_outputs_that_are_left_undefined(self):
        program = """
import torch, torch.nn.functional as F
torch.manual_seed(0)
torch.nn.LSTM(8, 16)(torch.randn(20, 4, 8))[0].sum().backward()
x = torch.randn(10, 2, 5, requires_grad=True)
F.ctc_loss(F.log_softmax(x, 2), torch.tensor([[1, 2, 3], [1, 2, 2]]), torch.tensor([10, 8]), torch.tensor([3, 2])).sum().backward()
F.rrelu(torch.randn(4, 5), training=True).sum()
F.rrelu(torch.randn(4, 5), training=False).sum()
"""
        want = {"": {"aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward", "aten::_ctc_loss", "aten::_ctc_loss_backward"}}
        for observer in ("", "python"):
            run = self.no_stale(rig.record(program, observer=observer))
            found = {e.op for e in run.ops() for t in e.inputs + e.outputs if t.hash == "!unused-output"}
            self.assertEqual(found, want[""])
            noise = [[t.hash for t in side if t.name.startswith("noise")] for e in run.ops(op="aten::rrelu_with_noise") for side in (e.inputs, e.outputs)]
            self.assertEqual(noise[0], ["!uninitialized"])
            self.assertFalse(noise[1][0].startswith("!"))
            self.assertEqual(noise[2:], [["!uninitialized"], []])

    def test_random_state_of_attention_without_dropout(self):
        """Named as the fused kernels of a GPU name it: without dropout memory that nobody fills or reads, else a result like any."""
        program = """
import torch
lib = torch.library.Library("fused", "DEF")
lib.define("attention(Tensor query, float dropout_p) -> (Tensor output, Tensor philox_seed)")
lib.define("attention_backward(Tensor grad_out, Tensor philox_seed, float dropout_p) -> Tensor")
lib.impl("attention", lambda q, p: (q * 2, torch.full((), 7) if p else torch.empty((), dtype=torch.long)), "CPU")
lib.impl("attention_backward", lambda g, s, p: g * 3, "CPU")
for p in (0.0, 0.5):
    out, seed = torch.ops.fused.attention(torch.ones(4), p)
    torch.ops.fused.attention_backward(out, seed, p)
"""
        for observer in ("", "python"):
            run = rig.record(program, observer=observer)
            forward, backward = run.ops(op="fused::attention"), run.ops(op="fused::attention_backward")
            self.assertEqual([[t.name for t in e.inputs] for e in backward], [["grad_out"], ["grad_out", "philox_seed"]], run.err)
            self.assertEqual(forward[0].outputs[1].hash, "!unused-output")
            self.assertFalse(forward[1].outputs[1].hash.startswith("!"))


if __name__ == "__main__":
    rig.main()
