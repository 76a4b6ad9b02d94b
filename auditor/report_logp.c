/* report_logp.c - rollout against training: the drawn tokens' log-probabilities by their bytes, and the trainer's own
 * metrics, which must say the same. */
#include "auditor/audit.h"
#include "auditor/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *rlki_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

double rlki_metric(const struct rlki_run_facts *f, const char *step, const char *name)
{
    const json_t *v = json_object_get(json_object_get(f->steps, step), name);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

json_t *rlki_member(json_t *object, const char *key, json_t *(*make)(void))
{
    json_t *name = rlki_json_text(key), *found = NULL;
    if (name) {
        found = json_object_get(object, json_string_value(name));
        if (!found && make) {
            rlki_set(object, json_string_value(name), make());
            found = json_object_get(object, json_string_value(name));
        }
    } else {
        rlki_set(object, "", NULL); /* out of memory */
    }
    json_decref(name);
    return found;
}

void rlki_set_any(json_t *object, const char *key, json_t *value)
{
    json_t *name = rlki_json_text(key);
    if (name) {
        rlki_set(object, json_string_value(name), value);
    } else {
        json_decref(value);
        rlki_set(object, "", NULL);
    }
    json_decref(name);
}

json_t *rlki_not_applicable(json_t *row, const char *reason)
{
    rlki_set(row, "passed", json_null());
    rlki_set(row, "status", json_string("not_applicable"));
    rlki_set(row, "reason", json_string(reason));
    return row;
}

struct sums {
    uint64_t samples, elements, unequal, unequal_bits;
    double max, abs, kl, k3;
};

static void compare(struct sums *s, const struct rlki_logps *train, const struct rlki_logps *rollout)
{
    s->samples++;
    for (uint64_t i = 0; i < train->n; i++) {
        const float a = train->value[i], b = rollout->value[i];
        const double d = (double)a - (double)b;
        s->elements++;
        s->unequal += !(a == b);
        s->unequal_bits += memcmp(&a, &b, sizeof a) != 0;
        s->max = fabs(d) > s->max || isnan(d) ? fabs(d) : s->max;
        s->abs += fabs(d);
        s->kl += -d;
        s->k3 += exp(d) - d - 1.0;
    }
}

static const struct rlki_logps *find(const struct rlki_run_facts *f, const struct rlki_logps *of)
{
    uint64_t place;
    if (rlki_hash_get(&f->logp_index, rlki_logps_key(of->step, !of->rollout, of->sample), &place))
        return &f->logps[place];
    return NULL;
}

static void fault(json_t *errors, const struct rlki_logps *l, const char *what)
{
    char text[200];
    if (json_array_size(errors) >= 20)
        return;
    snprintf(text, sizeof text, "step %" PRId64 ", sample %.60s: %s", l->step, l->sample, what);
    rlki_add(errors, rlki_json_text(text));
}

json_t *rlki_row_logp(const struct rlki_run_facts *f)
{
    struct sums s = {0};
    json_t *row = json_object(), *errors = json_array(), *text;
    size_t known;
    /* json_copy does not say when it runs out of memory. */
    json_array_foreach(f->logp_faults, known, text) rlki_add(errors, json_incref(text));
    for (size_t i = 0; i < f->nlogps; i++) {
        const struct rlki_logps *l = &f->logps[i], *other = find(f, l);
        if (!other)
            fault(errors, l, l->rollout ? "the training side has no log-probabilities" : "the rollout has none");
        else if (!l->rollout && other->n != l->n)
            fault(errors, l, "rollout and training hold another number of tokens");
        else if (!l->rollout)
            compare(&s, l, other);
    }
    const double n = s.elements ? (double)s.elements : 1.0;
    const bool equal = s.elements && !s.unequal && s.max == 0.0, bits = s.elements && !s.unequal_bits;
    rlki_set(row, "artifacts", json_incref(f->artifacts));
    rlki_set(row, "bitwise_equal", json_boolean(bits));
    rlki_set(row, "bitwise_mismatch_count", json_integer((json_int_t)s.unequal_bits));
    rlki_set(row, "element_count", json_integer((json_int_t)s.elements));
    rlki_set(row, "errors", errors);
    rlki_set(row, "max_abs_diff", rlki_number(s.max));
    rlki_set(row, "mismatch_count", json_integer((json_int_t)s.unequal));
    rlki_set(row, "mismatch_k3_kl", rlki_number(s.k3 / n));
    rlki_set(row, "mismatch_kl", rlki_number(s.kl / n + 0.0));
    rlki_set(row, "passed", json_boolean(equal && bits && !json_array_size(errors)));
    rlki_set(row, "require_exact", json_true());
    rlki_set(row, "sample_count", json_integer((json_int_t)s.samples));
    rlki_set(row, "torch_equal", json_boolean(equal));
    rlki_set(row, "train_rollout_logprob_abs_diff", rlki_number(s.abs / n));
    if (!f->nlogps) {
        rlki_set(row, "bitwise_equal", json_null());
        rlki_set(row, "torch_equal", json_null());
        rlki_not_applicable(row, "no log-probabilities with their bytes were recorded");
    }
    return row;
}

static json_t *scalar_row(const struct rlki_run_facts *f, const char *step, double *tokens, bool *zero)
{
    static const char prefix[] = "train/train_current_rollout_logprob_";
    char name[96];
    double v[3];
    static const char *const fields[3] = {"numel", "mismatch_count", "max_abs_diff"};
    for (int k = 0; k < 3; k++) {
        snprintf(name, sizeof name, "%s%s", prefix, fields[k]);
        v[k] = rlki_metric(f, step, name);
    }
    const double samples = rlki_metric(f, step, "train/global_batch_size");
    const double mean = rlki_metric(f, step, "train/train_rollout_logprob_abs_diff");
    if (isnan(v[0]) || isnan(v[1]) || isnan(samples))
        return NULL;
    *tokens += v[0] * samples;
    *zero &= v[1] == 0.0 && v[2] == 0.0 && mean == 0.0;
    json_t *row = json_object();
    rlki_set(row, "active_token_count", rlki_number(v[0] * samples));
    rlki_set(row, "bitwise_mismatch_count", rlki_number(v[1] * samples));
    rlki_set(row, "max_abs_dlogp", rlki_number(v[2]));
    rlki_set(row, "mean_abs_dlogp", rlki_number(mean));
    rlki_set(row, "step", json_integer(strtoll(step, NULL, 10)));
    rlki_set(row, "vime_mean_active_tokens_per_sample", rlki_number(v[0]));
    rlki_set(row, "vime_mean_mismatch_count_per_sample", rlki_number(v[1]));
    return row;
}

json_t *rlki_row_scalars(const struct rlki_run_facts *f, const json_t *logp)
{
    json_t *row = json_object(), *rows = json_array(), *errors = json_array();
    const char *step;
    json_t *metrics;
    double tokens = 0.0;
    bool zero = true;
    json_object_foreach(f->steps, step, metrics)
    {
        json_t *one = scalar_row(f, step, &tokens, &zero);
        if (one)
            rlki_add(rows, one);
    }
    const bool any = json_array_size(rows) != 0;
    const bool bytes = json_is_boolean(json_object_get(logp, "passed"));
    const double counted = json_number_value(json_object_get(logp, "element_count"));
    /* The metrics are means over samples: a count may come back rounded in its last place. */
    if (any && bytes && fabs(counted - tokens) > 1e-6 * tokens)
        rlki_add(errors, json_string("the metrics count other tokens than the recorded log-probabilities hold"));
    rlki_set(row, "bitwise_zero", any ? json_boolean(zero) : json_null());
    rlki_set(row, "errors", errors);
    rlki_set(row, "evidence_source",
             json_string("metrics train/train_current_rollout_logprob_*: means over samples, converted to counts with "
                         "train/global_batch_size"));
    rlki_set(row, "passed", json_boolean(any && zero && !json_array_size(errors)));
    rlki_set(row, "rows", rows);
    rlki_set(row, "total_active_token_exposure", rlki_number(tokens));
    return any ? row : rlki_not_applicable(row, "no such metrics were recorded");
}

json_t *rlki_row_offline(const struct rlki_run_facts *f)
{
    json_t *row = json_object();
    const size_t n = json_array_size(f->artifacts);
    rlki_set(row, "artifact_count", json_integer((json_int_t)n));
    rlki_set(row, "comparable_artifact_count", json_integer((json_int_t)f->comparable));
    rlki_set(row, "reason", f->comparable ? json_null() : json_string("no log-probabilities with their bytes"));
    rlki_set(row, "status", json_string(f->comparable ? "available" : "unavailable"));
    return row;
}
