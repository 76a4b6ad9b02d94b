/* train.c - a small multi-threaded training program in plain C, told to the recorder through the tap.
 *
 * A two-layer MLP with dropout on synthetic data: cross-entropy, gradient accumulation over micro-batches, SGD with
 * momentum. Workers split the rows of every product. The weight gradients are sums over the batch: each worker makes
 * the partial sum of its rows, and the partials are added up in worker order, so a run repeats bit for bit.
 *
 *   train [--steps N] [--threads N] [--seed N] [--micro-batches N] [--racy-sum]
 *
 * --racy-sum (or RLK_TRAIN_RACY=1): the partials of fc1's weight gradient are added in the order in which the workers
 * arrive - the one operator that then differs from run to run, as an atomicAdd reduction does on a GPU.
 */
#include "tests/workloads/tensor.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 64, IN = 48, HIDDEN = 96, CLASSES = 10, MAX_THREADS = 16 };

struct layer {
    const char *path;
    struct tensor w, g, sum, m; /* weights [out, in], gradient, one micro-batch's gradient, momentum */
    struct tensor partial[MAX_THREADS];
};

static struct {
    int steps, threads, micro_batches;
    uint64_t seed;
    bool racy;
} opt = {.steps = 4, .threads = 4, .micro_batches = 2, .seed = 1};

static struct layer fc1 = {.path = "model.fc1"}, fc2 = {.path = "model.fc2"};
static struct tensor x, hidden, mask, dropped, logits, dlogits, dhidden;
static int labels[ROWS];
static struct rlk_tap_ctx *ctx; /* of the main thread */

/* ---- the generator: SplitMix64 on a counter, so a value depends on (seed, offset) alone */
static uint64_t rng_offset;

static float uniform(uint64_t counter)
{
    uint64_t z = opt.seed * UINT64_C(0x9e3779b97f4a7c15) + (counter + 1) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (float)((z ^ z >> 31) >> 40) * 0x1p-24f;
}

static void fill(struct tensor *t, float scale)
{
    for (size_t i = 0; i < tensor_count(t); i++)
        t->data[i] = (uniform(rng_offset++) - 0.5f) * scale;
}

/* ---- workers: `job` runs on every worker over its share of the rows */
static pthread_barrier_t go, done;
static void (*job)(int worker, size_t first, size_t last);
static struct layer *job_layer;
static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static int turn;

static void *worker(void *arg)
{
    int me = (int)(intptr_t)arg;
    size_t first = (size_t)(ROWS * me / opt.threads), last = (size_t)(ROWS * (me + 1) / opt.threads);
    for (;;) {
        pthread_barrier_wait(&go);
        if (!job)
            return NULL;
        job(me, first, last);
        pthread_barrier_wait(&done);
    }
}

static void parallel(void (*what)(int, size_t, size_t), struct layer *layer)
{
    job = what;
    job_layer = layer;
    pthread_barrier_wait(&go);
    if (what)
        pthread_barrier_wait(&done);
}

/* out[rows, n] = in[rows, k] * w[n, k]^T, by rows */
static const struct tensor *mm_in, *mm_w;
static struct tensor *mm_out;

static void mm_rows(int me, size_t first, size_t last)
{
    (void)me;
    size_t n = mm_w->shape[0], k = mm_w->shape[1];
    for (size_t r = first; r < last; r++)
        for (size_t o = 0; o < n; o++) {
            float sum = 0;
            for (size_t i = 0; i < k; i++)
                sum += mm_in->data[r * k + i] * mm_w->data[o * k + i];
            mm_out->data[r * n + o] = sum;
        }
}

/* Below level op nobody sees the operators; the boundaries are shown instead (docs/tap.md, "Levels"). */
static bool below_op(void)
{
    return ctx && rlk_tap()->level < RLK_TAP_OP;
}

static void show(const char *boundary, const struct tensor *in, const struct tensor *const *out, int nout)
{
    struct rlk_tap_op *op = below_op() ? rlk_tap()->op_begin(ctx, boundary, NULL) : NULL;
    if (op && in)
        tensor_in(op, in);
    for (int i = 0; op && i < nout; i++) {
        struct rlk_tap_tensor shown = tensor_shown(out[i]);
        rlk_tap()->op_out(op, &shown);
    }
    tensor_op_end(op);
}

static void linear(struct layer *layer, const struct tensor *in, struct tensor *out)
{
    RLK_TAP(module_begin, ctx, layer->path);
    struct rlk_tap_op *op = tensor_op(ctx, "linear");
    tensor_in(op, in);
    tensor_in(op, &layer->w);
    mm_in = in;
    mm_w = &layer->w;
    mm_out = out;
    parallel(mm_rows, layer);
    tensor_out(op, out);
    tensor_op_end(op);
    show(RLK_TAP_OP_MODULE, in, (const struct tensor *const[]){out}, 1);
    RLK_TAP(module_end, ctx);
}

