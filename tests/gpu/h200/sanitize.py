"""A handful of operators, for compute-sanitizer.

usage: sanitize.py
"""
import torch

x = torch.arange(4096, dtype=torch.float32, device="cuda").view(64, 64)
y = (x.t() * 2).contiguous() + x
y[:, 3:17].add_(1)
many = [torch.full((i + 1,), 1.0, device="cuda") for i in range(40)]
torch._foreach_add_(many, 1.0)
print("sum", y.sum().item(), sum(m.sum().item() for m in many))
