/* The report, row by row: a clean pair leaves every row true, and a fault in one place makes exactly its row false. */
#include "auditor/rlk_report.h"
#include "store/rlk_digest.h"
#include "tests/auditor/build_rec.h"
#include "tests/auditor/refuse.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_SHA256 "3ed44e69b36da9602306b11befe8b7376deb4fd89dba4ba531da0824e0d4a5c9"

enum fault {
    CLEAN,
    NO_LAUNCHES,
    EAGER,             /* one decode iteration of a captured size runs kernels of its own */
    OTHER_SIZE,        /* one graph is launched for a size that is none of the expected ones */
    SPLIT,             /* a batch of 6 runs as graphs of 4 and of 2 */
    GRAPH_OUTSIDE,     /* a graph is launched in training */
    NO_DEFINITION,     /* a graph is launched of which nothing is known */
    READBACK,          /* one call more than operators */
    READBACK_CONTRACT, /* of another contract than the operators */
    READBACK_CASE,     /* the provider where the contract was asked for */
    READBACK_LAUNCH,   /* declared and recorded, and no kernel ran */
    NO_READBACKS,
    LOGP,         /* one training log-probability by one ulp */
    LOGP_ZERO,    /* the sign of a zero */
    LOGP_REPLICA, /* rank 1 holds others */
    LOGP_MISSING, /* a sample that was not trained on */
    NO_LOGP,
    SCALAR, /* a mismatch in the metrics alone */
    SCALAR_COUNT,
    TOKEN,
    TOKEN_TWICE,     /* another rank tells of the same samples: nothing wrong */
    TOKEN_OTHERWISE, /* and tells other tokens */
    WEIGHT,
    WEIGHT_SHAPE,
    WEIGHT_BAD, /* a hash that is none */
    SAME_WEIGHTS,
    GRAD_NORM,
    GRAD_NORM_ZERO,
    METRIC,
    EXTRA_STEP,
    ODD_TEXT, /* names that are no text: kept, and no fault */
    FAULTS,
};

enum row {
    R_GRAPHS,
    R_READBACKS,
    R_SCALARS,
    R_LOGP,
    R_UPDATES,
    R_TOKENS,
    R_HASHES,
    R_NORMS,
    R_METRICS,
    R_ERRORS,
    ROWS
};
static const char *const row_name[ROWS] = {"cudagraph",
                                           "runtime_readbacks",
                                           "runtime_scalar_logprob",
                                           "train_rollout_logprob",
                                           "updates",
                                           "tokens",
                                           "hashes",
                                           "norms",
                                           "metrics",
                                           "errors"};

struct made {
    struct rec rec;
    enum fault fault;
    uint64_t attention, sampling; /* calls */
};

static uint64_t put(struct made *m, struct rlk_event *e)
{
    uint64_t seq = 0;
    assert_int_equal(rlk_producer_put(m->rec.producer, e, &seq), RLK_OK);
    return seq;
}

static void launch_event(struct made *m, const char *entry, const struct rlk_launch *l, uint32_t n, uint32_t count)
{
    struct rlk_event e = {.kind = RLK_EV_LAUNCH, .nlaunches = n, .launches = l};
    e.u.launch.entry = entry;
    e.u.launch.count = count;
    put(m, &e);
}

static struct rlk_launch kernel(int64_t graph, int64_t node)
{
    return (struct rlk_launch){.kernel = graph >= 0 && node < 0 ? "" : "k",
                               .image = "",
                               .config = "",
                               .grid = {1, 1, 1},
                               .block = {32, 1, 1},
                               .cluster = {1, 1, 1},
                               .graph = graph,
                               .node = node};
}

static void graph(struct made *m, int64_t which, bool define)
{
    const struct rlk_launch node = kernel(which, 0), replay = kernel(which, RLK_NO_NODE);
    if (define)
        launch_event(m, "graph.definition", &node, 1, 0);
    launch_event(m, "cuGraphLaunch", &replay, 1, 1);
}

