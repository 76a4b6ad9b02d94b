/* mechanism.c - why an event is a root, where the evidence on the event itself makes it plain; else "unknown" at low
 * confidence. Evidence is listed in words, the strongest first. */
#include "auditor/audit.h"
#include "auditor/locate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mechanism {
    const char *class, *confidence, *next;
    json_t *also, *evidence;
};

static void say(struct mechanism *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct mechanism *m, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    rlki_add(m->evidence, rlki_json_text(text));
}

/* The first class found is the class, later ones stand beside it. */
static void class_is(struct mechanism *m, const char *class, const char *confidence)
{
    if (!m->class) {
        m->class = class;
        m->confidence = confidence;
        return;
    }
    size_t i;
    json_t *have;
    if (strcmp(m->class, class) == 0)
        return;
    json_array_foreach(m->also, i, have) if (strcmp(json_string_value(have), class) == 0) return;
    rlki_add(m->also, json_string(class));
}

static bool same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

#define MAX_LAUNCHES 64u

/* The launches of an event: its own, and those recorded as events. RLK_ENOMEM. */
static int launches_of(struct rlki_audit *audit, int side, const struct rlki_ev *ev, struct rlk_arena *arena,
                       const struct rlk_launch *out[MAX_LAUNCHES], uint32_t *n)
{
    *n = 0;
    for (uint32_t i = 0; i < ev->e.nlaunches && *n < MAX_LAUNCHES; i++)
        out[(*n)++] = &ev->e.launches[i];
    for (uint32_t r = 0; r < ev->e.nlaunch_ranges; r++)
        for (uint64_t k = 0; k < ev->e.launch_ranges[r].count && k < MAX_LAUNCHES && *n < MAX_LAUNCHES; k++) {
            struct rlk_event e;
            int rc =
                rlk_env_event(audit->side[side].env[ev->env].env, ev->e.launch_ranges[r].first + k, arena, &e, NULL);
            if (rc == RLK_ENOMEM)
                return rc;
            if (rc == RLK_OK && e.kind == RLK_EV_LAUNCH && e.nlaunches)
                out[(*n)++] = &e.launches[0];
        }
    return RLK_OK;
}

static int by_launches(struct rlki_audit *audit, struct mechanism *m, const struct rlki_ev ev[2],
                       struct rlk_arena *arena)
{
    const struct rlk_launch *launch[2][MAX_LAUNCHES];
    uint32_t na, nb;
    int rc = launches_of(audit, 0, &ev[0], arena, launch[0], &na);
    if (rc == RLK_OK)
        rc = launches_of(audit, 1, &ev[1], arena, launch[1], &nb);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < na && i < nb; i++) {
        const struct rlk_launch *x = launch[0][i], *y = launch[1][i];
        if (!same_text(x->kernel, y->kernel)) {
            say(m, "kernel %.120s in A, %.120s in B", x->kernel, y->kernel);
            class_is(m, "kernel-differs", "high");
        } else if (!same_text(x->image, y->image)) {
            say(m, "kernel %.120s comes from another module image: %.40s, %.40s", x->kernel, x->image, y->image);
            class_is(m, "kernel-differs", "high");
        } else if (!same_text(x->config, y->config)) {
            say(m, "kernel %.120s: another tuned configuration: %.40s, %.40s", x->kernel, x->config, y->config);
            class_is(m, "autotune", "medium");
        } else if (memcmp(x->grid, y->grid, sizeof x->grid) || memcmp(x->block, y->block, sizeof x->block) ||
                   memcmp(x->cluster, y->cluster, sizeof x->cluster) || x->smem != y->smem) {
            say(m,
                "kernel %.120s: grid %ux%ux%u block %ux%ux%u smem %u in A, grid %ux%ux%u block %ux%ux%u smem %u in B",
                x->kernel, x->grid[0], x->grid[1], x->grid[2], x->block[0], x->block[1], x->block[2], x->smem,
                y->grid[0], y->grid[1], y->grid[2], y->block[0], y->block[1], y->block[2], y->smem);
            class_is(m, "launch-config", "high");
        }
    }
    if (na != nb) {
        say(m, "%u launches in A, %u in B; the first that only %c has is %.120s", na, nb, na > nb ? 'A' : 'B',
            launch[na < nb][na < nb ? na : nb]->kernel);
        class_is(m, "kernel-differs", "high");
    }
    return RLK_OK;
}

