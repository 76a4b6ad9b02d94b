/* around.c - what stands around the first difference: the tensors of its event on both sides, and the two runs. */
#include "auditor/audit.h"
#include "auditor/locate.h"
#include "store/rlk_digest.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_TENSORS 64u /* of each role */

static json_t *digest_json(const struct rlki_value *value, const struct rlk_tensor *t)
{
    char text[33];
    if (!value->known)
        return json_null();
    rlk_digest_print(text, &value->sums, t->dtype, t->place ? t->place->ndim : t->ndim,
                     t->place ? t->place->shape : t->shape);
    return json_string(text);
}

static json_t *shape_json(const struct rlk_tensor *t)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; i < t->ndim; i++)
        rlki_add(shape, json_integer((json_int_t)t->shape[i]));
    return shape;
}

static int tensor_json(struct rlki_audit *audit, const struct rlki_ev ev[2], uint8_t role, uint32_t index, json_t **out)
{
    static const char *const word[] = {"unequal", "equal", "unknown"};
    const struct rlk_tensor *t[2], *any;
    struct rlki_value value[2] = {{0}};
    const char *status, *reason;
    json_t *digest[2] = {NULL, NULL};
    bool unsure = false;
    int rc = RLK_OK;
    for (int s = 0; s < 2 && rc == RLK_OK; s++) {
        t[s] = rlki_ev_tensor(&ev[s], role, index);
        if (t[s])
            rc = rlki_value_of(audit, s, &ev[s].e, ev[s].env, t[s], &value[s]);
        digest[s] = rc == RLK_OK && t[s] ? digest_json(&value[s], t[s]) : json_null();
    }
    if (rc == RLK_OK && t[0] && t[1])
        status = word[role == RLK_ROLE_OUT ? rlki_output_equal(t[0], t[1], &reason)
                                           : rlki_value_equal(&value[0], &value[1])];
    else
        status = t[0] ? "only-in-a" : "only-in-b";
    any = t[0] ? t[0] : t[1];
    if (rc || !any) {
        json_decref(digest[0]);
        json_decref(digest[1]);
        return rc;
    }
    *out = json_pack("{s:s,s:I,s:o,s:s,s:s,s:o,s:o,s:o}", "role", role == RLK_ROLE_IN ? "in" : "out", "index",
                     (json_int_t)index, "name", rlki_json_text(any->name), "status", status, "dtype",
                     rlk_dtype_name(any->dtype), "shape", shape_json(any), "a", digest[0], "b", digest[1]);
    if (role != RLK_ROLE_IN || !t[0] || !*out)
        return *out ? RLK_OK : RLK_ENOMEM;
    rc = rlki_value_producer(audit, 0, &ev[0].e, ev[0].env, t[0], &value[0], &unsure);
    if (rc == RLK_OK && value[0].has_producer)
        rlki_set(*out, "producer", rlki_json_event(audit, 0, value[0].env, value[0].producer));
    return rc;
}

int rlki_around(struct rlki_audit *audit, const struct rlki_found *found, json_t **out)
{
    struct rlk_arena arena = {0};
    struct rlki_ev ev[2];
    const struct rlk_tensor *tensor;
    json_t *list = NULL;
    int rc = RLK_OK;
    *out = NULL;
    if (found->no_rank)
        return RLK_OK;
    for (int s = 0; s < 2 && rc == RLK_OK; s++)
        rc = rlki_located(audit, found, s, &arena, &ev[s], &tensor);
    if (rc == RLK_OK)
        list = json_array();
    for (uint8_t role = RLK_ROLE_IN; role <= RLK_ROLE_OUT && rc == RLK_OK; role++) {
        uint32_t n[2] = {rlki_ev_count(&ev[0], role), rlki_ev_count(&ev[1], role)};
        for (uint32_t i = 0; (i < n[0] || i < n[1]) && i < MAX_TENSORS && rc == RLK_OK; i++) {
            json_t *one = NULL;
            rc = tensor_json(audit, ev, role, i, &one);
            if (one)
                rlki_add(list, one);
        }
    }
    rlk_arena_release(&arena);
    if (rc == RLK_OK)
        *out = list;
    else
        json_decref(list);
    return rc == RLK_ENOENT ? RLK_OK : rc; /* one side has no such event */
}

static json_t *run_json(const struct rlki_side *side)
{
    static const char *const keys[] = {"created", "tool", "argv", "layout", "level", "exit", "seconds", "synthetic"};
    char seal[4200];
    snprintf(seal, sizeof seal, "%.4000s/SEAL", rlk_recording_path(side->recording));
    json_t *run =
        json_pack("{s:I,s:I,s:I,s:b,s:b}", "ranks", (json_int_t)side->nranks, "events", (json_int_t)side->events,
                  "tensors", (json_int_t)side->tensors, "complete", side->complete, "sealed", access(seal, F_OK) == 0);
    if (run && !side->complete)
        rlki_set(run, "why", rlki_json_text(side->why));
    for (size_t i = 0; run && i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(side->manifest, keys[i]);
        if (value && !json_is_null(value))
            rlki_set(run, keys[i], json_deep_copy(value));
    }
    return run;
}

json_t *rlki_runs_json(struct rlki_audit *audit)
{
    return json_pack("{s:o,s:o}", "a", run_json(&audit->side[0]), "b", run_json(&audit->side[1]));
}
