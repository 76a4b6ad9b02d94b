/* observer.cpp - sees every operator that a torch process dispatches and tells the recorder (recorder/rlk_tap.h).
 *
 * The one C++ file: a Python extension module, built against the installed torch (rlkrec_torch/build.py), that sets one
 * global RecordFunction callback. What is recorded and how is docs/torch.md; the rules that shape the code:
 *  - An operator is recorded where a dispatch mode would see it: not if it only calls others (composite), not if it is
 *    part of a recorded one, not if it only makes a view.
 *  - No tensor reference is held while an operator runs: inputs are read in the start callback, outputs in the end
 *    callback, and what must be found again in between is a weak reference.
 *  - Nothing here may fail the program: every callback catches everything, the first fault stops the recording.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/python_variable.h>

#include "recorder/torch/observer_modules.h"

#include <exception>

namespace
{

/* Start and end of an operator */

rlk_tap_op *open_event(OpState *st, c10::ArrayRef<const IValue> args)
{
    const rlk_tap_api *tap = rlk_tap();
    const char *function =
        st->info->c10d || st->info->functional_collective ? collective_name(st->info->name) : nullptr;
    if (!function || st->info->wait)
        return tap->op_begin(st->ctx, st->info->name.c_str(), nullptr);
    Group g;
#ifdef RLKT_C10D
    for (const IValue &v : args)
        if (v.isCustomClass() || v.isObject())
            try {
                g = group_of(*v.toCustomClass<c10d::ProcessGroup>());
                break;
            } catch (const std::exception &) { /* another class: a ReduceOp */
            }
#endif
    if (st->info->functional_collective && args.size() && args[args.size() - 1].isString())
        g.name = args[args.size() - 1].toStringRef();
    rlk_tap_op *op = tap->collective_begin(st->ctx, function, g.name.c_str());
    rlk_event detail = {};
    detail.kind = RLK_EV_COLLECTIVE;
    detail.u.collective.group = g.name.c_str();
    detail.u.collective.ranks = g.ranks.data();
    detail.u.collective.nranks = static_cast<uint32_t>(g.ranks.size());
    tap->op_detail(op, &detail);
    return op;
}

/* Fused attention hands its random state from forward to backward in tensors of these names. Without dropout nothing
 * fills them and nothing reads them. */
bool is_random_state(const std::string &name)
{
    return one_of(name, {"philox_seed", "philox_offset", "rng_state", "unused"});
}

/* What an operator returns and does not fill, or fills only in part: what it keeps for its backward, where that needs
 * none of it. */
const char *undefined_output(const OpState *st, size_t i, c10::ArrayRef<const IValue> args)
{
    const OpInfo *info = st->info;
    if ((info->name == "aten::mkldnn_rnn_layer" && i == 3) || (info->name == "aten::_ctc_loss" && i == 1) ||
        (info->name == "aten::_cudnn_rnn" && i == 3))
        return "unused-output";
    if (i == 3 && one_of(info->name, {"aten::cudnn_batch_norm", "aten::_batch_norm_with_update", "aten::miopen_rnn"}))
        return "unused-output";
    if (i == 1 && starts(info->name, "aten::nll_loss")) /* the weights' sum, of a reduction that sums nothing */
        for (size_t a = 0; a < args.size() && a < info->arg_names.size(); a++)
            if (info->arg_names[a] == "reduction" && args[a].isInt() && args[a].toInt() == 0)
                return "unused-output";
    if (!info->attention || i >= info->out_names.size())
        return nullptr;
    if (info->out_names[i] == "debug_attn_mask" || info->out_names[i] == "unused")
        return "unused-output";
    return !st->drops && is_random_state(info->out_names[i]) ? "unused-output" : nullptr;
}