static void attr_text(char *out, size_t size, const struct rlk_attr *x)
{
    if (x->type == RLK_ATTR_INT)
        snprintf(out, size, "%lld", (long long)x->i);
    else if (x->type == RLK_ATTR_DOUBLE)
        snprintf(out, size, "%.17g", x->d);
    else
        snprintf(out, size, "%.60s", x->s ? x->s : "");
}

/* Attributes that differ; true if one of them. */
static bool by_attributes(struct mechanism *m, const struct rlki_ev *a, const struct rlki_ev *b)
{
    bool any = false;
    for (uint32_t i = 0; i < a->e.nattrs && i < 64; i++)
        for (uint32_t k = 0; k < b->e.nattrs && k < 64; k++) {
            char x[80], y[80];
            if (strcmp(a->e.attrs[i].key, b->e.attrs[k].key) != 0)
                continue;
            attr_text(x, sizeof x, &a->e.attrs[i]);
            attr_text(y, sizeof y, &b->e.attrs[k]);
            if (a->e.attrs[i].type == b->e.attrs[k].type && strcmp(x, y) == 0)
                continue;
            say(m, "attribute %.60s: %s in A, %s in B", a->e.attrs[i].key, x, y);
            any = true;
        }
    return any;
}

static void by_collective(struct mechanism *m, const struct rlki_ev *a, const struct rlki_ev *b)
{
    if (a->e.kind != b->e.kind)
        return;
    bool algo = !same_text(a->e.u.collective.algo, b->e.u.collective.algo);
    bool proto = !same_text(a->e.u.collective.proto, b->e.u.collective.proto);
    bool channels = a->e.u.collective.channels != b->e.u.collective.channels;
    uint32_t n = a->e.u.collective.norder;
    bool order = n != b->e.u.collective.norder ||
                 (n && memcmp(a->e.u.collective.order, b->e.u.collective.order, n * sizeof(uint32_t)) != 0);
    uint32_t k = a->e.u.collective.nmembers;
    bool members = k != b->e.u.collective.nmembers;
    for (uint32_t i = 0; i < k && !members; i++)
        members = !same_text(a->e.u.collective.members[i], b->e.u.collective.members[i]);
    if (algo || proto || channels)
        say(m, "algorithm %.30s/%.30s with %u channels in A, %.30s/%.30s with %u in B", a->e.u.collective.algo,
            a->e.u.collective.proto, a->e.u.collective.channels, b->e.u.collective.algo, b->e.u.collective.proto,
            b->e.u.collective.channels);
    if (members) {
        say(m, "the bucket holds %u members in A and %u in B", k, b->e.u.collective.nmembers);
        class_is(m, "bucket", "medium");
    }
    if (algo || proto || channels)
        class_is(m, "collective-algorithm", "high");
    if (order) {
        say(m, "another reduction order of the ranks");
        class_is(m, algo || proto || channels ? "collective-topology" : "collective-topology", "medium");
    }
}

static void by_topology(struct rlki_audit *audit, struct mechanism *m)
{
    const json_t *x = json_object_get(audit->side[0].manifest, "topology");
    const json_t *y = json_object_get(audit->side[1].manifest, "topology");
    if (!x || !y || json_equal(x, y))
        return;
    say(m, "the recordings were made on different topologies");
    class_is(m, "collective-topology", "medium");
}

