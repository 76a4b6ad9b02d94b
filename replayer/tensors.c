/* tensors.c - memory of the ranks: the frame of activations, parameters cut and put together. */
#include "replayer/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK ((size_t)32 << 20)

static void *frame_bytes(struct rlk_train *run, size_t bytes)
{
    struct rlki_frame *f = &run->frame;
    bytes = (bytes + 255u) & ~(size_t)255u;
    while (f->at < f->chunks && f->chunk[f->at].size - f->chunk[f->at].used < bytes) {
        f->at++;
        if (f->at < f->chunks)
            f->chunk[f->at].used = 0;
    }
    if (f->at == f->chunks) {
        struct rlki_chunk *more = realloc(f->chunk, (size_t)(f->chunks + 1) * sizeof *more);
        const size_t size = bytes > CHUNK ? bytes : CHUNK;
        if (!more)
            return NULL;
        f->chunk = more;
        more[f->chunks] = (struct rlki_chunk){rlk_exec_alloc(&run->x, size), size, 0};
        if (!more[f->chunks].base)
            return NULL;
        f->chunks++;
    }
    void *p = f->chunk[f->at].base + f->chunk[f->at].used;
    f->chunk[f->at].used += bytes;
    return p;
}

int rlki_frame_take(struct rlk_train *run, const struct rlk_world *w, const struct rlk_batch *b, int64_t width,
                    enum rlk_ktype type, struct rlki_ptrs *out)
{
    for (int i = 0; i < w->held; i++) {
        const int64_t local = b ? rlk_batch_local(b, rlk_world_cp(w, i)) : 1;
        const int64_t n = (b && run->frame.rows > local ? run->frame.rows : local) * width;
        /* Never NULL: an empty part is a buffer too, whose producer the recorder can know. */
        char *p = frame_bytes(run, (size_t)(n ? n : 1) * rlk_ktype_bytes(type));
        if (!p)
            return rlki_fail_memory(run, "activations");
        out->p[i] = p + (b ? (size_t)(run->frame.first * width) * rlk_ktype_bytes(type) : 0);
        rlki_rec_fresh_device(run, out->p[i]);
    }
    return 0;
}

struct rlki_mark rlki_frame_mark(const struct rlk_train *run)
{
    const struct rlki_frame *f = &run->frame;
    return (struct rlki_mark){f->at, f->at < f->chunks ? f->chunk[f->at].used : 0};
}

void rlki_frame_back(struct rlk_train *run, struct rlki_mark mark)
{
    struct rlki_frame *f = &run->frame;
    f->at = mark.at;
    if (f->at < f->chunks)
        f->chunk[f->at].used = mark.used;
}

void rlki_frame_release(struct rlk_train *run)
{
    for (int i = 0; i < run->frame.chunks; i++)
        rlk_exec_free(&run->x, run->frame.chunk[i].base);
    free(run->frame.chunk);
    run->frame = (struct rlki_frame){0};
}

struct part { /* what a rank holds of a parameter */
    int64_t r0, rows, c0, cols;
};

static struct part part_of(const struct rlk_world *w, const struct rlki_weight *p, int i)
{
    struct part a = {0, p->rows, 0, p->cols};
    const int t = rlk_world_tp(w, i);
    if (p->cut == RLK_CUT_OUT) {
        const struct rlk_span s = p->vocab ? rlk_vocab_span(&w->lat, t, p->rows) : rlk_slab_span(&w->lat, t, p->rows);
        a.r0 = (int64_t)s.start;
        a.rows = (int64_t)s.extent;
    } else if (p->cut == RLK_CUT_IN) {
        const struct rlk_span s = rlk_slab_span(&w->lat, t, p->cols);
        a.c0 = (int64_t)s.start;
        a.cols = (int64_t)s.extent;
    }
    return a;
}

int64_t rlki_local_elements(const struct rlk_world *w, const struct rlki_weight *p, int i)
{
    const struct part a = part_of(w, p, i);
    return a.rows * a.cols;
}

/* What the kernel could give now; 0 = it does not say. */
static double available(void)
{
    double kib = 0.0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lf kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024.0;
}

