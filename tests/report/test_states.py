"""What a program states of its weights, held against what was recorded of them: silent where it is right, also over
another cut of them, and each kind of wrong statement named.

usage: test_states.py BIN_DIR STATES
"""
import json
import pathlib
import subprocess
import sys
import tempfile

BIN, STATES = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
H = ["1" * 64, "2" * 64, "3" * 64]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)

        def record(name: str, *states: str) -> pathlib.Path:
            out = where / f"{name}.rlk"
            subprocess.run([BIN / "rlkrec", "run", "-q", "-o", out, "--", STATES, *states], check=True)
            return out

        def report(a: pathlib.Path, b: pathlib.Path) -> dict:
            ran = subprocess.run([BIN / "rlkaudit", "report", a, b, "--json", "-"], capture_output=True, text=True, check=False)
            assert ran.returncode in (0, 1), ran.stderr
            return json.loads(ran.stdout)

        def held(r: dict) -> list:
            return [v["held"]["contradicted"] for v in r["all_parameter_hash_comparisons"]]

        right = record("right", "7", H[0], "9", H[1])
        cut = record("cut", "7", H[0], "9", H[1], "whole")
        r = report(right, cut)
        assert r["passed"] and held(r) == [[], []] and not r["errors"], r
        assert [v["held"]["tensor_count"] for v in r["all_parameter_hash_comparisons"]] == [1, 1], r
        # Other weights under the hash of the first; the same weights under another hash; a version that states the old.
        same_hash = report(right, record("same_hash", "7", H[0], "10", H[1]))
        assert held(same_hash) == [[], ["w"]] and not same_hash["passed"], same_hash
        assert same_hash["all_parameter_hash_comparisons"][1]["bitwise_equal"], "the statements are equal"
        other_hash = report(right, record("other_hash", "7", H[0], "9", H[2]))
        assert held(other_hash) == [[], ["w"]] and not other_hash["passed"], other_hash
        old = report(right, record("old", "7", H[0], "9", H[0]))
        assert any("B: weight_v000001, weight_v000002" in e and "contradict" in e for e in old["errors"]), old["errors"]
        # An honest difference is one, and no contradiction.
        honest = report(right, record("honest", "7", H[0], "10", H[2]))
        assert held(honest) == [[], []] and not honest["passed"] and not honest["errors"], honest
        # Nothing to hold it against: not applicable, never true.
        few = where / "few.rlk"
        subprocess.run([BIN / "rlkrec", "run", "-q", "--steps", "1:2", "-o", few, "--", STATES, "7", H[0], "9", H[1]], check=True)
        row = report(right, few)["all_parameter_hash_comparisons"][0]["held"]
        assert row["passed"] is None and row["status"] == "not_applicable", row


main()
