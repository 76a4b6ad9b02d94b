"""What a recording of a spec holds: kinds, identity, references, producers, placement, samples, envelope.
usage: test_events.py SYNTH_TOOL"""
import driving as d

T, op, spec = d.tensor, d.op, d.spec


def subset(want, got, path=""):
    if isinstance(want, dict):
        for k, v in want.items():
            assert k in got, f"{path}.{k} is absent"
            subset(v, got[k], f"{path}.{k}")
    else:
        assert want == got, f"{path}: expected {want!r}, got {got!r}"


IDENTITY = {"id": "e", "step": 3, "phase": "actor_train", "pass": "bwd", "work": 2, "iteration": 5, "call": 1,
            "module": "layers.0.mlp", "sample": "s1", "stream": 7}
DEFAULTS = {"id": "", "step": 0, "phase": "", "work": 0, "iteration": 0, "call": 0, "module": "", "sample": "", "stream": 0,
            "occurrence": 0, "autotune": False, "rank": 0}
KINDS = [
    ({"op": "aten::mm", "contract": "c1"}, "op", "aten::mm", {"contract": "c1"}),
    ({"collective": "all_reduce", "group": "g", "algo": "RING", "proto": "SIMPLE", "channels": 16, "order": [0]},
     "collective", "all_reduce", {"group": "g", "algo": "RING", "proto": "SIMPLE", "channels": 16, "order": [0],
                                  "members": [], "ranks": [0]}),
    ({"copy": "h2d"}, "copy", "copy.h2d", {"direction": "h2d"}),
    ({"sync": "wait", "event": 3}, "sync", "sync", {"what": "wait", "event": 3}),
    ({"rng": "philox", "seed": -1, "offset": 64, "grid": 159744}, "rng", "rng",
     {"generator": "philox", "seed": -1, "offset": 64, "grid": 159744}),
    ({"weights": "v2", "side": "rollout"}, "weights", "weights", {"version": "v2", "side": "rollout"}),
    ({"request": "r7", "tokens": [1, -2, 2 ** 40], "policy_versions": ["5", 6], "logprob_kind": "processed"}, "request",
     "request", {"id": "r7", "tokens": [1, -2, 2 ** 40], "versions": ["5", "6"], "logprob_kind": "processed"}),
    ({"metric": "loss", "value": 2.5}, "metric", "loss", {"value": "2.5"}),
    ({"metric": "norm", "value": "nan"}, "metric", "norm", {"value": "nan"}),
    ({"readback": "R/P", "implementation": "fa3", "contract": "c", "calls": 9}, "readback", "readback",
     {"case": "R/P", "implementation": "fa3", "contract": "c", "calls": 9}),
    ({"leaf": "w", "reference": "m.safetensors#w", "sha256": "ab", "generator": "normal", "seed": 4,
      "tensors": [T("w", [2])]}, "leaf", "leaf", {"name": "w", "reference": "m.safetensors#w", "sha256": "ab",
                                                  "generator": "normal", "seed": 4}),
]


def test_kinds_with_identity_and_defaults():
    for body, kind, name, u in KINDS:
        events, _, _ = d.record(spec([body, {**body, **IDENTITY}]))
        default = {**DEFAULTS, "pass": "fwd" if kind == "op" else "", "kind": kind, "op": name, "seq": 0, "u": u}
        subset(default, events[0], kind)
        subset({**IDENTITY, "op": name, "seq": 1}, events[1], kind)


def test_relaunch():
    events, _, _ = d.record(spec([op(id="x"), {"relaunch": "x", "repeats": 5, "agree": 4, "matches_recorded": True}]))
    subset({"op": "relaunch", "u": {"event": "x", "repeats": 5, "agree": 4, "matches_recorded": True}}, events[1])


