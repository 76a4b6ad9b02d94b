/* observer_modules.h - module calls, told by torch's global forward hooks (rlkrec_torch/hooks.py). A part of
 * observer.cpp, included there alone.
 *
 * The hooks run at every call of every module, so all of it is here but what is rare: Python is asked for the path of a
 * module that is met for the first time, and told when an outermost module begins.
 */
#ifndef RECORDER_TORCH_OBSERVER_MODULES_H
#define RECORDER_TORCH_OBSERVER_MODULES_H

#include "recorder/torch/observer_collectives.h"

namespace
{

struct PathEntry {
    PyObject *weak; /* the module: an address that is used again is another one */
    long id;        /* -1: a wrapper, which has no path */
};

PyObject *g_outermost; /* callable() */
PyObject *g_path_of;   /* callable(module, modules around it) -> id or None */
std::unordered_map<const PyObject *, PathEntry> &g_paths = *new std::unordered_map<const PyObject *, PathEntry>;

/* Python's own errors go on as they are: the hook that called catches them. */
struct PythonError : std::exception {
};

bool refers_to(PyObject *weak, const PyObject *module)
{
#if PY_VERSION_HEX >= 0x030d0000
    PyObject *there = nullptr;
    if (PyWeakref_GetRef(weak, &there) < 0)
        throw PythonError();
    Py_XDECREF(there);
    return there == module;
#else
    return PyWeakref_GetObject(weak) == module;
#endif
}

long path_of(const Thread &th, PyObject *module)
{
    auto it = g_paths.find(module);
    if (it != g_paths.end() && refers_to(it->second.weak, module))
        return it->second.id;
    PyObject *around = PyList_New(0);
    for (const ModuleCall &c : th.calls)
        if (around && PyList_Append(around, c.module))
            Py_CLEAR(around);
    PyObject *number = around ? PyObject_CallFunctionObjArgs(g_path_of, module, around, nullptr) : nullptr;
    Py_XDECREF(around);
    if (!number)
        throw PythonError();
    const long id = number == Py_None ? -1 : PyLong_AsLong(number);
    Py_DECREF(number);
    PyObject *weak = PyErr_Occurred() ? nullptr : PyWeakref_NewRef(module, nullptr);
    if (!weak)
        throw PythonError();
    it = g_paths.find(module); /* asking may have emptied the table */
    if (it != g_paths.end())
        Py_DECREF(it->second.weak);
    g_paths[module] = {weak, id};
    return id;
}

/* Calls f(tensor, name) for the tensors in arguments or results, under readable names: "0", "1.hidden", ... */
template <class F> void each_named(PyObject *v, const std::string &name, const F &f, int depth = 0)
{
    if (THPVariable_Check(v)) {
        if (THPVariable_Unpack(v).defined())
            f(THPVariable_Unpack(v), name);
        return;
    }
    const bool list = PyList_Check(v), tuple = PyTuple_Check(v);
    if (depth >= 4 || !(list || tuple || PyDict_Check(v)))
        return;
    const std::string before = name.empty() ? "" : name + ".";
    if (list || tuple) {
        for (Py_ssize_t i = 0; i < (list ? PyList_GET_SIZE(v) : PyTuple_GET_SIZE(v)); i++)
            each_named(list ? PyList_GET_ITEM(v, i) : PyTuple_GET_ITEM(v, i), before + std::to_string(i), f, depth + 1);
        return;
    }
    if (PyDict_GET_SIZE(v) == 0)
        return;
    PyObject *items = PyMapping_Items(v); /* in the order that the dictionary shows, whatever its class */
    if (!items)
        throw PythonError();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); i++) {
        PyObject *pair = PyList_GET_ITEM(items, i), *text = nullptr;
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2)
            continue;
        const char *key = nullptr;
        if (PyUnicode_Check(PyTuple_GET_ITEM(pair, 0)))
            key = PyUnicode_AsUTF8(PyTuple_GET_ITEM(pair, 0));
        else if ((text = PyObject_Str(PyTuple_GET_ITEM(pair, 0))))
            key = PyUnicode_AsUTF8(text);
        if (key)
            each_named(PyTuple_GET_ITEM(pair, 1), before + key, f, depth + 1);
        Py_XDECREF(text);
        if (!key) {
            Py_DECREF(items);
            throw PythonError();
        }
    }
    Py_DECREF(items);
}

/* A module's own event (level module): opened before it runs, so that its inputs are what it was given. No generation:
 * operators in between are not seen at this level. */
