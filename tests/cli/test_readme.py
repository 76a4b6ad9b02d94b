"""Every command of README.md, as it is written there, in order; and each make target that it names exists.

Lines "$ COMMAND" of its console blocks run in one scratch directory that stands for the clone. `make` and what needs a
training script of the reader's are looked at, not run.
"""
import re

import rlk
from rlk import BUILD, SOURCE, Case, clean_env

TEXT = (SOURCE / "README.md").read_text()
BLOCKS = re.findall(r"^```console\n(.*?)^```", TEXT, re.S | re.M)
COMMANDS = [line[2:] for block in BLOCKS for line in block.splitlines() if line.startswith("$ ")]


class Readme(Case):
    def test_commands(self):
        self.assertGreater(len(COMMANDS), 5)
        (self.dir / "build").mkdir()
        (self.dir / "build" / "release").symlink_to(BUILD)
        (self.dir / "tests").symlink_to(SOURCE / "tests")
        env = clean_env()
        env["PATH"] = f"{BUILD / 'bin'}:{env['PATH']}"
        makefile = (SOURCE / "Makefile").read_text()
        for command in COMMANDS:
            word = command.split()[0]
            if word == "make":
                for target in [w for w in command.split()[1:] if "=" not in w]:
                    self.assertRegex(makefile, rf"(?m)^{target}:", command)
            elif word not in ("git", "cd", "export", "sudo"):
                done = self.cmd("sh", "-c", command, env=env)
                # 1 and 4 are results; what the reader types must never be a mistake.
                self.assertNotIn(done.returncode, (2, 3, 125, 126, 127), f"{command}\n{done.out}{done.err}")

    def test_files_exist(self):
        for name in re.findall(r"\]\(([\w./-]+)\)", TEXT):
            self.assertTrue((SOURCE / name).exists(), name)


if __name__ == "__main__":
    rlk.main()
