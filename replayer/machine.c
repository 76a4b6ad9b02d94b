/* machine.c - values on the ranks of the layout: memory, forms, operands by name. */
#include "replayer/machine.h"

#include <stdlib.h>
#include <string.h>

struct rlk_world *rlki_side_world(struct rlki_machine *m, int side)
{
    struct rlk_train *run = m->run;
    if (side == RLKI_SIDE_BOTH)
        return run->train.held > run->roll.held ? &run->train : &run->roll;
    return side == RLKI_SIDE_ROLLOUT ? &run->roll : &run->train;
}

int rlki_not_replayable(struct rlki_exec *x, const char *why)
{
    if (!x->rc) {
        x->why = why;
        x->rc = RLK_K_EUNSUPPORTED;
    }
    return x->rc;
}

void rlki_no_memory(struct rlki_exec *x, const char *what)
{
    if (!x->rc)
        x->rc = rlki_fail_memory(x->run, what);
}

/* ---- memory ---- */

/* Four classes an octave. */
static unsigned class_of(size_t bytes, size_t *rounded)
{
    unsigned c = 0;
    size_t size = 256;
    while (size < bytes && c < 255) {
        c++;
        size = ((size_t)256 << (c / 4)) + ((size_t)64 << (c / 4)) * (c % 4);
    }
    *rounded = size;
    return c;
}

static void *take(struct rlki_machine *m, size_t bytes)
{
    size_t rounded;
    const unsigned c = class_of(bytes, &rounded);
    struct rlki_spare *s = &m->spare[c];
    if (bytes > m->most || m->memory > m->most - bytes || rounded < bytes)
        return NULL;
    if (s->n)
        return s->p[--s->n];
    void *p = rlk_exec_alloc(&m->run->x, rounded);
    m->memory += p ? rounded : 0;
    return p;
}

static void give(struct rlki_machine *m, void *p, size_t bytes)
{
    size_t rounded;
    struct rlki_spare *s = &m->spare[class_of(bytes, &rounded)];
    if (s->n == s->room) {
        const size_t room = s->room ? 2 * s->room : 16;
        void **more = realloc(s->p, room * sizeof *more);
        if (!more) {
            rlk_exec_free(&m->run->x, p);
            return;
        }
        s->p = more;
        s->room = room;
    }
    s->p[s->n++] = p;
}

static void drop(struct rlki_machine *m, struct rlki_buffer *b)
{
    if (!b || --b->refs)
        return;
    for (int i = 0; !b->host && i < b->held; i++)
        if (b->at.p[i])
            give(m, b->at.p[i], b->bytes[i]);
    if (b->host)
        free(b->at.p[0]);
    free(b);
}

int64_t rlki_form_local(const struct rlki_machine *m, const struct rlki_form *f, int i)
{
    const struct rlk_world *w = rlki_side_world((struct rlki_machine *)(uintptr_t)m, f->side);
    const struct rlki_weight p = {.rows = f->rows, .cols = f->cols, .cut = f->cut, .vocab = f->vocab};
    switch (f->shape) {
    case RLKI_TOKENS_BY:
        return rlk_batch_local(m->now.batch, rlk_world_cp(w, i)) * (f->slab ? f->width / w->lat.tp : f->width);
    case RLKI_PARAMETER:
        return rlki_local_elements(w, &p, i);
    case RLKI_CACHED:
        return f->rows * (f->width / w->lat.tp);
    case RLKI_HOST:
        break;
    }
    return f->rows * f->cols;
}

static bool sane(const struct rlki_form *f)
{
    const int64_t most = INT64_C(1) << 31;
    return f->width >= 0 && f->width < most && f->rows >= 0 && f->rows < most && f->cols >= 0 && f->cols < most &&
           rlk_ktype_bytes(f->type) > 0;
}

static struct rlki_buffer *buffer_of(struct rlki_exec *x, const struct rlki_form *f)
{
    struct rlki_machine *m = x->m;
    const struct rlk_world *w = rlki_side_world(m, f->side);
    if (!sane(f) || (f->shape == RLKI_TOKENS_BY && !x->b)) {
        rlki_not_replayable(x, "a size is out of range");
        return NULL;
    }
    struct rlki_buffer *b = calloc(1, sizeof *b);
    if (!b) {
        rlki_no_memory(x, "a value");
        return NULL;
    }
    *b = (struct rlki_buffer){.held = w->held, .refs = 1, .host = f->shape == RLKI_HOST};
    for (int i = 0; i < b->held; i++) {
        b->bytes[i] = (size_t)rlki_form_local(m, f, i) * rlk_ktype_bytes(f->type);
        if (b->host)
            break;
        b->at.p[i] = take(m, b->bytes[i]);
        if (b->at.p[i])
            rlki_rec_fresh_device(m->run, b->at.p[i]);
    }
    bool ok = b->host ? b->bytes[0] < m->most / RLKI_RANKS && !rlki_host_new(m->run, &b->at, b->bytes[0] + 1) : true;
    for (int i = 0; !b->host && i < b->held; i++)
        ok = ok && b->at.p[i];
    if (!ok) {
        drop(m, b);
        rlki_no_memory(x, "a value");
        return NULL;
    }
    return b;
}