/* Which samples of a batch differ, where sums were kept for each. */
static void by_samples(struct mechanism *m, const struct rlk_tensor *a, const struct rlk_tensor *b)
{
    char list[200] = "";
    size_t n = 0;
    uint32_t differing = 0;
    for (uint32_t i = 0; i < a->nsamples && i < 4096; i++)
        for (uint32_t k = 0; k < b->nsamples && k < 4096; k++) {
            const struct rlk_sample_part *x = &a->samples[i], *y = &b->samples[k];
            if (strcmp(x->id, y->id) != 0 || !x->has_sums || !y->has_sums || rlk_sums_same_bits(&x->sums, &y->sums))
                continue;
            if (differing++ < 4 && n < sizeof list)
                n += (size_t)snprintf(list + n, sizeof list - n, "%s%.40s", n ? ", " : "", x->id);
        }
    if (differing)
        say(m, "%u of %u samples differ: %s%s", differing, a->nsamples, list, differing > 4 ? ", ..." : "");
}

/* Class sign-of-zero stands for all that a value digest does not see; this says which of it. Without bytes the counts
 * of -0 and of NaN decide, and equal counts leave both open. */
static const char *what_values_hide(const json_t *difference, const char *grade, bool nans)
{
    bool bytes = json_is_integer(json_object_get(difference, "changed"));
    bool zero = strcmp(grade, "sign-of-zero") == 0;
    if (zero && json_integer_value(json_object_get(difference, "nan")) > 0)
        return "the sign of zero and the payload of NaN differ";
    if (zero && !bytes && nans)
        return "the sign of zero, and maybe the payload of NaN, differs";
    if (zero)
        return "the sign of zero differs";
    return bytes ? "the payload of NaN differs" : "the payload of NaN, or where zeros have a sign, differs";
}

static void by_tensor(struct mechanism *m, const struct rlk_tensor *a, const struct rlk_tensor *b,
                      const json_t *difference)
{
    const char *grade = json_string_value(json_object_get(difference, "grade"));
    const char *pattern = json_string_value(json_object_get(difference, "pattern"));
    bool nans = a && b && a->sums.nan && b->sums.nan;
    if (a && b && a->dtype != b->dtype) {
        say(m, "dtype %s in A, %s in B", rlk_dtype_name(a->dtype), rlk_dtype_name(b->dtype));
        class_is(m, "dtype", "high");
    }
    if (a && b)
        by_samples(m, a, b);
    if (grade && (strcmp(grade, "sign-of-zero") == 0 || strcmp(grade, "nan-payload") == 0)) {
        say(m, "the value digests are equal: only %s", what_values_hide(difference, grade, nans));
        class_is(m, "sign-of-zero", "high");
    }
    if (grade && strcmp(grade, "permutation") == 0) {
        bool bytes = pattern && strcmp(pattern, "permutation") == 0;
        say(m, bytes ? "the same elements in another order"
                     : "the multiset digests are equal: the same units in another order");
        class_is(m, "permutation", bytes ? "high" : "medium");
    }
}

static bool reduces(const struct rlki_ev *ev)
{
    return ev->e.kind == RLK_EV_COLLECTIVE && strstr(ev->e.who.op, "reduce");
}

/* Over how many ranks a collective runs; 0: not known. */
static int ranks_of(const struct rlki_side *side, const struct rlki_ev *ev, uint32_t *n)
{
    uint32_t *ranks = malloc(((size_t)side->world + 1) * sizeof *ranks);
    if (!ranks)
        return RLK_ENOMEM;
    rlki_side_communicator(side, &ev->e, ranks, n);
    free(ranks);
    return RLK_OK;
}

/* Across layouts: one side sums on one rank what the other sums over several, or both over other numbers of ranks. */
static int by_layout(struct rlki_audit *audit, struct mechanism *m, const struct rlki_ev *ev)
{
    uint32_t n[2] = {1, 1};
    bool any = false;
    if (audit->same_layout)
        return RLK_OK;
    for (int s = 0; s < 2; s++) {
        int rc = reduces(&ev[s]) ? ranks_of(&audit->side[s], &ev[s], &n[s]) : RLK_OK;
        if (rc)
            return rc;
        any |= reduces(&ev[s]);
    }
    if (any && n[0] && n[1] && n[0] != n[1]) {
        say(m, "made by %.60s on %u rank%s in A and by %.60s on %u rank%s in B: sums are taken in another order",
            ev[0].e.who.op, n[0], n[0] == 1 ? "" : "s", ev[1].e.who.op, n[1], n[1] == 1 ? "" : "s");
        class_is(m, "layout-reduction", "medium");
    }
    return RLK_OK;
}

