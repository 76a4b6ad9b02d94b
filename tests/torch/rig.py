"""Runs programs under the fake recorder (fake_recorder.c) and reads what the adapter told it."""
import collections
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["RLK_SOURCE"])
BUILD = pathlib.Path(os.environ["RLK_BUILD"])
WORKLOADS = SOURCE / "tests" / "workloads"
ADAPTER = SOURCE / "recorder" / "torch" / "python"

Tensor = collections.namedtuple("Tensor", "name dtype shape hash how")
Event = collections.namedtuple("Event", "step phase work pass_ module call kind op attrs inputs outputs")


def tensors(text):
    found = []
    for word in text.split():
        name, dtype, shape, rest = word.split(":", 3)
        digest, _, how = rest.partition(":")
        found.append(Tensor(name, int(dtype), shape, digest, how))
    return found


def event(line):
    step, phase, work, pass_, module, call, kind, op, attrs, inputs, outputs = line.rstrip("\n").split("|")
    pairs = dict(a.split("=", 1) for a in attrs.split(";") if "=" in a)
    return Event(int(step), phase, int(work), pass_, module, int(call), kind, op, pairs, tensors(inputs), tensors(outputs))


class Run:
    def __init__(self, done, prefix):
        self.rc, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.processes = {}
        self.marks = []
        for path in sorted(prefix.parent.glob(prefix.name + ".*")):
            lines = [line for line in path.read_text().splitlines() if line]
            self.marks += [line for line in lines if line.startswith("#")]
            self.processes[path.name] = [event(line) for line in lines if not line.startswith("#")]

    @property
    def events(self):
        """Of the one process that recorded any."""
        busy = [e for e in self.processes.values() if e]
        assert len(busy) <= 1, f"{len(busy)} processes recorded"
        return busy[0] if busy else []

    def ops(self, **want):
        return [e for e in self.events if e.kind == "op" and all(getattr(e, k) == v for k, v in want.items())]


def environment(prefix, level, observer, more):
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RLK_BUILD")}
    env.update(PYTHONPATH=str(ADAPTER), RLKREC_LIBRARY=os.environ["RLK_FAKE_RECORDER"], RLKREC_RECORDING=str(prefix), RLKREC_LEVEL=level,
               RLKREC_OBSERVER=observer, OMP_NUM_THREADS="2")
    env.update(more)
    return env


def plain(argv, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("RLK")}
    env.update(OMP_NUM_THREADS="2", **more)
    return subprocess.run(command(argv), capture_output=True, text=True, env=env, timeout=300)


def command(argv):
    if isinstance(argv, str):
        return [sys.executable, "-c", argv]
    return [sys.executable, *map(str, argv)]


def record(argv, level="op", observer="", env=None):
    """argv: a script and its arguments, or the text of a program."""
    with tempfile.TemporaryDirectory() as tmp:
        prefix = pathlib.Path(tmp) / "rec"
        done = subprocess.run(command(argv), capture_output=True, text=True, env=environment(prefix, level, observer, env or {}), timeout=300)
        return Run(done, prefix)


class Case(unittest.TestCase):
    maxDiff = None

    def clean(self, run):
        """The program ended well and the adapter had nothing to complain about."""
        self.assertEqual(run.rc, 0, run.err)
        self.assertNotIn("rlkrec:", run.err)
        self.assertFalse([m for m in run.marks if m.startswith("#fault")])
        return run

    def no_stale(self, run):
        """No input would be taken for an earlier output that it no longer equals."""
        self.clean(run)
        for e in run.events:
            for t in e.inputs:
                self.assertNotEqual(t.how, "STALE", f"{e.op} in {e.module!r}: {t}")
                self.assertNotIn("outside", t.hash)
        return run


def main():
    try:
        import torch  # noqa: F401
    except ImportError as e:
        print(f"skipped: {e}")
        sys.exit(77)
    unittest.main(verbosity=2)