void rlki_value_drop(struct rlki_machine *m, uint32_t value)
{
    drop(m, m->value[value].buffer);
    m->value[value].buffer = NULL;
}

void rlki_use_done(struct rlki_machine *m, uint32_t at)
{
    struct rlk_program *p = m->program;
    struct rlki_instr *in = &p->instr[at];
    const uint32_t n = in->e.kind == RLK_EV_WEIGHTS ? in->outputs : in->e.kind == RLK_EV_REQUEST ? 1 : in->inputs;
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t v = p->input[in->first_input + k];
        if (v != RLKI_NO_VALUE && p->last_use[v] == at)
            rlki_value_drop(m, v);
    }
    for (uint32_t k = 0; k < in->outputs; k++)
        if (p->last_use[in->first_value + k] == RLKI_NO_VALUE)
            rlki_value_drop(m, in->first_value + k);
}

void rlki_machine_free(struct rlki_machine *m)
{
    for (uint32_t v = 0; m->value && v < m->program->values; v++)
        drop(m, m->value[v].buffer);
    for (int c = 0; c < 256; c++) {
        for (size_t i = 0; i < m->spare[c].n; i++)
            rlk_exec_free(&m->run->x, m->spare[c].p[i]);
        free(m->spare[c].p);
    }
    if (m->now.batch)
        rlk_batch_free(&m->run->x, m->now.batch);
    free(m->now.row);
    free(m->micro.ids);
    free(m->micro.targets);
    free(m->micro.owner);
    free(m->micro.at);
    free(m->measured);
    free(m->value);
    free(m->vocab);
    rlk_policy_free(m->provider);
}

/* ---- operands ---- */

const struct rlk_tensor *rlki_recorded(const struct rlki_exec *x, const char *name, bool output)
{
    const uint32_t first = output ? x->in->inputs : 0, n = output ? x->in->outputs : x->in->inputs;
    for (uint32_t k = 0; k < n; k++)
        if (strcmp(x->in->e.tensors[first + k].name, name) == 0)
            return &x->in->e.tensors[first + k];
    return NULL;
}

bool rlki_has_input(const struct rlki_exec *x, const char *name)
{
    return rlki_recorded(x, name, false) != NULL;
}

static uint64_t mix(uint64_t h, int64_t v)
{
    h = (h ^ (uint64_t)v) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ (h >> 29);
}

static struct rlki_value *input(struct rlki_exec *x, const char *name)
{
    const struct rlk_tensor *t = rlki_recorded(x, name, false);
    if (x->rc)
        return NULL;
    if (!t) {
        rlki_not_replayable(x, "an input is missing");
        return NULL;
    }
    const uint32_t v = x->m->program->input[x->in->first_input + (uint32_t)(t - x->in->e.tensors)];
    struct rlki_value *value = v == RLKI_NO_VALUE ? NULL : &x->m->value[v];
    if (!value || !value->buffer) {
        rlki_not_replayable(x, "an input was left out");
        return NULL;
    }
    const struct rlki_form *f = &value->form;
    x->key = mix(mix(mix(mix(x->key, f->width), f->rows), f->cols), (int64_t)f->type);
    return value;
}

const struct rlki_value *rlki_value_in(struct rlki_exec *x, const char *name, enum rlki_shape shape,
                                       enum rlk_ktype type)
{
    struct rlki_value *v = input(x, name);
    if (!v)
        return NULL;
    if (v->form.shape != shape || (type && v->form.type != type)) {
        rlki_not_replayable(x, "an input has another shape than its operator reads");
        return NULL;
    }
    if (shape != RLKI_HOST && rlki_side_world(x->m, v->form.side) != x->w) {
        rlki_not_replayable(x, "an input belongs to the other side");
        return NULL;
    }
    return v;
}

