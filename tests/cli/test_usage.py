"""Help, versions, what is not built, doctor."""
import json
import re
import subprocess

import rlk
from rlk import RLKAUDIT, RLKREC, SOURCE, Case, clean_env

COMMANDS = ["run", "ls", "info", "verify", "seal", "synth", "rm", "doctor", "pack", "unpack"]
AUDIT = re.findall(r"^  ([a-z-]+) (?!.*not built yet)", subprocess.check_output([RLKAUDIT, "--help"], text=True), re.M)


class Usage(Case):
    def test_help_fits_a_screen(self):
        for what in ([], *([c] for c in COMMANDS)):
            done = self.expect(self.rec(*what, "--help"), 0, out="usage: rlkrec")
            lines = done.out.splitlines()
            self.assertLessEqual(len(lines), 24, what)
            self.assertLessEqual(max(map(len, lines)), 110, what)
            self.assertEqual(done.err, "")

    def test_version(self):
        for what in ([], *([c] for c in COMMANDS)):
            self.assertRegex(self.expect(self.rec(*what, "--version"), 0).out, r"^rlkrec \d+\.\d+\.\d+ \(recording format 1\.1\)\n$")

    def test_mistakes(self):
        self.expect(self.rec(), 2, err="usage")
        for what in (["frobnicate"], ["pack"], ["unpack"], ["ls", "a", "b"], ["info", "--nope"], ["rm"], ["synth"],
                     ["verify", "a", "b"], ["doctor", "x"]):
            done = self.expect(self.rec(*what), 2)
            self.assertEqual(done.out, "")
        self.expect(self.rec("run", "--plan", "x", "--", "true"), 125, err="No such file")

    def test_every_option_is_in_the_contract(self):
        contract = (SOURCE / "docs/cli.md").read_text()
        for program, command in [(RLKREC, c) for c in COMMANDS] + [(RLKAUDIT, c) for c in AUDIT]:
            options = re.findall(r"--([a-z-]+)", self.expect(self.cmd(program, command, "--help"), 0).out)
            self.assertTrue(options or command in ("ls",), command)
            for option in options:
                self.assertTrue(f"--{option}" in contract, f"{program} {command}: --{option}")

    def test_what_is_not_built_says_so(self):
        """Every option whose help says so, and every such subcommand: 2, or 125 for run."""
        for program, commands in ((RLKREC, COMMANDS), (RLKAUDIT, AUDIT)):
            for command in commands:
                for option in re.findall(r"--([a-z-]+).*\(not built yet\)", self.cmd(program, command, "--help").out):
                    done = self.cmd(program, command, f"--{option}", "x", "y", "z")
                    self.expect(done, 125 if command == "run" else 2, err="not built yet")
            for command in re.findall(r"^  ([a-z-]+) .*\(not built yet\)", self.cmd(program, "--help").out, re.M):
                self.expect(self.cmd(program, command, "x"), 2, err="not built yet")

    def test_text_is_escaped(self):
        done = self.expect(self.rec("info", "no\x1b[31m\nsuch"), 2)
        self.assertNotIn("\x1b", done.err)
        self.assertEqual(done.err.count("\n"), 1)


class Doctor(Case):
    def test_lines(self):
        done = self.rec("doctor", "--python", "no-such-python")
        self.expect(done, 0, out=["recorder", "no NVIDIA driver" if "NVIDIA" in done.out else "", "python"])
        checks = json.loads(self.rec("doctor", "--python", "no-such-python", "--json", "-").out)["checks"]
        self.assertLessEqual({"recorder", "adapter", "python", "driver", "cupti", "output", "disk"}, {c["check"] for c in checks})

    def test_fails(self):
        done = self.rec("doctor", "--python", "no-such-python", env=clean_env(RLKREC_LIBRARY="/nothing.so"))
        self.expect(done, 1, out="FAIL  recorder")


if __name__ == "__main__":
    rlk.main()
