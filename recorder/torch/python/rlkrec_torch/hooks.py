"""What the adapter learns from Python: module calls, optimizer steps, spans. The operators come from the observer."""
import atexit
import functools
import importlib
import os
import sys
import warnings
import weakref

import torch

from . import modules

OFF, LAUNCH, STEP, MODULE, OP, BUFFER = range(6)  # enum rlk_tap_level
FWD, RECOMPUTE, BWD, OPT, NONE = range(5)  # enum rlkt_pass


def say(text):
    try:
        os.write(2, f"rlkrec: {text}\n".encode())
    except OSError:
        pass


def start(which):
    """The adapter at work, or None when no recorder is there. which: "", "c++" or "python" (RLKREC_OBSERVER)."""
    if os.environ.get("RLKREC_LEVEL") == "launch":
        return None  # no tensors are asked for
    obs, kind = observer(which)
    if obs is None or obs.level() == OFF:
        return None
    adapter = Adapter(obs, kind)
    adapter.install()
    return adapter


def observer(which):
    if which != "python":
        from . import build

        try:
            path = build.build(torch, say)
            import importlib.machinery
            import importlib.util

            loader = importlib.machinery.ExtensionFileLoader("rlkrec_torch._observer", str(path))
            module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("rlkrec_torch._observer", loader, origin=str(path)))
            loader.exec_module(module)
            return module, "c++"
        except (build.BuildError, OSError, ImportError) as e:
            if which == "c++":
                raise
            say(f"no observer for torch {torch.__version__}: {' '.join(str(e).split())[:300]}; recording through a dispatch mode in Python, slowly")
    from . import fallback

    return fallback.load(), "python"