const struct rlki_value *rlki_tokens_in(struct rlki_exec *x, const char *name, enum rlk_ktype type, int64_t width,
                                        int slab)
{
    const struct rlki_value *v = rlki_value_in(x, name, RLKI_TOKENS_BY, type);
    if (!v)
        return NULL;
    if ((width >= 0 && v->form.width != width) || (slab >= 0 && v->form.slab != (slab != 0)) ||
        !rlk_u128_equal(v->form.batch, x->m->now.id)) {
        rlki_not_replayable(x, "an input has another shape than its operator reads");
        return NULL;
    }
    return v;
}

const struct rlki_value *rlki_parameter_in(struct rlki_exec *x, const char *name, enum rlk_ktype type, int64_t rows,
                                           int64_t cols, enum rlk_cut cut, bool vocab)
{
    const struct rlki_value *v = rlki_value_in(x, name, RLKI_PARAMETER, type);
    if (!v)
        return NULL;
    if ((rows >= 0 && v->form.rows != rows) || (cols >= 0 && v->form.cols != cols) || v->form.cut != cut ||
        v->form.vocab != vocab) {
        rlki_not_replayable(x, "a parameter has another shape than its operator reads");
        return NULL;
    }
    return v;
}

/* ---- results ---- */

static uint32_t output_of(struct rlki_exec *x, const char *name)
{
    const struct rlk_tensor *t = rlki_recorded(x, name, true);
    if (x->rc)
        return RLKI_NO_VALUE;
    if (!t) {
        rlki_not_replayable(x, "an output is missing");
        return RLKI_NO_VALUE;
    }
    return x->in->first_value + (uint32_t)(t - x->in->e.tensors) - x->in->inputs;
}

struct rlki_ptrs *rlki_result(struct rlki_exec *x, const char *name, const struct rlki_form *form)
{
    const uint32_t v = output_of(x, name);
    if (v == RLKI_NO_VALUE)
        return NULL;
    struct rlki_value *to = &x->m->value[v];
    to->form = *form;
    to->form.side = x->w == &x->run->roll ? RLKI_SIDE_ROLLOUT : RLKI_SIDE_TRAINER;
    x->key = mix(mix(mix(mix(x->key, form->width), form->rows), form->cols), (int64_t)form->type);
    if (!to->buffer)
        to->buffer = buffer_of(x, &to->form);
    return to->buffer ? &to->buffer->at : NULL;
}

struct rlki_ptrs *rlki_tokens_out(struct rlki_exec *x, const char *name, enum rlk_ktype type, int64_t width, bool slab)
{
    const struct rlki_form f = {
        .shape = RLKI_TOKENS_BY, .type = type, .width = width, .slab = slab, .batch = x->m->now.id};
    return rlki_result(x, name, &f);
}

void rlki_alias(struct rlki_exec *x, uint32_t output, uint32_t value)
{
    struct rlki_value *to = &x->m->value[x->in->first_value + output];
    *to = x->m->value[value];
    if (to->buffer)
        to->buffer->refs++;
}

static void copy(struct rlki_exec *x, const struct rlki_buffer *to, const struct rlki_buffer *from)
{
    for (int i = 0; !x->rc && i < from->held; i++) {
        if (from->host)
            memcpy(to->at.p[i], from->at.p[i], from->bytes[i]);
        else
            x->rc = rlk_exec_copy(&x->run->x, to->at.p[i], from->at.p[i], from->bytes[i]);
    }
}

struct rlki_ptrs *rlki_inout(struct rlki_exec *x, const char *in, const char *out, const struct rlki_value *value)
{
    const struct rlk_tensor *t = rlki_recorded(x, in, false);
    const uint32_t to = output_of(x, out);
    if (to == RLKI_NO_VALUE || !t || !value)
        return NULL;
    const uint32_t from = x->m->program->input[x->in->first_input + (uint32_t)(t - x->in->e.tensors)];
    struct rlki_value *result = &x->m->value[to];
    if (result->buffer)
        return &result->buffer->at;
    result->form = value->form;
    if (value->buffer->refs == 1 && x->m->program->last_use[from] == x->at) {
        result->buffer = value->buffer;
        result->buffer->refs++;
        return &result->buffer->at;
    }
    result->buffer = buffer_of(x, &result->form);
    if (!result->buffer)
        return NULL;
    copy(x, result->buffer, value->buffer);
    return &result->buffer->at;
}

/* ---- workspace ---- */

