"""What librlkrec.so brings into the watched process: two entry points, no library of its own.

usage: symbols.py LIBRARY      (needs readelf and nm)
"""
import re
import subprocess
import sys

EXPORTS = {"rlk_tap_table", "InitializeInjection", "rlk_cupti_guest"}
# libm and the loader belong to libc; nothing else may be needed.
NEEDED = re.compile(r"(libc|libm|libpthread|libdl|librt|ld-linux-[a-z0-9-]+)\.so\.\d+")
FORBIDDEN = re.compile(r"^(mdb_|ZSTD_|ZDICT_|HUF_|FSE_|XXH|SHA|EVP_|_ZN|_Z[A-Z0-9]|cuda|cu[A-Z]|json_)")


def run(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def offences(defined, undefined, needed):
    yield from (f"exports {s}" for s in sorted(defined - EXPORTS))
    if "rlk_tap_table" not in defined:
        yield "does not export rlk_tap_table"
    yield from (f"needs {n}" for n in sorted(needed) if not NEEDED.fullmatch(n))
    yield from (f"leaves {s} to the program" for s in sorted(undefined) if FORBIDDEN.match(s))


def self_test():
    """The check can fail."""
    assert not list(offences({"rlk_tap_table"}, {"memcpy"}, {"libc.so.6", "ld-linux-x86-64.so.2"}))
    bad = list(offences({"mdb_open"}, {"ZSTD_trace", "_ZSt4cout"}, {"libcrypto.so.3", "libstdc++.so.6", "libc.so.6"}))
    assert len(bad) == 6, bad


def main(library):
    defined, undefined = set(), set()
    for line in run("nm", "-D", library).splitlines():
        kind, name = line.split()[-2:]
        name = name.split("@")[0]
        if kind in "Uwv":
            undefined.add(name)
        elif kind != "A":
            defined.add(name)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", library)))
    found = list(offences(defined, undefined, needed))
    print("\n".join(found) if found else f"exports {sorted(defined)}, needs {sorted(needed)}")
    return bool(found)


if __name__ == "__main__":
    self_test()
    sys.exit(main(sys.argv[1]))
