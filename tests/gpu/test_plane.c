/* test_plane.c - the device's tensor plane of the recorder without a device: fake/ stands in for the driver,
 * fake/probe.c is the program. Every digest that comes from the "device" is compared with the host's of the same bytes.
 */
#include "store/rlk_reader.h"
#include "tests/recorder/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

struct seen {
    unsigned digested, paired, unequal, references, kept;
    uint64_t steps; /* a bit a step */
    struct {
        char what[64]; /* "operator reason" */
        unsigned n;
    } not [64];
    unsigned nnot;
    char notes[2048];
};

static void count_not(struct seen *s, const char *op, const char *reason)
{
    char what[64];
    snprintf(what, sizeof what, "%.30s %.30s", op, reason);
    for (unsigned i = 0; i < s->nnot; i++)
        if (!strcmp(s->not [i].what, what)) {
            s->not [i].n++;
            return;
        }
    if (s->nnot < 64) {
        memcpy(s->not [s->nnot].what, what, sizeof what);
        s->not [s->nnot++].n = 1;
    }
}

static int look(void *context, const struct rlk_event *e)
{
    struct seen *s = context;
    if (e->kind == RLK_EV_NOTE && strlen(s->notes) + strlen(e->u.note.code) + 2 < sizeof s->notes)
        strcat(strcat(s->notes, e->u.note.code), " ");
    if (e->ntensors && e->who.step >= 0 && e->who.step < 64)
        s->steps |= UINT64_C(1) << e->who.step;
    for (uint32_t i = 0; i < e->ntensors; i++) {
        const struct rlk_tensor *t = &e->tensors[i];
        s->references += t->state == RLK_T_REFERENCE;
        s->kept += t->has_payload;
        if (t->state == RLK_T_NOT_DIGESTED)
            count_not(s, e->who.op, t->reason);
        if (t->state != RLK_T_DIGESTED)
            continue;
        s->digested++;
        const struct rlk_tensor *h = i + 1 < e->ntensors ? t + 1 : t;
        if (strlen(h->name) != strlen(t->name) + 5 || strncmp(h->name, t->name, strlen(t->name)) || h->role != t->role)
            continue;
        s->paired++;
        const struct rlk_sums *a = &t->sums, *b = &h->sums;
        if (!rlk_sums_same_bits(a, b) || !rlk_u128_equal(a->value, b->value) || a->multiset != b->multiset ||
            a->nan != b->nan || a->inf != b->inf || a->negzero != b->negzero || t->composable != h->composable ||
            t->has_payload != h->has_payload || !rlk_u128_equal(t->payload, h->payload)) {
            print_error("%s: %s differs from the host's\n", e->who.op, t->name);
            s->unequal++;
        }
    }
    return 0;
}

static unsigned not_digested(const struct seen *s, const char *what)
{
    for (unsigned i = 0; i < s->nnot; i++)
        if (!strcmp(s->not [i].what, what))
            return s->not [i].n;
    return 0;
}

static void run(struct run *r, struct seen *s, const char *scenario, const char *const *env)
{
    char path[256];
    const char *const argv[] = {RLK_TEST_PROBE, scenario, NULL};
    struct rlk_env *e = NULL;
    struct rlk_detail detail = {""};
    memset(s, 0, sizeof *s);
    run_program(r, argv, env);
    if (r->status)
        print_error("%s", r->err);
    assert_int_equal(r->status, 0);
    assert_int_equal(r->nenvs, 1);
    snprintf(path, sizeof path, "%s/%s", r->rec, r->envs[0]);
    assert_int_equal(rlk_env_open(&e, path, &detail), RLK_OK);
    assert_true(rlk_env_complete(e));
    assert_int_equal(rlk_env_scan(e, 0, rlk_env_count(e), look, s, &detail), RLK_OK);
    rlk_env_close(e);
    assert_int_equal(s->unequal, 0);
}

