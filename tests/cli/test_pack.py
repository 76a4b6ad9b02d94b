"""rlkrec pack and unpack: the same recording again; what is left out is nowhere in the bytes; hostile packs."""
import hashlib
import io
import json
import os
import subprocess
import tarfile
import time

import rlk
from rlk import BUILD, RLKAUDIT, RLKREC, TRAIN, Case

DEEPGREP = str(BUILD / "tests" / "deepgrep")


def tensor(name, fill, **more):
    return {"name": name, "dtype": "fp32", "shape": [8, 64], "fill": fill, **more}


def secret_recording(second=1):
    """A secret of each kind in every place that has one."""
    x = tensor("tensorsecret.weight", {"normal": 1}, payload=True, version="labelsecret", samples=[["samplesecret", 0, 8]])
    y = tensor("y", {"normal": second}, payload=True)
    return {"env": {"NCCL_ALGO": "envsecret"}, "argv": ["train.py", "argvsecret", "/srv/pathsecret/data"], "hosts": ["hostsecret"],
            "libraries": {"torch": "2.0"}, "topology": "/topo/pathsecret", "gpus": [{"uuid": "uuidsecret", "name": "H200"}],
            "events": [{"op": "opsecret::mm", "id": "authorsecret", "module": "modulesecret.layers.0.mlp", "pass": "fwd", "sample": "samplesecret",
                        "attrs": {"note": "attrsecret", "where": "/srv/pathsecret/x"}, "contract": "opsecret/1",
                        "launches": [{"kernel": "kernelsecret_128", "attrs": {"k": "attrsecret"}}], "in": [x], "out": [y]},
                       {"collective": "all_reduce", "group": "groupsecret", "members": ["membersecret", "b"], "module": "modulesecret",
                        "in": [tensor("i", {"normal": 3}), tensor("j", {"normal": 4})], "out": [tensor("i", {"normal": 5}), tensor("j", {"normal": 6})]},
                       {"weights": "labelsecret", "side": "trainer", "tensors": [tensor("tensorsecret.weight", {"normal": 1})]},
                       {"request": "requestsecret", "tokens": [71234567890123], "policy_versions": ["labelsecret"]},
                       {"metric": "metricsecret", "value": 1.5},
                       {"leaf": "tensorsecret", "reference": "/data/pathsecret/f#leafsecret", "tensors": [tensor("tensorsecret", {"normal": 9})]},
                       {"readback": "casesecret", "implementation": "kernelsecret_128", "contract": "opsecret/1", "calls": 1, "module": "modulesecret"}]}


SECRETS = {"names": ["modulesecret", "tensorsecret", "labelsecret", "samplesecret", "authorsecret", "attrsecret", "groupsecret", "membersecret", "requestsecret",
                     "metricsecret", "leafsecret", "casesecret"],
           "ops": ["opsecret", "kernelsecret"], "paths": ["pathsecret"], "environment": ["envsecret", "argvsecret", "hostsecret", "uuidsecret"]}


def varint(n):
    """A signed number as docs/format.md stores it, as an argument."""
    n, out = n * 2, []
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    return os.fsdecode(bytes([*out, n]))


TOKEN = varint(71234567890123)


def tar_of(entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data, *kind in entries:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if kind:
                info.type, info.linkname, info.size = kind[0], "/etc/passwd", 0
            tar.addfile(info, io.BytesIO(data) if info.size else None)
    return out.getvalue()


def zstd(data):
    return subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True).stdout


def index(*names, schema="rlk.pack/1"):
    return ("rlkpack.json", json.dumps({"schema": schema, "recordings": list(names)}).encode())


