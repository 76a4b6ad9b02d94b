"""rlkrec run as a stand-in for the shell: status, streams, arguments, environment, signals, names. No GPU, no torch."""
import json
import os
import pathlib
import pty
import signal
import subprocess
import time
import unittest

import rlk
from rlk import RLKREC, Case, clean_env


class Status(Case):
    def test_own_status(self):
        for code in (0, 1, 2, 3, 4, 77, 125, 126, 127, 128, 255):
            self.expect(self.rec("run", "--", "sh", "-c", f"exit {code}"), code)

    def test_killed(self):
        for sig in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT, signal.SIGPIPE):
            self.expect(self.rec("run", "-o", f"k{sig}", "--", "sh", "-c", f"kill -{int(sig)} $$"), 128 + sig)
            self.assertEqual(self.manifest(f"k{sig}.rlk")["exit"], {"signal": int(sig)})

    def test_not_found(self):
        self.expect(self.rec("run", "no-such-command"), 127, err="no-such-command: command not found")
        self.expect(self.rec("run", "./no/such"), 127)
        self.assertEqual(list((self.dir / "rlk-recordings").iterdir()), [])

    def test_not_executable(self):
        (self.dir / "plain").write_text("x")
        self.expect(self.rec("run", "./plain"), 126, err="Permission denied")
        self.expect(self.rec("run", "-o", "out", str(self.dir)), 126)
        self.assertFalse((self.dir / "out.rlk").exists())

    def test_script_without_interpreter_line(self):
        script = self.dir / "my script"
        script.write_text('echo "[$1]"; exit 5\n')
        script.chmod(0o755)
        self.expect(self.rec("run", "./my script", "a  b"), 5, out="[a  b]\n")

    def test_cannot_start(self):
        cases = [["--level", "ops", "x"], ["--level", "buffer", "x"], ["--inputs", "x", "x"],
                 ["--payload", "nonsense", "x"], ["--payload", "step=5:1", "x"], ["--steps", "5", "x"],
                 ["--every", "0.5", "x"], ["--every", "0", "x"], ["--keep-last", "0", "x"],
                 ["--max-size", "12Q", "x"], ["--plan", "f", "x"], ["--no-such", "x"], [], ["--"]]
        for case in cases:
            done = self.expect(self.rec("run", *case), 125)
            self.assertEqual(done.out, "")
            self.assertIn("rlkrec", done.err)
        self.assertFalse((self.dir / "rlk-recordings").exists())

    def test_wait_is_not_disturbed_by_ignored_children(self):
        """SIGCHLD inherited as ignored: the kernel would reap the command."""
        code = "import signal, os, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
        self.expect(self.cmd("python3", "-c", code, RLKREC, "run", "--", "sh", "-c", "exit 9"), 9)


class Streams(Case):
    def test_passed_through(self):
        data = os.urandom(1 << 20)
        done = self.rec("run", "--", "cat", stdin=data)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout, data)

    def test_stderr_is_the_commands_then_ours(self):
        done = self.expect(self.rec("run", "-q", "--", "sh", "-c", "echo oops >&2; echo fine"), 0, out="fine\n")
        self.assertTrue(done.err.startswith("oops\n"))

    def test_arguments_unchanged(self):
        args = ["", " ", "a b", "*", "$HOME", "--", "-o", "\\", "'", '"', "\n", "é"]
        code = "import sys, json; print(json.dumps(sys.argv[1:]))"
        done = self.expect(self.rec("run", "--", "python3", "-c", code, *args), 0)
        self.assertEqual(json.loads(done.out), args)

    def test_closed_streams(self):
        code = "import os; n = [fd for fd in range(3) if not os.path.exists(f'/proc/self/fd/{fd}')]; raise SystemExit(40 + len(n))"
        for closed, count in (("<&-", 1), (">&-", 1), ("2>&-", 1), ("<&- >&- 2>&-", 3)):
            done = self.cmd("sh", "-c", f'exec {closed}; "{RLKREC}" run -o out -- python3 -c "{code}"')
            self.expect(done, 40 + count)
            self.assertEqual(self.manifest("out.rlk")["exit"], {"code": 40 + count})
            self.expect(self.rec("verify", "out"), 0)
            self.expect(self.rec("rm", "-f", "out"), 0)

    def test_nobody_reads_stderr(self):
        """A closed pipe neither kills rlkrec nor changes what the command sees of SIGPIPE."""
        read, write = os.pipe()
        os.close(read)
        p = subprocess.Popen([RLKREC, "run", "-o", "out", "--", "sh", "-c", "grep SigIgn /proc/self/status >ign; exit 8"],
                             cwd=self.dir, env=clean_env(), stderr=write)
        os.close(write)
        self.assertEqual(p.wait(60), 8)
        self.assertTrue((self.dir / "out.rlk/SEAL").exists())
        ignored = int((self.dir / "ign").read_text().split()[1], 16)
        self.assertFalse(ignored >> (signal.SIGPIPE - 1) & 1)