static void by_repeats(const struct rlki_found *found, struct mechanism *m)
{
    if (!found->self_a && !found->self_b)
        return;
    say(m, "the same event is a root of %s against a repeat of itself: it is not repeatable",
        found->self_a && found->self_b ? "A and of B"
        : found->self_a                ? "A"
                                       : "B");
    class_is(m, "atomic-order", "low");
}

static void by_kind(struct rlki_audit *audit, const struct rlki_found *found, struct mechanism *m,
                    const struct rlki_ev *ev)
{
    if (found->kind == RLK_EV_WEIGHTS && found->stale) {
        say(m, "these are the trainer's weights of step %lld, label %.60s", (long long)found->stale_step,
            rlki_names_text(&audit->names, found->stale_label));
        class_is(m, "stale-weights", "high");
    }
    if (found->rng) {
        say(m, "the generator's seed, offset or grid differs here and at no earlier consumer");
        class_is(m, "rng", "high");
    }
    if (found->kind == RLK_EV_COLLECTIVE) {
        by_collective(m, &ev[0], &ev[1]);
        by_topology(audit, m);
    }
}

int rlki_mechanism(struct rlki_audit *audit, const struct rlki_found *found, const json_t *difference, json_t **out)
{
    struct mechanism m = {.also = json_array(), .evidence = json_array()};
    struct rlk_arena arena = {0};
    struct rlki_ev ev[2];
    const struct rlk_tensor *t[2] = {NULL, NULL};
    bool both = true, attributes = false;
    int rc = RLK_OK;
    *out = NULL;
    for (int s = 0; s < 2 && rc == RLK_OK; s++) {
        rc = rlki_located(audit, found, s, &arena, &ev[s], &t[s]);
        if (rc == RLK_ENOENT) {
            both = false;
            rc = RLK_OK;
        }
    }
    if (rc || !m.also || !m.evidence) {
        rc = rc ? rc : RLK_ENOMEM;
        goto out;
    }
    if (found->extra) {
        say(&m, "only one of two complete recordings holds it");
        class_is(&m, "extra-or-missing", "high");
    } else if (both) {
        by_kind(audit, found, &m, ev);
        by_tensor(&m, t[0], t[1], difference);
        if (found->role == RLK_ROLE_OUT) {
            if (audit->cross)
                rc = by_layout(audit, &m, ev);
            if (rc == RLK_OK && ev[0].op == ev[1].op) {
                rc = by_launches(audit, &m, ev, &arena);
                attributes = by_attributes(&m, &ev[0], &ev[1]);
            }
            if (rc)
                goto out;
            if (ev[0].e.kind == RLK_EV_OP && ev[1].e.kind == RLK_EV_OP &&
                !same_text(ev[0].e.u.op.contract, ev[1].e.u.op.contract))
                say(&m, "contract %.80s in A, %.80s in B", ev[0].e.u.op.contract, ev[1].e.u.op.contract);
            by_repeats(found, &m);
        } else if (found->source) {
            say(&m, "an input from outside the recording differs");
        } else if (t[0] && t[1]) {
            rc = rlki_input_evidence(audit, ev, t, m.evidence);
            if (rc)
                goto out;
        }
    }
    if (attributes && !m.class)
        class_is(&m, "launch-config", "low");
    if (!m.class)
        class_is(&m, "unknown", "low");
    const char *next = "rlkaudit explain A B";
    if (found->role == RLK_ROLE_OUT && !found->self_a && !found->self_b && strcmp(m.class, "unknown") == 0)
        next = "record each side once more and give --self-a, --self-b: is each repeatable?";
    *out = json_pack("{s:s,s:O,s:s,s:O,s:s}", "class", m.class, "also", m.also, "confidence", m.confidence, "evidence",
                     m.evidence, "next", next);
    rc = *out ? RLK_OK : RLK_ENOMEM;
out:
    json_decref(m.also);
    json_decref(m.evidence);
    rlk_arena_release(&arena);
    return rc;
}
