#include "tests/auditor/build_rec.h"

#include "auditor/rlk_audit.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char base[128];

void rec_open(struct rec *rec, const char *name, uint32_t ranks, const char *layout)
{
    struct rlk_detail detail = {{0}};
    memset(rec, 0, sizeof *rec);
    if (!base[0]) {
        snprintf(base, sizeof base, "%s/rlkauditXXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
        assert_non_null(mkdtemp(base));
    }
    snprintf(rec->dir, sizeof rec->dir, "%s/%s.rlk", base, name);
    snprintf(rec->env, sizeof rec->env, "%s/rank-00000.pid-1", rec->dir);
    json_t *manifest = json_pack("{s:i,s:{s:i,s:i},s:I,s:s}", "rlk_recording", 1, "format", "major", 1, "minor", 0,
                                 "ranks", (json_int_t)ranks, "level", "op");
    if (layout)
        json_object_set_new(manifest, "layout", json_string(layout));
    assert_int_equal(rlk_recording_create(rec->dir, manifest, &detail), RLK_OK);
    json_decref(manifest);
    struct rlk_writer_options options = {.dir = rec->env};
    assert_int_equal(rlk_writer_open(&rec->writer, &options, &detail), RLK_OK);
    assert_int_equal(rlk_writer_producer(rec->writer, &rec->producer), RLK_OK);
    rlk_writer_planes(rec->writer, RLK_PLANE_TENSOR);
    for (uint32_t r = 0; r < ranks; r++)
        assert_int_equal(rlk_writer_rank(rec->writer, r), RLK_OK);
}

void rec_close(struct rec *rec, bool incomplete)
{
    struct rlk_detail detail = {{0}};
    assert_int_equal(rlk_writer_close(rec->writer, incomplete, &detail), RLK_OK);
    rec->writer = NULL;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void rec_remove(const struct rec *rec)
{
    nftw(rec->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    rmdir(base);
    if (access(base, F_OK) != 0)
        base[0] = '\0';
}

void rec_op(struct rec *rec, const char *op, const char *module, const char *pass, int64_t step)
{
    memset(&rec->event, 0, sizeof rec->event);
    memset(rec->tensor, 0, sizeof rec->tensor);
    rec->event.kind = RLK_EV_OP;
    rec->event.who =
        (struct rlk_identity){.step = step, .phase = "actor_train", .pass = pass, .module = module, .op = op};
    rec->event.tensors = rec->tensor;
}

static struct rlk_tensor *add(struct rec *rec, uint8_t role, const char *name)
{
    uint32_t i = rec->event.ntensors++, index = 0;
    struct rlk_tensor *t = &rec->tensor[i];
    for (uint32_t k = 0; k < i; k++)
        index += rec->tensor[k].role == role;
    rec->shape[i][0] = 4;
    rec->shape[i][1] = 8;
    *t = (struct rlk_tensor){.name = name,
                             .role = role,
                             .dtype = RLK_BF16,
                             .composable = true,
                             .index = index,
                             .ndim = 2,
                             .shape = rec->shape[i]};
    return t;
}

static struct rlk_sums sums(uint64_t value)
{
    return (struct rlk_sums){.positional = {value * 3 + 1, value},
                             .value = {value * 3 + 1, value},
                             .multiset = value * 7 + 1,
                             .elements = 32};
}

void rec_in(struct rec *rec, const char *name, uint64_t value)
{
    add(rec, RLK_ROLE_IN, name)->sums = sums(value);
}

void rec_ref(struct rec *rec, const char *name, uint64_t seq, uint32_t output)
{
    struct rlk_tensor *t = add(rec, RLK_ROLE_IN, name);
    t->state = RLK_T_REFERENCE;
    t->ref_event = seq;
    t->ref_output = output;
}

void rec_out(struct rec *rec, const char *name, uint64_t value)
{
    add(rec, RLK_ROLE_OUT, name)->sums = sums(value);
}

struct rlk_tensor *rec_last(struct rec *rec)
{
    return &rec->tensor[rec->event.ntensors - 1];
}

uint64_t rec_put(struct rec *rec)
{
    uint64_t seq = 0;
    assert_int_equal(rlk_producer_put(rec->producer, &rec->event, &seq), RLK_OK);
    return seq;
}

int rec_diff(const struct rec *a, const struct rec *b, json_t **out)
{
    struct rlk_audit_options options = {.a = a->dir, .b = b->dir};
    struct rlk_detail detail = {{0}};
    json_t *result = NULL;
    int rc = rlk_audit_first_diff(&result, &options, &detail);
    if (rc)
        print_message("first-diff: %s\n", detail.text);
    assert_int_equal(rc, RLK_OK);
    int code = (int)json_integer_value(json_object_get(result, "exit"));
    if (out)
        *out = result;
    else
        json_decref(result);
    return code;
}
