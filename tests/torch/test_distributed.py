"""Two ranks on gloo: collectives are events with group and members, and their outputs are digested when they are there."""
import pathlib
import socket
import subprocess
import sys
import tempfile

import rig

PROGRAM = r"""
import torch, rlk
import torch.distributed as dist
dist.init_process_group("gloo")
r = dist.get_rank()
rlk.phase("sync")
x = torch.arange(4.) + r
dist.all_reduce(x)
(x * 2).sum()
rlk.phase("async")
y = torch.ones(1 << 16) * (r + 1)
work = dist.all_reduce(y, async_op=True)
work.wait()
z = (y * 2).sum()
rlk.phase("others")
b = torch.full((3,), float(r))
dist.broadcast(b, 1)
parts = [torch.zeros(2) for _ in range(2)]
dist.all_gather(parts, torch.full((2,), float(r)))
out = torch.zeros(4)
dist.all_gather_into_tensor(out, torch.full((2,), float(r)))
dist.barrier()
sub = dist.new_group([0, 1], group_desc="tp")
dist.all_reduce(b, group=sub)
if r == 0:
    dist.send(torch.ones(2), 1)
else:
    dist.recv(torch.zeros(2), 0)
rlk.phase("functional")
import torch.distributed._functional_collectives as fc
f = fc.all_reduce(torch.ones(3) * (r + 1), "sum", dist.group.WORLD)
f = f * 1
rlk.phase("ddp")
torch.manual_seed(0)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)))
opt = torch.optim.SGD(net.parameters(), lr=.1)
for _ in range(2):
    loss = net(torch.ones(2, 4) * (r + 1)).sum()
    loss.backward()
    opt.step()
    opt.zero_grad()
print(r, x.tolist(), z.item(), b.tolist(), torch.cat(parts).tolist(), out.tolist(), f.tolist(), loss.item(), flush=True)
dist.destroy_process_group()
"""


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Distributed(rig.Case):
    def ranks(self, recorded):
        with tempfile.TemporaryDirectory() as tmp:
            where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port()), "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
            running = []
            for r in range(2):
                env = rig.environment(pathlib.Path(tmp) / "rec", "op" if recorded else "launch", "", {**where, "RANK": str(r), "LOCAL_RANK": str(r)})
                running.append(subprocess.Popen([sys.executable, "-W", "ignore", "-c", PROGRAM], env=env, stdout=subprocess.PIPE,
                                                stderr=subprocess.PIPE, text=True))
            ended = [p.communicate(timeout=200) for p in running]
            for p, (out, err) in zip(running, ended):
                self.assertEqual(p.returncode, 0, err)
                self.assertNotIn("rlkrec:", err)
            events = []
            for r in range(2):
                lines = [line for path in pathlib.Path(tmp).glob(f"rec.rank-{r}.*") for line in path.read_text().splitlines()]
                events.append([rig.event(line) for line in lines if line and not line.startswith("#")])
            return [out for out, _ in ended], events

    def test_two_ranks(self):
        want, _ = self.ranks(False)
        got, events = self.ranks(True)
        self.assertEqual(got, want)
        for mine in events:
            for e in mine:
                self.assertFalse([t for t in e.inputs if t.how == "STALE"], e)
        first, second = ([(e.phase, e.op, e.attrs.get("ranks")) for e in mine if e.kind == "collective"] for mine in events)
        self.assertEqual([c[1] for c in first if c[0] == "others"], ["broadcast", "all_gather", "all_gather", "barrier", "all_reduce", "send"])
        self.assertEqual([c[1] for c in second if c[0] == "others"], ["broadcast", "all_gather", "all_gather", "barrier", "all_reduce", "recv"])
        self.assertTrue(all(c[2] == "0,1" for c in first if c[0] in ("sync", "async", "others")), first)
        self.assertIn("tp", [e.attrs.get("group") for e in events[0] if e.kind == "collective"])
        for phase in ("sync", "async", "functional"):
            a, b = (next(e for e in mine if e.kind == "collective" and e.phase == phase) for mine in events)
            self.assertEqual(a.op, "all_reduce")
            self.assertNotEqual(a.inputs[0].hash, b.inputs[0].hash)
            self.assertEqual(a.outputs[0].hash, b.outputs[0].hash, phase)
            self.assertFalse(a.outputs[0].hash.startswith("!"), a)
            reader = next(e for e in events[0] if e.phase == phase and e.op == "aten::mul" and e.inputs[0].hash == a.outputs[0].hash)
            self.assertEqual(reader.inputs[0].how, "ref")
        reduced = [e for e in events[0] if e.kind == "collective" and e.phase == "ddp" and e.op == "all_reduce"]
        self.assertEqual([e.pass_ for e in reduced], ["bwd", "bwd"])
        grads = [[e.inputs for e in mine if e.op == "gradients"] for mine in events]
        self.assertEqual(*[[[(t.name, t.hash) for t in step] for step in g] for g in grads])
        self.assertEqual([t.name for t in grads[0][0]], ["0.weight.grad", "0.bias.grad", "2.weight.grad", "2.bias.grad"])

    def test_what_is_not_waited_for(self):
        # A work that never completes stands for a collective that is still under way.
        run = rig.record(r"""
import torch, rlk, os
import torch.distributed as dist
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
lib = torch.ops._c10d_functional
x = torch.ones(4) * 3
y = lib.all_reduce(x, "sum", dist.group.WORLD.group_name)
(y * 2).sum()          # read before wait_tensor
rlk.step()
z = lib.all_reduce(x, "sum", dist.group.WORLD.group_name)
lib.wait_tensor(z)
(z * 2).sum()
""")
        self.clean(run)
        early, late = [e for e in run.events if e.kind == "collective"]
        self.assertEqual(early.outputs[0].hash, "!unwaited")
        self.assertEqual([e.inputs[0].hash for e in run.ops(op="aten::mul", step=0)][1:], ["!async"])
        self.assertFalse(late.outputs[0].hash.startswith("!"))
        self.assertEqual([e.inputs[0].how for e in run.ops(op="aten::mul", step=1)], ["ref"])


if __name__ == "__main__":
    rig.main()
