"""docs/schema/synth.schema.json: valid itself, takes every spec of tests/cases and everything that the program takes, and
refuses what is wrong in form. Skipped (77) without the Python package jsonschema. usage: test_schema.py ROOT"""
import json
import pathlib
import sys

try:
    import jsonschema
except ImportError:
    print("jsonschema is not installed")
    sys.exit(77)

ROOT = pathlib.Path(sys.argv.pop(1))
import test_errors as errors  # noqa: E402
import test_events as events  # noqa: E402

SCHEMA = json.loads((ROOT / "docs/schema/synth.schema.json").read_text())
V = jsonschema.Draft202012Validator(SCHEMA)

# Wrong in a way that needs shapes, ranks, names or the difference between 1 and 1.0: beyond a schema.
BEYOND = ("2.0", "gpus[0].sm", "layout: ", "missing_ranks[0]", "order[0]", "ranks[0]: 1", "no earlier", "agree: ", "an earlier event", "elements",
          "bytes", "holds no NaN", "has 16 bits", "hi (exclusive)", ".mask.rows[0]", ".tail:", "range[1]", "sparse: 9", "shard: 1",
          "ulp: expected an integer", "add_rows: 1 numbers", "permute: 3 rows", "permute[3]: 4", "does not fit", "runs: expected a list of 0 to 2",
          "[2]: ", "sample \"a\" is there twice", "got a real number", "that tensor has")


def main():
    V.check_schema(SCHEMA)
    n = 0
    for path in sorted((ROOT / "tests/cases").rglob("*.json")):
        s = json.loads(path.read_text())
        if isinstance(s, dict) and "rlk_synth" in s:
            for e in V.iter_errors(s):
                sys.exit(f"{path}: {e.json_path}: {e.message[:300]}")
            n += 1
    assert n > 40, n
    for body, *_ in events.KINDS:
        V.validate({"rlk_synth": 1, "events": [body, {**body, **events.IDENTITY}]})
    V.validate(errors.SEED)
    V.validate({"rlk_synth": 1, "capture": "op", "complete": False, "dropped": 1, "comment": "c", **events.ENVELOPE})
    for s, why in errors.WRONG:
        if not any(b in why for b in BEYOND) and V.is_valid(s):
            sys.exit(f"the schema takes {json.dumps(s)[:300]} ({why})")
    print(f"{n} specs")


if __name__ == "__main__":
    main()
