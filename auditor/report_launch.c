/* report_launch.c - what ran: captured graphs of decode from the launches seen, and what a program declares of its
 * modules against the operators and launches that were recorded. */
#include "auditor/audit.h"
#include "auditor/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool expected(const struct rlk_report_options *o, uint64_t size)
{
    for (uint32_t i = 0; i < o->nsizes; i++)
        if (o->sizes[i] == size)
            return true;
    return false;
}

/* The k-th size that decode d ran with, 0 = no more. Above the largest expected size an engine runs a batch without a
 * graph, or in parts: as many of that size as fit, and the rest. */
static uint64_t part_of(const struct rlki_decode *d, uint64_t most, int k)
{
    if (!d->graphs || d->size <= most || !most)
        return k ? 0 : d->size;
    return k == 0 ? most : k == 1 ? d->size % most : 0;
}

/* Sizes of decode for which a graph ran, ascending, and whether each expected size that occurred is among them. */
static json_t *captured(const struct rlki_run_facts *f, const struct rlk_report_options *o, bool *sizes, bool *eager)
{
    json_t *list = json_array();
    uint64_t most = 0, part;
    *sizes = true;
    *eager = false;
    for (uint32_t i = 0; i < o->nsizes; i++)
        most = o->sizes[i] > most ? o->sizes[i] : most;
    for (uint64_t at = 0;;) {
        uint64_t size = UINT64_MAX;
        bool graph = false;
        for (size_t i = 0; i < f->ndecode; i++)
            for (int k = 0; (part = part_of(&f->decode[i], most, k)); k++)
                if (part > at && part < size)
                    size = part;
        if (size == UINT64_MAX)
            break;
        at = size;
        for (size_t i = 0; i < f->ndecode; i++)
            for (int k = 0; (part = part_of(&f->decode[i], most, k)); k++) {
                graph |= part == size && f->decode[i].graphs;
                *eager |= part == size && expected(o, size) && !f->decode[i].graphs;
            }
        if (graph)
            rlki_add(list, json_integer((json_int_t)size));
        *sizes &= graph == expected(o, size);
    }
    for (size_t i = 0; i < f->ndecode && most; i++) /* a replay a part */
        *sizes &= f->decode[i].size <= most || !f->decode[i].graphs ||
                  f->decode[i].graphs == (f->decode[i].size + most - 1) / most;
    *sizes &= json_array_size(list) != 0;
    return list;
}

json_t *rlki_row_graphs(const struct rlki_run_facts *f, const struct rlk_report_options *o)
{
    bool sizes, eager;
    json_t *row = json_object(), *checks = json_object(), *want = json_array();
    json_t *have = captured(f, o, &sizes, &eager);
    uint64_t inside = 0;
    for (size_t i = 0; i < f->ndecode; i++)
        inside += f->decode[i].graphs;
    for (uint32_t i = 0; i < o->nsizes; i++)
        rlki_add(want, json_integer(o->sizes[i]));
    const bool mode = inside && !f->graphs_outside, marker = inside && !f->graphs_undefined;
    const bool known = f->launch_plane;
    rlki_set(checks, "capture_sizes", known ? json_boolean(sizes) : json_null());
    rlki_set(checks, "engine_mode", known ? json_boolean(mode) : json_null());
    rlki_set(checks, "launcher_marker", known ? json_boolean(marker) : json_null());
    rlki_set(checks, "not_eager", known ? json_boolean(inside && !eager) : json_null());
    rlki_set(row, "checks", checks);
    rlki_set(row, "expected_capture_sizes", want);
    rlki_set(row, "captured_sizes", have);
    rlki_set(row, "graphs", json_integer((json_int_t)f->graphs.n));
    rlki_set(row, "graph_launches", json_integer((json_int_t)(inside + f->graphs_outside)));
    rlki_set(row, "passed", json_boolean(sizes && mode && marker && !eager));
    return known ? row : rlki_not_applicable(row, "kernel launches were not recorded");
}

static void complain(json_t *errors, const struct rlki_bound *b, const char *what)
{
    char text[300];
    snprintf(text, sizeof text, "%.60s: %" PRIu64 " calls declared, %s", b->module, b->calls, what);
    if (json_array_size(errors) < 40)
        rlki_add(errors, rlki_json_text(text));
}

void rlki_append_once(json_t *list, const char *text)
{
    size_t i;
    json_t *old;
    json_array_foreach(list, i, old) if (strcmp(json_string_value(old), text) == 0) return;
    rlki_add(list, rlki_json_text(text));
}

/* The half of a case that this side is: "R/P" = training by contract, rollout by the provider. */
static const char *wanted(const struct rlki_bound *b)
{
    const bool rollout = strncmp(b->module, "rollout.", 8) == 0;
    const char *half = b->case_id;
    if (strlen(half) != 3 || half[1] != '/')
        return NULL; /* an ablation: either may run */
    return half[rollout ? 2 : 0] == 'R' ? "contract" : half[rollout ? 2 : 0] == 'P' ? "provider" : NULL;
}

