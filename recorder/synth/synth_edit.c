/* FILL, MASK and CHANGE: read and checked against the tensor they belong to. */
#include "recorder/synth/synth_spec.h"

#include <math.h>
#include <string.h>

#define MAX_EDITS 1024u

/* Rows of the first dimension; a 0-d tensor is one row. */
static uint64_t rows_of(const struct sy_tensor *t)
{
    return t->ndim ? t->shape[0] : 1;
}

static int read_number(const struct sy_at *at, bool special, struct sy_number *out)
{
    static const char *const names[] = {"nan", "inf", "-inf", NULL};
    const char *name = NULL;

    *out = (struct sy_number){0};
    if (json_is_integer(at->v)) {
        out->is_int = true;
        out->i = json_integer_value(at->v);
        out->d = (double)out->i;
        return RLK_OK;
    }
    if (!special || !json_is_string(at->v))
        return sy_real(at, &out->d);
    int rc = sy_choice(at, names, &name);
    if (!rc)
        out->d = name[0] == 'n' ? (double)NAN : name[0] == '-' ? -HUGE_VAL : HUGE_VAL;
    return rc;
}

/* {"bits": n}: a non-negative integer, or a string "0x..." for what JSON integers cannot hold. */
static int read_bits(const struct sy_at *at, struct sy_tensor *t)
{
    static const char *const keys[] = {"bits", NULL};
    struct sy_at value;
    unsigned width = (unsigned)(rlk_dtype_bytes(t->dtype) * 8);
    const char *s = NULL;
    uint64_t bits = 0;
    int rc = sy_only_key(at, &value, keys);

    if (rc)
        return rc;
    if (json_is_string(value.v)) {
        rc = sy_string(&value, false, &s);
        if (rc)
            return rc;
        if (s[0] != '0' || s[1] != 'x' || !s[2] || strlen(s) > 18 ||
            strspn(s + 2, "0123456789abcdefABCDEF") != strlen(s + 2))
            return sy_fail(&value, "expected 0x and 1 to 16 hexadecimal digits");
        for (s += 2; *s; s++)
            bits = bits << 4 | (uint64_t)(*s <= '9' ? *s - '0' : (*s | 0x20) - 'a' + 10);
    } else {
        int64_t n = 0;
        rc = sy_int(&value, 0, INT64_MAX, &n);
        if (rc)
            return rc;
        bits = (uint64_t)n;
    }
    if (width < 64 && bits >> width)
        return sy_fail(&value, "an element of %s has %u bits", rlk_dtype_name(t->dtype), width);
    t->fill.kind = SY_FILL_BITS;
    t->fill.bits = bits;
    return RLK_OK;
}

/* A value that this dtype can take: integers and bool hold no NaN and no Inf. */
static int takes(const struct sy_at *at, const struct sy_tensor *t, const struct sy_number *v)
{
    if (rlk_dtype_is_integer(t->dtype) && !isfinite(v->d))
        return sy_fail(at, "%s holds no NaN or Inf", rlk_dtype_name(t->dtype));
    return RLK_OK;
}

static int read_name(struct sy_spec *spec, const struct sy_at *at, uint32_t *id)
{
    const char *name = NULL;
    int rc = sy_string(at, false, &name);
    if (rc)
        return rc;
    /* Known already, or no earlier tensor has it. Which of them is meant depends on the rank: evaluation looks. */
    json_t *known = json_object_get(spec->names, name);
    char shown[96];
    if (!known)
        return sy_fail(at, "no earlier tensor is named \"%s\"", sy_shown(shown, name));
    *id = (uint32_t)json_integer_value(known);
    return RLK_OK;
}

