"""Wrong and hostile specs: exit 2 with the JSON path, nothing left behind, no crash. usage: test_errors.py SYNTH_TOOL"""
import json
import random
import tempfile

import driving as d

T, op, spec = d.tensor, d.op, d.spec
ALL = {"all": True}


def of(**tensor):
    return spec([op()] * 3 + [op([T("x", [4, 2], **tensor)])])


def edit(mask=ALL, change=None, **tensor):
    return of(edit=[{"mask": mask, "change": change or {"zero": True}}], **tensor)


P = "events[3].in[0]"
WRONG = [
    # the envelope
    ([], "spec: expected an object, got a list"),
    ({}, 'spec: the key "rlk_synth" is missing'),
    ({"rlk_synth": 2}, "rlk_synth: 2 is outside 1..1"),
    ({"rlk_synth": "1"}, "rlk_synth: expected an integer, got a string"),
    (spec([], rank=2), 'spec: unknown key "rank"'),
    (spec([], ranks=0), "ranks: 0 is outside 1..65536"),
    (spec([], ranks=65537), "ranks: 65537 is outside"),
    (spec([], ranks=2.0), "ranks: expected an integer, got a real number"),
    (spec([], layout="tp3", ranks=4), "layout: "),
    (spec([], layout="tp2tp2", ranks=4), "layout: "),
    (spec([], layout="xp2", ranks=4), "layout: "),
    (spec([], layout="", ranks=4), "layout: "),
    (spec([], env={"A": 1}), "env.A: expected a string, got an integer"),
    (spec([], env=[]), "env: expected an object"),
    (spec([], libraries={"cublas": None}), "libraries.cublas: expected a string, got null"),
    (spec([], gpus=[{"uuid": "u", "mem": 1}]), 'gpus[0]: unknown key "mem"'),
    (spec([], gpus=[{"sm": 9.0}]), "gpus[0].sm: expected a string or an integer"),
    (spec([], hosts=["a", 1]), "hosts[1]: expected a string"),
    (spec([], argv="x"), "argv: expected a list, got a string"),
    (spec([], capture="all"), 'capture: "all" is none of launch, step, module, op, buffer'),
    (spec([], complete=1), "complete: expected true or false, got an integer"),
    (spec([], ranks=2, missing_ranks=[2]), "missing_ranks[0]: 2 is outside 0..1"),
    (spec([], ranks=2, missing_ranks=[1, 1]), "missing_ranks[1]: rank 1 is there twice"),
    (spec([], dropped=-1), "dropped: -1 is outside"),
    (spec({}), "events: expected a list, got an object"),
    # events
    (spec([1]), "events[0]: expected an object"),
    (spec([{}]), "events[0]: no kind"),
    (spec([{"op": ""}]), "events[0].op: the string is empty"),
    (spec([{"op": 1}]), "events[0].op: expected a string"),
    (spec([{"op": "x", "collective": "y"}]), 'events[0]: unknown key "collective"'),
    (spec([{"op": "x", "group": "tp"}]), 'events[0]: unknown key "group"'),
    (spec([{"collective": "all_reduce"}]), 'events[0]: the key "group" is missing'),
    (spec([{"collective": "x", "group": "g", "order": [1]}]), "events[0].order[0]: 1 is outside 0..0"),
    (spec([{"collective": "x", "group": "g", "channels": -1}]), "events[0].channels: -1 is outside"),
    (spec([{"copy": "sideways"}]), 'events[0].copy: "sideways" is none of h2d'),
    (spec([{"sync": "later"}]), 'events[0].sync: "later" is none of'),
    (spec([{"sync": "wait", "in": []}]), 'events[0]: unknown key "in"'),
    (spec([{"rng": "philox", "offset": -1}]), "events[0].offset: -1 is outside"),
    (spec([{"weights": "v"}]), 'events[0]: the key "side" is missing'),
    (spec([{"weights": "v", "side": "both"}]), "events[0].side: "),
    (spec([{"request": "r", "tokens": [1.5]}]), "events[0].tokens[0]: expected an integer"),
    (spec([{"request": "r", "logprob_kind": "x"}]), "events[0].logprob_kind: "),
    (spec([{"relaunch": "none"}]), 'events[0].relaunch: no earlier event has the id "none"'),
    (spec([op(id="a"), {"relaunch": "a", "repeats": 3, "agree": 4}]), "events[1].agree: 4 of 3 repeats"),
    (spec([op(id="a"), op(id="a")]), "events[1].id: an earlier event has this id"),
    (spec([{"metric": "loss"}]), 'events[0]: the key "value" is missing'),
    (spec([{"metric": "loss", "value": "NaN"}]), "events[0].value: "),
    (spec([{"leaf": "w", "tensors": []}]), "events[0].tensors: expected a list of 1, got 0"),
    (spec([op(ranks=[])]), "events[0].ranks: the list is empty"),
    (spec([op(ranks=[1])]), "events[0].ranks[0]: 1 is outside 0..0"),
    (spec([op(step="1")]), "events[0].step: expected an integer"),
    (spec([op(call=-1)]), "events[0].call: -1 is outside"),
    (spec([op(stream=-1)]), "events[0].stream: -1 is outside"),
    (spec([op(phase=None)]), "events[0].phase: expected a string, got null"),
    (spec([op(attrs={"a": []})]), "events[0].attrs.a: an attribute is"),
    (spec([op(launches=[{}])]), 'events[0].launches[0]: the key "kernel" is missing'),
    (spec([op(launches=[{"kernel": "k", "grid": []}])]), "events[0].launches[0].grid: expected a list of 1 to 3"),
    (spec([op(launches=[{"kernel": "k", "grid": [1, -1]}])]), "events[0].launches[0].grid[1]: -1 is outside"),
    (spec([op(launches=[{"kernel": "k", "regs": 1}])]), 'events[0].launches[0]: unknown key "regs"'),
    # tensors
    (spec([op([{"name": "x"}])]), 'events[0].in[0]: the key "dtype" is missing'),
    (spec([op([T("x", [1], "float")])]), 'events[0].in[0].dtype: "float" is none of bool'),
    (spec([op([T("", [1])])]), "events[0].in[0].name: the string is empty"),
    (spec([op([T("x", [-1])])]), "events[0].in[0].shape[0]: -1 is outside"),
    (spec([op([T("x", [1] * 65)])]), "events[0].in[0].shape: expected a list of 0 to 64 entries, got 65"),
    (spec([op([T("x", [2 ** 31 + 1])])]), "events[0].in[0].shape: more than 2^31 elements"),
    (spec([op([T("x", [2 ** 20, 2 ** 20])])]), "events[0].in[0].shape: more than 2^31 elements"),
    (spec([op([T("x", [2 ** 40, 2 ** 40, 0])])]), "events[0].in[0].shape: more than 2^31 elements"),
    (spec([op([T("x", [2 ** 31], "fp64")])]), "events[0].in[0].shape: 17179869184 bytes"),
    (of(fill={"norml": 1}), P + '.fill: unknown key "norml"'),
    (of(fill={}), P + ".fill: expected exactly one of normal"),
    (of(fill={"normal": 1, "const": 2}), P + ".fill: expected exactly one of"),
    (of(fill={"normal": -1}), P + ".fill.normal: -1 is outside 0..4294967295"),
    (of(fill={"normal": 2 ** 32}), P + ".fill.normal: 4294967296 is outside"),
    (of(fill={"uniform": 1.5}), P + ".fill.uniform: expected an integer"),
    (of(fill={"const": None}), P + ".fill.const: expected a number, got null"),
    (of(fill={"const": "NaN"}), P + '.fill.const: "NaN" is none of nan, inf, -inf'),
    (of(fill={"const": "nan"}, dtype="int8"), P + ".fill.const: int8 holds no NaN or Inf"),
    (of(fill={"const": "inf"}, dtype="bool"), P + ".fill.const: bool holds no NaN or Inf"),
    (of(fill={"const": {"bits": 65536}}, dtype="bf16"), P + ".fill.const.bits: an element of bf16 has 16 bits"),
    (of(fill={"const": {"bits": "0xg"}}), P + ".fill.const.bits: expected 0x"),
    (of(fill={"const": {"bits": "0x"}}), P + ".fill.const.bits: expected 0x"),
    (of(fill={"const": {"bits": "0x11112222333344445"}}, dtype="fp64"), P + ".fill.const.bits: expected 0x"),
    (of(fill={"const": {"bits": -1}}), P + ".fill.const.bits: -1 is outside"),
    (of(fill={"const": {"bit": 1}}), P + '.fill.const: unknown key "bit"'),
    (of(fill={"arange": "0"}), P + ".fill.arange: expected a number, got a string"),
    (of(fill={"int": [0, 5]}), P + ".fill.int: expected a list of 3, got 2"),
    (of(fill={"int": [5, 5, 1]}), P + ".fill.int: hi (exclusive) must be above lo"),
    (of(fill={"int": [0.5, 5, 1]}), P + ".fill.int[0]: expected an integer"),
    (of(fill={"like": "x"}), P + '.fill.like: no earlier tensor is named "x"'),
    (of(fill={"like": 1}), P + ".fill.like: expected a string"),
    (of(edit={}), P + ".edit: expected a list"),
    (of(edit=[{"mask": ALL}]), P + '.edit[0]: the key "change" is missing'),
    (of(edit=[{"change": {"zero": True}}]), P + '.edit[0]: the key "mask" is missing'),
    (edit({}), P + ".edit[0].mask: expected exactly one of"),
    (edit({"all": False}), P + ".edit[0].mask.all: expected true"),
    (edit({"all": True, "tail": 1}), P + ".edit[0].mask: expected exactly one of"),
    (edit({"seed": 1}), P + '.edit[0].mask: "seed" belongs to'),
    (edit({"uniform": 0.5}), P + '.edit[0].mask: the key "seed" is missing'),
    (edit({"uniform": 1.5, "seed": 1}), P + ".edit[0].mask.uniform: expected a fraction"),
    (edit({"uniform": 0.5, "seed": 1, "all": True}), P + '.edit[0].mask: unknown key "all"'),
    (edit({"rows": [4]}), P + ".edit[0].mask.rows[0]: 4 is outside 0..3"),
    (edit({"rows": 1}), P + ".edit[0].mask.rows: expected a list"),
    (edit({"tail": 9}), P + ".edit[0].mask.tail: 9 is outside 0..8"),
    (edit({"range": [3, 2]}), P + ".edit[0].mask.range[1]: 2 is outside 3..8"),
    (edit({"range": [0, 9]}), P + ".edit[0].mask.range[1]: 9 is outside"),
    (edit({"sparse": 9, "seed": 1}), P + ".edit[0].mask.sparse: 9 elements of a tensor that has 8"),
    (edit({"shard": 1}), P + ".edit[0].mask.shard: 1 is outside 0..0"),
    (edit(change={"ulps": 1}), P + '.edit[0].change: unknown key "ulps"'),
    (edit(change={"ulp": 1.0}), P + ".edit[0].change.ulp: expected an integer"),
    (edit(change={"rel": "1"}), P + ".edit[0].change.rel: expected a number"),
    (edit(change={"zero": False}), P + ".edit[0].change.zero: expected true"),
    (edit(change={"byte": 256}), P + ".edit[0].change.byte: 256 is outside 0..255"),
    (edit(change={"garbage": -1}), P + ".edit[0].change.garbage: -1 is outside"),
    (edit(change={"add_rows": [1]}), P + ".edit[0].change.add_rows: 1 numbers for 4 rows"),
    (edit(change={"add_rows": [1, 2, 3, None]}), P + ".edit[0].change.add_rows[3]: expected a number"),
    (edit(change={"permute": [0, 1, 2]}), P + ".edit[0].change.permute: 3 rows of 4"),
    (edit(change={"permute": [0, 1, 2, 2]}), P + ".edit[0].change.permute[3]: row 2 is there twice"),
    (edit(change={"permute": [0, 1, 2, 4]}), P + ".edit[0].change.permute[3]: 4 is outside 0..3"),
    (edit(change={"cast": "f16"}), P + '.edit[0].change.cast: "f16" is none of'),
    (edit(change={"from": "y"}), P + '.edit[0].change.from: no earlier tensor is named "y"'),
    (of(logical={}), P + '.logical: the key "shape" is missing'),
    (of(logical={"shape": [4]}), P + ".logical: does not fit the shape"),
    (of(logical={"shape": [8, 2]}), P + ".logical: does not fit the shape"),
    (of(logical={"shape": [8, 2], "runs": [[[6, 4]]]}), P + ".logical: does not fit the shape"),
    (of(logical={"shape": [8, 2], "runs": [[[2, 2], [0, 2]]]}), P + ".logical: does not fit the shape"),
    (of(logical={"shape": [8, 2], "runs": [[[0, 4]], [[0, 2]], [[0, 1]]]}), P + ".logical.runs: expected a list of 0 to 2"),
    (of(logical={"shape": [8, 2], "runs": [[[0]]]}), P + ".logical.runs[0][0]: expected a list of 2, got 1"),
    (of(logical={"shape": [8, 2], "runs": [[[0, -4]]]}), P + ".logical.runs[0][0][1]: -4 is outside"),
    (of(logical={"shape": [8, 2], "runs": [0]}), P + ".logical.runs[0]: expected a list"),
    (of(logical={"shape": [4, 2], "partial": 1}), P + ".logical.partial: expected a string"),
    (of(logical={"shape": [4, 2], "group": "tp"}), P + '.logical: unknown key "group"'),
    (of(samples=[["a", 0]]), P + ".samples[0]: expected a list of 3, got 2"),
    (of(samples=[["a", 0, 5]]), P + ".samples[0][2]: 5 is outside 0..4"),
    (of(samples=[["a", 3, 2]]), P + ".samples[0][2]: 2 is outside 0..1"),
    (of(samples=[["a", 0, 1], ["a", 1, 1]]), P + '.samples: sample "a" is there twice'),
    (of(samples=[["", 0, 1]]), P + ".samples[0][0]: the string is empty"),
    (of(alloc=-1), P + ".alloc: -1 is outside"),
    (of(alloc="1"), P + ".alloc: expected an integer"),
    (of(state="missing"), P + '.state: "missing" is none of undefined, not_digested'),
    (of(reason="x"), P + '.reason: belongs to a tensor with a "state"'),
    (of(payload="yes"), P + ".payload: expected true or false"),
    (of(version=5), P + ".version: expected a string"),
    (of(strides=[1]), P + ': unknown key "strides"'),
    # what only evaluation sees
    (spec([op([], [T("x", [4])]), op([T("y", [4], "fp16", fill={"like": "x"})])]), "events[1].in[0].fill.like: that tensor has another dtype"),
    (spec([op([], [T("x", [4])]), op([T("y", [5], fill={"like": "x"})])]), "events[1].in[0].fill: that tensor has another number"),
    (spec([op([], [T("x", [4])]), op([T("y", [5], fill={"cast_of": "x"})])]), "events[1].in[0].fill: that tensor has another number"),
    (spec([op([], [T("x", [4])]), op([], [T("y", [4], "fp64", edit=[{"mask": ALL, "change": {"from": "x"}}])])]),
     "events[1].out[0].edit[0].change.from: that tensor has another dtype"),
    (spec([op([], [T("x", [4])], ranks=[1]), op([T("x", [4], fill={"like": "x"})])], ranks=2),
     "events[1].in[0].fill: no earlier tensor of that name on this rank (rank 0)"),
]


