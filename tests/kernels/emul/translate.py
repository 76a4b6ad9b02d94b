"""Turns a .cu file into C++ for the emulation: launches and dynamic shared memory. usage: translate.py IN OUT"""
import re
import sys

text = open(sys.argv[1]).read()
text = re.sub(r"extern __shared__ __align__\(16\) float smem\[\];", "float *smem = emul_shared();", text)


def closing(s, i):
    depth = 0
    while True:
        depth += {"(": 1, ")": -1}.get(s[i], 0)
        i += 1
        if depth == 0:
            return i


out, at = "", 0
for m in re.finditer(r"<<<", text):
    if m.start() < at:
        continue
    start = m.start()
    depth = 0
    while True:  # back over the kernel's name and template arguments
        c = text[start - 1]
        depth += {">": 1, "<": -1}.get(c, 0)
        if depth == 0 and not (c.isalnum() or c in "_<:"):
            break
        start -= 1
    end = text.index(">>>", m.end())
    stop = closing(text, end + 3)
    out += text[at:start]
    kernel, config, args = text[start:m.start()], text[m.end():end], text[end + 4:stop - 1]
    out += f"emul_start([=](const auto &... v_) {{ {kernel}(v_...); }}, emul_config({config}), {args})"  # arguments by value, as on a GPU
    at = stop
out += text[at:]
open(sys.argv[2], "w").write('#include "cuda_runtime.h"\n' + out)
