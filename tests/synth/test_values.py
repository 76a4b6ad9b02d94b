"""Values of every fill, mask, change and dtype: the payloads of a recording against reference.py; digests against the
vectors of docs/digest.md. usage: test_values.py SYNTH_TOOL"""
import itertools
import sys

import driving as d
import reference as ref

SHAPE = [4, 6]
FLOATS = [*ref.FLOATS, "complex64"]
HUGE = 2 ** 53 + 1


def fills(dtype):
    yield {"normal": 11}
    yield {"uniform": 4294967295}
    yield {"int": [-7, 300, 5]}
    yield {"int": [HUGE, HUGE + 9, 6]}
    yield {"int": [-2 ** 63, 2 ** 63 - 1, 7]}
    yield {"arange": 0}
    yield {"arange": -3}
    yield {"arange": 0.25}
    yield {"arange": 2 ** 63 - 3}
    for v in (0, 1, -1, 2.5, 3.5, -0.0, 0.1, 448, 465.0, 65519.99, 65520, 3.4e38, 1e308, -1e308, 5e-324, 127.5, 1e-5, HUGE,
              -HUGE):
        yield {"const": v}
    yield {"const": {"bits": 1}}
    yield {"const": {"bits": "0x7f"}}
    if dtype in FLOATS:
        for v in ("nan", "inf", "-inf"):
            yield {"const": v}
    if ref.size(dtype) == 8:
        yield {"const": {"bits": "0xfff8000000000001"}}


MASKS = [{"all": True}, {"uniform": 0.4, "seed": 3}, {"uniform": 0, "seed": 3}, {"uniform": 1, "seed": 3},
         {"rows": [0, 3, 3]}, {"rows": []}, {"tail": 13}, {"tail": 24}, {"sparse": 5, "seed": 8}, {"sparse": 24, "seed": 9},
         {"range": [5, 9]}, {"range": [7, 7]}, {"shard": 0}]


def changes(dtype):
    yield from ({"ulp": 1}, {"ulp": -1}, {"ulp": 0}, {"ulp": 3}, {"ulp": -200})
    yield from ({"rel": 0.125}, {"rel": -1}, {"rel": 1e-3}, {"rel": 1e30}, {"add": 1}, {"add": -0.5}, {"add": 2.5},
                {"add": HUGE}, {"add": 1e300}, {"add": 0.1})
    yield {"add_rows": [0, 0.5, -1.5, 1000]}
    yield from ({"zero": True}, {"byte": 255}, {"byte": 0}, {"byte": 129}, {"garbage": 77}, {"permute": [2, 0, 3, 1]},
                {"from": "other"})
    for other in ref.DTYPES:
        yield {"cast": other}


def compare(tensors):
    """Records all tensors as outputs of one operator each and compares every payload with the reference."""
    names = {}
    want = [ref.to_bytes(t["dtype"], ref.tensor(t, names)).hex() for t in tensors]
    events, _, _ = d.record(d.spec([d.op(outs=[{**t, "payload": True}]) for t in tensors]))
    assert len(events) == len(tensors), (len(events), len(tensors))
    for t, w, e in zip(tensors, want, events):
        got = e["tensors"][0].get("payload")
        assert got == w, f"{t}\n  want {w}\n  got  {got}"
    return len(tensors)


def test_every_fill_of_every_dtype():
    n = compare([d.tensor("x", SHAPE, dtype, fill=f) for dtype in ref.DTYPES for f in fills(dtype)])
    assert n > 300


def test_every_mask_of_every_dtype():
    compare([d.tensor("x", SHAPE, dtype, fill={"const": 0}, edit=[{"mask": m, "change": {"byte": 1}}])
             for dtype in ref.DTYPES for m in MASKS])


