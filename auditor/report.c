/* report.c - the two runs, and the equalities between them. */
#include "auditor/report.h"
#include "auditor/audit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void only(json_t *errors, const char *what, const char *name, bool in_a)
{
    char text[300];
    snprintf(text, sizeof text, "%s %.200s is only in %s", what, name, in_a ? "A" : "B");
    if (json_array_size(errors) < 40)
        rlki_add(errors, rlki_json_text(text));
}

/* Names that only one of the two has. */
static void unpaired(json_t *errors, const char *what, const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)a, key, value) if (!json_object_get(b, key)) only(errors, what, key, true);
    json_object_foreach((json_t *)(uintptr_t)b, key, value) if (!json_object_get(a, key))
        only(errors, what, key, false);
}

static json_t *version(const char *name, const struct rlki_run_facts f[2], bool *equal)
{
    const json_t *a = json_object_get(f[0].hashes, name), *b = json_object_get(f[1].hashes, name);
    json_t *out = json_object(), *unequal = json_array(), *value;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)a, key, value) if (!json_equal(value, json_object_get(b, key)))
        rlki_add(unequal, rlki_json_text(key));
    json_object_foreach((json_t *)(uintptr_t)b, key, value) if (!json_object_get(a, key))
        rlki_add(unequal, rlki_json_text(key));
    json_t *da = rlki_version_digest(a), *db = rlki_version_digest(b);
    const bool same = da && db && json_equal(da, db) && !json_array_size(unequal);
    rlki_set(out, "version", rlki_json_text(name));
    rlki_set(out, "sha256", json_pack("[o,o]", da, db));
    rlki_set(out, "tensor_count", json_integer((json_int_t)json_object_size(a)));
    rlki_set(out, "unequal_parameter_tensors", unequal);
    rlki_set(out, "bitwise_equal", json_boolean(same));
    json_t *held = rlki_row_held(&f[0], &f[1], name);
    *equal &= same && !json_is_false(json_object_get(held, "passed"));
    rlki_set(out, "held", held);
    return out;
}

static json_t *hashes(const struct rlki_run_facts f[2], bool *equal)
{
    json_t *all = json_array(), *tensors;
    const char *name;
    json_object_foreach(f[0].hashes, name, tensors) if (json_object_get(f[1].hashes, name))
        rlki_add(all, version(name, f, equal));
    return all;
}

static json_t *norms(const struct rlki_run_facts *a, const struct rlki_run_facts *b, bool *equal)
{
    json_t *all = json_array(), *metrics;
    const char *step;
    json_object_foreach(a->steps, step, metrics)
    {
        const double x = rlki_metric(a, step, "train/grad_norm"), y = rlki_metric(b, step, "train/grad_norm");
        if (!json_object_get(b->steps, step) || (isnan(x) && isnan(y)))
            continue;
        const bool same = x == y;
        json_t *one = json_object();
        rlki_set(one, "step", json_integer(strtoll(step, NULL, 10)));
        rlki_set(one, "norms", json_pack("[o,o]", rlki_number(x), rlki_number(y)));
        rlki_set(one, "exactly_equal", json_boolean(same));
        rlki_set(one, "relative_difference_percent", rlki_number(same ? 0.0 : 100.0 * fabs(x - y) / fabs(x)));
        rlki_add(all, one);
        *equal &= same;
    }
    return all;
}

/* Metrics of the training that differ, times apart. */
static json_t *metrics(const struct rlki_run_facts *a, const struct rlki_run_facts *b, bool *equal)
{
    json_t *all = json_array(), *values, *value;
    const char *step, *name;
    json_object_foreach(a->steps, step, values)
    {
        const json_t *other = json_object_get(b->steps, step);
        json_t *unequal = json_array(), *one = json_object();
        json_object_foreach(values, name, value) if (!json_equal(value, json_object_get(other, name)))
            rlki_add(unequal, rlki_json_text(name));
        json_object_foreach((json_t *)(uintptr_t)other, name, value) if (!json_object_get(values, name))
            rlki_add(unequal, rlki_json_text(name));
        const bool same = !json_array_size(unequal);
        rlki_set(one, "step", json_integer(strtoll(step, NULL, 10)));
        rlki_set(one, "unequal_metrics", unequal);
        rlki_set(one, "exactly_equal", json_boolean(same));
        if (other) {
            rlki_add(all, one);
            *equal &= same;
        } else {
            json_decref(one);
        }
    }
    return all;
}

