"""rlk: what a training or rollout loop may say to the recorder. Every call is nothing when nobody records.

    import rlk
    rlk.step()                      # a loop without an optimizer: one step is done (rlk.step(n): this is step n)
    with rlk.phase("rollout-decode"):
        ...
    with rlk.sample("request-7"):
        ...
    rlk.phase("actor_train")        # or from here on

Under `rlkrec run` it is on the path. A program that must also run elsewhere may carry a copy of this file: it needs
nothing else. Other parts of the package `rlk` may lie in other folders of the path.
"""
import pkgutil
import sys

__path__ = pkgutil.extend_path(__path__, __name__)
__all__ = ["step", "phase", "sample", "metric", "recording"]


def _adapter():
    package = sys.modules.get("rlkrec_torch")
    return package.current() if package else None


def recording():
    """Whether operators of this process are being recorded."""
    return _adapter() is not None


def step(n=None):
    """One step is done, or step `n` begins. From the first call on, optimizers no longer count steps."""
    adapter = _adapter()
    if adapter:
        adapter.manual_step(n)


class _Span:
    """Set at once; as a context manager it also goes back to what was before."""

    def __init__(self, kind, value):
        self._adapter = _adapter()
        self._kind = kind
        self._before = self._adapter.set_span(kind, value) if self._adapter else None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self._adapter:
            self._adapter.set_span(self._kind, self._before)
        return False


def phase(name):
    """rollout-prefill, rollout-decode, ref_log_probs, log_probs, actor_train, update_weights, ..."""
    return _Span("phase", name)


def sample(id):
    """The request or sample that is computed from here on."""
    return _Span("sample", id)


def metric(name, value):
    """A number worth comparing: a loss, a reward."""
    adapter = _adapter()
    if adapter:
        adapter.obs.metric(str(name), float(value))