void put_named(rlk_tap_op *op, PyObject *values, bool output)
{
    TapTensor tt;
    each_named(values, "", [&](const at::Tensor &t, const std::string &name) {
        tt.name = name.c_str();
        describe(t, tt);
        output ? rlk_tap()->op_out(op, &tt.t) : rlk_tap()->op_in(op, &tt.t);
    });
}

void enter_module(Thread &th, PyObject *module, PyObject *args)
{
    if (th.calls.empty()) {
        PyObject *done = PyObject_CallNoArgs(g_outermost);
        if (!done)
            throw PythonError();
        Py_DECREF(done);
    }
    const long id = path_of(th, module);
    Py_INCREF(module);
    th.calls.push_back({module, id >= 0, nullptr});
    if (id < 0 || !th.spans)
        return;
    rlkt_module_begin(th.spans, static_cast<uint32_t>(id));
    if (rlk_tap()->level != RLK_TAP_MODULE || !g_on || th.suppress)
        return;
    rlk_tap_ctx *ctx = rlkt_enter(th.spans, rlkt_top(th.spans));
    rlk_tap_op *op = ctx ? rlk_tap()->op_begin(ctx, "module", nullptr) : nullptr;
    th.calls.back().op = op;
    if (!op)
        return;
    put_named(op, args, false);
    if (rlk_tap()->op_run)
        rlk_tap()->op_run(op);
}

/* The call on top of the stack has ended; without a result it threw. */
void leave_call(Thread &th, PyObject *kwargs, PyObject *result)
{
    const ModuleCall c = th.calls.back();
    th.calls.pop_back();
    Py_DECREF(c.module);
    if (c.op && result) {
        put_named(c.op, kwargs, false);
        put_named(c.op, result, true);
        rlk_tap()->op_end(c.op);
    } else if (c.op) {
        rlk_tap()->op_cancel(c.op);
    }
    if (c.path && th.spans)
        rlkt_module_end(th.spans);
}

void leave_module(Thread &th, PyObject *module, PyObject *kwargs, PyObject *result)
{
    bool entered = false;
    for (const ModuleCall &c : th.calls)
        entered |= c.module == module;
    if (!entered)
        return; /* a hook before ours threw */
    for (bool inner = false; !inner;) {
        inner = th.calls.back().module == module;
        leave_call(th, kwargs, inner && result != Py_None ? result : nullptr);
    }
}

/* Python's side of it. */
#define MODULE_HOOK(body)                                                                                              \
    try {                                                                                                              \
        body;                                                                                                          \
    } catch (const PythonError &) {                                                                                    \
        return nullptr;                                                                                                \
    } catch (const std::exception &e) {                                                                                \
        fault("observer-failed", e.what());                                                                            \
    }                                                                                                                  \
    Py_RETURN_NONE

PyObject *py_modules(PyObject *, PyObject *args)
{
    PyObject *outermost, *path_of_module;
    if (!PyArg_ParseTuple(args, "OO", &outermost, &path_of_module))
        return nullptr;
    Py_INCREF(outermost);
    Py_INCREF(path_of_module);
    g_outermost = outermost;
    g_path_of = path_of_module;
    Py_RETURN_NONE;
}

PyObject *py_module_enter(PyObject *, PyObject *const *args, Py_ssize_t n)
{
    if (n != 2 || !g_outermost) {
        PyErr_SetString(PyExc_TypeError, "module_enter(module, args), after modules()");
        return nullptr;
    }
    MODULE_HOOK(enter_module(self(), args[0], args[1]));
}

PyObject *py_module_leave(PyObject *, PyObject *const *args, Py_ssize_t n)
{
    if (n != 3) {
        PyErr_SetString(PyExc_TypeError, "module_leave(module, kwargs, result)");
        return nullptr;
    }
    MODULE_HOOK(leave_module(self(), args[0], args[1], args[2]));
}

/* The path of this module, or with None of every module, may no longer be what is known here. */
PyObject *py_paths_changed(PyObject *, PyObject *module)
{
    if (module != Py_None) {
        auto it = g_paths.find(module);
        if (it != g_paths.end()) {
            Py_DECREF(it->second.weak);
            g_paths.erase(it);
        }
        Py_RETURN_NONE;
    }
    for (auto &p : g_paths)
        Py_DECREF(p.second.weak);
    g_paths.clear();
    Py_RETURN_NONE;
}

} // namespace

#endif