static json_t *faults_of(const struct rlki_run_facts *f, const json_t *run, const char *side, json_t *errors,
                         bool *passed)
{
    size_t i;
    json_t *text;
    json_array_foreach(f->faults, i, text)
    {
        char line[500];
        snprintf(line, sizeof line, "%s: %s", side, json_string_value(text));
        rlki_add(errors, rlki_json_text(line));
    }
    *passed &= !json_is_false(json_object_get(json_object_get(run, "validation"), "passed"));
    return errors;
}

static int assemble(json_t **out, struct rlki_run_facts f[2], const struct rlk_report_options *o)
{
    json_t *report = json_object(), *errors = json_array();
    json_t *runs[2] = {rlki_run(&f[0], o), rlki_run(&f[1], o)};
    const json_t *ta = json_object_get(runs[0], "tokens"), *tb = json_object_get(runs[1], "tokens");
    bool passed = true, tokens = json_object_size(ta) && json_equal(ta, tb);
    json_t *all_hashes = hashes(f, &passed), *all_norms = norms(&f[0], &f[1], &passed);
    json_t *all_metrics = metrics(&f[0], &f[1], &passed);
    const bool complete = f[0].complete && f[1].complete, differ = !passed || (!tokens && json_object_size(ta));
    const bool any = json_array_size(all_metrics) != 0;
    for (int s = 0; s < 2; s++)
        faults_of(&f[s], runs[s], s ? "B" : "A", errors, &passed);
    unpaired(errors, "step", f[0].steps, f[1].steps);
    unpaired(errors, "weight version", f[0].hashes, f[1].hashes);
    if (!any)
        rlki_add(errors, json_string("the two have no step with metrics (train/...) in common"));
    const bool known = json_object_size(ta) || json_object_size(tb);
    passed &= (tokens || !known) && any && !json_array_size(errors);
    rlki_set(report, "runs", json_pack("[o,o]", runs[0], runs[1]));
    rlki_set(report, "all_parameter_hash_comparisons", all_hashes);
    rlki_set(report, "gradient_norm_comparisons", all_norms);
    rlki_set(report, "tokens_equal", known ? json_boolean(tokens) : json_null());
    rlki_set(report, "metric_comparisons", all_metrics);
    rlki_set(report, "errors", errors);
    rlki_set(report, "passed", json_boolean(passed));
    rlki_set(report, "exit", json_integer(!any ? 3 : complete ? !passed : differ ? 1 : 4));
    *out = report;
    if (rlki_json_failed()) {
        json_decref(report);
        *out = NULL;
        return RLK_ENOMEM;
    }
    return RLK_OK;
}

int rlk_report(json_t **out, const struct rlk_report_options *options, struct rlk_detail *detail)
{
    struct rlki_run_facts f[2] = {{0}, {0}};
    struct rlk_report_options o = *options;
    *out = NULL;
    rlki_json_begin();
    for (; !options->nsizes && o.nsizes < 4; o.nsizes++)
        o.sizes[o.nsizes] = o.nsizes + 1;
    int rc = rlki_run_facts_read(&f[0], o.a, detail);
    if (rc == RLK_OK)
        rc = rlki_run_facts_read(&f[1], o.b, detail);
    if (rc == RLK_OK)
        rc = assemble(out, f, &o);
    if (rc == RLK_ENOMEM)
        rc = rlk_fail(detail, RLK_ENOMEM, "making the report");
    rlki_run_facts_release(&f[0]);
    rlki_run_facts_release(&f[1]);
    return rc;
}