class Environment(Case):
    def seen(self, *options, env=None):
        code = "import os, json; print(json.dumps(dict(os.environ)))"
        return json.loads(self.expect(self.rec("run", *options, "--", "python3", "-c", code, env=env), 0).out)

    def test_exported(self):
        env = self.seen("-o", "out", "--level", "module", "--inputs", "digest", "--payload", "step=0:2,module=a*",
                        "--payload", "name=w", "--steps", "2:", "--every", "3", "--keep-last", "4", "--max-size", "1M")
        self.assertEqual(env["RLKREC_RECORDING"], str((self.dir / "out.rlk").resolve()))
        self.assertTrue(pathlib.Path(env["RLKREC_LIBRARY"]).is_file())
        self.assertEqual(env["RLKREC_LEVEL"], "module")
        self.assertEqual(env["RLKREC_INPUTS"], "digest")
        self.assertEqual(env["RLKREC_PAYLOAD"], "step=0:2,module=a*\nname=w")
        self.assertEqual(env["RLKREC_STEPS"], "2:")
        self.assertEqual((env["RLKREC_EVERY"], env["RLKREC_KEEP_LAST"], env["RLKREC_MAX_SIZE"]), ("3", "4", "1048576"))

    def test_left_over_variables_do_not_choose(self):
        env = self.seen(env=clean_env(RLKREC_STEPS="5:6", RLKREC_EVERY="9", RLKREC_LEVEL="step", RLKREC_PAYLOAD="op=*"))
        self.assertEqual({k for k in env if k.startswith("RLKREC_")},
                         {"RLKREC_RECORDING", "RLKREC_LIBRARY", "RLKREC_LEVEL", "RLKREC_INPUTS"})
        self.assertEqual(env["RLKREC_LEVEL"], "op")

    def test_pythonpath_is_prepended(self):
        plain = self.seen()["PYTHONPATH"]
        self.assertTrue(plain.endswith("recorder/torch/python"), plain)
        self.assertEqual(self.seen(env=clean_env(PYTHONPATH="/a:/b"))["PYTHONPATH"], plain + ":/a:/b")

    def test_everything_else_is_left_alone(self):
        before = clean_env(SOME_VARIABLE="x y", EMPTY="")
        after = self.seen(env=before)
        self.assertEqual({k: v for k, v in after.items() if not k.startswith("RLKREC_") and k not in ("PYTHONPATH", "CUDA_INJECTION64_PATH")
                          and k not in ("PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE")},
                         {k: v for k, v in before.items() if k not in ("PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE")})

    def test_who_takes_the_place_in_cuda(self):
        """A build with the launch plane says which tool keeps it from being loaded; one without has nothing to say."""
        plain = self.seen()
        tool = self.dir / "compute-sanitizer"
        tool.write_text("#!/bin/sh\necho \"path=$CUDA_INJECTION64_PATH\"\nexit 3\n")
        tool.chmod(0o755)
        for name, argv, more in (("tool", [str(tool)], {}), ("held", ["sh", "-c", "exit 3"], {"CUDA_INJECTION64_PATH": "/opt/libToolsInjection64.so"})):
            done = self.rec("run", "-o", name, "--", *argv, env=clean_env(**more))
            self.expect(done, 3)
            self.assertEqual(done.out, "path=\n" if name == "tool" else "")  # Nsight Compute does not run where another's is set
            faults = [f["code"] for f in self.manifest(f"{name}.rlk")["faults"]]
            injects = "CUDA_INJECTION64_PATH" in plain
            self.assertEqual("launch-plane" in faults, injects, faults)
            self.assertEqual("kernel launches are not recorded" in done.err, injects, done.err)

    def test_recorder_that_cannot_load(self):
        bad = self.dir / "bad.so"
        bad.write_bytes(b"\x7fELF not really")
        for library in (str(bad), str(self.dir / "missing.so"), "/usr/lib/x86_64-linux-gnu/libm.so.6"):
            name = pathlib.Path(library).name
            done = self.rec("run", "-o", name, "--", "sh", "-c", "env; exit 6", env=clean_env(RLKREC_LIBRARY=library))
            self.expect(done, 6, err="warning: the recorder cannot be loaded")
            self.assertEqual(done.err.count("cannot be loaded"), 1)
            self.assertNotIn("RLKREC_", done.out)
            self.assertEqual(self.manifest(f"{name}.rlk")["faults"][0]["code"], "recorder-not-loaded")
            self.expect(self.rec("info", f"{name}.rlk"), 4)

    def test_why_nothing(self):
        def warned(text, *argv):
            self.expect(self.rec("run", "--", *argv), 0, err=text)
        warned("python -S skips", "python3", "-S", "-c", "pass")
        warned("python -I skips", "python3", "-BI", "-c", "pass")
        warned("no process of the command imported torch", "python3", "-W", "ignore", "-c", "'-S'")
        (self.dir / "s.c").write_text("int main(void){return 0;}")
        if self.cmd("gcc", "-static", "-o", "static", "s.c").returncode == 0:
            warned("statically linked", "./static")


