"""Counts the kernels of this process by torch.profiler, ours apart: kernels N own M.

usage: profile_count.py
"""
import torch

with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA], acc_events=True) as prof:
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]).cuda()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x = torch.randn(64, 256, device="cuda")
    for _ in range(3):
        net(x).float().pow(2).mean().backward()
        opt.step()
        opt.zero_grad()
    torch.cuda.synchronize()
names = [e.name() for e in prof.profiler.kineto_results.events() if "CUDA" in str(e.device_type()) and not e.name().lower().startswith(("mem", "[mem"))]
own = sum(n.startswith("__rlkrec_") for n in names)
print(f"kernels {len(names) - own} own {own}")