static bool seen(struct rlki_machine *m, uint64_t key)
{
    key = key ? key : 1;
    if (m->nmeasured * 2 >= m->room_measured) {
        const size_t room = m->room_measured ? 2 * m->room_measured : 1024;
        uint64_t *more = calloc(room, sizeof *more);
        if (!more)
            return false;
        for (size_t i = 0; i < m->room_measured; i++)
            if (m->measured[i]) {
                size_t k = m->measured[i] & (room - 1);
                while (more[k])
                    k = (k + 1) & (room - 1);
                more[k] = m->measured[i];
            }
        free(m->measured);
        m->measured = more;
        m->room_measured = room;
    }
    size_t k = key & (m->room_measured - 1);
    while (m->measured[k] && m->measured[k] != key)
        k = (k + 1) & (m->room_measured - 1);
    if (m->measured[k])
        return true;
    m->measured[k] = key;
    m->nmeasured++;
    return false;
}

bool rlki_measured(struct rlki_exec *x)
{
    uint64_t key = mix(mix(x->key, (int64_t)(intptr_t)x->in->e.who.op), (int64_t)(intptr_t)x->in->e.who.pass);
    key = mix(mix(key, x->b ? rlk_batch_tokens(x->b) : 0), x->w == &x->run->roll);
    for (int c = 0; x->b && c < x->w->lat.cp; c++)
        key = mix(key, rlk_batch_local(x->b, c));
    key = mix(key, x->m->now.n);
    if (x->rc || seen(x->m, key))
        return true;
    rlk_exec_measure(&x->run->x, true);
    return false;
}

void rlki_measure_end(struct rlki_exec *x)
{
    struct rlk_train *run = x->run;
    /* Measuring notes what the contract takes; a provider works on whole shards (see rlki_room). */
    const size_t bytes = rlk_exec_peak(&run->x) * RLK_SLABS;
    rlk_exec_measure(&run->x, false);
    if (x->rc || bytes <= run->x.workspace_bytes)
        return;
    rlk_exec_free(&run->x, run->workspace);
    run->x.workspace = NULL;
    run->x.workspace_bytes = 0;
    run->workspace = bytes < x->m->most ? rlk_exec_alloc(&run->x, bytes) : NULL;
    if (!run->workspace) {
        rlki_no_memory(x, "the workspace");
        return;
    }
    run->x.workspace = run->workspace;
    run->x.workspace_bytes = bytes;
}

/* ---- the batch in force ---- */

int rlki_micro_of(struct rlki_exec *x, const struct rlki_value *sequences)
{
    struct rlki_machine *m = x->m;
    struct rlki_micro *u = &m->micro;
    const struct rlki_runs_now *b = &m->now;
    if (x->rc)
        return x->rc;
    const int64_t rows = sequences ? sequences->form.rows : INT32_MAX;
    const int64_t cols = sequences ? sequences->form.cols : INT32_MAX;
    const int32_t *const token = sequences ? rlki_host(sequences) : NULL;
    const size_t n = (size_t)b->tokens + 1;
    int32_t **const array[4] = {&u->ids, &u->targets, &u->owner, &u->at};
    for (int k = 0; k < 4; k++) {
        int32_t *more = realloc(*array[k], n * sizeof *more);
        if (!more)
            return x->rc = rlki_fail_memory(x->run, "token ids");
        *array[k] = more;
    }
    u->batch = b->batch;
    u->tokens = b->tokens;
    u->first = b->n ? b->row[0][0] : 0;
    u->count = b->n;
    int64_t t = 0;
    for (int s = 0; s < b->n; s++) {
        const int32_t *r = b->row[s];
        if (r[0] >= rows || (int64_t)r[1] + r[2] > cols)
            return rlki_not_replayable(x, "a batch names tokens that are not there");
        const int32_t *const seq = token ? token + (int64_t)r[0] * cols : NULL;
        for (int32_t k = r[1]; k < r[1] + r[2]; k++, t++) {
            const bool predicts = k + 1 >= r[3] && k + 1 < r[1] + r[2];
            u->ids[t] = seq ? seq[k] : 0;
            u->targets[t] = predicts && seq ? seq[k + 1] : -1;
            u->owner[t] = r[0];
            u->at[t] = predicts ? k + 1 - r[3] : -1;
        }
    }
    return 0;
}

void rlki_attrs_again(struct rlki_exec *x)
{
    for (uint32_t i = 0; i < x->in->e.nattrs; i++)
        if (strcmp(x->in->e.attrs[i].key, "coefficient") != 0 && strcmp(x->in->e.attrs[i].key, "combines") != 0)
            rlki_rec_attr_put(x->run, &x->in->e.attrs[i]);
}