std::unique_ptr<at::ObserverContext> start_op(Thread &th, const at::RecordFunction &fn, const OpInfo *info)
{
    c10::ArrayRef<const IValue> args = fn.inputs();
    bool meta = false;
    if (fn.seqNr() >= 0)
        rlkt_origin_set(th.spans, fn.seqNr());
    if (th.suppress || info->view || info->internal || transparent(info, args, &meta))
        return nullptr;
    if (!th.pending.empty())
        pending_poll(th, false);
    auto st = std::make_unique<OpState>(M_OP);
    st->info = info;
    st->meta = meta;
    st->exceptions = std::uncaught_exceptions();
    th.leaf++;
    if (meta)
        return st;
    rlkt_frame frame = rlkt_top(th.spans);
    if (frame.kind == RLKT_NODE && !frame.grad && at::GradMode::is_enabled())
        frame.pass = RLKT_RECOMPUTE;
    st->pass = frame.pass;
    st->ctx = rlkt_enter(th.spans, frame);
    if (st->ctx && info->random)
        put_rng(st->ctx, info, args);
    st->op = st->ctx ? open_event(st.get(), args) : nullptr;
    if (st->op && !info->overload.empty()) {
        rlk_attr a = {};
        a.key = "overload";
        a.type = RLK_ATTR_STRING;
        a.s = info->overload.c_str();
        rlk_tap()->op_attr(st->op, &a);
    }
    if (info->non_blocking >= 0 && static_cast<size_t>(info->non_blocking) < args.size()) {
        const IValue &v = args[static_cast<size_t>(info->non_blocking)];
        st->later = v.isBool() && v.toBool();
    }
    st->drops = !info->attention || drops(info, args);
    TapTensor tt;
    for (size_t i = 0; i < args.size() && i < info->args.size(); i++) {
        uint8_t role = info->c10d ? c10d_role(info, i, args) : info->args[i];
        if (role == ARG_TRAINING)
            role = training_role(info, args);
        int member = args[i].isList() ? 0 : -1;
        bool any = false;
        if (!st->drops && is_random_state(info->arg_names[i]))
            continue;
        each_tensor(args[i], [&](const at::Tensor &t) {
            any = true;
            st->device |= !t.device().is_cpu();
            if (put_number(st->op, info->arg_names[i], t))
                return;
            if (has_bytes(t))
                st->seen.push_back(t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
            if (role != ARG_PLAIN)
                st->written.emplace_back(i, c10::weak_intrusive_ptr<c10::TensorImpl>(t.getIntrusivePtr()));
            if (role == ARG_OVERWRITE || info->wait) {
                member += member >= 0;
                return;
            }
            st->inputs++;
            if (st->op) {
                name_it(tt, info->arg_names[i], member);
                put_in(st->op, t, tt, th.compiled > 0, st->later);
            }
            member += member >= 0;
        });
        if (!any && st->op && !info->quiet[i])
            put_attr(st->op, info->arg_names[i], args[i], info->defaults[i]);
    }
    if (info->ns != "aten")
        storages_doubt(st->seen);
    if (st->op)
        rlk_tap()->op_run(st->op);
    return st;
}

/* Outputs: what was returned and is no alias of an input, then what was written and not returned. */
Outputs outputs_of(const OpState *st, const at::RecordFunction &fn, bool *aliases)
{
    static const std::string unnamed;
    Outputs outs;
    const std::vector<IValue> &values = fn.outputs();
    c10::SmallVector<const c10::TensorImpl *, 4> returned;
    c10::SmallVector<std::pair<size_t, at::Tensor>, 2> live;
    for (auto &w : st->written)
        if (c10::intrusive_ptr<c10::TensorImpl> impl = w.second.lock())
            live.emplace_back(w.first, at::Tensor(std::move(impl)));
    auto writer = [&](const c10::TensorImpl *i) {
        for (auto &l : live)
            if (l.second.unsafeGetTensorImpl() == i)
                return static_cast<long>(l.first);
        return -1L;
    };
    for (size_t i = 0; i < values.size(); i++) {
        int member = values[i].isList() ? 0 : -1;
        const std::string &name = i < st->info->out_names.size() ? st->info->out_names[i] : unnamed;
        each_tensor(values[i], [&](const at::Tensor &t) {
            int m = member;
            member += member >= 0;
            long arg = writer(t.unsafeGetTensorImpl());
            const c10::StorageImpl *s =
                has_bytes(t) ? t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() : nullptr;
            if (arg < 0 && s && std::find(st->seen.begin(), st->seen.end(), s) != st->seen.end()) {
                *aliases = true;
                return;
            }
            returned.push_back(t.unsafeGetTensorImpl());
            const std::string &n = arg >= 0 ? st->info->arg_names[static_cast<size_t>(arg)] : name;
            outs.push_back({t, &n, m, undefined_output(st, i, fn.inputs()), 0, 0});
        });
    }
    size_t last = SIZE_MAX;
    int member = 0;
    for (auto &l : live) {
        member = l.first == last ? member + 1 : 0;
        last = l.first;
        if (std::find(returned.begin(), returned.end(), l.second.unsafeGetTensorImpl()) == returned.end())
            outs.push_back({l.second, &st->info->arg_names[l.first], member, nullptr, 0, 0});
    }
    return outs;
}

/* A collective's outputs wait until it has completed. */
bool defer(Thread &th, OpState *st, const at::RecordFunction &fn, const Outputs &outs)
{
    if (!st->op || !(st->info->c10d || (st->info->functional_collective && !st->info->wait)))
        return false;
    Pending p = {};
    p.op = st->op;
#ifdef RLKT_C10D
    for (const IValue &v : fn.outputs())
        if (v.isCustomClass() || v.isObject())
            try {
                p.work = v.toCustomClass<c10d::Work>();
            } catch (const std::exception &) {
            }
    if (st->info->c10d && !p.work)
        return false;
#endif
    for (const Output &o : outs) {
        p.outs.emplace_back(o.tensor.getIntrusivePtr());
        p.names.push_back(o.label());
        if (has_bytes(o.tensor)) {
            c10::StorageImpl *s = o.tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
            p.storages.push_back(s);
            std::lock_guard<std::mutex> hold(storages.lock);
            storage_entry(s);
        }
    }
    pending_mark(p.storages, 1);
    th.pending.push_back(std::move(p));
    return true;
}

void finish_wait(Thread &th, const at::RecordFunction &fn)
{
    for (const IValue &v : fn.outputs())
        each_tensor(v, [&](const at::Tensor &t) {
            if (!has_bytes(t))
                return;
            const c10::StorageImpl *s = t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
            for (size_t i = 0; i < th.pending.size(); i++) {
                Pending &p = th.pending[i];
                if (std::find(p.storages.begin(), p.storages.end(), s) == p.storages.end())
                    continue;
                pending_finish(p, nullptr);
                th.pending.erase(th.pending.begin() + static_cast<long>(i));
                return;
            }
        });
}

void end_op(Thread &th, const at::RecordFunction &fn, OpState *st)
{
    const rlk_tap_api *tap = rlk_tap();
    th.leaf--;
    if (st->meta)
        return;
    if (std::uncaught_exceptions() > st->exceptions) {
        tap->op_cancel(st->op);
        return;
    }
    if (st->info->wait) {
        tap->op_cancel(st->op);
        finish_wait(th, fn);
        return;
    }
    bool aliases = false;
    Outputs outs = outputs_of(st, fn, &aliases);
    if (defer(th, st, fn, outs))
        return;
    bool all_meta = !outs.empty();
    for (const Output &o : outs)
        all_meta &= o.tensor.device().is_meta();
    bool unknown = st->info->alloc || st->info->alias || th.compiled > 0;
    int what = st->info->resize ? RESIZES : st->info->alloc && !th.compiled ? ALLOCATES : WRITES;
    raise_versions(outs, unknown, what);
    for (Output &o : outs) {
        if (o.reason)
            storage_undefined(o.tensor, o.reason);
        if (st->later && st->device && o.tensor.device().is_cpu()) {
            o.reason = "async";
            storage_async(o.tensor);
        }
    }
    if (!st->op)
        return;
    if ((outs.empty() && (aliases || st->inputs == 0)) || all_meta) {
        tap->op_cancel(st->op);
        return;
    }
    TapTensor tt;
    for (const Output &o : outs) {
        name_it(tt, *o.name, o.member);
        put_out(st->op, o, tt, !unknown, st->info->alloc ? "alloc" : st->info->alias ? "alias" : o.reason);
    }
    tap->op_end(st->op);
    /* What the program reads out as a number is what it reports: a loss, a norm. Not an optimizer's own step counts. */
    if (st->info->scalar_out && st->pass != RLKT_OPT && fn.outputs().size() == 1 && fn.outputs()[0].isDouble())
        tap->metric(st->ctx, "item", fn.outputs()[0].toDouble());
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction &fn)
{
    if (!g_on.load(std::memory_order_relaxed))
        return nullptr;
    try {
        if (at::in_parallel_region())
            return nullptr; /* a worker of an operator that is being recorded on another thread */
        Thread &th = self();
        if (th.leaf || !th.spans)
            return nullptr;
        if (fn.scope() == at::RecordScope::BACKWARD_FUNCTION) {
            rlkt_node_begin(th.spans, fn.forwardThreadId(), fn.seqNr(), at::GradMode::is_enabled());
            return std::make_unique<OpState>(M_NODE);
        }
        if (const OpInfo *info = op_of(fn))
            return start_op(th, fn, info);
        const char *name = fn.name();
        if (!std::strncmp(name, "autograd::engine::evaluate_function", 35)) {
            rlkt_engine_begin(th.spans);
            return std::make_unique<OpState>(M_ENGINE);
        }
        if (!std::strncmp(name, "Torch-Compiled Region", 21)) {
            th.compiled++;
            g_compiled++;
            return std::make_unique<OpState>(M_COMPILED);
        }
        if (fn.seqNr() >= 0) /* a custom autograd function */
            rlkt_origin_set(th.spans, fn.seqNr());
    } catch (const std::exception &e) {
        fault("observer-failed", e.what());
    } catch (...) {
        fault("observer-failed", "unknown exception");
    }
    return nullptr;
}

void on_end(const at::RecordFunction &fn, at::ObserverContext *context)
{
    OpState *st = static_cast<OpState *>(context);
    if (!st)
        return;
    try {
        Thread &th = self();
        switch (st->mark) {
        case M_OP:
            end_op(th, fn, st);
            break;
        case M_NODE:
            rlkt_node_end(th.spans);
            break;
        case M_ENGINE:
            rlkt_engine_end(th.spans);
            break;
        case M_COMPILED:
            th.compiled--;
            g_compiled++;
            break;
        }
    } catch (const std::exception &e) {
        fault("observer-failed", e.what());
    } catch (...) {
        fault("observer-failed", "unknown exception");
    }
}

/* Python */

/* What the package calls (rlkrec_torch/hooks.py). Each takes the calling thread's state; none raises but for bad
 * arguments. */
#define GUARDED(body)                                                                                                  \
    try {                                                                                                              \
        body                                                                                                           \
    } catch (const std::exception &e) {                                                                                \
        fault("observer-failed", e.what());                                                                            \
    }                                                                                                                  \
    Py_RETURN_NONE

PyObject *py_start(PyObject *, PyObject *args)
{
    int operators = 0;
    PyObject *ranks_of = nullptr;
    if (!PyArg_ParseTuple(args, "pO", &operators, &ranks_of))
        return nullptr;
    const rlk_tap_api *tap = rlk_tap();
    if (!tap)
        return PyLong_FromLong(RLK_TAP_OFF);
    Py_INCREF(ranks_of);
    g_ranks_of = ranks_of;
    g_on = true;
    if (operators)
        at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end)
                                  .needsInputs(true)
                                  .needsOutputs(true)
                                  .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
    return PyLong_FromLong(tap->level);
}

