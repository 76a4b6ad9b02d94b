"""A program that breaks its context: what it is told must be what it is told unrecorded.

usage: sticky.py
"""
import torch


def told(f):
    try:
        f()
        torch.cuda.synchronize()
        print("fine")
    except RuntimeError as e:
        print(type(e).__name__, str(e).splitlines()[0])


x = torch.arange(4.0, device="cuda")
told(lambda: x * 2)
told(lambda: x[torch.tensor([900], device="cuda")])
told(lambda: x + 1)
told(lambda: torch.ones(3, device="cuda"))
print("mem", torch.ones(3).sum().item())