class Names(Case):
    def recordings(self):
        return sorted(p.name for p in (self.dir / "rlk-recordings").iterdir() if not p.is_symlink())

    def test_default(self):
        (self.dir / "train it.py").write_text("pass")
        self.expect(self.rec("run", "--", "python3", "train it.py", "--x"), 0)
        (name,) = self.recordings()
        self.assertRegex(name, r"^\d{8}-\d{6}-train_it\.rlk$")
        self.assertEqual(os.readlink(self.dir / "rlk-recordings" / "latest"), name)

    def test_two_runs_in_one_second(self):
        running = [subprocess.Popen([RLKREC, "run", "-q", "--", "true"], cwd=self.dir, env=clean_env(),
                                    stderr=subprocess.DEVNULL) for _ in range(6)]
        self.assertEqual([p.wait(60) for p in running], [0] * 6)
        self.assertEqual(len(self.recordings()), 6)

    def test_two_runs_into_one_name(self):
        running = [subprocess.Popen([RLKREC, "run", "-o", "same", "--", "sleep", "0.3"], cwd=self.dir, env=clean_env(),
                                    stderr=subprocess.PIPE) for _ in range(4)]
        results = [(p.communicate(timeout=60)[1].decode(), p.returncode) for p in running]
        self.assertEqual(sorted(code for _, code in results), [0, 125, 125, 125])
        for err, code in results:
            if code:
                self.assertIn("exists already", err)

    def test_existing_output_is_left_alone(self):
        for name in ("file.rlk", "dir.rlk"):
            path = self.dir / name
            path.write_text("mine") if name[0] == "f" else path.mkdir()
            self.expect(self.rec("run", "-o", name, "--", "touch", "ran"), 125, err="exists already")
        self.assertEqual((self.dir / "file.rlk").read_text(), "mine")
        self.assertEqual(list((self.dir / "dir.rlk").iterdir()), [])
        self.assertFalse((self.dir / "ran").exists())

    def test_parents_are_made(self):
        self.expect(self.rec("run", "-o", "a/b c/d/", "--", "true"), 0)
        self.assertTrue((self.dir / "a/b c/d.rlk/manifest.json").exists())

    def test_not_writable(self):
        for out in ("/proc/x/y", "/dev/null/x", "f/x", "n" * 5000):
            (self.dir / "f").write_text("")
            done = self.expect(self.rec("run", "-o", out, "--", "touch", "ran"), 125)
            self.assertEqual(done.err.count("\n"), 1, done.err)
        self.assertFalse((self.dir / "ran").exists())

    @unittest.skipIf(os.getuid() == 0, "root may write everywhere")
    def test_no_permission(self):
        (self.dir / "ro").mkdir(mode=0o555)
        self.expect(self.rec("run", "-o", "ro/x", "--", "touch", "ran"), 125, err="permission")


