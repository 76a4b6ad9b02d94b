"""rlktrain under the recorder, for the tests of replay and report."""
import pathlib
import subprocess


def record(bin_dir: pathlib.Path, where: pathlib.Path, name: str, *options, run=()) -> tuple:
    """The recording and what rlktrain printed. On a busy machine the recorder may have to drop events, and says so: such a
    recording is made again."""
    for attempt in range(4):
        out = where / f"{name}-{attempt}.rlk"
        ran = subprocess.run([bin_dir / "rlkrec", "run", "-q", *run, "-o", out, "--", bin_dir / "rlktrain", *options], capture_output=True,
                             text=True, check=False)
        assert ran.returncode == 0, f"{name}: exit {ran.returncode}: {ran.stderr}"
        if "INCOMPLETE" not in ran.stderr:
            return out, ran.stdout
    raise AssertionError(f"{name}: incomplete four times: {ran.stderr}")
