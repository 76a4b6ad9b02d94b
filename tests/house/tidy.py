"""Fails on what the house does not want in its files: open ends left as comments, files that know too much, paths of one
machine, merges left open, tabs and trailing blanks in code.

usage: tidy.py SOURCE_DIR
"""
import pathlib
import re
import subprocess
import sys

MAX_LINES = 800
CODE = {".c", ".h", ".cu", ".cuh", ".cpp", ".py", ".sh", ".cmake"}
TEXT = CODE | {".md", ".txt", ".json", ""}
OPEN_ENDS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK"]) + r")\b")
MACHINE = re.compile(r"(?<![\w.])/(work|root|mnt|home/(?!someone\b))[/\w]*/\w")


def files(root: pathlib.Path):
    try:
        listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=True).stdout
        paths = [root / name for name in listed.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive
        paths = [p for p in root.rglob("*") if "build" not in p.relative_to(root).parts and ".git" not in p.parts]
    return sorted(p for p in paths if p.is_file() and p.suffix in TEXT and p.name != "LICENSE")


def offences(root: pathlib.Path):
    for path in files(root):
        name = path.relative_to(root)
        lines = path.read_text(errors="replace").splitlines()
        if path.suffix in CODE and len(lines) > MAX_LINES:
            yield f"{name}: {len(lines)} lines, more than {MAX_LINES}"
        for number, line in enumerate(lines, 1):
            if OPEN_ENDS.search(line):
                yield f"{name}:{number}: an open end: {line.strip()}"
            if line.startswith(("<" * 7 + " ", ">" * 7 + " ")):
                yield f"{name}:{number}: a merge left open"
            if MACHINE.search(line):
                yield f"{name}:{number}: a path of one machine: {line.strip()}"
            if path.suffix in CODE and line != line.rstrip():
                yield f"{name}:{number}: blanks at the end of the line"
            if path.suffix in {".c", ".h", ".cpp", ".cu", ".py"} and "\t" in line:
                yield f"{name}:{number}: a tab"


def self_test():
    """The check can fail: each planted offence is found, a clean file is not."""
    import tempfile
    with tempfile.TemporaryDirectory() as tmp:
        root = pathlib.Path(tmp)
        (root / "clean.c").write_text("int x; /* fine: /usr/lib, todo list */\n")
        assert not list(offences(root))
        (root / "a.c").write_text("/* " + "TO" + "DO: later */\nint\ty; \n" + "\n" * 800)
        (root / "b.md").write_text("see " + "/ro" + "ot/x/y\n" + "<" * 7 + " HEAD\n")
        found = "\n".join(offences(root))
        for what in ("lines, more", "an open end", "a tab", "blanks at the end", "a path of one machine",
                     "a merge left open"):
            assert what in found, what


if __name__ == "__main__":
    self_test()
    problems = list(offences(pathlib.Path(sys.argv[1])))
    print("\n".join(problems) if problems else "tidy")
    sys.exit(bool(problems))
