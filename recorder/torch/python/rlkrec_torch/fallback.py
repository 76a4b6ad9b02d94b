"""The observer without a compiler: a dispatch mode in Python that tells the tap what observer.cpp would tell it.

Slower by far, and blind where a mode is: threads other than the one that imported torch and autograd's, and what
torch.compile makes. Collectives are recorded without their outputs. Everything else is the same event for event; the
names here are those of observer.cpp and spans.c, where the reasons stand.
"""
import ctypes
import struct
import threading
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from . import tap as T

FWD, RECOMPUTE, BWD, OPT, NONE = range(5)
MODULE = 3  # enum rlk_tap_level
PASSES = (b"fwd", b"recompute", b"bwd", b"opt", b"")

DTYPES = {name: code for code, names in {
    1: "bool", 2: "uint8 quint8", 3: "int8 qint8", 4: "uint16", 5: "int16", 6: "uint32", 7: "int32 qint32", 8: "uint64", 9: "int64",
    10: "float8_e4m3fn", 11: "float8_e5m2", 12: "float16", 13: "bfloat16", 14: "float32", 15: "float64", 16: "complex32", 17: "complex64",
    18: "complex128", 19: "float8_e4m3fnuz", 20: "float8_e5m2fnuz", 21: "float8_e8m0fnu"}.items() for name in names.split()}
OVERWRITES = set("copy_ fill_ zero_ normal_ uniform_ random_ exponential_ geometric_ cauchy_ log_normal_ bernoulli_ set_ _foreach_copy_ "
                 "_foreach_zero_ _foreach_fill_ eye_ randperm_".split())
VIEWS = set("_unsafe_view lift detach_ t_ transpose_ squeeze_ unsqueeze_ as_strided_ swapaxes_ swapdims_ swapaxis_ rename_ requires_grad_ "
            "_fw_primal".split())
STATISTICS = set("native_batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit _batch_norm_with_update batch_norm_update_stats "
                 "batch_norm_gather_stats batch_norm_gather_stats_with_counts".split())
NO_ATTR = {"layout", "device", "memory_format", "pin_memory", "non_blocking"}
UNFILLED = {("aten::mkldnn_rnn_layer", 3), ("aten::_ctc_loss", 1)}
RANDOM_STATE = {"philox_seed", "philox_offset", "rng_state", "unused"}  # of fused attention: without dropout nobody fills or reads it
UNUSED = {"debug_attn_mask", "unused"}
MASK = (1 << 64) - 1


def mix(h, w):
    h = (h ^ w) * 0x9E3779B97F4A7C15 & MASK
    return h ^ h >> 29


def has_bytes(t):
    return t.layout == torch.strided and not t.is_nested and not torch._C._dispatch_keys(t).has(torch._C.DispatchKey.Python) and \
        not t.is_meta


def each(value, depth=0):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)) and depth < 3:
        for v in value:
            yield from each(v, depth + 1)


class Storage:
    __slots__ = ("weak", "generation", "version", "data", "counters", "undefined", "sample")


