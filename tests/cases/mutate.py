"""Breaks each mechanism's rule, and each check of one recording, in turn and expects the cases to notice: of the cases that
name its class, or the check, at least one must fail. Works on a copy of the sources; takes minutes.

usage: mutate.py SOURCE_DIR [--only GLOB]      exits 0 if every broken rule is noticed
"""
import argparse
import fnmatch
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Where a rule begins, and what makes it silent.
RULES = {
    "auditor/mechanism/*.c": ("static int look(struct rlki_facts *f, struct rlki_opinion *o)\n{\n", "    if (f && o)\n        return RLK_OK;\n"),
    "auditor/check_*.c": ("static int event(struct rlki_check *check, void *opaque, uint32_t env, const struct rlk_event *event)\n{\n",
                          "    if (check && opaque && event)\n        return RLK_OK;\n"),
}


def names(expect):
    """The classes that an expectation speaks of."""
    text = json.dumps(expect)
    return {c for c in re.findall(r'"([a-z-]+)"', text)}


def build(tree):
    p = subprocess.run(["cmake", "--build", tree / "build", "-j2", "--target", "rlkaudit", "rlkrec"], capture_output=True, text=True)
    assert p.returncode == 0, (p.stdout + p.stderr)[-2000:]


def cases(tree, folders):
    """Names of the cases that fail."""
    failed = []
    for folder in folders:
        p = subprocess.run([sys.executable, tree / "tests/cases/run_cases.py", tree / "build/bin", "--set", folder.parent.name, "--only",
                            folder.name], capture_output=True, text=True)
        if p.returncode:
            failed.append(folder.name)
            break  # one is enough
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--only", default="*", help="rules, by file name without .c")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rlkmutate") as tmp:
        tree = pathlib.Path(tmp) / "tree"
        shutil.copytree(args.source, tree, ignore=shutil.ignore_patterns("build", ".git"), symlinks=True)
        subprocess.run(["cmake", "-S", tree, "-B", tree / "build", "-DCMAKE_BUILD_TYPE=Release", "-DRLK_CUDA=OFF", "-DRLK_TESTS=OFF"], check=True,
                       capture_output=True)
        build(tree)
        rules = [(p, head, head + silent) for where, (head, silent) in RULES.items() for p in sorted(tree.glob(where))
                 if head in p.read_text() and fnmatch.fnmatch(p.stem, args.only)]
        folders = [e.parent for e in sorted((tree / "tests/cases").glob("*/*/expect.json"))]
        missed = 0
        for rule, head, broken in rules:
            good, name = rule.read_text(), rule.stem.removeprefix("check_").replace("_", "-")
            about = [f for f in folders if name in names(json.loads((f / "expect.json").read_text()))]
            rule.write_text(good.replace(head, broken, 1))
            build(tree)
            failed = cases(tree, about)
            rule.write_text(good)
            missed += not failed
            print(f"{'noticed' if failed else 'MISSED '} {name:<22} {failed[0] if failed else f'{len(about)} cases name it'}", flush=True)
    return int(missed > 0 or not rules)


if __name__ == "__main__":
    sys.exit(main())
