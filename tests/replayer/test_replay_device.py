"""Recorded on one device, replayed on the other: identical. With the programs of an emulated device (tests/kernels/emul)
in a build without CUDA, or with the real ones on a machine that has a GPU.

usage: test_replay_device.py BIN_DIR
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()
EMULATED = BIN.name == "emulated"
MINI = ["--model", "qwen3-mini", "--no-times", "--new", "4", "--steps", "1", "--samples", "2", "--group", "2", "--prompt", "12",
        "--micro-batches", "1"]


def decode_graphs(where: pathlib.Path) -> None:
    """Six samples, so parts of 4 and 2, then fewer: by graphs, without, on the CPU: the same lines, the same recording."""
    lines, options = {}, [*MINI, "--samples", "6", "--new", "5", "--stop-ids", "40", "--steps", "2", "--layout", "tp2cp1"]
    for name, device in (("cpu", ["cpu"]), ("graphs", ["cuda"]), ("eager", ["cuda", "--decode-graphs", "off"])):
        ran = subprocess.run([BIN / "rlkrec", "run", "-q", "--level", "op", "-o", where / f"decode-{name}", "--", BIN / "rlktrain", "--device",
                              *device, *options], capture_output=True, text=True, check=False, env=os.environ | {"EMUL_GRAPHS": "1"})
        assert ran.returncode == 0, f"{name}: {ran.stderr}"
        lines[name] = ran.stdout
        said = [x.split(":")[1].split() for x in ran.stderr.splitlines() if x.startswith("graphs captured")]
        if EMULATED and name == "graphs":  # sizes 1 to 4 from row 0, 1 and 2 from row 4: once each, whatever the step
            assert len(said) == 1 and 3 <= int(said[0][0]) <= 6 and int(said[0][1]) >= 12, ran.stderr
        elif EMULATED:
            assert not said, ran.stderr
    assert lines["cpu"] == lines["graphs"] == lines["eager"], "decode by graphs prints other lines"
    for other in ("cpu", "eager"):
        ran = subprocess.run([BIN / "rlkaudit", "first-diff", where / f"decode-{other}", where / "decode-graphs", "--json", "-"], capture_output=True,
                             text=True, check=False)
        assert ran.returncode == 0, f"{other} against graphs: {ran.stdout}"
        coverage = json.loads(ran.stdout)["coverage"]["b"]
        assert coverage["tensors"] > 2000 and not coverage["not_digested"], coverage
    print("decode by captured graphs = without = on the CPU")


def fault_on_device(where: pathlib.Path) -> None:
    """A fault that is planted on the device is named there, against a clean run on the CPU in another layout."""
    options = [*MINI, "--new", "6", "--samples", "4", "--prompt", "24"]
    for name, more in (("clean", ["--layout", "tp1cp1"]), ("bad", ["--device", "cuda", "--layout", "tp2cp1", "--plant", "dx-shard"])):
        ran = subprocess.run([BIN / "rlkrec", "run", "-q", "--level", "op", "-o", where / f"fault-{name}", "--", BIN / "rlktrain", *options,
                              *more], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{name}: {ran.stderr}"
    ran = subprocess.run([BIN / "rlkaudit", "first-diff", where / "fault-clean", where / "fault-bad", "--json", "-"],
                         capture_output=True, text=True, check=False)
    first = json.loads(ran.stdout)["first"]
    got = (ran.returncode, first["module"], first["op"], first["name"])
    assert got == (1, "model.layers.0.self_attn.qkv", "rlk.gemm.column", "dx"), got
    print("dx-shard planted on the device: named")


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
        decode_graphs(where)
        fault_on_device(where)


main()
