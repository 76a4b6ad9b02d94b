"""Fails when two of our static libraries define one global name: a linker takes the first it meets and says nothing.

usage: symbols.py ARCHIVE...
"""
import collections
import subprocess
import sys


def twice(listings):
    """{name: [archives]} of the names that more than one archive defines. listings: {archive: output of nm}"""
    where = collections.defaultdict(set)
    for archive, text in listings.items():
        for line in text.splitlines():
            parts = line.split()
            if len(parts) == 3 and parts[1] in "TDBRC":
                where[parts[2]].add(archive)
    return {name: sorted(archives) for name, archives in where.items() if len(archives) > 1}


if __name__ == "__main__":
    assert twice({"a": "0 T x\n0 t y\n", "b": "0 T x\n0 T y\n"}) == {"x": ["a", "b"]}  # it can fail
    found = twice({a: subprocess.run(["nm", "--defined-only", "-g", a], capture_output=True, text=True, check=True).stdout
                   for a in sys.argv[1:]})
    for name, archives in sorted(found.items()):
        print(f"{name} is defined in {' and '.join(archives)}")
    sys.exit(1 if found else 0)