/* ---- forward */
static void dropout(void)
{
    struct rlk_event draw = {.kind = RLK_EV_RNG};
    draw.u.rng.generator = "splitmix";
    draw.u.rng.seed = opt.seed;
    draw.u.rng.offset = rng_offset;
    RLK_TAP(module_begin, ctx, "model.dropout");
    RLK_TAP(event, ctx, &draw);
    struct rlk_tap_op *op = tensor_op(ctx, "bernoulli_");
    for (size_t i = 0; i < tensor_count(&mask); i++)
        mask.data[i] = uniform(rng_offset++) < 0.1f ? 0.0f : 1.0f / 0.9f;
    tensor_out(op, &mask);
    tensor_op_end(op);
    op = tensor_op(ctx, "relu_mul");
    tensor_in(op, &hidden);
    tensor_in(op, &mask);
    for (size_t i = 0; i < tensor_count(&hidden); i++)
        dropped.data[i] = (hidden.data[i] > 0 ? hidden.data[i] : 0) * mask.data[i];
    tensor_out(op, &dropped);
    tensor_op_end(op);
    RLK_TAP(module_end, ctx);
}

/* Mean cross-entropy; dlogits is its gradient. */
static float cross_entropy(void)
{
    float loss = 0;
    RLK_TAP(module_begin, ctx, "loss");
    struct rlk_tap_op *op = tensor_op(ctx, "cross_entropy");
    tensor_in(op, &logits);
    for (size_t r = 0; r < ROWS; r++) {
        const float *l = &logits.data[r * CLASSES];
        float top = l[0], sum = 0;
        for (size_t c = 1; c < CLASSES; c++)
            top = l[c] > top ? l[c] : top;
        for (size_t c = 0; c < CLASSES; c++)
            sum += expf(l[c] - top);
        loss += logf(sum) + top - l[labels[r]];
        for (size_t c = 0; c < CLASSES; c++)
            dlogits.data[r * CLASSES + c] = (expf(l[c] - top) / sum - (labels[r] == (int)c)) / ROWS;
    }
    tensor_out(op, &dlogits);
    tensor_op_end(op);
    RLK_TAP(module_end, ctx);
    return loss / ROWS;
}

/* ---- backward */
static const struct tensor *wgrad_in, *wgrad_dout;

static void wgrad_partial(int me, size_t first, size_t last)
{
    /* Every worker speaks for itself: its own context, an operator name of its own. */
    struct rlk_tap_ctx *mine = rlk_tap_context(RLK_TAP_OWN_RANK);
    char name[32];
    snprintf(name, sizeof name, "wgrad.partial.%d", me);
    RLK_TAP(module_at, mine, job_layer->path, "bwd", 0);
    struct rlk_tap_op *op = tensor_op(mine, name);
    tensor_in(op, wgrad_in);
    tensor_in(op, wgrad_dout);
    struct tensor *p = &job_layer->partial[me];
    size_t n = p->shape[0], k = p->shape[1];
    memset(p->data, 0, n * k * sizeof(float));
    for (size_t r = first; r < last; r++)
        for (size_t o = 0; o < n; o++)
            for (size_t i = 0; i < k; i++)
                p->data[o * k + i] += wgrad_dout->data[r * n + o] * wgrad_in->data[r * k + i];
    tensor_out(op, p);
    tensor_op_end(op);
}

static void wgrad_add(int me, size_t first, size_t last)
{
    (void)first;
    (void)last;
    bool racy = opt.racy && job_layer == &fc1;
    if (racy) { /* what a loaded machine does to threads, made certain */
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        unsigned jitter = (unsigned)now.tv_nsec * 2654435761u ^ (unsigned)getpid() * 40503u ^ (unsigned)me * 97u;
        usleep(jitter % 3000);
    }
    pthread_mutex_lock(&turn_lock);
    while (!racy && turn != me)
        pthread_cond_wait(&turn_changed, &turn_lock);
    for (size_t i = 0; i < tensor_count(&job_layer->sum); i++)
        job_layer->sum.data[i] += job_layer->partial[me].data[i];
    turn = (turn + 1) % opt.threads;
    pthread_cond_broadcast(&turn_changed);
    pthread_mutex_unlock(&turn_lock);
}

static void accumulate(struct layer *layer)
{
    struct rlk_tap_op *op = tensor_op(ctx, "grad.accumulate");
    tensor_in(op, &layer->g);
    tensor_in(op, &layer->sum);
    for (size_t i = 0; i < tensor_count(&layer->g); i++)
        layer->g.data[i] += layer->sum.data[i];
    tensor_out(op, &layer->g);
    tensor_op_end(op);
}