int rlki_memory_fits(struct rlk_train *run)
{
    /* Of each element of the trainer: weight and reference in bf16, master, two moments and gradient in fp32. */
    const double train = 2 * 2 + 4 * 4, roll = 2;
    const double have = run->x.device == RLK_DEVICE_CPU ? available() : 0.0;
    double need = 0.0;
    for (int p = 0; p < run->params; p++) {
        for (int i = 0; i < run->train.held; i++)
            need += train * (double)rlki_local_elements(&run->train, &run->param[p], i);
        for (int i = 0; i < run->roll.held; i++)
            need += roll * (double)rlki_local_elements(&run->roll, &run->param[p], i);
    }
    if (have <= 0.0 || need < have)
        return 0;
    return rlk_kfail(
        &run->x.detail, RLK_K_ENOMEM,
        "%s at tp%dcp%d needs %.1f GB for weights, optimizer and gradients, activations apart, and %.1f GB "
        "are available: take a smaller model%s",
        run->opt.model.name, run->opt.tp, run->opt.cp, need / 1e9, have / 1e9,
        run->opt.cp > 1 ? ", or less cp: each cp rank holds a copy" : "");
}

int rlki_param_alloc(struct rlk_train *run, const struct rlk_world *w, const struct rlki_weight *p, enum rlk_ktype type,
                     struct rlki_ptrs *out)
{
    for (int i = 0; i < w->held; i++) {
        const size_t bytes = (size_t)rlki_local_elements(w, p, i) * rlk_ktype_bytes(type);
        out->p[i] = rlk_exec_alloc(&run->x, bytes ? bytes : 1);
        if (!out->p[i])
            return rlki_fail_memory(run, p->name);
        rlki_rec_fresh_device(run, out->p[i]);
        const int rc = rlk_exec_zero(&run->x, out->p[i], bytes);
        rlki_rec_written(run, out->p[i]);
        if (rc)
            return rc;
    }
    return 0;
}

/* Rows of a part <-> a dense block. */
static void copy_part(const struct part *a, const struct rlki_weight *p, size_t size, char *logical, char *block,
                      bool to_block)
{
    for (int64_t r = 0; r < a->rows; r++) {
        char *l = logical + (size_t)((a->r0 + r) * p->cols + a->c0) * size;
        char *b = block + (size_t)(r * a->cols) * size;
        memcpy(to_block ? b : l, to_block ? l : b, (size_t)a->cols * size);
    }
}

int rlki_param_cut(struct rlk_train *run, const struct rlk_world *w, const struct rlki_weight *p, enum rlk_ktype type,
                   const void *logical, const struct rlki_ptrs *to, int skip)
{
    const size_t size = rlk_ktype_bytes(type);
    char *block = malloc((size_t)(p->rows * p->cols) * size + 1);
    int rc = block ? 0 : rlki_fail_memory(run, p->name);
    for (int i = 0; !rc && i < w->held; i++) {
        const struct part a = part_of(w, p, i);
        if (a.rows * a.cols == 0 || w->rank[i] == skip)
            continue;
        copy_part(&a, p, size, (char *)(uintptr_t)logical, block, true);
        rc = rlk_exec_upload(&run->x, to->p[i], block, (size_t)(a.rows * a.cols) * size);
        if (!rc)
            rc = rlk_exec_sync(&run->x);
        rlki_rec_written(run, to->p[i]);
    }
    free(block);
    return rc;
}

/* On the device, from the trainer's ranks to the rollout's: what of part b lies in part a. */
static int move_part(struct rlk_train *run, const struct part *a, void *to, const struct part *b, const void *from,
                     size_t size)
{
    const int64_t r0 = a->r0 > b->r0 ? a->r0 : b->r0, c0 = a->c0 > b->c0 ? a->c0 : b->c0;
    const int64_t r1 = a->r0 + a->rows < b->r0 + b->rows ? a->r0 + a->rows : b->r0 + b->rows;
    const int64_t c1 = a->c0 + a->cols < b->c0 + b->cols ? a->c0 + a->cols : b->c0 + b->cols;
    if (r0 >= r1 || c0 >= c1)
        return 0;
    return rlk_exec_rows(&run->x, (char *)to + (size_t)((r0 - a->r0) * a->cols + c0 - a->c0) * size,
                         (size_t)a->cols * size,
                         (const char *)from + (size_t)((r0 - b->r0) * b->cols + c0 - b->c0) * size,
                         (size_t)b->cols * size, r1 - r0, (size_t)(c1 - c0) * size);
}

