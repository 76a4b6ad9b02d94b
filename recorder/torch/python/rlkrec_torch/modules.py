"""Paths of modules from their root, and names of parameters, as identity.md wants them."""
import gc
import weakref

import torch

# Wrappers add a level to the path that is not the model's.
LEADING = ("module.", "base_model.model.")
ANYWHERE = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def strip(path):
    """`path` without what wrappers put in it."""
    parts = [p for p in path.split(".") if p not in ANYWHERE]
    path = ".".join(parts)
    changed = True
    while changed:
        changed = False
        for prefix in LEADING:
            if (path + ".").startswith(prefix):
                path, changed = path[len(prefix):], True
    return path


class Paths:
    """Where each module lies in its tree. A wrapper has no path of its own: it is transparent (None)."""

    def __init__(self, changed):
        self._changed = changed  # called when paths that were given may no longer hold: of that module, or None: of all
        self._paths = {}  # id -> (weak reference, path or None, weak reference to the root, path there)
        self._doubtful = {}  # the same, of modules that were registered in another one since
        self._parents = {}  # id of a child -> weak reference to the module it was last registered in

    def registered(self, module, name, child):
        """A module registration hook."""
        if child is not None:
            self._parents[id(child)] = weakref.ref(module)
            known = self._paths.pop(id(child), None)
            if known:
                self._doubtful[id(child)] = known
                self._changed(child)

    def _root(self, module):
        seen = set()
        while id(module) not in seen:
            seen.add(id(module))
            ref = self._parents.get(id(module))
            parent = ref() if ref else None
            if parent is None or not any(m is module for m in parent._modules.values()):
                return module
            module = parent
        return module

    def _still(self, module, known, root):
        """Is the module where it was? A slice of a ModuleList registers its members anew, at every call of some models."""
        at = known[2]()
        if known[0]() is not module or at is not root:
            return False
        for part in known[3].split(".") if known[3] else ():
            at = at._modules.get(part) if at is not None else None
        return at is module

    def _learn(self, root):
        self._changed(None)
        self._doubtful.clear()
        there = weakref.ref(root)
        best = {}
        for raw, module in root.named_modules():
            path = strip(raw)
            before = best.get(path)
            if before is not None:  # the inner one of two with the same path is the model's
                self._paths[id(before)] = (*self._paths[id(before)][:1], None, *self._paths[id(before)][2:])
            best[path] = module
            self._paths[id(module)] = (weakref.ref(module), path, there, raw)
        if "" in best and best[""] is root and not any(True for _ in root.parameters()):
            self._paths[id(root)] = (there, type(root).__name__, there, "")  # a loss: "" is the model

    def of(self, module, stack):
        """The path of `module`, called inside those on `stack` (outermost first)."""
        known = self._paths.get(id(module))
        if known and known[0]() is module:
            return known[1]
        root = self._root(stack[0] if stack else module)
        known = self._doubtful.pop(id(module), None)
        if known and self._still(module, known, root):
            self._paths[id(module)] = known
            return known[1]
        self._learn(root)
        known = self._paths.get(id(module))
        if known and known[0]() is module:
            return known[1]
        if stack:  # in no tree that we know: made on the fly
            above = self._paths.get(id(stack[-1]))
            path = f"{above[1]}.{type(module).__name__}" if above and above[1] else type(module).__name__
            self._paths[id(module)] = (weakref.ref(module), path, weakref.ref(module), "?")
            return path
        self._learn(module)
        return self._paths[id(module)][1]


class Names:
    """Names of an optimizer's parameters: their path in the module tree that holds them."""

    def __init__(self):
        self._names = {}  # id -> (weak reference, name)

    def _scan(self):
        # type(), not isinstance(): some objects run code when asked for their class
        modules = [o for o in gc.get_objects() if issubclass(type(o), torch.nn.Module)]
        inner = {id(c) for m in modules for c in m._modules.values() if c is not None}
        for root in modules:
            if id(root) in inner:
                continue
            for raw, p in root.named_parameters():
                known = self._names.get(id(p))
                if not known or known[0]() is not p:
                    self._names[id(p)] = (weakref.ref(p), strip(raw))

    def of(self, parameters):
        """A name for each, in order; one that no module holds is named by its place."""
        missing = False
        for p in parameters:
            known = self._names.get(id(p))
            missing |= not known or known[0]() is not p
        if missing:
            self._scan()
        names = []
        for i, p in enumerate(parameters):
            known = self._names.get(id(p))
            if not known or known[0]() is not p:
                known = self._names[id(p)] = (weakref.ref(p), f"parameter.{i}")
            names.append(known[1])
        return names
