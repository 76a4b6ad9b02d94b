"""Runs a program and repeats every operator of it on clones of that operator's own inputs; lists whose outputs' bits vary.

usage: repeat_ops.py [--times 12] [--calls 4] [--each 0.15] [--seconds 60] [--json FILE] PROGRAM [ARGUMENT]...
Of each operator the first --calls calls with the same shapes, each --times times, or as often as --each seconds allow (at least
three times); none after --seconds. On a GPU other work runs on another stream
meanwhile, so that blocks are not scheduled the same way each time.
Independent of rlkrec: a dispatch mode, which autograd's threads inherit, sees what rlkrec's observer sees. Arguments are
cloned by storage, with their offsets, strides and aliases, and the generator's state is put back before each run. An output is
counted as docs/torch.md says: what is returned and shares no storage with an input, then what was written and not returned.
Exit: the program's own.
"""
import argparse
import json
import runpy
import sys
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

ap = argparse.ArgumentParser()
ap.add_argument("--times", type=int, default=12)
ap.add_argument("--calls", type=int, default=4)
ap.add_argument("--each", type=float, default=0.15)
ap.add_argument("--seconds", type=float, default=60)
ap.add_argument("--json", default="")
ap.add_argument("program")
ap.add_argument("rest", nargs=argparse.REMAINDER)
a = ap.parse_args()
ALLOCATES = ("empty", "new_empty", "resize", "_efficientzerotensor")


def storage(t):
    return t.untyped_storage()._cdata


def bits(t):
    """What to compare: the bytes of the elements, in order."""
    return t.detach().contiguous().reshape(-1).view(torch.uint8) if t.numel() else t.new_empty(0, dtype=torch.uint8)


def plain(t):
    return isinstance(t, torch.Tensor) and t.layout == torch.strided and t.device.type in ("cpu", "cuda") and not t.is_quantized


class Repeat(TorchDispatchMode):
    def __init__(self, times, calls):
        super().__init__()
        self.calls, self.met, self.noise = calls, {}, None
        self.began, self.late, self.runs = time.monotonic(), 0, 0
        self.times, self.found, self.seen, self.failed = times, {}, {}, {}

    def clones(self, flat):
        """The arguments again on clones of their storages; also the clones by argument."""
        copies, out = {}, []
        for t in flat:
            if not plain(t):
                out.append(t)
                continue
            key = (storage(t), t.device)
            if key not in copies:
                whole = torch.empty(0, dtype=torch.uint8, device=t.device).set_(t.untyped_storage())
                copies[key] = whole.clone().untyped_storage()
            c = torch.empty(0, dtype=t.dtype, device=t.device).set_(copies[key], t.storage_offset(), t.size(), t.stride())
            out.append(c._conj() if t.is_conj() else c._neg_view() if t.is_neg() else c)
        return out

    def disturb(self):
        if self.noise is None:
            self.noise = (torch.cuda.Stream(), torch.ones(768, 768, device="cuda"))
        stream, square = self.noise
        with torch.cuda.stream(stream):
            for _ in range(1 + len(self.seen) % 3):
                torch.mm(square, square)

    def once(self, func, flat, spec, written):
        """Runs it on clones: [(index, name, bytes)]."""
        again = self.clones(flat)
        args, kwargs = tree_unflatten(again, spec)
        result = func(*args, **kwargs)
        known = {storage(t) for t in again if plain(t)}
        out, returned = [], set()
        for r in tree_flatten(result)[0]:
            if not plain(r):
                continue
            mine = [w for w in written if again[w] is r]
            if not mine and storage(r) in known:
                continue
            returned.update(mine)
            out.append(r)
        out += [again[w] for w in written if w not in returned and plain(again[w])]
        return [bits(o).clone() for o in out]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name
        bare = name.split("::")[-1]
        if func.is_view or bare.startswith(ALLOCATES) or name.startswith(("prim::", "profiler::", "c10d")) or bare in ("detach", "set_"):
            return func(*args, **kwargs)
        flat, spec = tree_flatten((args, kwargs))
        tensors = [t for t in flat if isinstance(t, torch.Tensor)]
        written = self.written(func, args, kwargs, flat)
        random = torch.Tag.nondeterministic_seeded in func.tags
        on_gpu = any(t.device.type == "cuda" for t in tensors)
        self.seen[name] = self.seen.get(name, 0) + 1
        signature = (str(func), *((t.shape, t.stride(), t.dtype, t.device) for t in tensors if plain(t)))
        self.met[signature] = self.met.get(signature, 0) + 1
        if self.met[signature] > self.calls:
            return func(*args, **kwargs)
        start = time.monotonic()
        if start > self.began + a.seconds:
            self.late += 1
            return func(*args, **kwargs)
        try:
            state = (torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None) if random else None
            first = None
            for i in range(self.times):
                if i > 2 and time.monotonic() > start + a.each:
                    break
                self.runs += 1
                if state:
                    torch.set_rng_state(state[0])
                    if state[1] is not None:
                        torch.cuda.set_rng_state(state[1])
                if on_gpu and i:
                    self.disturb()
                got = self.once(func, flat, spec, written)
                if first is None:
                    first, differ = got, [None] * len(got)
                    continue
                for k, (x, y) in enumerate(zip(first, got)):
                    changed = (x != y).any() if x.shape == y.shape else torch.ones((), dtype=torch.bool, device=x.device)
                    differ[k] = changed if differ[k] is None else differ[k] | changed
            for k, d in enumerate(differ if first is not None and self.times > 1 else []):
                if bool(d):
                    self.found.setdefault(f"{name} {k}", {"op": name, "index": k, "calls": 0})["calls"] += 1
            if state:
                torch.set_rng_state(state[0])
                if state[1] is not None:
                    torch.cuda.set_rng_state(state[1])
        except Exception as e:  # the program goes on; what could not be repeated is told
            self.failed[name] = f"{type(e).__name__}: {str(e)[:200]}"
        return func(*args, **kwargs)

    @staticmethod
    def written(func, args, kwargs, flat):
        """Places in flat of what the schema says is written."""
        out = []
        for i, x in enumerate(func._schema.arguments):
            if x.alias_info is None or not x.alias_info.is_write:
                continue
            value = args[i] if i < len(args) else kwargs.get(x.name)
            for t in tree_flatten(value)[0]:
                out += [k for k, f in enumerate(flat) if f is t and isinstance(t, torch.Tensor)][:1]
        return out


mode = Repeat(a.times, a.calls)
sys.argv = [a.program, *a.rest]
try:
    with mode:
        runpy.run_path(a.program, run_name="__main__")
finally:
    result = {"times": a.times, "runs": mode.runs, "late": mode.late, "operators": len(mode.seen), "calls": sum(mode.seen.values()), "vary": sorted(mode.found.values(), key=lambda v: (v["op"], v["index"])),
              "failed": mode.failed, "seen": mode.seen}
    if a.json:
        with open(a.json, "w") as f:
            json.dump(result, f)
    print(f"{result['calls']} calls of {result['operators']} operators, {mode.runs} runs, {mode.late} calls too late, vary: {[(v['op'], v['index'], v['calls']) for v in result['vary']]} "
          f"not repeated: {mode.failed}", file=sys.stderr)