def test_every_wrong_spec_is_told_with_its_path():
    for s, want in WRONG:
        got = d.refused(s)
        assert got.split(": ", 1)[-1].startswith(want), f"expected {want!r}, got {got!r}"
        assert got.startswith("RLK_EPARSE: "), got


def test_strings_out_of_bounds():
    for s in (spec([op(module="m" * 4097)]), spec([op([T("n" * 4097, [1])])]), spec([op(attrs={"k" * 4097: 1})]),
              spec([], env={"k": "v" * 4097})):
        assert "4096" in d.refused(s) or "4097" in d.refused(s)
    d.record(spec([op(module="m" * 4096)]))
    assert "events[0]" in d.refused(spec([{**op(), "k\u0001\u007f" * 1000: 1}])), "a key of control characters"


TEXTS = [b"", b"{", b"null", b"nul", b"{\"rlk_synth\": 1, \"events\": [], \"events\": []}", b"\xff\xfe", b"{\"rlk_synth\": 1e999}",
         b"{\"rlk_synth\": 99999999999999999999}", b"{\"rlk_synth\": NaN}", b"{\"rlk_synth\": 1} x", b"[" * 100000,
         b"{\"a\":" * 50000, b"\"\\ud800\"", b"{\"rlk_synth\": 1, \"driver\": \"a\\u0000b\"}", b"{\"rlk_synth\": 1, \"driver\": \"\xc3\x28\"}",
         b"{\"rlk_synth\": 1, \"driver\": \"\xed\xa0\x80\"}", b"{\"a\\u0000\": 1}", b"{'rlk_synth': 1}", b"\xef\xbb\xbf{}",
         b"{\"rlk_synth\": 01}", b"{\"rlk_synth\": +1}", b"{\"rlk_synth\": 1,}", b"// c\n{}", b"{\"rlk_synth\": Infinity}"]


