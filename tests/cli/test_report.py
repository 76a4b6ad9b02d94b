"""The text and the page of a first-diff: what they say, that they fit, and that nothing from a recording steers them."""
import base64
import copy
import fcntl
import hashlib
import html.parser
import json
import os
import pty
import random
import re
import struct
import termios
import unicodedata

import report_result
import rlk
from rlk import RLKAUDIT, Case, clean_env

TEXT = """\
DIVERGED   A run12.rlk  B run13.rlk  compared 48,211 tensors  759 not comparable
first      rank 3-5,9  step 1  actor_train bwd  event 20417  ROOT  all 3 inputs equal
           1 of 2 outputs equal
           model.layers.17.attn.core  flash_attn_bwd  output 0 "dQ"  bf16 [8192,32,128]
A          0123456789abcdef0123456789abcdef  flash_bwd_dq_dk_dv_loop_seqk_parallel
           grid [64,1,32] block [128,1,1]  smem 98304
B          fedcba9876543210fedcba9876543210  flash_bwd_dq_dk_dv_loop_seqk_parallel
           grid [32,1,32] block [128,1,1]  smem 98304  reduce_kernel  grid [64,1,32] block [128,1,1]
           smem 98304
differs    612,004 of 33,554,432 elements (1.82 %)  rows  at most 5 ulp  at most 0.000976562
           2 NaN on a side  first at [0,3,17]  by ulp:  equal in value: 3  1: 600,000  2-3: 11,000
           4-15: 999  put together from 8 parts in A, 2 in B  A cut at row 65536
           A cut at column 32,64,96  B cut at column 64
map        .1346799.1346799.1346799.1346799.1346799.1346799.1346799.1346799
           .1346799.1346799.1346799.1346799.1346799.1346799.1346799.1346799
           .1346799.1346799.1346799.1346799.1346799.1346799.1346799.1346799
           .1346799.1346799.1346799.1346799.1346799.1346799.1346799.1346799
why        every input is equal on both sides, this output is not
cause      atomic-order  confidence medium  also possible: race
           + the same kernel and the same inputs give another output
           + relaunched 4 times on rank 3: 4 distinct outputs
           - not dtype: bf16 on both sides
           - not rng: no generator was used before it on this thread
try        set FLASH_ATTENTION_DETERMINISTIC=1, or deterministic=True
roots      2; 115 differences downstream  4 of them not repeatable themselves
also       step 2 actor_train bwd  model.layers.3.mlp  aten::mm  atomic-order
ranks      a root on 0,3-5,9  none of their own on 1,2,6-8,10-15
not        not-digested 759
coverage   A:  48,970 tensors  30,000 by reference  759 not digested  899 of 900 launches  0 dropped
           B:  48,970 tensors  30,000 by reference  759 not digested  899 of 900 launches  3 dropped
differs in env.OMP_NUM_THREADS  A 2  B 4
           gpus  A ["H200"]  B -
notes      B has no seal
           1 events only in B, 0 only in A: not differences by themselves
next: rlkaudit explain run12.rlk run13.rlk --event 20417 --rank 3 --elements
"""