static struct rlk_event op(const char *name, const char *module, const char *phase, int64_t step, int64_t iteration)
{
    struct rlk_event e = {.kind = RLK_EV_OP};
    e.u.op.contract = "c/portable/1";
    e.who = (struct rlk_identity){
        .step = step, .iteration = iteration, .phase = phase, .pass = "fwd", .module = module, .op = name};
    return e;
}

static void decode(struct made *m, int64_t step)
{
    const bool launches = m->fault != NO_LAUNCHES;
    for (int64_t i = 1; i <= 4; i++) {
        const uint64_t size = (m->fault == OTHER_SIZE || m->fault == SPLIT) && i == 1 ? 6 : (uint64_t)(5 - i), shape[1] = {size};
        struct rlk_tensor token = {.name = "token",
                                   .role = RLK_ROLE_OUT,
                                   .dtype = RLK_INT32,
                                   .composable = true,
                                   .ndim = 1,
                                   .shape = shape,
                                   .sums = {.positional = {7, size}, .elements = size}};
        struct rlk_event e = op("rlk.sample", "sampler", "rollout-decode", step, i);
        const struct rlk_launch eager = kernel(RLK_NO_NODE, RLK_NO_NODE);
        e.ntensors = 1;
        e.tensors = &token;
        if (launches && !(m->fault == EAGER && i == 2))
            graph(m, (int64_t)size, step == 0 && m->fault != NO_DEFINITION);
        if (m->fault == SPLIT && i == 1)
            graph(m, 7, step == 0);
        e.nlaunches = launches;
        e.launches = &eager;
        put(m, &e);
        m->sampling++;
    }
}

static void logps(struct made *m, int64_t step, bool rollout, uint32_t rank)
{
    static const char *const ids[2] = {"s0", "s1"};
    float x[5] = {-1.5f, -0.25f, 0.0f, -3.0f, -2.0f};
    uint64_t shape[1] = {5};
    struct rlk_sample_part part[2] = {{.id = ids[0], .start = 0, .extent = 2}, {.id = ids[1], .start = 2, .extent = 3}};
    struct rlk_tensor t = {.name = "logp",
                           .role = RLK_ROLE_OUT,
                           .dtype = RLK_FP32,
                           .ndim = 1,
                           .shape = shape,
                           .nsamples = 2,
                           .samples = part,
                           .has_payload = true};
    struct rlk_event e = op("rlk.grpo.logprobs", "logprobs", rollout ? "rollout-decode" : "actor_train", step, 0);
    if (step == 1 && !rollout && m->fault == LOGP)
        x[3] = nextafterf(x[3], 0.0f);
    if (step == 1 && !rollout && m->fault == LOGP_ZERO)
        x[2] = -0.0f;
    if (step == 1 && !rollout && m->fault == LOGP_REPLICA && rank == 1)
        x[0] = -1.0f;
    if (step == 1 && !rollout && m->fault == LOGP_MISSING) {
        t.nsamples = 1;
        shape[0] = 2;
    }
    const struct rlk_view view = {
        .dtype = RLK_FP32, .ndim = 1, .shape = shape, .storage = x, .storage_bytes = shape[0] * 4};
    assert_int_equal(rlk_digest_view(&t.sums, &t.composable, &view, NULL, NULL), RLK_OK);
    assert_int_equal(rlk_producer_payload(m->rec.producer, x, shape[0] * 4, &t.payload), RLK_OK);
    e.rank = rank;
    e.ntensors = 1;
    e.tensors = &t;
    put(m, &e);
}

