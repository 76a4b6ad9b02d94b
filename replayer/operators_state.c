/* operators_state.c - batches, leaves, zeros and weight versions: what the operators work on. */
#include "replayer/machine.h"
#include "replayer/safetensors.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the batch ---- */

/* "row first length prompt" */
static bool read_run(const char *text, int32_t row[4])
{
    for (int k = 0; k < 4; k++) {
        char *end;
        const long n = strtol(text, &end, 10);
        if (end == text || n < 0 || n >= 1 << 28)
            return false;
        row[k] = (int32_t)n;
        text = end;
    }
    return *text == 0;
}

static bool read_runs(struct rlki_exec *x, const struct rlk_event *e, struct rlki_runs_now *now)
{
    int32_t(*row)[4] = calloc((size_t)e->nattrs + 1, sizeof *row);
    if (!row) {
        rlki_no_memory(x, "a batch");
        return false;
    }
    free(now->row);
    now->row = row;
    now->n = 0;
    now->tokens = 0;
    for (uint32_t i = 0; i < e->nattrs; i++) {
        const struct rlk_attr *a = &e->attrs[i];
        if (strcmp(a->key, "run") != 0 || a->type != RLK_ATTR_STRING)
            continue;
        if (!read_run(a->s, row[now->n]))
            rlki_not_replayable(x, "its runs are out of range");
        now->tokens += row[now->n++][2];
    }
    now->id = rlk_content_id(row, (size_t)now->n * sizeof *row);
    if (now->tokens >= 1 << 28)
        rlki_not_replayable(x, "its runs are out of range");
    return !x->rc;
}

bool rlki_batch_read(struct rlki_exec *x, const struct rlk_event *note, struct rlki_runs_now *now)
{
    if (!read_runs(x, note, now))
        return false;
    int32_t *length = malloc(((size_t)now->n + 1) * 2 * sizeof *length);
    if (!length) {
        rlki_no_memory(x, note->who.op);
        return false;
    }
    for (int s = 0; s < now->n; s++) {
        length[s] = now->row[s][2];
        length[now->n + s] = now->row[s][1];
    }
    now->samples = rlki_attr_int(note, "samples", 0);
    if (now->samples < 1 || now->samples > 1 << 20)
        rlki_not_replayable(x, "its number of samples is out of range");
    else
        x->rc = rlk_batch_new(&x->run->x, &x->w->lat, now->n, length, length + now->n, &now->batch);
    free(length);
    return !x->rc;
}

void rlki_do_batch(struct rlki_exec *x)
{
    struct rlki_runs_now *now = &x->m->now;
    rlk_batch_free(&x->run->x, now->batch);
    now->batch = NULL;
    now->instr = RLKI_NO_VALUE;
    now->side = x->in->side;
    const bool read = rlki_batch_read(x, &x->in->e, now);
    x->m->micro.batch = now->batch;
    if (read) {
        x->run->opt.samples = (int)now->samples;
        now->instr = x->at;
        rlki_rec_batch(x->run, x->w, now->n, &now->row[0][0]);
    }
}

/* ---- leaves ---- */

static const char *base_name(const char *name)
{
    static const char *const prefix[] = {RLKI_REF, RLKI_MASTER, RLKI_EXP_AVG_SQ, RLKI_EXP_AVG};
    for (size_t i = 0; i < sizeof prefix / sizeof prefix[0]; i++)
        if (strncmp(name, prefix[i], strlen(prefix[i])) == 0)
            return name + strlen(prefix[i]);
    return name;
}

/* The n-th leaf with a generator and a plain name is parameter n. */
static uint32_t ordinal_of(const struct rlk_program *p, const char *name)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct rlk_event *e = &p->instr[i].e;
        if (e->kind != RLK_EV_LEAF || base_name(e->u.leaf.name) != e->u.leaf.name)
            continue;
        if (strcmp(e->u.leaf.name, name) == 0)
            return n;
        n++;
    }
    return n;
}

static bool is_vocab(const struct rlki_machine *m, const char *name)
{
    for (size_t i = 0; i < m->nvocab; i++)
        if (strcmp(m->vocab[i], name) == 0)
            return true;
    return false;
}

