"""rlkrec's PyTorch adapter. Started by sitecustomize once torch is imported; see docs/torch.md."""
import os

_adapter = None


def current():
    """The adapter of this process, None when nothing is recorded."""
    return _adapter


def activate():
    """Starts the adapter, once. The observer in C++; where that cannot be built, the dispatch mode in Python."""
    global _adapter
    if _adapter is not None:
        return
    from . import hooks

    _adapter = hooks.start(os.environ.get("RLKREC_OBSERVER", ""))
