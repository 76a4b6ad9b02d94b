"""A captured graph beside recorded operators: the graph's result and the same numbers made outside it have equal digests.

usage: capture.py
"""
import torch

x = torch.arange(4096, dtype=torch.float32, device="cuda")
out = torch.zeros(4096, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(2):
        out.copy_(x * 2 + 1)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out.copy_(x * 2 + 1)
good = True
for i in range(3):
    x.fill_(float(i))
    out.zero_()  # a recorded write: the replay's is not seen, and must not be taken for it
    graph.replay()
    marked = torch.neg(out)
    known = torch.neg(torch.full((4096,), 2.0 * i + 1, device="cuda"))
    good &= bool(torch.equal(marked, known))
print("replays right" if good else "replays WRONG")
