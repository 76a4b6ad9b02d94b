"""The training step of hf_qwen3_train.py, timed in turns with other processes that run the same under other levels.

usage: step_times.py --role NAME --turn I --of N --dir DIR [--rounds 3] [--untimed 3] [--timed 20] [--debug-mode]
                     [--layers 8] [--hidden 1024] [--batch 4] [--seq 512] [--device cuda]
All N processes prepare together, then take turns, so that nothing else is on the device while one is timed. DIR gets
times.NAME.json with the time of each step. --debug-mode: afterwards two steps under torch's DebugMode with hashes of inputs and outputs.
"""
import argparse
import json
import pathlib
import time

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

ap = argparse.ArgumentParser()
ap.add_argument("--role", required=True)
ap.add_argument("--turn", type=int, required=True)
ap.add_argument("--of", type=int, required=True)
ap.add_argument("--dir", type=pathlib.Path, required=True)
ap.add_argument("--rounds", type=int, default=3)
ap.add_argument("--untimed", type=int, default=3)
ap.add_argument("--timed", type=int, default=20)
ap.add_argument("--slow", type=int, default=1)
ap.add_argument("--debug-mode", action="store_true")
ap.add_argument("--layers", type=int, default=8)
ap.add_argument("--hidden", type=int, default=1024)
ap.add_argument("--batch", type=int, default=4)
ap.add_argument("--seq", type=int, default=512)
ap.add_argument("--device", default="cuda")
a = ap.parse_args()

torch.manual_seed(0)
cfg = Qwen3Config(vocab_size=32000, hidden_size=a.hidden, intermediate_size=3 * a.hidden, num_hidden_layers=a.layers,
                  num_attention_heads=16, num_key_value_heads=8, head_dim=128)
model = Qwen3ForCausalLM(cfg).to(torch.bfloat16)


def wait(done, limit):
    """Until done() or the limit; says which."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if done():
            return True
        time.sleep(0.01)
    return False


def step():
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss.item()


def sync():
    if a.device == "cuda":
        torch.cuda.synchronize()


(a.dir / f"ready.{a.turn}").touch()
wait(lambda: all((a.dir / f"ready.{i}").exists() or (a.dir / f"dead.{i}").exists() for i in range(a.of)), 45 * a.slow)
times, opt, ids, losses = [], None, None, []
for r in range(a.rounds):
    before = (r, a.turn - 1) if a.turn else (r - 1, a.of - 1)
    if before[0] >= 0:
        wait(lambda: (a.dir / f"done.{before[0]}.{before[1]}").exists() or (a.dir / f"dead.{before[1]}").exists(), 25 * a.slow)
    if opt is None:
        model.to(a.device)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
        ids = torch.randint(0, cfg.vocab_size, (a.batch, a.seq), device=a.device)
    for _ in range(a.untimed):
        losses.append(step())
    sync()
    for _ in range(a.timed):
        start = time.perf_counter()
        losses.append(step())  # ends with a number read out: the device is done but for the optimizer's tail
        sync()
        times.append(time.perf_counter() - start)
    if r + 1 == a.rounds and a.debug_mode:
        from torch.utils._debug_mode import DebugMode

        with DebugMode(), DebugMode.log_tensor_hashes(hash_fn="hash_tensor", hash_inputs=True):
            step()
        sync()
        start = time.perf_counter()
        with DebugMode(), DebugMode.log_tensor_hashes(hash_fn="hash_tensor", hash_inputs=True):
            step()
        sync()
        (a.dir / "times.DebugMode.json").write_text(json.dumps({"ms": [1e3 * (time.perf_counter() - start)]}))
    if a.device == "cuda":
        memory = torch.cuda.max_memory_allocated()
        torch.cuda.empty_cache()
    (a.dir / f"done.{r}.{a.turn}").touch()
    (a.dir / f"times.{a.role}.json").write_text(json.dumps({"ms": [1e3 * t for t in times], "loss0": losses[0]}))
for r in range(a.rounds):
    part = sorted(1e3 * t for t in times[r * a.timed:(r + 1) * a.timed])
    print(a.role, "round", r, f"median {part[len(part) // 2]:.2f} least {part[0]:.2f}")