static int read_int_fill(const struct sy_at *at, struct sy_fill *fill)
{
    size_t n = 0;
    int rc = sy_list(at, 3, 3, &n);
    if (rc)
        return rc;
    struct sy_at lo = sy_item(at, 0), hi = sy_item(at, 1), seed = sy_item(at, 2);
    rc = sy_int(&lo, INT64_MIN, INT64_MAX, &fill->lo);
    if (!rc)
        rc = sy_int(&hi, INT64_MIN, INT64_MAX, &fill->hi);
    if (!rc)
        rc = sy_u32(&seed, 0, UINT32_MAX, &fill->seed);
    if (!rc && fill->hi <= fill->lo)
        rc = sy_fail(at, "hi (exclusive) must be above lo");
    return rc;
}

int sy_read_fill(struct sy_spec *spec, const struct sy_at *at, struct sy_tensor *t)
{
    static const char *const keys[] = {"normal", "uniform", "const", "arange", "int", "like", "cast_of", NULL};
    struct sy_fill *fill = &t->fill;
    struct sy_at v;
    int rc = sy_only_key(at, &v, keys);

    if (rc)
        return rc;
    if (strcmp(v.key, "normal") == 0 || strcmp(v.key, "uniform") == 0) {
        fill->kind = v.key[0] == 'n' ? SY_FILL_NORMAL : SY_FILL_UNIFORM;
        return sy_u32(&v, 0, UINT32_MAX, &fill->seed);
    }
    if (strcmp(v.key, "const") == 0) {
        if (json_is_object(v.v))
            return read_bits(&v, t);
        fill->kind = SY_FILL_CONST;
        rc = read_number(&v, true, &fill->value);
        return rc ? rc : takes(&v, t, &fill->value);
    }
    if (strcmp(v.key, "arange") == 0) {
        fill->kind = SY_FILL_ARANGE;
        return read_number(&v, false, &fill->value);
    }
    if (strcmp(v.key, "int") == 0) {
        fill->kind = SY_FILL_INT;
        return read_int_fill(&v, fill);
    }
    fill->kind = strcmp(v.key, "like") == 0 ? SY_FILL_LIKE : SY_FILL_CAST_OF;
    return read_name(spec, &v, &fill->name);
}

static int read_row_list(struct sy_spec *spec, const struct sy_at *at, uint64_t bound, uint64_t *n,
                         const uint64_t **rows)
{
    size_t count = 0;
    int rc = sy_list(at, 0, (size_t)RLK_MAX_TENSORS * 16, &count);
    if (rc)
        return rc;
    uint64_t *list = SY_NEW(spec, count, uint64_t);
    if (!list)
        return RLK_ENOMEM;
    for (size_t i = 0; i < count && !rc; i++) {
        struct sy_at item = sy_item(at, i);
        int64_t row = 0;
        if (!bound)
            return sy_fail(&item, "the tensor has no rows");
        rc = sy_int(&item, 0, (int64_t)bound - 1, &row);
        list[i] = (uint64_t)row;
    }
    *n = count;
    *rows = list;
    return rc;
}

/* Reads {"uniform": p, "seed": s} and {"sparse": n, "seed": s}: the only masks of two keys. */
static int read_seeded_mask(const struct sy_at *at, const struct sy_tensor *t, struct sy_mask *mask)
{
    static const char *const uniform[] = {"uniform", "seed", NULL}, *const sparse[] = {"sparse", "seed", NULL};
    bool is_uniform = json_object_get(at->v, "uniform") != NULL;
    struct sy_at value, seed;
    int rc = sy_object(at, is_uniform ? uniform : sparse);

    if (!rc)
        rc = sy_need(at, "seed", &seed);
    if (!rc)
        rc = sy_u32(&seed, 0, UINT32_MAX, &mask->seed);
    if (rc)
        return rc;
    value = sy_get(at, is_uniform ? "uniform" : "sparse");
    if (is_uniform) {
        mask->kind = SY_MASK_UNIFORM;
        rc = sy_real(&value, &mask->p);
        return rc || (mask->p >= 0 && mask->p <= 1) ? rc : sy_fail(&value, "expected a fraction from 0 to 1");
    }
    int64_t n = 0;
    mask->kind = SY_MASK_SPARSE;
    rc = sy_int(&value, 0, INT64_MAX, &n);
    mask->lo = (uint64_t)n;
    if (!rc && mask->lo > t->numel)
        rc = sy_fail(&value, "%lld elements of a tensor that has %llu", (long long)n, (unsigned long long)t->numel);
    return rc;
}

