"""Reads the GPU code of the contracts and fails on what would leave its order or rounding open:
  SASS: float atomics (RED, ATOM, ATOMS);
  PTX: atomics on floats, .ftz, a sum, product or fma without .rn (ptxas may contract it), approximate functions.
Kernels of the provider (their template argument FAST is true) may use approximations; SwiGLU's may use the reciprocal unit, whose
result it corrects to the exact quotient (kernels/rlk_num.h).

usage: lint_gpu.py PROGRAM...   cuobjdump from RLK_CUOBJDUMP or PATH; without one exit 77 (skipped)
"""
import os
import re
import shutil
import subprocess
import sys

ATOMIC_SASS = re.compile(r"\b(?:RED|REDG|ATOM|ATOMG|ATOMS)\.[A-Z0-9_.]*(?:F16|F32|F64|BF16)")
ATOMIC_PTX = re.compile(r"\b(?:atom|red)\.[a-z0-9_.:]*(?:f16|f32|f64|bf16)")
LOOSE = re.compile(r"\b(?:add|sub|mul|fma|mad|div|sqrt)\.(?!rn\b|rn\.)[a-z0-9.]*f(?:32|64)\b")
APPROX = re.compile(r"\b[a-z0-9]+\.approx\.[a-z0-9.]*f(?:32|64)\b")
FAST = re.compile(r"Lb1E")
CORRECTED = re.compile(r"\brcp\.approx\.ftz\.f32\b")


def sass_findings(text: str):
    kernel = "?"
    for line in text.splitlines():
        m = re.search(r"Function : (\S+)", line)
        kernel = m.group(1) if m else kernel
        if ATOMIC_SASS.search(line):
            yield kernel, "float atomic: " + line.strip()


def ptx_findings(text: str):
    kernel = "?"
    for line in text.splitlines():
        m = re.search(r"\.entry (\S+?)\(", line)
        kernel = m.group(1) if m else kernel
        if CORRECTED.search(line) and re.search(r"\d+glu_[fb]wd_kernel", kernel):
            continue
        if ATOMIC_PTX.search(line):
            yield kernel, "float atomic: " + line.strip()
        elif ".ftz" in line:
            yield kernel, "flush to zero: " + line.strip()
        elif LOOSE.search(line) and ".approx" not in line:
            yield kernel, "rounding left open: " + line.strip()
        elif APPROX.search(line) and not FAST.search(kernel):
            yield kernel, "approximate: " + line.strip()


def self_test():
    """The lint can fail."""
    assert len(list(sass_findings("Function : k\n RED.E.ADD.F32.FTZ.RN.STRONG.GPU [R2], R5 ;\n ATOMS.ADD R1, [R2], R3 ;"))) == 1
    planted = ".entry k(\n red.global.add.f32 [a], b;\n add.ftz.f32 a, b, c;\n mul.f32 a, b, c;\n ex2.approx.f32 a, b;\n"
    assert len(list(ptx_findings(planted))) == 4
    assert not list(ptx_findings(".entry k(\n add.rn.f32 a, b, c;\n fma.rn.f64 a, b, c, d;\n div.rn.f32 a, b, c;\n"))
    assert len(list(ptx_findings(".entry k(\n rcp.approx.ftz.f32 a, b;\n"))) == 1
    assert not list(ptx_findings(".entry _Z14glu_fwd_kernelI4bf16Lb0EE(\n rcp.approx.ftz.f32 a, b;\n"))
    assert not list(ptx_findings(".entry kILb1EE(\n ex2.approx.f32 a, b;\n"))


def main():
    self_test()
    tool = os.environ.get("RLK_CUOBJDUMP") or shutil.which("cuobjdump")
    if not tool:
        print("skipped: no cuobjdump (RLK_CUOBJDUMP)")
        return 77
    found, kernels, entries = [], 0, 0
    for path in sys.argv[1:]:
        sass = subprocess.run([tool, "-sass", path], capture_output=True, text=True, check=True).stdout
        ptx = subprocess.run([tool, "-ptx", path], capture_output=True, text=True, check=True).stdout
        kernels += sass.count("Function :")
        entries += ptx.count(".entry ")
        found += sass_findings(sass)
        found += ptx_findings(ptx)
    for kernel, what in found:
        print(f"{kernel}: {what}")
    print(f"{kernels} kernels in SASS, {entries} in PTX, {len(found)} findings")
    return 1 if found or not kernels or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