def test_launches_and_attributes():
    launch = {"kernel": "gemm", "grid": [8, 4], "block": [128], "cluster": [2, 1, 1], "smem": 9, "image": "i", "config": "c",
              "graph": 3, "node": 2, "attrs": {"n_splits": 4}}
    body = {"launches": [launch, {"kernel": "k2", "stream": 9}], "stream": 7,
            "attrs": {"deterministic": 1, "p": 0.5, "name": "x", "flag": True}}
    for kind in ({"op": "a"}, {"collective": "all_gather", "group": "g"}, {"copy": "d2d"}):
        events, envs, _ = d.record(spec([{**kind, **body, "autotune": True}]))
        e = events[0]
        subset({"attrs": {"deterministic": 1, "p": 0.5, "name": "x", "flag": 1}, "autotune": True}, e)
        subset({"kernel": "gemm", "grid": [8, 4, 1], "block": [128, 1, 1], "cluster": [2, 1, 1], "smem": 9, "image": "i",
                "config": "c", "graph": 3, "node": 2, "stream": 7, "attrs": {"n_splits": 4}}, e["launches"][0])
        subset({"kernel": "k2", "grid": [1, 1, 1], "graph": -1, "node": -1, "stream": 9}, e["launches"][1])
        subset({"launches_seen": 2, "launches_recorded": 2}, envs[0])


def test_occurrence():
    a, b = {"op": "x", "module": "m"}, {"op": "y", "module": "m"}
    events, _, _ = d.record(spec([a, b, a, {**a, "autotune": True}, {**a, "sample": "s", "stream": 3}, {**a, "call": 1},
                                  {**a, "pass": "recompute"}, {**a, "step": 1}, {**a, "work": 1}, {**a, "iteration": 1}, a]))
    assert [e["occurrence"] for e in events] == [0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 3]
    w = {"weights": "v1", "side": "trainer"}
    events, _, _ = d.record(spec([w, {**w, "weights": "v2", "phase": "p"}, {**w, "side": "rollout"}, {**w, "step": 1}]))
    assert [e["occurrence"] for e in events] == [0, 1, 0, 0]
    events, _, _ = d.record(spec([{**a, "ranks": [0]}, a], ranks=2))
    assert [(e["rank"], e["occurrence"]) for e in events] == [(0, 0), (0, 1), (1, 0)]


def tensors(events):
    return [t for e in events for t in e["tensors"]]


def test_by_reference_by_name():
    x = T("x", [4], fill={"normal": 1})
    read = T("x", [4], fill={"like": "x"})
    edited = {**read, "edit": [{"mask": {"range": [1, 2]}, "change": {"ulp": 1}}]}
    events, envs, _ = d.record(spec([op([x], [T("y", [4])]), op([x], [x]), op([read]), op([edited]), op([x]), op([T("y", [4])])]))
    states = [e["tensors"][0]["state"] for e in events]
    assert states == ["digested", "digested", "reference", "digested", "reference", "reference"], states
    assert events[2]["tensors"][0]["ref"] == [1, 0, "0" * 32] and events[5]["tensors"][0]["ref"][0] == 0
    assert events[3]["tensors"][0]["printed"] != events[1]["tensors"][1]["printed"]
    subset({"tensors": 8, "by_reference": 3}, envs[0])


def test_by_reference_by_alloc():
    out = lambda name, alloc, seed: T(name, [4], fill={"normal": seed}, alloc=alloc)
    events, _, _ = d.record(spec([
        op([], [out("a", 0, 1), out("b", 2, 2)]),
        op([out("other", 2, 2)]),                  # same buffer, another name: by reference to output 1
        op([out("a", 3, 1)]),                      # a buffer nobody wrote
        op([T("a", [4], fill={"normal": 1})]),     # without alloc: by name
        op([], [out("c", 2, 3)]),                  # overwrites buffer 2
        op([out("b", 2, 2)]),                      # equal to the older content only: digested
        op([out("c", 2, 3)])]))
    t = [e["tensors"][0] for e in events]
    assert [x["state"] for x in t] == ["digested", "reference", "digested", "reference", "digested", "digested", "reference"]
    assert t[1]["ref"][:2] == [0, 1] and t[3]["ref"][:2] == [0, 0] and t[6]["ref"][:2] == [4, 0]
    assert [x["alloc"] for x in t] == [1, 3, 4, 0, 3, 3, 3]


def test_view_of_a_reference():
    events, _, _ = d.record(spec([op([], [T("x", [4, 6], fill={"normal": 1})]), op([T("x", [6, 4], fill={"like": "x"})]),
                                  op([T("x", [2, 12], fill={"like": "x"})]), op([T("x", [6, 4], fill={"normal": 1})]),
                                  op([T("x", [4, 6], "int32", fill={"const": 0})])]))
    views = [e["tensors"][0].get("ref", [0, 0, None])[2] for e in events]
    assert views[1] and views[1] != "0" * 32 and views[2] not in ("0" * 32, views[1]) and views[3] == views[1]
    assert views[4] is None, "another dtype is never by reference"


