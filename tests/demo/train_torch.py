"""A small training of a two-block MLP on the CPU, in plain PyTorch. Nothing here knows of rlkrec.

usage: python train_torch.py [--steps 3] [--arrival]
--arrival: the first block adds up the parts of its output in the order in which they arrive, as a reduction over workers does.
"""
import argparse
import queue
import random
import threading
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--arrival", action="store_true")
args = parser.parse_args()


class Block(nn.Module):
    def __init__(self, width, arrival=False):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)
        self.arrival = arrival

    def forward(self, x):
        hidden = torch.nn.functional.gelu(self.up(self.norm(x)))
        if not self.arrival:
            return x + self.down(hidden)
        parts = [h @ w.t() for h, w in zip(hidden.chunk(8, -1), self.down.weight.chunk(8, 1))]
        arrived = queue.Queue()
        for part in parts:
            threading.Thread(target=lambda p=part: (time.sleep(random.Random().random() * 0.02), arrived.put(p))).start()
        total = self.down.bias
        for _ in parts:
            total = total + arrived.get()
        return x + total


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(512, 128), Block(128, args.arrival), Block(128), nn.Linear(128, 512))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randint(0, 512, (args.steps, 8, 33))
for step in range(args.steps):
    tokens = data[step]
    logits = model(tokens[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.17g}", flush=True)
