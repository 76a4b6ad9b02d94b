/* context.c - what is worth telling under any class: which samples and outputs differ, the environment. */
#include "auditor/mechanism/mechanism.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which samples of a batch differ, where sums were kept for each. */
static void samples(const struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlk_tensor *a = f->t[0], *b = f->t[1];
    char list[200] = "";
    size_t n = 0;
    uint32_t differing = 0;
    for (uint32_t i = 0; a && b && i < a->nsamples && i < 4096; i++)
        for (uint32_t k = 0; k < b->nsamples && k < 4096; k++) {
            const struct rlk_sample_part *x = &a->samples[i], *y = &b->samples[k];
            if (strcmp(x->id, y->id) != 0 || !x->has_sums || !y->has_sums || rlk_sums_same_bits(&x->sums, &y->sums))
                continue;
            if (differing++ < 4 && n < sizeof list)
                n += (size_t)snprintf(list + n, sizeof list - n, "%s%.40s", n ? ", " : "", x->id);
        }
    if (differing)
        rlki_remark(o, "%u of %u samples differ: %s%s", differing, a->nsamples, list, differing > 4 ? ", ..." : "");
}

/* One of several outputs: an operator that gives the others right was fed right. */
static void outputs(const struct rlki_facts *f, struct rlki_opinion *o)
{
    const struct rlki_ev *a = &f->ev[0];
    uint32_t n = rlki_ev_count(a, RLK_ROLE_OUT), differing = 0, known = 0;
    char list[200] = "";
    size_t at = 0;
    if (!f->output || n < 2 || n > 64 || f->found->no_rank)
        return;
    for (uint32_t i = 0; i < n; i++) {
        const struct rlk_tensor *t = rlki_ev_tensor(a, RLK_ROLE_OUT, i);
        enum rlki_mark mark = rlki_side_marked(&f->audit->side[0], a->env, a->e.seq, i);
        known += mark == RLKI_MARK_EQUAL || mark == RLKI_MARK_DIFF;
        if (mark != RLKI_MARK_DIFF)
            continue;
        if (differing++ < 4 && at < sizeof list)
            at +=
                (size_t)snprintf(list + at, sizeof list - at, "%s%.40s", at ? ", " : "", t && t->name ? t->name : "?");
    }
    if (differing && known == n)
        rlki_remark(o, "%u of %u outputs differ%s: %s%s", differing, n, differing < n ? ", the others are equal" : "",
                    list, differing > 4 ? ", ..." : "");
}

static void environment_one(struct rlki_opinion *o, const char *what, const json_t *a, const json_t *b)
{
    char *x = a ? json_dumps(a, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    char *y = b ? json_dumps(b, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (!json_equal(a, b))
        rlki_remark(o, "%.60s: %.120s in A, %.120s in B", what, x ? x : "none", y ? y : "none");
    free(x);
    free(y);
}

/* Libraries, driver and GPUs that differ: a lead for an operator whose kernels look alike. */
static bool environment(const struct rlki_facts *f, struct rlki_opinion *o)
{
    static const char *const keys[] = {"gpus", "driver"};
    const json_t *a = f->audit->side[0].manifest, *b = f->audit->side[1].manifest;
    json_t *la = json_object_get(a, "libraries"), *lb = json_object_get(b, "libraries"), *value;
    const char *key;
    unsigned told = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
        if (!x || !y || json_equal(x, y))
            continue;
        environment_one(o, keys[i], x, y);
        told++;
    }
    json_object_foreach(la, key, value)
    {
        char name[80];
        const json_t *other = json_object_get(lb, key);
        if (!other || json_equal(value, other) || told++ >= 6)
            continue;
        snprintf(name, sizeof name, "library %.60s", key);
        environment_one(o, name, value, other);
    }
    return told > 0;
}

/* Settings of the environment that speak of how this kind of operator computes. */
static void settings(const struct rlki_facts *f, struct rlki_opinion *o)
{
    static const char *const collective[] = {"nccl", "ucx", "gloo", "sharp"};
    static const char *const local[] = {"cublas", "cudnn", "torch",  "triton",  "flash",
                                        "nvte",   "vllm",  "sglang", "determin"};
    bool c = f->ev[0].e.kind == RLK_EV_COLLECTIVE;
    json_t *a = json_object_get(f->audit->side[0].manifest, "env"),
           *b = json_object_get(f->audit->side[1].manifest, "env");
    for (int s = 0; s < 2; s++) {
        json_t *value;
        const char *key;
        unsigned told = 0;
        json_object_foreach(s ? b : a, key, value)
        {
            const json_t *other = json_object_get(s ? a : b, key);
            if (strncmp(key, "RLK", 3) == 0) /* the recorder's own, and its tests' */
                continue;
            if ((s && other) || (other && json_equal(value, other)) || told >= 4 ||
                !rlki_has_any(key, c ? collective : local, c ? 4 : 9))
                continue;
            environment_one(o, key, s ? other : value, s ? value : other);
            told++;
        }
    }
}

void rlki_context(struct rlki_facts *f, struct rlki_opinion *o)
{
    if (!f->both)
        return;
    samples(f, o);
    outputs(f, o);
    if (f->launches.graph) {
        bool eager_a = f->launches.launch[0][0]->graph == RLK_NO_NODE;
        rlki_remark(o, "%c launches the kernels one by one, %c from a CUDA graph", eager_a ? 'A' : 'B',
                    eager_a ? 'B' : 'A');
    }
    if (f->output && f->found->kind != RLK_EV_WEIGHTS && f->found->kind != RLK_EV_METRIC) {
        if (environment(f, o) && f->same_event && f->ev[0].e.kind == RLK_EV_OP)
            rlki_open(o, RLKI_M_KERNEL_DIFFERS);
        settings(f, o);
    }
}
