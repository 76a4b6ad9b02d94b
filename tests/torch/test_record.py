"""From the command line: an unmodified training recorded twice, and the question what differs."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import rig

TRAIN = rig.WORKLOADS / "train_cpu.py"
RLKREC, RLKAUDIT = rig.BUILD / "bin" / "rlkrec", rig.BUILD / "bin" / "rlkaudit"

# By-reference inputs under two behaviours of the allocator: nothing here may be taken for a difference.
MEMORY = r"""
import sys, torch
import numpy as np
keep = []
churn = sys.argv[1] == "churn"
def noise(n):
    if churn:
        keep.append(torch.empty(n * 4 + len(keep)).fill_(0).untyped_storage())
        if len(keep) > 3: keep.pop(0)
cache = torch.zeros(2, 16, 8)
table = torch.zeros(32)
for step in range(4):
    noise(256)
    x = torch.full((256,), float(step)); s = x.sum(); del x
    y = torch.from_numpy(np.full(256, -float(step), dtype=np.float32)); noise(256); s = s + y.sum(); del y
    cache[:, step:step + 1].copy_(s.expand(2, 1, 8)); noise(256)
    s = s + cache[:, :step + 1].sum()
    table.index_put_((torch.tensor([step, 2 * step]),), torch.tensor([1., 2.])); noise(32)
    s = s + (table * 2).sum()
    a = np.arange(8, dtype=np.float32); t = torch.from_numpy(a); u = t.sum(); a[:] = step; s = s + u + t.sum()
print(s.item())
"""

CHILDREN = """
import sys, multiprocessing, torch
def work(i, queue):
    queue.put((torch.ones(4) * (i + 1)).sum().item())
if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.ones(2).sum()
    context, found = multiprocessing.get_context(sys.argv[1]), []
    for i in range(2):
        queue = context.Queue()
        child = context.Process(target=work, args=(i, queue))
        child.start(); found.append(queue.get()); child.join()
    print(found)
"""

# An operator whose result is one ulp off in every element of run b.
NOISY = """
import sys, numpy as np, torch
lib = torch.library.Library("noisy", "DEF")
lib.define("copy(Tensor x) -> Tensor")
lib.impl("copy", lambda x: torch.from_numpy(np.nextafter(x.numpy(), np.float32(2)) if sys.argv[1] == "b" else x.numpy().copy()), "CPU")
x = torch.linspace(0.5, 1, 64)
(torch.ops.noisy.copy(x) * 2).sum()
"""


class Record(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.tmp.name)

    def tearDown(self):
        self.tmp.cleanup()

    def record(self, name, *argv, options=()):
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RLK_BUILD")}
        done = subprocess.run([RLKREC, "run", "-o", name, *options, "--", sys.executable, *map(str, argv)], cwd=self.dir, capture_output=True,
                              text=True, env=env, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def diff(self, a, b, want):
        done = subprocess.run([RLKAUDIT, "first-diff", a, b, "--json", "-"], cwd=self.dir, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, want, done.stdout[:2500] + done.stderr)
        return json.loads(done.stdout)

    def test_a_repeatable_run(self):
        plain = subprocess.run([sys.executable, TRAIN, "--steps", "2"], capture_output=True, text=True)
        for name in ("a", "b"):
            self.assertEqual(self.record(name, TRAIN, "--steps", "2").stdout, plain.stdout)
        found = self.diff("a", "b", 0)
        self.assertEqual(found["verdict"], "identical")
        self.assertGreater(found["coverage"]["a"]["tensors"], 2000)
        self.assertGreater(found["coverage"]["a"]["by_reference"], 1000)
        self.assertEqual(set(found["coverage"]["a"]["not_digested"]), {"alloc"})

    def test_a_planted_order(self):
        self.record("a", TRAIN, "--steps", "2", "--plant", "1")
        for _ in range(6):  # one in 24 draws the same order
            self.record("b", TRAIN, "--steps", "2", "--plant", "1")
            done = subprocess.run([RLKAUDIT, "first-diff", "a", "b"], cwd=self.dir, capture_output=True, timeout=300)
            if done.returncode != 0:
                break
            subprocess.run(["rm", "-rf", self.dir / "b.rlk"], check=True)
        found = self.diff("a", "b", 1)
        first = found["first"]
        self.assertEqual([first[k] for k in ("op", "module", "pass", "step")], ["aten::add_", "layers.1.attn", "fwd", 1])
        self.assertGreater(found["downstream"], 50)

    def test_memory_behaviour_is_no_difference(self):
        program = self.dir / "memory.py"
        program.write_text(MEMORY)
        one, two = self.record("a", program, "calm"), self.record("b", program, "churn")
        self.assertEqual(one.stdout, two.stdout)
        found = self.diff("a", "b", 0)
        self.assertEqual(found["roots"], [])

    def test_children_of_multiprocessing_end_well(self):
        program = self.dir / "children.py"
        program.write_text(CHILDREN)
        for method in ("fork", "forkserver"):
            self.assertEqual(self.record(method, program, method).stdout, "[4.0, 8.0]\n")
            info = subprocess.run([RLKREC, "info", method], cwd=self.dir, capture_output=True, text=True, timeout=60).stdout
            self.assertNotIn("no END", info)
            self.assertNotIn("INCOMPLETE", info)
            self.assertEqual(info.count(" 5 events"), 2, info)  # a child's: ones, add, mul, sum, the number

    def test_references_equal_digests(self):
        self.record("a", TRAIN, "--steps", "1", "--checkpoint")
        self.record("b", TRAIN, "--steps", "1", "--checkpoint", options=("--inputs", "digest"))
        self.diff("a", "b", 0)

    def test_a_payload_of_everything(self):
        self.record("a", TRAIN, "--steps", "1", options=("--payload", "op=*"))
        self.record("b", TRAIN, "--steps", "1")
        self.diff("a", "b", 0)

    def test_a_plan_keeps_what_it_lists(self):
        """The first pair says which tensors; the second pair keeps those and no others, and how far apart they are is known."""
        program, plan = self.dir / "noisy.py", self.dir / "next.plan"
        program.write_text(NOISY)
        for name in "ab":
            self.record(name, program, name)
        subprocess.run([RLKAUDIT, "first-diff", "a", "b", "--plan", plan], cwd=self.dir, capture_output=True)
        for name, run in (("c", "a"), ("d", "b")):
            self.record(name, program, run, options=("--plan", plan))
            events = subprocess.run([RLKREC, "info", name, "--events"], cwd=self.dir, capture_output=True, text=True).stdout
            kept = [line for line in events.splitlines() if " payload" in line]
            self.assertEqual([(line.split("op ")[1].split("@")[0], line.count(" payload")) for line in kept], [("noisy::copy", 2)], events)
        root = self.diff("c", "d", 1)["first"]
        self.assertEqual((root["op"], root["difference"]["changed"], root["difference"]["max_ulp"]), ("noisy::copy", 64, 1))
        for bad, text in (("no plan", "op=*\n"), ("112 KiB", "# rlk.plan/1\n" + "#" * 200000)):
            plan.write_text(text)
            done = subprocess.run([RLKREC, "run", "-o", "e", "--plan", plan, "--", "true"], cwd=self.dir, capture_output=True, text=True)
            self.assertEqual(done.returncode, 125)
            self.assertIn(bad, done.stderr)


if __name__ == "__main__":
    if not RLKREC.exists() or not RLKAUDIT.exists():
        print("skipped: rlkrec or rlkaudit is not built")
        sys.exit(77)
    rig.main()