static void add_module(json_t *all, const struct rlki_bound *b, json_t *observed, bool whole)
{
    const char *name = strchr(b->module, '.') + 1, *want = wanted(b);
    json_t *m = rlki_member(all, name, NULL);
    if (!m) {
        m = rlki_member(all, name, json_object);
        rlki_set(m, "backend_ids", json_array());
        rlki_set(m, "call_count", json_integer(0));
        rlki_set(m, "case_id", rlki_json_text(b->case_id));
        rlki_set(m, "expected_implementation", want ? json_string(want) : json_null());
        rlki_set(m, "implementations", json_array());
        rlki_set(m, "installed_processes", json_integer(0));
        rlki_set(m, "observed_backend_ids", observed ? json_incref(observed) : json_array());
        rlki_set(m, "observed_call_count", b->counted && whole ? json_integer(0) : json_null());
    }
    const json_int_t calls = json_integer_value(json_object_get(m, "call_count"));
    const json_int_t here = json_integer_value(json_object_get(m, "installed_processes"));
    json_t *count = json_object_get(m, "observed_call_count");
    rlki_append_once(json_object_get(m, "backend_ids"), b->contract);
    rlki_append_once(json_object_get(m, "implementations"), b->implementation);
    rlki_set(m, "call_count", json_integer(calls + (json_int_t)b->calls));
    rlki_set(m, "installed_processes", json_integer(here + 1));
    if (json_is_integer(count))
        rlki_set(m, "observed_call_count", json_integer(json_integer_value(count) + (json_int_t)b->observed));
}

static json_t *framework(const struct rlki_run_facts *f, const char *side, size_t n)
{
    json_t *o = json_object(), *all = json_object();
    uint32_t processes = 0;
    for (size_t i = 0; i < f->nbound; i++) {
        const struct rlki_bound *b = &f->bound[i];
        bool first = true;
        if (strncmp(b->module, side, n) != 0 || b->module[n] != '.')
            continue;
        for (size_t k = 0; k < i; k++)
            first &= f->bound[k].env != b->env || strncmp(f->bound[k].module, side, n) != 0;
        processes += first;
        add_module(all, b, json_object_get(f->contracts, b->module), f->whole);
    }
    rlki_set(o, "modules", all);
    rlki_set(o, "readback_count", json_integer(processes));
    return o;
}

static bool among(const json_t *list, const char *text)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), text) == 0)
            return true;
    return false;
}

static void judge(const struct rlki_run_facts *f, const struct rlki_bound *b, json_t *errors, json_t *launches)
{
    const char *want = wanted(b);
    if (want && strcmp(want, b->implementation) != 0)
        complain(errors, b,
                 strcmp(want, "contract") == 0 ? "the provider ran where the contract was asked for"
                                               : "the contract ran where the provider was asked for");
    if (!b->calls)
        complain(errors, b, "so nothing of it ran");
    if (f->whole && b->counted && b->calls != b->observed) {
        char what[60];
        snprintf(what, sizeof what, "%" PRIu64 " operators recorded", b->observed);
        complain(errors, b, what);
    }
    if (f->whole && b->counted && b->observed && !among(json_object_get(f->contracts, b->module), b->contract))
        complain(errors, b, "under another contract than its operators were recorded with");
    const bool rollout = strncmp(b->module, "rollout.", 8) == 0;
    uint64_t graphs = 0;
    for (size_t i = 0; i < f->ndecode && rollout; i++)
        graphs += f->decode[i].graphs;
    /* A graph hides which operator its kernels are of: then it is one of its nodes. */
    if (f->launch_plane && b->counted && b->calls && !b->launches && !graphs)
        complain(launches, b, "no kernel of it was launched");
}

json_t *rlki_row_readbacks(const struct rlki_run_facts *f)
{
    json_t *row = json_object(), *all = json_object(), *errors = json_array();
    json_t *launches = json_object(), *unlaunched = json_array();
    for (size_t i = 0; i < f->nbound; i++) {
        const char *module = f->bound[i].module;
        const size_t n = (size_t)(strchr(module, '.') - module);
        char name[160];
        snprintf(name, sizeof name, "%s/%.*s", f->program, (int)(n < 60 ? n : 60), module);
        if (!rlki_member(all, name, NULL))
            rlki_set_any(all, name, framework(f, module, n));
        judge(f, &f->bound[i], errors, unlaunched);
    }
    rlki_set(row, "errors", errors);
    rlki_set(row, "frameworks", all);
    rlki_set(row, "passed", json_boolean(!json_array_size(errors)));
    rlki_set(launches, "errors", unlaunched);
    rlki_set(launches, "passed", json_boolean(!json_array_size(unlaunched)));
    if (!f->launch_plane)
        rlki_not_applicable(launches, "kernel launches were not recorded");
    rlki_set(row, "launches", launches);
    if (!f->nbound)
        return rlki_not_applicable(row, "no readbacks were recorded");
    if (f->launch_plane && json_array_size(unlaunched))
        rlki_set(row, "passed", json_false());
    return row;
}