static void wgrad(struct layer *layer, const struct tensor *in, const struct tensor *dout)
{
    wgrad_in = in;
    wgrad_dout = dout;
    parallel(wgrad_partial, layer);
    RLK_TAP(module_at, ctx, layer->path, "bwd", 0);
    struct rlk_tap_op *op = tensor_op(ctx, "wgrad.sum");
    for (int i = 0; i < opt.threads; i++)
        tensor_in(op, &layer->partial[i]);
    memset(layer->sum.data, 0, tensor_count(&layer->sum) * sizeof(float));
    turn = 0;
    parallel(wgrad_add, layer);
    tensor_out(op, &layer->sum);
    tensor_op_end(op);
    accumulate(layer);
    RLK_TAP(module_at, ctx, NULL, NULL, 0);
}

static void dgrad(void)
{
    RLK_TAP(module_at, ctx, "model.fc2", "bwd", 0);
    struct rlk_tap_op *op = tensor_op(ctx, "dgrad");
    tensor_in(op, &dlogits);
    tensor_in(op, &fc2.w);
    tensor_in(op, &hidden);
    tensor_in(op, &mask);
    for (size_t r = 0; r < ROWS; r++)
        for (size_t i = 0; i < HIDDEN; i++) {
            float sum = 0;
            for (size_t c = 0; c < CLASSES; c++)
                sum += dlogits.data[r * CLASSES + c] * fc2.w.data[c * HIDDEN + i];
            size_t at = r * HIDDEN + i;
            dhidden.data[at] = hidden.data[at] > 0 ? sum * mask.data[at] : 0;
        }
    tensor_out(op, &dhidden);
    tensor_op_end(op);
    RLK_TAP(module_at, ctx, NULL, NULL, 0);
}

/* ---- optimizer */
static void sgd(struct layer *layer)
{
    RLK_TAP(module_at, ctx, layer->path, "opt", 0);
    struct rlk_tap_op *op = tensor_op(ctx, "sgd_");
    tensor_in(op, &layer->w);
    tensor_in(op, &layer->g);
    tensor_in(op, &layer->m);
    for (size_t i = 0; i < tensor_count(&layer->w); i++) {
        layer->m.data[i] = 0.9f * layer->m.data[i] + layer->g.data[i];
        layer->w.data[i] -= 0.2f * layer->m.data[i];
    }
    tensor_out(op, &layer->w);
    tensor_out(op, &layer->m);
    tensor_op_end(op);
    op = tensor_op(ctx, "zero_");
    memset(layer->g.data, 0, tensor_count(&layer->g) * sizeof(float));
    tensor_out(op, &layer->g);
    tensor_op_end(op);
    RLK_TAP(module_at, ctx, NULL, NULL, 0);
}

static double grad_norm(void)
{
    double sum = 0;
    const struct tensor *g[] = {&fc1.g, &fc2.g};
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < tensor_count(g[l]); i++)
            sum += (double)g[l]->data[i] * (double)g[l]->data[i];
    return sqrt(sum);
}

static void publish_weights(int step)
{
    char version[32];
    snprintf(version, sizeof version, "v%d", step + 1);
    struct rlk_tap_op *op = ctx ? rlk_tap()->weights_begin(ctx, version, "trainer") : NULL;
    struct tensor *w[] = {&fc1.w, &fc2.w};
    for (int i = 0; op && i < 2; i++) {
        struct rlk_tap_tensor shown = tensor_shown(w[i]);
        shown.label = version;
        rlk_tap()->op_out(op, &shown);
    }
    tensor_op_end(op);
}

static float micro_batch(int step, int work)
{
    uint64_t data = (uint64_t)(step * opt.micro_batches + work) * ROWS * IN + (UINT64_C(1) << 40);
    for (size_t i = 0; i < tensor_count(&x); i++)
        x.data[i] = uniform(data + i) - 0.5f;
    for (size_t r = 0; r < ROWS; r++) { /* learnable: the largest of the first features */
        labels[r] = 0;
        for (int c = 1; c < CLASSES; c++)
            if (x.data[r * IN + (size_t)c] > x.data[r * IN + (size_t)labels[r]])
                labels[r] = c;
    }
    x.version++; /* written by nothing that is recorded: a source */
    RLK_TAP(work, ctx, work, 0);
    RLK_TAP(pass, ctx, "fwd");
    linear(&fc1, &x, &hidden);
    dropout();
    linear(&fc2, &dropped, &logits);
    float loss = cross_entropy();
    RLK_TAP(pass, ctx, "bwd");
    wgrad(&fc2, &dropped, &dlogits);
    dgrad();
    wgrad(&fc1, &x, &dhidden);
    return loss;
}