VOID = {"meta", "br", "hr", "img", "link", "input"}
ELEMENTS = {"html", "head", "meta", "title", "style", "body", "a", "header", "h1", "h2", "h3", "small", "p", "b", "code", "dl", "div",
            "dt", "dd", "ul", "li", "ol", "span", "nav", "main", "section", "svg", "rect", "path", "text", "details", "summary",
            "table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "i", "pre", "mark", "br", "progress", "footer"}


class Page(html.parser.HTMLParser):
    """Nesting, elements, attributes; anything that is not this page's own is an error."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.refs, self.errors, self.style = [], [], [], [], [], ""
        self.policy = None
        self.words = []
        self.feed(text)
        self.close()
        if self.open:
            self.errors.append(f"never closed: {self.open}")
        self.errors += [f"#{r} leads nowhere" for r in self.refs if r not in self.ids]
        self.errors += [f"id {i} twice" for i in set(self.ids) if self.ids.count(i) > 1]

    def handle_starttag(self, tag, attrs, closed=False):
        self.tags.append((tag, tuple(k for k, _ in attrs)))
        inside_svg = "svg" in self.open
        if tag not in ELEMENTS and not (tag == "title" and inside_svg):
            self.errors.append(f"<{tag}>")
        for key, value in attrs:
            if key.startswith("on") or key in ("style", "src", "srcset", "xlink:href", "formaction", "action", "data", "srcdoc"):
                self.errors.append(f"{key}={value!r}")
            if key == "href" and not re.fullmatch(r"#[a-z]+", value):
                self.errors.append(f"href={value!r}")
            if key == "id":
                self.ids.append(value)
            if key == "href":
                self.refs.append(value[1:])
            if key == "aria-labelledby":
                self.refs.append(value)
        attrs = dict(attrs)
        if attrs.get("http-equiv") == "Content-Security-Policy":
            self.policy = attrs["content"]
            if [t for t, _ in self.tags] != ["html", "head", "meta", "meta"]:
                self.errors.append("the policy does not come first")
        if tag not in VOID and not closed:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs, closed=True)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.errors.append(f"</{tag}> out of place")

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.words.append(data)

    def handle_comment(self, data):
        self.errors.append("a comment")

    def unknown_decl(self, data):
        self.errors.append(f"a declaration {data!r}")

    handle_pi = unknown_decl


HOSTILE = ["<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "' onmouseover='alert(1)", "javascript:alert(1)",
           "</style><script>alert(1)</script>", "<!--", "]]>", "&lt;script&gt;", "</title><svg/onload=alert(1)>", "\x1b]0;x\x07\x1b[31m",
           "\u202egnp.exe\u2066", "a\u200b\ufeffb", "\n\r\t\x00"[:3], "${7*7}{{7*7}}", "x" * 10240, "<" * 10240, "\u00e9\u4e2d\U0001f600" * 50]


class Report(Case):
    def save(self, result, name="r.json"):
        (self.dir / name).write_text(json.dumps(result))
        return self.dir / name

    def show(self, result, *args, rc=1, **kw):
        return self.expect(self.cmd(RLKAUDIT, "show", self.save(result), *args, env=clean_env(**kw)), rc)

    def page(self, result, rc=1):
        self.show(result, "--html", "r.html", rc=rc)
        text = (self.dir / "r.html").read_bytes().decode()
        page = Page(text)
        self.assertEqual(page.errors, [])
        return page, text

    # ---- text ----

    def test_text(self):
        done = self.show(report_result.result(), COLUMNS="100")
        self.assertEqual(done.out, TEXT)

    def test_no_line_is_wider_than_the_screen(self):
        for change in (lambda s: s, lambda s: s * 40, lambda s: "\u4e2d" * 300):
            result = report_result.every_string(report_result.result(), change)
            for width in (40, 61, 80, 120, 200):
                lines = self.show(result, COLUMNS=str(width)).out.splitlines()
                for line in lines[:-1]:
                    wide = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)
                    self.assertLessEqual(wide, width, line)
                self.assertTrue(lines[-1].startswith("next: "))
                self.assertLessEqual(len(lines), 100 if width == 40 else 75, width)
        self.assertLessEqual(len(self.show(report_result.result(), COLUMNS="80").out.splitlines()), 40)

    def on_a_terminal(self, columns, **env):
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(self.dir)
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execve(RLKAUDIT, [RLKAUDIT, "show", "r.json"], clean_env(**env))
        out = b""
        while True:
            try:
                more = os.read(fd, 65536)
            except OSError:
                break
            if not more:
                break
            out += more
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 1)
        os.close(fd)
        return out.decode()

    def test_colour_on_a_terminal_only(self):
        self.save(report_result.result())
        plain = self.show(report_result.result(), COLUMNS="80", TERM="xterm").out
        self.assertNotIn("\x1b", plain)
        coloured = self.on_a_terminal(80, TERM="xterm")
        self.assertIn("\x1b[31m", coloured)
        self.assertEqual(re.sub(r"\x1b\[[0-9;]*m", "", coloured).replace("\r\n", "\n"), plain)
        for env in ({"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}):
            self.assertEqual(self.on_a_terminal(80, **env).replace("\r\n", "\n"), plain)
        for line in self.on_a_terminal(52, TERM="dumb").splitlines()[:-1]:
            self.assertLessEqual(len(line), 52)

    def test_texts_do_nothing_on_a_terminal(self):
        for hostile in HOSTILE:
            out = self.show(report_result.every_string(report_result.result(), lambda s: hostile)).out
            self.assertFalse(set(out) & set("\x1b\x07\t\r\u202e\u2066\u200b\ufeff"), repr(out))
            self.assertLess(len(out), 40000)

    # ---- the page ----

    def test_page(self):
        page, text = self.page(report_result.result())
        digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
        self.assertEqual(page.policy, f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'")
        words = " ".join("".join(page.words).split())
        for piece in ("Diverged", "model.layers.17.attn.core", "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210",
                      "flash_bwd_dq_dk_dv_loop_seqk_parallel", "[32,1,32]", "no such launch", "612,004", "600,000", "11,000", "atomic-order", "medium",
                      "relaunched 4 times on rank 3", "bf16 on both sides", "FLASH_ATTENTION_DETERMINISTIC", "env.OMP_NUM_THREADS",
                      "rlkaudit explain run12.rlk run13.rlk --event 20417 --rank 3 --elements", "0.1259765625", "3-5,9", "48,211",
                      "759", "B has no seal", "expired: known since May (ops, until 2026-06-01)", "all_reduce", "brings a difference in", "step 2, update_weights".split(",")[0], "python train.py"):
            self.assertIn(piece, words)
        self.assertNotIn("left out", words)
        self.assertEqual(len([t for t in page.tags if t[0] == "svg"]), 5)
        self.assertEqual((text.count('<path class="cuta"'), text.count('<path class="cutb"')), (8, 2))  # on both maps
        self.assertLess(len(text), 150_000)

    def test_collectives_across_layouts(self):
        """There the grid of ranks by collectives is not drawn, and the page says why."""
        result = report_result.result()
        for mode, said in (("layouts", "Not drawn across layouts"), ("phases", "Not drawn across phases"), ("same", "The columns")):
            words = " ".join("".join(self.page({**result, "mode": mode})[0].words).split())
            self.assertEqual([piece in words for piece in ("Not drawn across layouts", "Not drawn across phases", "The columns")],
                             [piece == said for piece in ("Not drawn across layouts", "Not drawn across phases", "The columns")])

    def test_verdicts(self):
        base = report_result.result()
        empty = {**base, "first": None, "roots": [], "downstream": 0, "masked": 0}
        for verdict, status, word in (("identical", 0, "Identical"), ("incomplete", 4, "Incomplete"), ("accepted_drift", 5, "Accepted drift"),
                                      ("not_comparable", 3, "Not comparable")):
            result = {**empty, "verdict": verdict, "exit": status}
            if status == 3:
                result["not_comparable"] = {"reason": "source", "name": "prompt", "at": report_result.event()}
            page, _ = self.page(result, rc=status)
            self.assertIn(word, "".join(page.words))
            self.show(result, rc=status)

    def test_texts_make_no_markup(self):
        """Whatever the texts are, the page has the same elements and attributes; the text is there, visibly."""
        plain = self.page(report_result.every_string(report_result.result(), lambda s: "plain"))[0].tags
        for hostile in HOSTILE:
            page, text = self.page(report_result.every_string(report_result.result(), lambda s: hostile))
            self.assertEqual(page.tags, plain, hostile[:40])
            self.assertFalse(set(text) & set("\x1b\x07\t\r\u202e\u2066\u200b\ufeff\x00"), hostile[:40])
            self.assertLess(len(text), 1_000_000)
        page, _ = self.page(report_result.every_string(report_result.result(), lambda s: "<b>\x1b\u202e"))
        self.assertIn("<b>\\x1b\\u{202e}", page.words)

    def test_the_checker_finds_markup(self):
        """The test itself can fail: what the page would be if it did not escape."""
        _, text = self.page(report_result.result())
        for bad in ("<script>alert(1)</script>", "<img src=x>", "<p onclick=x></p>", "<a href=\"javascript:x\">y</a>", "<p>", "<!-- -->"):
            self.assertNotEqual(Page(text.replace("</main>", bad + "</main>")).errors, [], bad)

    def test_any_json(self):
        """Keys missing or of another type, numbers out of range: never a crash, never a page that is not whole."""
        rng = random.Random(11)
        odd = [None, True, -1, 0, 1 << 62, 1e308, "", "x", [], {}, [[]], [None], {"a": 1}, [1, -5, 1 << 40], ["."], {"a": {}, "b": {}}]
        base = report_result.result()

        def places(value, path=()):
            yield path
            items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
            for key, one in items:
                yield from places(one, path + (key,))

        every = [p for p in places(base) if p and p[0] != "schema"]
        for _ in range(150):
            result = copy.deepcopy(base)
            for path in rng.sample(every, 6):
                at = result
                try:
                    for key in path[:-1]:
                        at = at[key]
                    if rng.random() < .2:
                        del at[path[-1]]
                    else:
                        at[path[-1]] = copy.deepcopy(rng.choice(odd))
                except (KeyError, IndexError, TypeError):
                    continue
            self.save(result)
            for args in (["--html", "r.html"], []):
                done = self.cmd(RLKAUDIT, "show", "r.json", *args)
                self.assertIn(done.returncode, (0, 1, 2, 3, 4, 5), (done.returncode, done.err, result))
                self.assertEqual(done.err, "", result)  # a sanitizer's report, say
            self.assertEqual(Page((self.dir / "r.html").read_text()).errors, [])

    def test_size(self):
        """1,024 ranks, all lists full, long names: under 2 MB, and it says what was left out."""
        result = report_result.result()
        name = "model.layers.17." + "<&>" * 3000
        ranks = list(range(1024))
        result["roots"] = [report_result.diff(module=name, op=name, ranks=ranks[i % 7::7]) for i in range(1000)]
        result["per_rank"] = [{"rank": r, "first": report_result.diff(op=f"op{r}")} for r in ranks]
        result["where"].update(steps=list(range(1024)), steps_total=100000, layers=[f"layers.{i}" for i in range(512)], layers_total=900,
                               cells=[[i // 8, 0, i % 512, 1, i] for i in range(4096)], cells_total=50000, ranks=ranks, collectives_total=5000,
                               collectives=[{"step": i, "phase": "p", "module": name, "op": name, "root": False, "ranks": "iob=" * 256}
                                            for i in range(96)])
        result["environment"] = [{"key": name, "a": name, "b": name}] * 500
        page, text = self.page(result)
        words = " ".join("".join(page.words).split())
        self.assertLess(len(text), 2_000_000)
        for piece in ("entries of the lists above were left out", "Each column stands for up to", "Each row stands for up to",
                      "more ranks have other first roots", "The first 96 of 5,000 collectives", "later places that differ are not drawn"):
            self.assertIn(piece, words)

    # ---- show and first-diff ----

    def test_show(self):
        self.expect(self.cmd(RLKAUDIT, "show", "nowhere.json"), 2, err="nowhere.json")
        (self.dir / "x.json").write_text("{\"schema\": \"rlk.ls/1\"}")
        self.expect(self.cmd(RLKAUDIT, "show", "x.json"), 2, err="rlk.ls/1")
        (self.dir / "y.json").write_text("[1]")
        self.expect(self.cmd(RLKAUDIT, "show", "y.json"), 2)
        (self.dir / "z.json").write_text("{")
        self.expect(self.cmd(RLKAUDIT, "show", "z.json"), 2)
        done = self.cmd(RLKAUDIT, "show", "-", stdin=json.dumps(report_result.result()).encode())
        self.expect(done, 1, out="DIVERGED")

    def test_first_diff_html(self):
        tensor = {"name": "y", "dtype": "fp32", "shape": [4, 8], "fill": {"normal": 2}, "payload": True}
        op = {"op": "aten::mm", "module": "layers.0", "out": [tensor]}
        self.synth("a", events=[op])
        self.synth("b", events=[dict(op, out=[{**tensor, "edit": [{"mask": {"range": [3, 5]}, "change": {"ulp": 4}}]}])])
        done = self.expect(self.cmd(RLKAUDIT, "first-diff", "a", "b", "--html", "d.html", "--json", "d.json"), 1, out="DIVERGED")
        whole = (self.dir / "d.html").read_text()
        self.assertEqual(Page(whole).errors, [])
        self.assertIn(">4-7<", whole)
        self.assertEqual(self.cmd(RLKAUDIT, "show", "d.json").out, done.out)
        self.expect(self.cmd(RLKAUDIT, "show", "d.json", "--html", "e.html"), 1)
        self.assertEqual((self.dir / "e.html").read_text(), whole)
        done = self.expect(self.cmd(RLKAUDIT, "first-diff", "a", "b", "--html", "-"), 1)
        self.assertEqual(done.out, whole)
        self.expect(self.cmd(RLKAUDIT, "first-diff", "a", "b", "--html", "-", "--json", "-"), 2, err="stdout")
        self.expect(self.cmd(RLKAUDIT, "first-diff", "a", "b", "--html", "no/where.html"), 2)
        self.expect(self.cmd(RLKAUDIT, "first-diff", "a", "a", "--html", "f.html"), 0, out="IDENTICAL")
        self.assertIn("No tensor differs", (self.dir / "f.html").read_text())


if __name__ == "__main__":
    rlk.main()