def test_several_outputs_on_one_buffer():
    o = lambda seed, n=4: T("x", [n], fill={"normal": seed}, alloc=1)
    events, _, _ = d.record(spec([op([], [o(1), o(2), o(2)]), op([o(2)]), op([o(1)]), op([o(3)])]))
    t = [e["tensors"][0] for e in events[1:]]
    assert [x.get("ref", [None, None])[1] for x in t] == [1, 0, None]


def test_references_follow_the_rank_and_the_order():
    events, _, _ = d.record(spec([
        op([], [T("x", [2], "int32", fill={"const": 5}, payload=True)], ranks=[0]),
        op([], [T("x", [2], "int32", fill={"const": 6})], ranks=[1]),
        op([T("y", [2], "int32", fill={"like": "x"}, edit=[{"mask": {"all": True}, "change": {"add": 1}}])],
           [T("z", [2], "int32", fill={"like": "y"}, payload=True), T("z", [2], "int32", fill={"like": "z"},
              edit=[{"mask": {"shard": 1}, "change": {"add": 10}}], payload=True)])], ranks=2))
    payload = lambda e, i: e["tensors"][i]["payload"]
    assert payload(events[1], 1) == "0600000006000000" and payload(events[1], 2) == "0600000006000000"
    assert payload(events[3], 1) == "0700000007000000" and payload(events[3], 2) == "1100000011000000"


def test_weights_are_producers_and_leaves_are_not():
    w = T("w", [4], fill={"normal": 1})
    events, _, _ = d.record(spec([{"leaf": "w", "tensors": [w]}, op([w]), {"weights": "v1", "side": "trainer", "tensors": [w]}, op([w])]))
    assert [e["tensors"][0]["state"] for e in events] == ["digested", "digested", "digested", "reference"]
    assert events[2]["tensors"][0]["role"] == "out"


def test_states():
    u = lambda **k: T("x", [4], fill={"normal": 1}, state="undefined", **k)
    events, envs, _ = d.record(spec([op([], [u(payload=True)]), op([T("x", [4], fill={"like": "x"})]),
                                     op([T("q", [4], state="not_digested", reason="ring-full")])]))
    subset({"state": "undefined", "reason": "spec"}, events[0]["tensors"][0])
    assert "payload" not in events[0]["tensors"][0]
    assert events[1]["tensors"][0]["state"] == "reference"
    subset({"state": "not_digested", "reason": "ring-full"}, events[2]["tensors"][0])
    assert envs[0]["not_digested"].get("ring-full") == 1, envs[0]


def test_placement():
    place = {"shape": [8, 2, 12], "runs": [[[0, 1], [7, 1]], None, [[3, 6]]], "partial": "tp", "zero": "cp"}
    events, _, _ = d.record(spec([op([], [T("x", [2, 2, 6], logical=place, version="w5"), T("y", [2, 2, 6])])]))
    subset({"place": place, "version": "w5", "alloc": 0}, events[0]["tensors"][0])
    assert "place" not in events[0]["tensors"][1]


def parts_sum(parts):
    total = {k: 0 for k in parts[0]}
    for p in parts:
        for k in p:
            v = int(p[k], 16) if isinstance(p[k], str) else p[k]
            total[k] = (total[k] + v) % (1 << {"multiset": 64}.get(k, 128))
    return total


def as_int(sums):
    return {k: int(v, 16) if isinstance(v, str) else v for k, v in sums.items()}


def test_parts_add_up_to_the_whole():
    whole = T("x", [8, 16], "int32", fill={"arange": 0})
    cut = [T("x", [2, 16], "int32", fill={"arange": 32 * r}, logical={"shape": [8, 16], "runs": [[[2 * r, 2]]]}) for r in range(4)]
    events, _, _ = d.record(spec([op([], [whole])] + [op([], [c], ranks=[r]) for r, c in enumerate(cut)], ranks=4))
    w = as_int(events[0]["tensors"][0]["sums"])
    parts = [e["tensors"][0]["sums"] for e in events if e["seq"] == 1]
    assert len(parts) == 4 and parts_sum(parts) == w
    assert parts_sum(parts[:3]) != w


