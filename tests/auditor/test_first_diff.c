/* first-diff on small recordings: clean pairs stay silent, a planted fault is named, hostile ones end. */
#include "auditor/rlk_audit.h"
#include "tests/auditor/build_rec.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>

static json_t *first_of(json_t *result)
{
    return json_object_get(result, "first");
}

static const char *text(json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

static long long number(json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static void done(struct rec *a, struct rec *b, json_t *result)
{
    json_decref(result);
    rec_remove(a);
    rec_remove(b);
}

/* ---- threads, processes, streams ---- */

static uint64_t threaded(struct rec *rec, uint32_t thread, const char *op, uint64_t in, uint64_t out)
{
    rec_op(rec, op, "m", "fwd", 0);
    rec->event.thread = thread;
    rec->event.stream = thread + (uint64_t)rec->dir[0]; /* whatever */
    rec_in(rec, "x", in);
    rec_out(rec, "y", out);
    rec_last(rec)->alloc = out + thread + 100;
    return rec_put(rec);
}

/* Two threads in one module call, interleaved in one way or another. */
static void two_threads(struct rec *rec, const char *name, bool swapped, uint64_t fault)
{
    rec_open(rec, name, 1, NULL);
    for (uint64_t i = 0; i < 8; i++) {
        uint32_t one = swapped ? 5 : 1, two = swapped ? 3 : 2;
        uint64_t bad = i == 4 ? fault : 0;
        if (swapped && i % 2) {
            threaded(rec, two, "aten::add", 50 + i, 60 + i);
            threaded(rec, one, "aten::mul", 10 + i, 20 + i + bad);
        } else {
            threaded(rec, one, "aten::mul", 10 + i, 20 + i + bad);
            threaded(rec, two, "aten::add", 50 + i, 60 + i);
        }
    }
    rec_close(rec, false);
}

static void test_threads_interleave(void **unused)
{
    struct rec a, b, c;
    json_t *result;
    (void)unused;
    two_threads(&a, "ta", false, 0);
    two_threads(&b, "tb", true, 0);
    two_threads(&c, "tc", true, 1000);
    assert_int_equal(rec_diff(&a, &b, &result), 0);
    assert_int_equal(number(json_object_get(result, "alignment"), "moved_total"), 0);
    json_decref(result);
    assert_int_equal(rec_diff(&a, &c, &result), 1);
    assert_string_equal(text(first_of(result), "op"), "aten::mul");
    assert_int_equal(number(json_object_get(first_of(result), "a"), "event"), 8);
    assert_int_equal(json_array_size(json_object_get(result, "roots")), 1);
    done(&b, &c, result);
    rec_remove(&a);
}

/* Killed before the second thread's events were written: the same operators, other values, on one thread less. */
static void test_a_cut_off_thread(void **unused)
{
    struct rec a, b;
    (void)unused;
    for (uint64_t fault = 0; fault < 2; fault++) {
        rec_open(&a, "wa", 1, NULL);
        rec_open(&b, "wb", 1, NULL);
        for (uint64_t i = 0; i < 4; i++) {
            threaded(&a, 2, "aten::mul", 50 + i, 60 + i);
            threaded(&a, 1, "aten::mul", 10 + i, 20 + i);
            if (i < 3)
                threaded(&b, 7, "aten::mul", 10 + i, 20 + i + (i == 1 ? 1000 * fault : 0));
        }
        rec_close(&a, false);
        rec_close(&b, true);
        assert_int_equal(rec_diff(&a, &b, NULL), fault ? 1 : 4);
        assert_int_equal(rec_diff(&b, &a, NULL), fault ? 1 : 4);
        rec_remove(&a);
        rec_remove(&b);
    }
}

/* ---- moved ---- */

static void three_ops(struct rec *rec, const char *name, const char *const order[3], uint64_t fault, bool more)
{
    rec_open(rec, name, 1, NULL);
    for (int i = 0; i < 3; i++) {
        uint64_t value = (uint64_t)order[i][0];
        rec_op(rec, order[i], "m", "fwd", 0);
        rec_in(rec, "x", value);
        rec_out(rec, "y", value + 1 + (order[i][0] == 'b' ? fault : 0));
        rec_put(rec);
    }
    if (more) { /* so that the roll-ups differ and the module is read */
        rec_op(rec, "d", "m", "fwd", 0);
        rec_out(rec, "y", 1);
        rec_put(rec);
    }
    rec_close(rec, false);
}

static void test_moved(void **unused)
{
    struct rec a, b, c;
    json_t *result;
    (void)unused;
    three_ops(&a, "ma", (const char *const[3]){"a", "b", "c"}, 0, false);
    three_ops(&b, "mb", (const char *const[3]){"b", "a", "c"}, 0, true);
    three_ops(&c, "mc", (const char *const[3]){"b", "a", "c"}, 9, false);
    assert_int_equal(rec_diff(&a, &b, &result), 0);
    assert_int_equal(number(json_object_get(result, "alignment"), "moved_total"), 1);
    assert_int_equal(number(json_object_get(result, "alignment"), "inserted_total"), 1);
    json_decref(result);
    assert_int_equal(rec_diff(&a, &c, &result), 1); /* moved, and wrong: inputs are equal, so it is the operator */
    assert_string_equal(text(first_of(result), "op"), "b");
    done(&b, &c, result);
    rec_remove(&a);
}

/* ---- micro-batches ---- */

static void gradients(struct rec *rec, const char *name, int64_t works, uint64_t last)
{
    rec_open(rec, name, 1, NULL);
    for (int64_t w = 0; w < works; w++) {
        rec_op(rec, "aten::mm", "fc", "bwd", 0);
        rec->event.who.work = w;
        rec_in(rec, "dy", 7);
        rec_out(rec, "fc.weight.grad", w + 1 == works ? last : 900 + (uint64_t)w);
        rec_put(rec);
    }
    rec_close(rec, false);
}

static void test_gradients_once_a_step(void **unused)
{
    struct rec a, b, c;
    json_t *result;
    (void)unused;
    gradients(&a, "ga", 2, 5);
    gradients(&b, "gb", 4, 5);
    gradients(&c, "gc", 4, 6);
    assert_int_equal(rec_diff(&a, &b, NULL), 0);
    assert_int_equal(rec_diff(&a, &c, &result), 1);
    assert_string_equal(text(first_of(result), "name"), "fc.weight.grad");
    done(&b, &c, result);
    rec_remove(&a);
}

/* ---- inputs ---- */

static void sourced(struct rec *rec, const char *name, uint64_t source)
{
    rec_open(rec, name, 1, NULL);
    for (int64_t step = 0; step < 2; step++)
        for (int i = 0; i < 3; i++) {
            rec_op(rec, "aten::mul", "m", "fwd", step);
            rec->event.who.occurrence = (uint32_t)i;
            rec_in(rec, "features", step ? source : 1);
            rec_out(rec, "y", 100 + (uint64_t)i + (step ? source : 0));
            rec_put(rec);
        }
    rec_close(rec, false);
}

static void test_one_source_is_one_root(void **unused)
{
    struct rec a, b;
    json_t *result;
    (void)unused;
    sourced(&a, "sa", 0);
    sourced(&b, "sb", 40);
    assert_int_equal(rec_diff(&a, &b, &result), 1);
    assert_int_equal(json_array_size(json_object_get(result, "roots")), 1);
    assert_string_equal(text(first_of(result), "role"), "in");
    assert_int_equal(number(first_of(result), "step"), 1);
    assert_int_equal(number(result, "downstream"), 3);
    done(&a, &b, result);
}

/* References to itself, to the future, to nothing, to another rank. */
static int hostile(struct rec *rec, const char *name, uint64_t out)
{
    int refused = 0;
    rec_open(rec, name, 2, NULL);
    for (uint64_t i = 0; i < 40; i++) {
        rec_op(rec, "x", "m", "fwd", 0);
        rec->event.rank = (uint32_t)(i % 2);
        rec_ref(rec, "self", i, 0);
        rec_ref(rec, "later", i + 1, 0);
        rec_ref(rec, "far", UINT64_C(1) << 31, 3);
        rec_ref(rec, "back", i ? i - 1 : 0, 0);
        rec_ref(rec, "no output", i ? i - 1 : 0, 77);
        rec_out(rec, "y", out + i);
        refused += rlk_producer_put(rec->producer, &rec->event, NULL) != RLK_OK;
    }
    rec_close(rec, false);
    return refused;
}

static void test_hostile_references_end(void **unused)
{
    struct rec a, b;
    json_t *result;
    (void)unused;
    int refused = hostile(&a, "ha", 100);
    assert_int_equal(hostile(&b, "hb", 200), refused);
    if (!refused) { /* every input is in doubt: never a proved root */
        assert_int_equal(rec_diff(&a, &b, &result), 1);
        assert_string_equal(text(first_of(result), "root"), "unknown");
        json_decref(result);
        assert_int_equal(rec_diff(&a, &a, NULL), 0);
    }
    rec_remove(&a);
    rec_remove(&b);
}

static void lone_chain(struct rec *rec, const char *name, uint64_t out)
{
    rec_open(rec, name, 1, NULL);
    rec_op(rec, "first", "m", "fwd", 0);
    rec_in(rec, "x", 1);
    rec_out(rec, "y", 2);
    uint64_t seq = rec_put(rec);
    for (int i = 0; i < 3000; i++) { /* a long chain that the other side does not have */
        rec_op(rec, out == 9 ? "extra_b" : "extra_a", "extra", "fwd", 0);
        rec_ref(rec, "y", seq, 0);
        rec_out(rec, "y", out * 10000 + (uint64_t)i);
        seq = rec_put(rec);
    }
    for (uint32_t i = 0; i < 8; i++) {
        rec_op(rec, i % 2 ? "odd" : "even", "m2", "fwd", 0);
        rec->event.who.occurrence = i / 2;
        rec_in(rec, "same", 3);
        rec_out(rec, "z", 70 + i);
        rec_put(rec);
    }
    rec_op(rec, "last", "m", "fwd", 0);
    rec_ref(rec, "y", seq, 0);
    rec_out(rec, "z", out);
    rec_put(rec);
    rec_close(rec, false);
}

static void test_reaching_back_through_unaligned(void **unused)
{
    struct rec a, b;
    json_t *result;
    (void)unused;
    lone_chain(&a, "la", 8);
    lone_chain(&b, "lb", 9);
    assert_int_equal(rec_diff(&a, &b, &result), 1);
    assert_string_equal(text(first_of(result), "op"), "last"); /* nothing aligned behind it differs: a root, role in */
    assert_string_equal(text(first_of(result), "role"), "in");
    assert_int_equal(number(json_object_get(result, "alignment"), "inserted_total"), 3000);
    done(&a, &b, result);
}

/* ---- metrics, parameters, bytes ---- */

static void loss(struct rec *rec, const char *name, uint64_t out, double value)
{
    rec_open(rec, name, 1, NULL);
    rec_op(rec, "aten::mm", "m", "fwd", 0);
    rec_in(rec, "x", 1);
    rec_out(rec, "y", out);
    rec_put(rec);
    rec_op(rec, "loss", "", "", 0);
    rec->event.kind = RLK_EV_METRIC;
    rec->event.u.metric.value = value;
    rec_put(rec);
    rec_close(rec, false);
}

static void test_metrics(void **unused)
{
    struct rec a, b, c;
    json_t *result;
    (void)unused;
    loss(&a, "la", 1, 0.5);
    loss(&b, "lb", 1, 0.25);
    loss(&c, "lc", 2, 0.25);
    assert_int_equal(rec_diff(&a, &b, &result), 1); /* alone, a number without inputs */
    assert_string_equal(text(first_of(result), "op"), "loss");
    assert_string_equal(text(first_of(result), "root"), "unknown");
    json_decref(result);
    assert_int_equal(rec_diff(&a, &c, &result), 1); /* explained by the product */
    assert_string_equal(text(first_of(result), "op"), "aten::mm");
    assert_int_equal(json_array_size(json_object_get(result, "roots")), 1);
    assert_int_equal(number(result, "downstream"), 1);
    done(&b, &c, result);
    rec_remove(&a);
}

static void wide(struct rec *rec, const char *name, uint64_t columns)
{
    rec_open(rec, name, 1, NULL);
    for (int i = 0; i < 6; i++) { /* what both have */
        rec_op(rec, "aten::relu", i % 2 ? "m.a" : "m.b", "fwd", 0);
        rec_in(rec, "x", 1);
        rec_out(rec, "y", 2);
        rec_put(rec);
    }
    if (columns == 16) {
        rec_op(rec, "aten::add", "fc", "fwd", 0);
        rec_in(rec, "x", 1);
        rec_out(rec, "y", 2);
        rec_put(rec);
    }
    rec_op(rec, "aten::linear", "fc", "fwd", 0);
    rec_in(rec, "fc.weight", 4);
    rec->shape[0][1] = columns;
    rec_out(rec, "y", columns);
    rec->shape[1][1] = columns;
    rec_put(rec);
    rec_close(rec, false);
}

static void test_parameter_shape_where_nothing_aligns(void **unused)
{
    struct rec a, b;
    json_t *result;
    (void)unused;
    wide(&a, "wa", 8);
    wide(&b, "wb", 16);
    assert_int_equal(rec_diff(&a, &b, &result), 3);
    assert_string_equal(text(json_object_get(result, "not_comparable"), "name"), "fc.weight");
    done(&a, &b, result);
}

/* Two tensors an operator, `dark` of them without a digest. */
static void undigested(struct rec *rec, const char *name, int dark)
{
    rec_open(rec, name, 1, NULL);
    for (int i = 0; i < 2; i++) {
        rec_op(rec, i ? "aten::mul" : "aten::add", "m", "fwd", 0);
        rec_out(rec, "y", 5);
        if (i < dark) {
            rec_last(rec)->state = RLK_T_NOT_DIGESTED;
            rec_last(rec)->reason = "device";
        }
        rec_put(rec);
    }
    rec_close(rec, false);
}

/* Agreement of what nobody digested is no agreement: it is not counted as compared, and alone it is no pass. */
static void test_undigested_is_not_compared(void **unused)
{
    (void)unused;
    for (int dark = 0; dark <= 2; dark++) {
        struct rec a, b;
        json_t *result;
        undigested(&a, "a", dark);
        undigested(&b, "b", dark);
        assert_int_equal(rec_diff(&a, &b, &result), dark == 2 ? 3 : 0);
        assert_int_equal(number(json_object_get(result, "scope"), "compared"), 2 - dark);
        assert_int_equal(number(json_object_get(result, "scope"), "skipped"), dark);
        done(&a, &b, result);
    }
}

/* A cache written piece by piece, then read whole: `first` and `last` are what the two pieces hold. */
static void cache(struct rec *rec, const char *name, uint64_t first, uint64_t last, uint64_t whole)
{
    rec_open(rec, name, 1, NULL);
    rec_op(rec, "aten::mul", "m", "fwd", 0);
    rec_out(rec, "x", first);
    uint64_t made = rec_put(rec);
    for (int i = 0; i < 2; i++) {
        rec_op(rec, "aten::copy_", "m", "fwd", 0);
        rec_ref(rec, "src", made, 0);
        rec_out(rec, "self", i ? last : first);
        rec_last(rec)->alloc = 40;
        rec_put(rec);
    }
    rec_op(rec, "aten::add", "m", "fwd", 0);
    rec_in(rec, "self", whole);
    rec_last(rec)->alloc = 40;
    rec_out(rec, "y", whole + 1);
    rec_put(rec);
    rec_close(rec, false);
}

static void test_every_writer_of_a_buffer_counts(void **unused)
{
    (void)unused;
    struct rec a, b;
    json_t *result;
    /* the piece before the last one differs, and so does the operator that made it: one root, the operator */
    cache(&a, "a", 5, 6, 100);
    cache(&b, "b", 7, 6, 200);
    assert_int_equal(rec_diff(&a, &b, &result), 1);
    assert_int_equal(json_array_size(json_object_get(result, "roots")), 1);
    assert_string_equal(text(first_of(result), "op"), "aten::mul");
    done(&a, &b, result);
    /* every piece is equal and the whole is not: a write that nobody recorded, a root */
    cache(&a, "a", 5, 6, 100);
    cache(&b, "b", 5, 6, 200);
    assert_int_equal(rec_diff(&a, &b, &result), 1);
    assert_string_equal(text(first_of(result), "op"), "aten::add");
    assert_string_equal(text(first_of(result), "role"), "in");
    done(&a, &b, result);
}

/* The same producer's output read through another view: unequal, and no sums say how. */
static void viewed(struct rec *rec, const char *name, uint64_t view, uint64_t out)
{
    rec_open(rec, name, 1, NULL);
    rec_op(rec, "aten::mul", "m", "fwd", 0);
    rec_out(rec, "y", 5);
    uint64_t seq = rec_put(rec);
    rec_op(rec, "aten::add", "m", "fwd", 0);
    rec_ref(rec, "x", seq, 0);
    rec_last(rec)->ref_view = (rlk_u128){view, 0};
    rec_out(rec, "y", out);
    rec_put(rec);
    rec_close(rec, false);
}

static void test_another_view_is_no_sign_of_zero(void **unused)
{
    (void)unused;
    struct rec a, b;
    json_t *result;
    viewed(&a, "a", 7, 9);
    viewed(&b, "b", 8, 10);
    assert_int_equal(rec_diff(&a, &b, &result), 1);
    json_t *first = first_of(result);
    assert_string_equal(text(first, "op"), "aten::add");
    assert_string_equal(text(json_object_get(first, "difference"), "grade"), "different");
    assert_string_not_equal(text(json_object_get(first, "mechanism"), "class"), "sign-of-zero");
    done(&a, &b, result);
}

/* Two products and their difference; the operands are swapped in B. */
static void swapped_operands(struct rec *rec, const char *name, bool swap)
{
    uint64_t seq[2];
    rec_open(rec, name, 1, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        rec_op(rec, "aten::mul", "m", "fwd", 0);
        rec->event.who.occurrence = i;
        rec_in(rec, "x", 1 + i);
        rec_out(rec, "y", 5 + i);
        seq[i] = rec_put(rec);
    }
    rec_op(rec, "aten::sub", "m", "fwd", 0);
    rec_ref(rec, "a", seq[swap], 0);
    rec_ref(rec, "b", seq[!swap], 0);
    rec_out(rec, "z", swap ? 8 : 9);
    rec_put(rec);
    rec_close(rec, false);
}

static const char *evidence_of(json_t *diff)
{
    const char *said =
        json_string_value(json_array_get(json_object_get(json_object_get(diff, "mechanism"), "evidence"), 0));
    return said ? said : "";
}

static void test_swapped_operands_are_no_race(void **unused)
{
    (void)unused;
    struct rec a, b;
    json_t *result;
    swapped_operands(&a, "a", false);
    swapped_operands(&b, "b", true);
    assert_int_equal(rec_diff(&a, &b, &result), 1);
    assert_string_equal(text(first_of(result), "role"), "in");
    assert_string_equal(evidence_of(first_of(result)),
                        "reads another event's output: A #0 aten::mul output 0, B #1 aten::mul output 0");
    done(&a, &b, result);
}

static void with_bytes(struct rec *rec, const char *name, uint64_t out)
{
    unsigned char bytes[64];
    rec_open(rec, name, 1, NULL);
    rec_op(rec, "aten::mm", "m", "fwd", 0);
    rec_in(rec, "x", 1);
    rec_out(rec, "y", out);
    memset(bytes, (int)out, sizeof bytes);
    struct rlk_tensor *t = rec_last(rec);
    t->has_payload = true;
    assert_int_equal(rlk_producer_payload(rec->producer, bytes, sizeof bytes, &t->payload), RLK_OK);
    rec_put(rec);
    rec_close(rec, false);
}

static void test_bytes_without_their_digest_are_damage(void **unused)
{
    struct rec a, b;
    json_t *result = NULL;
    struct rlk_detail detail = {{0}};
    (void)unused;
    with_bytes(&a, "ba", 3);
    with_bytes(&b, "bb", 4);
    struct rlk_audit_options options = {.a = a.dir, .b = b.dir};
    assert_int_equal(rlk_audit_first_diff(&result, &options, &detail), RLK_ECORRUPT);
    assert_non_null(strstr(detail.text, "digest"));
    done(&a, &b, result);
}

/* ---- weights ---- */

static void exported(struct rec *rec, const char *name, uint64_t sum)
{
    rec_open(rec, name, 1, NULL);
    rec_op(rec, "sum", "m", "bwd", 0);
    rec_in(rec, "x", 1);
    rec_out(rec, "g", sum);
    uint64_t g = rec_put(rec);
    rec_op(rec, "sgd_", "m", "opt", 0);
    rec_ref(rec, "g", g, 0);
    rec_out(rec, "m.weight", sum + 5);
    rec_last(rec)->alloc = 4;
    rec_put(rec);
    rec_op(rec, "weights", "", "opt", 0);
    rec->event.kind = RLK_EV_WEIGHTS;
    rec->event.u.weights.side = "trainer";
    rec->event.u.weights.version = "v1";
    rec_out(rec, "m.weight", sum + 5);
    rec_last(rec)->alloc = 4;
    rec_put(rec);
    rec_close(rec, false);
}

static void test_weights_follow_their_buffer(void **unused)
{
    struct rec a, b;
    json_t *result;
    (void)unused;
    exported(&a, "ea", 10);
    exported(&b, "eb", 20);
    assert_int_equal(rec_diff(&a, &b, &result), 1);
    assert_string_equal(text(first_of(result), "op"), "sum");
    assert_int_equal(json_array_size(json_object_get(result, "roots")), 1);
    assert_int_equal(number(result, "downstream"), 2);
    done(&a, &b, result);
}

/* ---- order ---- */

static void two_roots(struct rec *rec, const char *name, bool late, uint64_t fault)
{
    rec_open(rec, name, 1, NULL);
    for (int i = 0; i < 2; i++) {
        bool p = late ? i == 1 : i == 0;
        rec_op(rec, "op", p ? "p" : "q", "fwd", 0);
        rec->event.thread = p ? 1 : 2;
        rec_in(rec, "x", 1);
        rec_out(rec, "y", (p ? 10 : 20) + fault);
        rec_put(rec);
    }
    rec_close(rec, false);
}

static void test_ties_by_first_appearance_in_a(void **unused)
{
    struct rec a, b;
    json_t *result;
    (void)unused;
    for (int late = 0; late < 2; late++) { /* two threads: unordered; the module that A shows first */
        two_roots(&a, "oa", late, 0);
        two_roots(&b, "ob", !late, 5);
        assert_int_equal(rec_diff(&a, &b, &result), 1);
        assert_int_equal(json_array_size(json_object_get(result, "roots")), 2);
        assert_string_equal(text(first_of(result), "module"), late ? "q" : "p");
        done(&a, &b, result);
    }
}

/* Two virtual ranks in one environment: what a rank receives is downstream of what the other sent. */
static void transfer(struct rec *rec, const char *name, uint64_t fault, bool at_receiver)
{
    static const uint32_t pair[] = {0, 1};
    rec_open(rec, name, 2, NULL);
    rec_op(rec, "aten::mm", "stage0", "fwd", 0);
    rec_in(rec, "x", 1);
    rec_out(rec, "h", 2 + (at_receiver ? 0 : fault));
    uint64_t h = rec_put(rec);
    for (uint32_t r = 0; r < 2; r++) {
        rec_op(rec, r ? "recv" : "send", "", "fwd", 0);
        rec->event.kind = RLK_EV_COLLECTIVE;
        rec->event.rank = r;
        rec->event.u.collective.group = "pp";
        rec->event.u.collective.nranks = 2;
        rec->event.u.collective.ranks = pair;
        if (r == 0)
            rec_ref(rec, "h", h, 0);
        else
            rec_out(rec, "h", 2 + fault);
        rec_put(rec);
    }
    rec_close(rec, false);
}

static void test_transfer(void **unused)
{
    struct rec a, b, c;
    json_t *result;
    (void)unused;
    transfer(&a, "xa", 0, false);
    transfer(&b, "xb", 7, false);
    transfer(&c, "xc", 7, true);
    assert_int_equal(rec_diff(&a, &b, &result), 1);
    assert_string_equal(text(first_of(result), "op"), "aten::mm");
    assert_int_equal(json_array_size(json_object_get(result, "roots")), 1);
    assert_int_equal(number(result, "downstream"), 1);
    json_decref(result);
    assert_int_equal(rec_diff(&a, &c, &result), 1);
    assert_string_equal(text(first_of(result), "op"), "recv");
    done(&b, &c, result);
    rec_remove(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_interleave),
        cmocka_unit_test(test_a_cut_off_thread),
        cmocka_unit_test(test_moved),
        cmocka_unit_test(test_gradients_once_a_step),
        cmocka_unit_test(test_one_source_is_one_root),
        cmocka_unit_test(test_hostile_references_end),
        cmocka_unit_test(test_reaching_back_through_unaligned),
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_parameter_shape_where_nothing_aligns),
        cmocka_unit_test(test_undigested_is_not_compared),
        cmocka_unit_test(test_every_writer_of_a_buffer_counts),
        cmocka_unit_test(test_another_view_is_no_sign_of_zero),
        cmocka_unit_test(test_swapped_operands_are_no_race),
        cmocka_unit_test(test_bytes_without_their_digest_are_damage),
        cmocka_unit_test(test_weights_follow_their_buffer),
        cmocka_unit_test(test_ties_by_first_appearance_in_a),
        cmocka_unit_test(test_transfer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
