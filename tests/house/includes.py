"""Fails when an include points against the direction of dependency (docs/architecture.md).

usage: includes.py SOURCE_DIR
"""
import pathlib
import re
import sys

ALLOWED = {
    "store": {"store"},
    "kernels": {"kernels"},
    "recorder": {"recorder", "store", "kernels"},
    "replayer": {"replayer", "store", "kernels"},
    "auditor": {"auditor", "store"},
    "cli": {"cli", "auditor", "replayer", "recorder", "store", "kernels"},
}
PUBLIC = {("replayer", "recorder/rlk_tap.h")}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]((?:\.\./)*[\w./-]+)[">]', re.M)


def offences(root: pathlib.Path):
    for folder, allowed in ALLOWED.items():
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".c", ".h", ".cu", ".cuh", ".cpp"}:
                continue
            for name in INCLUDE.findall(path.read_text(errors="replace")):
                target = name.replace("../", "").split("/")[0]
                if target in ALLOWED and target not in allowed and (folder, name) not in PUBLIC:
                    yield f"{path.relative_to(root)} includes {name}"


def self_test():
    """The check can fail: a planted include against the direction is found."""
    import tempfile
    with tempfile.TemporaryDirectory() as tmp:
        root = pathlib.Path(tmp)
        (root / "store").mkdir()
        (root / "store" / "x.c").write_text('#include "auditor/a.h"\n')
        assert list(offences(root)) == ["store/x.c includes auditor/a.h"]


if __name__ == "__main__":
    self_test()
    found = list(offences(pathlib.Path(sys.argv[1])))
    print("\n".join(found) if found else "every include points down")
    sys.exit(bool(found))
