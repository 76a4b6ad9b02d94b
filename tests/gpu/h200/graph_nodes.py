"""Runs a program and counts, by the driver's graph calls, the kernel nodes of each graph that it captures and its replays.

usage: graph_nodes.py PROGRAM [ARGUMENT]...
Last line on stderr: graphs [[nodes, replays], ...]
"""
import ctypes
import runpy
import sys

import torch

made = []
Plain = torch.cuda.CUDAGraph


class Counted(Plain):
    """Keeps its graph, so that it can be asked."""

    def __init__(self, keep_graph=False):
        super().__init__(True)
        self.replays = 0
        made.append(self)

    def replay(self):
        self.replays += 1
        super().replay()


def kernel_nodes(graph):
    driver = ctypes.CDLL("libcuda.so.1")
    handle, n, kind, kernels = ctypes.c_void_p(graph.raw_cuda_graph()), ctypes.c_size_t(0), ctypes.c_int(0), 0
    assert driver.cuGraphGetNodes(handle, None, ctypes.byref(n)) == 0
    nodes = (ctypes.c_void_p * n.value)()
    assert driver.cuGraphGetNodes(handle, nodes, ctypes.byref(n)) == 0
    for node in nodes:
        assert driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)) == 0
        kernels += kind.value == 0
    return kernels


torch.cuda.CUDAGraph = torch.cuda.graphs.CUDAGraph = Counted
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
print("graphs", [[kernel_nodes(g), g.replays] for g in made], file=sys.stderr)