def sample_of(s):
    """A few words of the storage: a write that nothing tells of shows there, as a rule."""
    n, data = s.nbytes(), s.data_ptr()
    size = min(n, 8)
    return n, [ctypes.string_at(data + (n - size) // 15 * i, size) for i in range(16)] if data else []


class Op:
    """What observer_ops.h knows of an operator."""

    def __init__(self, func):
        schema = func._schema
        self.name = schema.name
        self.overload = schema.overload_name
        self.ns, base = self.name.split("::", 1)
        self.composite = func._can_decompose() and not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CPU")
        self.random = torch.Tag.nondeterministic_seeded in func.tags
        self.alloc = self.ns == "aten" and (base.startswith(("empty", "new_empty", "resize")) or
                                            base in ("_empty_affine_quantized", "_resize_output_", "_efficientzerotensor"))
        self.resize = self.alloc and "resize" in base
        self.alias = self.name == "aten::set_"
        self.arguments = schema.arguments
        self.roles, self.writes, self.training = [], False, None
        hidden = ("running_mean", "running_var") if base in STATISTICS else \
            ("noise",) if base in ("rrelu_with_noise", "rrelu_with_noise_") else ()
        for a in schema.arguments:
            writes = a.alias_info is not None and a.alias_info.is_write
            self.writes |= writes
            if a.name == "training":
                self.training = len(self.roles)
            self.roles.append(3 if a.name in hidden else 0 if not writes else 2 if base in OVERWRITES or a.is_out else 1)
        self.returns = [r.name or "" for r in schema.returns]
        tensors = [r for r in schema.returns if str(r.type) in ("Tensor", "List[Tensor]")]
        self.view = base in VIEWS or (not self.writes and bool(tensors) and
                                      all(r.alias_info is not None and not r.alias_info.is_write for r in tensors))
        self.scalar = any(str(r.type) in ("number", "Scalar") for r in schema.returns)
        self.attention = "attention" in self.name
        self.dropout = next((i for i, a in enumerate(schema.arguments) if a.name == "dropout_p"), None)
        self.collective = self.ns in ("c10d", "_c10d_functional")
        self.list_types = [str(a.type) in ("List[int]", "Optional[List[int]]") for a in schema.arguments]

    def drops(self, values):
        """Does fused attention drop anything, for all we know?"""
        return not self.attention or self.dropout is None or values[self.dropout] != 0


def tensors_in(value, name, names, found, depth=0):
    """Collects the tensors of a module's arguments or results under readable names."""
    if isinstance(value, torch.Tensor):
        names.append(name)
        found.append(value)
    elif isinstance(value, (list, tuple)) and depth < 4:
        for i, v in enumerate(value):
            tensors_in(v, f"{name}.{i}" if name else str(i), names, found, depth + 1)
    elif isinstance(value, dict) and depth < 4:
        for k, v in value.items():
            tensors_in(v, f"{name}.{k}" if name else str(k), names, found, depth + 1)
    return names, found


class Frame:
    __slots__ = ("path", "call", "pass_", "task")

    def __init__(self, path="", call=0, pass_=FWD, task=-1):
        self.path, self.call, self.pass_, self.task = path, call, pass_, task


class Thread(threading.local):
    def __init__(self):
        self.frames, self.origins, self.counts = [], [], {}
        self.count_epoch = self.epoch = -1
        self.ctx = self.sent = None
        self.suppressed, self.last = 0, ("", 0)
        self.calls = []  # modules that run: (module, number of its path or None, open event)


class Mode(TorchDispatchMode):
    def __init__(self, observer):
        super().__init__()
        self.observer = observer

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        o = self.observer
        if not o.on:
            return func(*args, **kwargs)
        op = o.ops.get(func)
        if op is None:
            op = o.ops[func] = Op(func)
        if op.composite:
            with self:
                return func.decompose(*args, **kwargs)
        if op.view or op.ns in ("prim", "profiler") or o.thread.suppressed:
            return func(*args, **kwargs)
        return o.call(op, func, args, kwargs)


class Observer:
    def __init__(self, table):
        self.tap = table
        self.on = False
        self.thread = Thread()
        self.ops, self.storages = {}, {}
        self.sweep_at = 4096
        self.paths, self.path_ids = [""], {}
        self.module_ids = {}  # id -> (weak reference, number of its path or None)
        self.now_step = self.now_work = 0
        self.phase = self.sample = None
        self.span_epoch = self.counts_epoch = 0
        self.ran = False
        self.lock = threading.RLock()

    # What hooks.py calls: the functions of observer.cpp

    def level(self):
        return self.tap.level if self.tap is not None else 0

    def start(self, operators, ranks_of):
        self.on = True
        if operators:
            self.mode = Mode(self)
            self.mode.__enter__()
        return self.level()

    def leave(self):
        """Takes the mode off, if no other was put on top of it; else it stays and does nothing."""
        from torch.utils._python_dispatch import _get_current_dispatch_mode

        self.on = False
        if _get_current_dispatch_mode() is self.mode:
            self.mode.__exit__(None, None, None)

    def intern(self, path):
        if path not in self.path_ids:
            self.path_ids[path] = len(self.paths)
            self.paths.append(path)
        return self.path_ids[path]

    def push(self, frame):
        self.thread.frames.append(frame)
        self.origin()

    def pop(self):
        if self.thread.frames:
            self.thread.frames.pop()
        self.origin()

    def modules(self, outermost, path_of):
        self.outermost, self.path_of = outermost, path_of

    def paths_changed(self, module):
        if module is None:
            self.module_ids.clear()
        else:
            self.module_ids.pop(id(module), None)

    def module_enter(self, module, args):
        calls = self.thread.calls
        if not calls:
            self.outermost()
        known = self.module_ids.get(id(module))
        if known and known[0]() is module:
            number = known[1]
        else:
            number = self.path_of(module, [m for m, _, _ in calls])
            self.module_ids[id(module)] = (weakref.ref(module), number)
        op = None
        if number is not None:
            task = torch._C._current_graph_task_id()
            path, pass_ = self.paths[number], RECOMPUTE if task != -1 else FWD
            self.push(Frame(path, self.count(path, pass_), pass_, task))
            if self.level() == MODULE and self.on:
                ctx = self.enter(self.thread.frames[-1])
                op = self.tap.op_begin(ctx, b"module", None) if ctx else None
                self.named(op, *tensors_in(args, "", [], []), False)
        calls.append((module, number, op))

    def module_leave(self, module, kwargs, result):
        calls = self.thread.calls
        if not any(m is module for m, _, _ in calls):
            return  # it was never entered: a hook before ours threw
        inner = None
        while inner is not module:
            inner, number, op = calls.pop()
            if op and inner is module and result is not None:
                self.named(op, *tensors_in(kwargs, "", [], []), False)
                self.named(op, *tensors_in(result, "", [], []), True)
                self.tap.op_end(op)
            elif op:
                self.tap.op_cancel(op)
            if number is not None:
                self.pop()

    def named(self, op, names, tensors, output):
        if not op:
            return
        for name, t in zip(names, tensors):
            described = self.describe(t, name)
            (self.tap.op_out if output else self.tap.op_in)(op, ctypes.byref(described))

    def opt_begin(self):
        self.push(Frame(pass_=OPT))

    def opt_end(self):
        self.pop()

    def spans_changed(self, counts):
        self.counts_epoch += counts
        self.span_epoch += 1

    def set_step(self, n):
        self.now_step, self.now_work, self.ran = n, 0, False
        self.spans_changed(1)

    def step(self):
        return self.now_step

    def set_work(self, n):
        self.now_work = n
        self.spans_changed(1)

    def work(self):
        return self.now_work

    def set_phase(self, name):
        self.phase = name
        self.spans_changed(1)

    def set_sample(self, name):
        self.sample = name
        self.spans_changed(0)

    def backward_ran(self):
        ran, self.ran = self.ran, False
        return ran

    def tensors(self, kind, name, pass_, version, side, names, tensors, role, here):
        frame = self.top() if here else Frame(pass_=pass_)
        ctx = self.enter(frame) if self.on and not self.thread.suppressed else None
        if not ctx:
            return
        tap = self.tap
        op = tap.weights_begin(ctx, version.encode(), side.encode()) if kind == "weights" else tap.op_begin(ctx, name.encode(), None)
        for n, t in zip(names, tensors):
            if role == "out":
                self.raise_versions([t], False)
                self.put_out(op, t, n, True, None)
            else:
                self.put_in(op, t, n, role == "in!")
        tap.op_end(op)

    def metric(self, name, value):
        ctx = self.enter(self.top()) if self.on else None
        if ctx:
            self.tap.metric(ctx, name.encode(), value)

    def meta(self, key, value):
        if self.tap is not None:
            self.tap.meta(key.encode(), value.encode())

    def fault(self, code, text):
        self.on = False
        if self.tap is not None:
            self.tap.fault(code.encode(), text.encode())

    def suppress(self, on):
        self.thread.suppressed = max(0, self.thread.suppressed + (1 if on else -1))

    def detach(self):
        self.on = False

    def finish(self):
        pass

    def close(self):
        if self.on:
            self.on = False
            self.tap.finish()

    # Spans

    def count(self, path, pass_):
        th = self.thread
        if th.count_epoch != self.counts_epoch:
            th.counts, th.count_epoch = {}, self.counts_epoch
        n = th.counts.get((path, pass_), 0)
        th.counts[(path, pass_)] = n + 1
        return n

    def origin(self):
        """Nodes that autograd makes on this thread from here on come from the innermost frame."""
        th, sequence = self.thread, torch._C._autograd._get_sequence_nr()
        path, call = (th.frames[-1].path, th.frames[-1].call) if th.frames else ("", 0)
        while th.origins and th.origins[-1][0] >= sequence:
            th.origins.pop()
        th.origins.append((sequence, path, call))
        if len(th.origins) > 1 << 18:
            del th.origins[: 1 << 17]

    def origin_of(self, sequence):
        origins = self.thread.origins
        low, high = 0, len(origins)
        while low < high:
            middle = (low + high) // 2
            if origins[middle][0] <= sequence:
                low = middle + 1
            else:
                high = middle
        return origins[low - 1][1:] if low else ("", 0)

    def top(self):
        th, task = self.thread, torch._C._current_graph_task_id()
        frame = th.frames[-1] if th.frames else None
        if task == -1:
            return frame or Frame()
        self.ran = True
        if frame is not None and frame.task == task:
            return frame
        node = torch._C._current_autograd_node()
        if node is None:  # the engine adds up what it got
            return Frame(*th.last, BWD)
        sequence = node._sequence_nr()
        th.last = self.origin_of(sequence) if 0 <= sequence < 1 << 63 else ("", 0)
        return Frame(*th.last, RECOMPUTE if torch.is_grad_enabled() else BWD)

    def enter(self, frame):
        th, tap = self.thread, self.tap
        if th.ctx is None:
            th.ctx = tap.ctx(T.OWN_RANK)
            if not th.ctx:
                return None
        if th.epoch != self.span_epoch:
            tap.step(th.ctx, self.now_step)
            tap.phase(th.ctx, self.phase.encode() if self.phase else None)
            tap.work(th.ctx, self.now_work, 0)
            tap.sample(th.ctx, self.sample.encode() if self.sample else None)
            th.epoch, th.sent = self.span_epoch, None
        at = (frame.path, frame.pass_, frame.call)
        if th.sent != at:
            tap.module_at(th.ctx, frame.path.encode(), PASSES[frame.pass_], frame.call)
            th.sent = at
        return th.ctx

    # Storages

    def storage(self, t):
        s = t.untyped_storage()
        entry = self.storages.get(s._cdata)
        if entry is not None and not entry.weak.expired():
            return entry, s
        if entry is not None:
            self.tap.storage_free(entry.generation)
        if len(self.storages) >= self.sweep_at:
            for key in [k for k, e in self.storages.items() if e.weak.expired()]:
                self.tap.storage_free(self.storages.pop(key).generation)
            self.sweep_at = max(4096, 2 * len(self.storages))
        entry = Storage()
        entry.weak, entry.generation, entry.version, entry.data, entry.counters = StorageWeakRef(s), self.tap.generation(), 1, None, set()
        entry.undefined = entry.sample = None
        self.storages[s._cdata] = entry
        return entry, s

    def check(self, entry, t, data):
        unseen = entry.data != data
        if not t.is_inference():
            unseen |= bool(entry.counters) and t._version not in entry.counters
            if unseen:
                entry.counters.clear()
            entry.counters.add(t._version)
        if entry.undefined and (unseen or entry.sample != sample_of(t.untyped_storage())):
            entry.undefined = None
        if unseen and entry.data is not None:
            entry.version += 1
            self.tap.storage_written(entry.generation)
        entry.data = data

    def written(self, entry, t, data):
        # A mode sees a call in place before its version is raised: either value is what it left.
        entry.counters = set() if t.is_inference() else {t._version, t._version + 1}
        entry.data = data

    def set_undefined(self, entry, s, why):
        entry.undefined = why if s.device.type == "cpu" and s.nbytes() else None
        entry.sample = sample_of(s) if entry.undefined else None

    def raise_versions(self, tensors, unknown, op=None):
        done = set()
        for t in tensors:
            if not has_bytes(t):
                continue
            entry, s = self.storage(t)
            if s._cdata not in done:
                entry.version += 1
                done.add(s._cdata)
            self.written(entry, t, s.data_ptr())
            if op and op.alloc and (not op.resize or entry.undefined):
                self.set_undefined(entry, s, b"uninitialized")
            else:
                entry.undefined = None
            if unknown:
                self.tap.storage_written(entry.generation)

    # Tensors

    def describe(self, t, name):
        d = T.Tensor()
        d.name = name.encode()[:95]

        def no(reason):
            d.state, d.reason = T.NOT_DIGESTED, reason
            return d

        d.view.dtype = DTYPES.get(str(t.dtype).split(".")[-1], 0)
        if not d.view.dtype:
            d.view.dtype = DTYPES["uint8"]
            no(b"dtype")
        if not has_bytes(t):
            no(b"layout" if t.layout != torch.strided else b"subclass")
            if t.is_nested:
                return d
        if t.dim() > 64:
            return no(b"dimensions")
        d.view.ndim = t.dim()
        d.view.shape = (ctypes.c_uint64 * max(t.dim(), 1))(*t.shape)
        if d.state != T.DIGESTED:
            return d
        if not t.is_contiguous():
            d.view.strides = (ctypes.c_int64 * max(t.dim(), 1))(*t.stride())
        d.view.offset = t.storage_offset()
        d.view.conj, d.view.neg = t.is_conj(), t.is_neg()
        if not t.device.type == "cpu":
            return no(b"device")
        s = t.untyped_storage()
        d.view.storage_bytes, d.view.storage = s.nbytes(), s.data_ptr() or None
        if not d.view.storage and t.numel():
            no(b"no-storage")
        return d

    def put_in(self, op, t, name, always):
        d = self.describe(t, name)
        if has_bytes(t):
            entry, s = self.storage(t)
            self.check(entry, t, s.data_ptr())
            d.generation, d.version = entry.generation, entry.version
            if entry.undefined and not always and t.numel() and d.state == T.DIGESTED:
                d.state, d.reason = T.UNDEFINED, entry.undefined
        d.always_digest = always
        self.tap.op_in(op, ctypes.byref(d))

    def put_out(self, op, t, name, known, reason):
        d = self.describe(t, name)
        if reason:
            d.state, d.reason = T.NOT_DIGESTED, reason
        if known and has_bytes(t):
            entry, s = self.storage(t)
            self.written(entry, t, s.data_ptr())
            d.generation, d.version = entry.generation, entry.version
        self.tap.op_out(op, ctypes.byref(d))

    def put_attr(self, op, key, value, standard, int_list):
        a = T.Attr(key=key.encode())
        if key in NO_ATTR or key.endswith("dtype"):
            return
        if isinstance(value, (bool, int)) and not int_list:
            if isinstance(standard, (bool, int)) and standard == value:
                return
            a.type, a.i = T.INT, value
        elif isinstance(value, float):
            if isinstance(standard, float) and standard == value:
                return
            a.type, a.d = T.DOUBLE, value
        elif isinstance(value, str):
            a.type, a.s = T.STRING, value.encode()
        elif int_list and isinstance(value, (list, tuple)):
            text = ",".join(str(int(v)) for v in value[:16])
            a.type, a.s = T.STRING, f"[{text}{',...' if len(value) > 16 else ''}]".encode()
        else:
            return
        self.tap.op_attr(op, ctypes.byref(a))

    def put_rng(self, ctx, op, values):
        for a, v in zip(op.arguments, values):
            if a.name.startswith("dropout_p") and isinstance(v, float) and v == 0:
                return
        generator = next((v for v in values if isinstance(v, torch.Generator)), torch.default_generator)
        if generator.device.type != "cpu" or not all(t.device.type == "cpu" for v in values for t in each(v)):
            return
        state = generator.get_state()
        raw = ctypes.string_at(state.data_ptr(), state.numel())
        left, _, following = struct.unpack_from("<iiQ", raw, 8)
        words = struct.unpack_from("<624Q", raw, 24)
        h = mix(mix(0, left & 0xFFFFFFFF), following)
        for w in words:
            h = mix(h, w)
        double_valid = struct.unpack_from("<i", raw, 24 + 624 * 8 + 24)[0] != 0
        float_valid = raw[24 + 624 * 8 + 32 + 4] != 0
        h = mix(h, 2 * float_valid + double_valid)
        e = T.Event(kind=T.RNG)
        e.u.rng.generator, e.u.rng.seed, e.u.rng.offset = b"mt19937", generator.initial_seed() & MASK, h
        self.tap.event(ctx, ctypes.byref(e))

    # Operators

    def call(self, op, func, args, kwargs):
        with self.lock:
            try:
                state = self.before(op, args, kwargs)
            except Exception as e:
                self.fault("observer-failed", f"{type(e).__name__}: {e}")
                state = None
        try:
            result = func(*args, **kwargs)
        except BaseException:
            if state and state[0]:
                self.tap.op_cancel(state[0])
            raise
        if state:
            with self.lock:
                try:
                    self.after(op, result, *state)
                except Exception as e:
                    self.fault("observer-failed", f"{type(e).__name__}: {e}")
        return result

    def before(self, op, args, kwargs):
        values = list(args) + [kwargs.get(a.name, a.default_value if a.has_default_value() else None) for a in op.arguments[len(args):]]
        tensors = [t for v in values for t in each(v)]
        if tensors and all(t.is_meta for t in tensors):
            return None
        frame = self.top()
        ctx = self.enter(frame)
        if ctx and op.random:
            self.put_rng(ctx, op, values)
        handle = None
        if ctx:
            handle = self.tap.collective_begin(ctx, op.name.encode(), b"") if op.collective else self.tap.op_begin(ctx, op.name.encode(), None)
        if handle and op.overload and op.overload != "default":
            self.tap.op_attr(handle, ctypes.byref(T.Attr(key=b"overload", type=T.STRING, s=op.overload.encode())))
        seen, written, inputs, drops = set(), [], 0, op.drops(values)
        for i, (argument, value) in enumerate(zip(op.arguments, values)):
            role = op.roles[i]
            if not drops and argument.name in RANDOM_STATE:
                continue
            if role == 3:  # written in training
                role = 0 if op.training is not None and not values[op.training] else 1
            found = list(each(value))
            many = isinstance(value, (list, tuple))
            for member, t in enumerate(found):
                if has_bytes(t):
                    seen.add(t.untyped_storage()._cdata)
                if role:
                    written.append((i, t))
                if role == 2:
                    continue
                inputs += 1
                if handle:
                    self.put_in(handle, t, f"{argument.name}.{member}" if many else argument.name, False)
            if not found and handle:
                self.put_attr(handle, argument.name, value, argument.default_value if argument.has_default_value() else None, op.list_types[i])
        return handle, ctx, frame, seen, written, inputs, UNUSED if drops else UNUSED | RANDOM_STATE

    def after(self, op, result, handle, ctx, frame, seen, written, inputs, unused):
        outs, returned, aliases = [], set(), False
        results = result if isinstance(result, tuple) else (result,)
        for i, value in enumerate(results):
            many = isinstance(value, (list, tuple))
            for member, t in enumerate(each(value)):
                argument = next((a for a, w in written if w is t), None)
                if argument is None and has_bytes(t) and t.untyped_storage()._cdata in seen:
                    aliases = True
                    continue
                returned.add(id(t))
                returns = op.returns[i] if i < len(op.returns) else ""
                name = op.arguments[argument].name if argument is not None else returns
                reason = b"unused-output" if op.attention and returns in unused or (op.name, i) in UNFILLED else None
                outs.append((t, f"{name}.{member}" if many else name, reason))
        counts = {}
        for argument, t in written:
            member = counts.get(argument, 0)
            counts[argument] = member + 1
            if id(t) not in returned:
                outs.append((t, f"{op.arguments[argument].name}.{member}", None))
        unknown = op.alloc or op.alias or op.collective
        self.raise_versions([t for t, _, _ in outs], unknown, op)
        for t, _, reason in outs:
            if reason and has_bytes(t):
                self.set_undefined(*self.storage(t), reason)
        if not handle:
            return
        if (not outs and (aliases or inputs == 0)) or (outs and all(t.is_meta for t, _, _ in outs)):
            self.tap.op_cancel(handle)
            return
        for t, name, reason in outs:
            self.put_out(handle, t, name, not unknown, b"alloc" if op.alloc else b"alias" if op.alias else b"unwaited" if op.collective else reason)
        self.tap.op_end(handle)
        if op.scalar and frame.pass_ != OPT and isinstance(result, float):
            self.tap.metric(ctx, b"item", result)


def load():
    table = T.open_table()
    return Observer(table) if table is not None else None
