"""Runs synth_tool on specs: what the Python tests share."""
import json
import pathlib
import subprocess
import sys
import tempfile

TOOL = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None


def tool(*args, timeout=300):
    p = subprocess.run([TOOL, *args], capture_output=True, timeout=timeout)
    return p.returncode, p.stdout.decode(), p.stderr.decode(errors="replace").strip()


def write(text, folder):
    path = pathlib.Path(folder) / "spec.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode() if isinstance(text, str) else json.dumps(text).encode())
    return path


def record(spec, *options):
    """Synthesises; returns (events, environments, recording) of the dump. Fails loudly."""
    with tempfile.TemporaryDirectory(prefix="rlksynth") as tmp:
        path, out = write(spec, tmp), pathlib.Path(tmp) / "x.rlk"
        rc, _, err = tool(*options, path, out)
        assert rc == 0, f"synth: {rc} {err}"
        rc, text, err = tool("--dump", out)
        assert rc == 0, f"dump: {rc} {err}"
        lines = [json.loads(line) for line in text.splitlines()]
    assert "manifest" in lines[-1]
    return ([x for x in lines if "seq" in x], [x for x in lines if "dir" in x], lines[-1])


def refused(spec, *options):
    """Synthesises a wrong spec; returns the message. Nothing may be left behind."""
    with tempfile.TemporaryDirectory(prefix="rlksynth") as tmp:
        path, out = write(spec, tmp), pathlib.Path(tmp) / "x.rlk"
        rc, _, err = tool(*options, path, out)
        assert rc == 2, f"expected exit 2, got {rc}: {err} {str(spec)[:300]}"
        assert not out.exists(), f"left behind: {out}"
    return err


def spec(events, **more):
    return {"rlk_synth": 1, **more, "events": events}


def op(ins=(), outs=(), **more):
    return {"op": "t", **more, "in": list(ins), "out": list(outs)}


def tensor(name, shape, dtype="fp32", **more):
    return {"name": name, "dtype": dtype, "shape": list(shape), **more}


def run(tests):
    """Runs the functions named test_*; one line each; exit status."""
    failed = 0
    for name, f in list(tests.items()):
        if not name.startswith("test_"):
            continue
        try:
            f()
            print(f"ok   {name}")
        except AssertionError as e:
            failed += 1
            print(f"FAIL {name}: {e}")
    sys.exit(failed > 0)