class Pack(Case):
    def audit(self, *argv):
        return self.cmd(RLKAUDIT, *argv)

    def holds(self, needle, *paths):
        done = self.cmd(DEEPGREP, needle, *paths)
        self.assertIn(done.returncode, (0, 1), done.err)
        return done.returncode == 0

    def files(self, path):
        return {str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(path.rglob("*")) if p.is_file() and p.name != "lock.mdb"}

    def test_the_same_again(self):
        self.expect(self.rec("run", "-q", "-o", "a", "--payload", "op=wgrad.sum", "--", TRAIN, "--steps", "2"), 0)
        self.expect(self.rec("pack", "a", "-o", "a.rlkpack"), 0, out="a.rlkpack: 1 recording")
        self.expect(self.rec("unpack", "a.rlkpack", "-o", "."), 2, err="exists")  # a.rlk is there
        (self.dir / "new").mkdir()
        self.expect(self.rec("unpack", "a.rlkpack", "-o", "new"), 0, out="new/a.rlk")
        self.assertEqual(self.files(self.dir / "a.rlk"), self.files(self.dir / "new/a.rlk"))
        self.expect(self.rec("verify", "new/a"), 0)
        self.expect(self.audit("first-diff", "a", "new/a"), 0, out="IDENTICAL")
        self.assertEqual(list(self.dir.glob("*.??????")), [])  # nothing temporary left

    def test_names_a_tool_reads(self):
        self.synth("a")
        self.expect(self.rec("pack", "a", "-o", "p"), 0)
        data = subprocess.run(["zstd", "-dqc", self.dir / "p"], capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            self.assertEqual(tar.getnames(), ["rlkpack.json", "a.rlk/SEAL", "a.rlk/manifest.json", "a.rlk/rank-00000.pid-0/data.mdb"])

    def unpacked(self, *argv):
        """Packs, unpacks, gives the pack and all files made."""
        self.expect(self.rec("pack", *argv, "-o", "p"), 0)
        subprocess.run(["rm", "-rf", self.dir / "out"], check=True)
        (self.dir / "out").mkdir()
        self.expect(self.rec("unpack", "p", "-o", "out"), 0)
        return [p for p in [self.dir / "p", *sorted((self.dir / "out").rglob("*"))] if p.is_file()]

    def test_planted_secrets_are_absent(self):
        a = self.synth("a", **secret_recording())
        whole = self.unpacked(a)
        for secrets in SECRETS.values():  # without cleaning each is found: the search can find them
            for secret in secrets:
                self.assertTrue(self.holds(secret, *whole), secret)
        for what, secrets in SECRETS.items():
            left = self.unpacked(a, "--redact", what)
            for secret in secrets:
                self.assertFalse(self.holds(secret, *left), (what, secret))
            self.assertEqual(json.loads((self.dir / "out" / next((self.dir / "out").iterdir()).name / "manifest.json").read_text())["redacted"], [what])
            self.assertEqual(self.expect(self.rec("verify", next((self.dir / "out").iterdir())), 0).returncode, 0)
        left = self.unpacked(a, "--redact", "all")
        for secret in sum(SECRETS.values(), []):
            self.assertFalse(self.holds(secret, *left), secret)
        self.assertIn("recording-1.rlk", str(left))
        text = self.expect(self.rec("info", "out/recording-1", "--events"), 0).out
        self.assertNotIn("secret", text)
        self.assertIn(".weight", text)  # readers go by it
        self.assertRegex(text, r"n[0-9a-f]{12}\.n[0-9a-f]{12}\.0\.n[0-9a-f]{12}")

    def test_values(self):
        """Bytes of tensors and tokens stay behind; the copy is the same recording to first-diff."""
        spec = secret_recording()
        spec["events"][0]["out"][0]["fill"] = {"const": {"bits": 0x41424344}}  # "DCBADCBA..."
        a = self.synth("a", **spec)
        self.assertTrue(self.holds("DCBADCBADCBA", *self.unpacked(a)))
        self.assertTrue(self.holds(TOKEN, *self.unpacked(a)))
        left = self.unpacked(a, "--redact", "values")
        self.assertFalse(self.holds("DCBADCBADCBA", *left))
        self.assertFalse(self.holds(TOKEN, *left))
        events = [e for e in spec["events"] if "request" not in e]
        a = self.synth("plain", events=events)
        self.unpacked(a, "--redact", "values,environment")
        self.expect(self.audit("first-diff", a, "out/recording-1"), 0, out="IDENTICAL")
        self.expect(self.audit("bisect", a, "out/recording-1"), 0)

    def token_text(self, rec):
        return self.expect(self.rec("info", rec, "--events"), 0).out

    def test_packed_together_they_compare(self):
        a = self.synth("a", **secret_recording())
        spec = secret_recording(second=2)
        b = self.synth("b", **spec)
        before = json.loads(self.expect(self.audit("first-diff", a, b, "--json", "-"), 1).out)
        self.unpacked(a, b, "--redact", "all")
        after = json.loads(self.expect(self.audit("first-diff", "out/recording-1", "out/recording-2", "--json", "-"), 1).out)
        for key in ("step", "pass", "call", "occurrence", "role", "index", "root"):
            self.assertEqual(before["first"][key], after["first"][key])
        self.assertEqual((before["downstream"], len(before["roots"]), before["scope"]["compared"]), (after["downstream"], len(after["roots"]), after["scope"]["compared"]))
        self.assertEqual(before["first"]["a"]["digest"], after["first"]["a"]["digest"])
        self.unpacked(a, "--redact", "names")  # another pack, another key
        self.expect(self.rec("pack", a, "-o", "q", "--redact", "names"), 0)
        (self.dir / "other").mkdir()
        self.expect(self.rec("unpack", "q", "-o", "other"), 0)
        self.assertNotEqual(self.token_text("out/recording-1"), self.token_text("other/recording-1"))

    def test_retention_and_cut_off(self):
        """Sequence numbers and what END says stay; a recording without END stays one."""
        self.expect(self.rec("run", "-q", "-o", "kept", "--keep-last", "2", "--", TRAIN, "--steps", "4000", "--micro-batches", "1"), 0)
        before = self.expect(self.rec("info", "kept", "--events", "-n", "50"), 0).out
        self.unpacked("kept", "--redact", "values,environment")
        self.assertEqual(before, self.expect(self.rec("info", "out/recording-1", "--events", "-n", "50"), 0).out)
        self.assertFalse(before.startswith("#0 "))  # something was removed
        self.expect(self.audit("first-diff", "kept", "out/recording-1"), 0, out="IDENTICAL")
        coverage = [json.loads(self.expect(self.rec("info", r, "--json", "-"), 0).out)["coverage"] for r in ("kept", "out/recording-1")]
        for key in ("dropped", "planes", "launches_seen"):
            self.assertEqual(coverage[0][key], coverage[1][key], key)
        cut = self.synth("cut", complete=False)
        self.unpacked(cut, "--redact", "names")
        self.expect(self.rec("info", "out/recording-1"), 4)
        self.expect(self.rec("verify", "out/recording-1"), 4)

    def test_hostile_packs(self):
        a = self.synth("a")
        manifest, data = (a / "manifest.json").read_bytes(), (a / "rank-00000.pid-0/data.mdb").read_bytes()
        good = [index("a.rlk"), ("a.rlk/manifest.json", manifest), ("a.rlk/rank-00000.pid-0/data.mdb", data)]
        (self.dir / "out").mkdir()
        def attempt(raw, rc=2):
            (self.dir / "bad").write_bytes(raw)
            done = self.expect(self.rec("unpack", "bad", "-o", "out"), rc)
            if rc:
                self.assertEqual((list((self.dir / "out").iterdir()), done.err.count("\n")), ([], 1), done.err)
            return done.err
        attempt(zstd(self.trim(tar_of(good))), 0)
        subprocess.run(["rm", "-rf", self.dir / "out/a.rlk"], check=True)
        for name in ("../evil", "/etc/evil", "a.rlk/../../evil", "a.rlk/evil", "b.rlk/manifest.json", "a.rlk/rank-00000.pid-0/lock.mdb", "a.rlk/./manifest.json",
                     "a.rlk/rank-00000.pid-0/../SEAL", "a.rlk/rank-0.pid-/data.mdb", "evil", "a.rlk/rank-00000.pid-0/data.mdb/x"):
            attempt(zstd(self.trim(tar_of([*good, (name, b"x")]))))
        self.assertFalse((self.dir / "evil").exists())
        for names in (["../a.rlk"], ["a/b.rlk"], [".rlk"], ["a"], [".x.rlk"], ["a\n.rlk"], [1], [], ["a\0.rlk"], ["a" * 300 + ".rlk"], ["a.rlk"] * 1001):
            attempt(zstd(self.trim(tar_of([index(*names), *good[1:]]))))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            attempt(zstd(self.trim(tar_of([*good, ("a.rlk/SEAL", b"", kind)]))))
        self.assertIn("twice", attempt(zstd(self.trim(tar_of([*good, good[1]])))))
        self.assertIn("without its manifest", attempt(zstd(self.trim(tar_of([good[0], good[2]])))))
        self.assertIn("without its manifest", attempt(zstd(self.trim(tar_of([index("a.rlk", "b.rlk"), *good[1:]])))))
        attempt(zstd(self.trim(tar_of(good[1:]))))
        attempt(zstd(self.trim(tar_of([index("a.rlk", schema="rlk.pack/2"), *good[1:]]))))
        attempt(zstd(self.trim(tar_of([("rlkpack.json", b"{"), *good[1:]]))))
        packed, raw = zstd(self.trim(tar_of(good))), self.trim(tar_of(good))
        for cut in (0, 1, 4, 100, len(packed) // 2, len(packed) - 1):
            attempt(packed[:cut])
        for cut in (0, 512, 1000, len(raw) - 1024, len(raw) - 512, len(raw) - 1):
            attempt(zstd(raw[:cut]))
        for at in (5, len(packed) // 2, len(packed) - 2):
            attempt(packed[:at] + bytes([packed[at] ^ 0x40]) + packed[at + 1:])
        self.assertIn("behind its end", attempt(packed + b"x"))
        self.assertIn("behind its end", attempt(zstd(raw + b"x" * 512)))
        attempt(raw)  # not packed
        header = bytearray(raw)
        header[148:156] = b"0000000\0"  # the checksum of a header
        attempt(zstd(bytes(header)))
        bomb = [*good[:2], ("a.rlk/rank-00000.pid-0/data.mdb", b"\0" * (300 << 20)), ("a.rlk/SEAL", b"x")]
        self.assertIn("--max-size", attempt(zstd(self.trim(tar_of(bomb)))))
        huge = bytearray(self.trim(tar_of(good)))
        at = raw.index(b"a.rlk/rank") & ~511
        huge[at + 124:at + 136] = b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff"
        huge[at + 148:at + 156] = b" " * 8
        huge[at + 148:at + 156] = b"%06o\0 " % sum(huge[at:at + 512])
        attempt(zstd(bytes(huge)))
        self.expect(self.rec("unpack", "bad", "-o", "nowhere"), 2)

    def trim(self, raw):
        """Python pads to 10 KiB; ours ends with two blocks of zeros."""
        at = len(raw)
        while raw[at - 512:at] == b"\0" * 512:
            at -= 512
        return raw[:at] + b"\0" * 1024

    def test_usage(self):
        self.synth("a")
        for argv in (["pack", "a"], ["pack", "a", "-o", "p", "--redact", "everything"], ["pack", "a", "-o", "p", "--redact", "names,"], ["pack", "nowhere", "-o", "p"],
                     ["pack", "-o", "p"], ["pack", "a", "a", "-o", "p"], ["pack", "a", "-o", "no/dir"], ["unpack"], ["unpack", "nowhere"], ["unpack", "."],
                     ["unpack", "a.json"], ["unpack", "a.json", "--max-size", "x"]):
            self.expect(self.rec(*argv), 2)
        (self.dir / "a.rlk" / "notes.txt").write_text("mine")
        self.expect(self.rec("pack", "a", "-o", "p"), 2, err="no part of a recording")
        self.assertFalse((self.dir / "p").exists())
        self.assertEqual(list(self.dir.glob("p.*")), [])

    def test_a_running_recording_is_refused(self):
        a = self.synth("a")
        manifest = json.loads((a / "manifest.json").read_text())
        del manifest["exit"]
        sleeper = subprocess.Popen([RLKREC, "run", "-q", "-o", "live", "--", "sleep", "30"], cwd=self.dir, env=rlk.clean_env())
        try:
            while not (self.dir / "live.rlk/manifest.json").exists() and sleeper.poll() is None:
                time.sleep(0.05)
            self.expect(self.rec("pack", "live", "-o", "p"), 2, err="still records")
        finally:
            sleeper.terminate()
            sleeper.wait()


if __name__ == "__main__":
    rlk.main()