def test_samples():
    """[s2 | s1 | s3] packed over two ranks by halves against each sample alone."""
    rows = {"s1": 3, "s2": 5, "s3": 2}
    vals = {"s1": [1.5, 2.5, 3.5], "s2": [4.5, 5.5, 6.5, 7.5, 8.5], "s3": [9.5, -0.0]}
    rowed = lambda v, **k: T("x", [len(v), 16], fill={"const": -0.0},
                             edit=[{"mask": {"all": True}, "change": {"add_rows": v}}], **k)
    alone = [op([], [rowed(vals[s], samples=[[s, 0, rows[s]]])]) for s in ("s1", "s2", "s3")]
    packed = vals["s2"] + vals["s1"] + vals["s3"]
    samples = [["s2", 0, 5], ["s1", 5, 3], ["s3", 8, 2]]
    local = [op([], [rowed(packed, samples=samples)])]
    halves = [op([], [rowed(packed[lo:hi], samples=samples, logical={"shape": [10, 16], "runs": [[[lo, hi - lo]]]})], ranks=[r])
              for r, (lo, hi) in enumerate(((0, 6), (6, 10)))]
    zigzag = [op([], [rowed(packed[:3] + packed[9:], samples=samples, logical={"shape": [10, 16], "runs": [[[0, 3], [9, 1]]]})], ranks=[0]),
              op([], [rowed(packed[3:9], samples=samples, logical={"shape": [10, 16], "runs": [[[3, 6]]]})], ranks=[1])]
    events, _, _ = d.record(spec(alone + local + halves + zigzag, ranks=2))
    rank0, rank1 = [e for e in events if e["rank"] == 0], [e for e in events if e["rank"] == 1]
    want = {t["samples"][0]["id"]: as_int(t["samples"][0]["sums"]) for e in rank0[:3] for t in e["tensors"]}
    for e in rank0[:3]:  # a sample alone is the tensor
        assert as_int(e["tensors"][0]["samples"][0]["sums"]) == as_int(e["tensors"][0]["sums"])
    for s in rank0[3]["tensors"][0]["samples"]:
        assert as_int(s["sums"]) == want[s["id"]], s
    for a, b in ((rank0[4], rank1[4]), (rank0[5], rank1[5])):
        for x, y in zip(a["tensors"][0]["samples"], b["tensors"][0]["samples"]):
            assert parts_sum([x["sums"], y["sums"]]) == want[x["id"]], x
    assert want["s3"]["negzero"] == 16


def test_decode_rows_add_up_to_training_rows():
    vals = [0.5, 1.5, 2.5, 3.5]
    train = T("x", [4, 16], fill={"const": 0}, edit=[{"mask": {"all": True}, "change": {"add_rows": vals}}], samples=[["r", 0, 4]])
    decode = [op([], [T("x", [1, 16], fill={"const": v}, samples=[["r", 0, 4]],
                        logical={"shape": [4, 16], "runs": [[[i, 1]]]})], iteration=i) for i, v in enumerate(vals)]
    events, _, _ = d.record(spec([op([], [train])] + decode))
    sums = [e["tensors"][0]["samples"][0]["sums"] for e in events]
    assert parts_sum(sums[1:]) == as_int(sums[0])


def test_communicators():
    c = lambda **k: {"collective": "all_reduce", "in": [], "out": [], **k}
    ranks = lambda s: [(e["rank"], e["u"]["ranks"]) for e in d.record(s)[0]]
    assert ranks(spec([c(group="tp"), c(group="x", ranks=[1, 3])], ranks=4, layout="tp2")) == \
        [(0, []), (1, []), (1, [1, 3]), (2, []), (3, []), (3, [1, 3])]
    assert ranks(spec([c(group="dp", ranks=[1]), c(group="x")], ranks=2)) == [(0, [0, 1]), (1, [0, 1]), (1, [0, 1])]
    assert ranks(spec([c(group="tp", ranks=[1])], ranks=2)) == [(1, [1])]


def test_members():
    t = [T("a", [2]), T("b", [2])]
    events, _, _ = d.record(spec([{"collective": "all_reduce", "group": "dp", "members": ["a", "b"], "in": t, "out": [T("flat", [4])]}]))
    assert events[0]["u"]["members"] == ["a", "b"] and len(events[0]["tensors"]) == 3
    m = d.refused(spec([{"collective": "all_reduce", "group": "dp", "members": ["a", "b", "c"], "in": t}]))
    assert "events[0].in: 2 tensors for 3 members" in m, m


