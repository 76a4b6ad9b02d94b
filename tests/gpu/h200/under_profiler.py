"""Runs a program inside torch.profiler and counts the kernels it saw.

usage: under_profiler.py [--late] PROGRAM [ARGUMENT]...     --late: CUDA is started before the profiler
Last line on stderr: kernels N own M replayed R. The program's output is its own.
"""
import collections
import runpy
import sys

import torch
from torch.profiler import ProfilerActivity, profile

words = sys.argv[1:]
if words[0] == "--late":
    words = words[1:]
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
sys.argv = words
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as prof:
    runpy.run_path(words[0], run_name="__main__")
    if torch.cuda.is_available():
        torch.cuda.synchronize()
events = [e for e in prof.profiler.kineto_results.events() if "CUDA" in str(e.device_type())]
names = [e.name() for e in events if not e.name().lower().startswith(("memcpy", "memset")) and not e.is_user_annotation()]
own = sum("__rlkrec_" in n for n in names)
kinds = collections.Counter(str(e.device_type()) for e in prof.profiler.kineto_results.events())
print(f"events {dict(kinds)}\nkernels {len(names) - own} own {own}", file=sys.stderr)