static void train_step(int step)
{
    RLK_TAP(step, ctx, step);
    RLK_TAP(phase, ctx, "actor_train");
    float loss = 0;
    for (int work = 0; work < opt.micro_batches; work++)
        loss += micro_batch(step, work) / (float)opt.micro_batches;
    double norm = grad_norm();
    RLK_TAP(work, ctx, 0, 0);
    RLK_TAP(pass, ctx, "");
    RLK_TAP(metric, ctx, "loss", (double)loss);
    RLK_TAP(metric, ctx, "grad_norm", norm);
    show(RLK_TAP_OP_STEP ".grads", NULL, (const struct tensor *const[]){&fc1.g, &fc2.g}, 2);
    RLK_TAP(pass, ctx, "opt");
    sgd(&fc1);
    sgd(&fc2);
    RLK_TAP(phase, ctx, "update_weights");
    publish_weights(step);
    printf("step %d loss %.9g grad_norm %.17g\n", step, (double)loss, norm);
    fflush(stdout);
}

/* ---- set-up */
static void layer_new(struct layer *layer, uint64_t out, uint64_t in, const char *weight)
{
    layer->w = tensor_new(weight, out, in);
    layer->g = tensor_new("grad", out, in);
    layer->sum = tensor_new("grad.sum", out, in);
    layer->m = tensor_new("momentum", out, in);
    for (int i = 0; i < opt.threads; i++)
        layer->partial[i] = tensor_new("partial", out, in);
    fill(&layer->w, 0.5f);
    layer->w.version++;
    struct rlk_tap_tensor shown = tensor_shown(&layer->w);
    RLK_TAP(leaf, ctx, &shown, NULL, NULL, "splitmix", opt.seed);
}

static void layer_free(struct layer *layer)
{
    struct tensor *all[] = {&layer->w, &layer->g, &layer->sum, &layer->m};
    for (int i = 0; i < 4; i++)
        tensor_free(all[i]);
    for (int i = 0; i < opt.threads; i++)
        tensor_free(&layer->partial[i]);
}

static bool option(int *i, int argc, char **argv, const char *name, long long low, long long high, long long *out)
{
    if (strcmp(argv[*i], name) != 0 || *i + 1 >= argc)
        return false;
    char *end = NULL;
    *out = strtoll(argv[++*i], &end, 10);
    if (end == argv[*i] || *end || *out < low || *out > high) {
        fprintf(stderr, "train: %s takes a number from %lld to %lld\n", name, low, high);
        exit(2);
    }
    return true;
}

static void parse(int argc, char **argv)
{
    const char *racy = getenv("RLK_TRAIN_RACY");
    long long v;
    opt.racy = racy && !strcmp(racy, "1");
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--racy-sum")) {
            opt.racy = true;
        } else if (option(&i, argc, argv, "--steps", 0, 1000000, &v)) {
            opt.steps = (int)v;
        } else if (option(&i, argc, argv, "--threads", 1, MAX_THREADS, &v)) {
            opt.threads = (int)v;
        } else if (option(&i, argc, argv, "--micro-batches", 1, 1000, &v)) {
            opt.micro_batches = (int)v;
        } else if (option(&i, argc, argv, "--seed", 0, 4294967295ll, &v)) {
            opt.seed = (uint64_t)v;
        } else {
            fprintf(stderr, "usage: train [--steps N] [--threads N] [--seed N] [--micro-batches N] [--racy-sum]\n");
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    pthread_t threads[MAX_THREADS];
    struct tensor *all[] = {&x, &hidden, &mask, &dropped, &logits, &dlogits, &dhidden};
    parse(argc, argv);
    ctx = rlk_tap_context(RLK_TAP_OWN_RANK);
    x = tensor_new("x", ROWS, IN);
    hidden = tensor_new("hidden", ROWS, HIDDEN);
    mask = tensor_new("mask", ROWS, HIDDEN);
    dropped = tensor_new("dropped", ROWS, HIDDEN);
    logits = tensor_new("logits", ROWS, CLASSES);
    dlogits = tensor_new("dlogits", ROWS, CLASSES);
    dhidden = tensor_new("dhidden", ROWS, HIDDEN);
    RLK_TAP(phase, ctx, "actor_train");
    layer_new(&fc1, HIDDEN, IN, "model.fc1.weight");
    layer_new(&fc2, CLASSES, HIDDEN, "model.fc2.weight");
    pthread_barrier_init(&go, NULL, (unsigned)opt.threads + 1);
    pthread_barrier_init(&done, NULL, (unsigned)opt.threads + 1);
    for (int i = 0; i < opt.threads; i++)
        if (pthread_create(&threads[i], NULL, worker, (void *)(intptr_t)i))
            return 1;
    for (int step = 0; step < opt.steps; step++)
        train_step(step);
    parallel(NULL, NULL);
    for (int i = 0; i < opt.threads; i++)
        pthread_join(threads[i], NULL);
    layer_free(&fc1);
    layer_free(&fc2);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
    return 0;
}