static int read_range(const struct sy_at *at, const struct sy_tensor *t, struct sy_mask *mask)
{
    int64_t lo = 0, hi = (int64_t)t->numel;
    int rc;

    mask->kind = SY_MASK_RANGE;
    if (strcmp(at->key, "tail") == 0) {
        rc = sy_int(at, 0, hi, &lo);
    } else {
        size_t n = 0;
        rc = sy_list(at, 2, 2, &n);
        if (rc)
            return rc;
        struct sy_at a = sy_item(at, 0), b = sy_item(at, 1);
        rc = sy_int(&a, 0, (int64_t)t->numel, &lo);
        if (!rc)
            rc = sy_int(&b, lo, (int64_t)t->numel, &hi);
    }
    mask->lo = (uint64_t)lo;
    mask->hi = (uint64_t)hi;
    return rc;
}

static int read_mask(struct sy_spec *spec, const struct sy_at *at, const struct sy_tensor *t, struct sy_mask *mask)
{
    static const char *const keys[] = {"all", "uniform", "rows", "tail", "sparse", "range", "shard", "seed", NULL};
    struct sy_at v;
    bool yes = false;
    int rc = sy_object(at, keys);

    if (rc)
        return rc;
    if (json_object_get(at->v, "uniform") || json_object_get(at->v, "sparse"))
        return read_seeded_mask(at, t, mask);
    rc = sy_only_key(at, &v, keys);
    if (rc)
        return rc;
    if (strcmp(v.key, "all") == 0) {
        mask->kind = SY_MASK_ALL;
        rc = sy_bool(&v, &yes);
        return rc || yes ? rc : sy_fail(&v, "expected true");
    }
    if (strcmp(v.key, "rows") == 0) {
        mask->kind = SY_MASK_ROWS;
        return read_row_list(spec, &v, rows_of(t), &mask->nrows, &mask->rows);
    }
    if (strcmp(v.key, "shard") == 0) {
        mask->kind = SY_MASK_SHARD;
        return sy_u32(&v, 0, spec->ranks - 1, &mask->rank);
    }
    if (strcmp(v.key, "seed") == 0)
        return sy_fail(at, "\"seed\" belongs to uniform or sparse");
    return read_range(&v, t, mask);
}

static int read_permutation(struct sy_spec *spec, const struct sy_at *at, const struct sy_tensor *t,
                            struct sy_change *change)
{
    uint64_t n = rows_of(t);
    int rc = read_row_list(spec, at, n, &change->nrows, &change->order);

    if (rc)
        return rc;
    if (change->nrows != n)
        return sy_fail(at, "%llu rows of %llu", (unsigned long long)change->nrows, (unsigned long long)n);
    bool *seen = SY_NEW(spec, (size_t)n, bool);
    if (!seen)
        return RLK_ENOMEM;
    for (uint64_t i = 0; i < n; i++) {
        struct sy_at item = sy_item(at, (size_t)i);
        if (seen[change->order[i]])
            return sy_fail(&item, "row %llu is there twice", (unsigned long long)change->order[i]);
        seen[change->order[i]] = true;
    }
    return RLK_OK;
}

static int read_add_rows(struct sy_spec *spec, const struct sy_at *at, const struct sy_tensor *t,
                         struct sy_change *change)
{
    size_t n = 0;
    uint64_t rows = rows_of(t);
    int rc = sy_list(at, 0, (size_t)RLK_MAX_TENSORS * 16, &n);

    if (rc)
        return rc;
    if (n != rows)
        return sy_fail(at, "%zu numbers for %llu rows", n, (unsigned long long)rows);
    struct sy_number *list = SY_NEW(spec, n, struct sy_number);
    if (!list)
        return RLK_ENOMEM;
    for (size_t i = 0; i < n && !rc; i++) {
        struct sy_at item = sy_item(at, i);
        rc = read_number(&item, false, &list[i]);
    }
    change->nrows = n;
    change->add_rows = list;
    return rc;
}

