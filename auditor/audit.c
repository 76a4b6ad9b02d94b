#include "auditor/audit.h"
#include "auditor/locate.h"
#include "auditor/mapfile.h"
#include "auditor/rlk_accept.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NOTES 50u

static _Thread_local bool json_failed;

void rlki_json_begin(void)
{
    json_failed = false;
}

bool rlki_json_failed(void)
{
    return json_failed;
}

void rlki_set(json_t *object, const char *key, json_t *value)
{
    json_failed |= json_object_set_new(object, key, value) != 0;
}

void rlki_add(json_t *array, json_t *value)
{
    json_failed |= json_array_append_new(array, value) != 0;
}

void rlki_replace(json_t *array, size_t at, json_t *value)
{
    json_failed |= json_array_set_new(array, at, value) != 0;
}

json_t *rlki_json_text(const char *text)
{
    json_t *j = json_string(text ? text : "");
    if (j)
        return j;
    /* Not UTF-8: each such byte becomes U+FFFD. */
    size_t n = strlen(text);
    char *copy = malloc(3 * n + 1), *p = copy;
    if (!copy)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)text[i] < 0x80) {
            *p++ = text[i];
        } else {
            memcpy(p, "\xef\xbf\xbd", 3);
            p += 3;
        }
    }
    *p = '\0';
    j = json_string(copy);
    free(copy);
    return j;
}

void rlki_skip(struct rlki_audit *audit, const char *reason, uint64_t n)
{
    char key[64];
    if (!n)
        return;
    snprintf(key, sizeof key, "%.60s", reason && *reason ? reason : "unknown");
    for (char *p = key; *p; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e)
            *p = '?';
    json_int_t have = json_integer_value(json_object_get(audit->reasons, key));
    if (!have && json_object_size(audit->reasons) >= 100) {
        strcpy(key, "other");
        have = json_integer_value(json_object_get(audit->reasons, key));
    }
    audit->skipped += n;
    if (json_object_set_new(audit->reasons, key, json_integer(have + (json_int_t)n)) != 0)
        audit->failed = true;
}

void rlki_note(struct rlki_audit *audit, const char *format, ...)
{
    char text[512];
    va_list args;
    if (json_array_size(audit->notes) >= MAX_NOTES)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t index;
    json_t *old;
    json_array_foreach(audit->notes, index, old) if (strcmp(json_string_value(old), text) == 0) return;
    json_t *note = rlki_json_text(text);
    if (!note || json_array_append_new(audit->notes, note) != 0)
        audit->failed = true;
}

void rlki_incomparable(struct rlki_audit *audit, const char *reason, const struct rlki_ev *a, const struct rlki_ev *b,
                       const char *name)
{
    (void)b;
    if (strcmp(reason, "source") == 0 && audit->opt.allow_source) {
        rlki_note(audit, "source %s differs at step %lld (allowed)", name ? name : "?",
                  a ? (long long)a->e.who.step : 0LL);
        return;
    }
    if (audit->not_comparable)
        return;
    audit->not_comparable = json_object();
    if (!audit->not_comparable) {
        audit->failed = true;
        return;
    }
    rlki_set(audit->not_comparable, "reason", json_string(reason));
    if (name)
        rlki_set(audit->not_comparable, "name", rlki_json_text(name));
    if (a)
        rlki_set(audit->not_comparable, "at", rlki_json_event(audit, 0, a->env, a->e.seq));
}

bool rlki_failed(const struct rlki_audit *audit)
{
    return audit->failed || audit->names.failed || audit->found_index.failed || audit->down.failed ||
           audit->in_pairs.failed || audit->rng_differs.failed || audit->instance_index.failed ||
           audit->ops[0].failed || audit->ops[1].failed || rlki_side_failed(&audit->side[0]) ||
           rlki_side_failed(&audit->side[1]);
}

bool rlki_stop(const struct rlki_audit *audit)
{
    return audit->not_comparable != NULL;
}

bool rlki_partial(const struct rlki_audit *audit)
{
    return rlki_other_retention(&audit->side[0], &audit->side[1]);
}

int rlki_audit_open(struct rlki_audit *audit, const struct rlk_audit_options *options, struct rlk_detail *detail)
{
    memset(audit, 0, sizeof *audit);
    audit->opt = *options;
    audit->detail = detail;
    audit->reasons = json_object();
    audit->notes = json_array();
    if (rlki_names_init(&audit->names) != 0 || !audit->reasons || !audit->notes)
        return rlk_fail(detail, RLK_ENOMEM, "starting");
    int rc = rlki_mapping_open(&audit->mapping, options->map, options->dims, detail);
    if (rc == RLK_OK)
        rc = rlki_side_open(&audit->side[0], 'a', options->a, &audit->names, detail);
    if (rc == RLK_OK)
        rc = rlki_side_open(&audit->side[1], 'b', options->phases ? options->a : options->b, &audit->names, detail);
    if (rc == RLK_OK) {
        audit->same_layout = !rlki_layouts_differ(&audit->side[0], &audit->side[1]);
        audit->cross = options->phases || options->map || options->by_name || !audit->same_layout;
    }
    return rc;
}

int rlki_audit_intact(struct rlki_audit *audit)
{
    int rc = rlki_side_intact(&audit->side[0], audit->detail);
    if (rc)
        return rc;
    bool one = strcmp(rlk_recording_path(audit->side[0].recording), rlk_recording_path(audit->side[1].recording)) == 0;
    if (one)
        audit->side[1].intact = audit->side[0].intact;
    else
        rc = rlki_side_intact(&audit->side[1], audit->detail);
    return rc;
}