PyObject *py_level(PyObject *, PyObject *)
{
    return PyLong_FromLong(rlk_tap() ? rlk_tap()->level : RLK_TAP_OFF);
}

PyObject *py_intern(PyObject *, PyObject *arg)
{
    const char *path = PyUnicode_AsUTF8(arg);
    return path ? PyLong_FromUnsignedLong(rlkt_intern(path)) : nullptr;
}

PyObject *py_opt_begin(PyObject *, PyObject *)
{
    if (self().spans)
        rlkt_optimizer_begin(self().spans);
    Py_RETURN_NONE;
}

PyObject *py_opt_end(PyObject *, PyObject *)
{
    if (self().spans)
        rlkt_optimizer_end(self().spans);
    Py_RETURN_NONE;
}

PyObject *py_set_step(PyObject *, PyObject *arg)
{
    long long n = PyLong_AsLongLong(arg);
    if (n == -1 && PyErr_Occurred())
        return nullptr;
    GUARDED(if (!self().pending.empty()) pending_poll(self(), true); rlkt_set_step(n););
}

PyObject *py_step(PyObject *, PyObject *)
{
    return PyLong_FromLongLong(rlkt_step());
}

PyObject *py_set_work(PyObject *, PyObject *arg)
{
    long long n = PyLong_AsLongLong(arg);
    if (n == -1 && PyErr_Occurred())
        return nullptr;
    rlkt_set_work(n);
    Py_RETURN_NONE;
}

