"""Caches that are filled in part, over memory that held other bytes: two runs differ in nothing that anybody defined.

usage: fresh.py [7]     the byte that lies in the memory
"""
import sys

import torch

junk = [torch.full((1 << 20,), int(sys.argv[1]) if sys.argv[1:] else 5, dtype=torch.uint8, device="cuda") for _ in range(8)]
del junk
rows, some = torch.arange(8, device="cuda"), torch.ones(8, 1024, device="cuda")
cache = torch.empty(64, 1024, device="cuda")
cache.index_copy_(0, rows, some)
y = cache.sum(1)
part = torch.empty(64, 1024, device="cuda")
part[:8].copy_(some)
w = part * 2
print(float(y[:8].sum()), float(w[:8].sum()), float(part[:8].sum()))
