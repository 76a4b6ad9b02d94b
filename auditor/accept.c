/* accept.c - is every root of a comparison known, in time, and within its bound? */
#include "auditor/accept.h"
#include "auditor/elements.h"
#include "auditor/locate.h"
#include "auditor/mapfile.h"

#include <string.h>

/* How far a root goes, over all ranks and tensors that it stands for. */
struct size {
    bool unmeasured; /* a tensor whose bytes are not there on both sides, or that has no ULP */
    uint64_t max_ulp, nan;
};

enum ruling { UNKNOWN, ACCEPTED, EXPIRED, GROWN, UNMEASURED };
static const char *const why[] = {"unknown", "accepted", "expired", "grown", "unmeasured"};

static void add_difference(struct size *size, const json_t *difference)
{
    const json_t *ulp = json_object_get(difference, "max_ulp"), *changed = json_object_get(difference, "changed");
    json_int_t nan = json_integer_value(json_object_get(difference, "nan"));
    if (!json_is_integer(changed) || (json_integer_value(changed) && !json_is_integer(ulp) && !nan)) {
        size->unmeasured = true;
        return;
    }
    if (json_is_integer(ulp) && (uint64_t)json_integer_value(ulp) > size->max_ulp)
        size->max_ulp = (uint64_t)json_integer_value(ulp);
    if (nan > 0)
        size->nan += (uint64_t)nan;
}

/* Are the two the same value? Then they need no bytes. */
static int equal_at(struct rlki_audit *audit, const struct rlki_ev ev[2], const struct rlk_tensor *a,
                    const struct rlk_tensor *b, bool *equal)
{
    struct rlki_value value[2];
    const char *reason;
    if (a->role == RLK_ROLE_OUT) {
        *equal = rlki_output_equal(a, b, &reason) == RLKI_YES;
        return RLK_OK;
    }
    int rc = rlki_value_of(audit, 0, &ev[0].e, ev[0].env, a, &value[0]);
    if (rc == RLK_OK)
        rc = rlki_value_of(audit, 1, &ev[1].e, ev[1].env, b, &value[1]);
    *equal = rc == RLK_OK && rlki_value_equal(&value[0], &value[1]) == RLKI_YES;
    return rc;
}

/* The tensors of one rank's event that this root stands for: an input alone, or all outputs. */
static int measure_at(struct rlki_audit *audit, const struct rlki_found *found, size_t place, struct size *size)
{
    struct rlki_found one = *found;
    struct rlk_arena arena = {0};
    struct rlki_ev ev[2];
    const struct rlk_tensor *ignored;
    json_t *difference = NULL;
    int rc = RLK_OK;
    one.at = &found->at[place];
    one.nat = 1;
    one.tensor_a = one.tensor_b = UINT32_MAX;
    for (int s = 0; s < 2 && rc == RLK_OK; s++)
        rc = rlki_located(audit, &one, s, &arena, &ev[s], &ignored);
    for (uint32_t i = 0; rc == RLK_OK && i < ev[0].e.ntensors; i++) {
        const struct rlk_tensor *a = &ev[0].e.tensors[i], *b = rlki_ev_tensor(&ev[1], a->role, a->index);
        bool equal = false;
        if (a->role != found->role || (a->role == RLK_ROLE_IN && a->index != found->index))
            continue;
        if (!b) {
            size->unmeasured = true;
            continue;
        }
        rc = equal_at(audit, ev, a, b, &equal);
        if (rc || equal)
            continue;
        one.tensor_a = i;
        one.tensor_b = (uint32_t)(b - ev[1].e.tensors);
        rc = rlki_difference(audit, &one, &difference);
        if (rc == RLK_OK)
            add_difference(size, difference);
        json_decref(difference);
        difference = NULL;
    }
    rlk_arena_release(&arena);
    if (rc == RLK_ENOENT) {
        size->unmeasured = true;
        rc = RLK_OK;
    }
    return rc;
}

static int measure(struct rlki_audit *audit, const struct rlki_found *found, struct size *size)
{
    json_t *difference = NULL;
    int rc = RLK_OK;
    *size = (struct size){0};
    if (found->extra) {
        size->unmeasured = true;
        return RLK_OK;
    }
    if (found->no_rank || found->kind == RLK_EV_METRIC) { /* one value for all ranks; of each tensor */
        for (size_t i = 0; (i == 0 || i < found->nspread) && rc == RLK_OK; i++) {
            rc = rlki_difference_of(audit, found, i, &difference);
            if (rc == RLK_OK)
                add_difference(size, difference);
            json_decref(difference);
            difference = NULL;
        }
        return rc;
    }
    for (size_t i = 0; i < found->nat && rc == RLK_OK; i++)
        rc = measure_at(audit, found, i, size);
    return rc;
}

static bool scope_fits(const struct rlki_audit *audit, const json_t *scope, const struct rlki_found *found)
{
    const struct rlki_names *names = &audit->names;
    const struct {
        const char *key, *is;
    } texts[] = {{"phase", rlki_names_text(names, found->phase)},
                 {"pass", rlki_names_text(names, found->pass)},
                 {"module", rlki_names_text(names, found->module)},
                 {"op", rlki_names_text(names, found->op)},
                 {"name", rlki_names_text(names, found->name)}};
    const json_t *step = json_object_get(scope, "step"), *index = json_object_get(scope, "index");
    const char *role = json_string_value(json_object_get(scope, "role"));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *want = json_string_value(json_object_get(scope, texts[i].key));
        if (want && strcmp(want, texts[i].is) != 0 && !rlki_pattern_fits(want, texts[i].is))
            return false;
    }
    if ((step && json_integer_value(step) != found->step) || (index && json_integer_value(index) != found->index))
        return false;
    return !role || strcmp(role, found->role == RLK_ROLE_IN ? "in" : "out") == 0;
}