class Adapter:
    def __init__(self, obs, kind):
        self.obs = obs
        self.kind = kind
        self.paths = modules.Paths(obs.paths_changed)
        self.names = modules.Names()
        self.optimizers = weakref.WeakKeyDictionary()  # in the order in which they were first seen; never by address
        self.spans = {"phase": None, "sample": None}
        self.manual = False
        self.version = None  # of the trainer's weights that was recorded last
        self.dead = False

    def install(self):
        obs = self.obs
        self.level = obs.level()
        obs.meta("observer", self.kind)
        obs.meta("lib.torch", torch.__version__)
        if self.level < STEP:
            return
        optimizer = importlib.import_module("torch.optim.optimizer")
        self.watch_optimizers(optimizer.Optimizer)
        optimizer.register_optimizer_step_pre_hook(self.safely(self.before_step))
        optimizer.register_optimizer_step_post_hook(self.safely(self.after_step))
        if self.level >= MODULE:
            obs.modules(self.outermost, self.path_of)
            module = torch.nn.modules.module
            module.register_module_module_registration_hook(self.safely(self.paths.registered))
            module.register_module_forward_pre_hook(self.pre_hook())
            post = self.post_hook()
            try:
                module.register_module_forward_hook(post, with_kwargs=True, always_call=True)
            except TypeError:
                module.register_module_forward_hook(lambda m, args, out: post(m, args, {}, out))
        self.watch_workers()
        if self.kind == "python" and self.level >= OP:
            self.refuse_compile()
        self.watch_compiler()
        obs.start(self.level >= OP, self.ranks_of)
        atexit.register(self.finish)
        self.watch_children()

    def safely(self, hook):
        """The hook, never raising: a fault ends the recording, not the program."""

        @functools.wraps(hook)
        def call(*args, **kwargs):
            if self.dead:
                return None
            try:
                hook(*args, **kwargs)
            except Exception as e:
                self.stop(e)
            return None

        return call

    def stop(self, e):
        self.dead = True
        self.obs.fault("adapter-failed", f"{type(e).__name__}: {' '.join(str(e).split())[:300]}")

    # Modules

    def outermost(self):
        """A module is called outside any other."""
        obs = self.obs
        if obs.backward_ran():
            obs.set_work(obs.work() + 1)
        if self.version is None and self.optimizers:
            self.weights()

    def path_of(self, module, around):
        """The number of the path of `module`, called inside those modules, outermost first; None: it has none."""
        path = self.paths.of(module, around)
        return None if path is None else self.obs.intern(path)

    def pre_hook(self):
        # Traced by torch.compile too: nothing may come before the test, which it takes for a constant.
        def rlkrec_pre(module, args):
            if torch.compiler.is_compiling():
                return None
            if not self.dead and not torch.jit.is_tracing():
                try:
                    self.obs.module_enter(module, args)
                except Exception as e:
                    self.stop(e)
            return None

        return rlkrec_pre

    def post_hook(self):
        def rlkrec_post(module, args, *rest):  # (kwargs, result); (result,) where the module threw
            if torch.compiler.is_compiling():
                return None
            if not self.dead and not torch.jit.is_tracing():
                try:
                    self.obs.module_leave(module, rest[0] if len(rest) == 2 else {}, rest[-1])
                except Exception as e:
                    self.stop(e)
            return None

        return rlkrec_post

    # Optimizers

    def watch_optimizers(self, cls):
        """Knows every optimizer from its first parameter group on: the largest one counts the steps."""
        add, known = cls.add_param_group, self.optimizers

        @functools.wraps(add)
        def add_param_group(optimizer, *args, **kwargs):
            result = add(optimizer, *args, **kwargs)
            known.setdefault(optimizer)
            return result

        cls.add_param_group = add_param_group

    @staticmethod
    def parameters(optimizer):
        return [p for group in optimizer.param_groups for p in group["params"] if isinstance(p, torch.Tensor)]

    def largest(self):
        size = lambda o: sum(p.numel() for p in self.parameters(o))
        return max(list(self.optimizers), key=size, default=None)  # of equal ones the first

    def before_step(self, optimizer, args, kwargs):
        self.optimizers.setdefault(optimizer)
        if optimizer is self.largest():
            if self.version is None:
                self.weights()
            held = [(n, p.grad) for n, p in self.named(optimizer) if p.grad is not None]
            # Digested whatever is known of them: gradients are compared by name, across layouts too.
            self.obs.tensors("op", "gradients", BWD, "", "", [f"{n}.grad" for n, _ in held], [g for _, g in held], "in!", False)
        self.obs.opt_begin()

    def after_step(self, optimizer, args, kwargs):
        self.obs.opt_end()
        if optimizer is not self.largest():
            return
        names, state = [], []
        for name, p in self.named(optimizer):
            for key, value in optimizer.state.get(p, {}).items():
                if isinstance(value, torch.Tensor):
                    names.append(f"{name}.{key}")
                    state.append(value)
        if state:
            self.obs.tensors("op", "optimizer_state", OPT, "", "", names, state, "in", False)
        if not self.manual:
            self.obs.set_step(self.obs.step() + 1)
        self.weights()

    def named(self, optimizer):
        parameters = self.parameters(optimizer)
        return list(zip(self.names.of(parameters), parameters))

    def weights(self):
        """The trainer's weights as they are now, a new version."""
        optimizer = self.largest()
        if optimizer is None:
            return
        self.version = 0 if self.version is None else self.version + 1
        held = self.named(optimizer)
        self.obs.tensors("weights", "weights", NONE, f"v{self.version}", "trainer", [n for n, _ in held], [p for _, p in held], "out", False)

    # Spans (package rlk)

    def manual_step(self, n):
        self.manual = True
        self.obs.set_step(self.obs.step() + 1 if n is None else int(n))

    def set_span(self, kind, value):
        before, self.spans[kind] = self.spans[kind], None if value is None else str(value)
        (self.obs.set_phase if kind == "phase" else self.obs.set_sample)(self.spans[kind])
        return before

    # Surroundings

    def watch_workers(self):
        """A DataLoader's worker prepares data; what it hands over is digested where it is used. It does not record."""
        from torch.utils.data._utils import worker

        loop, detach = worker._worker_loop, self.obs.detach

        @functools.wraps(loop)
        def _worker_loop(*args, **kwargs):
            detach()
            return loop(*args, **kwargs)

        worker._worker_loop = _worker_loop

    def watch_children(self):
        """A child of multiprocessing leaves through os._exit, after its finalizers: the last one ends its recording."""
        from multiprocessing import process, util

        def child(adapter):
            util.Finalize(None, adapter.close, exitpriority=-1000)

        util.register_after_fork(self, child)
        if process.parent_process() is not None:
            child(self)
        leave = os._exit

        @functools.wraps(leave)
        def _exit(status):
            self.close()
            leave(status)

        os._exit = _exit  # of a bare fork, or of a runtime that is in a hurry

    def close(self):
        try:
            self.obs.close()
        except Exception:
            pass

    def watch_compiler(self):
        """What torch.compile runs while it traces is not the program. Acts once dynamo is imported."""
        name = "torch._dynamo.callback"
        if name in sys.modules:
            self.compiler_imported(sys.modules[name])
            return
        adapter = self

        class Watch:
            @classmethod
            def find_spec(cls, fullname, path=None, target=None):
                if fullname != name:
                    return None
                sys.meta_path.remove(cls)
                import importlib.util

                spec = importlib.util.find_spec(fullname)
                load = spec.loader.exec_module

                def exec_module(module):
                    del spec.loader.exec_module
                    load(module)
                    try:
                        adapter.compiler_imported(module)
                    except Exception as e:
                        adapter.stop(e)

                spec.loader.exec_module = exec_module
                return spec

        sys.meta_path.insert(0, Watch)

    def compiler_imported(self, callback):
        obs = self.obs
        # Our global hooks do fire once more, for the wrapper: it has no path, so that is nothing.
        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
        callback.callback_handler.register_start_callback(lambda *args: obs.suppress(True))
        callback.callback_handler.register_end_callback(lambda *args: obs.suppress(False))

    def refuse_compile(self):
        """Under a dispatch mode nothing is compiled: the mode steps aside at the first torch.compile."""
        compile_ = torch.compile

        @functools.wraps(compile_)
        def compile(*args, **kwargs):
            torch.compile = compile_
            if not self.dead:
                self.dead = True
                self.obs.fault("observer-refused", "torch.compile is in use: the dispatch mode in Python steps aside, operators are no longer recorded")
                self.obs.leave()
            return compile_(*args, **kwargs)

        torch.compile = compile

    def ranks_of(self, group):
        from torch.distributed import distributed_c10d as c10d

        for pg, name in list(c10d._world.pg_names.items()):
            if name == group:
                return sorted(c10d._world.pg_group_ranks[pg])
        return []

    def finish(self):
        try:
            self.obs.finish()
        except Exception:
            pass
