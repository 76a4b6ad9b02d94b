/* observer_collectives.h - threads of the program, and collectives whose outputs are not there yet when the call
 * returns. A part of observer.cpp, included there alone. */
#ifndef RECORDER_TORCH_OBSERVER_COLLECTIVES_H
#define RECORDER_TORCH_OBSERVER_COLLECTIVES_H

#include "recorder/torch/observer_ops.h"

#if __has_include(<torch/csrc/distributed/c10d/ProcessGroup.hpp>)
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#define RLKT_C10D 1
#endif

namespace
{

/* Threads */

struct Pending { /* a collective whose outputs are not there yet */
    rlk_tap_op *op;
#ifdef RLKT_C10D
    c10::intrusive_ptr<c10d::Work> work; /* NULL: complete at _c10d_functional::wait_tensor */
#endif
    std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> outs;
    std::vector<const c10::StorageImpl *> storages;
    std::vector<std::string> names;
};

struct ModuleCall {   /* a module that runs on this thread */
    PyObject *module; /* held */
    bool path;
    rlk_tap_op *op; /* level module: its open event */
};

struct Thread {
    rlkt_thread *spans = nullptr;
    int leaf = 0, suppress = 0, compiled = 0;
    std::vector<Pending> pending;
    std::vector<ModuleCall> calls; /* outermost first; what is left when the thread ends stays held: no GIL there */
    ~Thread()
    {
        if (spans)
            rlkt_thread_end(spans);
    }
};

Thread &self()
{
    thread_local Thread t;
    if (!t.spans)
        t.spans = rlkt_thread_begin(at::RecordFunction::currentThreadId());
    return t;
}

enum Mark : uint8_t { M_OP, M_NODE, M_ENGINE, M_COMPILED };

struct OpState : at::ObserverContext {
    explicit OpState(Mark m) : mark(m)
    {
    }
    Mark mark;
    const OpInfo *info = nullptr;
    rlk_tap_op *op = nullptr;
    rlk_tap_ctx *ctx = nullptr;
    int exceptions = 0;
    bool meta = false;
    bool later = false;  /* non_blocking: a copy that goes on after the call */
    bool device = false; /* an argument lies on a device */
    bool drops = true;   /* attention: its random state is used, for all we know */
    uint8_t pass = RLKT_FWD;
    uint32_t inputs = 0;
    c10::SmallVector<const c10::StorageImpl *, 8> seen; /* of inputs: an output there is an alias */
    c10::SmallVector<std::pair<size_t, c10::weak_intrusive_ptr<c10::TensorImpl>>, 2> written; /* argument, tensor */
};

/* Collectives */

PyObject *g_ranks_of; /* callable: group name -> list of global ranks */

struct Group {
    std::string name;
    std::vector<uint32_t> ranks;
};

#ifdef RLKT_C10D
std::mutex &group_lock = *new std::mutex;
std::unordered_map<std::string, Group> &groups = *new std::unordered_map<std::string, Group>;

Group group_of(const c10d::ProcessGroup &pg)
{
    std::string id = pg.getGroupName();
    {
        std::lock_guard<std::mutex> hold(group_lock);
        auto it = groups.find(id);
        if (it != groups.end())
            return it->second;
    }
    Group g;
    g.name = pg.getGroupDesc();
    if (g.name.empty() || g.name == "undefined")
        g.name = id;
    if (g_ranks_of && Py_IsInitialized()) {
        PyGILState_STATE gil = PyGILState_Ensure();
        PyObject *list = PyObject_CallFunction(g_ranks_of, "s", id.c_str());
        for (Py_ssize_t i = 0; list && i < PyList_Size(list); i++)
            g.ranks.push_back(static_cast<uint32_t>(PyLong_AsUnsignedLong(PyList_GetItem(list, i))));
        Py_XDECREF(list);
        PyErr_Clear();
        PyGILState_Release(gil);
    }
    std::lock_guard<std::mutex> hold(group_lock);
    groups[id] = g;
    return g;
}
#endif

const char *collective_name(const std::string &name)
{
    static const struct {
        const char *part, *function;
    } table[] = {{"allreduce", "all_reduce"},
                 {"all_reduce", "all_reduce"},
                 {"reduce_scatter", "reduce_scatter"},
                 {"allgather", "all_gather"},
                 {"all_gather", "all_gather"},
                 {"alltoall", "all_to_all"},
                 {"all_to_all", "all_to_all"},
                 {"broadcast", "broadcast"},
                 {"gather", "gather"},
                 {"scatter", "scatter"},
                 {"reduce", "reduce"},
                 {"send", "send"},
                 {"recv", "recv"},
                 {"barrier", "barrier"}};
    for (auto &e : table)
        if (name.find(e.part) != std::string::npos)
            return e.function;
    return nullptr;
}

/* Returns whether one of them was written by something else meanwhile. */
bool pending_mark(const std::vector<const c10::StorageImpl *> &list, int by)
{
    bool torn = false;
    std::lock_guard<std::mutex> hold(storages.lock);
    for (const c10::StorageImpl *s : list) {
        auto it = storages.map.find(s);
        if (it == storages.map.end() || it->second.pending + by < 0)
            continue;
        torn |= it->second.torn;
        it->second.pending += by;
        if (it->second.pending == 0)
            it->second.torn = false;
    }
    return torn;
}

void pending_finish(Pending &p, const char *reason)
{
    g_doubts++; /* its event was open meanwhile: launches of others were taken for its own */
    if (pending_mark(p.storages, -1))
        reason = "unwaited";
    Outputs live;
    for (size_t i = 0; i < p.outs.size(); i++)
        if (c10::intrusive_ptr<c10::TensorImpl> impl = p.outs[i].lock())
            live.push_back({at::Tensor(std::move(impl)), &p.names[i], -1, nullptr, 0, 0});
    raise_versions(live, reason != nullptr);
    TapTensor tt;
    for (const Output &o : live) {
        name_it(tt, *o.name, -1);
        put_out(p.op, o, tt, !reason, reason);
    }
    rlk_tap()->op_end(p.op);
}

/* Outputs of collectives that have completed since; with `all`, of all: what is not complete was never waited for. */
void pending_poll(Thread &th, bool all)
{
    for (size_t i = 0; i < th.pending.size();) {
        Pending &p = th.pending[i];
        bool complete = false;
#ifdef RLKT_C10D
        complete = p.work && p.work->isCompleted();
#endif
        if (!complete && !all) {
            i++;
            continue;
        }
        pending_finish(p, complete ? nullptr : "unwaited");
        th.pending.erase(th.pending.begin() + static_cast<long>(i));
    }
}

/* First argument that names its direction, for operators without annotations (c10d). */
uint8_t c10d_role(const OpInfo *info, size_t i, c10::ArrayRef<const IValue> args)
{
    const std::string &n = info->arg_names[i];
    (void)args;
    if (n.find("output") != std::string::npos || info->name == "c10d::recv_" || info->name == "c10d::recv_any_source_")
        return ARG_OVERWRITE;
    if (n.find("input") != std::string::npos || info->name == "c10d::send" || info->name == "c10d::barrier")
        return ARG_PLAIN;
    return ARG_WRITE;
}

} // namespace

#endif