/* Whose rows are a vocabulary: what the embedding and the head read. */
int rlki_find_vocab(struct rlki_machine *m)
{
    struct rlk_program *p = m->program;
    size_t room = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct rlki_instr *in = &p->instr[i];
        const char *op = in->e.who.op;
        const bool head = strcmp(op, "rlk.logits") == 0 || strcmp(op, "rlk.linear_logp.bitwise") == 0;
        if (in->e.kind != RLK_EV_OP || (!head && strcmp(op, "rlk.embedding") != 0))
            continue;
        for (uint32_t k = 0; k < in->inputs; k++) {
            const uint32_t v = p->input[in->first_input + k];
            if (v == RLKI_NO_VALUE || strcmp(in->e.tensors[k].name, head ? "w" : "table") != 0)
                continue;
            const struct rlki_instr *from = &p->instr[p->maker[v]];
            const char *name = base_name(from->e.tensors[from->inputs + (v - from->first_value)].name);
            if (is_vocab(m, name))
                continue;
            if (m->nvocab == room) {
                const char **more = realloc(m->vocab, (room ? 2 * room : 8) * sizeof *more);
                if (!more)
                    return RLK_K_ENOMEM;
                m->vocab = more;
                room = room ? 2 * room : 8;
            }
            m->vocab[m->nvocab++] = name;
        }
    }
    return 0;
}

static bool parameter_form(struct rlki_exec *x, const struct rlk_tensor *t, bool vocab, struct rlki_form *f)
{
    const struct rlk_place *p = t->place;
    const bool fits =
        p && (p->ndim == 1 || p->ndim == 2) && p->shape[0] < 1u << 31 && p->nruns &&
        (p->ndim == 1 ? p->nruns[0] == RLK_WHOLE
                      : p->shape[1] < 1u << 31 && !(p->nruns[0] != RLK_WHOLE && p->nruns[1] != RLK_WHOLE));
    if (!fits || !rlk_ktype_bytes((enum rlk_ktype)t->dtype)) {
        rlki_not_replayable(x, "a parameter of this shape or type is not cut");
        return false;
    }
    *f = (struct rlki_form){.shape = RLKI_PARAMETER, .type = (enum rlk_ktype)t->dtype, .ndim = (int)p->ndim};
    f->rows = p->ndim == 1 ? 1 : (int64_t)p->shape[0];
    f->cols = (int64_t)p->shape[p->ndim - 1];
    f->cut = p->ndim == 1               ? RLK_CUT_NONE
             : p->nruns[0] != RLK_WHOLE ? RLK_CUT_OUT
             : p->nruns[1] != RLK_WHOLE ? RLK_CUT_IN
                                        : RLK_CUT_NONE;
    f->vocab = vocab && f->cut == RLK_CUT_OUT;
    const bool slabs =
        f->cut == RLK_CUT_NONE || f->vocab || (f->cut == RLK_CUT_OUT ? f->rows : f->cols) % RLK_SLABS == 0;
    if (f->rows == 0 || f->cols == 0 || !slabs || f->rows > INT64_MAX / 8 / f->cols) {
        rlki_not_replayable(x, "a parameter's cut dimension is no multiple of 8");
        return false;
    }
    return true;
}

static void fill_leaf(struct rlki_exec *x, const struct rlki_form *f, const char *name, uint64_t seed, void *logical)
{
    const struct rlki_weight w = {.rows = f->rows, .cols = f->cols, .std = f->ndim == 1 ? 0.0f : RLKI_DEVIATION};
    const size_t n = (size_t)(f->rows * f->cols);
    uint16_t *bits = f->type == RLK_K_BF16 ? logical : malloc(n * sizeof *bits + 1);
    if (!bits) {
        rlki_no_memory(x, x->in->e.who.op);
        return;
    }
    rlki_model_fill(x->run->pool, &w, seed, ordinal_of(x->m->program, name), bits);
    for (size_t i = 0; bits != logical && i < n; i++) {
        const uint32_t u = (uint32_t)bits[i] << 16;
        memcpy((float *)logical + i, &u, 4);
    }
    if (bits != logical)
        free(bits);
}