def test_texts_that_are_no_specs():
    for text in TEXTS:
        assert d.refused(text).startswith("RLK_EPARSE: "), text[:40]


def test_numbers_at_the_edge():
    e = lambda c: spec([op([], [T("x", [3], fill={"const": 1}, edit=[{"mask": ALL, "change": c}])])])
    d.record(e({"rel": 1e308}))
    d.record(e({"add": -1e308}))
    d.record(e({"add": -9223372036854775808}))
    d.record(spec([op([], [T("x", [3], "int64", fill={"const": -9223372036854775808}, edit=[
        {"mask": ALL, "change": {"ulp": -9223372036854775808}}, {"mask": ALL, "change": {"add": 1.7976931348623157e308}}])])]))
    d.record(spec([op([], [T("x", [0, 4], samples=[["a", 0, 0]])], step=-9223372036854775808, work=9223372036854775807)]))
    assert "goes past" in d.refused(e({"ulp": 9223372036854775807}))
    assert "goes past" in d.refused(e({"ulp": -9223372036854775808}))


def test_output_that_exists_or_cannot_be_made():
    with tempfile.TemporaryDirectory() as tmp:
        path = d.write(spec([]), tmp)
        rc, _, err = d.tool(path, tmp)
        assert rc == 2 and "RLK_EEXIST" in err, err
        assert path.exists(), "an existing directory was touched"
        rc, _, err = d.tool(path, tmp + "/no/such/place")
        assert rc == 2 and err, err
        rc, _, err = d.tool(tmp + "/absent.json", tmp + "/x.rlk")
        assert rc == 2 and "absent.json" in err, err
        rc, _, err = d.tool(tmp, tmp + "/x.rlk")
        assert rc == 2 and err, err


