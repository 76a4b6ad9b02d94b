"""Stands in for the CUDA libraries that a torch wheel links and a machine without a GPU never calls.

usage: cuda_stubs.py SITE_PACKAGES

For each shared library that torch's own libraries need and that is nowhere under SITE_PACKAGES/nvidia, builds an empty
one of the same name and symbol versions, in which every function returns 1 (an error in all these interfaces). Only the
loader ever looks at them: enough for `import torch` and everything on the CPU, without gigabytes of GPU libraries.
"""
import os
import pathlib
import re
import subprocess
import sys

SYSTEM = re.compile(r"^(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so|ld-linux)")
PREFIX = {  # unversioned interfaces, by the library that has them
    "libcufile.so.0": r"^cu[Ff]ile",
    "libcusparseLt.so.0": r"^cusparseLt",
    "libnccl.so.2": r"^p?nccl[A-Z]",
    "libcurand.so.10": r"^curand",
    "libcusolver.so": r"^cusolver",
    "libnvshmem_host.so.3": r"^nvshmem",
}


def run(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def main(site):
    lib = site / "torch" / "lib"
    own = sorted(p for p in lib.iterdir() if ".so" in p.name and p.is_file())
    have = {p.name for p in own} | {p.name for p in (site / "nvidia").rglob("*.so*")}
    need, undefined, defined = set(), set(), set()
    for path in own:
        need |= set(re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-dW", str(path))))
        for line in run("nm", "-D", str(path)).splitlines():
            kind, name = line.split()[-2:]
            (undefined if kind in "Uw" else defined).add(name)
    defined = {n.split("@")[0] for n in defined}
    missing = sorted(n for n in need if n not in have and not SYSTEM.match(n))
    out = site / "nvidia" / "cu13" / "lib"
    out.mkdir(parents=True, exist_ok=True)
    for name in missing:
        prefix = next((p for k, p in PREFIX.items() if name.startswith(k)), None)
        versions, plain = {}, set()
        for symbol in undefined:
            base, _, version = symbol.partition("@")
            if base in defined:
                continue
            if version.lstrip("@") == name or (version and name.startswith("libnvshmem") and version.startswith("@NVSHMEM")):
                versions.setdefault(version.lstrip("@"), set()).add(base)
            elif version and prefix and re.match(prefix, base):
                versions.setdefault(version.lstrip("@"), set()).add(base)
            elif not version and prefix and re.match(prefix, base):
                plain.add(base)
        names = sorted(plain.union(*versions.values()))
        source = "".join(f"long {n}(void) {{ return 1; }}\n" for n in names) or "extern int rlk_empty;\n"
        script = "".join(f"{v} {{ global: {'; '.join(sorted(s))}; }};\n" for v, s in sorted(versions.items()))
        command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", "-x", "c", "-", "-o", str(out / name), f"-Wl,-soname,{name}"]
        if script:
            (out / (name + ".map")).write_text(script)
            command.append(f"-Wl,--version-script={out / (name + '.map')}")
        subprocess.run(command, input=source, text=True, check=True)
        print(f"{name}: {len(names)} symbols")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
