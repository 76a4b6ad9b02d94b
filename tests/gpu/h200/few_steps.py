"""Three training steps of a small network, for who counts kernels.

usage: few_steps.py
"""
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]).cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
x = torch.randn(64, 256, device="cuda")
for _ in range(3):
    net(x).float().pow(2).mean().backward()
    opt.step()
    opt.zero_grad()
torch.cuda.synchronize()
