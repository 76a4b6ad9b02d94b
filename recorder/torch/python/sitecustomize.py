"""Loaded by every Python under `rlkrec run`, by its place on PYTHONPATH. Does nothing but wait for `import torch`.

Runs the sitecustomize that this one hides, if there is one. Whatever goes wrong in here is one line on stderr.
"""
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


class _TorchWatch:
    """A finder that lets the others find torch and has the adapter started once it is imported."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "torch" or cls not in sys.meta_path:
            return None
        sys.meta_path.remove(cls)
        spec = None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                break
        if spec is None or not hasattr(spec.loader, "exec_module"):
            if spec is None:
                sys.meta_path.insert(0, cls)  # it may be installed later
            return spec
        _stand_before_cupti()
        load = spec.loader.exec_module

        def exec_module(module):
            del spec.loader.exec_module
            load(module)
            _start()

        try:
            spec.loader.exec_module = exec_module
        except AttributeError:
            _say("cannot watch the import of torch: its loader takes no hook")
        return spec


def _say(text):
    try:
        os.write(2, f"rlkrec: {text}; going on without recording operators\n".encode())
    except OSError:
        pass


def _stand_before_cupti():
    """torch's profiler subscribes to CUPTI, which has one place, and the recorder's: ours answers (recorder/cupti/guest.h).
    In the global scope, so that torch's libraries bind to it."""
    path = os.path.join(os.path.dirname(os.environ["RLKREC_LIBRARY"]), "librlkrec_cupti.so")
    if os.path.exists(path):
        try:
            import ctypes

            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except (ImportError, OSError) as e:
            os.write(2, f"rlkrec: torch.profiler will show no kernels: {e}\n".encode())


def _start():
    try:
        import rlkrec_torch

        rlkrec_torch.activate()
    except Exception as e:
        _say(f"the torch adapter failed: {type(e).__name__}: {' '.join(str(e).split())[:400]}")


def _chain():
    """The user's own sitecustomize, found as if this folder were not on the path."""
    import importlib.machinery
    import importlib.util

    paths = [p for p in sys.path if os.path.abspath(p or os.getcwd()) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("RLKREC_LIBRARY") and os.environ.get("RLKREC_RECORDING") and "torch" not in sys.modules:
    sys.meta_path.insert(0, _TorchWatch)
_chain()
