"""Recorded on one device, replayed on the other: identical. With the programs of an emulated device (tests/kernels/emul)
in a build without CUDA, or with the real ones on a machine that has a GPU.

usage: test_replay_device.py BIN_DIR
"""
import json
import pathlib
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()
MINI = ["--model", "qwen3-mini", "--no-times", "--new", "4", "--steps", "1", "--samples", "2", "--group", "2", "--prompt", "12",
        "--micro-batches", "1"]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        printed = {}
        for device, other, layout, to in (("cpu", "cuda", "tp2cp1", "tp1cp2"), ("cuda", "cpu", "tp1cp2", "tp2cp2")):
            recording = where / f"{device}.rlk"
            ran = subprocess.run([BIN / "rlkrec", "run", "-q", "-o", recording, "--", BIN / "rlktrain", "--device", device,
                                  "--layout", layout, *MINI], capture_output=True, text=True, check=False)
            assert ran.returncode == 0, f"{device}: {ran.stderr}"
            printed[device] = ran.stdout
            ran = subprocess.run([BIN / "rlkreplay", recording, "--device", other, "--layout", to, "--json", "-"],
                                 capture_output=True, text=True, check=False)
            assert ran.returncode == 0, f"{device} on {other}: exit {ran.returncode}: {ran.stdout} {ran.stderr}"
            result = json.loads(ran.stdout)
            for run in ("self_check", "replay"):
                assert result[run]["equal"] > 500 and result[run]["absent"] == 0, result
            print(f"recorded on {device} at {layout}, replayed on {other} at {to}: {result['replay']['equal']} equal")
        assert printed["cpu"] == printed["cuda"], "the devices print different lines"


main()