PyObject *py_work(PyObject *, PyObject *)
{
    return PyLong_FromLongLong(rlkt_work());
}

PyObject *py_set_phase(PyObject *, PyObject *arg)
{
    rlkt_set_phase(PyUnicode_Check(arg) ? PyUnicode_AsUTF8(arg) : nullptr);
    Py_RETURN_NONE;
}

PyObject *py_set_sample(PyObject *, PyObject *arg)
{
    rlkt_set_sample(PyUnicode_Check(arg) ? PyUnicode_AsUTF8(arg) : nullptr);
    Py_RETURN_NONE;
}

PyObject *py_backward_ran(PyObject *, PyObject *)
{
    return PyBool_FromLong(rlkt_backward_ran());
}

/* tensors(kind, op, pass, version, side, names, tensors, role, here): one event over named tensors.
 * kind "op" or "weights"; role "in", "in!" (always digested) or "out"; here: in the innermost frame, else outside any.
 */
PyObject *py_tensors(PyObject *, PyObject *args)
{
    const char *kind, *op_name, *version, *side, *role;
    int pass, here;
    PyObject *names, *tensors;
    if (!PyArg_ParseTuple(args, "ssissO!O!sp", &kind, &op_name, &pass, &version, &side, &PyList_Type, &names,
                          &PyList_Type, &tensors, &role, &here))
        return nullptr;
    if (!g_on)
        Py_RETURN_NONE;
    GUARDED(Thread &th = self(); const rlk_tap_api *tap = rlk_tap(); rlkt_frame frame = {};
            if (!th.pending.empty()) pending_poll(th, false); if (here && th.spans) frame = rlkt_top(th.spans);
            else frame.pass = static_cast<uint8_t>(pass);
            rlk_tap_ctx *ctx = th.spans && !th.suppress ? rlkt_enter(th.spans, frame) : nullptr; if (ctx) {
                rlk_tap_op *op = std::strcmp(kind, "weights") ? tap->op_begin(ctx, op_name, nullptr)
                                                              : tap->weights_begin(ctx, version, side);
                TapTensor tt;
                for (Py_ssize_t i = 0; op && i < PyList_GET_SIZE(tensors) && i < PyList_GET_SIZE(names); i++) {
                    PyObject *o = PyList_GET_ITEM(tensors, i);
                    const char *name = PyUnicode_AsUTF8(PyList_GET_ITEM(names, i));
                    if (!THPVariable_Check(o) || !name || !THPVariable_Unpack(o).defined())
                        continue;
                    tt.name = name;
                    const at::Tensor &t = THPVariable_Unpack(o);
                    if (!std::strcmp(role, "out")) {
                        Outputs one(1, Output{t, nullptr, -1, nullptr, 0, 0});
                        raise_versions(one, false);
                        put_out(op, one[0], tt, true, nullptr);
                    } else {
                        put_in(op, t, tt, !std::strcmp(role, "in!"));
                    }
                }
                tap->op_end(op);
            });
}

