"""Reads the GPU code of the contracts and fails on what would leave its order or rounding open:
  SASS: float atomics (RED, ATOM, ATOMS);
  PTX: atomics on floats, .ftz, a sum, product or fma without .rn (ptxas may contract it), approximate functions.
The provider's kernels are left out: those of namespace provider, and the ones below whose template argument FAST is true. Every other
kernel is the contract's, whatever its name. SwiGLU's may use the reciprocal unit, whose result it corrects to the exact quotient
(kernels/rlk_num.h).

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
PROVIDER = re.compile(r"^_ZN8provider\d")
FAST = re.compile(r"^_Z\d+(?:norm_fwd_(?:held|twice|any)|glu_fwd_kernel|attn_(?:fwd|dq|dkv)_kernel|logp_stats_kernel)I(?:4bf16|f)?(?:Li\d+E)*Lb1EE")
CORRECTED = re.compile(r"\brcp\.approx\.ftz\.f32\b")


def of_provider(kernel: str) -> bool:
    return bool(PROVIDER.match(kernel) or FAST.match(kernel))


def sass_findings(text: str):
    kernel = "?"
    for line in text.splitlines():
        m = re.search(r"Function : (\S+)", line)
        kernel = m.group(1) if m else kernel
        if ATOMIC_SASS.search(line) and not of_provider(kernel):
            yield kernel, "float atomic: " + line.strip()


def ptx_findings(text: str):
    kernel = "?"
    for line in text.splitlines():
        m = re.search(r"\.entry (\S+?)\(", line)
        kernel = m.group(1) if m else kernel
        if of_provider(kernel):
            continue
        if CORRECTED.search(line) and re.search(r"\d+glu_[fb]wd_kernel", kernel):
            continue
        if ATOMIC_PTX.search(line):
            yield kernel, "float atomic: " + line.strip()
        elif ".ftz" in line:
            yield kernel, "flush to zero: " + line.strip()
        elif LOOSE.search(line) and ".approx" not in line:
            yield kernel, "rounding left open: " + line.strip()
        elif APPROX.search(line):
            yield kernel, "approximate: " + line.strip()


def self_test():
    """The lint can fail."""
    assert len(list(sass_findings("Function : k\n RED.E.ADD.F32.FTZ.RN.STRONG.GPU [R2], R5 ;\n ATOMS.ADD R1, [R2], R3 ;"))) == 1
    planted = ".entry k(\n red.global.add.f32 [a], b;\n add.ftz.f32 a, b, c;\n mul.f32 a, b, c;\n ex2.approx.f32 a, b;\n"
    assert len(list(ptx_findings(planted))) == 4
    assert not list(ptx_findings(".entry k(\n add.rn.f32 a, b, c;\n fma.rn.f64 a, b, c, d;\n div.rn.f32 a, b, c;\n"))
    assert len(list(ptx_findings(".entry k(\n rcp.approx.ftz.f32 a, b;\n"))) == 1
    assert not list(ptx_findings(".entry _Z14glu_fwd_kernelI4bf16Lb0EE(\n rcp.approx.ftz.f32 a, b;\n"))
    # The provider may do all of it; a kernel of the contract may not, even with a true template argument or a provider's name inside.
    free = ["_ZN8provider9embed_bwdI4bf16EEv14rlki_embed_bwd", "_Z15attn_dkv_kernelI4bf16Li128ELb1EEv18rlki_attention_dkvi",
            "_Z17logp_stats_kernelILb1EEv9rlki_logpi", "_Z13norm_fwd_heldI4bf16Li8ELi1ELi4ELb1EEvliPKT_S2_PS0_Pff"]
    bound = ["_Z15attn_dkv_kernelI4bf16Li128ELb0EEv18rlki_attention_dkvi", "_Z13norm_bwd_bothI4bf16Li512ELb1EEv9rlki_norm",
             "_Z16embed_bwd_kernelI4bf16Ev14rlki_embed_bwd", "_Z13my_provider9embed_bwdv"]
    for kernels, findings in ((free, 0), (bound, 4)):
        for k in kernels:
            assert len(list(ptx_findings(planted.replace(".entry k(", f".entry {k}(")))) == findings, k
            assert len(list(sass_findings(f"Function : {k}\n RED.E.ADD.F32.FTZ.RN.STRONG.GPU [R2], R5 ;"))) == (findings > 0), k


def main():
    self_test()
    tool = os.environ.get("RLK_CUOBJDUMP") or shutil.which("cuobjdump")
    if not tool:
        print("skipped: no cuobjdump (RLK_CUOBJDUMP)")
        return 77
    found, kernels, provided, entries = [], 0, 0, 0
    for path in sys.argv[1:]:
        sass = subprocess.run([tool, "-sass", path], capture_output=True, text=True, check=True).stdout
        ptx = subprocess.run([tool, "-ptx", path], capture_output=True, text=True, check=True).stdout
        names = re.findall(r"Function : (\S+)", sass)
        kernels += len(names)
        provided += sum(map(of_provider, names))
        entries += ptx.count(".entry ")
        found += sass_findings(sass)
        found += ptx_findings(ptx)
    for kernel, what in found:
        print(f"{kernel}: {what}")
    print(f"{kernels} kernels in SASS, {entries} in PTX, {provided} of them the provider's; {len(found)} findings in the others")
    return 1 if found or not kernels or not entries or not 0 < provided < kernels else 0


if __name__ == "__main__":
    sys.exit(main())