static void train(struct made *m, int64_t step)
{
    const struct rlk_launch eager = kernel(RLK_NO_NODE, RLK_NO_NODE);
    for (int i = 0; i < 3; i++) {
        struct rlk_event e = op("rlk.attention.deterministic", "a", "actor_train", step, 0);
        e.nlaunches = m->fault != NO_LAUNCHES && m->fault != READBACK_LAUNCH;
        e.launches = &eager;
        put(m, &e);
        e.rank = 1; /* the ranks of one process share a call */
        put(m, &e);
        m->attention++;
    }
    if (m->fault == GRAPH_OUTSIDE)
        graph(m, 9, true);
    struct rlk_event e = op("rlk.other", "b", "actor_train", step, 0);
    put(m, &e);
}

static void readback(struct made *m, int64_t step, const char *module, uint64_t calls, bool odd)
{
    struct rlk_event e = {.kind = RLK_EV_READBACK};
    e.who = (struct rlk_identity){.step = step, .phase = "actor_train", .module = module, .op = "readback"};
    e.u.readback.case_id = "R/R";
    e.u.readback.implementation = odd && m->fault == READBACK_CASE ? "provider" : "contract";
    e.u.readback.contract = odd && m->fault == READBACK_CONTRACT ? "c/native/1" : "c/portable/1";
    e.u.readback.calls = calls + (odd && m->fault == READBACK && step == 1);
    put(m, &e);
}

static void metric(struct made *m, int64_t step, const char *name, double value)
{
    struct rlk_event e = {.kind = RLK_EV_METRIC};
    e.who = (struct rlk_identity){.step = step, .phase = "actor_train", .op = name};
    e.u.metric.value = value;
    put(m, &e);
}

static void metrics(struct made *m, int64_t step)
{
    const bool second = step == 1;
    metric(m, step, "train/loss", second && m->fault == METRIC ? 0.5 : 0.25);
    metric(m, step, "train/grad_norm",
           m->fault == GRAD_NORM_ZERO        ? 0.0
           : second && m->fault == GRAD_NORM ? nextafter(0.125, 1.0)
                                             : 0.125);
    metric(m, step, "train/lr-pg_0", 1e-6);
    if (m->fault == ODD_TEXT) {
        metric(m, step, "train/\xff\xfe\x1b[31m", 1.0);
        readback(m, step, "training.\xc3(", 1, false);
        readback(m, step, "\xff.\xff", 1, false);
        readback(m, step, ".", 1, false);
        readback(m, step, "training.", 1, false);
    }
    metric(m, step, "train/global_batch_size", 2);
    metric(m, step, "train/train_rollout_logprob_abs_diff", 0.0);
    metric(m, step, "train/train_current_rollout_logprob_mismatch_count", second && m->fault == SCALAR ? 0.5 : 0.0);
    metric(m, step, "train/train_current_rollout_logprob_max_abs_diff", 0.0);
    metric(m, step, "train/train_current_rollout_logprob_numel", second && m->fault == SCALAR_COUNT ? 3.0 : 2.5);
    const struct rlk_attr at = {"step", RLK_ATTR_INT, step, 0.0, ""};
    struct rlk_event note = {.kind = RLK_EV_NOTE, .nattrs = 1, .attrs = &at};
    note.who = (struct rlk_identity){.step = step + 1, .phase = "update_weights"};
    note.u.note.code = "perf/step_time";
    note.u.note.text = "0.5";
    put(m, &note);
}

static void requests(struct made *m, int64_t step)
{
    static const char *const ids[2] = {"s0", "s1"};
    for (int s = 0; s < 2; s++) {
        const int64_t token[4] = {5, 6, 7 + s, m->fault == TOKEN && step == 1 && s ? 9 : 8};
        struct rlk_event e = {.kind = RLK_EV_REQUEST};
        e.who = (struct rlk_identity){.step = step, .phase = "rollout-decode"};
        e.u.request.id = ids[s];
        e.u.request.logprob_kind = "processed";
        e.u.request.ntokens = 4;
        e.u.request.tokens = token;
        put(m, &e);
        const int64_t other[4] = {5, 6, 7 + s, m->fault == TOKEN_OTHERWISE && step == 1 ? 1 : 8};
        e.rank = 1;
        e.u.request.tokens = other;
        if (m->fault == TOKEN_TWICE || m->fault == TOKEN_OTHERWISE)
            put(m, &e);
    }
}