/* "FILE#NAME", whose bytes must be those of the recording. */
static void read_leaf(struct rlki_exec *x, const struct rlki_form *f, void *logical)
{
    const char *from = x->in->e.u.leaf.reference, *hash = strrchr(from, '#');
    char path[512], sha256[65] = "";
    unsigned char digest[EVP_MAX_MD_SIZE];
    struct rlki_tensors file;
    struct rlk_kdetail *detail = &x->run->x.detail;
    void *bytes = NULL;
    const char *dtype;
    size_t size = 0;
    if (!hash || (size_t)(hash - from) >= sizeof path) {
        rlki_not_replayable(x, "it is given by a reference that is none");
        return;
    }
    memcpy(path, from, (size_t)(hash - from));
    path[hash - from] = 0;
    x->rc = rlki_tensors_open(&file, path, detail);
    if (x->rc)
        return;
    x->rc = rlki_tensors_read(&file, hash + 1, f->ndim, f->rows, f->cols, &bytes, &size, &dtype, detail);
    if (!x->rc && !EVP_Digest(bytes, size, digest, NULL, EVP_sha256(), NULL))
        rlki_no_memory(x, "a hash");
    for (int i = 0; !x->rc && i < 32; i++)
        snprintf(sha256 + 2 * i, 3, "%02x", digest[i]);
    if (!x->rc && strcmp(sha256, x->in->e.u.leaf.sha256) != 0)
        x->rc = rlk_kfail(detail, RLK_K_EUNSUPPORTED, "%.300s: %.90s has other bytes than when it was recorded", path,
                          hash + 1);
    if (!x->rc)
        x->rc = rlki_tensors_values(&file, hash + 1, f->ndim, f->rows, f->cols, f->type == RLK_K_BF16 ? logical : NULL,
                                    f->type == RLK_K_FP32 ? logical : NULL, detail);
    free(bytes);
    rlki_tensors_close(&file);
}

void rlki_do_leaf(struct rlki_exec *x)
{
    const struct rlk_event *e = &x->in->e;
    const char *name = e->u.leaf.name, *generator = e->u.leaf.generator;
    const bool zeros = strcmp(generator, RLKI_ZEROS) == 0, file = e->u.leaf.reference[0] != 0;
    const struct rlki_source source = {e->u.leaf.reference, e->u.leaf.sha256, generator, e->u.leaf.seed};
    struct rlki_form f;
    if (x->in->outputs != 1 || x->in->inputs != 0 || strcmp(e->tensors[0].name, name) != 0) {
        rlki_not_replayable(x, "it is not one tensor of its name");
        return;
    }
    if (!parameter_form(x, &e->tensors[0], is_vocab(x->m, base_name(name)), &f))
        return;
    if (!zeros &&
        ((!file && strcmp(generator, RLKI_GENERATOR) != 0) || (f.type != RLK_K_BF16 && f.type != RLK_K_FP32))) {
        rlki_not_replayable(x, "its generator is not known here");
        return;
    }
    struct rlki_ptrs *to = rlki_result(x, name, &f);
    const size_t bytes = (size_t)(f.rows * f.cols) * rlk_ktype_bytes(f.type);
    void *logical = to && bytes < x->m->most ? calloc(1, bytes + 1) : NULL;
    struct rlki_weight w = {"", f.rows, f.cols, f.ndim, f.cut, f.vocab, false, 0.0f};
    if (!to || !logical)
        rlki_no_memory(x, name);
    else if (file)
        read_leaf(x, &f, logical);
    else if (!zeros)
        fill_leaf(x, &f, base_name(name), e->u.leaf.seed, logical);
    if (!x->rc)
        x->rc = rlki_param_cut(x->run, x->w, &w, f.type, logical, to, -1);
    free(logical);
    if (!x->rc && strlen(name) < sizeof w.name) {
        memcpy(w.name, name, strlen(name) + 1);
        rlki_rec_leaf(x->run, &w, "", f.type, to, &source);
    }
}