PyObject *py_metric(PyObject *, PyObject *args)
{
    const char *name;
    double value;
    if (!PyArg_ParseTuple(args, "sd", &name, &value))
        return nullptr;
    GUARDED(Thread &th = self();
            rlk_tap_ctx *ctx = g_on && th.spans ? rlkt_enter(th.spans, rlkt_top(th.spans)) : nullptr;
            if (ctx) rlk_tap()->metric(ctx, name, value););
}

PyObject *py_meta(PyObject *, PyObject *args)
{
    const char *key, *value;
    if (!PyArg_ParseTuple(args, "ss", &key, &value))
        return nullptr;
    if (rlk_tap())
        rlk_tap()->meta(key, value);
    Py_RETURN_NONE;
}

PyObject *py_fault(PyObject *, PyObject *args)
{
    const char *code, *text;
    if (!PyArg_ParseTuple(args, "ss", &code, &text))
        return nullptr;
    fault(code, text);
    Py_RETURN_NONE;
}

/* While a compiler traces: what it runs to look at shapes and constants is not the program. */
PyObject *py_suppress(PyObject *, PyObject *arg)
{
    int on = PyObject_IsTrue(arg);
    Thread &th = self();
    th.suppress += on > 0 ? 1 : th.suppress > 0 ? -1 : 0;
    Py_RETURN_NONE;
}