static void hashes(struct made *m, int version)
{
    char label[20], text[2][120];
    const bool last = version == 3;
    for (int p = 0; p < 2; p++) {
        const int odd = last && p && m->fault == WEIGHT, v = m->fault == SAME_WEIGHTS ? 1 : version;
        snprintf(text[p], sizeof text[p], "BF16 [%d, 8] %063d%d", last && p && m->fault == WEIGHT_SHAPE ? 2 : 4,
                 v * 2 + p, odd);
        if (last && p && m->fault == WEIGHT_BAD)
            text[p][20] = 'x';
    }
    const struct rlk_attr attr[2] = {{"a.weight", RLK_ATTR_STRING, 0, 0.0, text[0]},
                                     {"b.weight", RLK_ATTR_STRING, 0, 0.0, text[1]}};
    struct rlk_event e = {.kind = RLK_EV_NOTE, .nattrs = 2, .attrs = attr};
    snprintf(label, sizeof label, "weight_v%06d", version);
    e.who = (struct rlk_identity){.step = version - 1, .phase = "update_weights"};
    e.u.note.code = "weights.sha256";
    e.u.note.text = label;
    put(m, &e);
}

static void make(struct made *m, const char *name, enum fault fault)
{
    memset(m, 0, sizeof *m);
    m->fault = fault;
    rec_open(&m->rec, name, 2, "tp2cp1");
    rlk_writer_planes(m->rec.writer, fault == NO_LAUNCHES ? RLK_PLANE_TENSOR : RLK_PLANE_TENSOR | RLK_PLANE_LAUNCH);
    hashes(m, 1);
    for (int64_t step = 0; step < (fault == EXTRA_STEP ? 3 : 2); step++) {
        decode(m, step);
        if (fault != NO_LOGP)
            logps(m, step, true, 0);
        requests(m, step);
        train(m, step);
        for (uint32_t r = 0; r < 2 && fault != NO_LOGP; r++)
            logps(m, step, false, r);
        if (fault != NO_READBACKS) {
            readback(m, step, "training.attention", m->attention, true);
            readback(m, step, "rollout.sampling", m->sampling, false);
        }
        metrics(m, step);
        hashes(m, (int)step + 2);
    }
    rec_close(&m->rec, false);
}

/* The verdict of a row of B (or of the pair): 1, 0, -1 = null. */
static int verdict(const json_t *report, enum row row)
{
    static const char *const lists[][3] = {{"hashes", "all_parameter_hash_comparisons", "bitwise_equal"},
                                           {"norms", "gradient_norm_comparisons", "exactly_equal"},
                                           {"metrics", "metric_comparisons", "exactly_equal"}};
    const json_t *b = json_object_get(json_array_get(json_object_get(report, "runs"), 1), "validation");
    const json_t *v = json_object_get(json_object_get(b, row_name[row]), "passed");
    size_t i;
    json_t *one;
    if (row == R_TOKENS)
        v = json_object_get(report, "tokens_equal");
    if (row == R_ERRORS)
        return json_array_size(json_object_get(report, "errors")) == 0 &&
               json_array_size(json_object_get(b, "errors")) == 0;
    if (row >= R_HASHES && row <= R_METRICS) {
        json_t *list = json_object_get(report, lists[row - R_HASHES][1]);
        int all = 1;
        assert_true(json_array_size(list) >= 2);
        json_array_foreach(list, i, one) all &= json_is_true(json_object_get(one, lists[row - R_HASHES][2]));
        return all;
    }
    return json_is_true(v) ? 1 : json_is_false(v) ? 0 : -1;
}

static json_t *report_of(const struct made *a, const struct made *b)
{
    const struct rlk_report_options o = {.a = a->rec.dir, .b = b->rec.dir};
    struct rlk_detail detail = {{0}};
    json_t *report = NULL;
    const int rc = rlk_report(&report, &o, &detail);
    if (rc)
        print_message("%s\n", detail.text);
    assert_int_equal(rc, RLK_OK);
    return report;
}

