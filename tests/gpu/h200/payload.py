"""Operators whose outputs' bytes `rlkrec run --payload` keeps; --plant moves a few elements of one of them by one ULP.

usage: payload.py [--device cuda] [--plant]
"""
import argparse

import torch

ap = argparse.ArgumentParser()
ap.add_argument("--device", default="cuda")
ap.add_argument("--plant", action="store_true")
a = ap.parse_args()
lib = torch.library.Library("planted", "DEF")
lib.define("scale(Tensor x, float by) -> Tensor")
lib.define("raise_(Tensor(a!) x) -> Tensor(a!)")


def scale(x, by):
    y = x * by
    if a.plant and by == 3.0:
        y[40:43, 5] = torch.nextafter(y[40:43, 5], y.new_full((), float("inf")))
    return y


def raise_(x):
    """In place and slow to come: who copies too early sees what was there before."""
    if x.device.type == "cuda":
        torch.cuda._sleep(20_000_000)
    return x.add_(1)


lib.impl("scale", scale, "CompositeExplicitAutograd")
lib.impl("raise_", raise_, "CompositeExplicitAutograd")
x = torch.arange(64 * 96, dtype=torch.float32, device=a.device).view(64, 96).add_(1)
side = torch.cuda.Stream() if a.device == "cuda" else None
if side:
    side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side) if side else torch.no_grad():
    z = torch.ops.planted.raise_(x[:, 3:50])
    w = torch.ops.planted.scale(z, 2.0)
if side:
    torch.cuda.current_stream().wait_stream(side)
y = torch.ops.planted.scale(x, 3.0)  # the root
torch.ops.planted.scale(y, 5.0)
print(float(x.sum()), float(w.sum()))
