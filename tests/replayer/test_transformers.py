"""It is Qwen3: a random checkpoint that transformers saved is read, logits and gradients agree with transformers in FP32
within a stated bound, and what --save exports loads there.

The policy keeps bf16 activations (FP32 accumulation), transformers runs in FP32 on the same bf16 weights. Bounds are
relative L2 errors: logits 1 %, each parameter's gradient 4 %. A model that differs in one thing (rotary base, norms of q
and k, which token is predicted) has to be outside them.

usage: test_transformers.py BIN_DIR HF_DUMP
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

BIN, DUMP = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
LOGITS, GRADIENT = 0.01, 0.04


def checkpoint(tied: bool):
    torch.manual_seed(7)
    config = Qwen3Config(hidden_size=256, num_hidden_layers=2, num_attention_heads=16, num_key_value_heads=8, head_dim=64,
                         intermediate_size=768, vocab_size=2048, rms_norm_eps=1e-6, initializer_range=0.05,
                         tie_word_embeddings=tied, rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 1:  # all ones would hide a norm that is left out
                p.uniform_(0.5, 1.5)
            p.copy_(p.bfloat16())
    return model


def error(ours, theirs) -> float:
    return float((ours.double() - theirs.double()).norm() / theirs.double().norm())


def theirs_of(model, samples: list, shift: int = 0) -> tuple:
    """Logits of every token and gradients of the GRPO loss at ratio 1: sum of -advantage * logp / (samples * length)."""
    model.zero_grad()
    rows, loss = [], 0.0
    for s in samples:
        ids = torch.tensor([s["ids"]])
        logits = model(ids).logits[0].float()
        rows.append(logits.detach())
        n, first = len(s["logp"]), s["prompt"] - 1 + shift
        logp = torch.log_softmax(logits, -1)[first:first + n].gather(1, ids[0, s["prompt"]:s["prompt"] + n, None])[:, 0]
        loss = loss - s["advantage"] * logp.sum() / (len(samples) * n)
    loss.backward()
    return torch.cat(rows), {n: p.grad.clone() for n, p in model.named_parameters()}


def compare(model, out: pathlib.Path) -> None:
    facts = json.loads(out.with_suffix(".json").read_text())
    samples = facts["samples"]
    assert any(abs(s["advantage"]) > 0.1 for s in samples), "no advantage: no gradient to compare"
    logits, grads = theirs_of(model, samples)
    ours = torch.from_numpy(numpy.fromfile(out.with_suffix(".logits"), dtype=numpy.float32)).reshape(logits.shape)
    flat, at, mine = torch.from_numpy(numpy.fromfile(out.with_suffix(".grads"), dtype=numpy.float32)), 0, {}
    for name in facts["parameters"]:
        shape = grads[name].shape
        mine[name] = flat[at:at + shape.numel()].reshape(shape)
        at += shape.numel()
    assert at == len(flat) and set(mine) == set(grads), set(mine) ^ set(grads)
    e = error(ours, logits)
    worst = max((error(mine[n], grads[n]), n) for n in grads)
    print(f"logits {e:.2%} (bound {LOGITS:.0%}), worst gradient {worst[0]:.2%} at {worst[1]} (bound {GRADIENT:.0%})")
    assert e < LOGITS and worst[0] < GRADIENT
    row = 0
    for s in samples:  # and the log-probabilities that training works with
        lp = torch.log_softmax(logits[row:row + len(s["ids"])], -1)
        theirs = torch.stack([lp[s["prompt"] - 1 + i, s["ids"][s["prompt"] + i]] for i in range(len(s["logp"]))])
        assert (theirs - torch.tensor(s["logp"])).abs().max() < 0.1
        row += len(s["ids"])
    # The bounds can be missed.
    _, shifted = theirs_of(model, samples, shift=-1)
    assert max(error(mine[n], shifted[n]) for n in grads) > GRADIENT, "another token's gradient is within the bound"
    with torch.no_grad():
        model.model.layers[1].self_attn.q_norm.weight.fill_(1.0)
    assert error(ours, theirs_of(model, samples)[0]) > LOGITS, "a norm that is left out is within the bound"


def train(*more) -> list:
    ran = subprocess.run([BIN / "rlktrain", "--new", "8", "--no-times", *more], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def exports(where: pathlib.Path, source: pathlib.Path, model) -> None:
    train("--model", source, "--steps", "0", "--save", where / "same", "--layout", "tp4cp2")
    train("--model", source, "--steps", "2", "--save", where / "trained", "--layout", "tp2cp1")
    for name in ("same", "trained"):
        loaded, info = Qwen3ForCausalLM.from_pretrained(where / name, dtype=torch.bfloat16, output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
        c = loaded.config
        theta = getattr(c, "rope_theta", None) or c.rope_parameters["rope_theta"]
        assert (theta, c.head_dim, c.tie_word_embeddings) == (1e6, 64, model.config.tie_word_embeddings)
        state, mine = model.state_dict(), loaded.state_dict()
        same = [n for n in state if torch.equal(state[n].bfloat16(), mine[n])]
        assert set(state) == set(mine)
        assert len(same) == len(state) if name == "same" else len(same) < len(state) // 2, f"{name}: {len(same)} equal"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        for tied in (False, True):
            model, source = checkpoint(tied), where / f"hf{int(tied)}"
            model.to(torch.bfloat16).save_pretrained(source)
            model = model.float()
            exports(where, source, model)
            # The same values as FP32, in shards.
            model.save_pretrained(where / "wide", max_shard_size="1MB")
            assert (where / "wide/model.safetensors.index.json").exists()
            assert train("--model", source, "--steps", "1") == train("--model", where / "wide", "--steps", "1")
            out = where / f"dump{int(tied)}"
            subprocess.run([DUMP, source, out], check=True)
            compare(model, out)
            for stale in (where / "wide").iterdir():
                stale.unlink()


main()