#define NONE ROWS
static const struct {
    enum fault fault;
    enum row row, also; /* false, and nothing else */
    int value;          /* 0 false, -1 null */
} cases[] = {
    {CLEAN, NONE, NONE, 1},
    {NO_LAUNCHES, R_GRAPHS, NONE, -1},
    {EAGER, R_GRAPHS, NONE, 0},
    {OTHER_SIZE, R_GRAPHS, NONE, 0},
    {SPLIT, NONE, NONE, 1},
    {GRAPH_OUTSIDE, R_GRAPHS, NONE, 0},
    {NO_DEFINITION, R_GRAPHS, NONE, 0},
    {READBACK, R_READBACKS, NONE, 0},
    {READBACK_CONTRACT, R_READBACKS, NONE, 0},
    {READBACK_CASE, R_READBACKS, NONE, 0},
    {READBACK_LAUNCH, R_READBACKS, NONE, 0},
    {NO_READBACKS, R_READBACKS, NONE, -1},
    {LOGP, R_LOGP, NONE, 0},
    {LOGP_ZERO, R_LOGP, NONE, 0},
    {LOGP_REPLICA, R_LOGP, NONE, 0},
    {LOGP_MISSING, R_LOGP, R_SCALARS, 0}, /* the metrics still count its tokens */
    {NO_LOGP, R_LOGP, NONE, -1},
    {SCALAR, R_SCALARS, R_METRICS, 0},
    {SCALAR_COUNT, R_SCALARS, R_METRICS, 0},
    {TOKEN, R_TOKENS, NONE, 0},
    {TOKEN_TWICE, NONE, NONE, 1},
    {TOKEN_OTHERWISE, R_ERRORS, NONE, 0},
    {WEIGHT, R_HASHES, NONE, 0},
    {WEIGHT_SHAPE, R_HASHES, NONE, 0},
    {WEIGHT_BAD, R_HASHES, R_ERRORS, 0},
    {SAME_WEIGHTS, R_UPDATES, R_HASHES, 0},
    {GRAD_NORM, R_NORMS, R_METRICS, 0},
    {METRIC, R_METRICS, NONE, 0},
    {ODD_TEXT, R_METRICS, NONE, 0}, /* B has a metric that A has not */
    {EXTRA_STEP, R_ERRORS, R_TOKENS, 0},
};

static void test_rows(void **state)
{
    struct made a, b;
    (void)state;
    make(&a, "report-a", CLEAN);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        make(&b, "report-b", cases[c].fault);
        json_t *report = report_of(&a, &b);
        for (enum row r = 0; r < ROWS; r++) {
            const int want = r == cases[c].row ? cases[c].value : r == cases[c].also ? 0 : 1;
            if (verdict(report, r) != want)
                fail_msg("fault %d: %s is %d, not %d: %s", (int)cases[c].fault, row_name[r], verdict(report, r), want,
                         json_dumps(report, JSON_COMPACT));
        }
        const int open = cases[c].value < 0, bad = cases[c].row != NONE && !open;
        assert_int_equal(json_integer_value(json_object_get(report, "exit")), bad);
        assert_int_equal(json_is_true(json_object_get(report, "passed")), !bad);
        json_decref(report);
        rec_remove(&b.rec);
    }
    rec_remove(&a.rec);
}

/* Both sides alike: what each says of itself is judged all the same. */
static void test_alone(void **state)
{
    struct made a, b;
    (void)state;
    make(&a, "report-a", GRAD_NORM_ZERO);
    make(&b, "report-b", GRAD_NORM_ZERO);
    json_t *report = report_of(&a, &b);
    for (enum row r = 0; r < ROWS; r++)
        assert_int_equal(verdict(report, r), r != R_UPDATES);
    assert_int_equal(json_integer_value(json_object_get(report, "exit")), 1);
    json_decref(report);
    rec_remove(&a.rec);
    rec_remove(&b.rec);
}