def test_masks_on_odd_shapes():
    shapes = [[], [1], [0], [3, 0, 2], [130], [65, 1], [2, 3, 43]]
    out = []
    for shape in shapes:
        numel = 1
        for x in shape:
            numel *= x
        rows = shape[0] if shape else 1
        for m in ({"all": True}, {"uniform": 0.5, "seed": 1}, {"rows": list(range(0, rows, 2))}, {"tail": numel // 2},
                  {"sparse": numel // 2, "seed": 2}, {"range": [numel // 3, numel - numel // 3]}):
            out.append(d.tensor("x", shape, "bf16", fill={"normal": 1}, edit=[{"mask": m, "change": {"byte": 7}}]))
        out.append(d.tensor("x", shape, "int16", fill={"arange": 0},
                            edit=[{"mask": {"all": True}, "change": {"permute": list(reversed(range(rows)))}}]))
        out.append(d.tensor("x", shape, "fp16", fill={"normal": 2},
                            edit=[{"mask": {"all": True}, "change": {"add_rows": [i + 0.5 for i in range(rows)]}}]))
    compare(out)


def test_every_change_of_every_dtype():
    """On values of all kinds; an overflow of ulp is an error and has its own test."""
    tensors = []
    for dtype, start in itertools.product(ref.DTYPES, ({"normal": 21}, {"int": [-300, 300, 4]}, {"const": 0},
                                                       {"const": -0.0}, {"const": 3})):
        tensors.append(d.tensor("other", SHAPE, dtype, fill={"uniform": 6}))
        for i, c in enumerate(changes(dtype)):
            m = {"all": True} if i % 3 else {"uniform": 0.5, "seed": 1}
            t = d.tensor("x", SHAPE, dtype, fill=start, edit=[{"mask": m, "change": c}])
            try:
                ref.tensor(t, {"other": (dtype, [0] * 24)})
            except OverflowError:
                continue
            tensors.append(t)
    assert compare(tensors) > 1500


def test_garbage_bits_survive_changes():
    """Random patterns, so NaN of all payloads, Inf, subnormals: element by element."""
    tensors = []
    for dtype in ref.DTYPES:
        tensors.append(d.tensor("other", [64], dtype, edit=[{"mask": {"all": True}, "change": {"garbage": 5}}]))
        for c in ({"rel": 0.5}, {"add": 1}, {"add": 0.5}, {"cast": "bf16"}, {"cast": "fp8_e4m3"}, {"cast": "int8"},
                  {"cast": "fp64"}, {"ulp": 0}):
            tensors.append(d.tensor("y", [64], dtype, fill={"like": "other"}, edit=[{"mask": {"all": True}, "change": c}]))
        for other in ref.DTYPES:
            tensors.append(d.tensor("z", [64], other, fill={"cast_of": "other"}))
    compare(tensors)


def test_all_patterns_of_the_small_floats():
    """Random codes of the small floats, NaN and Inf and subnormals among them, cast to everything."""
    tensors = []
    for dtype, n in (("fp8_e4m3", 256), ("fp8_e5m2", 256), ("fp16", 1024), ("bf16", 1024)):
        tensors.append(d.tensor("g", [n], dtype, edit=[{"mask": {"all": True}, "change": {"garbage": 1}}]))
        for other in ref.DTYPES:
            tensors.append(d.tensor("z", [n], other, fill={"cast_of": "g"}))
    compare(tensors)


def test_edits_in_order():
    edits = [{"mask": {"rows": [0, 1]}, "change": {"add": 1}}, {"mask": {"tail": 3}, "change": {"permute": [3, 2, 1, 0]}},
             {"mask": {"sparse": 6, "seed": 1}, "change": {"rel": 0.5}}, {"mask": {"all": True}, "change": {"cast": "bf16"}}]
    compare([d.tensor("x", SHAPE, fill={"normal": 3}, edit=edits[:n]) for n in range(5)] +
            [d.tensor("x", SHAPE, fill={"like": "x"}, edit=edits)])


def test_ulp_past_the_end_is_an_error():
    for dtype, fill, n in (("fp32", {"const": "inf"}, 1), ("fp32", {"const": 3.4028234663852886e38}, 2),
                           ("fp8_e4m3", {"const": 448}, 1), ("bf16", {"const": "-inf"}, -1), ("fp64", {"const": 1}, 2 ** 62 + 1)):
        m = d.refused(d.spec([d.op(outs=[d.tensor("x", [2], dtype, fill=fill, edit=[
            {"mask": {"range": [1, 2]}, "change": {"ulp": n}}])])]))
        assert "events[0].out[0].edit[0].change.ulp: element 1 goes past" in m, (dtype, fill, n, m)
    compare([d.tensor("x", [2], fill={"const": 3.4028234663852886e38}, edit=[{"mask": {"all": True}, "change": {"ulp": 1}}])])


VECTORS = [
    ("bf16", [6, 256], {"normal": 1}, [], "c7349274e9a02143572982d2faf0c169", "c046d08e05b760c1e62122257179b236", None, "6aaea9de4964d516"),
    ("fp32", [], {"const": 1.0}, [], "ebad0256b022afba37234324a9572261", "67e605b2f875f3f7faffa2a64292b2c0", None, "591ef4e963e120d4"),
    ("int64", [5], {"int": [0, 1000, 7]}, [], "80f9ff719a19d9ee6bb09a2ca68e6e6d", "e74fe75e2014b2820450b599d7481241", None, "3fa7ab848b34ca4f"),
    ("bf16", [3, 131], {"normal": 2}, [], "656443b7d9ceccdd708bef0a2a5b48ae", "a6674d1757c64d1682584201eff8bd2d", None, "7197f2e76d4d92f7"),
    ("fp32", [4, 32], {"uniform": 3}, [], "637f363686bfe4505b0cb9d04f3cf2fe", "5c001f5dee0f1ae4da48da7398ae29c7", None, "cb7e0fad4d472fe1"),
    ("fp16", [2, 64], {"const": -0.0}, [{"mask": {"rows": [1]}, "change": {"byte": 255}}], "80bdc5705a51798ae9b1f99f51589252",
     "b9a352ed5f057be3ae8ae26fd97ecfb3", "cafb62ae312d50316d26eac16a1fb15e", "51dd14fa8e78a650"),
    ("bf16", [0, 256], {"normal": 1}, [], "1550c9ebb9aaf8f1f4664608e8514375", "0" * 32, None, "0" * 16),
]


def test_digest_vectors_through_a_spec():
    events, _, _ = d.record(d.spec([d.op(outs=[d.tensor("x", v[1], v[0], fill=v[2], edit=v[3])]) for v in VECTORS]))
    for e, (dtype, _, _, _, printed, positional, value, multiset) in zip(events, VECTORS):
        t = e["tensors"][0]
        got = (t["printed"], t["sums"]["positional"], t["sums"]["value"], t["sums"]["multiset"])
        assert got == (printed, positional, value or positional, multiset), (dtype, got)
    assert (events[5]["tensors"][0]["sums"]["nan"], events[5]["tensors"][0]["sums"]["negzero"]) == (64, 64)


def test_the_comparison_can_fail():
    """A reference with one planted fault is noticed."""
    good = ref.half_even
    ref.half_even = lambda x: x.numerator // x.denominator
    try:
        compare([d.tensor("x", SHAPE, "bf16", fill={"normal": 1})])
        raise RuntimeError("a wrong reference went unnoticed")
    except AssertionError:
        pass
    finally:
        ref.half_even = good


if __name__ == "__main__":
    d.run(dict(globals()))