int rlki_param_move(struct rlk_train *run, const struct rlki_weight *p, enum rlk_ktype type,
                    const struct rlki_ptrs *from, const struct rlki_ptrs *to, uint32_t *differ)
{
    const struct rlk_world *t = &run->train, *w = &run->roll;
    const size_t size = rlk_ktype_bytes(type);
    const int owners = p->cut == RLK_CUT_NONE ? 1 : t->lat.tp; /* the first ranks; the others are replicas of them */
    int rc = 0;
    for (int j = owners; !rc && j < t->held; j++) {
        const struct part b = part_of(t, p, j);
        rc = rlk_exec_differ(&run->x, from->p[j % owners], from->p[j], (size_t)(b.rows * b.cols) * size, differ);
    }
    for (int i = 0; !rc && i < w->held; i++) {
        const struct part a = part_of(w, p, i);
        for (int j = 0; !rc && j < owners; j++) {
            const struct part b = part_of(t, p, j);
            rc = move_part(run, &a, to->p[i], &b, from->p[j], size);
        }
        rlki_rec_written(run, to->p[i]);
    }
    return rc;
}

int rlki_param_join(struct rlk_train *run, const struct rlk_world *w, const struct rlki_weight *p, enum rlk_ktype type,
                    const struct rlki_ptrs *from, void *logical)
{
    const size_t size = rlk_ktype_bytes(type);
    const struct part first = part_of(w, p, 0);
    if (w->held == 1 && first.rows == p->rows && first.cols == p->cols)
        return rlk_exec_download(&run->x, logical, from->p[0], (size_t)(p->rows * p->cols) * size);
    char *block = malloc((size_t)(p->rows * p->cols) * size + 1);
    char *seen = calloc(1, (size_t)(p->rows * p->cols) * size + 1);
    int rc = block && seen ? 0 : rlki_fail_memory(run, p->name);
    for (int i = 0; !rc && i < w->held; i++) {
        const struct part a = part_of(w, p, i);
        if (a.rows * a.cols == 0)
            continue;
        if ((rc = rlk_exec_download(&run->x, block, from->p[i], (size_t)(a.rows * a.cols) * size)))
            break;
        for (int64_t r = 0; r < a.rows; r++) {
            const size_t at = (size_t)((a.r0 + r) * p->cols + a.c0) * size, n = (size_t)a.cols * size;
            if (seen[at] && memcmp((char *)logical + at, block + (size_t)(r * a.cols) * size, n) != 0)
                rc = rlk_kfail(&run->x.detail, RLK_K_ESTATE, "rank %d holds other bits of %s than its peers",
                               w->rank[i], p->name);
            memcpy((char *)logical + at, block + (size_t)(r * a.cols) * size, n);
            memset(seen + at, 1, n);
        }
    }
    free(seen);
    free(block);
    return rc;
}

int rlki_room(struct rlk_train *run, int (*work)(void *arg), void *arg)
{
    const struct rlki_mark mark = rlki_frame_mark(run);
    rlk_exec_measure(&run->x, true);
    int rc = work(arg);
    /* Measuring does not bind: it notes what the contract takes. A provider works on whole shards at once, up to
     * RLK_SLABS times as wide. */
    const bool provider = run->opt.modes > 0 || run->opt.plant;
    const size_t bytes = rlk_exec_peak(&run->x) * (provider ? RLK_SLABS : 1);
    rlk_exec_measure(&run->x, false);
    rlki_frame_back(run, mark);
    if (!rc && bytes > run->x.workspace_bytes) {
        rlk_exec_free(&run->x, run->workspace);
        run->x.workspace = NULL;
        run->x.workspace_bytes = 0;
        run->workspace = rlk_exec_alloc(&run->x, bytes);
        if (!run->workspace)
            return rlki_fail_memory(run, "the workspace");
        run->x.workspace = run->workspace;
        run->x.workspace_bytes = bytes;
    }
    return rc;
}