SEED = spec([
    op([T("w", [4, 3], "bf16", fill={"normal": 1}, logical={"shape": [8, 3], "runs": [[[4, 4]]]}, samples=[["a", 4, 2]])],
       [T("y", [4, 3], "bf16", fill={"like": "w"}, edit=[{"mask": {"uniform": 0.5, "seed": 2}, "change": {"ulp": 1}},
                                                         {"mask": {"rows": [0, 2]}, "change": {"permute": [1, 0, 3, 2]}}],
          alloc=3, payload=True)], id="e0", attrs={"a": 1, "b": "c"}, launches=[{"kernel": "k", "grid": [1, 2]}]),
    {"collective": "all_reduce", "group": "tp", "in": [T("y", [4, 3], "bf16", fill={"like": "y"}, alloc=3)],
     "out": [T("z", [4, 3], "fp32", fill={"cast_of": "y"})], "order": [1, 0]},
    {"weights": "v1", "side": "trainer", "tensors": [T("p", [3], "complex64", fill={"int": [0, 9, 4]})]},
    {"request": "r", "tokens": [1, 2]}, {"relaunch": "e0", "repeats": 2, "agree": 1}, {"metric": "loss", "value": 1.5}],
    ranks=2, layout="tp2", missing_ranks=[1], dropped=1)
