/* alone.c - operator replay: after an instruction, what it wrote is replaced by the bytes that were recorded, so that
 * each operator starts from recorded inputs and a difference stays with the operator that makes it.
 *
 * A value is recorded where every rank's bytes were kept; what depends on one that is not is executed, because the
 * shapes of later values follow from it, but is not told.
 */
#include "replayer/machine.h"

#include <stdlib.h>
#include <string.h>

bool rlki_alone_inputs(const struct rlki_machine *m, const struct rlki_instr *in)
{
    const uint32_t n = in->e.kind == RLK_EV_WEIGHTS ? in->outputs : in->inputs;
    if (in->e.kind != RLK_EV_OP && in->e.kind != RLK_EV_LEAF && in->e.kind != RLK_EV_WEIGHTS)
        return false; /* follows from many operators */
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t v = m->program->input[in->first_input + k];
        if (v == RLKI_NO_VALUE || m->value[v].computed)
            return false;
    }
    return true;
}

/* Logical indices of one dimension of a part, malloc'ed. */
static uint64_t *indices(const struct rlk_place *p, uint32_t d, uint32_t *run, uint64_t *n)
{
    uint64_t total = p->nruns[d] == RLK_WHOLE ? p->shape[d] : 0;
    for (uint32_t k = 0; p->nruns[d] != RLK_WHOLE && k < p->nruns[d]; k++)
        total += p->runs[*run + k].extent;
    uint64_t *at = total < UINT64_C(1) << 31 ? malloc(((size_t)total + 1) * sizeof *at) : NULL;
    uint64_t i = 0;
    for (uint64_t k = 0; at && p->nruns[d] == RLK_WHOLE && k < total; k++)
        at[i++] = k;
    for (uint32_t k = 0; at && p->nruns[d] != RLK_WHOLE && k < p->nruns[d]; k++, (*run)++)
        for (uint64_t j = 0; j < p->runs[*run].extent; j++)
            at[i++] = p->runs[*run].start + j;
    *n = total;
    return at;
}

/* A rank's bytes into their place. The reader has checked that runs lie inside the shape. */
static bool put_part(const struct rlk_place *p, size_t size, const char *from, size_t bytes, char *whole)
{
    uint64_t *at[3] = {NULL, NULL, NULL}, n[3] = {1, 1, 1}, extent[3] = {1, 1, 1};
    uint32_t run = 0;
    bool ok = p->ndim <= 3 && p->nruns;
    for (uint32_t d = 0; ok && d < p->ndim; d++) {
        extent[d] = p->shape[d];
        ok = (at[d] = indices(p, d, &run, &n[d])) != NULL;
    }
    ok = ok && n[0] * n[1] * n[2] * size == bytes;
    for (uint64_t a = 0; ok && a < n[0]; a++)
        for (uint64_t b = 0; b < n[1]; b++)
            for (uint64_t c = 0; c < n[2]; c++, from += size) {
                const uint64_t x = at[0] ? at[0][a] : 0, y = at[1] ? at[1][b] : 0, z = at[2] ? at[2][c] : 0;
                memcpy(whole + ((x * extent[1] + y) * extent[2] + z) * size, from, size);
            }
    free(at[0]);
    free(at[1]);
    free(at[2]);
    return ok;
}

/* The logical tensor of output k of an instruction, from every rank's kept bytes; NULL = not all were kept. */
static char *recorded(struct rlki_machine *m, const struct rlki_instr *in, uint32_t k, size_t bytes)
{
    struct rlk_program *p = m->program;
    const struct rlk_tensor *mine = &in->e.tensors[in->inputs + k];
    const size_t size = rlk_ktype_bytes((enum rlk_ktype)mine->dtype);
    char *whole = mine->has_payload && mine->place && size && bytes < m->most ? calloc(1, bytes + 1) : NULL;
    bool ok = whole != NULL;
    uint64_t elements = 1;
    for (uint32_t d = 0; ok && d < mine->place->ndim; d++)
        ok = !__builtin_mul_overflow(elements, mine->place->shape[d], &elements);
    ok = ok && elements * size == bytes;
    for (uint32_t r = 0; ok && r < p->facts.ranks; r++) {
        struct rlk_arena arena = {0};
        struct rlk_event e;
        void *part = NULL;
        size_t n = 0;
        if (in->ordinal >= p->rank[r].n[in->side])
            continue;
        ok = rlk_env_event(p->env, p->rank[r].seq[in->side][in->ordinal], &arena, &e, NULL) == RLK_OK &&
             e.ntensors == in->e.ntensors;
        const struct rlk_tensor *t = ok ? &e.tensors[in->inputs + k] : NULL;
        bool same = ok && t->place && t->dtype == mine->dtype && t->place->ndim == mine->place->ndim;
        for (uint32_t d = 0; same && d < t->place->ndim; d++)
            same = t->place->shape[d] == mine->place->shape[d];
        uint64_t here = 1;
        for (uint32_t d = 0; same && d < t->ndim; d++)
            here *= t->shape[d];
        ok = same && (here == 0 || (t->has_payload && !rlk_env_payload(p->env, t->payload, bytes, &part, &n, NULL) &&
                                    put_part(t->place, size, part, n, whole)));
        free(part);
        rlk_arena_release(&arena);
    }
    if (!ok) {
        free(whole);
        whole = NULL;
    }
    return whole;
}

