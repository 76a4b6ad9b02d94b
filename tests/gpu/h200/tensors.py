"""Tensors of every kind through operators whose results are the same bits on any device: recorded on the CPU and on the GPU,
the two recordings must be identical, for the CPU's digests are the host's recomputation of what the GPU held.

usage: tensors.py --device cpu|cuda
"""
import argparse

import torch

ap = argparse.ArgumentParser()
ap.add_argument("--device", default="cuda")
a = ap.parse_args()
torch.manual_seed(0)
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64",
          "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]


def to_device(host):
    there = torch.empty_strided(host.shape, host.stride(), dtype=host.dtype, device=a.device)
    there.copy_(host)
    return there


def noise(n, dtype):
    """Every bit pattern there is: NaN of all payloads, infinities, -0, subnormal numbers."""
    if dtype == torch.bool:
        return torch.arange(n) % 3 == 0
    size = torch.empty(0, dtype=dtype).element_size()
    raw = (torch.arange(n * size, dtype=torch.int64) * 2654435761 % 4294967291 >> 7) & 255
    raw[: 4 * size] = 0
    raw[size - 1 :: 16 * size] = 128 if size == 1 else 0x80  # sign bits
    return raw.to(torch.uint8).view(dtype)


for name in DTYPES:
    dtype = getattr(torch, name)
    x = to_device(noise(4096, dtype).view(64, 64))
    x.clone()
    x.t().contiguous()
    x[:, 5:23].clone()
    x[::3, 1::2].clone()
    x[7].expand(5, 3, 64).clone(memory_format=torch.contiguous_format)
    x.view(-1).as_strided((40, 48), (3, 1), 2).clone(memory_format=torch.contiguous_format)
    x.view(4, 16, 8, 8).permute(2, 0, 3, 1).clone(memory_format=torch.contiguous_format)
    x.view(-1)[9].clone()
    x[:0].clone()
    x[:, :1, None].clone()
    if name in ("bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64", "complex64"):  # the rest has no kernel everywhere
        torch.cat([x, x[3:7], x.flip(0)])

# in place, without a wait in between
x = to_device(torch.arange(100000, dtype=torch.float32) % 1024)
for i in range(100):
    x.add_(1)
    x[i * 10 : i * 10 + 777].mul_(2)
    x.clamp_(max=65536)

# members of a list, more than a launch takes
many = [to_device(torch.full((i % 9 + 1,), float(i))) for i in range(300)]
torch._foreach_add_(many, 1.0)
torch._foreach_mul(many, 0.5)

# memory that is used again at once, on several streams
base = to_device(torch.arange(1 << 18, dtype=torch.int32))
streams = [torch.cuda.Stream() for _ in range(3)] if a.device == "cuda" else [None] * 3
for i in range(120):
    s = streams[i % 3]
    if s is not None:
        s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        t = base + i
        u = t * 3
        del t
        v = u - i
        if i % 2 and s is not None:
            u.record_stream(torch.cuda.current_stream())
        del u
    if s is not None:
        torch.cuda.current_stream().wait_stream(s)
    base = v

# CPU and GPU mixed
host = torch.arange(5000, dtype=torch.float32)
there = to_device(host)
there.mul_(torch.tensor(2.0)).add_(torch.tensor(3.0))
back = torch.empty(5000)
back.copy_(there)
back.add_(1)
there.copy_(back)
for _ in range(3):
    back.copy_(there, non_blocking=False)
    there = there + back.sum().item()

# of a size where every part of the device works
big = to_device(torch.arange(1 << 24, dtype=torch.float32) * 0.5)
(big + 1).view(4096, 4096).t().contiguous()
print(f"done {float(there[17])} {int(base[5])}")