class Joining(Case):
    def test_run_in_run(self):
        inner = [RLKREC, "run", "-o", "ignored", "--level", "module", "--"]
        done = self.rec("run", "-o", "outer", "--", *inner, "sh", "-c", "echo $RLKREC_RECORDING $RLKREC_LEVEL; exit 7")
        self.expect(done, 7, out=f"{(self.dir / 'outer.rlk').resolve()} module\n", err="--output is ignored")
        self.assertFalse((self.dir / "ignored.rlk").exists())
        self.assertEqual(done.err.count("sealed"), 1)  # one closing line

    def test_run_in_run_of_what_is_missing(self):
        self.expect(self.rec("run", "-o", "outer", "--", RLKREC, "run", "--", "no-such-command"), 127)

    def test_named_recording_is_not_there(self):
        env = clean_env(RLKREC_RECORDING=str(self.dir / "gone.rlk"))
        self.expect(self.rec("run", "--", "true", env=env), 125, err="no recording")

    def ranks(self, n, *options, **base):
        jobs = []
        for rank in range(n):
            env = clean_env(**{k: v.format(rank=rank) for k, v in base.items()})
            jobs.append(subprocess.Popen([RLKREC, "run", *options, "--", "sh", "-c", "echo $RLKREC_RECORDING; sleep 0.2"],
                                         cwd=self.dir, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        results = [(*(s.decode() for s in p.communicate(timeout=60)), p.returncode) for p in jobs]
        self.assertEqual([r[2] for r in results], [0] * n, results)
        return results

    def test_ranks_of_a_job_share_one(self):
        results = self.ranks(4, SLURM_JOB_ID="81", SLURM_STEP_ID="0", SLURM_PROCID="{rank}", SLURM_STEP_NUM_TASKS="4")
        path = (self.dir / "rlk-recordings/slurm-81.0.rlk").resolve()
        self.assertEqual({r[0] for r in results}, {f"{path}\n"})
        self.assertEqual(self.manifest(path)["ranks"], 4)
        self.assertFalse((path / "SEAL").exists())
        self.assertEqual(sum("not sealed" in r[1] for r in results), 1)
        self.expect(self.rec("seal", path), 0)

    def test_ranks_of_a_job_and_an_output(self):
        base = dict(TORCHELASTIC_RUN_ID="none", MASTER_ADDR="h", MASTER_PORT="2{rank}"[:1], RANK="{rank}", WORLD_SIZE="3")
        self.ranks(3, "-o", "together", **base)
        self.assertEqual(self.manifest("together.rlk")["job"], "torchelastic-h-2")
        env = clean_env(**{**base, "RANK": "0", "MASTER_PORT": "9"})  # another job may not use the name
        self.expect(self.rec("run", "-o", "together", "--", "true", env=env), 125, err="exists already")

    def test_batch_script_is_no_rank(self):
        env = clean_env(SLURM_JOB_ID="81", SLURM_PROCID="0", SLURM_NTASKS="4")
        self.expect(self.rec("run", "-o", "x", "--", "true", env=env), 0)
        self.assertTrue((self.dir / "x.rlk/SEAL").exists())


class Signals(Case):
    CODE = ("import signal, sys, time\n"
            "def got(sig, frame):\n"
            "    print('got', sig, flush=True)\n"
            "    sys.exit(40 + sig)\n"
            "for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT):\n"
            "    signal.signal(s, got)\n"
            "print('ready', flush=True)\n"
            "time.sleep(30)\n")

    def start(self, code=CODE, **kw):
        p = subprocess.Popen([RLKREC, "run", "-o", "out", "--", "python3", "-c", code], cwd=self.dir, env=clean_env(),
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.stderr.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        return p

    def child_of(self, pid):
        return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def test_sent_to_rlkrec_alone(self):
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT):
            p = self.start()
            p.send_signal(sig)
            out, err = p.communicate(timeout=60)
            self.assertEqual((out.decode(), p.returncode), (f"got {int(sig)}\n", 40 + sig), err)
            self.assertEqual(self.manifest("out.rlk")["exit"], {"code": 40 + sig})
            self.assertTrue((self.dir / "out.rlk/SEAL").exists())
            self.expect(self.rec("rm", "-f", "out.rlk"), 0)

    def test_default_action(self):
        p = self.start("import time; print('ready', flush=True); time.sleep(30)")
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, 128 + signal.SIGTERM)

    def test_ignored_by_the_command(self):
        p = self.start("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); "
                       "time.sleep(0.5); print('done')")
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.communicate(timeout=60)[0], b"done\n")
        self.assertEqual(p.returncode, 0)

    def test_inherited_ignore(self):
        """nohup: the command still ignores SIGHUP."""
        code = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
        done = self.cmd("sh", "-c", f"trap '' HUP; exec \"{RLKREC}\" run -- python3 -c \"{code}\"")
        self.expect(done, 0, out="True\n")

    def test_mask_and_dispositions_are_the_parents(self):
        code = ("import signal; m = signal.pthread_sigmask(signal.SIG_BLOCK, []); "
                "print(sorted(m), signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "
                "signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL)")
        self.expect(self.rec("run", "--", "python3", "-c", code), 0, out="[] True True\n")

    def test_stop_and_continue(self):
        # A process group of its own, with a parent in the session that could continue it: as a shell's job.
        p = self.start("import time; print('ready', flush=True); time.sleep(2); print('done')", preexec_fn=os.setpgrp)
        child = self.child_of(p.pid)
        p.send_signal(signal.SIGTSTP)
        for pid in (p.pid, child):
            self.wait_state(pid, "T")
        p.send_signal(signal.SIGCONT)
        self.assertEqual(p.communicate(timeout=60)[0], b"done\n")
        self.assertEqual(p.returncode, 0)

    def test_stop_where_nobody_could_continue(self):
        """In an orphaned process group the kernel ignores SIGTSTP: the command goes on, and so do we."""
        p = self.start("import time; print('ready', flush=True); time.sleep(0.5); print('done')", start_new_session=True)
        p.send_signal(signal.SIGTSTP)
        self.assertEqual(p.communicate(timeout=60)[0], b"done\n")
        self.assertEqual(p.returncode, 0)

    def wait_state(self, pid, state):
        for _ in range(200):
            if pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == state:
                return
            time.sleep(0.02)
        self.fail(f"process {pid} is not in state {state}")

    def test_kill_9_of_rlkrec(self):
        p = self.start("import time; print('ready', flush=True); time.sleep(0.5); print('done', flush=True)")
        p.kill()
        self.assertEqual(p.stdout.readline(), b"done\n")  # the command goes on
        self.assertNotIn("exit", self.manifest("out.rlk"))
        self.expect(self.rec("verify", "out.rlk"), 4, out="not sealed")
        self.expect(self.rec("info", "out.rlk"), 4)

    def on_terminal(self, key):
        """The command in the foreground of a terminal; `key` is typed. Returns what it printed and the status."""
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(self.dir)
            os.execve(RLKREC, [RLKREC, "run", "-q", "-o", "out", "--", "python3", "-c", self.CODE.replace(
                "sys.exit(40 + sig)", "time.sleep(0.3); sys.exit(40 + sig)")], clean_env(TERM="dumb"))
        out = b""
        try:
            while b"ready" not in out:
                out += os.read(fd, 4096)
            os.write(fd, key)
            while True:
                out += os.read(fd, 4096)
        except OSError:
            pass  # the terminal is gone: everything has ended
        os.close(fd)
        return out.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_terminal_interrupt_arrives_once(self):
        out, status = self.on_terminal(b"\x03")
        self.assertEqual(status, 40 + signal.SIGINT, out)
        self.assertEqual(out.count("got"), 1)


if __name__ == "__main__":
    rlk.main()
