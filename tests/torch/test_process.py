"""Processes: children that fork or spawn, interpreters that ignore the environment, recorders and compilers that fail."""
import os
import pathlib
import subprocess
import sys
import tempfile

import rig

TRAIN = rig.WORKLOADS / "train_cpu.py"
ONE = "import torch\nprint((torch.ones(3) * 2).sum().item())"


class Process(rig.Case):
    def test_loader_workers_do_not_record(self):
        want = rig.plain([TRAIN, "--workers", "2", "--steps", "2"])
        run = self.clean(rig.record([TRAIN, "--workers", "2", "--steps", "2"]))
        self.assertEqual((run.out, run.err), (want.stdout, want.stderr))
        self.assertEqual(len(run.processes), 1)
        self.assertTrue([e for e in run.ops(op="aten::embedding")])

    def test_spawned_workers_do_not_record(self):
        with tempfile.TemporaryDirectory() as tmp:
            path = pathlib.Path(tmp) / "main.py"
            path.write_text("""
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): return torch.full((3,), float(i)) * 2
if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=1, multiprocessing_context="spawn")
    print(sum(b.sum().item() for b in loader))
""")
            run = rig.record([path])
        self.assertEqual((run.rc, run.out), (0, "36.0\n"), run.err)
        self.assertEqual(sum(bool(e) for e in run.processes.values()), 1)

    def test_a_forked_child_records_for_itself(self):
        run = rig.record("""
import os, torch
x = torch.ones(4) * 2
pid = os.fork()
if pid == 0:
    (x + 1).sum()
    os._exit(0)
os.waitpid(pid, 0)
print(x.sum().item())
""")
        self.assertEqual((run.rc, run.out), (0, "8.0\n"), run.err)
        self.assertEqual(sorted(("aten::add" in {e.op for e in events}) for events in run.processes.values() if events), [False, True])
        self.assertEqual(run.marks.count("#finish"), 1)  # of the child: the recorder does not see it leave

    def test_interpreters_that_ignore_the_environment(self):
        for flag in ("-S", "-I", "-E"):
            with tempfile.TemporaryDirectory() as tmp:
                env = rig.environment(pathlib.Path(tmp) / "rec", "op", "", {})
                done = subprocess.run([sys.executable, flag, "-c", "print(1)"], capture_output=True, text=True, env=env)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "1\n", ""), flag)
                self.assertEqual(os.listdir(tmp), [])

    def test_nothing_without_torch(self):
        run = rig.record("import sys\nprint('torch' in sys.modules, 'rlkrec_torch' in sys.modules, 'ctypes' in sys.modules)")
        self.assertEqual((run.out, run.err, run.processes), ("False False False\n", "", {}))

    def test_the_hidden_sitecustomize_runs(self):
        with tempfile.TemporaryDirectory() as tmp:
            (pathlib.Path(tmp) / "sitecustomize.py").write_text("import os\nos.environ['SEEN'] = __name__ + ' ' + __file__\n")
            path = os.pathsep.join([str(rig.ADAPTER), tmp])
            run = rig.record("import os, sys, torch\nprint(os.environ['SEEN'], sys.modules['sitecustomize'].__file__)\ntorch.ones(2).sum()", env={"PYTHONPATH": path})
            own = os.path.join(tmp, "sitecustomize.py")
            self.assertEqual(run.out, f"sitecustomize {own} {own}\n", run.err)
            self.assertTrue(run.ops(op="aten::sum"))
            (pathlib.Path(tmp) / "sitecustomize.py").write_text("raise ValueError('theirs')\n")
            run = rig.record(ONE, env={"PYTHONPATH": path})
            self.assertIn("theirs", run.err)
            self.assertEqual(run.out, "6.0\n")
            self.assertTrue(run.ops(op="aten::sum"))

    def test_failures_cost_one_line(self):
        with tempfile.TemporaryDirectory() as tmp:
            broken = pathlib.Path(tmp) / "librlkrec.so"
            broken.write_text("no library\n")
            run = rig.record(ONE, env={"RLKREC_LIBRARY": str(broken)})
            self.assertEqual((run.rc, run.out, run.err.count("rlkrec:")), (0, "6.0\n", 1), run.err)
            run = rig.record(ONE, env={"RLKREC_LIBRARY": str(broken)}, observer="python")
            self.assertEqual((run.rc, run.out, run.err.count("rlkrec:")), (0, "6.0\n", 1), run.err)
            compiler = pathlib.Path(tmp) / "c++"
            compiler.write_text("#!/bin/sh\necho 'error: planted' >&2\nexit 1\n")
            compiler.chmod(0o755)
            run = rig.record(ONE, observer="c++", env={"CXX": str(compiler), "RLKREC_CACHE": tmp + "/cache"})
            self.assertEqual((run.rc, run.out), (0, "6.0\n"), run.err)
            self.assertIn("error: planted; going on without recording", run.err)
            run = rig.record(ONE, env={"RLKREC_CACHE": str(broken)})  # a file where the cache should be
            self.assertEqual((run.rc, run.out), (0, "6.0\n"), run.err)
            self.assertIn("aten::sum", [e.op for e in run.events])

    def test_a_fault_inside_stops_the_recording_only(self):
        run = rig.record("""
import sys, torch
adapter = sys.modules["rlkrec_torch"].current()
class Paths:
    def of(self, module, stack): raise KeyError("planted")
    def registered(self, *args): pass
adapter.paths = Paths()
net = torch.nn.Linear(2, 2)
print(net(torch.ones(1, 2)).shape, net(torch.ones(1, 2)).shape)
""")
        self.assertEqual((run.rc, run.out), (0, "torch.Size([1, 2]) torch.Size([1, 2])\n"), run.err)
        self.assertEqual(run.err.count("rlkrec:"), 1, run.err)
        self.assertIn("planted", run.err)
        self.assertTrue([m for m in run.marks if m.startswith("#fault")])

    def test_two_builds_at_once(self):
        with tempfile.TemporaryDirectory() as tmp:
            compiler = pathlib.Path(tmp) / "c++"
            compiler.write_text(f"#!/bin/sh\necho x >>{tmp}/calls\nfor a; do last=$b; b=$a; done\nwhile [ $# -gt 0 ]; do [ \"$1\" = -o ] && : >\"$2\"; shift; done\n")
            compiler.chmod(0o755)
            env = {**os.environ, "CXX": str(compiler), "RLKREC_CACHE": tmp + "/cache", "PYTHONPATH": str(rig.ADAPTER)}
            both = [subprocess.Popen([sys.executable, "-m", "rlkrec_torch.build"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                    for _ in range(2)]
            paths = {p.communicate()[0] for p in both}
            self.assertEqual(len(paths), 1)
            self.assertTrue(os.path.isfile(paths.pop().strip()))
            self.assertEqual(pathlib.Path(tmp, "calls").read_text().count("x"), 4)


if __name__ == "__main__":
    rig.main()