void rlki_audit_close(struct rlki_audit *audit)
{
    rlki_collectives_drop(audit);
    free(audit->instances);
    rlki_hash_release(&audit->instance_index);
    rlki_found_release(audit);
    rlki_ledger_free(audit->ledger);
    rlki_sync_free(audit);
    rlki_drop_bytes(audit);
    rlki_hash_release(&audit->down);
    rlki_hash_release(&audit->in_pairs);
    rlki_hash_release(&audit->rng_differs);
    for (int s = 0; s < 2; s++) {
        rlki_hash_release(&audit->repeats[s].root);
        rlki_hash_release(&audit->repeats[s].down);
        rlki_hash_release(&audit->repeats[s].retuned);
        rlki_hash_release(&audit->ops[s]);
        rlki_side_close(&audit->side[s]);
    }
    free(audit->inserted);
    free(audit->deleted);
    free(audit->moved);
    rlki_where_free(audit->where);
    json_decref(audit->reasons);
    json_decref(audit->notes);
    json_decref(audit->not_comparable);
    rlki_mapping_free(audit->mapping);
    rlki_names_release(&audit->names);
}

int rlki_audit_compare(struct rlki_audit *audit)
{
    int rc = audit->cross ? rlki_cross_walk(audit) : rlki_walk(audit);
    if (rc == RLK_OK && rlki_failed(audit))
        rc = rlk_fail(audit->detail, RLK_ENOMEM, "comparing");
    if (rc || !audit->repacked || audit->cross)
        return rc;
    struct rlk_audit_options again = audit->opt; /* samples were dealt out differently: join by sample */
    struct rlki_repeats repeats[2] = {audit->repeats[0], audit->repeats[1]};
    struct rlki_hash *all_down = audit->all_down, *cross_inputs = audit->cross_inputs;
    struct rlk_detail *detail = audit->detail;
    const enum rlk_intact intact[2] = {audit->side[0].intact, audit->side[1].intact};
    memset(audit->repeats, 0, sizeof audit->repeats);
    again.by_name = true;
    rlki_audit_close(audit);
    rc = rlki_audit_open(audit, &again, detail);
    memcpy(audit->repeats, repeats, sizeof repeats);
    audit->all_down = all_down;
    audit->cross_inputs = cross_inputs;
    audit->side[0].intact = intact[0];
    audit->side[1].intact = intact[1];
    if (rc == RLK_OK)
        rlki_note(audit, "the two recordings pack samples differently: joined by sample");
    return rc == RLK_OK ? rlki_audit_compare(audit) : rc;
}

/* What one repeat says of the events that differ in it. */
static int enter_roots(struct rlki_audit *self, struct rlki_repeats *out)
{
    int rc = RLK_OK;
    for (size_t k = 0; k < self->nfound && rc == RLK_OK; k++) {
        const struct rlki_found *found = &self->found[k];
        bool otherwise = false;
        if (found->dropped)
            continue;
        if (found->root != RLKI_ROOT_TRUE) {
            rlki_hash_put(&out->down, found->event_key, 1);
            continue;
        }
        rlki_hash_count(&out->root, found->event_key, 1);
        if (k < 1000 && !found->extra && !found->no_rank)
            rc = rlki_launched_otherwise(self, found, &otherwise);
        if (otherwise)
            rlki_hash_put(&out->retuned, found->event_key, 1);
    }
    return rc;
}

/* Compares one recording with its repeats. */
static int compare_repeats(struct rlki_audit *audit, int side, const char *a, const char *const *with, size_t n)
{
    struct rlki_repeats *out = &audit->repeats[side];
    int rc = RLK_OK;
    for (size_t i = 0; i < n && rc == RLK_OK; i++) {
        struct rlki_audit self;
        struct rlk_audit_options opt = audit->opt;
        opt.a = a;
        opt.b = with[i];
        opt.phases = NULL;
        opt.allow_source = true;
        rc = rlki_audit_open(&self, &opt, audit->detail);
        if (rc == RLK_OK) /* the first one is looked at once, not with each repeat */
            rc = rlki_side_intact(&self.side[1], audit->detail);
        self.all_down = &out->down;
        if (rc == RLK_OK)
            rc = rlki_audit_compare(&self);
        if (rc == RLK_OK && (rlki_stop(&self) || !self.compared))
            rlki_note(audit, "a repeat of %c cannot be compared with it: it says nothing", side ? 'B' : 'A');
        else
            out->n += self.side[1].complete && self.side[0].complete;
        if (rc == RLK_OK && !rlki_stop(&self))
            rc = enter_roots(&self, out);
        if (rc == RLK_OK && (out->root.failed || out->down.failed || out->retuned.failed))
            rc = RLK_ENOMEM;
        rlki_audit_close(&self);
    }
    return rc;
}

int rlk_audit_first_diff(json_t **out, const struct rlk_audit_options *options, struct rlk_detail *detail)
{
    struct rlki_audit audit;
    *out = NULL;
    rlki_json_begin();
    json_t *accepted = NULL;
    int rc = options->accept ? rlk_accept_read(&accepted, options->accept, detail) : RLK_OK;
    json_decref(accepted); /* looked at before the long work, applied after it */
    if (rc)
        return rc;
    rc = rlki_audit_open(&audit, options, detail);
    if (rc == RLK_OK)
        rc = rlki_audit_intact(&audit);
    if (rc == RLK_OK)
        rc = compare_repeats(&audit, 0, options->a, options->self_a, options->nself_a);
    if (rc == RLK_OK && options->b)
        rc = compare_repeats(&audit, 1, options->b, options->self_b, options->nself_b);
    if (rc == RLK_OK)
        rc = rlki_audit_compare(&audit);
    if (rc == RLK_OK)
        rc = rlki_result(&audit, out);
    rlki_audit_close(&audit);
    return rc;
}