/* Columns of [rows][width] that rank i has, for rows map[0..n) (NULL: all). */
static int cut_rows(struct rlki_exec *x, const struct rlki_value *v, int i, const int32_t *map, int64_t n,
                    const char *whole)
{
    const struct rlki_form *f = &v->form;
    const size_t size = rlk_ktype_bytes(f->type);
    const bool cut = f->shape == RLKI_CACHED || f->slab;
    const int64_t width = cut ? f->width / x->w->lat.tp : f->width, from = cut ? rlk_world_tp(x->w, i) * width : 0;
    char *block = malloc((size_t)(n * width) * size + 1);
    if (!block)
        return rlki_fail_memory(x->run, "recorded bytes");
    for (int64_t r = 0; r < n; r++)
        memcpy(block + (size_t)(r * width) * size, whole + (size_t)((map ? map[r] : r) * f->width + from) * size,
               (size_t)width * size);
    int rc = n && width ? rlk_exec_upload(&x->run->x, v->buffer->at.p[i], block, (size_t)(n * width) * size) : 0;
    if (!rc)
        rc = rlk_exec_sync(&x->run->x);
    rlki_rec_written(x->run, v->buffer->at.p[i]);
    free(block);
    return rc;
}

static int restore(struct rlki_exec *x, const struct rlki_value *v, const char *whole, size_t bytes)
{
    const struct rlki_form *f = &v->form;
    const struct rlki_weight w = {"", f->rows, f->cols, f->ndim, f->cut, f->vocab, false, 0.0f};
    int rc = 0;
    if (f->shape == RLKI_PARAMETER)
        return rlki_param_cut(x->run, x->w, &w, f->type, whole, &v->buffer->at, -1);
    if (f->shape == RLKI_HOST) {
        memcpy(v->buffer->at.p[0], whole, bytes);
        rlki_host_spread(&v->buffer->at, bytes);
        for (int i = 0; i < x->w->held; i++)
            rlki_rec_written(x->run, v->buffer->at.p[i]);
        return 0;
    }
    for (int i = 0; !rc && i < x->w->held; i++) {
        const int cp = rlk_world_cp(x->w, i);
        rc = f->shape == RLKI_CACHED ? cut_rows(x, v, i, NULL, f->rows, whole)
                                     : cut_rows(x, v, i, rlk_batch_map(x->b, cp), rlk_batch_local(x->b, cp), whole);
    }
    return rc;
}

int rlki_alone_outputs(struct rlki_exec *x, bool recorded_inputs)
{
    struct rlki_machine *m = x->m;
    const struct rlki_instr *in = x->in;
    int rc = 0;
    for (uint32_t k = 0; !rc && k < in->outputs; k++) {
        struct rlki_value *v = &m->value[in->first_value + k];
        const struct rlki_form *f = &v->form;
        if (!v->buffer)
            continue;
        const uint64_t elements = f->shape == RLKI_TOKENS_BY ? (uint64_t)(m->now.tokens * f->width)
                                  : f->shape == RLKI_CACHED  ? (uint64_t)(f->rows * f->width)
                                                             : (uint64_t)(f->rows * f->cols);
        const size_t bytes = (size_t)elements * rlk_ktype_bytes(f->type);
        /* What has no inputs is what it was, and a version is what its inputs are. */
        const bool given = in->e.kind == RLK_EV_LEAF || in->inputs == 0;
        char *whole = given ? NULL : recorded(m, in, k, bytes);
        v->computed = in->e.kind == RLK_EV_WEIGHTS ? !recorded_inputs : !given && !whole;
        if (whole)
            rc = restore(x, v, whole, bytes);
        free(whole);
    }
    return rc;
}
