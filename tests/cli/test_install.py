"""An installation works without the source and the build tree: rlkrec finds its parts beside itself."""
import os
import shutil

import rlk
from rlk import BUILD, TRAIN, Case, clean_env


class Install(Case):
    def test_from_elsewhere(self):
        prefix = self.dir / "the prefix"
        self.expect(self.cmd("cmake", "--install", BUILD, "--prefix", prefix), 0)
        rlkrec = prefix / "bin" / "rlkrec"
        shutil.copy(TRAIN, self.dir / "train")
        done = self.cmd(rlkrec, "run", "-o", "r", "--", "./train")
        self.expect(done, 0, err="complete, sealed")
        done = self.cmd(rlkrec, "run", "-o", "e", "--", "sh", "-c", "echo $RLKREC_LIBRARY; echo $PYTHONPATH")
        library, python = done.out.splitlines()
        for path in (library, python):
            self.assertTrue(path.startswith(str(prefix.resolve())), path)
            self.assertTrue(os.path.exists(path), path)
        # What the observer is compiled from is there too.
        code = ("import rlkrec_torch.build as b; r = b.source_root(); "
                "print([n for n in b.CXX + b.C + b.HEADERS if not (r / n).is_file()], r)")
        done = self.expect(self.cmd("python3", "-B", "-c", code, env=clean_env(PYTHONPATH=python)), 0)
        missing, root = done.out.split("] ")
        self.assertEqual(missing, "[", done.out)
        self.assertTrue(root.startswith(str(prefix.resolve())), root)
        self.expect(self.cmd(rlkrec, "doctor", "--python", "no-such-python"), 0)


if __name__ == "__main__":
    rlk.main()
