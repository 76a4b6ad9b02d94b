"""The page of a first-diff in headless Chromium: no script runs, nothing is loaded, nothing is complained of, both colour
schemes, the keyboard, print. Skips (77) where there is no Chromium.

usage: test_report_browser.py BUILD_DIR [--shot JSON_OR_HTML PNG [light|dark] [WIDTH] [HEIGHT]]
"""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

import report_result

BUILD = pathlib.Path(sys.argv[1]).resolve()
RLKAUDIT = BUILD / "bin" / "rlkaudit"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "chrome-headless-shell")

HOSTILE = ["<script>window.hit=1;alert(1)</script>", "\"><img src=http://127.0.0.1:9/x onerror=alert(1)>", "' onmouseover='alert(1)",
           "javascript:alert(1)", "</style><script>alert(1)</script>", "</title><svg onload=alert(1)>", "\x1b]0;x\x07\x1b[31m",
           "\u202egnp.exe\u2066", "<iframe src=http://127.0.0.1:9/></iframe>", "<link rel=stylesheet href=http://127.0.0.1:9/a.css>",
           "<meta http-equiv=refresh content=\"0;url=http://127.0.0.1:9/\">", "x" * 10240, "<base href=http://127.0.0.1:9/>"]


class Browser:
    """Chromium spoken to through a pipe (the DevTools protocol, messages that end in NUL)."""

    def __init__(self, program, home):
        theirs_in, self.out = os.pipe()
        self.inp, theirs_out = os.pipe()
        shell = f"exec 3<&{theirs_in} 4>&{theirs_out}; exec \"$@\""
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "-", program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
             f"--user-data-dir={home}", "--remote-debugging-pipe", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.rest, self.number, self.events = b"", 0, []
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self.page(f"{domain}.enable")

    def read(self, seconds):
        """One message, or None when none comes in time."""
        end = time.monotonic() + seconds
        while b"\0" not in self.rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.inp], [], [], left)[0]:
                return None
            more = os.read(self.inp, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read(60)
            if answer is None:
                raise RuntimeError(f"no answer to {method}")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.take(answer)

    def take(self, event):
        self.events.append(event)
        if event.get("method") == "Page.javascriptDialogOpening":  # else nothing goes on
            self.number += 1
            os.write(self.out, json.dumps({"id": self.number, "method": "Page.handleJavaScriptDialog", "params": {"accept": True},
                                           "sessionId": self.session}).encode() + b"\0")

    def page(self, method, **params):
        return self.call(method, self.session, **params)

    def value(self, expression):
        result = self.page("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def open(self, path):
        """Loads a file; what happened meanwhile, and shortly after."""
        self.events = []
        self.page("Page.navigate", url=f"file://{path}")
        end = time.monotonic() + 30
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            event = self.read(end - time.monotonic())
            if event is None:
                raise RuntimeError(f"{path} does not load")
            if event.get("method"):
                self.take(event)
        end = time.monotonic() + .3
        while time.monotonic() < end:
            event = self.read(end - time.monotonic())
            if event and event.get("method"):
                self.take(event)
        return self.complaints(path)

    def complaints(self, path):
        out = []
        for e in self.events:
            method, params = e.get("method"), e.get("params", {})
            if method in ("Page.javascriptDialogOpening", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded",
                          "Audits.issueAdded"):
                out.append(f"{method} {json.dumps(params)[:300]}")
            if method == "Network.requestWillBeSent" and params["request"]["url"].split("#")[0] != f"file://{path}":
                out.append(f"request {params['request']['url'][:200]}")
        return out

    def scheme(self, name, media=""):
        self.page("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": name}])

    def key(self, key, code, text=None):
        for kind in ("keyDown", "keyUp"):
            self.page("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code,
                      **({"text": text} if text and kind == "keyDown" else {}))

    def shot(self, out, width=1180, height=0):
        self.page("Emulation.setDeviceMetricsOverride", width=width, height=height or 800, deviceScaleFactor=1, mobile=False)
        if not height:
            height = min(8000, self.value("document.documentElement.scrollHeight"))
        data = self.page("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                         clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})["data"]
        pathlib.Path(out).write_bytes(base64.b64decode(data))

    def close(self):
        try:
            self.call("Browser.close")
        except (OSError, RuntimeError):
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def render(result, path):
    source = path.with_suffix(".json")
    source.write_text(json.dumps(result))
    done = subprocess.run([RLKAUDIT, "show", source, "--html", path], timeout=60, check=False)
    assert done.returncode == result["exit"], done.returncode
    return path


def test_the_browser_tells(browser, folder):
    """The means of this test can fail: scripts, requests and complaints are seen where there are some."""
    bad = folder / "bad.html"
    for body, sign in (("<script>alert(1)</script>", "javascriptDialogOpening"), ("<img src=http://127.0.0.1:9/x>", "request http"),
                       ("<script>console.log(1)</script>", "consoleAPICalled"), ("<script>throw 1</script>", "exceptionThrown"),
                       ("<meta http-equiv=Content-Security-Policy content=\"default-src 'none'\"><style>p{}</style>", "entryAdded")):
        bad.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{body}</body>")
        seen = browser.open(bad)
        assert any(sign in line for line in seen), (body, seen)


def test_plain(browser, folder):
    path = render(report_result.result(), folder / "plain.html")
    assert browser.open(path) == []
    assert browser.value("document.scripts.length") == 0
    assert browser.value("document.querySelectorAll('svg').length") == 5
    # the sheet is in force: its hash is right
    assert browser.value("getComputedStyle(document.querySelector('section')).display") == "grid"


def test_schemes(browser, folder):
    path = render(report_result.result(), folder / "schemes.html")
    grounds = {}
    for name in ("light", "dark"):
        browser.scheme(name)
        assert browser.open(path) == []
        grounds[name] = browser.value("getComputedStyle(document.body).backgroundColor")
        # every text stands out from what it stands on: contrast of 4.5 at least
        worst = browser.value("""(() => {
          const lum = c => { const v = c.map(x => { x /= 255; return x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4; });
                             return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
          const rgb = s => s.match(/[\\d.]+/g).map(Number);
          let worst = [99, ''];
          for (const e of document.querySelectorAll('h1,h2,h3,p,td,th,dt,dd,li,a,code,span,summary,figcaption,b')) {
            if (!e.offsetParent || !e.textContent.trim()) continue;
            let g = e, back = rgb(getComputedStyle(e).backgroundColor);
            while (back.length > 3 && back[3] === 0 && g.parentElement) { g = g.parentElement; back = rgb(getComputedStyle(g).backgroundColor); }
            const a = lum(rgb(getComputedStyle(e).color)), b = lum(back), c = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
            if (c < worst[0]) worst = [c, e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 40)];
          }
          return worst; })()""")
        assert worst[0] >= 4.5, (name, worst)
    browser.scheme("")
    assert grounds["light"] != grounds["dark"], grounds


def test_hostile(browser, folder):
    for i, hostile in enumerate(HOSTILE):
        path = render(report_result.every_string(report_result.result(), lambda s, h=hostile: h), folder / f"hostile{i}.html")
        assert browser.open(path) == [], hostile[:60]
        assert browser.value("typeof window.hit") == "undefined" and browser.value("location.protocol") == "file:", hostile[:60]
        assert browser.value("document.querySelectorAll('script,img,iframe,link,base,object,embed').length") == 0, hostile[:60]
        # nor does hovering or clicking do anything
        browser.events = []
        browser.value("document.querySelectorAll('*').forEach(e => { e.dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));"
                      " if (e.tagName !== 'A') e.dispatchEvent(new MouseEvent('click', {bubbles: true})); })")
        assert browser.complaints(path) == [], hostile[:60]
        wide = browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, (hostile[:60], wide)


def test_policy_alone(browser, folder):
    """Were an escape forgotten, the policy still keeps a script from running and an image from being loaded."""
    path = render(report_result.result(), folder / "policy.html")
    text = path.read_text()
    path.write_text(text.replace("</main>", "<script>window.hit=1;alert(1)</script><img src=http://127.0.0.1:9/x onerror=alert(1)></main>"))
    seen = browser.open(path)
    assert any("Content Security Policy" in line or "ContentSecurityPolicy" in line for line in seen), seen
    assert not any("Dialog" in line for line in seen), seen
    assert browser.value("typeof window.hit") == "undefined"


def test_keyboard(browser, folder):
    browser.open(render(report_result.result(), folder / "keys.html"))
    browser.page("Page.bringToFront")
    browser.key("Tab", 9)
    assert browser.value("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(60):
        browser.key("Tab", 9)
        reached.add(browser.value("document.activeElement.tagName"))
        if browser.value("document.activeElement.tagName === 'SUMMARY' && !document.activeElement.parentElement.open"):
            break
    assert {"A", "SUMMARY"} <= reached, reached
    browser.key("Enter", 13, "\r")
    assert browser.value("document.activeElement.parentElement.open") is True
    browser.key("Enter", 13, "\r")
    assert browser.value("document.activeElement.parentElement.open") is False


def test_print(browser, folder):
    path = render(report_result.result(), folder / "print.html")
    browser.open(path)
    browser.scheme("dark", media="print")
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert browser.value("[...document.querySelectorAll('details > p')].every(e => e.getBoundingClientRect().height > 0)")
    browser.scheme("", media="")
    pdf = base64.b64decode(browser.page("Page.printToPDF", printBackground=True)["data"])
    assert pdf[:5] == b"%PDF-"


def test_narrow(browser, folder):
    browser.open(render(report_result.result(), folder / "narrow.html"))
    for width in (360, 800, 1600):
        browser.page("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        wide = browser.value("document.documentElement.scrollWidth")
        assert wide <= width, (width, wide)
    browser.page("Emulation.clearDeviceMetricsOverride")


def shoot(browser, folder, args):
    source, out, scheme = pathlib.Path(args[0]).resolve(), args[1], args[2] if len(args) > 2 else "light"
    if source.suffix == ".json":
        page = folder / "shot.html"
        subprocess.run([RLKAUDIT, "show", source, "--html", page], check=False)
        source = page
    browser.scheme(scheme)
    print(browser.open(source))
    browser.shot(out, *map(int, args[3:]))


def main():
    program = next((p for p in map(shutil.which, NAMES) if p), None)
    if not program:
        print("no Chromium: looked for", ", ".join(NAMES))
        return 77
    if not RLKAUDIT.exists():
        print("rlkaudit is not built")
        return 77
    with tempfile.TemporaryDirectory(prefix="rlkpage", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        browser = Browser(program, folder / "home")
        try:
            if sys.argv[2:3] == ["--shot"]:
                shoot(browser, folder, sys.argv[3:])
                return 0
            for test, function in sorted(globals().items()):
                if test.startswith("test_"):
                    function(browser, folder)
                    print("ok", test)
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