static void test_figures(void **state)
{
    struct made a, b;
    (void)state;
    make(&a, "report-a", LOGP);
    make(&b, "report-b", CLEAN);
    json_t *report = report_of(&a, &b), *run = json_array_get(json_object_get(report, "runs"), 0);
    const json_t *row = json_object_get(json_object_get(run, "validation"), "train_rollout_logprob");
    const double d = (double)nextafterf(-3.0f, 0.0f) + 3.0;
    assert_int_equal(json_integer_value(json_object_get(row, "element_count")), 10);
    assert_int_equal(json_integer_value(json_object_get(row, "sample_count")), 4);
    assert_int_equal(json_integer_value(json_object_get(row, "mismatch_count")), 1);
    assert_true(json_real_value(json_object_get(row, "max_abs_diff")) == d);
    assert_true(json_real_value(json_object_get(row, "mismatch_kl")) == -d / 10.0);
    assert_true(json_real_value(json_object_get(row, "train_rollout_logprob_abs_diff")) == d / 10.0);
    assert_int_equal(json_array_size(json_object_get(row, "artifacts")), 4);
    /* SHA-256 of 4, 5, 6, 7, 8 and 4, 5, 6, 8, 8 as 64-bit words, and a time by its attribute. */
    const json_t *tokens = json_object_get(json_object_get(run, "tokens"), "0");
    assert_string_equal(json_string_value(json_object_get(tokens, "sha256")), TOKENS_SHA256);
    assert_true(json_real_value(json_object_get(json_object_get(json_object_get(run, "performance"), "1"),
                                                "perf/step_time")) == 0.5);
    json_decref(report);
    rec_remove(&a.rec);
    rec_remove(&b.rec);
}

static void test_nothing(void **state)
{
    struct rec a, b;
    (void)state;
    rec_open(&a, "report-a", 1, NULL);
    rec_close(&a, false);
    rec_open(&b, "report-b", 1, NULL);
    rec_close(&b, true);
    const struct made x = {.rec = a}, y = {.rec = b};
    json_t *report = report_of(&x, &y);
    assert_int_equal(json_integer_value(json_object_get(report, "exit")), 3);
    assert_false(json_is_true(json_object_get(report, "passed")));
    json_decref(report);
    rec_remove(&a);
    rec_remove(&b);
}

/* Memory that runs out at the n-th allocation, for every n: RLK_ENOMEM and nothing else, or the very same report. */
static void test_every_allocation(void **state)
{
    struct made a, b;
    (void)state;
    json_object_seed(1);
    make(&a, "report-a", CLEAN);
    make(&b, "report-b", LOGP);
    const struct rlk_report_options o = {.a = a.rec.dir, .b = b.rec.dir};
    struct rlk_detail detail;
    json_t *whole = report_of(&a, &b);
    long n = 0;
    for (bool all = false; !all; n++) {
        json_t *report = NULL;
        refuse_after(n);
        int rc = rlk_report(&report, &o, &detail);
        all = !refuse_met();
        refuse_after(-1);
        if (rc == RLK_ECORRUPT && strstr(detail.text, "manifest.json"))
            rc = RLK_ENOMEM; /* the JSON reader's word for it, below us */
        if ((rc != RLK_OK && rc != RLK_ENOMEM) || (rc == RLK_OK && !json_equal(report, whole)))
            fail_msg("allocation %ld: %d %s", n, rc, detail.text);
        assert_true(rc == RLK_OK || !report);
        json_decref(report);
    }
    assert_true(n > 500);
    json_decref(whole);
    rec_remove(&a.rec);
    rec_remove(&b.rec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_alone),
                                       cmocka_unit_test(test_figures), cmocka_unit_test(test_nothing),
                                       cmocka_unit_test(test_every_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