VALUES = [None, True, 0, -1, 1.5, 1e308, -0.0, 2 ** 31, 2 ** 63 - 1, "", "nan", "x", "\u0001", "\U0001f600", [], {}, [0], [[0]], {"bits": 1},
          [1, 2, 3], {"all": True}, "y", "w", "bf16", "tp2"]


def mutate(rng, value):
    """One random change somewhere in a copy of a JSON value."""
    value = json.loads(json.dumps(value))
    spots = []

    def walk(v):
        for k in (range(len(v)) if isinstance(v, list) else list(v) if isinstance(v, dict) else []):
            spots.append((v, k))
            walk(v[k])
    walk(value)
    where, key = rng.choice(spots)
    what = rng.randrange(5)
    if what == 0:
        del where[key]
    elif what == 1 and isinstance(where, list):
        where.insert(key, json.loads(json.dumps(where[rng.randrange(len(where))])))
    elif what == 2 and isinstance(where, dict):
        where[rng.choice(["fill", "edit", "op", "x", "shape", "samples", "logical", "seed", "ranks"])] = rng.choice(VALUES)
    elif what == 3:
        other, okey = rng.choice(spots)
        where[key] = json.loads(json.dumps(other[okey] if isinstance(other, list) and okey < len(other) or
                                           isinstance(other, dict) and okey in other else None))
    else:
        where[key] = rng.choice(VALUES)
    return value


def test_mutated_specs_never_crash():
    """A recording (0) or a message (2); a signal or a sanitizer's exit is neither."""
    rng = random.Random(7)
    counts = {0: 0, 2: 0}
    for i in range(400):
        s = mutate(rng, mutate(rng, SEED) if i % 3 == 0 else SEED)
        text = json.dumps(s).encode()
        if i % 10 == 0:
            b = bytearray(text)
            b[rng.randrange(len(b))] = rng.randrange(256)
            text = bytes(b)
        with tempfile.TemporaryDirectory(prefix="rlksynth") as tmp:
            rc, _, err = d.tool(d.write(text, tmp), tmp + "/x.rlk")
        assert rc in counts, f"{rc}: {err}\n{text.decode(errors='replace')}"
        assert rc == 0 or (err.startswith("RLK_E") and len(err) > 12), err
        counts[rc] += 1
    assert min(counts.values()) > 20, counts


if __name__ == "__main__":
    d.run(dict(globals()))
