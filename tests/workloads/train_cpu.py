"""A small language model trained on the CPU: nothing here knows about rlkrec. Two runs print the same losses.

usage: python train_cpu.py [--steps 3] [--micro 1] [--hidden 128] [--layers 2] [--batch 4] [--seq 64] [--checkpoint]
                           [--compile] [--dropout 0.1] [--workers 0] [--plant STEP] [--optimizer adamw|sgd] [--threads 2] [--time]

--plant STEP: at that step the second block adds its heads' outputs in an order drawn from the system's randomness, the
kind of mistake an unordered reduction is.
"""
import argparse
import random
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=3)
ap.add_argument("--micro", type=int, default=1)
ap.add_argument("--hidden", type=int, default=128)
ap.add_argument("--layers", type=int, default=2)
ap.add_argument("--heads", type=int, default=4)
ap.add_argument("--vocab", type=int, default=512)
ap.add_argument("--batch", type=int, default=4)
ap.add_argument("--seq", type=int, default=64)
ap.add_argument("--dropout", type=float, default=0.1)
ap.add_argument("--checkpoint", action="store_true")
ap.add_argument("--compile", action="store_true")
ap.add_argument("--workers", type=int, default=0)
ap.add_argument("--plant", type=int, default=-1)
ap.add_argument("--optimizer", default="adamw")
ap.add_argument("--threads", type=int, default=2)
ap.add_argument("--time", action="store_true")
a = ap.parse_args()
step = 0


class Attention(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index
        self.qkv = nn.Linear(a.hidden, 3 * a.hidden)
        self.proj = nn.Linear(a.hidden, a.hidden)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, a.heads, d // a.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if self.index == 1 and step == a.plant:
            scale = torch.stack([y[:, h].abs() * (1.0 + 0.37 * h) for h in range(a.heads)])
            order = list(range(a.heads))
            random.SystemRandom().shuffle(order)
            total = torch.zeros_like(scale[0])
            for h in order:
                total.add_(scale[h])
            y = y * (1 + total[:, None])
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.norm1 = nn.LayerNorm(a.hidden)
        self.attn = Attention(index)
        self.norm2 = nn.LayerNorm(a.hidden)
        self.up = nn.Linear(a.hidden, 4 * a.hidden)
        self.down = nn.Linear(4 * a.hidden, a.hidden)
        self.drop = nn.Dropout(a.dropout)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(a.vocab, a.hidden)
        self.layers = nn.ModuleList(Block(i) for i in range(a.layers))
        self.norm = nn.LayerNorm(a.hidden)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if a.checkpoint else layer(x)
        return F.linear(self.norm(x), self.embed.weight)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return a.steps * a.micro * a.batch

    def __getitem__(self, i):
        return torch.arange(i, i + a.seq + 1) * 7919 % a.vocab


def main():
    global step
    torch.manual_seed(0)
    torch.set_num_threads(a.threads)
    torch.ones(1).sqrt()  # MKL finds out the processor at its first call, and not safely between threads: docs/found.md
    model = Model()
    if a.optimizer == "adamw":
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    else:
        opt = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    run = torch.compile(model) if a.compile else model
    data = iter(torch.utils.data.DataLoader(Data(), batch_size=a.batch, num_workers=a.workers))
    for step in range(a.steps):
        start, cpu = time.perf_counter(), time.process_time()
        for _ in range(a.micro):
            ids = next(data)
            logits = run(ids[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, a.vocab), ids[:, 1:].reshape(-1)) / a.micro
            loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        line = f"step {step} loss {loss.item():.17g} norm {norm.item():.17g}"
        print(line + (f" time {time.perf_counter() - start:.6f} cpu {time.process_time() - cpu:.6f}" if a.time else ""), flush=True)


main()