PyObject *py_detach(PyObject *, PyObject *)
{
    g_on = false;
    rlkt_forked(true);
    Py_RETURN_NONE;
}

PyObject *py_finish(PyObject *, PyObject *)
{
    GUARDED(if (rlk_tap() && !self().pending.empty()) pending_poll(self(), true););
}

/* A process that is about to leave through _exit: what it recorded is complete. */
PyObject *py_close(PyObject *, PyObject *)
{
    GUARDED(if (g_on && rlk_tap()) {
        if (!self().pending.empty())
            pending_poll(self(), true);
        g_on = false;
        if (rlk_tap()->finish)
            rlk_tap()->finish();
    });
}

PyMethodDef methods[] = {
    {"start", py_start, METH_VARARGS, "start(operators, ranks_of) -> level"},
    {"level", py_level, METH_NOARGS, "level() -> what is asked for, 0 = no recorder"},
    {"intern", py_intern, METH_O, "intern(path) -> id"},
    {"modules", py_modules, METH_VARARGS, "modules(outermost, path_of): what module_enter asks"},
    {"module_enter", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(py_module_enter)), METH_FASTCALL,
     "module_enter(module, args)"},
    {"module_leave", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(py_module_leave)), METH_FASTCALL,
     "module_leave(module, kwargs, result or None)"},
    {"paths_changed", py_paths_changed, METH_O,
     "paths_changed(module or None): ask for its path, or for each module's, again"},
    {"opt_begin", py_opt_begin, METH_NOARGS, "opt_begin()"},
    {"opt_end", py_opt_end, METH_NOARGS, "opt_end()"},
    {"set_step", py_set_step, METH_O, "set_step(n)"},
    {"step", py_step, METH_NOARGS, "step() -> n"},
    {"set_work", py_set_work, METH_O, "set_work(n)"},
    {"work", py_work, METH_NOARGS, "work() -> n"},
    {"set_phase", py_set_phase, METH_O, "set_phase(name or None)"},
    {"set_sample", py_set_sample, METH_O, "set_sample(id or None)"},
    {"backward_ran", py_backward_ran, METH_NOARGS, "backward_ran() -> since the last call"},
    {"tensors", py_tensors, METH_VARARGS, "tensors(kind, op, pass, version, side, names, tensors, role, here)"},
    {"metric", py_metric, METH_VARARGS, "metric(name, value)"},
    {"meta", py_meta, METH_VARARGS, "meta(key, value)"},
    {"fault", py_fault, METH_VARARGS, "fault(code, text)"},
    {"suppress", py_suppress, METH_O, "suppress(on)"},
    {"detach", py_detach, METH_NOARGS, "detach()"},
    {"finish", py_finish, METH_NOARGS, "finish()"},
    {"close", py_close, METH_NOARGS, "close(): this process records no more"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT,
                      "_observer",
                      "rlkrec's observer of torch operators",
                      -1,
                      methods,
                      nullptr,
                      nullptr,
                      nullptr,
                      nullptr};

void fork_lock()
{
    storages.lock.lock();
    op_cache.lock.lock();
}
void fork_unlock()
{
    op_cache.lock.unlock();
    storages.lock.unlock();
}

} // namespace

extern "C" __attribute__((visibility("default"))) PyObject *PyInit__observer(void)
{
    pthread_atfork(fork_lock, fork_unlock, fork_unlock);
    return PyModule_Create(&module);
}