static void values(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    run(&r, &s, "values", NULL);
    assert_string_equal(r.err, "");
    assert_int_equal(s.nnot, 0);
    assert_int_equal(s.paired, 16 * 11 * 2 + 300);
    run_release(&r);
}

static void order(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    run(&r, &s, "order", NULL);
    assert_string_equal(r.err, "");
    assert_int_equal(s.paired, 2);
    assert_int_equal(s.references, 1);
    run_release(&r);
}

static void held(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    run(&r, &s, "held", NULL);
    assert_string_equal(r.err, "");
    assert_int_equal(s.nnot, 0);
    assert_int_equal(s.paired, 501);
    assert_int_equal(s.references, 500);
    run_release(&r);
}

static void stall(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    run(&r, &s, "stall", NULL);
    assert_string_equal(r.out, "waited little\n");
    assert_non_null(strstr(r.err, "gpu-stall"));
    assert_non_null(strstr(s.notes, "gpu-stall"));
    assert_true(not_digested(&s, "held ring-full") >= 34000 - 32768);
    assert_int_equal(not_digested(&s, "after ring-full"), 0);
    assert_true(s.digested >= 100);
    /* The first ones waited in the writer's queue, which may have been full for its 100 ms too: then one event is
     * counted as dropped, and from there on nobody waits. */
    const unsigned all = s.digested + not_digested(&s, "held ring-full");
    assert_true(all == 34100 || (all == 34000 && strstr(s.notes, "queue-full")));
    run_release(&r);
}

static void hang(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    const time_t start = time(NULL);
    run(&r, &s, "hang", NULL);
    assert_true(time(NULL) - start < 8);
    assert_int_equal(s.digested, 10);
    assert_int_equal(not_digested(&s, "never ring-full"), 10);
    assert_non_null(strstr(s.notes, "gpu-late"));
    run_release(&r);
}

static void late(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    run(&r, &s, "late", NULL);
    assert_string_equal(r.err, "");
    assert_int_equal(s.digested, 10);
    run_release(&r);
}

static void memory(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    run(&r, &s, "memory", NULL);
    assert_int_equal(s.digested, 0);
    assert_int_equal(not_digested(&s, "op gpu-memory"), 3);
    assert_non_null(strstr(r.err, "rlkrec: gpu-memory: no device memory"));
    assert_non_null(strstr(s.notes, "gpu-memory"));
    run_release(&r);
    run(&r, &s, "pinned", NULL); /* memory of the driver's instead of ours */
    assert_string_equal(r.err, "");
    assert_int_equal(s.digested, 3);
    run_release(&r);
}

static void capture(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    run(&r, &s, "capture", NULL);
    assert_string_equal(r.out, "captured 0\n");
    assert_string_equal(r.err, "");
    assert_int_equal(not_digested(&s, "captured capture"), 2);
    assert_int_equal(not_digested(&s, "beside capture"), 1);
    assert_int_equal(s.references, 0);
    assert_int_equal(s.paired, 2);
    run_release(&r);
}

static void broken(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    const time_t start = time(NULL);
    run(&r, &s, "broken", NULL);
    assert_true(time(NULL) - start < 8);
    assert_int_equal(s.digested, 5);
    assert_int_equal(not_digested(&s, "lost unresolved"), 5);
    assert_int_equal(not_digested(&s, "refused gpu-launch"), 25);
    assert_non_null(strstr(r.err, "CUDA error 700"));
    run_release(&r);
}

static void contexts(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    run(&r, &s, "contexts", NULL);
    assert_int_equal(s.paired, 2 + 14 + 1);
    assert_int_equal(not_digested(&s, "none gpu-none"), 1);
    assert_int_equal(not_digested(&s, "too many gpu-contexts"), 6);
    run_release(&r);
}