ENVELOPE = {"ranks": 4, "layout": "tp2cp2", "env": {"NCCL_ALGO": "Ring", "RLKREC_POISON": "255"},
            "libraries": {"cublas": "13.1.0"}, "driver": "580", "gpus": [{"uuid": "u", "name": "H200", "sm": 90}],
            "topology": "hash", "hosts": ["n0"], "argv": ["train.py", "--lr", "1"], "missing_ranks": [1]}


def test_envelope():
    _, envs, rec = d.record(spec([op([], [T("x", [2])])], capture="module", dropped=7, comment="why", **ENVELOPE))
    subset({**ENVELOPE, "level": "module", "synthetic": True, "rlk_recording": 1, "format": {"major": 1, "minor": 1},
            "planes": ["tensor"], "inputs": "reference", "exit": {"code": 0}, "faults": []}, rec["manifest"])
    assert "comment" not in rec["manifest"] and rec["seal"] == "good" and rec["complete"] is False
    assert [(e["dir"], e["ranks"], e["dropped"]) for e in envs] == \
        [("rank-00000.pid-0", [0], 7), ("rank-00002.pid-2", [2], 0), ("rank-00003.pid-3", [3], 0)]
    _, envs, rec = d.record(spec([]))
    subset({"argv": [], "env": {}, "libraries": {}, "driver": "", "gpus": [], "topology": "", "hosts": [], "ranks": 1,
            "layout": None, "missing_ranks": [], "level": "op", "planes": []}, rec["manifest"])
    assert rec["complete"] and rec["seal"] == "good" and envs[0]["events"] == 0 and envs[0]["complete"]
    events, envs, rec = d.record(spec([op([], [T("x", [2])])], complete=False, ranks=2))
    assert len(events) == 2 and rec["seal"] == "absent" and not rec["complete"] and not any(e["complete"] for e in envs)
    _, envs, rec = d.record(spec([op()], ranks=2, missing_ranks=[0, 1]))
    assert envs == [] and rec["complete"] is False


def test_the_same_spec_gives_the_same_events():
    s = spec([op([T("a", [300], fill={"normal": 1})], [T("b", [300], fill={"uniform": 2}, payload=True)])] * 5, ranks=3)
    assert d.record(s)[:2] == d.record(s)[:2]


def test_little_memory_gives_the_same_recording():
    """Values are kept from rank to rank only while there is room; what must be held and is too much is refused."""
    chain = [op([], [T("x", [1000], "fp32", fill={"normal": 1})])]
    for i in range(40):
        chain.append(op([T("x", [1000], fill={"like": "x"})], [T("x", [1000], fill={"like": "x"}, edit=[
            {"mask": {"shard": 2}, "change": {"ulp": i}}, {"mask": {"tail": 990}, "change": {"add": 1}}])]))
    s = spec(chain, ranks=4)
    plenty = d.record(s)
    assert d.record(s, "--max-bytes", "20000")[0] == plenty[0]
    digests = [e["tensors"][-1]["printed"] for e in plenty[0] if e["seq"] == 40]
    assert digests[0] == digests[1] == digests[3] != digests[2], digests
    m = d.refused(s, "--max-bytes", "6000")
    assert m.startswith("RLK_ELIMIT: events[1].out[0]: the tensors that must be held here exceed 6000 bytes (rank 0)"), m
    assert "events[0].out[0].shape: 4000 bytes, at most 3000" in d.refused(s, "--max-bytes", "3000")


def test_many_ranks():
    """Every rank has its own environment and its own values; tensors that are the same are made once."""
    n = 300
    _, envs, rec = d.record(spec([op([], [T("x", [1024, 1024], fill={"normal": 1})]),
                                  op([T("x", [1024, 1024], fill={"like": "x"})], [T("y", [2], fill={"const": 1}, edit=[
                                      {"mask": {"shard": 299}, "change": {"add": 1}}])])], ranks=n))
    assert len(envs) == n and rec["complete"] and rec["seal"] == "good"
    assert [e["ranks"] for e in envs] == [[r] for r in range(n)]


def test_all_kinds_in_one():
    events, _, _ = d.record(spec([k[0] for k in KINDS] * 3))
    assert [e["seq"] for e in events] == list(range(3 * len(KINDS)))


if __name__ == "__main__":
    d.run(dict(globals()))