int sy_read_dtype(const struct sy_at *at, enum rlk_dtype *out)
{
    static const char *const names[] = {"bool",     "uint8", "int8", "int16", "int32", "int64",     "fp8_e4m3",
                                        "fp8_e5m2", "fp16",  "bf16", "fp32",  "fp64",  "complex64", NULL};
    const char *name = NULL;
    int rc = sy_choice(at, names, &name);
    if (!rc)
        *out = rlk_dtype_from_name(name);
    return rc;
}

static int read_change(struct sy_spec *spec, const struct sy_at *at, const struct sy_tensor *t, struct sy_change *c)
{
    static const char *const keys[] = {"ulp",  "rel",     "garbage", "zero", "add", "add_rows",
                                       "byte", "permute", "cast",    "from", NULL};
    static const enum sy_change_kind kinds[] = {
        SY_CHANGE_ULP,      SY_CHANGE_REL,  SY_CHANGE_GARBAGE, SY_CHANGE_ZERO, SY_CHANGE_ADD,
        SY_CHANGE_ADD_ROWS, SY_CHANGE_BYTE, SY_CHANGE_PERMUTE, SY_CHANGE_CAST, SY_CHANGE_FROM};
    struct sy_at v;
    uint32_t byte = 0;
    bool yes = false;
    int rc = sy_only_key(at, &v, keys);

    if (rc)
        return rc;
    for (size_t i = 0; keys[i]; i++)
        if (strcmp(keys[i], v.key) == 0)
            c->kind = kinds[i];
    switch (c->kind) {
    case SY_CHANGE_ULP:
        return sy_int(&v, INT64_MIN, INT64_MAX, &c->ulp);
    case SY_CHANGE_REL:
        return sy_real(&v, &c->rel);
    case SY_CHANGE_ADD:
        return read_number(&v, false, &c->add);
    case SY_CHANGE_ADD_ROWS:
        return read_add_rows(spec, &v, t, c);
    case SY_CHANGE_ZERO:
        rc = sy_bool(&v, &yes);
        return rc || yes ? rc : sy_fail(&v, "expected true");
    case SY_CHANGE_BYTE:
        rc = sy_u32(&v, 0, 255, &byte);
        c->byte = (uint8_t)byte;
        return rc;
    case SY_CHANGE_GARBAGE:
        return sy_u32(&v, 0, UINT32_MAX, &c->seed);
    case SY_CHANGE_PERMUTE:
        return read_permutation(spec, &v, t, c);
    case SY_CHANGE_CAST:
        return sy_read_dtype(&v, &c->dtype);
    case SY_CHANGE_FROM:
        return read_name(spec, &v, &c->name);
    }
    return sy_fail(at, "unknown change");
}

int sy_read_edits(struct sy_spec *spec, const struct sy_at *at, struct sy_tensor *t)
{
    static const char *const keys[] = {"mask", "change", NULL};
    size_t n = 0;
    int rc = sy_list(at, 0, MAX_EDITS, &n);

    if (rc)
        return rc;
    struct sy_edit *edits = SY_NEW(spec, n, struct sy_edit);
    if (!edits)
        return RLK_ENOMEM;
    for (size_t i = 0; i < n && !rc; i++) {
        struct sy_at item = sy_item(at, i), mask, change;
        rc = sy_object(&item, keys);
        if (!rc)
            rc = sy_need(&item, "mask", &mask);
        if (!rc)
            rc = sy_need(&item, "change", &change);
        if (!rc)
            rc = read_mask(spec, &mask, t, &edits[i].mask);
        if (!rc)
            rc = read_change(spec, &change, t, &edits[i].change);
    }
    t->nedits = (uint32_t)n;
    t->edits = edits;
    return rc;
}