static void destroyed(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    const time_t start = time(NULL);
    run(&r, &s, "destroyed", NULL);
    assert_true(time(NULL) - start < 8);
    assert_int_equal(s.paired, 3);
    assert_int_equal(not_digested(&s, "lost unresolved"), 15);
    assert_int_equal(not_digested(&s, "after unresolved"), 0);
    assert_int_equal(s.digested, 6 + 5);
    run_release(&r);
}

static void threads(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    run(&r, &s, "threads", NULL);
    assert_string_equal(r.err, "");
    assert_int_equal(s.nnot, 0);
    assert_int_equal(s.paired, 8 * 270 * 2);
    run_release(&r);
}

static void autotune(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    run(&r, &s, "autotune", NULL);
    assert_string_equal(r.out, "launches 0\n");
    assert_int_equal(not_digested(&s, "tried autotune"), 4);
    assert_int_equal(s.digested, 4);
    run_release(&r);
}

static void payload(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    run(&r, &s, "payload", NULL);
    assert_string_equal(r.err, "");
    assert_int_equal(s.paired, 1);
    run_release(&r);
}

static void payload_order(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    const char *const env[] = {"RLKREC_PAYLOAD=op=copy_", NULL};
    run(&r, &s, "payload.order", env);
    assert_string_equal(r.err, "");
    assert_int_equal(s.paired, 4); /* of the other operator nothing is kept on either side, but it is digested */
    assert_int_equal(s.kept, 4);
    run_release(&r);
}

static void every(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    run(&r, &s, "steps", NULL);
    assert_string_equal(r.out, "launches 6\n");
    assert_int_equal(s.steps, 0x3f);
    run_release(&r);
    run(&r, &s, "steps", (const char *const[]){"RLKREC_EVERY=2", NULL});
    assert_string_equal(r.err, "");
    assert_string_equal(r.out, "launches 3\n"); /* the others cost nothing on the device */
    assert_int_equal(s.steps, 0x15);
    assert_int_equal(s.digested, 30);
    run_release(&r);
    run(&r, &s, "steps", (const char *const[]){"RLKREC_STEPS=1:3", NULL});
    assert_string_equal(r.out, "launches 2\n");
    assert_int_equal(s.steps, 0x6);
    run_release(&r);
}

static void keep_last(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    run(&r, &s, "steps", (const char *const[]){"RLKREC_KEEP_LAST=2", NULL});
    assert_string_equal(r.err, "");
    assert_int_equal(s.steps, 0x30);
    assert_int_equal(s.digested, 20);
    run_release(&r);
}

static void max_size(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    run(&r, &s, "bound", (const char *const[]){"RLKREC_MAX_SIZE=150000", NULL});
    assert_string_equal(r.out, "launches stopped\n");
    assert_int_equal(s.nnot, 0);
    assert_non_null(strstr(r.err, "max-size"));
    assert_true(s.digested > 100 && s.digested <= 60010); /* none of the last ten thousand */
    run_release(&r);
}

static void odd(void **state)
{
    (void)state;
    struct run r;
    struct seen s;
    run(&r, &s, "odd", NULL);
    assert_int_equal(not_digested(&s, "op unreadable"), 1);
    assert_int_equal(not_digested(&s, "op gpu-layout"), 1);
    assert_int_equal(not_digested(&s, "op no-storage"), 1);
    assert_int_equal(not_digested(&s, "op device"), 1);
    assert_int_equal(s.paired, 1);
    run_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),    cmocka_unit_test(order),    cmocka_unit_test(held),
        cmocka_unit_test(stall),     cmocka_unit_test(hang),     cmocka_unit_test(late),
        cmocka_unit_test(memory),    cmocka_unit_test(capture),  cmocka_unit_test(broken),
        cmocka_unit_test(contexts),  cmocka_unit_test(threads),  cmocka_unit_test(autotune),
        cmocka_unit_test(payload),   cmocka_unit_test(odd),      cmocka_unit_test(every),
        cmocka_unit_test(keep_last), cmocka_unit_test(max_size), cmocka_unit_test(payload_order),
        cmocka_unit_test(destroyed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
