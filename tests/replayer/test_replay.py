"""rlkreplay: a recording replayed in other layouts is identical, a planted fault is counted and named first, and what
cannot be replayed is refused with what to do.

usage: test_replay.py BIN_DIR [tiny|long]     tiny: qwen3-tiny alone, recorded in each of the 16 layouts
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import recorded

BIN = pathlib.Path(sys.argv[1]).resolve()
WHICH = sys.argv[2] if len(sys.argv) > 2 else ""
LONG = WHICH == "long"
MINI = ["--model", "qwen3-mini", "--no-times", "--new", "30"]
TINY = ["--no-times", "--new", "10", "--steps", "1", "--samples", "4"]
LAYER = "model.layers.0."
LAYOUTS = [f"tp{tp}cp{cp}" for tp in (1, 2, 4, 8) for cp in (1, 2, 4, 8)]


def call(*argv, **more) -> subprocess.CompletedProcess:
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=False, **more)


def record(where: pathlib.Path, name: str, *options, run=()) -> pathlib.Path:
    return recorded.record(BIN, where, name, *options, run=run)[0]


def replay(recording: pathlib.Path, *options, expect=0) -> dict:
    ran = call(BIN / "rlkreplay", recording, "--json", "-", *options)
    assert ran.returncode == expect, f"{options}: exit {ran.returncode}, not {expect}: {ran.stdout} {ran.stderr}"
    result = json.loads(ran.stdout)
    assert result["schema"] == "rlk.replay/1" and result["exit"] == expect, result
    result["stderr"] = ran.stderr
    return result


def identical(recording: pathlib.Path, *options) -> int:
    result = replay(recording, *options)
    run = result["replay"]
    assert result["verdict"] == "identical" and run["different"] == 0 and run["absent"] == 0, result
    assert run["equal"] > 0 and run["equal"] == result["self_check"]["equal"], result
    return run["equal"]


def clean(where: pathlib.Path) -> dict:
    """The recordings, each replayed in three other layouts."""
    found = {}
    pairs = {"tp2cp2": ["tp1cp1", "tp4cp8", "tp8cp2"], "tp1cp1": ["tp2cp4", "tp4cp1", "tp1cp8"]}
    if LONG:
        pairs = {a: [LAYOUTS[(i + k) % 16] for k in (3, 7, 10)] for i, a in enumerate(LAYOUTS)}
    for layout, others in pairs.items():
        found[layout] = record(where, f"mini-{layout}", "--layout", layout, *MINI)
        for other in others:
            n = identical(found[layout], "--layout", other)
            assert n > 3000, f"{layout} at {other}: only {n} tensors compared"
            print(f"{layout} at {other}: {n} identical")
    return found


def tiny(where: pathlib.Path) -> None:
    """qwen3-tiny, recorded in every layout, each replayed in three others."""
    for i, layout in enumerate(LAYOUTS):
        recording = record(where, f"tiny-{layout}", "--layout", layout, *TINY)
        for other in (LAYOUTS[(i + k) % 16] for k in (3, 7, 10)):
            print(f"tiny {layout} at {other}: {identical(recording, '--layout', other)} identical")
        shutil.rmtree(recording)


def kept(where: pathlib.Path, recording: pathlib.Path) -> None:
    """-o keeps a recording that first-diff calls identical, and that replays itself."""
    out = where / "kept"
    identical(recording, "--layout", "tp2cp1", "--rollout-layout", "tp8cp1", "-o", out)
    ran = call(BIN / "rlkaudit", "first-diff", recording, out)
    assert ran.returncode == 0 and "differs in argv" in ran.stdout, ran.stdout + ran.stderr
    identical(where / "kept.rlk", "--layout", "tp1cp2")
    ran = call(BIN / "rlkreplay", recording, "-o", out)
    assert ran.returncode == 2 and "exists" in ran.stderr, ran.stderr


def faults(recording: pathlib.Path) -> None:
    """A layout-dependent operator in what replays: right in the recorded layout, found and named in another."""
    for name, layout, expected in [("dx-shard", "tp2cp2", LAYER + "self_attn.qkv rlk.gemm.column dx"),
                                   ("zigzag-map", "tp4cp2", LAYER + "self_attn.rotary_q rlk.rope y"),
                                   ("ring-attention", "tp8cp4", LAYER + "self_attn rlk.attention.deterministic ")]:
        result = replay(recording, "--layout", layout, "--plant", name, expect=1)
        assert result["self_check"]["different"] == 0, result
        assert result["replay"]["different"] > 0 and expected in result["replay"]["first"], result
        print(f"{name} at {layout}: {result['replay']['different']} different, first at {result['replay']['first']}")
    result = replay(recording, "--layout", "tp2cp1", "--mode", "attention=off", expect=1)
    assert LAYER + "self_attn rlk.attention.deterministic" in result["replay"]["first"], result


def unfaithful(where: pathlib.Path) -> None:
    """A recording whose operators do not compute what their contracts say fails the self check."""
    recording = record(where, "planted", "--layout", "tp2cp2", "--plant", "dx-shard", *MINI)
    result = replay(recording, "--layout", "tp1cp1", expect=3)
    assert result["verdict"] == "unfaithful" and "replay itself diverged" in result["stderr"], result
    assert LAYER + "self_attn.qkv rlk.gemm.column dx" in result["self_check"]["first"], result
    assert "dx-shard" in result["stderr"] and result["replay"] is None, result


def selection(recording: pathlib.Path) -> None:
    everything = identical(recording, "--layout", "tp4cp1")
    layer = identical(recording, "--layout", "tp4cp1", "--only", LAYER + "mlp")
    step = identical(recording, "--layout", "tp4cp1", "--steps", "1:2")
    both = identical(recording, "--layout", "tp4cp1", "--steps", "1:2", "--only", LAYER + "mlp")
    assert both < layer < everything and both < step < everything, (everything, layer, step, both)
    # A fault in the first step's backward is not in what --only looks at, but in what it depends on.
    assert replay(recording, "--layout", "tp2cp2", "--plant", "dx-shard", "--only", "model.layers.1.*", "--steps",
                  "0:1")["replay"]["different"] == 0
    result = replay(recording, "--layout", "tp2cp2", "--plant", "dx-shard", "--only", "lm_head", "--steps", "1:",
                    expect=1)
    assert " lm_head " in result["replay"]["first"] and result["replay"]["first"].startswith("step 1 "), result
    assert "nothing of the recording" in replay(recording, "--only", "no.such.module", expect=3)["stderr"]


def refusals(where: pathlib.Path, recording: pathlib.Path) -> None:
    for options, words in [(["--layout", "tp3"], "1, 2, 4 or 8"), (["--layout", "tp2pp2"], "refused"),
                           (["--layout", "tp16"], "1, 2, 4 or 8"), (["--rollout-layout", "tp2cp2"], "use cp1"),
                           (["--contract", "sm90/1"], "portable/1")]:
        ran = call(BIN / "rlkreplay", recording, *options)
        assert ran.returncode == 3 and words in ran.stderr, f"{options}: {ran.returncode} {ran.stderr}"
    late = record(where, "late", "--layout", "tp2cp1", *MINI, run=["--steps", "1:2"])
    ran = call(BIN / "rlkreplay", late)
    assert ran.returncode == 3 and "no leaves" in ran.stderr and "record from the start" in ran.stderr, ran.stderr
    off = record(where, "off", "--layout", "tp2cp1", "--mode", "ffn=off", *MINI)
    ran = call(BIN / "rlkreplay", off)
    assert ran.returncode == 3 and "provider" in ran.stderr and "--partial" in ran.stderr, ran.stderr
    assert replay(off, "--partial")["replay"]["equal"] > 3000
    ran = call(BIN / "rlkreplay", where / "nothing")
    assert ran.returncode == 2, ran.stderr


def by_reference(where: pathlib.Path) -> None:
    """Leaves in a file: replayed from it, refused once its bytes are others."""
    folder = where / "folder"
    assert call(BIN / "rlktrain", *MINI, "--steps", "0", "--save", folder).returncode == 0
    recording = record(where, "file", "--layout", "tp2cp1", "--model", folder, "--new", "8", "--steps", "1")
    identical(recording, "--layout", "tp1cp2")
    bad = bytearray((folder / "model.safetensors").read_bytes())
    bad[-100] ^= 1
    (folder / "model.safetensors").write_bytes(bytes(bad))
    ran = call(BIN / "rlkreplay", recording)
    assert ran.returncode == 3 and "other bytes" in ran.stderr, ran.stderr


def relaunch(where: pathlib.Path, recording: pathlib.Path) -> None:
    """The recorded command, substituted, printed, run; flags of launchers that are known; what has no flag is refused."""
    out = where / "again"
    ran = call(BIN / "rlkreplay", recording, "--relaunch", "--layout", "tp2cp1", "-o", out)
    assert ran.returncode == 0 and "--layout tp2cp1" in ran.stdout.splitlines()[0], ran.stdout + ran.stderr
    assert call(BIN / "rlkaudit", "first-diff", recording, out).returncode == 0
    for command, options, words in [
            (["--tensor-model-parallel-size", "4", "--context-parallel-size=2", "--nproc_per_node", "8"],
             ["--layout", "tp2cp8"], ["--tensor-model-parallel-size 2", "--context-parallel-size=8", "--nproc_per_node 16"]),
            (["x y"], ["--mode", "off", "--mode", "attention=strict"], ["RLK_MODE=off", "RLK_MODE_ATTENTION=strict", "'x y'"])]:
        other = where / f"true{len(words)}{len(command)}.rlk"
        call(BIN / "rlkrec", "run", "-q", "-o", other, "--", "/bin/true", *command)
        ran = call(BIN / "rlkreplay", other, "--relaunch", "--dry-run", *options)
        assert ran.returncode == 0 and all(w in ran.stdout for w in words), ran.stdout + ran.stderr
        ran = call(BIN / "rlkreplay", other, "--relaunch", "--dry-run", "--layout", "pp2")
        assert ran.returncode == 3 and "no flag for pp" in ran.stderr, ran.stderr


def regrouped(where: pathlib.Path) -> None:
    """log_probs packed otherwise than training: what they kept is dealt out again, in any layout; a fault stays named."""
    recording = record(where, "packed", "--layout", "tp2cp2", "--model", "qwen3-mini", "--new", "12", "--steps", "1", "--score-batches", "4",
                       "--micro-batches", "3", "--no-times")
    for layout in ("tp1cp1", "tp4cp4"):
        assert identical(recording, "--layout", layout) > 1000
    result = replay(recording, "--layout", "tp4cp2", "--plant", "zigzag-map", expect=0)  # short samples: it shows nothing
    assert result["verdict"] == "identical", result


def unfinished(where: pathlib.Path) -> None:
    """Cut off recordings: 4, whether nothing, a part or a whole step of one rank is there."""
    for name, seconds, words in [("early", "0.05", "incomplete: "), ("late", "2", "without END")]:
        out = where / name
        call(BIN / "rlkrec", "run", "-q", "-o", out, "--", "timeout", "-s", "KILL", seconds, BIN / "rlktrain", "--steps", "99",
             "--model", "qwen3-mini", "--layout", "tp1cp1" if name == "early" else "tp2cp1")
        ran = call(BIN / "rlkreplay", where / f"{name}.rlk")
        assert ran.returncode == 4 and "incomplete" in ran.stderr and words in ran.stderr, f"{name}: {ran.returncode} {ran.stderr}"


def processes(where: pathlib.Path) -> None:
    """A process without a program beside the one that has it changes nothing; two programs are refused."""
    train = f"{BIN / 'rlktrain'} --model qwen3-mini --new 8 --steps 1"
    other = BIN.parent / "workloads/train"
    for name, command in [("beside", f"{other} --steps 2; {train} --layout tp2cp1"), ("pair", f"{train}; {train}")]:
        call(BIN / "rlkrec", "run", "-q", "-o", where / name, "--", "sh", "-c", command)
    if other.exists():  # not in a build of the programs alone
        assert len(list((where / "beside.rlk").glob("rank-*"))) == 2
        assert identical(where / "beside.rlk", "--layout", "tp1cp2") > 500
    ran = call(BIN / "rlkreplay", where / "pair.rlk")
    assert ran.returncode == 3 and "2 of its 2 processes" in ran.stderr and "--relaunch" in ran.stderr, ran.stderr


def words(where: pathlib.Path, recording: pathlib.Path) -> None:
    """What a newcomer meets."""
    listed = [call(BIN / program, "--plant", "help") for program in ("rlktrain", "rlkreplay")]
    assert listed[0].stdout == listed[1].stdout and "dx-shard" in listed[1].stdout and listed[1].returncode == 0, listed
    ran = call(BIN / "rlkreplay", recording, "--plant", "nonsense")
    assert ran.returncode == 2 and "--plant help" in ran.stderr and "rlkrec:" not in ran.stderr, ran.stderr
    ran = call(BIN / "rlkreplay", record(where, "cut", "--layout", "tp2cp1", *MINI, "--steps", "1"), "--plant", "dx-shard")
    assert ran.returncode == 3 and "--plant dx-shard does that" in ran.stderr and "tp2cp1 already" in ran.stderr, ran.stderr
    # The replay says itself why it failed; the recorder around it has nothing to add.
    ran = call(BIN / "rlkreplay", recording, "--layout", "tp2cp2", "--mode", "no.such=off")
    assert ran.returncode in (2, 3) and "no.such" in ran.stderr and "rlkrec:" not in ran.stderr, ran.stderr
    for layout in ("tp3", "tp2cp3", "tp16"):
        ran = call(BIN / "rlktrain", "--layout", layout)
        assert ran.returncode == 3 and "1, 2, 4 or 8" in ran.stderr and "tp4cp2" in ran.stderr, ran.stderr
    ran = call(BIN / "rlktrain", "--model", "8b", "--layout", "tp8cp8", timeout=60)  # 1.3 TB
    assert ran.returncode == 2 and "needs" in ran.stderr and "less cp" in ran.stderr and "are available" in ran.stderr, ran.stderr
    assert "qwen3-tiny" in call(BIN / "rlktrain", "--model", "9b").stderr
    ran = call(BIN / "rlkrec", "info", recording)
    assert "in 2 steps" in ran.stdout, ran.stdout  # the weights for a third are no step


def operators(where: pathlib.Path, recording: pathlib.Path) -> None:
    """Operator replay: a difference stays with the operator that makes it."""
    kept = record(where, "kept-bytes", "--layout", "tp1cp1", "--model", "qwen3-mini", "--no-times", "--new", "6", "--steps", "1",
                  "--samples", "4", run=["--payload", "step=0:1"])
    result = replay(kept, "--op", "--layout", "tp4cp2")
    assert result["replay"]["equal"] > 1000 and result["replay"]["different"] == 0, result
    whole = replay(kept, "--layout", "tp2cp2", "--plant", "dx-shard", expect=1)["replay"]
    alone = replay(kept, "--op", "--layout", "tp2cp2", "--plant", "dx-shard", expect=1)["replay"]
    assert alone["different"] == 2 < whole["different"], (alone, whole)  # dx of layer 0, in two micro-batches
    assert LAYER + "self_attn.qkv rlk.gemm.column dx" in alone["first"], alone
    off = replay(kept, "--op", "--mode", "off", expect=1)["replay"]
    assert 0 < off["different"] < replay(kept, "--mode", "off", expect=1)["replay"]["different"], off
    assert "--payload" in replay(recording, "--op", expect=3)["stderr"]


def redacted(where: pathlib.Path, recording: pathlib.Path) -> None:
    """No name of a parameter is left in a pack without names: neither of a tensor nor in a note about the weights."""
    name = b"self_attn.q_proj"
    for what, there in ((None, True), ("names", False), ("all", False)):
        pack, out = where / f"{what}.pack", where / f"unpacked-{what}"
        out.mkdir()
        ran = call(BIN / "rlkrec", "pack", recording, "-o", pack, *(["--redact", what] if what else []))
        assert ran.returncode == 0, ran.stderr
        ran = call(BIN / "rlkrec", "unpack", pack, "-o", out)
        assert ran.returncode == 0, ran.stderr
        assert any(name in p.read_bytes() for p in out.rglob("*") if p.is_file()) == there, what


def hostile(where: pathlib.Path, recording: pathlib.Path) -> None:
    """Damaged and cut off recordings: 2, 3 or 4, never a crash, never a verdict."""
    data = next(recording.glob("rank-*/data.mdb"))
    good = data.read_bytes()
    copy = where / "hostile.rlk"
    for i in range(12 if not LONG else 200):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(recording, copy)
        bad = bytearray(good)
        if i % 3 == 0:
            del bad[len(bad) * (i + 1) // (14 if not LONG else 202):]
        else:
            for k in range(40):
                bad[(i * 7919 + k * 104729) * 613 % len(bad)] ^= 1 << (k % 8)
        os.chmod(next(copy.glob("rank-*/data.mdb")), 0o600)
        next(copy.glob("rank-*/data.mdb")).write_bytes(bytes(bad))
        ran = call(BIN / "rlkreplay", copy, "--run")
        assert ran.returncode in (2, 3, 4), f"hostile {i}: {ran.returncode} {ran.stderr}"  # sealed: no change passes


with tempfile.TemporaryDirectory() as folder:
    place = pathlib.Path(folder)
    if WHICH == "tiny":
        tiny(place)
        sys.exit(0)
    recordings = clean(place)
    one = recordings["tp1cp1"]
    kept(place, one)
    faults(one)
    unfaithful(place)
    selection(one)
    refusals(place, one)
    by_reference(place)
    relaunch(place, one)
    operators(place, one)
    regrouped(place)
    unfinished(place)
    processes(place)
    words(place, one)
    redacted(place, one)
    hostile(place, one)
print("replayed")