/* Empty gradients and caches. */
void rlki_do_zero(struct rlki_exec *x)
{
    rlki_own_begin(x);
    for (uint32_t k = 0; !x->rc && k < x->in->outputs; k++) {
        const struct rlk_tensor *t = &x->in->e.tensors[x->in->inputs + k];
        const char *dot = strrchr(t->name, '.');
        char name[128];
        struct rlki_form f;
        snprintf(name, sizeof name, "%.*s", dot ? (int)(dot - t->name) : 0, t->name);
        if (t->place && t->place->ndim == 3) {
            const struct rlk_place *p = t->place;
            const bool fits = p->shape[0] < 1u << 31 && p->shape[1] < 1u << 16 && p->shape[2] < 1u << 15;
            f = (struct rlki_form){.shape = RLKI_CACHED, .type = (enum rlk_ktype)t->dtype};
            f.rows = fits ? (int64_t)p->shape[0] : -1;
            f.width = fits ? (int64_t)(p->shape[1] * p->shape[2]) : -1;
            if (fits && p->shape[1] % RLK_SLABS)
                f.width = -1;
        } else if (!parameter_form(x, t, is_vocab(x->m, name), &f)) {
            break;
        }
        f.side = x->in->side;
        struct rlki_ptrs *to = rlki_result(x, t->name, &f);
        for (int i = 0; to && !x->rc && i < x->w->held; i++) {
            const size_t bytes = (size_t)rlki_form_local(x->m, &f, i) * rlk_ktype_bytes(f.type);
            x->rc = rlk_exec_zero(&x->run->x, to->p[i], bytes);
        }
    }
    rlki_own_end(x);
}

/* ---- weight versions ---- */

static void to_rollout(struct rlki_exec *x, const struct rlki_value *from, const struct rlki_weight *w,
                       struct rlki_ptrs *to)
{
    const size_t bytes = (size_t)(w->rows * w->cols) * rlk_ktype_bytes(from->form.type);
    void *logical = malloc(bytes + 1);
    if (!logical)
        rlki_no_memory(x, x->in->e.who.op);
    else
        x->rc = rlki_param_join(x->run, &x->run->train, w, from->form.type, &from->buffer->at, logical);
    if (x->rc == RLK_K_ESTATE && x->run->opt.plant)
        x->rc = 0; /* as in rlktrain: the recording is to say so */
    if (!x->rc)
        x->rc = rlki_param_cut(x->run, &x->run->roll, w, from->form.type, logical, to, -1);
    free(logical);
}

void rlki_do_weights(struct rlki_exec *x)
{
    const uint32_t n = x->in->outputs;
    struct rlki_weight *param = calloc((size_t)n + 1, sizeof *param), *const kept = x->run->param;
    struct rlki_ptrs *at = calloc((size_t)n + 1, sizeof *at);
    const int params = x->run->params;
    if (!param || !at)
        rlki_no_memory(x, x->in->e.who.op);
    for (uint32_t k = 0; !x->rc && k < n; k++) {
        const struct rlk_tensor *t = &x->in->e.tensors[x->in->inputs + k];
        const uint32_t v = x->m->program->input[x->in->first_input + k];
        const struct rlki_value *from = v == RLKI_NO_VALUE ? NULL : &x->m->value[v];
        if (!from || !from->buffer || from->form.shape != RLKI_PARAMETER || strlen(t->name) >= sizeof param->name ||
            from->form.side != RLKI_SIDE_TRAINER || from->form.type != RLK_K_BF16) {
            rlki_not_replayable(x, "a weight was left out");
            break;
        }
        const struct rlki_form f = from->form;
        param[k] = (struct rlki_weight){"", f.rows, f.cols, f.ndim, f.cut, f.vocab, false, 0.0f};
        memcpy(param[k].name, t->name, strlen(t->name) + 1);
        if (x->in->side == RLKI_SIDE_TRAINER) {
            rlki_alias(x, k, v);
            at[k] = from->buffer->at;
        } else {
            struct rlki_ptrs *to = rlki_result(x, t->name, &f);
            if (to)
                to_rollout(x, from, &param[k], to);
            if (to)
                at[k] = *to;
        }
    }
    x->run->param = param;
    x->run->params = (int)n;
    if (!x->rc)
        rlki_rec_weights(x->run, x->w, x->in->e.u.weights.version, x->in->e.u.weights.side, at);
    if (!x->rc && x->in->side == RLKI_SIDE_ROLLOUT && x->m->program->hashes && !x->run->rec.muted) {
        x->run->rweight = at;
        x->rc = rlki_rec_hashes(x->run, x->in->e.u.weights.version);
        x->run->rweight = NULL;
        free(x->run->hash); /* the next version has others, and maybe more of them */
        x->run->hash = NULL;
        x->run->hashed = false;
    }
    x->run->param = kept;
    x->run->params = params;
    free(param);
    free(at);
}
