"""Builds the observer against the torch of this interpreter, once, and keeps it.

usage: python -m rlkrec_torch.build [--check]

Prints where the observer is. --check: only says whether it is there or can be built (exit 2: neither). The cache is RLKREC_CACHE, else
XDG_CACHE_HOME/rlkrec, else ~/.cache/rlkrec; a build is known by torch's version and ABI, the interpreter and our sources.
"""
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CXX = ("recorder/torch/observer.cpp",)
C = ("recorder/torch/spans.c", "recorder/tap_stub.c")
HEADERS = ("recorder/torch/observer_tensors.h", "recorder/torch/observer_ops.h", "recorder/torch/observer_collectives.h", "recorder/torch/observer_modules.h",
           "recorder/torch/spans.h", "recorder/rlk_tap.h", "recorder/rlk_env.h", "store/rlk_digest.h", "store/rlk_error.h",
           "store/rlk_event.h", "store/rlk_types.h")


class BuildError(Exception):
    pass


def source_root():
    """The folder under which recorder/ and store/ lie: the source tree, or share/rlkrec/torch/src of an installation."""
    for root in (HERE.parents[3], HERE.parents[1] / "src"):
        if (root / CXX[0]).is_file():
            return root
    raise BuildError("the observer's sources are not beside this package")


def cache_dir():
    if os.environ.get("RLKREC_CACHE"):
        return pathlib.Path(os.environ["RLKREC_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "rlkrec"


def target(torch):
    root = source_root()
    h = hashlib.sha256()
    for name in CXX + C + HEADERS:
        h.update((root / name).read_bytes())
    facts = (torch.__version__, str(torch._C._GLIBCXX_USE_CXX11_ABI), sysconfig.get_config_var("SOABI") or "", " ".join(flags(torch)))
    h.update("\0".join(facts).encode())
    name = f"torch-{torch.__version__}-{sysconfig.get_config_var('SOABI')}-{h.hexdigest()[:16]}"
    return cache_dir() / name / "_observer.so"


def flags(torch):
    include = pathlib.Path(torch.__file__).parent / "include"
    flags = ["-O2", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
             f"-I{include}", f"-I{include / 'torch/csrc/api/include'}", f"-I{sysconfig.get_paths()['include']}"]
    if torch.distributed.is_available():
        flags += ["-DUSE_DISTRIBUTED", "-DUSE_C10D"]
    return flags + os.environ.get("RLKREC_CXXFLAGS", "").split()  # what a test or an odd compiler needs


def compiler():
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")


def compile_into(torch, directory):
    """Leaves directory/_observer.so; raises BuildError with the compiler's own words."""
    root, cxx = source_root(), compiler()
    if not cxx:
        raise BuildError("no C++ compiler (g++, c++, clang++ or $CXX)")
    lib = pathlib.Path(torch.__file__).parent / "lib"
    objects = []
    commands = []
    for name in CXX + C:
        objects.append(str(directory / (pathlib.Path(name).name + ".o")))
        language = ["-x", "c++", "-std=c++17"] if name in CXX else ["-x", "c", "-std=gnu11", "-D_GNU_SOURCE"]
        commands.append([cxx, *flags(torch), f"-I{root}", *language, "-c", str(root / name), "-o", objects[-1]])
    commands.append([cxx, "-shared", *objects, "-o", str(directory / "_observer.so"), f"-L{lib}", "-ltorch_python", "-ltorch_cpu", "-lc10",
                     f"-Wl,-rpath,{lib}", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", "-ldl", "-lpthread"])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            words = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["no message"]
            raise BuildError(f"{cxx}: {words[0].strip()}")


def build(torch, say=lambda text: None):
    """The path of the observer for this torch, built if need be. Several processes may ask at once: one builds."""
    path = target(torch)
    if path.is_file():
        return path
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    with open(path.parent.parent / (path.parent.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.is_file():
            return path
        say(f"building the observer for torch {torch.__version__} (once; about a minute)")
        directory = pathlib.Path(tempfile.mkdtemp(prefix=".build-", dir=path.parent.parent))
        try:
            compile_into(torch, directory)
            path.parent.mkdir(exist_ok=True)
            os.replace(directory / "_observer.so", path)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return path


def main():
    import torch

    try:
        path = target(torch)
        if "--check" in sys.argv[1:]:
            if not path.is_file() and not compiler():
                raise BuildError("no C++ compiler (g++, c++, clang++ or $CXX): operators are recorded in Python, slowly")
            print(f"{path}" if path.is_file() else f"not built yet for torch {torch.__version__}: the first run builds it with {compiler()}")
            return 0
        print(build(torch, lambda text: print(f"rlkrec: {text}", file=sys.stderr)))
        return 0
    except BuildError as e:
        print(f"rlkrec: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