static enum ruling rule(const json_t *entry, const struct size *size, int64_t today)
{
    const json_t *ulp = json_object_get(json_object_get(entry, "bound"), "max_ulp");
    int64_t day = INT64_MIN;
    if (!rlki_accept_day(&day, json_string_value(json_object_get(entry, "expires"))) || day < today)
        return EXPIRED;
    if (!ulp)
        return ACCEPTED;
    if (size->nan || size->max_ulp > (uint64_t)json_integer_value(ulp))
        return GROWN;
    return size->unmeasured ? UNMEASURED : ACCEPTED;
}

static void tell(struct rlki_audit *audit, const struct rlki_found *found, const json_t *entry, enum ruling ruling,
                 const struct size *size)
{
    const struct rlki_names *names = &audit->names;
    const char *module = rlki_names_text(names, found->module), *op = rlki_names_text(names, found->op);
    const char *owner = json_string_value(json_object_get(entry, "owner"));
    module = *module ? module : "(root)";
    if (ruling == EXPIRED)
        rlki_note(audit, "accepted drift of %.120s in %.120s expired on %.10s (%.100s)", op, module,
                  json_string_value(json_object_get(entry, "expires")), owner);
    if (ruling == GROWN)
        rlki_note(audit, "accepted drift of %.120s in %.120s grew: %llu ulp%s, the bound is %lld (%.100s)", op, module,
                  (unsigned long long)size->max_ulp, size->nan ? " and NaN" : "",
                  (long long)json_integer_value(json_object_get(json_object_get(entry, "bound"), "max_ulp")), owner);
    if (ruling == UNMEASURED)
        rlki_note(audit, "accepted drift of %.120s in %.120s cannot be measured: its bytes are not in both (%.100s)",
                  op, module, owner);
}

static void annotate(json_t *root, const json_t *entry, enum ruling ruling, const struct size *size)
{
    json_t *said = json_pack("{s:s,s:O,s:O,s:O,s:O,s:o,s:I}", "ruling", why[ruling], "reason",
                             json_object_get(entry, "reason"), "owner", json_object_get(entry, "owner"), "expires",
                             json_object_get(entry, "expires"), "bound", json_object_get(entry, "bound"), "max_ulp",
                             size->unmeasured ? json_null() : json_integer((json_int_t)(size->max_ulp & INT64_MAX)),
                             "nan", (json_int_t)(size->nan & INT64_MAX));
    json_t *difference = json_object_get(root, "difference");
    rlki_set(root, "acceptance", said);
    if (ruling == ACCEPTED && json_is_object(difference) && json_object_get(json_object_get(entry, "bound"), "max_ulp"))
        rlki_set(difference, "grade", json_string("within-bound"));
}

/* The best that an entry of the file says of a root. */
static int judge(struct rlki_audit *audit, const json_t *file, const struct rlki_found *found, int64_t today,
                 json_t *root, enum ruling *out)
{
    struct size size = {0};
    const json_t *entry, *best = NULL;
    bool measured = false;
    size_t i;
    *out = UNKNOWN;
    json_array_foreach(json_object_get(file, "accepted"), i, entry)
    {
        if (!scope_fits(audit, json_object_get(entry, "scope"), found))
            continue;
        int rc = measured ? RLK_OK : measure(audit, found, &size);
        if (rc)
            return rc;
        measured = true;
        enum ruling ruling = rule(entry, &size, today);
        if (!best || ruling == ACCEPTED || (*out != ACCEPTED && ruling > *out)) {
            best = entry;
            *out = ruling;
        }
        if (ruling == ACCEPTED)
            break;
    }
    if (best) {
        tell(audit, found, best, *out, &size);
        if (root)
            annotate(root, best, *out, &size);
    }
    return RLK_OK;
}

int rlki_accept_apply(struct rlki_audit *audit, const struct rlki_found *first, json_t *result, bool *all)
{
    static const char *const keys[] = {"unknown", "accepted", "expired", "grown", "unmeasured"};
    json_t *file = NULL, *roots = json_object_get(result, "roots");
    uint64_t count[5] = {0};
    size_t next = 1;
    int64_t today = rlki_accept_today();
    *all = false;
    int rc = rlk_accept_read(&file, audit->opt.accept, audit->detail);
    for (size_t i = 0; i < audit->nfound && rc == RLK_OK; i++) {
        const struct rlki_found *found = &audit->found[i];
        enum ruling ruling;
        if (found->dropped && found != first)
            continue;
        json_t *root = found == first ? json_array_get(roots, 0) : json_array_get(roots, next++); /* as roots_json() */
        rc = judge(audit, file, found, today, root, &ruling);
        count[ruling] += rc == RLK_OK;
    }
    if (rc == RLK_OK) {
        *all = first && count[ACCEPTED] && !count[UNKNOWN] && !count[EXPIRED] && !count[GROWN] && !count[UNMEASURED];
        json_t *told = json_object();
        rlki_set(told, "file", rlki_json_text(audit->opt.accept));
        for (size_t i = 0; i < 5; i++)
            rlki_set(told, keys[i], json_integer((json_int_t)count[i]));
        rlki_set(result, "acceptance", told);
    }
    json_decref(file);
    return rc;
}