/* A recorded tensor as the value now is: sizes are the value's, names and dimensions the recording's. */
static bool named_of(const struct rlki_exec *x, const struct rlk_tensor *t, const struct rlki_form *f,
                     struct rlki_named *n)
{
    const struct rlk_place *p = t->place;
    if (!p || p->ndim > 3 || strlen(t->name) >= sizeof n->name)
        return false;
    const struct rlki_weight w = {"", f->rows, f->cols, f->ndim, f->cut, f->vocab, false, 0.0f};
    *n = (struct rlki_named){
        "", f->type, (int)p->ndim, {{RLKI_AXIS_WHOLE, 0}}, NULL, p->replica && p->replica[0] ? p->replica : NULL, x->b};
    int64_t whole = 1;
    for (uint32_t d = 0; d < p->ndim; d++) {
        n->dim[d].kind = RLKI_AXIS_WHOLE;
        n->dim[d].n = (int64_t)p->shape[d];
        if (p->shape[d] >> 31 || (d && __builtin_mul_overflow(whole, n->dim[d].n, &whole)))
            return false;
    }
    switch (f->shape) {
    case RLKI_TOKENS_BY:
        n->dim[0].kind = RLKI_AXIS_TOKENS;
        if (p->ndim < 1 || whole != f->width || (f->slab && p->ndim < 2))
            return false;
        if (f->slab)
            n->dim[1].kind = RLKI_AXIS_SLABS;
        break;
    case RLKI_PARAMETER:
        *n = rlki_named_parameter(&w, t->name, f->type);
        break;
    case RLKI_CACHED:
        if (p->ndim != 3 || whole != f->width || n->dim[0].n != f->rows)
            return false;
        n->dim[1].kind = RLKI_AXIS_SLABS;
        break;
    case RLKI_HOST:
        if ((p->ndim ? n->dim[0].n * whole : 1) != f->rows * f->cols)
            return false;
        break;
    }
    memcpy(n->name, t->name, strlen(t->name) + 1);
    return true;
}

static void tell(struct rlki_exec *x, uint32_t k, uint32_t value)
{
    const struct rlk_tensor *t = &x->in->e.tensors[k];
    const struct rlki_value *v = value == RLKI_NO_VALUE ? NULL : &x->m->value[value];
    struct rlki_named n;
    if (!v || !v->buffer)
        return;
    const bool named = named_of(x, t, &v->form, &n);
    if (x->batch_of && k < x->in->inputs)
        n.batch = x->batch_of[k];
    if (!named) {
        rlki_not_replayable(x, "a tensor has another shape than its value");
        return;
    }
    if (t->role == RLK_ROLE_OUT && v->buffer->host)
        rlki_host_spread(&v->buffer->at, v->buffer->bytes[0]);
    x->run->rec.nsamples = t->nsamples;
    x->run->rec.samples = t->samples;
    x->run->rec.payload = t->nsamples && t->has_payload;
    rlki_rec_tensor(x->run, x->w, &n, RLKI_IN(&v->buffer->at), t->role == RLK_ROLE_OUT);
    x->run->rec.nsamples = 0;
    x->run->rec.samples = NULL;
    x->run->rec.payload = false;
}

/* Operators that read what other ranks hold, beside those of kernels/ that say so themselves. */
static void combines(struct rlki_exec *x)
{
    static const char *const all[] = {"rlk.rollout.append", "rlk.gradnorm", "rlk.grpo.logprobs"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(x->in->e.who.op, all[i]) == 0)
            rlki_rec_combines(x->run, x->w, true);
    if (strcmp(x->in->e.who.op, "rlk.grpo.entropy") == 0)
        rlki_rec_combines(x->run, x->w, false);
}

void rlki_own_begin(struct rlki_exec *x)
{
    const struct rlk_event *e = &x->in->e;
    if (x->rc)
        return;
    rlki_attrs_again(x);
    rlki_rec_begin(x->run, x->w, e->who.module, e->who.op, e->u.op.contract[0] ? e->u.op.contract : NULL);
    combines(x);
    for (uint32_t k = 0; k < x->in->inputs; k++)
        tell(x, k, x->m->program->input[x->in->first_input + k]);
}

void rlki_own_end(struct rlki_exec *x)
{
    x->run->rec.grows = strcmp(x->in->e.who.op, "rlk.attention.append") == 0;
    for (uint32_t k = 0; k < x->in->outputs; k++)
        tell(x, x->in->inputs + k, x->in->first_value + k);
    x->run->rec.grows = false;
    rlki_rec_end(x->run, x->w);
}
